//! How a line of a GPIO chip is written in the settings: `CHIP/LINE` or `LINE`, and behind commas what is special about it.
//!
//! Read by the settings, obeyed by the in-use sign. Refuses what could mean two things: a number without a chip, an option that nobody
//! knows. Whether there is such a line is asked of the kernel, each time.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::keys::likeliest;

/// The kernel keeps names of chips and lines in 32 bytes with a zero at the end.
const NAME_BYTES_MAX: usize = 31;
/// The largest GPIO chips have a few hundred lines; a number beyond this is a mistake.
const OFFSET_MAX: u32 = 0xffff;
/// The words that may stand behind a comma.
const OPTIONS: [&str; 2] = ["active-low", "open-drain"];

/// A line of a GPIO chip, as the keeper named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpioLine {
    chip: Option<String>,
    line: LineName,
    active_low: bool,
    open_drain: bool,
}

/// A line by its name, or by its place on the chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineName {
    /// Its place on its chip.
    Offset(u32),
    /// What the board calls it.
    Named(String),
}

/// Why a text names no line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGpioLine(String);

impl GpioLine {
    /// The chip's name (`gpiochip0`) or label (`pinctrl-bcm2711`); none where the line's name is enough.
    pub fn chip(&self) -> Option<&str> {
        self.chip.as_deref()
    }

    /// Which line of it.
    pub const fn line(&self) -> &LineName {
        &self.line
    }

    /// Whether the light is on while the wire is low.
    pub const fn active_low(&self) -> bool {
        self.active_low
    }

    /// Whether the wire is only ever pulled low, and left alone otherwise.
    pub const fn open_drain(&self) -> bool {
        self.open_drain
    }
}

impl FromStr for GpioLine {
    type Err = NoGpioLine;

    fn from_str(text: &str) -> Result<Self, NoGpioLine> {
        let mut words = text.split(',').map(str::trim);
        let place = words.next().unwrap_or_default();
        let (mut active_low, mut open_drain) = (false, false);
        for word in words {
            match word {
                "active-low" => active_low = true,
                "open-drain" => open_drain = true,
                _ => return Err(unknown_option(word)),
            }
        }
        let (chip, line) = match place.rsplit_once('/') {
            Some((chip, line)) => (Some(name(chip, "chip")?), line),
            None => (None, place),
        };
        let digits = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        let line = if digits {
            if chip.is_none() {
                let reason =
                    format!("{line} is a line of which chip? Write gpiochip0/{line}, or better the chip's label");
                return Err(NoGpioLine(reason));
            }
            let offset = line.parse().ok().filter(|offset| *offset <= OFFSET_MAX);
            LineName::Offset(offset.ok_or_else(|| NoGpioLine(format!("no chip has a line {line}")))?)
        } else {
            LineName::Named(name(line, "line")?)
        };
        Ok(Self { chip, line, active_low, open_drain })
    }
}

fn unknown_option(word: &str) -> NoGpioLine {
    let hint = likeliest(word, OPTIONS.into_iter())
        .map_or_else(|| format!("; there are {}", OPTIONS.join(" and ")), |meant| format!("; did you mean {meant}?"));
    NoGpioLine(format!("nothing is known of {word:?} behind a comma{hint}"))
}

fn name(text: &str, of: &str) -> Result<String, NoGpioLine> {
    if text.is_empty() {
        let reason = format!("the {of} has no name; a line is written CHIP/LINE, such as pinctrl-bcm2711/17");
        return Err(NoGpioLine(reason));
    }
    if text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) || text.contains('/') {
        let reason = format!("{text:?} is not the name of a {of}: at most {NAME_BYTES_MAX} bytes, without / in it");
        return Err(NoGpioLine(reason));
    }
    Ok(text.to_owned())
}

impl fmt::Display for GpioLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(chip) = &self.chip {
            write!(f, "{chip}/")?;
        }
        match &self.line {
            LineName::Offset(offset) => write!(f, "{offset}")?,
            LineName::Named(name) => f.write_str(name)?,
        }
        let options = [(self.active_low, "active-low"), (self.open_drain, "open-drain")];
        options.iter().filter(|(on, _)| *on).try_for_each(|(_, word)| write!(f, ",{word}"))
    }
}

impl Serialize for GpioLine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_line_is_named_by_chip_and_number_by_chip_and_name_or_by_a_name_alone() {
        type Row<'a> = (&'a str, Option<&'a str>, LineName, bool, bool, &'a str);
        let rows: &[Row<'_>] = &[
            ("gpiochip0/17", Some("gpiochip0"), LineName::Offset(17), false, false, "gpiochip0/17"),
            ("pinctrl-bcm2711/17", Some("pinctrl-bcm2711"), LineName::Offset(17), false, false, "pinctrl-bcm2711/17"),
            ("INTC1055:00/007", Some("INTC1055:00"), LineName::Offset(7), false, false, "INTC1055:00/7"),
            ("a/GPIO17", Some("a"), LineName::Named("GPIO17".to_owned()), false, false, "a/GPIO17"),
            ("GPIO17", None, LineName::Named("GPIO17".to_owned()), false, false, "GPIO17"),
            ("GPIO17, active-low", None, LineName::Named("GPIO17".to_owned()), true, false, "GPIO17,active-low"),
            ("a/1,open-drain,active-low", Some("a"), LineName::Offset(1), true, true, "a/1,active-low,open-drain"),
        ];
        for (text, chip, line, active_low, open_drain, again) in rows {
            let read: GpioLine = text.parse().unwrap();
            assert_eq!((read.chip(), read.line()), (*chip, line), "{text}");
            assert_eq!((read.active_low(), read.open_drain()), (*active_low, *open_drain), "{text}");
            assert_eq!(read.to_string(), *again);
            assert_eq!(again.parse::<GpioLine>().unwrap(), read);
        }
    }

    #[test]
    fn what_could_mean_two_things_is_refused_and_says_how_it_is_written() {
        let rows: &[(&str, &str)] = &[
            ("", "the line has no name; a line is written CHIP/LINE, such as pinctrl-bcm2711/17"),
            ("gpiochip0/", "the line has no name; a line is written CHIP/LINE, such as pinctrl-bcm2711/17"),
            ("/17", "the chip has no name; a line is written CHIP/LINE, such as pinctrl-bcm2711/17"),
            ("17", "17 is a line of which chip? Write gpiochip0/17, or better the chip's label"),
            ("gpiochip0/65536", "no chip has a line 65536"),
            ("gpiochip0/99999999999", "no chip has a line 99999999999"),
            ("/dev/gpiochip0/17", "\"/dev/gpiochip0\" is not the name of a chip: at most 31 bytes, without / in it"),
            ("a/1,active-lo", "nothing is known of \"active-lo\" behind a comma; did you mean active-low?"),
            ("a/1,", "nothing is known of \"\" behind a comma; there are active-low and open-drain"),
            ("a/b\u{7}", "\"b\\u{7}\" is not the name of a line: at most 31 bytes, without / in it"),
        ];
        for (text, reason) in rows {
            assert_eq!(text.parse::<GpioLine>().unwrap_err().to_string(), *reason, "{text}");
        }
    }
}
