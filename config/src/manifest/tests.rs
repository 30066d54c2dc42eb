#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use wire::json::Value;

use super::*;

/// Everything that a manifest can say.
const FULL: &str = r#"
description = "Dims the kitchen lamp"
effect = "read"
activation = "any"
captures = true
timeout = "2s"
memory = "64MiB"
result_bytes_max = 1024

[arguments]
type = "object"
required = ["level"]
properties.level = { type = "integer", minimum = 0, maximum = 100 }
properties.colour = { type = "string", maxLength = 8, enum = ["warm", "cold"] }
properties.again = { type = "number", maximum = 0.5 }

[reach]
read = ["/sys/devices/w1_bus_master1"]
write = ["/sys/class/leds/kitchen-lamp"]
http = ["http://192.168.1.20", "https://Lamp.local:8443"]
"#;

fn lamp() -> CapabilityName {
    "custom.acme.lamp".parse().unwrap()
}

/// The text is refused with exactly this sentence, and accepted once `flaw` is replaced by `control`.
fn refused(text: &str, flaw: &str, control: &str, sentence: &str) {
    assert!(text.contains(flaw), "{flaw:?} is not in {text:?}");
    let error = Manifest::parse(text).expect_err(text).to_string();
    assert_eq!(error, sentence, "{text}");
    assert!(!error.contains('\n'), "one line: {error:?}");
    let mended = text.replacen(flaw, control, 1);
    Manifest::parse(&mended).unwrap_or_else(|error| unreachable!("the control is refused: {mended}: {error}"));
}

#[test]
fn everything_that_a_keeper_may_say_is_read_as_it_stands() {
    let manifest = Manifest::parse(FULL).unwrap();
    let origin = |tls, host: &str, port| Origin { tls, host: host.to_owned(), port };
    let reach = Reach {
        read: vec!["/sys/devices/w1_bus_master1".into()],
        write: vec!["/sys/class/leds/kitchen-lamp".into()],
        http: vec![origin(false, "192.168.1.20", 80), origin(true, "lamp.local", 8443)],
    };
    let arguments = manifest.arguments.clone().unwrap();
    let names: Vec<&str> = arguments.properties().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["level", "colour", "again"], "in the keeper's order");
    assert_eq!(
        String::from_utf8(arguments.to_object().to_vec()).unwrap(),
        r#"{"type":"object","required":["level"],"properties":{"level":{"type":"integer","minimum":0,"maximum":100},"colour":{"type":"string","maxLength":8,"enum":["warm","cold"]},"again":{"type":"number","maximum":0.5}}}"#
    );
    assert_eq!(
        manifest,
        Manifest {
            description: Some("Dims the kitchen lamp".to_owned()),
            effect: Effect::Read,
            activation: Activation::Any,
            captures: true,
            timeout: Duration::from_secs(2),
            memory_bytes: 64 * 1024 * 1024,
            result_bytes_max: 1024,
            arguments: Some(arguments),
            reach,
        }
    );
}

#[test]
fn what_is_not_said_is_the_careful_default() {
    for text in ["", "\u{feff}# nothing\r\n"] {
        assert_eq!(Manifest::parse(text).unwrap(), Manifest::default());
    }
    let Manifest { effect, activation, captures, timeout, memory_bytes, result_bytes_max, reach, .. } =
        Manifest::default();
    assert_eq!((effect, activation, captures), (Effect::Change, Activation::Active, false));
    assert_eq!((timeout, memory_bytes, result_bytes_max), (Duration::from_secs(1), 32 << 20, 64 << 10));
    assert_eq!(reach, Reach::default());
}

