//! What a change of the handlers folder does to grants and to the device's memory of the folder: rules over [`Durable`], without
//! clock and without waiting.
//!
//! The state actor calls [`follow`] on a copy, writes the copy together with its records, and only then lets it be seen. A grant of a
//! handler is for one content; it ends when that content is neither in service nor on its way there, and comes back only by the
//! keeper's word, also when the same content comes back.

use std::collections::{BTreeMap, BTreeSet};

use config::digest::Digest;
use wire::text::visible;
use wire::{CapabilityName, GrantName};

use crate::RefusedHandler;
use crate::catalogue::{Folder, Offer};
use crate::store::{Durable, Seal, Withdrawn, WithdrawnBy};

/// Handlers that are remembered: a registration has no room for the declarations of more.
const KNOWN_MAX: usize = 4_096;
/// Refusals that are remembered, and so recorded: a folder full of rubbish must not fill journal and state.
const REFUSED_MAX: usize = 1_024;
/// Withdrawn grants that are remembered, newest last: more than a keeper would go through.
const WITHDRAWN_MAX: usize = 256;
/// A file's name in a record.
const FILE_BYTES_MAX: usize = 200;

/// What a look at the folder changed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Followed {
    /// What the journal says about it.
    pub(crate) records: Vec<String>,
    /// The grants that went off, each with the content that had been granted.
    pub(crate) withdrawn: Vec<(GrantName, Option<Seal>)>,
}

/// Takes over what the device offers now. Before anybody looked into the folder nothing changes.
pub(crate) fn follow(durable: &mut Durable, offer: &Offer, now_ms: u64) -> Followed {
    let mut followed = Followed::default();
    if let Some(folder) = &offer.folder {
        remember(durable, offer, folder, &mut followed.records);
        refusals(durable, folder, &mut followed.records);
        withdraw(durable, offer, folder, now_ms, &mut followed);
    }
    followed
}

/// Each handler's coming, change and going is told once, also over a restart of the device.
fn remember(durable: &mut Durable, offer: &Offer, folder: &Folder, records: &mut Vec<String>) {
    let known = std::mem::take(&mut durable.folder.known);
    let mut next = BTreeMap::<CapabilityName, Seal>::new();
    let installed = offer.handlers().map(|(name, _, custom)| (name, &custom.seal, true));
    let pending = folder.pending.iter().map(|(name, seal)| (name, seal, false));
    for (name, seal, serves) in installed.chain(pending) {
        if next.contains_key(name) {
            continue;
        }
        match known.get(name) {
            Some(before) if before == seal => {}
            Some(_) => records.push(format!("handler.changed {name}")),
            // What is only on its way is told when it is there, or refused.
            None if !serves || next.len() >= KNOWN_MAX => continue,
            None => records.push(format!("handler.installed {name}")),
        }
        next.insert(name.clone(), *seal);
    }
    let refused: BTreeSet<_> = folder.refused.iter().filter_map(|refused| refused.name.as_ref()).collect();
    let gone = known.keys().filter(|name| !next.contains_key(*name) && !refused.contains(name));
    records.extend(gone.map(|name| format!("handler.removed {name}")));
    durable.folder.known = next;
}

fn refusals(durable: &mut Durable, folder: &Folder, records: &mut Vec<String>) {
    let told = std::mem::take(&mut durable.folder.refused);
    let mut next = BTreeSet::new();
    for refused in &folder.refused {
        let digest = Digest::of(format!("{}\0{}", refused.file, refused.why).as_bytes());
        if next.len() < REFUSED_MAX && next.insert(digest) && !told.contains(&digest) {
            records.push(format!("handler.refused {}", cut(&visible(&refused.file))));
        }
    }
    durable.folder.refused = next;
}

