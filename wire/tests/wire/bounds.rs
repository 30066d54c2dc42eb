//! Declared bounds, and arguments held against them.

use std::time::Duration;

use serde_json::json;
use wire::bounds::{BOUNDS_BYTES_MAX, DESCRIPTION_BYTES_MAX, DeclarationError, Property};
use wire::declaration::{DISPLAY_IMAGE_BYTES_MAX, DISPLAY_TEXT_BYTES_MAX, Declaration, SPEAKER_TEXT_BYTES_MAX};
use wire::json::{Object, Value};
use wire::{Activation, Bounds, CapabilityState, Effect, GrantName, Offered, Owner, Registration};

use crate::vectors::public;

fn object(value: Value) -> Object {
    wire::json::parse(value.to_string().as_bytes()).unwrap()
}

/// The bounds of an object with one property.
fn declare(property: Value) -> Result<Bounds, String> {
    let declared = json!({"type": "object", "properties": {"it": property}, "additionalProperties": false});
    Bounds::parse(object(declared)).map_err(|error| error.to_string())
}

#[test]
fn a_declaration_outside_the_subset_is_refused_when_it_is_loaded() {
    let string = json!({"type": "string", "maxLength": 4});
    let long = "x".repeat(DESCRIPTION_BYTES_MAX + 1);
    // A property that is taken, one that differs only in the flaw, and the reason.
    let rows = [
        (string.clone(), json!({"type": "string"}), "arguments.it: maxLength is missing, everything needs a maximum"),
        (
            string.clone(),
            json!({"type": "string", "enum": ["a"]}),
            "arguments.it: maxLength is missing, everything needs a maximum",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": -1}),
            "arguments.it: maxLength must be an integer from 0 on",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "pattern": "a+"}),
            "arguments.it: unknown keyword pattern",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "maximum": 1}),
            "arguments.it: unknown keyword maximum",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "minLength": 5}),
            "arguments.it: minLength must be at most maxLength",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "enum": ["abcde"]}),
            "arguments.it: enum must be texts within minLength and maxLength",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "enum": []}),
            "arguments.it: enum must be a list of texts, not empty",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "enum": [1]}),
            "arguments.it: enum must be a list of texts, not empty",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "contentEncoding": "hex"}),
            "arguments.it: contentEncoding must be base64",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "x-max-decoded-bytes": 3}),
            "arguments.it: unknown keyword x-max-decoded-bytes",
        ),
        (
            string.clone(),
            json!({"type": "string", "maxLength": 4, "description": long}),
            "description: at most 200 bytes, this has 201",
        ),
        (
            string.clone(),
            json!({"type": "text", "maxLength": 4}),
            "arguments.it: type must be object, string, integer, number, boolean or array",
        ),
        (
            string.clone(),
            json!({"maxLength": 4}),
            "arguments.it: type must be object, string, integer, number, boolean or array",
        ),
        (string.clone(), json!("string"), "arguments.it: each property must be an object"),
        (
            json!({"type": "array", "items": string, "maxItems": 2}),
            json!({"type": "array", "items": string}),
            "arguments.it: maxItems is missing, everything needs a maximum",
        ),
        (
            json!({"type": "array", "items": string, "maxItems": 2}),
            json!({"type": "array", "maxItems": 2}),
            "arguments.it: items must be there",
        ),
        (
            json!({"type": "array", "items": string, "maxItems": 2}),
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 2}),
            "arguments.it[]: maxLength is missing, everything needs a maximum",
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "additionalProperties": true}),
            "arguments.it: additionalProperties must be false",
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "required": ["x"]}),
            "arguments.it: required names x, which is not a property",
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "properties": []}),
            "arguments.it: properties must be an object",
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "required": "x"}),
            "arguments.it: required must be a list of names",
        ),
        (
            json!({"type": "integer"}),
            json!({"type": "integer", "minimum": 0.5}),
            "arguments.it: minimum must be an integer within 2^53-1",
        ),
        (
            json!({"type": "integer"}),
            json!({"type": "integer", "minimum": 2, "maximum": 1}),
            "arguments.it: minimum must be at most maximum",
        ),
        (
            json!({"type": "number", "minimum": 0.5}),
            json!({"type": "number", "minimum": "0"}),
            "arguments.it: minimum must be a number",
        ),
        (
            json!({"type": "number", "minimum": 0.5}),
            json!({"type": "number", "minimum": 0.5, "maximum": 0.4}),
            "arguments.it: minimum must be at most maximum",
        ),
        (json!({"type": "boolean"}), json!({"type": "boolean", "enum": [true]}), "arguments.it: unknown keyword enum"),
    ];
    for (accepted, refused, reason) in rows {
        declare(accepted.clone()).unwrap_or_else(|error| panic!("{accepted}: {error}"));
        assert_eq!(declare(refused.clone()).map(drop), Err(reason.to_owned()), "{refused}");
    }
    let whole = |value: Value| Bounds::parse(object(value)).map(drop);
    assert_eq!(whole(json!({"type": "object"})), Ok(()));
    assert!(
        matches!(whole(json!({"type": "boolean"})), Err(DeclarationError::Value { keyword, .. }) if keyword == "type")
    );
    let large = |bytes: usize| json!({"type": "object", "properties": {"x".repeat(bytes): {"type": "boolean"}}});
    let around = large(0).to_string().len();
    assert_eq!(whole(large(BOUNDS_BYTES_MAX - around)), Ok(()));
    assert!(matches!(whole(large(BOUNDS_BYTES_MAX - around + 1)), Err(DeclarationError::TooLarge { got: 4097, .. })));
}

