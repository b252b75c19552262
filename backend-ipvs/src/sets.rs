//! The ipsets: names, types and entries (ipvs spec 4).

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{Port, Protocol};

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
