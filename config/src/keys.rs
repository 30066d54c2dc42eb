//! The one table of settings: what each key means, its kind, default and unit.
//!
//! The default file, `config show`, the help and the search for the nearest key all read it; the settings themselves are typed in
//! `settings`, and a test holds the two together.

use std::fmt::Write as _;

/// How a value is written outside a file, where quotes are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text: anything that is not quoted TOML is taken as it stands.
    Text,
    /// A list of texts: a TOML array, or one text.
    List,
    /// A number or a truth value: TOML alone.
    Plain,
}

/// One settings key, as people read about it.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The whole key, with dots: `link.direct.listen`.
    pub path: &'static str,
    /// How its value is written.
    pub kind: Kind,
    /// Its default as TOML, or, for a key that is unset by default, an example.
    pub value: &'static str,
    /// What happens while it is unset; empty for a key that has a default.
    pub unset: &'static str,
    /// What it means, with its unit, a line of the default file each.
    pub meaning: &'static [&'static str],
}

/// Every key there is, in the order of the default file.
pub const KEYS: &[Key] = &[
    Key {
        path: "device.name",
        kind: Kind::Text,
        value: "\"kitchen\"",
        unset: "the machine's host name",
        meaning: &["What people and agents call this device: 1 to 64 bytes."],
    },
    Key {
        path: "link.direct.listen",
        kind: Kind::Text,
        value: "\"127.0.0.1:7601\"",
        unset: "",
        meaning: &[
            "Address and port where controllers reach the device. Port 0 takes a free one.",
            "\"0.0.0.0:7601\" or \"[::]:7601\" listens on every network.",
        ],
    },
    Key {
        path: "link.direct.advertise",
        kind: Kind::Text,
        value: "\"kitchen.local\"",
        unset: "the address of link.direct.listen",
        meaning: &["Host name or address that pairing links name, without port."],
    },
    Key {
        path: "link.direct.scheme",
        kind: Kind::Text,
        value: "\"auto\"",
        unset: "",
        meaning: &[
            "\"auto\": plain HTTP on loopback, TLS with the device's key elsewhere. \"https\": TLS always.",
            "\"http\": never TLS; what passes can be read on the way, though not changed.",
        ],
    },
    Key {
        path: "link.direct.hosts",
        kind: Kind::List,
        value: "[]",
        unset: "",
        meaning: &["Names, beside localhost and addresses, under which controllers may call the device."],
    },
    Key {
        path: "keeper.listen",
        kind: Kind::Text,
        value: "\"127.0.0.1:7602\"",
        unset: "",
        meaning: &["Address and port of the display page; loopback only. Port 0 takes a free one."],
    },
    Key {
        path: "keeper.display",
        kind: Kind::Plain,
        value: "true",
        unset: "",
        meaning: &["Whether the display page is served. It shows texts and pictures and carries the in-use sign."],
    },
    Key {
        path: "camera.device",
        kind: Kind::Text,
        value: "\"/dev/v4l/by-id/usb-Example_Camera-video-index0\"",
        unset: "the first device that captures video",
        meaning: &[
            "The camera: a name under /dev/v4l/by-id or /dev/v4l/by-path, or a path.",
            "No other camera ever takes its place.",
        ],
    },
    Key {
        path: "camera.size",
        kind: Kind::Text,
        value: "\"1280x720\"",
        unset: "",
        meaning: &[
            "The size at which pictures are wanted, in pixels across and down. The camera's nearest size that is not larger is taken,",
            "or else its smallest; one that would send its pictures too slowly is passed over.",
        ],
    },
    Key {
        path: "camera.largest",
        kind: Kind::Text,
        value: "\"1920x1080\"",
        unset: "",
        meaning: &[
            "The largest picture that may leave this device. One that is wider or higher is made smaller, in its own shape, until it is",
            "neither; camera.size is never taken as more than this.",
        ],
    },
    Key {
        path: "audio.input",
        kind: Kind::Text,
        value: "\"plughw:CARD=Example,DEV=0\"",
        unset: "the default sound card",
        meaning: &[
            "The sound card to hear with, by its name as latchkeyd hardware prints it: usb:VENDOR:PRODUCT,SERIAL=…,DEV=0 for a card on USB, or",
            "with PORT=… the one that is plugged in there; plughw:CARD=NAME,DEV=0 for any other. A usb: name never leads to another card; plughw: leads to whichever card has that name now.",
        ],
    },
    Key {
        path: "audio.output",
        kind: Kind::Text,
        value: "\"plughw:CARD=Example,DEV=0\"",
        unset: "the default sound card",
        meaning: &["The sound card to play through, named like audio.input."],
    },
    Key {
        path: "audio.volume",
        kind: Kind::Plain,
        value: "100",
        unset: "",
        meaning: &["The loudest that speaker.say may be, in percent of the loudest there is; 1 to 100."],
    },
    Key {
        path: "speech.command",
        kind: Kind::List,
        value: "[\"/opt/piper/bin/piper\", \"-m\", \"/opt/piper/voice.onnx\", \"-f\", \"-\"]",
        unset: "espeak-ng",
        meaning: &[
            "The program that speaks, and its arguments, each a text of its own; no shell reads them. It gets a line of text on its",
            "standard input and writes WAV to its standard output. A name without path is sought in /usr/local/bin, /usr/bin and /bin.",
        ],
    },
    Key {
        path: "speech.voice",
        kind: Kind::Text,
        value: "\"en-us+f3\"",
        unset: "the voice that espeak-ng has by itself",
        meaning: &[
            "The voice of espeak-ng, as espeak-ng --voices names it; + and a variant may follow. With speech.command, a voice is one of",
            "its arguments instead.",
        ],
    },
    Key {
        path: "quiet.hours",
        kind: Kind::List,
        value: "[]",
        unset: "",
        meaning: &[
            "When speaker.say says nothing, in local time: \"22:00-07:00\" is from ten in the evening to seven in the morning. Several",
            "may be given; the whole day is \"00:00-24:00\".",
        ],
    },
    Key {
        path: "sign.led",
        kind: Kind::Text,
        value: "\"camera::inuse\"",
        unset: "no LED; the display page carries the sign",
        meaning: &["The LED that carries the in-use sign: its name under /sys/class/leds. When set, it must work."],
    },
    Key {
        path: "sign.gpio",
        kind: Kind::Text,
        value: "\"pinctrl-bcm2711/17\"",
        unset: "no GPIO line carries the sign",
        meaning: &[
            "The GPIO line that carries the in-use sign: the chip's label or name, / and the line's number or name, or a line's",
            "name alone. Behind a comma: active-low, open-drain. When set, it must work.",
        ],
    },
    Key {
        path: "sign.require",
        kind: Kind::List,
        value: "[\"led\", \"display\"]",
        unset: "what sign.led and sign.gpio name must work; where neither is set, the display page",
        meaning: &[
            "Which of \"led\", \"gpio\" and \"display\" must all work for a capture. What is there and not listed is lit beside them.",
        ],
    },
    Key {
        path: "sign.sound",
        kind: Kind::Plain,
        value: "false",
        unset: "",
        meaning: &[
            "Whether a short tone also tells that a capture begins, in quiet hours too. It never stands for one of the signs.",
        ],
    },
    Key {
        path: "handlers.folder",
        kind: Kind::Text,
        value: "\"/srv/latchkey/handlers\"",
        unset: "handlers, beside the settings file",
        meaning: &["The folder whose custom.MAKER.ACTION.wasm files become capabilities. When set, it must exist."],
    },
    Key {
        path: "handlers.accept_weak_sandbox",
        kind: Kind::Plain,
        value: "false",
        unset: "",
        meaning: &[
            "Whether custom handlers run where the kernel lacks Landlock or seccomp; false leaves them off there.",
        ],
    },
    Key {
        path: "limits.rate_per_second",
        kind: Kind::Plain,
        value: "200",
        unset: "",
        meaning: &["Requests of the owner a second, on average; 1 to 100000."],
    },
    Key {
        path: "limits.rate_burst",
        kind: Kind::Plain,
        value: "2000",
        unset: "",
        meaning: &["Requests of the owner at once after a pause; 1 to 1000000."],
    },
    Key {
        path: "log.filter",
        kind: Kind::Text,
        value: "\"info\"",
        unset: "",
        meaning: &[
            "Which log lines are written: \"warn\", \"info\", \"debug\", or a list such as \"info,latchkey_actors=debug\".",
        ],
    },
    Key {
        path: "log.format",
        kind: Kind::Text,
        value: "\"text\"",
        unset: "",
        meaning: &["\"text\": lines for people. \"json\": one JSON object a line."],
    },
];

