//! What is there is accepted in every kind of file, and what is missing is missed in every kind of file.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::super::jpeg;
use super::super::walk::{RST0, RST7};
use super::*;

fn file(prepare: impl FnOnce(&mut Encoder<&mut Vec<u8>>), width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 90);
    prepare(&mut encoder);
    let side = |side: u32| u16::try_from(side).unwrap();
    encoder.encode(&jpeg::tests::picture(width, height), side(width), side(height), ColorType::Rgb).unwrap();
    file
}

type Prepare = fn(&mut Encoder<&mut Vec<u8>>);

/// The ways in which encoders write.
const KINDS: [(&str, Prepare); 9] = [
    ("plain", |_| {}),
    ("4:4:4", |encoder| encoder.set_sampling_factor(SamplingFactor::F_1_1)),
    ("4:2:0", |encoder| encoder.set_sampling_factor(SamplingFactor::F_2_2)),
    ("4:2:2", |encoder| encoder.set_sampling_factor(SamplingFactor::F_2_1)),
    ("4:1:1", |encoder| encoder.set_sampling_factor(SamplingFactor::F_4_1)),
    ("own tables", |encoder| encoder.set_optimized_huffman_tables(true)),
    ("restarts", |encoder| encoder.set_restart_interval(3)),
    ("progressive", |encoder| encoder.set_progressive(true)),
    ("progressive 4:2:0", |encoder| {
        encoder.set_progressive(true);
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
    }),
];

/// Where each scan's coded data lies.
fn scans(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let scans = Walk::new(file).unwrap().map(Result::unwrap).filter(|segment| segment.marker == SOS);
    scans.map(|segment| segment.end - segment.coded.len()..segment.end).collect()
}

#[test]
fn whole_files_of_every_kind_and_size_are_whole() {
    for (name, prepare) in KINDS {
        for (width, height) in [(96, 64), (8, 8), (1, 1), (17, 33), (129, 7)] {
            let found = complete(&file(prepare, width, height), &|| true).unwrap();
            let Headers { components, adobe, .. } = found;
            assert_eq!((found.width, found.height, components, adobe), (width, height, 3, None), "{name}");
            assert_eq!(found.apart, ["own tables", "4:1:1"].contains(&name), "{name}");
        }
    }
}

#[test]
fn a_stretch_taken_out_of_any_scan_is_missed_though_the_end_marker_is_there() {
    for (name, prepare) in KINDS {
        let file = file(prepare, 200, 120);
        for scan in scans(&file).into_iter().filter(|scan| scan.len() > 300) {
            for part in 1..8 {
                let from = scan.start + scan.len() * part / 9;
                for taken in [scan.len() / 9, scan.len() / 3] {
                    let broken = [&file[..from], &file[(from + taken).min(scan.end)..]].concat();
                    let found = complete(&broken, &|| true);
                    assert!(found.is_err(), "{name}: {taken} bytes from {from} in {scan:?}");
                }
            }
        }
    }
}

#[test]
fn a_file_that_ends_early_with_an_end_marker_is_missed() {
    for (name, prepare) in KINDS {
        let file = file(prepare, 200, 120);
        let first = scans(&file)[0].clone();
        let broken = [&file[..first.start + first.len() / 2], &[0xFF, EOI]].concat();
        assert_eq!(complete(&broken, &|| true), Err(MISSING.to_owned()), "{name}");
    }
}

#[test]
fn a_restart_that_is_missing_or_out_of_turn_is_missed() {
    let file = file(|encoder| encoder.set_restart_interval(3), 200, 120);
    let scan = scans(&file)[0].clone();
    let restarts: Vec<usize> = scan.filter(|at| file[*at] == 0xFF && (RST0..=RST7).contains(&file[at + 1])).collect();
    assert!(restarts.len() > 9);
    let without = [&file[..restarts[2]], &file[restarts[3]..]].concat();
    assert_eq!(complete(&without, &|| true), Err(MISSING.to_owned()));
    let mut turned = file.clone();
    turned.swap(restarts[2] + 1, restarts[3] + 1);
    assert_eq!(complete(&turned, &|| true), Err(MISSING.to_owned()));
}

#[test]
fn too_many_scans_are_refused_before_they_are_gone_through() {
    let file = file(|encoder| encoder.set_progressive(true), 16, 16);
    let mut large = file.clone();
    let frame = large.windows(2).position(|pair| pair == [0xFF, 0xC2]).unwrap();
    large[frame + 5..frame + 9].copy_from_slice(&[0x10, 0, 0x10, 0]);
    let mut state = State {
        wanted: &|| true,
        frame: None,
        quantisers: 15,
        huffman: std::array::from_fn(|_| None),
        restart: 0,
        adobe: None,
        visits: 0,
    };
    state.begin(&large[frame + 4..frame + 19], true).unwrap();
    state.visits = VISITS_MAX - 10;
    assert_eq!(state.scan(&[1, 1, 0, 0, 0, 0], &[]), Err(TOO_LONG.to_owned()));
    state.visits = 0;
    assert_ne!(state.scan(&[1, 1, 0, 0, 0, 0], &[]), Err(TOO_LONG.to_owned()));
}

#[test]
fn kinds_that_no_screen_shows_are_refused_by_name() {
    let whole = file(|_| {}, 16, 16);
    let frame = whole.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut file = whole.clone();
        file[frame + at] = byte;
        complete(&file, &|| true).unwrap_err()
    };
    assert_eq!(changed(1, 0xC9), "this kind of JPEG (SOF9) is not shown");
    assert_eq!(changed(4, 12), "JPEG files of 12 bits are not shown");
    assert_eq!(changed(9, 2), "JPEG files of 2 components are not shown");
    assert_eq!(changed(6, 0), "it has no pixels (16 x 0)");
    assert_eq!(complete(&[0xFF, 0xD8, 0xFF, 0xD9], &|| true), Err("it has no picture in it".to_owned()));
}
