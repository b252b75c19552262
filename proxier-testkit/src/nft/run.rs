//! One base chain, followed through jumps, gotos and random choices.
//!
//! Semantics: the kernel's `nft_do_chain`, as documented in nft(8), "VERDICT STATEMENT": a rule whose match or lookup
//! fails is left and the next one tried; jump comes back behind its rule, goto to where its own chain would come back
//! to; the end of a base chain, or return in it, is its policy.

use proxier_core::ids::Protocol;

use super::ast::{CtState, Dnat, DnatTarget, Field, LookupIn, Statement, Verdict};
use super::elements::{Element, Elements, Value};
use super::model::{Chain, Set};
use super::state::State;
use super::table::Table;
use super::value::Datum;
use crate::walk::{Fraction, WalkError, WalkHost};

/// How a base chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Accepted, also by dnat or masquerade.
    Accept,
    /// By the end of the chain, or return.
    Policy,
    /// Dropped.
    Drop,
    /// Rejected.
    Reject,
}

/// How a rule ends.
enum RuleEnd<'r> {
    /// A part did not match.
    NoMatch,
    /// All parts matched, and none of them decided.
    Through,
    Finished(End),
    Return,
    Jump(&'r str),
    Goto(&'r str),
}

/// Where a branch is.
struct Cursor<'r> {
    state: State<'r>,
    name: &'r str,
    chain: &'r Chain,
    rule: usize,
    stack: Vec<(&'r str, &'r Chain, usize)>,
}

/// What chains of a table need to be run.
pub(super) struct Runner<'r> {
    pub(super) table: &'r Table,
    pub(super) host: &'r WalkHost,
}

type Branches<'r, T> = Vec<(State<'r>, T)>;

