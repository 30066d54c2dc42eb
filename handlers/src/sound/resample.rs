//! From the rate that a sound has to the one that is wanted, pitch and length kept.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Async, FixedAsync, Resampler as _, SincInterpolationParameters, SincInterpolationType, WindowFunction};

use super::{Pcm, SoundFault};

/// Samples a pass of the filter takes; its cost does not depend on it.
const CHUNK: usize = 1024;
/// The filter's length: what it lets through beyond the new rate lies below what 16 bits can hold.
const FILTER: usize = 128;

/// The same sound at another rate.
pub(super) fn resample(samples: &[f32], from_hz: u32, to_hz: u32) -> Result<Vec<f32>, SoundFault> {
    if from_hz == to_hz || samples.is_empty() {
        return Ok(samples.to_vec());
    }
    let parameters = SincInterpolationParameters {
        sinc_len: FILTER,
        f_cutoff: None,
        oversampling_factor: 256,
        interpolation: SincInterpolationType::Linear,
        window: WindowFunction::BlackmanHarris2,
    };
    let failed =
        |what: String| SoundFault::Driver(format!("its rate of {from_hz} Hz cannot be made {to_hz} Hz: {what}"));
    let ratio = f64::from(to_hz) / f64::from(from_hz);
    let filter = Async::<f32>::new_sinc(ratio, 1.0, &parameters, CHUNK, 1, FixedAsync::Input);
    let mut filter = filter.map_err(|error| failed(error.to_string()))?;
    let input = InterleavedSlice::new(samples, 1, samples.len()).map_err(|error| failed(error.to_string()))?;
    let output = filter.process_all(&input, samples.len(), None).map_err(|error| failed(error.to_string()))?;
    let mut output = output.take_data();
    output.resize(length(samples.len(), from_hz, to_hz), 0.0);
    Ok(output)
}

/// How many samples so many become.
fn length(samples: usize, from_hz: u32, to_hz: u32) -> usize {
    let samples = u128::try_from(samples).unwrap_or(u128::MAX);
    let (from, to) = (u128::from(from_hz.max(1)), u128::from(to_hz));
    usize::try_from((samples.saturating_mul(to) + from / 2) / from).unwrap_or(usize::MAX)
}

impl Pcm {
    /// The samples, each between -1 and 1, at another rate.
    pub(super) fn at(&self, rate_hz: u32) -> Result<Vec<f32>, SoundFault> {
        let samples: Vec<f32> = self.samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
        resample(&samples, self.rate_hz, rate_hz)
    }

    /// Samples between -1 and 1 as a sound.
    pub(super) fn of(samples: &[f32], rate_hz: u32) -> Self {
        Self { rate_hz, samples: samples.iter().map(|sample| super::form::sixteen(f64::from(*sample))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::{loudness, pitch_hz, tone};
    use super::*;

    #[test]
    fn a4_length_pitch_and_loudness_stay_what_they_were() {
        for (from, to) in
            [(22_050, 48_000), (48_000, 16_000), (44_100, 16_000), (8_000, 48_000), (16_000, 44_100), (192_000, 16_000)]
        {
            let seconds = 2;
            let before = tone(440.0, from, usize::try_from(from).unwrap() * seconds);
            let after = resample(&before, from, to).unwrap();
            assert_eq!(after.len(), usize::try_from(to).unwrap() * seconds, "{from} to {to}");
            let middle = &after[after.len() / 4..after.len() * 3 / 4];
            assert!((pitch_hz(middle, to) - 440.0).abs() < 1.0, "{from} to {to}: {}", pitch_hz(middle, to));
            let decibels = 20.0 * (loudness(middle) / loudness(&before)).log10();
            assert!(decibels.abs() < 0.1, "{from} to {to}: {decibels} dB");
        }
    }

    #[test]
    fn what_lies_above_the_new_rate_does_not_come_back_as_another_tone() {
        let high = tone(11_000.0, 48_000, 48_000);
        let after = resample(&high, 48_000, 16_000).unwrap();
        assert!(loudness(&after[2_000..14_000]) < loudness(&high) / 1_000.0, "{}", loudness(&after));
    }

    #[test]
    fn a_sound_of_any_length_keeps_it() {
        for samples in [0, 1, 7, 127, 128, 1_023, 1_024, 1_025, 4_801] {
            let after = resample(&vec![0.25; samples], 48_000, 16_000).unwrap();
            assert_eq!(after.len(), (samples + 1) / 3, "{samples}");
        }
    }
}
