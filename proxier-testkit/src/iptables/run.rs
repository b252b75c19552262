//! One built-in chain, followed through jumps, gotos and random choices.
//!
//! Semantics: the kernel's `ipt_do_table` and the matches of `iptables-extensions(8)`. The parts of a rule are asked in order, and one
//! that records something does so even if a later one does not hold.

use super::ast::{Interface, Match, Maybe, Ports, Recent, RecentAction, Rule, SetMatch, Statistic, Target};
use super::model::Ruleset;
use super::state::{Outgoing, State};
use super::table::{Chain, Table};
use crate::ipset::{Kind, Part};
use crate::walk::{Fraction, WalkError, WalkHost};

/// How a built-in chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Accepted: by a target, or by the policy.
    Accept,
    /// Dropped.
    Drop,
    /// Rejected.
    Reject,
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
    pub(super) ruleset: &'r Ruleset,
    pub(super) table: &'r Table,
    pub(super) host: &'r WalkHost,
}

type Branches<'r, T> = Vec<(State<'r>, T)>;

impl<'r> Runner<'r> {
    /// Runs a built-in chain; more than one result where a random choice was met.
    pub(super) fn built_in(&self, state: State<'r>, name: &'r str) -> Result<Branches<'r, End>, WalkError> {
        let mut done = Vec::new();
        let first = self.enter(state, name, Vec::new())?;
        let accept = first.chain.policy.unwrap_or(true);
        let mut open = vec![first];
        while let Some(cursor) = open.pop() {
            self.step(cursor, accept, &mut open, &mut done)?;
        }
        Ok(done)
    }

    /// One rule, or the end of a chain; `accept` is the policy of the built-in one.
    fn step(
        &self,
        cursor: Cursor<'r>,
        accept: bool,
        open: &mut Vec<Cursor<'r>>,
        done: &mut Branches<'r, End>,
    ) -> Result<(), WalkError> {
        let Cursor { state, name, chain, mut rule, mut stack } = cursor;
        let current = loop {
            match chain.rules.get(rule) {
                Some(current) if !self.header(&state, current)? => rule += 1,
                found => break found,
            }
        };
        let Some(current) = current else {
            match stack.pop() {
                Some((name, chain, rule)) => open.push(Cursor { state, name, chain, rule, stack }),
                None => done.push((state, if accept { End::Accept } else { End::Drop })),
            }
            return Ok(());
        };
        // The last one pushed is followed first: turned round, branches finish in the order of the choices.
        for (index, (mut state, matched)) in self.matches(state, current)?.into_iter().enumerate().rev() {
            let mut stack = if index == 0 { std::mem::take(&mut stack) } else { stack.clone() };
            if !matched {
                open.push(Cursor { state, name, chain, rule: rule + 1, stack });
                continue;
            }
            state.trace.push((name, &current.text));
            match &current.target {
                Target::None => open.push(Cursor { state, name, chain, rule: rule + 1, stack }),
                Target::Mark(mark) => {
                    state.mark = (state.mark & !mark.mask) ^ mark.value;
                    open.push(Cursor { state, name, chain, rule: rule + 1, stack });
                }
                Target::Return => open.push(Cursor { state, name, chain, rule: chain.rules.len(), stack }),
                Target::Jump(to) => {
                    stack.push((name, chain, rule + 1));
                    open.push(self.enter(state, to, stack)?);
                }
                Target::Goto(to) => open.push(self.enter(state, to, stack)?),
                target => {
                    let end = last(&mut state, target);
                    done.push((state, end));
                }
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

    /// Do all `-m` of the rule hold? Both, each with its probability, where that is chance.
    fn matches(&self, state: State<'r>, rule: &'r Rule) -> Result<Branches<'r, bool>, WalkError> {
        let mut holding = vec![state];
        let mut results = Vec::new();
        for one in &rule.matches {
            for mut state in std::mem::take(&mut holding) {
                let Match::Statistic(statistic) = one else {
                    match self.holds(&mut state, one)? {
                        true => holding.push(state),
                        false => results.push((state, false)),
                    }
                    continue;
                };
                let share = share(statistic, rule)?;
                if share != Fraction::ZERO {
                    holding.push(part(state.clone(), share)?);
                }
                let rest = rest(share)?;
                if rest != Fraction::ZERO {
                    results.push((part(state, rest)?, false));
                }
            }
        }
        let mut all: Branches<'r, bool> = holding.into_iter().map(|state| (state, true)).collect();
        all.append(&mut results);
        Ok(all)
    }

    /// What does not stand under `-m`.
    fn header(&self, state: &State<'r>, rule: &Rule) -> Result<bool, WalkError> {
        let net = |net: &Option<Maybe<ipnet::IpNet>>, address| is(net.as_ref(), |n| n.contains(address));
        if !net(&rule.source, &state.source)
            || !net(&rule.destination, &state.destination)
            || !is(rule.protocol.as_ref(), |number| *number == state.protocol)
            || !is(rule.incoming.as_ref(), |interface| named(interface, &state.incoming))
        {
            return Ok(false);
        }
        let outgoing: &str = match (&rule.outgoing, &state.outgoing) {
            (None, _) => return Ok(true),
            (_, Outgoing::None) => "",
            (_, Outgoing::Known(name)) => name,
            (_, Outgoing::Unknown) => return Err(WalkError::NoRoute(state.destination)),
        };
        Ok(is(rule.outgoing.as_ref(), |interface| named(interface, outgoing)))
    }

    /// A match without choices.
    fn holds(&self, state: &mut State<'r>, one: &'r Match) -> Result<bool, WalkError> {
        Ok(match one {
            Match::Comment(_) | Match::Counter(_) | Match::Statistic(_) => true,
            // The first packet of its connection.
            Match::Conntrack(states) => is(Some(states), |states| {
                states.has("NEW")
                    || (state.translated && states.has("DNAT"))
                    || (state.masquerade && states.has("SNAT"))
            }),
            Match::Mark(mark) => is(Some(mark), |m| state.mark & m.mask == m.value),
            Match::AddressType(source, destination) => {
                is(source.as_ref(), |types| types.has(self.host.is_local(state.source)))
                    && is(destination.as_ref(), |types| types.has(self.host.is_local(state.destination)))
            }
            Match::Recent(recent) => self.recent(state, recent),
            Match::Set(set) => self.set(state, set)?,
            // Nothing here passes a bridge as such.
            Match::Bridged(bridged) => bridged.negated,
            Match::Ipvs { protocol, address, port } => state.virtual_server.is_some_and(|(ip, number)| {
                is(protocol.as_ref(), |p| *p == state.protocol)
                    && is(address.as_ref(), |net| net.contains(&ip))
                    && is(port.as_ref(), |p| *p == number)
            }),
            Match::Transport { protocol, source, destination } => {
                if let Some(source) = source {
                    return Err(WalkError::Unknown(format!("a source port, as in {source:?}")));
                }
                let port = state.port.filter(|_| protocol.number() == state.protocol);
                port.is_some_and(|port| {
                    is(destination.as_ref(), |Ports { first, last }| (*first..=*last).contains(&port))
                })
            }
        })
    }

    fn set(&self, state: &State<'r>, set: &Maybe<SetMatch>) -> Result<bool, WalkError> {
        let Maybe { negated, value: SetMatch { name, sources } } = set;
        let kind = self.ruleset.sets().get(name).map(|s| s.kind);
        let of_port = match kind {
            Some(Kind::Port) => Some(0),
            Some(Kind::IpPort | Kind::IpPortIp | Kind::IpPortNet) => Some(1),
            _ => None,
        };
        if state.port.is_some() && of_port.and_then(|at| sources.get(at)) == Some(&true) {
            return Err(WalkError::Unknown(format!("a source port, for the set {name}")));
        }
        let port = state.port.map(|number| (state.protocol, number));
        let part =
            |source: &bool| Part { ip: Some(if *source { state.source } else { state.destination }), port };
        let parts: Vec<Part> = sources.iter().map(part).collect();
        Ok(self.ruleset.sets().finds(name, &parts) != *negated)
    }

    fn recent(&self, state: &mut State<'r>, recent: &'r Maybe<Recent>) -> bool {
        let Maybe { negated, value: Recent { action, name, destination, .. } } = recent;
        let address = if *destination { state.destination } else { state.source };
        let earlier = state.updates.iter().any(|(list, there)| *list == &**name && *there == address);
        let found = *action == RecentAction::Set || earlier || self.ruleset.is_recent(name, address);
        let holds = found != *negated;
        if *action == RecentAction::Set || (*action == RecentAction::Update && holds) {
            state.updates.push((name, address));
        }
        holds
    }
}

/// Carries out a target that ends the table.
fn last(state: &mut State<'_>, target: &Target) -> End {
    match target {
        Target::Drop => End::Drop,
        Target::Reject(_) => End::Reject,
        Target::Dnat { address, port } => {
            state.translate(*address, *port);
            End::Accept
        }
        Target::Masquerade { .. } => {
            state.masquerade = true;
            End::Accept
        }
        _ => End::Accept,
    }
}

/// A condition that may be negated; none at all holds.
fn is<T>(maybe: Option<&Maybe<T>>, holds: impl FnOnce(&T) -> bool) -> bool {
    maybe.is_none_or(|Maybe { negated, value }| holds(value) != *negated)
}

fn named(interface: &Interface, name: &str) -> bool {
    if interface.prefix { name.starts_with(&*interface.name) } else { name == &*interface.name }
}

fn part(mut state: State<'_>, share: Fraction) -> Result<State<'_>, WalkError> {
    state.weight = state.weight.times(share).ok_or(WalkError::WeightOverflow)?;
    Ok(state)
}

fn rest(share: Fraction) -> Result<Fraction, WalkError> {
    let (numerator, denominator) = (share.numerator(), share.denominator());
    Fraction::new(denominator.saturating_sub(numerator), denominator).ok_or(WalkError::WeightOverflow)
}

fn share(statistic: &Maybe<Statistic>, rule: &Rule) -> Result<Fraction, WalkError> {
    let Statistic::Random(multiple) = statistic.value else {
        return Err(WalkError::Unknown(format!(
            "how many packets came before this one, as in {}",
            rule.text
        )));
    };
    let share = random_share(multiple).ok_or(WalkError::WeightOverflow)?;
    if statistic.negated { rest(share) } else { Ok(share) }
}

/// The probability that is meant by a multiple of 2^-31: 1/n, if it is what the tool makes of 1/n written with 10 decimals
/// (iptables spec 4), and itself otherwise. Above n = 32768 neighbouring fractions come too close to tell.
fn random_share(multiple: u32) -> Option<Fraction> {
    const WHOLE: u64 = 1 << 31;
    let multiple = u64::from(multiple);
    let exact = Fraction::new(multiple, WHOLE);
    if multiple == 0 {
        return exact;
    }
    let n = (WHOLE + multiple / 2) / multiple;
    // Half a multiple is lost to rounding, and 5e-11 to the decimals: 0.608 multiples together.
    let error = (multiple * n).abs_diff(WHOLE);
    if n <= 1 << 15 && error * 1000 <= 608 * n { Fraction::new(1, n) } else { exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_n_is_recognised_whatever_the_rounding() {
        for n in 1..=1_u32 << 15 {
            let text = format!("{:.10}", 1.0 / f64::from(n));
            let multiple = (text.parse::<f64>().unwrap() * f64::from(1_u32 << 31)).round() as u32;
            assert_eq!(random_share(multiple), Fraction::new(1, n.into()), "{text}");
        }
    }

    #[test]
    fn other_probabilities_stay_what_they_are() {
        for (multiple, share) in
            [(0, (0, 1)), (3 << 29, (3, 4)), (3, (3, 1 << 31)), (715_827_888, (44_739_243, 134_217_728))]
        {
            assert_eq!(random_share(multiple), Fraction::new(share.0, share.1), "{multiple}");
        }
    }
}
