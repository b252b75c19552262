//! kube-proxy's metrics, with its names, kinds, labels and buckets (core spec 8).

use std::collections::BTreeSet;
use std::sync::PoisonError;

use proxier_core::changes::{Change, ChangeSet};
use proxier_core::ids::{IpFamily, ServiceName};
use proxier_core::snapshot::{ServicePort, Snapshot};

use super::lane::Lane;
use super::page::{Family, Page};
use super::{Metrics, ProbeCounts};

/// Says how often `/healthz` and `/livez` answered what.
pub(super) type Probes = Box<dyn Fn() -> (ProbeCounts, ProbeCounts) + Send + Sync>;

const SYNC: Family = Family::histogram(
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "[ALPHA] Time that a sync took, whether it went in or not.",
);
const SYNC_FULL: Family = Family::histogram(
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "[ALPHA] Time that a full sync took.",
);
const SYNC_PARTIAL: Family = Family::histogram(
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "[ALPHA] Time that a partial sync took.",
);
const LAST_TIMESTAMP: Family = Family::gauge(
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    "[ALPHA] When a sync last went in, in seconds since the epoch.",
);
const LAST_QUEUED: Family = Family::gauge(
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    "[ALPHA] When a sync was last asked for, in seconds since the epoch.",
);
const PROGRAMMING: Family = Family::histogram(
    "kubeproxy_network_programming_duration_seconds",
    "[ALPHA] Time from the change of a Pod or Service, as the EndpointSlice tells it, until it was in force here.",
);
const ENDPOINTS_PENDING: Family = Family::gauge(
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "[ALPHA] Services whose endpoints changed and are not in force yet, in each family.",
);
const ENDPOINTS_TOTAL: Family = Family::counter(
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "[ALPHA] Changes of EndpointSlices that were received.",
);
const SERVICES_PENDING: Family = Family::gauge(
    "kubeproxy_sync_proxy_rules_service_changes_pending",
    "[ALPHA] Services that changed and are not in force yet.",
);
const SERVICES_TOTAL: Family = Family::counter(
    "kubeproxy_sync_proxy_rules_service_changes_total",
    "[ALPHA] Changes of Services that were received.",
);
const NO_LOCAL: Family = Family::gauge(
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "[ALPHA] Service ports of policy Local that have endpoints, but none on this node.",
);
const HEALTHZ: Family =
    Family::counter("kubeproxy_proxy_healthz_total", "[ALPHA] Answers of /healthz, by status code.");
const LIVEZ: Family =
    Family::counter("kubeproxy_proxy_livez_total", "[ALPHA] Answers of /livez, by status code.");
const RULES_TOTAL: Family =
    Family::gauge("kubeproxy_sync_proxy_rules_iptables_total", "[ALPHA] Rules of ours that a table holds.");
const RULES_LAST: Family = Family::gauge(
    "kubeproxy_sync_proxy_rules_iptables_last",
    "[ALPHA] Rules that the last sync wrote to a table.",
);
const RESTORES: Family = Family::counter(
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "[ALPHA] Plans that did not go in.",
);
const RESTORES_PARTIAL: Family = Family::counter(
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    "[ALPHA] Partial plans that did not go in.",
);
const TRANSACTIONS: Family = Family::counter(
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    "[ALPHA] Transactions that did not go in.",
);
const CLEANUPS: Family = Family::counter(
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
    "[ALPHA] Removals of chains no longer used that did not go in.",
);
const CONNTRACK: Family = Family::histogram(
    "kubeproxy_conntrack_reconciler_sync_duration_seconds",
    "[ALPHA] Time that a pass of the conntrack reconciler took.",
);
const CONNTRACK_DELETED: Family = Family::counter(
    "kubeproxy_conntrack_reconciler_deleted_entries_total",
    "[ALPHA] Conntrack entries that the reconciler deleted.",
);

/// Counting objects of the kernel and the metrics that show them.
const PACKETS: [(&str, Family); 2] = [
    (
        "ct_state_invalid_dropped_pkts",
        Family::counter(
            "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
            "[ALPHA] Packets dropped because connection tracking calls them invalid.",
        ),
    ),
    (
        "localhost_nps_accepted_pkts",
        Family::counter(
            "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
            "[ALPHA] Packets to node ports on loopback addresses that were let in.",
        ),
    ),
];

/// What is desired and not in force.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    services: BTreeSet<ServiceName>,
    endpoints: usize,
}

