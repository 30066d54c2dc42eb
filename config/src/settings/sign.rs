//! `sign.*`: what carries the in-use sign, and what of it must work.
//!
//! Refuses a list of what must work that is empty, or that names what the settings do not have: no setting asks for a capture
//! without a sign.

use serde::Serialize;

use super::layers::Layer;
use super::raw::RawSign;
use super::{Refusing, SettingsError, checks};
use crate::gpio::{GpioLine, NoGpioLine};
use crate::keys::likeliest;

/// `sign.*`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignSettings {
    /// An LED's name under /sys/class/leds.
    pub led: Option<String>,
    /// A line of a GPIO chip.
    pub gpio: Option<GpioLine>,
    /// What must work; never empty, and each is there by the settings. Without it, see [`SignSettings::must_work`].
    pub require: Option<Vec<SignCarrier>>,
    /// Whether a tone also tells that a capture begins.
    pub sound: bool,
}

impl SignSettings {
    /// Whether a capture needs this one to be lit, whatever else is.
    pub fn must_work(&self, carrier: SignCarrier) -> bool {
        match (&self.require, carrier) {
            (Some(list), _) => list.contains(&carrier),
            (None, SignCarrier::Led) => self.led.is_some(),
            (None, SignCarrier::Gpio) => self.gpio.is_some(),
            (None, SignCarrier::Display) => self.led.is_none() && self.gpio.is_none(),
        }
    }
}

/// What can carry the in-use sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SignCarrier {
    /// The LED of `sign.led`.
    Led,
    /// The line of `sign.gpio`.
    Gpio,
    /// The display page.
    Display,
}

impl SignCarrier {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Led, Self::Gpio, Self::Display];

    /// As `sign.require` writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Led => "led",
            Self::Gpio => "gpio",
            Self::Display => "display",
        }
    }
}

pub(super) fn read(raw: RawSign, layers: &[Layer], display: bool) -> Result<SignSettings, SettingsError> {
    let on = |key: &'static str| Refusing { key, layers };
    let sign = SignSettings {
        led: on("sign.led").optional(raw.led, |text| checks::led(&text))?,
        gpio: on("sign.gpio").optional(raw.gpio, |text| gpio(&text))?,
        require: on("sign.require").optional(raw.require, |words| require(&words))?,
        sound: raw.sound.unwrap_or(false),
    };
    on("sign.require").optional(Some(&sign), |sign| required_are_set(sign, display))?;
    Ok(sign)
}

fn gpio(text: &str) -> Result<GpioLine, String> {
    text.parse().map_err(|error: NoGpioLine| error.to_string())
}

/// What must carry the sign. An empty list would ask for a capture without any sign.
fn require(words: &[String]) -> Result<Vec<SignCarrier>, String> {
    if words.is_empty() {
        return Err("an empty list would ask for no sign at all; leave the key out, or name what must work".to_owned());
    }
    let mut wanted = Vec::new();
    for word in words {
        let carrier = SignCarrier::ALL.into_iter().find(|carrier| carrier.as_str() == word);
        let carrier = carrier.ok_or_else(|| {
            let known = SignCarrier::ALL.map(SignCarrier::as_str);
            let hint = likeliest(word, known.into_iter())
                .map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
            format!("{word:?} is none of \"led\", \"gpio\", \"display\"{hint}")
        })?;
        if wanted.contains(&carrier) {
            return Err(format!("{word:?} stands there twice"));
        }
        wanted.push(carrier);
    }
    Ok(wanted)
}

/// What must work has to be there by the settings themselves.
fn required_are_set(sign: &SignSettings, display: bool) -> Result<(), String> {
    let missing = |carrier: &SignCarrier| match carrier {
        SignCarrier::Led => sign.led.is_none().then_some("\"led\" must work, but sign.led names none"),
        SignCarrier::Gpio => sign.gpio.is_none().then_some("\"gpio\" must work, but sign.gpio names no line"),
        SignCarrier::Display => {
            (!display).then_some("\"display\" must work, but keeper.display turns the display page off")
        }
    };
    let mut wanted = sign.require.iter().flatten();
    wanted.find_map(missing).map_or(Ok(()), |reason| Err(reason.to_owned()))
}
