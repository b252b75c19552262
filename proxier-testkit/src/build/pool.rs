//! The addresses, ports and names that random clusters are made of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Port};

/// The node that the cluster is seen from.
pub const NODE: &str = "worker";
/// Another node.
pub const OTHER_NODE: &str = "worker2";
/// Zones.
pub const ZONES: [&str; 2] = ["zone-a", "zone-b"];
/// Interfaces that packets arrive on: a bridge, a pod's own, the uplink.
pub const INTERFACES: [&str; 3] = ["cni0", "veth7", "eth0"];
/// Numbers of service ports.
pub const SERVICE_PORTS: [u16; 3] = [53, 80, 443];
/// Numbers of node ports.
pub const NODE_PORTS: [u16; 3] = [30_001, 30_002, 30_003];
/// Numbers of endpoints' ports; none of them is a service port or node port.
pub const TARGET_PORTS: [u16; 3] = [8080, 8081, 9090];
/// Numbers of health check node ports.
pub const HEALTH_PORTS: [u16; 2] = [32_001, 32_002];

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

fn v6(head: [u16; 4], tail: u8) -> IpAddr {
    let [a, b, c, d] = head;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, u16::from(tail)))
}

/// Cluster IP number `n`, from 10.96.0.0/24 and fd00:10:96::/112.
#[must_use]
pub fn cluster_ip(family: IpFamily, n: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(10, 96, 0, n),
        IpFamily::Ipv6 => v6([0xfd00, 0x10, 0x96, 0], n),
    }
}

/// A pod of this node, from 10.244.1.0/24 and fd00:10:244:1::/64; number 1 is the host's own, on the pods' bridge.
#[must_use]
pub fn local_pod(family: IpFamily, n: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(10, 244, 1, n),
        IpFamily::Ipv6 => v6([0xfd00, 0x10, 0x244, 1], n),
    }
}

/// A pod of another node, from 10.244.2.0/24 and fd00:10:244:2::/64.
#[must_use]
pub fn remote_pod(family: IpFamily, n: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(10, 244, 2, n),
        IpFamily::Ipv6 => v6([0xfd00, 0x10, 0x244, 2], n),
    }
}

/// A machine of the nodes' network, 172.30.0.0/24 and fd00:30::/64; number 3 is this node.
#[must_use]
pub fn machine(family: IpFamily, n: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(172, 30, 0, n),
        IpFamily::Ipv6 => v6([0xfd00, 0x30, 0, 0], n),
    }
}

/// This node's address of a second network.
#[must_use]
pub fn second(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(192, 168, 7, 3),
        IpFamily::Ipv6 => v6([0xfd00, 0x77, 0, 0], 3),
    }
}

/// Load balancer VIPs and external IPs, from 192.0.2.0/24 and 2001:db8::/64.
#[must_use]
pub fn public(family: IpFamily, n: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(192, 0, 2, n),
        IpFamily::Ipv6 => v6([0x2001, 0xdb8, 0, 0], n),
    }
}

/// Clients beyond the nodes' network; some of them lie in the source ranges.
#[must_use]
pub fn outside(family: IpFamily, n: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => v4(203, 0, 113, n),
        IpFamily::Ipv6 => v6([0x2001, 0xdb8, 0x113, 0], n),
    }
}

/// The loopback address.
#[must_use]
pub fn loopback(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::Ipv4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpFamily::Ipv6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

/// The range of this many leading bits that an address lies in.
#[must_use]
pub fn range(ip: IpAddr, bits: u8) -> IpNet {
    IpNet::new(ip, bits).map_or_else(|_| IpNet::from(ip), |net| net.trunc())
}

/// The range that is `from_end` bits wide at its end: 8 is a /24 or a /120.
#[must_use]
pub fn around(ip: IpAddr, from_end: u8) -> IpNet {
    range(ip, if ip.is_ipv4() { 32 - from_end } else { 128 - from_end })
}

/// All pods of the cluster.
#[must_use]
pub fn cluster_cidr(family: IpFamily) -> IpNet {
    match family {
        IpFamily::Ipv4 => range(local_pod(family, 0), 16),
        IpFamily::Ipv6 => range(local_pod(family, 0), 48),
    }
}

/// Pods of this node.
#[must_use]
pub fn pod_cidr(family: IpFamily) -> IpNet {
    match family {
        IpFamily::Ipv4 => range(local_pod(family, 0), 24),
        IpFamily::Ipv6 => range(local_pod(family, 0), 64),
    }
}

/// Addresses that endpoints have: pods here and elsewhere, and hosts.
#[must_use]
pub fn endpoints(family: IpFamily) -> Vec<IpAddr> {
    let here = (2..=6).map(|n| local_pod(family, n));
    let there = (2..=6).map(|n| remote_pod(family, n));
    here.chain(there).chain([machine(family, 3), machine(family, 4)]).collect()
}

/// The node that an endpoint's address is on; pods whose address ends in 6 do not say.
#[must_use]
pub fn node_of(ip: IpAddr) -> Option<Arc<str>> {
    let family = IpFamily::of(ip);
    let pods = |pod: fn(IpFamily, u8) -> IpAddr| (2..=5).any(|n| pod(family, n) == ip);
    if pods(local_pod) || ip == machine(family, 3) {
        Some(NODE.into())
    } else if pods(remote_pod) || ip == machine(family, 4) {
        Some(OTHER_NODE.into())
    } else {
        None
    }
}

/// A port from the pools above, none of which holds 0.
pub(super) fn port(number: u16) -> Option<Port> {
    Port::new(number)
}
