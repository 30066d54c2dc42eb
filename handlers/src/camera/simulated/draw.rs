//! What a simulated camera sees: bars or one colour under a black band that says "simulated", and the same in the form of each pixel format.

use font8x8::legacy::BASIC_LEGACY;

use super::super::bus::Size;
use crate::picture::jpeg;

/// The black band at the top that carries the writing is a fifth of the picture.
const BAND_PART: usize = 5;
/// Each pixel of a letter is drawn this large on a picture of 640 pixels.
const LETTER_SCALE: usize = 4;
/// The picture for which that is.
const LETTER_WIDTH: usize = 640;
/// Letters are this many pixels wide and high before they are scaled.
const LETTER: usize = 8;
/// Colour bars: white, yellow, cyan, green, magenta, red, blue, black.
const BARS: [[u8; 3]; 8] =
    [[191, 191, 191], [191, 191, 0], [0, 191, 191], [0, 191, 0], [191, 0, 191], [191, 0, 0], [0, 0, 191], [16, 16, 16]];

/// One picture in RGB.
pub(super) struct Canvas {
    pub(super) rgb: Vec<u8>,
    width: usize,
    height: usize,
}

impl Canvas {
    /// All of one colour.
    pub(super) fn plain(size: Size, colour: [u8; 3]) -> Self {
        let side = |side: u32| usize::try_from(side).unwrap_or(0);
        let (width, height) = (side(size.width), side(size.height));
        Self { rgb: colour.repeat(width * height), width, height }
    }

    /// What the camera sees, with the frame's number and the time.
    pub(super) fn scene(size: Size, colour: Option<[u8; 3]>, number: u64, wall_ms: u64) -> Self {
        let mut canvas = Self::plain(size, [0; 3]);
        let band = canvas.height / BAND_PART;
        let row: Vec<u8> = (0..canvas.width)
            .flat_map(|x| colour.unwrap_or(BARS.get(x * BARS.len() / canvas.width).copied().unwrap_or_default()))
            .collect();
        for line in canvas.rgb.chunks_exact_mut(row.len().max(1)).skip(band) {
            line.copy_from_slice(&row);
        }
        let scale = LETTER_SCALE * canvas.width / LETTER_WIDTH;
        canvas.write(2 * scale, 2 * scale, scale, "simulated");
        let seconds = wall_ms / 1000;
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        let line = format!("{number:06} {hours:02}:{minutes:02}:{:02}Z", seconds % 60);
        canvas.write(2 * scale, 13 * scale, scale, &line);
        canvas
    }

    /// Writes white letters; what would fall outside is left out.
    fn write(&mut self, left: usize, top: usize, scale: usize, text: &str) {
        for (place, letter) in text.bytes().enumerate() {
            let rows = BASIC_LEGACY.get(usize::from(letter)).copied().unwrap_or_default();
            for (y, row) in rows.iter().enumerate() {
                for x in (0..LETTER).filter(|x| row >> x & 1 == 1) {
                    self.square(left + (place * LETTER + x) * scale, top + y * scale, scale);
                }
            }
        }
    }

    fn square(&mut self, left: usize, top: usize, side: usize) {
        if left + side > self.width {
            return;
        }
        for y in top..top + side {
            let start = (y * self.width + left) * 3;
            if let Some(line) = self.rgb.get_mut(start..start + side * 3) {
                line.fill(255);
            }
        }
    }

    /// As a JPEG file.
    pub(super) fn to_jpeg(&self) -> Vec<u8> {
        let side = |side: usize| u32::try_from(side).unwrap_or(0);
        jpeg::encode(self.rgb.clone(), side(self.width), side(self.height), usize::MAX).unwrap_or_default()
    }

    /// As pairs of pixels, Y U Y V, in rows of `stride` bytes of which those behind the pixels are full of ones.
    pub(super) fn to_yuyv(&self, stride: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(stride * self.height);
        for row in self.rgb.chunks_exact((self.width * 3).max(1)) {
            let start = bytes.len();
            for pair in row.chunks(6) {
                let [y1, u, v] = yuv(pair);
                let [y2, ..] = yuv(pair.get(3..).filter(|second| !second.is_empty()).unwrap_or(pair));
                bytes.extend([y1, u, y2, v]);
            }
            bytes.resize(start + stride, 0xFF);
        }
        bytes
    }
}

/// The first pixel in ITU-R BT.601, 16 to 235.
fn yuv(pixel: &[u8]) -> [u8; 3] {
    let [r, g, b, ..] = *pixel else { return [16, 128, 128] };
    let (r, g, b) = (i32::from(r), i32::from(g), i32::from(b));
    let level = |sum: i32, zero: i32| u8::try_from(((sum + 128) >> 8) + zero).unwrap_or(0);
    [
        level(66 * r + 129 * g + 25 * b, 16),
        level(-38 * r - 74 * g + 112 * b, 128),
        level(112 * r - 94 * g - 18 * b, 128),
    ]
}

/// A JPEG file without its Huffman tables, as many cameras send it.
pub(super) fn without_tables(file: &[u8]) -> Vec<u8> {
    jpeg::without_tables(file)
}
