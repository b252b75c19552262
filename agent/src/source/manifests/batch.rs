//! Events gathered into batches.

use crate::source::{EventSink, SinkClosed, SourceEvent};

/// Objects in a batch at most: enough to make waking cheap, few enough to keep little in memory while the receiver works.
pub(super) const LIMIT: usize = 256;

/// A batch in the making; sent when it is full and when it is flushed.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    sink: &'a EventSink,
    events: Vec<SourceEvent>,
    closed: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn new(sink: &'a EventSink) -> Self {
        Self { sink, events: Vec::new(), closed: false }
    }

    /// Adds an event. After the sink was closed events are dropped; [`Batch::flush`] tells.
    pub(super) fn push(&mut self, event: SourceEvent) {
        if self.closed {
            return;
        }
        self.events.push(event);
        if self.events.len() >= LIMIT {
            self.closed = self.sink.send(std::mem::take(&mut self.events)).is_err();
        }
    }

    /// Sends what there is.
    ///
    /// # Errors
    /// When nobody takes it, or took what was sent before.
    pub(super) fn flush(&mut self) -> Result<(), SinkClosed> {
        if self.closed {
            return Err(SinkClosed);
        }
        self.sink.send(std::mem::take(&mut self.events)).inspect_err(|_| self.closed = true)
    }
}
