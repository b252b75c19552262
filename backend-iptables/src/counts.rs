//! How many rules there are: figures for whoever watches, kept up with the belief so that no sync counts what it does not touch.

use std::ops::{Add, Sub};

use proxier_core::backend::RuleCount;
use proxier_xtables::objects::{Input, Op, Table};

use crate::desired::{Desired, Want};
use crate::environment::Environment;
use crate::fragment::Fragment;
use crate::skeleton::{self, Shared};

/// Rules of the tables that are counted; mangle holds none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Refusals, source ranges, forwarding.
    pub filter: usize,
    /// Translation.
    pub nat: usize,
}

impl Counts {
    fn count(&mut self, table: Table, rules: usize) {
        match table {
            Table::Filter => self.filter += rules,
            Table::Nat => self.nat += rules,
            Table::Mangle => {}
        }
    }

    /// Those of one service port.
    #[must_use]
    pub fn of_port(fragment: &Fragment) -> Self {
        let mut out = Self::default();
        for (shared, rules) in &fragment.shared {
            out.count(shared.id().table, rules.len());
        }
        for (id, rules) in &fragment.own {
            out.count(id.table, rules.len());
        }
        out
    }

    /// Those of all service ports.
    #[must_use]
    pub fn of_ports(desired: &Desired) -> Self {
        let mut out = Self::default();
        for (id, want) in &desired.chains {
            match want {
                Want::Exactly { rules, port: Some(_) } => out.count(id.table, rules.len()),
                Want::Dispatch { groups, .. } => {
                    out.count(id.table, groups.iter().map(|g| g.rules.len()).sum());
                }
                Want::Exactly { port: None, .. } | Want::AtLeast(_) => {}
            }
        }
        out
    }

    /// Those that are there whatever the services are, without the jumps from built-in chains.
    #[must_use]
    pub fn of_skeleton(env: &Environment) -> Self {
        let mut out = Self::default();
        for (id, want) in skeleton::fixed(env) {
            out.count(id.table, want.rules().len());
        }
        for shared in Shared::ALL {
            out.count(shared.id().table, shared.tail(env).len());
        }
        out
    }

    /// Those that inputs write.
    #[must_use]
    pub fn written(inputs: &[Input]) -> Self {
        let mut out = Self::default();
        for step in inputs.iter().flat_map(|i| &i.steps) {
            if let Op::Append(id, _) | Op::Insert(id, _) = &step.op {
                out.count(id.table, 1);
            }
        }
        out
    }

    /// As a report says it.
    #[must_use]
    pub fn report(total: Self, written: Self) -> Vec<RuleCount> {
        vec![
            RuleCount { table: Table::Filter.name(), total: total.filter, written: written.filter },
            RuleCount { table: Table::Nat.name(), total: total.nat, written: written.nat },
        ]
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { filter: self.filter + other.filter, nat: self.nat + other.nat }
    }
}

impl Sub for Counts {
    type Output = Self;

    /// Never below nothing.
    fn sub(self, other: Self) -> Self {
        Self { filter: self.filter.saturating_sub(other.filter), nat: self.nat.saturating_sub(other.nat) }
    }
}
