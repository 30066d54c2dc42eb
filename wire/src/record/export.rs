//! Signed exports of records: a CBOR sequence (RFC 8742) of records, and behind them an array of a head and its signature.
//!
//! An export proves order and content up to its head, not that nothing came after.

use std::io::{self, Read, Write};

use ciborium::Value;

use crate::cbor;
use crate::keys::{Domain, PublicKey, Signature, Signer};
use crate::record::{Record, RecordError, RecordHash, RecordKind};

/// What a keeper record is about from which a pruned journal still verifies: its value digest is the hash that the first
/// record left refers to.
pub const CHECKPOINT: &str = "journal.checkpoint";

/// Writes an export: begin, push each record in order, finish.
#[derive(Debug)]
pub struct Export<W> {
    writer: W,
    count: u64,
    last: Option<RecordHash>,
}

impl<W: Write> Export<W> {
    /// An export without records yet.
    pub fn begin(writer: W) -> Self {
        Self { writer, count: 0, last: None }
    }

    /// Adds the next record.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn push(&mut self, record_cbor: &[u8]) -> io::Result<()> {
        self.writer.write_all(record_cbor)?;
        self.count += 1;
        self.last = Some(RecordHash::of(record_cbor));
        Ok(())
    }

    /// Adds the head `[count, hash, time, device key]` with its signature; gives the writer back.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self, signer: &dyn Signer, now_ms: u64) -> io::Result<W> {
        let hash = self.last.unwrap_or_else(|| RecordHash::genesis(signer.public()));
        self.writer.write_all(&closing_item(signer, self.count, &hash, now_ms))?;
        self.writer.flush()?;
        Ok(self.writer)
    }
}

/// The item that ends an export of `count` records whose last one has `hash`: the head and its signature.
#[must_use]
pub fn closing_item(signer: &dyn Signer, count: u64, hash: &RecordHash, now_ms: u64) -> Vec<u8> {
    let head = head_cbor(count, hash, now_ms, signer.public());
    let signature = signer.sign(Domain::Receipts, &head);
    cbor::to_vec(&Value::Array(vec![Value::Bytes(head), Value::Bytes(signature.to_bytes().to_vec())]))
}

pub(super) fn head_cbor(count: u64, hash: &RecordHash, time_ms: u64, device: &PublicKey) -> Vec<u8> {
    cbor::to_vec(&Value::Array(vec![
        Value::from(count),
        Value::Bytes(hash.as_bytes().to_vec()),
        Value::from(time_ms),
        Value::Bytes(device.to_bytes().to_vec()),
    ]))
}

/// What a verified export holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many records.
    pub count: u64,
    /// The sequence of the first, 0 when there is none.
    pub first: u64,
    /// The sequence of the last, 0 when there is none.
    pub last: u64,
    /// Whose records they are.
    pub device: PublicKey,
    /// When the head was signed, wall time in ms.
    pub head_time: u64,
}

/// Why an export does not verify. Records are named by their sequence, or by their place in the file, from 1 on, where they
/// cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file cannot be read.
    #[error("reading the export")]
    Read(#[source] io::Error),
    /// The file ends before its signed head.
    #[error("{}", cut_off(*.after))]
    Cut {
        /// The last record that could be read, 0 when none could.
        after: u64,
    },
    /// An item is neither a record nor the head.
    #[error("item {place} of the export is not a record: {reason}")]
    NotRecord {
        /// Its place in the file, from 1 on.
        place: u64,
        /// What is wrong.
        reason: String,
    },
    /// A record is missing, twice there, or in the wrong place.
    #[error("record {found} stands where record {expected} belongs")]
    Order {
        /// The sequence that belongs there.
        expected: u64,
        /// The sequence that stands there.
        found: u64,
    },
    /// A record is not the one that the next refers to.
    #[error("record {sequence} was changed, or record {next} refers to another one")]
    Chain {
        /// The record whose hash is wrong.
        sequence: u64,
        /// The record that refers to it.
        next: u64,
    },
    /// The first record is not the device's first, and no checkpoint vouches for it.
    #[error("the export begins with record {first}, and no checkpoint vouches for what was before")]
    Beginning {
        /// Its sequence.
        first: u64,
    },
    /// The head is malformed.
    #[error("the signed head is malformed")]
    Head,
    /// The head counts other records than are there.
    #[error("the signed head counts {head} records, the export has {found}")]
    Count {
        /// What the head says.
        head: u64,
        /// What is there.
        found: u64,
    },
    /// The head does not end with the last record.
    #[error("the signed head does not refer to record {last} as it stands here")]
    Last {
        /// The last record's sequence.
        last: u64,
    },
    /// The head is another device's.
    #[error("the export was signed by another device, {found}")]
    Device {
        /// That device.
        found: PublicKey,
    },
    /// The head's signature does not hold.
    #[error("the signature of the head does not hold")]
    Signature,
    /// Something stands behind the head.
    #[error("something stands behind the signed head")]
    Trailing,
}

fn cut_off(after: u64) -> String {
    match after {
        0 => "no whole record and no signed head: the export is cut off, or this is none".to_owned(),
        after => format!("the export is cut off behind record {after}, its signed head is missing"),
    }
}

/// Verifies an export: each record against the next, the first against the device or a checkpoint, the last against the
/// signed head. With `device`, the head has to be that device's.
///
/// # Errors
/// [`ExportError`] naming the record that was flipped, dropped, put elsewhere or cut off.
pub fn verify_export(reader: impl Read, device: Option<&PublicKey>) -> Result<Verified, ExportError> {
    let mut items = Items { reader: io::BufReader::new(reader) };
    let mut chain = Chain::default();
    let end = loop {
        match items.next(&chain)? {
            Item::Record(record, hash) => chain.push(&record, hash)?,
            Item::End(head, signature) => break (head, signature),
        }
    };
    items.end()?;
    chain.close(end, device)
}

