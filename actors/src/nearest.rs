//! "Did you mean": the known name that a mistyped one was probably meant to be.

/// A name counts as meant when at least this much of it is the same: a letter missed, doubled or swapped in each word.
const NEAR_ENOUGH: f64 = 0.6;
/// More names than this are no help in a sentence.
const LISTED_MAX: usize = 24;

/// The end of a sentence about a name that is unknown: the nearest known one, or all, if they are few.
pub(crate) fn among(unknown: &str, mut known: Vec<&str>) -> String {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(unknown, name);
    let near = known.iter().map(|name| (likeness(name), *name)).filter(|(likeness, _)| *likeness >= NEAR_ENOUGH);
    if let Some((_, nearest)) = near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        return format!("did you mean {nearest}?");
    }
    let more = known.len().saturating_sub(LISTED_MAX);
    known.truncate(LISTED_MAX);
    let list = known.join(", ");
    match (list.is_empty(), more) {
        (true, _) => "there are none".to_owned(),
        (false, 0) => format!("there are: {list}"),
        (false, more) => format!("there are: {list} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_answered_with_the_nearest_and_a_strange_one_with_what_there_is() {
        let many: Vec<String> = (0..30).map(|number| format!("custom.acme.n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let rows: [(&str, Vec<&str>, &str); 4] = [
            ("custom.acme.lmap", vec!["camera", "custom.acme.lamp"], "did you mean custom.acme.lamp?"),
            ("xyz", vec!["camera", "display.text"], "there are: camera, display.text"),
            ("xyz", Vec::new(), "there are none"),
            ("xyz", many, "and 6 more"),
        ];
        for (unknown, known, told) in rows {
            let said = among(unknown, known);
            assert!(said.ends_with(told), "{said}");
        }
    }
}
