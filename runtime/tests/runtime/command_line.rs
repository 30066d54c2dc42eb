//! What the command line means, and how commands end.

use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use actors::{Command, Reply};
use clap::Parser;
use clap::error::ErrorKind;
use handlers::wasm::author::Lang;
use jiff::tz::TimeZone;
use latchkey_runtime::cli::args::{Cli, ConfigOrder, HandlerOrder, HandlersOrder, Order, Output};
use latchkey_runtime::cli::{Ended, World, perform, program};

use crate::device::{Bench, Wish, exchange, folder, post, status};

fn parse(line: &str) -> Result<Cli, ErrorKind> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.kind())
}

#[test]
fn each_command_line_means_what_it_says() {
    let plain = Output::default();
    let json = Output { json: true };
    let receipts = |verify, export: Option<&str>, follow, last| Order::Receipts {
        verify,
        export: export.map(PathBuf::from),
        follow,
        last,
        output: plain,
    };
    let show = |name: &str| HandlersOrder::Show { name: name.to_owned(), output: plain };
    let log = |name: &str| HandlersOrder::Log { name: name.to_owned(), output: plain };
    let new = HandlerOrder::New { name: "acme.lamp".to_owned(), lang: Lang::C, dir: None };
    let run = HandlerOrder::Run { file: "a.wat".into(), args: None, pairs: vec!["b=1".to_owned()], output: json };
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    let rows = [
        ("run", Ok(Order::Run { simulate: None })),
        ("run --simulate", Ok(Order::Run { simulate: Some(Vec::new()) })),
        (
            "run --simulate camera=silent@2s sign=hang",
            Ok(Order::Run { simulate: words(&["camera=silent@2s", "sign=hang"]) }),
        ),
        (
            "run --simulate camera=silent --simulate sign=hang",
            Ok(Order::Run { simulate: words(&["camera=silent", "sign=hang"]) }),
        ),
        ("run --simulate --system", Ok(Order::Run { simulate: Some(Vec::new()) })),
        ("reload", Ok(Order::Reload(plain))),
        ("status --json", Ok(Order::Status(json))),
        ("pair --json", Ok(Order::Pair(json))),
        ("claims", Ok(Order::Claims(plain))),
        ("approve 482913", Ok(Order::Approve { which: vec!["482913".to_owned()], output: plain })),
        ("approve 482 913", Ok(Order::Approve { which: vec!["482".to_owned(), "913".to_owned()], output: plain })),
        ("approve", Err(ErrorKind::MissingRequiredArgument)),
        ("refuse abc --json", Ok(Order::Refuse { which: vec!["abc".to_owned()], output: json })),
        ("grants", Ok(Order::Grants(plain))),
        ("grant camera", Ok(Order::Grant { name: "camera".to_owned(), output: plain })),
        ("grant", Err(ErrorKind::MissingRequiredArgument)),
        ("revoke display.text", Ok(Order::Revoke { name: "display.text".to_owned(), output: plain })),
        ("receipts", Ok(receipts(false, None, false, 20))),
        ("receipts --last 5 --follow", Ok(receipts(false, None, true, 5))),
        ("receipts --verify", Ok(receipts(true, None, false, 20))),
        ("receipts --export a.receipts", Ok(receipts(false, Some("a.receipts"), false, 20))),
        ("receipts --export a --follow", Err(ErrorKind::ArgumentConflict)),
        ("receipts --verify --last 3", Err(ErrorKind::ArgumentConflict)),
        ("receipts --last x", Err(ErrorKind::ValueValidation)),
        ("verify-export a", Ok(Order::VerifyExport { file: "a".into(), key: None, output: plain })),
        ("release --yes", Ok(Order::Release { yes: true, output: plain })),
        ("deactivate", Ok(Order::Deactivate(plain))),
        ("restart camera.snapshot", Ok(Order::Restart { capability: "camera.snapshot".to_owned(), output: plain })),
        ("handlers --json", Ok(Order::Handlers { order: None, output: json })),
        ("handlers show a", Ok(Order::Handlers { order: Some(show("a")), output: plain })),
        ("handlers log a", Ok(Order::Handlers { order: Some(log("a")), output: plain })),
        ("handlers install a", Err(ErrorKind::InvalidSubcommand)),
        ("handler new acme.lamp --lang c", Ok(Order::Handler(new))),
        ("handler new acme.lamp --lang cobol", Err(ErrorKind::InvalidValue)),
        ("handler run a.wat b=1 --json", Ok(Order::Handler(run))),
        ("handler run a.wat b=1 --args {}", Err(ErrorKind::ArgumentConflict)),
        ("handler pack a.wasm", Err(ErrorKind::MissingRequiredArgument)),
        ("handler install a.wasm", Err(ErrorKind::InvalidSubcommand)),
        ("key", Ok(Order::Key(plain))),
        ("config init", Ok(Order::Config(ConfigOrder::Init))),
        ("config check", Ok(Order::Config(ConfigOrder::Check))),
        ("config show --json", Ok(Order::Config(ConfigOrder::Show(json)))),
        ("install evil.wasm", Err(ErrorKind::InvalidSubcommand)),
        ("", Err(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)),
        ("--help", Err(ErrorKind::DisplayHelp)),
    ];
    for (line, wanted) in rows {
        assert_eq!(parse(&format!("latchkeyd {line}")).map(|cli| cli.order), wanted, "{line}");
    }
    let everywhere = parse("latchkeyd status --state-dir /s --config-dir /c --system --set a=1 --set b=2").unwrap();
    let before = parse("latchkeyd --state-dir /s --config-dir /c --system --set a=1 --set b=2 status").unwrap();
    assert_eq!(everywhere, before, "flags stand before or behind the command");
    assert_eq!(everywhere.sets, ["a=1", "b=2"]);
}

