//! The subcommands: assembly of configuration, source, core and backend.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context as _, bail};
use proxier_core::cluster::Commit;
use proxier_core::driver::Instance;
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::reconcile::Policy;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{BaseFlags, Command, ConfigFlags, OutputFormat, RenderArgs};
use crate::config::{Config, FlagValue};
use crate::registry::{self, Factory};
use crate::source::manifests::Manifests;
use crate::source::{self, EventSink, SinkClosed, StopSignal};
use crate::sync::{Message, SyncLoop};
use crate::world::World;
use crate::{lab, telemetry};

/// How a command ended, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Well,
    /// It found what it was asked to look for: drift, or a machine that cannot do it.
    Found,
}

/// Runs a subcommand, writing its answer to `out`.
///
/// # Errors
/// Whatever stopped it, with what it was about.
pub fn run(command: Command, out: &mut dyn std::io::Write) -> anyhow::Result<Ended> {
    match command {
        Command::Run(flags) => run_daemon(&flags),
        Command::Render(args) => render(&args, out),
        Command::Cleanup(flags) => cleanup(&flags, out),
        Command::CheckConfig(flags) => check_config(&flags, out),
        Command::Probe(flags) => probe(&flags, out),
        Command::Verify(flags) => verify(&flags, out),
        Command::Lab(args) => match lab::exec(&args.args)? {},
    }
}

/// Configuration, checked to the end, and the backend that it names.
struct Setup {
    config: Config,
    factory: Box<dyn Factory>,
}

fn load(file: Option<&Path>, settings: &[FlagValue]) -> anyhow::Result<Setup> {
    let names = registry::names();
    let config = Config::load(file, settings, &names)?;
    let entry = registry::find(&config.mode).with_context(|| format!("backend {} is not built in", config.mode))?;
    let mut faults = Vec::new();
    let mut factory = None;
    for backend in registry::BACKENDS {
        match backend.configure(config.section(backend.name)) {
            Ok(f) if backend.name == entry.name => factory = Some(f),
            Ok(_) => {}
            Err(error) => faults.extend(error.0),
        }
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    let factory = factory.with_context(|| format!("backend {} is not built in", config.mode))?;
    Ok(Setup { config, factory })
}

impl Setup {
    fn from_flags(flags: &ConfigFlags) -> anyhow::Result<Self> {
        load(flags.base.config.as_deref(), &flags.settings())
    }

    fn log(&self) -> anyhow::Result<()> {
        Ok(telemetry::init(self.config.logging.format, &self.config.logging.level)?)
    }

    fn instances(&self) -> Vec<Box<dyn Instance>> {
        IpFamily::ALL.into_iter().map(|family| self.factory.instance(family)).collect()
    }

    fn node_name(&self) -> anyhow::Result<NodeName> {
        let host = proxier_sys::sysctl::Sysctl::new().read("kernel/hostname").unwrap_or_default();
        self.config.node_name(&host).context("no node name: give --node or hostnameOverride")
    }

    fn world(&self) -> anyhow::Result<World> {
        let mut traffic = self.config.traffic_options();
        self.factory.adjust(&mut traffic);
        Ok(World::new(self.node_name()?, traffic, self.config.node.clone()))
    }

    fn manifests(&self) -> anyhow::Result<Manifests> {
        let manifests = self
            .config
            .manifests
            .as_ref()
            .context("no source: give --manifests DIR, or source.manifests.path in the file")?;
        Ok(Manifests::new(&manifests.path).poll(manifests.poll))
    }

    /// Everything the source has, once.
    fn read_all(&self, world: &mut World) -> anyhow::Result<Commit> {
        let source = Box::new(self.manifests()?.once());
        let (sink, batches) = EventSink::channel(8);
        let thread = source::spawn(source, sink, StopSignal::new()).context("cannot start the source")?;
        for batch in batches {
            world.apply(batch);
        }
        match thread.join() {
            Ok(result) => result?,
            Err(_) => bail!("the source's thread died"),
        }
        Ok(world.commit())
    }
}

fn run_daemon(flags: &ConfigFlags) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    let world = setup.world()?;
    let source = Box::new(setup.manifests()?);
    let instances = usable(setup.instances())?;
    let policy = Policy {
        min_interval: setup.config.periods.min_sync,
        retry_max: setup.config.periods.sync,
        verify_interval: setup.config.periods.verify,
        ..Policy::default()
    };
    tracing::info!(backend = %setup.config.mode, node = %world.node_name(), version = env!("CARGO_PKG_VERSION"), "starting");
    let (sender, receiver) = sync_channel(64);
    let stop = StopSignal::new();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for signals")?;
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
    let source_stop = stop.clone();
    thread::Builder::new().name("source".to_owned()).spawn(move || {
        let result = source::Source::run(source, sink, source_stop);
        let _ = on_end.send(Message::SourceEnded(result));
    })?;
    let result = SyncLoop::new(world, instances, policy, sender).run(&receiver);
    drop(receiver);
    stop.raise();
    result?;
    Ok(Ended::Well)
}

