//! What every subcommand starts from.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use proxier_core::cluster::{Commit, DetectLocal};
use proxier_core::driver::Instance;
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::reconcile::Policy;

use super::choice::{self, Choice, Verdict};
use crate::cli::{BaseFlags, ConfigFlags};
use crate::config::{Config, Draft, KubernetesConfig, Periods, SourceConfig};
use crate::metrics::{ClientMetrics, Figures};
use crate::registry::{self, Entry, Factory};
use crate::source::kubernetes::{Access, Kubernetes, NodeNeeds, Rate};
use crate::source::manifests::Manifests;
use crate::source::{self, EventSink, Source, StopSignal};
use crate::sync::Settings;
use crate::telemetry;
use crate::world::World;

const NO_SOURCE: &str = "no source: give --kubeconfig FILE, --master URL or --manifests DIR, or a source in the file; \
                         this is no pod with a service account either";

/// Configuration, checked to the end, and the backend that it names.
pub(super) struct Setup {
    pub(super) config: Config,
    /// The modes that the configuration names, if the one that runs is none of them.
    pub(super) moved: Option<Vec<String>>,
    /// How the backend was found, in mode `auto`.
    pub(super) choice: Option<Choice>,
    factory: Box<dyn Factory>,
    replaced: Vec<Box<dyn Factory>>,
}

impl Setup {
    pub(super) fn from_flags(flags: &ConfigFlags) -> anyhow::Result<Self> {
        Self::load(flags, None)
    }

    /// Reads the configuration again, for the mode that runs, whatever mode it names now.
    pub(super) fn again(flags: &ConfigFlags, running: &str) -> anyhow::Result<Self> {
        Self::load(flags, Some(running))
    }

    fn load(flags: &ConfigFlags, running: Option<&str>) -> anyhow::Result<Self> {
        let sections = registry::sections();
        let mut draft = Draft::load(flags.config.as_deref(), &flags.given, &sections)?;
        let mut factories: Vec<(&str, Box<dyn Factory>)> = registry::BACKENDS
            .iter()
            .filter_map(|backend| Some((backend.section.name, configured(backend, &mut draft)?)))
            .collect();
        let candidates = draft.candidates();
        let moved = running.filter(|mode| !candidates.iter().any(|c| c == mode)).map(|_| candidates.clone());
        let choice = match candidates.as_slice() {
            _ if running.is_some() => None,
            [_] => None,
            order => {
                // Faults come first, of every mode that may be chosen.
                draft.clone().finish()?;
                let instances = |mode: &str| -> Vec<Box<dyn Instance>> {
                    let found = factories.iter().find(|(name, _)| *name == mode);
                    found
                        .map_or_else(Vec::new, |(_, f)| IpFamily::ALL.map(|family| f.instance(family)).into())
                };
                Some(choice::choose(order, |mode| Verdict::of(mode, instances(mode))))
            }
        };
        let config = match (running, &choice) {
            (Some(mode), _) => draft.finish_as(mode)?,
            (None, Some(choice)) => draft.finish_as(&choice.mode)?,
            (None, None) => draft.finish()?,
        };
        let not_there = || format!("backend {} is not built in", config.mode);
        let entry =
            registry::BACKENDS.iter().find(|b| b.section.name == config.mode).with_context(not_there)?;
        let at = factories.iter().position(|(name, _)| *name == config.mode).with_context(not_there)?;
        let (_, factory) = factories.swap_remove(at);
        let replaced = factories.into_iter().filter(|(name, _)| entry.replaces.contains(name));
        let replaced = replaced.map(|(_, factory)| factory).collect();
        Ok(Self { config, moved, choice, factory, replaced })
    }

    pub(super) fn from_base(flags: &BaseFlags) -> anyhow::Result<Self> {
        Self::from_flags(&flags.0)
    }

    /// Sets up logging, and logs what should be known of the configuration.
    pub(super) fn log(&self) -> anyhow::Result<()> {
        telemetry::init(self.config.logging.format, &self.config.logging.level)?;
        for finding in self.config.warnings() {
            tracing::warn!(setting = %finding.path, origin = %finding.origin, reason = %finding.message, "configuration");
        }
        if let Some(choice) = &self.choice {
            choice.log();
        }
        Ok(())
    }

    pub(super) fn instances(&self) -> Vec<Box<dyn Instance>> {
        IpFamily::ALL.into_iter().map(|family| self.factory.instance(family)).collect()
    }

    /// Instances for the families that this machine can serve; why the others are left out is logged.
    pub(super) fn usable(&self) -> anyhow::Result<Vec<Box<dyn Instance>>> {
        let mut out = Vec::new();
        let mut unserved = Vec::new();
        for mut instance in self.instances() {
            match choice::missing(&mut *instance) {
                None => out.push(instance),
                Some(reason) => unserved.push((instance.family(), reason)),
            }
        }
        if out.is_empty() {
            let reasons: Vec<String> = unserved.iter().map(|(f, why)| format!("{f}: {why}")).collect();
            bail!("this machine cannot be served: {}", reasons.join("; "));
        }
        for (family, reason) in unserved {
            tracing::warn!(%family, reason = %reason, "family cannot be served");
        }
        Ok(out)
    }