/// The key at `path`.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Whether `path` is a table that holds keys.
pub(crate) fn is_table(path: &str) -> bool {
    KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

fn tables() -> Vec<&'static str> {
    let mut tables = Vec::new();
    for key in KEYS {
        for (dot, _) in key.path.match_indices('.') {
            if let Some(table) = key.path.get(..dot)
                && !tables.contains(&table)
            {
                tables.push(table);
            }
        }
    }
    tables
}

/// A key or table counts as meant when at least this much of it is the same: a letter missed, doubled or swapped in each word.
const NEAR_ENOUGH: f64 = 0.6;

/// The known key, or keys, that `unknown` was probably meant to be.
pub(crate) fn nearest(unknown: &str) -> Vec<&'static str> {
    let paths: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
    nearest_of(unknown, &paths, &tables())
}

/// Like [`nearest`], among the keys and tables given.
///
/// A right key in the wrong table is found by its last part, anything else by its letters.
pub(crate) fn nearest_of<'a>(unknown: &str, paths: &[&'a str], tables: &[&'a str]) -> Vec<&'a str> {
    let last = unknown.rsplit('.').next().unwrap_or(unknown);
    let mut misplaced: Vec<&str> = paths.iter().copied().filter(|path| path.rsplit('.').next() == Some(last)).collect();
    let table = unknown.strip_suffix(last).unwrap_or_default();
    if misplaced.iter().any(|path| !table.is_empty() && path.starts_with(table)) {
        misplaced.retain(|path| path.starts_with(table));
    } else if misplaced.len() > 1 && !table.is_empty() {
        misplaced.sort_by(|a, b| likeness(unknown, b).total_cmp(&likeness(unknown, a)));
        misplaced.truncate(1);
    }
    if !misplaced.is_empty() {
        return misplaced;
    }
    likeliest(unknown, paths.iter().chain(tables).copied()).into_iter().collect()
}

/// The name that is most like `unknown`, as a whole or in its last part, if any is like enough.
pub fn likeliest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = unknown.rsplit('.').next().unwrap_or(unknown);
    known
        .map(|path| (likeness(unknown, path).max(likeness(last, path.rsplit('.').next().unwrap_or(path)) * 0.9), path))
        .filter(|(likeness, _)| *likeness >= NEAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, path)| path)
}

