//! In which form sound passes between this program and a card: chosen from what the card advertises, and turned into samples and back.
//!
//! Pure. Called by everything that opens a card, real or simulated. Refuses nothing by itself: a card without a usable form gives an
//! empty list of [`candidates`]. What drivers advertise is taken as a hint: a range of rates may be nonsense, so no end of a range and no
//! default is ever asked for just because it is one.

use std::ops::RangeInclusive;

/// Rates that cards really run at, the best first. 48 kHz is what most hardware has of its own, so that nothing between it and us changes
/// the rate by worse means than ours.
const RATES_HZ: [u32; 12] =
    [48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 96_000, 88_200, 192_000, 176_400, 11_025, 8_000];
/// Below this rate speech loses what makes it clear; such a rate is taken only when there is no other.
const CLEAR_HZ: u32 = 16_000;
/// Forms that are tried one after the other on one card: a card that fails in three will fail in the fourth.
pub(super) const FORMS_MAX: usize = 3;
/// So many pieces a second a card's sound is cut into: few enough that a loaded machine keeps up, and short beside a word.
const PERIODS_PER_SECOND: u32 = 10;

/// How a sample is written. The order is that of preference: 16 bit is what every driver and card has been tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    I16,
    I32,
    I24,
    F32,
    F64,
    U8,
    U16,
    I8,
}

impl Format {
    /// Bytes of one sample; 24 bits travel in four bytes.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I24 | Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// One sample, from -1 to 1. Bytes that are missing are silence.
    fn read(self, bytes: &[u8]) -> f32 {
        let sample = match self {
            Self::U8 => first(bytes).map(|[byte]| (f64::from(byte) - 128.0) / 128.0),
            Self::I8 => first(bytes).map(|bytes| f64::from(i8::from_ne_bytes(bytes)) / 128.0),
            Self::I16 => first(bytes).map(|bytes| f64::from(i16::from_ne_bytes(bytes)) / 32_768.0),
            Self::U16 => first(bytes).map(|bytes| (f64::from(u16::from_ne_bytes(bytes)) - 32_768.0) / 32_768.0),
            // The top byte is whatever the driver left there.
            Self::I24 => first(bytes).map(|bytes| f64::from(i32::from_ne_bytes(bytes) << 8) / 2_147_483_648.0),
            Self::I32 => first(bytes).map(|bytes| f64::from(i32::from_ne_bytes(bytes)) / 2_147_483_648.0),
            Self::F32 => first(bytes).map(|bytes| f64::from(f32::from_ne_bytes(bytes))),
            Self::F64 => first(bytes).map(f64::from_ne_bytes),
        };
        narrow(sample.filter(|sample| sample.is_finite()).unwrap_or(0.0).clamp(-1.0, 1.0))
    }

    /// Writes one sample. Silence is 0, and in the middle of what cannot be negative.
    fn write(self, sample: f32, bytes: &mut [u8]) {
        let sample = f64::from(if sample.is_finite() { sample.clamp(-1.0, 1.0) } else { 0.0 });
        match self {
            Self::U8 => put(bytes, [low_byte(whole(sample, 128.0) + 128)]),
            Self::I8 => put(bytes, [low_byte(whole(sample, 128.0))]),
            Self::I16 => put(bytes, sixteen(sample).to_ne_bytes()),
            Self::U16 => put(bytes, (sixteen(sample).cast_unsigned() ^ 0x8000).to_ne_bytes()),
            Self::I24 => put(bytes, whole(sample, 8_388_608.0).to_ne_bytes()),
            Self::I32 => put(bytes, whole(sample, 2_147_483_648.0).to_ne_bytes()),
            Self::F32 => put(bytes, narrow(sample).to_ne_bytes()),
            Self::F64 => put(bytes, sample.to_ne_bytes()),
        }
    }
}

fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

