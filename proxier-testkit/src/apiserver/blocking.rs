//! The server for tests that are not asynchronous.

use std::ops::Deref;

use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

use super::builder::Builder;
use super::error::Error;
use super::server::ApiServer;

/// An [`ApiServer`] on a runtime of its own. Not for use inside another runtime.
#[derive(Debug)]
pub struct BlockingApiServer {
    server: ApiServer,
    runtime: Runtime,
}

impl BlockingApiServer {
    /// Starts a server on two threads of its own.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`], and if the threads cannot be started.
    pub fn start(builder: Builder) -> Result<Self, Error> {
        let runtime = RuntimeBuilder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(Error::Runtime)?;
        let server = runtime.block_on(builder.start())?;
        Ok(Self { server, runtime })
    }

    /// As [`ApiServer::stop`].
    pub fn stop(&self) {
        self.runtime.block_on(self.server.stop());
    }

    /// As [`ApiServer::restart`].
    ///
    /// # Errors
    ///
    /// As [`ApiServer::restart`].
    pub fn restart(&self) -> Result<(), Error> {
        self.runtime.block_on(self.server.restart())
    }
}

impl Deref for BlockingApiServer {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.server
    }
}
