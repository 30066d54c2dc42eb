#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A settings folder with `file` in it.
fn room(file: Option<&[u8]>) -> (tempfile::TempDir, Places) {
    let folder = tempfile::tempdir().unwrap();
    let places =
        Places { config_dir: folder.path().to_owned(), state_dir: folder.path().to_owned(), config_named: true };
    if let Some(bytes) = file {
        fs::write(places.settings_file(), bytes).unwrap();
    }
    (folder, places)
}

fn load(file: Option<&[u8]>, env: &[(&str, &str)], sets: &[&str]) -> Result<Settings, String> {
    let (_folder, places) = room(file);
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let folder = places.config_dir.display().to_string();
    Settings::load(&places, &sets, env).map_err(|error| error.to_string().replace(&folder, "…"))
}

fn refused(file: &str, expected: &str) {
    match load(Some(file.as_bytes()), &[], &[]) {
        Ok(_) => panic!("accepted: {file}"),
        Err(sentence) => assert_eq!(sentence, expected, "{file}"),
    }
}

#[test]
fn without_a_file_the_defaults_hold() {
    let settings = load(None, &[], &[]).unwrap();
    assert_eq!(settings.link.direct.listen.to_string(), "127.0.0.1:7601");
    assert_eq!(settings.keeper.listen.to_string(), "127.0.0.1:7602");
    assert_eq!(settings.limits, LimitSettings { rate_per_second: 200, rate_burst: 2000 });
    assert_eq!((settings.camera.device.clone(), settings.sign.led.clone(), settings.file()), (None, None, None));
    assert_eq!(settings.handlers, HandlerSettings { folder: None, accept_weak_sandbox: false });
    assert!(!settings.device.name.is_empty() && settings.keeper.display && !settings.link.direct.tls());
}

#[test]
fn the_environment_wins_over_the_file_and_the_command_line_over_both() {
    let file = b"[device]\nname = 'file'\n[limits]\nrate_burst = 7\nrate_per_second = 5\n[link]\ndirect.hosts = ['a']";
    let env =
        [("LATCHKEY_SET_DEVICE__NAME", "environment"), ("LATCHKEY_SET_LIMITS__RATE_BURST", "8"), ("PATH", "/bin")];
    let settings =
        load(Some(file), &env, &["device.name=first", "device.name=line = 2", "link.direct.listen=0.0.0.0:0"]).unwrap();
    assert_eq!(settings.device.name, "line = 2");
    assert_eq!(settings.limits, LimitSettings { rate_per_second: 5, rate_burst: 8 });
    assert_eq!(settings.link.direct.hosts, ["a"]);
    assert_eq!(settings.link.direct.listen.to_string(), "0.0.0.0:0");
    assert!(settings.link.direct.tls(), "beyond loopback the link speaks TLS unless it is set otherwise");
}

#[test]
fn bare_text_is_a_string_and_toml_is_taken_as_it_is() {
    let rows: &[(&str, &str, &str)] = &[
        ("device.name=42", "/device/name", "\"42\""),
        ("device.name=true", "/device/name", "\"true\""),
        ("device.name=\"a b\"", "/device/name", "\"a b\""),
        ("device.name='q'", "/device/name", "\"q\""),
        ("link.direct.hosts=one.local", "/link/direct/hosts", "[\"one.local\"]"),
        ("link.direct.hosts=[\"a\", \"B\"]", "/link/direct/hosts", "[\"a\",\"b\"]"),
        ("keeper.display=false", "/keeper/display", "false"),
        ("link.direct.advertise=[fd00::1]", "/link/direct/advertise", "\"fd00::1\""),
        ("link.direct.scheme=http", "/link/direct/scheme", "\"http\""),
        ("camera.device=/dev/video3", "/camera/device", "\"/dev/video3\""),
        ("camera.size=640x480", "/camera/size", "\"640x480\""),
        ("camera.largest=16384x16", "/camera/largest", "\"16384x16\""),
        ("handlers.folder=/srv/handlers", "/handlers/folder", "\"/srv/handlers\""),
        ("sign.gpio=a/17, active-low", "/sign/gpio", "\"a/17,active-low\""),
        ("sign.require=display", "/sign/require", "[\"display\"]"),
        ("sign.sound=true", "/sign/sound", "true"),
        ("audio.input=alsa:plughw:CARD=PCH,DEV=0", "/audio/input", "\"plughw:CARD=PCH,DEV=0\""),
        ("audio.output=usb:0D8C:0014,SERIAL=A1", "/audio/output", "\"usb:0d8c:0014,SERIAL=A1,DEV=0\""),
        ("audio.volume=40", "/audio/volume", "40"),
        ("speech.command=piper", "/speech/command", "[\"piper\"]"),
        ("speech.command=[\"/a b/c\", \"-x y\"]", "/speech/command", "[\"/a b/c\",\"-x y\"]"),
        ("speech.voice=de+f2", "/speech/voice", "\"de+f2\""),
        ("quiet.hours=22:00-07:00", "/quiet/hours", "[\"22:00-07:00\"]"),
        ("handlers.accept_weak_sandbox=true", "/handlers/accept_weak_sandbox", "true"),
    ];
    for (set, pointer, expected) in rows {
        let settings = load(None, &[], &[set]).unwrap();
        assert_eq!(&settings.to_json().pointer(pointer).unwrap().to_string(), expected, "{set}");
    }
}

