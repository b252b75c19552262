//! The iptables model and packet walker: whole rulesets, the meaning of single matches, what is refused, the normal form, and the
//! real tools.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share are no test functions"
)]

mod compare;
mod example;
mod families;
mod kernel;
mod normal;
mod peer;
mod property;
mod refusals;
#[path = "../support/rows.rs"]
mod rows;
mod semantics;

use proxier_core::ids::IpFamily;
use proxier_testkit::iptables::{Families, Ruleset};

/// A host with one family's rules.
fn host_with(ruleset: Ruleset) -> Families {
    let mut families = Families::default();
    let family = ruleset.family();
    *families.get_mut(family) = ruleset;
    families
}

/// IPv4 rules of an input.
fn parse(text: &str) -> Ruleset {
    proxier_testkit::iptables::parse(IpFamily::Ipv4, text).unwrap_or_else(|error| panic!("{error}"))
}

/// An input for one table with two chains, `T` and `U`.
fn input(table: &str, lines: &str) -> String {
    format!("*{table}\n:T - [0:0]\n:U - [0:0]\n{lines}\nCOMMIT\n")
}
