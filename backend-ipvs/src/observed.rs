//! What the kernel holds, as it was read: plain values, of one family.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_xtables::saved::Saved;

use crate::objects::{RealServer, ServiceKey, VirtualServer, WEIGHT};
use crate::sets::{Entry, Filled, SetId, SetType};
use crate::wire::ipset::Strange;

/// What the kernel holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// All virtual servers of the family, ours or not, but for those of firewall marks.
    pub services: BTreeMap<ServiceKey, SeenService>,
    /// The sets that have one of our names in this family.
    pub sets: BTreeMap<SetId, SeenSet>,
    /// `kube-ipvs0` is there.
    pub device: bool,
    /// Its addresses of the family, without loopback and link-local ones.
    pub bound: BTreeSet<IpAddr>,
    /// Rules and chains: all of those that have a name of ours, and built-in ones.
    pub rules: Saved,
}

/// A virtual server as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenService {
    /// As far as we could have written it.
    pub server: VirtualServer,
    /// It has settings that we never write: other flags, a narrower netmask, a persistence engine.
    pub odd: bool,
    /// Its real servers.
    pub real: BTreeMap<RealServer, SeenReal>,
}

/// A real server as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenReal {
    /// Weight.
    pub weight: u32,
    /// Reached by destination NAT, and without thresholds: as we write it.
    pub usual: bool,
    /// Connections that are open.
    pub active: u32,
    /// Connections that are closing or closed.
    pub inactive: u32,
}

impl SeenReal {
    /// As one of ours is while it takes part, without connections.
    pub const PLAIN: Self = Self { weight: WEIGHT, usual: true, active: 0, inactive: 0 };

    /// All connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        u64::from(self.active) + u64::from(self.inactive)
    }
}

/// A set as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenSet {
    /// Its type, if it is not the one it should have: nothing can be done with it then.
    pub other_type: Option<String>,
    /// Its entries.
    pub entries: BTreeSet<Entry>,
    /// Entries of forms that we never write.
    pub strange: Vec<Strange>,
}

impl Observed {
    /// Which sets have entries.
    #[must_use]
    pub fn filled(&self) -> Filled {
        self.sets.iter().filter(|(_, set)| !set.entries.is_empty()).map(|(id, _)| *id).collect()
    }

    /// Is an entry there?
    #[must_use]
    pub fn has(&self, id: SetId, entry: &Entry) -> bool {
        self.sets.get(&id).is_some_and(|set| set.entries.contains(entry))
    }
}

/// The name of a type that a set should have, and the one it was found with.
#[must_use]
pub fn wrong_type(id: SetId, seen: &SeenSet, family: IpFamily) -> Option<String> {
    let other = seen.other_type.as_ref()?;
    let kind: SetType = id.set_type();
    Some(format!("set {} is a {other}, not a {}", id.name(family), kind.name()))
}
