//! `config init`, `config check`, `config show`.

use config::{Places, Settings, safe};

use super::args::{Cli, ConfigOrder};
use super::problem::Problem;
use super::world::World;

pub(crate) fn perform(cli: &Cli, order: &ConfigOrder, world: &mut World) -> Result<(), Problem> {
    let places = world.places(cli)?;
    match order {
        ConfigOrder::Init => init(&places, world),
        ConfigOrder::Check => {
            let settings = load(cli, &places, world)?;
            world.print(match settings.file() {
                Some(file) => format!("The settings are good: {}", file.display()),
                None => format!(
                    "The settings are good. There is no {}, so the defaults hold.",
                    places.settings_file().display()
                ),
            });
            Ok(())
        }
        ConfigOrder::Show(output) => {
            let settings = load(cli, &places, world)?;
            if output.json {
                world.print_json(&settings.to_json());
            } else {
                world.print(settings.show());
            }
            Ok(())
        }
    }
}

fn init(places: &Places, world: &mut World) -> Result<(), Problem> {
    let file = places.settings_file();
    safe::ensure_private_dir(&places.config_dir).map_err(|error| Problem::of(&error))?;
    let written =
        safe::create_private(&file, Settings::default_file().as_bytes()).map_err(|error| Problem::of(&error))?;
    if !written {
        return Err(Problem::failed(format!("{} is there already; it was not touched", file.display())));
    }
    world.print(format!(
        "Wrote {}. Every key in it is explained; change what you need, then check it with: latchkeyd config check",
        file.display()
    ));
    Ok(())
}

pub(crate) fn load(cli: &Cli, places: &Places, world: &World) -> Result<Settings, Problem> {
    Settings::load(places, &cli.sets, world.variables()).map_err(|error| Problem::of(&error))
}