enum Item {
    Record(Box<Record>, RecordHash),
    End(Vec<u8>, Vec<u8>),
}

/// Reads one item after the other, each with the exact bytes it came in.
struct Items<R> {
    reader: R,
}

/// Keeps what is read, up to [`cbor::ITEM_BYTES_MAX`].
struct Kept<'a, R> {
    reader: &'a mut R,
    bytes: Vec<u8>,
}

impl<R: Read> Read for Kept<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.len() + buffer.len() > cbor::ITEM_BYTES_MAX {
            return Err(io::Error::other("an item is too large"));
        }
        let got = self.reader.read(buffer)?;
        self.bytes.extend_from_slice(buffer.get(..got).unwrap_or_default());
        Ok(got)
    }
}

impl<R: io::BufRead> Items<R> {
    fn next(&mut self, chain: &Chain) -> Result<Item, ExportError> {
        let not_record = |reason: String| ExportError::NotRecord { place: chain.count + 1, reason };
        let cut = ExportError::Cut { after: chain.last_sequence() };
        if self.reader.fill_buf().map_err(ExportError::Read)?.is_empty() {
            return Err(cut);
        }
        let mut kept = Kept { reader: &mut self.reader, bytes: Vec::new() };
        let value: Value = match ciborium::de::from_reader_with_recursion_limit(&mut kept, cbor::DEPTH_MAX) {
            Ok(value) => value,
            Err(ciborium::de::Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(cut),
            Err(error) => return Err(not_record(error.to_string())),
        };
        let value = cbor::deterministic(value, &kept.bytes).map_err(|error| not_record(error.to_string()))?;
        match value {
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::Bytes(head), Value::Bytes(signature)]) => Ok(Item::End(head, signature)),
                Ok(_) | Err(_) => Err(ExportError::Head),
            },
            record => {
                let record = Record::from_value(record).map_err(|error: RecordError| not_record(error.to_string()))?;
                Ok(Item::Record(Box::new(record), RecordHash::of(&kept.bytes)))
            }
        }
    }

    fn end(&mut self) -> Result<(), ExportError> {
        let rest = self.reader.fill_buf().map_err(ExportError::Read)?;
        if rest.is_empty() { Ok(()) } else { Err(ExportError::Trailing) }
    }
}

/// What is known of the records so far.
#[derive(Default)]
struct Chain {
    count: u64,
    first: Option<(u64, RecordHash)>,
    last: Option<(u64, RecordHash)>,
    vouched: bool,
}

impl Chain {
    fn last_sequence(&self) -> u64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }

    fn push(&mut self, record: &Record, hash: RecordHash) -> Result<(), ExportError> {
        if let Some((sequence, last)) = self.last {
            let expected = sequence.saturating_add(1);
            if record.sequence != expected {
                return Err(ExportError::Order { expected, found: record.sequence });
            }
            if record.before != last {
                return Err(ExportError::Chain { sequence, next: expected });
            }
        }
        let (_, before) = *self.first.get_or_insert((record.sequence, record.before));
        let checkpoint = record.kind == RecordKind::Keeper && record.what.as_deref() == Some(CHECKPOINT);
        self.vouched |= checkpoint && record.value_digest.as_ref() == Some(before.as_bytes());
        self.last = Some((record.sequence, hash));
        self.count += 1;
        Ok(())
    }

    fn close(self, end: (Vec<u8>, Vec<u8>), device: Option<&PublicKey>) -> Result<Verified, ExportError> {
        let (head_bytes, signature) = end;
        let head = Head::read(&head_bytes).ok_or(ExportError::Head)?;
        if device.is_some_and(|device| *device != head.device) {
            return Err(ExportError::Device { found: head.device });
        }
        let signature: [u8; 64] = signature.try_into().map_err(|_| ExportError::Signature)?;
        let signature = Signature::from_bytes(&signature);
        head.device.verify(Domain::Receipts, &head_bytes, &signature).map_err(|_| ExportError::Signature)?;
        let genesis = RecordHash::genesis(&head.device);
        let (last, hash) = self.last.unwrap_or((0, genesis));
        let first = match self.first {
            None => 0,
            Some((1, before)) if before == genesis => 1,
            Some((first @ 2.., _)) if self.vouched => first,
            Some((first, _)) => return Err(ExportError::Beginning { first }),
        };
        if hash != head.hash {
            return Err(ExportError::Last { last });
        }
        if head.count != self.count {
            return Err(ExportError::Count { head: head.count, found: self.count });
        }
        Ok(Verified { count: self.count, first, last, device: head.device, head_time: head.time })
    }
}

struct Head {
    count: u64,
    hash: RecordHash,
    time: u64,
    device: PublicKey,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let parts = cbor::from_slice(bytes).ok()?.into_array().ok()?;
        let [count, hash, time, device] = <[Value; 4]>::try_from(parts).ok()?;
        let number = |value: Value| u64::try_from(value.into_integer().ok()?).ok();
        let hash: [u8; 32] = hash.into_bytes().ok()?.try_into().ok()?;
        let device: [u8; 32] = device.into_bytes().ok()?.try_into().ok()?;
        Some(Self {
            count: number(count)?,
            hash: RecordHash::from_bytes(hash),
            time: number(time)?,
            device: PublicKey::from_bytes(&device).ok()?,
        })
    }
}
