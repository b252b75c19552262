//! What happens on the thread of the servers: accepting, and one task for each connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, DATE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Head, Response, Service};

/// Rest after a connection that could not be accepted: what is short, descriptors or memory, does not come back at once.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// What a server shall do. A handle that is gone says `Close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Control {
    Run,
    Drain,
    Close,
}

#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

enum Accepted {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

/// Connections in the order in which they came, no more than so many.
#[derive(Debug)]
pub(super) struct Order {
    most: usize,
    open: VecDeque<AbortHandle>,
}

impl Order {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: VecDeque::new() }
    }

    /// One more; the oldest goes if there is no room.
    fn admit(&mut self, connection: AbortHandle) {
        while self.open.front().is_some_and(AbortHandle::is_finished) {
            self.open.pop_front();
        }
        if self.open.len() >= self.most {
            self.open.retain(|c| !c.is_finished());
        }
        if self.open.len() >= self.most
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
        }
        self.open.push_back(connection);
    }
}

/// The connections of a server.
struct Connections {
    tasks: JoinSet<()>,
    order: Order,
    all: Arc<Mutex<Order>>,
}

impl Connections {
    fn add(&mut self, accepted: Accepted, service: &Service, control: &watch::Receiver<Control>) {
        let (service, control) = (service.clone(), control.clone());
        let task = match accepted {
            Accepted::Tcp(stream) => {
                // answers are small: waiting for more to send only delays them
                let _ = stream.set_nodelay(true);
                self.tasks.spawn(converse(stream, service, control))
            }
            Accepted::Unix(stream) => self.tasks.spawn(converse(stream, service, control)),
        };
        self.order.admit(task.clone());
        self.all.lock().unwrap_or_else(PoisonError::into_inner).admit(task);
    }
}

/// Accepts until told otherwise. On return no socket is open.
pub(super) async fn serve(
    acceptor: Acceptor,
    service: Service,
    mut control: watch::Receiver<Control>,
    all: Arc<Mutex<Order>>,
) {
    let order = Order::new(service.limits.connections);
    let mut connections = Connections { tasks: JoinSet::new(), order, all };
    let told = control.clone();
    let mut refused = false;
    let end = loop {
        tokio::select! {
            biased;
            end = asked(&mut control, Control::Drain) => break end,
            Some(_) = connections.tasks.join_next() => connections.order.open.retain(|c| !c.is_finished()),
            accepted = acceptor.accept() => match accepted {
                Ok(accepted) => {
                    refused = false;
                    connections.add(accepted, &service, &told);
                }
                Err(error) => {
                    if !std::mem::replace(&mut refused, true) {
                        tracing::warn!(error = %error, "cannot accept a connection");
                    }
                    sleep(AFTER_REFUSAL).await;
                }
            },
        }
    };
    drop(acceptor);
    if end == Control::Drain {
        let all = async { while connections.tasks.join_next().await.is_some() {} };
        tokio::select! {
            _ = asked(&mut control, Control::Close) => {}
            () = all => {}
        }
    }
    connections.tasks.shutdown().await;
}

impl Acceptor {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Accepted::Tcp(stream)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

/// Waits for this or more.
async fn asked(control: &mut watch::Receiver<Control>, least: Control) -> Control {
    control.wait_for(|c| *c >= least).await.map_or(Control::Close, |c| *c)
}

/// One connection, until it or somebody else ends it.
async fn converse<S>(stream: S, service: Service, mut control: watch::Receiver<Control>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let limits = service.limits;
    let patience = Arc::new(Mutex::new(Instant::now() + limits.answer));
    let until = || *patience.lock().unwrap_or_else(PoisonError::into_inner);
    let each = {
        let patience = Arc::clone(&patience);
        service_fn(move |request: Request<Incoming>| {
            *patience.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + limits.answer;
            respond(service.clone(), request)
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes.max(8 << 10))
        .half_close(true)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), each);
    let mut connection = pin!(connection);
    let mut draining = false;
    loop {
        let deadline = until();
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::trace!(error = %error, "connection ended");
                }
                return;
            }
            _ = asked(&mut control, Control::Drain), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = sleep_until(deadline) => if until() <= Instant::now() { return },
        }
    }
}

async fn respond(
    service: Service,
    request: Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (head, _) = request.into_parts();
    let response = if service.slow {
        let answer = Arc::clone(&service.answer);
        let made = tokio::task::spawn_blocking(move || answer(&head)).await;
        made.unwrap_or_else(|_| Response::text(500, "the answer could not be made"))
    } else {
        (service.answer)(&head as &Head)
    };
    Ok(rendered(response))
}

fn rendered(response: Response) -> hyper::Response<Full<Bytes>> {
    let length = response.body.len();
    let mut out = hyper::Response::new(Full::new(response.body));
    *out.status_mut() = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in response.headers {
        // a value that is no header's is a mistake of ours: the answer goes without it
        if let (Ok(name), Ok(value)) =
            (name.parse::<hyper::header::HeaderName>(), HeaderValue::try_from(value))
        {
            out.headers_mut().append(name, value);
        }
    }
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now())
        && let Ok(date) = HeaderValue::try_from(date)
    {
        out.headers_mut().insert(DATE, date);
    }
    out.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    out
}
