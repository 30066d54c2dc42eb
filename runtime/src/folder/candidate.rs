//! From a file of the handlers folder to a capability that can serve.
//!
//! The steps in their order, for the folder service and for the author's tools alike, so that what `latchkeyd handler check` says is
//! what the device does. Refuses, each with one sentence for the keeper: a reach that touches what is protected, what is no handler,
//! and a description that breaks its rules.

use std::sync::Arc;

use actors::{Custom, HandlerAbout, Installed, Seal, Work};
use config::digest::Digest;
use config::folder::HandlerFile;
use config::manifest::{Descriptor, Origin, Reach};
use handlers::wasm::log::HandlerLog;
use handlers::wasm::{Inspection, Protected, Refused, Source, Spec, WasmHandler, Workshop, reach};
use wire::Declaration;

use crate::cli::chain;

/// Why a file is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What it wants to reach is not there, or protected. That may be another a minute later: somebody plugs in a lamp.
    Reach(String),
    /// The file itself, or the moment: no memory, no process.
    File(String),
}

impl Refusal {
    pub(crate) fn sentence(self) -> String {
        match self {
            Self::Reach(why) | Self::File(why) => why,
        }
    }
}

/// A file that can serve.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) file: HandlerFile,
    pub(crate) declaration: Declaration,
    pub(crate) inspection: Inspection,
}

impl Candidate {
    /// Judges one file; compiles it unless the cache has it. The cheap step comes first.
    pub(crate) async fn judge(file: HandlerFile, shop: &Workshop, protected: &Protected) -> Result<Self, Refusal> {
        let (wanted, captures, protected) = (file.manifest.reach.clone(), file.manifest.captures, protected.clone());
        // It asks the file system, which may be slow.
        let judged = tokio::task::spawn_blocking(move || reach::check(&wanted, captures, &protected)).await;
        let judged = judged.map_err(|_panicked| Refusal::Reach("its reach could not be judged".to_owned()))?;
        judged.map_err(|Refused(why)| Refusal::Reach(why))?;
        let inspection = shop.inspect(&source(&file)).await.map_err(|Refused(why)| Refusal::File(why))?;
        let descriptor = match &inspection.descriptor {
            Some(bytes) => Descriptor::parse(bytes).map_err(|error| Refusal::File(chain(&error)))?,
            None => Descriptor::default(),
        };
        let declaration = file.manifest.declaration(&file.name, &descriptor);
        let declaration = declaration.map_err(|error| Refusal::File(chain(&error)))?;
        Ok(Self { file, declaration, inspection })
    }

    /// A handler of it; its process starts with the first call.
    pub(crate) fn handler(&self, shop: &Arc<Workshop>, log: Arc<HandlerLog>) -> WasmHandler {
        shop.handler(self.spec(log))
    }

    fn spec(&self, log: Arc<HandlerLog>) -> Spec {
        let manifest = &self.file.manifest;
        Spec {
            name: self.file.name.clone(),
            source: source(&self.file),
            declaration: self.declaration.clone(),
            memory_bytes: manifest.memory_bytes,
            result_bytes_max: manifest.result_bytes_max,
            reach: manifest.reach.clone(),
            log,
        }
    }

    /// As the house takes it into service.
    pub(crate) fn installed(&self, shop: &Arc<Workshop>, log: &Arc<HandlerLog>) -> Installed {
        let (shop, spec, captures) = (Arc::clone(shop), self.spec(Arc::clone(log)), self.declaration.captures);
        let custom = Custom { seal: seal(&self.file), about: self.about(), log: Arc::clone(log) };
        Installed {
            declaration: self.declaration.clone(),
            make: Arc::new(move || {
                let handler = Arc::new(shop.handler(spec.clone()));
                Ok(if captures { Work::Capture(handler) } else { Work::Plain(handler) })
            }),
            custom: Some(custom),
        }
    }

    fn about(&self) -> HandlerAbout {
        let manifest = &self.file.manifest;
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        HandlerAbout {
            file: file_name(&self.file),
            memory_bytes: bytes(manifest.memory_bytes),
            result_bytes_max: bytes(manifest.result_bytes_max),
            reach: reach_words(&manifest.reach),
        }
    }
}

/// What a grant names.
pub(crate) fn seal(file: &HandlerFile) -> Seal {
    Seal { file: file.digest, manifest: file.manifest_digest }
}

/// The file's name in its folder.
pub(crate) fn file_name(file: &HandlerFile) -> String {
    file.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn source(file: &HandlerFile) -> Source {
    let (digest, text): (Digest, bool) = (file.digest, file.text);
    let file = file.clone();
    Source { digest, text, read: Arc::new(move || file.read()) }
}

/// `read /sys/…`, `write /sys/…`, `http http://…`: one line each.
pub(crate) fn reach_words(reach: &Reach) -> Vec<String> {
    let read = reach.read.iter().map(|path| format!("read {}", path.display()));
    let write = reach.write.iter().map(|path| format!("read and write {}", path.display()));
    let http = reach.http.iter().map(|origin: &Origin| format!("requests to {origin}"));
    read.chain(write).chain(http).collect()
}
