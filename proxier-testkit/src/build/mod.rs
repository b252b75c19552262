//! Random clusters, histories and packets, small enough for things to collide and for packets to hit.
//!
//! Everything comes from [`Dice`], which a seed makes repeatable: the same seed gives the same cluster on every machine. The
//! [`strategy`] module wraps the same generators for `proptest`; there each Service and each step has a seed of its own, so
//! that shrinking leaves them out one by one.
//!
//! The objects are [`proxier_core::model`] values, valid by construction as intake would give them. All addresses come from the
//! pools in [`pool`]. Two things are kept apart on purpose, because no rule set can tell them from one another: an address is on
//! the same node in every EndpointSlice, and no endpoint has the address and port of some frontend.
//!
//! ```
//! use proxier_core::ids::IpFamily;
//! use proxier_testkit::build::{Dice, Scenario, packets};
//!
//! let commit = Scenario::from_seed(7).cluster().commit();
//! let questions = packets(&mut Dice::new(1), commit.snapshot(IpFamily::Ipv4), 20);
//! assert_eq!(questions.len(), 20);
//! ```

mod dice;
mod history;
mod node;
mod packets;
pub mod pool;
mod scenario;
mod service;
mod slice;
pub mod strategy;

pub use dice::Dice;
pub use history::{History, Step};
pub use node::{node, options};
pub use packets::{host_of, packets};
pub use scenario::{Scenario, Unit};
pub use service::service;
pub use slice::{slice, slices};

#[cfg(test)]
mod tests;
