//! How a house starts and ends.
//!
//! Order of starting: store, state, journal, sign, capabilities, and once state and journal are at work, links and keeper; the
//! house is grown then, whatever the hardware does. It ends in the opposite order, the store last.

#![expect(clippy::disallowed_methods, reason = "the closer of the store is ended with it")]

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use handlers::Fault;
use ractor::{Actor, ActorRef};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use crate::authority::Snapshot;
use crate::catalogue::{Catalogue, SETTLE_MAX, Soil, settle};
use crate::challenge::Challenges;
use crate::house::{GrowError, House};
use crate::inner::{Branches, Inner};
use crate::parts::{Group, Parts, Service};
use crate::prune::{Calendar, Leftovers, RECORD_BYTES_MAX, RECORDS_KEPT_MS, prune, write_leftovers};
use crate::rate::Bucket;
use crate::registry::Registry;
use crate::state::{Say, State, StateParts};
use crate::store::{Durable, Head, Store};
use crate::supervise::{
    Child, Children, Ground, Intensity, Place, Start, Supervise, Supervisor, branch, task, why_not_started,
};
use crate::tree::{Board, NodeState};

/// How long state and journal may take to be at work.
const START_MAX: Duration = Duration::from_secs(10);
/// How long records of a sign going off may take at the end: the sign stays on for 3 s at least.
const LAST_RECORDS_MAX: Duration = Duration::from_secs(5);
/// How long work that was cancelled at the end may take to be on record.
const CANCELLED_MAX: Duration = Duration::from_secs(1);
/// Time passes for the state actor this often.
const TICK: Duration = Duration::from_millis(500);
/// The end of the chain is noted beside the database this often, when it moved.
const NOTE_HEAD_EVERY: Duration = Duration::from_secs(2);
/// A journal that could not be written is tried again this often.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often old records are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(60 * 60);
/// Events that a slow listener may lag behind before it loses some.
const EVENTS_MAX: usize = 256;

/// Starts a house.
pub(crate) async fn grow(parts: Parts) -> Result<House, GrowError> {
    let board = Board::new();
    let ground = Ground { board: board.clone(), clock: Arc::clone(&parts.clock), chance: Arc::clone(&parts.chance) };
    let device = parts.signer.public().clone();
    let state_error = |error: &dyn std::fmt::Display| GrowError::State(error.to_string());
    let store = Store::new(parts.vault, device.clone(), Arc::clone(&parts.clock), Arc::clone(&parts.chance))
        .map_err(|error| state_error(&error))?;
    let challenges = Arc::new(Challenges::new(parts.chance.as_ref()));
    let registry = Arc::<Registry>::default();
    let (events, _) = broadcast::channel(EVENTS_MAX);
    let (seen, snapshots) = watch::channel(Snapshot::nobody(Durable::new(&parts.boot_id)));
    let soil = Soil { board: board.clone(), clock: Arc::clone(&parts.clock), snapshots: snapshots.clone() };
    let catalogue = Arc::new(Catalogue::new(parts.capabilities, soil)?);
    let state = Place::<Say>::default();
    let branches = Branches::default();
    let state_parts = StateParts {
        device,
        boot_id: parts.boot_id,
        store: store.clone(),
        clock: Arc::clone(&parts.clock),
        chance: Arc::clone(&parts.chance),
        challenges: Arc::clone(&challenges),
        registry: Arc::clone(&registry),
        snapshots: seen,
        events: events.clone(),
        catalogue: Arc::clone(&catalogue),
    };
    // Store and state come first: the rest stands on them.
    let (root, _) = Actor::spawn(None, Supervisor, (ground.clone(), vec![store_child(store.clone())]))
        .await
        .map_err(|error| state_error(&error))?;
    wait_for(&board, &["store"]).await?;
    tokio::time::timeout(START_MAX, store.ready())
        .await
        .map_err(|_| state_error(&"the store did not start in time"))?;
    let calendar = Calendar::begin(&store, parts.clock.as_ref()).await.map_err(|error| state_error(&error))?;
    let leftovers = Leftovers::find(&store, parts.notices.len()).await.map_err(|error| state_error(&error))?;
    parts.notices.iter().for_each(|notice| error!("{notice}"));
    let inner = Arc::new(Inner {
        calendar,
        leftovers,
        bucket: Bucket::new(parts.limits, parts.clock.boot()),
        signer: parts.signer,
        name: RwLock::new(parts.name),
        version: parts.version,
        simulated: parts.simulated,
        clock: parts.clock,
        challenges,
        registry,
        store,
        sign: parts.sign,
        catalogue,
        snapshots,
        state: state.clone(),
        branches: branches.clone(),
        root: root.clone(),
        board: board.clone(),
        events,
        notices: parts.notices,
        tracker: TaskTracker::new(),
        refused: AtomicU64::new(0),
        refused_log: crate::gate::RefusedLog::default(),
    });
    parts.census.see(&inner);
    let house = House { inner: Arc::clone(&inner) };
    let children = vec![
        state_child(state_parts, state),
        journal_child(&inner),
        sign_child(&inner),
        branch("capabilities", ground.clone(), capability_children(&inner, &ground), branches.capabilities),
    ];
    add(&root, children);
    wait_for(&board, &["state", "journal"]).await?;
    // Before the state was read the device seems to belong to nobody, and a link would turn its owner away.
    let outward = vec![
        branch("links", ground.clone(), service_children(&parts.services, Group::Links, &house), branches.links),
        branch("keeper", ground, service_children(&parts.services, Group::Keeper, &house), branches.keeper),
    ];
    add(&root, outward);
    write_leftovers(&inner).await;
    let offer = inner.catalogue.now();
    settle(&board, offer.capabilities.values().map(|one| one.post.path()), SETTLE_MAX).await;
    Ok(house)
}

