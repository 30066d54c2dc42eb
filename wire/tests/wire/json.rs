//! JSON that two programs could read in two ways.

use wire::envelope::seal;
use wire::json::{JsonError, Object, Value, parse};

use crate::vectors::{receive, secret};

/// `refused` breaks a rule, `accepted` differs only in that.
fn check(accepted: &[u8], refused: &[u8], reason: &str) {
    parse(accepted).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(accepted)));
    let label = parse(refused).map_err(|error| error.label());
    assert_eq!(label, Err(reason), "{}", String::from_utf8_lossy(&refused[..refused.len().min(80)]));
}

#[test]
fn the_same_member_twice_is_refused_at_any_depth_and_through_escapes() {
    check(br#"{"a":1,"b":2}"#, br#"{"a":1,"a":2}"#, "json_duplicate");
    check(br#"{"a":1,"\u0062":2}"#, br#"{"a":1,"\u0061":2}"#, "json_duplicate");
    check(br#"{"x":[{"a":1},{"a":2}]}"#, br#"{"x":[{"a":1,"a":1}]}"#, "json_duplicate");
    check(br#"{"":1," ":2}"#, br#"{"":1,"":2}"#, "json_duplicate");
    assert_eq!(parse(br#"{"a\u001b":1,"a\u001b":1}"#), Err(JsonError::Duplicate("a\\u{1b}".to_owned())));
    for (envelope, reason) in [(r#"{"body":"","body":"","signature":""}"#, "envelope"), ("{}", "envelope")] {
        assert_eq!(receive(envelope.as_bytes()).unwrap_err().label(), reason);
    }
}

#[test]
fn a_signed_body_that_names_its_capability_twice_is_refused() {
    let body = |members: &str| {
        let head = r#""type":"invoke","id":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","challenge":"a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1","to":"ebVWLo_mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ""#;
        let sealed = seal(&secret("owner"), format!("{{{head},{members}}}").as_bytes());
        receive(sealed.as_bytes()).map(|(kind, _)| kind).map_err(|refused| refused.label())
    };
    assert_eq!(body(r#""capability":"device.health""#), Ok("invoke"));
    assert_eq!(body(r#""capability":"device.health","capability":"camera.snapshot""#), Err("json_duplicate"));
}

#[test]
fn half_a_surrogate_pair_is_refused_and_a_whole_one_is_one_character() {
    let whole = br#"{"text":"\ud83d\ude00"}"#;
    assert_eq!(parse(whole).unwrap().get("text"), Some(&Value::from("😀")));
    for lone in [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83dx", r"\ud83d\n", r"\uD83D\u0041", r"\ude00\ud83d"] {
        check(whole, format!(r#"{{"text":"{lone}"}}"#).as_bytes(), "json_surrogate");
        check(whole, format!(r#"{{"{lone}":1}}"#).as_bytes(), "json_surrogate");
    }
    check(br#"{"text":"\\ud83d"}"#, br#"{"text":"\\\ud83d"}"#, "json_surrogate");
}

#[test]
fn nesting_beyond_sixteen_containers_is_refused_however_deep() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!(r#"{{"a":{}1{}}}"#, open.repeat(depth - 1), close.repeat(depth - 1)).into_bytes()
    };
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        check(&nested(open, close, 16), &nested(open, close, 17), "json_depth");
        check(&nested(open, close, 16), &nested(open, close, 100_000), "json_depth");
        assert_eq!(parse(&nested(open, close, 16)).unwrap().depth(), 16);
    }
    check(b"{\"a\":[[]]}", &[&b"{\"a\":"[..], &[b'['; 100_000]].concat(), "json_depth");
    assert_eq!(parse(&[b'['; 100_000]), Err(JsonError::NotObject));
    let sealed = seal(&secret("owner"), &[b'['; 100_000]);
    assert_eq!(receive(sealed.as_bytes()).unwrap_err().label(), "json_not_object");
    // Brackets inside a string are text.
    parse(format!(r#"{{"a":"{}"}}"#, "[".repeat(1000)).as_bytes()).unwrap();
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let with = |number: &str| format!(r#"{{"after":{number}}}"#).into_bytes();
    let good = ["0", "-1", "9007199254740991", "-9007199254740991", "1.5", "1e2", "-0.0", "1E-3"];
    good.iter().for_each(|number| drop(parse(&with(number)).unwrap()));
    let bad = ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", "-0", "9007199254740992", "9007199254740993"];
    for number in bad.into_iter().chain(["-9007199254740992", "18446744073709551616", "1.7976931348623159e308"]) {
        check(&with("1"), &with(number), "json_number");
    }
    for number in ["01", "+1", ".5", "1.", "0x10", "1_000"] {
        assert!(parse(&with(number)).is_err(), "{number}");
    }
}

#[test]
fn a_number_that_is_no_integer_never_passes_for_one() {
    let declared = br#"{"type":"object","properties":{"timeout_ms":{"type":"integer","minimum":0}}}"#;
    let bounds = wire::Bounds::parse(parse(declared).unwrap()).unwrap();
    let check = |number: &str| {
        let arguments = parse(format!(r#"{{"timeout_ms":{number}}}"#).as_bytes()).map_err(|error| error.to_string())?;
        bounds.check(arguments).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(check("100"), Ok(()));
    for number in ["1e400", "NaN", "-0", "9007199254740993"] {
        assert_eq!(check(number), Err(JsonError::Number.to_string()), "{number}");
    }
    for number in ["1.5", "100.0", "1e2", "\"100\"", "null", "true"] {
        assert_eq!(check(number), Err("timeout_ms: must be an integer".to_owned()), "{number}");
    }
}

#[test]
fn a_byte_order_mark_is_refused() {
    check(b"{}", b"\xef\xbb\xbf{}", "json_bom");
    check(b" {}", b" \xef\xbb\xbf{}", "json_syntax");
}

#[test]
fn only_one_object_in_utf_8_is_read_and_nothing_behind_it() {
    check(b" \t\r\n{} \t\r\n", b"{} {}", "json_trailing");
    check(b"{}\n", b"{}\0", "json_trailing");
    check(b"{}", b"{}}", "json_trailing");
    check(br#"{"a":"\u00ff"}"#, b"{\"a\":\"\xff\"}", "json_utf8");
    for other in ["[]", "1", "\"a\"", "null", "true", "false", "-1"] {
        check(b"{}", other.as_bytes(), "json_not_object");
    }
    for broken in
        ["", " ", "{", "{\"a\"", "{\"a\":}", "{,}", "{\"a\":1,}", "{a:1}", "{'a':1}", "{\"a\":\"\n\"}", "{]", "\u{b}{}"]
    {
        check(b"{}", broken.as_bytes(), "json_syntax");
    }
    for broken in
        [r#"{"a":"\u12"}"#, r#"{"a":"\x41"}"#, r#"{"a":"\u+123"}"#, r#"{"a":"\"#, r#"{"a":"\u"#, r#"{"a":"\ud83d\u"#]
    {
        assert!(parse(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn names_that_the_json_library_uses_inside_itself_are_plain_names() {
    let text =
        br#"{"arguments":{"$serde_json::private::RawValue":"{\"a\":1,\"a\":2}","$serde_json::private::Number":"1"}}"#;
    let object = parse(text).unwrap();
    assert_eq!(object.to_vec(), text);
    let again: Object = wire::json::read(text).unwrap();
    assert_eq!(again, object);
}

#[test]
fn what_we_write_we_read_as_itself() {
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..2_000 {
        let mut object = Object::new();
        for member in 0..draw(6) {
            let characters = ['a', '"', '\\', '\n', '\u{7f}', '\u{2028}', 'ü', '😀', '\u{0}', '/'];
            let text: String = (0..draw(8)).map(|_| characters[draw(10) as usize]).collect();
            let value = match draw(5) {
                0 => Value::from(text.clone()),
                1 => Value::from(draw(1 << 31) as i64 * draw(1 << 22) as i64 - (1 << 51)),
                2 => Value::from(f64::from_bits(draw(1 << 31) << 32 | draw(1 << 31))),
                3 => Value::from(vec![Value::Null, Value::from(draw(2) == 0)]),
                _ => Value::from(draw(1 << 31) as f64 / 1000.1),
            };
            object.insert(format!("{member}{text}"), value);
        }
        let written = object.to_vec();
        let read = parse(&written).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&written)));
        assert_eq!(read, object);
        assert_eq!(read.to_vec(), written);
    }
}

#[test]
fn the_quick_count_of_bytes_is_never_too_small() {
    let escaped = "\u{1}\"\\".repeat(100);
    let object = parse(
        serde_json::json!({"a": escaped, "b": [1, -9_007_199_254_740_991_i64, null, true, {"c": "é"}], "d": {}})
            .to_string()
            .as_bytes(),
    );
    for object in [object.unwrap(), Object::new()] {
        assert!(object.bytes_at_most() >= object.to_vec().len(), "{object:?}");
    }
}
