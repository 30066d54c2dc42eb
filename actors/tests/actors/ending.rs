//! How a house begins and ends: no service before the state is read; at the end no new work, time for what runs, services stopped before
//! their ground, records closed, nothing left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use handlers::Fault;
use latchkey_actors::{Group, House, NodeState, Service, SettingsChange};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::ErrorCode;

use crate::clients::{health, show, word};
use crate::fakes::{Mood, PATIENCE, reaches};
use crate::rig::{Fakes, Rig, Setup, open};
use crate::trap::{Op, Plan, Trouble};

/// A service that counts its lives and takes its time to end.
struct Page {
    lives: watch::Sender<u32>,
    ended: AtomicU32,
    fails: AtomicU32,
}

impl Page {
    fn new(fails: u32) -> Arc<Self> {
        Arc::new(Self { lives: watch::Sender::new(0), ended: AtomicU32::new(0), fails: AtomicU32::new(fails) })
    }
}

struct Serve(Arc<Page>);

impl Service for Serve {
    fn start(&self, house: House, stop: CancellationToken) -> BoxFuture<'static, Result<(), Fault>> {
        let page = Arc::clone(&self.0);
        page.lives.send_modify(|lives| *lives += 1);
        async move {
            if page.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(Fault::Failed("told to end".to_owned()));
            }
            stop.cancelled().await;
            // The house is still whole: a page says good-bye.
            drop(house.name());
            tokio::time::sleep(Duration::from_millis(100)).await;
            page.ended.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_service_starts_before_the_state_is_read_so_that_an_owner_is_not_turned_away() {
    let page = Page::new(0);
    let serve = || Arc::new(Serve(Arc::clone(&page))) as Arc<dyn Service>;
    let services = vec![(Group::Links, "direct", serve()), (Group::Keeper, "page", serve())];
    let outside = Arc::new(Fakes::new(Duration::from_secs(20)));
    let plan = Plan::new(&outside.trace);
    plan.set_times(Op::Durable, Trouble::Block, 1);
    let growing = tokio::spawn({
        let (vault, _) = open(None, &outside.clock).unwrap();
        let (plan, setup) = (Arc::clone(&plan), Setup { services, ..Setup::default() });
        Rig::grow_on(vault, Vec::new(), setup, outside, plan, 1, None)
    });
    reaches(&plan.befell, 1, "the state is being read").await;
    let mut lives = page.lives.subscribe();
    let early = tokio::time::timeout(Duration::from_millis(300), lives.wait_for(|lives| *lives > 0)).await.is_ok();
    assert!(!early, "a link serves while nobody knows whose the device is");
    plan.clear();
    let rig = growing.await.unwrap().unwrap();
    reaches(&page.lives, 2, "both serve once the state is read").await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_running_work_and_for_every_service() {
    let page = Page::new(0);
    let services = vec![(Group::Keeper, "page", Arc::new(Serve(Arc::clone(&page))) as Arc<dyn Service>)];
    let rig = Arc::new(Rig::with(Setup { services, ..Setup::default() }).await.ready().await);
    rig.text.set(Mood::Wait);
    let id = rig.id();
    let call = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { word(&rig.ask_under(id, show("x")).await) }
    });
    rig.text.begins(1).await;
    let draining = tokio::spawn({
        let house = rig.house.clone();
        async move { house.drain(PATIENCE).await }
    });
    while word(&rig.ask(health()).await) != "busy" {
        tokio::task::yield_now().await;
    }
    assert!(!draining.is_finished() && page.ended.load(Ordering::SeqCst) == 0, "it waits for the call");
    rig.text.go();
    assert_eq!(call.await.unwrap(), "ok");
    draining.await.unwrap();
    assert_eq!((rig.text.effects(), page.ended.load(Ordering::SeqCst)), (1, 1));
    let tree = rig.house.tree().borrow().clone();
    let states: Vec<_> = tree.root.children.iter().map(|node| node.state).collect();
    assert_eq!(states, vec![NodeState::Stopped; tree.root.children.len()]);
    assert_eq!(tree.root.find("keeper/page").unwrap().state, NodeState::Stopped);
    Arc::into_inner(rig).unwrap().down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_limit_a_drain_cancels_and_the_record_says_so() {
    let rig = Arc::new(Rig::disk().await.ready().await);
    rig.text.set(Mood::Wait);
    let id = rig.id();
    let call = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move { word(&rig.ask_under(id, show("x")).await) }
    });
    rig.text.begins(1).await;
    rig.house.drain(Duration::from_millis(50)).await;
    assert_eq!(call.await.unwrap(), "unknown_outcome");
    reaches(&rig.text.stopped, 1, "the handler is told").await;
    let rig = Arc::into_inner(rig).unwrap().restart().await;
    assert_eq!(rig.story(id).await, ["started", "unknown_outcome"]);
    assert_eq!(rig.notices.len(), 0);
    rig.verifies().await;
    rig.down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_ends_is_started_again() {
    let page = Page::new(2);
    let services = vec![(Group::Links, "direct", Arc::new(Serve(Arc::clone(&page))) as Arc<dyn Service>)];
    let rig = Rig::with(Setup { services, ..Setup::default() }).await;
    reaches(&page.lives, 3, "it lives again").await;
    rig.becomes("links/direct", NodeState::Running).await;
    let node = rig.node("links/direct").await;
    assert_eq!((node.restarts, node.last_error.as_deref()), (2, Some("told to end")));
    assert_eq!(rig.node("links").await.restarts, 0);
    rig.own(1).await;
    assert_eq!(word(&rig.ask(health()).await), "ok");
    rig.down().await;
    assert_eq!(page.ended.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_settings_are_taken_over_without_a_restart_and_are_on_record() {
    let rig = Rig::new().await.ready().await;
    let change = SettingsChange {
        name: "hall".to_owned(),
        limits: latchkey_actors::Limits { rate_per_second: 1, rate_burst: 1 },
        renew: vec!["display.text".parse().unwrap()],
    };
    rig.house.settings_changed(change).await;
    assert_eq!(rig.house.name(), "hall");
    rig.becomes("capabilities/display.text", NodeState::Running).await;
    reaches(&rig.text.begun, 0, "nothing ran").await;
    crate::fakes::eventually("it is made anew", || rig.text.made.load(Ordering::SeqCst) == 2).await;
    assert_eq!(rig.camera.made.load(Ordering::SeqCst), 1);
    assert_eq!(word(&rig.ask(health()).await), "ok");
    assert_eq!(rig.ask(health()).await.unwrap().unwrap_err().error, ErrorCode::RateLimited);
    assert!(rig.receipts().await.iter().any(|line| line.what.as_deref() == Some("settings")));
    rig.down().await;
}
