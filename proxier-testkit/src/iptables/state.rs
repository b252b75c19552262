//! A packet on its way: what it looks like now, and what has been decided.

use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::oracle::Packet;

use crate::walk::{Branch, BranchOutcome, Fraction};

/// The outgoing interface.
#[derive(Clone, Debug)]
pub(super) enum Outgoing {
    /// Not decided yet; rules see an empty name.
    None,
    /// This one.
    Known(Arc<str>),
    /// There is one, but the question does not tell which.
    Unknown,
}

/// One branch while it is being followed.
#[derive(Clone, Debug)]
pub(super) struct State<'r> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// IANA number.
    pub(super) protocol: u8,
    /// Destination port; `None` where the protocol has none.
    pub(super) port: Option<u16>,
    pub(super) mark: u32,
    /// Empty for a packet of this host.
    pub(super) incoming: Arc<str>,
    pub(super) outgoing: Outgoing,
    pub(super) dnat: Option<(IpAddr, u16)>,
    /// The connection's destination really changed: what `--ctstate DNAT` tells.
    pub(super) translated: bool,
    pub(super) masquerade: bool,
    /// The virtual server that IPVS found it to be for.
    pub(super) virtual_server: Option<(IpAddr, u16)>,
    pub(super) weight: Fraction,
    /// Chains with the rules that matched.
    pub(super) trace: Vec<(&'r str, &'r str)>,
    pub(super) updates: Vec<(&'r str, IpAddr)>,
}

impl<'r> State<'r> {
    pub(super) fn new(family: IpFamily, packet: &Packet, incoming: Arc<str>) -> Self {
        let without_ports = if family == IpFamily::Ipv4 { 1 } else { 58 };
        Self {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol.map_or(without_ports, Protocol::number),
            port: packet.protocol.map(|_| packet.port),
            mark: 0,
            incoming,
            outgoing: Outgoing::None,
            dnat: None,
            translated: false,
            masquerade: false,
            virtual_server: None,
            weight: Fraction::ONE,
            trace: Vec::new(),
            updates: Vec::new(),
        }
    }

    /// Sends it elsewhere.
    pub(super) fn translate(&mut self, address: IpAddr, port: Option<u16>) {
        let port = port.or(self.port);
        self.translated = (address, port) != (self.destination, self.port);
        (self.destination, self.port) = (address, port);
        self.dnat = Some((address, port.unwrap_or_default()));
    }

    pub(super) fn branch(self, outcome: BranchOutcome) -> Branch {
        Branch {
            weight: self.weight,
            outcome,
            trace: self.trace.iter().map(|(chain, rule)| format!("{chain}: {rule}")).collect(),
            affinity_updates: self.updates.iter().map(|(list, ip)| ((*list).to_owned(), *ip)).collect(),
        }
    }
}
