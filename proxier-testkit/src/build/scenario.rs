//! A cluster as data: easy to print, and to make smaller.

use proxier_core::cluster::{Cluster, TrafficOptions};
use proxier_core::model::{EndpointSlice, NodeFacts, Service};

use super::dice::Dice;
use super::{node, options, service, slices};

/// Most Services of a random cluster.
const MAX_SERVICES: usize = 5;

/// A Service with its EndpointSlices.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The Service.
    pub service: Service,
    /// Its slices.
    pub slices: Vec<EndpointSlice>,
}

/// Everything that a cluster is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The node that it is seen from.
    pub node: NodeFacts,
    /// Options.
    pub options: TrafficOptions,
    /// Services.
    pub units: Vec<Unit>,
}

impl Scenario {
    /// A random cluster.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let around = dice.roll();
        let services: Vec<u64> = (0..=dice.below(MAX_SERVICES)).map(|_| dice.roll()).collect();
        Self::from_seeds(around, &services)
    }

    /// A cluster whose surroundings come from one seed and whose Services come from one seed each.
    #[must_use]
    pub fn from_seeds(around: u64, services: &[u64]) -> Self {
        let mut dice = Dice::new(around);
        let (node, options) = (node(&mut dice), options(&mut dice));
        let units = (0u8..)
            .zip(services)
            .map(|(index, seed)| {
                let mut dice = Dice::new(*seed);
                let service = service(&mut dice, index);
                let slices = slices(&mut dice, &service);
                Unit { service, slices }
            })
            .collect();
        Self { node, options, units }
    }

    /// The cluster that holds all of it, with nothing committed yet.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        let mut cluster = self.empty_cluster();
        for unit in &self.units {
            cluster.upsert_service(unit.service.clone());
            for slice in &unit.slices {
                cluster.upsert_slice(slice.clone());
            }
        }
        cluster
    }

    /// The same cluster, its objects put in in another order.
    #[must_use]
    pub fn shuffled(&self, dice: &mut Dice) -> Cluster {
        enum Object<'a> {
            Service(&'a Service),
            Slice(&'a EndpointSlice),
        }
        let mut objects: Vec<Object<'_>> = Vec::new();
        for unit in &self.units {
            objects.push(Object::Service(&unit.service));
            objects.extend(unit.slices.iter().map(Object::Slice));
        }
        dice.shuffle(&mut objects);
        let mut cluster = self.empty_cluster();
        for object in objects {
            match object {
                Object::Service(service) => cluster.upsert_service(service.clone()),
                Object::Slice(slice) => cluster.upsert_slice(slice.clone()),
            };
        }
        cluster
    }

    /// Every cluster that lacks one Service or one slice of this one, the largest cuts first.
    pub fn smaller(&self) -> impl Iterator<Item = Self> + '_ {
        let without_unit = (0..self.units.len()).map(|i| {
            let mut out = self.clone();
            out.units.remove(i);
            out
        });
        let without_slice = self.units.iter().enumerate().flat_map(move |(i, unit)| {
            (0..unit.slices.len()).map(move |j| {
                let mut out = self.clone();
                out.units[i].slices.remove(j);
                out
            })
        });
        without_unit.chain(without_slice)
    }

    fn empty_cluster(&self) -> Cluster {
        let mut cluster = Cluster::new(self.node.name.clone(), self.options.clone());
        cluster.set_node(self.node.clone());
        cluster
    }
}
