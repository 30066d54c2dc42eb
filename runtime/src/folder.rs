//! The handlers folder in service: what lies there, the house follows.
//!
//! A service of the house. Owns the watch and the looks; each file that is new is judged (`candidate`), one at a time, while the
//! others serve, and the house is told the whole each time something changed (`shelf`). Only reads the folder: nothing in this program
//! writes there. Files appear, change and go by the keeper's hand alone, and no message of a controller leads here. While there is no
//! file, no process is started and no folder for native code made. It ends with its supervisor's token; what it knew stays for the next
//! start, so that a death here takes no handler out of service.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actors::{House, Installed, Seal, Service};
use config::folder::{HandlersFolder, Look};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, pending};
use handlers::Fault;
use handlers::wasm::confine::Confinement;
use handlers::wasm::{Protected, Workshop, WorkshopError, WorkshopParts};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;
use wire::CapabilityName;

use crate::cli::chain;

pub(crate) mod candidate;
mod quiet;
mod shelf;
mod watch;

use candidate::{Candidate, Refusal, seal};
use quiet::{Quiet, Word};
use shelf::Shelf;
use watch::{WORDS_MAX, Watch};

/// Looked at without an event, for what the kernel did not tell: a full queue, a folder of a network.
const RESCAN: Duration = Duration::from_secs(60);

/// Between two reports to the house while files are judged one after the other: each makes a registration and reaches every page.
const PACE: Duration = Duration::from_millis(500);

/// The workshop, made when the first file is there.
pub(crate) struct Shop {
    parts: Box<dyn Fn() -> WorkshopParts + Send + Sync>,
    made: OnceLock<Arc<Workshop>>,
}

impl Shop {
    pub(crate) fn new(parts: impl Fn() -> WorkshopParts + Send + Sync + 'static) -> Self {
        Self { parts: Box::new(parts), made: OnceLock::new() }
    }

    fn open(&self) -> Result<Arc<Workshop>, WorkshopError> {
        if let Some(made) = self.made.get() {
            return Ok(Arc::clone(made));
        }
        let made = Workshop::new((self.parts)())?;
        Ok(Arc::clone(self.made.get_or_init(|| made)))
    }

    /// Ends all processes of handlers.
    pub(crate) async fn close(&self) {
        if let Some(made) = self.made.get() {
            made.drain().await;
        }
    }
}

/// The service.
#[derive(Clone)]
pub(crate) struct Folder {
    path: PathBuf,
    named: bool,
    shop: Arc<Shop>,
    protected: Protected,
    shelf: Arc<Mutex<Shelf>>,
}

impl Folder {
    /// `named`: the settings name this folder, so that it should be there.
    pub(crate) fn new(path: PathBuf, named: bool, shop: Arc<Shop>, protected: Protected) -> Self {
        Self { path, named, shop, protected, shelf: Arc::default() }
    }
}

impl Service for Folder {
    fn start(&self, house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let folder = self.clone();
        async move {
            let shelf = Arc::clone(&folder.shelf);
            // Held for the whole life: a successor waits until its predecessor is gone.
            let mut shelf = shelf.lock().await;
            let mut round = Round::new(&folder, house, &mut shelf);
            round.run(&stop).await
        }
        .boxed()
    }
}

/// What looks, in a thread that may block.
struct Eyes {
    watch: Watch,
    folder: HandlersFolder,
}

impl Eyes {
    /// The watch first, so that nothing happens unseen between the two.
    fn look(&mut self) -> Seen {
        let unwatched = self.watch.arm().err();
        let look = self.folder.look().map_err(|error| chain(&error));
        Seen { look, unwatched }
    }
}

struct Seen {
    look: Result<Look, String>,
    unwatched: Option<String>,
}

/// Whether handlers can be had on this machine at all.
enum Machine {
    Unasked,
    Good(Arc<Workshop>),
    Bad,
}

/// What is wrong with the folder or the machine, each in a sentence.
#[derive(Default)]
struct Troubles {
    folder: Option<String>,
    watch: Option<String>,
    machine: Option<String>,
}

