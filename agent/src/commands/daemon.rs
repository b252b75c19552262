//! `proxier run`.

use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context as _, bail};
use proxier_core::driver::Instance;
use proxier_core::reconcile::Policy;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Ended;
use super::setup::Setup;
use crate::cli::ConfigFlags;
use crate::conntrack::Cleaner;
use crate::service_manager::Notifier;
use crate::source::{self, EventSink, SinkClosed, StopSignal};
use crate::sync::{Message, SyncLoop};

/// Messages that wait before whoever sends them does.
const WAITING: usize = 64;

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
    let to_loop = sender.clone();
    let sink = EventSink::new(move |batch| to_loop.send(Message::Events(batch)).map_err(|_| SinkClosed));
    let on_end = sender.clone();
    let stop = StopSignal::new();
    let source_stop = stop.clone();
    thread::Builder::new().name("source".to_owned()).spawn(move || {
        let result = source::Source::run(source, sink, source_stop);
        let _ = on_end.send(Message::SourceEnded(result));
    })?;
    let notifier = Notifier::from_environment();
    notifier.status("waiting for the first complete list");
    let cleaner = Cleaner::start(|_| {}).context("cannot start the thread that deletes stale flows")?;
    let sync = SyncLoop::new(world, instances, policy, sender).telling(notifier).clearing(setup.replaced());
    let sync = sync.observed_by(Box::new(cleaner));
    let result = sync.run(&receiver);
    drop(receiver);
    stop.raise();
    result?;
    Ok(Ended::Well)
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
