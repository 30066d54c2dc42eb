//! What a sound card on USB says of itself, or where it is plugged in, as one word of few letters.
//!
//! Two different texts stay different, and any text becomes a word that the settings take ([`config::UsbCard`]).

use config::UsbMark;
use config::usb_card::MARK_BYTES_MAX;
use sha2::{Digest as _, Sha256};

/// What is kept of a word that is too long, before the digest of the whole. Makers' serial numbers have 8 to 40 letters, and places up to 60.
const HEAD_BYTES: usize = 60;
/// Bytes of the digest: nobody finds two texts with the same eight by accident.
const DIGEST_BYTES: usize = 8;

/// By what a card says; nothing but blanks is no serial number.
pub(super) fn of_serial(bytes: &[u8]) -> Option<UsbMark> {
    let says_something = bytes.iter().any(|byte| !byte.is_ascii_whitespace() && *byte != 0);
    says_something.then(|| UsbMark::Serial(spelled(bytes)))
}

/// By the place, as udev would call it.
pub(super) fn of_port(place: &str) -> UsbMark {
    UsbMark::Port(spelled(place.as_bytes()))
}

/// Letters, digits and `.:_-@` as they are, each other byte as `%` and two digits. A long one ends in `~` and a digest of the whole.
fn spelled(bytes: &[u8]) -> String {
    let mut word = String::new();
    let mut head = 0;
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b':' | b'_' | b'-' | b'@' => word.push(char::from(*byte)),
            other => word.push_str(&format!("%{other:02X}")),
        }
        if word.len() <= HEAD_BYTES {
            head = word.len();
        }
    }
    if word.len() > MARK_BYTES_MAX {
        word.truncate(head);
        word.push('~');
        let digest = Sha256::digest(bytes);
        digest.iter().take(DIGEST_BYTES).for_each(|byte| word.push_str(&format!("{byte:02x}")));
    }
    word
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::HashSet;

    use config::{UsbCard, UsbKind};

    use super::*;

    #[test]
    fn whatever_a_card_says_becomes_one_word_that_no_other_text_becomes() {
        let long = "s".repeat(200);
        let other = format!("{}t", "s".repeat(199));
        let spaces = " ".repeat(200);
        let (whole, cut) = long.split_at(MARK_BYTES_MAX);
        let one_more = format!("{whole}{}", cut.chars().next().unwrap());
        let hostile: Vec<&[u8]> = vec![
            b"A1",
            b"a1",
            b"A 1",
            b" A1",
            b"A1 ",
            b"A/1",
            b"A%201",
            b"A,DEV=7",
            b"../../etc",
            b"A\n1",
            b"A\x1b[2J",
            b"A\"1",
            b"\xff\xfe",
            b"\xef\xbf\xbd",
            "Ä1".as_bytes(),
            long.as_bytes(),
            other.as_bytes(),
            whole.as_bytes(),
            one_more.as_bytes(),
        ];
        let kind = UsbKind::spelled("0d8c", "0014").unwrap();
        let words: HashSet<String> = hostile
            .iter()
            .map(|text| {
                let card = UsbCard { kind, mark: of_serial(text).unwrap(), device: 2 };
                let word = card.to_string();
                assert_eq!(word.parse(), Ok(card), "{word}");
                word
            })
            .collect();
        assert_eq!(words.len(), hostile.len());
        assert!(words.contains("usb:0d8c:0014,SERIAL=A%2CDEV%3D7,DEV=2"), "{words:?}");
        for blank in [&b""[..], b" ", b"\t \0", spaces.as_bytes()] {
            assert_eq!(of_serial(blank), None);
        }
    }
}
