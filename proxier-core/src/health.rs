//! What the health check node ports of Services are to answer (core spec 4.1).

use std::collections::{BTreeMap, BTreeSet};

use crate::changes::ChangeSet;
use crate::ids::{Port, ServiceName, Timestamp};
use crate::snapshot::{ServicePort, Snapshot};

/// A health check node port of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Where it is asked.
    pub port: Port,
    /// When its Service was made: of two that want one port the older one is served.
    pub created: Option<Timestamp>,
    /// Addresses of endpoints that are here and ready, over all ports of the Service: a pod that serves two ports counts once, one that is
    /// terminating does not count even while traffic goes to it.
    pub ready: usize,
}

/// The health check node port of a Service, if it has one in this family.
#[must_use]
pub fn of(snapshot: &Snapshot, service: &ServiceName) -> Option<HealthCheck> {
    let spec = &snapshot.service_ports(service).next()?.spec;
    let port = spec.health_check_node_port?;
    let endpoints = snapshot.service_ports(service).flat_map(|p| p.endpoints.iter());
    let ready: BTreeSet<_> = endpoints.filter(|e| e.local && e.conditions.ready).map(|e| e.addr.ip).collect();
    Some(HealthCheck { port, created: spec.created, ready: ready.len() })
}

/// The Services whose health check node port may differ between two snapshots, with what it now is. Costs what differs between them;
/// Services without such a port cost nothing beyond.
#[must_use]
pub fn changes(old: Option<&Snapshot>, new: &Snapshot) -> BTreeMap<ServiceName, Option<HealthCheck>> {
    let has = |port: &ServicePort| port.spec.health_check_node_port.is_some();
    let mut out = BTreeMap::new();
    for change in ChangeSet::between(old, new).ports {
        let concerned = change.old.as_deref().is_some_and(has) || change.new.as_deref().is_some_and(has);
        if concerned && !out.contains_key(&change.name.service) {
            let now = of(new, &change.name.service);
            out.insert(change.name.service, now);
        }
    }
    out
}

#[cfg(test)]
mod tests;
