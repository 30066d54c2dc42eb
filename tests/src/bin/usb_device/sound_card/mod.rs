//! `usb_device sound-card FILE [SERIAL] [HZ]`: a USB sound card that writes what it is told to play to FILE, samples of 16 bits at 48 kHz,
//! and hears a tone of its own. Its line is the name that ALSA gave it.

mod audio;

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use self::audio::{PACKET_SAMPLES, RATE_HZ, SAMPLE_BYTES};
use crate::{
    announce, end_of_input,
    usbip::{Answer, Line, Packet, Port, Request, Speed},
    wait_for,
};

pub(crate) const USAGE: &str = "sound-card FILE [SERIAL] [HZ]";
/// One packet of the bus.
const FRAME: Duration = Duration::from_millis(1);
/// How often the end of the input is looked for.
const GLANCE: Duration = Duration::from_millis(20);
/// Half of what is loudest.
const AMPLITUDE: f64 = 16_384.0;

pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Result<()> {
    let played = words.next().context(USAGE)?;
    let serial = words.next().unwrap_or_else(|| "0001".to_owned());
    let pitch_hz = words.next().unwrap_or_else(|| "1000".to_owned()).parse()?;
    ensure!(words.next().is_none(), "too many words");
    let played = File::create(&played).with_context(|| format!("making {played}"))?;
    let mut card = SoundCard {
        serial,
        line: Line::plug_in(Speed::Full)?,
        streams: Vec::new(),
        free: [Instant::now(); 2],
        played,
        tone: Tone { pitch_hz, at: 0 },
    };
    let port = card.line.port.clone();
    announce({
        let port = port.clone();
        move || card_of(&port).map(|card| card.id)
    });
    card.run(&end_of_input())?;
    let known = card_of(&port);
    drop(card);
    wait_for("the kernel still knows the sound card", || known.iter().all(|card| !card.is_there()).then_some(()))
}

/// Packets that are not over yet.
struct Stream {
    number: u32,
    packets: Vec<Packet>,
    /// What they carry; nothing where they bring what is heard.
    data: Option<Vec<u8>>,
    over: Instant,
}

struct SoundCard {
    serial: String,
    line: Line,
    /// In the order in which they came.
    streams: Vec<Stream>,
    /// When the packets that came so far are over, out and in.
    free: [Instant; 2],
    played: File,
    tone: Tone,
}

impl SoundCard {
    /// Until it is pulled out, or `ended` closes.
    fn run(&mut self, ended: &Receiver<()>) -> Result<()> {
        while ended.try_recv() != Err(TryRecvError::Disconnected) {
            let next = self.streams.iter().map(|stream| stream.over).min();
            let wait = next.map_or(GLANCE, |over| over.saturating_duration_since(Instant::now()).min(GLANCE));
            match self.line.requests.recv_timeout(wait) {
                Ok(request) => self.take(request)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let now = Instant::now();
            for over in self.streams.extract_if(.., |stream| stream.over <= now).collect::<Vec<_>>() {
                self.end(&over)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Stream { number, packets, data } => {
                let [out, into] = &mut self.free;
                let free = if data.is_some() { out } else { into };
                // A card that was late does not catch up: its clock just went slower.
                *free = (*free).max(Instant::now()) + FRAME * u32::try_from(packets.len())?;
                self.streams.push(Stream { number, packets, data, over: *free });
                Ok(())
            }
            Request::Withdraw { number, earlier } => {
                let open = self.streams.len();
                self.streams.retain(|stream| stream.number != earlier);
                self.line.withdrawn(number, self.streams.len() < open)
            }
            Request::Control { number, setup, data, room } => {
                self.line.answer_control(number, audio::control(&self.serial, setup), &data, room)
            }
            // It has no endpoint for that.
            Request::Read { number, .. } => self.line.answer(number, &Answer::Stall),
        }
    }

    /// The packets are over: what they carried is played, or they bring what was heard.
    fn end(&mut self, stream: &Stream) -> Result<()> {
        let Some(data) = &stream.data else {
            let heard: Vec<Vec<u8>> = stream.packets.iter().map(|_| self.tone.packet()).collect();
            return self.line.answer_stream(stream.number, &stream.packets, Some(&heard));
        };
        let carried: Vec<&[u8]> = stream.packets.iter().map(|packet| packet.of(data)).collect();
        self.played.write_all(&carried.concat())?;
        self.line.answer_stream(stream.number, &stream.packets, None)
    }
}

/// What the card hears.
struct Tone {
    pitch_hz: f64,
    /// Samples so far.
    at: u64,
}

impl Tone {
    #[expect(clippy::cast_possible_truncation, reason = "a sample is a whole number")]
    fn packet(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PACKET_SAMPLES * SAMPLE_BYTES);
        for _ in 0..PACKET_SAMPLES {
            let turns = self.pitch_hz * self.at as f64 / f64::from(RATE_HZ);
            let sample = ((turns * std::f64::consts::TAU).sin() * AMPLITUDE).round() as i16;
            bytes.extend(sample.to_le_bytes());
            self.at += 1;
        }
        bytes
    }
}

/// A card of the kernel.
struct KernelCard {
    /// `card0`
    name: String,
    id: String,
}

impl KernelCard {
    fn is_there(&self) -> bool {
        Path::new("/sys/class/sound").join(&self.name).exists()
    }
}

/// The card that the kernel made of what is plugged in there, once programs can open it.
fn card_of(port: &Port) -> Option<KernelCard> {
    let part = port.parts("sound").into_iter().next()?;
    let name = part.file_name()?.to_string_lossy().into_owned();
    let id = fs::read_to_string(part.join("id")).ok()?.trim().to_owned();
    let number = name.strip_prefix("card")?;
    let nodes = [format!("pcmC{number}D0p"), format!("pcmC{number}D0c"), format!("controlC{number}")];
    nodes.iter().all(|node| Path::new("/dev/snd").join(node).exists()).then_some(KernelCard { name, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_goes_on_from_packet_to_packet() {
        let mut tone = Tone { pitch_hz: 1000.0, at: 0 };
        let sample =
            |packet: &[u8], at: usize| i16::from_le_bytes(packet.get(2 * at..2 * at + 2).unwrap().try_into().unwrap());
        let [first, second] = [tone.packet(), tone.packet()];
        assert_eq!((first.len(), sample(&first, 0), sample(&first, 12)), (96, 0, 16_384));
        assert_eq!(first, second, "48 samples are one turn");
        assert_eq!(tone.at, 96);
    }
}
