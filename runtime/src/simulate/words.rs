//! The words after `run --simulate`: which troubles the simulated parts are to have, and when.
//!
//! Read once, before anything of the device starts; refuses what it does not know, with what was probably meant. The words themselves stand in
//! the table of each part ([`Trouble::TROUBLES`]). A new simulated part is added in three places here, which the compiler and a test name:
//! a field of [`Rehearsal`], its row in [`parts`], its arm in [`Rehearsal::add`].

use std::fmt::Write as _;

use config::keys::likeliest;
use handlers::trouble::SpanError;
use handlers::{CameraTrouble, MicrophoneTrouble, Planned, SignTrouble, Span, SpeakerTrouble, SpeechTrouble, Trouble};

use super::ScreenTrouble;

/// Which troubles the simulated parts will have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rehearsal {
    /// The camera's.
    pub camera: Vec<Planned<CameraTrouble>>,
    /// The microphone's.
    pub microphone: Vec<Planned<MicrophoneTrouble>>,
    /// The speaker's.
    pub speaker: Vec<Planned<SpeakerTrouble>>,
    /// The speech engine's.
    pub speech: Vec<Planned<SpeechTrouble>>,
    /// The sign's.
    pub sign: Vec<Planned<SignTrouble>>,
    /// The screen's.
    pub screen: Vec<Planned<ScreenTrouble>>,
}

/// One simulated part, as people read of it.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// Each word with its meaning.
    pub(crate) words: Vec<(&'static str, &'static str)>,
}

impl Part {
    fn of<T: Trouble>() -> Self {
        Self { name: T::PART, words: T::TROUBLES.iter().map(|(word, _, meaning)| (*word, *meaning)).collect() }
    }
}

/// Every simulated part, in the order of the guide.
pub(crate) fn parts() -> Vec<Part> {
    vec![
        Part::of::<CameraTrouble>(),
        Part::of::<MicrophoneTrouble>(),
        Part::of::<SpeakerTrouble>(),
        Part::of::<SpeechTrouble>(),
        Part::of::<SignTrouble>(),
        Part::of::<ScreenTrouble>(),
    ]
}

/// Why the words make no rehearsal: one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RehearsalError {
    /// There is no `=`, or nothing on one side of it.
    #[error(
        "--simulate {word}: a trouble is written PART=TROUBLE, such as camera=unplug@2s; see: latchkeyd run --help"
    )]
    Unwritten {
        /// What was written.
        word: String,
    },
    /// Nobody simulates this part.
    #[error("--simulate {word}: there is no simulated part {part}{hint}")]
    Part {
        /// What was written.
        word: String,
        /// The part in it.
        part: String,
        /// "; did you mean …?", or all there are.
        hint: String,
    },
    /// The part has no such trouble.
    #[error("--simulate {word}: the simulated {part} has no trouble {trouble}{hint}")]
    Trouble {
        /// What was written.
        word: String,
        /// The part in it.
        part: &'static str,
        /// The trouble in it.
        trouble: String,
        /// "; did you mean …?", or all there are.
        hint: String,
    },
    /// The time of a trouble is none.
    #[error("--simulate {word}: {span}: {error}")]
    Span {
        /// What was written.
        word: String,
        /// The time in it.
        span: String,
        /// Why it is none.
        error: SpanError,
    },
}

impl Rehearsal {
    /// Reads words such as `camera=no-dht,unplug@2s`. A part may come more than once.
    ///
    /// # Errors
    /// See [`RehearsalError`].
    pub fn parse(words: &[String]) -> Result<Self, RehearsalError> {
        let mut rehearsal = Self::default();
        for word in words {
            let unwritten = || RehearsalError::Unwritten { word: word.clone() };
            let (part, troubles) = word.split_once('=').ok_or_else(unwritten)?;
            if part.is_empty() || troubles.split(',').any(str::is_empty) {
                return Err(unwritten());
            }
            for trouble in troubles.split(',') {
                rehearsal.add(word, part, trouble)?;
            }
        }
        Ok(rehearsal)
    }

    fn add(&mut self, word: &str, part: &str, trouble: &str) -> Result<(), RehearsalError> {
        match part {
            CameraTrouble::PART => self.camera.push(planned(word, trouble)?),
            MicrophoneTrouble::PART => self.microphone.push(planned(word, trouble)?),
            SpeakerTrouble::PART => self.speaker.push(planned(word, trouble)?),
            SpeechTrouble::PART => self.speech.push(planned(word, trouble)?),
            SignTrouble::PART => self.sign.push(planned(word, trouble)?),
            ScreenTrouble::PART => self.screen.push(planned(word, trouble)?),
            _ => {
                let known: Vec<&str> = parts().iter().map(|part| part.name).collect();
                return Err(RehearsalError::Part {
                    word: word.to_owned(),
                    part: part.to_owned(),
                    hint: hint(part, &known),
                });
            }
        }
        Ok(())
    }
}

