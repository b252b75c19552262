//! The generators as `proptest` strategies. Shrinking leaves out Services, slices or steps.

use proptest::collection::vec;
use proptest::prelude::*;
use proxier_core::cluster::TrafficOptions;
use proxier_core::model::{NodeFacts, Service};
use proxier_core::oracle::Packet;
use proxier_core::snapshot::Snapshot;

use super::{Dice, History, Scenario};

/// Clusters of up to five Services.
pub fn scenarios() -> impl Strategy<Value = Scenario> {
    (any::<u64>(), vec(any::<u64>(), 0..=5))
        .prop_map(|(around, services)| Scenario::from_seeds(around, &services))
}

/// Histories of up to forty steps.
pub fn histories() -> impl Strategy<Value = History> {
    (any::<u64>(), vec(any::<u64>(), 1..=40)).prop_map(|(around, steps)| History::from_seeds(around, &steps))
}

/// Services of this number.
pub fn services(index: u8) -> impl Strategy<Value = Service> {
    any::<u64>().prop_map(move |seed| super::service(&mut Dice::new(seed), index))
}

/// Nodes.
pub fn nodes() -> impl Strategy<Value = NodeFacts> {
    any::<u64>().prop_map(|seed| super::node(&mut Dice::new(seed)))
}

/// Options.
pub fn options() -> impl Strategy<Value = TrafficOptions> {
    any::<u64>().prop_map(|seed| super::options(&mut Dice::new(seed)))
}

/// Packets aimed at a snapshot.
pub fn packets(snapshot: &Snapshot, count: usize) -> impl Strategy<Value = Vec<Packet>> + use<> {
    let snapshot = snapshot.clone();
    vec(any::<u64>(), count).prop_map(move |seeds| {
        seeds.iter().flat_map(|seed| super::packets(&mut Dice::new(*seed), &snapshot, 1)).collect()
    })
}
