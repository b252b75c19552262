//! Network interfaces and the addresses on one of them, over rtnetlink.

use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::libc;

use crate::netlink::{Attr, AttrIter, NetlinkError, RefusedMessage, Requests, Sent, Transport, flags};

// Messages of `linux/rtnetlink.h`.
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;

/// `struct ifinfomsg`: family, padding, device type, index, flags, mask of the flags that change.
const LINK_HEADER: usize = 16;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, index of the interface.
const ADDRESS_HEADER: usize = 8;

// Attributes of `linux/if_link.h` and `linux/if_addr.h`.
const LINK_NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
/// `IFA_F_NODAD`: the address is used at once, nobody is asked whether it is taken.
const NO_DUPLICATE_DETECTION: u32 = 2;

/// The longest name of an interface, in bytes (`IFNAMSIZ` without its terminator).
pub const LONGEST_NAME: usize = 15;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number by which requests name it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What kind of virtual device it is (`dummy`, `bridge`, `veth`, ...); `None` for others.
    pub kind: Option<String>,
    /// It is administratively up (`IFF_UP`).
    pub up: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
    /// How far it is meant to be known: 0 everywhere, 253 on the link, 254 on this host (`RT_SCOPE_*`).
    pub scope: u8,
}

/// A socket to the interfaces of one network namespace: that of the thread that opened it.
#[derive(Debug)]
pub struct RouteSocket {
    transport: Transport,
}

impl RouteSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { transport: Transport::open(NETLINK_ROUTE)? })
    }

    /// What went out since this was asked last.
    pub fn take_sent(&mut self) -> Sent {
        self.transport.take_sent()
    }

    /// The interface of this name, if there is one.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`], [`NetlinkError::Malformed`], or a failure of the socket.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let answers = self.transport.request(GET_LINK, 0, &[0; LINK_HEADER], |w| w.put_str(LINK_NAME, name));
        let answers = match answers {
            Err(error) if is(&error, Errno::ENODEV) => return Ok(None),
            answers => answers?,
        };
        let read = answers.first().and_then(|answer| read_link(&answer.payload));
        read.map(Some).ok_or(NetlinkError::Malformed { what: "interface without a name" })
    }

    /// Makes a virtual interface, which is down. The kernel loads the module of its kind if it can.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`]: `is_exists` when the name is taken, `EOPNOTSUPP` when the kernel does not know the kind.
    pub fn create_link(&mut self, name: &str, kind: &str) -> Result<(), NetlinkError> {
        let flags = flags::CREATE | flags::EXCL;
        let answered = self.transport.request(NEW_LINK, flags, &[0; LINK_HEADER], |w| {
            w.put_str(LINK_NAME, name);
            w.nest(LINK_INFO, |w| w.put_str(INFO_KIND, kind));
        });
        answered.map(drop)
    }

    /// Deletes an interface with its addresses; returns whether it was there.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`], or a failure of the socket.
    pub fn delete_link(&mut self, index: u32) -> Result<bool, NetlinkError> {
        let mut header = [0; LINK_HEADER];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        match self.transport.request(DELETE_LINK, 0, &header, |_| {}) {
            Err(error) if is(&error, Errno::ENODEV) => Ok(false),
            answered => answered.map(|_| true),
        }
    }

    /// All addresses of an interface, of both families, sorted.
    ///
    /// # Errors
    /// [`NetlinkError::DumpInterrupted`], or a failure of the socket.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<LinkAddress>, NetlinkError> {
        let answers = self.transport.dump(GET_ADDRESS, &[0; ADDRESS_HEADER], |_| {})?;
        let mut addresses: Vec<_> = answers
            .iter()
            .filter(|answer| answer.kind == NEW_ADDRESS)
            .filter_map(|answer| read_address(&answer.payload))
            .filter_map(|(on, address)| (on == index).then_some(address))
            .collect();
        addresses.sort_unstable();
        Ok(addresses)
    }

    /// Adds single addresses (/32, /128) of global scope to an interface, each for itself. Returns the refused ones by their place in `addresses`:
    /// `EEXIST` for one that is there, `EACCES` for IPv6 where the interface has it switched off.
    ///
    /// Nobody is asked whether an IPv6 address is taken.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known which are there.
    pub fn add_addresses(
        &mut self,
        index: u32,
        addresses: &[IpAddr],
    ) -> Result<Vec<RefusedMessage>, NetlinkError> {
        self.change(NEW_ADDRESS, flags::CREATE | flags::EXCL, index, addresses)
    }

    /// Takes single addresses (/32, /128) off an interface, each for itself. Returns the refused ones by their place in `addresses`:
    /// `EADDRNOTAVAIL` for one that is not there.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known which are there.
    pub fn delete_addresses(
        &mut self,
        index: u32,
        addresses: &[IpAddr],
    ) -> Result<Vec<RefusedMessage>, NetlinkError> {
        self.change(DELETE_ADDRESS, 0, index, addresses)
    }

    fn change(
        &mut self,
        kind: u16,
        flags: u16,
        index: u32,
        addresses: &[IpAddr],
    ) -> Result<Vec<RefusedMessage>, NetlinkError> {
        let mut requests = Requests::with_capacity(addresses.len() * 64);
        for ip in addresses {
            push_address(&mut requests, kind, flags, index, *ip);
        }
        self.transport.pipeline(&requests)
    }
}

