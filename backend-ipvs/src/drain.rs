//! Real servers on their way out: which wait, and for how long (ipvs spec 6.3).
//!
//! The kernel holds the state: a real server of weight 0 that nobody wants is one that drains. So it survives a restart; only how long it
//! has waited does not, and the time is counted anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use imbl::OrdMap;

use crate::objects::{RealServer, ServiceKey};

/// What becomes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits for its connections to end.
    Wait,
    /// It is deleted.
    Delete,
}

/// Decides about one that has so many connections, active and inactive ones together, and has waited so long. A cap of 0 has nothing wait.
#[must_use]
pub fn verdict(connections: u64, waited: Duration, cap: Duration) -> Verdict {
    if connections == 0 || waited >= cap { Verdict::Delete } else { Verdict::Wait }
}

/// The real servers that wait, of each virtual server. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drains(OrdMap<ServiceKey, BTreeMap<RealServer, Option<Instant>>>);

impl Drains {
    /// One more. Its time begins with the next [`start`](Self::start).
    pub fn insert(&mut self, key: ServiceKey, real: RealServer) {
        self.0.entry(key).or_default().entry(real).or_insert(None);
    }

    /// It is gone, or takes part again.
    pub fn remove(&mut self, key: &ServiceKey, real: &RealServer) {
        let Some(all) = self.0.get_mut(key) else { return };
        all.remove(real);
        if all.is_empty() {
            self.0.remove(key);
        }
    }

    /// The virtual server is gone, and its real servers with it.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.0.remove(key);
    }

    /// Those of a virtual server.
    pub fn of(&self, key: &ServiceKey) -> impl Iterator<Item = RealServer> + '_ {
        self.0.get(key).into_iter().flat_map(|all| all.keys().copied())
    }

    /// Is it one of them?
    #[must_use]
    pub fn contains(&self, key: &ServiceKey, real: &RealServer) -> bool {
        self.0.get(key).is_some_and(|all| all.contains_key(real))
    }

    /// The time of those that have none yet begins.
    pub fn start(&mut self, now: Instant) {
        let fresh = |all: &BTreeMap<RealServer, Option<Instant>>| all.values().any(Option::is_none);
        let keys: Vec<ServiceKey> =
            self.0.iter().filter(|(_, all)| fresh(all)).map(|(key, _)| *key).collect();
        for key in keys {
            for since in self.0.get_mut(&key).into_iter().flat_map(BTreeMap::values_mut) {
                since.get_or_insert(now);
            }
        }
    }

    /// All of them, by virtual server, each with its beginning.
    pub fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &BTreeMap<RealServer, Option<Instant>>)> {
        self.0.iter()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use proxier_core::ids::{Port, Protocol};

    use super::*;

    /// Cases: ipvs-11.29
    #[test]
    fn who_waits() {
        let (cap, second) = (Duration::from_secs(900), Duration::from_secs(1));
        assert_eq!(verdict(0, Duration::ZERO, cap), Verdict::Delete);
        assert_eq!(verdict(1, Duration::ZERO, cap), Verdict::Wait);
        assert_eq!(verdict(1, cap - second, cap), Verdict::Wait);
        assert_eq!(verdict(1, cap, cap), Verdict::Delete);
        assert_eq!(verdict(9, Duration::ZERO, Duration::ZERO), Verdict::Delete);
    }

    #[test]
    fn time_begins_once() {
        let key = ServiceKey {
            protocol: Protocol::Tcp,
            ip: "10.96.0.1".parse().unwrap(),
            port: Port::new(80).unwrap(),
        };
        let real = |n: u8| RealServer { ip: [10, 244, 1, n].into(), port: Port::new(80).unwrap() };
        let mut drains = Drains::default();
        let now = Instant::now();
        drains.insert(key, real(1));
        drains.start(now);
        drains.insert(key, real(1));
        drains.insert(key, real(2));
        drains.start(now + Duration::from_secs(5));
        let since: Vec<_> = drains.iter().flat_map(|(_, all)| all.values().flatten().copied()).collect();
        assert_eq!(since, [now, now + Duration::from_secs(5)]);
        assert_eq!((drains.len(), drains.contains(&key, &real(2))), (2, true));
        drains.remove(&key, &real(1));
        assert_eq!(drains.of(&key).collect::<Vec<_>>(), [real(2)]);
        drains.remove(&key, &real(2));
        assert!(drains.is_empty());
    }
}
