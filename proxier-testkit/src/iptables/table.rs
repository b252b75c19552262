//! One table, and what commands do to it.

use std::sync::Arc;

use imbl::OrdMap;

use super::ast::{Rule, Target};
use super::error::Cause;
use super::parse::{Command, Position};

/// A table of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableName {
    /// `filter`.
    Filter,
    /// `nat`: sees the first packet of a connection only.
    Nat,
    /// `mangle`.
    Mangle,
}

impl TableName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Filter, Self::Nat, Self::Mangle];

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Mangle => "mangle",
        }
    }

    /// The built-in chains, in the order of the hooks.
    #[must_use]
    pub fn built_in(self) -> &'static [&'static str] {
        match self {
            Self::Filter => &["INPUT", "FORWARD", "OUTPUT"],
            Self::Nat => &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
            Self::Mangle => &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Cause> {
        let found = Self::ALL.into_iter().find(|name| name.as_str() == text);
        found.ok_or_else(|| Cause::NoTable(text.into()))
    }
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Of a built-in chain: true accepts what reaches its end, false drops it.
    pub policy: Option<bool>,
    /// Rules, in order.
    pub rules: Vec<Arc<Rule>>,
}

/// A table. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    name: TableName,
    chains: OrdMap<Arc<str>, Chain>,
    /// How many rules lead to a chain.
    references: OrdMap<Arc<str>, usize>,
}

