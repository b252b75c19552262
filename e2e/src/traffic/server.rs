//! Servers inside a namespace that answer with `server-name client-ip client-port`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use proxier_sys::netns::Netns;

/// How long a server waits before it looks whether it should end.
const TICK: Duration = Duration::from_millis(50);

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP: one answer per connection, then it closes.
    Tcp(SocketAddr),
    /// UDP: one answer per datagram.
    Udp(SocketAddr),
    /// TCP: one answer per line, for as long as the client stays.
    Lasting(SocketAddr),
}

/// A server with a thread per socket; ends when dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to listen in the namespace; every socket is bound when this returns.
    ///
    /// # Errors
    /// When the namespace cannot be entered or an address cannot be bound.
    pub fn start(namespace: &str, name: &str, sockets: &[Listen]) -> anyhow::Result<Self> {
        let netns = Netns::named(namespace)?;
        let mut server = Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for listen in sockets {
            let (listen, name, stop) = (*listen, name.to_owned(), Arc::clone(&server.stop));
            // Sockets keep the namespace they were opened in, so serving needs no thread there.
            server.threads.push(match listen {
                Listen::Tcp(address) => {
                    let listener = netns.run(|| TcpListener::bind(address))??;
                    setsockopt(&listener, sockopt::ReceiveTimeout, &time_value(TICK))?;
                    std::thread::spawn(move || serve_tcp(&listener, &name, &stop))
                }
                Listen::Lasting(address) => {
                    let listener = netns.run(|| TcpListener::bind(address))??;
                    setsockopt(&listener, sockopt::ReceiveTimeout, &time_value(TICK))?;
                    std::thread::spawn(move || serve_lasting(&listener, &name, &stop))
                }
                Listen::Udp(address) => {
                    let socket = netns.run(|| UdpSocket::bind(address))??;
                    socket.set_read_timeout(Some(TICK))?;
                    std::thread::spawn(move || serve_udp(&socket, &name, &stop))
                }
            });
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A server thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// The answer's text.
fn answer(name: &str, client: SocketAddr) -> String {
    format!("{name} {} {}\n", client.ip().to_canonical(), client.port())
}

fn serve_tcp(listener: &TcpListener, name: &str, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // An error is the end of a tick or a connection that broke; either way the client tells what it saw.
        if let Ok((mut stream, client)) = listener.accept() {
            let _ = stream.write_all(answer(name, client).as_bytes());
        }
    }
}

fn serve_lasting(listener: &TcpListener, name: &str, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            if let Ok((stream, client)) = listener.accept() {
                scope.spawn(move || serve_lines(&stream, client, name, stop));
            }
        }
    });
}

/// Answers lines until the client leaves or the server ends; the client tells what it saw of either.
fn serve_lines(stream: &TcpStream, client: SocketAddr, name: &str, stop: &AtomicBool) {
    if stream.set_read_timeout(Some(TICK)).is_err() {
        return;
    }
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut line = String::new();
    while !stop.load(Ordering::Relaxed) {
        match reader.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => {
                line.clear();
                if writer.write_all(answer(name, client).as_bytes()).is_err() {
                    return;
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

fn serve_udp(socket: &UdpSocket, name: &str, stop: &AtomicBool) {
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((_, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(answer(name, client).as_bytes(), client);
        }
    }
}

/// A kernel time value.
pub(super) fn time_value(duration: Duration) -> TimeVal {
    let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    TimeVal::new(micros / 1_000_000, micros % 1_000_000)
}
