//! The connection tracking table: listing flows, and deleting exactly those.
//!
//! Which flows must go is not decided here. A listing is read as it comes, one flow at a time, so that a million flows take no memory;
//! the kernel leaves out what a [`Filter`] does not ask for, where it can. A deletion names the flow by its whole original tuple, its
//! zone and the number that the kernel gave it, so that another flow that has got the same tuple meanwhile is not hit.
//!
//! The kernel never deletes by pattern on our behalf. A message that it does not understand as we do could then be one that deletes
//! everything: to kernels before 6.8, a deletion with nothing but a filter is "flush".
//!
//! ```no_run
//! use proxier_sys::conntrack::{Conntrack, Filter, Family};
//!
//! # fn main() -> Result<(), proxier_sys::netlink::NetlinkError> {
//! let dns = Filter { destination_port: Some(53), ..Filter::protocol(17) };
//! let mut stale = Vec::new();
//! Conntrack::open()?.list(Family::Ipv4, Some(&dns), |flow| {
//!     if flow.reply.source == "10.244.1.7:53".parse().unwrap() {
//!         stale.push(*flow);
//!     }
//! })?;
//! println!("{} deleted", Conntrack::open()?.delete(&stale)?.deleted);
//! # Ok(())
//! # }
//! ```

mod codec;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use crate::netlink::{
    AttrWriter, Errno, MessageType, NetfilterSocket, NetlinkError, RefusedMessage, Requests, Sent, Walked,
    flags, subsystem,
};

/// `IPCTNL_MSG_CT_NEW`.
const NEW: MessageType = MessageType::new(subsystem::CTNETLINK, 0);
/// `IPCTNL_MSG_CT_GET`.
const GET: MessageType = MessageType::new(subsystem::CTNETLINK, 1);
/// `IPCTNL_MSG_CT_DELETE`.
const DELETE: MessageType = MessageType::new(subsystem::CTNETLINK, 2);

/// Whose flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// That of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
    const fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }
}

/// One direction of a flow. Protocols without ports have port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where its packets come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
    /// The zone of this direction alone; 0 for none.
    pub zone: u16,
}

impl Tuple {
    /// In the default zone.
    #[must_use]
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        Self { source, destination, zone: 0 }
    }
}

/// A tracked flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// IANA protocol number.
    pub protocol: u8,
    /// What the first packet said, before any translation.
    pub original: Tuple,
    /// What an answer says as it comes in: its source is the place that the flow was sent to.
    pub reply: Tuple,
    /// The zone of both directions; 0 for none.
    pub zone: u16,
    /// The kernel's number of this flow; another flow with the same tuples has another one.
    pub id: Option<u32>,
    /// `IPS_*` bits.
    pub status: u32,
}

impl Flow {
    /// Belongs to no zone but the default one.
    #[must_use]
    pub fn in_default_zone(&self) -> bool {
        self.zone == 0 && self.original.zone == 0 && self.reply.zone == 0
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.original.source.ip())
    }

    /// Reads the attributes of one flow of a listing. `None` if they are not those of a flow with addresses.
    #[must_use]
    pub fn read(attributes: &[u8]) -> Option<Self> {
        codec::read(attributes)
    }
}

/// Which flows a listing is of. The parts that are given must all match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// IANA protocol number.
    pub protocol: u8,
    /// Original destination address.
    pub destination: Option<IpAddr>,
    /// Original destination port.
    pub destination_port: Option<u16>,
    /// Source address of the answers.
    pub reply_source: Option<IpAddr>,
    /// Source port of the answers.
    pub reply_source_port: Option<u16>,
}

impl Filter {
    /// All flows of a protocol.
    #[must_use]
    pub const fn protocol(protocol: u8) -> Self {
        Self {
            protocol,
            destination: None,
            destination_port: None,
            reply_source: None,
            reply_source_port: None,
        }
    }

    /// What of it the kernel is asked. Not addresses of IPv6: the kernel compares them the wrong way round, and lists the flows whose
    /// address is another one (`ctnetlink_filter_match_tuple`; seen on 6.18).
    #[must_use]
    pub fn for_the_kernel(self, family: Family) -> Self {
        match family {
            Family::Ipv4 => self,
            Family::Ipv6 => Self { destination: None, reply_source: None, ..self },
        }
    }

    /// Does it ask for this flow?
    #[must_use]
    pub fn matches(&self, flow: &Flow) -> bool {
        let (to, from) = (flow.original.destination, flow.reply.source);
        self.protocol == flow.protocol
            && self.destination.is_none_or(|ip| ip == to.ip())
            && self.destination_port.is_none_or(|port| port == to.port())
            && self.reply_source.is_none_or(|ip| ip == from.ip())
            && self.reply_source_port.is_none_or(|port| port == from.port())
    }
}

