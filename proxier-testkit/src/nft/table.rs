//! Changes to one table, refused where the kernel refuses them.

use std::sync::Arc;

use imbl::OrdMap;
use proxier_core::ids::IpFamily;

use super::ast::{DnatTarget, LookupIn, Rule, Statement, Verdict};
use super::check;
use super::elements::{Element, Elements, Value};
use super::error::ModelError;
use super::model::{BaseChain, Chain, Hook, Set, SetSpec};
use super::parse::{BaseSpec, Command, RawElement};
use super::value::{Pattern, join};

type Outcome = Result<(), ModelError>;

/// A table. Keeps count of who refers to its chains and sets, as the kernel does, to know what may be deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    family: IpFamily,
    chains: OrdMap<Arc<str>, Chain>,
    sets: OrdMap<Arc<str>, Set>,
    chain_uses: OrdMap<Arc<str>, usize>,
    set_uses: OrdMap<Arc<str>, usize>,
    /// Names of base chains with the moment they were added.
    bases: Vec<(u64, Arc<str>)>,
}

impl Table {
    pub(super) fn new(family: IpFamily) -> Self {
        Self {
            family,
            chains: OrdMap::new(),
            sets: OrdMap::new(),
            chain_uses: OrdMap::new(),
            set_uses: OrdMap::new(),
            bases: Vec::new(),
        }
    }

