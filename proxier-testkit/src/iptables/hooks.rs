//! The way of a packet through the hooks.
//!
//! ```text
//! interface -> PREROUTING -> route -+-> INPUT   (for this host)
//!                                   +-> FORWARD -> POSTROUTING
//! process -> OUTPUT -> route -> POSTROUTING -+-> out
//!                                            +-> lo -> PREROUTING -> INPUT   (for this host)
//! ```
//!
//! IPVS, where there is one, is asked behind the filter table's INPUT and behind the nat table's OUTPUT (`ip_vs_core.c`: priorities 99 and -98).
//! What it sends to another host passes OUTPUT (once more) with its new destination, and POSTROUTING.
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
use crate::walk::{Branch, BranchOutcome, Delivery, Fraction, Walk, WalkError, WalkHost};

/// Follows the first packet of a connection through the rules, along every random choice.
///
/// What it leaves out: martian addresses, reverse path checks, `route_localnet`, policy routing by mark, and the tables raw and security.
/// After masquerading, a packet for this host has this host's own address as its source.
///
/// # Errors
/// See [`WalkError`]; also for a packet of another family than the ruleset's.
pub fn walk(ruleset: &Ruleset, packet: &Packet, host: &WalkHost) -> Result<Walk, WalkError> {
    walk_balanced(ruleset, packet, host, None)
}

/// What IPVS does with the first packet of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// It knows no such virtual server.
    NotOurs,
    /// It has a virtual server, but no real server: it answers that the port is unreachable.
    Refused,
    /// One of these, each with the same probability; never empty.
    To(Vec<(IpAddr, u16)>),
}

/// Somebody who translates as IPVS does.
pub trait Balancer {
    /// Asks about a packet: source, destination, IANA number of the protocol, destination port.
    fn balance(&self, source: IpAddr, destination: IpAddr, protocol: u8, port: u16) -> Balance;
}

/// The same with IPVS between the tables.
///
/// # Errors
/// See [`walk`].
pub fn walk_balanced(
    ruleset: &Ruleset,
    packet: &Packet,
    host: &WalkHost,
    balancer: Option<&dyn Balancer>,
) -> Result<Walk, WalkError> {
    let family = match (packet.source, packet.destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) => IpFamily::Ipv4,
        (IpAddr::V6(_), IpAddr::V6(_)) => IpFamily::Ipv6,
        _ => return Err(WalkError::MixedFamilies),
    };
    if family != ruleset.family() {
        return Err(WalkError::MixedFamilies);
    }
    let mut way = Way { ruleset, host, balancer, finished: Vec::new() };
    match &packet.entry {
        Entry::Interface(name) => way.received(State::new(family, packet, name.clone()))?,
        Entry::Host => way.sent(State::new(family, packet, "".into()))?,
    }
    Ok(Walk { branches: way.finished })
}

struct Way<'r> {
    ruleset: &'r Ruleset,
    host: &'r WalkHost,
    balancer: Option<&'r dyn Balancer>,
    finished: Vec<Branch>,
}

const ALL: &[TableName] = &[TableName::Mangle, TableName::Nat, TableName::Filter];
const WITHOUT_NAT: &[TableName] = &[TableName::Mangle, TableName::Filter];
const BEFORE_IPVS: &[TableName] = &[TableName::Mangle, TableName::Nat];
const BEHIND_IPVS: &[TableName] = &[TableName::Filter];

impl<'r> Way<'r> {
    fn received(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("PREROUTING", state, ALL)? {
            if self.host.is_local(state.destination) {
                self.input(state)?;
                continue;
            }
            let state = self.routed(state);
            for state in self.hook("FORWARD", state, ALL)? {
                self.leave(state)?;
            }
        }
        Ok(())
    }

    fn sent(&mut self, state: State<'r>) -> Result<(), WalkError> {
        let state = self.routed(state);
        for state in self.hook("OUTPUT", state, BEFORE_IPVS)? {
            for state in self.balanced(state)? {
                let far = state.virtual_server.is_some() && !self.host.is_local(state.destination);
                if far {
                    self.sent_by_ipvs(state)?;
                } else {
                    self.sent_by_this_host(state)?;
                }
            }
        }
        Ok(())
    }

    fn sent_by_this_host(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("OUTPUT", state, BEHIND_IPVS)? {
            if !self.host.is_local(state.destination) {
                self.leave(state)?;
                continue;
            }
            for mut state in self.hook("POSTROUTING", state, ALL)? {
                if state.masquerade {
                    state.source = state.destination;
                }
                (state.incoming, state.outgoing) = ("lo".into(), Outgoing::None);
                for state in self.hook("PREROUTING", state, WITHOUT_NAT)? {
                    self.input(state)?;
                }
            }
        }
        Ok(())
    }

    fn input(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("INPUT", state, WITHOUT_NAT)? {
            if state.virtual_server.is_some() {
                self.accepted(state, Delivery::Local);
                continue;
            }
            for state in self.balanced(state)? {
                let far = state.virtual_server.is_some() && !self.host.is_local(state.destination);
                if far {
                    self.sent_by_ipvs(state)?;
                } else {
                    self.accepted(state, Delivery::Local);
                }
            }
        }
        Ok(())
    }

    /// The nat table has decided about its destination already.
    fn sent_by_ipvs(&mut self, mut state: State<'r>) -> Result<(), WalkError> {
        state.incoming = "".into();
        let state = self.routed(state);
        for state in self.hook("OUTPUT", state, WITHOUT_NAT)? {
            self.leave(state)?;
        }
        Ok(())
    }

    /// Asks IPVS; what it refuses is finished.
    fn balanced(&mut self, state: State<'r>) -> Result<Vec<State<'r>>, WalkError> {
        let (Some(balancer), Some(port)) = (self.balancer, state.port) else { return Ok(vec![state]) };
        match balancer.balance(state.source, state.destination, state.protocol, port) {
            Balance::NotOurs => Ok(vec![state]),
            Balance::Refused => {
                self.finished.push(state.branch(BranchOutcome::Rejected));
                Ok(Vec::new())
            }
            Balance::To(servers) => {
                let share = Fraction::new(1, servers.len() as u64).ok_or(WalkError::WeightOverflow)?;
                let one = |(ip, number)| {
                    let mut state = state.clone();
                    state.weight = state.weight.times(share).ok_or(WalkError::WeightOverflow)?;
                    state.virtual_server = Some((state.destination, port));
                    state.translate(ip, Some(number));
                    Ok(self.routed(state))
                };
                servers.into_iter().map(one).collect()
            }
        }
    }

    fn leave(&mut self, state: State<'r>) -> Result<(), WalkError> {
        for state in self.hook("POSTROUTING", state, ALL)? {
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

    /// Those of the tables that have this chain, in order; the states that come through. The rest is finished.
    fn hook(
        &mut self,
        chain: &'static str,
        state: State<'r>,
        tables: &[TableName],
    ) -> Result<Vec<State<'r>>, WalkError> {
        let mut open = vec![state];
        for name in tables.iter().copied() {
            let nat = name == TableName::Nat;
            let here = name.built_in().contains(&chain);
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