    /// Instances of the backends whose leftovers are to go.
    pub(super) fn replaced(&self) -> Vec<Box<dyn Instance>> {
        self.replaced.iter().flat_map(|f| IpFamily::ALL.map(|family| f.instance(family))).collect()
    }

    /// The kind of the source, in a word.
    pub(super) fn source_kind(&self) -> &'static str {
        match self.config.source {
            Some(SourceConfig::Manifests(_)) => "manifests",
            _ => "kubernetes",
        }
    }

    /// The backend's name.
    pub(super) fn backend(&self) -> &'static str {
        registry::BACKENDS.iter().map(|b| b.section.name).find(|n| *n == self.config.mode).unwrap_or_default()
    }

    /// What the backend counts.
    pub(super) fn figures(&self) -> Figures {
        let entry = registry::BACKENDS.iter().find(|b| b.section.name == self.config.mode);
        entry.map(|e| e.figures).unwrap_or_default()
    }

    pub(super) fn node_name(&self) -> anyhow::Result<NodeName> {
        let host = proxier_sys::sysctl::Sysctl::new().read("kernel/hostname").unwrap_or_default();
        self.config.node_name(&host).context("no node name: give --node or hostnameOverride")
    }

    pub(super) fn world(&self) -> anyhow::Result<World> {
        let Settings { traffic, node, .. } = self.settings();
        Ok(World::new(self.node_name()?, traffic, node))
    }

    /// What of the configuration may change while the loop runs.
    pub(super) fn settings(&self) -> Settings {
        let mut traffic = self.config.traffic_options();
        self.factory.adjust(&mut traffic);
        let Periods { sync, min_sync, verify, .. } = self.config.periods;
        let policy =
            Policy { min_interval: min_sync, retry_max: sync, verify_interval: verify, ..Policy::default() };
        Settings { traffic, node: self.config.node_overrides(), policy }
    }

    /// The source that was named; in a pod with a service account, the API server if none was. With `once` it ends when everything
    /// there is has been delivered.
    pub(super) fn source(&self, once: bool) -> anyhow::Result<Box<dyn Source>> {
        self.counted_source(once, Arc::default())
    }

    /// The same, and its requests are counted there.
    pub(super) fn counted_source(
        &self,
        once: bool,
        requests: Arc<ClientMetrics>,
    ) -> anyhow::Result<Box<dyn Source>> {
        if let Some(SourceConfig::Manifests(manifests)) = &self.config.source {
            let source = Manifests::new(&manifests.path).poll(manifests.poll);
            return Ok(Box::new(if once { source.once() } else { source }));
        }
        let access = self.access()?.context(NO_SOURCE)?;
        let overrides = self.config.node_overrides();
        let needs = NodeNeeds {
            addresses: overrides.ips.ipv4.is_none() && overrides.ips.ipv6.is_none(),
            pod_cidrs: self.config.detect_local == DetectLocal::NodeCidr && overrides.pod_cidrs.is_empty(),
        };
        let source =
            Kubernetes::new(access, self.node_name()?).needs(needs).rate(self.rate()).counted(requests);
        Ok(Box::new(if once { source.once() } else { source }))
    }

    /// The way to the API server; `None` when there is none.
    pub(super) fn access(&self) -> anyhow::Result<Option<Access>> {
        Ok(match &self.config.source {
            Some(SourceConfig::Manifests(_)) => None,
            Some(SourceConfig::Kubernetes(KubernetesConfig { kubeconfig: Some(path), server })) => {
                Some(Access::Kubeconfig { path: path.clone(), server: server.clone() })
            }
            Some(SourceConfig::Kubernetes(KubernetesConfig { kubeconfig: None, server })) => {
                Some(Access::server(server.as_deref().unwrap_or_default()))
            }
            None => Access::pod(),
        })
    }

    /// How often the API server may be asked.
    #[expect(clippy::cast_possible_truncation, reason = "client-go's own type; a rate needs no more digits")]
    pub(super) fn rate(&self) -> Rate {
        Rate { qps: self.config.client.qps as f32, burst: self.config.client.burst }
    }

    /// Everything the source has, once.
    pub(super) fn read_all(&self, world: &mut World) -> anyhow::Result<Commit> {
        let source = self.source(true)?;
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

/// The backend with its section; one whose section has faults is there without them, so that what it left can still be removed in a
/// mode that does not use it.
fn configured(backend: &Entry, draft: &mut Draft<'_>) -> Option<Box<dyn Factory>> {
    let name = backend.section.name;
    let mut section = draft.section(name);
    for _ in 0..2 {
        match backend.configure(Some(&section)) {
            Ok(factory) => {
                draft.list(name, factory.settings());
                return Some(factory);
            }
            Err(faults) => {
                for fault in faults {
                    section.remove(&fault.key);
                    draft.refuse(name, &fault.key, fault.message);
                }
            }
        }
    }
    None
}