fn likeness(a: &str, b: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(a, b)
}

/// The default settings file: every key, commented out, under its table.
pub(crate) fn default_file() -> String {
    let mut text = String::from(
        "# Settings of this device. Every key is listed with its meaning; a key that is commented out has the\n\
         # value shown, or, where the line above says so, is unset. After a change: latchkeyd reload\n\
         # The same keys work as --set link.direct.listen=... and LATCHKEY_SET_LINK__DIRECT__LISTEN=...\n",
    );
    let mut open = "";
    for key in KEYS {
        let (table, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if table != open {
            let _ = write!(text, "\n[{table}]\n");
            open = table;
        } else {
            text.push('\n');
        }
        for line in key.meaning {
            let _ = writeln!(text, "# {line}");
        }
        if !key.unset.is_empty() {
            let _ = writeln!(text, "# Unset by default: {}.", key.unset);
        }
        let _ = writeln!(text, "# {name} = {}", key.value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_or_misplaced_key_finds_the_key_that_was_meant() {
        let rows: &[(&str, &[&str])] = &[
            ("camera.devcie", &["camera.device"]),
            ("camra.device", &["camera.device"]),
            ("device", &["camera.device"]),
            ("link.listen", &["link.direct.listen"]),
            ("listen", &["link.direct.listen", "keeper.listen"]),
            ("direct.listen", &["link.direct.listen"]),
            ("name", &["device.name"]),
            ("limits.rate", &["limits.rate_burst"]),
            ("limits.rate_per_secnd", &["limits.rate_per_second"]),
            ("keper", &["keeper"]),
            ("link.direct.advertize", &["link.direct.advertise"]),
            ("capabilities.allow", &[]),
            ("xyzzy", &[]),
        ];
        for (unknown, meant) in rows {
            assert_eq!(&nearest(unknown), meant, "{unknown}");
        }
    }
}
