//! The baseline: what one pooled call costs in this process, with nothing of ours around it.

use std::time::{Duration, Instant};

use anyhow::Context;
use wasmtime::component::{Component, ComponentType, InstancePre, Lift, Linker, Lower};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

/// The error of the handler's world.
#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct HandlerError {
    #[component(name = "code")]
    _code: String,
    #[component(name = "message")]
    _message: String,
}

/// A fresh store and instance for each call, from a pool, with epochs on, as the child has it.
pub(crate) struct Bare {
    engine: Engine,
    echo: InstancePre<()>,
}

impl Bare {
    pub(crate) fn new(text: &str) -> anyhow::Result<Self> {
        let mut config = Config::new();
        let mut pool = PoolingAllocationConfig::new();
        pool.total_core_instances(4).total_memories(4).total_component_instances(4).total_stacks(4);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        config.epoch_interruption(true);
        let engine = Engine::new(&config).map_err(anyhow::Error::from)?;
        let component = Component::new(&engine, wat::parse_str(text)?).map_err(anyhow::Error::from)?;
        let mut linker = Linker::new(&engine);
        linker.instance("device:handler/types@0.1.0").map_err(anyhow::Error::from)?;
        let echo = linker.instantiate_pre(&component).map_err(anyhow::Error::from)?;
        Ok(Self { engine, echo })
    }

    /// Times of single calls.
    pub(crate) async fn times(&self, arguments: &[u8], calls: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            let mut store = Store::new(&self.engine, ());
            store.set_epoch_deadline(1_000_000);
            let instance = self.echo.instantiate_async(&mut store).await.map_err(anyhow::Error::from)?;
            let invoke = instance
                .get_typed_func::<(Vec<u8>,), (Result<Vec<u8>, HandlerError>,)>(&mut store, "invoke")
                .map_err(anyhow::Error::from)?;
            let (given,) = invoke.call_async(&mut store, (arguments.to_vec(),)).await.map_err(anyhow::Error::from)?;
            let given = given.ok().context("the echo failed")?;
            anyhow::ensure!(given == arguments, "the echo gave something else");
            drop(store);
            times.push(began.elapsed());
        }
        Ok(times)
    }
}
