//! Cases I1 to I8: what reaches a screen, and what does not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::io::Cursor;
use std::sync::Mutex;

use super::*;
use crate::clock::{Clock as _, SystemClock};
use crate::picture::jpeg;
use crate::picture::tests::exif_block;

/// A screen that keeps what it was shown.
#[derive(Default)]
struct Kept {
    absent: bool,
    shown: Mutex<Vec<Shown>>,
}

impl Screen for Kept {
    fn show(&self, shown: Shown, _stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        self.shown.lock().unwrap().push(shown);
        futures_util::future::ready(Ok(())).boxed()
    }

    fn present(&self) -> bool {
        !self.absent
    }

    fn describe(&self) -> String {
        "the display page is not open".to_owned()
    }
}

async fn run(handler: &dyn Handler, members: &[(&str, &str)]) -> Result<Object, Fault> {
    let mut arguments = Object::new();
    for (name, value) in members {
        arguments.insert(*name, *value);
    }
    let arguments = handler.declaration().bounds.check(arguments).unwrap();
    let agent = "eve@home.example.org".parse().unwrap();
    handler.run(Call { arguments, stop: CancellationToken::new(), clock: Arc::new(SystemClock), agent }).await
}

async fn show_image(mime: &str, bytes: &[u8]) -> (Result<Object, Fault>, Vec<Shown>) {
    let screen = Arc::new(Kept::default());
    let handler = DisplayImage::new(screen.clone());
    let result = run(&handler, &[("mime", mime), ("data", &wire::text::base64_encode(bytes))]).await;
    let shown = screen.shown.lock().unwrap().clone();
    (result, shown)
}

async fn refused(mime: &str, bytes: &[u8], reason: &str) {
    let (result, shown) = show_image(mime, bytes).await;
    let Err(Fault::Invalid { member, reason: found }) = result else { panic!("{reason}: {result:?}") };
    assert_eq!(member, "data");
    assert!(found.contains(reason), "{found:?} does not say {reason:?}");
    assert!(shown.is_empty(), "nothing reaches the screen");
}

fn png_file(width: u32, height: u32, interlaced_text: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    if interlaced_text {
        encoder.add_ztxt_chunk("Comment".to_owned(), "A".repeat(4 * 1024 * 1024)).unwrap();
    }
    let row: Vec<u8> = (0..width * 3).map(|at| at.to_le_bytes()[0]).collect();
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&row.repeat(usize::try_from(height).unwrap())).unwrap();
    writer.finish().unwrap();
    file
}

#[tokio::test]
async fn text_reaches_the_screen_with_the_agent_who_sent_it() {
    let screen = Arc::new(Kept::default());
    let handler = DisplayText::new(screen.clone());
    assert_eq!(run(&handler, &[("text", "<b>hello</b>")]).await.unwrap(), Object::new());
    let shown = screen.shown.lock().unwrap();
    assert_eq!(shown[0].content, Content::Text("<b>hello</b>".to_owned()));
    assert_eq!(shown[0].agent.as_str(), "eve@home.example.org");
}

#[tokio::test]
async fn without_a_screen_nothing_is_shown() {
    let screen = Arc::new(Kept { absent: true, ..Kept::default() });
    let ended = run(&DisplayText::new(screen.clone()), &[("text", "x")]).await.unwrap_err();
    assert_eq!(ended, Fault::Unavailable("nothing would show it: the display page is not open".to_owned()));
    assert!(screen.shown.lock().unwrap().is_empty());
}

#[tokio::test]
async fn whole_pictures_of_both_types_reach_the_screen_byte_for_byte() {
    for (mime, kind, file) in [
        ("image/jpeg", ImageType::Jpeg, jpeg::tests::file(64, 48)),
        ("image/png", ImageType::Png, png_file(64, 48, false)),
    ] {
        let (result, shown) = show_image(mime, &file).await;
        result.unwrap();
        let wanted = Content::Image { mime: kind, bytes: file.into(), width: 64, height: 48 };
        assert_eq!(shown[0].content, wanted);
    }
}

