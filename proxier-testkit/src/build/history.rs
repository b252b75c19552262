//! What happens to a cluster over time.

use proxier_core::cluster::{Cluster, Commit, TrafficOptions};
use proxier_core::ids::{IpFamily, ServiceName};
use proxier_core::model::{EndpointSlice, NodeFacts, Service, SliceName};

use super::dice::Dice;
use super::service::name;
use super::{node, options, service, slice};

/// Services that a history is about.
const SERVICES: u8 = 5;
/// Steps of a random history.
const STEPS: usize = 60;

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// A Service is added or changed.
    UpsertService(Box<Service>),
    /// A Service is removed.
    RemoveService(ServiceName),
    /// An EndpointSlice is added or changed.
    UpsertSlice(EndpointSlice),
    /// An EndpointSlice is removed.
    RemoveSlice(SliceName),
    /// The node changes: its zone, its addresses.
    SetNode(NodeFacts),
    /// The options change.
    SetOptions(TrafficOptions),
    /// What happened so far is published.
    Commit,
}

/// A sequence of steps, the last of which is a commit.
#[derive(Clone, Debug)]
pub struct History {
    /// The node at the beginning; its name stays.
    pub node: NodeFacts,
    /// The options at the beginning.
    pub options: TrafficOptions,
    /// The steps.
    pub steps: Vec<Step>,
}

impl History {
    /// A random history.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let around = dice.roll();
        let steps: Vec<u64> = (0..STEPS).map(|_| dice.roll()).collect();
        Self::from_seeds(around, &steps)
    }

    /// A history whose beginning comes from one seed and whose steps come from one seed each.
    #[must_use]
    pub fn from_seeds(around: u64, steps: &[u64]) -> Self {
        let mut dice = Dice::new(around);
        let (node, options) = (node(&mut dice), options(&mut dice));
        let mut out: Vec<Step> = steps.iter().map(|seed| step(&mut Dice::new(*seed), around)).collect();
        if !matches!(out.last(), Some(Step::Commit)) {
            out.push(Step::Commit);
        }
        Self { node, options, steps: out }
    }

    /// Lets it happen, and hands over what each commit published. Stops at the first error.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn play<E>(&self, mut each: impl FnMut(usize, &Commit) -> Result<(), E>) -> Result<(), E> {
        let mut cluster = Cluster::new(self.node.name.clone(), self.options.clone());
        cluster.set_node(self.node.clone());
        let mut number = 0;
        for step in &self.steps {
            match step.clone() {
                Step::UpsertService(service) => cluster.upsert_service(*service),
                Step::RemoveService(name) => cluster.remove_service(&name),
                Step::UpsertSlice(slice) => cluster.upsert_slice(slice),
                Step::RemoveSlice(name) => cluster.remove_slice(&name),
                Step::SetNode(node) => cluster.set_node(node),
                Step::SetOptions(options) => cluster.set_options(options),
                Step::Commit => {
                    each(number, &cluster.commit())?;
                    number += 1;
                    false
                }
            };
        }
        Ok(())
    }
}

/// Each Service has a few variants, all from the seed of the history, one of them more often than the others: slices fit the
/// Service that they are for only if both are of the same variant.
fn step(dice: &mut Dice, around: u64) -> Step {
    let index = dice.small(SERVICES);
    let variant = if dice.one_in(4) { u64::from(dice.small(6)) } else { 0 };
    let variant_of = |service: u8| Dice::new(around ^ (u64::from(service) << 8) ^ variant);
    match dice.below(24) {
        0..=6 => Step::UpsertService(Box::new(service(&mut variant_of(index), index))),
        7 => Step::RemoveService(name(index)),
        8..=16 => {
            let owner = service(&mut variant_of(index), index);
            let (family, number) = (dice.of(IpFamily::ALL), dice.small(2));
            Step::UpsertSlice(slice(dice, &owner, family, number))
        }
        17 => {
            let owner = service(&mut variant_of(index), index);
            let (family, number) = (dice.of(IpFamily::ALL), dice.small(2));
            Step::RemoveSlice(slice(dice, &owner, family, number).name)
        }
        18 if dice.one_in(2) => Step::SetNode(node(dice)),
        19 if dice.one_in(2) => Step::SetOptions(options(dice)),
        _ => Step::Commit,
    }
}
