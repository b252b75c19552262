//! The body of an answer, piece by piece, with an eye on the clock.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::timeout;

use super::fault::{Fault, explain};

/// A body.
pub(super) struct Pieces {
    body: Incoming,
    /// How it ended, when that was seen before anybody asked.
    ended: Option<Result<(), Fault>>,
}

impl Pieces {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, ended: None }
    }

    /// The next piece, waited for no longer than the limit; `None` at the end.
    ///
    /// # Errors
    /// [`Fault::Silent`] when none comes, [`Fault::Broken`] when the body ends too early.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(end) = self.ended.take() {
                return end.map(|()| None);
            }
            let Ok(frame) = timeout(limit, self.body.frame()).await else { return Err(Fault::Silent(limit)) };
            if let Some(data) = self.take(frame) {
                return Ok(Some(data));
            }
        }
    }

    /// A piece that is there already.
    pub(super) fn ready(&mut self) -> Option<Bytes> {
        while self.ended.is_none() {
            // whoever waits next says whom to wake
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(&mut context) else { return None };
            if let Some(data) = self.take(frame) {
                return Some(data);
            }
        }
        None
    }

    fn take(&mut self, frame: Option<Result<Frame<Bytes>, hyper::Error>>) -> Option<Bytes> {
        match frame {
            Some(Ok(frame)) => return frame.into_data().ok(),
            Some(Err(error)) => self.ended = Some(Err(Fault::Broken(explain(&error)))),
            None => self.ended = Some(Ok(())),
        }
        None
    }
}
