//! What the kernel is believed to hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use proxier_core::ids::{Generation, ServicePortName};
use proxier_xtables::objects::{ChainId, Rule};

use crate::counts::Counts;
use crate::desired::{Desired, Group, Want};
use crate::environment::Environment;
use crate::fragment::Programmed;
use crate::skeleton::{self, Shared};

/// What the kernel is believed to hold. Cheap to clone: its map is persistent.
#[derive(Clone, Debug)]
pub struct Belief {
    pub(crate) generation: Generation,
    pub(crate) env: Arc<Environment>,
    pub(crate) ports: OrdMap<ServicePortName, Arc<Programmed>>,
    /// Endpoints of all service ports, whatever their state.
    pub(crate) endpoints: usize,
    /// Rules of all service ports.
    pub(crate) rules: Counts,
}

impl Belief {
    /// Nothing but the skeleton.
    pub(crate) fn new(generation: Generation, env: Environment) -> Self {
        Self { generation, env: Arc::new(env), ports: OrdMap::new(), endpoints: 0, rules: Counts::default() }
    }

    /// Number of service ports that are programmed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// No service port is programmed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Rules of ours that the tables hold, without the jumps from built-in chains.
    #[must_use]
    pub fn rules(&self) -> Counts {
        self.rules + Counts::of_skeleton(&self.env)
    }

    /// What its rules depend on, beside the service ports.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.env
    }

    /// What the tables should hold.
    #[must_use]
    pub fn desired(&self) -> Desired {
        let mut groups: BTreeMap<Shared, Vec<Group>> = BTreeMap::new();
        let mut chains: BTreeMap<ChainId, Want> = skeleton::fixed(&self.env).into_iter().collect();
        for programmed in self.ports.values() {
            let fragment = programmed.fragment(&self.env);
            let port = &programmed.port.name;
            for (shared, rules) in fragment.shared {
                groups.entry(shared).or_default().push(Group { port: port.clone(), rules });
            }
            let own = fragment.own.into_iter();
            chains.extend(own.map(|(id, rules)| (id, Want::Exactly { rules, port: Some(port.clone()) })));
        }
        for shared in Shared::ALL {
            let groups = groups.remove(&shared).unwrap_or_default();
            chains.insert(shared.id(), Want::Dispatch { groups, tail: shared.tail(&self.env) });
        }
        let mut jumps: BTreeMap<ChainId, Vec<Rule>> = BTreeMap::new();
        for jump in skeleton::jumps() {
            jumps.entry(jump.from).or_default().push(jump.rule);
        }
        chains.extend(jumps.into_iter().map(|(id, rules)| (id, Want::AtLeast(rules))));
        Desired { chains }
    }
}
