//! `hardware`: what could be used, each named as the settings take it. Only looks; needs no device.

use std::path::Path;

use config::{LineName, Settings};
use handlers::camera::{FoundCamera, cameras};
use handlers::sign::gpio::{CharacterDevice, GpioChip, GpioChips, GpioFault};
use handlers::sign::{FoundLed, LEDS, leds};
use handlers::sound::{Card, cards};
use handlers::speech::{EngineChoice, EngineLimits, Speech as _, SpeechEngine};
use serde::Serialize;
use wire::text::visible;

use super::args::Output;
use super::commands::Desk;
use super::print::{Shade, Style, table};
use super::problem::Problem;
use super::settings;
use crate::speaking::speech_of;

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Camera,
    Input,
    Output,
    Speech,
    Led,
    Gpio,
    Display,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Camera, Self::Input, Self::Output, Self::Speech, Self::Led, Self::Gpio, Self::Display];

    /// What people call several of it, and the settings key that takes its name.
    const fn in_words(self) -> (&'static str, &'static str) {
        match self {
            Self::Camera => ("Cameras", "camera.device"),
            Self::Input => ("Sound inputs", "audio.input"),
            Self::Output => ("Sound outputs", "audio.output"),
            Self::Speech => ("Speech engines", "speech.command"),
            Self::Led => ("LEDs", "sign.led"),
            Self::Gpio => ("GPIO lines", "sign.gpio"),
            Self::Display => ("Displays", "keeper.display"),
        }
    }
}

/// One thing that could be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Thing {
    kind: Kind,
    /// As the setting takes it, and the same after a restart; of a speech engine the program alone.
    id: String,
    /// What it is, for people.
    name: String,
    /// The key that takes the id.
    setting: &'static str,
    /// Whether the settings choose it now.
    in_use: bool,
    /// Why it could not be used now.
    problem: Option<String>,
}

pub(super) fn perform(desk: &mut Desk<'_>, output: Output) -> Result<(), Problem> {
    let settings = settings::load(desk.cli, &desk.places, desk.world)?;
    let chips = CharacterDevice.chips();
    let mut things = of_cameras(&settings, cameras());
    things.extend(of_cards(&settings, &cards()));
    things.extend(engines(&settings));
    things.extend(signs(&settings, leds(Path::new(LEDS)), chips.as_deref().unwrap_or_default()));
    if output.json {
        desk.world.print_json(&things);
    } else {
        desk.world.print(listing(&desk.style, &things, &settings));
    }
    Ok(())
}

/// Without a setting the first that works is in use.
fn of_cameras(settings: &Settings, found: Vec<FoundCamera>) -> Vec<Thing> {
    let setting = Kind::Camera.in_words().1;
    let first = found.iter().position(|camera| camera.problem.is_none());
    let wanted = settings.camera.device.as_deref();
    let things = found.into_iter().enumerate().map(|(at, FoundCamera { id, name, node, also, problem })| {
        let path = node.display().to_string();
        let in_use = match wanted {
            // By-id names may be written with or without their folder.
            Some(wanted) => [&id, &path].into_iter().chain(&also).any(|one| {
                one == wanted || one.rsplit('/').next() == Some(wanted) || wanted.rsplit('/').next() == Some(one)
            }),
            None => Some(at) == first,
        };
        let name = if name.is_empty() { path } else { format!("{name}, now {path}") };
        Thing { kind: Kind::Camera, id, name, setting, in_use, problem }
    });
    things.collect()
}

fn of_cards(settings: &Settings, cards: &[Card]) -> Vec<Thing> {
    let of_way = |kind: Kind, wanted: Option<&str>, can: fn(&Card) -> bool| {
        let wanted = wanted.unwrap_or("default").to_owned();
        let things = cards.iter().filter(move |card| can(card)).map(move |card| Thing {
            kind,
            id: card.id.clone(),
            name: by_port(card),
            setting: kind.in_words().1,
            in_use: card.id == wanted || card.also.contains(&wanted),
            problem: None,
        });
        things.collect::<Vec<_>>()
    };
    let mut things = of_way(Kind::Input, settings.audio.input.as_deref(), |card| card.records);
    things.extend(of_way(Kind::Output, settings.audio.output.as_deref(), |card| card.plays));
    things
}

