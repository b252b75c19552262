//! The ipsets: names, types and entries (ipvs spec 4).

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Port, Protocol};

use crate::wire::ipset::Definition;

/// The type of a set, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetType {
    /// `hash:ip`.
    HashIp,
    /// `hash:ip,port`.
    HashIpPort,
    /// `hash:ip,port,ip`.
    HashIpPortIp,
    /// `hash:ip,port,net`.
    HashIpPortNet,
    /// `bitmap:port`, TCP or UDP as the rule says.
    BitmapPort,
}

/// An entry of a set. Only the forms of [`SetType`] occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// An address.
    Ip(IpAddr),
    /// An address, a protocol and a port.
    IpPort(IpAddr, Protocol, Port),
    /// The same, and a second address.
    IpPortIp(IpAddr, Protocol, Port, IpAddr),
    /// The same, and a range, its host bits zero. The kernel's hash takes no range of length 0.
    IpPortNet(IpAddr, Protocol, Port, IpNet),
    /// A port.
    Port(Port),
}

impl fmt::Display for Entry {
    /// As `ipset save` prints it: a range of one address without its length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::IpPort(ip, protocol, port) => write!(f, "{ip},{}:{port}", protocol.as_str()),
            Self::IpPortIp(ip, protocol, port, other) => {
                write!(f, "{ip},{}:{port},{other}", protocol.as_str())
            }
            Self::IpPortNet(ip, protocol, port, net) if net.prefix_len() == net.max_prefix_len() => {
                write!(f, "{ip},{}:{port},{}", protocol.as_str(), net.addr())
            }
            Self::IpPortNet(ip, protocol, port, net) => write!(f, "{ip},{}:{port},{net}", protocol.as_str()),
            Self::Port(port) => write!(f, "{port}"),
        }
    }
}

/// The longest name of a set, in bytes (`IPSET_MAXNAMELEN` without its terminator).
pub const LONGEST_NAME: usize = 31;

/// A set that this backend keeps: the seventeen of the reference, and four of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetId {
    /// Endpoints of this node, each with itself as the source.
    LoopBack,
    /// Cluster IPs.
    ClusterIp,
    /// External IPs whose policy is Cluster.
    ExternalIp,
    /// External IPs whose policy is Local.
    ExternalIpLocal,
    /// VIPs.
    LoadBalancer,
    /// VIPs whose policy is Local.
    LoadBalancerLocal,
    /// VIPs with source ranges.
    LoadBalancerFw,
    /// VIPs, each with a source range.
    LoadBalancerSourceCidr,
    /// VIPs, each with itself as the source, where a range contains the node's own address.
    LoadBalancerSourceIp,
    /// TCP node ports.
    NodePortTcp,
    /// TCP node ports whose policy is Local.
    NodePortLocalTcp,
    /// UDP node ports.
    NodePortUdp,
    /// UDP node ports whose policy is Local.
    NodePortLocalUdp,
    /// SCTP node ports: `bitmap:port` knows TCP and UDP only.
    NodePortSctp,
    /// SCTP node ports whose policy is Local.
    NodePortLocalSctp,
    /// Health check node ports.
    HealthCheck,
    /// Addresses of `kube-ipvs0`.
    IpvsIps,
    /// Ours: virtual servers at addresses that `kube-ipvs0` has not. IPVS does not tell whose a virtual server is; this does, also after a
    /// restart on a host that has other addresses by then. No rule looks into it.
    Servers,
    /// Ours: frontends without any endpoint.
    Reject,
    /// Ours: frontends whose policy is Local and that have endpoints, but none here, for whoever asks.
    Drop,
    /// Ours: the same for who is neither a pod nor this host.
    DropOutside,
}

impl SetId {
    /// All of them, in the order in which they are created (ipvs spec 10), ours last.
    pub const ALL: [Self; 21] = [
        Self::LoopBack,
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerFw,
        Self::LoadBalancerLocal,
        Self::LoadBalancerSourceIp,
        Self::LoadBalancerSourceCidr,
        Self::NodePortTcp,
        Self::NodePortLocalTcp,
        Self::NodePortUdp,
        Self::NodePortLocalUdp,
        Self::NodePortSctp,
        Self::NodePortLocalSctp,
        Self::HealthCheck,
        Self::IpvsIps,
        Self::Servers,
        Self::Reject,
        Self::Drop,
        Self::DropOutside,
    ];

