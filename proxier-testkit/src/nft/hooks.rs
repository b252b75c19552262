//! The way of a packet through the hooks.
//!
//! ```text
//! interface -> prerouting -> route -+-> input   (for this host)
//!                                   +-> forward -> postrouting
//! process -> output -> route -> postrouting -+-> out
//!                                            +-> lo -> prerouting -> input   (for this host)
//! ```
//!
//! On `lo` a packet keeps its mark and its connection, which is still new to `ct state`, but already has its bindings:
//! nat chains of prerouting are not run for it, filter chains are. Nat chains are called at the place of the nat core
//! (-100 on the way in and in output, 100 behind), whatever their own priorities, which only order them among
//! themselves; once one of them has translated the packet, the others are not asked.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::IpFamily;
use proxier_core::oracle::{Entry, Packet};

use super::model::{BaseChain, Chain, ChainKind, Hook, Ruleset};
use super::run::{End, Runner};
use super::state::{Outgoing, State};
use super::table::Table;
use crate::walk::{Branch, BranchOutcome, Delivery, Walk, WalkError, WalkHost};

/// Follows the first packet of a connection through the rules, along every random choice.
///
/// What it leaves out: martian addresses, reverse path checks, policy routing by mark, and what other tables than those
/// in the text do. After masquerading, a packet for this host has this host's own address as its source.
///
/// # Errors
/// See [`WalkError`].
pub fn walk(ruleset: &Ruleset, packet: &Packet, host: &WalkHost) -> Result<Walk, WalkError> {
    let family = match (packet.source, packet.destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) => IpFamily::Ipv4,
        (IpAddr::V6(_), IpAddr::V6(_)) => IpFamily::Ipv6,
        _ => return Err(WalkError::MixedFamilies),
    };
    let mut way = Way { ruleset, host, family, finished: Vec::new() };
    match &packet.entry {
        Entry::Interface(name) => way.received(State::new(family, packet, name.clone()))?,
        Entry::Host => way.sent(State::new(family, packet, "".into()))?,
    }
    Ok(Walk { branches: way.finished })
}

/// A base chain in its place.
struct Placed<'r> {
    order: (i32, i32, Reverse<u64>),
    table: &'r Table,
    name: &'r str,
    base: BaseChain,
    chain: &'r Chain,
}

struct Way<'r> {
    ruleset: &'r Ruleset,
    host: &'r WalkHost,
    family: IpFamily,
    finished: Vec<Branch>,
}

impl<'r> Way<'r> {
    fn received(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook(Hook::Prerouting, vec![state], true)? {
            if self.host.is_local(state.destination) {
                self.input(state)?;
                continue;
            }
            let state = self.routed(state);
            for state in self.hook(Hook::Forward, vec![state], true)? {
                self.leave(state)?;
            }
        }
        Ok(())
    }

    fn sent(&mut self, state: State<'r>) -> Result<(), WalkError> {
        let state = self.routed(state);
        for state in self.hook(Hook::Output, vec![state], true)? {
            if !self.host.is_local(state.destination) {
                self.leave(state)?;
                continue;
            }
            for mut state in self.hook(Hook::Postrouting, vec![state], true)? {
                if state.masquerade {
                    state.source = state.destination;
                }
                (state.incoming, state.outgoing) = ("lo".into(), Outgoing::None);
                for state in self.hook(Hook::Prerouting, vec![state], false)? {
                    self.input(state)?;
                }
            }
        }
        Ok(())
    }

    fn input(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook(Hook::Input, vec![state], true)? {
            self.accepted(state, Delivery::Local);
        }
        Ok(())
    }

    fn leave(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook(Hook::Postrouting, vec![state], true)? {
            self.accepted(state, Delivery::Forwarded);
        }
        Ok(())
    }

    fn accepted(&mut self, state: State<'r>, delivery: Delivery) {
        let outcome = BranchOutcome::Accepted { dnat: state.dnat, masquerade: state.masquerade, delivery };
        self.finished.push(state.branch(outcome));
    }

    /// Decides the outgoing interface.
    fn routed(&self, mut state: State<'r>) -> State<'r> {
        let lo = || Outgoing::Known(Arc::from("lo"));
        let towards =
            |ip| self.host.interface_towards(ip).map_or(Outgoing::Unknown, |i| Outgoing::Known(i.clone()));
        state.outgoing =
            if self.host.is_local(state.destination) { lo() } else { towards(state.destination) };
        state
    }

    /// All base chains of a hook, in order; the states that come through. The rest is finished.
    fn hook(
        &mut self,
        hook: Hook,
        states: Vec<State<'r>>,
        with_nat: bool,
    ) -> Result<Vec<State<'r>>, WalkError> {
        let mut open: Vec<(State<'r>, bool)> = states.into_iter().map(|state| (state, with_nat)).collect();
        for placed in self.chains(hook) {
            let runner = Runner { table: placed.table, host: self.host };
            let nat = placed.base.kind == ChainKind::Nat;
            let mut next = Vec::with_capacity(open.len());
            for (state, unbound) in open {
                if nat && !unbound {
                    next.push((state, unbound));
                    continue;
                }
                let before = (state.dnat, state.masquerade);
                for (state, end) in runner.base(state, placed.name, placed.chain)? {
                    let bound = (state.dnat, state.masquerade) != before;
                    match end {
                        End::Policy if !placed.base.accept => {
                            self.finished.push(state.branch(BranchOutcome::Dropped));
                        }
                        End::Accept | End::Policy => {
                            let state =
                                if nat && bound && hook == Hook::Output { self.routed(state) } else { state };
                            next.push((state, unbound && !bound));
                        }
                        End::Drop => self.finished.push(state.branch(BranchOutcome::Dropped)),
                        End::Reject => self.finished.push(state.branch(BranchOutcome::Rejected)),
                    }
                }
            }
            open = next;
        }
        Ok(open.into_iter().map(|(state, _)| state).collect())
    }

    fn chains(&self, hook: Hook) -> Vec<Placed<'r>> {
        let core = if matches!(hook, Hook::Prerouting | Hook::Output) { -100 } else { 100 };
        let mut placed: Vec<_> = self
            .ruleset
            .tables(self.family)
            .flat_map(|(_, table)| table.bases(hook).map(move |found| (table, found)))
            .map(|(table, (sequence, name, base, chain))| {
                let place = if base.kind == ChainKind::Nat { core } else { base.priority };
                // Of equal priorities the one added last is called first.
                Placed { order: (place, base.priority, Reverse(sequence)), table, name, base, chain }
            })
            .collect();
        placed.sort_by_key(|placed| placed.order);
        placed
    }
}
