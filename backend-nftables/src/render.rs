//! From snapshot, change set and belief to a plan. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxier_core::backend::{RenderInput, SetAside};
use proxier_core::ids::ServicePortName;
use proxier_core::snapshot::ServicePort;

use crate::belief::{Belief, comment, plain};
use crate::container::{Container, Sizes};
use crate::counts::CountChain;
use crate::fragment::{self, Fragment, Programmed, Shared};
use crate::layout::{self, Environment};
use crate::objects::{Element, Key, Name, Op, Set, Table, Value};
use crate::options::Options;
use crate::plan::Plan;

/// For whom an operation is.
pub(crate) type Owner = Option<Arc<ServicePort>>;

/// Renders a plan; see [`proxier_core::backend::Backend::render`].
#[must_use]
pub fn render(table: &Table, options: &Options, input: RenderInput<'_, Belief>) -> Plan {
    let env = Environment::new(input.snapshot.context(), table.family);
    let usable = input.belief.filter(|b| input.changes.base == Some(b.generation) && *b.env == env);
    usable
        .and_then(|belief| partial(table, options, input, belief))
        .unwrap_or_else(|| full(table, options, input, env))
}

/// Writes what differs; `None` if some container is too small for it.
fn partial(
    table: &Table,
    options: &Options,
    input: RenderInput<'_, Belief>,
    belief: &Belief,
) -> Option<Plan> {
    let mut next = belief.clone();
    next.generation = input.snapshot.generation();
    let mut builder = Builder::new(options, next);
    for change in &input.changes.ports {
        builder.replace(&change.name, change.new.as_ref(), input.set_aside);
    }
    builder.settle_shared();
    if !builder.next.sizes.hold(&builder.next.counts) {
        return None;
    }
    let Builder { steps, undo, next, .. } = builder;
    let ahead = steps.ahead.len();
    let (ops, owners) = steps.in_order();
    let cuts = if ahead > 0 { vec![ahead] } else { Vec::new() };
    // Those that were emptied by an earlier plan: packets that were on their way there then have arrived.
    let later = belief.doomed.intersection(&next.doomed).cloned().collect();
    let first = Arc::clone(&input.snapshot.context().first_services);
    Some(Plan { table: table.clone(), full: false, ops, owners, later, cuts, undo, first, next })
}

/// Replaces the whole table in one transaction.
fn full(table: &Table, options: &Options, input: RenderInput<'_, Belief>, env: Environment) -> Plan {
    let mut builder = Builder::new(options, Belief::new(input.snapshot.generation(), env));
    for port in input.snapshot.ports() {
        builder.replace(&port.name, Some(port), input.set_aside);
    }
    builder.settle_shared();
    let Builder { steps, mut next, .. } = builder;
    next.sizes = Arc::new(Sizes::for_counts(&next.counts));
    let mut ops = vec![Op::AddTable, Op::DeleteTable, Op::AddTable];
    ops.extend(layout::skeleton(&next.env, options, &next.sizes));
    let mut owners: Vec<Owner> = vec![None; ops.len()];
    let (rest, rest_owners) = steps.in_order();
    ops.extend(rest);
    owners.extend(rest_owners);
    let first = Arc::clone(&input.snapshot.context().first_services);
    Plan {
        table: table.clone(),
        full: true,
        ops,
        owners,
        later: Vec::new(),
        cuts: Vec::new(),
        undo: Vec::new(),
        first,
        next,
    }
}

/// The operations of a transaction, by the phase they belong to: what is named must exist before it is named, and must not be named
/// any more when it goes.
#[derive(Default)]
pub(crate) struct Steps {
    /// Chains that are new, with their rules, for a transaction of their own before the others.
    pub(crate) ahead: Vec<(Op, Owner)>,
    pub(crate) chains: Vec<(Op, Owner)>,
    pub(crate) flushes: Vec<(Op, Owner)>,
    pub(crate) replaced_sets: Vec<(Op, Owner)>,
    pub(crate) sets: Vec<(Op, Owner)>,
    pub(crate) rules: Vec<(Op, Owner)>,
    pub(crate) removals: Vec<(Op, Owner)>,
    pub(crate) additions: Vec<(Op, Owner)>,
    pub(crate) dropped_sets: Vec<(Op, Owner)>,
}

