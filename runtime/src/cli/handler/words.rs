//! Arguments as people type them, and bounds as people read them.

use serde_json::Value;
use wire::bounds::Property;
use wire::text::visible;
use wire::{Bounds, Object};

/// `level=40 name=kitchen` as one object: each value as its bound wants it, texts as they are and all else as JSON.
pub(super) fn object(pairs: &[String], bounds: &Bounds) -> Result<Object, String> {
    let mut object = Object::new();
    for pair in pairs {
        let (name, typed) = pair.split_once('=').ok_or_else(|| {
            format!("{pair} is no argument; write NAME=VALUE, or all of them as one JSON object with --args")
        })?;
        let property = bounds.properties().find(|(known, ..)| *known == name).map(|(_, property, _)| property);
        let value = match property {
            Some(Property::String { .. }) => Value::String(typed.to_owned()),
            Some(_) => serde_json::from_str(typed).map_err(|_error| {
                format!("{name}: {typed} is not JSON, which all but texts have to be, as in {name}=40 or {name}=true")
            })?,
            // Refused by the bounds, in their words.
            None => Value::Null,
        };
        if object.insert(name, value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(object)
}

/// One line for each argument: `level  integer from 0 to 100, required`.
pub(in crate::cli) fn bounds(bounds: &Bounds) -> Vec<String> {
    let line = |(name, property, required): (&str, &Property, bool)| {
        let needed = if required { ", required" } else { "" };
        let (what, description) = property_words(property);
        let said = description.map_or_else(String::new, |description| format!(": {}", visible(description)));
        format!("{} is {what}{needed}{said}", visible(name))
    };
    bounds.properties().map(line).collect()
}

fn property_words(property: &Property) -> (String, Option<&str>) {
    match property {
        Property::String { max_bytes, min_bytes, choices, base64, description } => {
            let what = if choices.is_empty() {
                let least = if *min_bytes > 0 { format!("{min_bytes} to ") } else { "at most ".to_owned() };
                let kind = if base64.is_some() { "base64" } else { "a text" };
                format!("{kind} of {least}{max_bytes} bytes")
            } else {
                let choices: Vec<_> = choices.iter().map(|choice| visible(choice)).collect();
                format!("one of {}", choices.join(", "))
            };
            (what, description.as_deref())
        }
        Property::Integer { minimum, maximum, description } => {
            (format!("an integer from {minimum} to {maximum}"), description.as_deref())
        }
        Property::Number { minimum, maximum, description } => {
            let from = minimum.map_or_else(String::new, |minimum| format!(" from {minimum}"));
            let to = maximum.map_or_else(String::new, |maximum| format!(" to {maximum}"));
            (format!("a number{from}{to}"), description.as_deref())
        }
        Property::Boolean { description } => ("true or false".to_owned(), description.as_deref()),
        Property::Array { items, max_items, description } => {
            (format!("a list of at most {max_items}, each {}", property_words(items).0), description.as_deref())
        }
        Property::Object { members, description } => {
            let names: Vec<_> = members.iter().map(|(name, ..)| visible(name)).collect();
            (format!("an object with {}", names.join(", ")), description.as_deref())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn declared() -> Bounds {
        let declared = br#"{"type":"object","required":["level"],"properties":{
            "level":{"type":"integer","minimum":0,"maximum":100,"description":"how bright"},
            "name":{"type":"string","maxLength":20},
            "mode":{"type":"string","maxLength":5,"enum":["day","night"]},
            "on":{"type":"boolean"},
            "steps":{"type":"array","maxItems":3,"items":{"type":"number","minimum":0}}}}"#;
        Bounds::parse(wire::json::parse(declared).unwrap()).unwrap()
    }

    fn check(pairs: &[&str], wanted: Result<&str, &str>) {
        let pairs: Vec<_> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        let got = object(&pairs, &declared()).and_then(|object| {
            let held = declared().check(object).map_err(|error| error.to_string())?;
            Ok(held.as_object().to_string())
        });
        match wanted {
            Ok(wanted) => assert_eq!(got.as_deref(), Ok(wanted)),
            Err(words) => assert!(got.as_ref().is_err_and(|error| error.contains(words)), "{got:?}"),
        }
    }

    #[test]
    fn typed_arguments_have_the_type_that_their_bound_wants() {
        check(&["level=40"], Ok(r#"{"level":40}"#));
        check(&["level=40", "name=7", "on=true"], Ok(r#"{"level":40,"name":"7","on":true}"#));
        check(&["level=40", "name=a=b"], Ok(r#"{"level":40,"name":"a=b"}"#));
        check(&["level=40", "steps=[1,2.5]"], Ok(r#"{"level":40,"steps":[1,2.5]}"#));
        check(&["level=bright"], Err("level: bright is not JSON"));
        check(&["level=101"], Err("level"));
        check(&["level=1", "level=2"], Err("given twice"));
        check(&["level"], Err("NAME=VALUE"));
        check(&["level=1", "colour=red"], Err("colour"));
        check(&[], Err("level"));
    }

    #[test]
    fn bounds_read_as_sentences() {
        let wanted = [
            "level is an integer from 0 to 100, required: how bright",
            "name is a text of at most 20 bytes",
            "mode is one of day, night",
            "on is true or false",
            "steps is a list of at most 3, each a number from 0",
        ];
        assert_eq!(bounds(&declared()), wanted);
    }
}
