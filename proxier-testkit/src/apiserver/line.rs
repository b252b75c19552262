//! A connection that can be closed or made silent from outside.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// The switches of one connection.
#[derive(Debug, Default)]
pub(super) struct Line {
    silent: AtomicBool,
    close: Notify,
}

impl Line {
    /// Neither reads nor writes any more; the connection stays open.
    pub(super) fn silence(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        self.close.notify_one();
    }

    /// Waits for [`Self::close`].
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }
}

/// A byte stream under the switches of a [`Line`].
pub(super) struct Gate<S> {
    pub(super) stream: S,
    pub(super) line: std::sync::Arc<Line>,
}

impl<S> Gate<S> {
    /// The stream, unless it is silent. A silent one is not woken again: only closing ends it.
    fn open(&mut self) -> Option<Pin<&mut S>>
    where
        S: Unpin,
    {
        (!self.line.silent.load(Ordering::Relaxed)).then(|| Pin::new(&mut self.stream))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().open().map_or(Poll::Pending, |stream| stream.poll_read(context, buffer))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().open().map_or(Poll::Pending, |stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().open().map_or(Poll::Pending, |stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().open().map_or(Poll::Pending, |stream| stream.poll_shutdown(context))
    }
}
