//! WAV as speech engines write it into a pipe: read as it comes, kept as one channel of 16 bit.
//!
//! Called by `child` with each piece that an engine writes. An engine that streams does not know how long its sound will be, so sizes in
//! its header may be anything: a size that is honest ends the sound, any other is outlasted by the end of the pipe. Refuses what is no
//! WAV, and kinds of sound that no engine is known to make. Whatever comes, no more than [`AUDIO_MAX`] is kept.

use std::time::Duration;

use super::Spoken;
use crate::sound::Pcm;

/// The longest sound that is kept of a text. Five hundred bytes of speech last half of that; whatever lasts longer is a mistake.
pub const AUDIO_MAX: Duration = Duration::from_secs(60);
/// More than this before the sound itself (pictures, cue points, padding) is no engine's doing.
const AHEAD_BYTES_MAX: u64 = 1024 * 1024;
/// Longest description of a format: the extensible one has 40 bytes.
const FORMAT_BYTES_MAX: u32 = 128;
/// Telephone to studio.
const RATES_HZ: std::ops::RangeInclusive<u32> = 8_000..=96_000;
/// Whole numbers.
const TAG_PCM: u16 = 1;
/// Numbers between -1 and 1.
const TAG_FLOAT: u16 = 3;
/// The real tag stands further behind.
const TAG_EXTENSIBLE: u16 = 0xFFFE;
/// From here on a size says no more than that its writer did not know it: espeak-ng writes 0x7FFFF000, others 0xFFFFFFFF.
const UNKNOWN_FROM: u32 = 0x7FFF_0000;

/// Why bytes are no sound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WavFault {
    /// There were none.
    #[error("it is empty")]
    Empty,
    /// They ended before the sound began.
    #[error("it ends inside its header")]
    Cut,
    /// They are something else.
    #[error("it is not WAV; it begins with {0}")]
    Foreign(String),
    /// Too much stands before the sound.
    #[error("more than 1 MiB stands before its sound")]
    Ahead,
    /// The sound comes before its description.
    #[error("its sound comes before its format")]
    Undescribed,
    /// A format that we do not know.
    #[error("its format is unknown: {0}")]
    Format(String),
}

/// A reader in the middle of a file.
pub(super) struct Wav {
    state: State,
    /// Bytes that came and are not understood yet.
    held: Vec<u8>,
    /// Bytes before the sound so far.
    ahead: u64,
    format: Option<Format>,
    samples: Vec<i16>,
    cut: bool,
}

enum State {
    /// `RIFF`, a size, `WAVE`.
    Riff,
    /// A chunk's name and size.
    Chunk,
    /// The description of the sound, so long.
    Format(u32),
    /// Something else, so long still.
    Skip(u64),
    /// The sound, and how much of it is to come, where that is known.
    Sound(Option<u64>),
    /// All that is wanted was read.
    Done,
}

/// Whether more is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    More,
    /// It is whole: the header said how long it is, and that much came.
    Whole,
    /// It is as long as it may be, and goes on.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    rate_hz: u32,
    channels: u16,
    kind: Kind,
}

/// How a sample is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole8,
    Whole16,
    Whole24,
    Whole32,
    Float32,
}

impl Wav {
    pub(super) fn new() -> Self {
        Self { state: State::Riff, held: Vec::new(), ahead: 0, format: None, samples: Vec::new(), cut: false }
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Wanted, WavFault> {
        self.held.extend_from_slice(bytes);
        while self.step()? {}
        Ok(match self.state {
            State::Done if self.cut => Wanted::Cut,
            State::Done => Wanted::Whole,
            State::Riff | State::Chunk | State::Format(_) | State::Skip(_) | State::Sound(_) => Wanted::More,
        })
    }

    /// The sound, once no more comes.
    pub(super) fn finish(self) -> Result<Spoken, WavFault> {
        match (self.state, self.format) {
            (State::Sound(_) | State::Done, Some(format)) => {
                Ok(Spoken { pcm: Pcm { rate_hz: format.rate_hz, samples: self.samples }, cut: self.cut })
            }
            (State::Riff, _) if self.held.is_empty() => Err(WavFault::Empty),
            (State::Riff, _) => Err(foreign(&self.held).unwrap_or(WavFault::Cut)),
            _ => Err(WavFault::Cut),
        }
    }

    /// One step ahead, if what is held suffices for it.
    fn step(&mut self) -> Result<bool, WavFault> {
        match self.state {
            State::Riff => self.riff(),
            State::Chunk => self.chunk(),
            State::Format(size) => self.describe(size),
            State::Skip(left) => Ok(self.skip(left)),
            State::Sound(left) => Ok(self.sound(left)),
            State::Done => {
                self.held.clear();
                Ok(false)
            }
        }
    }

    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        (self.held.len() >= size).then(|| self.held.drain(..size).collect())
    }

