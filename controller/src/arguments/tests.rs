use std::io::{Error, ErrorKind};

use serde_json::json;

use super::*;

fn bounds() -> Bounds {
    let declared = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "text": {"type": "string", "maxLength": 20},
            "mode": {"type": "string", "maxLength": 10, "enum": ["slow", "fast"]},
            "level": {"type": "integer", "minimum": 1, "maximum": 15},
            "gain": {"type": "number", "minimum": 0.0},
            "loud": {"type": "boolean"},
            "steps": {"type": "array", "maxItems": 3, "items": {"type": "integer"}},
            "data": {"type": "string", "maxLength": 400, "contentEncoding": "base64",
                     "contentMediaType": "image/png", "x-max-decoded-bytes": 6},
        },
    });
    let Value::Object(map) = declared else { panic!("an object") };
    Bounds::parse(Object::from(map)).unwrap()
}

/// Files of the tests: the path says what they hold.
fn read(path: &Path, _max: usize) -> std::io::Result<Vec<u8>> {
    match path.to_str().unwrap() {
        "six" => Ok(vec![0xff; 6]),
        "seven" => Ok(vec![0xff; 7]),
        "note" => Ok(b"a note".to_vec()),
        _ => Err(Error::from(ErrorKind::NotFound)),
    }
}

/// The arguments as JSON, or the error with its causes, after typing and bounds.
fn typed(words: &[&str]) -> Result<Value, String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let bounds = bounds();
    let arguments = from_words(&bounds, &words, &read).map_err(|error| error.to_string())?;
    let arguments = bounds.check(arguments).map_err(|error| error.to_string())?;
    Ok(Value::from(arguments.as_object().clone()))
}

#[test]
fn values_get_the_declared_type() {
    for (words, expected) in [
        (&["text=17"][..], json!({"text": "17"})),
        (&["text="], json!({"text": ""})),
        (&["text=a=b"], json!({"text": "a=b"})),
        (&["text=@note"], json!({"text": "a note"})),
        (&["text=@@note"], json!({"text": "@note"})),
        (&["mode=fast", "level=15"], json!({"mode": "fast", "level": 15})),
        (&["gain=1"], json!({"gain": 1})),
        (&["gain=0.5"], json!({"gain": 0.5})),
        (&["loud=true"], json!({"loud": true})),
        (&["steps=[1, 2]"], json!({"steps": [1, 2]})),
        (&["data=@six"], json!({"data": "////////"})),
        (&["{\"text\": \"x\", \"level\": 2}"], json!({"text": "x", "level": 2})),
        (&[], json!({})),
    ] {
        assert_eq!(typed(words), Ok(expected), "{words:?}");
    }
}

#[test]
fn errors_name_the_argument_and_its_bound() {
    for (words, expected) in [
        (&["text"][..], "\"text\" is neither name=value nor a JSON object"),
        (&["txt=x"], "no argument is called txt (did you mean text?); declared: text, mode, level"),
        (&["text=x", "text=y"], "text is given twice"),
        (&["level=high"], "level: an integer from 1 to 15, and \"high\" is not"),
        (&["level=1.5"], "level: an integer from 1 to 15, and \"1.5\" is not"),
        (&["level=16"], "level: "),
        (&["gain=NaN"], "gain: a number of at least 0, and \"NaN\" is not"),
        (&["loud=yes"], "loud: true or false, and \"yes\" is not"),
        (&["mode=medium"], "mode: "),
        (&["steps=1"], "steps: a JSON list of at most 3, each an integer, and \"1\" is not"),
        (&["steps=[1],\"x\":[2]"], "steps: a JSON list"),
        (&["data=@seven"], "data: image/png in base64, at most 6 bytes decoded, and seven is larger"),
        (&["data=@missing"], "data: missing cannot be read"),
        (&["text=@six"], "text: six is not UTF-8 text"),
        (&["text=123456789012345678901"], "text: "),
        (&["{\"text\": \"x\", \"text\": \"y\"}"], "the JSON arguments cannot be read"),
        (&["{\"other\": 1}"], "other: "),
    ] {
        let error = typed(words).unwrap_err();
        assert!(error.starts_with(expected), "{words:?}: {error}");
    }
}

/// The example of one argument with this bound, and what a device would say of it.
fn exemplified(property: &Value) -> (Vec<String>, Result<(), String>) {
    let declared =
        json!({"type": "object", "required": ["it"], "properties": {"it": property, "more": {"type": "boolean"}}});
    let Value::Object(map) = declared else { panic!("an object") };
    let bounds = Bounds::parse(Object::from(map)).unwrap();
    let shown = example(&bounds);
    // A shell takes the quotes away.
    let words: Vec<String> = shown.iter().map(|word| word.trim_matches('\'').replace(r"'\''", "'")).collect();
    let passes = from_words(&bounds, &words, &|_, _| Ok(vec![0xff; 6])).map_err(|error| error.to_string());
    (shown, passes.and_then(|arguments| bounds.check(arguments).map(drop).map_err(|error| error.to_string())))
}

#[test]
fn an_example_of_each_bound_passes_it() {
    let rows = [
        (json!({"type": "integer", "minimum": 0, "maximum": 100}), "it=50"),
        (json!({"type": "integer", "minimum": 7}), "it=7"),
        (json!({"type": "integer", "maximum": -3}), "it=-3"),
        (json!({"type": "integer"}), "it=1"),
        (json!({"type": "number", "minimum": 0.0, "maximum": 1.0}), "it=0.5"),
        (json!({"type": "number", "maximum": -2.5}), "it=-2.5"),
        (json!({"type": "boolean"}), "it=true"),
        (json!({"type": "string", "maxLength": 20}), "it=text"),
        (json!({"type": "string", "maxLength": 2}), "it=te"),
        (json!({"type": "string", "maxLength": 20, "minLength": 7}), "'it=text te'"),
        (json!({"type": "string", "maxLength": 20, "enum": ["it's", "@home"]}), r"'it=it'\''s'"),
        (json!({"type": "string", "maxLength": 20, "enum": ["@home"]}), "it=@@home"),
        (
            json!({"type": "string", "maxLength": 400, "contentEncoding": "base64", "x-max-decoded-bytes": 6}),
            "it=@FILE",
        ),
        (json!({"type": "array", "maxItems": 3, "items": {"type": "integer"}}), "'it=[1]'"),
        (json!({"type": "array", "maxItems": 0, "items": {"type": "integer"}}), "'it=[]'"),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}}),
            r#"'it={"a":true}'"#,
        ),
    ];
    for (property, wanted) in rows {
        let (shown, passes) = exemplified(&property);
        assert_eq!((shown, passes), (vec![wanted.to_owned()], Ok(())), "{property}");
    }
}

#[test]
fn an_example_shows_what_is_required_else_the_first_argument_and_nothing_where_nothing_is_taken() {
    let all = |declared: Value| {
        let Value::Object(map) = declared else { panic!("an object") };
        example(&Bounds::parse(Object::from(map)).unwrap()).join(" ")
    };
    let properties = json!({"a": {"type": "boolean"}, "b": {"type": "integer"}, "c": {"type": "boolean"}});
    assert_eq!(all(json!({"type": "object", "required": ["c", "b"], "properties": properties})), "b=1 c=true");
    assert_eq!(all(json!({"type": "object", "properties": properties})), "a=true");
    assert_eq!(all(json!({"type": "object"})), "");
}
