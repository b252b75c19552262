//! The function itself, in the order of a packet's walk (nftables spec 5): source ranges, frontend, scope,
//! masquerade; then what catches packets to cluster IPs that are no frontend.
//!
//! Written from what traffic must experience (core spec 3.5 and 9, iptables spec 5.14), not from any backend's rules.

use std::net::IpAddr;

use super::{Choice, Decision, Entry, Exclusion, MasqueradeReason, Origin, Outcome, Packet, Reason};
use crate::ids::{IpFamily, Port, Protocol};
use crate::model::{Endpoint, TrafficPolicy};
use crate::snapshot::{
    Frontend, FrontendKey, FrontendKind, LocalDetector, NodeContext, NodePortAddresses, ServicePort,
    ServiceSpec, Snapshot,
};

/// What must happen to a packet: pure and total. A packet of another family than the snapshot's is not ours.
///
/// Node ports answer on loopback addresses only where the context says so, and only what this host sends.
#[must_use]
pub fn decide(snapshot: &Snapshot, packet: &Packet) -> Decision {
    let context = snapshot.context().as_ref();
    let walk = Walk { snapshot, context, packet, origin: origin(context, packet) };
    if IpFamily::of(packet.destination) != snapshot.family() {
        return walk.plain(Outcome::NotOurs, Reason::NoFrontend);
    }
    match walk.frontend() {
        Some((port, frontend)) => walk.to_frontend(port, frontend),
        None => walk.elsewhere(),
    }
}

/// A pod first, this host second: a source that is both is treated as a pod (iptables spec 5.11).
fn origin(context: &NodeContext, packet: &Packet) -> Origin {
    if context.detector.as_ref().is_some_and(|d| detects(d, packet)) {
        Origin::Pod
    } else if is_local(context, packet.source) {
        Origin::Host
    } else {
        Origin::Outside
    }
}

/// What this host sends arrives on no interface.
fn detects(detector: &LocalDetector, packet: &Packet) -> bool {
    match (detector, &packet.entry) {
        (LocalDetector::Cidr(cidr), _) => cidr.contains(&packet.source),
        (LocalDetector::Interface(name), Entry::Interface(entry)) => entry == name,
        (LocalDetector::InterfacePrefix(prefix), Entry::Interface(entry)) => entry.starts_with(&**prefix),
        (LocalDetector::Interface(_) | LocalDetector::InterfacePrefix(_), Entry::Host) => false,
    }
}

/// Delivered to this host: the kernel's address type "local".
fn is_local(context: &NodeContext, ip: IpAddr) -> bool {
    ip.is_loopback() || context.node.host_addresses.contains(&ip)
}

/// One packet's way through one snapshot.
struct Walk<'a> {
    snapshot: &'a Snapshot,
    context: &'a NodeContext,
    packet: &'a Packet,
    origin: Origin,
}

impl<'a> Walk<'a> {
    /// A decision about a packet that belongs to no service.
    fn plain(&self, outcome: Outcome, reason: Reason) -> Decision {
        Decision {
            outcome,
            reason,
            frontend: None,
            origin: self.origin,
            policy: None,
            scope: None,
            masquerade: Vec::new(),
            affinity: None,
            excluded: Vec::new(),
            health_check: None,
        }
    }

    /// Addresses of services come before node ports (nftables spec 12, number 30).
    fn frontend(&self) -> Option<(&'a ServicePort, Frontend)> {
        let protocol = self.packet.protocol?;
        let port = Port::new(self.packet.port)?;
        let ip = self.packet.destination;
        let owner = |key| {
            let (port, kind) = self.snapshot.owner(&key)?;
            Some((port.as_ref(), Frontend { kind, key }))
        };
        owner(FrontendKey::Address { ip, protocol, port }).or_else(|| {
            let answers = answers_node_ports(self.context, ip, &self.packet.entry);
            answers.then(|| owner(FrontendKey::NodePort { protocol, port })).flatten()
        })
    }

    fn to_frontend(&self, port: &ServicePort, frontend: Frontend) -> Decision {
        let policy = match frontend.kind {
            FrontendKind::ClusterIp => port.spec.internal_policy,
            _ => port.spec.external_policy,
        };
        let mut out = self.plain(Outcome::Reject, Reason::NoEndpoints);
        out.frontend = Some((frontend, port.name.clone()));
        out.policy = Some(policy);
        if frontend.kind == FrontendKind::LoadBalancerVip && !self.source_allowed(&port.spec) {
            (out.outcome, out.reason) = (Outcome::Drop, Reason::SourceNotInRanges);
            return out;
        }
        let (scope, masquerade) = match frontend.kind {
            FrontendKind::ClusterIp => (policy, self.cluster_ip_masquerade()),
            _ => self.external_route(policy),
        };
        let chosen = chosen(port, scope);
        out.excluded = excluded(port, scope);
        if !port.categories.has_any {
            return out;
        }
        out.scope = Some(scope);
        let endpoints = chosen.iter().filter_map(|i| port.endpoints.get(*i as usize));
        let choices = self.choices(endpoints, masquerade.is_some());
        if choices.is_empty() {
            // With endpoints somewhere the Cluster scope cannot be empty: whatever is reachable through it, a
            // frontend outside the cluster or a cluster IP of that policy, makes it one that is computed (core spec 1.5).
            (out.outcome, out.reason) = match scope {
                TrafficPolicy::Local => (Outcome::Drop, Reason::NoLocalEndpoints),
                TrafficPolicy::Cluster => (Outcome::Reject, Reason::NoEndpoints),
            };
            return out;
        }
        let hairpin = masquerade.is_none() && choices.iter().any(|c| c.masquerade);
        out.masquerade = masquerade.into_iter().chain(hairpin.then_some(MasqueradeReason::Hairpin)).collect();
        out.affinity = port.spec.affinity;
        (out.outcome, out.reason) = (Outcome::Endpoints(choices), Reason::Balanced);
        out
    }