#[test]
fn arguments_outside_their_bounds_are_refused_by_name_and_reason() {
    let string = json!({"type": "string", "maxLength": 4, "minLength": 2});
    let choice = json!({"type": "string", "maxLength": 4, "enum": ["warm", "cold"]});
    let base64 = json!({"type": "string", "maxLength": 12, "contentEncoding": "base64", "x-max-decoded-bytes": 4});
    let integer = json!({"type": "integer", "minimum": -1, "maximum": 15});
    let number = json!({"type": "number", "minimum": 0.5, "maximum": 1.5});
    let list = json!({"type": "array", "maxItems": 2, "items": integer});
    let point = json!({"type": "object", "properties": {"x": integer, "y": integer}, "required": ["x"]});
    let rows = [
        (&string, json!("öö"), json!("ööa"), "it: at most 4 bytes, this has 5"),
        (&string, json!("ab"), json!("a"), "it: at least 2 bytes, this has 1"),
        (&string, json!("ab"), json!("a\0"), "it: must not contain U+0000"),
        (&string, json!("ab"), json!(12), "it: must be a text"),
        (&choice, json!("warm"), json!("hot"), "it: must be one of warm, cold"),
        (&base64, json!("AAAAAA=="), json!("AAAAAAA="), "it: at most 4 bytes decoded, this has 5"),
        (&integer, json!(-1), json!(-2), "it: at least -1"),
        (&integer, json!(15), json!(16), "it: at most 15"),
        (&integer, json!(1), json!(1.0), "it: must be an integer"),
        (&integer, json!(1), json!("1"), "it: must be an integer"),
        (&integer, json!(1), json!(null), "it: must be an integer"),
        (&number, json!(0.5), json!(0.49), "it: at least 0.5"),
        (&number, json!(1), json!(2), "it: at most 1.5"),
        (&number, json!(1), json!(true), "it: must be a number"),
        (&list, json!([1, 2]), json!([1, 2, 3]), "it: at most 2 items, this has 3"),
        (&list, json!([1, 2]), json!([1, 16]), "it[1]: at most 15"),
        (&list, json!([]), json!({}), "it: must be a list"),
        (&point, json!({"x": 1}), json!({"y": 1}), "it.x: is missing"),
        (&point, json!({"x": 1}), json!({"x": 1, "z": 1}), "it.z: no such argument is declared"),
        (&point, json!({"x": 1}), json!({"x": 16}), "it.x: at most 15"),
        (&point, json!({"x": 1}), json!([]), "it: must be an object"),
    ];
    for (property, accepted, refused, reason) in rows {
        let bounds = declare(property.clone()).unwrap();
        let check =
            |value: &Value| bounds.check(object(json!({"it": value}))).map(drop).map_err(|error| error.to_string());
        assert_eq!(check(&accepted), Ok(()), "{accepted}");
        assert_eq!(check(&refused), Err(reason.to_owned()), "{refused}");
    }
}

