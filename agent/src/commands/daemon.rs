//! `proxier run`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context as _, bail};
use proxier_core::driver::Instance;
use proxier_core::ids::IpFamily;
use proxier_core::reconcile::Policy;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Ended;
use super::setup::Setup;
use crate::cli::ConfigFlags;
use crate::config::{Config, SourceConfig};
use crate::events::{EventRecorder, LoggedEvents};
use crate::health::{self, HealthOptions};
use crate::http::Servers;
use crate::service_manager::Notifier;
use crate::source::{self, EventSink, SinkClosed, StopSignal};
use crate::sync::{Message, SyncLoop};

/// Messages that wait before whoever sends them does.
const WAITING: usize = 64;

/// Where the health server listens unless something else is said (core spec 4.2).
const HEALTH_PORT: u16 = 10256;

pub(super) fn run(flags: &ConfigFlags) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    let world = setup.world()?;
    let source = setup.source(false)?;
    let instances = usable(setup.instances())?;
    let policy = Policy {
        min_interval: setup.config.periods.min_sync,
        retry_max: setup.config.periods.sync,
        verify_interval: setup.config.periods.verify,
        ..Policy::default()
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for signals")?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(backend = %setup.config.mode, node = %world.node_name(), version, "starting");
    let (sender, receiver) = sync_channel(WAITING);
    let on_signal = sender.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            tracing::info!(signal, "stopping; the rules stay in force");
            let _ = on_signal.send(Message::Stop);
        }
    })?;
    let servers = Servers::start().context("cannot start the thread of the HTTP servers")?;
    let families: Vec<IpFamily> = instances.iter().map(|i| i.family()).collect();
    let events: Arc<dyn EventRecorder> = Arc::new(LoggedEvents);
    let options = health_options(&setup.config);
    let health = health::start(options, world.node_name().clone(), &families, &servers, &events)?;
    let (to_loop, pending) = (sender.clone(), health.health());
    let sink = EventSink::new(move |batch| {
        pending.handed_over();
        to_loop.send(Message::Events(batch)).map_err(|_| SinkClosed)
    });
    let on_end = sender.clone();
    let stop = StopSignal::new();
    let source_stop = stop.clone();
    thread::Builder::new().name("source".to_owned()).spawn(move || {
        let result = source::Source::run(source, sink, source_stop);
        let _ = on_end.send(Message::SourceEnded(result));
    })?;
    let notifier = Notifier::from_environment();
    notifier.status("waiting for the first complete list");
    let sync = SyncLoop::new(world, instances, policy, sender)
        .telling(notifier)
        .clearing(setup.replaced())
        .observed_by(health.observer());
    let result = sync.run(&receiver);
    health.stop();
    drop(receiver);
    stop.raise();
    result?;
    Ok(Ended::Well)
}

fn health_options(config: &Config) -> HealthOptions {
    HealthOptions {
        address: Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, HEALTH_PORT))),
        hard_fail: false,
        sync_period: config.periods.sync,
        node_required: !matches!(config.source, Some(SourceConfig::Manifests(_))),
    }
}

/// Leaves out families that this machine cannot serve, and says why.
fn usable(instances: Vec<Box<dyn Instance>>) -> anyhow::Result<Vec<Box<dyn Instance>>> {
    let mut out = Vec::new();
    let mut unserved = Vec::new();
    for mut instance in instances {
        let reason = match instance.probe() {
            Ok(capabilities) if capabilities.usable() => {
                out.push(instance);
                continue;
            }
            Ok(capabilities) => capabilities
                .missing()
                .map(|r| format!("{} is missing: {}", r.what, r.detail))
                .collect::<Vec<_>>()
                .join("; "),
            Err(error) => error.source.to_string(),
        };
        unserved.push((instance.family(), reason));
    }
    if out.is_empty() {
        let reasons: Vec<String> = unserved.iter().map(|(family, why)| format!("{family}: {why}")).collect();
        bail!("this machine cannot be served: {}", reasons.join("; "));
    }
    for (family, reason) in unserved {
        tracing::warn!(%family, reason = %reason, "family cannot be served");
    }
    Ok(out)
}
