//! What an operator asks a running agent: how it is, what was decided and why, what is written, what happened lately.
//!
//! An [`Observer`](crate::sync::Observer) follows the sync loop and writes down a little after each step: into [`Metrics`] for machines, onto a [`Board`]
//! for people. Everything else happens on other threads: [`Pages`] answers on `metricsBindAddress`, [`Desk`] on a socket in the file system.
//! Snapshots are shared references, so what is printed of them costs the loop nothing; a lock is held for as long as it takes to copy some.
//!
//! `docs/admin.md` tells each request.

mod attach;
mod board;
mod decisions;
mod desk;
mod history;
mod observer;
mod pages;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

pub use self::attach::{ADMIN_SOCKET, Attached, MetricsOptions, ServeError, Surroundings, attach};
pub use self::board::{Board, LaneState};
pub use self::desk::Desk;
pub use self::history::{Names, SYNCS, SyncRecord};
pub use self::observer::{Follower, Printers};
pub use self::pages::Pages;
use crate::metrics::{Metrics, Page};

/// Values and state, shared by all who write or read them.
#[derive(Debug)]
pub struct Insight {
    /// For machines.
    pub metrics: Metrics,
    /// For people.
    pub board: Board,
}

impl Insight {
    /// Both together.
    #[must_use]
    pub fn new(metrics: Metrics, board: Board) -> Arc<Self> {
        Arc::new(Self { metrics, board })
    }

    /// A scrape.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = self.metrics.page(&self.board.pending());
        self.board.collect(&mut page);
        page
    }
}
