//! How rules tell traffic from local pods.

use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::snapshot::LocalDetector;

use crate::rule::Draft;

/// Most bytes of an interface's name (`IFNAMSIZ` with its terminating zero).
const MAX_INTERFACE: usize = 15;

/// How rules tell traffic from local pods (iptables spec 1.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Source in this range.
    Source(IpNet),
    /// Arrives on this interface; a `+` at the end stands for anything.
    Interface(Arc<str>),
    /// All traffic is.
    All,
    /// None is: no interface can have that name.
    None,
}

impl Pods {
    /// As a detector says. Traffic to one that could match no packet is nobody's.
    #[must_use]
    pub fn new(detector: &LocalDetector) -> Self {
        let possible = |name: &str| {
            let unusable = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
            !name.is_empty() && name.len() <= MAX_INTERFACE && !name.contains(unusable)
        };
        match detector {
            LocalDetector::Cidr(cidr) if cidr.prefix_len() == 0 => Self::All,
            LocalDetector::Cidr(cidr) => Self::Source(*cidr),
            LocalDetector::Interface(name) if possible(name) => Self::Interface(Arc::clone(name)),
            LocalDetector::InterfacePrefix(prefix) if prefix.is_empty() => Self::All,
            LocalDetector::InterfacePrefix(prefix) if !possible(prefix) => Self::None,
            // A prefix that fills the name is the whole of it; the tools have no room for the `+`.
            LocalDetector::InterfacePrefix(prefix) if prefix.len() == MAX_INTERFACE => {
                Self::Interface(Arc::clone(prefix))
            }
            LocalDetector::InterfacePrefix(prefix) => Self::Interface(format!("{prefix}+").into()),
            LocalDetector::Interface(_) => Self::None,
        }
    }

    /// Adds the match for traffic from local pods, or for all other; `None` if no packet can match.
    #[must_use]
    pub fn narrow(&self, draft: Draft, negated: bool) -> Option<Draft> {
        match self {
            Self::Source(range) => Some(draft.source(negated, *range)),
            Self::Interface(name) => Some(draft.interface(negated, name)),
            Self::All => (!negated).then_some(draft),
            Self::None => negated.then_some(draft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(detector: &LocalDetector) -> [Option<String>; 2] {
        [false, true].map(|negated| {
            let draft = Pods::new(detector).narrow(Draft::new(), negated)?;
            Some(draft.jump("X").0.to_string())
        })
    }

    fn some(texts: [&str; 2]) -> [Option<String>; 2] {
        texts.map(|t| Some(t.to_owned()))
    }

    #[test]
    fn every_detector_both_ways() {
        let cidr = |text: &str| LocalDetector::Cidr(text.parse().unwrap());
        let exact = |text: &str| LocalDetector::Interface(text.into());
        let prefix = |text: &str| LocalDetector::InterfacePrefix(text.into());
        let pairs = [
            (cidr("10.244.0.0/16"), some(["-s 10.244.0.0/16 -j X", "! -s 10.244.0.0/16 -j X"])),
            (cidr("fd00:1::/64"), some(["-s fd00:1::/64 -j X", "! -s fd00:1::/64 -j X"])),
            (cidr("0.0.0.0/0"), [Some("-j X".into()), None]),
            (exact("cni0"), some(["-i cni0 -j X", "! -i cni0 -j X"])),
            (prefix("veth"), some(["-i veth+ -j X", "! -i veth+ -j X"])),
            (prefix("fifteen-letters"), some(["-i fifteen-letters -j X", "! -i fifteen-letters -j X"])),
            (prefix("sixteen-letters-"), [None, Some("-j X".into())]),
            (exact("no\nname -j ACCEPT"), [None, Some("-j X".into())]),
        ];
        for (detector, want) in pairs {
            assert_eq!(both(&detector), want, "{detector:?}");
        }
    }
}
