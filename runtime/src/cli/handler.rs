//! `handler new`, `check`, `run`, `pack`, `wrap`: for those who write handlers, without a running device.
//!
//! Judges and runs a file by the very steps of the folder service ([`Candidate`]), with a workshop of its own whose folder for native
//! code goes with the command. Writes only where it was told to, and over nothing but the file that it read or an older build.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::folder::{HANDLER_BYTES_MAX, HandlerFile};
use config::manifest::DESCRIPTOR_BYTES_MAX;
use handlers::wasm::author::{self, Lang};
use handlers::wasm::confine::Confinement;
use handlers::wasm::log::{HandlerLog, LogLine};
use handlers::wasm::{Protected, Spent, Workshop, WorkshopParts};
use handlers::{Fault, SystemClock};
use serde_json::{Value, json};
use wire::text::visible;
use wire::{Arguments, Bounds, Object};

use super::args::{Cli, HandlerOrder};
use super::handlers::{limit_words, lines, size, use_words};
use super::print::{Shade, Style};
use super::problem::{Problem, chain};
use super::settings;
use super::world::{World, program};
use crate::boot::SystemChance;
use crate::device::HandlersPlace;
use crate::folder::candidate::{Candidate, file_name, reach_words};
use crate::folder::weakness;

pub(super) mod words;

/// Everybody may read a handler; only its maker may change it.
const FILE_MODE: u32 = 0o644;

pub(super) fn perform(cli: &Cli, order: &HandlerOrder, world: &mut World) -> Result<(), Problem> {
    match order {
        HandlerOrder::New { name, lang, dir } => new(name, *lang, dir.as_deref(), world),
        HandlerOrder::Check { file, output } => {
            let bench = Bench::new(cli, world)?;
            let checked = bench.check(file)?;
            if output.json {
                world.print_json(&checked.to_json());
            } else {
                let style = style(cli, world);
                world.print(checked.to_text(&style, &bench.place));
            }
            Ok(())
        }
        HandlerOrder::Run { file, args, pairs, output } => {
            let given = Given { args: args.as_deref(), pairs };
            let ran = Bench::new(cli, world)?.run(file, &given)?;
            if output.json {
                world.print_json(&ran.to_json());
            } else {
                let style = style(cli, world);
                if let Ok(result) = &ran.ended {
                    world.print_json_of_others(&Value::from(result.clone()));
                }
                world.print_aside(ran.to_text(&style));
            }
            ran.ended.map(|_result| ()).map_err(Problem::failed)
        }
        HandlerOrder::Pack { file, descriptor, out } => pack(file, descriptor, out.as_deref(), world),
        HandlerOrder::Wrap { file, out } => wrap(file, out.as_deref(), world),
    }
}

fn style(cli: &Cli, world: &World) -> Style {
    Style { zone: world.zone.clone(), colour: world.colour, program: program(cli, world) }
}

