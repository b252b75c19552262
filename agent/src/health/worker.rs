//! The thread that opens and closes sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;
use proxier_core::snapshot::Snapshot;

use super::{Health, NodePorts};
use crate::http::{self, ServerHandle, Servers, Service};

/// Between two attempts at a socket that cannot be had (core spec 4.5).
const RETRY: Duration = Duration::from_secs(5);

/// How long requests that are being answered at the end may take.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The newest snapshot of each family that is in the kernel. Whoever puts one in never waits.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Mail {
    newest: PerFamily<Option<Snapshot>>,
    closed: bool,
}

impl Mailbox {
    pub(super) fn put(&self, snapshot: &Snapshot) {
        let mut mail = self.lock();
        *mail.newest.get_mut(snapshot.family()) = Some(snapshot.clone());
        self.bell.notify_one();
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_one();
    }

    /// Waits until there is something, no longer than this; `None` when it is over.
    fn take(&self, longest: Option<Duration>) -> Option<Vec<Snapshot>> {
        let idle =
            |mail: &mut Mail| !mail.closed && IpFamily::ALL.iter().all(|f| mail.newest.get(*f).is_none());
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
        Some(IpFamily::ALL.into_iter().filter_map(|f| mail.newest.get_mut(f).take()).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The health server of the process.
#[derive(Debug)]
pub(super) struct Process {
    address: SocketAddr,
    servers: Servers,
    health: Arc<Health>,
    server: Option<ServerHandle>,
    /// What was said about why there is none.
    told: Option<String>,
}

impl Process {
    pub(super) fn new(address: SocketAddr, servers: Servers, health: Arc<Health>) -> Self {
        Self { address, servers, health, server: None, told: None }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens, if it does not yet. A cause is logged once.
    pub(super) fn try_start(&mut self) -> io::Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let health = Arc::clone(&self.health);
        let service = Service::new(move |head| health.respond(head));
        match http::bind(self.address).and_then(|listener| self.servers.serve(listener, service)) {
            Ok(server) => {
                tracing::info!(address = %self.address, "health server listens");
                (self.server, self.told) = (Some(server), None);
                Ok(())
            }
            Err(error) => {
                let cause = error.to_string();
                if self.told.as_ref() != Some(&cause) {
                    tracing::error!(address = %self.address, error = %error, "health server cannot listen");
                    self.told = Some(cause);
                }
                Err(error)
            }
        }
    }
}

/// Everything that has sockets.
pub(super) struct Worker {
    mailbox: Arc<Mailbox>,
    process: Option<Process>,
    ports: Vec<NodePorts>,
}

impl Worker {
    pub(super) fn new(mailbox: Arc<Mailbox>, process: Option<Process>, ports: Vec<NodePorts>) -> Self {
        Self { mailbox, process, ports }
    }

    pub(super) fn run(mut self) {
        while let Some(snapshots) = self.mailbox.take(self.incomplete().then_some(RETRY)) {
            // what is said to be the cause stays the same from one attempt to the next
            if let Some(process) = &mut self.process {
                let _ = process.try_start();
            }
            for ports in &mut self.ports {
                match snapshots.iter().find(|s| s.family() == ports.family()) {
                    Some(snapshot) => ports.adopt(snapshot),
                    None => ports.retry(),
                }
            }
        }
        if let Some(server) = self.process.and_then(|p| p.server) {
            server.drain(LAST_ANSWERS);
        }
    }

    fn incomplete(&self) -> bool {
        self.process.as_ref().is_some_and(|p| p.server.is_none())
            || self.ports.iter().any(NodePorts::incomplete)
    }
}
