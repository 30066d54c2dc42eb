//! The README and the guides say what is true: each command in them exists with the flags shown, each link leads somewhere, and the
//! table of settings is the program's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use config::keys::KEYS;
use latchkey_tests::Room;

/// Options of all commands that are followed by a value.
const WITH_VALUE: [&str; 5] = ["--set", "--state-dir", "--config-dir", "--agent", "--timeout"];

/// Commands that have commands of their own.
const WITH_ORDERS: [&str; 3] = ["agent", "config", "handler"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// README and guides, by their path from the root.
fn pages() -> Vec<(PathBuf, String)> {
    let guides = fs::read_dir(root().join("docs")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = guides.filter(|file| file.extension().is_some_and(|end| end == "md")).collect();
    files.push(root().join("README.md"));
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read_to_string(&file).unwrap())).collect()
}

/// What stands in code: indented lines, and what is between back ticks.
fn code(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("    ") {
            found.push(line.trim().to_owned());
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

/// One command as it is shown: program, words that name it, flags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    program: &'static str,
    words: Vec<String>,
    flags: Vec<String>,
}

/// The commands in a piece of code. Two blanks begin a remark, and words in capitals stand for something else.
fn commands(code: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    for program in ["latchkeyd", "latchkey"] {
        let mut rest = code;
        while let Some(at) = rest.find(&format!("{program} ")) {
            let before = rest[..at].chars().next_back();
            let after = &rest[at + program.len() + 1..];
            // Inside a path, or the end of another word.
            if before.is_none_or(|c| matches!(c, ' ' | '`' | '(')) {
                found.extend(shown(program, after.split("  ").next().unwrap_or_default()));
            }
            rest = after;
        }
    }
    found
}

fn shown(program: &'static str, line: &str) -> Option<Shown> {
    let mut shown = Shown { program, words: Vec::new(), flags: Vec::new() };
    let mut words = line.split_whitespace();
    let mut wanted = 1;
    while let Some(word) = words.next() {
        let word = word.trim_end_matches([',', ';', '.', ':', ')']);
        if let Some(flag) = word.strip_prefix("--") {
            shown.flags.push(format!("--{}", flag.split('=').next().unwrap_or_default()));
            if WITH_VALUE.contains(&word) {
                words.next();
            }
        } else if shown.words.len() < wanted {
            // "latchkeyd is running already" is a sentence.
            if word.is_empty() || word == "is" || !word.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
                return None;
            }
            if WITH_ORDERS.contains(&word) {
                wanted = 2;
            }
            shown.words.push(word.to_owned());
        }
    }
    (shown.words.len() == wanted).then_some(shown)
}

#[test]
fn every_command_in_the_guides_exists_with_the_flags_shown() {
    let mut all = BTreeSet::new();
    for (_, text) in pages() {
        all.extend(code(&text).iter().flat_map(|code| commands(code)));
    }
    let words: BTreeSet<&str> = all.iter().map(|shown| shown.words[0].as_str()).collect();
    for known in ["run", "approve", "receipts", "config", "agent", "claim", "call", "forget"] {
        assert!(words.contains(known), "the search does not find `{known}` any more: {words:?}");
    }
    let room = Room::new();
    for Shown { program, words, flags } in &all {
        let mut line: Vec<&str> = words.iter().map(String::as_str).collect();
        line.push("--help");
        let help = if *program == "latchkeyd" { room.latchkeyd(&line) } else { room.latchkey(&line) };
        assert_eq!(help.code(), 0, "there is no `{program} {}`: {}", words.join(" "), help.err);
        for flag in flags.iter().filter(|flag| *flag != "--help") {
            assert!(help.out.contains(flag.as_str()), "`{program} {}` knows no {flag}", words.join(" "));
        }
    }
}

#[test]
fn the_search_for_commands_sees_them_as_a_person_does() {
    let rows: &[(&str, &[&str])] = &[
        ("latchkeyd run --simulate        camera, sign", &["latchkeyd run --simulate"]),
        ("device$ latchkeyd --set a.b=c approve 482913", &["latchkeyd approve --set"]),
        ("latchkey agent new kitchen-bot@home.example.org", &["latchkey agent new"]),
        ("latchkey COMMAND --help", &[]),
        ("error: not granted; at the device run: latchkeyd grant camera", &["latchkeyd grant"]),
        ("/usr/local/bin/latchkeyd --system run", &[]),
        ("journalctl -u latchkeyd", &[]),
        ("latchkeyd is running already", &[]),
    ];
    for (code, wanted) in rows {
        let found: Vec<String> = commands(code)
            .into_iter()
            .map(|shown| [vec![shown.program.to_owned()], shown.words, shown.flags].concat().join(" "))
            .collect();
        assert_eq!(&found, wanted, "{code}");
    }
}

#[test]
fn every_link_of_the_guides_leads_somewhere() {
    for (file, text) in pages() {
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            let (path, part) = target.split_once('#').unwrap_or((target, ""));
            let page = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            assert!(page.exists(), "{}: {target}", file.display());
            if !part.is_empty() {
                let headings = fs::read_to_string(&page).unwrap();
                let mut headings = headings.lines().filter_map(|line| line.strip_prefix('#'));
                let slug = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                assert!(headings.any(|line| slug(line) == part), "{}: {target}", file.display());
            }
        }
    }
}

#[test]
fn the_table_of_settings_is_the_programs_own() {
    let mut table = "| key | default | meaning |\n|---|---|---|\n".to_owned();
    for key in KEYS {
        let default = if key.unset.is_empty() { format!("`{}`", key.value) } else { format!("unset: {}", key.unset) };
        table.push_str(&format!("| `{}` | {default} | {} |\n", key.path, key.meaning.join(" ")));
    }
    let file = root().join("docs/device.md");
    let text = fs::read_to_string(&file).unwrap();
    let begins = "<!-- settings: this table is held against the program's own by a test -->\n";
    let (_, rest) = text.split_once(begins).expect("the table begins");
    let (written, _) = rest.split_once("<!-- end of settings -->").expect("the table ends");
    assert!(written == table, "{} should have this table:\n{table}", file.display());
}
