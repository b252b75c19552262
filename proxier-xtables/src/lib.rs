//! The iptables tools, for every backend that writes rules with them.
//!
//! What it is: the choice between their variants ([`tool`]), tables, chains, rules and the inputs that change them ([`objects`]), rules
//! in the spelling that the tools print ([`rule`], [`pods`]), the
//! writer that hands inputs to `iptables-restore`, waits for the lock and says which line was refused ([`restore`], [`message`]), the
//! reader of what `iptables-save` prints ([`saved`], [`spelling`], [`drift`]), and a place where rules are tried without touching the host
//! ([`trial`], [`feature`]).
//!
//! What it is not: it knows no Service and no chain. Which chains there are, whose they are and what is in them is a backend's business.
//!
//! ```no_run
//! use proxier_core::ids::IpFamily;
//! use proxier_sys::runner::SystemRunner;
//! use proxier_xtables::objects::{ChainId, Input, Op, Rule, Step, Table};
//! use proxier_xtables::restore::{Patience, Restorer};
//! use proxier_xtables::{tool, trial};
//!
//! # fn main() -> Result<(), proxier_xtables::Error> {
//! let runner = SystemRunner::new();
//! let tools = tool::choose(&runner, IpFamily::Ipv4, None)?.tools;
//! let chain = ChainId { table: Table::Nat, name: "KUBE-EXAMPLE".into() };
//! let steps = [Op::Chain(chain.clone()), Op::Append(chain, Rule("-j RETURN".into()))];
//! let input = Input { steps: steps.map(|op| Step { op, port: None }).into() };
//! let restorer = Restorer { runner: &runner, tools: &tools, trial: &trial::scratch, patience: Patience::default() };
//! restorer.run(&[input], &mut |_| {})?;
//! # Ok(())
//! # }
//! ```

pub mod accounting;
pub mod drift;
pub mod error;
pub mod feature;
pub mod message;
pub mod objects;
pub mod pods;
pub mod restore;
pub mod rule;
pub mod saved;
pub mod spelling;
pub mod tool;
pub mod trial;

pub use error::Error;
