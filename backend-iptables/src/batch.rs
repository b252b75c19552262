//! Inputs in the making: what a service port needs written, gathered in inputs of bounded size, each leaving whole service ports behind.
//!
//! The parts of one input are committed one after the other, and packets pass between the commits. So their order is part of the plan:
//!
//! 1. `filter`, what is added. A refusal matches the address that the client sent to. Rules of nat come first on a packet's way, and what they
//!    translated has another destination by then: a refusal stands beside a dispatch without being asked. So a service port that
//!    loses its last endpoint is refused before it is not translated any more, and a new source range drops before anything falls through.
//! 2. `nat`, all of it, as one: new and changed chains, then rules that lead to them, then what nothing names any more.
//! 3. `filter`, what is removed, and jumps. A service port that gets its first endpoint is translated before its refusal goes.
//!
//! At no time is a service port refused that has endpoints, or neither refused nor translated.

use std::collections::BTreeMap;

use proxier_core::ids::ServicePortName;
use proxier_xtables::objects::{ChainId, Input, Op, Rule, Step, Table};

use crate::desired::Group;
use crate::skeleton::Shared;

/// One part of an input, or what is added to it for one service port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    mangle: Vec<Step>,
    filter: Vec<Step>,
    chains: Vec<Step>,
    rules: Vec<Step>,
    removals: Vec<Step>,
    additions: Vec<Step>,
    jumps: Vec<Step>,
    drops: Vec<Step>,
    late: Vec<Step>,
}

impl Batch {
    /// Creates a chain, or empties it, and fills it.
    pub(crate) fn write(&mut self, id: &ChainId, rules: &[Rule], port: Option<&ServicePortName>) {
        let step = |op| Step { op, port: port.cloned() };
        let (heads, bodies) = match id.table {
            Table::Nat => (&mut self.chains, &mut self.rules),
            Table::Filter => return append_whole(&mut self.filter, id, rules, port),
            Table::Mangle => return append_whole(&mut self.mangle, id, rules, port),
        };
        heads.push(step(Op::Chain(id.clone())));
        bodies.extend(rules.iter().map(|r| step(Op::Append(id.clone(), r.clone()))));
    }

    /// Creates a chain that stays as it is if it is there, and puts rules at its top.
    pub(crate) fn ensure(&mut self, id: &ChainId, create: bool, rules: &[&Rule]) {
        debug_assert_eq!(id.table, Table::Filter);
        let step = |op| Step { op, port: None };
        self.filter.extend(create.then(|| step(Op::Chain(id.clone()))));
        self.filter.extend(rules.iter().map(|r| step(Op::Insert(id.clone(), (*r).clone()))));
    }

    /// Puts rules at the top of a shared chain, so that they stand there in their order.
    pub(crate) fn insert(&mut self, shared: Shared, rules: &[Rule], port: Option<&ServicePortName>) {
        let id = shared.id();
        let steps =
            rules.iter().rev().map(|r| Step { op: Op::Insert(id.clone(), r.clone()), port: port.cloned() });
        self.adding(&id).extend(steps);
    }

    /// Puts rules at the end of a shared chain.
    pub(crate) fn append(&mut self, shared: Shared, rules: &[Rule], port: Option<&ServicePortName>) {
        let id = shared.id();
        let steps = rules.iter().map(|r| Step { op: Op::Append(id.clone(), r.clone()), port: port.cloned() });
        self.adding(&id).extend(steps);
    }

    fn adding(&mut self, id: &ChainId) -> &mut Vec<Step> {
        if id.table == Table::Nat { &mut self.additions } else { &mut self.filter }
    }

    /// Deletes a rule of a shared chain.
    pub(crate) fn delete(&mut self, shared: Shared, rule: &Rule, port: Option<&ServicePortName>) {
        let id = shared.id();
        let to = if id.table == Table::Nat { &mut self.removals } else { &mut self.late };
        to.push(Step { op: Op::Delete(id, rule.clone()), port: port.cloned() });
    }

    /// Creates a shared chain, empty.
    pub(crate) fn create(&mut self, shared: Shared) {
        let id = shared.id();
        let to = if id.table == Table::Nat { &mut self.chains } else { &mut self.filter };
        to.push(Step { op: Op::Chain(id), port: None });
    }