fn defined_otherwise(old: &ServicePort, new: &ServicePort) -> bool {
    (old.port, old.node_port, &old.spec) != (new.port, new.node_port, &new.spec)
}

impl Pending {
    /// Adds one family's: what leads from the snapshot that is in force to the one that is desired. Costs the difference.
    pub fn add(&mut self, in_force: Option<&Snapshot>, desired: &Snapshot) {
        if in_force.is_some_and(|s| s.generation() == desired.generation()) {
            return;
        }
        let mut endpoints: BTreeSet<ServiceName> = BTreeSet::new();
        for Change { name, old, new } in ChangeSet::between(in_force, desired).ports {
            let (definition, list) = match (&old, &new) {
                (Some(old), Some(new)) => (defined_otherwise(old, new), old.endpoints != new.endpoints),
                (Some(only), None) | (None, Some(only)) => (true, !only.endpoints.is_empty()),
                (None, None) => (false, false),
            };
            if list {
                endpoints.insert(name.service.clone());
            }
            if definition {
                self.services.insert(name.service);
            }
        }
        self.endpoints += endpoints.len();
    }

    /// Services that changed.
    #[must_use]
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// Services whose endpoints changed, in each family.
    #[must_use]
    pub fn endpoints(&self) -> usize {
        self.endpoints
    }
}

/// How kube-proxy writes a family.
pub(super) fn label(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 => "IPv4",
        IpFamily::Ipv6 => "IPv6",
    }
}

impl Metrics {
    pub(super) fn collect_kubeproxy(&self, pending: &Pending, page: &mut Page) {
        page.sample(SERVICES_TOTAL, &[], self.service_changes.get() as f64);
        page.sample(ENDPOINTS_TOTAL, &[], self.endpoint_changes.get() as f64);
        page.sample(SERVICES_PENDING, &[], pending.services() as f64);
        page.sample(ENDPOINTS_PENDING, &[], pending.endpoints() as f64);
        for (family, lane) in self.lanes() {
            self.collect_lane(label(family), lane, page);
        }
        if let Some(probes) = &*self.probes.lock().unwrap_or_else(PoisonError::into_inner) {
            let (healthz, livez) = probes();
            for (metric, counts) in [(HEALTHZ, healthz), (LIVEZ, livez)] {
                for (code, count) in counts {
                    page.sample(metric, &[("code", &code.to_string())], count as f64);
                }
            }
        }
        let packets = self.figures.packets.map(|read| read()).unwrap_or_default();
        for (object, metric) in PACKETS {
            if let Some((_, count)) = packets.iter().find(|(name, _)| *name == object) {
                page.sample(metric, &[], *count as f64);
            }
        }
    }

    fn collect_lane(&self, family: &str, lane: &Lane, page: &mut Page) {
        let labels = &[("ip_family", family)];
        page.histogram(SYNC, labels, &lane.syncs.observed());
        page.histogram(PROGRAMMING, labels, &lane.programming.observed());
        page.histogram(CONNTRACK, labels, &lane.conntrack.observed());
        page.sample(CONNTRACK_DELETED, labels, lane.conntrack_deleted.get() as f64);
        page.sample(LAST_TIMESTAMP, labels, lane.last_timestamp.get());
        page.sample(LAST_QUEUED, labels, lane.last_queued.get());
        let lacking = lane.no_local();
        for (policy, count) in [("internal", lacking.internal), ("external", lacking.external)] {
            page.sample(NO_LOCAL, &[("ip_family", family), ("traffic_policy", policy)], count as f64);
        }
        let figures = &self.figures;
        if figures.partial {
            page.histogram(SYNC_FULL, labels, &lane.full.observed());
            page.histogram(SYNC_PARTIAL, labels, &lane.partial.observed());
        }
        for rules in &lane.rules {
            let labels = &[("ip_family", family), ("table", rules.table)];
            page.sample(RULES_TOTAL, labels, rules.total.get());
            page.sample(RULES_LAST, labels, rules.last.get());
        }
        if figures.restores {
            page.sample(RESTORES, labels, lane.refused.get() as f64);
        }
        if figures.partial_restores {
            page.sample(RESTORES_PARTIAL, labels, lane.refused_partial.get() as f64);
        }
        if figures.transactions {
            page.sample(TRANSACTIONS, labels, lane.refused.get() as f64);
            page.sample(CLEANUPS, labels, lane.cleanup_failures.get() as f64);
        }
    }
}
