//! Sound from a card.
//!
//! The card's own thread puts what it hears into a queue with an end; whoever records takes it from there. Dropping the stream closes
//! the card.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use cpal::traits::{DeviceTrait as _, StreamTrait as _};

use super::playback::{POLL, rest};
use super::presence::{BELIEVED, Presence, absent, look, remember, remembered};
use super::{
    CardChoice, CardPlayback, Found, Way, another_form_may_help, build, cannot_open, find, offers, sample_format, upset,
};
use crate::clock::{Clock as _, SystemClock};
use crate::sound::flow::Errors;
use crate::sound::form::{Form, candidates, mix};
use crate::sound::{Playback as _, Recording, RecordingStream, SoundFault};

/// Pieces that may wait: two seconds, more than whoever records is ever late. Then the card's thread waits, and the card with it.
const QUEUE_MAX: usize = 20;

/// A sound card to hear with.
pub struct CardRecording {
    choice: CardChoice,
}

impl CardRecording {
    /// The card of that choice, looked for anew at each recording.
    pub const fn new(choice: CardChoice) -> Self {
        Self { choice }
    }
}

impl Recording for CardRecording {
    fn name(&self) -> String {
        self.choice.describe()
    }

    fn simulated(&self) -> bool {
        false
    }

    fn taken(&self) -> Arc<AtomicBool> {
        /// One for the process: the device has one microphone, whichever it is.
        static TAKEN: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
        Arc::clone(&TAKEN)
    }

    fn ready(&self) -> Result<(), SoundFault> {
        let there = match look(&self.choice, Way::In) {
            Presence::There => true,
            Presence::Absent => false,
            // Nothing is opened to hear with just to know whether it could be; a sound server that plays is believed to record.
            Presence::Unknown => match remembered(&self.choice, Way::In) {
                Some((at, opened)) if SystemClock.boot().since(at) < BELIEVED => opened,
                _ => CardPlayback::new(self.choice.clone()).ready().is_ok(),
            },
        };
        if there { Ok(()) } else { Err(absent(&self.choice, Way::In)) }
    }

    fn open(&self) -> Result<Box<dyn RecordingStream>, SoundFault> {
        let opened = Running::open(&self.choice);
        remember(&self.choice, Way::In, !matches!(opened, Err(SoundFault::Missing(_))));
        Ok(Box::new(opened?))
    }
}

/// A card that records in the first of the forms that it records in.
struct Running {
    choice: CardChoice,
    card: Found,
    form: Form,
    /// What is tried when this form brings no sound.
    others: std::vec::IntoIter<Form>,
    /// None while another form is tried: a card is often open once only, so what failed is closed first.
    flow: Option<Flow>,
    heard: bool,
}

/// One stream of the card. The queue comes first: once it is gone, the card's thread waits for no room in it, and the stream can close.
struct Flow {
    pieces: Receiver<Vec<f32>>,
    _stream: cpal::Stream,
    told: Arc<Told>,
}

/// What the card's thread tells beside the sound.
#[derive(Default)]
struct Told {
    errors: Mutex<Errors>,
    fault: Mutex<Option<SoundFault>>,
}

impl Running {
    fn open(choice: &CardChoice) -> Result<Self, SoundFault> {
        let card = find(choice, Way::In)?;
        let mut forms = candidates(&offers(&card, choice, Way::In)?).into_iter();
        let (form, flow) = next_form(&card, choice, &mut forms, None)?;
        Ok(Self { choice: choice.clone(), card, form, others: forms, flow: Some(flow), heard: false })
    }
}

impl RecordingStream for Running {
    fn rate_hz(&self) -> u32 {
        self.form.rate_hz
    }

    fn next(&mut self, wait: Duration) -> Result<Option<Vec<f32>>, SoundFault> {
        let Some(flow) = &self.flow else { return Err(SoundFault::Driver("it could not be started again".to_owned())) };
        let fault = match flow.next(wait) {
            Ok(piece) => {
                self.heard |= piece.is_some();
                return Ok(piece);
            }
            Err(fault) => fault,
        };
        if self.heard || !another_form_may_help(&fault) {
            return Err(fault);
        }
        self.flow = None;
        let (form, flow) = next_form(&self.card, &self.choice, &mut self.others, Some(fault))?;
        (self.form, self.flow) = (form, Some(flow));
        Ok(None)
    }
}

