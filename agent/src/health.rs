//! Is the node served: the health server of the process, and the health check node ports of Services (core spec 4).
//!
//! ```text
//! source -> handed_over --+                          +-> /healthz, /livez
//! sync loop -> Follower --+--> Health (state, clock) +-> every health check node port
//!                         +--> Mailbox -> worker: binds, closes, tries again
//! ```
//!
//! The loop's thread only notes what happened. Sockets are opened and closed on a thread of its own, from the newest snapshot that is in
//! the kernel: a hundred changes meanwhile are one.

mod follow;
mod node_ports;
mod state;
mod worker;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use proxier_core::ids::{IpFamily, NodeName};

pub(crate) use self::follow::Follower;
pub use self::node_ports::NodePorts;
pub use self::state::{Moment, NodeState, State};
pub(crate) use self::worker::Mailbox;
use self::worker::Worker;
use crate::events::{Event, EventRecorder, EventType};
use crate::http::{Head, Outlet, Response, Servers, Service};
use crate::sync::Observer;

/// What the health server is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// Where it listens (`healthzBindAddress`); `None` for no server. Health check node ports are served regardless.
    pub address: Option<SocketAddr>,
    /// A start without it is none (`bindAddressHardFail`); otherwise it is tried again every 5 s.
    pub hard_fail: bool,
    /// `syncPeriod`; what is pending for twice as long is late.
    pub sync_period: Duration,
    /// There must be a Node object: while it is not known, the node is not eligible (core spec 4.3). Off where the source has none to give.
    pub node_required: bool,
}

/// The health server cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthError {
    /// Its address is taken, or not this machine's, and nothing shall run without it.
    #[error("cannot serve health at {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// There can be no thread.
    #[error("cannot start the thread for health: {0}")]
    Thread(#[source] io::Error),
}

/// How often each answer was given (core spec 8, `proxy_healthz_total`, `proxy_livez_total`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// 200 of `/healthz`.
    pub healthz_200: u64,
    /// 503 of `/healthz`.
    pub healthz_503: u64,
    /// 200 of `/livez`.
    pub livez_200: u64,
    /// 503 of `/livez`.
    pub livez_503: u64,
}

/// Reads both clocks.
pub type Clock = Box<dyn Fn() -> Moment + Send + Sync>;

/// Health, as all who know or ask share it.
pub struct Health {
    state: Mutex<State>,
    clock: Clock,
    /// 200, 503.
    healthz: [AtomicU64; 2],
    livez: [AtomicU64; 2],
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Health {
    /// Over the machine's clocks.
    #[must_use]
    pub fn new(state: State) -> Self {
        let origin = Instant::now();
        Self::with_clock(state, Box::new(move || Moment { since: origin.elapsed(), wall: Timestamp::now() }))
    }

    /// Over another clock.
    #[must_use]
    pub fn with_clock(state: State, clock: Clock) -> Self {
        Self { state: Mutex::new(state), clock, healthz: Default::default(), livez: Default::default() }
    }

    /// The loop of these families starts (core spec 4.2).
    pub fn started(&self, families: &[IpFamily]) {
        self.note(|state, now| families.iter().for_each(|f| state.updated(*f, now)));
    }

    /// A source is about to hand over a batch. Until the loop has taken it in and decided upon it, it is pending.
    pub fn handed_over(&self) {
        self.note(State::handed_over);
    }

    /// Takes over another `syncPeriod`, for a configuration that is read again.
    pub fn set_sync_period(&self, sync_period: Duration) {
        self.note(|state, _| state.set_sync_period(sync_period));
    }

    /// Is what is desired in the kernel, or not late?
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let now = (self.clock)();
        self.state().healthy(now)
    }

    /// How often each answer was given.
    #[must_use]
    pub fn answers(&self) -> Answers {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ([healthz_200, healthz_503], [livez_200, livez_503]) = (&self.healthz, &self.livez);
        Answers {
            healthz_200: read(healthz_200),
            healthz_503: read(healthz_503),
            livez_200: read(livez_200),
            livez_503: read(livez_503),
        }
    }

