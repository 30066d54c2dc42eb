//! skeleton
use std::path::Path;
use wire::{PublicKey, Signer};
use crate::{Command, Reply};
/// Vault
pub trait Vault: Send {}
/// Sqlite
pub struct SqliteVault;
/// Opened
pub struct Opened { /// the vault
 pub vault: SqliteVault, /// what the keeper should know
 pub notices: Vec<String> }
/// Why a vault cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VaultError { /// full
 #[error("the disk is full")] Full }
impl Vault for SqliteVault {}
impl SqliteVault { /// open
 pub fn open(_state_dir: &Path, _device: &PublicKey, _now_wall_ms: u64) -> Result<Opened, VaultError> { todo!() } }
/// Memory
#[derive(Default)]
pub struct MemoryVault;
impl Vault for MemoryVault {}
/// Reader
pub struct Reader;
impl Reader {
 /// open
 pub fn open(_state_dir: &Path, _device: &PublicKey) -> Result<Self, VaultError> { todo!() }
 /// command
 pub fn command(&self, _signer: &dyn Signer, _now_wall_ms: u64, _command: Command) -> Reply { todo!() }
}
