//! Ties it all to a running loop: one call, and what is dropped closes everything.

use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::desk::Papers;
use super::{Desk, Follower, Insight, Pages, Printers};
use crate::events::{Event, EventType, SharedRecorder};
use crate::http::{Listener, Outlet, Place, Servers, Service};
use crate::metrics::{Family, Gates};
use crate::sync::{Message, Observer};
use crate::world::Problems;

/// Where the admin API is, unless somebody says otherwise.
pub const ADMIN_SOCKET: &str = "/run/proxier/admin.sock";

const PROBLEMS: Family = Family::gauge(
    "proxier_input_problems",
    "Parts of objects or files that cannot be used; `proxier status` names them.",
);

/// How often a taken address is tried again (core spec 4.5).
const AGAIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// What is to be served, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsOptions {
    /// `metricsBindAddress`; `None` serves no metrics.
    pub address: Option<SocketAddr>,
    /// `bindAddressHardFail`: an address that is taken is an error, not tried again.
    pub hard_fail: bool,
    /// `enableProfiling`.
    pub profiling: bool,
    /// The socket of the admin API; `None` for none.
    pub admin_socket: Option<PathBuf>,
    /// The mode, as `/proxyMode` says it.
    pub mode: String,
    /// The configuration in force, as `/configz` says it: with the key that it stands under.
    pub configz: Value,
    /// Paths that are not answered: pages whose gate is off.
    pub hidden: Vec<&'static str>,
    /// Feature gates, as a metric tells them.
    pub gates: Gates,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 10249))),
            hard_fail: false,
            profiling: false,
            admin_socket: Some(ADMIN_SOCKET.into()),
            mode: String::new(),
            configz: Value::Null,
            hidden: Vec::new(),
            gates: Gates::new(),
        }
    }
}

/// What the rest of the process gives.
pub struct Surroundings {
    /// Values and state.
    pub insight: Arc<Insight>,
    /// The thread of all servers.
    pub servers: Servers,
    /// This node's name.
    pub node: String,
    /// The kind of the source: `kubernetes` or `manifests`.
    pub source: &'static str,
    /// What is wrong with objects and files.
    pub problems: Problems,
    /// The way to the loop.
    pub messages: SyncSender<Message>,
    /// Is told when metrics cannot be served and must be.
    pub events: SharedRecorder,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address of the metrics is taken, or not this machine's, and `bindAddressHardFail` is set (core spec 4.5).
    #[error("cannot serve metrics on {address}: {source}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// What holds on to the servers: dropped, they are closed.
#[derive(Debug)]
pub struct Attached {
    insight: Arc<Insight>,
    pages: Arc<Pages>,
    metrics: Kept<SocketAddr>,
    admin: Kept<SocketFile>,
}

impl Attached {
    /// What is answered on `metricsBindAddress`: to tell it of another configuration.
    #[must_use]
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Where metrics are served, once they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.outlet().address()
    }

    /// Takes over other options, but for `configz`, which says what is in force and not what is wished. A server leaves its old place when it
    /// has the new one; until then it is tried again and again, whatever `hard_fail` says.
    pub fn change(&self, options: MetricsOptions) {
        let MetricsOptions { address, profiling, admin_socket, hidden, gates, .. } = options;
        self.pages.open(profiling, hidden);
        self.insight.metrics.set_gates(gates);
        // what cannot be had is logged
        let _ = self.metrics.put(address, false);
        let _ = self.admin.put(admin_socket.map(SocketFile), false);
    }
}

/// Serves metrics and the admin API. Returns who is to follow the loop, and what holds on to the servers.
///
/// # Errors
/// Only with `hard_fail`, when the metrics' address cannot be had. Otherwise it is tried again and again, and the admin API's
/// socket, whatever is wrong with it, is a warning.
pub fn attach(
    options: MetricsOptions,
    around: Surroundings,
) -> Result<(Box<dyn Observer>, Attached), ServeError> {
    let MetricsOptions { address, hard_fail, profiling, admin_socket, configz, hidden, gates, .. } = options;
    let insight = Arc::clone(&around.insight);
    insight.metrics.set_gates(gates);
    let flags = std::env::args().skip(1).collect();
    let pages = Arc::new(Pages::new(Arc::clone(&insight), configz, flags, profiling).without(hidden));
    let answering = Arc::clone(&pages);
    let service = Service::new(move |head| answering.answer(head)).slow();
    let metrics = Kept::new(Outlet::new("metrics", around.servers.clone(), service));
    if let Err(source) = metrics.put(address, hard_fail)
        && let Some(address) = address
    {
        return Err(refused(address, source, &around));
    }
    let problems = around.problems.clone();
    insight.metrics.register(move |page| page.sample(PROBLEMS, &[], problems.count() as f64));
    let asked = Arc::new(AtomicBool::new(false));
    let printers = Printers::default();
    let admin = admin(around, Arc::clone(&asked), Arc::clone(&printers));
    // what cannot be had is logged
    let _ = admin.put(admin_socket.map(SocketFile), false);
    let follower = Box::new(Follower::new(Arc::clone(&insight), asked, printers));
    Ok((follower, Attached { insight, pages, metrics, admin }))
}

