//! Which UDP flows a change leaves pointing at the wrong place: pure (core spec 5).
//!
//! A UDP flow keeps the endpoint that its first packet was given, for as long as packets come. When that endpoint is gone, or when the
//! flow began while nothing translated it, it must be deleted so that its next packet is decided anew. [`StaleFlows`] says what a
//! sync may have left behind and adds up over several syncs; [`Search`] says where to look for it, and judges each flow found.
//! Looking and deleting are effects and done elsewhere, after the rules are in the kernel.
//!
//! Two addresses and ports of a flow count: where its first packet was sent, and where the answers come from. The latter is the endpoint
//! if the flow was translated, whoever did it (a rule of nftables or iptables, or IPVS, which sets no mark that says so) and whatever was done
//! to the source (masquerading, hairpin); otherwise it is the former.
//!
//! | original destination | answers come from | then |
//! |---|---|---|
//! | no UDP frontend of ours, now or just before; or another protocol or zone | anywhere | stays: foreign |
//! | a frontend with endpoints | an endpoint that serves, or that gets new flows | stays |
//! | | the destination itself: never translated | goes |
//! | | an endpoint that the frontend had and that does not serve any more | goes |
//! | | anywhere else | stays: another agent's. In the first search after a start, where it is not known what was before, it goes |
//! | a frontend without endpoints | the destination itself | stays: there is nothing that it could be moved to |
//! | | anywhere else | as above |
//! | a frontend that is gone | an endpoint that it had | goes |
//! | | anywhere else | stays |
//!
//! Better than the reference: a service that lost its last endpoint or was deleted is covered, and so is a frontend that is new to an
//! unchanged service; a node port matches only on node port addresses; what another agent translates is left alone; and only flows of
//! frontends that changed are looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::changes::ChangeSet;
use crate::ids::{EndpointAddr, IpFamily, Port, Protocol};
use crate::model::Conditions;
use crate::snapshot::{FrontendKey, NodeContext, NodePortAddresses, ServicePort, Snapshot};

mod search;
#[cfg(test)]
mod tests;

pub use search::{Flow, Look, Looks, Search, Verdict};

/// Frontends that lost endpoints, at most, while nobody could look. Beyond that the whole table is searched, and what is known of
/// frontends that are gone is forgotten: their flows end by themselves.
const MOST_FRONTENDS: usize = 16_384;
/// Pairs of such a frontend and an endpoint, at most.
const MOST_FORMER: usize = 131_072;

/// What of the table may hold stale flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// What changed.
    #[default]
    Changes,
    /// Every frontend: for a while the rules were not what was believed, so that flows may have begun untranslated.
    Frontends,
    /// Every frontend, and it is not known which endpoints there were before.
    Everything,
}

/// What one or several syncs may have left behind in one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaleFlows {
    /// How much.
    pub scope: Scope,
    /// By frontend, now or just before: endpoints that had its flows and are not to have them any more.
    pub former: BTreeMap<FrontendKey, BTreeSet<EndpointAddr>>,
    /// Frontends that have endpoints and had none, or were none.
    pub begun: BTreeSet<FrontendKey>,
    /// Addresses on which node ports did not answer before.
    pub new_addresses: BTreeSet<IpAddr>,
}

impl StaleFlows {
    /// What the step from `old` to `new` leaves behind. Without `old`, as after a restart, that is everything.
    #[must_use]
    pub fn plan(old: Option<&Snapshot>, new: &Snapshot, changes: &ChangeSet) -> Self {
        let Some(old) = old else { return Self { scope: Scope::Everything, ..Self::default() } };
        let mut out = Self::default();
        let mut keys = BTreeSet::new();
        for change in changes.ports.iter().filter(|c| c.name.protocol == Protocol::Udp) {
            let both = [change.old.as_deref(), change.new.as_deref()];
            keys.extend(both.into_iter().flatten().flat_map(|p| p.frontends.iter().map(|f| f.key)));
        }
        for key in keys {
            let before = owner(old, &key).map(targets).unwrap_or_default();
            let after = owner(new, &key).map(targets).unwrap_or_default();
            let lost: BTreeSet<EndpointAddr> = before.difference(&after).copied().collect();
            if !lost.is_empty() {
                out.former.insert(key, lost);
            }
            if before.is_empty() && !after.is_empty() {
                out.begun.insert(key);
            }
        }
        if changes.context_changed && has_node_ports(new) {
            let before = node_port_addresses(old.context());
            let after = node_port_addresses(new.context());
            out.new_addresses = after.difference(&before).copied().collect();
        }
        out
    }