#[test]
fn an_unknown_key_names_file_line_and_the_nearest_known_key() {
    refused(
        "[camera]\n\n# x\ndevcie = 'a'\n",
        "…/latchkey.toml:4: unknown key `camera.devcie`; did you mean `camera.device`?",
    );
    refused(
        "[device]\nname='a'\n[link]\nlisten = 'x'",
        "…/latchkey.toml:4: unknown key `link.listen`; did you mean `link.direct.listen`?",
    );
    refused(
        "listen = 'x'",
        "…/latchkey.toml:1: unknown key `listen`; did you mean `link.direct.listen` or `keeper.listen`?",
    );
    refused("camra.device = 'x'", "…/latchkey.toml:1: unknown key `camra.device`; did you mean `camera.device`?");
    refused("[keper]", "…/latchkey.toml:1: unknown key `keper`; did you mean `keeper`?");
    refused(
        "\n[capabilities]\nallow=1",
        "…/latchkey.toml:3: unknown key `capabilities.allow`; `latchkeyd config init` writes a file with every key",
    );
    refused(
        "device = { name = 'a', nme = 'b' }",
        "…/latchkey.toml:1: unknown key `device.nme`; did you mean `device.name`?",
    );
    assert_eq!(
        load(None, &[("LATCHKEY_SET_LINK__LISTEN", "x")], &[]).unwrap_err(),
        "environment variable LATCHKEY_SET_LINK__LISTEN: unknown key `link.listen`; did you mean `link.direct.listen`?"
    );
    assert_eq!(
        load(None, &[], &["sign.lde=x"]).unwrap_err(),
        "--set sign.lde: unknown key `sign.lde`; did you mean `sign.led`?"
    );
}

#[test]
fn a_value_that_does_not_do_names_the_place_that_set_it() {
    refused(
        "[limits]\nrate_burst = 'many'",
        "…/latchkey.toml:2: `limits.rate_burst`: expected a whole number, found string \"many\"",
    );
    refused("device.name = 5", "…/latchkey.toml:1: `device.name`: expected text in quotes, found signed int `5`");
    refused(
        "link.direct.hosts = 'a'",
        "…/latchkey.toml:1: `link.direct.hosts`: expected a list of texts, found string \"a\"",
    );
    refused("keeper.display = 1", "…/latchkey.toml:1: `keeper.display`: expected true or false, found signed int `1`");
    refused("[limits]\nrate_burst = 0", "…/latchkey.toml:2: `limits.rate_burst`: 0 is not within 1 and 1000000");
    for size in ["1280", "1280 x 720", "1280X720", "0x720", "1280x+720", "01280x720", "15x720", "1280x16385", "x", ""] {
        refused(
            &format!("camera.size = '{size}'"),
            &format!(
                "…/latchkey.toml:1: `camera.size`: {size:?} is not a size in pixels, such as \"1280x720\" (each side 16 to 16384)"
            ),
        );
    }
    refused("\nlink = 5", "…/latchkey.toml:2: `link`: this is a table of settings, not a value");
    refused(
        "[keeper]\nlisten = '0.0.0.0:1'",
        "…/latchkey.toml:2: `keeper.listen`: \"0.0.0.0:1\" is not a loopback address; the keeper's page is for this machine alone",
    );
    refused(
        "[link.direct]\nadvertise = 'http://x'",
        "…/latchkey.toml:2: `link.direct.advertise`: \"http://x\" is not a host name or address (without scheme and port)",
    );
    refused("[sign]\nled = '../x'", "…/latchkey.toml:2: `sign.led`: \"../x\" is not a name under /sys/class/leds");
    for folder in ["handlers", "~/handlers", "/srv/../etc", ""] {
        let sentence = format!(
            "…/latchkey.toml:2: `handlers.folder`: {folder:?} is not a folder's whole path, from / on and without `..`"
        );
        refused(&format!("[handlers]\nfolder = '{folder}'"), &sentence);
    }
    refused(
        "[handlers]\naccept_weak_sandbox = 'yes'",
        "…/latchkey.toml:2: `handlers.accept_weak_sandbox`: expected true or false, found string \"yes\"",
    );
    refused(
        "[handlers]\naccept_weak = true",
        "…/latchkey.toml:2: unknown key `handlers.accept_weak`; did you mean `handlers.accept_weak_sandbox`?",
    );
    let file: &[u8] = b"[link.direct]\nlisten = '127.0.0.1:1'";
    assert_eq!(
        load(Some(file), &[("LATCHKEY_SET_LINK__DIRECT__LISTEN", "nowhere")], &[]).unwrap_err(),
        "environment variable LATCHKEY_SET_LINK__DIRECT__LISTEN: `link.direct.listen`: \"nowhere\" is not an address with a port, such as \"127.0.0.1:7601\" or \"[::1]:7601\""
    );
    assert_eq!(
        load(None, &[], &["device.name"]).unwrap_err(),
        "--set device.name: a setting is written key=value, such as --set device.name=kitchen"
    );
    assert_eq!(
        load(None, &[], &["camera=3"]).unwrap_err(),
        "--set camera: `camera`: this is a table of settings, not a value"
    );
}

