//! A sign that only pretends, for devices without hardware and for tests. It can be told to misbehave.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use super::{SignBackend, SignFault};
use crate::trouble::{Planned, Trouble, Troubles};

/// How a simulated sign misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignTrouble {
    /// It is not there.
    Missing,
    /// It is there, lights, and does not confirm.
    Unconfirmed,
    /// It goes out as soon as somebody looks.
    GoesOut,
    /// It never answers.
    Hangs,
}

impl Trouble for SignTrouble {
    const PART: &'static str = "sign";
    const TROUBLES: &'static [(&'static str, Self, &'static str)] = &[
        ("missing", Self::Missing, "there is no sign, so nothing is captured"),
        ("unconfirmed", Self::Unconfirmed, "it lights and does not confirm it"),
        ("goes-out", Self::GoesOut, "it goes out as soon as somebody looks, in the middle of a capture"),
        ("hang", Self::Hangs, "it never answers"),
    ];
}

/// A sign that only pretends; clones are the same sign.
#[derive(Clone)]
pub struct SimulatedSign {
    shared: Arc<Shared>,
}

struct Shared {
    changed: Box<dyn Fn(bool) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lit: bool,
    troubles: Troubles<SignTrouble>,
}

impl SimulatedSign {
    /// `changed` is called with `true` each time it goes on and with `false` each time it goes off.
    pub fn new(changed: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(Shared { changed: Box::new(changed), state: Mutex::default() }) }
    }

    /// From now on it misbehaves like this, or works.
    pub fn trouble(&self, trouble: Option<SignTrouble>) {
        self.with(|state| state.troubles = Troubles::only(trouble));
    }

    /// From now on it misbehaves like this, each in its time.
    pub fn rehearse(&self, planned: Vec<Planned<SignTrouble>>) {
        self.with(|state| state.troubles = Troubles::planned(planned));
    }

    /// Whether it is on.
    pub fn is_lit(&self) -> bool {
        self.with(|state| state.lit)
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn turn(&self, lit: bool) {
        if self.with(|state| std::mem::replace(&mut state.lit, lit)) != lit {
            (self.shared.changed)(lit);
        }
    }

    fn current(&self) -> Option<SignTrouble> {
        self.with(|state| state.troubles.first())
    }

    fn missing(&self) -> SignFault {
        SignFault::NotReady { sign: self.name(), reason: "it is told to be missing".to_owned() }
    }

    fn unconfirmed(&self, reason: &str) -> SignFault {
        SignFault::Unconfirmed { sign: self.name(), reason: reason.to_owned() }
    }

    fn answer(&self, answer: Result<(), SignFault>) -> BoxFuture<'static, Result<(), SignFault>> {
        match self.current() {
            Some(SignTrouble::Hangs) => futures_util::future::pending().boxed(),
            _ => ready(answer).boxed(),
        }
    }
}

impl SignBackend for SimulatedSign {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn simulated(&self) -> bool {
        true
    }

    fn light(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        let answer = match self.current() {
            Some(SignTrouble::Missing) => Err(self.missing()),
            Some(SignTrouble::Unconfirmed) => {
                self.turn(true);
                Err(self.unconfirmed("it is told not to confirm"))
            }
            Some(SignTrouble::GoesOut | SignTrouble::Hangs) | None => {
                self.turn(true);
                Ok(())
            }
        };
        self.answer(answer)
    }

    fn check(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        if matches!(self.current(), Some(SignTrouble::GoesOut | SignTrouble::Missing)) {
            self.turn(false);
        }
        let answer = if self.is_lit() { Ok(()) } else { Err(self.unconfirmed("it is dark")) };
        self.answer(answer)
    }

    fn ready(&self) -> Result<(), SignFault> {
        match self.current() {
            Some(SignTrouble::Missing) => Err(self.missing()),
            Some(SignTrouble::Unconfirmed | SignTrouble::GoesOut | SignTrouble::Hangs) | None => Ok(()),
        }
    }

    fn dark(&self) -> BoxFuture<'static, Result<(), SignFault>> {
        self.turn(false);
        self.answer(Ok(()))
    }
}