    fn count(&mut self, bytes: u64) -> Result<(), WavFault> {
        self.ahead = self.ahead.saturating_add(bytes);
        if self.ahead > AHEAD_BYTES_MAX { Err(WavFault::Ahead) } else { Ok(()) }
    }

    fn riff(&mut self) -> Result<bool, WavFault> {
        const HEAD: usize = 12;
        let Some(head) = self.take(HEAD) else { return Ok(false) };
        self.state = State::Chunk;
        foreign(&head).map_or(Ok(true), Err)
    }

    fn chunk(&mut self) -> Result<bool, WavFault> {
        const HEAD: usize = 8;
        let Some(head) = self.take(HEAD) else { return Ok(false) };
        let size = u32_at(&head, 4);
        self.state = match head.get(..4) {
            Some(b"fmt ") if (16..=FORMAT_BYTES_MAX).contains(&size) => State::Format(size),
            Some(b"fmt ") => return Err(WavFault::Format(format!("its description has {size} bytes"))),
            Some(b"data") if self.format.is_none() => return Err(WavFault::Undescribed),
            Some(b"data") => State::Sound(Some(size).filter(|size| *size != 0 && *size < UNKNOWN_FROM).map(u64::from)),
            _ => {
                // Chunks begin at even places.
                let whole = u64::from(size) + u64::from(size & 1);
                self.count(whole)?;
                State::Skip(whole)
            }
        };
        self.count(HEAD as u64)?;
        Ok(true)
    }

    fn describe(&mut self, size: u32) -> Result<bool, WavFault> {
        let whole = usize::try_from(size + (size & 1)).unwrap_or(usize::MAX);
        let Some(written) = self.take(whole) else { return Ok(false) };
        self.format = Some(Format::read(&written)?);
        self.state = State::Chunk;
        Ok(true)
    }

    fn skip(&mut self, left: u64) -> bool {
        let held = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        let now = usize::try_from(left.min(held)).unwrap_or(usize::MAX);
        drop(self.held.drain(..now));
        if left <= held {
            self.state = State::Chunk;
            return true;
        }
        self.state = State::Skip(left - held);
        false
    }

    fn sound(&mut self, left: Option<u64>) -> bool {
        let Some(format) = self.format else { return false };
        let frame = format.frame_bytes();
        let most = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let whole = self.held.len().min(most) / frame * frame;
        let room = format.samples_max().saturating_sub(self.samples.len());
        let bytes = self.held.get(..whole).unwrap_or_default();
        self.samples.extend(bytes.chunks_exact(frame).take(room).map(|frame| format.sample(frame)));
        if whole / frame > room {
            self.cut = true;
            self.state = State::Done;
            return true;
        }
        drop(self.held.drain(..whole));
        let left = left.map(|left| left.saturating_sub(whole as u64));
        // What is shorter than a frame is not going to become one.
        self.state = if left.is_some_and(|left| left < frame as u64) { State::Done } else { State::Sound(left) };
        matches!(self.state, State::Done)
    }
}

