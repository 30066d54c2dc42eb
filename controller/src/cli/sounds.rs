//! `listen` and `say`: sound from a device, speech to one.

use latchkey_controller::values::{self, LISTEN};
use serde_json::{Value, json};
use wire::json::Object;

use super::args;
use super::calls::{Line, parse_capability};
use super::problem::Problem;
use super::session::Session;
use super::target::{Target, deliver};

/// The capability that speaks.
const SAY: &str = "speaker.say";

pub(crate) async fn listen(session: &Session, listen: &args::Listen) -> Result<(), Problem> {
    let target = Target::new(&listen.output, session.screen.json)?;
    let capability = parse_capability(LISTEN)?;
    let line = Line::open(session, &listen.device, capability.clone(), &listen.sending).await?;
    let mut arguments = Object::new();
    arguments.insert("seconds", listen.seconds);
    let value = line.invoke(session, arguments).await?;
    let no_sound = || Problem::failed("the device answered no sound");
    let media = values::check(&capability, &value).ok().flatten().ok_or_else(no_sound)?;
    deliver(session, &line, (&target, &listen.output), &media)
}

pub(crate) async fn say(session: &Session, say: &args::Say) -> Result<(), Problem> {
    let line = Line::open(session, &say.device, parse_capability(SAY)?, &say.sending).await?;
    let mut arguments = Object::new();
    arguments.insert("text", say.text.as_str());
    let value = line.invoke(session, arguments).await?;
    if session.screen.json {
        let document = json!({"device": line.device.name, "id": line.id, "value": Value::from(value)});
        session.screen.json(&document)?;
    } else {
        let cut_ms = value.get("cut_ms").and_then(Value::as_u64);
        let cut = cut_ms.map_or_else(String::new, |ms| format!("; it was too long, and cut after {} s", ms / 1_000));
        session.screen.line(&format!("said on {}{cut}", line.device.name))?;
    }
    Ok(())
}
