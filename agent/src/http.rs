//! A small HTTP/1 server: probes, metrics, administration.
//!
//! All servers of the process share one thread ([`Servers`]). An answer is a function of the request's head: bodies are not read, and
//! nothing is streamed. A server is bound before it is handed over, so that it belongs to the network namespace of the thread that
//! bound it, and is gone when [`ServerHandle`] is dropped: then its port can be bound again.
//!
//! Clients are not trusted. Heads are bounded in size and time, a connection that asks nothing more or does not take its answer is
//! closed, and where there are as many connections as there may be, the oldest goes: a new probe is always answered.

mod bind;
mod connection;
mod outlet;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, watch};

pub use self::bind::{bind, bind_one_family};
use self::connection::{Acceptor, Control, Order};
pub use self::outlet::{Outlet, Place};

/// The head of a request: method, target, headers.
pub type Head = hyper::http::request::Parts;

/// How long a handle waits for its listener to be closed. The thread of the servers never does anything that takes long.
const CLOSING: Duration = Duration::from_secs(5);

/// Threads for answers that take long, in all servers together.
const SLOW_ANSWERS: usize = 4;

/// Connections to all servers together: one more, and the oldest is closed.
const CONNECTIONS: usize = 1024;

/// What is answered. `Date` and `Content-Length` are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers in the order in which they are sent.
    pub headers: Vec<(&'static str, String)>,
    /// Body; not sent to a `HEAD` request.
    pub body: Bytes,
}

impl Response {
    /// An answer of this type, which a browser shall not guess about.
    #[must_use]
    pub fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers =
            vec![("Content-Type", content_type.to_owned()), ("X-Content-Type-Options", "nosniff".to_owned())];
        Self { status, headers, body: body.into() }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// A line of plain text.
    #[must_use]
    pub fn text(status: u16, line: impl fmt::Display) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{line}\n"))
    }

    /// There is nothing at this path.
    #[must_use]
    pub fn not_found() -> Self {
        Self::text(404, "404 page not found")
    }
}

/// What a server puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. One more, and the oldest is closed.
    pub connections: usize,
    /// How long the head of a request may take, and how long a connection may be kept before the next one begins.
    pub head: Duration,
    /// How long an answer may take, from the end of the request's head until the next request or the end.
    pub answer: Duration,
    /// Size of a request's head in bytes, at least 8192; a longer one is answered with 431.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            head: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            head_bytes: 16 << 10,
        }
    }
}

type Answer = dyn Fn(&Head) -> Response + Send + Sync;

/// What a server answers, and how.
#[derive(Clone)]
pub struct Service {
    answer: Arc<Answer>,
    limits: Limits,
    slow: bool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("limits", &self.limits)
            .field("slow", &self.slow)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Answers by this function. It runs on the thread of all servers: it must be quick and never wait for whoever may be closing one.
    #[must_use]
    pub fn new(answer: impl Fn(&Head) -> Response + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), limits: Limits::default(), slow: false }
    }

    /// The same under other limits.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same, but answers may take long: they are made on threads of their own, a few at a time, and hold up nobody else.
    #[must_use]
    pub fn slow(self) -> Self {
        Self { slow: true, ..self }
    }
}

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A socket in the file system.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// The thread on which all servers of a process run. Clones are the same thread; it ends with the last of them and the last
/// [`ServerHandle`].
#[derive(Clone, Debug)]
pub struct Servers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    stop: Arc<Notify>,
    thread: ThreadId,
    connections: Arc<Mutex<Order>>,
    join: Mutex<Option<JoinHandle<()>>>,
}

impl Servers {
    /// Starts the thread.
    ///
    /// # Errors
    /// There can be no thread or no event queue.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(SLOW_ANSWERS)
            .thread_keep_alive(Duration::from_secs(10))
            .thread_name("http-slow")
            .build()?;
        let handle = runtime.handle().clone();
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let run = move || {
            runtime.block_on(stopped.notified());
            // an answer that is still being made is not waited for
            runtime.shutdown_background();
        };
        let join = thread::Builder::new().name("http".to_owned()).spawn(run)?;
        let thread = join.thread().id();
        let connections = Arc::new(Mutex::new(Order::new(CONNECTIONS)));
        Ok(Self(Arc::new(Inner { runtime: handle, stop, thread, connections, join: Mutex::new(Some(join)) })))
    }

    /// Answers on this socket until the handle is dropped.
    ///
    /// # Errors
    /// The socket cannot be waited on.
    pub fn serve(&self, listener: impl Into<Listener>, service: Service) -> io::Result<ServerHandle> {
        let (control, controlled) = watch::channel(Control::Run);
        let (end, ended) = channel();
        let _inside = self.0.runtime.enter();
        let (address, acceptor) = match listener.into() {
            Listener::Tcp(listener) => {
                let address = listener.local_addr()?;
                listener.set_nonblocking(true)?;
                (Some(address), Acceptor::Tcp(tokio::net::TcpListener::from_std(listener)?))
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                (None, Acceptor::Unix(tokio::net::UnixListener::from_std(listener)?))
            }
        };
        let serve = connection::serve(acceptor, service, controlled, Arc::clone(&self.0.connections));
        self.0.runtime.spawn(async move {
            serve.await;
            // dropped with everything else, also when the thread ends before
            drop(end);
        });
        Ok(ServerHandle { control, ended, address, servers: self.clone() })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.notify_one();
        let join = self.join.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(join) = join
            && thread::current().id() != self.thread
        {
            // it cannot have panicked in a way that matters here
            let _ = join.join();
        }
    }
}

/// A server. Dropped, its listener and its connections are closed at once.
#[derive(Debug)]
pub struct ServerHandle {
    control: watch::Sender<Control>,
    ended: Receiver<()>,
    address: Option<SocketAddr>,
    servers: Servers,
}

impl ServerHandle {
    /// Where a TCP server listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Begins to close and does not wait for it. Whoever drops many servers is faster with this called on all of them first.
    pub fn begin_close(&self) {
        self.control.send_replace(Control::Close);
    }

    /// Takes no new connections, ends those that ask nothing, and gives the others this long to get their answers.
    pub fn drain(self, grace: Duration) {
        self.control.send_replace(Control::Drain);
        self.wait(grace);
    }

    fn wait(&self, longest: Duration) {
        if thread::current().id() == self.servers.0.thread {
            return;
        }
        if self.ended.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) && longest == CLOSING {
            tracing::warn!(address = ?self.address, "a server takes long to close");
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.begin_close();
        self.wait(CLOSING);
    }
}

#[cfg(test)]
mod tests;