/// An output that a test can read.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn world(paper: &Paper, env: &[(&str, &str)], answer: Option<&'static str>) -> World {
    World {
        env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        root: false,
        now_ms: 1_700_000_000_000,
        zone: TimeZone::UTC,
        input: Box::new(Cursor::new(answer.unwrap_or(""))),
        asks: answer.is_some(),
        out: Box::new(paper.clone()),
        aside: Box::new(std::io::sink()),
        terminal: false,
        colour: false,
    }
}

/// Runs a command as a shell would, and gives how it ended and what it said.
fn run(line: &str, answer: Option<&'static str>) -> (Ended, String) {
    let paper = Paper::default();
    let mut world = world(&paper, &[("HOME", "/nowhere")], answer);
    let ended = perform(&parse(line).unwrap(), &mut world);
    let said = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    ended.map_or_else(|problem| (problem.ended, problem.sentence), |()| (Ended::Done, said))
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_with_their_code_and_one_sentence_that_says_what_to_do() {
    let bench = Bench::start(Wish::default()).await;
    let envelope = bench.claim().await;
    assert_eq!(status(&exchange(bench.direct(), post("/v1/request", &envelope)).await), 200);
    let Reply::Claims { claims } = bench.command(Command::Claims).await else { panic!("claims") };
    let approve = format!("approve {}", claims[0].code);
    let rows: [(&str, Option<&'static str>, Ended, &str); 17] = [
        ("status", None, Ended::Done, "simulated"),
        ("grants", None, Ended::Done, "camera"),
        ("claims", None, Ended::Done, "wants to own this device"),
        ("claims --json", None, Ended::Done, "\"state\": \"pending\""),
        ("pair", None, Ended::Done, "latchkey claim 'http://127.0.0.1:"),
        ("pair --json", None, Ended::Done, "\"link\": \"http://127.0.0.1:"),
        ("approve 000000", None, Ended::Failed, "000000"),
        ("grant camera", None, Ended::Refused, "latchkeyd pair"),
        (&approve, None, Ended::Done, "owns this device now"),
        ("grant camera.snapshot", None, Ended::Done, "camera is on"),
        ("grant camera", None, Ended::Done, "on already"),
        ("grant piano", None, Ended::Failed, "piano"),
        ("receipts", None, Ended::Done, "grant"),
        ("receipts --verify", None, Ended::Done, "hold together"),
        ("release", None, Ended::Usage, "--yes"),
        ("release", Some("n\n"), Ended::Refused, "nothing was changed"),
        ("reload", None, Ended::Failed, "does not read its settings anew"),
    ];
    let state_dir = bench.folder.path().to_str().unwrap().to_owned();
    for (command, answer, ended, words) in rows {
        let line = format!("latchkeyd --state-dir {state_dir} {command}");
        let (got, said) = tokio::task::spawn_blocking(move || run(&line, answer)).await.unwrap();
        assert_eq!(got, ended, "{command}: {said}");
        assert!(said.contains(words), "{command}: {said}");
        assert!(ended == Ended::Done || !said.contains('\n'), "{command}: one sentence, {said}");
    }
    let export = bench.folder.path().join("kitchen.receipts");
    let (line, check) = (
        format!("latchkeyd --state-dir {state_dir} receipts --export {}", export.display()),
        format!("latchkeyd verify-export {} --key {}", export.display(), bench.public()),
    );
    let other = format!(
        "latchkeyd verify-export {} --key {}",
        export.display(),
        wire::Signer::public(&wire::SecretKey::from_seed(&[1; 32]))
    );
    tokio::task::spawn_blocking(move || {
        assert_eq!(run(&line, None).0, Ended::Done);
        assert_eq!(run(&check, None).0, Ended::Done, "control: the export of this device");
        assert_eq!(run(&other, None).0, Ended::Failed, "of another device");
    })
    .await
    .unwrap();
    bench.stop().await;
}

#[test]
fn without_a_daemon_commands_read_or_say_how_to_start_one() {
    let folder = folder();
    let state_dir = folder.path().display();
    let rows = [
        ("grant camera", Ended::Unreachable, "start it with: latchkeyd --state-dir "),
        ("receipts --follow", Ended::Unreachable, "start it with: latchkeyd --state-dir "),
        ("status", Ended::Failed, "make one with: latchkeyd --state-dir "),
        ("key", Ended::Failed, "make one with: latchkeyd --state-dir "),
    ];
    for (command, ended, words) in rows {
        let (got, said) = run(&format!("latchkeyd --state-dir {state_dir} {command}"), None);
        assert_eq!(got, ended, "{command}: {said}");
        assert!(said.contains(words), "{command}: {said}");
    }
    latchkey_runtime::key::read_or_make(folder.path(), &latchkey_runtime::SystemChance).unwrap();
    assert_eq!(run(&format!("latchkeyd --state-dir {state_dir} key"), None).0, Ended::Done, "control");
}

#[test]
fn settings_are_made_checked_and_shown() {
    let folder = folder();
    let dir = folder.path().join("settings");
    let run = |command: &str| run(&format!("latchkeyd --config-dir {} {command}", dir.display()), None);
    assert_eq!(run("config init").0, Ended::Done);
    assert_eq!(run("config check").0, Ended::Done);
    let (ended, said) = run("config init");
    assert!(ended == Ended::Failed && said.contains("not touched"), "{said}");
    assert!(run("config show").1.contains("[link.direct]"));
    assert!(run("config show --json").1.contains("\"listen\""));
    let (ended, said) = run("config check --set link.direct.lisen=1");
    assert!(ended == Ended::Failed && said.contains("link.direct.listen"), "{said}");
}

#[test]
fn announced_commands_reach_the_same_device() {
    let rows: [(&str, &[(&str, &str)], &str); 5] = [
        ("latchkeyd run", &[], "latchkeyd"),
        ("latchkeyd --state-dir /srv/kitchen run", &[], "latchkeyd --state-dir /srv/kitchen"),
        ("latchkeyd run --system", &[], "latchkeyd --system"),
        (
            "latchkeyd run",
            &[("LATCHKEY_STATE_DIR", "/srv/my kitchen's")],
            r"latchkeyd --state-dir '/srv/my kitchen'\''s'",
        ),
        ("latchkeyd run", &[("LATCHKEY_STATE_DIR", "")], "latchkeyd"),
    ];
    for (line, env, wanted) in rows {
        assert_eq!(program(&parse(line).unwrap(), &world(&Paper::default(), env, None)), wanted, "{line}");
    }
}