    /// Where a load balancer VIP is restricted, this node may still reach it with the VIP as its own source, if the
    /// node itself is allowed (core spec 9.2).
    fn source_allowed(&self, spec: &ServiceSpec) -> bool {
        let ranges = &spec.source_ranges;
        let source = self.packet.source;
        if ranges.is_empty() || ranges.iter().any(|r| r.contains(&source)) {
            return true;
        }
        let own = self.context.node.ips.get(self.snapshot.family());
        spec.load_balancer_vips.contains(&source)
            && own.is_some_and(|own| ranges.iter().any(|r| r.contains(&own)))
    }

    /// Only the detector counts here: this host is a stranger, unless its source is in the detector's range (core
    /// spec 9.2).
    fn cluster_ip_masquerade(&self) -> Option<MasqueradeReason> {
        if self.context.masquerade_all {
            return Some(MasqueradeReason::All);
        }
        let detector = self.context.detector.as_ref()?;
        (self.origin != Origin::Pod).then(|| MasqueradeReason::NotFromPod(detector.clone()))
    }

    /// Scope and masquerade for an external frontend: with policy Local, what starts here is short-circuited to the
    /// whole cluster (core spec 9.3).
    fn external_route(&self, policy: TrafficPolicy) -> (TrafficPolicy, Option<MasqueradeReason>) {
        match (policy, self.origin) {
            (TrafficPolicy::Cluster, _) => {
                (TrafficPolicy::Cluster, Some(MasqueradeReason::ExternalPolicyCluster))
            }
            (TrafficPolicy::Local, Origin::Pod) => (TrafficPolicy::Cluster, None),
            (TrafficPolicy::Local, Origin::Host) => {
                (TrafficPolicy::Cluster, Some(MasqueradeReason::FromHost))
            }
            (TrafficPolicy::Local, Origin::Outside) => (TrafficPolicy::Local, None),
        }
    }

    /// Equal shares. An endpoint of this node that reaches itself must not see its own address as the source; one
    /// of another node cannot be its own client here.
    fn choices<'e>(&self, endpoints: impl Iterator<Item = &'e Endpoint>, masquerade: bool) -> Vec<Choice> {
        let mut out: Vec<Choice> = endpoints
            .map(|e| Choice {
                endpoint: e.addr,
                weight: 1,
                masquerade: masquerade || (e.local && e.addr.ip == self.packet.source),
            })
            .collect();
        out.sort_unstable();
        out
    }

    /// No frontend: packets to cluster IPs must still not leave the node. What arrives for an address of this host is
    /// not forwarded, so nothing checks it; what this host sends is always checked (nftables spec 2.2).
    fn elsewhere(&self) -> Decision {
        let destination = self.packet.destination;
        let local = is_local(self.context, destination);
        if self.packet.entry == Entry::Host || !local {
            if self.snapshot.is_cluster_ip(destination) {
                return self.plain(Outcome::Reject, Reason::UnknownPortOfClusterIp);
            }
            if self.context.service_cidrs.iter().any(|c| c.contains(&destination)) {
                return self.plain(Outcome::Drop, Reason::UnallocatedClusterIp);
            }
        }
        let mut out = self.plain(Outcome::NotOurs, Reason::NoFrontend);
        if local && self.packet.protocol == Some(Protocol::Tcp) {
            out.health_check = self.health_check();
        }
        out
    }

    /// Looks at every service port, which only packets to this host's own addresses without a frontend cost.
    fn health_check(&self) -> Option<Port> {
        let number = Port::new(self.packet.port)?;
        self.snapshot.ports().find_map(|p| p.spec.health_check_node_port.filter(|h| *h == number))
    }
}

/// Core spec 9.4; iptables spec 5.9 for loopback, which nothing that arrives from elsewhere has as its destination.
fn answers_node_ports(context: &NodeContext, ip: IpAddr, entry: &Entry) -> bool {
    if ip.is_loopback() && !(context.node_ports_on_loopback && *entry == Entry::Host) {
        return false;
    }
    match &context.node_port_addresses {
        NodePortAddresses::MatchAll => is_local(context, ip),
        NodePortAddresses::Only(list) => list.contains(&ip),
    }
}

fn chosen(port: &ServicePort, scope: TrafficPolicy) -> &[u32] {
    match scope {
        TrafficPolicy::Cluster => &port.categories.cluster,
        TrafficPolicy::Local => &port.categories.local,
    }
}

/// The endpoints of a service port that traffic of this scope does not reach, each with the filter that excluded it.
#[must_use]
pub fn excluded(port: &ServicePort, scope: TrafficPolicy) -> Vec<(crate::ids::EndpointAddr, Exclusion)> {
    let chosen = chosen(port, scope);
    (0u32..)
        .zip(port.endpoints.iter())
        .filter(|(i, _)| chosen.binary_search(i).is_err())
        .map(|(_, e)| (e.addr, exclusion(e, scope, port)))
        .collect()
}

/// The first filter that an endpoint outside the choices did not pass (core spec 3.1).
fn exclusion(endpoint: &Endpoint, scope: TrafficPolicy, port: &ServicePort) -> Exclusion {
    let conditions = endpoint.conditions;
    if !conditions.ready && !conditions.is_fallback() {
        Exclusion::NotReady
    } else if scope == TrafficPolicy::Local && !endpoint.local {
        Exclusion::NotOnThisNode
    } else if !conditions.ready {
        Exclusion::TerminatingWithReadyOthers
    } else {
        Exclusion::Topology(port.categories.topology)
    }
}