fn new(name: &str, lang: Lang, dir: Option<&Path>, world: &mut World) -> Result<(), Problem> {
    let maker_action = name.strip_prefix("custom.").unwrap_or(name);
    let files = author::project(maker_action, lang).map_err(|error| Problem::of(&error))?;
    let dir = dir.map_or_else(|| PathBuf::from(format!("custom.{maker_action}")), Path::to_owned);
    for file in &files {
        let path = dir.join(&file.path);
        if path.symlink_metadata().is_ok() {
            return Err(Problem::failed(format!("{} is there already; nothing was written", path.display())));
        }
    }
    for file in &files {
        let path = dir.join(&file.path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut made = File::create_new(&path)?;
            made.write_all(file.contents.as_bytes())
        });
        written.map_err(|error| Problem::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    let shown = visible(&dir.display().to_string());
    let names: Vec<_> = files.iter().map(|file| format!("  {shown}/{}", file.path.display())).collect();
    world.print(format!("Wrote\n{}\nHow it is built and tried: {shown}/README.md", names.join("\n")));
    Ok(())
}

fn pack(file: &Path, descriptor: &Path, out: Option<&Path>, world: &mut World) -> Result<(), Problem> {
    let component = read(file, HANDLER_BYTES_MAX)?;
    let described = read(descriptor, DESCRIPTOR_BYTES_MAX as u64)?;
    let packed = author::pack(&component, &described).map_err(|error| told(file, &error.to_string()))?;
    // The text of a component becomes bytes, so it is not written back into the text.
    let out = match out {
        Some(out) => out.to_owned(),
        None if is_text(file) => file.with_extension("wasm"),
        None => file.to_owned(),
    };
    fresh(&out, file)?;
    write(&out, &packed)?;
    world.print(format!("Wrote {}, with its description.", visible(&out.display().to_string())));
    Ok(())
}

fn wrap(file: &Path, out: Option<&Path>, world: &mut World) -> Result<(), Problem> {
    let core = read(file, HANDLER_BYTES_MAX)?;
    let component = author::wrap(&core).map_err(|error| told(file, &error.to_string()))?;
    let out = out.map_or_else(|| file.with_extension("wasm"), Path::to_owned);
    if out == file {
        return Err(Problem::failed(format!("{} would be overwritten; name another file with -o", file.display())));
    }
    fresh(&out, file)?;
    write(&out, &component)?;
    let shown = visible(&out.display().to_string());
    world.print(format!(
        "Wrote {shown}, a component of {} bytes.\nSee what a device makes of it: latchkeyd handler check {shown}",
        component.len()
    ));
    Ok(())
}

fn is_text(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "wat")
}

fn told(file: &Path, why: &str) -> Problem {
    Problem::failed(format!("{}: {why}", file.display()))
}

fn read(file: &Path, bytes_max: u64) -> Result<Vec<u8>, Problem> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|opened| opened.take(bytes_max + 1).read_to_end(&mut bytes));
    opened.map_err(|error| Problem::failed(format!("cannot read {}: {error}", file.display())))?;
    if bytes.len() as u64 > bytes_max {
        return Err(told(file, &format!("it has more than {}", size(bytes_max))));
    }
    Ok(bytes)
}

/// Nothing but what an earlier run may have made is replaced: the file that was read, or WebAssembly.
fn fresh(out: &Path, read: &Path) -> Result<(), Problem> {
    const MAGIC: &[u8; 4] = b"\0asm";
    let is_wasm = || {
        // Not opened unless it is a file: a pipe would hold us up.
        if !out.symlink_metadata().is_ok_and(|found| found.is_file()) {
            return false;
        }
        let mut head = [0; MAGIC.len()];
        File::open(out).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *MAGIC
    };
    if out == read || out.symlink_metadata().is_err() || is_wasm() {
        return Ok(());
    }
    Err(Problem::failed(format!("{} is there already; nothing was written", out.display())))
}

/// The file appears whole or not at all: a device may be looking at its folder.
fn write(file: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mode = fs::Permissions::from_mode(FILE_MODE);
    let written = tempfile::Builder::new().permissions(mode).tempfile_in(folder).and_then(|mut made| {
        made.write_all(bytes)?;
        made.as_file().sync_all()?;
        made.persist(file).map(drop).map_err(|error| error.error)
    });
    written.map_err(|error| Problem::failed(format!("cannot write {}: {error}", file.display())))
}

/// Arguments as they were typed.
struct Given<'a> {
    args: Option<&'a str>,
    pairs: &'a [String],
}

impl Given<'_> {
    /// As the handler gets them; refused in the words that a controller would see.
    fn held_against(&self, bounds: &Bounds) -> Result<Arguments, Problem> {
        let object = match self.args {
            Some(args) => wire::json::parse(args.as_bytes())
                .map_err(|error| Problem::failed(format!("--args is not one JSON object: {}", chain(&error))))?,
            None => words::object(self.pairs, bounds).map_err(Problem::failed)?,
        };
        bounds.check(object).map_err(|error| Problem::failed(format!("invalid_arguments: {error}")))
    }
}

