//! A model of iptables that reads `iptables-restore` inputs and what `iptables-save` prints.
//!
//! What it is: [`Ruleset::restore`] does what `iptables-restore --noflush` and the kernel do with an input, table by table, and refuses
//! what they would refuse; [`Ruleset::print`] is what `iptables-save` would print; [`walk`] asks the rules where the first packet of a
//! connection goes; [`differences`] compares two rulesets, without the order of rules that exclude one another. It shares no code
//! with any backend. Rules are kept in the form in which the kernel keeps them, so that all spellings of one are the same (iptables spec
//! 11).
//!
//! What it is not: the whole tool. It knows the tables filter, nat and mangle, and the matches and targets that service proxies use;
//! everything else is an error. Where the two variants of the tool do not agree, the model refuses what either of them refuses.
//!
//! ```
//! use proxier_core::ids::{IpFamily, Protocol};
//! use proxier_core::oracle::{Entry, Outcome, Packet};
//! use proxier_testkit::{iptables, walk::WalkHost};
//!
//! let rules = iptables::parse(
//!     IpFamily::Ipv4,
//!     "*nat\n\
//!      :SVC - [0:0]\n\
//!      -A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j SVC\n\
//!      -A SVC -p tcp -j DNAT --to-destination 10.244.0.2:8080\n\
//!      COMMIT\n",
//! )?;
//! assert!(rules.print().contains("-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j SVC\n"));
//! let packet = Packet {
//!     source: "10.244.0.9".parse()?,
//!     destination: "10.96.0.1".parse()?,
//!     protocol: Some(Protocol::Tcp),
//!     port: 80,
//!     entry: Entry::Interface("eth0".into()),
//! };
//! let outcome = iptables::walk(&rules, &packet, &WalkHost::new([]))?.outcome()?;
//! assert!(matches!(outcome, Outcome::Endpoints(choices) if choices.len() == 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use proxier_core::ids::IpFamily;

mod ast;
mod check;
mod compare;
mod error;
mod families;
mod hooks;
mod model;
mod parse;
mod print;
mod run;
mod state;
mod table;
mod token;

pub use ast::{
    AddressTypes, CtStates, Interface, Marked, Match, Maybe, Ports, Recent, RecentAction, Rule, SetMatch,
    Statistic, Target,
};
pub use compare::{Difference, differences, levels};
pub use error::{Cause, RestoreError};
pub use families::Families;
pub use hooks::{Balance, Balancer, walk, walk_balanced};
pub use model::{NoList, RECENT_ADDRESSES, Ruleset};
pub use table::{Chain, Table, TableName};

/// Reads an input, or what `iptables-save` printed, into a new ruleset.
///
/// # Errors
/// The line and text of the first thing that is refused.
pub fn parse(family: IpFamily, text: &str) -> Result<Ruleset, RestoreError> {
    let mut ruleset = Ruleset::new(family);
    ruleset.restore(text)?;
    Ok(ruleset)
}