fn withdraw(durable: &mut Durable, offer: &Offer, folder: &Folder, now_ms: u64, followed: &mut Followed) {
    let mut lost = Vec::new();
    for (grant, row) in &durable.grants {
        let Ok(name) = grant.as_str().parse::<CapabilityName>() else { continue };
        if row.seal.is_none() && !name.is_custom() {
            continue;
        }
        let serves = offer.capabilities.get(&name);
        let coming = folder.pending.get(&name);
        // Refused though no byte changed (a folder of its reach is not there yet): it does not run, and keeps its grant.
        let held_back = |refused: &RefusedHandler| refused.name.as_ref() == Some(&name) && refused.seal == row.seal;
        let holds = serves.is_some_and(|one| one.seal() == row.seal.as_ref())
            || coming.is_some_and(|seal| Some(seal) == row.seal.as_ref())
            || (row.seal.is_some() && folder.refused.iter().any(held_back));
        if !holds {
            let now = serves.and_then(|one| one.seal()).or(coming);
            let refused = folder.refused.iter().any(|refused| refused.name.as_ref() == Some(&name));
            lost.push((grant.clone(), row.seal, what_happened(row.seal.as_ref(), now, refused)));
        }
    }
    for (grant, seal, by) in lost {
        durable.grants.remove(&grant);
        followed.records.push(format!("grant.withdrawn {grant}"));
        followed.withdrawn.push((grant.clone(), seal));
        durable.withdrawn.insert(grant, Withdrawn { by, at_ms: now_ms });
    }
    for _ in WITHDRAWN_MAX..durable.withdrawn.len() {
        let oldest =
            durable.withdrawn.iter().min_by_key(|(_, withdrawn)| withdrawn.at_ms).map(|(name, _)| name.clone());
        oldest.and_then(|name| durable.withdrawn.remove(&name));
    }
}

fn what_happened(granted: Option<&Seal>, now: Option<&Seal>, refused: bool) -> WithdrawnBy {
    match (granted, now) {
        (Some(granted), Some(now)) => match (granted.file == now.file, granted.manifest == now.manifest) {
            (true, false) => WithdrawnBy::Manifest,
            (false, false) => WithdrawnBy::Both,
            (false, true) | (true, true) => WithdrawnBy::File,
        },
        (None, Some(_)) => WithdrawnBy::File,
        (_, None) if refused => WithdrawnBy::Refused,
        (_, None) => WithdrawnBy::Removed,
    }
}

/// What changed since a grant, for the keeper, with what to do about it. None: its file is gone, and nothing waits.
pub(crate) fn changed(offer: &Offer, name: &CapabilityName, durable: &Durable) -> Option<String> {
    let grant = name.grant();
    let withdrawn = durable.withdrawn.get(&grant)?;
    let folder = offer.folder.as_ref()?;
    let what = in_words(withdrawn.by);
    if offer.handler(&grant).is_some() {
        Some(format!("{what} since you granted it, so it is off; to grant it again: latchkeyd grant {name}"))
    } else if folder.pending.contains_key(name) {
        Some(format!("{what} since you granted it, so it is off; once it is ready: latchkeyd grant {name}"))
    } else if folder.refused.iter().any(|refused| refused.name.as_ref() == Some(name)) {
        Some("its file is refused now, so it is off; see why: latchkeyd handlers".to_owned())
    } else {
        None
    }
}

/// The sentences about all handlers that wait for the keeper.
pub(crate) fn waiting(offer: &Offer, durable: &Durable) -> Vec<String> {
    let names = durable.withdrawn.keys().filter_map(|grant| grant.as_str().parse::<CapabilityName>().ok());
    names.filter_map(|name| changed(offer, &name, durable).map(|what| format!("{name}: {what}"))).collect()
}

/// The same while nobody looks into the folder: what is on disk now is not known.
pub(crate) fn waiting_unseen(durable: &Durable) -> Vec<String> {
    let told = durable.withdrawn.iter().filter(|(_, withdrawn)| withdrawn.by != WithdrawnBy::Removed);
    let told = told.map(|(grant, withdrawn)| {
        let what = in_words(withdrawn.by);
        format!("{grant}: {what} since you granted it, so it is off; to grant it again: latchkeyd grant {grant}")
    });
    told.collect()
}

fn in_words(by: WithdrawnBy) -> &'static str {
    match by {
        WithdrawnBy::File => "its file was changed",
        WithdrawnBy::Manifest => "its .toml was changed",
        WithdrawnBy::Both => "its file and its .toml were changed",
        WithdrawnBy::Removed => "its file was removed and put back",
        WithdrawnBy::Refused => "its file was refused",
    }
}

fn cut(text: &str) -> &str {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= FILE_BYTES_MAX).last();
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
