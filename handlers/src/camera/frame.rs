//! One frame as the camera gave it, and its way to RGB.
//!
//! Every size is held against the bytes before a pixel is read: rows may be padded, widths odd, buffers short.

use super::CameraFault;
use super::colour::{Coding, Mixer};
use crate::picture::{Bound, PIXELS_MAX, going_on, jpeg, within, within_pixels};

/// The longest side of a frame; what the encoder can count, several times what cameras give.
const SIDE_MAX: u32 = 16_384;
/// Brightness is taken from every such row: exact enough to see exposure settle.
const BRIGHTNESS_ROWS_STEP: usize = 8;

/// How a frame's bytes stand for pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    /// A JPEG file, perhaps without Huffman tables.
    Mjpeg,
    /// Two pixels in four bytes: Y U Y V.
    Yuyv,
    /// Two pixels in four bytes: U Y V Y.
    Uyvy,
    /// A plane of Y, then one of U V pairs for each two by two pixels.
    Nv12,
    /// A plane of Y, then one of U, then one of V, each for two by two pixels.
    Yu12,
    /// R G B.
    Rgb3,
    /// B G R.
    Bgr3,
    /// Y alone.
    Grey,
}

impl PixelFormat {
    /// Every format, the best first: what costs least on the bus and here.
    pub const ALL: [Self; 8] =
        [Self::Mjpeg, Self::Yuyv, Self::Uyvy, Self::Nv12, Self::Yu12, Self::Rgb3, Self::Bgr3, Self::Grey];

    /// The codes under which Video4Linux knows it.
    pub const fn codes(self) -> &'static [[u8; 4]] {
        match self {
            Self::Mjpeg => const { &[*b"MJPG", *b"JPEG"] },
            Self::Yuyv => const { &[*b"YUYV"] },
            Self::Uyvy => const { &[*b"UYVY"] },
            Self::Nv12 => const { &[*b"NV12"] },
            Self::Yu12 => const { &[*b"YU12"] },
            Self::Rgb3 => const { &[*b"RGB3"] },
            Self::Bgr3 => const { &[*b"BGR3"] },
            Self::Grey => const { &[*b"GREY"] },
        }
    }

    /// The format that Video4Linux calls `code`.
    pub fn from_code(code: [u8; 4]) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.codes().contains(&code))
    }

    /// The bytes of one row of the first plane, without padding; none for a file.
    const fn row_bytes(self, width: usize) -> usize {
        match self {
            Self::Mjpeg => 0,
            Self::Yuyv | Self::Uyvy => width * 2,
            Self::Nv12 | Self::Yu12 | Self::Grey => width,
            Self::Rgb3 | Self::Bgr3 => width * 3,
        }
    }
}

/// One frame.
#[derive(Debug, Clone)]
pub struct Frame {
    /// How to read the bytes.
    pub format: PixelFormat,
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Bytes from one row of the first plane to the next; 0 means no padding.
    pub stride: u32,
    /// How raw pixels stand for colours; a file says that itself.
    pub coding: Coding,
    /// The bytes the camera filled, no more.
    pub bytes: Vec<u8>,
    /// The driver says that the content is damaged.
    pub damaged: bool,
}

/// A frame that was found whole.
pub(super) enum Whole {
    /// A JPEG file that decodes, and its size.
    File(Vec<u8>, u32, u32),
    /// Raw pixels, all there.
    Raw(Frame),
}

/// Width, height and stride of a raw frame whose bytes are all there.
#[derive(Clone, Copy)]
struct Shape {
    width: usize,
    height: usize,
    stride: usize,
}

impl Frame {
    /// The frame, if it is whole, and its mean brightness. Ends early when it is not `wanted` any more.
    pub(super) fn check_while(self, wanted: &dyn Fn() -> bool) -> Result<(Whole, u8), String> {
        if self.damaged {
            return Err("the driver marked it as damaged".to_owned());
        }
        if self.format == PixelFormat::Mjpeg {
            let file = jpeg::whole(&self.bytes)?.into_owned();
            let seen = jpeg::look_while(&file, wanted)?;
            return Ok((Whole::File(file, seen.width, seen.height), seen.mean));
        }
        let mean = self.brightness(self.shape()?);
        Ok((Whole::Raw(self), mean))
    }

