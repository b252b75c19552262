//! The tables of one IP family, and inputs that change them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use proxier_core::ids::IpFamily;

use super::ast::{Match, Rule};
use super::check;
use super::error::{Cause, RestoreError};
use super::parse::{self, Command};
use super::table::{Table, TableName};
use super::token::words;
use crate::ipset::Sets;

/// How many addresses a list of `recent` holds (`ip_list_tot` of `xt_recent`, its default); a new one takes the place of the oldest.
pub const RECENT_ADDRESSES: usize = 100;

/// The tables of one IP family. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    family: IpFamily,
    /// A table is there once it has been named.
    tables: OrdMap<TableName, Table>,
    /// Lists of `recent`; oldest address first.
    recent: OrdMap<Arc<str>, Vector<IpAddr>>,
    /// nfacct objects; without any list, every name that a rule mentions is there.
    counters: Option<OrdSet<Arc<str>>>,
    /// The ipsets of the host.
    sets: Sets,
}

/// An input that is being read: the table that is open, as it will be once it is committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    open: Option<Table>,
}

impl Ruleset {
    /// No table.
    #[must_use]
    pub fn new(family: IpFamily) -> Self {
        Self { family, tables: OrdMap::new(), recent: OrdMap::new(), counters: None, sets: Sets::default() }
    }

    /// The same on a host that has these nfacct objects and no others.
    #[must_use]
    pub fn with_counters<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.counters = Some(names.into_iter().map(Arc::from).collect());
        self
    }

    /// Puts the host's ipsets in the place of those that rules looked into so far.
    pub fn set_sets(&mut self, sets: Sets) {
        self.sets = sets;
    }

    /// The ipsets that rules look into.
    #[must_use]
    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    /// Names of the ipsets that rules look into.
    #[must_use]
    pub fn named_sets(&self) -> BTreeSet<String> {
        let matches = self.rules().flat_map(|rule| &rule.matches);
        let names = matches.filter_map(|m| match m {
            Match::Set(set) => Some(set.value.name.to_string()),
            _ => None,
        });
        names.collect()
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// A table, if it is there.
    #[must_use]
    pub fn table(&self, name: TableName) -> Option<&Table> {
        self.tables.get(&name)
    }

    /// All tables that are there.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// What `iptables-restore --noflush` does with an input; the output of `iptables-save` is one as well. Each table changes at its
    /// `COMMIT`.
    ///
    /// # Errors
    /// The first line that is refused. Its table is then as it was before the input, tables that were committed before it stay
    /// so, those behind it are not looked at.
    pub fn restore(&mut self, text: &str) -> Result<(), RestoreError> {
        let mut input = Input::default();
        for (number, line) in (1..).zip(text.lines()) {
            input.line(self, number, line)?;
        }
        input.end(text.lines().count() + 1)
    }

    /// What the command line `iptables [-w [SECONDS]] [-t TABLE] ...` does: one command, at once. The first word, the program, is
    /// not looked at.
    ///
    /// # Errors
    /// The command is refused.
    pub fn command(&mut self, line: &str) -> Result<(), RestoreError> {
        self.one_command(line).map_err(|cause| RestoreError { line: 1, text: line.into(), cause })
    }

    fn one_command(&mut self, line: &str) -> Result<(), Cause> {
        let mut words = words(line).into_iter().skip(1).peekable();
        let mut table = TableName::Filter;
        let mut rest = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-w" | "--wait" => {
                    words.next_if(|w| w.parse::<u32>().is_ok());
                }
                "-t" | "--table" => {
                    let name = words.next().ok_or(Cause::NeedsArgument(word))?;
                    table = TableName::parse(&name)?;
                }
                _ => rest.push(word),
            }
        }
        let command = parse::command(self.family, parse::Line::Words(rest))?;
        let mut next = self.open(table);
        self.run(&mut next, command)?;
        self.commit(next)
    }

    fn open(&self, name: TableName) -> Table {
        self.tables.get(&name).cloned().unwrap_or_else(|| Table::new(name))
    }

    fn run(&self, table: &mut Table, command: Command) -> Result<(), Cause> {
        if let Command::Append(_, rule) | Command::Insert(_, _, rule) | Command::Replace(_, _, rule) =
            &command
        {
            self.sets_are_there(rule)?;
        }
        if let (
            Some(counters),
            Command::Append(_, rule) | Command::Insert(_, _, rule) | Command::Replace(_, _, rule),
        ) = (&self.counters, &command)
        {
            for one in &rule.matches {
                if let Match::Counter(name) = one
                    && !counters.contains(name)
                {
                    return Err(Cause::NoCounter(name.to_string()));
                }
            }
        }
        table.run(command)
    }

    fn sets_are_there(&self, rule: &Rule) -> Result<(), Cause> {
        for one in &rule.matches {
            if let Match::Set(set) = one
                && self.sets.get(&set.value.name).is_none()
            {
                return Err(Cause::NoSet(set.value.name.to_string()));
            }
        }
        Ok(())
    }

    fn commit(&mut self, table: Table) -> Result<(), Cause> {
        check::table(&table)?;
        self.tables.insert(table.name(), table);
        if !self.recent.is_empty() {
            // A list goes with the last rule that names it.
            let named = self.lists();
            self.recent = self.recent.iter().filter(|(name, _)| named.contains(*name)).map(clone).collect();
        }
        Ok(())
    }

    fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.tables().flat_map(Table::chains).flat_map(|(_, chain)| &chain.rules)
    }

    /// Names of the lists that `recent` rules have.
    fn lists(&self) -> BTreeSet<Arc<str>> {
        let matches = self.rules().flat_map(|rule| &rule.matches);
        let names = matches.filter_map(|m| match m {
            Match::Recent(recent) => Some(recent.value.name.clone()),
            _ => None,
        });
        names.collect()
    }

    /// Is the address on the list?
    #[must_use]
    pub fn is_recent(&self, list: &str, address: IpAddr) -> bool {
        self.recent.get(list).is_some_and(|addresses| addresses.contains(&address))
    }

    /// Puts an address on a list of `recent`, as a rule with `--set` does: for a client that has been here before.
    ///
    /// # Errors
    /// No rule has such a list.
    pub fn add_recent(&mut self, list: &str, address: IpAddr) -> Result<(), NoList> {
        let name = self.lists().get(list).cloned().ok_or_else(|| NoList(list.into()))?;
        let addresses = self.recent.entry(name).or_default();
        addresses.retain(|there| *there != address);
        if addresses.len() >= RECENT_ADDRESSES {
            addresses.pop_front();
        }
        addresses.push_back(address);
        Ok(())
    }

    /// Everything in the form of `iptables-save`: chains and rules in its order, counters as zero, options in their normal form.
    #[must_use]
    pub fn print(&self) -> String {
        let mut out = String::new();
        for table in self.tables() {
            // Writing to a string cannot fail.
            let _ = print(&mut out, table);
        }
        out
    }
}

