//! A cluster as data, and the `ip` commands and kernel settings that build it.
//!
//! Everything here is pure; [`crate::world`] executes it. Shape: one namespace `node-network` holds a bridge that joins the
//! nodes and the outside clients, as the bridge of a container engine joins the nodes of a local cluster. Each node is a
//! namespace with `eth0` on that bridge and a bridge `cni0` for its pods; each pod is a namespace behind `cni0`.
//!
//! A pod's address is a host address and all its packets go through its node, as in clusters whose pods have a
//! point-to-point link to their node. So the answer of a pod to its neighbour passes the node's connection tracking and is
//! translated back whether or not the kernel shows bridged frames to netfilter (`br_netfilter`); that setting is switched
//! off where it exists, so that every machine behaves alike.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The namespace with the node network's bridge.
pub const NODE_NETWORK: &str = "node-network";

/// One address per family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dual {
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address.
    pub v6: Ipv6Addr,
}

impl Dual {
    /// Both addresses.
    #[must_use]
    pub fn both(self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    /// Is it one of the two?
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.both().contains(&address)
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node object and of the namespace.
    pub name: &'static str,
    /// Addresses on the node network.
    pub addresses: Dual,
    /// Pod ranges, IPv4 and IPv6.
    pub pod_cidrs: [&'static str; 2],
    /// The node's own address in each pod range, on `cni0`.
    pub gateway: Dual,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Name of the pod and of the namespace.
    pub name: &'static str,
    /// Name of the node it runs on.
    pub node: &'static str,
    /// Its addresses.
    pub addresses: Dual,
}

/// A machine on the node network that is not a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Name of the namespace.
    pub name: &'static str,
    /// Its addresses.
    pub addresses: Dual,
}

/// A cluster and what surrounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The default gateway of nodes and clients; it forwards nothing.
    pub gateway: Dual,
    /// Prefix lengths of the node network, IPv4 and IPv6.
    pub prefixes: [u8; 2],
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Pods.
    pub pods: Vec<Pod>,
    /// Outside clients.
    pub clients: Vec<Client>,
    /// Further `ip -batch` lines, each with its namespace, run behind those that all of this needs.
    pub extras: Vec<(&'static str, String)>,
}

/// Settings under `/proc/sys` and commands for `ip -batch`, for one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The namespace.
    pub namespace: &'static str,
    /// Path below `/proc/sys` and value, written before any device exists; paths under `net/bridge` may be absent.
    pub settings: Vec<(&'static str, &'static str)>,
    /// Lines for `ip -batch`, run when the devices are there.
    pub commands: Vec<String>,
}