impl<'r> Runner<'r> {
    /// Runs a base chain; more than one result where a random choice was met.
    pub(super) fn base(
        &self,
        state: State<'r>,
        name: &'r str,
        chain: &'r Chain,
    ) -> Result<Branches<'r, End>, WalkError> {
        let mut done = Vec::new();
        let mut open = vec![Cursor { state, name, chain, rule: 0, stack: Vec::new() }];
        while let Some(cursor) = open.pop() {
            self.step(cursor, &mut open, &mut done)?;
        }
        Ok(done)
    }

    /// One rule, or the end of a chain.
    fn step(
        &self,
        cursor: Cursor<'r>,
        open: &mut Vec<Cursor<'r>>,
        done: &mut Branches<'r, End>,
    ) -> Result<(), WalkError> {
        let Cursor { state, name, chain, rule, mut stack } = cursor;
        let Some(current) = chain.rules.get(rule) else {
            match stack.pop() {
                Some((name, chain, rule)) => open.push(Cursor { state, name, chain, rule, stack }),
                None => done.push((state, End::Policy)),
            }
            return Ok(());
        };
        let mut results = Vec::new();
        self.statements(state, &current.statements, &mut results)?;
        // The last one pushed is followed first: turned round, branches finish in the order of the choices.
        for (mut state, end) in results.into_iter().rev() {
            let mut stack = stack.clone();
            if !matches!(end, RuleEnd::NoMatch) {
                state.trace.push((name, &current.text));
            }
            match end {
                RuleEnd::NoMatch | RuleEnd::Through => {
                    open.push(Cursor { state, name, chain, rule: rule + 1, stack });
                }
                RuleEnd::Finished(end) => done.push((state, end)),
                RuleEnd::Return => open.push(Cursor { state, name, chain, rule: chain.rules.len(), stack }),
                RuleEnd::Jump(target) => {
                    stack.push((name, chain, rule + 1));
                    open.push(self.enter(state, target, stack)?);
                }
                RuleEnd::Goto(target) => open.push(self.enter(state, target, stack)?),
            }
        }
        Ok(())
    }

    fn enter(
        &self,
        state: State<'r>,
        name: &'r str,
        stack: Vec<(&'r str, &'r Chain, usize)>,
    ) -> Result<Cursor<'r>, WalkError> {
        let chain = self.table.chain(name).ok_or_else(|| WalkError::Dangling(name.into()))?;
        Ok(Cursor { state, name, chain, rule: 0, stack })
    }

    /// The rest of a rule.
    fn statements(
        &self,
        mut state: State<'r>,
        rest: &'r [Statement],
        results: &mut Branches<'r, RuleEnd<'r>>,
    ) -> Result<(), WalkError> {
        for (index, statement) in rest.iter().enumerate() {
            let after = rest.get(index + 1..).unwrap_or_default();
            let end = match statement {
                Statement::VerdictMap { key, map } => {
                    return self.verdict_map(state, key, map, after, results);
                }
                Statement::Match { key, negated, elements } if is_random(key) => {
                    for (branch, found) in self.lookups(state, key, elements)? {
                        if found.is_some() == *negated {
                            results.push((branch, RuleEnd::NoMatch));
                        } else {
                            self.statements(branch, after, results)?;
                        }
                    }
                    return Ok(());
                }
                Statement::Dnat(dnat) => return self.dnat(state, dnat, results),
                Statement::Verdict(verdict) => rule_end(verdict),
                Statement::Reset if state.protocol != Some(Protocol::Tcp) => RuleEnd::NoMatch,
                Statement::Reject | Statement::Reset => RuleEnd::Finished(End::Reject),
                Statement::Masquerade => {
                    state.masquerade = true;
                    RuleEnd::Finished(End::Accept)
                }
                simple if self.simple(&mut state, simple)? => continue,
                _ => RuleEnd::NoMatch,
            };
            results.push((state, end));
            return Ok(());
        }
        results.push((state, RuleEnd::Through));
        Ok(())
    }

    fn verdict_map(
        &self,
        state: State<'r>,
        key: &[Field],
        map: &'r LookupIn,
        after: &'r [Statement],
        results: &mut Branches<'r, RuleEnd<'r>>,
    ) -> Result<(), WalkError> {
        for (branch, found) in self.lookups(state, key, map)? {
            match found.map(|element| &element.value) {
                Some(Value::Verdict(Verdict::Continue)) => self.statements(branch, after, results)?,
                Some(Value::Verdict(verdict)) => results.push((branch, rule_end(verdict))),
                _ => results.push((branch, RuleEnd::NoMatch)),
            }
        }
        Ok(())
    }

    /// A statement without choices; false if it does not match.
    fn simple(&self, state: &mut State<'r>, statement: &'r Statement) -> Result<bool, WalkError> {
        Ok(match statement {
            // Without a key the rule is not about such packets, and `!=` does not change that.
            Statement::Match { key, negated, elements } => match state.keys(key)?.pop() {
                Some(key) => self.elements(elements)?.lookup(&key).is_some() != *negated,
                None => false,
            },
            Statement::MarkMatch { mask, negated, value } => (state.mark & mask == *value) != *negated,
            Statement::FibLocal { side, negated } => self.host.is_local(state.address(*side)) != *negated,
            Statement::CtState(states) => states.contains(&CtState::New),
            Statement::CtStatusDnat => state.translated,
            Statement::SetMark { keep, flip } => {
                state.mark = (state.mark & keep) ^ flip;
                true
            }
            Statement::Update { set: name, side } => {
                let set = self.set(name)?;
                let address = state.address(*side);
                let there = set.elements.lookup(&[Datum::Address(address)]).is_some();
                // A full set makes the rule not apply.
                let recorded = there || !set.is_full();
                if recorded {
                    state.updates.push((name, address));
                }
                recorded
            }
            _ => true,
        })
    }

    fn dnat(
        &self,
        mut state: State<'r>,
        dnat: &'r Dnat,
        results: &mut Branches<'r, RuleEnd<'r>>,
    ) -> Result<(), WalkError> {
        if dnat.requires.is_some() && dnat.requires != state.protocol {
            results.push((state, RuleEnd::NoMatch));
            return Ok(());
        }
        let (key, map) = match &dnat.target {
            DnatTarget::Fixed { address, port } => {
                state.translate(*address, *port);
                results.push((state, RuleEnd::Finished(End::Accept)));
                return Ok(());
            }
            DnatTarget::Map { key, map } => (key, map),
        };
        for (mut branch, found) in self.lookups(state, key, map)? {
            let end = match found.map(|element| &element.value) {
                Some(Value::Data(data)) => match *data.as_slice() {
                    [Datum::Address(address)] => {
                        branch.translate(address, None);
                        RuleEnd::Finished(End::Accept)
                    }
                    [Datum::Address(address), Datum::Port(port)] => {
                        branch.translate(address, Some(port));
                        RuleEnd::Finished(End::Accept)
                    }
                    _ => RuleEnd::NoMatch,
                },
                _ => RuleEnd::NoMatch,
            };
            results.push((branch, end));
        }
        Ok(())
    }

    /// What each key that the packet can have is found to be; one without result if the rule is not about such packets.
    fn lookups(
        &self,
        state: State<'r>,
        key: &[Field],
        place: &'r LookupIn,
    ) -> Result<Branches<'r, Option<&'r Element>>, WalkError> {
        let elements = self.elements(place)?;
        let mut keys = state.keys(key)?;
        if keys.len() < 2 {
            let found = keys.pop().and_then(|key| elements.lookup(&key));
            return Ok(vec![(state, found)]);
        }
        let share = Fraction::new(1, keys.len() as u64).ok_or(WalkError::WeightOverflow)?;
        let weight = state.weight.times(share).ok_or(WalkError::WeightOverflow)?;
        let all = keys.len();
        let mut found: Vec<&Element> = keys.iter().filter_map(|key| elements.lookup(key)).collect();
        let missing = all - found.len();
        let branch = |element| (State { weight, ..state.clone() }, Some(element));
        let mut branches: Branches<'r, Option<&'r Element>> = found.drain(..).map(branch).collect();
        // Keys that are not there lead to the same place: one branch, or a chain of such rules would double again and again.
        if missing > 0 {
            let share = Fraction::new(missing as u64, all as u64).ok_or(WalkError::WeightOverflow)?;
            let weight = state.weight.times(share).ok_or(WalkError::WeightOverflow)?;
            branches.push((State { weight, ..state }, None));
        }
        Ok(branches)
    }

    fn elements(&self, place: &'r LookupIn) -> Result<&'r Elements, WalkError> {
        match place {
            LookupIn::Anonymous(elements) => Ok(elements),
            LookupIn::Named(name) => Ok(&self.set(name)?.elements),
        }
    }

    fn set(&self, name: &str) -> Result<&'r Set, WalkError> {
        self.table.set(name).ok_or_else(|| WalkError::Dangling(name.into()))
    }
}

fn rule_end(verdict: &Verdict) -> RuleEnd<'_> {
    match verdict {
        Verdict::Accept => RuleEnd::Finished(End::Accept),
        Verdict::Drop => RuleEnd::Finished(End::Drop),
        Verdict::Continue => RuleEnd::Through,
        Verdict::Return => RuleEnd::Return,
        Verdict::Jump(chain) => RuleEnd::Jump(chain),
        Verdict::Goto(chain) => RuleEnd::Goto(chain),
    }
}

fn is_random(key: &[Field]) -> bool {
    key.iter().any(|field| matches!(field, Field::Random { .. }))
}
