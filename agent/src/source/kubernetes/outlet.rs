//! Where the tasks of the source come together: one way out, one gate, one log.

use std::cell::RefCell;
use std::time::Instant;

use tokio::sync::Notify;

use super::gate::{Gate, NodeNeeds, Step};
use super::notices::Notices;
use crate::source::{EventSink, Object, ObjectKind, SinkClosed, SourceEvent};

/// Events of one batch. Few, since whole objects wait in a batch.
pub(super) const BATCH: usize = 64;

/// What the tasks share. They run on one thread.
pub(super) struct Outlet {
    sink: EventSink,
    gate: RefCell<Gate>,
    origin: Instant,
    /// Something happened that the gate waits for.
    pub(super) moved: Notify,
    /// What the log knows.
    pub(super) notices: Notices,
}

impl Outlet {
    pub(super) fn new(sink: EventSink, needs: NodeNeeds) -> Self {
        Self {
            sink,
            gate: RefCell::new(Gate::new(needs)),
            origin: Instant::now(),
            moved: Notify::new(),
            notices: Notices::default(),
        }
    }

    /// Hands over what there is, and blocks while nobody takes it.
    ///
    /// # Errors
    /// When nobody will.
    pub(super) fn send(&self, kind: ObjectKind, events: &mut Vec<SourceEvent>) -> Result<(), SinkClosed> {
        if events.is_empty() {
            return Ok(());
        }
        if kind == ObjectKind::Node {
            let nodes = events.iter().filter_map(|e| match e {
                SourceEvent::Upsert(Object::Node(node)) => Some(node),
                _ => None,
            });
            for node in nodes {
                self.gate.borrow_mut().node(node);
                self.moved.notify_one();
            }
        }
        self.sink.send(std::mem::replace(events, Vec::with_capacity(BATCH)))
    }

    /// All objects of a kind were handed over.
    pub(super) fn listed(&self, kind: ObjectKind) {
        self.gate.borrow_mut().listed(kind);
        self.moved.notify_one();
    }

    /// Waits until everything that is needed was handed over, and says so. `Ok(Err(reason))` when that will not be.
    ///
    /// # Errors
    /// When nobody takes the events.
    pub(super) async fn open(&self) -> Result<Result<(), &'static str>, SinkClosed> {
        let mut told = None;
        loop {
            let step = self.gate.borrow_mut().step(self.origin.elapsed());
            match step {
                Step::Wait => self.moved.notified().await,
                Step::WaitUntil(end, lacking) => {
                    if told.replace((end, lacking)).is_some_and(|(before, _)| before != end) {
                        tracing::warn!(
                            lacking,
                            "still waiting for the Node object before anything is programmed"
                        );
                    }
                    let left = end.saturating_sub(self.origin.elapsed());
                    let _ = tokio::time::timeout(left, self.moved.notified()).await;
                }
                Step::Open { lacking } => {
                    if let Some(lacking) = lacking {
                        tracing::error!(
                            lacking,
                            "Node object waited for in vain; going on without what it says"
                        );
                    }
                    self.sink.send(vec![SourceEvent::Synced])?;
                    return Ok(Ok(()));
                }
                Step::Fail(reason) => return Ok(Err(reason)),
            }
        }
    }
}
