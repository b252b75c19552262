//! What the tables were found to hold.

use std::collections::BTreeMap;

use crate::objects::{ChainId, Rule};

/// The chains of our tables, each with its rules in order, as the tool saves them; foreign ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Every chain.
    pub chains: BTreeMap<ChainId, Vec<Rule>>,
}
