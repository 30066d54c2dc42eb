//! Landlock: of the file system the folders of the reach stay, of the network nothing.
//!
//! Needed is what every Landlock has (files and folders, Linux 5.13). What newer ones can close besides is closed where they are: moving
//! between folders, truncating, devices' ioctl, TCP, abstract sockets and signals to others. The filter of system calls closes those too,
//! so that an older kernel lacks the second lock only.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::{ConfineError, Reachable};

/// The newest that was tried: what later ones may close could break what works today.
const NEWEST_TRIED: ABI = ABI::V7;

/// Closes everything but `folders`. The version of the kernel's interface; none where there is no Landlock.
pub(super) fn close(folders: &[Reachable]) -> Result<Option<u32>, ConfineError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_TRIED))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST_TRIED)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST_TRIED)))
        .and_then(Ruleset::create)
        .map_err(ConfineError::Landlock)?;
    for Reachable { folder, write } in folders {
        rules = rules.add_rule(PathBeneath::new(folder, rights(*write))).map_err(ConfineError::Landlock)?;
    }
    let status = rules.restrict_self().map_err(ConfineError::Landlock)?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) | (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => None,
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available { effective_abi, kernel_abi },
        ) => kernel_abi.and_then(|abi| u32::try_from(abi).ok()).or(Some(effective_abi as u32)),
    })
}

/// Never running a file, a device, a socket, a pipe or a link, nor a move to another folder.
fn rights(write: bool) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let change = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir;
    if write { read | change } else { read }
}
