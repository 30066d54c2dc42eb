//! skeleton
use std::time::Duration;
use bytes::Bytes;
use tokio::sync::{broadcast, watch};
use wire::{Challenge, Refused, Sealed};
use crate::{Caller, Command, Event, Parts, Reply, SettingsChange, Tree};
/// House.
#[derive(Clone)]
pub struct House;
/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link { /// direct
 Direct, /// reverse
 Reverse(u64), /// hub
 Hub }
/// 403.
#[derive(Debug)]
pub struct Forbidden(pub Refused);
/// Why a house did not grow.
#[derive(Debug, thiserror::Error)]
pub enum GrowError { /// store
 #[error("cannot read the state")] Store }
impl House {
    /// grow
    pub async fn grow(_parts: Parts) -> Result<Self, GrowError> { todo!() }
    /// challenge
    pub fn challenge(&self, _link: Link) -> Challenge { todo!() }
    /// answer
    pub async fn answer(&self, _link: Link, _body: Bytes) -> Result<Sealed, Forbidden> { todo!() }
    /// command
    pub async fn command(&self, _caller: Caller, _command: Command) -> Reply { todo!() }
    /// tree
    pub fn tree(&self) -> watch::Receiver<Tree> { todo!() }
    /// events
    pub fn events(&self) -> broadcast::Receiver<Event> { todo!() }
    /// settings
    pub async fn settings_changed(&self, _change: SettingsChange) { todo!() }
    /// drain
    pub async fn drain(&self, _limit: Duration) { todo!() }
}