#[test]
fn sizes_and_times_are_read_up_to_their_limits() {
    let rows: &[(&str, usize, usize, u64)] = &[
        ("memory = '64KiB'", 64 << 10, RESULT_BYTES_DEFAULT, 1000),
        ("memory = 65536", 64 << 10, RESULT_BYTES_DEFAULT, 1000),
        ("memory = '256MiB'", 256 << 20, RESULT_BYTES_DEFAULT, 1000),
        ("memory = '1 MiB'", 1 << 20, RESULT_BYTES_DEFAULT, 1000),
        ("result_bytes_max = 2", MEMORY_DEFAULT, 2, 1000),
        ("result_bytes_max = '1MiB'", MEMORY_DEFAULT, 1 << 20, 1000),
        ("result_bytes_max = 1_048_576", MEMORY_DEFAULT, 1 << 20, 1000),
        ("timeout = '1ms'", MEMORY_DEFAULT, RESULT_BYTES_DEFAULT, 1),
        ("timeout = '500 ms'", MEMORY_DEFAULT, RESULT_BYTES_DEFAULT, 500),
        ("timeout = '60s'", MEMORY_DEFAULT, RESULT_BYTES_DEFAULT, 60_000),
        ("timeout = '60000ms'", MEMORY_DEFAULT, RESULT_BYTES_DEFAULT, 60_000),
    ];
    for (text, memory, result, timeout_ms) in rows {
        let manifest = Manifest::parse(text).unwrap();
        let read = (manifest.memory_bytes, manifest.result_bytes_max, manifest.timeout);
        assert_eq!(read, (*memory, *result, Duration::from_millis(*timeout_ms)), "{text}");
    }
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_known_key() {
    let all = "the keys are description, effect, activation, captures, timeout, memory, result_bytes_max, arguments, reach.read, reach.write, reach.http";
    let strange = format!("line 1: unknown key `xyzzy`; {all}");
    let granted = format!("line 2: unknown key `grant`; {all}");
    let rows: &[(&str, &str, &str, &str)] = &[
        ("\n\ntimout = '1s'", "timout", "timeout", "line 3: unknown key `timout`; did you mean `timeout`?"),
        ("memroy = 65536", "memroy", "memory", "line 1: unknown key `memroy`; did you mean `memory`?"),
        ("read = []", "read", "reach.read", "line 1: unknown key `read`; did you mean `reach.read`?"),
        ("[reach]\nraed = []", "raed", "read", "line 2: unknown key `reach.raed`; did you mean `reach.read`?"),
        ("reach = { https = [] }", "https", "http", "line 1: unknown key `reach.https`; did you mean `reach.http`?"),
        ("[reach]\ntimeout = '1s'", "[reach]", "", "line 2: unknown key `reach.timeout`; did you mean `timeout`?"),
        ("[raech]\nread = []", "raech", "reach", "line 1: unknown key `raech`; did you mean `reach`?"),
        ("xyzzy = 1", "xyzzy = 1", "", &strange),
        ("captures = true\ngrant = true", "grant = true", "", &granted),
        (
            "[arguments]\ntype = 'object'\n[arguments.properties.level]\ntype = 'integer'\nminimun = 0",
            "minimun",
            "minimum",
            "line 5: unknown key `arguments.properties.level.minimun`; did you mean `arguments.properties.level.minimum`?",
        ),
        (
            "[arguments]\ntype = 'object'\nproprties = {}",
            "proprties",
            "properties",
            "line 3: unknown key `arguments.proprties`; did you mean `arguments.properties`?",
        ),
        (
            "[arguments]\ntype = 'object'\n\nproperties.a = { type = 'array', maxItems = 2, items = { type = 'string', maxLength = 1, format = 'x' } }",
            ", format = 'x'",
            "",
            "line 4: unknown key `arguments.properties.a.items.format`",
        ),
        ("timeout = '1s'\n\"a\\nb\" = 1", "\"a\\nb\" = 1", "", &format!("line 2: unknown key `a\\u{{a}}b`; {all}")),
    ];
    for (text, flaw, control, sentence) in rows {
        refused(text, flaw, control, sentence);
    }
}

#[test]
fn a_value_beyond_its_limit_names_the_key_the_limit_and_what_was_given() {
    let long = "é".repeat(101);
    let rows: &[(&str, &str, &str, &str)] = &[
        ("timeout = '61s'", "61s", "60s", "line 1: `timeout`: \"61s\" is not within 1ms and 60s"),
        ("timeout = '60001ms'", "60001", "60000", "line 1: `timeout`: \"60001ms\" is not within 1ms and 60s"),
        ("timeout = '0s'", "0s", "1s", "line 1: `timeout`: \"0s\" is not within 1ms and 60s"),
        ("memory = '257MiB'", "257", "256", "line 1: `memory`: \"257MiB\" is not within 64 KiB and 256 MiB"),
        ("memory = '63KiB'", "63", "64", "line 1: `memory`: \"63KiB\" is not within 64 KiB and 256 MiB"),
        ("memory = -1", "-1", "65536", "line 1: `memory`: -1 is not within 64 KiB and 256 MiB"),
        (
            "memory = '18446744073709551615MiB'",
            "18446744073709551615",
            "1",
            "line 1: `memory`: \"18446744073709551615MiB\" is not within 64 KiB and 256 MiB",
        ),
        (
            "result_bytes_max = 1048577",
            "1048577",
            "1048576",
            "line 1: `result_bytes_max`: 1048577 is not within 2 bytes and 1 MiB",
        ),
        ("result_bytes_max = 1", "1", "2", "line 1: `result_bytes_max`: 1 is not within 2 bytes and 1 MiB"),
        (&format!("description = '{long}'"), "é", "e", ""),
        ("description = ' '", "' '", "' x'", "line 1: `description`: a description has 1 to 200 bytes, this has 1"),
    ];
    for (text, flaw, control, sentence) in rows {
        let two_bytes = "line 1: `description`: a description has 1 to 200 bytes, this has 202";
        if sentence.is_empty() {
            // Bytes count, not letters: two letters less are four bytes less.
            refused(text, "éé", "e", two_bytes);
        } else {
            refused(text, flaw, control, sentence);
        }
    }
}

#[test]
fn a_value_of_another_form_says_what_was_expected() {
    let rows: &[(&str, &str, &str, &str)] = &[
        ("timeout = 1", "1", "'1s'", "line 1: `timeout`: expected text in quotes, found an integer"),
        (
            "timeout = '2.5s'",
            "2.5s",
            "2500ms",
            "line 1: `timeout`: \"2.5s\" is not a time, such as \"2s\" or \"500ms\"",
        ),
        ("timeout = '1m'", "1m", "1s", "line 1: `timeout`: \"1m\" is not a time, such as \"2s\" or \"500ms\""),
        ("timeout = '1'", "1", "1s", "line 1: `timeout`: \"1\" is not a time, such as \"2s\" or \"500ms\""),
        ("timeout = '-1s'", "-1s", "1s", "line 1: `timeout`: \"-1s\" is not a time, such as \"2s\" or \"500ms\""),
        ("memory = '32MB'", "MB", "MiB", "line 1: `memory`: \"32MB\" is not a size, such as \"64KiB\" or \"32MiB\""),
        ("memory = 'MiB'", "MiB", "1MiB", "line 1: `memory`: \"MiB\" is not a size, such as \"64KiB\" or \"32MiB\""),
        (
            "memory = 65536.0",
            "65536.0",
            "65536",
            "line 1: `memory`: expected a size, such as \"64KiB\" or 65536, found a float",
        ),
        ("captures = 'true'", "'true'", "true", "line 1: `captures`: expected true or false, found text"),
        ("effect = 'write'", "write", "change", "line 1: `effect`: \"write\" is neither \"read\" nor \"change\""),
        ("activation = 'all'", "all", "any", "line 1: `activation`: \"all\" is neither \"active\" nor \"any\""),
        ("description = 5", "5", "'5'", "line 1: `description`: expected text in quotes, found an integer"),
        (
            "arguments = 'none'",
            "'none'",
            "{ type = 'object' }",
            "line 1: `arguments`: expected a table of bounds, found text",
        ),
        ("reach = ['/a']", "['/a']", "{ read = ['/a'] }", "line 1: `reach`: expected a table, found a list"),
        ("[[reach]]\nread = []", "[[reach]]", "[reach]", "line 1: `reach`: expected a table, found a list of tables"),
        ("reach.read = '/a'", "'/a'", "['/a']", "line 1: `reach.read`: expected a list of texts, found text"),
        ("reach.read = [5]", "[5]", "['/5']", "line 1: `reach.read`: expected a list of texts, found an integer in it"),
        ("a = ", "a = ", "", "line 1: this is not TOML"),
        (
            "captures = true\ncaptures = true",
            "captures = true\n",
            "",
            "line 2: duplicate key `captures` in document root",
        ),
    ];
    for (text, flaw, control, sentence) in rows {
        refused(text, flaw, control, sentence);
    }
}

#[test]
fn bounds_that_the_wire_refuses_keep_its_reason_and_get_their_line() {
    let deep = |levels: usize| {
        let mut node = "{ type = 'boolean' }".to_owned();
        for _ in 0..levels {
            node = format!("{{ type = 'array', maxItems = 1, items = {node} }}");
        }
        format!("[arguments]\ntype = 'object'\nproperties.a = {node}")
    };
    let sentence = "line 1: `arguments`: arguments: 11 objects and lists inside one another, at most 10";
    let error = Manifest::parse(&deep(8)).unwrap_err().to_string();
    assert_eq!(error, sentence);
    Manifest::parse(&deep(7)).unwrap();

    let wide = |bytes: usize| {
        format!(
            "[arguments]\ntype = 'object'\n[arguments.properties.a]\ntype = 'string'\nmaxLength = 9000\nenum = ['{}']",
            "x".repeat(bytes)
        )
    };
    let error = Manifest::parse(&wide(4096)).unwrap_err().to_string();
    assert!(error.starts_with("line 1: arguments: at most 4096 bytes, this has "), "{error}");
    Manifest::parse(&wide(3900)).unwrap();

    let head = "[arguments]\ntype = 'object'\n";
    let rows: &[(&str, &str, &str, &str)] = &[
        (
            "properties.text = { type = 'string' }",
            "'string'",
            "'string', maxLength = 9",
            "line 3: arguments.text: maxLength is missing, everything needs a maximum",
        ),
        (
            "\n[arguments.properties.all]\ntype = 'array'\nitems = { type = 'string', maxLength = 3 }",
            "items",
            "maxItems = 2\nitems",
            "line 4: arguments.all: maxItems is missing, everything needs a maximum",
        ),
        (
            "\n[arguments.properties.all]\ntype = 'array'\nmaxItems = 2\nitems = { type = 'string' }",
            "'string'",
            "'string', maxLength = 3",
            "line 7: arguments.all[]: maxLength is missing, everything needs a maximum",
        ),
        (
            "required = ['b']\nproperties.a = { type = 'boolean' }",
            "['b']",
            "['a']",
            "line 1: arguments: required names b, which is not a property",
        ),
        (
            "properties.a = { type = 'boolean', maximum = 3 }",
            "'boolean'",
            "'integer'",
            "line 3: arguments.a: unknown keyword maximum",
        ),
        (
            "properties.a = { type = 'number', maximum = nan }",
            "nan",
            "1.5",
            "line 3: `arguments.properties.a.maximum`: a bound is a finite number",
        ),
        (
            "properties.a = { type = 'number', maximum = 2026-11-30 }",
            "2026-11-30",
            "2026",
            "line 3: `arguments.properties.a.maximum`: a date or time has no place in bounds",
        ),
        ("additionalProperties = true", "true", "false", "line 1: arguments: additionalProperties must be false"),
        (
            "[[arguments.required]]",
            "[[arguments.required]]",
            "",
            "line 3: `arguments.required`: a list of tables has no place in bounds",
        ),
    ];
    for (text, flaw, control, sentence) in rows {
        refused(&format!("{head}{text}"), flaw, control, sentence);
    }
    refused(
        "[arguments]\ntype = 'string'\nmaxLength = 3",
        "'string'\nmaxLength = 3",
        "'object'",
        "line 1: arguments: type must be object",
    );
}

#[test]
fn a_reach_is_made_of_whole_paths_and_exact_servers() {
    let many = vec!["'/a'"; 17].join(", ");
    let long = "a".repeat(4095);
    let rows: &[(&str, &str, &str, &str)] = &[
        ("reach.read = ['sys']", "'sys'", "'/sys/a'", "line 1: `reach.read`: \"sys\" is not a whole path, from / on"),
        ("reach.read = ['~/a']", "~/a", "/a", "line 1: `reach.read`: \"~/a\" is not a whole path, from / on"),
        ("reach.read = ['']", "''", "'/a'", "line 1: `reach.read`: \"\" is not a whole path, from / on"),
        (
            "[reach]\nwrite = ['/a/../etc']",
            "..",
            "...",
            "line 2: `reach.write`: \"/a/../etc\" has `..` in it; write the path that is meant",
        ),
        (
            "reach.write = [\"/a\\u0000b\"]",
            "\\u0000",
            "",
            "line 1: `reach.write`: a path has at most 4095 bytes and no U+0000, this has 4",
        ),
        (
            &format!("reach.read = ['/{long}']"),
            "/a",
            "/",
            "line 1: `reach.read`: a path has at most 4095 bytes and no U+0000, this has 4096",
        ),
        (&format!("reach.read = [{many}]"), "'/a', ", "", "line 1: `reach.read`: at most 16 entries, these are 17"),
        (
            "reach.http = ['http://lamp/on']",
            "/on",
            "",
            "line 1: `reach.http`: \"http://lamp/on\" has a path; a server is written \"http://192.168.1.20:80\" or \"https://lamp.local\"",
        ),
    ];
    for (text, flaw, control, sentence) in rows {
        refused(text, flaw, control, sentence);
    }
    let reach = Manifest::parse("reach.read = ['/a/./b//c/']").unwrap().reach;
    assert_eq!(reach.read, [Path::new("/a/b/c")], "the same place, however it is spelt");
}

#[test]
fn a_descriptor_describes_and_may_not_ask_for_more() {
    let good = br#"{"description":"Dims","arguments":{"type":"object","properties":{"level":{"type":"integer"}}}}"#;
    let descriptor = Descriptor::parse(good).unwrap();
    assert_eq!(descriptor.description.as_deref(), Some("Dims"));
    assert!(descriptor.arguments.is_some());
    assert_eq!(Descriptor::parse(b"{}").unwrap(), Descriptor::default());

    for member in ["effect", "activation", "captures", "timeout", "memory", "result_bytes_max", "reach"] {
        let json = format!(r#"{{"description":"x","{member}":"read"}}"#);
        let sentence = Descriptor::parse(json.as_bytes()).unwrap_err().to_string();
        let wanted = format!(
            "its own description (section device:handler/descriptor): a descriptor may only describe; `{member}` belongs in the .toml"
        );
        assert_eq!(sentence, wanted);
    }
    let large = format!(r#"{{"description":"x"{}}}"#, " ".repeat(DESCRIPTOR_BYTES_MAX));
    let deep = format!(
        r#"{{"arguments":{{"type":"object","properties":{{"a":{}{{"type":"boolean"}}{}}}}}}}"#,
        r#"{"type":"array","maxItems":1,"items":"#.repeat(8),
        "}".repeat(8)
    );
    let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(201));
    let rows: &[(&str, &str)] = &[
        (
            r#"{"description":"x","grant":true}"#,
            "unknown member `grant`; a descriptor has `description` and `arguments` alone",
        ),
        ("{\"a\\u001bb\":1}", "unknown member `a\\u{1b}b`; a descriptor has `description` and `arguments` alone"),
        (r#"{"description":5}"#, "description must be a text"),
        (r#"{"description":""}"#, "a description has 1 to 200 bytes, this has 0"),
        (&long, "a description has 1 to 200 bytes, this has 201"),
        (r#"{"arguments":[]}"#, "arguments must be an object"),
        (
            r#"{"arguments":{"type":"object","properties":{"a":{"type":"string"}}}}"#,
            "arguments.a: maxLength is missing, everything needs a maximum",
        ),
        (r#"{"arguments":{"type":"object","default":{}}}"#, "arguments: unknown keyword default"),
        (&deep, "arguments: 11 objects and lists inside one another, at most 10"),
        (&large, "at most 8192 bytes, this has 8211"),
    ];
    for (json, reason) in rows {
        let sentence = Descriptor::parse(json.as_bytes()).expect_err(json).to_string();
        assert_eq!(sentence, format!("its own description (section device:handler/descriptor): {reason}"));
    }
    for json in [&b"[]"[..], b"", b"{", b"\xff", br#"{"description":"a","description":"b"}"#, b"{} {}"] {
        assert!(matches!(Descriptor::parse(json), Err(ManifestError::Descriptor { .. })), "{json:?}");
    }
}

#[test]
fn a_declaration_takes_the_keepers_word_before_the_files() {
    let said = Manifest::parse("description = 'keeper'\n[arguments]\ntype = 'object'").unwrap();
    let silent = Manifest::parse("effect = 'read'\ntimeout = '5s'\ncaptures = true").unwrap();
    let file = Descriptor::parse(
        br#"{"description":"file","arguments":{"type":"object","properties":{"a":{"type":"boolean"}}}}"#,
    )
    .unwrap();
    let names =
        |declaration: &Declaration| declaration.bounds.properties().map(|(name, _, _)| name.to_owned()).collect();

    let declaration = said.declaration(&lamp(), &file).unwrap();
    assert_eq!((declaration.description.as_str(), names(&declaration)), ("keeper", Vec::<String>::new()));
    let declaration = silent.declaration(&lamp(), &file).unwrap();
    assert_eq!((declaration.description.as_str(), names(&declaration)), ("file", vec!["a".to_owned()]));
    assert_eq!(declaration.grant, Some(lamp().grant()));
    assert_eq!((declaration.effect, declaration.activation), (Effect::Read, Activation::Active));
    assert_eq!((declaration.captures, declaration.timeout), (true, Duration::from_secs(5)));

    let described = Descriptor { description: Some("file".to_owned()), arguments: None };
    assert_eq!(silent.declaration(&lamp(), &described).unwrap().bounds, Bounds::none());
    let sentence = silent.declaration(&lamp(), &Descriptor::default()).unwrap_err().to_string();
    assert_eq!(sentence, "nothing says what it does; write into custom.acme.lamp.toml: description = \"…\"");
}

#[test]
fn the_deepest_bounds_still_fit_a_registration_that_controllers_read() {
    let mut node = serde_json::json!({"type": "boolean"});
    for _ in 0..7 {
        node = serde_json::json!({"type": "array", "maxItems": 1, "items": node});
    }
    let declared = serde_json::json!({"type": "object", "properties": {"a": node}});
    let Value::Object(declared) = declared else { unreachable!("an object") };
    let bounds = arguments::bounds(wire::Object::from(declared)).unwrap();
    assert_eq!(bounds.to_object().depth(), ARGUMENTS_DEPTH_MAX);
    // A result holds the value, the value a list of capabilities, each of them its arguments.
    let result = format!(
        r#"{{"value":{{"capabilities":[{{"arguments":{}}}]}}}}"#,
        String::from_utf8(bounds.to_object().to_vec()).unwrap()
    );
    wire::json::parse(result.as_bytes()).unwrap();
}
