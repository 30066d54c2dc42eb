//! What is counted while sound flows: frames that were played, and what went wrong meanwhile.
//!
//! Pure. Called from the threads in which a card takes or gives sound, so nothing here waits.

use super::SoundFault;
use super::form::{Form, write_frame};

/// Errors in a row, with no sound between them, after which a card is given up: a driver that says "error" at every turn says it for
/// ever.
pub(super) const ERRORS_IN_A_ROW_MAX: u32 = 8;
/// Gaps in one sound after which it is given up: it could not be understood any more.
pub(super) const GAPS_MAX: u32 = 200;
/// More than this a card does not hold back, whatever its driver says: two seconds are the most that sound servers do.
const AHEAD_SECONDS_MAX: u64 = 2;

/// What a driver can say in place of sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upset {
    /// It was not served in time: some of the sound is missing.
    Gap,
    /// The card is gone.
    Gone,
    /// Anything else.
    Other(String),
}

/// The errors of one stream.
#[derive(Debug, Default)]
pub(super) struct Errors {
    in_a_row: u32,
    gaps: u32,
}

impl Errors {
    /// Sound flowed.
    pub(super) const fn none(&mut self) {
        self.in_a_row = 0;
    }

    /// Something went wrong; gives the reason to end, if it is one.
    pub(super) fn one(&mut self, upset: Upset) -> Option<SoundFault> {
        self.in_a_row += 1;
        match upset {
            Upset::Gone => Some(SoundFault::Unplugged),
            Upset::Gap => {
                self.gaps += 1;
                let endless = self.gaps >= GAPS_MAX || self.in_a_row >= ERRORS_IN_A_ROW_MAX;
                endless.then(|| SoundFault::Driver("the sound breaks off again and again".to_owned()))
            }
            Upset::Other(reason) => (self.in_a_row >= ERRORS_IN_A_ROW_MAX).then_some(SoundFault::Driver(reason)),
        }
    }

    /// Gaps so far.
    pub(super) const fn gaps(&self) -> u32 {
        self.gaps
    }
}

/// Hands a sound to a card, piece by piece, and counts when its last sample was played.
#[derive(Debug)]
pub(super) struct Feeder {
    form: Form,
    samples: Vec<f32>,
    next: usize,
    /// Frames of silence handed over after the last sample.
    silence: u64,
}

impl Feeder {
    /// `samples` at the form's rate.
    pub(super) const fn new(form: Form, samples: Vec<f32>) -> Self {
        Self { form, samples, next: 0, silence: 0 }
    }

    /// Fills one piece. `ahead` frames wait before it at the card. `true` once the last sample was played: only silence waits there.
    pub(super) fn fill(&mut self, piece: &mut [u8], ahead: u64) -> bool {
        let ahead = ahead.min(AHEAD_SECONDS_MAX * u64::from(self.form.rate_hz));
        let over = self.next >= self.samples.len();
        let played = over && ahead <= self.silence;
        let mut ours = 0;
        let mut frames = 0;
        for frame in piece.chunks_exact_mut(self.form.frame_bytes()) {
            frames += 1;
            let sample = self.samples.get(self.next).copied();
            if sample.is_some() {
                self.next += 1;
                ours = frames;
            }
            write_frame(&self.form, sample.unwrap_or(0.0), frame);
        }
        self.silence = if ours > 0 { frames - ours } else { self.silence + frames };
        played
    }

    /// Samples handed over.
    pub(super) const fn handed(&self) -> usize {
        self.next
    }

    /// Whether a sample was handed over.
    pub(super) const fn begun(&self) -> bool {
        self.next > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::{Format, mix};
    use super::*;

    const FORM: Form = Form { format: Format::I16, channels: 2, rate_hz: 48_000, period_frames: None };

    /// A card with room for `room` frames that plays `pace` frames between two calls; gives what it had played when the feeder was done.
    fn play(samples: usize, piece: usize, room: usize, pace: usize) -> (usize, Vec<f32>) {
        let mut feeder = Feeder::new(FORM, vec![0.5; samples]);
        let (mut queue, mut taken, mut played) = (0, Vec::new(), 0);
        loop {
            while queue + piece > room {
                played += pace.min(queue);
                queue -= pace.min(queue);
            }
            let mut bytes = vec![0; piece * FORM.frame_bytes()];
            if feeder.fill(&mut bytes, u64::try_from(queue).unwrap()) {
                return (played, taken);
            }
            taken.extend(mix(&FORM, &bytes));
            queue += piece;
        }
    }

    #[test]
    fn a_sound_ends_when_its_last_sample_was_played_and_at_most_one_queue_later() {
        for (samples, piece, room, pace) in [
            (9_600, 480, 960, 480),
            (9_601, 480, 960, 480),
            (1, 480, 960, 480),
            (100_000, 4_800, 9_600, 4_800),
            (9_600, 512, 96_000, 256),
            (480, 480, 480, 480),
        ] {
            let (played, taken) = play(samples, piece, room, pace);
            assert!(played >= samples, "{samples} {piece} {room}: {played} played");
            assert!(played <= samples + room + piece, "{samples} {piece} {room}: {played} played");
            assert_eq!(taken.iter().filter(|sample| **sample != 0.0).count(), samples);
            assert!(taken[..samples].iter().all(|sample| *sample != 0.0), "nothing before or between");
        }
    }

    #[test]
    fn a_card_that_takes_everything_at_once_or_lies_about_its_queue_ends_a_sound_too() {
        let mut feeder = Feeder::new(FORM, vec![0.5; 1_000]);
        let mut piece = vec![0; 480 * FORM.frame_bytes()];
        let ends: Vec<bool> = (0..4).map(|_| feeder.fill(&mut piece, 0)).collect();
        assert_eq!(ends, [false, false, false, true]);
        let mut feeder = Feeder::new(FORM, vec![0.5; 1_000]);
        let turns = (0..1_000).position(|_| feeder.fill(&mut piece, u64::MAX)).unwrap();
        assert!((200..=210).contains(&turns), "two seconds of silence, not for ever: {turns}");
    }

    #[test]
    fn a5_errors_without_end_are_ended_and_errors_between_sound_are_not() {
        let reason = || Upset::Other("POLLERR".to_owned());
        let mut errors = Errors::default();
        let fault = (1..100).find_map(|turn| Some((turn, errors.one(reason())?)));
        assert_eq!(fault, Some((ERRORS_IN_A_ROW_MAX, SoundFault::Driver("POLLERR".to_owned()))));
        let mut errors = Errors::default();
        for _ in 0..100 {
            errors.none();
            assert_eq!(errors.one(reason()), None);
        }
        assert_eq!(errors.one(Upset::Gone), Some(SoundFault::Unplugged), "no second chance for a card that is gone");
        let mut errors = Errors::default();
        let gaps = (1..1_000).find(|_| {
            errors.none();
            errors.one(Upset::Gap).is_some()
        });
        assert_eq!(gaps, Some(GAPS_MAX));
        assert_eq!(errors.gaps(), GAPS_MAX);
    }
}