    /// The same for as long as it takes.
    pub(super) fn check(self) -> Result<(Whole, u8), String> {
        self.check_while(&|| true)
    }

    fn shape(&self) -> Result<Shape, String> {
        within_pixels(self.width, self.height, PIXELS_MAX)?;
        if self.width > SIDE_MAX || self.height > SIDE_MAX {
            return Err(format!("a side of {} x {} is too long", self.width, self.height));
        }
        let size = |side: u32| usize::try_from(side).unwrap_or(usize::MAX);
        let (width, height) = (size(self.width), size(self.height));
        let row = self.format.row_bytes(width);
        let stride = if self.stride == 0 { row } else { size(self.stride) };
        let shape = Shape { width, height, stride };
        let need = self.bytes_needed(shape);
        if stride < row || need.is_none_or(|need| self.bytes.len() < need) {
            return Err(format!(
                "{} bytes do not hold {width} x {height} pixels with {stride} bytes a row",
                self.bytes.len()
            ));
        }
        Ok(shape)
    }

    /// The last row of a plane need not be padded.
    fn bytes_needed(&self, Shape { width, height, stride }: Shape) -> Option<usize> {
        let plane = |stride: usize, rows: usize, row: usize| stride.checked_mul(rows.checked_sub(1)?)?.checked_add(row);
        let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
        match self.format {
            PixelFormat::Nv12 => stride.checked_mul(height)?.checked_add(plane(stride, half_height, half_width * 2)?),
            PixelFormat::Yu12 => {
                let chroma = stride.div_ceil(2);
                let first = stride.checked_mul(height)?.checked_add(chroma.checked_mul(half_height)?)?;
                first.checked_add(plane(chroma, half_height, half_width)?)
            }
            format => plane(stride, height, format.row_bytes(width)),
        }
    }

    /// One row of the first plane, without its padding where that is known.
    fn row(&self, shape: Shape, y: usize) -> &[u8] {
        let start = y * shape.stride;
        self.bytes.get(start..self.bytes.len().min(start + shape.stride)).unwrap_or_default()
    }

    fn brightness(&self, shape: Shape) -> u8 {
        let (first, step) = match self.format {
            PixelFormat::Yuyv => (0, 2),
            PixelFormat::Uyvy => (1, 2),
            // Green stands for brightness well enough.
            PixelFormat::Rgb3 | PixelFormat::Bgr3 => (1, 3),
            PixelFormat::Nv12 | PixelFormat::Yu12 | PixelFormat::Grey | PixelFormat::Mjpeg => (0, 1),
        };
        let (mut sum, mut count) = (0_u64, 0_u64);
        for y in (0..shape.height).step_by(BRIGHTNESS_ROWS_STEP) {
            for level in self.row(shape, y).iter().skip(first).step_by(step).take(shape.width) {
                sum += u64::from(*level);
                count += 1;
            }
        }
        u8::try_from(sum / count.max(1)).unwrap_or(u8::MAX)
    }

