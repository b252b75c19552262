//! Clients inside a namespace: one connection or datagram, and what came back.

use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect as connect_socket, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use proxier_sys::netns::{Netns, NetnsError};

/// What a client experienced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A server answered.
    Answered {
        /// The server's name.
        server: String,
        /// The client address it saw.
        client: IpAddr,
    },
    /// Connection refused (a reset or an ICMP port unreachable).
    Refused,
    /// Nothing came back in time.
    TimedOut,
    /// No route, or an ICMP host or network unreachable.
    Unreachable,
    /// Anything else.
    Failed(String),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { client, .. } => write!(f, "{client}"),
            Self::Refused => f.write_str("refused"),
            Self::TimedOut => f.write_str("nothing: timed out"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// Opens one new TCP connection from the namespace, optionally from a given source address, and reads the answer. The time
/// limit holds for each of the two steps.
///
/// # Errors
/// When the namespace cannot be entered; everything the network does is a [`Seen`].
pub fn connect(
    namespace: &str,
    from: Option<IpAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> Result<Seen, NetnsError> {
    Netns::named(namespace)?.run(|| connect_here(from.map(any_port), to, timeout))
}

/// Asks once by UDP from the namespace and waits for the answer.
///
/// # Errors
/// When the namespace cannot be entered; everything the network does is a [`Seen`].
pub fn exchange(
    namespace: &str,
    from: Option<IpAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> Result<Seen, NetnsError> {
    Netns::named(namespace)?.run(|| exchange_here(from.map(any_port), to, timeout, 1))
}

/// As [`connect`], in the namespace of the calling thread and optionally from a given port: for many in a row.
#[must_use]
pub fn connect_here(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration) -> Seen {
    tcp(from, to, timeout).unwrap_or_else(|e| classify(&e))
}

/// As [`exchange`], in the namespace of the calling thread and optionally from a given port: for many in a row. Within the time limit the same socket asks
/// up to so many times, as a resolver does, and so stays one flow: a flow that is lost stays lost, while a lone datagram may be.
#[must_use]
pub fn exchange_here(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration, tries: u32) -> Seen {
    udp(from, to, timeout, tries.max(1)).unwrap_or_else(|e| classify(&e))
}

fn any_port(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 0)
}

fn tcp(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration) -> io::Result<Seen> {
    let mut stream = open_tcp(from, to, timeout)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(parse(&text))
}

/// A connection whose every read takes at most `timeout`.
pub(super) fn open_tcp(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket: OwnedFd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // On Linux the send time limit bounds connect too (socket(7)).
    setsockopt(&socket, sockopt::SendTimeout, &time_value(timeout))?;
    if let Some(from) = from {
        // A port whose last connection is in TIME_WAIT will do.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(from))?;
    }
    connect_socket(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(timeout))?;
    Ok(stream)
}

/// A kernel time value.
pub(super) fn time_value(duration: Duration) -> TimeVal {
    let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    TimeVal::new(micros / 1_000_000, micros % 1_000_000)
}

fn udp(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration, tries: u32) -> io::Result<Seen> {
    let socket = open_udp(from, to, timeout / tries)?;
    let mut seen = ask_udp(&socket);
    for _ in 1..tries {
        match &seen {
            Err(error) if classify(error) == Seen::TimedOut => seen = ask_udp(&socket),
            _ => break,
        }
    }
    seen
}

/// A socket that talks to one destination only.
pub(super) fn open_udp(from: Option<SocketAddr>, to: SocketAddr, timeout: Duration) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind(from.unwrap_or_else(|| any_port(any)))?;
    socket.set_read_timeout(Some(timeout))?;
    socket.connect(to)?;
    Ok(socket)
}

/// One datagram and its answer. A datagram that this host's own rules stop is reported by the sending call, whether they drop or refuse
/// it; which of the two it was, the refusal tells, which then is waiting already.
pub(super) fn ask_udp(socket: &UdpSocket) -> io::Result<Seen> {
    match socket.send(b"who am I?\n") {
        Err(e) if e.raw_os_error() == Some(Errno::EPERM as i32) => {}
        result => drop(result?),
    }
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer)?;
    Ok(parse(&String::from_utf8_lossy(&buffer[..length])))
}

pub(super) fn parse(text: &str) -> Seen {
    let mut words = text.split_whitespace();
    match (words.next(), words.next().and_then(|w| w.parse().ok())) {
        (Some(server), Some(client)) => Seen::Answered { server: server.to_owned(), client },
        _ => Seen::Failed(format!("an answer that names no client: {text:?}")),
    }
}

pub(super) fn classify(error: &io::Error) -> Seen {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => Seen::Refused,
        // A connect that runs into the send time limit ends with EINPROGRESS, a read with EAGAIN.
        Some(Errno::EINPROGRESS | Errno::EAGAIN | Errno::ETIMEDOUT) => Seen::TimedOut,
        Some(Errno::EHOSTUNREACH | Errno::ENETUNREACH) => Seen::Unreachable,
        _ => Seen::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_server_and_client() {
        let client = "10.244.1.4".parse().unwrap();
        assert_eq!(parse("echo 10.244.1.4 40000\n"), Seen::Answered { server: "echo".to_owned(), client });
        assert!(matches!(parse(""), Seen::Failed(_)));
        assert!(matches!(parse("echo nobody 1"), Seen::Failed(_)));
    }

    #[test]
    fn errors_are_told_apart() {
        let of = |e: Errno| classify(&io::Error::from(e));
        assert_eq!(of(Errno::ECONNREFUSED), Seen::Refused);
        assert_eq!(of(Errno::EINPROGRESS), Seen::TimedOut);
        assert_eq!(of(Errno::EAGAIN), Seen::TimedOut);
        assert_eq!(of(Errno::EHOSTUNREACH), Seen::Unreachable);
        assert!(matches!(of(Errno::EPERM), Seen::Failed(_)));
    }

    #[test]
    fn a_datagram_that_is_lost_is_sent_again_by_the_same_socket() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let lossy = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            let (_, first) = server.recv_from(&mut buffer).unwrap();
            let (_, second) = server.recv_from(&mut buffer).unwrap();
            server.send_to(format!("s {} 1\n", second.ip()).as_bytes(), second).unwrap();
            (first, second)
        });
        let seen = exchange_here(None, to, Duration::from_secs(5), 20);
        let (first, second) = lossy.join().unwrap();
        assert_eq!(first, second);
        assert!(matches!(seen, Seen::Answered { .. }), "{seen}");
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = nobody.local_addr().unwrap();
        assert_eq!(exchange_here(None, to, Duration::from_millis(30), 3), Seen::TimedOut);
        drop(nobody);
        assert_eq!(exchange_here(None, to, Duration::from_secs(5), 3), Seen::Refused);
    }

    #[test]
    fn a_closed_port_refuses_and_an_open_one_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, client) = listener.accept().unwrap();
            io::Write::write_all(&mut stream, format!("s {} 1\n", client.ip()).as_bytes()).unwrap();
        });
        let seen = tcp(Some("127.0.0.9:0".parse().unwrap()), to, Duration::from_secs(5)).unwrap();
        server.join().unwrap();
        assert_eq!(seen, Seen::Answered { server: "s".to_owned(), client: "127.0.0.9".parse().unwrap() });
        assert_eq!(classify(&tcp(None, to, Duration::from_secs(5)).unwrap_err()), Seen::Refused);
    }
}