fn push_address(requests: &mut Requests, kind: u16, flags: u16, index: u32, ip: IpAddr) {
    let (family, bits) = match ip {
        IpAddr::V4(_) => (libc::AF_INET, 32),
        IpAddr::V6(_) => (libc::AF_INET6, 128),
    };
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    // Address families are small numbers.
    let header = [family.to_le_bytes()[0], bits, 0, 0, i0, i1, i2, i3];
    requests.push(kind, flags, &header, |w| match ip {
        IpAddr::V4(ip) => {
            w.put_bytes(LOCAL, &ip.octets());
            w.put_bytes(ADDRESS, &ip.octets());
        }
        IpAddr::V6(ip) => {
            w.put_bytes(ADDRESS, &ip.octets());
            if kind == NEW_ADDRESS {
                w.put_u32(ADDRESS_FLAGS, NO_DUPLICATE_DETECTION);
            }
        }
    });
}

fn is(error: &NetlinkError, errno: Errno) -> bool {
    error.errno() == Some(errno as i32)
}

fn read_link(payload: &[u8]) -> Option<Link> {
    let (&[_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..], attributes) =
        payload.split_first_chunk::<LINK_HEADER>()?;
    let (mut name, mut kind) = (None, None);
    for attr in AttrIter::new(attributes).map_while(Result::ok) {
        match attr.kind {
            LINK_NAME => name = attr.str().ok(),
            LINK_INFO => {
                let inner = attr.nested().map_while(Result::ok).find(|attr| attr.kind == INFO_KIND);
                kind = inner.and_then(|attr| attr.str().ok());
            }
            _ => {}
        }
    }
    let up = u32::from_ne_bytes([f0, f1, f2, f3]) & libc::IFF_UP.cast_unsigned() != 0;
    Some(Link {
        index: u32::from_ne_bytes([i0, i1, i2, i3]),
        name: name?.to_owned(),
        kind: kind.map(str::to_owned),
        up,
    })
}

/// The number of the interface, and the address.
fn read_address(payload: &[u8]) -> Option<(u32, LinkAddress)> {
    let (&[_family, prefix, _flags, scope, i0, i1, i2, i3], attributes) =
        payload.split_first_chunk::<ADDRESS_HEADER>()?;
    let (mut address, mut local) = (None, None);
    for attr in AttrIter::new(attributes).map_while(Result::ok) {
        match attr.kind {
            ADDRESS => address = ip(attr),
            LOCAL => local = ip(attr),
            _ => {}
        }
    }
    // With a peer, the address is the peer's and the local one is ours.
    let address = LinkAddress { ip: local.or(address)?, prefix, scope };
    Some((u32::from_ne_bytes([i0, i1, i2, i3]), address))
}

