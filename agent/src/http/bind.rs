//! Listening sockets whose families are said, not left to the system's settings.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, setsockopt, sockopt,
};

/// Connections that wait to be accepted.
const WAITING: i32 = 1024;

/// Listens at this address. An unspecified one, of either family, takes connections of both, where this machine has both (core spec 4.2).
///
/// # Errors
/// The address is not this machine's, or taken.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return bind_one_family(address);
    }
    let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
    match listen(both, false) {
        // no IPv6 in this kernel, or switched off
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => bind_one_family(address),
        result => Ok(result?),
    }
}

/// Listens at this address in its family only: `::` leaves IPv4 to somebody else (core spec 4.1).
///
/// # Errors
/// The address is not this machine's, or taken.
pub fn bind_one_family(address: SocketAddr) -> io::Result<TcpListener> {
    Ok(listen(address, true)?)
}

fn listen(address: SocketAddr, one_family: bool) -> Result<TcpListener, Errno> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // connections of a listener that is gone do not keep its port
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &one_family)?;
    }
    let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
    socket::bind(raw, &SockaddrStorage::from(address))?;
    socket::listen(&fd, Backlog::new(WAITING)?)?;
    Ok(TcpListener::from(fd))
}