#[tokio::test]
async fn a_declared_type_that_is_not_the_real_one_is_refused_with_both_named() {
    let (jpeg, png) = (jpeg::tests::file(64, 48), png_file(64, 48, false));
    refused("image/png", &jpeg, "declared as image/png, but these bytes are image/jpeg").await;
    refused("image/jpeg", &png, "declared as image/jpeg, but these bytes are image/png").await;
    let others: &[(&[u8], &str)] = &[
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"GIF89a\x01\0\x01\0", "image/gif"),
        (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        (b"\n<!DOCTYPE HTML><script>", "text/html"),
        (b"hello", "of no known picture type"),
        (b"", "of no known picture type"),
    ];
    for (bytes, real) in others {
        refused("image/jpeg", bytes, &format!("declared as image/jpeg, but these bytes are {real}")).await;
    }
}

#[tokio::test]
async fn cut_off_pictures_are_refused() {
    for (mime, file) in [("image/jpeg", jpeg::tests::file(96, 64)), ("image/png", png_file(96, 64, false))] {
        show_image(mime, &file).await.0.unwrap();
        for cut in [file.len() / 2, file.len() * 9 / 10, file.len() - 1] {
            refused(mime, &file[..cut], "cut off").await;
        }
    }
}

#[tokio::test]
async fn a_tiny_file_with_a_gigantic_picture_is_refused_by_its_header() {
    let mut file = png_file(1, 1, false);
    file[16..24].copy_from_slice(&[0, 1, 0x86, 0xA0, 0, 1, 0x86, 0xA0]);
    let crc = crc32(&file[12..29]);
    file[29..33].copy_from_slice(&crc.to_be_bytes());
    refused("image/png", &file, "100000 x 100000 is more than 16777216 pixels").await;
    let zeros = {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 8000, 8000);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::One);
        encoder.write_header().unwrap().write_image_data(&vec![0; 8_000_000]).unwrap();
        file
    };
    assert!(zeros.len() < DISPLAY_IMAGE_BYTES_MAX);
    refused("image/png", &zeros, "8000 x 8000 is more than 16777216 pixels").await;
}

#[tokio::test]
async fn packed_text_in_a_picture_is_cut_out_and_never_unpacked() {
    let file = png_file(8, 8, true);
    assert!(file.len() < 64 * 1024);
    let (result, shown) = show_image("image/png", &file).await;
    result.unwrap();
    let plain = Content::Image { mime: ImageType::Png, bytes: png_file(8, 8, false).into(), width: 8, height: 8 };
    assert_eq!(shown[0].content, plain, "not even the page gets to see it");
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut chunk = u32::try_from(data.len()).unwrap().to_be_bytes().to_vec();
    chunk.extend(kind);
    chunk.extend(data);
    let crc = crc32(&chunk[4..]);
    chunk.extend(crc.to_be_bytes());
    chunk
}

/// A segment behind the start marker of a JPEG file.
fn with_segment(file: &[u8], marker: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 2).unwrap().to_be_bytes();
    [&file[..2], &[0xFF, marker], &length, payload, &file[2..]].concat()
}

