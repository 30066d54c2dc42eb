//! What a trial of the in-use sign says of the sign, and of each thing that can carry it.

use actors::SignTrial;
use config::{Settings, SignCarrier};
use handlers::sign::Examined;

use super::part_of;
use crate::doctor::{Finding, Part};

/// Where the trial was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) running: bool,
    pub(crate) simulated: bool,
    /// Where the display page is.
    pub(crate) page: Option<&'a str>,
    /// As whom.
    pub(crate) user: &'a str,
}

/// The sign as a whole, then LED, line and page.
pub(crate) fn judge(settings: &Settings, about: About<'_>, seen: &SignTrial) -> Vec<Finding> {
    let mut findings = vec![whole(about, seen)];
    findings.extend(SignCarrier::ALL.into_iter().map(|carrier| {
        let examined = seen.each.iter().find(|one| one.carrier == Some(carrier));
        single(settings, about, carrier, examined)
    }));
    findings
}

fn whole(about: About<'_>, seen: &SignTrial) -> Finding {
    if let Err(why) = &seen.lit {
        let (what, _) = crate::doctor::look::state::split(why);
        return Finding::broken(
            Part::Sign,
            format!("{what}; without it nothing is captured"),
            "latchkeyd doctor led gpio display",
        );
    }
    if let Err(why) = &seen.dark {
        return Finding::broken(
            Part::Sign,
            format!("it was lit and did not go off: {why}"),
            "latchkeyd doctor led gpio",
        );
    }
    let carried: Vec<&str> = seen.each.iter().filter(|one| one.lit.is_ok()).map(|one| one.name.as_str()).collect();
    let simulated = if about.simulated { "; it is simulated" } else { "" };
    Finding::works(Part::Sign, format!("was lit and went off, each read back: {}{simulated}", carried.join(" and ")))
}

fn single(settings: &Settings, about: About<'_>, carrier: SignCarrier, examined: Option<&Examined>) -> Finding {
    let part = part_of(carrier);
    let Some(examined) = examined else { return Finding::not_needed(part, absent(settings, about, carrier)) };
    let needed = match (carrier, about.simulated) {
        // What the settings name has to work, also where it is lit beside others only.
        (SignCarrier::Led | SignCarrier::Gpio, _) => true,
        (SignCarrier::Display, false) => settings.sign.must_work(carrier),
        (SignCarrier::Display, true) => {
            settings.sign.require.as_ref().is_some_and(|list| list.contains(&SignCarrier::Display))
        }
    };
    match &examined.lit {
        Ok(()) if carrier == SignCarrier::Display => {
            Finding::works(part, "a page is open and in sight, and drew the sign")
        }
        Ok(()) => Finding::works(part, format!("{} went on and off, each read back", examined.name)),
        Err(_) if carrier == SignCarrier::Display && !about.running && needed => Finding::broken(
            part,
            "the display page is the in-use sign, and there is none while latchkeyd does not run",
            "latchkeyd run",
        ),
        Err(why) if !needed => Finding::not_needed(part, format!("{why}, which only texts and pictures need")),
        Err(why) => {
            let (what, mend) = mend(carrier, why, settings, about);
            Finding::broken(part, what, mend)
        }
    }
}

/// Why the device does not have this one.
fn absent(settings: &Settings, about: About<'_>, carrier: SignCarrier) -> String {
    match carrier {
        SignCarrier::Led if settings.sign.led.is_none() => "sign.led names no LED".to_owned(),
        SignCarrier::Gpio if settings.sign.gpio.is_none() => "sign.gpio names no line".to_owned(),
        SignCarrier::Display => "keeper.display turns the page off".to_owned(),
        SignCarrier::Led | SignCarrier::Gpio if about.simulated => "the simulated sign stands for it".to_owned(),
        SignCarrier::Led | SignCarrier::Gpio => "the device runs with other settings; it needs a restart".to_owned(),
    }
}

