//! What of a text is given to an engine: its words, and nothing that an engine takes for an order.
//!
//! Called by the speaker before any process starts. Refuses nothing; a text of which nothing is left cannot be spoken.

/// The words of a text, in one line.
///
/// * Line breaks (LF, CR, VT, FF, NEL, U+2028, U+2029) and tabs become spaces: some engines speak line by line, and what stands on the
///   second line must not be a second order.
/// * Every other control character goes: espeak-ng takes U+0001 as the beginning of an order for pitch, speed or voice, and ESC steers a
///   terminal that shows the engine's complaints.
/// * Marks that only turn the direction of writing (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), byte order marks (U+FEFF)
///   and invisible tags (U+E0000 to U+E007F) go: they make a person read something else than is spoken. Joiners (U+200C, U+200D) stay,
///   since letters and emoji need them.
/// * Between two `[` a space is put: espeak-ng takes `[[` as the beginning of phonemes, in any text.
pub(super) fn words(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => words.push(' '),
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}' => {}
            c if c.is_control() => {}
            '[' if words.ends_with('[') => words.push_str(" ["),
            c => words.push(c),
        }
    }
    words
}

/// Whether there is anything to speak.
pub(super) fn is_blank(words: &str) -> bool {
    words.chars().all(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_could_take_for_an_order_is_gone_and_every_word_is_left() {
        let rows = [
            ("hello", "hello"),
            ("-w/tmp/pwn.wav hello", "-w/tmp/pwn.wav hello"),
            ("a <break time=\"9999999s\"/> b & c <test>", "a <break time=\"9999999s\"/> b & c <test>"),
            ("one\ntwo\r\nthree\tfour\u{85}five\u{2028}six", "one two  three four five six"),
            ("a\u{1}+90Sb\u{1b}[31mc\u{7f}d\u{9b}e", "a+90Sb[31mcde"),
            ("say [[h@l@U]] now", "say [ [h@l@U]] now"),
            ("[\u{1}[h@l@U]]", "[ [h@l@U]]"),
            ("[[[[", "[ [ [ ["),
            ("[\u{200e}[", "[ ["),
            ("\u{202e}evil\u{2066} text\u{feff}", "evil text"),
            (
                "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} 20 C \u{1f384}",
                "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} 20 C \u{1f384}",
            ),
            ("e\u{301}tude", "e\u{301}tude"),
            ("\u{1f3f4}\u{e0067}\u{e007f}", "\u{1f3f4}"),
        ];
        for (text, wanted) in rows {
            assert_eq!(words(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_text_without_a_word_is_blank() {
        for (text, blank) in
            [("", true), (" \n\u{a0}\u{3000}", true), ("\u{1}\u{202e}", true), ("a", false), ("?", false)]
        {
            assert_eq!(is_blank(&words(text)), blank, "{text:?}");
        }
    }
}
