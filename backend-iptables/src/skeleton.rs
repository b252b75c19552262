//! What is there whatever the services are: chains, fixed rules, and the jumps from built-in chains (iptables spec 3, 5.1, 5.2 and 5.8).

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::NodePortAddresses;
use proxier_xtables::objects::{ChainId, Rule, Table};
use proxier_xtables::rule::{Draft, End};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::desired::Want;
use crate::environment::Environment;
use crate::options::INVALID_DROPPED;

/// Dispatch by address, in nat; refusals of cluster IPs, in filter.
pub const SERVICES: &str = "KUBE-SERVICES";
/// Dispatch by node port, in nat; health check node ports, in filter.
pub const NODEPORTS: &str = "KUBE-NODEPORTS";
/// Refusals of external frontends.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// What source ranges did not let through.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// What is forwarded.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Shared with the kubelet: each adds what it finds missing, neither removes anything.
pub const FIREWALL: &str = "KUBE-FIREWALL";
/// The way out.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Asks for masquerading, and returns.
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// Empty; that it is gone shows that somebody flushed the table (iptables spec 8).
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// A chain that all service ports share: their rules in it are added and deleted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shared {
    /// Refusals of cluster IPs.
    FilterServices,
    /// Refusals of external frontends.
    FilterExternal,
    /// Health check node ports.
    FilterNodePorts,
    /// What source ranges did not let through.
    FilterFirewall,
    /// Dispatch by address.
    NatServices,
    /// Dispatch by node port.
    NatNodePorts,
}

impl Shared {
    /// All of them, in the order of their tables.
    pub const ALL: [Self; 6] = [
        Self::FilterServices,
        Self::FilterExternal,
        Self::FilterNodePorts,
        Self::FilterFirewall,
        Self::NatServices,
        Self::NatNodePorts,
    ];

    /// Its table and name.
    #[must_use]
    pub fn id(self) -> ChainId {
        match self {
            Self::FilterServices => chain(Table::Filter, SERVICES),
            Self::FilterExternal => chain(Table::Filter, EXTERNAL_SERVICES),
            Self::FilterNodePorts => chain(Table::Filter, NODEPORTS),
            Self::FilterFirewall => chain(Table::Filter, PROXY_FIREWALL),
            Self::NatServices => chain(Table::Nat, SERVICES),
            Self::NatNodePorts => chain(Table::Nat, NODEPORTS),
        }
    }

    /// The rules that stay last in it.
    #[must_use]
    pub fn tail(self, env: &Environment) -> Vec<Rule> {
        if self == Self::NatServices { to_node_ports(env) } else { Vec::new() }
    }
}

/// A chain.
#[must_use]
pub fn chain(table: Table, name: &str) -> ChainId {
    ChainId { table, name: name.into() }
}

/// The fixed chains with what they hold, but for the chains that service ports share.
#[must_use]
pub fn fixed(env: &Environment) -> Vec<(ChainId, Want)> {
    let exactly = |rules| Want::Exactly { rules, port: None };
    vec![
        (chain(Table::Mangle, CANARY), exactly(Vec::new())),
        (chain(Table::Nat, CANARY), exactly(Vec::new())),
        (chain(Table::Filter, CANARY), exactly(Vec::new())),
        (chain(Table::Nat, POSTROUTING), exactly(postrouting(env))),
        (chain(Table::Nat, MARK_MASQ), exactly(vec![set_mark(env.mark, env.mark)])),
        (chain(Table::Filter, FORWARD), exactly(forward(env))),
        (chain(Table::Filter, FIREWALL), Want::AtLeast(firewall(env))),
    ]
}

/// The masks are the tool's words for "set these bits" (both numbers alike) and "flip them" (mask 0).
fn set_mark(mark: u32, mask: u32) -> Rule {
    Draft::new().jump(&format!("MARK --set-xmark {mark:#x}/{mask:#x}"))
}

/// The mark is cleared before, so that a packet that comes by again, from a tunnel, is not masqueraded twice.
fn postrouting(env: &Environment) -> Vec<Rule> {
    let target = if env.facts.random_fully { "MASQUERADE --random-fully" } else { "MASQUERADE" };
    vec![
        Draft::new().mark(true, env.mark).jump("RETURN"),
        set_mark(env.mark, 0),
        Draft::new().comment("kubernetes service traffic requiring SNAT").jump(target),
    ]
}

