//! `agent new|list|show`.

use latchkey_controller::explain::chain;
use latchkey_controller::folder::AgentFolder;
use serde_json::{Value, json};
use wire::keys::PublicKey;
use wire::text::{Agent, visible};

use super::outside::SystemChance;
use super::problem::Problem;
use super::screen::table;
use super::session::Session;

pub(crate) fn new(session: &Session, address: &str) -> Result<(), Problem> {
    let agent: Agent = address.parse().map_err(|error| {
        let typed = visible(address);
        Problem::usage(format!("{typed} is {}; for example kitchen-bot@home.example.org", chain(&error)))
    })?;
    let (_, key) = session.folder.new_agent(&agent, &SystemChance)?;
    if session.screen.json {
        session.screen.json(&document(&agent, &key))?;
    } else {
        session.screen.line(&format!("{agent} has a key now: {key}"))?;
        session.screen.note("next, at a device run: latchkeyd pair, then here: latchkey claim 'LINK'");
    }
    Ok(())
}

pub(crate) fn list(session: &Session) -> Result<(), Problem> {
    let mut documents = Vec::new();
    let mut rows = vec![vec!["AGENT".to_owned(), "KEY".to_owned()]];
    for agent in session.folder.agents()? {
        let key = agent.signer()?.public().clone();
        rows.push(vec![agent.agent().to_string(), key.to_string()]);
        documents.push(document(agent.agent(), &key));
    }
    if session.screen.json {
        session.screen.json(&Value::Array(documents))?;
    } else if documents.is_empty() {
        session.screen.note("there is no agent yet; make one: latchkey agent new NAME@SCOPE.PROVIDER");
    } else {
        for line in table(&rows) {
            session.screen.line(&line)?;
        }
    }
    Ok(())
}

pub(crate) fn show(session: &Session, address: Option<&str>) -> Result<(), Problem> {
    let agent: AgentFolder = match address {
        Some(address) => session.folder.agent(Some(address))?,
        None => session.agent()?,
    };
    let key = agent.signer()?.public().clone();
    if session.screen.json {
        session.screen.json(&document(agent.agent(), &key))?;
    } else {
        session.screen.line(&format!("agent        {}", agent.agent()))?;
        session.screen.line(&format!("key          {key}"))?;
        session.screen.line(&format!("fingerprint  {}", key.fingerprint()))?;
    }
    Ok(())
}

fn document(agent: &Agent, key: &PublicKey) -> Value {
    json!({"agent": agent, "key": key, "fingerprint": key.fingerprint()})
}
