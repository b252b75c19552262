//! The endpoints of a cluster while they change.

use super::{Change, Size};
use crate::scale::{Member, Part};

/// Steps through the Services so that neighbours in time are none in number; prime, and larger than no size that is used by much.
const STRIDE: u64 = 7_919;

/// Which endpoints every Service has. Every change is one thing only.
#[derive(Clone, Debug)]
pub struct Fleet {
    size: Size,
    /// Number of endpoints, and version of the first one.
    services: Vec<(u32, u32)>,
    round: u64,
}

impl Fleet {
    /// As the cluster begins.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self { size, services: vec![(size.endpoints, 0); size.services as usize], round: 0 }
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Everything, as one list of changes.
    pub fn all(&self) -> impl Iterator<Item = Change> + '_ {
        let services = (0..self.size.services).map(Change::Service);
        services.chain((0..self.size.services).map(|n| self.slice(n)))
    }

    /// Another Service each time, until all had their turn.
    pub fn pick(&mut self) -> u32 {
        let services = u64::from(self.size.services);
        let stride = if services.is_multiple_of(STRIDE) { 1 } else { STRIDE };
        let number = self.round.wrapping_mul(stride) % services;
        self.round += 1;
        u32::try_from(number).unwrap_or(0)
    }

    /// The first endpoint of a Service gives way to another one.
    pub fn replace(&mut self, number: u32) -> Change {
        if let Some((_, version)) = self.services.get_mut(number as usize) {
            *version += 1;
        }
        self.slice(number)
    }

    /// A Service has one endpoint more, or one less if it has more than it began with.
    pub fn recount(&mut self, number: u32) -> Change {
        if let Some((count, _)) = self.services.get_mut(number as usize) {
            *count = if *count > self.size.endpoints { self.size.endpoints } else { *count + 1 };
        }
        self.slice(number)
    }

    fn slice(&self, number: u32) -> Change {
        let (count, version) = self.services.get(number as usize).copied().unwrap_or_default();
        Change::Slice(Part::whole(number, count, version))
    }
}

/// A Deployment that is rolled over: every endpoint of one Service is replaced, some at a time.
#[derive(Clone, Debug)]
pub(super) struct Rollout {
    service: u32,
    parts: u32,
    per_part: u32,
    batch: u32,
}

impl Rollout {
    /// `parts` slices of `per_part` endpoints, `batch` of them replaced in each step.
    pub(super) const fn new(service: u32, parts: u32, per_part: u32, batch: u32) -> Self {
        Self { service, parts, per_part, batch }
    }

    /// The slices before it.
    pub(super) fn before(&self) -> Vec<Change> {
        (0..self.parts).map(|part| Change::Slice(self.part(part, 0))).collect()
    }

    /// The slices go.
    pub(super) fn away(&self) -> Vec<Change> {
        (0..self.parts).map(|part| Change::SliceGone(self.part(part, 0))).collect()
    }

    /// One update of one slice each: the next new endpoints are ready, as many old ones shut down, those of the step before are gone.
    pub(super) fn steps(&self) -> impl Iterator<Item = Change> + '_ {
        let per_part = self.per_part.div_ceil(self.batch);
        (0..self.parts).flat_map(move |part| (1..=per_part).map(move |s| Change::Slice(self.part(part, s))))
    }

    fn part(&self, part: u32, steps: u32) -> Part {
        let replaced = (steps * self.batch).min(self.per_part);
        let leaving = (steps.saturating_sub(1) * self.batch).min(self.per_part)..replaced;
        let first = part * self.per_part;
        let member = |offset, version| Member { number: first + offset, version, terminating: false };
        let mut members: Vec<Member> = (replaced..self.per_part).map(|o| member(o, 0)).collect();
        members.extend(leaving.map(|o| Member { terminating: true, ..member(o, 0) }));
        members.extend((0..replaced).map(|o| member(o, 1)));
        Part { service: self.service, part, members }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn members(change: &Change) -> &[Member] {
        match change {
            Change::Slice(part) => &part.members,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_service_has_its_turn() {
        for services in [10, 1_000, 5_000, 7_919, 50_000] {
            let mut fleet = Fleet::new(Size::new(services, 1));
            let picked: BTreeSet<u32> = (0..services).map(|_| fleet.pick()).collect();
            assert_eq!(picked.len(), services as usize, "{services}");
        }
    }

    #[test]
    fn a_change_is_one_thing_only() {
        let mut fleet = Fleet::new(Size::new(3, 2));
        assert_eq!(fleet.all().count(), 6);
        let versions = |change: &Change| members(change).iter().map(|m| m.version).collect::<Vec<_>>();
        assert_eq!(versions(&fleet.replace(1)), [1, 0]);
        assert_eq!(versions(&fleet.recount(1)), [1, 0, 0]);
        assert_eq!(versions(&fleet.replace(1)), [2, 0, 0]);
        assert_eq!(versions(&fleet.recount(1)), [2, 0]);
    }

    #[test]
    fn a_rollout_replaces_everything_and_never_lacks_an_endpoint() {
        let rollout = Rollout::new(7, 2, 10, 4);
        let steps: Vec<Change> = rollout.steps().collect();
        assert_eq!(steps.len(), 6);
        for step in &steps {
            assert_eq!(members(step).iter().filter(|m| !m.terminating).count(), 10);
        }
        assert_eq!(members(&steps[0]).iter().filter(|m| m.terminating).count(), 4);
        assert!(members(&steps[2]).iter().filter(|m| !m.terminating).all(|m| m.version == 1));
    }
}
