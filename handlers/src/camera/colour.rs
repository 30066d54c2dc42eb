//! How raw pixels stand for colours: the weights of brightness and colour, and which numbers are black and white, as the driver says it.
//!
//! The numbers and the defaults are those of the kernel's documentation ("Defining Colorspaces", `V4L2_MAP_YCBCR_ENC_DEFAULT` and
//! `V4L2_MAP_QUANTIZATION_DEFAULT`). Primaries are not converted: colours of a space that is wider than sRGB come out paler.

use super::frame::PixelFormat;

/// How one camera writes its colours; where a driver says nothing, ITU-R BT.601 with 16 for black and 235 for white.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coding {
    weights: Weights,
    range: Range,
}

/// By which weights red, green and blue make brightness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Weights {
    #[default]
    Bt601,
    Bt709,
    Bt2020,
    Smpte240m,
}

/// Which numbers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Range {
    /// Brightness from 16 to 235, colours from 16 to 240.
    #[default]
    Limited,
    /// All of them.
    Full,
}

/// What `v4l2_pix_format` says of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Said {
    pub(super) colorspace: u32,
    pub(super) ycbcr_enc: u32,
    pub(super) quantization: u32,
}

impl Coding {
    /// As the driver says it of pixels in this format; what it says that is not known here counts as not said.
    pub(super) const fn of(said: Said, format: PixelFormat) -> Self {
        // `V4L2_COLORSPACE_SMPTE240M`, `_REC709`, `_JPEG`, `_BT2020`, `_DCI_P3`.
        let by_space = match said.colorspace {
            2 => Weights::Smpte240m,
            3 | 12 => Weights::Bt709,
            10 => Weights::Bt2020,
            _ => Weights::Bt601,
        };
        // `V4L2_YCBCR_ENC_601`, `_709`, `_XV601`, `_XV709`, `_SYCC`, `_BT2020`, `_BT2020_CONST_LUM`, `_SMPTE240M`.
        let weights = match said.ycbcr_enc {
            1 | 3 | 5 => Weights::Bt601,
            2 | 4 => Weights::Bt709,
            6 | 7 => Weights::Bt2020,
            8 => Weights::Smpte240m,
            _ => by_space,
        };
        // `V4L2_QUANTIZATION_FULL_RANGE`, `_LIM_RANGE`. By the book grey that says nothing is limited; the sensors that send it use all numbers.
        let range = match (said.quantization, said.colorspace, format) {
            (1, ..) => Range::Full,
            (2, ..) => Range::Limited,
            (_, 7, _) | (.., PixelFormat::Rgb3 | PixelFormat::Bgr3 | PixelFormat::Grey) => Range::Full,
            _ => Range::Limited,
        };
        Self { weights, range }
    }
}

/// The numbers of a [`Coding`], in 65,536ths, so that a pixel costs whole numbers only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mixer {
    black: i32,
    light: i32,
    red_of_v: i32,
    green_of_u: i32,
    green_of_v: i32,
    blue_of_u: i32,
}

impl Mixer {
    pub(super) fn of(coding: Coding) -> Self {
        let (red, blue) = match coding.weights {
            Weights::Bt601 => (0.299, 0.114),
            Weights::Bt709 => (0.2126, 0.0722),
            Weights::Bt2020 => (0.2627, 0.0593),
            Weights::Smpte240m => (0.212, 0.087),
        };
        let green = 1.0 - red - blue;
        let (black, light, colour) = match coding.range {
            Range::Limited => (16, 255.0 / 219.0, 255.0 / 224.0),
            Range::Full => (0, 1.0, 1.0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "a factor is below 3")]
        let whole = |factor: f64| (factor * 65_536.0).round() as i32;
        Self {
            black,
            light: whole(light),
            red_of_v: whole(2.0 * (1.0 - red) * colour),
            green_of_u: whole(2.0 * blue * (1.0 - blue) / green * colour),
            green_of_v: whole(2.0 * red * (1.0 - red) / green * colour),
            blue_of_u: whole(2.0 * (1.0 - blue) * colour),
        }
    }

    /// What a colour adds to brightness.
    pub(super) const fn tint(&self, u: u8, v: u8) -> Tint {
        let (u, v) = (u as i32 - 128, v as i32 - 128);
        Tint { red: self.red_of_v * v, green: -(self.green_of_u * u) - self.green_of_v * v, blue: self.blue_of_u * u }
    }

