//! What the kernel is believed to hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use proxier_core::ids::{Generation, ServicePortName};

use crate::drain::Drains;
use crate::environment::Environment;
use crate::fragment::{Balanced, Fragment, Programmed};
use crate::objects::ServiceKey;
use crate::sets::{Entry, Filled, SetId};

/// What the kernel is believed to hold. Cheap to clone: its maps are persistent.
#[derive(Clone, Debug)]
pub struct Belief {
    pub(crate) generation: Generation,
    pub(crate) env: Arc<Environment>,
    pub(crate) ports: OrdMap<ServicePortName, Arc<Programmed>>,
    /// How many service ports ask for an entry.
    counts: OrdMap<(SetId, Entry), u32>,
    /// How many entries each set has.
    sizes: [u32; SetId::ALL.len()],
    /// Real servers that nobody wants and that may still have connections.
    pub(crate) drains: Drains,
}

/// Everything that should be there, but for rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Virtual servers, each with the service port that it is for.
    pub services: BTreeMap<ServiceKey, (Balanced, ServicePortName)>,
    /// Entries, each with a service port that asks for it.
    pub entries: BTreeMap<(SetId, Entry), ServicePortName>,
}

impl Belief {
    /// Nothing but the skeleton.
    pub(crate) fn new(generation: Generation, env: Environment) -> Self {
        Self {
            generation,
            env: Arc::new(env),
            ports: OrdMap::new(),
            counts: OrdMap::new(),
            sizes: [0; SetId::ALL.len()],
            drains: Drains::default(),
        }
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

    /// What all service ports depend on.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.env
    }

    /// Which sets have entries.
    #[must_use]
    pub fn filled(&self) -> Filled {
        SetId::ALL.into_iter().filter(|id| self.sizes[*id as usize] > 0).collect()
    }

    /// Does some service port ask for this entry?
    #[must_use]
    pub fn has(&self, id: SetId, entry: &Entry) -> bool {
        self.counts.contains_key(&(id, *entry))
    }

    /// Real servers on their way out, as far as that is known.
    #[must_use]
    pub fn drains(&self) -> &Drains {
        &self.drains
    }

    /// The same, to put down who is gone and when who began to wait.
    pub fn drains_mut(&mut self) -> &mut Drains {
        &mut self.drains
    }

    /// Counts the entries of a fragment in.
    pub(crate) fn count_in(&mut self, fragment: &Fragment) {
        for wanted in &fragment.entries {
            let count = self.counts.entry(*wanted).or_default();
            *count += 1;
            if *count == 1 {
                self.sizes[wanted.0 as usize] += 1;
            }
        }
    }

    /// Counts the entries of a fragment out.
    pub(crate) fn count_out(&mut self, fragment: &Fragment) {
        for wanted in &fragment.entries {
            let Some(count) = self.counts.get_mut(wanted) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(wanted);
                self.sizes[wanted.0 as usize] -= 1;
            }
        }
    }

    /// What should be there.
    #[must_use]
    pub fn desired(&self) -> Desired {
        let mut out = Desired::default();
        for programmed in self.ports.values() {
            let port = &programmed.port.name;
            let fragment = programmed.fragment(&self.env);
            for balanced in fragment.services {
                out.services.insert(balanced.server.key, (balanced, port.clone()));
            }
            for entry in fragment.entries {
                out.entries.entry(entry).or_insert_with(|| port.clone());
            }
        }
        out
    }
}