/// How a listing went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// To its end, or interrupted.
    pub walked: Walked,
    /// Flows that the kernel listed.
    pub flows: u64,
    /// Those among them that the kernel was not asked for. More than none: it has no such filter (it came with Linux 5.8) and lists
    /// everything.
    pub unasked: u64,
    /// Objects that could not be understood.
    pub malformed: u64,
}

/// What became of flows that were to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Deleted.
    pub deleted: u64,
    /// Not there any more.
    pub gone: u64,
    /// Refused otherwise: `EBUSY` for a flow that hardware has taken over.
    pub refused: Vec<RefusedMessage>,
}

/// A socket to the connection tracking table of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Conntrack {
    socket: NetfilterSocket,
}

impl Conntrack {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: NetfilterSocket::open()? })
    }

    /// What went out since this was asked last.
    pub fn take_sent(&mut self) -> Sent {
        self.socket.take_sent()
    }

    /// Gives each flow of a family that the filter matches to `each` as it comes, once through. The kernel leaves out the others where it
    /// can, otherwise this does.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`]: `EPERM` without CAP_NET_ADMIN; `EOPNOTSUPP` or `EINVAL` from a kernel that knows filters and not this
    /// one; or a failure of the socket, which must then be opened anew.
    pub fn list(
        &mut self,
        family: Family,
        filter: Option<&Filter>,
        mut each: impl FnMut(&Flow),
    ) -> Result<Listing, NetlinkError> {
        let mut out = Listing { walked: Walked::Whole, flows: 0, unasked: 0, malformed: 0 };
        let asked = filter.map(|f| f.for_the_kernel(family));
        let fill = |w: &mut AttrWriter<'_>| {
            if let Some(asked) = &asked {
                codec::write_filter(w, asked);
            }
        };
        out.walked = self.socket.stream(GET, family.number(), fill, |kind, attributes| {
            match (kind == NEW).then(|| codec::read(attributes)).flatten() {
                Some(flow) => {
                    out.flows += 1;
                    out.unasked += u64::from(asked.is_some_and(|f| !f.matches(&flow)));
                    if filter.is_none_or(|f| f.matches(&flow)) {
                        each(&flow);
                    }
                }
                None => out.malformed += 1,
            }
        })?;
        Ok(out)
    }

    /// Deletes these flows and no others.
    ///
    /// # Errors
    /// [`NetlinkError`] when it is not known which were deleted.
    pub fn delete(&mut self, flows: &[Flow]) -> Result<Deletion, NetlinkError> {
        let mut requests = Requests::with_capacity(flows.len() * 128);
        for flow in flows {
            requests.netfilter(DELETE, 0, flow.family().number(), |w| codec::write_identity(w, flow));
        }
        let refused = self.socket.pipeline(&requests)?;
        let (gone, refused): (Vec<_>, Vec<_>) =
            refused.into_iter().partition(|r| r.errno == Errno::ENOENT as i32);
        let missed = gone.len() + refused.len();
        Ok(Deletion { deleted: count(flows.len() - missed), gone: count(gone.len()), refused })
    }

    /// Makes these flows, as if their first packet had just passed. For tests and benchmarks. Returns those that the kernel refused.
    ///
    /// # Errors
    /// [`NetlinkError`] when it is not known which were made.
    pub fn create(&mut self, flows: &[Flow], seconds: u32) -> Result<Vec<RefusedMessage>, NetlinkError> {
        let mut requests = Requests::with_capacity(flows.len() * 160);
        for flow in flows {
            let how = flags::CREATE | flags::EXCL;
            requests.netfilter(NEW, how, flow.family().number(), |w| codec::write_new(w, flow, seconds));
        }
        self.socket.pipeline(&requests)
    }
}

/// Has the kernel load the modules of connection tracking, if it can and they are not there: their settings exist only then. Asking
/// for a flow that nobody has is enough.
pub fn load_modules() {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let tuple = Tuple::new(nowhere, nowhere);
    let nobody = Flow { protocol: 17, original: tuple, reply: tuple, zone: 0, id: None, status: 0 };
    let asked = NetfilterSocket::open()
        .and_then(|mut socket| socket.request(GET, 0, 2, |w| codec::write_identity(w, &nobody)));
    // It is not found, or not to be had; either way the settings tell.
    tracing::debug!(answer = ?asked.err().and_then(|e| e.errno_name()), "asked for connection tracking");
}

fn count(flows: usize) -> u64 {
    u64::try_from(flows).unwrap_or(u64::MAX)
}
