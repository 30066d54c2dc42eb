//! `display.text` and `display.image`.
//!
//! Called by their capability actors; hand what is fit to be shown to the [`Screen`]. Refuse a picture whose bytes are not what its
//! declared type says, that is cut off, or that would take too much memory to show. A picture is decoded once here, fully, before any
//! screen sees it.

use std::io::Cursor;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wire::declaration::DISPLAY_IMAGE_BYTES_MAX;
use wire::{Agent, Declaration, Object};

use crate::handler::{Call, Fault, Handler};
use crate::jpeg;
use crate::screen::{Content, ImageType, Screen, Shown};

/// What the PNG decoder may take for rows, palettes and other chunks; pixels are read row by row and not kept.
const PNG_BYTES_MAX: usize = 8 * 1024 * 1024;

/// `display.text`.
pub struct DisplayText {
    declaration: Declaration,
    screen: Arc<dyn Screen>,
}

/// `display.image`.
pub struct DisplayImage {
    declaration: Declaration,
    screen: Arc<dyn Screen>,
}

impl DisplayText {
    /// Shows on `screen`.
    pub fn new(screen: Arc<dyn Screen>) -> Self {
        Self { declaration: Declaration::display_text(), screen }
    }
}

impl DisplayImage {
    /// Shows on `screen`.
    pub fn new(screen: Arc<dyn Screen>) -> Self {
        Self { declaration: Declaration::display_image(), screen }
    }
}

impl Handler for DisplayText {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let screen = Arc::clone(&self.screen);
        async move {
            let content = Content::Text(argument(&call, "text")?);
            show(&*screen, content, call.agent, call.stop).await
        }
        .boxed()
    }
}

impl Handler for DisplayImage {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let screen = Arc::clone(&self.screen);
        async move {
            let (mime, data) = (argument(&call, "mime")?, argument(&call, "data")?);
            // Decoding takes long enough to be kept from the threads that answer others.
            let content = tokio::task::spawn_blocking(move || image(&mime, &data))
                .await
                .map_err(|error| Fault::Failed(format!("the picture's decoder crashed: {error}")))??;
            show(&*screen, content, call.agent, call.stop).await
        }
        .boxed()
    }
}

async fn show(screen: &dyn Screen, content: Content, agent: Agent, stop: CancellationToken) -> Result<Object, Fault> {
    if stop.is_cancelled() {
        return Err(Fault::Stopped);
    }
    if !screen.present() {
        return Err(Fault::Unavailable(format!("nothing would show it: {}", screen.describe())));
    }
    screen.show(Shown { content, agent }, stop).await.map(|()| Object::new())
}

fn argument(call: &Call, member: &str) -> Result<String, Fault> {
    let text = call.arguments.string(member);
    text.map(str::to_owned).ok_or_else(|| invalid(member, "a string is needed here"))
}

fn invalid(member: &str, reason: impl Into<String>) -> Fault {
    Fault::Invalid { member: member.to_owned(), reason: reason.into() }
}

/// The picture, if it is one.
fn image(mime: &str, data: &str) -> Result<Content, Fault> {
    let declared = [ImageType::Jpeg, ImageType::Png].into_iter().find(|known| known.as_mime() == mime);
    let declared = declared.ok_or_else(|| invalid("mime", "only image/jpeg and image/png are shown"))?;
    let bytes = wire::text::base64_decode(data).map_err(|error| invalid("data", error.to_string()))?;
    if bytes.len() > DISPLAY_IMAGE_BYTES_MAX {
        let reason = format!("at most {DISPLAY_IMAGE_BYTES_MAX} bytes when decoded, this has {}", bytes.len());
        return Err(invalid("data", reason));
    }
    let real = real_type(&bytes);
    if real != declared.as_mime() {
        return Err(invalid("data", format!("declared as {mime}, but these bytes are {real}")));
    }
    let size = match declared {
        ImageType::Jpeg => jpeg::look(&bytes).map(|seen| (seen.width, seen.height)),
        ImageType::Png => look_png(&bytes),
    };
    let (width, height) = size.map_err(|reason| invalid("data", format!("this {mime} cannot be shown: {reason}")))?;
    Ok(Content::Image { mime: declared, bytes: bytes.into(), width, height })
}

/// What the first bytes say that a file is.
fn real_type(bytes: &[u8]) -> &'static str {
    /// How many bytes may stand before the first tag of a text file.
    const TEXT_HEAD: usize = 256;
    let head = String::from_utf8_lossy(bytes.get(..TEXT_HEAD).unwrap_or(bytes)).to_ascii_lowercase();
    let head = head.trim_start_matches('\u{feff}').trim_start();
    match bytes {
        [0xFF, 0xD8, 0xFF, ..] => "image/jpeg",
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => "image/png",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        [b'B', b'M', ..] => "image/bmp",
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f', ..] => "image/avif",
        _ if head.starts_with("<svg") || (head.starts_with("<?xml") && head.contains("<svg")) => "image/svg+xml",
        _ if head.starts_with("<!doctype html") || head.starts_with("<html") => "text/html",
        _ => "of no known picture type",
    }
}

/// Decodes the whole file row by row, and says what is wrong with it if anything is. Text and colour profiles are never unpacked.
fn look_png(file: &[u8]) -> Result<(u32, u32), String> {
    let said = |error: png::DecodingError| match error {
        png::DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it is cut off".to_owned()
        }
        error => format!("it does not decode: {error}"),
    };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), png::Limits { bytes: PNG_BYTES_MAX });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(said)?;
    let (width, height) = (header.width, header.height);
    jpeg::within_pixels(width, height)?;
    let mut reader = decoder.read_info().map_err(said)?;
    while reader.next_interlaced_row().map_err(said)?.is_some() {}
    reader.finish().map_err(said)?;
    Ok((width, height))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

    use std::sync::Mutex;

    use super::*;
    use crate::clock::SystemClock;

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
    async fn packed_text_in_a_picture_is_never_unpacked_and_the_picture_shown() {
        let file = png_file(8, 8, true);
        assert!(file.len() < 64 * 1024);
        show_image("image/png", &file).await.0.unwrap();
    }

    /// The checksum of PNG chunks.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
        })
    }
}