/// What people call a card, and its name by its port where it has one by what it says too: the one serves when it is plugged in elsewhere,
/// the other when its maker gave all of a kind one serial number.
fn by_port(card: &Card) -> String {
    match card.also.iter().find(|name| name.contains(",PORT=")) {
        Some(port) => format!("{}, by its port {port}", card.name),
        None => card.name.clone(),
    }
}

/// The engine that is used without a setting, and the one that a setting names.
fn engines(settings: &Settings) -> Vec<Thing> {
    let named = settings.speech.command.is_some();
    let thing = |engine: &SpeechEngine, name: &str, in_use| Thing {
        kind: Kind::Speech,
        id: engine.program_name(),
        name: name.to_owned(),
        setting: Kind::Speech.in_words().1,
        in_use,
        problem: engine.ready().err().map(|fault| fault.to_string()),
    };
    let unset = SpeechEngine::new(EngineChoice::Espeak { voice: None }, EngineLimits::default());
    let mut things = Vec::new();
    if named {
        things.push(thing(&speech_of(settings), "named by speech.command", true));
        things.push(thing(&unset, "used where speech.command is not set", false));
    } else {
        let voice =
            settings.speech.voice.as_ref().map_or_else(String::new, |voice| format!(", with the voice {voice}"));
        let name = format!("used because speech.command is not set{voice}");
        things.push(thing(&speech_of(settings), &name, true));
    }
    things
}

fn signs(settings: &Settings, leds: Vec<FoundLed>, chips: &[GpioChip]) -> Vec<Thing> {
    let mut things: Vec<Thing> = leds.into_iter().map(|led| of_led(settings, led)).collect();
    things.extend(chips.iter().flat_map(|chip| of_chip(settings, chip, chips)));
    things.push(Thing {
        kind: Kind::Display,
        id: "true".to_owned(),
        name: format!("a browser on this machine, at http://{}/display", settings.keeper.listen),
        setting: Kind::Display.in_words().1,
        in_use: settings.keeper.display,
        problem: None,
    });
    things
}

fn of_led(settings: &Settings, FoundLed { name, problem }: FoundLed) -> Thing {
    let in_use = settings.sign.led.as_ref() == Some(&name);
    let setting = Kind::Led.in_words().1;
    Thing { kind: Kind::Led, name: format!("LED {name}"), id: name, setting, in_use, problem }
}

/// The lines of a chip, by its label where no other chip has the same.
fn of_chip(settings: &Settings, chip: &GpioChip, chips: &[GpioChip]) -> Vec<Thing> {
    let setting = Kind::Gpio.in_words().1;
    let alone = chips.iter().filter(|other| other.label == chip.label).count() == 1;
    let stable = alone && !chip.label.is_empty() && chip.label.len() <= 31 && !chip.label.contains(['/', ',']);
    let called = if stable { &chip.label } else { &chip.name };
    let lines = match &chip.lines {
        Ok(lines) => lines,
        Err(fault) => {
            let (id, name, problem) = (chip.name.clone(), format!("GPIO chip {}", chip.name), Some(fault.to_string()));
            return vec![Thing { kind: Kind::Gpio, id, name, setting, in_use: false, problem }];
        }
    };
    let wanted = settings.sign.gpio.as_ref();
    let of_this = |name: &str| name == chip.name || name == chip.label;
    let things = lines.iter().map(|line| {
        let in_use = wanted.is_some_and(|wanted| {
            wanted.chip().is_none_or(of_this)
                && match wanted.line() {
                    LineName::Offset(offset) => *offset == line.offset,
                    LineName::Named(name) => *name == line.name,
                }
        });
        let name = if line.name.is_empty() { "without a name".to_owned() } else { line.name.clone() };
        let problem = line.used_by.as_ref().filter(|_| !in_use).map(|by| GpioFault::Held(by.clone()).to_string());
        Thing { kind: Kind::Gpio, id: format!("{called}/{}", line.offset), name, setting, in_use, problem }
    });
    things.collect()
}

