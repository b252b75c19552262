//! Which endpoints each kind of traffic may reach: one pure function (core spec 3).

use crate::ids::NodeName;
use crate::model::{Endpoint, TrafficPolicy};

/// Which kind of topology hints is obeyed (core spec 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopologyMode {
    /// Hints are ignored.
    #[default]
    None,
    /// Only endpoints hinted for this node.
    SameNode,
    /// Only endpoints hinted for this zone.
    SameZone,
}

/// The decision for one service port. Numbers are indices into its endpoint list, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Categories {
    /// For traffic whose policy is Cluster; empty also when not applicable.
    pub cluster: Vec<u32>,
    /// For traffic whose policy is Local; empty also when not applicable.
    pub local: Vec<u32>,
    /// Union of both: what needs kernel state of its own.
    pub reachable: Vec<u32>,
    /// Some endpoint somewhere can serve; when false, traffic is rejected.
    pub has_any: bool,
    /// The topology mode that `cluster` was filtered by.
    pub topology: TopologyMode,
    /// `cluster` fell back to serving endpoints that are terminating.
    pub cluster_fallback: bool,
    /// `local` fell back to serving endpoints that are terminating.
    pub local_fallback: bool,
}

/// What [`categorize`] needs to know beside the endpoints.
#[derive(Clone, Copy, Debug)]
pub struct CategorizeInput<'a> {
    /// Internal traffic policy.
    pub internal_policy: TrafficPolicy,
    /// External traffic policy.
    pub external_policy: TrafficPolicy,
    /// Reachable from outside the cluster.
    pub externally_accessible: bool,
    /// This node's name.
    pub node: &'a NodeName,
    /// This node's zone.
    pub zone: Option<&'a str>,
    /// Obey node hints (gate `PreferSameTrafficDistribution`, on and locked since 1.35).
    pub node_hints: bool,
}

impl CategorizeInput<'_> {
    /// Some traffic may reach endpoints of the whole cluster (core spec 1.5).
    #[must_use]
    pub fn uses_cluster(&self) -> bool {
        self.internal_policy == TrafficPolicy::Cluster || self.externally_accessible
    }

    /// Some traffic may reach only endpoints of this node (core spec 1.5).
    #[must_use]
    pub fn uses_local(&self) -> bool {
        self.internal_policy == TrafficPolicy::Local
            || (self.external_policy == TrafficPolicy::Local && self.externally_accessible)
    }
}

/// Decides for one service port. `endpoints` must be sorted; the result's indices then are in the same order.
#[must_use]
pub fn categorize(endpoints: &[Endpoint], input: &CategorizeInput<'_>) -> Categories {
    let mut out = Categories::default();
    if endpoints.is_empty() {
        return out;
    }
    if input.uses_cluster() {
        out.topology = topology_mode(endpoints, input);
        out.cluster = select(endpoints, |e| e.conditions.ready && allowed(e, out.topology, input));
        if out.cluster.is_empty() {
            out.cluster = select(endpoints, |e| e.conditions.is_fallback());
            out.cluster_fallback = !out.cluster.is_empty();
        }
        out.has_any = !out.cluster.is_empty();
    }
    if !input.uses_local() {
        out.reachable.clone_from(&out.cluster);
        return out;
    }
    out.has_any |= endpoints.iter().any(|e| e.conditions.ready || e.conditions.is_fallback());
    out.local = select(endpoints, |e| e.local && e.conditions.ready);
    if out.local.is_empty() {
        out.local = select(endpoints, |e| e.local && e.conditions.is_fallback());
        out.local_fallback = !out.local.is_empty();
    }
    out.reachable = if input.uses_cluster() { union(&out.cluster, &out.local) } else { out.local.clone() };
    out
}

fn select(endpoints: &[Endpoint], keep: impl Fn(&Endpoint) -> bool) -> Vec<u32> {
    (0u32..).zip(endpoints).filter(|(_, e)| keep(e)).map(|(i, _)| i).collect()
}

fn union(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut out: Vec<u32> = a.iter().chain(b).copied().collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// Is this endpoint allowed by the topology mode?
fn allowed(endpoint: &Endpoint, mode: TopologyMode, input: &CategorizeInput<'_>) -> bool {
    match mode {
        TopologyMode::None => true,
        TopologyMode::SameNode => hinted_for_node(endpoint, input),
        TopologyMode::SameZone => hinted_for_zone(endpoint, input),
    }
}

fn hinted_for_node(endpoint: &Endpoint, input: &CategorizeInput<'_>) -> bool {
    endpoint.hints.nodes.iter().flat_map(|n| n.iter()).any(|n| **n == *input.node.as_str())
}

fn hinted_for_zone(endpoint: &Endpoint, input: &CategorizeInput<'_>) -> bool {
    let Some(zone) = input.zone.filter(|z| !z.is_empty()) else { return false };
    endpoint.hints.zones.iter().flat_map(|z| z.iter()).any(|z| **z == *zone)
}

/// Only ready endpoints are looked at; one that lacks a kind of hint vetoes that kind (core spec 3.3).
fn topology_mode(endpoints: &[Endpoint], input: &CategorizeInput<'_>) -> TopologyMode {
    let ready = || endpoints.iter().filter(|e| e.conditions.ready);
    if ready().next().is_none() {
        return TopologyMode::None;
    }
    if input.node_hints
        && ready().all(|e| e.hints.nodes.is_some())
        && ready().any(|e| hinted_for_node(e, input))
    {
        return TopologyMode::SameNode;
    }
    if ready().all(|e| e.hints.zones.is_some()) && ready().any(|e| hinted_for_zone(e, input)) {
        return TopologyMode::SameZone;
    }
    TopologyMode::None
}

#[cfg(test)]
mod tests;
