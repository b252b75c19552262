//! The owner of all state: objects go in, snapshots come out.
//!
//! [`Cluster`] takes Services, EndpointSlices and the Node as they change, in any order, and publishes one [`Snapshot`] per
//! IP family at each [`Cluster::commit`]. Changes between two commits collapse; the cost of a commit is that of the services it touches.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::ids::{IpFamily, NodeName, ServiceName, Timestamp};
use crate::intern::Texts;
use crate::model::{EndpointSlice, NodeFacts, PerFamily, Service, SliceName};
use crate::snapshot::{LocalDetector, NodeContext, NodePortAddresses, Snapshot};
use crate::track::Tracker;

/// How local traffic is to be recognised: `detectLocalMode` and what belongs to it (core spec 9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    /// Source in the cluster's pod range: the first of each family counts.
    ClusterCidr(Vec<IpNet>),
    /// Source in the node's own pod range.
    NodeCidr,
    /// Arrives on this bridge.
    BridgeInterface(Arc<str>),
    /// Arrives on an interface whose name begins so.
    InterfaceNamePrefix(Arc<str>),
}

/// `nodePortAddresses` (core spec 9.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortSelector {
    /// The node's own address of each family.
    Primary,
    /// Local addresses in these ranges; a family without a range matches all.
    Cidrs(Vec<IpNet>),
}

/// What the configuration contributes to decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficOptions {
    /// Local traffic detection.
    pub detect_local: DetectLocal,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Addresses that node ports answer on.
    pub node_port_addresses: NodePortSelector,
    /// Node ports answer on IPv4 loopback as well, where the node port addresses contain it (iptables spec 5.9). A backend that can do it
    /// says so; it is off otherwise.
    pub localhost_node_ports: bool,
    /// Ranges that cluster IPs are allocated from.
    pub service_cidrs: Vec<IpNet>,
    /// Serve external IPs (gate `AllowServiceExternalIPs`).
    pub external_ips: bool,
    /// Obey node hints (gate `PreferSameTrafficDistribution`).
    pub node_hints: bool,
    /// Services that the node needs before all others: they are written first when the kernel is empty.
    pub first_services: Arc<[ServiceName]>,
}

impl Default for TrafficOptions {
    fn default() -> Self {
        Self {
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            masquerade_all: false,
            node_port_addresses: NodePortSelector::Cidrs(Vec::new()),
            localhost_node_ports: false,
            service_cidrs: Vec::new(),
            external_ips: true,
            node_hints: true,
            first_services: Arc::new([]),
        }
    }
}

/// What one commit published.
#[derive(Clone, Debug)]
pub struct Commit {
    snapshots: PerFamily<Snapshot>,
    /// Did this family's snapshot change?
    pub changed: PerFamily<bool>,
    /// Trigger times of the endpoint changes in it, for the network programming latency (core spec 2.6).
    pub triggers: PerFamily<Vec<Timestamp>>,
}

impl Commit {
    /// The newest snapshot of a family.
    #[must_use]
    pub fn snapshot(&self, family: IpFamily) -> &Snapshot {
        self.snapshots.get(family)
    }
}

/// Everything the core knows.
#[derive(Clone, Debug)]
pub struct Cluster {
    options: TrafficOptions,
    node: NodeFacts,
    services: BTreeMap<ServiceName, Arc<Service>>,
    trackers: PerFamily<Tracker>,
    texts: Texts,
}

impl Cluster {
    /// An empty cluster, seen from the node of this name.
    #[must_use]
    pub fn new(name: NodeName, options: TrafficOptions) -> Self {
        let node = NodeFacts { name, ..NodeFacts::default() };
        let tracker = |family| Tracker::new(family, Arc::new(resolve(&options, &node, family)), &options);
        let trackers = PerFamily { ipv4: tracker(IpFamily::Ipv4), ipv6: tracker(IpFamily::Ipv6) };
        Self { options, node, services: BTreeMap::new(), trackers, texts: Texts::default() }
    }

    /// The node as last set.
    #[must_use]
    pub fn node(&self) -> &NodeFacts {
        &self.node
    }

    /// Adds or replaces a Service. Returns whether anything is pending (core spec 2.7).
    pub fn upsert_service(&mut self, mut service: Service) -> bool {
        self.texts.service(&mut service);
        let name = service.name.clone();
        let unchanged = self.services.get(&name).is_some_and(|old| **old == service);
        if !unchanged {
            self.services.insert(name.clone(), Arc::new(service));
            self.each(|t| t.touch(&name));
        }
        self.has_pending()
    }

    /// Removes a Service; unknown ones are ignored. Returns whether anything is pending.
    pub fn remove_service(&mut self, name: &ServiceName) -> bool {
        if self.services.remove(name).is_some() {
            self.each(|t| t.touch(name));
        }
        self.has_pending()
    }

    /// Adds or replaces an EndpointSlice. A slice whose address type changed leaves the other family. Returns whether anything is pending.
    pub fn upsert_slice(&mut self, mut slice: EndpointSlice) -> bool {
        self.texts.slice(&mut slice);
        let family = slice.family;
        for other in IpFamily::ALL.into_iter().filter(|f| *f != family) {
            self.trackers.get_mut(other).remove_slice(&slice.name);
        }
        self.trackers.get_mut(family).upsert_slice(slice);
        self.has_pending()
    }

    /// Removes an EndpointSlice from both families; unknown ones are ignored. Returns whether anything is pending.
    pub fn remove_slice(&mut self, name: &SliceName) -> bool {
        self.each(|t| t.remove_slice(name));
        self.has_pending()
    }