/// Where one file is judged and run: everything of it goes when it is dropped.
struct Bench {
    place: HandlersPlace,
    protected: Protected,
    accept_weak: bool,
    _folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    /// With the folders of the device that this person would reach, so that a reach is judged as there.
    fn new(cli: &Cli, world: &World) -> Result<Self, Problem> {
        let places = world.places(cli)?;
        let settings = settings::load(cli, &places, world)?;
        let folder = tempfile::tempdir().map_err(|error| Problem::failed(format!("cannot make a folder: {error}")))?;
        let place = HandlersPlace::of(&places, &settings);
        let listeners = vec![settings.link.direct.listen, settings.keeper.listen];
        let protected = place.protected(&settings, &places.state_dir, listeners);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            place: HandlersPlace { cache_dir: folder.path().join("cache"), ..place },
            protected,
            accept_weak: settings.handlers.accept_weak_sandbox,
            _folder: folder,
            runtime: runtime.map_err(|error| Problem::of(&error))?,
        })
    }

    fn workshop(&self) -> Result<Arc<Workshop>, Problem> {
        let parts = WorkshopParts {
            program: self.place.program.clone(),
            cache_dir: self.place.cache_dir.clone(),
            protected: self.protected.clone(),
            outbound: Arc::clone(&self.place.outbound),
            accept_weak: self.accept_weak,
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
        };
        Workshop::new(parts).map_err(|error| Problem::of(&error))
    }

    /// What this machine gives to confine a handler.
    fn confinement(&self) -> Result<Confinement, Problem> {
        self.runtime.block_on(async {
            let workshop = self.workshop()?;
            let probed = workshop.probe().await.map_err(|refused| Problem::of(&refused));
            workshop.drain().await;
            probed
        })
    }

    /// Judges the file with all that a device would, then does `more` with it.
    fn with<T>(
        &self,
        file: &Path,
        more: impl AsyncFnOnce(Candidate, Confinement, &Arc<Workshop>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let file = HandlerFile::open(file)
            .map_err(|refused| Problem::failed(format!("a device would not take {}: {}", refused.file, refused.why)))?;
        self.runtime.block_on(async {
            let workshop = self.workshop()?;
            let done = async {
                let confinement = workshop.probe().await.map_err(|refused| Problem::of(&refused))?;
                let name = file_name(&file);
                let judged = Candidate::judge(file, &workshop, &self.protected).await;
                let candidate = judged.map_err(|refusal| {
                    Problem::failed(format!("a device would not take {name}: {}", refusal.sentence()))
                })?;
                more(candidate, confinement, &workshop).await
            };
            let done = done.await;
            workshop.drain().await;
            done
        })
    }

    fn check(&self, file: &Path) -> Result<Checked, Problem> {
        self.with(file, async |candidate, confinement, _| Ok(Checked { candidate, confinement }))
    }

    fn run(&self, file: &Path, given: &Given<'_>) -> Result<Ran, Problem> {
        self.with(file, async |candidate, _, workshop| {
            let arguments = given.held_against(&candidate.declaration.bounds)?;
            let log = Arc::new(HandlerLog::default());
            let within = candidate.declaration.timeout;
            let handler = candidate.handler(workshop, Arc::clone(&log));
            let (ended, spent) = handler.run_measured(arguments, within).await;
            Ok(Ran { ended: ended.map_err(|fault| fault_words(fault, within)), spent, log: log.lines() })
        })
    }
}

/// What this machine gives to confine a handler, tried in a process like a handler's.
pub(super) fn confinement(cli: &Cli, world: &World) -> Result<Confinement, Problem> {
    Bench::new(cli, world)?.confinement()
}

fn fault_words(fault: Fault, within: Duration) -> String {
    match fault {
        Fault::Stopped => format!("timeout: it took longer than the {} ms that it may", within.as_millis()),
        Fault::Unavailable(why) | Fault::Busy(why) | Fault::Failed(why) | Fault::Crashed(why) | Fault::Broken(why) => {
            why
        }
        Fault::Invalid { member, reason } => format!("{member}: {reason}"),
    }
}

/// What a device would make of a file.
struct Checked {
    candidate: Candidate,
    confinement: Confinement,
}

