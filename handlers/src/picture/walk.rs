//! The segments of a JPEG file, one after another.
//!
//! The end of a scan's coded data is found as the standard says, at the first marker that is neither stuffing nor a restart, so an end marker
//! inside a comment, a thumbnail or what a camera left behind the frame means nothing.

pub(super) const SOF2: u8 = 0xC2;
pub(super) const SOI: u8 = 0xD8;
pub(super) const EOI: u8 = 0xD9;
pub(super) const SOS: u8 = 0xDA;
pub(super) const DQT: u8 = 0xDB;
pub(super) const DRI: u8 = 0xDD;
pub(super) const DHT: u8 = 0xC4;
pub(super) const APP1: u8 = 0xE1;
pub(super) const APP2: u8 = 0xE2;
pub(super) const APP14: u8 = 0xEE;
pub(super) const APP15: u8 = 0xEF;
pub(super) const COM: u8 = 0xFE;
pub(super) const RST0: u8 = 0xD0;
pub(super) const RST7: u8 = 0xD7;

pub(super) const CUT_OFF: &str = "it is cut off";
pub(super) const DAMAGED: &str = "its segments are damaged";

/// One segment; of a start of scan also the coded data behind it. An end marker has neither.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    /// Offset of its marker in the file.
    pub(super) start: usize,
    /// Without marker and length.
    pub(super) payload: &'a [u8],
    /// With stuffing and restarts.
    pub(super) coded: &'a [u8],
    /// Offset just past it.
    pub(super) end: usize,
}

/// Goes from segment to segment, up to and with the end marker.
pub(super) struct Walk<'a> {
    file: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(file: &'a [u8]) -> Result<Self, &'static str> {
        if !file.starts_with(&[0xFF, SOI]) {
            return Err("it does not begin as a JPEG file");
        }
        Ok(Self { file, at: 2, ended: false })
    }

    fn byte(&self, at: usize) -> Result<u8, &'static str> {
        self.file.get(at).copied().ok_or(CUT_OFF)
    }

    fn step(&mut self) -> Result<Segment<'a>, &'static str> {
        if self.byte(self.at)? != 0xFF {
            return Err(DAMAGED);
        }
        // Any number of bytes FF may stand before a marker.
        while self.byte(self.at + 1)? == 0xFF {
            self.at += 1;
        }
        let (start, marker) = (self.at, self.byte(self.at + 1)?);
        if marker == EOI {
            return Ok(Segment { marker, start, payload: &[], coded: &[], end: start + 2 });
        }
        if marker < 0xC0 || (RST0..=SOI).contains(&marker) {
            return Err(DAMAGED);
        }
        let length = usize::from(u16::from_be_bytes([self.byte(start + 2)?, self.byte(start + 3)?]));
        if length < 2 {
            return Err(DAMAGED);
        }
        let payload = self.file.get(start + 4..start + 2 + length).ok_or(CUT_OFF)?;
        let head = start + 2 + length;
        let end = if marker == SOS { self.coded_end(head)? } else { head };
        Ok(Segment { marker, start, payload, coded: self.file.get(head..end).unwrap_or_default(), end })
    }

    /// Where the coded data that begins at `from` ends.
    fn coded_end(&self, from: usize) -> Result<usize, &'static str> {
        let coded = self.file.get(from..).unwrap_or_default();
        let end = coded
            .windows(2)
            .position(|pair| matches!(pair, [0xFF, marker] if !matches!(*marker, 0 | 0xFF | RST0..=RST7)));
        end.map(|end| from + end).ok_or(CUT_OFF)
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Segment<'a>, &'static str>;

    /// After the end marker, or an error, there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        match &step {
            Ok(segment) => {
                self.at = segment.end;
                self.ended = segment.marker == EOI;
            }
            Err(_) => self.ended = true,
        }
        Some(step)
    }
}