/// Leaves out families that this machine cannot serve, and says why.
fn usable(instances: Vec<Box<dyn Instance>>) -> anyhow::Result<Vec<Box<dyn Instance>>> {
    let mut out = Vec::new();
    let mut reasons = Vec::new();
    for mut instance in instances {
        let family = instance.family();
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
            Err(error) => error.to_string(),
        };
        tracing::warn!(%family, reason = %reason, "family cannot be served");
        reasons.push(format!("{family}: {reason}"));
    }
    if out.is_empty() {
        bail!("this machine cannot be served: {}", reasons.join("; "));
    }
    Ok(out)
}

fn render(args: &RenderArgs, out: &mut dyn std::io::Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(&args.flags)?;
    setup.log()?;
    let mut world = setup.world()?;
    let commit = setup.read_all(&mut world)?;
    let mut plans = Vec::new();
    for instance in setup.instances() {
        let family = instance.family();
        let rendered = instance.render(commit.snapshot(family));
        for unsupported in &rendered.unsupported {
            tracing::warn!(service.port = %unsupported.port, feature = %unsupported.feature, "not supported");
        }
        match args.output {
            OutputFormat::Text => {
                for entry in rendered.entries {
                    writeln!(out, "{}", entry.text)?;
                }
            }
            OutputFormat::Json => {
                let operations: Vec<_> = rendered
                    .entries
                    .into_iter()
                    .map(|e| {
                        let port = e.port.map(|p| {
                            json!({
                                "namespace": &*p.service.namespace,
                                "name": &*p.service.name,
                                "port": &*p.port,
                                "protocol": p.protocol.as_str(),
                            })
                        });
                        json!({ "text": e.text, "servicePort": port })
                    })
                    .collect();
                plans.push(json!({
                    "backend": instance.name(),
                    "family": family.to_string(),
                    "generation": commit.snapshot(family).generation().0,
                    "operations": operations,
                }));
            }
        }
    }
    if args.output == OutputFormat::Json {
        serde_json::to_writer_pretty(&mut *out, &json!({ "plans": plans, "problems": world.problems().collect::<Vec<_>>() }))?;
        writeln!(out)?;
    }
    Ok(Ended::Well)
}

fn cleanup(flags: &BaseFlags, out: &mut dyn std::io::Write) -> anyhow::Result<Ended> {
    let setup = load(flags.config.as_deref(), &flags.settings())?;
    setup.log()?;
    let mut faults = String::new();
    for mut instance in setup.instances() {
        match instance.cleanup() {
            Ok(report) => {
                for removed in report.removed {
                    writeln!(out, "removed {removed}")?;
                }
                for stayed in report.stayed {
                    let _ = writeln!(faults, "stayed: {stayed}");
                }
            }
            Err(error) => {
                let _ = writeln!(faults, "{error}");
            }
        }
    }
    if !faults.is_empty() {
        bail!("not everything could be removed:\n{}", faults.trim_end());
    }
    Ok(Ended::Well)
}

fn check_config(flags: &ConfigFlags, out: &mut dyn std::io::Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    telemetry::parse_filter(&setup.config.logging.level)?;
    out.write_all(setup.config.describe().as_bytes())?;
    Ok(Ended::Well)
}

fn probe(flags: &BaseFlags, out: &mut dyn std::io::Write) -> anyhow::Result<Ended> {
    let setup = load(flags.config.as_deref(), &flags.settings())?;
    setup.log()?;
    let mut all_usable = true;
    for mut instance in setup.instances() {
        let family = instance.family();
        let capabilities = instance.probe()?;
        all_usable &= capabilities.usable();
        let verdict = if capabilities.usable() { "usable" } else { "not usable" };
        writeln!(out, "{} {family}: {verdict}", instance.name())?;
        for requirement in &capabilities.requirements {
            let found = match (requirement.found, requirement.required) {
                (true, _) => "found",
                (false, true) => "MISSING",
                (false, false) => "missing (optional)",
            };
            writeln!(out, "  {found:<18} {} ({})", requirement.what, requirement.detail)?;
        }
    }
    Ok(if all_usable { Ended::Well } else { Ended::Found })
}

fn verify(flags: &ConfigFlags, out: &mut dyn std::io::Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    let mut world = setup.world()?;
    world.set_host_addresses(proxier_sys::addresses::host_addresses()?.into_iter().map(|(_, ip)| ip));
    let commit = setup.read_all(&mut world)?;
    let mut drifted = false;
    for mut instance in setup.instances() {
        let family = instance.family();
        // What the backend decides by this host must be decided as the daemon did.
        instance.probe()?;
        let drift = instance.compare(commit.snapshot(family))?;
        drifted |= !drift.is_empty();
        writeln!(out, "{} {family}: {} differences", instance.name(), drift.items.len())?;
        for item in drift.items {
            writeln!(out, "  {item}")?;
        }
    }
    Ok(if drifted { Ended::Found } else { Ended::Well })
}
