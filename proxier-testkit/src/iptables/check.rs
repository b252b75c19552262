//! What must hold for a table as a whole, which the kernel checks when it is committed.

use std::collections::BTreeMap;

use super::ast::Target;
use super::error::Cause;
use super::table::Table;

/// Levels of chains that nf_tables follows below a base chain, gotos counted like jumps (`NFT_JUMP_STACK_SIZE`).
const LEVELS: usize = 16;

/// From the built-in chains no chain reaches itself or is too deep, and no target is reached where it is not allowed. Chains that
/// no built-in one reaches are not looked at, as in the kernel.
pub(super) fn table(table: &Table) -> Result<(), Cause> {
    for name in table.name().built_in() {
        Visit { table, built_in: name, levels: BTreeMap::new() }.chain(name, 0)?;
    }
    Ok(())
}

struct Visit<'t> {
    table: &'t Table,
    built_in: &'static str,
    /// How many levels a chain and those below it take; `None` while they are being visited.
    levels: BTreeMap<&'t str, Option<usize>>,
}

impl<'t> Visit<'t> {
    /// Visits a chain at a level, and tells how many it takes.
    fn chain(&mut self, name: &'t str, level: usize) -> Result<usize, Cause> {
        match self.levels.get(name) {
            Some(Some(levels)) if level + levels <= LEVELS => return Ok(*levels),
            Some(None) => return Err(Cause::Loop(name.into())),
            None if level < LEVELS => {}
            _ => return Err(Cause::TooDeep(name.into())),
        }
        self.levels.insert(name, None);
        let mut below = 0;
        for rule in self.table.chain(name).into_iter().flat_map(|chain| &chain.rules) {
            self.allowed(&rule.target)?;
            if let Some(to) = rule.target.chain() {
                below = below.max(self.chain(to, level + 1)?);
            }
        }
        self.levels.insert(name, Some(below + 1));
        Ok(below + 1)
    }

    fn allowed(&self, target: &Target) -> Result<(), Cause> {
        let (target, allowed) = match target {
            Target::Dnat { .. } => ("DNAT", matches!(self.built_in, "PREROUTING" | "OUTPUT")),
            Target::Masquerade { .. } => ("MASQUERADE", self.built_in == "POSTROUTING"),
            _ => return Ok(()),
        };
        if allowed { Ok(()) } else { Err(Cause::WrongPlace { target, place: self.built_in.into() }) }
    }
}
