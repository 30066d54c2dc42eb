//! Whether all of a JPEG picture is there: goes through every Huffman code of every scan without making pixels.
//!
//! Decoders fill what is missing with grey and report success, even when asked to be strict, if only an end marker stands where the data stops. This
//! counts: each block of each component has to come out of the data, scan by scan and restart by restart. Also bounds what a file may cost: kinds,
//! sampling, scans and blocks beyond the limits are refused before anything is decoded.

use super::bits::{Bits, Huffman};
use super::walk::{APP14, DHT, DQT, DRI, EOI, SOS, Walk};
use super::{PIXELS_MAX, TOO_LONG, going_on, within_pixels};

/// A picture of [`PIXELS_MAX`] pixels has 393,216 blocks, and ten scans are usual; more than this only costs time.
const VISITS_MAX: u64 = 20_000_000;
/// Ten blocks in one unit are the standard's own limit.
const UNIT_BLOCKS_MAX: usize = 10;
/// What the standard allows for pictures of 8 bits; more is damage.
const DC_BITS_MAX: u8 = 11;
const AC_BITS_MAX: u8 = 10;

pub(super) const MISSING: &str = "a part of its picture is missing";
pub(super) const BROKEN: &str = "its coded data is damaged";

/// What the headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// 1, 3 or 4.
    pub(crate) components: usize,
    /// The colour transform of Adobe's segment, if there is one.
    pub(crate) adobe: Option<u8>,
    /// Whether some component has fewer samples than another.
    pub(crate) sampled: bool,
    /// Whether a scan of a picture that is not progressive brings only some of the components.
    pub(crate) apart: bool,
}

impl Headers {
    /// Refuses the rare kinds of which the decoder makes wrong pixels without a word: components one after another, and inks in unequal numbers.
    pub(crate) fn decodable(&self) -> Result<(), String> {
        if self.apart {
            return Err("its colours come one after another, which cannot be decoded here".to_owned());
        }
        if self.sampled && self.components == 4 && self.adobe != Some(2) {
            return Err("its inks are sampled unequally, which cannot be decoded here".to_owned());
        }
        Ok(())
    }

    /// Whether the first component is brightness and any others are colour differences, as in nearly all files.
    pub(crate) const fn is_plain(&self) -> bool {
        match (self.components, self.adobe) {
            (1, _) => true,
            (3, adobe) => !matches!(adobe, Some(0)),
            _ => false,
        }
    }
}

/// One component of the picture.
struct Component {
    id: u8,
    /// Blocks of it in a unit, across and down.
    across: usize,
    down: usize,
    table: u8,
    /// Blocks that cover the picture, without those that only fill up a unit.
    columns: usize,
    rows: usize,
    /// Blocks in a row with those that fill up.
    stride: usize,
    /// Which coefficients of each block are not zero so far; of progressive pictures alone.
    set: Vec<u64>,
    begun: bool,
}

struct Frame {
    width: u32,
    height: u32,
    progressive: bool,
    apart: bool,
    units_across: usize,
    units_down: usize,
    components: Vec<Component>,
}

/// What has been read so far.
struct State<'a> {
    wanted: &'a dyn Fn() -> bool,
    frame: Option<Frame>,
    quantisers: u8,
    huffman: [Option<Huffman>; 8],
    restart: usize,
    adobe: Option<u8>,
    visits: u64,
}

