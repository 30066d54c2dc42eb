//! Challenges of every link: issued without memory, spent once (PROTOCOL.md section 3).
//!
//! The gate owns one [`Challenges`]. A challenge is an 8-byte head and 16 bytes of HMAC over link and head under a key drawn at
//! start-up, so strangers can ask for as many as they like. Only what an accepted request spent is remembered, until it would
//! have expired anyway; a restart draws a new key and so forgets all.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use handlers::{BootTime, Chance};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use wire::{Challenge, Refused};

use crate::Link;

/// How long a challenge may be used after its issue (PROTOCOL.md section 3).
pub(crate) const LIFE_MS: u64 = 30_000;

/// Claims come from strangers: what they spend is counted apart, so that they cannot fill the owner's memory.
const SPENT_CLAIMS_MAX: usize = 1_024;

/// Below the time of issue the head counts, so that no two heads are equal and their order is the order of issue.
const COUNTER_BITS: u32 = 24;

/// Versioned domain, so that this MAC can be taken for nothing else made under any key of ours.
const DOMAIN: &[u8] = b"latchkey-challenge/1\0";

/// Who spends a challenge; each has a memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spender {
    /// The owner, or a key on record.
    Known,
    /// Somebody who claims the device.
    Claimant,
}

/// The order of issue: larger is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Issue(u64);

impl Issue {
    fn at_ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }
}

/// A challenge whose MAC and age hold, not yet spent.
#[derive(Debug)]
#[must_use]
pub(crate) struct Fresh {
    issue: Issue,
}

impl Fresh {
    /// When it was issued, as an order.
    pub(crate) fn issue(&self) -> Issue {
        self.issue
    }
}

/// The challenges of one start of the device.
pub(crate) struct Challenges {
    mac: Hmac<Sha256>,
    /// Hides how long the device runs from those who only ask for challenges.
    offset: u64,
    last: AtomicU64,
    /// Issues up to this one are forgotten: a change of owner raises it.
    floor: AtomicU64,
    spent: Mutex<Spent>,
    spent_by_claims: Mutex<Spent>,
}

/// What was spent, as long as it could be used again.
#[derive(Debug, Default)]
struct Spent {
    issues: BTreeSet<Issue>,
    /// What was issued before this moment is remembered no more, and so cannot be spent either: a request whose age was found
    /// good just before may come here late.
    horizon_ms: u64,
}

impl std::fmt::Debug for Challenges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Challenges").finish_non_exhaustive()
    }
}

impl Challenges {
    pub(crate) fn new(chance: &dyn Chance) -> Self {
        let mut key = zeroize::Zeroizing::new([0_u8; 32]);
        let mut offset = [0_u8; 8];
        chance.fill(key.as_mut());
        chance.fill(&mut offset);
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mac = Hmac::<Sha256>::new_from_slice(key.as_ref()).expect("HMAC takes keys of every length");
        Self {
            mac,
            offset: u64::from_be_bytes(offset),
            last: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            spent: Mutex::default(),
            spent_by_claims: Mutex::default(),
        }
    }

    pub(crate) fn issue(&self, link: Link, now: BootTime) -> Challenge {
        let head = self.next(now).wrapping_add(self.offset).to_be_bytes();
        let mut bytes = [0_u8; 24];
        let (front, back) = bytes.split_at_mut(8);
        front.copy_from_slice(&head);
        back.copy_from_slice(&self.seal(link, head));
        Challenge::from_bytes(bytes)
    }

    /// Whether the challenge is ours, for this link, young enough, and not of a former ownership. Spends nothing.
    pub(crate) fn check(&self, challenge: &Challenge, link: Link, now: BootTime) -> Result<Fresh, Refused> {
        let bytes = challenge.as_bytes();
        let (front, back) = bytes.split_at(8);
        let mut head = [0_u8; 8];
        head.copy_from_slice(front);
        if !bool::from(self.seal(link, head).as_slice().ct_eq(back)) {
            return Err(Refused::Challenge);
        }
        let issue = Issue(u64::from_be_bytes(head).wrapping_sub(self.offset));
        let age_ms = now.as_ms().saturating_sub(issue.at_ms());
        if age_ms > LIFE_MS || issue.0 <= self.floor.load(Ordering::Acquire) {
            return Err(Refused::Expired);
        }
        Ok(Fresh { issue })
    }

