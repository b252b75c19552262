//! A model of nftables that reads nft *text*: what a backend would send, and what the kernel lists.
//!
//! What it is: [`parse`] builds a [`Ruleset`] from a script (`add rule ...`, one command a line) or from the output of
//! `nft list table`; [`Ruleset::apply`] runs a further script over it and refuses what the kernel would refuse, all or
//! nothing; [`walk`] asks the rules where the first packet of a connection goes. It shares no code with any backend,
//! so that the same question can be put to a rendered plan, to a programmed kernel and to another proxy's rules.
//!
//! What it is not: the whole language. Everything outside the part of it that service proxies use is an error.
//!
//! ```
//! use proxier_core::oracle::{Entry, Outcome, Packet};
//! use proxier_core::ids::Protocol;
//! use proxier_testkit::{nft, walk::WalkHost};
//!
//! let rules = nft::parse(
//!     "add table ip t\n\
//!      add chain ip t pre { type nat hook prerouting priority -100 ; }\n\
//!      add rule ip t pre ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.0.2:8080\n",
//! )?;
//! let packet = Packet {
//!     source: "10.244.0.9".parse()?,
//!     destination: "10.96.0.1".parse()?,
//!     protocol: Some(Protocol::Tcp),
//!     port: 80,
//!     entry: Entry::Interface("eth0".into()),
//! };
//! let outcome = nft::walk(&rules, &packet, &WalkHost::new([]))?.outcome()?;
//! assert!(matches!(outcome, Outcome::Endpoints(choices) if choices.len() == 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ast;
mod check;
mod elements;
mod error;
mod hooks;
mod model;
mod parse;
mod run;
mod state;
mod table;
mod token;
mod value;

pub use ast::{CtState, Dnat, DnatTarget, Field, LookupIn, Rule, Side, Statement, Verdict};
pub use elements::{Element, ElementConflict, Elements, Value};
pub use error::{Cause, ModelError, ParseError};
pub use hooks::walk;
pub use model::{BaseChain, Chain, ChainKind, DataKind, Hook, Ruleset, Set, SetFlags, SetSpec};
pub use table::Table;
pub use value::{DataType, Datum, Key, Pattern};

/// Reads a script or a listing into a new ruleset.
///
/// # Errors
/// The line and text of the first thing that is not understood, or that the kernel would refuse.
pub fn parse(text: &str) -> Result<Ruleset, ParseError> {
    let mut ruleset = Ruleset::default();
    ruleset.apply(text)?;
    Ok(ruleset)
}