impl Table {
    /// An empty one, with its built-in chains.
    pub(super) fn new(name: TableName) -> Self {
        let chain = |built_in: &&str| (Arc::from(*built_in), Chain { policy: Some(true), rules: Vec::new() });
        Self { name, chains: name.built_in().iter().map(chain).collect(), references: OrdMap::new() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> TableName {
        self.name
    }

    /// A chain.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.get(name)
    }

    /// All chains in the order of `iptables-save`: the built-in ones, then the others by name.
    pub fn chains(&self) -> impl Iterator<Item = (&str, &Chain)> {
        let built_in = self.name.built_in().iter();
        let built_in = built_in.filter_map(|name| Some((*name, self.chains.get(*name)?)));
        let others = self.chains.iter().filter(|(_, chain)| chain.policy.is_none());
        built_in.chain(others.map(|(name, chain)| (&**name, chain)))
    }

    /// Runs a command.
    pub(super) fn run(&mut self, command: Command) -> Result<(), Cause> {
        match command {
            Command::Declare(name, policy) => self.declare(name, policy),
            Command::New(name) if self.chains.contains_key(&name) => {
                Err(Cause::ChainExists(name.to_string()))
            }
            Command::New(name) => {
                self.chains.insert(name, Chain::default());
                Ok(())
            }
            Command::Append(chain, rule) => {
                let end = self.existing(&chain)?.rules.len();
                self.insert(&chain, end, rule)
            }
            Command::Insert(chain, number, rule) => {
                if number > self.existing(&chain)?.rules.len() + 1 {
                    return Err(Cause::IndexTooBig(number));
                }
                self.insert(&chain, number - 1, rule)
            }
            Command::Replace(chain, number, rule) => {
                self.remove(&chain, number - 1)?;
                self.insert(&chain, number - 1, rule)
            }
            Command::Delete(chain, position) => self.delete(&chain, position),
            Command::Check(chain, rule) => self.find(&chain, &rule).map(|_| ()),
            Command::Flush(Some(name)) => self.flush(&name),
            Command::Flush(None) => {
                let names: Vec<Arc<str>> = self.chains.keys().cloned().collect();
                names.iter().try_for_each(|name| self.flush(name))
            }
            Command::DeleteChain(Some(name)) => self.delete_chain(&name),
            Command::DeleteChain(None) => {
                let own = self.chains.iter().filter(|(_, chain)| chain.policy.is_none());
                let names: Vec<Arc<str>> = own.map(|(name, _)| name.clone()).collect();
                names.iter().try_for_each(|name| self.delete_chain(name))
            }
            Command::Policy(name, accept) => self.set_policy(&name, accept),
        }
    }

    fn existing(&self, name: &str) -> Result<&Chain, Cause> {
        self.chains.get(name).ok_or_else(|| Cause::NoChain(name.into()))
    }

    fn existing_mut(&mut self, name: &str) -> Result<&mut Chain, Cause> {
        self.chains.get_mut(name).ok_or_else(|| Cause::NoChain(name.into()))
    }

    /// With `--noflush`, a line `:CHAIN -` empties a chain of our own, or makes it; built-in ones keep their rules.
    fn declare(&mut self, name: Arc<str>, policy: Option<bool>) -> Result<(), Cause> {
        let built_in = self.name.built_in().contains(&&*name);
        match policy {
            None if built_in => Ok(()),
            None if self.chains.contains_key(&name) => self.flush(&name),
            None => {
                self.chains.insert(name, Chain::default());
                Ok(())
            }
            Some(accept) => self.set_policy(&name, accept),
        }
    }

    fn set_policy(&mut self, name: &str, accept: bool) -> Result<(), Cause> {
        match self.chains.get_mut(name) {
            Some(Chain { policy: Some(policy), .. }) => {
                *policy = accept;
                Ok(())
            }
            _ => Err(Cause::NotBuiltIn(name.into())),
        }
    }

    fn insert(&mut self, chain: &str, index: usize, rule: Rule) -> Result<(), Cause> {
        self.placed(chain, &rule)?;
        if let Some(to) = rule.target.chain() {
            *self.references.entry(to.clone()).or_insert(0) += 1;
        }
        self.existing_mut(chain)?.rules.insert(index, Arc::new(rule));
        Ok(())
    }

    /// What a rule needs of its table and chain.
    fn placed(&self, chain: &str, rule: &Rule) -> Result<(), Cause> {
        if let Some(to) = rule.target.chain() {
            match self.chains.get(to) {
                None => return Err(Cause::NoTarget(to.to_string())),
                Some(Chain { policy: Some(_), .. }) => return Err(Cause::BuiltInTarget(to.to_string())),
                Some(_) => {}
            }
        }
        let inward = matches!(chain, "PREROUTING" | "INPUT");
        let outward = matches!(chain, "OUTPUT" | "POSTROUTING");
        for (used, flag) in
            [(inward && rule.outgoing.is_some(), "-o"), (outward && rule.incoming.is_some(), "-i")]
        {
            if used {
                return Err(Cause::WrongInterface { flag, chain: chain.into() });
            }
        }
        let (target, table) = match rule.target {
            Target::Dnat { .. } => ("DNAT", self.name == TableName::Nat),
            Target::Masquerade { .. } => ("MASQUERADE", self.name == TableName::Nat),
            Target::Reject(_) => ("REJECT", self.name == TableName::Filter),
            Target::Drop => ("DROP", self.name != TableName::Nat),
            _ => return Ok(()),
        };
        if table { Ok(()) } else { Err(Cause::WrongPlace { target, place: self.name.as_str().into() }) }
    }

    fn find(&self, chain: &str, rule: &Rule) -> Result<usize, Cause> {
        let rules = &self.chains.get(chain).ok_or(Cause::NoRule)?.rules;
        rules.iter().position(|r| **r == *rule).ok_or(Cause::NoRule)
    }

    fn delete(&mut self, chain: &str, position: Position) -> Result<(), Cause> {
        let index = match position {
            Position::Number(number) => number - 1,
            Position::Same(rule) => self.find(chain, &rule)?,
        };
        self.remove(chain, index)
    }

    fn remove(&mut self, chain: &str, index: usize) -> Result<(), Cause> {
        let rules = &mut self.existing_mut(chain)?.rules;
        if index >= rules.len() {
            return Err(Cause::IndexTooBig(index + 1));
        }
        let rule = rules.remove(index);
        self.forget(&rule);
        Ok(())
    }

    fn flush(&mut self, chain: &str) -> Result<(), Cause> {
        let rules = std::mem::take(&mut self.existing_mut(chain)?.rules);
        rules.iter().for_each(|rule| self.forget(rule));
        Ok(())
    }

    fn forget(&mut self, rule: &Rule) {
        let Some(to) = rule.target.chain() else { return };
        match self.references.get_mut(to) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.references.remove(to);
            }
        }
    }

    fn delete_chain(&mut self, name: &str) -> Result<(), Cause> {
        let chain = self.existing(name)?;
        if chain.policy.is_some() {
            return Err(Cause::BuiltIn(name.into()));
        }
        if !chain.rules.is_empty() || self.references.contains_key(name) {
            return Err(Cause::Busy(name.into()));
        }
        self.chains.remove(name);
        Ok(())
    }
}
