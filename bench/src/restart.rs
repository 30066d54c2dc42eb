//! How long a capability that panicked takes to answer again: the first restart comes before any back-off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use actors::{Installed, Work};
use futures_util::future::BoxFuture;
use handlers::{Call, Fault, Handler};
use wire::{Declaration, ErrorCode, Object};

use crate::house;
use crate::load::{Party, health};
use crate::server::owned_state;

/// A capability that panics when told to.
struct Fragile {
    declaration: Declaration,
    break_now: Arc<AtomicBool>,
}

impl Handler for Fragile {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    #[expect(clippy::panic, reason = "the fault that is measured")]
    fn run(&self, _call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let break_now = Arc::clone(&self.break_now);
        Box::pin(async move {
            if break_now.swap(false, Ordering::SeqCst) {
                panic!("told to");
            }
            Ok(Object::new())
        })
    }
}

/// Milliseconds from the answer of the call that broke it to the next good answer, one for each fresh house.
pub(crate) async fn times_ms(rounds: u32) -> anyhow::Result<Vec<f64>> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(once().await?.as_secs_f64() * 1e3);
    }
    drop(std::panic::take_hook());
    times.sort_by(f64::total_cmp);
    Ok(times)
}

async fn once() -> anyhow::Result<Duration> {
    let party = Party::new();
    let break_now = Arc::new(AtomicBool::new(false));
    let house = house::grow(&party, &owned_state(&party)?, vec![fragile(&break_now)]).await?;
    let health = health();
    anyhow::ensure!(house::ask(&house, &party, &health).await?.is_ok(), "it does not answer");
    break_now.store(true, Ordering::SeqCst);
    let broken = house::ask(&house, &party, &health).await?.map_err(|refusal| refusal.error);
    anyhow::ensure!(broken == Err(ErrorCode::Failed), "it did not break");
    let broke = Instant::now();
    while house::ask(&house, &party, &health).await?.is_err() {
        tokio::task::yield_now().await;
    }
    let took = broke.elapsed();
    house.drain(Duration::ZERO).await;
    Ok(took)
}

fn fragile(break_now: &Arc<AtomicBool>) -> Installed {
    let declaration = Declaration::device_health();
    let (of_made, break_now) = (declaration.clone(), Arc::clone(break_now));
    let make = move || {
        let (declaration, break_now) = (of_made.clone(), Arc::clone(&break_now));
        Ok(Work::Plain(Arc::new(Fragile { declaration, break_now })))
    };
    Installed { declaration, make: Arc::new(make), custom: None }
}