/// Goes through the whole file, and says what is wrong with it if anything is. Ends early when it is not `wanted` any more.
pub(crate) fn complete(file: &[u8], wanted: &dyn Fn() -> bool) -> Result<Headers, String> {
    let mut state = State {
        wanted,
        frame: None,
        quantisers: 0,
        huffman: std::array::from_fn(|_| None),
        restart: 0,
        adobe: None,
        visits: 0,
    };
    for segment in Walk::new(file)? {
        let segment = segment?;
        match segment.marker {
            DQT => state.quantisers(segment.payload)?,
            DHT => state.tables(segment.payload)?,
            DRI => state.restart = usize::from(be16(segment.payload, 0).ok_or(BROKEN)?),
            0xC0..=0xC2 => state.begin(segment.payload, segment.marker == 0xC2)?,
            0xC3..=0xCF => return Err(format!("this kind of JPEG (SOF{}) is not shown", segment.marker - 0xC0)),
            APP14 if segment.payload.starts_with(b"Adobe") => state.adobe = segment.payload.get(11).copied(),
            SOS => state.scan(segment.payload, segment.coded)?,
            EOI => return state.finish(),
            _ => {}
        }
    }
    Err(super::walk::CUT_OFF.to_owned())
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

impl State<'_> {
    fn quantisers(&mut self, mut payload: &[u8]) -> Result<(), String> {
        while let Some(head) = payload.first() {
            let bytes = if head >> 4 == 0 { 64 } else { 128 };
            self.quantisers |= 1_u8.checked_shl(u32::from(head & 15)).ok_or(BROKEN)?;
            payload = payload.get(1 + bytes..).ok_or(BROKEN)?;
        }
        Ok(())
    }

    fn tables(&mut self, mut payload: &[u8]) -> Result<(), String> {
        while let Some(head) = payload.first() {
            let lengths: &[u8; 16] = payload.get(1..).and_then(<[u8]>::first_chunk).ok_or(BROKEN)?;
            let count: usize = lengths.iter().map(|count| usize::from(*count)).sum();
            let values = payload.get(17..17 + count).ok_or(BROKEN)?;
            // Class in the high bits, 0 or 1; number in the low ones, 0 to 3.
            let place = usize::from(head >> 4) * 4 + usize::from(head & 15);
            let slot = self.huffman.get_mut(place).filter(|_| head & 15 < 4).ok_or(BROKEN)?;
            *slot = Some(Huffman::new(lengths, values).ok_or(BROKEN)?);
            payload = payload.get(17 + count..).ok_or(BROKEN)?;
        }
        Ok(())
    }

    fn begin(&mut self, payload: &[u8], progressive: bool) -> Result<(), String> {
        let [precision, h1, h2, w1, w2, count, rest @ ..] = payload else { return Err(BROKEN.to_owned()) };
        if self.frame.is_some() {
            return Err("it has two pictures in one".to_owned());
        }
        if *precision != 8 {
            return Err(format!("JPEG files of {precision} bits are not shown"));
        }
        let (width, height) = (u32::from(u16::from_be_bytes([*w1, *w2])), u32::from(u16::from_be_bytes([*h1, *h2])));
        within_pixels(width, height, PIXELS_MAX)?;
        if !matches!(count, 1 | 3 | 4) || rest.len() < usize::from(*count) * 3 {
            return Err(format!("JPEG files of {count} components are not shown"));
        }
        let mut frame =
            Frame { width, height, progressive, apart: false, units_across: 0, units_down: 0, components: Vec::new() };
        for part in rest.chunks_exact(3).take(usize::from(*count)) {
            let [id, sampling, table] = part else { continue };
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) {
                return Err(BROKEN.to_owned());
            }
            frame.components.push(Component {
                id: *id,
                across,
                down,
                table: *table,
                columns: 0,
                rows: 0,
                stride: 0,
                set: Vec::new(),
                begun: false,
            });
        }
        frame.lay_out();
        self.frame = Some(frame);
        Ok(())
    }

    fn finish(self) -> Result<Headers, String> {
        let frame = self.frame.ok_or("it has no picture in it")?;
        if frame.components.iter().any(|component| !component.begun) {
            return Err(MISSING.to_owned());
        }
        let samples = |component: &Component| (component.across, component.down);
        let first = frame.components.first().map(samples);
        Ok(Headers {
            width: frame.width,
            height: frame.height,
            components: frame.components.len(),
            adobe: self.adobe,
            sampled: frame.components.iter().any(|component| Some(samples(component)) != first),
            apart: frame.apart,
        })
    }

    fn scan(&mut self, payload: &[u8], coded: &[u8]) -> Result<(), String> {
        let frame = self.frame.as_mut().ok_or("it has no picture in it")?;
        let (band, members) = band(payload, frame)?;
        frame.apart |= !band.progressive && members.len() < frame.components.len();
        for member in &members {
            let component = frame.components.get_mut(member.component).ok_or(BROKEN)?;
            if self.quantisers >> component.table.min(7) & 1 == 0 {
                return Err("it lacks a table that it needs".to_owned());
            }
            component.begun |= band.first == 0;
            if frame.progressive && component.set.is_empty() {
                component.set = vec![0; component.stride * frame.units_down * component.down];
            }
        }
        let blocks = frame.blocks(&members);
        self.visits += u64::try_from(blocks).unwrap_or(u64::MAX);
        if self.visits > VISITS_MAX {
            return Err(TOO_LONG.to_owned());
        }
        let run = Run { band, restart: self.restart, huffman: &self.huffman, wanted: self.wanted };
        run.through(frame, &members, coded)
    }
}