/// Settings of every namespace: addresses work at once (no duplicate address detection), no filtering by reverse path, no
/// learned routes, and no limit on how many refusals a second are told (a kernel tells a peer six at once, then one a second).
///
/// Nobody stays in TIME_WAIT. The lab's servers close first and are asked thousands of times by few addresses, in the end by the same port number of a
/// masquerading node from two clients whose time stamps do not go together: a server that remembers the first one has no ear for the second.
const EVERYWHERE: [(&str, &str); 13] = [
    ("net/ipv4/tcp_max_tw_buckets", "0"),
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
    ("net/ipv6/icmp/ratemask", "255"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Of the others besides [`EVERYWHERE`]: a new namespace may copy the machine's IPv4 settings, and a router's are not wanted.
const NOT_A_NODE: [(&str, &str); 1] = [("net/ipv4/ip_forward", "0")];

/// Settings of a node besides [`EVERYWHERE`]; forwarding first, because it resets others to a router's defaults.
const NODE: [(&str, &str); 7] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/bridge/bridge-nf-call-iptables", "0"),
    ("net/bridge/bridge-nf-call-ip6tables", "0"),
    ("net/bridge/bridge-nf-call-arptables", "0"),
];

impl Topology {
    /// The two workers and the outside client of the experiments, with the given pods.
    #[must_use]
    pub fn two_workers(pods: Vec<Pod>) -> Self {
        let on_network = |n: u8| Dual {
            v4: Ipv4Addr::new(172, 30, 0, n),
            v6: Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, n.into()),
        };
        Self {
            gateway: on_network(1),
            prefixes: [16, 64],
            nodes: vec![
                Node {
                    name: "worker",
                    addresses: on_network(3),
                    pod_cidrs: ["10.244.1.0/24", "fd00:10:244:1::/64"],
                    gateway: pod_addresses(1, 1),
                },
                Node {
                    name: "worker2",
                    addresses: on_network(4),
                    pod_cidrs: ["10.244.2.0/24", "fd00:10:244:2::/64"],
                    gateway: pod_addresses(2, 1),
                },
            ],
            pods,
            clients: vec![Client { name: "client", addresses: on_network(5) }],
            extras: Vec::new(),
        }
    }

    /// Every namespace, the node network's first.
    pub fn namespaces(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(NODE_NETWORK)
            .chain(self.nodes.iter().map(|n| n.name))
            .chain(self.clients.iter().map(|c| c.name))
            .chain(self.pods.iter().map(|p| p.name))
    }

    /// `ip -batch` lines that create the namespaces.
    #[must_use]
    pub fn creation(&self) -> Vec<String> {
        self.namespaces().map(|n| format!("netns add {n}")).collect()
    }

    /// `ip -batch` lines that remove the namespaces and with them everything inside.
    #[must_use]
    pub fn removal(&self) -> Vec<String> {
        self.namespaces().map(|n| format!("netns del {n}")).collect()
    }

    /// `ip -batch` lines that create the links between namespaces.
    #[must_use]
    pub fn links(&self) -> Vec<String> {
        let members =
            self.members().enumerate().map(|(i, (name, _))| veth(name, &format!("port{i}"), NODE_NETWORK));
        let pods = self.pods.iter().enumerate().map(|(i, p)| veth(p.name, &format!("pod{i}"), p.node));
        members.chain(pods).collect()
    }

    /// What to do inside each namespace.
    #[must_use]
    pub fn setups(&self) -> Vec<Setup> {
        let mut setups = vec![self.network_setup()];
        setups.extend(self.nodes.iter().map(|n| self.node_setup(n)));
        setups.extend(self.clients.iter().map(|c| Setup {
            namespace: c.name,
            settings: [&NOT_A_NODE[..], &EVERYWHERE[..]].concat(),
            commands: self.member_commands(c.addresses),
        }));
        setups.extend(self.pods.iter().filter_map(|p| Some(pod_setup(p, self.node(p.node)?))));
        for setup in &mut setups {
            let own = self.extras.iter().filter(|(namespace, _)| *namespace == setup.namespace);
            setup.commands.extend(own.map(|(_, command)| command.clone()));
        }
        setups
    }

    /// The node of that name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|n| n.name == name)
    }

    /// A namespace as a reader of the table knows it: kind, address of the family of `to`, and for a pod its node.
    #[must_use]
    pub fn describe_source(&self, namespace: &str, to: IpAddr) -> String {
        let of = |a: Dual| if to.is_ipv4() { IpAddr::from(a.v4) } else { a.v6.into() };
        if let Some(pod) = self.pods.iter().find(|p| p.name == namespace) {
            return format!("pod {} on {}", of(pod.addresses), pod.node);
        }
        match self.members().find(|(name, _)| *name == namespace) {
            Some((name, addresses)) => format!("{name} {}", of(addresses)),
            None => namespace.to_owned(),
        }
    }

    /// Nodes and clients with their addresses on the node network.
    fn members(&self) -> impl Iterator<Item = (&'static str, Dual)> {
        self.nodes
            .iter()
            .map(|n| (n.name, n.addresses))
            .chain(self.clients.iter().map(|c| (c.name, c.addresses)))
    }

    fn network_setup(&self) -> Setup {
        let mut commands = bridge("br0", self.gateway, self.prefixes);
        for (i, _) in self.members().enumerate() {
            commands.push(format!("link set port{i} master br0 up"));
        }
        // Without it IPv6, which IPv4 does not, tells senders that there is no route.
        commands.push("route add blackhole ::/0".to_owned());
        Setup { namespace: NODE_NETWORK, settings: [&NOT_A_NODE[..], &EVERYWHERE[..]].concat(), commands }
    }

    fn member_commands(&self, addresses: Dual) -> Vec<String> {
        let mut commands = up_with("eth0", addresses, self.prefixes);
        commands.extend(self.gateway.both().map(|g| format!("route add default via {g} dev eth0")));
        commands
    }

    fn node_setup(&self, node: &Node) -> Setup {
        let mut commands = self.member_commands(node.addresses);
        commands.extend(bridge("cni0", node.gateway, node.pod_cidrs.map(prefix_length)));
        for (i, _) in self.pods.iter().enumerate().filter(|(_, p)| p.node == node.name) {
            commands.push(format!("link set pod{i} master cni0 up"));
            commands.push(format!("link set pod{i} type bridge_slave hairpin on"));
        }
        for other in self.nodes.iter().filter(|o| o.name != node.name) {
            for (cidr, via) in other.pod_cidrs.iter().zip(other.addresses.both()) {
                commands.push(format!("route add {cidr} via {via} dev eth0"));
            }
        }
        Setup { namespace: node.name, settings: [&NODE[..], &EVERYWHERE[..]].concat(), commands }
    }
}

