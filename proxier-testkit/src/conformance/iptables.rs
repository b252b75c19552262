//! iptables as a kernel model.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_core::oracle::Packet;

use super::Model;
use crate::iptables::{Families, levels};
use crate::walk::{Walk, WalkHost};

impl Model for Families {
    /// See [`Families::apply`]: the text says which family it is for. Each of its tables for itself goes in whole or not at all.
    fn apply(&mut self, script: &str) -> Result<(), String> {
        Self::apply(self, script).map_err(|e| e.to_string())
    }

    fn walk(&self, packet: &Packet, host: &WalkHost) -> Result<Walk, String> {
        Self::walk(self, packet, host).map_err(|e| e.to_string())
    }

    /// The record is the name of a list of `recent`.
    fn remember(&mut self, record: &str, client: IpAddr) -> Result<(), String> {
        self.add_recent(record, client).map_err(|e| e.to_string())
    }

    /// Policies that drop, and rules with their chain and [level](levels). Chains without rules do not count: they wait to be
    /// deleted.
    fn objects(&self) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        for family in IpFamily::ALL {
            for table in self.get(family).tables() {
                for (name, chain) in table.chains() {
                    let place = format!("{family} {} {name}", table.name().as_str());
                    if chain.policy == Some(false) {
                        out.insert(format!("{place} drops"));
                    }
                    // Rules that are the same have different levels.
                    let rules = chain.rules.iter().zip(levels(&chain.rules));
                    out.extend(rules.map(|(rule, level)| format!("{place} {level}: {}", rule.text)));
                }
            }
        }
        out
    }
}