fn listing(style: &Style, things: &[Thing], settings: &Settings) -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let (title, key) = kind.in_words();
        let of_kind: Vec<&Thing> = things.iter().filter(|thing| thing.kind == kind).collect();
        text.push_str(&style.shade(Shade::Bold, title));
        text.push('\n');
        if of_kind.is_empty() {
            text.push_str("  none\n\n");
            continue;
        }
        let rows: Vec<[String; 4]> = of_kind.iter().map(|thing| row(thing)).collect();
        for line in table(style, &rows).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text.push_str(&format!("  {}\n\n", advice(kind, key, &of_kind, settings)));
    }
    text.trim_end().to_owned()
}

fn row(thing: &Thing) -> [String; 4] {
    [
        if thing.in_use { "in use" } else { "" }.to_owned(),
        visible(&thing.id),
        visible(&thing.name),
        thing.problem.as_deref().map_or_else(String::new, visible),
    ]
}

/// What to write in the settings to use one.
fn advice(kind: Kind, key: &str, things: &[&Thing], settings: &Settings) -> String {
    let file = settings.file().map_or_else(|| "the settings".to_owned(), |file| file.display().to_string());
    match kind {
        Kind::Display => format!("to turn it on or off, write in {file}: {key} = true, or false"),
        Kind::Speech => format!(
            "to use another program, which reads a line of text and writes WAV, write in {file}: {key} = [\"PROGRAM\", \"ARGUMENT\"]"
        ),
        Kind::Camera | Kind::Input | Kind::Output | Kind::Led | Kind::Gpio => {
            let usable = things.iter().find(|thing| thing.problem.is_none());
            match usable {
                Some(thing) => format!("to use one, write in {file}: {key} = {:?}", visible(&thing.id)),
                None => format!("none of them can be used now; {key} would name it"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use config::Places;
    use handlers::sign::gpio::GpioChipLine;

    use super::*;

    fn settings(sets: &[&str]) -> Settings {
        let places = Places { config_dir: "/none".into(), state_dir: "/none".into(), config_named: false };
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Settings::load(&places, &sets, std::iter::empty()).unwrap()
    }

    fn chip(name: &str, label: &str, lines: &[(&str, Option<&str>)]) -> GpioChip {
        let lines = lines.iter().zip(0..).map(|((name, by), offset)| GpioChipLine {
            offset,
            name: (*name).to_owned(),
            used_by: by.map(str::to_owned),
        });
        GpioChip { name: name.to_owned(), label: label.to_owned(), lines: Ok(lines.collect()) }
    }

    #[test]
    fn each_thing_is_named_as_the_settings_take_it_and_the_one_in_use_is_marked() {
        let leds = ["a", "kitchen::inuse"].map(|name| FoundLed { name: name.to_owned(), problem: None });
        let chips = [
            chip("gpiochip0", "pinctrl-board", &[("LAMP", None), ("", Some("spi0 CS0"))]),
            chip("gpiochip1", "twin", &[("A", None)]),
            chip("gpiochip2", "twin", &[("A", None)]),
        ];
        let rows: &[(&[&str], &[&str])] = &[
            (&[], &["true"]),
            (&["sign.led=a", "keeper.display=false"], &["a"]),
            (&["sign.gpio=pinctrl-board/0"], &["pinctrl-board/0", "true"]),
            (&["sign.gpio=gpiochip0/LAMP"], &["pinctrl-board/0", "true"]),
            (&["sign.gpio=LAMP,active-low"], &["pinctrl-board/0", "true"]),
            (&["sign.gpio=gpiochip2/0"], &["gpiochip2/0", "true"]),
        ];
        for (sets, in_use) in rows {
            let found = signs(&settings(sets), leds.to_vec(), &chips);
            let ids: Vec<&str> = found.iter().map(|thing| thing.id.as_str()).collect();
            let all =
                ["a", "kitchen::inuse", "pinctrl-board/0", "pinctrl-board/1", "gpiochip1/0", "gpiochip2/0", "true"];
            assert_eq!(ids, all);
            let marked: Vec<&str> = found.iter().filter(|one| one.in_use).map(|one| one.id.as_str()).collect();
            assert_eq!(&marked, in_use, "{sets:?}");
            assert_eq!(found[3].problem.as_deref(), Some("spi0 CS0 holds the line"));
            // What is printed is what the settings take.
            for thing in found.iter().filter(|thing| thing.kind != Kind::Display) {
                let set = format!("{}={}", thing.setting, thing.id);
                let again = signs(&settings(&[&set]), leds.to_vec(), &chips);
                assert!(again.iter().any(|one| one.id == thing.id && one.in_use), "{set}");
            }
        }
    }

    #[test]
    fn the_speech_engine_that_would_be_used_is_listed_with_why_it_cannot_be() {
        let told = |sets: &[&str]| -> Vec<(String, bool, bool)> {
            let found = engines(&settings(sets)).into_iter();
            found.map(|one| (one.id, one.in_use, one.problem.is_some())).collect()
        };
        let espeak = told(&[]);
        assert_eq!((espeak.len(), espeak[0].0.as_str(), espeak[0].1), (1, "espeak-ng", true));
        assert_eq!(told(&["speech.voice=de"])[0].0, "espeak-ng");
        let german = engines(&settings(&["speech.voice=de"]));
        assert_eq!(german[0].name, "used because speech.command is not set, with the voice de");
        let named = told(&["speech.command=[\"/bin/sh\", \"-c\", \"x\"]"]);
        assert_eq!(named[0], ("/bin/sh".to_owned(), true, false));
        assert_eq!((named[1].0.as_str(), named[1].1), ("espeak-ng", false));
        let missing = told(&["speech.command=[\"/nonexistent/piper\"]"]);
        assert_eq!(missing[0], ("/nonexistent/piper".to_owned(), true, true));
    }

    #[test]
    fn cameras_and_cards_are_named_as_the_settings_take_them_and_the_one_in_use_is_marked() {
        let camera = |id: &str, node: &str, problem: Option<&str>| FoundCamera {
            id: id.to_owned(),
            name: "Eye".to_owned(),
            node: node.into(),
            also: vec![format!("/dev/v4l/by-path/{id}-path")],
            problem: problem.map(str::to_owned),
        };
        let found =
            || vec![camera("usb-A-index0", "/dev/video0", Some("busy")), camera("usb-B-index0", "/dev/video2", None)];
        let card = |id: &str, also: &[&str], records, plays| Card {
            id: id.to_owned(),
            also: also.iter().map(|name| (*name).to_owned()).collect(),
            name: id.to_owned(),
            records,
            plays,
        };
        let webcam = "usb:0d8c:0014,SERIAL=A1,DEV=0";
        let found_cards = [card("default", &[], true, true), card(webcam, &["plughw:CARD=Webcam,DEV=0"], true, false)];
        let rows: &[(&[&str], &[&str])] = &[
            (&[], &["usb-B-index0", "default", "default"]),
            (&["camera.device=usb-A-index0"], &["usb-A-index0", "default", "default"]),
            (&["camera.device=/dev/video2"], &["usb-B-index0", "default", "default"]),
            (&["camera.device=/dev/v4l/by-id/usb-A-index0"], &["usb-A-index0", "default", "default"]),
            (&["audio.input=plughw:CARD=Webcam,DEV=0"], &["usb-B-index0", webcam, "default"]),
            (&["audio.input=usb:0d8c:0014,SERIAL=A1"], &["usb-B-index0", webcam, "default"]),
            (&["camera.device=usb-C-index0", "audio.output=plughw:CARD=Gone,DEV=0"], &["default"]),
        ];
        for (sets, in_use) in rows {
            let settings = settings(sets);
            let mut things = of_cameras(&settings, found());
            things.extend(of_cards(&settings, &found_cards));
            let marked: Vec<&str> = things.iter().filter(|one| one.in_use).map(|one| one.id.as_str()).collect();
            assert_eq!(&marked, in_use, "{sets:?}");
        }
        let port = "usb:0d8c:0014,PORT=pci-0000:00:14.0-usbv2-0:2:1.0,DEV=0";
        let things = of_cards(&settings(&[]), &[card(webcam, &[port, "plughw:CARD=Webcam,DEV=0"], true, false)]);
        assert_eq!(things[0].name, format!("{webcam}, by its port {port}"));
    }
}
