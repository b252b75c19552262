//! Random Services.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Protocol, ServiceName, Timestamp};
use proxier_core::model::{PerFamily, Service, ServicePortSpec, ServiceType, TrafficPolicy};

use super::dice::Dice;
use super::pool;

/// Most ports that a Service has.
const MAX_PORTS: usize = 3;

/// The name of Service number `index`.
#[must_use]
pub(super) fn name(index: u8) -> ServiceName {
    ServiceName::new(if index.is_multiple_of(2) { "blue" } else { "green" }, format!("s{index}"))
}

/// Service number `index`: any type, policies, addresses and ports. Most of its frontends are its own, some are also
/// another's.
pub fn service(dice: &mut Dice, index: u8) -> Service {
    let kind = dice.of([ServiceType::ClusterIp, ServiceType::NodePort, ServiceType::LoadBalancer]);
    let mut cluster_ips = PerFamily::default();
    let mut external_ips: PerFamily<Vec<IpAddr>> = PerFamily::default();
    let mut load_balancer_vips: PerFamily<Vec<IpAddr>> = PerFamily::default();
    let mut source_ranges: PerFamily<Vec<IpNet>> = PerFamily::default();
    let families: &[IpFamily] = match dice.below(6) {
        0 => &[IpFamily::Ipv4],
        1 => &[IpFamily::Ipv6],
        _ => &IpFamily::ALL,
    };
    let has_external = dice.one_in(3);
    let has_vips = if kind == ServiceType::LoadBalancer { !dice.one_in(5) } else { dice.one_in(10) };
    let has_ranges = dice.one_in(2);
    for &family in families {
        let number = if dice.one_in(12) { dice.small(6) } else { index };
        *cluster_ips.get_mut(family) = Some(pool::cluster_ip(family, number + 1));
        if has_external {
            *external_ips.get_mut(family) = addresses(dice, family, 1);
        }
        if has_vips {
            *load_balancer_vips.get_mut(family) = addresses(dice, family, 2);
        }
        if has_ranges {
            *source_ranges.get_mut(family) = dice.some(ranges(family), 3);
        }
    }
    let outside_matters = kind != ServiceType::ClusterIp || has_external;
    let external_policy = if outside_matters { policy(dice) } else { TrafficPolicy::Cluster };
    let checked = kind == ServiceType::LoadBalancer && external_policy == TrafficPolicy::Local;
    Service {
        name: name(index),
        created: (!dice.one_in(4)).then(|| Timestamp(i128::from(dice.small(3)))),
        kind,
        cluster_ips,
        ports: ports(dice, kind),
        external_ips,
        load_balancer_vips,
        source_ranges,
        external_policy,
        internal_policy: if dice.one_in(4) { TrafficPolicy::Local } else { TrafficPolicy::Cluster },
        affinity: dice.one_in(4).then(|| Duration::from_secs(dice.of([10, 10_800]))),
        health_check_node_port: pool::port(dice.of(pool::HEALTH_PORTS))
            .filter(|_| checked && !dice.one_in(4)),
    }
}

fn policy(dice: &mut Dice) -> TrafficPolicy {
    dice.of([TrafficPolicy::Cluster, TrafficPolicy::Local])
}

/// One to three public addresses beginning at number `from`; now and then one of the host or another's cluster IP.
fn addresses(dice: &mut Dice, family: IpFamily, from: u8) -> Vec<IpAddr> {
    let mut out = dice.some((from..from + 3).map(|n| pool::public(family, n)), 2);
    if out.is_empty() {
        out.push(pool::public(family, from));
    }
    out.extend(dice.one_in(8).then_some(pool::machine(family, 3)));
    out.extend(dice.one_in(12).then(|| pool::cluster_ip(family, dice.small(6) + 1)));
    out
}

/// Ranges of clients, of the nodes' network with this node in it, of pods, and of VIPs.
fn ranges(family: IpFamily) -> [IpNet; 6] {
    [
        pool::around(pool::outside(family, 0), 8),
        pool::around(pool::outside(family, 128), 7),
        IpNet::from(pool::outside(family, 7)),
        pool::around(pool::machine(family, 0), 8),
        pool::cluster_cidr(family),
        pool::around(pool::public(family, 0), 2),
    ]
}

/// Names and numbers of one protocol differ, as intake sees to it.
fn ports(dice: &mut Dice, kind: ServiceType) -> Vec<ServicePortSpec> {
    let mut out: Vec<ServicePortSpec> = Vec::new();
    let wanted = 1 + dice.below(MAX_PORTS);
    let has_node_ports = if kind == ServiceType::ClusterIp { dice.one_in(12) } else { !dice.one_in(8) };
    for _ in 0..wanted {
        let protocol = dice.of([Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
        let name = dice.of(["", "http", "dns"]);
        let Some(port) = pool::port(dice.of(pool::SERVICE_PORTS)) else { continue };
        let node_port = pool::port(dice.of(pool::NODE_PORTS)).filter(|_| has_node_ports);
        let siblings = || out.iter().filter(|p| p.protocol == protocol);
        if siblings().any(|p| *p.name == *name || p.port == port) {
            continue;
        }
        let node_port = node_port.filter(|n| siblings().all(|p| p.node_port != Some(*n)));
        out.push(ServicePortSpec { name: name.into(), protocol, port, node_port });
    }
    out
}
