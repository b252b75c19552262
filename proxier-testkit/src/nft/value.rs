//! Data types, single values, and patterns of values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Protocol};

/// Type of one component of a key or of a map's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// `ipv4_addr` or `ipv6_addr`.
    Address(IpFamily),
    /// `inet_proto`.
    Protocol,
    /// `inet_service`.
    Port,
    /// `mark`.
    Mark,
    /// `integer`, as `numgen` gives.
    Integer,
    /// `ifname`.
    Interface,
}

impl DataType {
    /// From the name that `type` uses.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "ipv4_addr" => Self::Address(IpFamily::Ipv4),
            "ipv6_addr" => Self::Address(IpFamily::Ipv6),
            "inet_proto" => Self::Protocol,
            "inet_service" => Self::Port,
            "mark" => Self::Mark,
            "integer" => Self::Integer,
            "ifname" => Self::Interface,
            _ => return None,
        })
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Datum {
    /// Address.
    Address(IpAddr),
    /// IANA protocol number.
    Protocol(u8),
    /// Port.
    Port(u16),
    /// Packet mark.
    Mark(u32),
    /// Number.
    Integer(u32),
    /// Interface name; empty when there is no interface.
    Interface(Arc<str>),
}

/// A concatenation of values, as sets and maps look it up.
pub type Key = Vec<Datum>;

impl Datum {
    /// Reads one value of a type.
    pub(super) fn parse(data_type: DataType, text: &str) -> Option<Self> {
        Some(match data_type {
            DataType::Address(IpFamily::Ipv4) => Self::Address(text.parse::<Ipv4Addr>().ok()?.into()),
            DataType::Address(IpFamily::Ipv6) => Self::Address(text.parse::<Ipv6Addr>().ok()?.into()),
            DataType::Protocol => Self::Protocol(protocol_number(text)?),
            DataType::Port => Self::Port(text.parse().ok()?),
            DataType::Mark => Self::Mark(parse_u32(text)?),
            DataType::Integer => Self::Integer(parse_u32(text)?),
            DataType::Interface => Self::Interface(text.into()),
        })
    }
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => ip.fmt(f),
            Self::Protocol(number) => match Protocol::from_number(*number) {
                Some(protocol) => protocol.fmt(f),
                None => number.fmt(f),
            },
            Self::Port(port) => port.fmt(f),
            Self::Mark(mark) => write!(f, "{mark:#010x}"),
            Self::Integer(number) => number.fmt(f),
            Self::Interface(name) => write!(f, "\"{name}\""),
        }
    }
}

fn protocol_number(text: &str) -> Option<u8> {
    Some(match text {
        "icmp" => ICMP,
        "ipv6-icmp" | "icmpv6" => ICMPV6,
        _ => match Protocol::ALL.into_iter().find(|p| p.as_str() == text) {
            Some(protocol) => protocol.number(),
            None => text.parse().ok()?,
        },
    })
}

/// IANA number of ICMP.
pub(super) const ICMP: u8 = 1;
/// IANA number of ICMPv6.
pub(super) const ICMPV6: u8 = 58;

/// A decimal or `0x` hexadecimal number.
pub(super) fn parse_u32(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// What one component of an element stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This value.
    Exact(Datum),
    /// All values from the first to the last, both included.
    Range(Datum, Datum),
    /// Interface names that begin so.
    NamePrefix(Arc<str>),
}

impl Pattern {
    /// Reads a value, a prefix (`10.0.0.0/8`), a range (`80-90`) or a name with `*`.
    pub(super) fn parse(data_type: DataType, text: &str) -> Option<Self> {
        if let DataType::Interface = data_type {
            return Some(match text.strip_suffix('*') {
                Some(prefix) => Self::NamePrefix(prefix.into()),
                None => Self::Exact(Datum::Interface(text.into())),
            });
        }
        if let DataType::Address(family) = data_type
            && text.contains('/')
        {
            let net: IpNet = text.parse().ok()?;
            return (IpFamily::of(net.addr()) == family).then(|| Self::of_net(net));
        }
        match text.split_once('-') {
            Some((first, last)) if data_type != DataType::Protocol => {
                let (first, last) = (Datum::parse(data_type, first)?, Datum::parse(data_type, last)?);
                (first <= last).then_some(Self::Range(first, last))
            }
            _ => Datum::parse(data_type, text).map(Self::Exact),
        }
    }

    fn of_net(net: IpNet) -> Self {
        if net.prefix_len() == net.max_prefix_len() {
            Self::Exact(Datum::Address(net.addr()))
        } else {
            Self::Range(Datum::Address(net.network()), Datum::Address(net.broadcast()))
        }
    }

    /// Does it stand for this value?
    #[must_use]
    pub fn matches(&self, value: &Datum) -> bool {
        match self {
            Self::Exact(own) => own == value,
            Self::Range(first, last) => first <= value && value <= last,
            Self::NamePrefix(prefix) => {
                matches!(value, Datum::Interface(name) if name.starts_with(&**prefix))
            }
        }
    }

    /// Is there a value that both stand for?
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(value), pattern) | (pattern, Self::Exact(value)) => pattern.matches(value),
            (Self::Range(first, last), Self::Range(from, to)) => first <= to && from <= last,
            (Self::NamePrefix(a), Self::NamePrefix(b)) => a.starts_with(&**b) || b.starts_with(&**a),
            _ => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(value) => value.fmt(f),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
            Self::NamePrefix(prefix) => write!(f, "\"{prefix}*\""),
        }
    }
}

/// Joins the components of a key, as nft writes it.
pub(super) fn join<T: ToString>(parts: &[T]) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" . ")
}
