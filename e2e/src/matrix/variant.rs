//! The backends under test, each with what it is known not to do.

use proxier_core::oracle::{Decision, Outcome, Packet};
use serde_json::Value;

use super::facts::NodeView;
use super::live::LOST_BY_CHANCE;
use super::nature;
use super::row::Caller;
use crate::saved::Tables;
use crate::scenario::Layout;

/// How the rules of a backend can be read back and asked, besides sending traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// `nft list table`, asked by the testkit's packet walker.
    Nftables,
    /// `iptables-save` of this variant, asked in the same way.
    Iptables(Tables),
    /// `ipvsadm -Sn`, `ipset save`, the addresses of `kube-ipvs0` and `iptables-save`, asked in the same way.
    VirtualServers,
}

impl Rules {
    /// Can this kernel do it?
    ///
    /// # Errors
    /// Why not, in words.
    pub fn is_possible(self) -> Result<(), &'static str> {
        if self == Self::VirtualServers { Layout::VirtualServers.is_possible() } else { Ok(()) }
    }
}

/// Whose TCP is refused by a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resets {
    /// Everybody's.
    All,
    /// That of packets that come to the node, from its pods as well.
    Arriving,
    /// Nobody's.
    None,
}

impl Resets {
    /// Is this caller's TCP?
    #[must_use]
    pub fn has(self, caller: Caller) -> bool {
        let own = matches!(caller, Caller::Host(_) | Caller::Loopback(_) | Caller::Vip);
        match self {
            Self::All => true,
            Self::Arriving => !own,
            Self::None => false,
        }
    }
}

/// One way to run the agent.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Name in the table.
    pub name: &'static str,
    /// The agent's `--backend`.
    pub backend: &'static str,
    /// The backend's part of the configuration, as a JSON object.
    section: &'static str,
    /// How its rules are read.
    pub rules: Rules,
    /// Whose TCP is refused by a reset, which clients on the node itself heed at once.
    pub resets_tcp: Resets,
    /// What a host sends to itself may get another source that it has: one of its gaps.
    pub masquerades_itself: bool,
    /// Node ports answer on IPv4 loopback, where the node port addresses hold it.
    pub localhost_node_ports: bool,
    /// Services of rows that would do harm to all others: one of its gaps.
    pub without: &'static [&'static str],
    /// What it does not do.
    pub gaps: &'static [Gap],
}

impl Variant {
    /// The backend's part of the configuration.
    ///
    /// # Errors
    /// A text that is no JSON: a fault of the table below.
    pub fn section(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.section)
    }

    /// Is there a gap that this scenario checks?
    #[must_use]
    pub fn has_gap_in(&self, scenario: &str) -> bool {
        self.gaps.iter().any(|gap| gap.checked_by == scenario)
    }
}

/// What a backend does with a packet in place of what the oracle says, where a gap is about it.
pub type Instead = fn(&NodeView, &Packet, &Decision) -> Option<Outcome>;

/// Something that a user of another proxy may expect and that a backend does not do. What holds instead is checked: by the rows or the
/// scenario named here.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// What is missing.
    pub what: &'static str,
    /// What holds now.
    pub now: &'static str,
    /// The group or scenario that checks that.
    pub checked_by: &'static str,
    /// Where the oracle says otherwise: what holds for a packet. Rows are predicted with it, and the walked rules must agree.
    pub instead: Option<Instead>,
}

impl Gap {
    /// One that no packet of a row shows.
    const fn of_scenario(what: &'static str, now: &'static str, checked_by: &'static str) -> Self {
        Self { what, now, checked_by, instead: None }
    }
}

/// What [`Variant::localhost_node_ports`] is called where gaps and abilities are told.
pub const LOOPBACK: &str = "node ports on loopback addresses (localhostNodePorts)";

const REFUSAL: Gap = Gap::of_scenario(
    "TCP is refused at once also where the client is a pod or process of this node",
    "refused by ICMP, which such a client minds only at its second attempt, one second later; a reset would be at once",
    "refusal-at-once",
);

const NFTABLES_GAPS: &[Gap] = &[Gap::of_scenario(
    LOOPBACK,
    "left alone: a process of the host answers there, no service",
    "node-ports",
)];

/// Of kube-proxy's rules, not of how they are written (iptables spec 5.2 to 5.7, 5.13).
const IPTABLES_GAPS: &[Gap] = &[
    Gap {
        what: "a cluster IP refuses ports that no service has",
        now: "left alone: the packet goes wherever it is routed",
        checked_by: "unknown",
        instead: Some(nature::unknown_port),
    },
    Gap {
        what: "cluster IPs that nobody has are dropped",
        now: "left alone: the packet goes wherever it is routed",
        checked_by: "unknown",
        instead: Some(nature::unallocated),
    },
    Gap {
        what: "source ranges drop strangers also while the service has no endpoint at all",
        now: "everybody is refused",
        checked_by: "ranges",
        instead: Some(nature::ranges_without_endpoints),
    },
    Gap {
        what: "a host refuses its own packets to external IPs and VIPs without endpoints",
        now: "left alone, unless the host has the address",
        checked_by: "policies",
        instead: Some(nature::from_host),
    },
    Gap {
        what: "a node port without endpoints is refused only on the addresses of node ports",
        now: "refused or dropped on every local address",
        checked_by: "node-ports",
        instead: Some(nature::any_local_address),
    },
    Gap {
        what: "a pod that reaches itself through another node keeps its address there, and gets no answer",
        now: "masqueraded there, and answered: every endpoint has the rule for itself, whichever node it is on",
        checked_by: "hairpin",
        instead: Some(nature::hairpin_elsewhere),
    },
    REFUSAL,
];