/// Starts the card in the next form in which it starts.
fn next_form(
    card: &Found,
    choice: &CardChoice,
    forms: &mut std::vec::IntoIter<Form>,
    fault: Option<SoundFault>,
) -> Result<(Form, Flow), SoundFault> {
    let mut last = fault.unwrap_or_else(|| {
        SoundFault::Unusable(format!("{} offers no form of sound that is known here", choice.describe()))
    });
    for form in forms {
        match Flow::start(card, choice, form) {
            Ok(flow) => return Ok((form, flow)),
            Err(fault) if another_form_may_help(&fault) => last = fault,
            Err(fault) => return Err(fault),
        }
        tracing::debug!(card = choice.describe(), ?form, fault = %last, "the card does not record in this form");
    }
    Err(last)
}

impl Flow {
    fn start(card: &Found, choice: &CardChoice, form: Form) -> Result<Self, SoundFault> {
        let told = Arc::new(Told::default());
        let built = build(&form, |config| {
            let (give, pieces) = sync_channel(QUEUE_MAX);
            let (of_data, of_error) = (Arc::clone(&told), Arc::clone(&told));
            let stream = card.device.build_input_stream_raw(
                config,
                sample_format(form.format),
                move |data, _| of_data.heard(&give, mix(&form, data.bytes())),
                move |error| of_error.wrong(&error),
                Some(POLL),
            )?;
            Ok((stream, pieces))
        });
        let (stream, pieces) = built.map_err(|error| cannot_open(&error, choice, Way::In))?;
        card.is_still_it()?;
        stream.play().map_err(|error| cannot_open(&error, choice, Way::In))?;
        Ok(Self { pieces, _stream: stream, told })
    }

    fn next(&self, wait: Duration) -> Result<Option<Vec<f32>>, SoundFault> {
        ended(self.pieces.recv_timeout(wait), &self.told)
    }
}

/// What came of a wait for the next piece. A card's thread says why it ends before it does.
fn ended(piece: Result<Vec<f32>, RecvTimeoutError>, told: &Told) -> Result<Option<Vec<f32>>, SoundFault> {
    let fault = || told.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
    match piece {
        Ok(piece) => Ok(Some(piece)),
        Err(RecvTimeoutError::Timeout) => fault().map_or(Ok(None), Err),
        Err(RecvTimeoutError::Disconnected) => {
            Err(fault().unwrap_or_else(|| SoundFault::Driver("its thread ended".to_owned())))
        }
    }
}

impl Told {
    fn heard(&self, give: &SyncSender<Vec<f32>>, piece: Vec<f32>) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).none();
        if give.send(piece).is_err() {
            // Nobody records any more; the stream is about to be closed.
            rest();
        }
    }

    fn wrong(&self, error: &cpal::Error) {
        let fault = self.errors.lock().unwrap_or_else(PoisonError::into_inner).one(upset(error));
        if let Some(fault) = fault {
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        }
        rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_a_card_that_is_pulled_out_is_called_unplugged_however_its_thread_ends() {
        for waited in [RecvTimeoutError::Timeout, RecvTimeoutError::Disconnected] {
            let told = Told::default();
            told.wrong(&cpal::Error::new(cpal::ErrorKind::DeviceNotAvailable));
            assert_eq!(ended(Err(waited), &told), Err(SoundFault::Unplugged), "{waited:?}");
        }
        let told = Told::default();
        assert_eq!(ended(Err(RecvTimeoutError::Timeout), &told), Ok(None));
        let silent = ended(Err(RecvTimeoutError::Disconnected), &told);
        assert_eq!(silent, Err(SoundFault::Driver("its thread ended".to_owned())));
    }
}