impl Steps {
    pub(crate) fn in_order(self) -> (Vec<Op>, Vec<Owner>) {
        let phases = [
            self.ahead,
            self.chains,
            self.flushes,
            self.replaced_sets,
            self.sets,
            self.rules,
            self.removals,
            self.additions,
            self.dropped_sets,
        ];
        phases.into_iter().flatten().unzip()
    }
}

struct Builder<'a> {
    options: &'a Options,
    steps: Steps,
    /// What takes the new chains back.
    undo: Vec<Op>,
    next: Belief,
    /// How much more or less each shared thing is needed, and by whom first.
    shared: BTreeMap<Shared, (i64, Owner)>,
}

impl<'a> Builder<'a> {
    fn new(options: &'a Options, next: Belief) -> Self {
        Self { options, steps: Steps::default(), undo: Vec::new(), next, shared: BTreeMap::new() }
    }

    /// Puts a service port in the place of what was programmed under its name.
    fn replace(&mut self, name: &ServicePortName, port: Option<&Arc<ServicePort>>, set_aside: &SetAside) {
        let old = self.next.ports.get(name).cloned();
        let port = port.filter(|p| !set_aside.contains_key(&p.name));
        let new = port.map(|p| Arc::new(Programmed::new(p, old.as_deref())));
        let env = Arc::clone(&self.next.env);
        let fragment = |p: Option<&Arc<Programmed>>| {
            p.map_or_else(Fragment::default, |p| p.fragment(&env, self.options))
        };
        let (before, after) = (fragment(old.as_ref()), fragment(new.as_ref()));
        let owner: Owner = port.cloned();
        self.sets_and_chains(&before, &after, &owner);
        self.elements(name, before.elements, after.elements, &owner);
        for shared in before.shared {
            self.shared.entry(shared).or_default().0 -= 1;
        }
        for shared in after.shared {
            let entry = self.shared.entry(shared).or_default();
            entry.0 += 1;
            entry.1 = entry.1.take().or_else(|| owner.clone());
        }
        match new {
            Some(new) => self.next.ports.insert(name.clone(), new),
            None => self.next.ports.remove(name),
        };
    }

    fn sets_and_chains(&mut self, before: &Fragment, after: &Fragment, owner: &Owner) {
        let find = |sets: &[Set], name: &Name| sets.iter().find(|s| s.name == *name).cloned();
        let mut rewrite = false;
        for set in &after.sets {
            match find(&before.sets, &set.name) {
                Some(old) if old == *set => continue,
                Some(_) => {
                    rewrite = true;
                    let delete = Op::DeleteSet(Arc::clone(&set.name));
                    self.steps.replaced_sets.push((delete, owner.clone()));
                }
                None => {}
            }
            self.steps.sets.push((Op::AddSet(set.clone()), owner.clone()));
        }
        for set in before.sets.iter().filter(|s| find(&after.sets, &s.name).is_none()) {
            self.steps.dropped_sets.push((Op::DeleteSet(Arc::clone(&set.name)), owner.clone()));
        }
        let old: BTreeMap<&Name, _> = before.chains.iter().map(|(n, r)| (n, r)).collect();
        let new: BTreeMap<&Name, _> = after.chains.iter().map(|(n, r)| (n, r)).collect();
        for (name, rules) in &after.chains {
            match old.get(name) {
                Some(unchanged) if *unchanged == rules && !rewrite => continue,
                Some(_) => self.steps.flushes.push((Op::FlushChain(Arc::clone(name)), owner.clone())),
                None => self.add_chain(name, owner),
            }
            for rule in rules {
                self.steps.rules.push((Op::AddRule(Arc::clone(name), rule.clone()), owner.clone()));
            }
        }
        for (name, _) in before.chains.iter().filter(|(n, _)| !new.contains_key(n)) {
            self.retire(name, owner);
        }
    }

    fn add_chain(&mut self, name: &Name, owner: &Owner) {
        self.next.doomed.remove(name);
        self.steps.chains.push((Op::AddChain(layout::regular(name)), owner.clone()));
    }