impl Frame {
    fn lay_out(&mut self) {
        let (across, down) = (self.most(|c| c.across), self.most(|c| c.down));
        let side = |pixels: u32| usize::try_from(pixels).unwrap_or(usize::MAX);
        let (width, height) = (side(self.width), side(self.height));
        self.units_across = width.div_ceil(8 * across);
        self.units_down = height.div_ceil(8 * down);
        for component in &mut self.components {
            component.columns = (width * component.across).div_ceil(across).div_ceil(8);
            component.rows = (height * component.down).div_ceil(down).div_ceil(8);
            component.stride = self.units_across * component.across;
        }
    }

    fn most(&self, of: impl Fn(&Component) -> usize) -> usize {
        self.components.iter().map(of).max().unwrap_or(1)
    }

    /// How many blocks a scan of these members has.
    fn blocks(&self, members: &[Member]) -> usize {
        let of = |member: &Member| self.components.get(member.component);
        match members {
            [one] => of(one).map_or(0, |component| component.columns * component.rows),
            many => {
                let unit: usize = many.iter().filter_map(of).map(|component| component.across * component.down).sum();
                self.units_across * self.units_down * unit
            }
        }
    }
}

/// One component of a scan with its Huffman tables.
struct Member {
    component: usize,
    dc: usize,
    ac: usize,
}

/// Which coefficients a scan brings, and how exactly.
#[derive(Clone, Copy)]
struct Band {
    first: u8,
    last: u8,
    /// Whether earlier scans brought their higher bits.
    refines: bool,
    progressive: bool,
}

fn band(payload: &[u8], frame: &Frame) -> Result<(Band, Vec<Member>), String> {
    let broken = || BROKEN.to_owned();
    let count = usize::from(*payload.first().ok_or_else(broken)?);
    let listed = payload.get(1..1 + count * 2).ok_or_else(broken)?;
    let Some([first, last, bits]) = payload.get(1 + count * 2..).and_then(<[u8]>::first_chunk::<3>) else {
        return Err(broken());
    };
    let mut members: Vec<Member> = Vec::new();
    for pair in listed.chunks_exact(2) {
        let [id, tables] = pair else { continue };
        let component = frame.components.iter().position(|component| component.id == *id).ok_or_else(broken)?;
        if members.iter().any(|member| member.component == component) {
            return Err(broken());
        }
        members.push(Member { component, dc: usize::from(tables >> 4 & 3), ac: 4 + usize::from(tables & 3) });
    }
    let band = if frame.progressive {
        Band { first: *first, last: *last, refines: bits >> 4 != 0, progressive: true }
    } else {
        Band { first: 0, last: 63, refines: false, progressive: false }
    };
    let unit: usize = (members.iter().filter_map(|member| frame.components.get(member.component)))
        .map(|component| component.across * component.down)
        .sum();
    let sound = match (members.len(), band.progressive, band.first) {
        (0, ..) => false,
        (1, true, 1..) => band.first <= band.last && band.last < 64,
        (_, true, _) => band.first == 0 && band.last == 0,
        (..) => true,
    };
    if !sound || (members.len() > 1 && unit > UNIT_BLOCKS_MAX) {
        return Err(broken());
    }
    Ok((band, members))
}

