//! Where Services, EndpointSlices, Nodes and ServiceCIDRs come from.
//!
//! A [`Source`] runs on a thread of its own, delivers [`SourceEvent`]s in batches to an [`EventSink`], and ends when its
//! [`StopSignal`] is raised. It keeps no more than it needs to tell what changed: the objects are handed on and forgotten. A source that
//! needs an async runtime builds it inside [`Source::run`].

mod channel;
mod event;
pub mod kubernetes;
pub mod manifests;

use std::io;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

pub use self::channel::{EventSink, SinkClosed, StopSignal};
pub use self::event::{Object, ObjectKey, ObjectKind, SourceEvent, SourceProblem};

/// Why a source ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The folder cannot be read at all.
    #[error("cannot read folder {0}: {1}")]
    Folder(PathBuf, #[source] io::Error),
    /// Nobody takes the events any more.
    #[error(transparent)]
    Closed(#[from] SinkClosed),
    /// The source's own reason.
    #[error("source {name}: {source}")]
    Failed {
        /// The source.
        name: String,
        /// Its reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What the source says of this node does not fit to the configuration or to this host.
    #[error("this node cannot be served: {0}")]
    Unfit(String),
}

/// Something that delivers objects.
pub trait Source: Send {
    /// Its name in logs.
    fn name(&self) -> &str;

    /// Delivers events until `stop` is raised, which is `Ok`.
    ///
    /// Promises: [`SourceEvent::Synced`] follows once everything that was there at the start has been delivered; objects of
    /// which nothing new is known are not repeated; what cannot be read is reported as a problem and keeps its last good state.
    ///
    /// # Errors
    /// When it cannot go on.
    fn run(self: Box<Self>, sink: EventSink, stop: StopSignal) -> Result<(), SourceError>;
}

/// Runs a source on a thread named after it.
///
/// # Errors
/// When the thread cannot be started.
pub fn spawn(
    source: Box<dyn Source>,
    sink: EventSink,
    stop: StopSignal,
) -> io::Result<JoinHandle<Result<(), SourceError>>> {
    let name = format!("source-{}", source.name());
    thread::Builder::new().name(name).spawn(move || source.run(sink, stop))
}
