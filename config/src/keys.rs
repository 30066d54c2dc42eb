//! The one table of settings: what each key means, its default, its unit. The default file, the help and the search for the nearest
//! key all read it.

/// One settings key, as people read about it.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The whole key, with dots: `link.direct.listen`.
    pub path: &'static str,
    /// Its default, as TOML; empty when the key is unset by default.
    pub default: &'static str,
    /// An example, as TOML, for a key that is unset by default.
    pub example: &'static str,
    /// What it means, with its unit.
    pub meaning: &'static str,
}

/// Every key there is.
pub const KEYS: &[Key] = &[];