impl Troubles {
    fn notice(&self) -> Option<String> {
        let told: Vec<_> = [&self.folder, &self.machine, &self.watch].into_iter().flatten().cloned().collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// Something that takes its time, for one file.
type Trial = BoxFuture<'static, Tried>;

enum Tried {
    Machine(Result<(Arc<Workshop>, Confinement), String>),
    File(Box<Result<Installed, Refusal>>),
}

/// One life of the service.
struct Round<'a> {
    folder: &'a Folder,
    house: House,
    shelf: &'a mut Shelf,
    eyes: Option<Eyes>,
    words: mpsc::Receiver<Word>,
    quiet: Quiet,
    troubles: Troubles,
    machine: Machine,
    /// The one under way, and for which content.
    trial: Option<(Option<(CapabilityName, Seal)>, Trial)>,
    /// When the house is told; none when it knows everything.
    tell_at: Option<Instant>,
    told_at: Option<Instant>,
}

impl<'a> Round<'a> {
    fn new(folder: &'a Folder, house: House, shelf: &'a mut Shelf) -> Self {
        let (sender, words) = mpsc::channel(WORDS_MAX);
        let path = folder.path.clone();
        let looks = if folder.named { HandlersFolder::named(path.clone()) } else { HandlersFolder::new(path.clone()) };
        let mut quiet = Quiet::default();
        quiet.ask(Instant::now());
        Self {
            folder,
            house,
            shelf,
            eyes: Some(Eyes { watch: Watch::new(path, sender), folder: looks }),
            words,
            quiet,
            troubles: Troubles::default(),
            machine: Machine::Unasked,
            trial: None,
            tell_at: None,
            told_at: None,
        }
    }