    /// Empties a shared chain that is there, and fills it; in filter, only once nat has changed.
    pub(crate) fn rewrite(&mut self, shared: Shared, groups: &[Group], tail: &[Rule]) {
        let id = shared.id();
        let step = |op, port: Option<&ServicePortName>| Step { op, port: port.cloned() };
        let to = if id.table == Table::Nat { &mut self.additions } else { &mut self.late };
        to.push(step(Op::Chain(id.clone()), None));
        for group in groups {
            let append = |r: &Rule| step(Op::Append(id.clone(), r.clone()), Some(&group.port));
            to.extend(group.rules.iter().map(append));
        }
        to.extend(tail.iter().map(|r| step(Op::Append(id.clone(), r.clone()), None)));
    }

    /// A jump from a built-in chain, at its top.
    pub(crate) fn jump(&mut self, from: &ChainId, rule: &Rule) {
        let to = if from.table == Table::Nat { &mut self.jumps } else { &mut self.late };
        to.push(Step { op: Op::Insert(from.clone(), rule.clone()), port: None });
    }

    /// Empties a chain of nat and, unless something else still names it, drops it.
    pub(crate) fn retire(&mut self, id: &ChainId, drop: bool, port: Option<&ServicePortName>) {
        let step = |op| Step { op, port: port.cloned() };
        self.chains.push(step(Op::Chain(id.clone())));
        self.drops.extend(drop.then(|| step(Op::DropChain(id.clone()))));
    }

    /// Chains of nat that it creates, empties or drops.
    fn weight(&self) -> usize {
        self.chains.len()
    }

    fn extend(&mut self, other: Self) {
        self.mangle.extend(other.mangle);
        self.filter.extend(other.filter);
        self.chains.extend(other.chains);
        self.rules.extend(other.rules);
        self.removals.extend(other.removals);
        self.additions.extend(other.additions);
        self.jumps.extend(other.jumps);
        self.drops.extend(other.drops);
        self.late.extend(other.late);
    }

    fn into_input(self) -> Input {
        let Self { mangle, filter, mut chains, rules, removals, additions, jumps, drops, late } = self;
        // The tools keep chains in lists sorted by name, and look for the place of a new one from the front: 3.2 s become 2.3 at 60,000 chains
        // with the old tables, and half the time with nft.
        chains.sort_by(|a, b| b.op.chain().name.cmp(&a.op.chain().name));
        let parts = [mangle, filter, chains, rules, removals, additions, jumps, drops, late];
        Input { steps: parts.into_iter().flatten().collect() }
    }
}

fn append_whole(to: &mut Vec<Step>, id: &ChainId, rules: &[Rule], port: Option<&ServicePortName>) {
    let step = |op| Step { op, port: port.cloned() };
    to.push(step(Op::Chain(id.clone())));
    to.extend(rules.iter().map(|r| step(Op::Append(id.clone(), r.clone()))));
}

/// Inputs in the making.
#[derive(Debug)]
pub(crate) struct Batches {
    limit: Option<usize>,
    done: Vec<Batch>,
    current: Batch,
    /// Shared chains that the first input creates, with what stays last in them.
    fresh: BTreeMap<Shared, Vec<Rule>>,
}

impl Batches {
    /// None yet. `limit` is the most chains of one input.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, done: Vec::new(), current: Batch::default(), fresh: BTreeMap::new() }
    }

    /// Has the first input create a shared chain: what goes there in the same input is appended, and the tail follows.
    pub(crate) fn fresh(&mut self, shared: Shared, tail: Vec<Rule>) {
        self.current.create(shared);
        self.fresh.insert(shared, tail);
    }

    /// What goes into the input at hand, whatever its size.
    pub(crate) fn current(&mut self) -> &mut Batch {
        &mut self.current
    }

    /// Adds what one service port needs, and what is to be added to shared chains for it; begins another input if this one would grow too large.
    pub(crate) fn add(&mut self, unit: Batch, groups: &[(Shared, &[Rule])], port: Option<&ServicePortName>) {
        let weight = self.current.weight();
        if weight > 0 && self.limit.is_some_and(|limit| weight + unit.weight() > limit) {
            self.close();
        }
        self.current.extend(unit);
        for (shared, rules) in groups {
            if self.fresh.contains_key(shared) {
                self.current.append(*shared, rules, port);
            } else {
                self.current.insert(*shared, rules, port);
            }
        }
    }

    /// Ends the input at hand.
    pub(crate) fn close(&mut self) {
        for (shared, tail) in std::mem::take(&mut self.fresh) {
            self.current.append(shared, &tail, None);
        }
        self.done.push(std::mem::take(&mut self.current));
    }

    /// The inputs, without empty ones.
    pub(crate) fn into_inputs(mut self) -> Vec<Input> {
        self.close();
        self.done.into_iter().map(Batch::into_input).filter(|i| !i.steps.is_empty()).collect()
    }
}