    /// Family.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// A chain.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.get(name)
    }

    /// A set or map.
    #[must_use]
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.get(name)
    }

    /// All chains, by name.
    pub fn chains(&self) -> impl Iterator<Item = (&str, &Chain)> {
        self.chains.iter().map(|(name, chain)| (&**name, chain))
    }

    /// All sets and maps, by name.
    pub fn sets(&self) -> impl Iterator<Item = (&str, &Set)> {
        self.sets.iter().map(|(name, set)| (&**name, set))
    }

    /// Base chains of a hook: when each was added, its name, and what it is.
    pub(super) fn bases(&self, hook: Hook) -> impl Iterator<Item = (u64, &str, BaseChain, &Chain)> {
        self.bases.iter().filter_map(move |(sequence, name)| {
            let chain = self.chains.get(name)?;
            let base = chain.base.filter(|base| base.hook == hook)?;
            Some((*sequence, &**name, base, chain))
        })
    }

    /// Names of all base chains.
    pub(super) fn base_names(&self) -> impl Iterator<Item = &str> {
        self.bases.iter().map(|(_, name)| &**name)
    }

    pub(super) fn run(
        &mut self,
        command: Command<'_>,
        sequence: u64,
    ) -> Result<(), (Option<usize>, ModelError)> {
        let outcome = match command {
            Command::AddTable | Command::DeleteTable { .. } => Ok(()),
            Command::FlushTable => self.flush_all(),
            Command::AddChain { name, base } => self.add_chain(name, base, sequence),
            Command::DeleteChain { name, missing_ok } => missing(self.delete_chain(name), missing_ok),
            Command::FlushChain { name } => self.flush_chain(name),
            Command::AddRule { chain, rule, scripted } => self.add_rule(chain, rule, scripted),
            Command::AddSet { name, spec } => self.add_set(name, spec),
            Command::DeleteSet { name, missing_ok } => missing(self.delete_set(name), missing_ok),
            Command::FlushSet { name, map } => self.flush_set(name, map),
            Command::AddElements { set, elements } => return self.add_elements(set, &elements),
            Command::DeleteElements { set, elements, missing_ok } => {
                return self.delete_elements(set, &elements, missing_ok);
            }
        };
        outcome.map_err(|error| (None, error))
    }

    fn flush_all(&mut self) -> Outcome {
        let names: Vec<_> = self.chains.keys().cloned().collect();
        names.iter().try_for_each(|name| self.flush_chain(name))
    }

    fn add_chain(&mut self, name: &str, spec: Option<BaseSpec>, sequence: u64) -> Outcome {
        let Some(chain) = self.chains.get_mut(name) else {
            let name: Arc<str> = name.into();
            let base = spec.map(|spec| spec.base);
            if let Some(base) = &base {
                check::base(&name, base)?;
                self.bases.push((sequence, name.clone()));
            }
            self.chains.insert(name, Chain { base, rules: Vec::new() });
            return Ok(());
        };
        match (&mut chain.base, spec) {
            (_, None) => Ok(()),
            (Some(old), Some(BaseSpec { base, policy_given }))
                if BaseChain { accept: old.accept, ..base } == *old =>
            {
                old.accept = if policy_given { base.accept } else { old.accept };
                Ok(())
            }
            _ => Err(ModelError::Exists(name.into())),
        }
    }

    fn delete_chain(&mut self, name: &str) -> Outcome {
        self.flush_chain(name)?;
        if self.chain_uses.get(name).is_some_and(|uses| *uses > 0) {
            return Err(ModelError::Busy(name.into()));
        }
        self.chains.remove(name);
        self.bases.retain(|(_, base)| &**base != name);
        Ok(())
    }

    fn flush_chain(&mut self, name: &str) -> Outcome {
        let chain = self.chains.get_mut(name).ok_or_else(|| ModelError::NoChain(name.into()))?;
        let rules = std::mem::take(&mut chain.rules);
        for rule in &rules {
            self.count(rule, false);
        }
        Ok(())
    }

    fn add_rule(&mut self, chain: &str, mut rule: Rule, scripted: bool) -> Outcome {
        if !self.chains.contains_key(chain) {
            return Err(ModelError::NoChain(chain.into()));
        }
        check::rule(self, &rule)?;
        if scripted {
            self.add_implied(&mut rule);
            check::transport(&rule)?;
        }
        self.count(&rule, true);
        if let Some(chain) = self.chains.get_mut(chain) {
            chain.rules.push(Arc::new(rule));
        }
        Ok(())
    }

    /// Adds the protocol match that nft adds to a dnat by map (see `Dnat::requires`).
    fn add_implied(&self, rule: &mut Rule) {
        for statement in &mut rule.statements {
            if let Statement::Dnat(dnat) = statement
                && let DnatTarget::Map { map: LookupIn::Named(name), .. } = &dnat.target
            {
                dnat.requires = self.sets.get(name).and_then(|set| set.spec.data_protocol);
            }
        }
    }

    fn count(&mut self, rule: &Rule, up: bool) {
        for statement in &rule.statements {
            for verdict in verdicts(statement) {
                self.count_verdict(verdict, up);
            }
            if let Some(set) = named_set(statement) {
                adjust(&mut self.set_uses, set, up);
            }
        }
    }

    fn count_verdict(&mut self, verdict: &Verdict, up: bool) {
        if let Some(chain) = verdict.target() {
            adjust(&mut self.chain_uses, chain, up);
        }
    }

    fn count_value(&mut self, value: &Value, up: bool) {
        if let Value::Verdict(verdict) = value {
            self.count_verdict(verdict, up);
        }
    }

    fn add_set(&mut self, name: &str, spec: SetSpec) -> Outcome {
        let Some(old) = self.sets.get_mut(name) else {
            self.sets.insert(name.into(), Set { spec, elements: Elements::default() });
            return Ok(());
        };
        if old.spec.key != spec.key || old.spec.data != spec.data || old.spec.flags != spec.flags {
            return Err(ModelError::Exists(name.into()));
        }
        old.spec.timeout_ms = spec.timeout_ms;
        Ok(())
    }

    fn delete_set(&mut self, name: &str) -> Outcome {
        let set = self.sets.get(name).ok_or_else(|| ModelError::NoSet(name.into()))?;
        if self.set_uses.get(name).is_some_and(|uses| *uses > 0) {
            return Err(ModelError::Busy(name.into()));
        }
        let elements = set.elements.clone();
        elements.values().for_each(|value| self.count_value(value, false));
        self.sets.remove(name);
        Ok(())
    }

    fn flush_set(&mut self, name: &str, map: bool) -> Outcome {
        let set = self.sets.get_mut(name).filter(|set| map == (set.spec.data != super::DataKind::Nothing));
        let set = set.ok_or_else(|| ModelError::NoSet(name.into()))?;
        let elements = std::mem::take(&mut set.elements);
        elements.values().for_each(|value| self.count_value(value, false));
        Ok(())
    }

    fn add_elements(&mut self, set: &str, raw: &[RawElement<'_>]) -> Result<(), (Option<usize>, ModelError)> {
        for raw in raw {
            self.add_raw(set, raw).map_err(|error| (Some(raw.line), error))?;
        }
        if self.sets.contains_key(set) { Ok(()) } else { Err((None, ModelError::NoSet(set.into()))) }
    }

    fn add_raw(&mut self, name: &str, raw: &RawElement<'_>) -> Outcome {
        let set = self.sets.get(name).ok_or_else(|| ModelError::NoSet(name.into()))?;
        let patterns = raw.patterns(&set.spec.key)?;
        let element = raw.element(&set.spec.data)?;
        if raw.timeout && !set.spec.flags.timeout {
            return Err(ModelError::Type(format!("timeout of {} in {name}", join(&patterns))));
        }
        self.add_element(name, patterns, element)
    }

    pub(super) fn add_element(&mut self, name: &str, patterns: Vec<Pattern>, element: Element) -> Outcome {
        if let Value::Verdict(verdict) = &element.value {
            check::verdict(self, verdict)?;
        }
        let set = self.sets.get_mut(name).ok_or_else(|| ModelError::NoSet(name.into()))?;
        let exact = patterns.iter().all(|pattern| matches!(pattern, Pattern::Exact(_)));
        if !exact && !set.spec.flags.interval {
            return Err(ModelError::Type(format!("interval {} in {name}", join(&patterns))));
        }
        let full = set.is_full();
        let value = element.value.clone();
        let inserted = set.elements.insert(patterns, element, set.spec.auto_merge);
        let new =
            inserted.map_err(|conflict| ModelError::ElementConflict { set: name.into(), key: conflict.0 })?;
        if new && full {
            return Err(ModelError::Full(name.into()));
        }
        if new {
            self.count_value(&value, true);
        }
        Ok(())
    }

    fn delete_elements(
        &mut self,
        name: &str,
        raw: &[RawElement<'_>],
        missing_ok: bool,
    ) -> Result<(), (Option<usize>, ModelError)> {
        for raw in raw {
            self.delete_raw(name, raw, missing_ok).map_err(|error| (Some(raw.line), error))?;
        }
        Ok(())
    }

    fn delete_raw(&mut self, name: &str, raw: &RawElement<'_>, missing_ok: bool) -> Outcome {
        let set = self.sets.get_mut(name).ok_or_else(|| ModelError::NoSet(name.into()))?;
        let patterns = raw.patterns(&set.spec.key)?;
        match set.elements.remove(&patterns) {
            Some(element) => {
                self.count_value(&element.value, false);
                Ok(())
            }
            None if missing_ok => Ok(()),
            None => Err(ModelError::NoElement { set: name.into(), key: join(&patterns) }),
        }
    }
}

/// With `destroy`, what is not there is no error.
fn missing(outcome: Outcome, missing_ok: bool) -> Outcome {
    match outcome {
        Err(ModelError::NoChain(_) | ModelError::NoSet(_)) if missing_ok => Ok(()),
        other => other,
    }
}

fn adjust(uses: &mut OrdMap<Arc<str>, usize>, name: &Arc<str>, up: bool) {
    let old = uses.get(name).copied().unwrap_or_default();
    match if up { old + 1 } else { old.saturating_sub(1) } {
        0 => uses.remove(name),
        new => uses.insert(name.clone(), new),
    };
}

/// The verdicts that a statement itself holds.
pub(super) fn verdicts(statement: &Statement) -> Vec<&Verdict> {
    match statement {
        Statement::Verdict(verdict) => vec![verdict],
        Statement::VerdictMap { map: LookupIn::Anonymous(elements), .. } => elements
            .values()
            .filter_map(|value| if let Value::Verdict(verdict) = value { Some(verdict) } else { None })
            .collect(),
        _ => Vec::new(),
    }
}

/// The set or map that a statement refers to.
pub(super) fn named_set(statement: &Statement) -> Option<&Arc<str>> {
    let lookup = match statement {
        Statement::Match { elements, .. } => elements,
        Statement::VerdictMap { map, .. } => map,
        Statement::Dnat(dnat) => match &dnat.target {
            DnatTarget::Map { map, .. } => map,
            DnatTarget::Fixed { .. } => return None,
        },
        Statement::Update { set, .. } => return Some(set),
        _ => return None,
    };
    match lookup {
        LookupIn::Named(name) => Some(name),
        LookupIn::Anonymous(_) => None,
    }
}