fn put<const N: usize>(bytes: &mut [u8], value: [u8; N]) {
    if let Some(place) = bytes.first_chunk_mut() {
        *place = value;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a sample has no more precision than this is meant to keep")]
const fn narrow(sample: f64) -> f32 {
    sample as f32
}

/// `sample` in whole steps of which `full` make 1; the highest one fewer, as in every signed form.
#[expect(clippy::cast_possible_truncation, reason = "rounded, and inside the range of i32 before")]
fn whole(sample: f64, full: f64) -> i32 {
    (sample * full).round().clamp(-full, full - 1.0) as i32
}

const fn low_byte(value: i32) -> u8 {
    value.to_le_bytes()[0]
}

/// A sample as 16 bits.
pub(super) fn sixteen(sample: f64) -> i16 {
    i16::try_from(whole(sample, 32_768.0)).unwrap_or(0)
}

/// One thing that a card says it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) format: Format,
    pub(super) channels: u16,
    pub(super) rates_hz: RangeInclusive<u32>,
    /// How many frames may pass at once, if it says so.
    pub(super) period_frames: Option<RangeInclusive<u32>>,
}

/// What is asked of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) format: Format,
    pub(super) channels: u16,
    pub(super) rate_hz: u32,
    /// How many frames are to pass at once; `None` leaves it to the card.
    pub(super) period_frames: Option<u32>,
}

impl Form {
    /// Bytes of one frame: a sample for each channel.
    pub(super) fn frame_bytes(&self) -> usize {
        self.format.bytes() * usize::from(self.channels.max(1))
    }
}

impl Offer {
    fn form(&self) -> Option<Form> {
        let rate_hz = rate_of(&self.rates_hz)?;
        let wanted = rate_hz / PERIODS_PER_SECOND;
        let period_frames = self.period_frames.as_ref().filter(|range| !range.is_empty());
        let period_frames = period_frames.map(|range| wanted.clamp(*range.start(), *range.end()));
        (self.channels > 0).then_some(Form { format: self.format, channels: self.channels, rate_hz, period_frames })
    }
}

/// The rate to ask for out of a range: a usual one, else the only one, else one in the middle, never an end.
fn rate_of(range: &RangeInclusive<u32>) -> Option<u32> {
    let (low, high) = (*range.start(), *range.end());
    if low > high || high == 0 {
        return None;
    }
    let usual = RATES_HZ.into_iter().find(|rate| range.contains(rate));
    Some(usual.unwrap_or(low + (high - low) / 2))
}

/// The forms to try, best first, each in another format. One or two channels before more, a clear rate before a dull one, then the
/// format, then the rate.
pub(super) fn candidates(offers: &[Offer]) -> Vec<Form> {
    let mut forms: Vec<Form> = offers.iter().filter_map(Offer::form).collect();
    forms.sort_by_key(|form| {
        let rate = RATES_HZ.iter().position(|rate| *rate == form.rate_hz).unwrap_or(RATES_HZ.len());
        // Two channels are asked for before one: what makes one of two for us may take the left one alone.
        let channels = match form.channels {
            2 => 0,
            1 => 1,
            more => more,
        };
        (form.channels > 2, form.rate_hz < CLEAR_HZ, form.format, rate, channels)
    });
    let mut best: Vec<Form> = Vec::new();
    for form in forms {
        if best.len() < FORMS_MAX && best.iter().all(|better| better.format != form.format) {
            best.push(form);
        }
    }
    best
}

/// What a card gave, mixed to one channel.
pub(super) fn mix(form: &Form, bytes: &[u8]) -> Vec<f32> {
    let share = 1.0 / f32::from(form.channels.max(1));
    bytes
        .chunks_exact(form.frame_bytes())
        .map(|frame| frame.chunks_exact(form.format.bytes()).map(|sample| form.format.read(sample) * share).sum())
        .collect()
}

