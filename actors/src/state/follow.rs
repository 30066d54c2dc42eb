//! The state actor's part in a change of the handlers folder: grants go off, the journal is told, and calls under way keep what they
//! began with.

use std::sync::Arc;

use handlers::BootTime;
use wire::GrantName;

use super::{Holder, now};
use crate::command::Event;
use crate::journal::Draft;
use crate::seals;
use crate::store::{Deadline, Durable, Effect, Seal};

/// How long a call may still run on a content that left service: the longest time-out, the time to stop, and some more.
const RETIRED_KEPT_MS: u64 = 90 * 1_000;
/// Records that wait for a disk that is full; what happens beyond that goes untold.
const UNWRITTEN_MAX: usize = 4_096;

/// A content that left service with its grant. A permit for it holds on for the calls that had begun.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Retired {
    pub(crate) grant: GrantName,
    pub(crate) seal: Seal,
    until: Deadline,
}

impl Retired {
    pub(crate) fn new(grant: GrantName, seal: Seal, until: Deadline) -> Self {
        Self { grant, seal, until }
    }

    pub(crate) fn over(&self, now: BootTime) -> bool {
        self.until.reached(now)
    }
}

impl Holder {
    /// Takes over what the catalogue offers now.
    ///
    /// When no record can be written the grants go off all the same, and the records follow once they can: that direction needs no
    /// proof.
    pub(super) async fn follow(&mut self) {
        let now = now(&self.parts);
        let mut next = Durable::clone(&self.seen.durable);
        let followed = seals::follow(&mut next, &self.parts.catalogue.now(), now.wall_ms);
        if next == *self.seen.durable {
            return;
        }
        let retired = followed
            .withdrawn
            .iter()
            .filter_map(|(grant, seal)| Some(Retired::new(grant.clone(), (*seal)?, now.after(RETIRED_KEPT_MS))));
        let retired: Vec<_> = self.seen.retired.iter().cloned().chain(retired).collect();
        let draft = |what: &String| Draft::keeper(what.clone(), next.ownership, now.wall_ms);
        let drafts: Vec<_> = followed.records.iter().map(draft).collect();
        if !self.write(next.clone(), &drafts).await {
            if self.unsure {
                return;
            }
            self.seen.durable = Arc::new(next);
            let room = UNWRITTEN_MAX.saturating_sub(self.unwritten.len());
            self.unwritten.extend(drafts.into_iter().take(room));
        }
        self.seen.retired = Arc::new(retired);
        self.show();
        for (grant, _) in followed.withdrawn {
            self.tell(Event::Grant { name: grant.to_string(), on: false });
        }
    }

    /// Time passes: what a full disk held up is tried again, and what no call can stand on any more is forgotten.
    pub(super) async fn follow_up(&mut self) {
        if !self.unwritten.is_empty() && self.parts.store.writable() {
            let drafts = std::mem::take(&mut self.unwritten);
            if !self.write(Durable::clone(&self.seen.durable), &drafts).await {
                self.unwritten = drafts;
            }
        }
        let boot = self.parts.clock.boot();
        if self.seen.retired.iter().any(|retired| retired.over(boot)) {
            self.forget_retired(|retired| retired.over(boot));
            self.show();
        }
    }

    /// Forgets retired contents; false when there were none such.
    pub(super) fn forget_retired(&mut self, which: impl Fn(&Retired) -> bool) -> bool {
        let kept: Vec<_> = self.seen.retired.iter().filter(|retired| !which(retired)).cloned().collect();
        let forgot = kept.len() < self.seen.retired.len();
        self.seen.retired = Arc::new(kept);
        forgot
    }

    /// Writes the next state with its records; without a record it is only kept, and written with the next one.
    async fn write(&mut self, next: Durable, drafts: &[Draft]) -> bool {
        let Some((first, rest)) = drafts.split_first() else {
            self.seen.durable = Arc::new(next);
            return true;
        };
        let rest = rest.iter().map(|draft| Effect::Also(Box::new(draft.clone()))).collect();
        self.commit(next, first.clone(), rest).await.is_ok()
    }
}
