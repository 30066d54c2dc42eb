//! Holds values against their declared bounds.

use serde_json::Map;

use crate::bounds::property::{Base64Bound, Members, Property};
use crate::json::{INTEGER_MAX, Value};
use crate::text::{base64_decode, visible_cut};

/// How much of a foreign name an error carries.
const NAME_SHOWN_BYTES: usize = 64;

/// Which member of the arguments is outside its bounds, and why. Holds no values, except sizes and limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member}: {reason}")]
pub struct BoundsError {
    /// The member, as a path: `text`, `points[2].x`.
    pub member: String,
    /// What is wrong, for people.
    pub reason: String,
}

impl Members {
    /// Holds the members of one object, found at `place`, against what is declared.
    pub(super) fn check(&self, place: &str, values: &Map<String, Value>) -> Result<(), BoundsError> {
        let path = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
        if let Some(name) = values.keys().find(|name| self.iter().all(|(declared, ..)| declared != name.as_str())) {
            let member = path(&visible_cut(name, NAME_SHOWN_BYTES));
            return Err(BoundsError { member, reason: "no such argument is declared".to_owned() });
        }
        for (name, property, required) in self.iter() {
            let checked = match values.get(name) {
                Some(value) => property.check(&path(name), value),
                None if required => Err(BoundsError { member: path(name), reason: "is missing".to_owned() }),
                None => Ok(()),
            };
            checked?;
        }
        Ok(())
    }
}

impl Property {
    fn check(&self, path: &str, value: &Value) -> Result<(), BoundsError> {
        let wrong = |reason: String| BoundsError { member: path.to_owned(), reason };
        match self {
            Self::String { max_bytes, min_bytes, choices, base64, .. } => {
                let text = value.as_str().ok_or_else(|| wrong("must be a text".to_owned()))?;
                check_text(text, *min_bytes, *max_bytes, choices)
                    .and_then(|()| base64.as_ref().map_or(Ok(()), |bound| bound.check(text)))
                    .map_err(wrong)
            }
            Self::Integer { minimum, maximum, .. } => {
                let integer = value.as_i64().filter(|value| value.unsigned_abs() <= INTEGER_MAX.unsigned_abs());
                let integer = integer.ok_or_else(|| wrong("must be an integer".to_owned()))?;
                within(integer, Some(*minimum), Some(*maximum)).map_err(wrong)
            }
            Self::Number { minimum, maximum, .. } => {
                let number = value.as_f64().filter(|number| number.is_finite());
                within(number.ok_or_else(|| wrong("must be a number".to_owned()))?, *minimum, *maximum).map_err(wrong)
            }
            Self::Boolean { .. } => value.as_bool().map(drop).ok_or_else(|| wrong("must be true or false".to_owned())),
            Self::Array { items, max_items, .. } => {
                let values = value.as_array().ok_or_else(|| wrong("must be a list".to_owned()))?;
                if values.len() > *max_items {
                    return Err(wrong(format!("at most {max_items} items, this has {}", values.len())));
                }
                let mut numbered = values.iter().enumerate();
                numbered.try_for_each(|(at, value)| items.check(&format!("{path}[{at}]"), value))
            }
            Self::Object { members, .. } => {
                members.check(path, value.as_object().ok_or_else(|| wrong("must be an object".to_owned()))?)
            }
        }
    }
}

fn check_text(text: &str, min_bytes: usize, max_bytes: usize, choices: &[String]) -> Result<(), String> {
    if text.len() > max_bytes {
        return Err(format!("at most {max_bytes} bytes, this has {}", text.len()));
    }
    if text.len() < min_bytes {
        return Err(format!("at least {min_bytes} bytes, this has {}", text.len()));
    }
    if !choices.is_empty() && choices.iter().all(|choice| choice != text) {
        return Err(format!("must be one of {}", choices.join(", ")));
    }
    // Section 6 says so for texts that are shown or spoken; nothing else needs U+0000 either.
    if text.contains('\0') { Err("must not contain U+0000".to_owned()) } else { Ok(()) }
}

impl Base64Bound {
    fn check(&self, text: &str) -> Result<(), String> {
        let got = base64_decode(text).map_err(|error| error.to_string())?.len();
        match self.max_decoded {
            Some(max) if got > max => Err(format!("at most {max} bytes decoded, this has {got}")),
            Some(_) | None => Ok(()),
        }
    }
}

fn within<N: PartialOrd + std::fmt::Display>(value: N, minimum: Option<N>, maximum: Option<N>) -> Result<(), String> {
    match (minimum, maximum) {
        (Some(minimum), _) if value < minimum => Err(format!("at least {minimum}")),
        (_, Some(maximum)) if value > maximum => Err(format!("at most {maximum}")),
        _ => Ok(()),
    }
}
