//! How a server begins.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::access::Access;
use super::clock::Clock;
use super::error::Error;
use super::listen::{Lines, Running, Tls};
use super::server::ApiServer;
use super::shared::{Protocols, Settings, Shared};
use super::store::Store;
use super::tls::{Authority, ServerCertificate};

/// Settings of a server that is not started yet.
#[derive(Debug)]
pub struct Builder {
    settings: Settings,
    access: Access,
    address: SocketAddr,
    history: usize,
    tls: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            settings: Settings {
                future_wait: Duration::from_secs(3),
                watch_timeout: Duration::from_secs(1800),
                bookmark_every: Duration::from_secs(60),
                streaming_lists: true,
                protocols: Protocols::Both,
            },
            access: Access::default(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            history: usize::MAX,
            tls: false,
        }
    }
}

impl Builder {
    /// Where to listen; a free port of 127.0.0.1 unless said otherwise.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Speaks TLS, with an authority of its own ([`ApiServer::authority`]).
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Which HTTP to speak; what the client prefers unless said otherwise.
    #[must_use]
    pub fn protocols(mut self, protocols: Protocols) -> Self {
        self.settings.protocols = protocols;
        self
    }

    /// Knows a user by a bearer token. With the first user, requests without a known user are refused (401). A user may
    /// do everything until it gets rules.
    #[must_use]
    pub fn token(mut self, token: &str, user: &str) -> Self {
        self.access.token(token, user);
        self
    }

    /// Lets a user do what these rules allow (as a `ClusterRole` lists them), in one namespace or everywhere, and
    /// nothing else.
    #[must_use]
    pub fn allow(mut self, user: &str, namespace: Option<&str>, rules: Vec<PolicyRule>) -> Self {
        self.access.allow(user, namespace, rules);
        self
    }

    /// Lets a user do nothing, until rules allow something.
    #[must_use]
    pub fn forbid(mut self, user: &str) -> Self {
        self.access.forbid(user);
        self
    }

    /// How many changes of each resource are remembered; older ones are compacted. All of them unless said otherwise.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// Whether watches may ask for the state (`sendInitialEvents`): a server without refuses (422), as one with the
    /// feature gate `WatchList` off does. Yes unless said otherwise.
    #[must_use]
    pub fn streaming_lists(mut self, yes: bool) -> Self {
        self.settings.streaming_lists = yes;
        self
    }

    /// How often a watch that wants bookmarks gets one; 60 s unless said otherwise.
    #[must_use]
    pub fn bookmark_every(mut self, time: Duration) -> Self {
        self.settings.bookmark_every = time;
        self
    }

    /// How long a watch lasts that does not ask for a time; 30 min unless said otherwise.
    #[must_use]
    pub fn watch_timeout(mut self, time: Duration) -> Self {
        self.settings.watch_timeout = time;
        self
    }

    /// How long a request for a version that is not there yet waits for it; 3 s unless said otherwise.
    #[must_use]
    pub fn future_wait(mut self, time: Duration) -> Self {
        self.settings.future_wait = time;
        self
    }

    /// Starts the server on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened at, or a certificate cannot be made.
    pub async fn start(self) -> Result<ApiServer, Error> {
        let authority = if self.tls { Some(Authority::try_new()?) } else { None };
        let acceptor =
            |authority: &Authority| authority.acceptor(ServerCertificate::Good, self.settings.protocols);
        let tls = authority.as_ref().map(acceptor).transpose()?.map(Tls);
        let store = Store::new(self.history, Clock::new());
        let shared = Arc::new(Shared::new(self.settings, store, self.access));
        let lines = Arc::new(Lines::new(tls));
        let started = Running::start(shared.clone(), lines.clone(), self.address).await;
        let (running, address) = started.map_err(Error::Listen)?;
        Ok(ApiServer::new(shared, lines, running, address, authority))
    }
}