/// Writes one sample to the first two channels of a frame, and silence to the others.
pub(super) fn write_frame(form: &Form, sample: f32, frame: &mut [u8]) {
    for (channel, place) in frame.chunks_exact_mut(form.format.bytes()).enumerate() {
        form.format.write(if channel < 2 { sample } else { 0.0 }, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Format; 8] =
        [Format::I16, Format::I32, Format::I24, Format::F32, Format::F64, Format::U8, Format::U16, Format::I8];

    fn offer(format: Format, channels: u16, rates_hz: RangeInclusive<u32>) -> Offer {
        Offer { format, channels, rates_hz, period_frames: None }
    }

    /// What a plug-in of ALSA advertises: everything, in ranges without sense.
    fn wild() -> Vec<Offer> {
        let channels = 1..=32;
        channels.flat_map(|channels| ALL.map(|format| offer(format, channels, 4_000..=u32::MAX))).collect()
    }

    #[test]
    fn a3_nonsense_ranges_are_opened_at_a_normal_rate_and_one_or_two_channels() {
        let best = candidates(&wild());
        assert_eq!((best[0].format, best[0].channels, best[0].rate_hz), (Format::I16, 2, 48_000));
        assert_eq!(best.len(), FORMS_MAX);
        for form in best {
            assert!((16_000..=48_000).contains(&form.rate_hz) && form.channels <= 2, "{form:?}");
        }
    }

    #[test]
    fn a3_no_end_of_a_range_is_asked_for_because_it_is_one() {
        for low in [1_u32, 4_000, 8_000, 9_000, 50_000, 200_000, 1_000_000] {
            for high in [low + 2, low * 2 + 1, low * 7, low.saturating_mul(100), u32::MAX] {
                let rate = rate_of(&(low..=high)).unwrap();
                assert!((low..=high).contains(&rate));
                let usual = RATES_HZ.contains(&rate);
                assert!(usual || (rate != low && rate != high), "{rate} out of {low}..={high}");
                assert_eq!(usual, RATES_HZ.iter().any(|rate| (low..=high).contains(rate)), "{low}..={high}");
            }
        }
        assert_eq!(rate_of(&(37_800..=37_800)), Some(37_800), "the only rate there is");
        #[expect(clippy::reversed_empty_ranges, reason = "drivers say such things")]
        let reversed = [48_000..=8_000, 0..=0];
        assert_eq!(reversed.map(|range| rate_of(&range)), [None, None]);
    }

    /// Words for a row, what is offered, and the format, channels and rate that are chosen.
    type Row = (&'static str, Vec<Offer>, Option<(Format, u16, u32)>);

    #[test]
    fn the_form_is_chosen_from_what_is_advertised_and_never_from_defaults() {
        let rows: &[Row] = &[
            ("nothing", vec![], None),
            (
                "a2: float is named first",
                vec![offer(Format::F32, 2, 44_100..=44_100), offer(Format::I16, 2, 44_100..=44_100)],
                Some((Format::I16, 2, 44_100)),
            ),
            ("a2: 8 bit alone", vec![offer(Format::U8, 1, 8_000..=48_000)], Some((Format::U8, 1, 48_000))),
            ("a4: one rate alone", vec![offer(Format::I16, 2, 48_000..=48_000)], Some((Format::I16, 2, 48_000))),
            (
                "a dull rate in 16 bit beside a clear one in float",
                vec![offer(Format::I16, 1, 8_000..=8_000), offer(Format::F32, 1, 44_100..=44_100)],
                Some((Format::F32, 1, 44_100)),
            ),
            (
                "six channels beside one",
                vec![offer(Format::I16, 6, 48_000..=48_000), offer(Format::I32, 1, 16_000..=16_000)],
                Some((Format::I32, 1, 16_000)),
            ),
            ("six channels alone", vec![offer(Format::I16, 6, 48_000..=48_000)], Some((Format::I16, 6, 48_000))),
            (
                "one channel and two",
                vec![offer(Format::I16, 1, 48_000..=48_000), offer(Format::I16, 2, 48_000..=48_000)],
                Some((Format::I16, 2, 48_000)),
            ),
            ("no channel", vec![offer(Format::I16, 0, 48_000..=48_000)], None),
        ];
        for (what, offers, chosen) in rows {
            let best = candidates(offers).first().map(|form| (form.format, form.channels, form.rate_hz));
            assert_eq!(&best, chosen, "{what}");
        }
    }

    #[test]
    fn each_further_try_is_in_another_format() {
        let formats: Vec<Format> = candidates(&wild()).iter().map(|form| form.format).collect();
        assert_eq!(formats, [Format::I16, Format::I32, Format::I24]);
    }

    #[test]
    fn pieces_are_a_tenth_of_a_second_or_as_near_to_it_as_the_card_allows() {
        let period = |range: RangeInclusive<u32>| {
            let offer = Offer { period_frames: Some(range), ..offer(Format::I16, 2, 48_000..=48_000) };
            candidates(&[offer])[0].period_frames
        };
        assert_eq!(period(16..=100_000), Some(4_800));
        assert_eq!(period(16..=1_024), Some(1_024));
        assert_eq!(period(8_192..=100_000), Some(8_192));
        #[expect(clippy::reversed_empty_ranges, reason = "drivers say such things")]
        let reversed = period(10..=5);
        assert_eq!(reversed, None);
    }

    #[test]
    fn a2_silence_is_the_middle_of_each_format_and_samples_survive_it() {
        for format in ALL {
            let form = Form { format, channels: 2, rate_hz: 48_000, period_frames: None };
            let mut frame = vec![0xAA; form.frame_bytes()];
            write_frame(&form, 0.0, &mut frame);
            let silence: &[u8] = match format {
                Format::U8 => &[128],
                Format::U16 => &[0, 128],
                Format::I16 | Format::I32 | Format::I24 | Format::F32 | Format::F64 | Format::I8 => &[0],
            };
            for (place, byte) in frame.iter().enumerate() {
                assert_eq!(*byte, silence[place % silence.len()], "{format:?}");
            }
            assert_eq!(mix(&form, &frame), [0.0], "{format:?}");
            let step = if format.bytes() == 1 { 1.0 / 128.0 } else { 1.0 / 32_768.0 };
            for sample in [-1.0, -0.5, -0.1, 0.001, 0.25, 0.9, 1.0] {
                write_frame(&form, sample, &mut frame);
                assert!((mix(&form, &frame)[0] - sample).abs() <= step, "{format:?} {sample}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_silence_and_what_is_too_loud_is_cut() {
        for (format, bytes) in
            [(Format::F32, f32::NAN.to_ne_bytes().to_vec()), (Format::F64, f64::INFINITY.to_ne_bytes().to_vec())]
        {
            let form = Form { format, channels: 1, rate_hz: 48_000, period_frames: None };
            assert_eq!(mix(&form, &bytes), [0.0]);
        }
        let form = Form { format: Format::F32, channels: 1, rate_hz: 48_000, period_frames: None };
        assert_eq!(mix(&form, &7.5_f32.to_ne_bytes()), [1.0]);
        let form = Form { format: Format::I16, ..form };
        let mut frame = [0; 2];
        for (sample, written) in [(f32::NAN, 0), (9.0, i16::MAX), (-9.0, i16::MIN)] {
            write_frame(&form, sample, &mut frame);
            assert_eq!(i16::from_ne_bytes(frame), written);
        }
    }

    #[test]
    fn channels_are_mixed_and_a_torn_frame_is_left_out() {
        let form = Form { format: Format::I16, channels: 2, rate_hz: 48_000, period_frames: None };
        let bytes: Vec<u8> =
            [16_384_i16, 0, -16_384, -16_384, 7].iter().flat_map(|sample| sample.to_ne_bytes()).collect();
        assert_eq!(mix(&form, &bytes), [0.25, -0.5]);
        let form = Form { channels: 4, ..form };
        let mut frame = [0xAA; 8];
        write_frame(&form, 0.5, &mut frame);
        let written: Vec<i16> = frame.chunks_exact(2).map(|pair| i16::from_ne_bytes([pair[0], pair[1]])).collect();
        assert_eq!(written, [16_384, 16_384, 0, 0]);
    }
}
