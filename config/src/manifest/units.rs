//! Sizes and times as a keeper writes them: a whole number and its unit.

use std::time::Duration;

use wire::declaration::CUSTOM_TIMEOUT_MAX;

/// The shortest time for a call: nothing shorter is measured.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Bytes: a number, or text such as "64KiB".
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is not a size, such as \"64KiB\" or \"32MiB\"");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let factor = match unit {
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        _ => return Err(wrong()),
    };
    Ok(usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(factor))
}

/// A size within its limits; `given` is how the keeper wrote it.
pub(super) fn bytes_within(bytes: usize, given: &str, least: usize, most: usize) -> Result<usize, String> {
    if (least..=most).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{given} is not within {} and {}", size_in_words(least), size_in_words(most)))
    }
}

/// A time such as "2s" or "500ms", within what a handler may take.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time, such as \"2s\" or \"500ms\"");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let time = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(wrong()),
    };
    if (TIMEOUT_MIN..=CUSTOM_TIMEOUT_MAX).contains(&time) {
        Ok(time)
    } else {
        let most = CUSTOM_TIMEOUT_MAX.as_secs();
        Err(format!("{text:?} is not within {}ms and {most}s", TIMEOUT_MIN.as_millis()))
    }
}

/// A size in words, in its largest whole unit: "64 KiB", "1000 bytes". A manifest takes the first as it stands here.
#[must_use]
pub fn size_in_words(bytes: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    match bytes {
        whole if whole >= MIB && whole.is_multiple_of(MIB) => format!("{} MiB", whole / MIB),
        whole if whole >= KIB && whole.is_multiple_of(KIB) => format!("{} KiB", whole / KIB),
        other => format!("{other} bytes"),
    }
}

/// Digits, perhaps a blank, then the rest.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.strip_prefix(' ').unwrap_or(unit)))
}