    /// Answers a request to the health server: these two paths, any method (core spec 4.4).
    #[must_use]
    pub fn respond(&self, head: &Head) -> Response {
        let now = (self.clock)();
        let ((status, body), counters) = match head.uri.path() {
            "/healthz" => (self.state().healthz(now), &self.healthz),
            "/livez" => (self.state().livez(now), &self.livez),
            _ => return Response::not_found(),
        };
        let [well, not] = counters;
        (if status == 200 { well } else { not }).fetch_add(1, Ordering::Relaxed);
        Response::new(status, "application/json", body)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: impl FnOnce(&mut State, Moment)) {
        let now = (self.clock)();
        what(&mut self.state(), now);
    }
}

/// The health server of the process.
fn outlet(health: &Arc<Health>, servers: &Servers) -> Outlet<SocketAddr> {
    let health = Arc::clone(health);
    Outlet::new("health", servers.clone(), Service::new(move |head| health.respond(head)))
}

/// Tells the health server of another place. Clones tell the same server; one that has ended is told in vain.
#[derive(Clone, Debug)]
pub struct Mover(Arc<Mailbox>);

impl Mover {
    /// Has it listen there from now on (`healthzBindAddress`), or nowhere. Does not wait: until the new address can be had, the server stays at the
    /// old one, unless one of the two is all addresses of the same port.
    pub fn listen_at(&self, address: Option<SocketAddr>) {
        self.0.listen_at(address);
    }
}

/// Health in service. Dropped, all its sockets are closed.
#[derive(Debug)]
pub struct Running {
    health: Arc<Health>,
    mailbox: Arc<Mailbox>,
    node: NodeName,
    families: Vec<IpFamily>,
    worker: Option<JoinHandle<()>>,
}

/// Serves health for a process whose loop is about to run over these families. Sockets belong to the network namespace of the calling
/// thread.
///
/// # Errors
/// [`HealthError`]; the event is recorded.
pub fn start(
    options: HealthOptions,
    node: NodeName,
    families: &[IpFamily],
    servers: &Servers,
    events: &Arc<dyn EventRecorder>,
) -> Result<Running, HealthError> {
    let health = Arc::new(Health::new(State::new(options.sync_period, options.node_required)));
    health.started(families);
    raise_descriptor_limit();
    let mut process = outlet(&health, servers);
    process.want(options.address);
    if let Err(source) = process.settle()
        && options.hard_fail
        && let Some(address) = options.address
    {
        let note = format!("the health server cannot listen at {address}: {source}");
        events.record(Event::node(EventType::Warning, "FailedToStartProxierHealthcheck", note));
        return Err(HealthError::Bind { address, source });
    }
    let mailbox = Arc::<Mailbox>::default();
    let ports = |family: &IpFamily| {
        NodePorts::new(*family, node.clone(), servers.clone(), Arc::clone(&health), Arc::clone(events))
    };
    let worker = Worker::new(Arc::clone(&mailbox), process, families.iter().map(ports).collect());
    let thread = thread::Builder::new().name("health".to_owned()).spawn(move || worker.run());
    let worker = Some(thread.map_err(HealthError::Thread)?);
    Ok(Running { health, mailbox, node, families: families.to_vec(), worker })
}

impl Running {
    /// What others tell and ask.
    #[must_use]
    pub fn health(&self) -> Arc<Health> {
        Arc::clone(&self.health)
    }

    /// Whom to tell that the health server is to listen elsewhere.
    #[must_use]
    pub fn mover(&self) -> Mover {
        Mover(Arc::clone(&self.mailbox))
    }

    /// What the loop tells.
    #[must_use]
    pub fn observer(&self) -> Box<dyn Observer> {
        let (health, mailbox) = (Arc::clone(&self.health), Arc::clone(&self.mailbox));
        Box::new(Follower::new(health, mailbox, self.node.clone(), self.families.clone()))
    }

    /// Closes all sockets; requests that are being answered are answered. Answers do not change before: the rules stay in force.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.mailbox.close();
        if let Some(worker) = self.worker.take() {
            // it has closed its sockets, whatever became of it
            let _ = worker.join();
        }
    }
}

/// Each health check node port is a socket or more: takes as many descriptors as this process may have (the reference's runtime does so,
/// too).
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(now, most)| {
        if now < most { setrlimit(Resource::RLIMIT_NOFILE, most, most) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(error = %error, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
mod tests;