/// What is shown: its pixels as RGB, its width and height as the screen is told them, which must be the file's own.
async fn pixels(mime: &str, file: &[u8]) -> (Vec<u8>, u32, u32) {
    let (result, shown) = show_image(mime, file).await;
    result.unwrap();
    let Content::Image { mime, bytes, width, height } = shown[0].content.clone() else { panic!("no picture") };
    let (rgb, wide, high) = match mime {
        ImageType::Jpeg => jpeg::to_rgb(&bytes).unwrap(),
        ImageType::Png => {
            let mut reader = png::Decoder::new(Cursor::new(&bytes)).read_info().unwrap();
            let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
            let frame = reader.next_frame(&mut rgb).unwrap();
            assert_eq!((frame.color_type, frame.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
            (rgb, frame.width, frame.height)
        }
    };
    assert_eq!((wide, high), (width, height));
    (rgb, width, height)
}

/// Left half red, right half blue.
fn halves(width: u32, height: u32) -> Vec<u8> {
    let row: Vec<u8> = (0..width).flat_map(|x| if x < width / 2 { [255, 0, 0] } else { [0, 0, 255] }).collect();
    row.repeat(usize::try_from(height).unwrap())
}

fn red(pixel: &[u8]) -> bool {
    pixel[0] > 200 && pixel[2] < 60
}

#[tokio::test]
async fn a_photograph_taken_sideways_is_shown_upright_with_its_turned_size() {
    let plain = jpeg::encode(halves(40, 20), 40, 20, usize::MAX).unwrap();
    let said = [&b"Exif\0\0"[..], &exif_block(6)].concat();
    let (rgb, width, height) = pixels("image/jpeg", &with_segment(&plain, 0xE1, &said)).await;
    assert_eq!((width, height), (20, 40));
    for (at, pixel) in rgb.chunks(3).enumerate().filter(|(at, _)| !(18..22).contains(&(at / 20))) {
        assert_eq!(red(pixel), at / 20 < 20, "red at the top: {pixel:?} in row {}", at / 20);
    }
    let (_, width, height) = pixels("image/jpeg", &plain).await;
    assert_eq!((width, height), (40, 20), "the same without the tag lies as it did");
}

#[tokio::test]
async fn an_exif_chunk_of_a_png_turns_it_too() {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 40, 20);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&halves(40, 20)).unwrap();
    writer.finish().unwrap();
    let header = 8 + 25;
    let turned = [&file[..header], &chunk(b"eXIf", &exif_block(6)), &file[header..]].concat();
    let (rgb, width, height) = pixels("image/png", &turned).await;
    assert_eq!((width, height), (20, 40));
    assert!(red(&rgb[..3]) && !red(&rgb[rgb.len() - 3..]));
    assert_eq!(pixels("image/png", &file).await, (halves(40, 20), 40, 20));
}

#[tokio::test]
async fn a_broken_exif_block_is_no_reason_to_refuse_and_does_not_reach_the_screen() {
    let plain = jpeg::tests::file(40, 20);
    for block in [&b""[..], b"nonsense", &exif_block(0), &exif_block(200), &exif_block(6)[..16], &[0xFF; 4000]] {
        let file = with_segment(&plain, 0xE1, &[b"Exif\0\0", block].concat());
        let (result, shown) = show_image("image/jpeg", &file).await;
        result.unwrap();
        let content = Content::Image { mime: ImageType::Jpeg, bytes: plain.clone().into(), width: 40, height: 20 };
        assert_eq!(shown[0].content, content);
    }
}

/// A picture of one colour in inks, in one of the ways in which encoders write.
fn inked(
    colours: jpeg_encoder::ColorType,
    inks: [u8; 4],
    (width, height): (u16, u16),
    prepare: impl FnOnce(&mut jpeg_encoder::Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, 95);
    prepare(&mut encoder);
    encoder.encode(&inks.repeat(usize::from(width) * usize::from(height)), width, height, colours).unwrap();
    file
}

const INKS: [([u8; 4], [u8; 3]); 4] = [
    ([5, 5, 5, 0], [250; 3]),
    ([0, 255, 255, 0], [255, 0, 0]),
    ([255, 0, 255, 0], [0, 255, 0]),
    ([0, 0, 0, 255], [0; 3]),
];

fn all_near(rgb: &[u8], wanted: [u8; 3]) -> bool {
    rgb.chunks(3).all(|pixel| pixel.iter().zip(wanted).all(|(a, b)| a.abs_diff(b) < 16))
}

