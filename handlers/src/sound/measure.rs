//! Tones, and what tests measure of them.

/// A tone at half of what is loudest.
#[expect(clippy::cast_possible_truncation, reason = "a sample has no more precision")]
pub(super) fn tone(pitch_hz: f64, rate_hz: u32, samples: usize) -> Vec<f32> {
    let step = std::f64::consts::TAU * pitch_hz / f64::from(rate_hz);
    (0..samples).map(|at| (0.5 * (step * at as f64).sin()) as f32).collect()
}

/// The effective value.
pub(super) fn loudness(samples: &[f32]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    (sum / samples.len().max(1) as f64).sqrt()
}

/// The pitch of one tone, from the moments at which it passes zero upwards.
pub(super) fn pitch_hz(samples: &[f32], rate_hz: u32) -> f64 {
    let passes: Vec<f64> = (samples.windows(2).enumerate())
        .filter(|(_, pair)| pair[0] < 0.0 && pair[1] >= 0.0)
        .map(|(at, pair)| at as f64 + f64::from(-pair[0]) / f64::from(pair[1] - pair[0]))
        .collect();
    let (Some(first), Some(last)) = (passes.first(), passes.last()) else { return 0.0 };
    (passes.len() - 1) as f64 * f64::from(rate_hz) / (last - first).max(f64::MIN_POSITIVE)
}