fn add(root: &ActorRef<Supervise>, children: Vec<Child>) {
    for child in children {
        drop(root.cast(Supervise::Add { child }));
    }
}

/// Waits until parts are at work; one that is given up, or takes too long, stops the start.
async fn wait_for(board: &Board, paths: &[&str]) -> Result<(), GrowError> {
    let up = board.until(|board| {
        paths.iter().all(|path| matches!(board.state_of(path), Some(NodeState::Running | NodeState::Unavailable)))
    });
    let in_time = tokio::time::timeout(START_MAX, up).await.is_ok();
    for path in paths {
        if !in_time || board.state_of(path) != Some(NodeState::Running) {
            let why = board.error_of(path).unwrap_or_else(|| "it did not start in time".to_owned());
            return Err(GrowError::State(format!("{path}: {why}")));
        }
    }
    Ok(())
}

fn store_child(store: Store) -> Child {
    task(
        "store",
        Intensity::USUAL,
        Arc::new(move |stop: CancellationToken| {
            let store = store.clone();
            Box::pin(async move {
                let closing = store.clone();
                let closer = tokio::spawn(async move {
                    stop.cancelled().await;
                    closing.close().await;
                });
                let ended = store.live().await;
                closer.abort();
                ended.map_err(Fault::Failed)
            })
        }),
    )
}

fn state_child(parts: StateParts, place: Place<Say>) -> Child {
    let start: Start = Arc::new(move |parent| {
        let (parts, place) = (parts.clone(), place.clone());
        Box::pin(async move {
            let (actor, _) = Actor::spawn_linked(None, State, parts, parent).await.map_err(why_not_started)?;
            place.put(actor.clone());
            Ok(actor.get_cell())
        })
    });
    Child { path: "state".to_owned(), intensity: Intensity::USUAL, start }
}

fn sign_child(inner: &Arc<Inner>) -> Child {
    let sign = Arc::clone(&inner.sign);
    task(
        "sign",
        Intensity::USUAL,
        Arc::new(move |stop| {
            let sign = Arc::clone(&sign);
            Box::pin(async move {
                sign.tend(stop).await;
                Ok(())
            })
        }),
    )
}

