//! The bits of a JPEG scan and the codes in them.

use super::scan::{BROKEN, MISSING};
use super::walk::{RST0, RST7};

/// Bits of coded data up to the next restart.
pub(super) struct Bits<'a> {
    coded: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) const fn new(coded: &'a [u8]) -> Self {
        Self { coded, at: 0, held: 0, count: 0 }
    }

    fn fill(&mut self) {
        while self.count <= 48 {
            let Some(byte) = self.coded.get(self.at) else { return };
            if *byte == 0xFF {
                if self.coded.get(self.at + 1) != Some(&0) {
                    return;
                }
                self.at += 1;
            }
            self.at += 1;
            self.held = self.held << 8 | u64::from(*byte);
            self.count += 8;
        }
    }

    /// The next `count` bits, at most 16; `None` when there are fewer.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        self.fill();
        self.count = self.count.checked_sub(count)?;
        let bits = self.held >> self.count & ((1 << count) - 1);
        u32::try_from(bits).ok()
    }

    /// Passes over `count` bits.
    pub(super) fn drop(&mut self, mut count: u32) -> Option<()> {
        while count > 0 {
            let some = count.min(16);
            self.take(some)?;
            count -= some;
        }
        Some(())
    }

    /// The value of the next code.
    pub(super) fn code(&mut self, table: &Huffman) -> Result<u8, &'static str> {
        self.fill();
        // Sixteen bits, with ones behind the last; a code that reaches into those is not there.
        let ahead = if self.count >= 16 {
            self.held >> (self.count - 16) & 0xFFFF
        } else {
            let short = 16 - self.count;
            (self.held << short | ((1 << short) - 1)) & 0xFFFF
        };
        let (length, value) =
            table.find(u32::try_from(ahead).unwrap_or(0)).ok_or(if self.count < 16 { MISSING } else { BROKEN })?;
        self.count = self.count.checked_sub(length).ok_or(MISSING)?;
        Ok(value)
    }

    /// Whether more is left than what fills the last byte.
    pub(super) fn left(&mut self) -> bool {
        self.fill();
        self.count >= 8
    }

    /// Goes to what follows restart number `number`; `None` when another or none comes next.
    pub(super) fn restart(&mut self, number: u8) -> Option<()> {
        (self.held, self.count) = (0, 0);
        let rest = self.coded.get(self.at..)?;
        let next = rest.windows(2).position(|pair| matches!(pair, [0xFF, RST0..=RST7]))?;
        if rest.get(next + 1) != Some(&(RST0 + number)) {
            return None;
        }
        self.at += next + 2;
        Some(())
    }
}

/// Codes of 1 to 16 bits and what they stand for.
pub(super) struct Huffman {
    /// For each eight bits that begin with a whole code: its length and value; length 0 for those that do not.
    short: [(u8, u8); 256],
    /// For each length: the first code past those of this length, left-aligned in 16 bits, and what to add to a code for its place in `values`.
    long: [(u32, i32); 17],
    values: Vec<u8>,
}

impl Huffman {
    /// `None` when there are more codes than fit.
    pub(super) fn new(lengths: &[u8; 16], values: &[u8]) -> Option<Self> {
        let mut table = Self { short: [(0, 0); 256], long: [(0, 0); 17], values: values.to_vec() };
        let (mut code, mut place) = (0_u32, 0_u32);
        for (length, count) in (1_u32..).zip(lengths) {
            let count = u32::from(*count);
            let last = code + count;
            if last > 1 << length {
                return None;
            }
            let slot = table.long.get_mut(usize::try_from(length).ok()?)?;
            *slot = (last << (16 - length), i32::try_from(place).ok()? - i32::try_from(code).ok()?);
            for (code, value) in (code..last).zip(values.get(usize::try_from(place).ok()?..)?) {
                if length <= 8 {
                    let first = usize::try_from(code << (8 - length)).ok()?;
                    table.short.get_mut(first..first + (1 << (8 - length)))?.fill((u8::try_from(length).ok()?, *value));
                }
            }
            place += count;
            code = last << 1;
        }
        Some(table)
    }

    /// The code at the head of sixteen bits: its length and value.
    fn find(&self, ahead: u32) -> Option<(u32, u8)> {
        let (length, value) = *self.short.get(usize::try_from(ahead >> 8).ok()?)?;
        if length > 0 {
            return Some((u32::from(length), value));
        }
        for (length, (past, offset)) in (9_u32..).zip(self.long.iter().skip(9)) {
            if ahead < *past {
                let place = i32::try_from(ahead >> (16 - length)).ok()? + offset;
                return Some((length, *self.values.get(usize::try_from(place).ok()?)?));
            }
        }
        None
    }
}