#[test]
fn whoever_says_in_the_arguments_that_he_is_approved_is_refused() {
    for declaration in [Declaration::camera_snapshot(), Declaration::device_health()] {
        assert!(declaration.bounds.check(Object::new()).is_ok());
        for name in ["approved", "approvalDecision", "grant", "force", "\u{202e}x"] {
            let error = declaration.bounds.check(object(json!({name: true}))).unwrap_err();
            assert_eq!(error.reason, "no such argument is declared");
            assert_eq!(error.member, wire::text::visible(name));
        }
    }
}

#[test]
fn the_built_in_capabilities_are_declared_as_the_protocol_has_them() {
    let rows = [
        (Declaration::device_health(), "device.health", None, Activation::Any, Effect::Read, false, 2),
        (Declaration::camera_snapshot(), "camera.snapshot", Some("camera"), Activation::Active, Effect::Read, true, 10),
        (
            Declaration::microphone_listen(),
            "microphone.listen",
            Some("microphone"),
            Activation::Active,
            Effect::Read,
            true,
            20,
        ),
        (
            Declaration::display_text(),
            "display.text",
            Some("display.text"),
            Activation::Active,
            Effect::Change,
            false,
            5,
        ),
        (
            Declaration::display_image(),
            "display.image",
            Some("display.image"),
            Activation::Active,
            Effect::Change,
            false,
            5,
        ),
        (Declaration::speaker_say(), "speaker.say", Some("speaker.say"), Activation::Active, Effect::Change, false, 60),
    ];
    for (declaration, name, grant, activation, effect, captures, timeout_s) in rows {
        let got = (declaration.name.as_str(), declaration.grant.as_ref().map(GrantName::as_str));
        assert_eq!(got, (name, grant));
        assert_eq!((declaration.activation, declaration.effect, declaration.captures), (activation, effect, captures));
        assert_eq!(declaration.timeout.as_secs(), timeout_s, "{name}");
        assert_eq!(Bounds::parse(declaration.bounds.to_object()).as_ref(), Ok(&declaration.bounds), "{name}");
        assert!(declaration.within_limits().is_ok(), "{name}");
    }
    let text =
        |bytes: usize| Declaration::display_text().bounds.check(object(json!({"text": "x".repeat(bytes)}))).is_ok();
    assert!(text(DISPLAY_TEXT_BYTES_MAX) && !text(DISPLAY_TEXT_BYTES_MAX + 1));
    let say = |text: String| Declaration::speaker_say().bounds.check(object(json!({"text": text})));
    // Bytes count, and a text that is too long is refused whole, so that no character is ever cut.
    let emoji_at = |bytes: usize| format!("{}\u{1f384}", "x".repeat(bytes));
    assert!(say("x".repeat(SPEAKER_TEXT_BYTES_MAX)).is_ok() && say(emoji_at(SPEAKER_TEXT_BYTES_MAX - 4)).is_ok());
    for short in 1..=3 {
        assert_eq!(say(emoji_at(SPEAKER_TEXT_BYTES_MAX - short)).unwrap_err().member, "text");
    }
    assert_eq!(say("a\0b".to_owned()).unwrap_err().member, "text");
    let listen = |arguments: Value| Declaration::microphone_listen().bounds.check(object(arguments));
    for seconds in [1, 7, 15] {
        let arguments = listen(json!({"seconds": seconds})).unwrap();
        assert_eq!(Declaration::microphone_listen().timeout_of(&arguments), Duration::from_secs(seconds + 5));
        assert_eq!(Declaration::camera_snapshot().timeout_of(&arguments), Duration::from_secs(10));
    }
    for refused in [json!({"seconds": 0}), json!({"seconds": 16}), json!({"seconds": 1.5}), json!({})] {
        assert_eq!(listen(refused).unwrap_err().member, "seconds");
    }
    let image = |bytes: usize| {
        let data = wire::text::base64_encode(&vec![0; bytes]);
        Declaration::display_image().bounds.check(object(json!({"mime": "image/png", "data": data}))).is_ok()
    };
    assert!(image(DISPLAY_IMAGE_BYTES_MAX) && !image(DISPLAY_IMAGE_BYTES_MAX + 1));
    assert!(matches!(
        Declaration::display_image().bounds.properties().last(),
        Some(("data", Property::String { base64: Some(_), .. }, true))
    ));
}

