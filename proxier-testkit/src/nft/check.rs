//! What the kernel, or nft before it, refuses.

use std::collections::BTreeMap;

use proxier_core::ids::IpFamily;

use super::ast::{Dnat, DnatTarget, Field, LookupIn, Rule, Statement, Verdict};
use super::elements::{Elements, Value};
use super::error::ModelError;
use super::model::{BaseChain, ChainKind, DataKind, Hook};
use super::table::{Table, named_set, verdicts};
use super::value::DataType;

type Outcome = Result<(), ModelError>;

/// A base chain's type must exist in its hook: there is no nat in forward.
pub(super) fn base(name: &str, base: &BaseChain) -> Outcome {
    if base.kind == ChainKind::Nat && base.hook == Hook::Forward {
        return Err(ModelError::WrongHook { what: "type nat".into(), chain: name.into() });
    }
    Ok(())
}

/// The chain that a verdict leads to must be there, and be no base chain.
pub(super) fn verdict(table: &Table, verdict: &Verdict) -> Outcome {
    let Some(target) = verdict.target() else { return Ok(()) };
    match table.chain(target) {
        None => Err(ModelError::NoChain(target.to_string())),
        Some(chain) if chain.base.is_some() => Err(ModelError::BaseChainTarget(target.to_string())),
        Some(_) => Ok(()),
    }
}

/// All that a rule refers to must be there and of the right type.
pub(super) fn rule(table: &Table, rule: &Rule) -> Outcome {
    for statement in &rule.statements {
        verdicts(statement).into_iter().try_for_each(|found| verdict(table, found))?;
        let Some(name) = named_set(statement) else { continue };
        let set = table.set(name).ok_or_else(|| ModelError::NoSet(name.to_string()))?;
        let family = table.family();
        let key = match statement {
            Statement::Match { key, .. } | Statement::VerdictMap { key, .. } => types(key, family),
            Statement::Dnat(Dnat { target: DnatTarget::Map { key, .. }, .. }) => types(key, family),
            _ => vec![DataType::Address(family)],
        };
        let data_fits = match statement {
            Statement::VerdictMap { .. } => set.spec.data == DataKind::Verdict,
            Statement::Dnat(_) => matches!(
                &set.spec.data,
                DataKind::Values(data) if matches!(data.as_slice(), [DataType::Address(of)] | [DataType::Address(of), DataType::Port] if *of == family)
            ),
            _ => true,
        };
        if key != set.spec.key || !data_fits {
            return Err(ModelError::Type(format!("{name} in `{}`", rule.text)));
        }
    }
    Ok(())
}

fn types(key: &[Field], family: IpFamily) -> Vec<DataType> {
    key.iter().map(|field| field.data_type(family)).collect()
}

/// A dnat with a port needs a match on the transport protocol before it, or in its own key.
pub(super) fn transport(rule: &Rule) -> Outcome {
    let mut known = false;
    for statement in &rule.statements {
        match statement {
            Statement::Match { key, negated, .. } => {
                known |= names_protocol(key) || (!negated && *key == [Field::L4Protocol]);
            }
            Statement::Dnat(dnat) => {
                let (has_port, by_key) = match &dnat.target {
                    DnatTarget::Fixed { port, .. } => (port.is_some(), false),
                    DnatTarget::Map { key, map } => {
                        let both =
                            key.contains(&Field::L4Protocol) && key.contains(&Field::DestinationPort(None));
                        (map_has_port(map), both || names_protocol(key))
                    }
                };
                if has_port && !(known || by_key || dnat.requires.is_some()) {
                    return Err(ModelError::TransportUnknown);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn names_protocol(key: &[Field]) -> bool {
    key.iter().any(|field| matches!(field, Field::DestinationPort(Some(_))))
}

/// A named map is taken to have one: without it there is nothing to forget.
fn map_has_port(map: &LookupIn) -> bool {
    let with_port = |elements: &Elements| {
        elements.values().any(|value| matches!(value, Value::Data(data) if data.len() > 1))
    };
    match map {
        LookupIn::Anonymous(elements) => with_port(elements),
        LookupIn::Named(_) => true,
    }
}

/// Levels of chains that the kernel follows below a base chain, gotos counted like jumps (`NFT_JUMP_STACK_SIZE`).
const LEVELS: usize = 16;

/// What holds for a table as a whole: from its base chains no chain reaches itself or is too deep, and no statement is
/// reached in a hook where it is not allowed. Chains that no base chain reaches are not looked at, as in the kernel.
pub(super) fn table(table: &Table) -> Outcome {
    for name in table.base_names() {
        let Some(base) = table.chain(name).and_then(|chain| chain.base) else { continue };
        let mut visit = Visit { table, name, base, levels: BTreeMap::new() };
        visit.chain(name, 0)?;
    }
    Ok(())
}

struct Visit<'t> {
    table: &'t Table,
    name: &'t str,
    base: BaseChain,
    /// How many levels a chain and those below it take; `None` while they are being visited.
    levels: BTreeMap<&'t str, Option<usize>>,
}

impl<'t> Visit<'t> {
    /// Visits a chain at a level, and tells how many it takes.
    fn chain(&mut self, name: &'t str, level: usize) -> Result<usize, ModelError> {
        match self.levels.get(name) {
            Some(Some(levels)) if level + levels <= LEVELS => return Ok(*levels),
            Some(None) => return Err(ModelError::Loop(name.into())),
            None if level < LEVELS => {}
            _ => return Err(ModelError::TooDeep(name.into())),
        }
        self.levels.insert(name, None);
        let rules = self.table.chain(name).map_or(&[][..], |chain| &chain.rules);
        let mut below = 0;
        for statement in rules.iter().flat_map(|rule| &rule.statements) {
            self.allowed(statement)?;
            for verdict in verdicts(statement) {
                below = below.max(self.follow(verdict, level)?);
            }
            if let Statement::VerdictMap { map: LookupIn::Named(map), .. } = statement {
                below = below.max(self.map(map, level)?);
            }
        }
        self.levels.insert(name, Some(below + 1));
        Ok(below + 1)
    }

    fn map(&mut self, name: &str, level: usize) -> Result<usize, ModelError> {
        let mut below = 0;
        for value in self.table.set(name).into_iter().flat_map(|set| set.elements.values()) {
            if let Value::Verdict(verdict) = value {
                below = below.max(self.follow(verdict, level)?);
            }
        }
        Ok(below)
    }

    fn follow(&mut self, verdict: &'t Verdict, level: usize) -> Result<usize, ModelError> {
        verdict.target().map_or(Ok(0), |chain| self.chain(chain, level + 1))
    }

    fn allowed(&self, statement: &Statement) -> Outcome {
        let BaseChain { kind, hook, .. } = self.base;
        let (what, allowed) = match statement {
            Statement::Reject | Statement::Reset => ("reject", hook != Hook::Postrouting),
            Statement::Masquerade => ("masquerade", kind == ChainKind::Nat && hook == Hook::Postrouting),
            Statement::Dnat(_) => {
                ("dnat", kind == ChainKind::Nat && matches!(hook, Hook::Prerouting | Hook::Output))
            }
            _ => return Ok(()),
        };
        if allowed {
            Ok(())
        } else {
            Err(ModelError::WrongHook { what: what.into(), chain: self.name.into() })
        }
    }
}
