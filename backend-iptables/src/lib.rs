//! The iptables backend: kube-proxy's chains and rules, written so that the work does not grow with the cluster.
//!
//! What it is: a [`proxier_core::backend::Backend`] for one IP family. Rendering turns a snapshot into inputs for
//! `iptables-restore --noflush`, pure and printable; applying hands them to the tool, by way of `proxier-xtables`. Shared chains are edited by single rules, a
//! service port's own chains are rewritten only when it changes, and full loads are split into bounded inputs.
//!
//! What it is not: it has no rule compiler of its own, and it touches no chain that is not named in the iptables spec, section 3.

mod batch;
pub mod belief;
pub mod cleanup;
mod compare;
pub mod counts;
pub mod desired;
pub mod diff;
pub mod environment;
pub mod error;
pub mod fragment;
mod iptables;
pub mod localnet;
pub mod names;
pub mod options;
pub mod plan;
pub mod probe;
pub mod render;
pub mod skeleton;
pub mod takeover;
#[cfg(test)]
mod tests;

pub use iptables::{Iptables, counted_packets};
pub use options::Options;
