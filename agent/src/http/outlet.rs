//! A server whose place may change while it runs.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Listener, ServerHandle, Servers, Service, bind};

/// How long requests that are being answered may take when a server leaves its place.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Where a server can be.
pub trait Place: Clone + PartialEq + fmt::Display + Send + 'static {
    /// Opens a socket there.
    ///
    /// # Errors
    /// The place is taken, or none of this machine's.
    fn open(&self) -> io::Result<Listener>;

    /// Can the two not be had at a time?
    fn excludes(&self, other: &Self) -> bool;

    /// Removes what a server that is closed left behind.
    fn left(&self) {}
}

impl Place for SocketAddr {
    fn open(&self) -> io::Result<Listener> {
        bind(*self).map(Listener::from)
    }

    /// One of them is all addresses of the port.
    fn excludes(&self, other: &Self) -> bool {
        self.port() == other.port() && (self.ip().is_unspecified() || other.ip().is_unspecified())
    }
}

/// A server, where it is wanted and where it is. [`Outlet::settle`] brings the two together; while it cannot, the server stays where it was,
/// unless the new place and the old one exclude each other. Dropped, the server is closed.
#[derive(Debug)]
pub struct Outlet<P: Place> {
    what: &'static str,
    servers: Servers,
    service: Service,
    wanted: Option<P>,
    there: Option<(P, ServerHandle)>,
    /// What was said about why it is not where it is wanted.
    told: Option<String>,
}

impl<P: Place> Outlet<P> {
    /// Nowhere so far. Log lines call it so.
    #[must_use]
    pub fn new(what: &'static str, servers: Servers, service: Service) -> Self {
        Self { what, servers, service, wanted: None, there: None, told: None }
    }

    /// It is wanted there from now on; `None` for nowhere.
    pub fn want(&mut self, place: Option<P>) {
        if self.wanted != place {
            (self.wanted, self.told) = (place, None);
        }
    }

    /// Is it where it is wanted?
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.wanted.as_ref() == self.there.as_ref().map(|(place, _)| place)
    }

    /// Where it listens, if that is an address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.there.as_ref()?.1.address()
    }

    /// Goes where it is wanted, if it is not there. A cause why it cannot is logged once.
    ///
    /// # Errors
    /// The place cannot be had.
    pub fn settle(&mut self) -> io::Result<()> {
        let what = self.what;
        if self.is_settled() {
            return Ok(());
        }
        let Some(place) = self.wanted.clone() else {
            self.move_out();
            return Ok(());
        };
        if self.there.as_ref().is_some_and(|(old, _)| old.excludes(&place)) {
            self.move_out();
        }
        match place.open().and_then(|listener| self.servers.serve(listener, self.service.clone())) {
            Ok(server) => {
                tracing::info!(what, at = %place, "serving");
                self.move_out();
                (self.there, self.told) = (Some((place, server)), None);
                Ok(())
            }
            Err(error) => {
                let cause = error.to_string();
                if self.told.as_ref() != Some(&cause) {
                    tracing::warn!(what, at = %place, error = %error, "cannot serve; tried again every 5 s");
                    self.told = Some(cause);
                }
                Err(error)
            }
        }
    }

    /// Is wanted nowhere and is nowhere.
    pub fn close(&mut self) {
        self.want(None);
        self.leave();
    }

    /// Returns from where.
    fn leave(&mut self) -> Option<P> {
        let (place, server) = self.there.take()?;
        server.drain(LAST_ANSWERS);
        place.left();
        Some(place)
    }

    fn move_out(&mut self) {
        if let Some(place) = self.leave() {
            tracing::info!(what = self.what, at = %place, "no longer served there");
        }
    }
}

impl<P: Place> Drop for Outlet<P> {
    fn drop(&mut self) {
        self.close();
    }
}
