//! Generic netlink family `IPVS`, version 1 (ipvs spec 1.4).

mod decode;
mod encode;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use proxier_core::ids::{EndpointAddr, IpFamily, Port, Protocol};

use crate::objects::{RealServer, ServiceKey, VirtualServer};

pub use decode::{read_info, read_real, read_service, read_timeouts};
pub use encode::{push, put_key, put_timeouts};

/// The family's name.
pub const NAME: &str = "IPVS";

/// Commands.
pub mod command {
    /// Adds a virtual server; `EEXIST` where there is one.
    pub const NEW_SERVICE: u8 = 1;
    /// Changes a virtual server; `ESRCH` where there is none.
    pub const SET_SERVICE: u8 = 2;
    /// Deletes a virtual server with its real servers; `ESRCH` where there is none.
    pub const DELETE_SERVICE: u8 = 3;
    /// One virtual server, or a dump of all.
    pub const GET_SERVICE: u8 = 4;
    /// Adds a real server; `EEXIST` where there is one, `ESRCH` without the virtual server.
    pub const NEW_DESTINATION: u8 = 5;
    /// Changes a real server; `ENOENT` where there is none.
    pub const SET_DESTINATION: u8 = 6;
    /// Deletes a real server; `ENOENT` where there is none.
    pub const DELETE_DESTINATION: u8 = 7;
    /// A dump of the real servers of one virtual server.
    pub const GET_DESTINATION: u8 = 8;
    /// Sets the timeouts.
    pub const SET_CONFIG: u8 = 12;
    /// The timeouts.
    pub const GET_CONFIG: u8 = 13;
    /// Version and size of the connection table.
    pub const GET_INFO: u8 = 15;
}

// Attributes of a message.
const SERVICE: u16 = 1;
const DESTINATION: u16 = 2;
const TIMEOUT_TCP: u16 = 4;
const TIMEOUT_TCP_FIN: u16 = 5;
const TIMEOUT_UDP: u16 = 6;

// Of a virtual server.
const FAMILY: u16 = 1;
const PROTOCOL: u16 = 2;
const ADDRESS: u16 = 3;
const PORT: u16 = 4;
const FWMARK: u16 = 5;
const SCHEDULER: u16 = 6;
const FLAGS: u16 = 7;
const TIMEOUT: u16 = 8;
const NETMASK: u16 = 9;
const ENGINE: u16 = 11;

// Of a real server.
const REAL_ADDRESS: u16 = 1;
const REAL_PORT: u16 = 2;
const METHOD: u16 = 3;
const WEIGHT: u16 = 4;
const UPPER_THRESHOLD: u16 = 5;
const LOWER_THRESHOLD: u16 = 6;
const ACTIVE: u16 = 7;
const INACTIVE: u16 = 8;
const REAL_FAMILY: u16 = 11;

// Of the answer to `GET_INFO`.
const INFO_VERSION: u16 = 1;
const INFO_TABLE: u16 = 2;

/// Clients come back to their real server (`IP_VS_SVC_F_PERSISTENT`).
const PERSISTENT: u32 = 0x1;
/// Every live virtual server carries it; it says nothing (`IP_VS_SVC_F_HASHED`).
const HASHED: u32 = 0x2;
/// The scheduler's second flag; `mh` then counts the client's port as well.
const HASH_PORT: u32 = 0x10;
/// The bits of a real server's connection flags that are its forwarding method; 0 is destination NAT.
const METHOD_MASK: u32 = 0x7;
const MASQUERADE: u32 = 0;
/// An address has 16 bytes in a message, of either family.
const ADDRESS_BYTES: usize = 16;

/// One change of what IPVS holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a virtual server.
    NewService(VirtualServer),
    /// Gives a virtual server this scheduler, persistence and flags; connections stay.
    SetService(VirtualServer),
    /// Deletes a virtual server with its real servers.
    DeleteService(ServiceKey),
    /// Adds a real server.
    NewReal(ServiceKey, RealServer, u32),
    /// Gives a real server this weight, and destination NAT.
    SetReal(ServiceKey, RealServer, u32),
    /// Deletes a real server.
    DeleteReal(ServiceKey, RealServer),
}

