//! The handlers folder as the house follows it: what is on disk is what is in service.
//!
//! Called through [`House::folder`] by whoever watches the folder, each time with the whole of it. Owns nothing that lasts: what is
//! offered lies in the catalogue, grants and records go through the state actor. Refuses names that are taken, declarations that
//! break their rules, and what does not fit a registration any more.

use std::sync::Arc;

use handlers::wasm::log::HandlerLog;
use serde::{Deserialize, Serialize};
use wire::CapabilityName;

use crate::House;
use crate::parts::Installed;
use crate::store::Seal;

/// What a capability has beyond its declaration when it is a file of the keeper.
#[derive(Debug, Clone)]
pub struct Custom {
    /// Its content; a grant is for this and nothing else.
    pub seal: Seal,
    /// What the keeper should see of it.
    pub about: HandlerAbout,
    /// What it logs.
    pub log: Arc<HandlerLog>,
}

/// What the keeper should see of a handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerAbout {
    /// The file, as it is named in the folder.
    pub file: String,
    /// How much memory it may have.
    pub memory_bytes: u64,
    /// How large its result may be.
    pub result_bytes_max: u64,
    /// The folders and origins that it reaches.
    pub reach: Vec<String>,
}

/// The whole of the handlers folder at one moment.
#[derive(Clone, Default)]
pub struct FolderNow {
    /// What can serve.
    pub installed: Vec<Installed>,
    /// What is there and not yet compiled.
    pub pending: Vec<(CapabilityName, Seal)>,
    /// What is there and not taken.
    pub refused: Vec<RefusedHandler>,
    /// Why what is pending cannot be compiled now, in a sentence; none while it is being compiled.
    pub held: Option<String>,
    /// What is wrong with the folder itself, or with this machine, in a sentence.
    pub notice: Option<String>,
}

/// A file that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHandler {
    /// The file, as it is named in the folder; escaped.
    pub file: String,
    /// The capability that it would be, if its name says one.
    pub name: Option<CapabilityName>,
    /// Why, in a sentence.
    pub why: String,
    /// Its content, if it could be read: what is refused for the moment keeps the grant of exactly that content.
    pub seal: Option<Seal>,
}

impl House {
    /// Takes over the handlers folder as it is now. The same again changes nothing.
    ///
    /// What is new serves at once, what changed or went leaves service at once with its grant, and calls that run end as they would
    /// have. Gives what the house itself does not take.
    pub async fn folder(&self, now: FolderNow) -> Vec<RefusedHandler> {
        crate::catalogue::follow(&self.inner, now).await
    }
}
