//! `proxier run`: the threads of the daemon and what ties them together.
//!
//! ```text
//! source ------ events -----> loop (this thread) --- tells ---> observers: flows, ...
//! addresses --- addresses -->  |
//! config, signals: reload -->  |  settings, instances
//! signals ----- stop ------->  v
//!                           kernel
//! ```

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::Context as _;
use proxier_core::driver::Instance;
use proxier_core::ids::IpFamily;
use proxier_sys::addresses::{AddressWatch, Notice, host_addresses};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::reload::{Reload, Surroundings, Taken};
use super::setup::Setup;
use super::{Ended, host};
use crate::admin::{self, Attached, Board, Insight, MetricsOptions};
use crate::cli::ConfigFlags;
use crate::config::{Config, SourceConfig};
use crate::conntrack::{Cleaner, Pass};
use crate::events::{Event, EventType, Logged, SharedRecorder};
use crate::health::{self, Answers, Health, HealthOptions, Mover};
use crate::http::Servers;
use crate::metrics::{ClientMetrics, Metrics, ProbeCounts, wall_clock};
use crate::service_manager::Notifier;
use crate::source::kubernetes::Recorder;
use crate::source::{self, EventSink, SinkClosed, StopSignal};
use crate::sync::{Message, Observer, SyncLoop};
use crate::world::{Problems, SERVICES_INTERFACE};

/// Pages of the metrics server that a gate can take away (core spec 4.6).
const PAGES: [(&str, &str); 2] = [("ComponentFlagz", "/flagz"), ("ComponentStatusz", "/statusz")];

/// Messages that wait before whoever sends them does.
const WAITING: usize = 64;

pub(super) fn run(flags: &ConfigFlags) -> anyhow::Result<Ended> {
    // Before it is read: what changes from here on is noticed.
    let known = flags.config.as_deref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    // What makes a start impossible comes before the first thing that is done.
    let (node, _) = (setup.node_name()?, setup.source(false)?);
    let instances = setup.usable()?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(backend = %setup.config.mode, node = %node, version, "starting");
    host::set_oom_score(&setup.config);
    host::prepare(&setup.config)?;
    let insight = insight(&setup, &instances);
    let events = recorder(&setup, insight.metrics.client())?;
    events.record(Event::starting());
    if setup.config.mode == "ipvs" {
        let note = "IPVS is deprecated in Kubernetes; nftables takes its place";
        events.record(Event::node(EventType::Warning, "IPVSDeprecation", note));
    }
    let (sender, receiver) = sync_channel(WAITING);
    let stop = StopSignal::new();
    let result = Daemon { setup, known, events, insight, sender, stop: stop.clone() }
        .serve(flags, instances, &receiver);
    drop(receiver);
    stop.raise();
    result?;
    Ok(Ended::Well)
}

struct Daemon {
    setup: Setup,
    /// The content of the configuration file that is in force.
    known: Vec<u8>,
    events: SharedRecorder,
    insight: Arc<Insight>,
    sender: SyncSender<Message>,
    stop: StopSignal,
}

impl Daemon {
    /// Starts the threads and runs the loop until it is told to stop.
    fn serve(
        self,
        flags: &ConfigFlags,
        instances: Vec<Box<dyn Instance>>,
        messages: &Receiver<Message>,
    ) -> anyhow::Result<()> {
        let Self { setup, sender, stop, .. } = &self;
        let notifier = Notifier::from_environment();
        let families: Vec<IpFamily> = instances.iter().map(|i| i.family()).collect();
        let reload = Reload::new(flags, setup, families.clone(), sender.clone(), notifier.another());
        self.heed_signals(reload.clone())?;
        self.watch_addresses();
        reload.follow(flags.config.as_deref().map(Path::new), self.known.clone(), stop)?;
        let servers = Servers::start().context("cannot start the thread of the HTTP servers")?;
        let node = setup.node_name()?;
        let health = health::start(health_options(&setup.config), node, &families, &servers, &self.events)?;
        let world = setup.world()?;
        let (follower, attached) = self.attach(&health.health(), world.problems(), servers)?;
        let attached = Arc::new(attached);
        reload.told_to(surroundings(health.mover(), &attached));
        self.start_source(health.health())?;
        notifier.status("waiting for the first complete list");
        let insight = Arc::clone(&self.insight);
        let counted = move |pass: &Pass| insight.metrics.conntrack_pass(pass.family, pass.took, pass.deleted);
        let cleaner = Cleaner::start(counted).context("cannot start the thread that deletes stale flows")?;
        let config = setup.config.clone();
        let check = Box::new(move |node: &_| host::check_start(&config, &families, node));
        let policy = setup.settings().policy;
        let sync = SyncLoop::new(world, instances, policy, sender.clone())
            .telling(notifier)
            .clearing(setup.replaced())
            .checking(check)
            .observed_by(health.observer())
            .observed_by(Box::new(cleaner))
            .observed_by(follower);
        let result = sync.run(messages);
        drop(attached);
        health.stop();
        Ok(result?)
    }

