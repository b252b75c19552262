//! Bodies of answers: whole, made bit by bit, or fed by a task.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// About how much is written at once.
pub(super) const CHUNK: usize = 64 * 1024;

/// A stream that ends in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the answer is cut off on purpose")]
pub(super) struct Cut;

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A body.
pub(super) enum Answer {
    /// All of it, with its length announced.
    Whole(Option<Bytes>),
    /// Parts, made as the client takes them.
    Parts(Box<dyn Iterator<Item = Bytes> + Send>),
    /// Parts from a task.
    Fed(mpsc::Receiver<Result<Bytes, Cut>>),
}

impl Answer {
    /// A body of known content: short ones with their length, as Go's server does, which announces a length if all fits
    /// its buffer when the handler is done (net/http: 2 kB for HTTP/1, 4 kB for HTTP/2).
    pub(super) fn known(bytes: Bytes, http2: bool) -> Self {
        let buffer = if http2 { 4096 } else { 2048 };
        if bytes.len() <= buffer {
            return Self::Whole(Some(bytes));
        }
        let mut rest = bytes;
        Self::Parts(Box::new(std::iter::from_fn(move || {
            let next = rest.split_to(rest.len().min(CHUNK));
            (!next.is_empty()).then_some(next)
        })))
    }

    /// The next part.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        match self {
            Self::Whole(bytes) => bytes.take().map(Ok),
            Self::Parts(parts) => parts.next().map(Ok),
            Self::Fed(receiver) => receiver.recv().await,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let next = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Self::Parts(parts) => Poll::Ready(parts.next().map(Ok)),
            Self::Fed(receiver) => receiver.poll_recv(context),
        };
        next.map(|part| part.map(|part| part.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            _ => SizeHint::default(),
        }
    }
}