/// Of virtual servers, which do not ask who comes, and of addresses that are local (ipvs spec 2 to 5).
const IPVS_GAPS: &[Gap] = &[
    Gap::of_scenario(LOOPBACK, "left alone: a process of the host answers there, no service", "node-ports"),
    Gap {
        what: "cluster IPs that nobody has are dropped",
        now: "left alone: the packet goes wherever it is routed",
        checked_by: "unknown",
        instead: Some(nature::unallocated),
    },
    Gap {
        what: "pods and processes of a node reach endpoints of the whole cluster at external frontends whose policy is Local",
        now: "those of the node alone, where there are some: a virtual server does not ask who comes",
        checked_by: "policies",
        instead: Some(nature::ends_here),
    },
    Gap {
        what: "external IPs and VIPs are left alone at ports that no service has",
        now: "refused, a ping as well: they are addresses of the host, whose daemons must not answer there",
        checked_by: "unknown",
        instead: Some(nature::bound),
    },
    Gap::of_scenario(
        "what a host sends to itself keeps its source, at the number of a node port as well",
        "where node ports do not answer, another address of the host takes its place: sets of node ports do not ask for the address",
        "node-ports",
    ),
    Gap::of_scenario(
        "the external IP of a service may be another node's own address",
        "this node takes the address for its own, too, and finds that node no more: such services are left out of the rows",
        "external-ip-of-a-node",
    ),
    Gap::of_scenario(
        "a client with affinity meets its endpoint at every address of the service",
        "each address and port of the service has an affinity of its own, as virtual servers have",
        "affinity-endpoint-leaves",
    ),
    Gap::of_scenario(
        "source ranges that change hold for new connections",
        "for established ones as well: the rules look at every packet, as kube-proxy's do",
        "ranges-changed",
    ),
    Gap::of_scenario(
        "TCP is refused at once also where the client is a process of this node",
        "refused by ICMP by IPVS itself, which such a client minds only at its second attempt, one second later; everybody else's by a reset",
        "refusal-at-once",
    ),
    Gap::of_scenario(
        "a client with affinity that comes too late may go elsewhere",
        "it stays for as long as IPVS remembers its last connection, too: two minutes after TCP ended, five after UDP's last packet",
        "affinity-expires",
    ),
    Gap::of_scenario(
        "established connections outlive their service",
        "nothing comes back on them any more: the address is the host's no longer, and the virtual server that translates has gone",
        "service-removed",
    ),
    Gap::of_scenario(
        "a connection is answered whatever ports others have",
        "not where its node's port towards an endpoint is one that the endpoint's node remembers of another connection to that endpoint (two minutes): IPVS \
         knows answers by addresses and ports alone",
        LOST_BY_CHANCE,
    ),
];

/// Every backend, layout and variant.
pub const VARIANTS: [Variant; 5] = [
    Variant { name: "maps", section: r#"{"nftables": {"layout": "maps"}}"#, ..NFTABLES },
    Variant { name: "chains", ..NFTABLES },
    Variant { name: "iptables-nft", ..IPTABLES },
    Variant {
        name: "iptables-legacy",
        section: r#"{"iptables": {"variant": "legacy"}}"#,
        rules: Rules::Iptables(Tables::Legacy),
        ..IPTABLES
    },
    Variant {
        name: "ipvs",
        backend: "ipvs",
        section: r#"{"ipvs": {"variant": "nft"}}"#,
        rules: Rules::VirtualServers,
        resets_tcp: Resets::Arriving,
        masquerades_itself: true,
        localhost_node_ports: false,
        without: &["external-is-node", "external-is-node-local", "external-is-node-none"],
        gaps: IPVS_GAPS,
    },
];

const NFTABLES: Variant = Variant {
    name: "",
    backend: "nftables",
    section: r#"{"nftables": {"layout": "chains"}}"#,
    rules: Rules::Nftables,
    resets_tcp: Resets::All,
    masquerades_itself: false,
    localhost_node_ports: false,
    without: &[],
    gaps: NFTABLES_GAPS,
};

const IPTABLES: Variant = Variant {
    name: "",
    backend: "iptables",
    section: r#"{"iptables": {"variant": "nft"}}"#,
    rules: Rules::Iptables(Tables::Nft),
    resets_tcp: Resets::None,
    masquerades_itself: false,
    localhost_node_ports: true,
    without: &[],
    gaps: IPTABLES_GAPS,
};