    /// Takes over the node's facts. Its name stays what [`Cluster::new`] was given.
    pub fn set_node(&mut self, node: NodeFacts) -> bool {
        self.node = NodeFacts { name: self.node.name.clone(), ..node };
        self.refresh_context();
        self.has_pending()
    }

    /// Takes over other options.
    pub fn set_options(&mut self, options: TrafficOptions) -> bool {
        self.options = options;
        self.refresh_context();
        self.has_pending()
    }

    /// Would a commit look at anything?
    #[must_use]
    pub fn has_pending(&self) -> bool {
        IpFamily::ALL.iter().any(|f| self.trackers.get(*f).has_pending())
    }

    /// Number of Services and of EndpointSlices that are held.
    #[must_use]
    pub fn objects(&self) -> (usize, usize) {
        let slices = IpFamily::ALL.iter().map(|f| self.trackers.get(*f).slices()).sum();
        (self.services.len(), slices)
    }

    /// Publishes what changed since the last commit.
    pub fn commit(&mut self) -> Commit {
        self.texts.forget_unused(self.objects() == (0, 0));
        let Self { services, trackers, options, .. } = self;
        let mut changed = PerFamily::default();
        let mut triggers = PerFamily::default();
        for family in IpFamily::ALL {
            let done = trackers.get_mut(family).commit(services, options);
            *changed.get_mut(family) = done.changed;
            *triggers.get_mut(family) = done.triggers;
        }
        let snapshot = |f| trackers.get(f).published().clone();
        let snapshots = PerFamily { ipv4: snapshot(IpFamily::Ipv4), ipv6: snapshot(IpFamily::Ipv6) };
        Commit { snapshots, changed, triggers }
    }

    fn refresh_context(&mut self) {
        for family in IpFamily::ALL {
            let context = resolve(&self.options, &self.node, family);
            self.trackers.get_mut(family).set_context(context, &self.options);
        }
    }

    fn each(&mut self, mut f: impl FnMut(&mut Tracker)) {
        f(&mut self.trackers.ipv4);
        f(&mut self.trackers.ipv6);
    }
}

/// What node and options mean in one family.
#[must_use]
pub fn resolve(options: &TrafficOptions, node: &NodeFacts, family: IpFamily) -> NodeContext {
    let ranges = node_port_ranges(&options.node_port_addresses, node, family);
    let loopback = family == IpFamily::Ipv4 && options.localhost_node_ports && contain_loopback(&ranges);
    NodeContext {
        node: node.clone(),
        detector: detector(&options.detect_local, node, family),
        masquerade_all: options.masquerade_all,
        node_port_addresses: node_ports(&ranges, node, family, loopback),
        health_check_addresses: node_ports(&ranges, node, family, true),
        node_ports_on_loopback: loopback,
        service_cidrs: options.service_cidrs.iter().filter(|c| of(c, family)).copied().collect(),
        first_services: Arc::clone(&options.first_services),
    }
}

fn of(cidr: &IpNet, family: IpFamily) -> bool {
    IpFamily::of(cidr.addr()) == family
}

fn detector(mode: &DetectLocal, node: &NodeFacts, family: IpFamily) -> Option<LocalDetector> {
    let first =
        |cidrs: &[IpNet]| cidrs.iter().find(|c| of(c, family)).map(|c| LocalDetector::Cidr(c.trunc()));
    match mode {
        DetectLocal::ClusterCidr(cidrs) => first(cidrs),
        DetectLocal::NodeCidr => first(&node.pod_cidrs),
        DetectLocal::BridgeInterface(name) => Some(LocalDetector::Interface(Arc::clone(name))),
        DetectLocal::InterfaceNamePrefix(prefix) => Some(LocalDetector::InterfacePrefix(Arc::clone(prefix))),
    }
}

/// The family's own ranges; none match all (core spec 9.4).
fn node_port_ranges(selector: &NodePortSelector, node: &NodeFacts, family: IpFamily) -> Vec<IpNet> {
    match selector {
        NodePortSelector::Primary => own_address(node, family).map(IpNet::from).into_iter().collect(),
        NodePortSelector::Cidrs(cidrs) => cidrs.iter().filter(|c| of(c, family)).copied().collect(),
    }
}

fn own_address(node: &NodeFacts, family: IpFamily) -> Option<IpAddr> {
    node.ips.get(family).filter(|ip: &IpAddr| !ip.is_loopback())
}

fn match_all(ranges: &[IpNet]) -> bool {
    ranges.is_empty() || ranges.iter().any(|c| c.prefix_len() == 0)
}

/// No range at all, one within `127.0.0.0/8`, or one that contains its first address (iptables spec 5.9).
fn contain_loopback(ranges: &[IpNet]) -> bool {
    let first = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
    match_all(ranges) || ranges.iter().any(|c| c.network().is_loopback() || c.contains(&first))
}

/// A family without a range matches all, as does a range of length 0; else the host's addresses in the ranges, loopback left out unless
/// node ports answer there.
fn node_ports(ranges: &[IpNet], node: &NodeFacts, family: IpFamily, loopback: bool) -> NodePortAddresses {
    if match_all(ranges) {
        return NodePortAddresses::MatchAll;
    }
    let own = own_address(node, family);
    let mut found: Vec<IpAddr> = node
        .host_addresses
        .iter()
        .chain(own.iter())
        .filter(|ip| (loopback || !ip.is_loopback()) && ranges.iter().any(|c| c.contains(*ip)))
        .copied()
        .collect();
    found.sort_unstable();
    found.dedup();
    NodePortAddresses::Only(found.into())
}
