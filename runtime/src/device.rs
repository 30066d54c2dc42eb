//! The composition root: settings, key, vault, clock and chance become a running device.
//!
//! Owns the order of things: listeners are bound first, so that a port in use stops the start before anything moves; pages and
//! screens are made next, then the house grows around them. Called by `latchkeyd run`, the benchmark and whole-system tests, which
//! hand in their own vault, clock and hardware. A device ends with [`Running::stop`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use actors::{Group, GrowError, House, HouseCensus, Installed, Limits, Parts, Service, Vault, Work};
use config::{CameraSettings, Places, Settings};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handlers::sound::CardRecording;
use handlers::wasm::outbound::Outbound;
use handlers::wasm::{Program, Protected, WorkshopParts};
use handlers::{
    Camera, CameraChoice, CameraSetup, CardChoice, CardPlayback, Chance, Clock, DisplayImage, DisplayText, Fault,
    Fittings, Health, HealthParts, Microphone, Playback, Recording as _, Screen, Shown, Sign, SignFault, SoundFault,
    SystemClock,
};
use jiff::tz::TimeZone;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use wire::{Declaration, Object, Signer};

use crate::carriers;
use crate::direct::Direct;
use crate::door::{Door, DoorLimits};
use crate::folder::{Folder, Shop};
use crate::keeper::ask::Address;
use crate::keeper::display::Display;
use crate::keeper::pages::Pages;
use crate::keeper::socket::{Socket, SocketLimits};
use crate::outbound::Ways;
use crate::reload::{Reception, Reread, Tried};
use crate::rules::HostNames;
use crate::simulate::{BothScreens, Simulation};
use crate::speaking::{WallClock, speaker};
use crate::tls::{self, TlsError};
use crate::tone::Tone;

/// The version that the device reports.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Everything a device is made of.
pub struct Options {
    /// The settings.
    pub settings: Settings,
    /// The state folder; the caller holds its lock.
    pub state_dir: PathBuf,
    /// Signs with the device key.
    pub signer: Arc<dyn Signer>,
    /// Where state and records live.
    pub vault: Box<dyn Vault>,
    /// What opening the vault brought to light.
    pub notices: Vec<String>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where the device stands, for hours of the day.
    pub zone: TimeZone,
    /// Randomness.
    pub chance: Arc<dyn Chance>,
    /// Names the boot on whose clock deadlines count.
    pub boot_id: String,
    /// Simulated hardware in place of the real.
    pub simulation: Option<Simulation>,
    /// Limits of the listeners.
    pub door: DoorLimits,
    /// The command socket's limits; `None`: no command socket.
    pub socket: Option<SocketLimits>,
    /// How settings are read anew; `None`: a reload is refused.
    pub reread: Option<Reread>,
    /// Where custom handlers come from; `None`: nobody looks for any.
    pub handlers: Option<HandlersPlace>,
}

/// Where custom handlers come from, and what their processes are.
#[derive(Clone)]
pub struct HandlersPlace {
    /// The folder where the keeper drops them.
    pub folder: PathBuf,
    /// Where native code is kept.
    pub cache_dir: PathBuf,
    /// The settings folder, which no handler may reach.
    pub config_dir: PathBuf,
    /// The program that a handler's process is: this one, but for tests and the benchmark.
    pub program: Program,
    /// By which their requests leave the device.
    pub outbound: Arc<dyn Outbound>,
}

impl HandlersPlace {
    /// As `latchkeyd` has it.
    #[must_use]
    pub fn of(places: &Places, settings: &Settings) -> Self {
        Self {
            folder: places.handlers_dir(settings),
            cache_dir: places.cache_dir(),
            config_dir: places.config_dir.clone(),
            program: Program::This,
            outbound: Arc::new(Ways::of_the_system()),
        }
    }

    /// What no handler may reach, beside what is forbidden on every machine.
    #[must_use]
    pub fn protected(&self, settings: &Settings, state_dir: &Path, listeners: Vec<SocketAddr>) -> Protected {
        Protected {
            folders: vec![
                (state_dir.to_owned(), "the state folder"),
                (self.config_dir.clone(), "the settings folder"),
                (self.folder.clone(), "the handlers folder"),
                (self.cache_dir.clone(), "the folder for native code"),
            ],
            sign_devices: carriers::kernel_folders(&settings.sign),
            listeners,
        }
    }
}

