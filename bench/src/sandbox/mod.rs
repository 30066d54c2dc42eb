//! What a handler's own process, and the way to it, add to the price of a call: `make bench`, second table.
//!
//! Baselines of the same run: bare wasmtime in this process for the child's call, the child's call for the whole way through the house,
//! signed `device.health` for a signed call of a handler, and a handler alone for a handler with a looping neighbour.

mod bare;
mod drops;
mod inside;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use actors::Seal;
use actors::store::GrantRow;
use config::digest::Digest;
use wire::CapabilityName;

pub(crate) use report::run;

/// Gives back what it was given.
pub(crate) const ECHO: &str = include_str!("echo.wat");
/// Never ends by itself.
const LOOP: &str = include_str!("loop.wat");
/// What every handler here is given.
const ARGUMENTS: &[u8] = br#"{"level":40}"#;

/// A file for the handlers folder, with its manifest.
#[derive(Debug, Clone)]
struct Drop {
    name: CapabilityName,
    text: String,
    manifest: String,
}

impl Drop {
    /// A handler of effect `read` that runs at any time, so that a call costs what a call of `device.health` costs beside it.
    fn new(action: &str, text: &str, timeout: &str) -> anyhow::Result<Self> {
        let manifest = format!(
            "description = \"measured\"\neffect = \"read\"\nactivation = \"any\"\ntimeout = \"{timeout}\"\n\n[arguments]\ntype = \"object\"\n\
             properties.level = {{ type = \"integer\", minimum = 0, maximum = 100 }}\n"
        );
        Ok(Self { name: format!("custom.bench.{action}").parse()?, text: text.to_owned(), manifest })
    }

    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.wat", self.name))
    }

    /// The manifest first, so that the file never stands without it; the file appears whole.
    fn place(&self, folder: &Path) -> anyhow::Result<()> {
        fs::write(folder.join(format!("{}.toml", self.name)), &self.manifest)?;
        let beside = folder.join(format!(".{}.part", self.name));
        fs::write(&beside, &self.text)?;
        Ok(fs::rename(beside, self.path(folder))?)
    }

    /// The grant that a keeper would give to exactly these bytes.
    fn grant(&self) -> GrantRow {
        let seal =
            Seal { file: Digest::of(self.text.as_bytes()), manifest: Some(Digest::of(self.manifest.as_bytes())) };
        GrantRow { since_ms: 0, seal: Some(seal) }
    }
}
