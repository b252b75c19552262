//! Where a backend by its nature does otherwise than the oracle says: what it does instead, packet by packet. [`super::variant`] declares
//! these as gaps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proxier_core::ids::{EndpointAddr, IpFamily, Port};
use proxier_core::model::TrafficPolicy;
use proxier_core::oracle::{Choice, Decision, Entry, Origin, Outcome, Packet, Reason, decide};
use proxier_core::snapshot::{FrontendKey, FrontendKind, NodePortAddresses};
use proxier_testkit::walk::normalise;

use super::facts::NodeView;

/// kube-proxy's rules in iptables know only the frontends of services.
pub(super) fn unknown_port(_: &NodeView, _: &Packet, decision: &Decision) -> Option<Outcome> {
    (decision.reason == Reason::UnknownPortOfClusterIp).then_some(Outcome::NotOurs)
}

/// Nor do they know ranges of cluster IPs.
pub(super) fn unallocated(_: &NodeView, _: &Packet, decision: &Decision) -> Option<Outcome> {
    (decision.reason == Reason::UnallocatedClusterIp).then_some(Outcome::NotOurs)
}

/// What `kube-ipvs0` has is refused everything that no service has there, a ping as well, so that the host's own daemons do not answer.
pub(super) fn bound(view: &NodeView, packet: &Packet, decision: &Decision) -> Option<Outcome> {
    let unserved = [Reason::NoFrontend, Reason::UnknownPortOfClusterIp, Reason::UnallocatedClusterIp];
    if !unserved.contains(&decision.reason) {
        return None;
    }
    let snapshot = view.snapshot(IpFamily::of(packet.destination));
    let ip = packet.destination;
    let is_bound = snapshot.ports().flat_map(|p| &p.frontends).any(|f| match f.key {
        FrontendKey::Address { ip: own, .. } => {
            own == ip && (f.kind == FrontendKind::ClusterIp || !view.is_local(ip))
        }
        FrontendKey::NodePort { .. } => false,
    });
    let health = |number: Port| packet.protocol.is_some() && number.get() == packet.port;
    let checks = snapshot.ports().filter_map(|p| p.spec.health_check_node_port).any(health);
    (is_bound && !checks && decision.outcome != Outcome::Reject).then_some(Outcome::Reject)
}

/// A virtual server has one list of real servers for everybody. Where some are on the node, it is these.
pub(super) fn ends_here(view: &NodeView, packet: &Packet, decision: &Decision) -> Option<Outcome> {
    let (Some(TrafficPolicy::Local), Some(TrafficPolicy::Cluster)) = (decision.policy, decision.scope) else {
        return None;
    };
    let (_, name) = decision.frontend.as_ref()?;
    let port = view.snapshot(IpFamily::of(packet.destination)).port(name)?;
    let choice = |endpoint: EndpointAddr| Choice {
        endpoint,
        weight: 1,
        masquerade: decision.origin == Origin::Host || endpoint.ip == packet.source,
    };
    let here: Vec<Choice> = port.local_endpoints().map(|e| choice(e.addr)).collect();
    let here = normalise(Outcome::Endpoints(here));
    let differs = here != normalise(decision.outcome.clone());
    (port.local_endpoints().len() > 0 && differs).then_some(here)
}

/// The chain of source ranges is there only where there are endpoints to guard.
pub(super) fn ranges_without_endpoints(
    view: &NodeView,
    packet: &Packet,
    decision: &Decision,
) -> Option<Outcome> {
    let (_, name) = decision.frontend.as_ref()?;
    let port = view.snapshot(IpFamily::of(packet.destination)).port(name)?;
    let nobody = port.reachable_endpoints().len() == 0;
    let refused = if unseen(view, packet) { Outcome::NotOurs } else { Outcome::Reject };
    (decision.reason == Reason::SourceNotInRanges && nobody).then_some(refused)
}

/// Refusals for external addresses stand where packets come in and are forwarded, not where the host's own leave.
pub(super) fn from_host(view: &NodeView, packet: &Packet, decision: &Decision) -> Option<Outcome> {
    let (frontend, _) = decision.frontend.as_ref()?;
    let external = matches!(frontend.kind, FrontendKind::LoadBalancerVip | FrontendKind::ExternalIp);
    let refused = decision.reason == Reason::NoEndpoints;
    (external && refused && unseen(view, packet)).then_some(Outcome::NotOurs)
}

fn unseen(view: &NodeView, packet: &Packet) -> bool {
    packet.entry == Entry::Host && !view.is_local(packet.destination)
}

/// The refusal of a node port asks for any local address. It is for a stranger there what it is on an address of node ports.
pub(super) fn any_local_address(view: &NodeView, packet: &Packet, decision: &Decision) -> Option<Outcome> {
    if decision.reason != Reason::NoFrontend || !view.is_local(packet.destination) {
        return None;
    }
    let snapshot = view.snapshot(IpFamily::of(packet.destination));
    let NodePortAddresses::Only(addresses) = &snapshot.context().node_port_addresses else { return None };
    let known = *addresses.iter().find(|a| !a.is_loopback())?;
    let source = match known {
        IpAddr::V4(_) => STRANGER.0.into(),
        IpAddr::V6(_) => STRANGER.1.into(),
    };
    let entry = Entry::Interface("eth0".into());
    let there = decide(snapshot, &Packet { source, destination: known, entry, ..packet.clone() });
    let (frontend, _) = there.frontend?;
    let refused = matches!(there.outcome, Outcome::Reject | Outcome::Drop);
    (frontend.kind == FrontendKind::NodePort && refused).then_some(there.outcome)
}

/// Each endpoint's chain begins with its own address as a source, also where the endpoint is on another node (iptables spec 5.13).
pub(super) fn hairpin_elsewhere(_: &NodeView, packet: &Packet, decision: &Decision) -> Option<Outcome> {
    let Outcome::Endpoints(choices) = &decision.outcome else { return None };
    let itself = |c: &Choice| c.endpoint.ip == packet.source && !c.masquerade;
    let masqueraded = |c: &Choice| Choice { masquerade: c.masquerade || itself(c), ..c.clone() };
    choices.iter().any(itself).then(|| Outcome::Endpoints(choices.iter().map(masqueraded).collect()))
}

/// Addresses that nobody has (RFC 5737, RFC 3849).
const STRANGER: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
