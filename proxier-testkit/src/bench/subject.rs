//! What can be measured: something that takes changes and says when they are in the kernel.

use std::time::Instant;

use super::{Error, Process};
use crate::scale::Part;

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A Service is there.
    Service(u32),
    /// A Service is gone.
    ServiceGone(u32),
    /// A slice is there, or has other content.
    Slice(Part),
    /// A slice is gone.
    SliceGone(Part),
}

/// One sync that wrote to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    /// When it was known.
    pub at: Instant,
    /// Service ports that differed.
    pub ports: u64,
    /// Netlink messages.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// What is measured.
pub trait Subject {
    /// Takes changes, which belong together, without waiting for their effect.
    ///
    /// # Errors
    /// When it cannot.
    fn send(&mut self, changes: &[Change]) -> Result<(), Error>;

    /// The next sync that wrote something; `None` if there was none until then.
    ///
    /// # Errors
    /// When a sync fails.
    fn next(&mut self, until: Instant) -> Result<Option<Synced>, Error>;

    /// Whose CPU time and memory counts.
    fn process(&self) -> Process;
}