/// The addresses `10.244.<node>.<number>` and `fd00:10:244:<node>::<number>`.
#[must_use]
pub const fn pod_addresses(node: u8, number: u8) -> Dual {
    Dual {
        v4: Ipv4Addr::new(10, 244, node, number),
        v6: Ipv6Addr::new(0xfd00, 0x10, 0x244, node as u16, 0, 0, 0, number as u16),
    }
}

fn pod_setup(pod: &Pod, node: &Node) -> Setup {
    let mut commands = up_with("eth0", pod.addresses, [32, 128]);
    for gateway in node.gateway.both() {
        commands.push(format!("route add {gateway} dev eth0"));
        commands.push(format!("route add default via {gateway} dev eth0"));
    }
    Setup { namespace: pod.name, settings: [&NOT_A_NODE[..], &EVERYWHERE[..]].concat(), commands }
}

fn veth(namespace: &str, peer: &str, peer_namespace: &str) -> String {
    format!("link add eth0 netns {namespace} type veth peer name {peer} netns {peer_namespace}")
}

fn bridge(name: &str, addresses: Dual, prefixes: [u8; 2]) -> Vec<String> {
    let mut commands = vec![format!("link add {name} type bridge mcast_snooping 0")];
    commands.extend(up_with(name, addresses, prefixes));
    commands
}

fn up_with(device: &str, addresses: Dual, prefixes: [u8; 2]) -> Vec<String> {
    vec![
        "link set lo up".to_owned(),
        format!("link set {device} up"),
        format!("addr add {}/{} dev {device}", addresses.v4, prefixes[0]),
        format!("addr add {}/{} dev {device} nodad", addresses.v6, prefixes[1]),
    ]
}

/// The length in `address/length`; a prefix without one counts as the whole range.
fn prefix_length(cidr: &str) -> u8 {
    cidr.rsplit_once('/').and_then(|(_, length)| length.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Topology {
        Topology::two_workers(vec![Pod { name: "a", node: "worker2", addresses: pod_addresses(2, 7) }])
    }

    #[test]
    fn links_join_members_to_the_network_and_pods_to_their_node() {
        assert_eq!(
            small().links(),
            [
                "link add eth0 netns worker type veth peer name port0 netns node-network",
                "link add eth0 netns worker2 type veth peer name port1 netns node-network",
                "link add eth0 netns client type veth peer name port2 netns node-network",
                "link add eth0 netns a type veth peer name pod0 netns worker2",
            ]
        );
    }

    #[test]
    fn a_node_routes_the_other_nodes_pods_through_it() {
        let setups = small().setups();
        let worker = setups.iter().find(|s| s.namespace == "worker").unwrap();
        assert!(worker.commands.contains(&"route add 10.244.2.0/24 via 172.30.0.4 dev eth0".to_owned()));
        assert!(worker.commands.contains(&"route add fd00:10:244:2::/64 via fd00:30::4 dev eth0".to_owned()));
        assert!(!worker.commands.iter().any(|c| c.starts_with("route add 10.244.1.0")));
        assert_eq!(worker.settings[0], ("net/ipv4/ip_forward", "1"));
    }

    #[test]
    fn a_pod_reaches_everything_through_its_node() {
        let setups = small().setups();
        let pod = setups.iter().find(|s| s.namespace == "a").unwrap();
        assert_eq!(
            pod.commands[2..],
            [
                "addr add 10.244.2.7/32 dev eth0",
                "addr add fd00:10:244:2::7/128 dev eth0 nodad",
                "route add 10.244.2.1 dev eth0",
                "route add default via 10.244.2.1 dev eth0",
                "route add fd00:10:244:2::1 dev eth0",
                "route add default via fd00:10:244:2::1 dev eth0",
            ]
        );
    }

    #[test]
    fn a_client_knows_no_pod_or_service_range() {
        let setups = small().setups();
        let client = setups.iter().find(|s| s.namespace == "client").unwrap();
        assert!(!client.commands.iter().any(|c| c.contains("10.244") || c.contains("10.96")), "{client:?}");
    }

    #[test]
    fn sources_are_described_in_the_family_of_the_destination() {
        let t = small();
        assert_eq!(t.describe_source("a", "10.96.0.1".parse().unwrap()), "pod 10.244.2.7 on worker2");
        assert_eq!(t.describe_source("client", "fd00:30::3".parse().unwrap()), "client fd00:30::5");
    }
}
