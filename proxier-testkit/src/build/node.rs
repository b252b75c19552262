//! Random nodes and options.

use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::cluster::{DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::model::{NodeFacts, PerFamily};

use super::dice::Dice;
use super::pool;

/// A node: in a zone or not, its own addresses known or not, and a varying set of addresses on its interfaces.
pub fn node(dice: &mut Dice) -> NodeFacts {
    let mut ips = PerFamily::default();
    let mut host_addresses: Vec<IpAddr> = Vec::new();
    for family in IpFamily::ALL {
        let own = pool::machine(family, 3);
        *ips.get_mut(family) = (!dice.one_in(6)).then_some(own);
        host_addresses.extend([pool::loopback(family), own]);
        host_addresses.extend((!dice.one_in(3)).then_some(pool::second(family)));
        host_addresses.extend((!dice.one_in(3)).then_some(pool::local_pod(family, 1)));
        // An external address that is put on an interface, as some load balancers do.
        host_addresses.extend(dice.one_in(6).then_some(pool::public(family, 1)));
    }
    let zone = dice.of([None, Some(pool::ZONES[0]), Some(pool::ZONES[0]), Some(pool::ZONES[1])]);
    let pod_cidrs = IpFamily::ALL.into_iter().filter(|_| !dice.one_in(4)).map(pool::pod_cidr).collect();
    NodeFacts {
        name: NodeName::new(if dice.one_in(20) { "" } else { pool::NODE }),
        zone: zone.map(Into::into),
        ips,
        pod_cidrs,
        host_addresses,
        ..NodeFacts::default()
    }
}

/// Options: every way to detect local traffic, every form of `nodePortAddresses`, ranges of cluster IPs known or not.
pub fn options(dice: &mut Dice) -> TrafficOptions {
    TrafficOptions {
        detect_local: detect_local(dice),
        masquerade_all: dice.one_in(6),
        node_port_addresses: node_port_addresses(dice),
        localhost_node_ports: false,
        service_cidrs: service_cidrs(dice),
        external_ips: !dice.one_in(8),
        node_hints: !dice.one_in(4),
        first_services: std::sync::Arc::new([]),
    }
}

fn detect_local(dice: &mut Dice) -> DetectLocal {
    let both = || IpFamily::ALL.into_iter().map(pool::cluster_cidr).collect();
    match dice.below(8) {
        0 => DetectLocal::ClusterCidr(Vec::new()),
        1 => DetectLocal::ClusterCidr(vec![pool::cluster_cidr(dice.of(IpFamily::ALL))]),
        2 => DetectLocal::NodeCidr,
        3 => DetectLocal::BridgeInterface(pool::INTERFACES[0].into()),
        4 => DetectLocal::InterfaceNamePrefix("veth".into()),
        _ => DetectLocal::ClusterCidr(both()),
    }
}

fn node_port_addresses(dice: &mut Dice) -> NodePortSelector {
    let nets = |ips: [fn(IpFamily) -> IpAddr; 1]| -> Vec<IpNet> {
        IpFamily::ALL.into_iter().flat_map(|f| ips.map(|ip| pool::around(ip(f), 8))).collect()
    };
    let own = |f| pool::machine(f, 3);
    NodePortSelector::Cidrs(match dice.below(9) {
        0 | 1 => return NodePortSelector::Primary,
        2 => nets([own]),
        3 => nets([pool::second]),
        4 => nets([pool::loopback]),
        // Nobody here has such an address.
        5 => nets([|f| pool::outside(f, 0)]),
        6 => vec![pool::around(own(dice.of(IpFamily::ALL)), 8)],
        7 => {
            let mut all = nets([own]);
            all.extend(IpFamily::ALL.into_iter().map(|f| pool::range(pool::loopback(f), 0)));
            all
        }
        _ => Vec::new(),
    })
}

fn service_cidrs(dice: &mut Dice) -> Vec<IpNet> {
    let wide = |f| pool::around(pool::cluster_ip(f, 0), 8);
    let narrow = |f| pool::around(pool::cluster_ip(f, 0), 3);
    match dice.below(5) {
        0 => Vec::new(),
        1 => vec![wide(dice.of(IpFamily::ALL))],
        2 => IpFamily::ALL.into_iter().map(narrow).collect(),
        3 => IpFamily::ALL.into_iter().flat_map(|f| [narrow(f), wide(f)]).collect(),
        _ => IpFamily::ALL.into_iter().map(wide).collect(),
    }
}
