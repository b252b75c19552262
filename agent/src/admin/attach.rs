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
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::desk::Papers;
use super::{Desk, Follower, Insight, Pages, Printers};
use crate::events::{Event, EventType, SharedRecorder};
use crate::http::{self, Listener, ServerHandle, Servers, Service};
use crate::metrics::Family;
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
    pages: Arc<Pages>,
    listening: Vec<Listening>,
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
        self.listening.iter().find_map(Listening::address)
    }
}

impl Drop for Listening {
    /// The socket goes with its server, unless another process answers there by now. One that stays is replaced by the next start.
    fn drop(&mut self) {
        drop(self.waiting.take());
        let served = self.server.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if let Some(path) = self.socket.take().filter(|path| served && UnixStream::connect(path).is_err()) {
            let _ = fs::remove_file(path);
        }
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
    let MetricsOptions { address, hard_fail, profiling, admin_socket, configz, hidden, .. } = options;
    let insight = Arc::clone(&around.insight);
    let flags = std::env::args().skip(1).collect();
    let pages = Arc::new(Pages::new(Arc::clone(&insight), configz, flags, profiling).without(hidden));
    let asked = Arc::new(AtomicBool::new(false));
    let printers = Printers::default();
    let mut listening = Vec::new();
    if let Some(address) = address {
        let pages = Arc::clone(&pages);
        let service = Service::new(move |head| pages.answer(head)).slow();
        let bind = move || http::bind(address).map(Listener::from);
        let what = format!("metrics on {address}");
        let metrics = Listening::begin(what, bind, &around.servers, service, hard_fail);
        listening.push(metrics.map_err(|source| refused(address, source, &around))?);
    }
    let problems = around.problems.clone();
    insight.metrics.register(move |page| page.sample(PROBLEMS, &[], problems.count() as f64));
    if let Some(path) = admin_socket {
        match admin(&path, around, Arc::clone(&asked), Arc::clone(&printers)) {
            Ok(admin) => listening.push(admin),
            Err(error) => tracing::warn!(error = %error, "no admin API"),
        }
    }
    Ok((Box::new(Follower::new(insight, asked, printers)), Attached { pages, listening }))
}

/// The cluster is told before the process ends.
fn refused(address: SocketAddr, source: io::Error, around: &Surroundings) -> ServeError {
    let note = format!("the metrics server cannot listen at {address}: {source}");
    around.events.record(Event::node(EventType::Warning, "FailedToStartMetricServer", note));
    ServeError::Metrics { address, source }
}

fn admin(
    path: &Path,
    around: Surroundings,
    asked: Arc<AtomicBool>,
    printers: Printers,
) -> io::Result<Listening> {
    let Surroundings { insight, servers, node, source, problems, messages, .. } = around;
    let give = move |order| messages.try_send(Message::Ordered(order)).is_ok();
    let papers = Papers { node, source, problems, printers, give: Box::new(give), asked };
    let desk = Desk::new(insight, papers);
    let service = Service::new(move |head| desk.answer(head)).slow();
    let at = path.to_owned();
    let bind = move || bind_socket(&at).map(Listener::from);
    let what = format!("the admin API on {}", path.display());
    let mut out = Listening::begin(what, bind, &servers, service, false)?;
    out.socket = Some(path.to_owned());
    Ok(out)
}

/// A server that is there, or will be when its address is free.
#[derive(Debug, Default)]
struct Listening {
    server: Arc<Mutex<Option<ServerHandle>>>,
    /// Dropped, it ends the thread that waits for the address.
    waiting: Option<mpsc::Sender<()>>,
    socket: Option<PathBuf>,
}

impl Listening {
    fn begin(
        what: String,
        bind: impl Fn() -> io::Result<Listener> + Send + 'static,
        servers: &Servers,
        service: Service,
        hard_fail: bool,
    ) -> io::Result<Self> {
        let serve = {
            let servers = servers.clone();
            move || bind().and_then(|listener| servers.serve(listener, service.clone()))
        };
        let mut out = Self::default();
        let error = match serve() {
            Ok(server) => {
                tracing::info!(what = %what, "serving");
                out.keep(server);
                return Ok(out);
            }
            Err(error) if hard_fail => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(what = %what, error = %error, "cannot serve; tried again every 5 s");
        let (stop, stopped) = mpsc::channel::<()>();
        let server = Arc::clone(&out.server);
        thread::Builder::new().name("bind".to_owned()).spawn(move || {
            while stopped.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
                if let Ok(handle) = serve() {
                    tracing::info!(what = %what, "serving");
                    *server.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
                    return;
                }
            }
        })?;
        out.waiting = Some(stop);
        Ok(out)
    }

    fn keep(&self, server: ServerHandle) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }

    fn address(&self) -> Option<SocketAddr> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.address()
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