    /// Spends a fresh challenge; of two at once, one wins.
    pub(crate) fn spend(&self, fresh: Fresh, by: Spender, now: BootTime) -> Result<Issue, Refused> {
        let set = match by {
            Spender::Known => &self.spent,
            Spender::Claimant => &self.spent_by_claims,
        };
        let mut spent = set.lock().unwrap_or_else(PoisonError::into_inner);
        spent.horizon_ms = spent.horizon_ms.max(now.as_ms().saturating_sub(LIFE_MS));
        let horizon_ms = spent.horizon_ms;
        while spent.issues.first().is_some_and(|oldest| oldest.at_ms() < horizon_ms) {
            spent.issues.pop_first();
        }
        if fresh.issue.at_ms() < horizon_ms {
            return Err(Refused::Expired);
        }
        if by == Spender::Claimant && spent.issues.len() >= SPENT_CLAIMS_MAX {
            return Err(Refused::Full);
        }
        if spent.issues.insert(fresh.issue) { Ok(fresh.issue) } else { Err(Refused::Spent) }
    }

    /// Forgets every challenge issued so far.
    pub(crate) fn forget_all(&self) {
        self.floor.store(self.last.load(Ordering::Acquire), Ordering::Release);
    }

    /// The order of the latest issue: what comes later was issued after this call.
    pub(crate) fn latest(&self) -> Issue {
        Issue(self.last.load(Ordering::Acquire))
    }