    /// Empties a chain, before the sets that it names may go; it is deleted after the transaction.
    fn retire(&mut self, name: &Name, owner: &Owner) {
        self.next.doomed.insert(Arc::clone(name));
        self.steps.flushes.push((Op::FlushChain(Arc::clone(name)), owner.clone()));
    }

    fn elements(
        &mut self,
        name: &ServicePortName,
        before: Vec<(Container, Key, Value)>,
        after: Vec<(Container, Key, Value)>,
        owner: &Owner,
    ) {
        let comment = comment(name);
        let mut removals = Groups::default();
        let mut additions = Groups::default();
        let mut before = before.into_iter().peekable();
        let mut after = after.into_iter().peekable();
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(b), Some(a)) => (b.0, b.1).cmp(&(a.0, a.1)),
            };
            let removed = order.is_le().then(|| before.next()).flatten();
            let added = order.is_ge().then(|| after.next()).flatten();
            if removed == added {
                continue;
            }
            if let Some((container, key, _)) = removed {
                removals.push(container, key);
                *self.next.counts.entry(container).or_default() -= 1;
            }
            if let Some((container, key, value)) = added {
                additions.push(container, fragment::element(container, key, value, &comment));
                *self.next.counts.entry(container).or_default() += 1;
            }
        }
        self.remove_elements(removals, owner);
        self.add_elements(additions, owner);
    }

    fn remove_elements(&mut self, groups: Groups<Key>, owner: &Owner) {
        let op =
            |(c, keys): (Container, Vec<Key>)| (Op::DeleteElements(c.name().into(), keys), owner.clone());
        self.steps.removals.extend(groups.0.into_iter().map(op));
    }

    fn add_elements(&mut self, groups: Groups<Element>, owner: &Owner) {
        let op = |(c, elements): (Container, Vec<Element>)| {
            (Op::AddElements(c.name().into(), elements), owner.clone())
        };
        self.steps.additions.extend(groups.0.into_iter().map(op));
    }

    /// Adds what is needed for the first time, and removes what nobody needs any more.
    fn settle_shared(&mut self) {
        for (shared, (delta, owner)) in std::mem::take(&mut self.shared) {
            let before = i64::from(self.next.shared.get(&shared).copied().unwrap_or(0));
            let after = u32::try_from(before + delta).unwrap_or(0);
            if after == 0 {
                self.next.shared.remove(&shared);
            } else {
                self.next.shared.insert(shared, after);
            }
            match (before > 0, after > 0) {
                (false, true) => self.gain(shared, &owner),
                (true, false) => self.lose(shared),
                _ => {}
            }
        }
    }

    fn gain(&mut self, shared: Shared, owner: &Owner) {
        match shared {
            Shared::Element(container, key) => {
                *self.next.counts.entry(container).or_default() += 1;
                let mut group = Groups::default();
                group.push(container, plain(key));
                self.add_elements(group, owner);
            }
            Shared::Chain(chain) => self.gain_chain(chain),
        }
    }

    /// A packet that began its way before a commit sees the rules of that time, but elements as they are: it may be sent to a chain that had no
    /// rules yet. So there is a commit between the chain and the first element that names it.
    fn gain_chain(&mut self, chain: CountChain) {
        let name = chain.name();
        let was_there = self.next.doomed.remove(&name);
        let back = if was_there { Op::FlushChain } else { Op::DeleteChain };
        self.undo.push(back(Arc::clone(&name)));
        self.steps.ahead.push((Op::AddChain(layout::regular(&name)), None));
        for rule in chain.rules(&self.next.env) {
            self.steps.ahead.push((Op::AddRule(Arc::clone(&name), rule), None));
        }
    }

    fn lose(&mut self, shared: Shared) {
        match shared {
            Shared::Element(container, key) => {
                *self.next.counts.entry(container).or_default() -= 1;
                let mut group = Groups::default();
                group.push(container, key);
                self.remove_elements(group, &None);
            }
            Shared::Chain(chain) => self.retire(&chain.name(), &None),
        }
    }
}

/// Things by container, in runs: one operation each.
struct Groups<T>(Vec<(Container, Vec<T>)>);

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Groups<T> {
    fn push(&mut self, container: Container, thing: T) {
        match self.0.last_mut() {
            Some((last, things)) if *last == container => things.push(thing),
            _ => self.0.push((container, vec![thing])),
        }
    }
}
