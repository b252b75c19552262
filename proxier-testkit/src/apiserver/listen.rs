//! The listener and its connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::line::{Gate, Line};
use super::serve::{Peer, answer};
use super::shared::{Protocols, Shared};

/// What connections need besides the shared state.
#[derive(Debug)]
pub(super) struct Lines {
    open: Mutex<Vec<Weak<Line>>>,
    tls: Mutex<Option<Tls>>,
}

/// An acceptor; it has nothing to show.
pub(super) struct Tls(pub(super) TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Lines {
    pub(super) fn new(tls: Option<Tls>) -> Self {
        Self { open: Mutex::default(), tls: Mutex::new(tls) }
    }

    /// What connections from now on are accepted with.
    pub(super) fn set_tls(&self, tls: Tls) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|tls| tls.0.clone())
    }

    fn line(&self) -> Arc<Line> {
        let line = Arc::new(Line::default());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|line| line.strong_count() > 0);
        open.push(Arc::downgrade(&line));
        line
    }

    /// The connections that are open.
    pub(super) fn open(&self) -> Vec<Arc<Line>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A listener at work.
#[derive(Debug)]
pub(super) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Listens at `address`; its port is the real one even if it was given as 0.
    pub(super) async fn start(
        shared: Arc<Shared>,
        lines: Arc<Lines>,
        address: SocketAddr,
    ) -> std::io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(shared, lines, listener, address, stopped));
        Ok((Self { stop: Some(stop), task }, address))
    }

    /// Closes the listener and all connections, and waits until they are closed.
    pub(super) async fn stop(mut self) {
        self.stop.take();
        // It cannot fail but by a panic of a connection, which is over then, too.
        let _ended = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    shared: Arc<Shared>,
    lines: Arc<Lines>,
    listener: TcpListener,
    address: SocketAddr,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let line = lines.line();
                connections.spawn(connection(shared.clone(), lines.tls(), line, stream, address));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves a connection until either side closes it.
async fn connection(
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    line: Arc<Line>,
    stream: TcpStream,
    address: SocketAddr,
) {
    // Without it answers are late, not wrong.
    let _late = stream.set_nodelay(true);
    let gate = Gate { stream, line: line.clone() };
    let address = address.to_string();
    let work = async {
        let Some(tls) = tls else {
            let peer = Peer { line: line.clone(), certificate: None, address };
            return http(shared, peer, gate).await;
        };
        // A client that does not accept the certificate is gone.
        let Ok(stream) = tls.accept(gate).await else { return };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = certificates.first().map(|certificate| certificate.to_vec());
        http(shared, Peer { line: line.clone(), certificate, address }, stream).await;
    };
    tokio::select! {
        () = work => {}
        () = line.closed() => {}
    }
}

async fn http(shared: Arc<Shared>, peer: Peer, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let builder = match shared.settings.protocols {
        Protocols::Both => auto::Builder::new(TokioExecutor::new()),
        Protocols::Http1 => auto::Builder::new(TokioExecutor::new()).http1_only(),
        Protocols::Http2 => auto::Builder::new(TokioExecutor::new()).http2_only(),
    };
    let peer = Arc::new(peer);
    let service = service_fn(move |request| answer(shared.clone(), peer.clone(), request));
    // However it ends, the connection is over.
    let _over = builder.serve_connection(TokioIo::new(stream), service).await;
}
