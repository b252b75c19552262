//! From a source's events to the core's cluster: every object goes through intake, and what is wrong with it is told once.

mod problems;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use proxier_core::cluster::{Cluster, Commit, TrafficOptions};
use proxier_core::ids::{NodeName, ServiceName};
use proxier_core::intake;
use proxier_core::ip::parse_cidr;
use proxier_core::model::{NodeFacts, SliceName};

pub use self::problems::Problems;
use crate::config::NodeOverrides;
use crate::source::{Object, ObjectKey, ObjectKind, SourceEvent};

/// The interface that IPVS mode, kube-proxy's or ours, gives the addresses of services: it makes them addresses of the host to the kernel, not to
/// Kubernetes (ipvs spec 2.4 and 11, number 21). It may stay behind when the mode is left.
pub const SERVICES_INTERFACE: &str = "kube-ipvs0";

/// Everything that the sources said, as the core sees it.
#[derive(Debug)]
pub struct World {
    cluster: Cluster,
    /// What was configured; ranges for cluster IPs are added to it.
    options: TrafficOptions,
    /// Ranges by the ServiceCIDR that names them. Two may name the same.
    service_cidrs: BTreeMap<Arc<str>, Vec<IpNet>>,
    overrides: NodeOverrides,
    name: NodeName,
    /// The Node object's facts; defaults while there is none.
    node: NodeFacts,
    node_seen: bool,
    host_addresses: Vec<std::net::IpAddr>,
    synced: bool,
    told: Problems,
}

impl World {
    /// An empty world around a node.
    #[must_use]
    pub fn new(name: NodeName, options: TrafficOptions, overrides: NodeOverrides) -> Self {
        let mut world = Self {
            cluster: Cluster::new(name.clone(), options.clone()),
            options,
            service_cidrs: BTreeMap::new(),
            overrides,
            name,
            node: NodeFacts::default(),
            node_seen: false,
            host_addresses: Vec::new(),
            synced: false,
            told: Problems::default(),
        };
        world.refresh_node();
        world
    }

    /// The first complete list was delivered.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The Node object of this node was seen.
    #[must_use]
    pub fn node_seen(&self) -> bool {
        self.node_seen
    }

    /// This node's name.
    #[must_use]
    pub fn node_name(&self) -> &NodeName {
        &self.name
    }

    /// The facts that decisions are made with.
    #[must_use]
    pub fn node(&self) -> &NodeFacts {
        self.cluster.node()
    }

    /// Number of Services and of EndpointSlices.
    #[must_use]
    pub fn objects(&self) -> (usize, usize) {
        self.cluster.objects()
    }

    /// Takes over the addresses of this host, each with the name of its interface. Those of [`SERVICES_INTERFACE`] are none of the host's.
    pub fn set_host_addresses(&mut self, addresses: impl IntoIterator<Item = (String, std::net::IpAddr)>) {
        let own = addresses.into_iter().filter(|(interface, _)| interface != SERVICES_INTERFACE);
        let addresses: BTreeSet<_> = own.map(|(_, ip)| ip).collect();
        let addresses: Vec<_> = addresses.into_iter().collect();
        if addresses != self.host_addresses {
            self.host_addresses = addresses;
            self.refresh_node();
        }
    }

    /// Takes over other settings. What is the same in them changes nothing.
    pub fn configure(&mut self, options: TrafficOptions, overrides: NodeOverrides) {
        self.options = options;
        self.overrides = overrides;
        self.refresh_service_cidrs();
        self.refresh_node();
    }

    /// Takes over a batch of events.
    pub fn apply(&mut self, events: Vec<SourceEvent>) {
        for event in events {
            match event {
                SourceEvent::Upsert(Object::Service(object)) => self.service(&object),
                SourceEvent::Upsert(Object::EndpointSlice(object)) => self.slice(&object),
                SourceEvent::Upsert(Object::Node(object)) => self.node_object(&object),
                SourceEvent::Upsert(Object::ServiceCidr(object)) => self.service_cidr(&object),
                SourceEvent::Delete { key, service } => self.delete(&key, service),
                SourceEvent::Synced => self.synced = true,
                SourceEvent::Problems { origin, problems } => {
                    let problems: Vec<String> = problems.iter().map(|p| format!("{origin}: {p}")).collect();
                    self.tell(|| origin.to_string(), &problems);
                }
            }
        }
    }

    /// Publishes what changed.
    pub fn commit(&mut self) -> Commit {
        self.cluster.commit()
    }

