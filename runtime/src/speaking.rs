//! `speaker.say` put together: the engine, the card and the bounds of the settings, and the clock on the wall.
//!
//! Called by `device` at start and each time the handler is made anew, so that a reload takes effect; by others for the engine alone.

use std::sync::{Arc, PoisonError, RwLock};

use actors::{Installed, Work};
use config::Settings;
use handlers::{
    Clock, EngineChoice, EngineLimits, LocalTime, SpeakLimits, Speaker, SpeakerBounds, Speech, SpeechEngine, WallTime,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use wire::Declaration;

use crate::device::playback;
use crate::simulate::Simulation;

/// The clock on the wall: the device's own clock, in a time zone with its daylight saving time.
pub(crate) struct WallClock {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) zone: TimeZone,
}

impl LocalTime for WallClock {
    fn now(&self) -> WallTime {
        let ms = i64::try_from(self.clock.wall_ms()).unwrap_or(i64::MAX);
        let now = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned_datetime(self.zone.clone());
        let part = |number: i8| u16::try_from(number).unwrap_or(0);
        WallTime::of_minute(part(now.hour()) * 60 + part(now.minute()))
    }
}

/// The engine that these settings name.
#[must_use]
pub fn speech_of(settings: &Settings) -> SpeechEngine {
    let choice = match settings.speech.command.as_deref() {
        Some([program, arguments @ ..]) => {
            EngineChoice::Command { program: program.clone(), arguments: arguments.to_vec() }
        }
        Some([]) | None => EngineChoice::Espeak { voice: settings.speech.voice.clone() },
    };
    SpeechEngine::new(choice, EngineLimits::default())
}

/// The capability, as the settings have it at the moment it is made.
pub(crate) fn speaker(
    simulation: Option<&Simulation>,
    live: Arc<RwLock<Settings>>,
    wall: Arc<dyn LocalTime>,
) -> Installed {
    let simulation = simulation.cloned();
    let make = move || {
        let settings = live.read().unwrap_or_else(PoisonError::into_inner);
        let speech: Arc<dyn Speech> = match &simulation {
            Some(simulation) => Arc::new(simulation.speech.clone()),
            None => Arc::new(speech_of(&settings)),
        };
        let playback = playback(simulation.as_ref(), &settings);
        let bounds = SpeakerBounds { volume_percent: settings.audio.volume, quiet: settings.quiet.hours.clone() };
        Work::Plain(Arc::new(Speaker::new(speech, playback, Arc::clone(&wall), bounds, SpeakLimits::default())))
    };
    Installed { declaration: Declaration::speaker_say(), make: Arc::new(move || Ok(make())), custom: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use handlers::TokioClock;

    use super::*;

    #[tokio::test]
    async fn the_clock_on_the_wall_goes_with_daylight_saving_time() {
        let rows = [
            ("UTC", "2026-03-29T00:59:59Z", "00:59"),
            // The hour from two to three is skipped in Berlin.
            ("Europe/Berlin", "2026-03-29T00:59:59Z", "01:59"),
            ("Europe/Berlin", "2026-03-29T01:00:00Z", "03:00"),
            // And comes twice in autumn.
            ("Europe/Berlin", "2026-10-25T00:30:00Z", "02:30"),
            ("Europe/Berlin", "2026-10-25T01:30:00Z", "02:30"),
            ("Europe/Berlin", "2026-10-25T02:00:00Z", "03:00"),
            ("Asia/Kathmandu", "2026-06-01T18:15:00Z", "00:00"),
            ("America/St_Johns", "2026-01-01T03:29:00Z", "23:59"),
        ];
        for (zone, instant, wanted) in rows {
            let ms = u64::try_from(instant.parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
            let wall = WallClock { clock: Arc::new(TokioClock::new(ms)), zone: TimeZone::get(zone).unwrap() };
            assert_eq!(wall.now().to_string(), wanted, "{zone} {instant}");
        }
    }
}