    /// Its name in IPv4.
    fn base(self) -> &'static str {
        match self {
            Self::LoopBack => "KUBE-LOOP-BACK",
            Self::ClusterIp => "KUBE-CLUSTER-IP",
            Self::ExternalIp => "KUBE-EXTERNAL-IP",
            Self::ExternalIpLocal => "KUBE-EXTERNAL-IP-LOCAL",
            Self::LoadBalancer => "KUBE-LOAD-BALANCER",
            Self::LoadBalancerLocal => "KUBE-LOAD-BALANCER-LOCAL",
            Self::LoadBalancerFw => "KUBE-LOAD-BALANCER-FW",
            Self::LoadBalancerSourceCidr => "KUBE-LOAD-BALANCER-SOURCE-CIDR",
            Self::LoadBalancerSourceIp => "KUBE-LOAD-BALANCER-SOURCE-IP",
            Self::NodePortTcp => "KUBE-NODE-PORT-TCP",
            Self::NodePortLocalTcp => "KUBE-NODE-PORT-LOCAL-TCP",
            Self::NodePortUdp => "KUBE-NODE-PORT-UDP",
            Self::NodePortLocalUdp => "KUBE-NODE-PORT-LOCAL-UDP",
            Self::NodePortSctp => "KUBE-NODE-PORT-SCTP-HASH",
            Self::NodePortLocalSctp => "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
            Self::HealthCheck => "KUBE-HEALTH-CHECK-NODE-PORT",
            Self::IpvsIps => "KUBE-IPVS-IPS",
            Self::Servers => "KUBE-IPVS-SERVERS",
            Self::Reject => "KUBE-IPVS-REJECT",
            Self::Drop => "KUBE-IPVS-DROP",
            Self::DropOutside => "KUBE-IPVS-DROP-OUTSIDE",
        }
    }

    /// Its name: in IPv6 `KUBE-6-` instead of `KUBE-`, cut to [`LONGEST_NAME`] (ipvs spec 4).
    #[must_use]
    pub fn name(self, family: IpFamily) -> String {
        let base = self.base();
        match (family, base.strip_prefix("KUBE-")) {
            (IpFamily::Ipv6, Some(rest)) => {
                let mut name = format!("KUBE-6-{rest}");
                name.truncate(LONGEST_NAME);
                name
            }
            _ => base.to_owned(),
        }
    }

    /// The set of this name.
    #[must_use]
    pub fn of(name: &str, family: IpFamily) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.name(family) == name)
    }

    /// Its type.
    #[must_use]
    pub fn set_type(self) -> SetType {
        match self {
            Self::IpvsIps => SetType::HashIp,
            Self::LoopBack | Self::LoadBalancerSourceIp => SetType::HashIpPortIp,
            Self::LoadBalancerSourceCidr => SetType::HashIpPortNet,
            Self::NodePortTcp
            | Self::NodePortLocalTcp
            | Self::NodePortUdp
            | Self::NodePortLocalUdp
            | Self::HealthCheck => SetType::BitmapPort,
            _ => SetType::HashIpPort,
        }
    }

    /// What the kernel is asked to make.
    #[must_use]
    pub fn definition(self, family: IpFamily) -> Definition {
        Definition::new(self.name(family), self.set_type(), family)
    }

    /// The comment of rules that look into it.
    #[must_use]
    pub fn comment(self) -> &'static str {
        match self {
            Self::LoopBack => "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
            Self::ClusterIp => "Kubernetes service cluster ip + port for masquerade purpose",
            Self::ExternalIp => "Kubernetes service external ip + port for masquerade and filter purpose",
            Self::ExternalIpLocal => "Kubernetes service external ip + port with externalTrafficPolicy=local",
            Self::LoadBalancer => "Kubernetes service lb portal",
            Self::LoadBalancerLocal => {
                "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"
            }
            Self::LoadBalancerFw => {
                "Kubernetes service load balancer ip + port for load balancer with sourceRange"
            }
            Self::LoadBalancerSourceCidr => {
                "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"
            }
            Self::LoadBalancerSourceIp => {
                "Kubernetes service load balancer ip + port + source IP for packet filter purpose"
            }
            Self::NodePortTcp => "Kubernetes nodeport TCP port for masquerade purpose",
            Self::NodePortLocalTcp => "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
            Self::NodePortUdp => "Kubernetes nodeport UDP port for masquerade purpose",
            Self::NodePortLocalUdp => "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
            Self::NodePortSctp => {
                "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"
            }
            Self::NodePortLocalSctp => {
                "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"
            }
            Self::HealthCheck => "Kubernetes health check node port",
            Self::IpvsIps => "Addresses on the ipvs interface",
            Self::Servers => "Kubernetes service frontends at addresses of other interfaces",
            Self::Reject => "Kubernetes service frontends without endpoints",
            Self::Drop => {
                "Kubernetes service frontends with internalTrafficPolicy=local and no endpoint here"
            }
            Self::DropOutside => {
                "Kubernetes service frontends with externalTrafficPolicy=local and no endpoint here"
            }
        }
    }

    /// For a set that keeps the sources of some frontends: the one that holds these and the others. What is in both keeps its source.
    #[must_use]
    pub fn whole(self) -> Option<Self> {
        Some(match self {
            Self::LoadBalancerLocal => Self::LoadBalancer,
            Self::NodePortLocalTcp => Self::NodePortTcp,
            Self::NodePortLocalUdp => Self::NodePortUdp,
            Self::NodePortLocalSctp => Self::NodePortSctp,
            _ => return None,
        })
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Which sets have entries: rules that look into the others are left out (ipvs spec 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled(u32);

impl Filled {
    /// Has this set an entry?
    #[must_use]
    pub fn has(self, id: SetId) -> bool {
        self.0 & id.bit() != 0
    }

    /// With this set among them.
    #[must_use]
    pub fn with(self, id: SetId) -> Self {
        Self(self.0 | id.bit())
    }

    /// Those of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<SetId> for Filled {
    fn from_iter<T: IntoIterator<Item = SetId>>(ids: T) -> Self {
        ids.into_iter().fold(Self::default(), Self::with)
    }
}

impl SetType {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::HashIp, Self::HashIpPort, Self::HashIpPortIp, Self::HashIpPortNet, Self::BitmapPort];

    /// The kernel's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HashIp => "hash:ip",
            Self::HashIpPort => "hash:ip,port",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashIpPortNet => "hash:ip,port,net",
            Self::BitmapPort => "bitmap:port",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_fit_and_are_all_different() {
        let mut names = BTreeSet::new();
        for family in IpFamily::ALL {
            for id in SetId::ALL {
                let name = id.name(family);
                assert!(name.len() <= LONGEST_NAME, "{name}");
                assert_eq!(SetId::of(&name, family), Some(id));
                assert!(names.insert(name));
            }
        }
        assert_eq!(names.len(), 42);
        let cut: Vec<String> = SetId::ALL
            .into_iter()
            .map(|id| id.name(IpFamily::Ipv6))
            .filter(|n| n.len() == LONGEST_NAME)
            .collect();
        // The two that ipvs spec 4 names, and one that fits to the byte.
        assert!(cut.contains(&"KUBE-6-LOAD-BALANCER-SOURCE-CID".to_owned()), "{cut:?}");
        assert!(cut.contains(&"KUBE-6-NODE-PORT-LOCAL-SCTP-HAS".to_owned()), "{cut:?}");
        assert_eq!(SetId::of("KUBE-CLUSTER-IP", IpFamily::Ipv6), None);
    }

    /// Cases: ipvs-11.24
    #[test]
    fn entries_are_spelled_as_the_kernel_lists_them() {
        let (ip, port) = ("192.0.2.10".parse().unwrap(), Port::new(443).unwrap());
        let range = |text: &str| Entry::IpPortNet(ip, Protocol::Tcp, port, text.parse().unwrap());
        let entries = [
            (Entry::Ip(ip), "192.0.2.10"),
            (Entry::IpPort(ip, Protocol::Sctp, port), "192.0.2.10,sctp:443"),
            (Entry::IpPortIp(ip, Protocol::Udp, port, ip), "192.0.2.10,udp:443,192.0.2.10"),
            (range("203.0.113.0/24"), "192.0.2.10,tcp:443,203.0.113.0/24"),
            (range("198.51.100.7/32"), "192.0.2.10,tcp:443,198.51.100.7"),
            (Entry::Port(port), "443"),
        ];
        for (entry, text) in entries {
            assert_eq!(entry.to_string(), text);
        }
    }
}
