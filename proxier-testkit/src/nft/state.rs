//! A packet on its way: what it looks like now, and what has been decided.

use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::oracle::Packet;

use super::ast::{Field, Side};
use super::value::{Datum, ICMP, ICMPV6, Key};
use crate::walk::{Branch, BranchOutcome, Fraction, WalkError};

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
    pub(super) family: IpFamily,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: Option<Protocol>,
    pub(super) port: u16,
    pub(super) mark: u32,
    /// Empty for a packet of this host.
    pub(super) incoming: Arc<str>,
    pub(super) outgoing: Outgoing,
    pub(super) dnat: Option<(IpAddr, u16)>,
    /// The connection's destination really changed: what `ct status dnat` tells.
    pub(super) translated: bool,
    pub(super) masquerade: bool,
    pub(super) weight: Fraction,
    pub(super) trace: Vec<(&'r str, &'r str)>,
    pub(super) updates: Vec<(&'r str, IpAddr)>,
}

impl<'r> State<'r> {
    pub(super) fn new(family: IpFamily, packet: &Packet, incoming: Arc<str>) -> Self {
        Self {
            family,
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            port: packet.port,
            mark: 0,
            incoming,
            outgoing: Outgoing::None,
            dnat: None,
            translated: false,
            masquerade: false,
            weight: Fraction::ONE,
            trace: Vec::new(),
            updates: Vec::new(),
        }
    }

    pub(super) fn address(&self, side: Side) -> IpAddr {
        match side {
            Side::Source => self.source,
            Side::Destination => self.destination,
        }
    }

    /// Sends it elsewhere.
    pub(super) fn translate(&mut self, address: IpAddr, port: Option<u16>) {
        let port = port.unwrap_or(self.port);
        self.translated = (address, port) != (self.destination, self.port);
        (self.destination, self.port) = (address, port);
        self.dnat = Some((address, port));
    }

    /// All keys that a concatenation can give, each with the same probability; none if it does not apply to the packet.
    pub(super) fn keys(&self, fields: &[Field]) -> Result<Vec<Key>, WalkError> {
        let mut keys = vec![Key::with_capacity(fields.len())];
        for field in fields {
            if let Field::Random { modulus, offset } = field {
                let extend = |key: &Key| {
                    let key = key.clone();
                    (*offset..offset.saturating_add(modulus.get())).map(move |n| {
                        let mut key = key.clone();
                        key.push(Datum::Integer(n));
                        key
                    })
                };
                keys = keys.iter().flat_map(extend).collect();
                continue;
            }
            let Some(value) = self.value(field)? else { return Ok(Vec::new()) };
            keys.iter_mut().for_each(|key| key.push(value.clone()));
        }
        Ok(keys)
    }

    /// The value of a field that is not random; `None` if the rule does not apply to the packet.
    fn value(&self, field: &Field) -> Result<Option<Datum>, WalkError> {
        Ok(Some(match field {
            Field::Address(side) => Datum::Address(self.address(*side)),
            Field::L4Protocol => Datum::Protocol(self.protocol_number()),
            Field::DestinationPort(Some(protocol)) if self.protocol != Some(*protocol) => return Ok(None),
            Field::DestinationPort(_) => Datum::Port(self.port),
            Field::Mark => Datum::Mark(self.mark),
            Field::InputInterface => Datum::Interface(self.incoming.clone()),
            Field::OutputInterface => match &self.outgoing {
                Outgoing::None => Datum::Interface("".into()),
                Outgoing::Known(name) => Datum::Interface(name.clone()),
                Outgoing::Unknown => return Err(WalkError::NoRoute(self.destination)),
            },
            Field::Random { .. } => return Ok(None),
        }))
    }

    fn protocol_number(&self) -> u8 {
        match (self.protocol, self.family) {
            (Some(protocol), _) => protocol.number(),
            (None, IpFamily::Ipv4) => ICMP,
            (None, IpFamily::Ipv6) => ICMPV6,
        }
    }

    pub(super) fn branch(self, outcome: BranchOutcome) -> Branch {
        Branch {
            weight: self.weight,
            outcome,
            trace: self.trace.iter().map(|(chain, rule)| format!("{chain}: {rule}")).collect(),
            affinity_updates: self.updates.iter().map(|(set, ip)| ((*set).to_owned(), *ip)).collect(),
        }
    }
}