/// No rule has a list of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no rule with a list {0} of recent")]
pub struct NoList(pub String);

fn clone((name, addresses): (&Arc<str>, &Vector<IpAddr>)) -> (Arc<str>, Vector<IpAddr>) {
    (name.clone(), addresses.clone())
}

fn print(out: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(out, "*{}", table.name().as_str())?;
    for (name, chain) in table.chains() {
        let policy = chain.policy.map_or("-", |accept| if accept { "ACCEPT" } else { "DROP" });
        writeln!(out, ":{name} {policy} [0:0]")?;
    }
    for (name, chain) in table.chains() {
        for rule in &chain.rules {
            let blank = if rule.text.is_empty() { "" } else { " " };
            writeln!(out, "-A {name}{blank}{}", rule.text)?;
        }
    }
    out.write_str("COMMIT\n")
}

impl Input {
    /// Is a table open?
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Reads one line.
    pub(super) fn line(
        &mut self,
        ruleset: &mut Ruleset,
        number: usize,
        line: &str,
    ) -> Result<(), RestoreError> {
        self.one(ruleset, line).map_err(|cause| {
            self.open = None;
            RestoreError { line: number, text: line.into(), cause }
        })
    }

    fn one(&mut self, ruleset: &mut Ruleset, line: &str) -> Result<(), Cause> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let Some(open) = &mut self.open else {
            let name = line.strip_prefix('*').ok_or(Cause::OutsideTable)?;
            self.open = Some(ruleset.open(TableName::parse(name.trim_end())?));
            return Ok(());
        };
        if line == "COMMIT" {
            return self.open.take().map_or(Err(Cause::OutsideTable), |table| ruleset.commit(table));
        }
        let command = parse::command(ruleset.family, parse::Line::Text(line))?;
        ruleset.run(open, command)
    }

    /// The input ends.
    pub(super) fn end(self, number: usize) -> Result<(), RestoreError> {
        match self.open {
            None => Ok(()),
            Some(table) => {
                let text = format!("*{}", table.name().as_str());
                Err(RestoreError { line: number, text, cause: Cause::CommitExpected })
            }
        }
    }
}
