//! What every subcommand starts from.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use proxier_core::cluster::{Commit, DetectLocal};
use proxier_core::driver::Instance;
use proxier_core::ids::{IpFamily, NodeName};

use crate::cli::{BaseFlags, ConfigFlags};
use crate::config::{Config, Draft, FlagValue, KubernetesConfig, SourceConfig};
use crate::metrics::{ClientMetrics, Figures};
use crate::registry::{self, Factory};
use crate::source::kubernetes::{Access, Kubernetes, NodeNeeds};
use crate::source::manifests::Manifests;
use crate::source::{self, EventSink, Source, StopSignal};
use crate::telemetry;
use crate::world::World;

const NO_SOURCE: &str = "no source: give --kubeconfig FILE, --master URL or --manifests DIR, or a source in the file; \
                         this is no pod with a service account either";

/// Configuration, checked to the end, and the backend that it names.
pub(super) struct Setup {
    pub(super) config: Config,
    factory: Box<dyn Factory>,
    replaced: Vec<Box<dyn Factory>>,
}

impl Setup {
    pub(super) fn from_flags(flags: &ConfigFlags) -> anyhow::Result<Self> {
        Self::load(flags.base.config.as_deref(), &flags.settings())
    }

    pub(super) fn from_base(flags: &BaseFlags) -> anyhow::Result<Self> {
        Self::load(flags.config.as_deref(), &flags.settings())
    }

    fn load(file: Option<&Path>, settings: &[FlagValue]) -> anyhow::Result<Self> {
        let sections = registry::sections();
        let mut draft = Draft::load(file, settings, &sections)?;
        let mut factories = Vec::new();
        for backend in registry::BACKENDS {
            let name = backend.section.name;
            match backend.configure(draft.section(name)) {
                Ok(factory) => {
                    draft.list(name, factory.settings());
                    factories.push((name, factory));
                }
                Err(faults) => {
                    for fault in faults {
                        draft.refuse(name, &fault.key, fault.message);
                    }
                }
            }
        }
        let config = draft.finish()?;
        let not_there = || format!("backend {} is not built in", config.mode);
        let entry =
            registry::BACKENDS.iter().find(|b| b.section.name == config.mode).with_context(not_there)?;
        let at = factories.iter().position(|(name, _)| *name == config.mode).with_context(not_there)?;
        let (_, factory) = factories.swap_remove(at);
        let replaced = factories.into_iter().filter(|(name, _)| entry.replaces.contains(name));
        let replaced = replaced.map(|(_, factory)| factory).collect();
        Ok(Self { config, factory, replaced })
    }

    pub(super) fn log(&self) -> anyhow::Result<()> {
        Ok(telemetry::init(self.config.logging.format, &self.config.logging.level)?)
    }

    pub(super) fn instances(&self) -> Vec<Box<dyn Instance>> {
        IpFamily::ALL.into_iter().map(|family| self.factory.instance(family)).collect()
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

    /// What the backend counts.
    pub(super) fn figures(&self) -> Figures {
        let entry = registry::BACKENDS.iter().find(|b| b.section.name == self.config.mode);
        entry.map(|e| e.figures).unwrap_or_default()
    }

    fn node_name(&self) -> anyhow::Result<NodeName> {
        let host = proxier_sys::sysctl::Sysctl::new().read("kernel/hostname").unwrap_or_default();
        self.config.node_name(&host).context("no node name: give --node or hostnameOverride")
    }

    pub(super) fn world(&self) -> anyhow::Result<World> {
        let mut traffic = self.config.traffic_options();
        self.factory.adjust(&mut traffic);
        Ok(World::new(self.node_name()?, traffic, self.config.node.clone()))
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
        let access = match &self.config.source {
            Some(SourceConfig::Manifests(manifests)) => {
                let source = Manifests::new(&manifests.path).poll(manifests.poll);
                return Ok(Box::new(if once { source.once() } else { source }));
            }
            Some(SourceConfig::Kubernetes(KubernetesConfig { kubeconfig: Some(path), server })) => {
                Access::Kubeconfig { path: path.clone(), server: server.clone() }
            }
            Some(SourceConfig::Kubernetes(KubernetesConfig { kubeconfig: None, server })) => {
                Access::server(server.as_deref().unwrap_or_default())
            }
            None => Access::pod().context(NO_SOURCE)?,
        };
        let overrides = &self.config.node;
        let needs = NodeNeeds {
            addresses: overrides.ips.ipv4.is_none() && overrides.ips.ipv6.is_none(),
            pod_cidrs: self.config.detect_local == DetectLocal::NodeCidr && overrides.pod_cidrs.is_empty(),
        };
        let source = Kubernetes::new(access, self.node_name()?).needs(needs).counted(requests);
        Ok(Box::new(if once { source.once() } else { source }))
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
