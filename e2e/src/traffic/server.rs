//! Servers inside a namespace that answer with `server-name client-ip client-port`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::socket::{self, SockaddrStorage};
use proxier_sys::netns::Netns;

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP: one answer per connection, then it closes.
    Tcp(SocketAddr),
    /// UDP: one answer per datagram.
    Udp(SocketAddr),
    /// TCP: one answer per line, for as long as the client stays.
    Lasting(SocketAddr),
    /// SCTP: as [`Listen::Lasting`], by associations.
    Sctp(SocketAddr),
}

/// A server with a thread per socket, which costs nothing while nobody calls; ends when dropped.
#[derive(Debug)]
pub struct Server {
    open: Arc<Open>,
    threads: Vec<JoinHandle<()>>,
}

/// What its threads wait for; nothing once the server ends.
#[derive(Debug, Default)]
struct Open(Mutex<Sockets>);

#[derive(Debug, Default)]
struct Sockets {
    ended: bool,
    /// Listeners and UDP sockets.
    listening: Vec<OwnedFd>,
    /// Connections that last, by their numbers.
    connections: BTreeMap<u64, TcpStream>,
    /// How many there were.
    begun: u64,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> bool {
        self.lock().ended
    }

    /// Wakes every thread that waits at a socket, now and later.
    fn end(&self) {
        let mut sockets = self.lock();
        sockets.ended = true;
        for socket in &sockets.listening {
            // Linux ends a listener by this, and wakes those who wait for datagrams even while it answers that there is no
            // connection.
            let _ = socket::shutdown(socket.as_raw_fd(), socket::Shutdown::Both);
        }
        for connection in sockets.connections.values() {
            // One that the client has closed needs no end.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn listens(&self, socket: &impl AsFd) -> io::Result<()> {
        self.lock().listening.push(socket.as_fd().try_clone_to_owned()?);
        Ok(())
    }

    /// The connection's number; none when it must not begin any more.
    fn begins(&self, connection: &TcpStream) -> Option<u64> {
        let mut sockets = self.lock();
        let copy = connection.try_clone().ok().filter(|_| !sockets.ended)?;
        sockets.begun += 1;
        let number = sockets.begun;
        sockets.connections.insert(number, copy);
        Some(number)
    }

    fn is_over(&self, number: u64) {
        self.lock().connections.remove(&number);
    }
}

impl Server {
    /// Starts to listen in the namespace; every socket is bound when this returns.
    ///
    /// # Errors
    /// When the namespace cannot be entered or an address cannot be bound.
    pub fn start(namespace: &str, name: &str, sockets: &[Listen]) -> anyhow::Result<Self> {
        let bound = Netns::named(namespace)?
            .run(|| sockets.iter().map(Bound::open).collect::<io::Result<Vec<_>>>())??;
        let mut server = Self { open: Arc::default(), threads: Vec::new() };
        // Sockets keep the namespace they were opened in, so serving needs no thread there.
        for socket in bound {
            match &socket {
                Bound::Tcp(listener) | Bound::Lasting(listener) => server.open.listens(listener)?,
                Bound::Udp(socket) => server.open.listens(socket)?,
            }
            let (name, open) = (name.to_owned(), Arc::clone(&server.open));
            server.threads.push(std::thread::spawn(move || match socket {
                Bound::Tcp(listener) => serve_tcp(&listener, &name, &open),
                Bound::Lasting(listener) => serve_lasting(&listener, &name, &open),
                Bound::Udp(socket) => serve_udp(&socket, &name, &open),
            }));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.open.end();
        for thread in self.threads.drain(..) {
            // A server thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// A socket of [`Listen`].
#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Lasting(TcpListener),
}

impl Bound {
    fn open(listen: &Listen) -> io::Result<Self> {
        Ok(match listen {
            Listen::Tcp(address) => Self::Tcp(TcpListener::bind(address)?),
            Listen::Lasting(address) => Self::Lasting(TcpListener::bind(address)?),
            Listen::Sctp(address) => Self::Lasting(super::sctp::listener(*address)?),
            Listen::Udp(address) => Self::Udp(UdpSocket::bind(address)?),
        })
    }
}

fn address(of: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = of.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| of.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

/// The answer's text.
fn answer(name: &str, client: SocketAddr) -> String {
    format!("{name} {} {}\n", client.ip().to_canonical(), client.port())
}

fn serve_tcp(listener: &TcpListener, name: &str, open: &Open) {
    while !open.ended() {
        // An error is the server's end or a connection that broke; of the latter the client tells what it saw.
        if let Ok((mut stream, client)) = listener.accept() {
            let _ = stream.write_all(answer(name, client).as_bytes());
        }
    }
}

fn serve_lasting(listener: &TcpListener, name: &str, open: &Open) {
    std::thread::scope(|scope| {
        while !open.ended() {
            if let Ok((stream, client)) = listener.accept()
                // An association takes over its listener's limit.
                && stream.set_read_timeout(None).is_ok()
                && let Some(number) = open.begins(&stream)
            {
                scope.spawn(move || {
                    serve_lines(&stream, client, name);
                    open.is_over(number);
                });
            }
        }
    });
}

/// Answers lines until the client leaves or the server ends; the client tells what it saw of either.
fn serve_lines(stream: &TcpStream, client: SocketAddr, name: &str) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut line = String::new();
    while let Ok(1..) = reader.read_line(&mut line) {
        line.clear();
        if writer.write_all(answer(name, client).as_bytes()).is_err() {
            return;
        }
    }
}

fn serve_udp(socket: &UdpSocket, name: &str, open: &Open) {
    let mut buffer = [0; 64];
    while !open.ended() {
        // The standard library's way does not bear a datagram from nowhere, which is what the end looks like.
        let received = socket::recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer);
        if let Ok((_, Some(client))) = received
            && let Some(client) = address(&client)
        {
            let _ = socket.send_to(answer(name, client).as_bytes(), client);
        }
    }
}
