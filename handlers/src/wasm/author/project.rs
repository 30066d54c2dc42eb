//! Projects to begin with: for each language the few files that its usual tools turn into a handler which runs at once.
//!
//! Owns the templates beside this file and the words put into them. Refuses a name that no capability can have; writes nothing itself.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use wire::CapabilityName;

use super::{AuthorError, WIT};

/// A language in which `latchkeyd handler new` can begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lang {
    /// JavaScript, by componentize-qjs.
    Js,
    /// Rust, for `wasm32-wasip2`.
    Rust,
    /// C, by clang.
    C,
    /// WebAssembly text, which needs no tool.
    Wat,
}

impl Lang {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Js, Self::Rust, Self::C, Self::Wat];

    fn word(self) -> &'static str {
        match self {
            Self::Js => "js",
            Self::Rust => "rust",
            Self::C => "c",
            Self::Wat => "wat",
        }
    }

    /// Where each file goes, and what it says. Both hold marks for the name.
    fn templates(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Js => &[
                ("handler.js", include_str!("js/handler.js")),
                ("package.json", include_str!("js/package.json")),
                ("README.md", include_str!("js/README.md")),
                ("wit/handler.wit", WIT),
            ],
            Self::Rust => &[
                ("src/lib.rs", include_str!("rust/lib.rs.in")),
                ("Cargo.toml", include_str!("rust/Cargo.toml.in")),
                (".cargo/config.toml", include_str!("rust/config.toml")),
                ("README.md", include_str!("rust/README.md")),
                ("wit/handler.wit", WIT),
            ],
            Self::C => &[("handler.c", include_str!("c/handler.c")), ("README.md", include_str!("c/README.md"))],
            Self::Wat => {
                &[("{{name}}.wat", include_str!("wat/handler.wat")), ("README.md", include_str!("wat/README.md"))]
            }
        }
    }
}

impl fmt::Display for Lang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Lang {
    type Err = AuthorError;

    fn from_str(text: &str) -> Result<Self, AuthorError> {
        Self::ALL.into_iter().find(|lang| lang.word() == text).ok_or_else(|| AuthorError::Lang(text.to_owned()))
    }
}

/// One file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// From the project's folder.
    pub path: PathBuf,
    /// What it says.
    pub contents: String,
}

/// A small project for `custom.MAKER.ACTION`, with the manifest that its keeper needs. `maker_action` is such as `acme.lamp`.
///
/// # Errors
/// [`AuthorError::Name`] for what is no such name.
pub fn project(maker_action: &str, lang: Lang) -> Result<Vec<ProjectFile>, AuthorError> {
    let refused = || AuthorError::Name(maker_action.to_owned());
    let name: CapabilityName = format!("custom.{maker_action}").parse().map_err(|_| refused())?;
    let package = maker_action.replace('.', "-");
    // What cargo and npm call it; cargo's file has no dashes.
    let file = package.replace('-', "_");
    let filled =
        |text: &str| text.replace("{{name}}", name.as_str()).replace("{{crate}}", &package).replace("{{file}}", &file);
    let manifest = ("{{name}}.toml", include_str!("handler.toml"));
    let files = std::iter::once(&manifest).chain(lang.templates());
    Ok(files.map(|(path, contents)| ProjectFile { path: filled(path).into(), contents: filled(contents) }).collect())
}
