//! The interface whose addresses make packets to services stay on this host (ipvs spec 3).

use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_sys::links::{Link, RouteSocket};
use proxier_sys::netlink::{Errno, NetlinkError, RefusedMessage, errno_name};

use super::Refusal;
use crate::error::{Error, netlink};

/// Its name: that of the reference, whose device is taken over.
pub const DEVICE: &str = "kube-ipvs0";
/// Its kind. It is never brought up: nothing is ever sent through it.
const KIND: &str = "dummy";

/// The interface in one network namespace: that of the thread that opened the socket.
#[derive(Debug)]
pub struct Device {
    socket: RouteSocket,
}

impl Device {
    /// Opens the socket; the interface need not be there.
    ///
    /// # Errors
    /// A failure of the socket.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: RouteSocket::open().map_err(netlink("look for interfaces"))? })
    }

    /// The interface, if it is there; `up` says that somebody brought it up.
    ///
    /// # Errors
    /// [`Error::OtherDevice`], or a failure of the socket.
    pub fn find(&mut self) -> Result<Option<Link>, Error> {
        let Some(link) = self.socket.link(DEVICE).map_err(netlink("look for interface kube-ipvs0"))? else {
            return Ok(None);
        };
        if link.kind.as_deref() != Some(KIND) {
            return Err(Error::OtherDevice { name: link.name, kind: link.kind });
        }
        Ok(Some(link))
    }

    /// The interface, made if it is not there.
    ///
    /// # Errors
    /// [`Error::NoDummies`], [`Error::OtherDevice`], or a failure of the socket.
    pub fn ensure(&mut self) -> Result<Link, Error> {
        const DOING: &str = "make interface kube-ipvs0";
        if let Some(link) = self.find()? {
            return Ok(link);
        }
        match self.socket.create_link(DEVICE, KIND) {
            Ok(()) => {}
            // The other family's instance was faster.
            Err(error) if error.is_exists() => {}
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP as i32) => return Err(Error::NoDummies),
            Err(error) => return Err(netlink(DOING)(error)),
        }
        let gone = NetlinkError::Malformed { what: "the interface is gone as soon as it is made" };
        self.find()?.ok_or(gone).map_err(netlink(DOING))
    }

    /// Deletes the interface with all its addresses; returns whether it was there.
    ///
    /// # Errors
    /// [`Error::OtherDevice`], or a failure of the socket.
    pub fn remove(&mut self) -> Result<bool, Error> {
        match self.find()? {
            Some(link) => self.socket.delete_link(link.index).map_err(netlink("delete interface kube-ipvs0")),
            None => Ok(false),
        }
    }

    /// The single addresses of a family that are bound, sorted; none if the interface is not there. Loopback and link-local IPv6 addresses never count, and
    /// neither do addresses with a network.
    ///
    /// # Errors
    /// [`Error::OtherDevice`], or a failure of the socket.
    pub fn bound(&mut self, family: IpFamily) -> Result<Vec<IpAddr>, Error> {
        let Some(link) = self.find()? else { return Ok(Vec::new()) };
        let addresses =
            self.socket.addresses(link.index).map_err(netlink("list the addresses of kube-ipvs0"))?;
        let single = if family == IpFamily::Ipv4 { 32 } else { 128 };
        let counts = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_loopback(),
            IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        };
        let ours = addresses.into_iter().filter(|address| address.prefix == single);
        Ok(ours.map(|address| address.ip).filter(|ip| IpFamily::of(*ip) == family && counts(*ip)).collect())
    }

    /// Binds addresses, together; returns those that were refused. One that is bound is no refusal.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known which are bound.
    pub fn bind(&mut self, link: &Link, addresses: &[IpAddr]) -> Result<Vec<Refusal>, Error> {
        let refused = self.socket.add_addresses(link.index, addresses);
        Ok(told(&refused.map_err(netlink("bind addresses"))?, &[Errno::EEXIST]))
    }

    /// Unbinds addresses, together; returns those that were refused. One that is not bound, or an interface that is gone, is no refusal.
    ///
    /// # Errors
    /// A failure of the socket, after which it is not known which are bound.
    pub fn unbind(&mut self, link: &Link, addresses: &[IpAddr]) -> Result<Vec<Refusal>, Error> {
        let refused = self.socket.delete_addresses(link.index, addresses);
        let gone = [Errno::EADDRNOTAVAIL, Errno::ENODEV, Errno::ENXIO];
        Ok(told(&refused.map_err(netlink("unbind addresses"))?, &gone))
    }
}

fn told(refused: &[RefusedMessage], fine: &[Errno]) -> Vec<Refusal> {
    let faults = refused.iter().filter(|refused| !fine.contains(&Errno::from_raw(refused.errno)));
    faults.map(|refused| Refusal::new(refused, refused.index.get(), errno_name(refused.errno))).collect()
}