/// What is wrong in a sentence, and the command that mends it.
fn mend(carrier: SignCarrier, why: &str, settings: &Settings, about: About<'_>) -> (String, String) {
    let led = settings.sign.led.as_deref().unwrap_or_default();
    let (folder, user) = (format!("{}/{led}", handlers::sign::LEDS), about.user);
    let what = match carrier {
        SignCarrier::Led => format!("LED {led}: {why}"),
        SignCarrier::Gpio => {
            format!("GPIO {}: {why}", settings.sign.gpio.as_ref().map(ToString::to_string).unwrap_or_default())
        }
        SignCarrier::Display => why.to_owned(),
    };
    let mend = match carrier {
        SignCarrier::Led if why.contains("may not write") => {
            format!(
                "chgrp {user} {folder}/brightness {folder}/trigger && chmod g+w {folder}/brightness {folder}/trigger"
            )
        }
        SignCarrier::Led if why.contains("trigger") => format!("echo none > {folder}/trigger"),
        SignCarrier::Gpio if why.contains("group gpio") => format!("usermod -aG gpio {user}"),
        SignCarrier::Gpio if why.contains("holds the line") => "gpioinfo".to_owned(),
        SignCarrier::Led | SignCarrier::Gpio => "latchkeyd hardware".to_owned(),
        SignCarrier::Display => {
            let page = about.page.unwrap_or("http://127.0.0.1:7602/display");
            format!("chromium --kiosk --app={page}")
        }
    };
    (what, mend)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use config::Places;

    use super::*;
    use crate::doctor::Verdict;

    fn settings(sets: &[&str]) -> Settings {
        let places = Places { config_dir: "/none".into(), state_dir: "/none".into(), config_named: false };
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Settings::load(&places, &sets, std::iter::empty()).unwrap()
    }

    fn one(carrier: Option<SignCarrier>, name: &str, lit: Result<(), &str>) -> Examined {
        Examined { carrier, name: name.to_owned(), lit: lit.map_err(str::to_owned) }
    }

    fn trial(each: Vec<Examined>, lit: Result<(), &str>, dark: Result<(), &str>) -> SignTrial {
        SignTrial { each, lit: lit.map_err(str::to_owned), dark: dark.map_err(str::to_owned) }
    }

    const RUNNING: About<'_> =
        About { running: true, simulated: false, page: Some("http://127.0.0.1:7602/display"), user: "latchkey" };

    /// Sign, LED, line and page: `+` works, `-` not needed, `!` broken.
    fn marks(findings: &[Finding]) -> String {
        let mark = |finding: &Finding| match finding.verdict {
            Verdict::Works => '+',
            Verdict::NotNeeded => '-',
            Verdict::Broken => '!',
        };
        findings.iter().map(mark).collect()
    }

    #[test]
    fn what_is_configured_and_fails_is_broken_and_what_nobody_asked_for_is_not() {
        use SignCarrier::{Display, Gpio, Led};
        let page = |lit: Result<(), &'static str>| one(Some(Display), "display page", lit);
        let led = |lit: Result<(), &'static str>| one(Some(Led), "LED a", lit);
        let gpio = |lit: Result<(), &'static str>| one(Some(Gpio), "GPIO a/1", lit);
        let closed = Err("no display page is open");
        let off = About { running: false, page: None, ..RUNNING };
        let pretended = About { simulated: true, ..RUNNING };
        type Row<'a> = (&'a [&'a str], About<'a>, Vec<Examined>, bool, &'a str);
        let rows: Vec<Row<'_>> = vec![
            (&[], RUNNING, vec![page(Ok(()))], true, "+--+"),
            (&[], RUNNING, vec![page(closed)], false, "!--!"),
            (&[], off, vec![page(closed)], false, "!--!"),
            (&["sign.led=a"], RUNNING, vec![led(Ok(())), page(closed)], true, "++--"),
            (&["sign.led=a", "keeper.display=false"], RUNNING, vec![led(Ok(()))], true, "++--"),
            (&["sign.led=a"], RUNNING, vec![led(Err("there is no such LED")), page(Ok(()))], false, "!!-+"),
            (&["sign.led=a", "sign.gpio=a/1"], off, vec![led(Ok(())), gpio(Ok(())), page(closed)], true, "+++-"),
            (
                &["sign.led=a", "sign.require=display"],
                RUNNING,
                vec![led(Err("there is no such LED")), page(Ok(()))],
                true,
                "+!-+",
            ),
            (&["sign.gpio=a/1"], RUNNING, vec![gpio(Err("spi0 CS0 holds the line")), page(closed)], false, "!-!-"),
            (&[], pretended, vec![one(None, "simulated", Ok(())), page(closed)], true, "+---"),
            (&["sign.led=a"], pretended, vec![one(None, "simulated", Ok(())), page(closed)], true, "+---"),
            (&["sign.require=display"], pretended, vec![one(None, "simulated", Ok(())), page(closed)], false, "!--!"),
        ];
        for (sets, about, each, lit, expected) in rows {
            let lit = if lit { Ok(()) } else { Err("the in-use sign (a) cannot be lit: so it is") };
            let seen = trial(each, lit, Ok(()));
            let findings = judge(&settings(sets), about, &seen);
            assert_eq!(marks(&findings), expected, "{sets:?} {findings:#?}");
            assert!(findings.iter().all(|one| one.mend.is_some() == (one.verdict == Verdict::Broken)));
        }
    }

    #[test]
    fn each_fault_of_a_carrier_has_the_command_that_mends_it() {
        use SignCarrier::{Display, Gpio, Led};
        let rows = [
            (Led, "there is no such LED", "latchkeyd hardware"),
            (
                Led,
                "this program may not write to it",
                "chgrp latchkey /sys/class/leds/a/brightness /sys/class/leds/a/trigger && chmod g+w \
                 /sys/class/leds/a/brightness /sys/class/leds/a/trigger",
            ),
            (Led, "a trigger of the kernel drives it", "echo none > /sys/class/leds/a/trigger"),
            (
                Gpio,
                "this program may not open /dev/gpiochip0; add its user to the group gpio",
                "usermod -aG gpio latchkey",
            ),
            (Gpio, "spi0 CS0 holds the line", "gpioinfo"),
            (Gpio, "there is no GPIO chip b", "latchkeyd hardware"),
            (Display, "the display page is not in sight", "chromium --kiosk --app=http://127.0.0.1:7602/display"),
        ];
        for (carrier, why, command) in rows {
            let sets = ["sign.led=a", "sign.gpio=b/1", "sign.require=[\"led\",\"gpio\",\"display\"]"];
            let seen = trial(vec![one(Some(carrier), "x", Err(why))], Err("so"), Ok(()));
            let findings = judge(&settings(&sets), RUNNING, &seen);
            let told = findings.iter().find(|one| one.part == part_of(carrier)).unwrap();
            assert_eq!((told.verdict, told.mend.as_deref()), (Verdict::Broken, Some(command)));
            assert!(told.what.contains(why), "{}", told.what);
        }
    }

    #[test]
    fn a_sign_that_does_not_go_off_is_broken() {
        let seen = trial(vec![one(None, "simulated", Ok(()))], Ok(()), Err("it stays on"));
        let told = judge(&settings(&[]), RUNNING, &seen).remove(0);
        assert_eq!((told.part, told.verdict), (Part::Sign, Verdict::Broken));
        assert_eq!(told.what, "it was lit and did not go off: it stays on");
    }
}