    /// The same, and the rules of all frontends may have been missing for a while.
    #[must_use]
    pub fn after_repair(mut self) -> Self {
        self.scope = self.scope.max(Scope::Frontends);
        self
    }

    /// Adds what later syncs left behind.
    pub fn join(&mut self, later: Self) {
        self.scope = self.scope.max(later.scope);
        for (key, endpoints) in later.former {
            self.former.entry(key).or_default().extend(endpoints);
        }
        self.begun.extend(later.begun);
        self.new_addresses.extend(later.new_addresses);
        let pairs = || self.former.values().map(BTreeSet::len).sum::<usize>();
        if self.former.len() > MOST_FRONTENDS || pairs() > MOST_FORMER {
            *self = Self { scope: Scope::Everything, ..Self::default() };
        }
    }

    /// Nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scope == Scope::Changes
            && self.former.is_empty()
            && self.begun.is_empty()
            && self.new_addresses.is_empty()
    }
}

/// May flows to such an endpoint go on? Serving, not only ready: those to an endpoint that shuts down gracefully must not be cut (core spec
/// 5.3). Ready, even if it does not serve: a service that publishes addresses that are not ready has such, and new flows go there.
fn keeps_flows(conditions: Conditions) -> bool {
    conditions.serving || conditions.ready
}

/// Who gets what is sent to a frontend: its owner; for an address and port that nobody has, the one whose node port that is there.
fn owner<'a>(snapshot: &'a Snapshot, key: &FrontendKey) -> Option<&'a Arc<ServicePort>> {
    if let Some((port, _)) = snapshot.owner(key) {
        return Some(port);
    }
    let FrontendKey::Address { ip, protocol, port } = *key else { return None };
    let (port, _) = snapshot.owner(&FrontendKey::NodePort { protocol, port })?;
    let context = snapshot.context();
    let answers = node_port_addresses(context).contains(&ip) || on_loopback(context, snapshot.family(), ip);
    answers.then_some(port)
}

fn targets(port: &Arc<ServicePort>) -> BTreeSet<EndpointAddr> {
    port.endpoints.iter().filter(|e| keeps_flows(e.conditions)).map(|e| e.addr).collect()
}

/// All UDP node ports of a family.
fn node_ports(snapshot: &Snapshot) -> impl Iterator<Item = FrontendKey> + '_ {
    let key = |number| Port::new(number).map(|port| FrontendKey::NodePort { protocol: Protocol::Udp, port });
    let ends = key(1).zip(key(u16::MAX));
    ends.into_iter().flat_map(|(first, last)| snapshot.claims.range(first..=last).map(|(key, _)| *key))
}

fn has_node_ports(snapshot: &Snapshot) -> bool {
    node_ports(snapshot).next().is_some()
}

/// Where node ports answer, but for the loopback range, of which a host need not list more than one address.
fn node_port_addresses(context: &NodeContext) -> BTreeSet<IpAddr> {
    match &context.node_port_addresses {
        NodePortAddresses::Only(ips) => ips.iter().copied().collect(),
        NodePortAddresses::MatchAll => {
            context.node.host_addresses.iter().filter(|ip| !ip.is_loopback()).copied().collect()
        }
    }
}

/// Do node ports answer on this address because they do on all of 127.0.0.0/8?
fn on_loopback(context: &NodeContext, family: IpFamily, ip: IpAddr) -> bool {
    ip.is_loopback()
        && family == IpFamily::Ipv4
        && context.node_ports_on_loopback
        && context.node_port_addresses == NodePortAddresses::MatchAll
}
