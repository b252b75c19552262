//! What IPVS holds: virtual servers and real servers (ipvs spec 2).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proxier_core::ids::{EndpointAddr, Port, Protocol};

/// What identifies a virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Protocol.
    pub protocol: Protocol,
    /// Address.
    pub ip: IpAddr,
    /// Port.
    pub port: Port,
}

impl fmt::Display for ServiceKey {
    /// The text of the reference: `ip:port/PROTO`, `[ip]:port/PROTO`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = EndpointAddr { ip: self.ip, port: self.port };
        write!(f, "{address}/{}", self.protocol.as_str().to_ascii_uppercase())
    }
}

/// A virtual server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualServer {
    /// Where it answers.
    pub key: ServiceKey,
    /// The kernel's name of its scheduler.
    pub scheduler: Arc<str>,
    /// Clients come back to the real server they had for this long (`IP_VS_SVC_F_PERSISTENT`); whole seconds.
    pub persistence: Option<Duration>,
    /// The hash of scheduler `mh` counts the client's port as well (`IP_VS_SVC_F_SCHED_MH_PORT`, 0x10).
    pub hash_port: bool,
}

/// A real server of some virtual server. Always reached by destination NAT (`IP_VS_CONN_F_MASQ`).
pub type RealServer = EndpointAddr;

/// The weight of a real server that takes part.
pub const WEIGHT: u32 = 1;
/// The weight of one that takes no new connections and keeps those it has.
pub const DRAINING: u32 = 0;
