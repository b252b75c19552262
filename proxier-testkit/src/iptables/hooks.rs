//! The way of a packet through the hooks.
//!
//! ```text
//! interface -> PREROUTING -> route -+-> INPUT   (for this host)
//!                                   +-> FORWARD -> POSTROUTING
//! process -> OUTPUT -> route -> POSTROUTING -+-> out
//!                                            +-> lo -> PREROUTING -> INPUT   (for this host)
//! ```
//!
//! In each hook the tables are asked in the order mangle, nat, filter. On `lo` a packet keeps its mark and its connection, which is
//! still new to `conntrack`, but already has its bindings: the nat table is not asked again. The nat table's INPUT chain is left out:
//! none of the model's targets does anything there that could be seen.

use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::IpFamily;
use proxier_core::oracle::{Entry, Packet};

use super::model::Ruleset;
use super::run::{End, Runner};
use super::state::{Outgoing, State};
use super::table::TableName;
use crate::walk::{Branch, BranchOutcome, Delivery, Walk, WalkError, WalkHost};

/// Follows the first packet of a connection through the rules, along every random choice.
///
/// What it leaves out: martian addresses, reverse path checks, `route_localnet`, policy routing by mark, and the tables raw and security.
/// After masquerading, a packet for this host has this host's own address as its source.
///
/// # Errors
/// See [`WalkError`]; also for a packet of another family than the ruleset's.
pub fn walk(ruleset: &Ruleset, packet: &Packet, host: &WalkHost) -> Result<Walk, WalkError> {
    let family = match (packet.source, packet.destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) => IpFamily::Ipv4,
        (IpAddr::V6(_), IpAddr::V6(_)) => IpFamily::Ipv6,
        _ => return Err(WalkError::MixedFamilies),
    };
    if family != ruleset.family() {
        return Err(WalkError::MixedFamilies);
    }
    let mut way = Way { ruleset, host, finished: Vec::new() };
    match &packet.entry {
        Entry::Interface(name) => way.received(State::new(family, packet, name.clone()))?,
        Entry::Host => way.sent(State::new(family, packet, "".into()))?,
    }
    Ok(Walk { branches: way.finished })
}

struct Way<'r> {
    ruleset: &'r Ruleset,
    host: &'r WalkHost,
    finished: Vec<Branch>,
}

impl<'r> Way<'r> {
    fn received(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("PREROUTING", state, true)? {
            if self.host.is_local(state.destination) {
                self.input(state)?;
                continue;
            }
            let state = self.routed(state);
            for state in self.hook("FORWARD", state, true)? {
                self.leave(state)?;
            }
        }
        Ok(())
    }

    fn sent(&mut self, state: State<'r>) -> Result<(), WalkError> {
        let state = self.routed(state);
        for state in self.hook("OUTPUT", state, true)? {
            if !self.host.is_local(state.destination) {
                self.leave(state)?;
                continue;
            }
            for mut state in self.hook("POSTROUTING", state, true)? {
                if state.masquerade {
                    state.source = state.destination;
                }
                (state.incoming, state.outgoing) = ("lo".into(), Outgoing::None);
                for state in self.hook("PREROUTING", state, false)? {
                    self.input(state)?;
                }
            }
        }
        Ok(())
    }

    fn input(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("INPUT", state, false)? {
            self.accepted(state, Delivery::Local);
        }
        Ok(())
    }

    fn leave(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("POSTROUTING", state, true)? {
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
        let towards = |ip| self.host.interface_towards(ip).cloned();
        state.outgoing = if self.host.is_local(state.destination) {
            Outgoing::Known(Arc::from("lo"))
        } else {
            towards(state.destination).map_or(Outgoing::Unknown, Outgoing::Known)
        };
        state
    }

    /// All tables that have this chain, in order; the states that come through. The rest is finished.
    fn hook(
        &mut self,
        chain: &'static str,
        state: State<'r>,
        with_nat: bool,
    ) -> Result<Vec<State<'r>>, WalkError> {
        let mut open = vec![state];
        for name in [TableName::Mangle, TableName::Nat, TableName::Filter] {
            let nat = name == TableName::Nat;
            let here = name.built_in().contains(&chain) && (!nat || with_nat);
            let Some(table) = self.ruleset.table(name).filter(|_| here) else { continue };
            let runner = Runner { ruleset: self.ruleset, table, host: self.host };
            let mut next = Vec::with_capacity(open.len());
            for state in open {
                for (state, end) in runner.built_in(state, chain)? {
                    match end {
                        End::Accept if nat && chain == "OUTPUT" => next.push(self.routed(state)),
                        End::Accept => next.push(state),
                        End::Drop => self.finished.push(state.branch(BranchOutcome::Dropped)),
                        End::Reject => self.finished.push(state.branch(BranchOutcome::Rejected)),
                    }
                }
            }
            open = next;
        }
        Ok(open)
    }
}
