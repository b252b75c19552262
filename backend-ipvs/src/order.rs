//! The order of operations: objects change one by one, and packets pass in between.
//!
//! After every operation a packet is treated as it was before, as it will be in the end, or is refused. In particular nobody passes a source
//! range, gets to an endpoint that a policy of Local forbids, reaches a process of this host by an address of a service, or is sent on with
//! a source that the reply would not find. Each `Phase` says what must have happened before it.

use std::collections::BTreeMap;

use proxier_core::ids::ServicePortName;

use crate::ops::{Action, Op};

/// When an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// What entries and rules need.
    Containers,
    /// Rules for sets that had no entries: while a set has none, they match nothing, and an entry never stands without the rule that looks for
    /// it. Those of sets that will have none stay until the end.
    Rules,
    /// What tells that a virtual server is ours, before it is there: an end in between leaves nothing behind that nobody knows.
    Recorded,
    /// Virtual servers, still empty: they refuse. An entry that lets packets pass the filter would otherwise hand them to whatever listens
    /// on this host.
    Services,
    /// Entries that qualify others, which must not stand without them: source ranges, and sources that are kept.
    Qualifying,
    /// All other entries: marks, refusals, and what guards this host. No real server is there that would need them.
    Entries,
    /// Sources are kept no more, before real servers of other nodes come.
    Unkept,
    /// Real servers, now that marks and refusals are right. Those that come before those that go, so that somebody is always there.
    Servers,
    /// Real servers get no new connections.
    Retired,
    /// Sources are kept, now that those of other nodes are gone.
    Kept,
    /// Addresses become local, now that all is in place behind them.
    Bound,
    /// Addresses are local no more: what is sent there goes elsewhere, as it will.
    Unbound,
    /// New connections are refused where the address stays local and its virtual server goes.
    Guarded,
    /// Virtual servers go, with their real servers.
    Deleted,
    /// Entries, now that they decide about nothing.
    Cleared,
    /// Entries that qualified others.
    Unqualified,
    /// Refusals, now that real servers are there or the frontend is gone.
    Admitted,
    /// Rules for sets that have no entries any more.
    Trimmed,
}

impl Phase {
    /// Belongs to the end of a plan, whatever service port it is for.
    fn is_last(self) -> bool {
        self >= Self::Unbound
    }
}

/// Service ports of one step: enough to make few messages of many, and few enough that one that fails does not undo much.
const PORTS_PER_STEP: usize = 500;

/// Operations that are gathered in any order.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// The step of each service port; in the first one where it has none.
    places: BTreeMap<ServicePortName, usize>,
    steps: usize,
    actions: BTreeMap<(usize, Phase), Vec<Action>>,
}

impl Sequence {
    /// For these service ports, in the order in which they are to be complete.
    pub(crate) fn new<'a>(ports: impl IntoIterator<Item = &'a ServicePortName>) -> Self {
        let places: BTreeMap<_, _> =
            ports.into_iter().enumerate().map(|(at, port)| (port.clone(), at / PORTS_PER_STEP)).collect();
        let steps = places.values().max().map_or(1, |last| last + 1);
        Self { places, steps, actions: BTreeMap::new() }
    }

    /// Adds an operation.
    pub(crate) fn add(&mut self, phase: Phase, op: Op, port: Option<&ServicePortName>) {
        let place = port.and_then(|p| self.places.get(p)).copied().unwrap_or_default();
        let place = if phase.is_last() { self.steps } else { place };
        self.actions.entry((place, phase)).or_default().push(Action { op, port: port.cloned() });
    }

    /// The steps, and how many service ports are complete after each.
    pub(crate) fn into_steps(self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut complete = vec![0; self.steps];
        for place in self.places.values() {
            if let Some(count) = complete.get_mut(*place) {
                *count += 1;
            }
        }
        let mut open = None;
        for ((place, _), actions) in self.actions {
            // What comes last is part of the last step.
            let place = place.min(self.steps - 1);
            if open != Some(place) {
                open = Some(place);
                let ports = complete.iter().take(place + 1).sum();
                steps.push(Step { actions: Vec::new(), ports });
            }
            if let Some(step) = steps.last_mut() {
                step.actions.extend(actions);
            }
        }
        steps
    }
}

/// A part of a plan that leaves whole service ports behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its operations, in order.
    pub actions: Vec<Action>,
    /// How many service ports are complete once it is done, with those of the steps before.
    pub ports: usize,
}