impl Format {
    fn read(written: &[u8]) -> Result<Self, WavFault> {
        const EXTENSIBLE_BYTES: usize = 26;
        let mut tag = u16_at(written, 0);
        if tag == TAG_EXTENSIBLE && written.len() >= EXTENSIBLE_BYTES {
            tag = u16_at(written, 24);
        }
        let (channels, rate_hz) = (u16_at(written, 2), u32_at(written, 4));
        let (frame_bytes, bits) = (u16_at(written, 12), u16_at(written, 14));
        let kind = match (tag, bits) {
            (TAG_PCM, 8) => Kind::Whole8,
            (TAG_PCM, 16) => Kind::Whole16,
            (TAG_PCM, 24) => Kind::Whole24,
            (TAG_PCM, 32) => Kind::Whole32,
            (TAG_FLOAT, 32) => Kind::Float32,
            (TAG_PCM | TAG_FLOAT, bits) => return Err(WavFault::Format(format!("{bits} bits a sample"))),
            (tag, _) => return Err(WavFault::Format(format!("compressed, with tag {tag}"))),
        };
        if !(1..=2).contains(&channels) {
            return Err(WavFault::Format(format!("{channels} channels")));
        }
        if !RATES_HZ.contains(&rate_hz) {
            return Err(WavFault::Format(format!("{rate_hz} samples a second")));
        }
        let format = Self { rate_hz, channels, kind };
        if usize::from(frame_bytes) == format.frame_bytes() {
            Ok(format)
        } else {
            Err(WavFault::Format(format!("{channels} x {bits} bits in {frame_bytes} bytes")))
        }
    }

    fn frame_bytes(self) -> usize {
        usize::from(self.channels) * self.kind.bytes()
    }

    fn samples_max(self) -> usize {
        usize::try_from(u64::from(self.rate_hz) * AUDIO_MAX.as_secs()).unwrap_or(usize::MAX)
    }

    /// One frame, mixed to one channel.
    fn sample(self, frame: &[u8]) -> i16 {
        let sum: i32 = frame.chunks_exact(self.kind.bytes()).map(|sample| i32::from(self.kind.sample(sample))).sum();
        i16::try_from(sum / i32::from(self.channels)).unwrap_or(i16::MAX)
    }
}

impl Kind {
    const fn bytes(self) -> usize {
        match self {
            Self::Whole8 => 1,
            Self::Whole16 => 2,
            Self::Whole24 => 3,
            Self::Whole32 | Self::Float32 => 4,
        }
    }

    /// The upper 16 bits of a sample; eight bits are written without a sign, all others with one.
    fn sample(self, bytes: &[u8]) -> i16 {
        match (self, bytes) {
            (Self::Whole8, [only]) => (i16::from(*only) - 128) * 256,
            (Self::Whole16, [low, high]) | (Self::Whole24, [_, low, high]) | (Self::Whole32, [_, _, low, high]) => {
                i16::from_le_bytes([*low, *high])
            }
            (Self::Float32, [a, b, c, d]) => of_float(f32::from_le_bytes([*a, *b, *c, *d])),
            _ => 0,
        }
    }
}

/// What is no number is silence.
#[expect(clippy::cast_possible_truncation, reason = "held between the bounds of the type; what is no number becomes 0")]
fn of_float(sample: f32) -> i16 {
    (sample.clamp(-1.0, 1.0) * f32::from(i16::MAX)) as i16
}

