//! Service ports of policy Local that have endpoints, but none here: counted by what changed, not by a walk through all.

use std::collections::BTreeMap;

use proxier_core::changes::ChangeSet;
use proxier_core::ids::ServiceName;
use proxier_core::model::TrafficPolicy;
use proxier_core::snapshot::ServicePort;

/// Those of one policy, by Service.
#[derive(Clone, Debug, Default)]
struct Lacking {
    services: BTreeMap<ServiceName, usize>,
    ports: usize,
}

impl Lacking {
    fn add(&mut self, port: &ServicePort) {
        *self.services.entry(port.name.service.clone()).or_default() += 1;
        self.ports += 1;
    }

    fn remove(&mut self, port: &ServicePort) {
        let Some(count) = self.services.get_mut(&port.name.service) else { return };
        self.ports = self.ports.saturating_sub(1);
        *count -= 1;
        if *count == 0 {
            self.services.remove(&port.name.service);
        }
    }
}

/// One family's count. It holds only what it counts.
#[derive(Clone, Debug, Default)]
pub struct NoLocal {
    internal: Lacking,
    external: Lacking,
}

/// How many lack local endpoints, by policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLocalCount {
    /// For traffic inside the cluster.
    pub internal: usize,
    /// For traffic from outside.
    pub external: usize,
}

fn lacks(port: &ServicePort) -> bool {
    port.categories.has_any && port.categories.local.is_empty()
}

fn lacks_internal(port: &ServicePort) -> bool {
    port.spec.internal_policy == TrafficPolicy::Local && lacks(port)
}

fn lacks_external(port: &ServicePort) -> bool {
    port.spec.external_policy == TrafficPolicy::Local && port.externally_accessible() && lacks(port)
}

impl NoLocal {
    /// Takes over what changed. A change set from nothing begins anew.
    pub fn follow(&mut self, changes: &ChangeSet) {
        if changes.base.is_none() {
            *self = Self::default();
        }
        for change in &changes.ports {
            if let Some(old) = &change.old {
                if lacks_internal(old) {
                    self.internal.remove(old);
                }
                if lacks_external(old) {
                    self.external.remove(old);
                }
            }
            if let Some(new) = &change.new {
                if lacks_internal(new) {
                    self.internal.add(new);
                }
                if lacks_external(new) {
                    self.external.add(new);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.internal.services.len() + self.external.services.len()
    }

    /// The counts: of Services, or of their ports.
    #[must_use]
    pub fn count(&self, by_service: bool) -> NoLocalCount {
        let of = |lacking: &Lacking| if by_service { lacking.services.len() } else { lacking.ports };
        NoLocalCount { internal: of(&self.internal), external: of(&self.external) }
    }
}
