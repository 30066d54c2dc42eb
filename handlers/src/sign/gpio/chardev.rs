//! The kernel's GPIO character devices, through gpiocdev.
//!
//! The kernel closes a line's descriptor in every child by itself; a chip is only open while it is asked.

use std::error::Error as _;
use std::io;

use config::GpioLine;
use gpiocdev::line::{Drive, Value};
use gpiocdev::{Chip, Error, Request, chip};

use super::{CONSUMER, GpioChip, GpioChipLine, GpioChips, GpioFault, HeldLine};

/// The chips under /dev.
#[derive(Debug, Clone, Copy)]
pub struct CharacterDevice;

impl GpioChips for CharacterDevice {
    fn chips(&self) -> Result<Vec<GpioChip>, GpioFault> {
        let paths = chip::chips().map_err(|error| fault("", &error))?;
        Ok(paths
            .iter()
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?.to_owned();
                let seen = Chip::from_path(path).and_then(|chip| Ok((chip.info()?.label, lines(&chip)?)));
                let (label, lines) = match seen {
                    Ok((label, lines)) => (label, Ok(lines)),
                    Err(error) => (String::new(), Err(fault(&name, &error))),
                };
                Some(GpioChip { name, label, lines })
            })
            .collect())
    }

    fn take(&self, chip: &str, offset: u32, wanted: &GpioLine, lit: bool) -> Result<Box<dyn HeldLine>, GpioFault> {
        let mut request = Request::builder();
        request.on_chip(format!("/dev/{chip}")).with_consumer(CONSUMER).with_line(offset).as_output(value(lit));
        if wanted.active_low() {
            request.as_active_low();
        }
        if wanted.open_drain() {
            request.with_drive(Drive::OpenDrain);
        }
        let request = request.request().map_err(|error| fault(chip, &error))?;
        Ok(Box::new(Requested(request)))
    }
}

struct Requested(Request);

impl HeldLine for Requested {
    fn set(&self, lit: bool) -> Result<(), GpioFault> {
        self.0.set_lone_value(value(lit)).map_err(|error| fault("", &error))
    }

    fn lit(&self) -> Result<bool, GpioFault> {
        Ok(self.0.lone_value().map_err(|error| fault("", &error))? == Value::Active)
    }
}

const fn value(lit: bool) -> Value {
    if lit { Value::Active } else { Value::Inactive }
}

fn lines(chip: &Chip) -> Result<Vec<GpioChipLine>, Error> {
    let lines = chip.line_info_iter()?;
    lines
        .map(|line| {
            line.map(|line| GpioChipLine {
                offset: line.offset,
                name: line.name,
                used_by: line.used.then_some(line.consumer),
            })
        })
        .collect()
}

/// The error in our words; the kernel's own where there are none.
fn fault(chip: &str, error: &Error) -> GpioFault {
    if let Error::Os(number) = error
        && io::Error::from_raw_os_error(number.0).kind() == io::ErrorKind::PermissionDenied
    {
        return GpioFault::Forbidden(chip.to_owned());
    }
    GpioFault::Driver(error.source().map_or_else(|| error.to_string(), ToString::to_string))
}
