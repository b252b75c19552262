//! How a source is tied to the rest: where its events go, and how it is told to stop.

use std::fmt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::event::SourceEvent;

/// Nobody takes the events any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody takes the events any more")]
pub struct SinkClosed;

type Deliver = dyn Fn(Vec<SourceEvent>) -> Result<(), SinkClosed> + Send + Sync;

/// Where events go. What a batch holds belongs together.
#[derive(Clone)]
pub struct EventSink(Arc<Deliver>);

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

impl EventSink {
    /// A sink that hands each batch to `deliver`, which may block to slow the source down.
    pub fn new(deliver: impl Fn(Vec<SourceEvent>) -> Result<(), SinkClosed> + Send + Sync + 'static) -> Self {
        Self(Arc::new(deliver))
    }

    /// A sink and the other end of it. `bound` batches may wait before the source does.
    #[must_use]
    pub fn channel(bound: usize) -> (Self, Receiver<Vec<SourceEvent>>) {
        let (sender, receiver) = sync_channel(bound);
        (Self::new(move |batch| sender.send(batch).map_err(|_| SinkClosed)), receiver)
    }

    /// Hands over a batch; an empty one is not sent.
    ///
    /// # Errors
    /// When nobody takes it.
    pub fn send(&self, batch: Vec<SourceEvent>) -> Result<(), SinkClosed> {
        if batch.is_empty() { Ok(()) } else { (self.0)(batch) }
    }
}

#[derive(Default)]
struct StopState {
    raised: bool,
    wakers: Vec<Box<dyn FnOnce() + Send>>,
}

/// Tells sources to stop. Clones are the same signal.
#[derive(Clone, Default)]
pub struct StopSignal(Arc<Mutex<StopState>>);

impl fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopSignal").field(&self.is_raised()).finish()
    }
}

impl StopSignal {
    /// A signal that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Was it raised?
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).raised
    }

    /// Raises it, for good.
    pub fn raise(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.raised = true;
            std::mem::take(&mut state.wakers)
        };
        for wake in wakers {
            wake();
        }
    }

    /// Calls `wake` once when the signal is raised; at once if it is already. This is how a source that waits for something else,
    /// a channel or an async runtime, is woken.
    pub fn on_raise(&self, wake: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.raised {
                state.wakers.push(Box::new(wake));
                return;
            }
        }
        wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn stop_wakes_everyone_once() {
        let (stop, woken) = (StopSignal::new(), Arc::new(AtomicUsize::new(0)));
        let wake = || {
            let woken = Arc::clone(&woken);
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        };
        stop.on_raise(wake());
        assert!(!stop.is_raised());
        stop.raise();
        stop.raise();
        assert!(stop.clone().is_raised());
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        stop.on_raise(wake());
        assert_eq!(woken.load(Ordering::SeqCst), 2, "at once when already raised");
    }

    #[test]
    fn a_closed_sink_says_so() {
        let (sink, receiver) = EventSink::channel(1);
        sink.send(Vec::new()).expect("nothing to send");
        sink.send(vec![SourceEvent::Synced]).expect("room");
        assert_eq!(receiver.recv().expect("batch"), [SourceEvent::Synced]);
        drop(receiver);
        assert_eq!(sink.send(vec![SourceEvent::Synced]), Err(SinkClosed));
    }
}
