//! Which way up a photograph is: the orientation that its EXIF block tells, and pixels turned accordingly.

use exif::{In, Reader, Tag};

/// Orientation 1 to 8 of EXIF; 1 is upright.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orientation(u8);

impl Orientation {
    pub(super) const UPRIGHT: Self = Self(1);

    /// What an EXIF block (a TIFF structure) says; upright when it says nothing that can be understood.
    pub(super) fn of(block: &[u8]) -> Self {
        let said = Reader::new().read_raw(block.to_vec()).ok();
        let value = said.and_then(|said| said.get_field(Tag::Orientation, In::PRIMARY)?.value.get_uint(0));
        match value.map(u8::try_from) {
            Some(Ok(value @ 1..=8)) => Self(value),
            _ => Self::UPRIGHT,
        }
    }

    /// Whether width and height change places.
    const fn lies(self) -> bool {
        self.0 >= 5
    }

    /// The pixels turned upright, with their new width and height. Each pixel has `CHANNELS` bytes.
    pub(super) fn turn(self, pixels: &[u8], width: u32, height: u32, channels: usize) -> (Vec<u8>, u32, u32) {
        let (wide, high) = if self.lies() { (height, width) } else { (width, height) };
        let side = |side: u32| usize::try_from(side).unwrap_or(0);
        let (right, bottom) = (side(width).saturating_sub(1), side(height).saturating_sub(1));
        let mut turned = Vec::with_capacity(pixels.len());
        for y in 0..side(high) {
            for x in 0..side(wide) {
                let (from_x, from_y) = match self.0 {
                    2 => (right - x, y),
                    3 => (right - x, bottom - y),
                    4 => (x, bottom - y),
                    5 => (y, x),
                    6 => (y, bottom - x),
                    7 => (right - y, bottom - x),
                    8 => (right - y, x),
                    _ => (x, y),
                };
                let at = (from_y * side(width) + from_x) * channels;
                turned.extend_from_slice(pixels.get(at..at + channels).unwrap_or_default());
            }
        }
        (turned, wide, high)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// An EXIF block that says this orientation and nothing else.
    pub(crate) fn exif_block(orientation: u8) -> Vec<u8> {
        let mut block = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        block.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        block
    }

    #[test]
    fn the_orientation_is_read_and_a_block_that_makes_no_sense_is_upright() {
        for value in 1..=8 {
            assert_eq!(Orientation::of(&exif_block(value)), Orientation(value));
        }
        for broken in
            [&b""[..], b"II*\0", &exif_block(0), &exif_block(9), &exif_block(6)[..20], b"MM\0*\xFF\xFF\xFF\xFF"]
        {
            assert_eq!(Orientation::of(broken), Orientation::UPRIGHT, "{broken:?}");
        }
    }

    #[test]
    fn pixels_are_turned_as_the_standard_says() {
        // The letter L, three high and two wide, as it should stand; and how the file has it for each orientation.
        let upright = [1, 0, 2, 0, 3, 4];
        let rows: [(u8, (u32, u32), [u8; 6]); 8] = [
            (1, (2, 3), [1, 0, 2, 0, 3, 4]),
            (2, (2, 3), [0, 1, 0, 2, 4, 3]),
            (3, (2, 3), [4, 3, 0, 2, 0, 1]),
            (4, (2, 3), [3, 4, 2, 0, 1, 0]),
            (5, (3, 2), [1, 2, 3, 0, 0, 4]),
            (6, (3, 2), [0, 0, 4, 1, 2, 3]),
            (7, (3, 2), [4, 0, 0, 3, 2, 1]),
            (8, (3, 2), [3, 2, 1, 4, 0, 0]),
        ];
        for (orientation, (width, height), file) in rows {
            let turned = Orientation(orientation).turn(&file, width, height, 1);
            assert_eq!(turned, (upright.to_vec(), 2, 3), "orientation {orientation}");
        }
    }
}