#[test]
fn a_broken_file_names_its_line() {
    for (file, line) in
        [("[device\nname = 'a'", 1), ("[device]\nname = 'a\n", 2), ("[device]\nname = 'a'\nname = 'b'", 3)]
    {
        let sentence = load(Some(file.as_bytes()), &[], &[]).unwrap_err();
        assert!(sentence.starts_with(&format!("…/latchkey.toml:{line}: ")) && !sentence.contains('\n'), "{sentence}");
    }
    refused("[device]\nname = ", "…/latchkey.toml:2: this is not TOML");
    assert_eq!(load(Some(b"\n# \xff"), &[], &[]).unwrap_err(), "…/latchkey.toml:2: not UTF-8 text");
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_taken_and_still_counted_right() {
    let plain = load(Some(b"[device]\nname = 'a'\n"), &[], &[]).unwrap();
    let marked = load(Some(b"\xef\xbb\xbf[device]\r\nname = 'a'\r\n"), &[], &[]).unwrap();
    assert_eq!(plain.device, marked.device);
    refused(
        "\u{feff}[device]\r\nname = 'a'\r\nnam = 'b'\r\n",
        "…/latchkey.toml:3: unknown key `device.nam`; did you mean `device.name`?",
    );
}

#[test]
fn without_a_folder_the_defaults_hold_and_whoever_named_it_is_told() {
    let (folder, mut places) = room(None);
    assert_eq!(places.advice(), None);
    let defaults = Settings::load(&places, &[], std::iter::empty()).unwrap();
    places.config_dir = folder.path().join("none");
    assert_eq!(Settings::load(&places, &[], std::iter::empty()).unwrap(), defaults);
    assert!(places.advice().unwrap().contains("config init"));
    places.config_named = false;
    assert_eq!(places.advice(), None);
}

#[test]
fn handlers_lie_beside_the_settings_file_unless_the_settings_name_their_folder() {
    let (_folder, places) = room(None);
    let places = Places { config_dir: "/c".into(), state_dir: "/s".into(), ..places };
    for (sets, folder) in [(&[][..], "/c/handlers"), (&["handlers.folder=/srv/lamps"], "/srv/lamps")] {
        assert_eq!(places.handlers_dir(&load(None, &[], sets).unwrap()), Path::new(folder));
    }
    assert_eq!(places.cache_dir(), Path::new("/s/cache"));
}

#[test]
fn a_file_or_folder_that_others_may_write_is_refused_with_the_mend() {
    let (folder, places) = room(Some(b"[device]\nname = 'a'"));
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(&places.settings_file(), 0o644);
    Settings::load(&places, &[], std::iter::empty()).unwrap();
    for path in [places.settings_file(), folder.path().to_owned()] {
        set(&path, 0o777);
        let sentence = Settings::load(&places, &[], std::iter::empty()).unwrap_err().to_string();
        assert!(sentence.ends_with(&format!("run: chmod go-w {}", path.display())), "{sentence}");
        set(&path, 0o700);
    }
    fs::remove_file(places.settings_file()).unwrap();
    fs::create_dir(places.settings_file()).unwrap();
    let sentence = Settings::load(&places, &[], std::iter::empty()).unwrap_err().to_string();
    assert!(sentence.ends_with("latchkey.toml is not a file"), "{sentence}");
}

#[test]
fn a_reload_refuses_a_vanished_file_and_every_broken_one() {
    let (_folder, places) = room(Some(b"[device]\nname = 'a'"));
    let settings = Settings::load(&places, &[], std::iter::empty()).unwrap();
    fs::write(places.settings_file(), "[device]\nname = 'b'").unwrap();
    assert_eq!(settings.reload(&places, &[], std::iter::empty()).unwrap().device.name, "b");
    fs::write(places.settings_file(), "[device").unwrap();
    assert!(matches!(settings.reload(&places, &[], std::iter::empty()), Err(SettingsError::Syntax { .. })));
    fs::remove_file(places.settings_file()).unwrap();
    assert!(matches!(settings.reload(&places, &[], std::iter::empty()), Err(SettingsError::Gone { .. })));
}

#[test]
fn the_default_file_is_the_defaults_and_its_lines_are_valid_when_uncommented() {
    let plain = load(None, &[], &[]).unwrap();
    let written = load(Some(Settings::default_file().as_bytes()), &[], &[]).unwrap();
    assert_eq!(plain.to_json(), written.to_json());
    let active: String = Settings::default_file()
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.split(" = ").next().is_some_and(|word| !word.contains(' ')) && rest.contains(" = ") => {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let all = load(Some(active.as_bytes()), &[], &[]).unwrap();
    for key in keys::KEYS {
        assert!(!key.meaning.is_empty());
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let value = all.to_json().pointer(&pointer).cloned().unwrap_or_else(|| panic!("{} is in no struct", key.path));
        assert!(!value.is_null(), "{} was not read from the default file", key.path);
        let default = plain.to_json().pointer(&pointer).cloned().unwrap();
        let has_default = key.unset.is_empty();
        assert_eq!(has_default, value == default, "{}: the table's default is the real one", key.path);
    }
}

#[test]
fn what_show_prints_gives_the_same_settings_again() {
    let sets = ["device.name=q\"uote", "camera.device=/dev/video0", "link.direct.hosts=[\"a\"]", "log.format=json"];
    for sets in [&sets[..], &[]] {
        let settings = load(None, &[], sets).unwrap();
        let again = load(Some(settings.show().as_bytes()), &[], &[]).unwrap();
        assert_eq!(settings.to_json(), again.to_json(), "{}", settings.show());
    }
}

#[test]
fn what_must_carry_the_sign_is_what_is_named_or_else_what_is_there() {
    use SignCarrier::{Display, Gpio, Led};
    let rows: &[(&[&str], &[SignCarrier])] = &[
        (&[], &[Display]),
        (&["keeper.display=false"], &[Display]),
        (&["sign.led=a"], &[Led]),
        (&["sign.gpio=a/1"], &[Gpio]),
        (&["sign.led=a", "sign.gpio=a/1"], &[Led, Gpio]),
        (&["sign.led=a", "sign.gpio=a/1", "sign.require=led"], &[Led]),
        (&["sign.led=a", "sign.require=display"], &[Display]),
        (&["sign.led=a", "sign.gpio=a/1", "sign.require=[\"display\", \"gpio\", \"led\"]"], &[Led, Gpio, Display]),
    ];
    for (sets, wanted) in rows {
        let settings = load(None, &[], sets).unwrap();
        let needed: Vec<_> = SignCarrier::ALL.into_iter().filter(|one| settings.sign.must_work(*one)).collect();
        assert_eq!(&needed, wanted, "{sets:?}");
        assert!(!needed.is_empty(), "no settings ask for a capture without a sign");
    }
}

#[test]
fn a_list_of_signs_that_is_empty_unknown_doubled_or_without_its_setting_is_refused() {
    let rows: &[(&str, &str)] = &[
        ("require = []", "an empty list would ask for no sign at all; leave the key out, or name what must work"),
        ("require = ['lamp']", "\"lamp\" is none of \"led\", \"gpio\", \"display\""),
        ("require = ['displya']", "\"displya\" is none of \"led\", \"gpio\", \"display\"; did you mean \"display\"?"),
        ("require = ['display', 'display']", "\"display\" stands there twice"),
        ("require = ['display', 'led']", "\"led\" must work, but sign.led names none"),
        ("led = 'a'\nrequire = ['gpio']", "\"gpio\" must work, but sign.gpio names no line"),
        (
            "led = 'a'\nrequire = ['display']\n[keeper]\ndisplay = false",
            "\"display\" must work, but keeper.display turns the display page off",
        ),
    ];
    for (lines, reason) in rows {
        let line = 2 + lines.lines().position(|line| line.starts_with("require")).unwrap();
        refused(&format!("[sign]\n{lines}"), &format!("…/latchkey.toml:{line}: `sign.require`: {reason}"));
    }
    load(Some(b"[sign]\nled = 'a'\nrequire = ['display', 'led']"), &[], &[]).unwrap();
    refused(
        "[sign]\ngpio = '17'",
        "…/latchkey.toml:2: `sign.gpio`: 17 is a line of which chip? Write gpiochip0/17, or better the chip's label",
    );
}

#[test]
fn a_sound_card_by_its_number_or_by_its_kind_alone_is_refused() {
    refused(
        "[audio]\ninput = 'hw:CARD=1,DEV=0'",
        "…/latchkey.toml:2: `audio.input`: \"hw:CARD=1,DEV=0\" names a card by number, which changes; name it by its name, as in \
         plughw:CARD=NAME,DEV=0",
    );
    refused(
        "[audio]\noutput = 'usb:0d8c:0014'",
        "…/latchkey.toml:2: `audio.output`: \"usb:0d8c:0014\" names no sound card on USB: write usb:VENDOR:PRODUCT,SERIAL=… or \
         usb:VENDOR:PRODUCT,PORT=…, as latchkeyd hardware prints it",
    );
}

#[test]
fn what_could_be_an_option_a_shell_line_or_no_time_is_refused_for_speech() {
    let program = |word: &str| {
        format!(
            "{word:?} is neither a program's whole path nor its name alone; each argument is a text of its own, since no shell reads them"
        )
    };
    let voice = |word: &str| {
        format!(
            "{word:?} is not the name of a voice, such as \"en-us\" or \"de+f2\" (letters, digits, -, + and _); see: espeak-ng --voices"
        )
    };
    let written = |word: &str| format!("{word:?} is not a time of day such as \"22:00-07:00\"");
    let long = "x".repeat(65);
    let mut rows = vec![
        (
            "speech.command = []".to_owned(),
            "an empty list names no program; leave the key out for espeak-ng".to_owned(),
        ),
        ("speech.command = [\"a\\u0000b\"]".to_owned(), "no word of a command contains U+0000".to_owned()),
        (format!("speech.command = {:?}", vec!["x"; 33]), "at most 32 words of at most 4096 bytes".to_owned()),
        (
            "quiet.hours = ['07:00-07:00']".to_owned(),
            "\"07:00-07:00\" ends when it begins; the whole day is \"00:00-24:00\"".to_owned(),
        ),
        (format!("quiet.hours = {:?}", vec!["01:00-02:00"; 17]), "at most 16 times, these are 17".to_owned()),
        ("audio.volume = 0".to_owned(), "0 is not within 1 and 100".to_owned()),
        ("audio.volume = 101".to_owned(), "101 is not within 1 and 100".to_owned()),
    ];
    for word in ["piper -f -", "bin/piper", "./piper", "-x", ""] {
        rows.push((format!("speech.command = ['{word}']"), program(word)));
    }
    for word in ["-f/etc/hostname", "en us", "../x", "en/us", "", "é", &long] {
        rows.push((format!("speech.voice = '{word}'"), voice(word)));
    }
    for word in [
        "22:00",
        "22-07",
        "22:00-25:00",
        "24:00-07:00",
        "22:60-07:00",
        "9:00-10:00",
        "22:00 - 07:00",
        "+1:00-02:00",
        "",
    ] {
        rows.push((format!("quiet.hours = ['{word}']"), written(word)));
    }
    for (line, reason) in rows {
        let key = line.split(' ').next().unwrap();
        refused(&line, &format!("…/latchkey.toml:1: `{key}`: {reason}"));
    }
    let taken = "audio.volume = 1\nspeech.command = ['/bin/x', '-f/etc/passwd', '']\nquiet.hours = ['00:00-24:00', '23:59-00:00']";
    let settings = load(Some(taken.as_bytes()), &[], &[]).unwrap();
    assert_eq!(settings.quiet.hours.iter().map(QuietHours::minutes).collect::<Vec<_>>(), [1440, 1]);
    load(Some(b"speech.voice = 'mb-en1'"), &[], &[]).unwrap();
}
