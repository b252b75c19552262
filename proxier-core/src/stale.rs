//! Which UDP flows a change leaves pointing at the wrong place: a pure plan (core spec 5).
//!
//! A UDP flow keeps the endpoint that its first packet was given, for as long as packets come. When that endpoint is gone, or when the
//! flow began while nothing translated it, it must be deleted so that its next packet is decided anew. The plan says
//! which flows those are; deleting them is an effect and done elsewhere, after the rules are in the kernel.
//!
//! Better than the reference: a service that lost its last endpoint or was deleted is covered as well, a node port matches only on
//! node port addresses, and flows of frontends that did not change are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::changes::ChangeSet;
use crate::ids::{EndpointAddr, Port, Protocol};
use crate::snapshot::{FrontendKey, NodePortAddresses, ServicePort, Snapshot};

/// Which flows to one frontend are stale, by the source address and port of their reply direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// All but those whose replies come from one of these: the frontend has an owner, and these are its serving endpoints.
    AllBut(BTreeSet<EndpointAddr>),
    /// Those whose replies come from one of these: the frontend has no owner any more, and other flows there are not ours.
    Only(BTreeSet<EndpointAddr>),
}

/// The original direction of a UDP flow, and where its replies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Original destination address.
    pub destination: IpAddr,
    /// Original destination port.
    pub port: u16,
    /// Source address of the reply direction.
    pub reply_address: IpAddr,
    /// Source port of the reply direction.
    pub reply_port: u16,
}

/// The plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaleFlows {
    /// By address and port.
    pub addresses: BTreeMap<(IpAddr, Port), Staleness>,
    /// By node port; holds for the addresses below.
    pub node_ports: BTreeMap<Port, Staleness>,
    /// Where node ports answer.
    pub node_port_addresses: BTreeSet<IpAddr>,
}

impl StaleFlows {
    /// What the step from `old` to `new` leaves behind. Without `old`, as after a restart, every UDP frontend is looked at, and flows to
    /// endpoints that serve stay.
    #[must_use]
    pub fn plan(old: Option<&Snapshot>, new: &Snapshot, changes: &ChangeSet) -> Self {
        let mut out = Self::default();
        let mut keys = BTreeSet::new();
        for change in changes.ports.iter().filter(|c| c.name.protocol == Protocol::Udp) {
            let both = [change.old.as_deref(), change.new.as_deref()];
            keys.extend(both.into_iter().flatten().flat_map(|p| p.frontends.iter().map(|f| f.key)));
        }
        for key in keys {
            let before = old.and_then(|s| s.owner(&key)).map(|(port, _)| serving(port));
            let after = new.owner(&key).map(|(port, _)| serving(port));
            if let Some(staleness) = judge(before, after) {
                match key {
                    FrontendKey::Address { ip, port, .. } => {
                        out.addresses.insert((ip, port), staleness);
                    }
                    FrontendKey::NodePort { port, .. } => {
                        out.node_ports.insert(port, staleness);
                    }
                }
            }
        }
        if !out.node_ports.is_empty() {
            let context = new.context();
            out.node_port_addresses = match &context.node_port_addresses {
                NodePortAddresses::Only(ips) => ips.iter().copied().collect(),
                NodePortAddresses::MatchAll => {
                    context.node.host_addresses.iter().filter(|ip| !ip.is_loopback()).copied().collect()
                }
            };
        }
        out
    }

    /// Nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.node_ports.is_empty()
    }

    /// Must this UDP flow be deleted?
    #[must_use]
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let Some(port) = Port::new(flow.port) else { return false };
        let staleness = self.addresses.get(&(flow.destination, port)).or_else(|| {
            self.node_ports.get(&port).filter(|_| self.node_port_addresses.contains(&flow.destination))
        });
        let reply = Port::new(flow.reply_port).map(|port| EndpointAddr { ip: flow.reply_address, port });
        match staleness {
            None => false,
            Some(Staleness::AllBut(keep)) => reply.is_none_or(|r| !keep.contains(&r)),
            Some(Staleness::Only(cut)) => reply.is_some_and(|r| cut.contains(&r)),
        }
    }
}

/// Serving, not ready: a flow to an endpoint that shuts down gracefully must not be cut (core spec 5.3).
fn serving(port: &ServicePort) -> BTreeSet<EndpointAddr> {
    port.endpoints.iter().filter(|e| e.conditions.serving).map(|e| e.addr).collect()
}

fn judge(before: Option<BTreeSet<EndpointAddr>>, after: Option<BTreeSet<EndpointAddr>>) -> Option<Staleness> {
    match (before, after) {
        (None, None) => None,
        (Some(before), None) => (!before.is_empty()).then_some(Staleness::Only(before)),
        (Some(before), Some(after)) => {
            let nothing_lost = !before.is_empty() && before.is_subset(&after);
            (!nothing_lost && (before != after)).then_some(Staleness::AllBut(after))
        }
        (None, Some(after)) => (!after.is_empty()).then_some(Staleness::AllBut(after)),
    }
}

#[cfg(test)]
mod tests;
