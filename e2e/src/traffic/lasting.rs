//! Clients that stay: one connection or one UDP socket, asked again and again who answers.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use proxier_sys::netns::{Netns, NetnsError};

use super::client::{Seen, ask_udp, classify, open_tcp, open_udp, parse};

/// A client that keeps its connection (TCP, SCTP) or its address and port (UDP).
#[derive(Debug)]
pub struct Lasting {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Stream(BufReader<TcpStream>),
    Udp(UdpSocket),
}

impl Lasting {
    /// Opens a TCP connection from the namespace to a server that answers lines; the inner error is what was seen
    /// instead of a connection. Every later answer is waited for as long as `timeout`.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn tcp(
        namespace: &str,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Result<Self, Seen>, NetnsError> {
        let opened = Netns::named(namespace)?.run(|| open_tcp(from, to, timeout))?;
        Ok(opened.map(|s| Self { kind: Kind::Stream(BufReader::new(s)) }).map_err(|e| classify(&e)))
    }

    /// Opens an SCTP association from the namespace, as [`Lasting::tcp`] a connection.
    ///
    /// # Errors
    /// As [`Lasting::tcp`].
    pub fn sctp(
        namespace: &str,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Result<Self, Seen>, NetnsError> {
        let opened = super::sctp::lasting(namespace, from, to, timeout)?;
        Ok(opened.map(|s| Self { kind: Kind::Stream(s) }))
    }

    /// Opens a UDP socket in the namespace that talks to one destination.
    ///
    /// # Errors
    /// As [`Lasting::tcp`].
    pub fn udp(
        namespace: &str,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Result<Self, Seen>, NetnsError> {
        let opened = Netns::named(namespace)?.run(|| open_udp(from, to, timeout))?;
        Ok(opened.map(|s| Self { kind: Kind::Udp(s) }).map_err(|e| classify(&e)))
    }

    /// Asks who answers.
    pub fn ask(&mut self) -> Seen {
        match &mut self.kind {
            Kind::Stream(reader) => ask_stream(reader),
            Kind::Udp(socket) => ask_udp(socket),
        }
        .unwrap_or_else(|e| classify(&e))
    }

    /// Ends a connection by a reset, so that little remembers it. A UDP socket is just closed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn reset(self) -> io::Result<()> {
        if let Kind::Stream(reader) = &self.kind {
            let linger = linger { l_onoff: 1, l_linger: 0 };
            setsockopt(reader.get_ref(), sockopt::Linger, &linger)?;
        }
        Ok(())
    }

    /// Asks who answers, and waits for this long only, now and from now on.
    pub fn ask_for(&mut self, limit: Duration) -> Seen {
        let set = match &self.kind {
            Kind::Stream(reader) => reader.get_ref().set_read_timeout(Some(limit)),
            Kind::Udp(socket) => socket.set_read_timeout(Some(limit)),
        };
        set.map_or_else(|e| classify(&e), |()| self.ask())
    }
}

/// A line and its answer.
pub(super) fn ask_stream(reader: &mut BufReader<TcpStream>) -> io::Result<Seen> {
    reader.get_mut().write_all(b"who am I?\n")?;
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Ok(Seen::Failed("the connection was closed".to_owned())),
        _ => Ok(parse(&line)),
    }
}
