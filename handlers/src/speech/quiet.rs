//! Quiet hours: when nothing is said aloud, by the clock on the wall.
//!
//! Called by the speaker before anything is played. Hours are those of local time, so they move with daylight saving time as people do:
//! an hour that is skipped is over, one that comes twice is quiet twice. What local time is comes in by [`LocalTime`].

use std::fmt;

pub use config::QuietHours;

/// What the clock on the wall shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime {
    minute: u16,
}

/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;

impl WallTime {
    /// So many minutes after midnight; whole days are left out.
    pub const fn of_minute(minute: u16) -> Self {
        Self { minute: minute % DAY_MINUTES }
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.minute / 60, self.minute % 60)
    }
}

/// The time where the device stands.
pub trait LocalTime: Send + Sync + 'static {
    /// What the clock on the wall shows now.
    fn now(&self) -> WallTime;
}

/// Until when it is quiet at `now`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quiet {
    Not,
    Until(WallTime),
    /// The whole day.
    Always,
}

/// Holds `now` against all quiet hours: those that follow each other without a gap are one quiet time.
pub(super) fn quiet(hours: &[QuietHours], now: WallTime) -> Quiet {
    let mut at = now.minute;
    let mut gone = 0;
    while let Some(left) = hours.iter().filter_map(|hours| left_at(hours, at)).max() {
        gone += left;
        if gone >= DAY_MINUTES {
            return Quiet::Always;
        }
        at = (at + left) % DAY_MINUTES;
    }
    if gone == 0 { Quiet::Not } else { Quiet::Until(WallTime::of_minute(at)) }
}

/// How many minutes of these hours are left at this one.
fn left_at(hours: &QuietHours, minute: u16) -> Option<u16> {
    let length = hours.minutes();
    let since = (minute + DAY_MINUTES - hours.from_minute()) % DAY_MINUTES;
    (since < length).then(|| length - since)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(text: &str) -> WallTime {
        let (hours, minutes) = text.split_once(':').unwrap();
        WallTime::of_minute(hours.parse::<u16>().unwrap() * 60 + minutes.parse::<u16>().unwrap())
    }

    #[test]
    fn it_is_quiet_from_the_first_minute_to_the_last_also_over_midnight_and_over_several_hours() {
        let rows: &[(&[&str], &str, Option<&str>)] = &[
            (&[], "03:00", None),
            (&["13:00-14:30"], "12:59", None),
            (&["13:00-14:30"], "13:00", Some("14:30")),
            (&["13:00-14:30"], "14:29", Some("14:30")),
            (&["13:00-14:30"], "14:30", None),
            (&["22:00-07:00"], "21:59", None),
            (&["22:00-07:00"], "22:00", Some("07:00")),
            (&["22:00-07:00"], "00:00", Some("07:00")),
            (&["22:00-07:00"], "06:59", Some("07:00")),
            (&["22:00-07:00"], "07:00", None),
            (&["22:00-24:00"], "23:59", Some("00:00")),
            (&["22:00-24:00"], "00:00", None),
            (&["00:00-07:00", "22:00-24:00"], "23:00", Some("07:00")),
            (&["06:00-08:00", "22:00-07:00", "07:30-09:00"], "23:00", Some("09:00")),
            (&["13:00-14:00", "22:00-07:00"], "13:30", Some("14:00")),
            (&["23:59-23:58"], "23:57", Some("23:58")),
            (&["23:59-23:58"], "23:58", None),
        ];
        for (written, now, until) in rows {
            let hours: Vec<QuietHours> = written.iter().map(|hours| hours.parse().unwrap()).collect();
            let wanted = until.map_or(Quiet::Not, |until| Quiet::Until(at(until)));
            assert_eq!(quiet(&hours, at(now)), wanted, "{written:?} at {now}");
        }
        for written in [&["00:00-24:00"][..], &["00:00-12:00", "12:00-00:00"]] {
            let hours: Vec<QuietHours> = written.iter().map(|hours| hours.parse().unwrap()).collect();
            assert_eq!(quiet(&hours, at("17:17")), Quiet::Always, "{written:?}");
        }
        assert_eq!(at("07:05").to_string(), "07:05");
    }
}