/// What the beginning is, when it is not that of WAV as far as it came.
fn foreign(head: &[u8]) -> Option<WavFault> {
    const SHOWN: usize = 12;
    let fits = |from: usize, wanted: &[u8]| {
        head.get(from..).unwrap_or_default().iter().zip(wanted).all(|(found, wanted)| found == wanted)
    };
    if fits(0, b"RIFF") && fits(8, b"WAVE") {
        return None;
    }
    Some(WavFault::Foreign(format!("\"{}\"", head.get(..SHOWN).unwrap_or(head).escape_ascii())))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]

    use super::*;

    /// A description of sound.
    pub(in crate::speech) fn format_chunk(tag: u16, channels: u16, rate_hz: u32, bits: u16) -> Vec<u8> {
        let frame = channels * bits / 8;
        let mut chunk = b"fmt \x10\0\0\0".to_vec();
        chunk.extend(tag.to_le_bytes());
        chunk.extend(channels.to_le_bytes());
        chunk.extend(rate_hz.to_le_bytes());
        chunk.extend((rate_hz * u32::from(frame)).to_le_bytes());
        chunk.extend(frame.to_le_bytes());
        chunk.extend(bits.to_le_bytes());
        chunk
    }

    fn chunk(name: &[u8; 4], size: u32, content: &[u8]) -> Vec<u8> {
        [name.as_slice(), &size.to_le_bytes(), content].concat()
    }

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        let body = chunks.concat();
        let size = u32::try_from(body.len() + 4).unwrap();
        [b"RIFF".as_slice(), &size.to_le_bytes(), b"WAVE", &body].concat()
    }

    fn read(bytes: &[u8], piece: usize) -> Result<Spoken, WavFault> {
        let mut wav = Wav::new();
        for piece in bytes.chunks(piece) {
            if wav.push(piece)? != Wanted::More {
                break;
            }
        }
        wav.finish()
    }

    /// Reads it whole and in small pieces, which must come to the same.
    fn check(bytes: &[u8]) -> Result<Spoken, WavFault> {
        let whole = read(bytes, usize::MAX);
        for piece in [1, 7, 4096] {
            assert_eq!(read(bytes, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn a_header_that_lies_about_its_sizes_and_one_that_does_not_give_the_same_sound() {
        let sound: Vec<u8> = [1_i16, -2, 300, -32768].iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let format = || format_chunk(TAG_PCM, 1, 22_050, 16);
        let list = || chunk(b"LIST", 5, b"INFO!\0");
        let rows = [
            ("honest", file(&[format(), chunk(b"data", 8, &sound)])),
            ("with a chunk behind", file(&[format(), chunk(b"data", 8, &sound), list()])),
            ("with odd chunks ahead", file(&[list(), format(), list(), chunk(b"data", 8, &sound)])),
            ("as espeak-ng streams", file(&[format(), chunk(b"data", 0x7FFF_F000, &sound)])),
            ("as others stream", file(&[format(), chunk(b"data", u32::MAX, &sound)])),
            ("with no size", file(&[format(), chunk(b"data", 0, &sound)])),
            ("longer than it is", file(&[format(), chunk(b"data", 4_000, &sound)])),
            ("with half a sample behind", file(&[format(), chunk(b"data", 0, &[&sound[..], b"x"].concat())])),
        ];
        for (what, bytes) in rows {
            let wanted = Pcm { rate_hz: 22_050, samples: vec![1, -2, 300, -32768] };
            assert_eq!(check(&bytes), Ok(Spoken { pcm: wanted, cut: false }), "{what}");
        }
    }

    #[test]
    fn every_depth_and_both_numbers_of_channels_become_one_channel_of_16_bit() {
        let float = |samples: &[f32]| samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>();
        let mut extensible = format_chunk(TAG_EXTENSIBLE, 1, 48_000, 16);
        extensible[4] = 40;
        extensible.extend([22, 0, 16, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71]);
        let rows: Vec<(Vec<u8>, Vec<u8>, Vec<i16>)> = vec![
            (format_chunk(TAG_PCM, 1, 8_000, 8), vec![128, 0, 255, 129], vec![0, -32768, 32512, 256]),
            (format_chunk(TAG_PCM, 2, 44_100, 16), vec![100, 0, 44, 1, 0, 0x80, 0, 0x80], vec![200, -32768]),
            (format_chunk(TAG_PCM, 1, 96_000, 24), vec![9, 1, 0, 9, 0, 0x80], vec![1, -32768]),
            (format_chunk(TAG_PCM, 1, 16_000, 32), vec![9, 9, 1, 0], vec![1]),
            (format_chunk(TAG_FLOAT, 1, 24_000, 32), float(&[0.5, -2.0, f32::NAN]), vec![16383, -32767, 0]),
            (format_chunk(TAG_FLOAT, 2, 24_000, 32), float(&[1.0, -1.0]), vec![0]),
            (extensible, vec![7, 0], vec![7]),
        ];
        for (format, sound, wanted) in rows {
            let size = u32::try_from(sound.len()).unwrap();
            let bytes = file(&[format.clone(), chunk(b"data", size, &sound)]);
            assert_eq!(check(&bytes).map(|spoken| spoken.pcm.samples), Ok(wanted), "{format:?}");
        }
    }

    #[test]
    fn what_is_no_wav_or_none_that_an_engine_makes_is_refused_in_words() {
        let data = || chunk(b"data", 0, &[0; 64]);
        let rows: Vec<(Vec<u8>, &str)> = vec![
            (Vec::new(), "it is empty"),
            (b"RI".to_vec(), "it ends inside its header"),
            (b"RIFF....WAVE".to_vec(), "it ends inside its header"),
            (b"hello".to_vec(), "it is not WAV; it begins with \"hello\""),
            (b"RIFF....AVI LIST".to_vec(), "it is not WAV; it begins with \"RIFF....AVI \""),
            (b"ID3\x04\0\xFF and so on".to_vec(), "it is not WAV; it begins with \"ID3\\x04\\x00\\xff and s\""),
            (file(&[data()]), "its sound comes before its format"),
            (file(&[chunk(b"junk", 2_000_000, &[])]), "more than 1 MiB stands before its sound"),
            (file(&vec![chunk(b"junk", 0, &[]); 140_000]), "more than 1 MiB stands before its sound"),
            (file(&[chunk(b"fmt ", 4_000, &[])]), "its format is unknown: its description has 4000 bytes"),
            (file(&[format_chunk(85, 1, 22_050, 16), data()]), "its format is unknown: compressed, with tag 85"),
            (file(&[format_chunk(TAG_PCM, 1, 22_050, 12), data()]), "its format is unknown: 12 bits a sample"),
            (file(&[format_chunk(TAG_FLOAT, 1, 22_050, 64), data()]), "its format is unknown: 64 bits a sample"),
            (file(&[format_chunk(TAG_PCM, 0, 22_050, 16), data()]), "its format is unknown: 0 channels"),
            (file(&[format_chunk(TAG_PCM, 6, 22_050, 16), data()]), "its format is unknown: 6 channels"),
            (file(&[format_chunk(TAG_PCM, 1, 7_999, 16), data()]), "its format is unknown: 7999 samples a second"),
            (file(&[format_chunk(TAG_PCM, 1, 96_001, 16), data()]), "its format is unknown: 96001 samples a second"),
        ];
        for (bytes, sentence) in rows {
            assert_eq!(check(&bytes).unwrap_err().to_string(), sentence);
        }
        let mut odd = format_chunk(TAG_PCM, 1, 22_050, 16);
        odd[20] = 3;
        let sentence = "its format is unknown: 1 x 16 bits in 3 bytes";
        assert_eq!(check(&file(&[odd, data()])).unwrap_err().to_string(), sentence);
    }

    #[test]
    fn a_sound_of_a_minute_is_whole_and_anything_longer_is_cut_there() {
        for (seconds, more, cut) in [(60, 0, false), (60, 1, true), (61, 0, true)] {
            let samples = 8_000 * seconds + more;
            let bytes = file(&[format_chunk(TAG_PCM, 1, 8_000, 8), chunk(b"data", 0, &vec![128; samples])]);
            let spoken = read(&bytes, 10_007).unwrap();
            assert_eq!((spoken.pcm.duration(), spoken.cut), (AUDIO_MAX, cut), "{samples}");
        }
    }

    #[test]
    fn no_bytes_at_all_make_it_panic_or_keep_more_than_a_minute() {
        let mut chance = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move || {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance
        };
        let good =
            file(&[format_chunk(TAG_PCM, 2, 16_000, 24), chunk(b"LIST", 3, b"abc\0"), chunk(b"data", 30, &[5; 30])]);
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + next() % 4 {
                let at = usize::try_from(next() % bytes.len() as u64).unwrap();
                bytes[at] = next() as u8;
            }
            bytes.truncate(usize::try_from(next() % (good.len() as u64 + 1)).unwrap());
            match read(&bytes, 5) {
                Ok(spoken) => {
                    assert!(spoken.pcm.samples.len() <= bytes.len());
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
    }
}
