//! What a handler's file says about itself.
//!
//! It comes from whoever made the file, so it may only describe: every member beyond that is refused, and named.

use wire::Object;
use wire::json::{self, Value};

use super::{DESCRIPTOR_BYTES_MAX, Descriptor, ManifestError, arguments, description, read};

impl Descriptor {
    /// Reads the JSON of a file's own description.
    ///
    /// # Errors
    /// [`ManifestError::Descriptor`].
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        described(json).map_err(|reason| ManifestError::Descriptor { reason })
    }
}

fn described(json: &[u8]) -> Result<Descriptor, String> {
    if json.len() > DESCRIPTOR_BYTES_MAX {
        return Err(format!("at most {DESCRIPTOR_BYTES_MAX} bytes, this has {}", json.len()));
    }
    let members = json::parse(json).map_err(|error| error.to_string())?;
    let mut descriptor = Descriptor::default();
    for (name, value) in members.into_map() {
        match (name.as_str(), value) {
            ("description", Value::String(text)) => descriptor.description = Some(description(&text)?),
            ("arguments", Value::Object(declared)) => {
                descriptor.arguments =
                    Some(arguments::bounds(Object::from(declared)).map_err(|flaw| flaw.to_string())?);
            }
            ("description", _) => return Err("description must be a text".to_owned()),
            ("arguments", _) => return Err("arguments must be an object".to_owned()),
            (other, _) if read::KEYS.iter().any(|key| key.split('.').next() == Some(other)) => {
                return Err(format!("a descriptor may only describe; `{other}` belongs in the .toml"));
            }
            (other, _) => {
                let other = wire::text::visible(other);
                return Err(format!("unknown member `{other}`; a descriptor has `description` and `arguments` alone"));
            }
        }
    }
    Ok(descriptor)
}
