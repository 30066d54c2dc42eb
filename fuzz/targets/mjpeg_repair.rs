//! `mjpeg_repair` of handlers/src/picture/drive.rs under libFuzzer.
#![no_main]

#[path = "../../handlers/src/picture/mod.rs"]
mod picture;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    picture::drive::mjpeg_repair(bytes);
});