    /// The pixels as RGB without padding.
    pub(super) fn to_rgb(&self) -> Result<Vec<u8>, String> {
        let shape = self.shape()?;
        let mixer = Mixer::of(self.coding);
        let mut rgb = Vec::with_capacity(shape.width * shape.height * 3);
        for y in 0..shape.height {
            let row = self.row(shape, y);
            match self.format {
                PixelFormat::Yuyv => packed(&mut rgb, mixer, row, shape.width, Pair::Yuyv),
                PixelFormat::Uyvy => packed(&mut rgb, mixer, row, shape.width, Pair::Uyvy),
                PixelFormat::Nv12 => {
                    let chroma = self.plane(shape.stride * shape.height + y / 2 * shape.stride);
                    planar(&mut rgb, mixer, row, shape.width, |half| (chroma.get(half * 2), chroma.get(half * 2 + 1)));
                }
                PixelFormat::Yu12 => {
                    let (stride, rows) = (shape.stride.div_ceil(2), shape.height.div_ceil(2));
                    let u = self.plane(shape.stride * shape.height + y / 2 * stride);
                    let v = self.plane(shape.stride * shape.height + stride * rows + y / 2 * stride);
                    planar(&mut rgb, mixer, row, shape.width, |half| (u.get(half), v.get(half)));
                }
                PixelFormat::Rgb3 => rgb.extend(row.iter().take(shape.width * 3).map(|level| mixer.level(*level))),
                PixelFormat::Bgr3 => {
                    for pixel in row.chunks_exact(3).take(shape.width) {
                        rgb.extend(pixel.iter().rev().map(|level| mixer.level(*level)));
                    }
                }
                PixelFormat::Grey => {
                    rgb.extend(row.iter().take(shape.width).flat_map(|level| [mixer.level(*level); 3]))
                }
                PixelFormat::Mjpeg => return Err("a file has no rows".to_owned()),
            }
        }
        Ok(rgb)
    }

    fn plane(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or_default()
    }
}

impl Whole {
    /// A JPEG file of at most `bytes_max` bytes, no larger than `largest`. A file that is so already passes as it is. Ends early when it is not
    /// `wanted` any more.
    pub(super) fn into_jpeg_while(
        self,
        bytes_max: usize,
        largest: Bound,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, CameraFault> {
        let pixels = match self {
            Self::File(file, width, height) if file.len() <= bytes_max && largest.holds(width, height) => {
                return Ok(file);
            }
            Self::File(file, ..) => jpeg::to_rgb(&file),
            Self::Raw(frame) => frame.to_rgb().map(|rgb| (rgb, frame.width, frame.height)),
        };
        let encoded = pixels.and_then(|(rgb, width, height)| {
            going_on(wanted)?;
            let (rgb, width, height) = within(rgb, width, height, largest);
            jpeg::encode_while(rgb, (width, height), bytes_max, wanted)
        });
        encoded.map_err(CameraFault::Broken)
    }

    /// The same for as long as it takes.
    pub(super) fn into_jpeg(self, bytes_max: usize, largest: Bound) -> Result<Vec<u8>, CameraFault> {
        self.into_jpeg_while(bytes_max, largest, &|| true)
    }
}

/// The order of the four bytes of a pair of pixels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pair {
    Yuyv,
    Uyvy,
}

/// One row of pixel pairs that share their colour. At an odd width the last pixel's second colour byte may be missing; the pair before
/// lends its own.
fn packed(rgb: &mut Vec<u8>, mixer: Mixer, row: &[u8], width: usize, pair: Pair) {
    let (pairs, rest) = row.as_chunks::<4>();
    let mut tint = mixer.tint(128, 128);
    let mut last_v = 128;
    for bytes in pairs.iter().take(width / 2) {
        let [y1, u, y2, v] = match (pair, *bytes) {
            (Pair::Yuyv, bytes) => bytes,
            (Pair::Uyvy, [u, y1, v, y2]) => [y1, u, y2, v],
        };
        tint = mixer.tint(u, v);
        last_v = v;
        let ([r1, g1, b1], [r2, g2, b2]) = (mixer.pixel(y1, tint), mixer.pixel(y2, tint));
        rgb.extend_from_slice(&[r1, g1, b1, r2, g2, b2]);
    }
    if width.is_multiple_of(2) {
        return;
    }
    let last = pairs.get(width / 2).map_or(rest, <[u8; 4]>::as_slice);
    let y = match (pair, last) {
        (Pair::Yuyv, [y, u, ..]) | (Pair::Uyvy, [u, y, ..]) => {
            let v = if pair == Pair::Yuyv { last.get(3) } else { last.get(2) };
            tint = mixer.tint(*u, *v.unwrap_or(&last_v));
            *y
        }
        _ => 16,
    };
    rgb.extend_from_slice(&mixer.pixel(y, tint));
}