    async fn run(&mut self, stop: &CancellationToken) -> Result<(), Fault> {
        let mut rescan = interval_at(Instant::now() + RESCAN, RESCAN);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin_trial();
            let look = until(self.quiet.due());
            let tell = until(self.tell_at);
            let trial = self.trial.as_mut().map_or_else(|| Either::Right(pending()), |(_, trial)| Either::Left(trial));
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                word = self.words.recv() => match word {
                    Some(word) => self.quiet.heard(word, Instant::now()),
                    None => return Err(Fault::Failed("the handlers folder is looked at no more".to_owned())),
                },
                _ = rescan.tick() => self.minute(),
                tried = trial => self.tried(tried),
                () = tell => self.tell().await,
                () = look => self.look().await?,
            }
        }
    }

    fn minute(&mut self) {
        self.quiet.ask(Instant::now());
        self.shelf.minute();
        if matches!(self.machine, Machine::Bad) {
            self.machine = Machine::Unasked;
        }
    }

    async fn look(&mut self) -> Result<(), Fault> {
        self.quiet.looked(Instant::now());
        let Some(mut eyes) = self.eyes.take() else {
            return Err(Fault::Failed("the last look at the handlers folder failed".to_owned()));
        };
        let looked = tokio::task::spawn_blocking(move || {
            let seen = eyes.look();
            (eyes, seen)
        });
        let (eyes, seen) = looked.await.map_err(|error| Fault::Failed(error.to_string()))?;
        self.eyes = Some(eyes);
        if seen.unwatched != self.troubles.watch
            && let Some(why) = &seen.unwatched
        {
            tracing::warn!(%why, "no watch on the handlers folder");
        }
        self.troubles.watch = seen.unwatched;
        match seen.look {
            Ok(look) => {
                self.troubles.folder = None;
                self.shelf.take(look);
            }
            Err(why) => {
                if self.troubles.folder.as_ref() != Some(&why) {
                    tracing::error!(%why, "the handlers folder cannot be used");
                }
                self.troubles.folder = Some(why);
                self.shelf.doubt();
            }
        }
        let stale = self
            .trial
            .as_ref()
            .and_then(|(of, _)| of.as_ref())
            .is_some_and(|(name, seal)| !self.shelf.holds(name, *seal));
        if stale {
            self.trial = None;
        }
        // What left service leaves it now.
        self.tell().await;
        Ok(())
    }

    /// Begins the next thing to be tried, if nothing is under way.
    fn begin_trial(&mut self) {
        if self.trial.is_some() || self.troubles.folder.is_some() {
            return;
        }
        let Some(file) = self.shelf.next() else { return };
        match &self.machine {
            Machine::Bad => {}
            Machine::Unasked => {
                let shop = Arc::clone(&self.folder.shop);
                self.trial = Some((None, async move { Tried::Machine(probe(&shop).await) }.boxed()));
            }
            Machine::Good(workshop) => {
                let of = (file.name.clone(), seal(&file));
                let log = self.shelf.log(&file.name);
                let (workshop, protected) = (Arc::clone(workshop), self.folder.protected.clone());
                let judging = async move {
                    let judged = Candidate::judge(file, &workshop, &protected).await;
                    Tried::File(Box::new(judged.map(|candidate| candidate.installed(&workshop, &log))))
                };
                self.trial = Some((Some(of), judging.boxed()));
            }
        }
    }

    fn tried(&mut self, tried: Tried) {
        let of = self.trial.take().and_then(|(of, _)| of);
        match tried {
            Tried::Machine(Ok((workshop, confinement))) => {
                self.machine = Machine::Good(workshop);
                self.troubles.machine = weakness(&confinement);
            }
            Tried::Machine(Err(why)) => {
                if self.troubles.machine.as_ref() != Some(&why) {
                    tracing::error!(%why, "handlers stay off");
                }
                self.troubles.machine = Some(why);
                self.machine = Machine::Bad;
            }
            Tried::File(verdict) => {
                if let Some((name, seal)) = of {
                    if let Err(Refusal::File(why) | Refusal::Reach(why)) = verdict.as_ref() {
                        tracing::info!(%name, %why, "a handler is refused");
                    }
                    self.shelf.settle(&name, seal, *verdict);
                }
            }
        }
        let paced = self.told_at.map_or_else(Instant::now, |told| (told + PACE).max(Instant::now()));
        self.tell_at.get_or_insert(paced);
    }

    /// Why nothing is being compiled.
    fn held(&self) -> Option<String> {
        let machine = self.troubles.machine.as_ref().filter(|_| matches!(self.machine, Machine::Bad));
        self.troubles.folder.as_ref().or(machine).cloned()
    }

    async fn tell(&mut self) {
        self.tell_at = None;
        self.told_at = Some(Instant::now());
        for refused in self.house.folder(self.shelf.now(self.held(), self.troubles.notice())).await {
            tracing::warn!(file = %refused.file, why = %refused.why, "the house does not take a handler");
        }
        if let Machine::Good(workshop) = &self.machine
            && self.shelf.next().is_none()
            && self.troubles.folder.is_none()
        {
            workshop.keep_only(&self.shelf.contents()).await;
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// Whether this machine can confine a handler. The workshop is made here, beside the runtime: it makes a folder.
async fn probe(shop: &Arc<Shop>) -> Result<(Arc<Workshop>, Confinement), String> {
    let made = {
        let shop = Arc::clone(shop);
        tokio::task::spawn_blocking(move || shop.open()).await
    };
    let workshop = made.map_err(|error| error.to_string())?.map_err(|error| chain(&error))?;
    let confinement = workshop.probe().await.map_err(|refused| refused.to_string())?;
    Ok((workshop, confinement))
}

/// What is missing where the keeper has accepted that.
pub(crate) fn weakness(confinement: &Confinement) -> Option<String> {
    let missing = match (confinement.landlock_abi.is_some(), confinement.seccomp) {
        (true, true) => return None,
        (false, true) => "Landlock",
        (true, false) => "seccomp",
        (false, false) => "Landlock and seccomp",
    };
    Some(format!(
        "handlers run without {missing}, which this kernel does not give; handlers.accept_weak_sandbox allows it"
    ))
}