#[tokio::test]
async fn inks_with_the_adobe_marker_are_shown_as_the_light_that_they_leave() {
    for colours in [jpeg_encoder::ColorType::Cmyk, jpeg_encoder::ColorType::CmykAsYcck] {
        for (inks, wanted) in INKS {
            for size in [(8, 8), (16, 16), (41, 23)] {
                let file = inked(colours, inks, size, |_| {});
                let (rgb, ..) = pixels("image/jpeg", &file).await;
                assert!(all_near(&rgb, wanted), "{colours:?} {inks:?} {size:?}: {:?}", &rgb[..3]);
            }
        }
    }
}

#[tokio::test]
async fn inks_written_in_a_rare_way_are_shown_rightly_or_refused_and_never_dark() {
    use jpeg_encoder::SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2, F_4_1};
    let (mut right, mut refused) = (0, 0);
    for colours in [jpeg_encoder::ColorType::Cmyk, jpeg_encoder::ColorType::CmykAsYcck] {
        for sampling in [F_1_1, F_1_2, F_2_1, F_2_2, F_4_1] {
            for (progressive, own_tables) in [(false, false), (false, true), (true, false)] {
                for (inks, wanted) in INKS {
                    let file = inked(colours, inks, (40, 24), |encoder| {
                        encoder.set_sampling_factor(sampling);
                        encoder.set_progressive(progressive);
                        encoder.set_optimized_huffman_tables(own_tables);
                    });
                    let (result, shown) = show_image("image/jpeg", &file).await;
                    let about = format!("{colours:?} {sampling:?} {progressive} {own_tables} {inks:?}");
                    if result.is_err() {
                        assert!(shown.is_empty(), "{about}");
                        refused += 1;
                        continue;
                    }
                    let Content::Image { bytes, .. } = &shown[0].content else { panic!("no picture") };
                    assert!(all_near(&jpeg::to_rgb(bytes).unwrap().0, wanted), "{about}");
                    right += 1;
                }
            }
        }
    }
    assert!(right > 30 && refused > 0, "{right} shown, {refused} refused");
}

#[tokio::test]
async fn sixteen_bits_a_channel_are_shown_with_their_high_bits() {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 20, 10);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Sixteen);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&[0xFF, 0x80, 0x00, 0x80, 0x00, 0x80].repeat(200)).unwrap();
    writer.finish().unwrap();
    let (rgb, width, height) = pixels("image/png", &file).await;
    assert_eq!((width, height), (20, 10));
    assert!(rgb.chunks(3).all(|pixel| pixel[0] > 240 && pixel[1] < 16 && pixel[2] < 16));
}

/// So many frames, of which the first is the default image.
fn animated(frames: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 8, 8);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_animated(frames, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    for frame in 0..frames {
        writer.write_image_data(&[u8::try_from(frame % 256).unwrap(), 200, 9].repeat(64)).unwrap();
    }
    writer.finish().unwrap();
    file
}

#[tokio::test]
async fn an_animated_png_shows_its_default_image_and_costs_no_more_with_a_thousand_frames() {
    let two = animated(2);
    assert!(two.windows(4).any(|name| name == b"fdAT"), "it is animated");
    assert_eq!(pixels("image/png", &two).await, ([0, 200, 9].repeat(64), 8, 8));
    let (_, shown_of_two) = show_image("image/png", &two).await;
    let many = animated(1000);
    assert!(many.len() < DISPLAY_IMAGE_BYTES_MAX);
    let (result, shown) = show_image("image/png", &many).await;
    result.unwrap();
    assert_eq!(shown, shown_of_two, "what is shown, and kept, is one still picture");
    let Content::Image { bytes, .. } = &shown[0].content else { panic!("no picture") };
    assert!(!bytes.windows(4).any(|name| matches!(name, b"acTL" | b"fcTL" | b"fdAT")));
}