/// The cluster is told before the process ends.
fn refused(address: SocketAddr, source: io::Error, around: &Surroundings) -> ServeError {
    let note = format!("the metrics server cannot listen at {address}: {source}");
    around.events.record(Event::node(EventType::Warning, "FailedToStartMetricServer", note));
    ServeError::Metrics { address, source }
}

fn admin(around: Surroundings, asked: Arc<AtomicBool>, printers: Printers) -> Kept<SocketFile> {
    let Surroundings { insight, servers, node, source, problems, messages, .. } = around;
    let give = move |order| messages.try_send(Message::Ordered(order)).is_ok();
    let papers = Papers { node, source, problems, printers, give: Box::new(give), asked };
    let desk = Desk::new(insight, papers);
    Kept::new(Outlet::new("the admin API", servers, Service::new(move |head| desk.answer(head)).slow()))
}

/// The place of a socket in the file system.
#[derive(Clone, Debug, PartialEq)]
struct SocketFile(PathBuf);

impl fmt::Display for SocketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Place for SocketFile {
    fn open(&self) -> io::Result<Listener> {
        bind_socket(&self.0).map(Listener::from)
    }

    /// Two names of one file.
    fn excludes(&self, other: &Self) -> bool {
        matches!((fs::canonicalize(&self.0), fs::canonicalize(&other.0)), (Ok(a), Ok(b)) if a == b)
    }

    /// The socket goes with its server, unless another process answers there by now. One that stays is replaced by the next start.
    fn left(&self) {
        if UnixStream::connect(&self.0).is_err() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// A server and, while it is not where it is wanted, the thread that tries again.
#[derive(Debug)]
struct Kept<P: Place> {
    outlet: Arc<Mutex<Outlet<P>>>,
    /// Dropped, it ends the thread.
    waiting: Mutex<Option<mpsc::Sender<()>>>,
}

impl<P: Place> Kept<P> {
    fn new(outlet: Outlet<P>) -> Self {
        Self { outlet: Arc::new(Mutex::new(outlet)), waiting: Mutex::default() }
    }

    fn outlet(&self) -> MutexGuard<'_, Outlet<P>> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves there from now on, or nowhere. With `at_once` a place that cannot be had is an error, otherwise it is tried again.
    fn put(&self, place: Option<P>, at_once: bool) -> io::Result<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waiting.take());
        let settled = {
            let mut outlet = self.outlet();
            outlet.want(place);
            outlet.settle()
        };
        if at_once || settled.is_ok() {
            return settled;
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let outlet = Arc::clone(&self.outlet);
        let again = move || {
            while stopped.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                if outlet.lock().unwrap_or_else(PoisonError::into_inner).settle().is_ok() {
                    return;
                }
            }
        };
        match thread::Builder::new().name("bind".to_owned()).spawn(again) {
            Ok(_) => *waiting = Some(stop),
            Err(error) => tracing::warn!(error = %error, "no thread that tries again"),
        }
        Ok(())
    }
}

impl<P: Place> Drop for Kept<P> {
    /// The thread may hold on to the outlet for a moment longer.
    fn drop(&mut self) {
        drop(self.waiting.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        self.outlet().close();
    }
}

/// Binds a socket that only its owner may use. The folder is made; a socket that nobody answers on is replaced, in one step, so that nobody
/// ever finds it open to others.
///
/// # Errors
/// Somebody answers there, what is there is no socket, or the folder cannot be written to.
pub(super) fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "what is there is no socket"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there"));
        }
        _ => {}
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = folder.join(name);
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let placed = fs::set_permissions(&beside, Permissions::from_mode(0o600));
    if let Err(error) = placed.and_then(|()| fs::rename(&beside, path)) {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    Ok(listener)
}