#[test]
fn checked_arguments_give_their_values_and_never_print_them() {
    let mut text = Object::new();
    text.insert("text", "private");
    let arguments = Declaration::display_text().bounds.check(text.clone()).unwrap();
    assert_eq!(
        (arguments.string("text"), arguments.integer("text"), arguments.as_object()),
        (Some("private"), None, &text)
    );
    insta::assert_snapshot!(format!("{arguments:?}"), @r#"Arguments{"text"}"#);
}

fn registration() -> Registration {
    let offer = |declaration, grant_on, state| Offered { declaration, grant_on, state };
    Registration {
        device: public("device"),
        name: "kitchen".to_owned(),
        protocol: "1".to_owned(),
        owner: Some(Owner { agent: "butler@team.example.com".parse().unwrap(), key: public("owner") }),
        active: true,
        active_until: Some(1_790_000_000_000),
        simulated: false,
        capabilities: vec![
            offer(Declaration::device_health(), true, CapabilityState::Ready),
            offer(Declaration::camera_snapshot(), false, CapabilityState::Degraded),
            offer(Declaration::display_image(), true, CapabilityState::Unavailable),
        ],
    }
}

#[test]
fn a_registration_is_read_back_as_itself_and_unknown_members_are_ignored() {
    let written = registration().to_object();
    insta::assert_snapshot!(written.to_string());
    assert_eq!(Registration::parse(written.clone()), Ok(registration()));
    let mut more = written.clone();
    more.insert("motto", "none");
    assert_eq!(Registration::parse(more), Ok(registration()));
    let unowned = Registration { owner: None, active_until: None, ..registration() };
    assert_eq!(Registration::parse(unowned.to_object()), Ok(unowned));
    assert_eq!(
        registration().capability(&"camera.snapshot".parse().unwrap()).and_then(Offered::grant).map(|g| g.on),
        Some(false)
    );
}

#[test]
fn a_registration_with_a_member_out_of_form_is_refused_by_name() {
    let spoil = |pointer: &str, value: Value| {
        let mut whole = Value::from(registration().to_object());
        *whole.pointer_mut(pointer).unwrap() = value;
        Registration::parse(object(whole)).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(spoil("/name", json!("hall")), Ok(()));
    let long = "x".repeat(201);
    let rows = [
        ("/device", json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "device: a key of small order"),
        (
            "/owner/agent",
            json!("Butler"),
            "agent: not a full agent address in lower case, like name@scope.provider.org",
        ),
        ("/active", json!(1), "active: must be true or false"),
        ("/active_until", json!("soon"), "active_until: must be a time or null"),
        ("/capabilities", json!({}), "capabilities: must be a list"),
        ("/capabilities/0", json!(1), "capabilities[]: must be an object"),
        ("/capabilities/0/name", json!("camera.snapshot"), "capabilities: names a capability twice"),
        ("/capabilities/0/effect", json!("Read"), "effect: not one of the words that belong here"),
        ("/capabilities/0/description", json!(long), "description: at most 200 bytes, this has 201"),
        (
            "/capabilities/0/arguments",
            json!({"type": "string"}),
            "arguments: maxLength is missing, everything needs a maximum",
        ),
        ("/capabilities/1/grant", json!("camera"), "grant: must be an object"),
        ("/capabilities/1/timeout_ms", json!(-1), "timeout_ms: must be an integer from 0 on"),
    ];
    for (pointer, value, reason) in rows {
        assert_eq!(spoil(pointer, value), Err(reason.to_owned()), "{pointer}");
    }
}