/// One scan.
struct Run<'a> {
    band: Band,
    restart: usize,
    huffman: &'a [Option<Huffman>; 8],
    wanted: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    fn through(&self, frame: &mut Frame, members: &[Member], coded: &[u8]) -> Result<(), String> {
        let (across, down) = match members {
            [one] => {
                frame.components.get(one.component).map_or((0, 0), |component| (component.columns, component.rows))
            }
            _ => (frame.units_across, frame.units_down),
        };
        let mut bits = Bits::new(coded);
        let (mut done, mut restarts, mut skip) = (0_usize, 0_u8, 0_u32);
        for y in 0..down {
            going_on(self.wanted)?;
            for x in 0..across {
                if self.restart > 0 && done > 0 && done.is_multiple_of(self.restart) {
                    bits.restart(restarts).ok_or(MISSING)?;
                    restarts = (restarts + 1) % 8;
                    skip = 0;
                }
                done += 1;
                for member in members {
                    let component = frame.components.get_mut(member.component).ok_or(BROKEN)?;
                    let (wide, high) = if members.len() == 1 { (1, 1) } else { (component.across, component.down) };
                    for block in 0..wide * high {
                        let place = (y * high + block / wide) * component.stride + x * wide + block % wide;
                        let mut none = 0;
                        let set = component.set.get_mut(place).unwrap_or(&mut none);
                        self.block(&mut bits, member, set, &mut skip)?;
                    }
                }
            }
        }
        // A run of empty blocks that is longer than the picture, or data that nobody asked for, means that something before it is missing.
        // Cameras leave such data behind whole frames of the plain kind.
        if self.band.progressive && (skip > 0 || bits.left()) { Err(MISSING.to_owned()) } else { Ok(()) }
    }

    fn table(&self, place: usize) -> Result<&Huffman, &'static str> {
        self.huffman.get(place).and_then(Option::as_ref).ok_or("it lacks a table that it needs")
    }

    fn block(&self, bits: &mut Bits<'_>, member: &Member, set: &mut u64, skip: &mut u32) -> Result<(), &'static str> {
        if self.band.first == 0 {
            if self.band.refines {
                bits.drop(1).ok_or(MISSING)?;
            } else {
                let size = bits.code(self.table(member.dc)?)?;
                if size > DC_BITS_MAX {
                    return Err(BROKEN);
                }
                bits.drop(u32::from(size)).ok_or(MISSING)?;
            }
        }
        if !self.band.progressive {
            return self.first_pass(bits, member, 1, set, &mut 0);
        }
        match (self.band.first, self.band.refines) {
            (0, _) => Ok(()),
            (first, false) => self.first_pass(bits, member, first, set, skip),
            (first, true) => self.refining_pass(bits, member, first, set, skip),
        }
    }

    /// The coefficients from `from` on, sent for the first time.
    fn first_pass(
        &self,
        bits: &mut Bits<'_>,
        member: &Member,
        from: u8,
        set: &mut u64,
        skip: &mut u32,
    ) -> Result<(), &'static str> {
        if *skip > 0 {
            *skip -= 1;
            return Ok(());
        }
        let table = self.table(member.ac)?;
        let mut at = from;
        while at <= self.band.last {
            let code = bits.code(table)?;
            let (zeros, size) = (code >> 4, code & 15);
            match (zeros, size) {
                (15, 0) => at += 16,
                (_, 0) if !self.band.progressive => return Ok(()),
                (_, 0) => {
                    *skip = (1 << zeros) - 1 + bits.take(u32::from(zeros)).ok_or(MISSING)?;
                    return Ok(());
                }
                (_, _) => {
                    at += zeros;
                    if at > self.band.last || size > AC_BITS_MAX {
                        return Err(BROKEN);
                    }
                    bits.drop(u32::from(size)).ok_or(MISSING)?;
                    *set |= 1 << at;
                    at += 1;
                }
            }
        }
        if at > 64 { Err(BROKEN) } else { Ok(()) }
    }

    /// One more bit of coefficients that were sent before, and new ones between them.
    fn refining_pass(
        &self,
        bits: &mut Bits<'_>,
        member: &Member,
        from: u8,
        set: &mut u64,
        skip: &mut u32,
    ) -> Result<(), &'static str> {
        let (table, before) = (self.table(member.ac)?, *set);
        let mut at = from;
        while *skip == 0 && at <= self.band.last {
            let code = bits.code(table)?;
            let (mut zeros, size) = (code >> 4, code & 15);
            match (zeros, size) {
                (_, 1) => bits.drop(1).ok_or(MISSING)?,
                (15, 0) => {}
                (_, 0) => {
                    *skip = (1 << zeros) + bits.take(u32::from(zeros)).ok_or(MISSING)?;
                    break;
                }
                (_, _) => return Err(BROKEN),
            }
            while at <= self.band.last {
                if before >> at & 1 == 1 {
                    bits.drop(1).ok_or(MISSING)?;
                } else if zeros == 0 {
                    break;
                } else {
                    zeros -= 1;
                }
                at += 1;
            }
            if size == 1 {
                if at > self.band.last {
                    return Err(BROKEN);
                }
                *set |= 1 << at;
            }
            at += 1;
        }
        if *skip > 0 {
            // The band's end of this block, and of so many more: only bits of what was sent before.
            let left = (at..=self.band.last).filter(|at| before >> at & 1 == 1).count();
            bits.drop(u32::try_from(left).unwrap_or(u32::MAX)).ok_or(MISSING)?;
            *skip -= 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
