//! What the tables must hold, chain by chain.

use std::collections::BTreeMap;

use proxier_core::ids::ServicePortName;
use proxier_xtables::objects::{ChainId, Rule};

/// What one chain must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Exactly these rules, in this order.
    Exactly {
        /// The rules.
        rules: Vec<Rule>,
        /// The service port that the chain belongs to; `None` for what all share.
        port: Option<ServicePortName>,
    },
    /// The rules of service ports, in any order among groups, and these last.
    Dispatch {
        /// Rules of one service port that keep their order.
        groups: Vec<Group>,
        /// The last rules, in this order.
        tail: Vec<Rule>,
    },
    /// At least these rules, wherever they stand: the chain is not ours alone. Those that are missing go to the top, one after the other.
    AtLeast(Vec<Rule>),
}

/// Rules of a service port in a chain that all share. No packet matches those of two groups, so their order means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The service port.
    pub port: ServicePortName,
    /// Its rules; a packet may match several, the first counts.
    pub rules: Vec<Rule>,
}

/// What the tables must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Every chain that we write to.
    pub chains: BTreeMap<ChainId, Want>,
}

impl Want {
    /// All its rules, in an order that does.
    #[must_use]
    pub fn rules(&self) -> Vec<&Rule> {
        match self {
            Self::Exactly { rules, .. } | Self::AtLeast(rules) => rules.iter().collect(),
            Self::Dispatch { groups, tail } => groups.iter().flat_map(|g| &g.rules).chain(tail).collect(),
        }
    }
}
