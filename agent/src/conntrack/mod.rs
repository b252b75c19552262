//! Deletes UDP flows that a change of the rules left behind (core spec 5).
//!
//! What it is: a thread beside the sync loop. After a sync went in, the loop hands over what it may have left behind
//! ([`StaleFlows`](proxier_core::stale::StaleFlows)) and goes on; what comes while a pass runs adds up and is one pass more. Which flows
//! go is the core's decision, how they are listed and deleted is `proxier_sys::conntrack`'s; here is when, how thoroughly, and what
//! becomes of failures. Nothing that happens here fails a sync.
//!
//! ```text
//! sync loop ── synced ──> Cleaner ── Schedule: what waits, per family ──> thread: sweep ── list ──> kernel
//!                                          ^ what failed comes back          └── Pass ──> callback
//! ```

mod schedule;
mod sweep;
#[cfg(test)]
mod tests;
mod worker;

use std::time::Duration;

use proxier_core::ids::IpFamily;
use proxier_core::stale::Scope;
use proxier_sys::netlink::Sent;

pub use sweep::{Delete, List, SweepError, Tables};
pub use worker::Cleaner;

/// One pass over the flows of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The family.
    pub family: IpFamily,
    /// What was looked for.
    pub scope: Scope,
    /// How long it took.
    pub took: Duration,
    /// How often the kernel was asked to walk through its table.
    pub walks: u32,
    /// Flows that the kernel listed.
    pub examined: u64,
    /// Flows that were deleted.
    pub deleted: u64,
    /// Flows that should have been deleted and were not: the kernel refused.
    pub refused: u64,
    /// Something may not have been seen: the kernel interrupted a listing every time. It will be looked at again.
    pub partial: bool,
    /// What was sent to the kernel.
    pub sent: Sent,
}
