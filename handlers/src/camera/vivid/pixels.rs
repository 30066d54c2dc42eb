//! Each pixel of each raw format at odd sizes, without the adapter's choice of a mode.

use std::path::Path;
use std::time::Duration;

use ::v4l::device::Device as Controls;

use super::super::bus::{Mode, Node as _, Size};
use super::super::device::Device;
use super::super::{Coding, Frame, PixelFormat};
use super::{ANY_SIZE, BLUE, GREEN, RED, set, show};

/// The driver's menus of how it writes colours; it has others by numbers of its own, which kernels may change.
const SPACE: &str = "Colorspace";
const ENCODING: &str = "Y'CbCr Encoding";
const RANGE: &str = "Quantization";
/// Entries of theirs: sRGB, with which the driver begins, and ITU-R BT.709.
const SRGB: i64 = 2;
const REC_709: i64 = 1;

/// Has the camera write its colours so.
fn write_colours(space: i64, encoding: i64, range: i64) {
    let controls = Controls::with_path(ANY_SIZE).unwrap().query_controls().unwrap();
    for (menu, entry) in [(SPACE, space), (ENCODING, encoding), (RANGE, range)] {
        set(ANY_SIZE, controls.iter().find(|control| control.name == menu).unwrap().id, entry);
    }
}

/// A picture of the camera at `path` in this format and size, without any that the device would rather have.
fn in_format(path: &str, code: [u8; 4], size: Size) -> Result<(Vec<u8>, u32, u32), String> {
    let mut node = Device::open(Path::new(path)).map_err(|error| error.to_string())?;
    let agreed = node.set(Mode { code, size, interval: None }).map_err(|error| error.to_string())?;
    let format = agreed.format().filter(|_| agreed.code == code).ok_or("the device takes another format")?;
    let mut feed = Box::new(node).start().map_err(|error| error.to_string())?;
    for _ in 0..100 {
        if feed.wait(Duration::from_millis(500)).map_err(|error| error.to_string())?
            && let Some(taken) = feed.take().map_err(|error| error.to_string())?
        {
            let Size { width, height } = agreed.size;
            let (bytes, damaged) = (taken.bytes, taken.damaged);
            let coding = Coding::of(agreed.colours, format);
            let frame = Frame { format, width, height, stride: agreed.stride, coding, bytes, damaged };
            return frame.to_rgb().map(|rgb| (rgb, width, height));
        }
    }
    Err("no frame came".to_owned())
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn each_raw_format_and_odd_sizes_show_their_colour_in_every_pixel_that_is_drawn() {
    let raw = PixelFormat::ALL.into_iter().filter(|format| *format != PixelFormat::Mjpeg);
    for (pattern, colour) in [RED, GREEN, BLUE] {
        show(ANY_SIZE, (pattern, colour));
        for format in raw.clone() {
            // Of formats in planes the driver leaves colour out at sizes that are no multiple of four, which is refused as too short.
            let planes = matches!(format, PixelFormat::Nv12 | PixelFormat::Yu12);
            let sizes = if planes { [(640, 360), (320, 104)] } else { [(641, 361), (333, 101)] };
            for (width, height) in sizes {
                let code = *format.codes().first().unwrap();
                let (rgb, wide, high) = in_format(ANY_SIZE, code, Size { width, height }).unwrap();
                assert_eq!((wide, high), (width, height), "{format:?}");
                let (across, down) = (usize::try_from(wide).unwrap(), usize::try_from(high).unwrap());
                for (at, pixel) in rgb.chunks(3).enumerate() {
                    let (x, y) = (at % across, at / across);
                    // The driver draws pairs of pixels and of rows; half a pair at the end is what was there before.
                    if x >= across / 2 * 2 || y >= down / 2 * 2 {
                        continue;
                    }
                    let level = *pixel.first().unwrap();
                    let right = match format {
                        PixelFormat::Grey => pixel.iter().all(|other| other.abs_diff(level) < 4),
                        _ => pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) < 40),
                    };
                    assert!(right, "{format:?} {width}x{height} at {x}, {y}: {pixel:?}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs the kernel's vivid camera; see the head of this module"]
fn colours_come_out_as_they_are_however_the_camera_writes_them() {
    // Space, encoding and range, from the menus; 0 is what follows from the space.
    let codings =
        [(SRGB, 0, 0), (REC_709, 0, 0), (REC_709, 0, 1), (SRGB, 1, 1), (SRGB, 2, 2), (SRGB, 6, 0), (SRGB, 8, 1)];
    let mut seen = Vec::new();
    for (space, encoding, range) in codings {
        write_colours(space, encoding, range);
        for (pattern, colour) in [RED, GREEN, BLUE] {
            show(ANY_SIZE, (pattern, colour));
            for code in [*b"YUYV", *b"NV12"] {
                let (rgb, ..) = in_format(ANY_SIZE, code, Size { width: 320, height: 104 }).unwrap();
                let off = rgb.chunks(3).flat_map(|pixel| pixel.iter().zip(colour)).map(|(a, b)| a.abs_diff(b)).max();
                seen.push((space, encoding, range, colour, off.unwrap()));
            }
        }
    }
    write_colours(SRGB, 0, 0);
    assert!(seen.iter().all(|(.., off)| *off <= 6), "{seen:?}");
}