    /// The pixel of this brightness.
    pub(super) fn pixel(&self, y: u8, tint: Tint) -> [u8; 3] {
        let light = self.light * (i32::from(y) - self.black);
        [rounded(light + tint.red), rounded(light + tint.green), rounded(light + tint.blue)]
    }

    /// A channel that is written with the numbers of brightness: grey, or red, green or blue.
    pub(super) fn level(&self, channel: u8) -> u8 {
        rounded(self.light * (i32::from(channel) - self.black))
    }
}

/// What a colour adds to brightness, in 65,536ths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tint {
    red: i32,
    green: i32,
    blue: i32,
}

fn rounded(sum: i32) -> u8 {
    // Within 0 and 255 after the clamp.
    ((sum + 32_768) >> 16).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn said(colorspace: u32, ycbcr_enc: u32, quantization: u32) -> Said {
        Said { colorspace, ycbcr_enc, quantization }
    }

    #[test]
    fn what_a_driver_says_counts_and_what_it_does_not_say_follows_from_the_colour_space() {
        let yuv = PixelFormat::Yuyv;
        let rows = [
            (said(0, 0, 0), yuv, Weights::Bt601, Range::Limited),
            (said(8, 0, 0), yuv, Weights::Bt601, Range::Limited),
            (said(1, 0, 0), yuv, Weights::Bt601, Range::Limited),
            (said(2, 0, 0), yuv, Weights::Smpte240m, Range::Limited),
            (said(3, 0, 0), yuv, Weights::Bt709, Range::Limited),
            (said(3, 1, 1), yuv, Weights::Bt601, Range::Full),
            (said(7, 0, 0), yuv, Weights::Bt601, Range::Full),
            (said(7, 2, 2), yuv, Weights::Bt709, Range::Limited),
            (said(10, 0, 0), yuv, Weights::Bt2020, Range::Limited),
            (said(8, 8, 0), yuv, Weights::Smpte240m, Range::Limited),
            (said(99, 99, 99), yuv, Weights::Bt601, Range::Limited),
            (said(8, 0, 0), PixelFormat::Rgb3, Weights::Bt601, Range::Full),
            (said(8, 0, 2), PixelFormat::Bgr3, Weights::Bt601, Range::Limited),
            (said(8, 0, 0), PixelFormat::Grey, Weights::Bt601, Range::Full),
        ];
        for (said, format, weights, range) in rows {
            assert_eq!(Coding::of(said, format), Coding { weights, range }, "{said:?} {format:?}");
        }
        assert_eq!(Coding::of(Said::default(), yuv), Coding::default());
    }

    /// Red, green and blue as the standards write them, worked out from their formulas.
    #[test]
    fn the_primaries_of_each_coding_come_back_as_they_were() {
        let rows = [
            (Weights::Bt601, Range::Limited, [[81, 90, 240], [145, 54, 34], [41, 240, 110]]),
            (Weights::Bt601, Range::Full, [[76, 85, 255], [150, 44, 21], [29, 255, 107]]),
            (Weights::Bt709, Range::Limited, [[63, 102, 240], [173, 42, 26], [32, 240, 118]]),
            (Weights::Bt709, Range::Full, [[54, 99, 255], [182, 30, 12], [18, 255, 116]]),
            (Weights::Bt2020, Range::Limited, [[74, 97, 240], [164, 47, 25], [29, 240, 119]]),
            (Weights::Smpte240m, Range::Limited, [[62, 102, 240], [170, 42, 28], [35, 240, 116]]),
        ];
        for (weights, range, written) in rows {
            let mixer = Mixer::of(Coding { weights, range });
            for ([y, u, v], wanted) in written.into_iter().zip([[255, 0, 0], [0, 255, 0], [0, 0, 255]]) {
                let found = mixer.pixel(y, mixer.tint(u, v));
                let near = found.iter().zip(wanted).all(|(found, wanted): (&u8, u8)| found.abs_diff(wanted) <= 3);
                assert!(near, "{weights:?} {range:?}: {found:?}, not {wanted:?}");
            }
        }
    }

    #[test]
    fn black_and_white_are_the_ends_of_the_range_and_what_lies_beyond_is_cut() {
        let [limited, full] =
            [Range::Limited, Range::Full].map(|range| Mixer::of(Coding { range, ..Coding::default() }));
        assert_eq!([0, 16, 235, 255].map(|y| limited.level(y)), [0, 0, 255, 255]);
        assert_eq!([0, 16, 235, 255].map(|y| full.level(y)), [0, 16, 235, 255]);
        assert_eq!(limited.pixel(255, limited.tint(255, 255)), [255, 125, 255]);
    }
}