fn forward(env: &Environment) -> Vec<Rule> {
    let invalid = env.drop_invalid.then(|| {
        let draft = Draft::new().ct_state(false, "INVALID");
        let draft = if env.facts.count_invalid { draft.count(INVALID_DROPPED) } else { draft };
        draft.jump("DROP")
    });
    let known = Draft::new().comment("kubernetes forwarding conntrack rule");
    let rest = [
        Draft::new().comment("kubernetes forwarding rules").mark(false, env.mark).jump("ACCEPT"),
        known.ct_state(false, "RELATED,ESTABLISHED").jump("ACCEPT"),
    ];
    invalid.into_iter().chain(rest).collect()
}

/// With `route_localnet` set, addresses of loopback must not be reached from elsewhere. The kubelet writes the same rule.
fn firewall(env: &Environment) -> Vec<Rule> {
    let loopback = loopback(IpFamily::Ipv4);
    let block = || {
        Draft::new()
            .destination(false, loopback)
            .source(true, loopback)
            .comment("block incoming localnet connections")
            .ct_state(true, "RELATED,ESTABLISHED,DNAT")
            .jump("DROP")
    };
    env.loopback.then(block).into_iter().collect()
}

/// The loopback range of a family.
#[must_use]
pub fn loopback(family: IpFamily) -> IpNet {
    match family {
        IpFamily::Ipv4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
        IpFamily::Ipv6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    }
}

const TO_NODE_PORTS: &str = "kubernetes service nodeports; NOTE: this must be the last rule in this chain";

/// What is sent to an address that node ports answer on, and is no frontend (iptables spec 5.8).
fn to_node_ports(env: &Environment) -> Vec<Rule> {
    let draft = || Draft::new().comment(TO_NODE_PORTS);
    match &env.node_port_addresses {
        NodePortAddresses::MatchAll => {
            let any = draft().local(End::Destination);
            let any = if env.loopback { any } else { any.destination(true, loopback(env.family)) };
            vec![any.jump(NODEPORTS)]
        }
        NodePortAddresses::Only(list) => {
            let served = |ip: &&IpAddr| !ip.is_loopback() || env.loopback;
            let each = |ip: &IpAddr| draft().destination(false, (*ip).into()).jump(NODEPORTS);
            list.iter().filter(served).map(each).collect()
        }
    }
}

/// A jump from a built-in chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The built-in chain.
    pub from: ChainId,
    /// The rule.
    pub rule: Rule,
    /// It is the kubelet's, too, and stays when we go.
    pub shared: bool,
}

/// The jumps, in the order in which they are looked at: each that is missing goes to the top (iptables spec 3.2).
#[must_use]
pub fn jumps() -> Vec<Jump> {
    use Table::{Filter, Nat};
    let portals = "kubernetes service portals";
    let external = "kubernetes externally-visible service portals";
    let balancer = "kubernetes load balancer firewall";
    let forwarding = "kubernetes forwarding rules";
    let rows = [
        (Filter, "INPUT", true, external, EXTERNAL_SERVICES),
        (Filter, "FORWARD", true, external, EXTERNAL_SERVICES),
        (Filter, "INPUT", false, "kubernetes health check service ports", NODEPORTS),
        (Filter, "FORWARD", true, portals, SERVICES),
        (Filter, "OUTPUT", true, portals, SERVICES),
        (Filter, "FORWARD", false, forwarding, FORWARD),
        (Filter, "INPUT", true, balancer, PROXY_FIREWALL),
        (Filter, "OUTPUT", true, balancer, PROXY_FIREWALL),
        (Filter, "FORWARD", true, balancer, PROXY_FIREWALL),
        (Nat, "OUTPUT", false, portals, SERVICES),
        (Nat, "PREROUTING", false, portals, SERVICES),
        (Nat, "POSTROUTING", false, "kubernetes postrouting rules", POSTROUTING),
        (Filter, "INPUT", false, "", FIREWALL),
        (Filter, "OUTPUT", false, "", FIREWALL),
    ];
    let jump = |(table, from, new, comment, to): (Table, &str, bool, &str, &str)| {
        let draft = if new { Draft::new().ct_state(false, "NEW") } else { Draft::new() };
        let draft = if comment.is_empty() { draft } else { draft.comment(comment) };
        Jump { from: chain(table, from), rule: draft.jump(to), shared: to == FIREWALL }
    };
    rows.map(jump).into()
}

/// Is this a chain that the tables have by themselves?
#[must_use]
pub fn is_built_in(name: &str) -> bool {
    matches!(name, "PREROUTING" | "INPUT" | "FORWARD" | "OUTPUT" | "POSTROUTING")
}