fn planned<T: Trouble>(word: &str, text: &str) -> Result<Planned<T>, RehearsalError> {
    let (name, span) = text.split_once('@').map_or((text, None), |(name, span)| (name, Some(span)));
    let trouble = T::named(name).ok_or_else(|| {
        let known: Vec<&str> = T::TROUBLES.iter().map(|(word, ..)| *word).collect();
        RehearsalError::Trouble {
            word: word.to_owned(),
            part: T::PART,
            trouble: name.to_owned(),
            hint: hint(name, &known),
        }
    })?;
    let span = span.map_or(Ok(Span::ALWAYS), |span| {
        Span::parse(span).map_err(|error| RehearsalError::Span { word: word.to_owned(), span: span.to_owned(), error })
    })?;
    Ok(Planned { trouble, span })
}

fn hint(unknown: &str, known: &[&str]) -> String {
    match likeliest(unknown, known.iter().copied()) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => format!("; there are: {}", known.join(", ")),
    }
}

/// All words, for the help of `run`.
pub(crate) fn help() -> String {
    let mut text = String::from("Troubles of simulated parts, PART=TROUBLE[@WHEN][,TROUBLE[@WHEN]...]:\n");
    for part in parts() {
        let words: Vec<&str> = part.words.iter().map(|(word, _)| *word).collect();
        let _ = writeln!(text, "  {}: {}", part.name, words.join(", "));
    }
    text.push_str(
        "WHEN is a time after the start, 2s or 500ms; with 2s..5s the trouble ends again. Without it the trouble holds from the start.\n\
         docs/simulation.md says what each word means.",
    );
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse(words: &[&str]) -> Result<Rehearsal, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Rehearsal::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn words_become_troubles_with_their_times() {
        let span = |text| Span::parse(text).unwrap();
        let found = parse(&["camera=dark-first,unplug@2s..5s", "screen=missing", "camera=silent@500ms"]).unwrap();
        let camera = [
            (CameraTrouble::DarkFirst(5), Span::ALWAYS),
            (CameraTrouble::Unplugged, span("2s..5s")),
            (CameraTrouble::Silent, span("500ms")),
        ];
        let camera = camera.map(|(trouble, span)| Planned { trouble, span }).to_vec();
        let screen = vec![Planned { trouble: ScreenTrouble::Missing, span: Span::ALWAYS }];
        assert_eq!(found, Rehearsal { camera, screen, ..Rehearsal::default() });
        assert_eq!(parse(&[]).unwrap(), Rehearsal::default());
    }

    #[test]
    fn what_is_not_understood_is_named_with_what_was_probably_meant() {
        let rows = [
            (
                "camera",
                "--simulate camera: a trouble is written PART=TROUBLE, such as camera=unplug@2s; see: latchkeyd run --help",
            ),
            (
                "camera=",
                "--simulate camera=: a trouble is written PART=TROUBLE, such as camera=unplug@2s; see: latchkeyd run --help",
            ),
            (
                "camera=silent,",
                "--simulate camera=silent,: a trouble is written PART=TROUBLE, such as camera=unplug@2s; see: latchkeyd run --help",
            ),
            (
                "=silent",
                "--simulate =silent: a trouble is written PART=TROUBLE, such as camera=unplug@2s; see: latchkeyd run --help",
            ),
            ("camra=silent", "--simulate camra=silent: there is no simulated part camra; did you mean camera?"),
            (
                "camera=unplugd@2s",
                "--simulate camera=unplugd@2s: the simulated camera has no trouble unplugd; did you mean unplug?",
            ),
            (
                "screen=xyzzy",
                "--simulate screen=xyzzy: the simulated screen has no trouble xyzzy; there are: missing, hang, fail",
            ),
            (
                "camera=silent@2",
                "--simulate camera=silent@2: 2: a time is written 2s or 500ms, and 2s..5s when the trouble ends again",
            ),
            ("camera=silent@5s..2s", "--simulate camera=silent@5s..2s: 5s..2s: it would end before it begins"),
        ];
        for (word, sentence) in rows {
            assert_eq!(parse(&[word]), Err(sentence.to_owned()), "{word}");
        }
        let nothing = parse(&["lamp=off"]).unwrap_err();
        assert!(
            nothing.starts_with("--simulate lamp=off: there is no simulated part lamp; there are: camera, "),
            "{nothing}"
        );
    }

    #[test]
    fn every_word_of_every_part_is_understood_and_in_the_help_and_no_word_comes_twice() {
        let help = help();
        for part in parts() {
            for (at, (word, meaning)) in part.words.iter().enumerate() {
                let written = format!("{}={word}", part.name);
                assert!(parse(&[&written]).is_ok_and(|found| found != Rehearsal::default()), "{written}");
                assert!(help.contains(word), "{written}");
                assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{written}: {meaning}");
                assert!(part.words.iter().skip(at + 1).all(|(other, _)| other != word), "{written} comes twice");
            }
        }
    }

    #[test]
    fn the_guide_has_every_word_with_its_meaning() {
        let mut table = "| part | word | meaning |\n|---|---|---|\n".to_owned();
        for part in parts() {
            for (word, meaning) in &part.words {
                let _ = writeln!(table, "| {} | `{word}` | {meaning} |", part.name);
            }
        }
        let text = include_str!("../../../docs/simulation.md");
        let (_, rest) =
            text.split_once("<!-- troubles: this table is held against the program's own by a test -->\n").unwrap();
        let (written, _) = rest.split_once("<!-- end of troubles -->").unwrap();
        assert!(written == table, "docs/simulation.md should have this table:\n{table}");
    }
}