impl Checked {
    fn to_json(&self) -> Value {
        let Candidate { file, declaration, inspection } = &self.candidate;
        json!({
            "name": declaration.name,
            "file": file_name(file),
            "bytes": file.bytes,
            "file_sha256": file.digest,
            "manifest_sha256": file.manifest_digest,
            "description": declaration.description,
            "effect": declaration.effect,
            "activation": declaration.activation,
            "captures": declaration.captures,
            "timeout_ms": u64::try_from(declaration.timeout.as_millis()).unwrap_or(u64::MAX),
            "memory_bytes": file.manifest.memory_bytes,
            "result_bytes_max": file.manifest.result_bytes_max,
            "arguments": declaration.bounds,
            "reach": reach_words(&file.manifest.reach),
            "imports": inspection.imports,
            "landlock_abi": self.confinement.landlock_abi,
            "seccomp": self.confinement.seccomp,
        })
    }

    fn to_text(&self, style: &Style, place: &HandlersPlace) -> String {
        use std::fmt::Write;
        let Candidate { file, declaration, inspection } = &self.candidate;
        let name = declaration.name.as_str();
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let mut text = format!("{}  {}\n", style.shade(Shade::Bold, name), visible(&declaration.description));
        let mut put = |label: &str, value: &str| {
            let _ = writeln!(text, "  {label:<10} {value}");
        };
        put("file", &format!("{}, {}", visible(&file_name(file)), size(file.bytes)));
        put("sha256", &file.digest.to_string());
        put(
            "its .toml",
            &file.manifest_digest.map_or_else(|| "none, so the defaults hold".to_owned(), |it| it.to_string()),
        );
        put("imports", &lines(&inspection.imports, "nothing"));
        put("reach", &lines(&reach_words(&file.manifest.reach), "nothing"));
        let (effect, activation) = (declaration.effect.as_str(), declaration.activation.as_str());
        put("effect", &use_words(effect, Some(activation), declaration.captures));
        let time = u64::try_from(declaration.timeout.as_millis()).unwrap_or(u64::MAX);
        put("limits", &limit_words(time, bytes(file.manifest.memory_bytes), bytes(file.manifest.result_bytes_max)));
        put("arguments", &lines(&words::bounds(&declaration.bounds), "none"));
        put("sandbox", &sandbox(&self.confinement));
        let folder = visible(&place.folder.display().to_string());
        let program = &style.program;
        let _ = write!(
            text,
            "\nA device takes it: copy it, and its .toml if it has one, into {folder}\nThen, at the device: {program} grant {name}\n"
        );
        text
    }
}

fn sandbox(confinement: &Confinement) -> String {
    weakness(confinement).unwrap_or_else(|| {
        let abi = confinement.landlock_abi.map_or_else(String::new, |abi| format!(" {abi}"));
        format!("this kernel confines it: seccomp, and Landlock{abi}")
    })
}

/// One run of a handler.
struct Ran {
    ended: Result<Object, String>,
    spent: Spent,
    log: Vec<LogLine>,
}

impl Ran {
    fn to_json(&self) -> Value {
        json!({
            "result": self.ended.as_ref().ok(),
            "error": self.ended.as_ref().err(),
            "wall_us": u64::try_from(self.spent.wall.as_micros()).unwrap_or(u64::MAX),
            "cpu_us": self.spent.cpu_us,
            "memory_bytes": self.spent.memory_bytes,
            "log": self.log,
        })
    }

    fn to_text(&self, style: &Style) -> String {
        let log: String = self.log.iter().map(|line| super::handlers::log_line(style, line)).collect();
        let Spent { wall, cpu_us, memory_bytes } = self.spent;
        let ms = |us: f64| format!("{:.1} ms", us / 1000.0);
        let (wall, cpu) =
            (ms(wall.as_secs_f64() * 1_000_000.0), ms(Duration::from_micros(cpu_us).as_secs_f64() * 1_000_000.0));
        let spent = format!("took {wall}, {cpu} of a processor, {} of memory", size(memory_bytes));
        format!("{log}{}\n", style.shade(Shade::Faint, &spent))
    }
}