/// The capabilities of the program, and below them the supervisor of the handlers.
fn capability_children(inner: &Arc<Inner>, ground: &Ground) -> Children {
    let built_in = inner.catalogue.children(false);
    let custom =
        branch("capabilities/custom", ground.clone(), inner.catalogue.children(true), inner.branches.custom.clone());
    Arc::new(move || built_in().into_iter().chain([custom.clone()]).collect())
}

fn service_children(services: &[(Group, &'static str, Arc<dyn Service>)], group: Group, house: &House) -> Children {
    let folder = match group {
        Group::Links => "links",
        Group::Keeper => "keeper",
    };
    let of_group = services.iter().filter(|(of, _, _)| *of == group);
    let children = of_group.map(|(_, name, service)| {
        let (service, house) = (Arc::clone(service), house.clone());
        let make = Arc::new(move |stop| service.start(house.clone(), stop));
        task(&format!("{folder}/{name}"), Intensity::USUAL, make)
    });
    let children: Vec<Child> = children.collect();
    Arc::new(move || children.clone())
}

/// The journal's own work: time passes, the head is noted, a full disk is tried again, old records go.
fn journal_child(inner: &Arc<Inner>) -> Child {
    let inner = Arc::downgrade(inner);
    task(
        "journal",
        Intensity::USUAL,
        Arc::new(move |stop: CancellationToken| {
            let inner = inner.clone();
            Box::pin(async move {
                let mut tick = tokio::time::interval(TICK);
                let (mut noted, mut head_due, mut probe_due, mut prune_due) =
                    (0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        _ = tick.tick() => {}
                    }
                    let Some(inner) = inner.upgrade() else { return Ok(()) };
                    inner.state.send(Say::Tick);
                    inner.board.publish();
                    if due(&mut head_due, NOTE_HEAD_EVERY) {
                        noted = note_head(&inner, noted).await;
                    }
                    if due(&mut probe_due, PROBE_EVERY) {
                        if !inner.store.writable() {
                            inner.note("journal.probe".to_owned()).await;
                        }
                        if inner.store.writable() {
                            write_leftovers(&inner).await;
                        }
                    }
                    if due(&mut prune_due, PRUNE_EVERY) {
                        prune(&inner, RECORDS_KEPT_MS, RECORD_BYTES_MAX).await;
                    }
                }
            })
        }),
    )
}

/// Counts ticks down; true when the time is over, and then it begins anew.
fn due(left: &mut Duration, every: Duration) -> bool {
    match left.checked_sub(TICK) {
        Some(rest) => {
            *left = rest;
            false
        }
        None => {
            *left = every;
            true
        }
    }
}

async fn note_head(inner: &Inner, noted: u64) -> u64 {
    let head = *inner.store.head().borrow();
    if head.last == noted {
        return noted;
    }
    match inner.store.query(move |vault| vault.note_head(&head)).await {
        Ok(()) => head.last,
        Err(error) => {
            warn!(%error, "the end of the chain could not be noted");
            noted
        }
    }
}

/// Ends a house.
pub(crate) async fn drain(inner: &Inner, limit: Duration) {
    inner.registry.drain(limit, CANCELLED_MAX).await;
    inner.tracker.close();
    if tokio::time::timeout(LAST_RECORDS_MAX, inner.tracker.wait()).await.is_err() {
        warn!("some work did not end; its records will say so at the next start");
    }
    // The root stops its children in the opposite order of their start, the store last.
    if inner.root.cast(Supervise::Stop).is_ok() {
        drop(inner.root.wait(Some(ractor::concurrency::Duration::from_secs(10))).await);
    }
    inner.store.closed().await;
    // Nobody waits out the burst in which everything stopped.
    inner.board.publish();
    let Head { last, .. } = *inner.store.head().borrow();
    tracing::info!(records = last, "closed");
}
