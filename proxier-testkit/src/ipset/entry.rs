//! Entries, as `ipset` reads and prints them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Protocol};

use super::{Kind, masked};

/// Protocol number and port.
type ProtocolPort = (u8, u16);

/// An entry of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// An address.
    Ip(IpAddr),
    /// A port.
    Port(u16),
    /// An address and a port.
    IpPort(IpAddr, ProtocolPort),
    /// And another address.
    IpPortIp(IpAddr, ProtocolPort, IpAddr),
    /// And a range.
    IpPortNet(IpAddr, ProtocolPort, IpNet),
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Too few or too many parts, or one that is not what it should be.
    #[error("syntax error: {0}")]
    Syntax(String),
    /// An address of the other family.
    #[error("{0} is of another family than the set")]
    Family(String),
    /// The hash takes no range of length 0.
    #[error("the value of the CIDR parameter of the IP address is invalid")]
    Everything,
}

impl Entry {
    /// Reads one.
    ///
    /// # Errors
    /// What the tool would refuse.
    pub fn parse(kind: Kind, family: Option<IpFamily>, text: &str) -> Result<Self, EntryError> {
        let syntax = || EntryError::Syntax(text.to_owned());
        let parts: Vec<&str> = text.split(',').collect();
        let ip = |text: &str| -> Result<IpAddr, EntryError> {
            let ip: IpAddr = text.parse().map_err(|_| EntryError::Syntax(text.to_owned()))?;
            let same = family.is_none_or(|f| ip.is_ipv4() == (f == IpFamily::Ipv4));
            if same { Ok(ip) } else { Err(EntryError::Family(text.to_owned())) }
        };
        match (kind, parts.as_slice()) {
            (Kind::Ip, [a]) => Ok(Self::Ip(ip(a)?)),
            (Kind::Port, [a]) => Ok(Self::Port(a.parse().map_err(|_| syntax())?)),
            (Kind::IpPort, [a, b]) => Ok(Self::IpPort(ip(a)?, port(b)?)),
            (Kind::IpPortIp, [a, b, c]) => Ok(Self::IpPortIp(ip(a)?, port(b)?, ip(c)?)),
            (Kind::IpPortNet, [a, b, c]) => {
                let (address, length) = c.split_once('/').map_or((*c, None), |(a, l)| (a, Some(l)));
                let address = ip(address)?;
                let full = if address.is_ipv4() { 32 } else { 128 };
                let length = length.map_or(Ok(full), str::parse).map_err(|_| syntax())?;
                if length == 0 {
                    return Err(EntryError::Everything);
                }
                let net = IpNet::new(address, length).map_err(|_| syntax())?;
                Ok(Self::IpPortNet(ip(a)?, port(b)?, masked(net)))
            }
            _ => Err(syntax()),
        }
    }
}

/// `tcp:80`; the tool takes a port alone for TCP's.
fn port(text: &str) -> Result<ProtocolPort, EntryError> {
    let syntax = || EntryError::Syntax(text.to_owned());
    let (protocol, number) = text.split_once(':').unwrap_or(("tcp", text));
    let protocol = Protocol::ALL.into_iter().find(|p| p.as_str() == protocol).ok_or_else(syntax)?;
    Ok((protocol.number(), number.parse().map_err(|_| syntax())?))
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |(protocol, number): &ProtocolPort| {
            let name = Protocol::from_number(*protocol).map_or("?", Protocol::as_str);
            format!("{name}:{number}")
        };
        match self {
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Port(number) => write!(f, "{number}"),
            Self::IpPort(ip, p) => write!(f, "{ip},{}", port(p)),
            Self::IpPortIp(ip, p, other) => write!(f, "{ip},{},{other}", port(p)),
            Self::IpPortNet(ip, p, net) if net.prefix_len() == net.max_prefix_len() => {
                write!(f, "{ip},{},{}", port(p), net.addr())
            }
            Self::IpPortNet(ip, p, net) => write!(f, "{ip},{},{net}", port(p)),
        }
    }
}
