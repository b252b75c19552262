//! The thread that opens and closes sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;
use proxier_core::snapshot::Snapshot;

use super::NodePorts;
use crate::http::Outlet;

/// Between two attempts at a socket that cannot be had (core spec 4.5).
const RETRY: Duration = Duration::from_secs(5);

/// The newest snapshot of each family that is in the kernel, and where the health server is wanted. Whoever puts one in never waits.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Mail {
    newest: PerFamily<Option<Snapshot>>,
    moved: Option<Option<SocketAddr>>,
    closed: bool,
}

/// What came since it was looked last.
struct News {
    snapshots: Vec<Snapshot>,
    /// Another address of the health server; `Some(None)` for no server.
    moved: Option<Option<SocketAddr>>,
}

impl Mailbox {
    pub(super) fn put(&self, snapshot: &Snapshot) {
        let mut mail = self.lock();
        *mail.newest.get_mut(snapshot.family()) = Some(snapshot.clone());
        self.bell.notify_one();
    }

    pub(super) fn listen_at(&self, address: Option<SocketAddr>) {
        self.lock().moved = Some(address);
        self.bell.notify_one();
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_one();
    }

    /// Waits until there is something, no longer than this; `None` when it is over.
    fn take(&self, longest: Option<Duration>) -> Option<News> {
        let idle = |mail: &mut Mail| {
            !mail.closed
                && mail.moved.is_none()
                && IpFamily::ALL.iter().all(|f| mail.newest.get(*f).is_none())
        };
        let mail = self.lock();
        let mut mail = match longest {
            None => self.bell.wait_while(mail, idle).unwrap_or_else(PoisonError::into_inner),
            Some(longest) => {
                let waited = self.bell.wait_timeout_while(mail, longest, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if mail.closed {
            return None;
        }
        let snapshots = IpFamily::ALL.into_iter().filter_map(|f| mail.newest.get_mut(f).take()).collect();
        Some(News { snapshots, moved: mail.moved.take() })
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that has sockets.
pub(super) struct Worker {
    mailbox: Arc<Mailbox>,
    process: Outlet<SocketAddr>,
    ports: Vec<NodePorts>,
}

impl Worker {
    pub(super) fn new(mailbox: Arc<Mailbox>, process: Outlet<SocketAddr>, ports: Vec<NodePorts>) -> Self {
        Self { mailbox, process, ports }
    }

    pub(super) fn run(mut self) {
        while let Some(News { snapshots, moved }) = self.mailbox.take(self.incomplete().then_some(RETRY)) {
            if let Some(address) = moved {
                self.process.want(address);
            }
            // a failure is logged, and tried again
            let _ = self.process.settle();
            for ports in &mut self.ports {
                match snapshots.iter().find(|s| s.family() == ports.family()) {
                    Some(snapshot) => ports.adopt(snapshot),
                    None => ports.retry(),
                }
            }
        }
    }

    fn incomplete(&self) -> bool {
        !self.process.is_settled() || self.ports.iter().any(NodePorts::incomplete)
    }
}