/// Why a device did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be bound.
    #[error("cannot listen on {address} for {what}; choose another address with {key}")]
    Bind {
        /// What it is for.
        what: &'static str,
        /// The settings key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The pages would leave this machine.
    #[error("keeper.listen is {0}, but the keeper's pages are for this machine alone; choose 127.0.0.1 or [::1]")]
    PagesOutside(SocketAddr),
    /// The command socket could not be made.
    #[error("cannot make the command socket in {}", state_dir.display())]
    Socket {
        /// The state folder.
        state_dir: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The sign that the settings name does not exist.
    #[error("the in-use sign of sign.led cannot be used")]
    Sign(#[source] SignFault),
    /// The house did not grow.
    #[error(transparent)]
    Grow(#[from] GrowError),
}

/// A device.
#[derive(Debug, Clone, Copy)]
pub struct Device;

impl Device {
    /// Starts a device: when this returns it answers.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running after one.
    pub async fn start(options: Options) -> Result<Running, StartError> {
        compose(options).await
    }
}

/// A running device.
pub struct Running {
    /// The house.
    pub house: House,
    /// Where the direct link is bound.
    pub direct_addr: SocketAddr,
    /// Where the keeper's pages are bound, if they are served.
    pub keeper_addr: Option<SocketAddr>,
    /// The display.
    pub display: Display,
    reception: Arc<Reception>,
    shop: Option<Arc<Shop>>,
}

impl Running {
    /// Ends the device: no new work, running work has `limit`, records are closed, no process of a handler is left.
    pub async fn stop(self, limit: Duration) {
        self.house.drain(limit).await;
        if let Some(shop) = &self.shop {
            shop.close().await;
        }
    }

    /// Reads the settings anew.
    ///
    /// # Errors
    /// One sentence; then nothing has changed.
    pub async fn reload(&self) -> Result<crate::keeper::ask::Reloaded, String> {
        self.reception.read_anew(self.house.clone()).await
    }

    /// Where the device listens, as pairing links name it.
    #[must_use]
    pub fn address(&self) -> Address {
        self.reception.where_it_listens()
    }
}

/// Builds the parts, in the order in which they need each other, and grows the house.
async fn compose(options: Options) -> Result<Running, StartError> {
    let Options {
        settings,
        state_dir,
        signer,
        vault,
        notices,
        clock,
        zone,
        chance,
        boot_id,
        simulation,
        door,
        socket,
        reread,
        handlers,
    } = options;
    let simulated = simulation.is_some();
    let uid = rustix::process::geteuid().as_raw();
    let names = HostNames::new(host_names(&settings));
    let direct = direct(&settings, &signer, door, names.clone()).await?;
    let page_door = page_door(&settings, door).await?;
    let display = Display::new(Arc::clone(&clock), Arc::clone(&chance), simulated);
    let sign = Sign::new(carriers::of(&settings, &display, simulation.as_ref())?, Arc::clone(&clock));
    let pages = page_door.map(|door| Pages::new(door, display.clone(), Arc::clone(&sign), uid));
    let (direct_addr, keeper_addr) = (direct.address(), pages.as_ref().map(Pages::address));

    let live = Arc::new(RwLock::new(settings.clone()));
    let bound = Bound { direct: direct_addr, tls: direct.tls(), keeper: keeper_addr, simulated };
    let census = HouseCensus::new();
    let screen: Arc<dyn Screen> = match (&simulation, keeper_addr) {
        (Some(simulation), _) => Arc::new(BothScreens { simulated: simulation.screen.clone(), page: display.clone() }),
        (None, Some(_)) => Arc::new(display.clone()),
        (None, None) => Arc::new(NoScreen),
    };
    let capabilities = vec![
        health(
            Arc::clone(&clock),
            Arc::clone(&census),
            Arc::new(Fitted { simulation: simulation.clone(), live: Arc::clone(&live) }),
            state_dir.clone(),
            simulated,
        ),
        camera(simulation.as_ref(), Arc::clone(&live)),
        microphone(simulation.as_ref(), Arc::clone(&live)),
        speaker(simulation.as_ref(), Arc::clone(&live), Arc::new(WallClock { clock: Arc::clone(&clock), zone })),
        display_text(Arc::clone(&screen)),
        display_image(screen),
    ];
    let captures = capabilities.iter().filter(|one| one.declaration.captures).cloned().collect();
    let of_simulation = simulation.clone();
    let speaker = Arc::new(move |settings: &Settings| playback(of_simulation.as_ref(), settings));
    let reception = Arc::new(Reception::new(live, bound, names, reread, Tried { captures, speaker }));

    let mut services: Vec<(Group, &'static str, Arc<dyn Service>)> = vec![(Group::Links, "direct", Arc::new(direct))];
    if let Some(pages) = pages {
        services.push((Group::Keeper, "display", Arc::new(pages)));
    }
    let shop = handlers.map(|place| {
        let listeners = [Some(direct_addr), keeper_addr].into_iter().flatten().collect();
        let protected = place.protected(&settings, &state_dir, listeners);
        let (folder, shop) = folder(place, protected, &settings, Arc::clone(&clock), Arc::clone(&chance));
        services.push((Group::Keeper, "handlers", Arc::new(folder)));
        shop
    });
    if let Some(limits) = socket {
        let socket = Socket::bind(&state_dir, Arc::<Reception>::clone(&reception), limits, uid);
        let socket = socket.map_err(|error| StartError::Socket { state_dir, error })?;
        services.push((Group::Keeper, "socket", Arc::new(socket)));
    }

    if settings.sign.sound {
        let reception = Arc::clone(&reception);
        let tone = Tone::new(Arc::clone(&sign), move || reception.speaker());
        services.push((Group::Keeper, "tone", Arc::new(tone)));
    }

    let limits = limits(&settings);
    let parts = Parts {
        signer,
        name: settings.device.name,
        version: VERSION,
        simulated,
        clock,
        chance,
        boot_id,
        census,
        vault,
        notices,
        sign,
        capabilities,
        services,
        limits,
    };
    let house = House::grow(parts).await?;
    Ok(Running { house, direct_addr, keeper_addr, display, reception, shop })
}

/// The handlers folder as a service, and the workshop behind it, in which nothing is done yet.
fn folder(
    place: HandlersPlace,
    protected: Protected,
    settings: &Settings,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
) -> (Folder, Arc<Shop>) {
    let HandlersPlace { folder, cache_dir, config_dir: _, program, outbound } = place;
    let accept_weak = settings.handlers.accept_weak_sandbox;
    let guarded = protected.clone();
    let shop = Arc::new(Shop::new(move || WorkshopParts {
        program: program.clone(),
        cache_dir: cache_dir.clone(),
        protected: guarded.clone(),
        outbound: Arc::clone(&outbound),
        accept_weak,
        clock: Arc::clone(&clock),
        chance: Arc::clone(&chance),
    }));
    (Folder::new(folder, settings.handlers.folder.is_some(), Arc::clone(&shop), protected), shop)
}

/// Where things are bound, for those who tell people.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) direct: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) keeper: Option<SocketAddr>,
    pub(crate) simulated: bool,
}

/// The names a `Host` header may carry: those of the settings, and the one that pairing links name.
pub(crate) fn host_names(settings: &Settings) -> Vec<String> {
    let direct = &settings.link.direct;
    direct.hosts.iter().cloned().chain(direct.advertise.clone()).collect()
}

pub(crate) const fn limits(settings: &Settings) -> Limits {
    Limits { rate_per_second: settings.limits.rate_per_second, rate_burst: settings.limits.rate_burst }
}

async fn direct(
    settings: &Settings,
    signer: &Arc<dyn Signer>,
    door: DoorLimits,
    names: HostNames,
) -> Result<Direct, StartError> {
    let address = settings.link.direct.listen;
    let door = Door::bind(address, door).await;
    let door =
        door.map_err(|error| StartError::Bind { what: "the direct link", key: "link.direct.listen", address, error })?;
    let tls =
        if settings.link.direct.tls() { Some(TlsAcceptor::from(Arc::new(tls::server_config(signer)?))) } else { None };
    Ok(Direct::new(door, tls, names))
}

async fn page_door(settings: &Settings, door: DoorLimits) -> Result<Option<Door>, StartError> {
    let address = settings.keeper.listen;
    if !settings.keeper.display {
        return Ok(None);
    }
    if !address.ip().is_loopback() {
        return Err(StartError::PagesOutside(address));
    }
    let door = Door::bind(address, door).await;
    door.map(Some).map_err(|error| StartError::Bind { what: "the display page", key: "keeper.listen", address, error })
}

/// The in-use sign that these settings name, without the display page.
///
/// # Errors
/// [`StartError::Sign`], when it does not exist.
pub fn sign_of(settings: &Settings) -> Result<Arc<Sign>, StartError> {
    Ok(Sign::new(carriers::lights(&settings.sign)?, Arc::new(SystemClock)))
}

fn plain(declaration: Declaration, make: impl Fn() -> Work + Send + Sync + 'static) -> Installed {
    Installed { declaration, make: Arc::new(move || Ok(make())), custom: None }
}

fn health(
    clock: Arc<dyn Clock>,
    census: Arc<HouseCensus>,
    fittings: Arc<Fitted>,
    folder: PathBuf,
    simulated: bool,
) -> Installed {
    // One for all lives of its actor: the up time is the device's.
    let health = Arc::new(Health::new(HealthParts { version: VERSION, simulated, folder, clock, census, fittings }));
    plain(Declaration::device_health(), move || Work::Plain(health.clone()))
}

/// The camera that the settings name at the moment it is made, so that a reload followed by a restart of the actor changes it.
pub(crate) fn camera(simulation: Option<&Simulation>, live: Arc<RwLock<Settings>>) -> Installed {
    let simulated = simulation.map(|simulation| simulation.camera.clone());
    plain(Declaration::camera_snapshot(), move || {
        let settings = read(&live);
        let camera = match &simulated {
            Some(camera) => Camera::simulated(camera.clone(), &camera_setup(&settings.camera)),
            None => camera_of(&settings),
        };
        Work::Capture(Arc::new(camera))
    })
}

/// The system's camera that these settings name.
#[must_use]
pub fn camera_of(settings: &Settings) -> Camera {
    Camera::v4l(&camera_setup(&settings.camera))
}

fn camera_setup(settings: &CameraSettings) -> CameraSetup {
    CameraSetup {
        choice: settings.device.clone().map_or(CameraChoice::First, CameraChoice::Named),
        size: settings.size,
        largest: settings.largest,
    }
}

/// The microphone of the card that the settings name at the moment it is made.
pub(crate) fn microphone(simulation: Option<&Simulation>, live: Arc<RwLock<Settings>>) -> Installed {
    let simulated = simulation.map(|simulation| simulation.microphone.clone());
    plain(Declaration::microphone_listen(), move || {
        let card = || Microphone::card(CardChoice::of_setting(read(&live).audio.input.as_deref()));
        let microphone = simulated.clone().map_or_else(card, Microphone::simulated);
        Work::Capture(Arc::new(microphone))
    })
}

/// What the settings play sound through.
pub(crate) fn playback(simulation: Option<&Simulation>, settings: &Settings) -> Arc<dyn Playback> {
    match simulation {
        Some(simulation) => Arc::new(simulation.speaker.clone()),
        None => Arc::new(CardPlayback::new(CardChoice::of_setting(settings.audio.output.as_deref()))),
    }
}

fn read(live: &RwLock<Settings>) -> std::sync::RwLockReadGuard<'_, Settings> {
    live.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether there are sound cards, as the settings choose them now.
struct Fitted {
    simulation: Option<Simulation>,
    live: Arc<RwLock<Settings>>,
}

impl Fittings for Fitted {
    fn report(&self) -> Object {
        let audio = read(&self.live).audio.clone();
        let (input, output) = match &self.simulation {
            Some(simulation) => (simulation.microphone.ready(), simulation.speaker.ready()),
            None => (
                CardRecording::new(CardChoice::of_setting(audio.input.as_deref())).ready(),
                CardPlayback::new(CardChoice::of_setting(audio.output.as_deref())).ready(),
            ),
        };
        let word = |ready: Result<(), SoundFault>| if ready.is_ok() { "present" } else { "absent" };
        let mut report = Object::new();
        report.insert("sound", serde_json::json!({ "input": word(input), "output": word(output) }));
        report
    }
}

fn display_text(screen: Arc<dyn Screen>) -> Installed {
    plain(Declaration::display_text(), move || Work::Plain(Arc::new(DisplayText::new(Arc::clone(&screen)))))
}

fn display_image(screen: Arc<dyn Screen>) -> Installed {
    plain(Declaration::display_image(), move || Work::Plain(Arc::new(DisplayImage::new(Arc::clone(&screen)))))
}

/// The host that pairing links name: the advertised one, else the bound address, else, when bound to every address, the one by which
/// this machine reaches others.
pub(crate) fn advertised_host(settings: &Settings, bound: SocketAddr) -> String {
    if let Some(name) = &settings.link.direct.advertise {
        return name.trim_start_matches('[').trim_end_matches(']').to_owned();
    }
    let ip = bound.ip();
    if ip.is_unspecified() {
        outward_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_string()
    } else {
        ip.to_string()
    }
}

/// Connecting a datagram socket sends nothing; it only asks the system which address it would send from.
fn outward_address() -> Option<IpAddr> {
    [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")].into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    })
}

/// In place of a screen when the settings serve no display page.
struct NoScreen;

impl Screen for NoScreen {
    fn show(&self, _shown: Shown, _stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let reason = "this device has no screen: its display page is turned off (keeper.display)".to_owned();
        std::future::ready(Err(Fault::Unavailable(reason))).boxed()
    }

    fn present(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "no screen".to_owned()
    }
}
