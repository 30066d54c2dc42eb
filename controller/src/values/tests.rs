use serde_json::json;

use super::*;

#[test]
fn sound_must_be_what_it_says() {
    let listen: CapabilityName = LISTEN.parse().unwrap();
    let wav = b"RIFF\x24\0\0\0WAVEfmt ";
    for (bytes, expected) in [
        (&wav[..], Ok(Some(Media { mime: "audio/wav", bytes: wav.to_vec() }))),
        (b"RIFF\x24\0\0\0AVI ", Err(ValueError::Magic("audio/wav"))),
        (b"RIFF", Err(ValueError::Magic("audio/wav"))),
    ] {
        let mut value = Object::new();
        value.insert("mime", "audio/wav");
        value.insert("data", wire::text::base64_encode(bytes));
        assert_eq!(check(&listen, &value), expected);
    }
}

#[test]
fn a_value_without_a_fixed_shape_is_left_alone() {
    let mut value = Object::new();
    value.insert("mime", json!(17));
    assert_eq!(check(&"custom.acme.lamp".parse().unwrap(), &value), Ok(None));
}

#[test]
fn media_does_not_print_what_was_captured() {
    let media = Media { mime: "image/jpeg", bytes: vec![1; 5] };
    assert_eq!(format!("{media:?}"), "Media(image/jpeg, 5 bytes)");
}