    /// Would a commit look at anything?
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.cluster.has_pending()
    }

    /// What is wrong with objects and files now. A clone goes on to show it, on any thread.
    #[must_use]
    pub fn problems(&self) -> &Problems {
        &self.told
    }

    fn service(&mut self, object: &k8s_openapi::api::core::v1::Service) {
        let intake = intake::service(object);
        let Some(name) = intake::service_name(object) else {
            self.tell(|| "service without a name".to_owned(), &lines(&intake.problems));
            return;
        };
        self.tell(|| format!("service {name}"), &lines(&intake.problems));
        if let Some(ignored) = intake.ignored {
            tracing::debug!(service = %name, reason = %ignored, "service ignored");
        }
        match intake.accepted {
            Some(service) => self.cluster.upsert_service(service),
            None => self.cluster.remove_service(&name),
        };
    }

    fn slice(&mut self, object: &k8s_openapi::api::discovery::v1::EndpointSlice) {
        let intake = intake::endpoint_slice(object);
        let Some(name) = intake::slice_name(object) else {
            self.tell(|| "slice without a name".to_owned(), &lines(&intake.problems));
            return;
        };
        self.tell(|| format!("slice {}/{}", name.service.namespace, name.name), &lines(&intake.problems));
        if let Some(ignored) = intake.ignored {
            tracing::debug!(slice = %name.name, reason = %ignored, "endpoint slice ignored");
        }
        match intake.accepted {
            Some(slice) => self.cluster.upsert_slice(slice),
            None => self.cluster.remove_slice(&name),
        };
    }

    fn node_object(&mut self, object: &k8s_openapi::api::core::v1::Node) {
        let intake = intake::node(object);
        let Some(facts) = intake.accepted else { return };
        if facts.name != self.name {
            return;
        }
        let name = self.name.clone();
        self.tell(|| format!("node {name}"), &lines(&intake.problems));
        self.node = facts;
        self.node_seen = true;
        self.refresh_node();
    }

    fn service_cidr(&mut self, object: &ServiceCIDR) {
        let Some(name) = object.metadata.name.as_deref() else { return };
        let (mut ranges, mut problems) = (Vec::new(), Vec::new());
        for (i, text) in object.spec.iter().filter_map(|s| s.cidrs.as_ref()).flatten().enumerate() {
            match parse_cidr(text) {
                Ok(range) => ranges.push(range),
                Err(error) => {
                    problems.push(format!("ServiceCIDR {name}: spec.cidrs[{i}]: {text:?} {error}"));
                }
            }
        }
        self.tell(|| format!("service cidr {name}"), &problems);
        self.service_cidrs.insert(name.into(), ranges);
        self.refresh_service_cidrs();
    }

    /// A range is gone when no ServiceCIDR names it any more (core spec 1.9).
    fn refresh_service_cidrs(&mut self) {
        let named: BTreeSet<IpNet> = self.service_cidrs.values().flatten().copied().collect();
        let mut all = self.options.service_cidrs.clone();
        all.extend(named.into_iter().filter(|range| !self.options.service_cidrs.contains(range)));
        self.cluster.set_options(TrafficOptions { service_cidrs: all, ..self.options.clone() });
    }

    fn delete(&mut self, key: &ObjectKey, service: Option<Arc<str>>) {
        match key.kind {
            ObjectKind::Service => {
                let name = ServiceName { namespace: Arc::clone(&key.namespace), name: Arc::clone(&key.name) };
                self.tell(|| format!("service {name}"), &[]);
                self.cluster.remove_service(&name);
            }
            ObjectKind::EndpointSlice => {
                self.tell(|| format!("slice {}/{}", key.namespace, key.name), &[]);
                let Some(service) = service else { return };
                let service = ServiceName { namespace: Arc::clone(&key.namespace), name: service };
                self.cluster.remove_slice(&SliceName { service, name: Arc::clone(&key.name) });
            }
            // The last object seen stays in use (core spec 10.4).
            ObjectKind::Node if NodeName::new(&key.name) == self.name => {
                tracing::warn!(node = %self.name, "node object deleted; its last state stays in use");
            }
            ObjectKind::Node => {}
            ObjectKind::ServiceCidr => {
                self.tell(|| format!("service cidr {}", key.name), &[]);
                self.service_cidrs.remove(&key.name);
                self.refresh_service_cidrs();
            }
        }
    }

    fn refresh_node(&mut self) {
        let mut facts = self.node.clone();
        self.overrides.apply(&mut facts);
        facts.host_addresses.clone_from(&self.host_addresses);
        self.cluster.set_node(facts);
    }

    /// Logs problems that were not there before under this heading, and says when they are over.
    fn tell(&mut self, about: impl FnOnce() -> String, problems: &[String]) {
        if problems.is_empty() && self.told.is_empty() {
            return;
        }
        let about = about();
        let before = self.told.replace(&about, problems.to_vec());
        for problem in problems.iter().filter(|p| !before.contains(p)) {
            tracing::warn!(problem = %problem, "input problem");
        }
        if problems.is_empty() && !before.is_empty() {
            tracing::info!(about = %about, "input problem solved");
        }
    }
}

fn lines(problems: &[intake::Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