fn ip(attr: Attr<'_>) -> Option<IpAddr> {
    match attr.payload.len() {
        4 => <[u8; 4]>::try_from(attr.payload).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(attr.payload).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::host_addresses;
    use crate::netlink::errno_name;
    use crate::netns;

    #[test]
    fn damaged_objects_are_none() {
        assert_eq!(read_link(&[0; 15]), None);
        assert_eq!(read_link(&[0; 16]), None);
        assert_eq!(read_address(&[0; 7]), None);
        assert_eq!(read_address(&[0; 8]), None);
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// A device of any kind has addresses and is down; this kernel need not have dummies.
    fn with_link(kind: &str) -> (RouteSocket, Link) {
        netns::enter_new().unwrap();
        let mut socket = RouteSocket::open().unwrap();
        assert_eq!(socket.link("kube-ipvs0").unwrap(), None);
        socket.create_link("kube-ipvs0", kind).unwrap();
        let link = socket.link("kube-ipvs0").unwrap().unwrap();
        (socket, link)
    }

    fn addresses_come_and_go(kind: &str) {
        let (mut socket, link) = with_link(kind);
        assert_eq!((link.name.as_str(), link.kind.as_deref(), link.up), ("kube-ipvs0", Some(kind), false));
        assert!(socket.create_link("kube-ipvs0", kind).unwrap_err().is_exists());
        let wanted = ips(&["10.96.0.1", "10.96.0.10", "fd00::1", "fd00::2"]);
        assert_eq!(socket.add_addresses(link.index, &wanted).unwrap(), []);
        let seen = socket.addresses(link.index).unwrap();
        assert_eq!(seen.iter().map(|a| a.ip).collect::<Vec<_>>(), wanted);
        assert!(
            seen.iter().all(|a| a.prefix == if a.ip.is_ipv4() { 32 } else { 128 } && a.scope == 0),
            "{seen:?}"
        );

        let again = ips(&["10.96.0.2", "10.96.0.10", "fd00::2", "fd00::3"]);
        let refused = socket.add_addresses(link.index, &again).unwrap();
        let refused: Vec<_> = refused.iter().map(|r| (r.index.get(), errno_name(r.errno))).collect();
        assert_eq!(refused, [(1, "EEXIST".to_owned()), (2, "EEXIST".to_owned())]);
        let gone = ips(&["10.96.0.1", "10.96.0.9", "fd00::2", "fd00::9"]);
        let refused = socket.delete_addresses(link.index, &gone).unwrap();
        let refused: Vec<_> = refused.iter().map(|r| (r.index.get(), errno_name(r.errno))).collect();
        assert_eq!(refused, [(1, "EADDRNOTAVAIL".to_owned()), (3, "EADDRNOTAVAIL".to_owned())]);
        let left = ips(&["10.96.0.2", "10.96.0.10", "fd00::1", "fd00::3"]);
        assert_eq!(socket.addresses(link.index).unwrap().iter().map(|a| a.ip).collect::<Vec<_>>(), left);
        let on_link = host_addresses().unwrap().into_iter().filter(|(name, _)| name == "kube-ipvs0");
        assert_eq!(on_link.map(|(_, ip)| ip).collect::<Vec<_>>(), left);

        assert!(socket.delete_link(link.index).unwrap());
        assert!(!socket.delete_link(link.index).unwrap());
        assert_eq!(socket.link("kube-ipvs0").unwrap(), None);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn addresses_of_a_bridge_come_and_go() {
        addresses_come_and_go("bridge");
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn addresses_of_a_dummy_come_and_go_where_the_kernel_has_them() {
        netns::enter_new().unwrap();
        match RouteSocket::open().unwrap().create_link("trial", "dummy") {
            Ok(()) => addresses_come_and_go("dummy"),
            // Any other refusal would be a fault of the message.
            Err(error) => assert_eq!(error.errno(), Some(Errno::EOPNOTSUPP as i32), "{error}"),
        }
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn thousands_of_addresses_go_in_together() {
        let (mut socket, link) = with_link("bridge");
        let many: Vec<IpAddr> = (0..3000u32).map(|i| IpAddr::from((0x0a60_0000 + i).to_be_bytes())).collect();
        assert_eq!(socket.add_addresses(link.index, &many).unwrap(), []);
        assert_eq!(socket.add_addresses(link.index, &many).unwrap().len(), 3000);
        assert_eq!(socket.addresses(link.index).unwrap().len(), 3000);
        assert_eq!(socket.delete_addresses(link.index, &many).unwrap(), []);
        assert_eq!(socket.addresses(link.index).unwrap(), []);
    }
}
