//! Objects from the Kubernetes API: Services, EndpointSlices, this Node and ServiceCIDRs, listed and watched.
//!
//! ```text
//! access, exec -> link -> reflect (one task each) -> outlet -> the sink
//!                            |  asks: course (backoff), resource
//!                            |  reads: pieces, lines or split, object
//!                            |  remembers: mirror
//! ```
//!
//! Everything runs on the source's own thread. `course` holds the rules, what to ask next and when, and does nothing; `reflect`
//! does it and knows no rule. Objects are handed on as they come: of each only its version is kept, so that after a new list what
//! is gone can be deleted and what is the same is not said again. A slow receiver blocks the thread, and that the connection.

mod access;
mod backoff;
mod course;
mod exec;
mod fault;
mod gate;
mod limiter;
mod lines;
mod link;
mod mirror;
mod notices;
mod object;
mod outlet;
mod pieces;
mod recorder;
mod reflect;
mod resource;
mod split;

use std::sync::Arc;
use std::time::Duration;

use proxier_core::ids::NodeName;
use tokio::runtime::Builder;
use tokio::sync::Notify;

pub use self::access::{Access, check_server};
use self::backoff::Bounds;
use self::course::Delays;
pub use self::gate::NodeNeeds;
pub use self::limiter::Rate;
use self::link::Link;
use self::outlet::Outlet;
pub use self::recorder::Recorder;
use self::reflect::Reflector;
use self::resource::Resource;
use crate::metrics::ClientMetrics;

use super::{EventSink, Source, SourceError, StopSignal};

/// Requests for one resource that may fail in a row when everything is to be read only once.
const TRIES: u32 = 4;

/// How patient the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The first delay after a failure is up to this; the following ones double.
    pub retry_first: Duration,
    /// The longest delay.
    pub retry_longest: Duration,
    /// How long what can be done without, and is not there, is not asked for again; up to twice this.
    pub absent: Duration,
    /// A request that lasted so long shows that things are well again.
    pub steady: Duration,
    /// How long the beginning of an answer may take.
    pub headers: Duration,
    /// How long nothing may come in the middle of a list.
    pub idle_list: Duration,
    /// How long nothing may come on a watch, not even a bookmark, of which the API server sends one a minute; up to a fifth longer.
    pub idle_watch: Duration,
    /// The shortest time after which the server is asked to end a watch ...
    pub watch_shortest: Duration,
    /// ... and the longest.
    pub watch_longest: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            retry_first: Duration::from_millis(800),
            retry_longest: seconds(30),
            absent: seconds(300),
            steady: seconds(10),
            headers: seconds(30),
            idle_list: seconds(30),
            idle_watch: seconds(150),
            watch_shortest: seconds(300),
            watch_longest: seconds(600),
        }
    }
}

impl Timing {
    fn delays(&self) -> Delays {
        let retry = Bounds { first: self.retry_first, longest: self.retry_longest };
        Delays { retry, absent: self.absent, steady: self.steady }
    }
}

/// The Kubernetes source.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    access: Access,
    node: NodeName,
    needs: NodeNeeds,
    timing: Timing,
    rate: Rate,
    once: bool,
    metrics: Arc<ClientMetrics>,
}

impl Kubernetes {
    /// Reads and watches what concerns this node.
    #[must_use]
    pub fn new(access: Access, node: NodeName) -> Self {
        let (needs, timing, rate) = (NodeNeeds::default(), Timing::default(), Rate::default());
        Self { access, node, needs, timing, rate, once: false, metrics: Arc::default() }
    }

    /// What of the Node object is waited for at the start.
    #[must_use]
    pub fn needs(self, needs: NodeNeeds) -> Self {
        Self { needs, ..self }
    }

    /// Another patience.
    #[must_use]
    pub fn timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// How often the API server may be asked. The pages of a list are one request.
    #[must_use]
    pub fn rate(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// Counts its requests there.
    #[must_use]
    pub fn counted(self, metrics: Arc<ClientMetrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Ends after [`SourceEvent::Synced`](super::SourceEvent::Synced), and with an error when what is needed cannot be had.
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }

    async fn serve(self, sink: EventSink, stop: &StopSignal) -> Result<(), SourceError> {
        let link = Link::new(self.access, self.timing.headers, self.rate, self.metrics);
        let outlet = Outlet::new(sink, self.needs);
        let tries = self.once.then_some(TRIES);
        let reflect = |resource| Reflector::new(resource, &link, &outlet, self.timing).run(tries);
        let stopped = Arc::new(Notify::new());
        let raised = Arc::clone(&stopped);
        stop.on_raise(move || raised.notify_one());
        let opened = async {
            match outlet.open().await? {
                Err(reason) => Ok(reason.to_owned()),
                Ok(()) if self.once => Err(Left::Done),
                Ok(()) => std::future::pending().await,
            }
        };
        let left: Result<String, Left> = tokio::select! {
            biased;
            () = stopped.notified() => Err(Left::Done),
            end = opened => end,
            end = reflect(Resource::node(&self.node)) => end.map_err(Left::from),
            end = reflect(Resource::service_cidrs()) => end.map_err(Left::from),
            end = reflect(Resource::services()) => end.map_err(Left::from),
            end = reflect(Resource::endpoint_slices()) => end.map_err(Left::from),
        };
        match left {
            Err(Left::Done) => Ok(()),
            Err(Left::Closed(closed)) => Err(closed.into()),
            Ok(reason) => Err(failed(reason)),
        }
    }
}

/// Why the source ends, other than by a failure.
enum Left {
    Done,
    Closed(super::SinkClosed),
}

impl From<super::SinkClosed> for Left {
    fn from(closed: super::SinkClosed) -> Self {
        Self::Closed(closed)
    }
}

fn failed(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SourceError {
    SourceError::Failed { name: "kubernetes".to_owned(), source: reason.into() }
}

impl Source for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    /// A configuration that cannot be used at the start is an error; after that everything is tried again.
    fn run(self: Box<Self>, sink: EventSink, stop: StopSignal) -> Result<(), SourceError> {
        access::load(&self.access).map_err(failed)?;
        if !self.once {
            tracing::info!(access = %self.access.describe(), "kubernetes source");
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let result = runtime.block_on(self.serve(sink, &stop));
        // a plug-in or a name look-up that still runs is not waited for
        runtime.shutdown_background();
        result
    }
}
