//! The state: tables with their chains, sets and maps.

use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;
use proxier_core::ids::{IpFamily, Protocol};

use super::ast::Rule;
use super::check;
use super::elements::{Element, Elements, Value};
use super::error::{Cause, ModelError, ParseError};
use super::parse::{self, Command, Located, TableId};
use super::table::Table;
use super::value::{DataType, Datum, Pattern};

/// Where a base chain is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// A packet came in.
    Prerouting,
    /// It is for this host.
    Input,
    /// It is for another host.
    Forward,
    /// This host sends it.
    Output,
    /// It leaves.
    Postrouting,
}

/// Type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// `filter`.
    Filter,
    /// `nat`: sees the first packet of a connection only.
    Nat,
}

/// What makes a chain a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// Type.
    pub kind: ChainKind,
    /// Hook.
    pub hook: Hook,
    /// Priority; lower comes first.
    pub priority: i32,
    /// Policy: accept, or else drop.
    pub accept: bool,
}

/// A chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Set for a base chain.
    pub base: Option<BaseChain>,
    /// Rules, in order.
    pub rules: Vec<Arc<Rule>>,
}

/// What a set or map maps its keys to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataKind {
    /// Nothing: it is a set.
    #[default]
    Nothing,
    /// Verdicts.
    Verdict,
    /// Concatenations of these types.
    Values(Vec<DataType>),
}

/// `flags` of a set or map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetFlags {
    /// `constant`.
    pub constant: bool,
    /// `dynamic`: rules may add elements.
    pub dynamic: bool,
    /// `interval`: elements may be prefixes and ranges.
    pub interval: bool,
    /// `timeout`: elements may expire.
    pub timeout: bool,
}

/// Definition of a set or map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetSpec {
    /// Types of the key.
    pub key: Vec<DataType>,
    /// What it maps to.
    pub data: DataKind,
    /// The protocol that the declaration of the data names, as in `typeof ... : ip daddr . tcp dport`.
    pub data_protocol: Option<Protocol>,
    /// Flags.
    pub flags: SetFlags,
    /// Default timeout in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Largest number of elements.
    pub size: Option<usize>,
    /// `auto-merge`: overlapping intervals are no conflict.
    pub auto_merge: bool,
}

/// A set or map.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Definition.
    pub spec: SetSpec,
    /// Content.
    pub elements: Elements,
}

impl Set {
    /// No room for one more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.spec.size.is_some_and(|size| self.elements.len() >= size)
    }
}

/// All tables. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    pub(super) tables: OrdMap<TableId, Table>,
    sequence: u64,
}

impl Ruleset {
    /// Runs a script, or loads a listing, on top of what is there: all of it, or nothing.
    ///
    /// # Errors
    /// As [`parse`](super::parse); the ruleset is then unchanged.
    pub fn apply(&mut self, text: &str) -> Result<(), ParseError> {
        let mut next = self.clone();
        let commands = parse::commands(text)?;
        let last = commands.last().map_or(1, |command| command.line);
        for command in commands {
            let (line, text) = (command.line, command.text.clone());
            next.run(command).map_err(|(inner, cause)| ParseError {
                line: inner.unwrap_or(line),
                text,
                cause: Cause::Model(cause),
            })?;
        }
        for (id, table) in &next.tables {
            check::table(table).map_err(|cause| ParseError {
                line: last,
                text: format!("table {}", id.name),
                cause: Cause::Model(cause),
            })?;
        }
        *self = next;
        Ok(())
    }

    fn run(&mut self, located: Located<'_>) -> Result<(), (Option<usize>, ModelError)> {
        let Located { table: id, command, .. } = located;
        let missing = || ModelError::NoTable(id.name.to_string());
        match &command {
            Command::AddTable => {
                if !self.tables.contains_key(&id) {
                    self.tables.insert(id.clone(), Table::new(id.family));
                }
                return Ok(());
            }
            Command::DeleteTable { missing_ok } => {
                let found = self.tables.remove(&id).is_some();
                return if found || *missing_ok { Ok(()) } else { Err((None, missing())) };
            }
            _ => {}
        }
        self.sequence += 1;
        let sequence = self.sequence;
        let table = self.tables.get_mut(&id).ok_or_else(|| (None, missing()))?;
        table.run(command, sequence)
    }

    /// A table.
    #[must_use]
    pub fn table(&self, family: IpFamily, name: &str) -> Option<&Table> {
        self.tables.get(&TableId { family, name: name.into() })
    }

    /// All tables of a family, with their names.
    pub fn tables(&self, family: IpFamily) -> impl Iterator<Item = (&str, &Table)> {
        self.tables.iter().filter(move |(id, _)| id.family == family).map(|(id, table)| (&*id.name, table))
    }

    /// Adds an address to a set of addresses, as a rule's `update` would: for a client that has been here before.
    ///
    /// # Errors
    /// No table of the address's family has such a set, or it is full.
    pub fn add_element(&mut self, set: &str, address: IpAddr) -> Result<(), ModelError> {
        let family = IpFamily::of(address);
        let holder = self.tables.iter().find(|(id, table)| id.family == family && table.set(set).is_some());
        let id = holder.map(|(id, _)| id.clone()).ok_or_else(|| ModelError::NoSet(set.into()))?;
        let table = self.tables.get_mut(&id).ok_or_else(|| ModelError::NoTable(id.name.to_string()))?;
        let patterns = vec![Pattern::Exact(Datum::Address(address))];
        table.add_element(set, patterns, Element { value: Value::Nothing, comment: None })
    }
}
