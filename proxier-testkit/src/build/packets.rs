//! Packets that ask the interesting questions about a snapshot.

use std::net::IpAddr;

use proxier_core::ids::{EndpointAddr, IpFamily, Protocol};
use proxier_core::oracle::{Entry, Packet};
use proxier_core::snapshot::{FrontendKey, NodePortAddresses, ServicePort, Snapshot};

use super::dice::Dice;
use super::pool;
use crate::walk::WalkHost;

/// The host that a snapshot is made for, as a packet walker sees it.
#[must_use]
pub fn host_of(snapshot: &Snapshot) -> WalkHost {
    WalkHost::new(snapshot.context().node.host_addresses.iter().copied())
}

/// Random packets of the snapshot's family: to frontends, beside them, to addresses of the host, to cluster IPs that nobody
/// has; from pods, endpoints, VIPs, the host and clients in and out of source ranges; by every entry and protocol.
#[must_use]
pub fn packets(dice: &mut Dice, snapshot: &Snapshot, count: usize) -> Vec<Packet> {
    let mut aim = Aim::new(snapshot);
    (0..count).map(|_| aim.packet(dice)).collect()
}

struct Aim<'a> {
    family: IpFamily,
    ports: Vec<&'a ServicePort>,
    node_port_addresses: Vec<IpAddr>,
    host: Vec<IpAddr>,
    outside: [IpAddr; 5],
}

impl<'a> Aim<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let family = snapshot.family();
        let context = snapshot.context();
        let host: Vec<IpAddr> =
            context.node.host_addresses.iter().filter(|ip| IpFamily::of(**ip) == family).copied().collect();
        let node_port_addresses = match &context.node_port_addresses {
            NodePortAddresses::Only(ips) => ips.to_vec(),
            NodePortAddresses::MatchAll => host.clone(),
        };
        Self {
            family,
            ports: snapshot.ports().map(AsRef::as_ref).collect(),
            node_port_addresses,
            host,
            outside: [
                pool::outside(family, 7),
                pool::outside(family, 8),
                pool::outside(family, 200),
                pool::machine(family, 5),
                pool::machine(family, 4),
            ],
        }
    }

    fn packet(&mut self, dice: &mut Dice) -> Packet {
        let port = dice.pick(&self.ports).copied();
        let (destination, mut protocol, mut number) = match port {
            Some(port) if !dice.one_in(6) => self.frontend(dice, port),
            _ => self.anywhere(dice),
        };
        match dice.below(12) {
            0 => protocol = dice.of(Protocol::ALL.map(Some)),
            1 => number = dice.of(pool::SERVICE_PORTS),
            2 => number = dice.of(pool::NODE_PORTS),
            3 => (protocol, number) = (None, 0),
            _ => {}
        }
        let (source, entry) = self.source(dice, port, destination);
        Packet { source, destination, protocol, port: number, entry }
    }

    /// An address and port that the service port has, or would have.
    fn frontend(&self, dice: &mut Dice, port: &ServicePort) -> (IpAddr, Option<Protocol>, u16) {
        let own = port.frontends.iter().chain(port.conflicts.iter().map(|c| &c.frontend));
        let keys: Vec<FrontendKey> = own.map(|f| f.key).collect();
        match dice.pick(&keys) {
            Some(FrontendKey::Address { ip, protocol, port }) => (*ip, Some(*protocol), port.get()),
            Some(FrontendKey::NodePort { protocol, port }) => {
                let answering = dice.pick(&self.node_port_addresses).copied();
                let other = if dice.one_in(4) { dice.pick(&self.host).copied() } else { None };
                (other.or(answering).unwrap_or(self.outside[4]), Some(*protocol), port.get())
            }
            None => (port.spec.cluster_ip, Some(port.protocol()), port.port.get()),
        }
    }

    fn anywhere(&self, dice: &mut Dice) -> (IpAddr, Option<Protocol>, u16) {
        let destination = match dice.below(6) {
            0 => pool::cluster_ip(self.family, dice.small(12)),
            1 => pool::public(self.family, dice.small(6)),
            2 => dice.pick(&self.host).copied().unwrap_or(self.outside[0]),
            3 => dice.pick(&pool::endpoints(self.family)).copied().unwrap_or(self.outside[0]),
            4 => pool::cluster_ip(self.family, 200),
            _ => dice.of(self.outside),
        };
        let number = match dice.below(4) {
            0 => dice.of(pool::NODE_PORTS),
            1 => dice.of(pool::HEALTH_PORTS),
            2 => dice.of(pool::TARGET_PORTS),
            _ => dice.of(pool::SERVICE_PORTS),
        };
        (destination, Some(dice.of(Protocol::ALL)), number)
    }

    fn source(&self, dice: &mut Dice, port: Option<&ServicePort>, destination: IpAddr) -> (IpAddr, Entry) {
        let endpoint = |dice: &mut Dice| {
            let all: Vec<EndpointAddr> =
                port.iter().flat_map(|p| p.endpoints.iter()).map(|e| e.addr).collect();
            dice.pick(&all).map(|e| e.ip)
        };
        let vip = |dice: &mut Dice| port.and_then(|p| dice.pick(&p.spec.load_balancer_vips).copied());
        let source = match dice.below(10) {
            0 | 1 => Some(pool::local_pod(self.family, 9)),
            2 => Some(pool::remote_pod(self.family, 9)),
            3 | 4 => endpoint(dice),
            5 => vip(dice),
            6 => dice.pick(&self.host).copied(),
            7 => Some(destination),
            _ => None,
        };
        let source = source.unwrap_or_else(|| dice.of(self.outside));
        let sent_here = self.host.contains(&source) || source.is_loopback();
        let entry = if (sent_here && !dice.one_in(8)) || dice.one_in(12) {
            Entry::Host
        } else {
            Entry::Interface(dice.of(pool::INTERFACES).into())
        };
        (source, entry)
    }
}
