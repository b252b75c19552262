//! The nftables backend: services as elements of a few sized maps, written straight over netlink.
//!
//! What it is: a [`proxier_core::backend::Backend`] for one IP family. [`render`] turns a snapshot into a [`plan::Plan`], pure and printable in
//! `nft` syntax; [`apply`] hands the same plan to the kernel as one transaction. Nothing is read back on the way of a
//! change; [`verify`](Nftables) compares a dump with the belief, apart from it.
//!
//! What it is not: it never starts `nft`, and never looks at another table than its own.

pub mod apply;
pub mod belief;
pub mod cold;
pub mod container;
pub mod counts;
pub mod diff;
pub mod error;
pub mod fragment;
pub mod layout;
pub mod objects;
pub mod options;
pub mod plan;
pub mod probe;
pub mod render;
pub mod takeover;
pub mod text;
pub mod wire;

mod nftables;

pub use nftables::Nftables;
pub use options::Options;

#[cfg(test)]
mod tests;
