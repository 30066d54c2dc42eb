//! What the fuzz targets in `fuzz/` drive: each takes any bytes at all and panics when a promise of this folder does not hold.
//!
//! `docs` for a long run: fuzz/README.md. The tests below run the same over whole files and thousands of changed ones, in seconds.

use super::{ImageType, intake, jpeg, scan};

/// Image intake: it ends; what passes is whole, and passes again as it is.
pub(crate) fn image_intake(bytes: &[u8]) -> bool {
    let mut passed = false;
    for kind in ImageType::ALL {
        if let Ok(picture) = intake(kind, bytes, &|| true) {
            let again = intake(kind, &picture.bytes, &|| true);
            assert_eq!(again.as_ref(), Ok(&picture), "a picture that passed passes again unchanged");
            passed = true;
        }
    }
    passed
}

/// Mending a frame: it ends; a mended frame needs no mending; what is found whole gives all its pixels.
pub(crate) fn mjpeg_repair(bytes: &[u8]) -> bool {
    let Ok(file) = jpeg::whole(bytes) else { return false };
    assert_eq!(jpeg::whole(&file).as_deref(), Ok(&*file), "a mended frame is whole");
    let Ok(seen) = jpeg::look(&file) else { return false };
    let headers = scan::complete(&file, &|| true);
    assert!(headers.is_ok_and(|headers| (headers.width, headers.height) == (seen.width, seen.height)));
    let pixels = jpeg::to_rgb(&file);
    assert!(pixels.is_ok_and(|(rgb, width, height)| {
        u64::try_from(rgb.len()).is_ok_and(|bytes| bytes == u64::from(width) * u64::from(height) * 3)
    }));
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::super::jpeg::tests as files;
    use super::super::tests::exif_block;
    use super::*;

    /// So many changed files for each whole one.
    const CHANGES: u32 = 700;

    /// Always the same changes, so that a failure can be found again.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, most: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 >> 11).unwrap() % most.max(1)
        }

        fn byte(&mut self) -> u8 {
            const TELLING: [u8; 8] = [0, 1, 0x7F, 0x80, 0xFF, 0xC4, 0xD9, 0xDA];
            if self.below(2) == 0 { TELLING[self.below(8)] } else { self.below(256).to_le_bytes()[0] }
        }

        /// One to four changes: a byte, a stretch taken out, doubled or put elsewhere, an end cut off, a length made nonsense.
        fn changed(&mut self, file: &[u8]) -> Vec<u8> {
            let mut bytes = file.to_vec();
            for _ in 0..=self.below(4) {
                let (at, stretch) = (self.below(bytes.len()), self.below(40));
                let end = (at + stretch).min(bytes.len());
                match self.below(6) {
                    0 | 1 if at < bytes.len() => bytes[at] = self.byte(),
                    2 => drop(bytes.drain(at..end)),
                    3 => {
                        let doubled = bytes[at..end].to_vec();
                        bytes.splice(at..at, doubled);
                    }
                    4 => bytes.truncate(at),
                    _ if at + 1 < bytes.len() => {
                        bytes[at..at + 2].copy_from_slice(&[0xFF, self.below(256).to_le_bytes()[0]])
                    }
                    _ => {}
                }
            }
            bytes
        }
    }

    fn png_file() -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 24, 16);
        encoder.set_color(png::ColorType::Rgb);
        encoder.add_ztxt_chunk("Comment".to_owned(), "text".repeat(9)).unwrap();
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&files::picture(24, 16)).unwrap();
        writer.finish().unwrap();
        file
    }

    fn jpegs() -> Vec<Vec<u8>> {
        let mut found = vec![files::file(40, 24), jpeg::without_tables(&files::file(40, 24))];
        found.push(encoded(false));
        let exif = [&[0xFF, 0xE1, 0, 34][..], b"Exif\0\0", &exif_block(6)].concat();
        found.push([&files::file(24, 40)[..2], &exif, &files::file(24, 40)[2..]].concat());
        found
    }

    /// With restarts.
    fn encoded(progressive: bool) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut file, 80);
        encoder.set_progressive(progressive);
        encoder.set_restart_interval(2);
        encoder.encode(&files::picture(40, 24), 40, 24, jpeg_encoder::ColorType::Rgb).unwrap();
        file
    }

    fn run(name: &str, whole: &[Vec<u8>], drive: fn(&[u8]) -> bool) {
        let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
        let mut passed = 0;
        for file in whole {
            assert!(drive(file), "{name}: the file itself passes");
            for _ in 0..CHANGES {
                passed += u32::from(drive(&chance.changed(file)));
            }
        }
        let all = CHANGES * u32::try_from(whole.len()).unwrap();
        assert!(passed > 0 && passed < all, "{name}: some pass and some do not: {passed} of {all}");
    }

    #[test]
    fn changed_pictures_are_taken_in_or_refused_and_nothing_else() {
        let mut whole = jpegs();
        // The one without tables is a camera's business.
        whole.remove(1);
        // And this one comes from anywhere but a camera.
        whole.push(encoded(true));
        whole.push(png_file());
        run("image_intake", &whole, image_intake);
    }

    #[test]
    fn changed_frames_are_mended_or_refused_and_nothing_else() {
        run("mjpeg_repair", &jpegs(), mjpeg_repair);
    }
}