impl fmt::Display for Change {
    /// One line of `ipvsadm -R`; `-E`, `-e`, `-D` and `-d` are taken there as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = |key: &ServiceKey| {
            let address = EndpointAddr { ip: key.ip, port: key.port };
            match key.protocol {
                Protocol::Tcp => format!("-t {address}"),
                Protocol::Udp => format!("-u {address}"),
                Protocol::Sctp => format!("--sctp-service {address}"),
            }
        };
        match self {
            Self::NewService(server) | Self::SetService(server) => {
                let letter = if matches!(self, Self::NewService(_)) { 'A' } else { 'E' };
                write!(f, "-{letter} {} -s {}", service(&server.key), server.scheduler)?;
                if let Some(persistence) = server.persistence {
                    write!(f, " -p {}", persistence.as_secs())?;
                }
                if server.hash_port { write!(f, " -b mh-port") } else { Ok(()) }
            }
            Self::DeleteService(key) => write!(f, "-D {}", service(key)),
            Self::NewReal(key, real, weight) => write!(f, "-a {} -r {real} -m -w {weight}", service(key)),
            Self::SetReal(key, real, weight) => write!(f, "-e {} -r {real} -m -w {weight}", service(key)),
            Self::DeleteReal(key, real) => write!(f, "-d {} -r {real}", service(key)),
        }
    }
}

/// How long idle connections are remembered, in whole seconds. In a request 0 keeps what is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP sessions.
    pub tcp: u32,
    /// TCP sessions after a FIN.
    pub tcp_fin: u32,
    /// UDP.
    pub udp: u32,
}

/// What the kernel says of its IPVS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its version: major, minor, patch.
    pub version: (u8, u8, u8),
    /// Buckets of the connection table.
    pub table: u32,
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.version;
        write!(f, "IPVS {major}.{minor}.{patch}, connection table of {} buckets", self.table)
    }
}

/// What identifies a virtual server, of any form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceId {
    /// One as this backend makes them.
    Key(ServiceKey),
    /// One for a firewall mark, for all ports, or of another protocol: somebody else's.
    Foreign(IpFamily, String),
}

impl ServiceId {
    /// Its family.
    pub fn family(&self) -> IpFamily {
        match self {
            Self::Key(key) => IpFamily::of(key.ip),
            Self::Foreign(family, _) => *family,
        }
    }

    /// From its parts; port 0 stands for all ports.
    pub(super) fn new(protocol: Option<Protocol>, ip: IpAddr, port: u16) -> Self {
        match (protocol, Port::new(port)) {
            (Some(protocol), Some(port)) => Self::Key(ServiceKey { protocol, ip, port }),
            (protocol, _) => {
                let protocol = protocol.map_or("another protocol", |protocol| protocol.as_str());
                Self::Foreign(IpFamily::of(ip), format!("{ip} port {port} {protocol}"))
            }
        }
    }

    /// One for packets with a firewall mark.
    pub(super) fn of_mark(family: IpFamily, mark: u32) -> Self {
        Self::Foreign(family, format!("firewall mark {mark} ({family})"))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Foreign(_, text) => text.fmt(f),
        }
    }
}

/// A virtual server as the kernel holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenService {
    /// Which one.
    pub id: ServiceId,
    /// Its scheduler.
    pub scheduler: String,
    /// `IP_VS_SVC_F_*`, without the one that every virtual server has.
    pub flags: u32,
    /// For persistence, in seconds.
    pub timeout: u32,
    /// Clients that differ only outside of it come back to one real server: a mask in network byte order, or the length of a prefix.
    pub netmask: u32,
    /// A persistence engine, such as `sip`.
    pub engine: Option<String>,
}

impl SeenService {
    /// The virtual server, if this backend could have made it just so.
    pub fn as_ours(&self) -> Option<VirtualServer> {
        let ServiceId::Key(key) = self.id else { return None };
        let persistent = self.flags & PERSISTENT != 0;
        let plain = self.flags & !(PERSISTENT | HASH_PORT) == 0 && self.engine.is_none();
        if !plain || (persistent && self.netmask != whole(IpFamily::of(key.ip))) {
            return None;
        }
        Some(VirtualServer {
            key,
            scheduler: self.scheduler.as_str().into(),
            persistence: persistent.then(|| Duration::from_secs(self.timeout.into())),
            hash_port: self.flags & HASH_PORT != 0,
        })
    }
}

/// A real server as the kernel holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenReal {
    /// Its address.
    pub ip: IpAddr,
    /// Its port; 0 is that of the packet.
    pub port: u16,
    /// Its weight.
    pub weight: u32,
    /// Connections that are established.
    pub active: u32,
    /// Other connections.
    pub inactive: u32,
    /// It is reached by destination NAT.
    pub masquerades: bool,
}

impl SeenReal {
    /// Its identity, unless it stands for all ports.
    pub fn server(&self) -> Option<RealServer> {
        Some(EndpointAddr { ip: self.ip, port: Port::new(self.port)? })
    }

    /// Nothing is left of its connections.
    pub fn is_idle(&self) -> bool {
        self.active == 0 && self.inactive == 0
    }
}

/// Persistence is for each client by itself: a mask of all bits, or a prefix of all.
const fn whole(family: IpFamily) -> u32 {
    match family {
        IpFamily::Ipv4 => u32::MAX,
        IpFamily::Ipv6 => 128,
    }
}
