//! Left-over bits, wrong padding, foreign alphabets and white space, in both alphabets.

use wire::declaration::Declaration;
use wire::envelope::{Refused, seal};
use wire::json::Object;
use wire::text::{TextError, base64_decode, base64_encode, base64url_decode, base64url_encode};

use crate::vectors::{head, receive, secret};

/// What `display.image` says to this `data`.
fn image(data: &str) -> Result<(), String> {
    let mut arguments = Object::new();
    arguments.insert("mime", "image/png");
    arguments.insert("data", data);
    Declaration::display_image().bounds.check(arguments).map(drop).map_err(|error| error.to_string())
}

fn check(accepted: &str, refused: &[&str]) {
    assert_eq!(image(accepted), Ok(()), "{accepted}");
    for data in refused {
        let error = image(data).unwrap_err();
        assert!(error.starts_with("data: not standard base64 (RFC 4648 section 4"), "{data}: {error}");
    }
}

#[test]
fn left_over_bits_in_the_last_character_are_refused() {
    check("/w==", &["/x=="]);
    assert_eq!(base64url_decode("_w"), Ok(vec![0xff]));
    assert_eq!(base64url_decode("_x"), Err(TextError::Base64Url));
}

#[test]
fn wrong_padding_is_refused() {
    check("YmxvYg==", &["YmxvYg=", "YmxvYg", "YmxvYg==="]);
    assert_eq!(base64url_decode("YmxvYg"), Ok(b"blob".to_vec()));
    assert_eq!(base64url_decode("YmxvYg=="), Err(TextError::Base64Url));
}

#[test]
fn foreign_alphabets_and_white_space_are_refused_and_the_rule_is_named() {
    check("+/+/", &["-_-_", "+/+/\r\n+/+/", "data:image/png;base64,+/+/", " +/+/", "+/+/\n"]);
    let sealed = seal(&secret("owner"), &wire::OwnerRequest::Registration.to_body(&head())).into_bytes();
    let sealed = String::from_utf8(sealed).unwrap();
    assert!(receive(sealed.as_bytes()).is_ok());
    for member in ["body", "signature"] {
        for foreign in ["+", "/", "\\n", " ", "data:", "="] {
            let begins = format!("\"{member}\":\"");
            let spoiled = sealed.replace(&begins, &format!("{begins}{foreign}"));
            let refused = receive(spoiled.as_bytes()).unwrap_err();
            assert!(matches!(refused, Refused::Base64 { member: at, .. } if at == member), "{spoiled}: {refused}");
        }
    }
}

#[test]
fn everything_we_encode_decodes_to_itself_and_has_no_second_spelling() {
    for length in 0..70_u8 {
        let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(151) ^ length).collect();
        let (url, standard) = (base64url_encode(&bytes), base64_encode(&bytes));
        assert_eq!((base64url_decode(&url).unwrap(), base64_decode(&standard).unwrap()), (bytes.clone(), bytes));
        for character in ('0'..='9').chain('a'..='z').chain('A'..='Z').chain(['-', '_', '=']) {
            let mut other = url.clone();
            other.pop();
            other.push(character);
            assert!(other == url || base64url_decode(&other) != base64url_decode(&url), "{other} and {url}");
        }
    }
}
