//! Text forms beyond the vectors: grants, ids, claim codes, pairing links, foreign text.

use wire::pairing::LinkError;
use wire::text::{TextError, visible};
use wire::{CapabilityName, Challenge, ClaimCode, GrantName, Id, PairingLink, RecordHash};

use crate::vectors::public;

#[test]
fn hex_is_lower_case_and_of_its_length() {
    let good = "0f".repeat(24);
    assert_eq!(good.parse(), Ok(Id::from_bytes([0x0f; 24])));
    assert_eq!(Id::from_bytes([0xa9; 24]).to_string(), "a9".repeat(24));
    for bad in ["0F".repeat(24), "0f".repeat(23), "0f".repeat(25), "0g".repeat(24), format!("{good}0"), "é".repeat(24)]
    {
        assert_eq!(bad.parse::<Challenge>(), Err(TextError::Hex48), "{bad}");
    }
    assert_eq!("0f".repeat(32).parse(), Ok(RecordHash::from_bytes([0x0f; 32])));
    assert_eq!(good.parse::<RecordHash>(), Err(TextError::Hex64));
}

#[test]
fn a_grant_may_be_named_by_its_capability() {
    let rows = [
        ("camera", "camera"),
        ("camera.snapshot", "camera"),
        ("microphone", "microphone"),
        ("microphone.listen", "microphone"),
        ("display.text", "display.text"),
        ("custom.acme.lamp", "custom.acme.lamp"),
    ];
    for (written, grant) in rows {
        assert_eq!(written.parse::<GrantName>().unwrap().as_str(), grant);
        if let Ok(capability) = written.parse::<CapabilityName>() {
            assert_eq!(capability.grant().as_str(), grant);
            assert_eq!(capability.is_custom(), written.starts_with("custom."));
        }
    }
    for bad in ["", "display", "Camera", "camera ", "custom", "custom.acme"] {
        assert_eq!(bad.parse::<GrantName>(), Err(TextError::GrantName), "{bad}");
    }
}

#[test]
fn a_claim_code_is_taken_with_and_without_its_space() {
    let code: ClaimCode = "600 218".parse().unwrap();
    assert_eq!("600218".parse(), Ok(code));
    assert_eq!(code.to_string(), "600 218");
    assert_eq!("000 007".parse::<ClaimCode>().unwrap().to_string(), "000 007");
    for bad in
        ["", "600  218", "60 0218", "6002 18", "60021", "6002180", "600-218", "600 21x", " 600218", "+60021", "６00218"]
    {
        assert_eq!(bad.parse::<ClaimCode>(), Err(TextError::ClaimCode), "{bad}");
    }
}

#[test]
fn a_pairing_link_is_read_back_as_itself_and_says_what_is_wrong_with_it() {
    let end = format!("{}.AAECAwQFBgcICQoLDA0ODw", public("device"));
    for place in ["https://kitchen.local:7601", "http://127.0.0.1:1", "https://[fe80::1]:65535"] {
        let link: PairingLink = format!("{place}/#{end}").parse().unwrap();
        assert_eq!(link.expose(), format!("{place}/#{end}"));
        assert_eq!(format!(" {place}#{end}\n").parse::<PairingLink>().unwrap().expose(), link.expose());
        assert_eq!((link.tls, link.device), (place.starts_with("https"), public("device")));
    }
    let rows = [
        (format!("ws://a:1/#{end}"), LinkError::Scheme),
        (format!("a:1/#{end}"), LinkError::Scheme),
        ("https://a:1/".to_owned(), LinkError::NoFragment),
        (format!("https://a:1/x/#{end}"), LinkError::Path),
        (format!("https://a:1/?x#{end}"), LinkError::Path),
        (format!("https://:1/#{end}"), LinkError::Host),
        (format!("https://user@a:1/#{end}"), LinkError::Host),
        (format!("https://[::g]:1/#{end}"), LinkError::Host),
        (format!("https://a/#{end}"), LinkError::Port),
        (format!("https://a:0/#{end}"), LinkError::Port),
        (format!("https://a:+1/#{end}"), LinkError::Port),
        (format!("https://a:65536/#{end}"), LinkError::Port),
        (format!("https://[::1]/#{end}"), LinkError::Port),
        (format!("https://a:1/#{}", public("device")), LinkError::Secret),
        (format!("https://a:1/#{}.AAEC", public("device")), LinkError::Secret),
    ];
    for (link, expected) in rows {
        assert_eq!(link.parse::<PairingLink>().map(drop), Err(expected), "{link}");
    }
    let key = format!("https://a:1/#x{end}").parse::<PairingLink>().map(drop);
    assert!(matches!(key, Err(LinkError::Key(_))), "{key:?}");
}

#[test]
fn foreign_text_cannot_move_the_cursor_or_turn_the_line_round() {
    let rows = [
        ("plain, Grüße 世界 👋", "plain, Grüße 世界 👋"),
        ("\u{1b}[2J", "\\u{1b}[2J"),
        ("a\r\nb\tc", "a\\u{d}\\u{a}b\\u{9}c"),
        ("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m"),
        ("safe\u{202e}gpj.exe\u{2066}", "safe\\u{202e}gpj.exe\\u{2066}"),
        ("a\u{2028}b\u{feff}\u{200f}\u{61c}", "a\\u{2028}b\\u{feff}\\u{200f}\\u{61c}"),
    ];
    for (text, shown) in rows {
        assert_eq!(visible(text), shown);
    }
}