    /// SIGTERM and SIGINT end the program, SIGHUP has the configuration read again.
    fn heed_signals(&self, reload: Reload) -> anyhow::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let to_loop = self.sender.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    reload.now("SIGHUP");
                    continue;
                }
                tracing::info!(signal, "stopping; the rules stay in force");
                let _ = to_loop.send(Message::Stop);
            }
        })?;
        Ok(())
    }

    /// Serves metrics and the admin API. Returns who follows the loop for them.
    fn attach(
        &self,
        health: &Arc<Health>,
        problems: &Problems,
        servers: Servers,
    ) -> anyhow::Result<(Box<dyn Observer>, Attached)> {
        let answers = Arc::clone(health);
        self.insight.metrics.probes(move || probe_counts(answers.answers()));
        let around = admin::Surroundings {
            insight: Arc::clone(&self.insight),
            servers,
            node: self.setup.node_name()?.as_str().to_owned(),
            source: self.setup.source_kind(),
            problems: problems.clone(),
            messages: self.sender.clone(),
            events: Arc::clone(&self.events),
        };
        Ok(admin::attach(metrics_options(&self.setup.config), around)?)
    }

    fn start_source(&self, health: Arc<Health>) -> anyhow::Result<()> {
        let source = self.setup.counted_source(false, Arc::clone(self.insight.metrics.client()))?;
        let to_loop = self.sender.clone();
        let sink = EventSink::new(move |batch| {
            health.handed_over();
            to_loop.send(Message::Events(batch)).map_err(|_| SinkClosed)
        });
        let (on_end, stop) = (self.sender.clone(), self.stop.clone());
        thread::Builder::new().name("source".to_owned()).spawn(move || {
            let result = source::Source::run(source, sink, stop);
            let _ = on_end.send(Message::SourceEnded(result));
        })?;
        Ok(())
    }

    /// Tells the loop when addresses of this host come or go. Where that cannot be, they are read with each comparison only.
    fn watch_addresses(&self) {
        let missing = |error: &dyn std::fmt::Display| {
            tracing::warn!(error = %error, "changes of this host's addresses are noticed with the next comparison only");
        };
        let (mut watch, waker) = match AddressWatch::open().and_then(|w| Ok((w.waker()?, w))) {
            Ok((waker, watch)) => (watch.ignoring(SERVICES_INTERFACE), waker),
            Err(error) => return missing(&error),
        };
        self.stop.on_raise(move || waker.wake());
        let to_loop = self.sender.clone();
        let follow = move || {
            loop {
                match watch.wait() {
                    Ok(Notice::Changed) => {}
                    Ok(Notice::Woken) => return,
                    Err(error) => {
                        tracing::warn!(error = %error, "changes of this host's addresses are no longer told");
                        return;
                    }
                }
                match host_addresses() {
                    Ok(addresses) => {
                        if to_loop.send(Message::Addresses(addresses)).is_err() {
                            return;
                        }
                    }
                    Err(error) => tracing::warn!(error = %error, "cannot list this host's addresses"),
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("addresses".to_owned()).spawn(follow) {
            missing(&error);
        }
    }
}

fn health_options(config: &Config) -> HealthOptions {
    HealthOptions {
        address: config.healthz_bind_address,
        hard_fail: config.bind_address_hard_fail,
        sync_period: config.periods.sync,
        node_required: !matches!(config.source, Some(SourceConfig::Manifests(_))),
    }
}

/// Values and state of these instances.
fn insight(setup: &Setup, instances: &[Box<dyn Instance>]) -> Arc<Insight> {
    let families: Vec<IpFamily> = instances.iter().map(|i| i.family()).collect();
    let metrics = Metrics::new(&setup.config.mode, setup.figures(), &families, wall_clock);
    Insight::new(metrics, Board::new(setup.backend(), &families, wall_clock))
}

fn metrics_options(config: &Config) -> MetricsOptions {
    MetricsOptions {
        address: config.metrics_bind_address,
        hard_fail: config.bind_address_hard_fail,
        profiling: config.enable_profiling,
        admin_socket: config.admin.socket.clone(),
        mode: config.mode.clone(),
        configz: config.configz(),
        hidden: PAGES
            .iter()
            .filter(|(gate, _)| !config.feature_gates.on(gate))
            .map(|(_, page)| *page)
            .collect(),
        gates: config.feature_gates.iter().map(|(name, on)| (name.to_owned(), on)).collect(),
    }
}

/// Takes over what a configuration that was read again says of servers and host.
fn surroundings(mover: Mover, attached: &Arc<Attached>) -> Surroundings {
    // the servers end with the loop, whoever may still read a file then
    let attached = Arc::downgrade(attached);
    Box::new(move |Taken { before, now, whole }| {
        mover.listen_at(now.healthz_bind_address);
        if let Some(attached) = attached.upgrade() {
            attached.change(metrics_options(now));
            if whole {
                attached.pages().set_configz(now.configz());
            }
        }
        if before.oom_score_adj != now.oom_score_adj {
            host::set_oom_score(now);
        }
        if before.conntrack != now.conntrack
            && let Err(error) = host::prepare(now)
        {
            tracing::error!(error = %error, "settings of connection tracking");
        }
    })
}

/// Answers of `/healthz` and of `/livez` by status code.
fn probe_counts(answers: Answers) -> (ProbeCounts, ProbeCounts) {
    let Answers { healthz_200, healthz_503, livez_200, livez_503 } = answers;
    (vec![(200, healthz_200), (503, healthz_503)], vec![(200, livez_200), (503, livez_503)])
}

/// Where events go: to the API server, if there is one, and to the log.
fn recorder(setup: &Setup, requests: &Arc<ClientMetrics>) -> anyhow::Result<SharedRecorder> {
    let (node, rate, requests) = (setup.node_name()?, setup.rate(), Arc::clone(requests));
    Ok(match setup.access()? {
        Some(access) => Arc::new(Recorder::start(access, node, rate, requests)?),
        None => Arc::new(Logged),
    })
}
