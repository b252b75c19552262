//! The iptables backend: kube-proxy's chains and rules, written so that the work does not grow with the cluster.
//!
//! What it is: a [`proxier_core::backend::Backend`] for one IP family. Rendering turns a snapshot into inputs for
//! `iptables-restore --noflush`, pure and printable; applying hands them to the tool. Shared chains are edited by single rules, a
//! service port's own chains are rewritten only when it changes, and full loads are split into bounded inputs.
//!
//! What it is not: it has no rule compiler of its own, and it touches no chain that is not named in the iptables spec, section 3.

pub mod accounting;
pub mod cleanup;
pub mod error;
pub mod localnet;
pub mod message;
pub mod objects;
pub mod probe;
pub mod restore;
pub mod saved;
#[cfg(test)]
mod script;
pub mod spelling;
pub mod tool;
pub mod trial;