#[tokio::test]
async fn a_jpeg_with_its_end_but_without_its_middle_is_refused() {
    let file = jpeg::tests::file(96, 64);
    show_image("image/jpeg", &file).await.0.unwrap();
    let (third, size) = (file.len() / 3, file.len());
    refused("image/jpeg", &[&file[..size - third - 2], &[0xFF, 0xD9]].concat(), "a part of its picture is missing")
        .await;
    refused(
        "image/jpeg",
        &[&file[..size - third - 2], &file[size - third / 2..]].concat(),
        "a part of its picture is missing",
    )
    .await;
}

#[tokio::test]
async fn a_file_of_the_largest_size_is_shown_and_one_byte_more_is_refused_before_it_is_looked_at() {
    let plain = jpeg::tests::file(64, 48);
    let filled = |size: usize| {
        let mut file = plain.clone();
        while file.len() < size {
            let payload = (size - file.len() - 4).min(60_000);
            // What is left must have room for one more segment.
            let payload = if (1..5).contains(&(size - file.len() - 4 - payload)) { payload - 5 } else { payload };
            file = with_segment(&file, 0xFE, &vec![b'x'; payload]);
        }
        assert_eq!(file.len(), size);
        file
    };
    show_image("image/jpeg", &filled(262_144)).await.0.unwrap();
    let mut arguments = Object::new();
    arguments.insert("mime", "image/jpeg");
    arguments.insert("data", wire::text::base64_encode(&filled(262_145)));
    let refused = Declaration::display_image().bounds.check(arguments).unwrap_err();
    assert_eq!(refused.to_string(), "data: at most 262144 bytes decoded, this has 262145");
}

#[tokio::test]
async fn a_picture_that_takes_too_long_is_given_up() {
    let late = || false;
    for (mime, file) in [("image/jpeg", jpeg::tests::file(96, 64)), ("image/png", png_file(96, 64, false))] {
        let data = wire::text::base64_encode(&file);
        let Err(Fault::Invalid { reason, .. }) = image(mime, &data, &late) else { panic!("{mime} was shown") };
        assert!(reason.ends_with("it takes too long"), "{reason}");
        image(mime, &data, &|| true).unwrap();
    }
}

/// The most memory that this process has held since `forget_peak`, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// One bit a pixel, all zeros.
fn zeros(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    let bytes = usize::try_from(width.div_ceil(8) * height).unwrap();
    encoder.write_header().unwrap().write_image_data(&vec![0; bytes]).unwrap();
    file
}

#[tokio::test]
async fn what_would_grow_gigantic_is_dealt_with_in_little_memory_and_time() {
    const PEAK_KIB_MAX: u64 = 64 * 1024;
    let mut giant = png_file(1, 1, false);
    giant[16..24].copy_from_slice(&[0, 1, 0x86, 0xA0, 0, 1, 0x86, 0xA0]);
    let crc = crc32(&giant[12..29]);
    giant[29..33].copy_from_slice(&crc.to_be_bytes());
    let rows = [
        ("a header of 100000 x 100000", giant, false),
        ("64 million zeros", zeros(8000, 8000), false),
        ("16 million zeros", zeros(4096, 4096), true),
        ("packed text", png_file(8, 8, true), true),
        ("a thousand frames", animated(1000), true),
    ];
    for (what, file, shown) in rows {
        assert!(file.len() < DISPLAY_IMAGE_BYTES_MAX);
        let data = wire::text::base64_encode(&file);
        forget_peak();
        let (before, began) = (peak_kib(), SystemClock.boot());
        let found = image("image/png", &data, &|| true);
        let (took, grown) = (SystemClock.boot().since(began), peak_kib().saturating_sub(before));
        assert_eq!(found.is_ok(), shown, "{what}: {found:?}");
        assert!(grown < PEAK_KIB_MAX, "{what}: {grown} KiB");
        // What is refused is refused by its header; what is shown has every row of it looked at.
        let most_ms = if shown { 2000 } else { 200 };
        assert!(took.as_millis() < most_ms, "{what}: {took:?}");
    }
}
