//! SCTP, one association a socket: clients and servers, where the kernel has it.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, getsockopt,
    listen, setsockopt, socket, sockopt,
};
use proxier_sys::netns::{Netns, NetnsError};

use super::client::{Seen, classify, time_value};

/// Can this kernel open an SCTP socket? A module is loaded if there is one; asked once.
///
/// # Errors
/// Why not, in words.
pub fn has_sctp() -> Result<(), &'static str> {
    static HAS: OnceLock<bool> = OnceLock::new();
    if *HAS.get_or_init(|| open(AddressFamily::Inet, SockFlag::empty()).is_ok()) {
        return Ok(());
    }
    Err("this kernel has no SCTP sockets; `cargo xtask vm` has one that does")
}

/// Opens one new association in the namespace of the calling thread, asks who answers and ends it. The time limit holds for each of the two
/// steps.
#[must_use]
pub fn associate_here(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration) -> Seen {
    let all = || super::lasting::ask_stream(&mut BufReader::new(associate(from, to, timeout)?));
    all().unwrap_or_else(|e| classify(&e))
}

/// As [`super::Lasting::tcp`], for an association.
pub(super) fn lasting(
    namespace: &str,
    from: Option<SocketAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> Result<Result<BufReader<TcpStream>, Seen>, NetnsError> {
    let opened = Netns::named(namespace)?.run(|| associate(from, to, timeout))?;
    Ok(opened.map(BufReader::new).map_err(|e| classify(&e)))
}

/// An association whose every read takes at most `timeout`. The standard library's stream fits: the calls are the same.
fn associate(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = open(family(to), SockFlag::SOCK_NONBLOCK)?;
    // Without these SCTP takes an ICMP refusal for a passing fault, and tries again for a minute.
    if to.is_ipv4() {
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
    }
    if let Some(from) = from {
        bind(socket.as_raw_fd(), &SockaddrStorage::from(from))?;
    }
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Err(Errno::EINPROGRESS) => established(&socket, timeout)?,
        result => result?,
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    Ok(stream)
}

/// Waits for the association, or for what stands in its way.
fn established(socket: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let limit = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let mut wanted = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut wanted, limit)? == 0 {
        return Err(Errno::ETIMEDOUT.into());
    }
    match getsockopt(socket, sockopt::SocketError)? {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// How long a listener waits for an association before it looks whether its server goes on: unlike TCP's, SCTP's is not woken by a shutdown.
const LOOK: Duration = Duration::from_millis(500);

/// A socket that listens for associations.
pub(super) fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(family(at), SockFlag::empty())?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &time_value(LOOK))?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(TcpListener::from(socket))
}

fn open(family: AddressFamily, flags: SockFlag) -> nix::Result<OwnedFd> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | flags, Some(SockProtocol::Sctp))
}

fn family(of: SocketAddr) -> AddressFamily {
    if of.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