    fn next(&self, now: BootTime) -> u64 {
        let floor = now.as_ms() << COUNTER_BITS;
        let step = |last: u64| floor.max(last.wrapping_add(1));
        let before = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(step(last)));
        step(before.unwrap_or_default())
    }

    fn seal(&self, link: Link, head: [u8; 8]) -> [u8; 16] {
        let mut mac = self.mac.clone();
        mac.update(DOMAIN);
        match link {
            Link::Direct => mac.update(&[0]),
            Link::Hub => mac.update(&[1]),
            Link::Reverse(connection) => {
                mac.update(&[2]);
                mac.update(&connection.to_be_bytes());
            }
        }
        mac.update(&head);
        let full = mac.finalize().into_bytes();
        let mut short = [0_u8; 16];
        short.copy_from_slice(full.split_at(16).0);
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Counting;

    fn at(ms: u64) -> BootTime {
        BootTime::from_ms(ms)
    }

    #[test]
    fn a_challenge_serves_once_on_its_link_while_it_lives() {
        let challenges = Challenges::new(&Counting::default());
        let one = challenges.issue(Link::Direct, at(5));
        assert!(challenges.check(&one, Link::Direct, at(5)).is_ok());
        assert!(challenges.check(&one, Link::Direct, at(5 + LIFE_MS)).is_ok());
        assert_eq!(challenges.check(&one, Link::Direct, at(6 + LIFE_MS)).unwrap_err(), Refused::Expired);
        assert_eq!(challenges.check(&one, Link::Hub, at(5)).unwrap_err(), Refused::Challenge);
        assert_eq!(challenges.check(&one, Link::Reverse(0), at(5)).unwrap_err(), Refused::Challenge);
        let first = challenges.check(&one, Link::Direct, at(5)).unwrap();
        let second = challenges.check(&one, Link::Direct, at(5)).unwrap();
        assert!(challenges.spend(first, Spender::Known, at(6)).is_ok());
        assert_eq!(challenges.spend(second, Spender::Known, at(6)).unwrap_err(), Refused::Spent);
    }

    #[test]
    fn a_challenge_of_another_start_or_with_a_flipped_bit_is_refused() {
        let challenges = Challenges::new(&Counting::default());
        let one = challenges.issue(Link::Direct, at(5));
        assert!(challenges.check(&one, Link::Direct, at(5)).is_ok());
        for bit in 0..192 {
            let mut bytes = *one.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped = Challenge::from_bytes(bytes);
            assert_eq!(challenges.check(&flipped, Link::Direct, at(5)).unwrap_err(), Refused::Challenge, "bit {bit}");
        }
        let chance = Counting::default();
        chance.fill(&mut [0; 7]);
        assert_eq!(Challenges::new(&chance).check(&one, Link::Direct, at(5)).unwrap_err(), Refused::Challenge);
    }

    #[test]
    fn spent_challenges_are_remembered_only_while_they_could_be_used_again() {
        let challenges = Challenges::new(&Counting::default());
        for ms in 0..10 {
            let one = challenges.issue(Link::Direct, at(ms));
            let fresh = challenges.check(&one, Link::Direct, at(ms)).unwrap();
            challenges.spend(fresh, Spender::Known, at(ms)).unwrap();
        }
        assert_eq!(challenges.spent.lock().unwrap().issues.len(), 10);
        let late = at(10 + LIFE_MS);
        let one = challenges.issue(Link::Direct, late);
        let fresh = challenges.check(&one, Link::Direct, late).unwrap();
        challenges.spend(fresh, Spender::Known, late).unwrap();
        assert_eq!(challenges.spent.lock().unwrap().issues.len(), 1);
    }

    #[test]
    fn a_spent_challenge_cannot_be_spent_again_by_a_request_that_read_the_clock_before_it_was_forgotten() {
        let challenges = Challenges::new(&Counting::default());
        let one = challenges.issue(Link::Direct, at(0));
        let check = || challenges.check(&one, Link::Direct, at(LIFE_MS)).unwrap();
        let (first, slow) = (check(), check());
        assert!(challenges.spend(first, Spender::Known, at(LIFE_MS)).is_ok());
        let later = challenges.issue(Link::Direct, at(LIFE_MS + 1));
        let later = challenges.check(&later, Link::Direct, at(LIFE_MS + 1)).unwrap();
        assert!(challenges.spend(later, Spender::Known, at(LIFE_MS + 1)).is_ok());
        assert_eq!(challenges.spend(slow, Spender::Known, at(LIFE_MS)).unwrap_err(), Refused::Expired);
    }

    #[test]
    fn claims_cannot_fill_the_memory_of_the_owner() {
        let challenges = Challenges::new(&Counting::default());
        let spend = |by| {
            let one = challenges.issue(Link::Direct, at(1));
            let fresh = challenges.check(&one, Link::Direct, at(1)).unwrap();
            challenges.spend(fresh, by, at(1))
        };
        for _ in 0..SPENT_CLAIMS_MAX {
            spend(Spender::Claimant).unwrap();
        }
        assert_eq!(spend(Spender::Claimant).unwrap_err(), Refused::Full);
        for _ in 0..=SPENT_CLAIMS_MAX {
            spend(Spender::Known).unwrap();
        }
    }

    #[test]
    fn issues_are_ordered_also_within_a_millisecond_and_when_time_stands_still() {
        let challenges = Challenges::new(&Counting::default());
        let order = |challenge: &Challenge| challenges.check(challenge, Link::Direct, at(9)).unwrap().issue();
        let (a, b) = (challenges.issue(Link::Direct, at(9)), challenges.issue(Link::Direct, at(9)));
        let mark = challenges.latest();
        let c = challenges.issue(Link::Direct, at(8));
        assert!(order(&a) < order(&b) && order(&b) <= mark && mark < order(&c));
        challenges.forget_all();
        assert_eq!(challenges.check(&c, Link::Direct, at(9)).unwrap_err(), Refused::Expired);
    }
}
