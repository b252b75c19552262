//! Where a packet goes: the questions and answers that every packet walker shares.
//!
//! A walker follows all random choices at once, so that its answer is a list of [`Branch`]es with exact probabilities,
//! and [`Walk::outcome`] brings it to the form of the oracle, to be compared with it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::{EndpointAddr, Port};
use proxier_core::oracle::{Choice, Outcome, Packet};

mod fraction;
#[cfg(test)]
mod tests;

pub use fraction::Fraction;

/// The question: the first packet of a connection that nobody has seen before.
pub type WalkPacket = Packet;

/// The comparable form of an answer.
pub type Answer = Outcome;

/// What a walker needs to know of the host that the packet is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkHost {
    addresses: Vec<IpAddr>,
    routes: Vec<(IpNet, Arc<str>)>,
}

impl WalkHost {
    /// A host with these addresses on its interfaces; 127.0.0.0/8 and ::1 are always there.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { addresses: addresses.into_iter().collect(), routes: Vec::new() }
    }

    /// The same with more addresses.
    #[must_use]
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses.extend(addresses);
        self
    }

    /// Adds a route: packets to `net` leave by this interface. Needed only by rules that look at it.
    #[must_use]
    pub fn with_route(mut self, net: IpNet, interface: &str) -> Self {
        self.routes.push((net, interface.into()));
        self
    }

    /// Is it an address of this host?
    #[must_use]
    pub fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.contains(&address)
    }

    /// The interface towards an address of another host, by the longest prefix.
    #[must_use]
    pub fn interface_towards(&self, address: IpAddr) -> Option<&Arc<str>> {
        let matching = self.routes.iter().filter(|(net, _)| net.contains(&address));
        matching.max_by_key(|(net, _)| net.prefix_len()).map(|(_, interface)| interface)
    }
}

/// How an accepted packet leaves the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// To a process of this host.
    Local,
    /// Out to another host or a pod.
    Forwarded,
}

/// What becomes of a packet on one branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchOutcome {
    /// It goes through.
    Accepted {
        /// The new destination, if it got one.
        dnat: Option<(IpAddr, u16)>,
        /// The source is replaced. Never for a packet that came from outside and is delivered here: it does not pass
        /// postrouting.
        masquerade: bool,
        /// Where it goes.
        delivery: Delivery,
    },
    /// Refused with an answer.
    Rejected,
    /// Dropped without an answer.
    Dropped,
}

/// One possible way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its probability.
    pub weight: Fraction,
    /// Its end.
    pub outcome: BranchOutcome,
    /// The rules that matched, in order, each as `chain: rule`.
    pub trace: Vec<String>,
    /// What rules recorded: the set, and the address that went into it.
    pub affinity_updates: Vec<(String, IpAddr)>,
}

/// All possible ways of a packet; their weights sum up to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The branches, in the order of the random choices.
    pub branches: Vec<Branch>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// Source and destination are of different families.
    #[error("source and destination are of different families")]
    MixedFamilies,
    /// A rule looks at the outgoing interface, and the host has no route that tells it.
    #[error("no route to {0}")]
    NoRoute(IpAddr),
    /// A rule looks at something that the question does not tell.
    #[error("the packet does not tell {0}")]
    Unknown(String),
    /// A probability has too large a denominator.
    #[error("probability out of range")]
    WeightOverflow,
    /// A rule refers to something that is not there; a checked ruleset has none.
    #[error("dangling reference to {0}")]
    Dangling(String),
    /// Some branches go through and others are refused, or some are translated and others not.
    #[error("branches differ in kind: {0}")]
    Mixed(String),
    /// Its source is replaced, but its destination is not.
    #[error("masqueraded without a new destination")]
    MasqueradedOnly,
    /// The new destination has port 0.
    #[error("new destination {0} without a port")]
    NoPort(IpAddr),
}

impl Walk {
    /// The answer in the oracle's form: choices with the smallest whole weights, sorted.
    ///
    /// # Errors
    /// [`WalkError::Mixed`], [`WalkError::MasqueradedOnly`] and others: the rules do something that has no such form.
    pub fn outcome(&self) -> Result<Answer, WalkError> {
        let mut shares: BTreeMap<(EndpointAddr, bool), Fraction> = BTreeMap::new();
        let (mut rejected, mut dropped, mut untouched) = (0_usize, 0_usize, 0_usize);
        for branch in &self.branches {
            match branch.outcome {
                BranchOutcome::Rejected => rejected += 1,
                BranchOutcome::Dropped => dropped += 1,
                BranchOutcome::Accepted { dnat: None, masquerade: true, .. } => {
                    return Err(WalkError::MasqueradedOnly);
                }
                BranchOutcome::Accepted { dnat: None, .. } => untouched += 1,
                BranchOutcome::Accepted { dnat: Some((ip, port)), masquerade, .. } => {
                    let port = Port::new(port).ok_or(WalkError::NoPort(ip))?;
                    let share =
                        shares.entry((EndpointAddr { ip, port }, masquerade)).or_insert(Fraction::ZERO);
                    *share = share.plus(branch.weight).ok_or(WalkError::WeightOverflow)?;
                }
            }
        }
        let all = self.branches.len();
        match (rejected, dropped, untouched) {
            (0, 0, 0) if all > 0 => choices(&shares),
            _ if all == 0 => Err(WalkError::Mixed("no branch".into())),
            (n, 0, 0) if n == all => Ok(Outcome::Reject),
            (0, n, 0) if n == all => Ok(Outcome::Drop),
            (0, 0, n) if n == all => Ok(Outcome::NotOurs),
            _ => Err(WalkError::Mixed(format!(
                "{all} in all, {rejected} rejected, {dropped} dropped, {untouched} left as they are"
            ))),
        }
    }
}

fn choices(shares: &BTreeMap<(EndpointAddr, bool), Fraction>) -> Result<Outcome, WalkError> {
    let weights = fraction::whole_weights(shares.values().copied()).ok_or(WalkError::WeightOverflow)?;
    let choice = |((endpoint, masquerade), weight): (&(EndpointAddr, bool), u32)| Choice {
        endpoint: *endpoint,
        weight,
        masquerade: *masquerade,
    };
    Ok(normalise(Outcome::Endpoints(shares.keys().zip(weights).map(choice).collect())))
}

/// Brings an outcome to its one form: choices of the same endpoint and masquerading joined, those without weight left
/// out, weights the smallest whole numbers, sorted.
#[must_use]
pub fn normalise(outcome: Outcome) -> Outcome {
    let Outcome::Endpoints(choices) = outcome else { return outcome };
    let mut joined: BTreeMap<(EndpointAddr, bool), u32> = BTreeMap::new();
    for choice in choices {
        let weight = joined.entry((choice.endpoint, choice.masquerade)).or_default();
        *weight = weight.saturating_add(choice.weight);
    }
    joined.retain(|_, weight| *weight > 0);
    let divisor = joined.values().fold(0, |divisor, weight| fraction::gcd(divisor, u64::from(*weight)));
    let divisor = u32::try_from(divisor).unwrap_or(1).max(1);
    let mut choices: Vec<Choice> = joined
        .into_iter()
        .map(|((endpoint, masquerade), weight)| Choice { endpoint, weight: weight / divisor, masquerade })
        .collect();
    choices.sort();
    Outcome::Endpoints(choices)
}
