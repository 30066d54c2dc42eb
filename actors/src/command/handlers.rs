//! The handlers folder as people see it.

use serde::{Deserialize, Serialize};

/// One file of the handlers folder. What a refused or still compiling file would be is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerLine {
    /// The file, as it is named in the folder; characters that could deceive are escaped.
    pub file: String,
    /// The capability, if the file's name says one.
    pub name: Option<String>,
    /// How it stands.
    pub state: HandlerState,
    /// Whether it is granted.
    pub on: bool,
    /// SHA-256 of the file.
    pub file_sha256: Option<String>,
    /// SHA-256 of its `.toml`.
    pub manifest_sha256: Option<String>,
    /// What it does.
    pub description: Option<String>,
    /// `read` or `change`.
    pub effect: Option<String>,
    /// `any` or `active`.
    pub activation: Option<String>,
    /// Whether it needs the in-use sign.
    pub captures: Option<bool>,
    /// When its work is cut off.
    pub timeout_ms: Option<u64>,
    /// How much memory it may have.
    pub memory_bytes: Option<u64>,
    /// How large its result may be.
    pub result_bytes_max: Option<u64>,
    /// What arguments it takes, as a registration declares it.
    pub arguments: Option<serde_json::Value>,
    /// The folders and origins that it reaches.
    pub reach: Vec<String>,
    /// Why it is refused.
    pub why: Option<String>,
    /// What changed since it was granted, and the command that grants it again.
    pub changed: Option<String>,
    /// Its last error.
    pub last_error: Option<String>,
    /// Calls that ended.
    pub calls: u64,
    /// Restarts since it is in service.
    pub restarts: u32,
}

/// How a file of the handlers folder stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerState {
    /// It would run now, if it is granted.
    Ready,
    /// It died and starts again.
    Restarting,
    /// It died too often and was given up.
    Unavailable,
    /// It is being compiled.
    Compiling,
    /// It cannot be compiled now, because of the folder or the machine; the line says why.
    Waiting,
    /// It is not taken; the line says why.
    Refused,
}
