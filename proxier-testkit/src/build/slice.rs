//! Random EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::IpFamily;
use proxier_core::model::{Conditions, EndpointSlice, Hints, Service, SliceEndpoint, SliceName, SlicePort};

use super::dice::Dice;
use super::pool;

/// Most slices of one family that a Service has.
const MAX_SLICES: u8 = 2;
/// Most endpoints of one slice.
const MAX_ENDPOINTS: usize = 4;

/// Conditions of an endpoint: usually ready, else anything (core spec 3.2).
fn conditions(dice: &mut Dice) -> Conditions {
    let (ready, serving, terminating) = match dice.below(10) {
        0 => (false, false, false),
        1 | 2 => (false, true, true),
        3 => (false, true, false),
        4 => (true, true, true),
        5 => (false, false, true),
        _ => (true, true, false),
    };
    Conditions { ready, serving, terminating }
}

/// Which hints the endpoints of one slice have.
#[derive(Clone, Copy)]
enum Hinting {
    None,
    Zones,
    Nodes,
    Both,
    Patchy,
}

fn hints(dice: &mut Dice, hinting: Hinting) -> Hints {
    let zones = |dice: &mut Dice| -> Option<Arc<[Arc<str>]>> {
        Some(if dice.one_in(3) {
            pool::ZONES.into_iter().map(Arc::from).collect()
        } else {
            [Arc::from(dice.of(pool::ZONES))].into()
        })
    };
    let nodes = |dice: &mut Dice| -> Option<Arc<[Arc<str>]>> {
        Some([Arc::from(dice.of([pool::NODE, pool::OTHER_NODE]))].into())
    };
    match hinting {
        Hinting::None => Hints::default(),
        Hinting::Zones => Hints { zones: zones(dice), nodes: None },
        Hinting::Nodes => Hints { zones: None, nodes: nodes(dice) },
        Hinting::Both => Hints { zones: zones(dice), nodes: nodes(dice) },
        Hinting::Patchy => Hints {
            zones: if dice.one_in(4) { None } else { zones(dice) },
            nodes: if dice.one_in(2) { None } else { nodes(dice) },
        },
    }
}

fn endpoint(dice: &mut Dice, ip: IpAddr, hinting: Hinting) -> SliceEndpoint {
    SliceEndpoint { ip, conditions: conditions(dice), node: pool::node_of(ip), hints: hints(dice, hinting) }
}

/// Slice number `number` of a Service in one family. It has most of the Service's ports.
pub fn slice(dice: &mut Dice, service: &Service, family: IpFamily, number: u8) -> EndpointSlice {
    let mut ports = Vec::new();
    for port in &service.ports {
        let (missing, target) = (dice.one_in(10), pool::port(dice.of(pool::TARGET_PORTS)));
        if let Some(target) = target.filter(|_| !missing) {
            ports.push(SlicePort { name: Arc::clone(&port.name), protocol: port.protocol, port: target });
        }
    }
    let hinting = dice.of([
        Hinting::None,
        Hinting::None,
        Hinting::Zones,
        Hinting::Nodes,
        Hinting::Both,
        Hinting::Patchy,
    ]);
    let mut addresses = pool::endpoints(family);
    dice.shuffle(&mut addresses);
    addresses.truncate(dice.below(MAX_ENDPOINTS + 1));
    let endpoints = addresses.into_iter().map(|ip| endpoint(dice, ip, hinting)).collect();
    let family_name = if family == IpFamily::Ipv4 { "v4" } else { "v6" };
    EndpointSlice {
        name: SliceName {
            service: service.name.clone(),
            name: format!("{}-{family_name}-{number}", service.name.name).into(),
        },
        family,
        ports,
        endpoints,
        trigger: None,
    }
}

/// No, one or two slices in each family.
pub fn slices(dice: &mut Dice, service: &Service) -> Vec<EndpointSlice> {
    let mut out = Vec::new();
    for family in IpFamily::ALL {
        let count = if dice.one_in(6) { 0 } else { 1 + dice.small(MAX_SLICES) };
        out.extend((0..count).map(|n| slice(dice, service, family, n)));
    }
    out
}