/// One row of brightness with its colour in other planes.
fn planar<'a>(
    rgb: &mut Vec<u8>,
    mixer: Mixer,
    row: &[u8],
    width: usize,
    colour: impl Fn(usize) -> (Option<&'a u8>, Option<&'a u8>),
) {
    for (half, pair) in row.get(..width).unwrap_or(row).chunks(2).enumerate() {
        let (u, v) = colour(half);
        let tint = mixer.tint(*u.unwrap_or(&128), *v.unwrap_or(&128));
        for y in pair {
            rgb.extend_from_slice(&mixer.pixel(*y, tint));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

    use super::super::colour::Said;
    use super::*;

    const ANY: Bound = Bound { width: 1920, height: 1080 };
    const WHITE: [u8; 3] = [235, 128, 128];
    const RED: [u8; 3] = [81, 90, 240];
    const GREEN: [u8; 3] = [145, 54, 34];
    const BLUE: [u8; 3] = [41, 240, 110];

    fn frame(format: PixelFormat, width: u32, height: u32, stride: u32, bytes: Vec<u8>) -> Frame {
        Frame { format, width, height, stride, coding: Coding::of(Said::default(), format), bytes, damaged: false }
    }

    fn near(found: &[u8], wanted: [u8; 3]) -> bool {
        found.iter().zip(wanted).all(|(a, b)| a.abs_diff(b) <= 3)
    }

    /// Rows of YUYV, each colour two pixels wide, `stride` bytes a row, padding full of ones.
    fn yuyv(colours: &[[u8; 3]], stride: usize, rows: usize) -> Vec<u8> {
        let mut row: Vec<u8> = colours.iter().flat_map(|[y, u, v]| [*y, *u, *y, *v]).collect();
        row.resize(stride, 0xFF);
        row.repeat(rows)
    }

    #[test]
    fn padded_rows_show_their_colours_without_shear() {
        let shown = frame(PixelFormat::Yuyv, 6, 2, 16, yuyv(&[RED, GREEN, BLUE], 16, 2)).to_rgb().unwrap();
        assert_eq!(shown.len(), 6 * 2 * 3);
        for (at, pixel) in shown.chunks(3).enumerate() {
            let wanted = [[255, 0, 0], [0, 255, 0], [0, 0, 255]][at % 6 / 2];
            assert!(near(pixel, wanted), "pixel {at}: {pixel:?}");
        }
    }

    #[test]
    fn an_odd_width_has_the_right_colour_at_its_right_edge_with_and_without_padding() {
        let colours = vec![RED; 64];
        for stride in [256, 254] {
            let mut bytes = yuyv(&colours, 256, 1)[..stride].to_vec();
            bytes = bytes.repeat(4);
            let shown = frame(PixelFormat::Yuyv, 127, 4, u32::try_from(stride).unwrap(), bytes).to_rgb().unwrap();
            assert_eq!(shown.len(), 127 * 4 * 3);
            assert!(shown.chunks(3).all(|pixel| near(pixel, [255, 0, 0])), "stride {stride}");
        }
    }

    #[test]
    fn every_raw_format_shows_the_same_colour() {
        let (width, height) = (5_u32, 3_u32);
        let [y, u, v] = BLUE;
        let rows: [(PixelFormat, u32, Vec<u8>); 7] = [
            (PixelFormat::Yuyv, 12, [y, u, y, v].repeat(9)),
            (PixelFormat::Uyvy, 12, [u, y, v, y].repeat(9)),
            (PixelFormat::Nv12, 6, [vec![y; 18], [u, v].repeat(6)].concat()),
            (PixelFormat::Yu12, 6, [vec![y; 18], vec![u; 6], vec![v; 6]].concat()),
            (PixelFormat::Rgb3, 15, [0, 0, 255].repeat(15)),
            (PixelFormat::Bgr3, 15, [255, 0, 0].repeat(15)),
            (PixelFormat::Grey, 5, vec![77; 15]),
        ];
        for (format, stride, bytes) in rows {
            let wanted = if format == PixelFormat::Grey { [77; 3] } else { [0, 0, 255] };
            let short = frame(format, width, height, stride, bytes[..bytes.len() - 3].to_vec());
            let shown = frame(format, width, height, stride, bytes).to_rgb().unwrap();
            assert_eq!(shown.len(), 45, "{format:?}");
            assert!(shown.chunks(3).all(|pixel| near(pixel, wanted)), "{format:?}: {shown:?}");
            let refused = short.check().err().unwrap();
            assert!(refused.contains("do not hold 5 x 3 pixels"), "{format:?}: {refused}");
        }
    }

    #[test]
    fn damaged_short_and_absurd_frames_are_refused() {
        let good = frame(PixelFormat::Yuyv, 6, 2, 16, yuyv(&[WHITE; 3], 16, 2));
        assert_eq!(good.clone().check().unwrap().1, 235);
        assert!(Frame { damaged: true, ..good.clone() }.check().is_err());
        assert!(Frame { stride: 11, ..good.clone() }.check().is_err());
        assert!(Frame { width: 0, ..good.clone() }.check().is_err());
        assert!(Frame { width: u32::MAX, height: u32::MAX, ..good.clone() }.check().is_err());
        assert!(Frame { width: 17_000, height: 1, stride: 0, bytes: vec![0; 34_000], ..good }.check().is_err());
    }

    #[test]
    fn motion_jpeg_passes_unchanged_when_it_decodes_and_fits() {
        let file = jpeg::tests::file(64, 48);
        let (whole, _) = frame(PixelFormat::Mjpeg, 64, 48, 0, file.clone()).check().unwrap();
        assert_eq!(whole.into_jpeg(file.len(), ANY).unwrap(), file);
        let (whole, _) = frame(PixelFormat::Mjpeg, 64, 48, 0, file.clone()).check().unwrap();
        assert!(whole.into_jpeg(file.len() - 1, ANY).unwrap().len() < file.len(), "too large: encoded anew");
        let (whole, _) = frame(PixelFormat::Mjpeg, 64, 48, 0, jpeg::without_tables(&file)).check().unwrap();
        let mended = whole.into_jpeg(file.len() * 2, ANY).unwrap();
        assert_eq!(jpeg::to_rgb(&mended).unwrap(), jpeg::to_rgb(&file).unwrap());
        for broken in [&b"nonsense"[..], &file[1..], &file[..file.len() * 3 / 5]] {
            assert!(frame(PixelFormat::Mjpeg, 64, 48, 0, broken.to_vec()).check().is_err());
        }
    }

    #[test]
    fn a_picture_above_the_keepers_bound_is_made_smaller_and_keeps_its_shape() {
        let file = jpeg::tests::file(64, 48);
        let of_file = || frame(PixelFormat::Mjpeg, 64, 48, 0, file.clone());
        let of_rows = || frame(PixelFormat::Yuyv, 64, 48, 0, yuyv(&[BLUE; 32], 128, 48));
        for make in [&of_file as &dyn Fn() -> Frame, &of_rows] {
            for (largest, wanted) in
                [((32, 32), (32, 24)), ((64, 24), (32, 24)), ((64, 48), (64, 48)), ((500, 48), (64, 48))]
            {
                let (whole, _) = make().check().unwrap();
                let bound = Bound { width: largest.0, height: largest.1 };
                let seen = jpeg::look(&whole.into_jpeg(usize::MAX, bound).unwrap()).unwrap();
                assert_eq!((seen.width, seen.height), wanted, "{largest:?}");
            }
        }
    }

    #[test]
    fn codes_of_video4linux_find_their_formats() {
        for format in PixelFormat::ALL {
            for code in format.codes() {
                assert_eq!(PixelFormat::from_code(*code), Some(format));
            }
        }
        assert_eq!(PixelFormat::from_code(*b"BA81"), None);
    }
}
