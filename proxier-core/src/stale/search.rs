//! Where stale flows may be, and which flows are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::{Scope, StaleFlows, keeps_flows, node_port_addresses, node_ports, on_loopback, owner};
use crate::ids::{EndpointAddr, Port, Protocol};
use crate::snapshot::{FrontendKey, Snapshot};

/// A flow, as far as it counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// IANA protocol number.
    pub protocol: u8,
    /// In the zone of connection tracking in which packets are that nobody assigned to another one. Our rules translate there; in others
    /// somebody else does.
    pub default_zone: bool,
    /// Where its first packet was sent.
    pub destination: SocketAddr,
    /// Where the answers come from.
    pub answers_from: SocketAddr,
}

/// Where to look: flows whose answers come from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// From this address and port.
    Source(EndpointAddr),
    /// From this port of any address.
    Port(Port),
    /// From this address, any port.
    Address(IpAddr),
}

/// All places to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looks {
    /// These, possibly none.
    At(BTreeSet<Look>),
    /// The whole table.
    Everywhere,
}

/// What a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not ours, or not looked for.
    Foreign,
    /// Where it belongs.
    Good,
    /// To be deleted.
    Stale,
}

/// What is known of one frontend.
#[derive(Clone, Debug, Default)]
struct Rule {
    /// Sorted.
    keep: Vec<EndpointAddr>,
    cut: BTreeSet<EndpointAddr>,
    /// Flows that are translated to a place that we know nothing of go, too.
    strangers: bool,
}

/// A search for what was left behind, with the rules in force.
#[derive(Clone, Debug)]
pub struct Search {
    rules: BTreeMap<FrontendKey, Rule>,
    looks: Looks,
    node_port_addresses: BTreeSet<IpAddr>,
    snapshot: Snapshot,
}

impl Search {
    /// A search for `stale`, while `snapshot` is in force.
    #[must_use]
    pub fn new(stale: &StaleFlows, snapshot: &Snapshot) -> Self {
        let mut rules = BTreeMap::new();
        let known = |key: FrontendKey| {
            let cut = stale.former.get(&key).cloned().unwrap_or_default();
            let owner = owner(snapshot, &key);
            let strangers = owner.is_some() && stale.scope == Scope::Everything;
            let endpoints = owner.iter().flat_map(|port| port.endpoints.iter());
            let mut keep: Vec<_> = endpoints.filter(|e| keeps_flows(e.conditions)).map(|e| e.addr).collect();
            keep.sort_unstable();
            (key, Rule { keep, cut, strangers })
        };
        rules.extend(stale.former.keys().chain(&stale.begun).copied().map(known));
        if stale.scope > Scope::Changes {
            let udp = snapshot.ports().filter(|port| port.protocol() == Protocol::Udp);
            rules.extend(udp.flat_map(|port| port.frontends.iter().map(|f| f.key)).map(known));
        } else if !stale.new_addresses.is_empty() {
            rules.extend(node_ports(snapshot).map(known));
        }
        let looks = looks(stale, &rules);
        let node_port_addresses = node_port_addresses(snapshot.context());
        Self { rules, looks, node_port_addresses, snapshot: snapshot.clone() }
    }

    /// Where to look. Flows elsewhere need not be judged; if they are, it does no harm.
    #[must_use]
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// What is this flow?
    #[must_use]
    pub fn judge(&self, flow: &Flow) -> Verdict {
        let (Some(destination), Some(source)) = (place(flow.destination), place(flow.answers_from)) else {
            return Verdict::Foreign;
        };
        if flow.protocol != Protocol::Udp.number() || !flow.default_zone {
            return Verdict::Foreign;
        }
        match self.rule(destination) {
            None => Verdict::Foreign,
            Some(rule) if rule.keep.binary_search(&source).is_ok() => Verdict::Good,
            Some(rule) if source == destination => {
                if rule.keep.is_empty() {
                    Verdict::Good
                } else {
                    Verdict::Stale
                }
            }
            Some(rule) if rule.strangers || rule.cut.contains(&source) => Verdict::Stale,
            Some(_) => Verdict::Foreign,
        }
    }

    fn rule(&self, EndpointAddr { ip, port }: EndpointAddr) -> Option<&Rule> {
        let protocol = Protocol::Udp;
        let address = FrontendKey::Address { ip, protocol, port };
        if let Some(rule) = self.rules.get(&address) {
            return Some(rule);
        }
        let rule = self.rules.get(&FrontendKey::NodePort { protocol, port })?;
        let (context, family) = (self.snapshot.context(), self.snapshot.family());
        let answers = self.node_port_addresses.contains(&ip) || on_loopback(context, family, ip);
        // An address and port of its own comes first, even if nothing about it is looked for.
        (answers && self.snapshot.owner(&address).is_none()).then_some(rule)
    }
}

fn place(address: SocketAddr) -> Option<EndpointAddr> {
    Some(EndpointAddr { ip: address.ip(), port: Port::new(address.port())? })
}

fn looks(stale: &StaleFlows, rules: &BTreeMap<FrontendKey, Rule>) -> Looks {
    if stale.scope > Scope::Changes {
        return Looks::Everywhere;
    }
    let rule = |key: &FrontendKey| rules.get(key).map(|rule| (*key, rule));
    let mut at = BTreeSet::new();
    // One look finds an endpoint's flows of all frontends, and of nobody who is well.
    for (_, rule) in stale.former.keys().filter_map(rule) {
        let gone = rule.cut.iter().filter(|e| rule.keep.binary_search(e).is_err());
        at.extend(gone.copied().map(Look::Source));
    }
    for (key, _) in stale.begun.iter().filter_map(rule).filter(|(_, rule)| !rule.keep.is_empty()) {
        at.insert(match key {
            FrontendKey::Address { ip, port, .. } => Look::Source(EndpointAddr { ip, port }),
            FrontendKey::NodePort { port, .. } => Look::Port(port),
        });
    }
    let node_port = |(key, rule): (&FrontendKey, &Rule)| {
        matches!(key, FrontendKey::NodePort { .. }) && !rule.keep.is_empty()
    };
    if rules.iter().any(node_port) {
        at.extend(stale.new_addresses.iter().copied().map(Look::Address));
    }
    Looks::At(at)
}
