//! What is written down: drafts that the store turns into records of the chain.
//!
//! A draft knows what happened; the store's thread gives it its place in the chain, its salt and its hash. Arguments and values
//! enter a record only as digests, so a picture or a sound never touches the disk.

use std::sync::Arc;

use wire::record::RecordKind;
use wire::{Id, Object, RecordHash};

/// A record in the making.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: RecordKind,
    pub(crate) ownership: u64,
    pub(crate) id: Option<Id>,
    pub(crate) what: String,
    pub(crate) arguments: Option<Object>,
    pub(crate) received_at: Option<u64>,
    pub(crate) ended_at: Option<u64>,
    pub(crate) outcome: Option<&'static str>,
    pub(crate) value: Value,
    pub(crate) sign_on_at: Option<u64>,
    pub(crate) sign_off_at: Option<u64>,
}

/// What a record's value digest stands for.
#[derive(Debug, Clone, Default)]
pub(crate) enum Value {
    #[default]
    None,
    /// A result, digested under the record's salt.
    Object(Arc<Object>),
    /// The hash of the last pruned record, in a checkpoint.
    Hash(RecordHash),
}

impl Draft {
    /// A keeper's act, or a thing the house did by itself, done now.
    pub(crate) fn keeper(what: impl Into<String>, ownership: u64, now_ms: u64) -> Self {
        Self::plain(RecordKind::Keeper, what, ownership, now_ms)
    }

    /// A lighting of the sign that no call was the reason for.
    pub(crate) fn sign(what: impl Into<String>, ownership: u64, on_at: u64, off_at: u64) -> Self {
        let plain = Self::plain(RecordKind::Sign, what, ownership, off_at);
        Self {
            received_at: None,
            ended_at: None,
            outcome: None,
            sign_on_at: Some(on_at),
            sign_off_at: Some(off_at),
            ..plain
        }
    }

    /// An ownership change.
    pub(crate) fn change(what: impl Into<String>, ownership: u64, id: Option<Id>, now_ms: u64) -> Self {
        Self { id, ..Self::plain(RecordKind::Change, what, ownership, now_ms) }
    }

    fn plain(kind: RecordKind, what: impl Into<String>, ownership: u64, now_ms: u64) -> Self {
        Self {
            kind,
            ownership,
            id: None,
            what: what.into(),
            arguments: None,
            received_at: Some(now_ms),
            ended_at: Some(now_ms),
            outcome: Some("ok"),
            value: Value::None,
            sign_on_at: None,
            sign_off_at: None,
        }
    }
}
