//! What carries the in-use sign of a device, as its settings and its simulation say, and what of it must work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Settings, SignCarrier, SignSettings};
use handlers::sign::LEDS;
use handlers::{GpioSign, LedSign, Needed, SignBackend};

use crate::device::StartError;
use crate::keeper::display::Display;
use crate::simulate::Simulation;

/// The backends, in the order in which they are lit.
pub(crate) fn of(
    settings: &Settings,
    display: &Display,
    simulation: Option<&Simulation>,
) -> Result<Vec<Arc<dyn SignBackend>>, StartError> {
    let sign = &settings.sign;
    let mut backends: Vec<Arc<dyn SignBackend>> = Vec::new();
    let mut carry = |backend: Arc<dyn SignBackend>, must_work: bool| {
        backends.push(if must_work { Needed::new(backend) } else { backend });
    };
    if let Some(simulation) = simulation {
        // It stands for the LED and the line; a page beside it is needed only where the settings say so.
        let listed = |carrier| sign.require.as_ref().is_some_and(|list| list.contains(&carrier));
        carry(Arc::new(simulation.sign.clone()), listed(SignCarrier::Led) || listed(SignCarrier::Gpio));
        if settings.keeper.display {
            carry(Arc::new(display.clone()), listed(SignCarrier::Display));
        }
        return Ok(backends);
    }
    let mut backends = lights(sign)?;
    if settings.keeper.display {
        let page: Arc<dyn SignBackend> = Arc::new(display.clone());
        backends.push(if sign.must_work(SignCarrier::Display) { Needed::new(page) } else { page });
    }
    Ok(backends)
}

/// The LED and the line that the settings name.
pub(crate) fn lights(sign: &SignSettings) -> Result<Vec<Arc<dyn SignBackend>>, StartError> {
    let mut lights: Vec<Arc<dyn SignBackend>> = Vec::new();
    let mut carry = |light: Arc<dyn SignBackend>, must_work: bool| {
        lights.push(if must_work { Needed::new(light) } else { light });
    };
    if let Some(led) = &sign.led {
        let led = LedSign::new(LEDS, led).map_err(StartError::Sign)?;
        carry(Arc::new(led), sign.must_work(SignCarrier::Led));
    }
    if let Some(line) = &sign.gpio {
        carry(Arc::new(GpioSign::new(line.clone())), sign.must_work(SignCarrier::Gpio));
    }
    Ok(lights)
}

/// Where the kernel shows what carries the sign: an LED, and the GPIO chips with their older interface.
pub(crate) fn kernel_folders(sign: &SignSettings) -> Vec<PathBuf> {
    let led = sign.led.iter().map(|led| Path::new(LEDS).join(led));
    let chips = sign.gpio.iter().flat_map(|_| ["/sys/class/gpio", "/sys/bus/gpio"].map(PathBuf::from));
    led.chain(chips).collect()
}
