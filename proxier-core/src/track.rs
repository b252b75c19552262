//! Change tracking of one family: merges slices, collapses changes, publishes snapshots.
//!
//! The tracker holds the desired state and the names of the services that were touched. Whether a touched service differs from
//! what is published is found at the commit, so that any sequence of changes collapses to its end (core spec 2.5, 2.7).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::categorize::{CategorizeInput, categorize};
use crate::cluster::TrafficOptions;
use crate::ids::{EndpointAddr, IpFamily, Protocol, ServiceName, ServicePortName, Timestamp};
use crate::model::{Endpoint, EndpointSlice, Service, SliceName};
use crate::snapshot::{
    Claim, Conflict, Frontend, FrontendKey, FrontendKind, NodeContext, ServicePort, ServiceSpec, Snapshot,
    externally_accessible,
};

/// One family's desired and published state.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    family: IpFamily,
    /// Flat, not a map in a map: most Services have one slice.
    slices: BTreeMap<SliceName, Arc<EndpointSlice>>,
    touched: BTreeSet<ServiceName>,
    triggers: BTreeMap<ServiceName, Vec<Timestamp>>,
    published: Snapshot,
    next_context: Option<Arc<NodeContext>>,
    recategorize: bool,
    settings: Settings,
}

/// The options that decide about service ports rather than about rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    external_ips: bool,
    node_hints: bool,
}

impl From<&TrafficOptions> for Settings {
    fn from(options: &TrafficOptions) -> Self {
        Self { external_ips: options.external_ips, node_hints: options.node_hints }
    }
}

/// What a commit of one family did.
pub(crate) struct Committed {
    pub(crate) changed: bool,
    pub(crate) triggers: Vec<Timestamp>,
}

impl Tracker {
    pub(crate) fn new(family: IpFamily, context: Arc<NodeContext>, options: &TrafficOptions) -> Self {
        Self {
            family,
            slices: BTreeMap::new(),
            touched: BTreeSet::new(),
            triggers: BTreeMap::new(),
            published: Snapshot::empty(family, context),
            next_context: None,
            recategorize: false,
            settings: options.into(),
        }
    }

    pub(crate) fn published(&self) -> &Snapshot {
        &self.published
    }

    pub(crate) fn slices(&self) -> usize {
        self.slices.len()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.touched.is_empty() || self.next_context.is_some() || self.recategorize
    }

    pub(crate) fn touch(&mut self, service: &ServiceName) {
        self.touched.insert(service.clone());
    }

    pub(crate) fn upsert_slice(&mut self, slice: EndpointSlice) {
        if self.slices.get(&slice.name).is_some_and(|old| **old == slice) {
            return;
        }
        let service = slice.name.service.clone();
        if let Some(trigger) = slice.trigger {
            self.triggers.entry(service.clone()).or_default().push(trigger);
        }
        self.slices.insert(slice.name.clone(), Arc::new(slice));
        self.touched.insert(service);
    }

    pub(crate) fn remove_slice(&mut self, name: &SliceName) {
        if self.slices.remove(name).is_none() {
            return;
        }
        self.triggers.remove(&name.service);
        self.touched.insert(name.service.clone());
    }

    pub(crate) fn set_context(&mut self, context: NodeContext, options: &TrafficOptions) {
        let settings = Settings::from(options);
        let zone_differs = self.published.context().node.zone != context.node.zone;
        self.recategorize |= settings != self.settings || zone_differs;
        self.settings = settings;
        self.next_context = (**self.published.context() != context).then(|| Arc::new(context));
    }

    pub(crate) fn commit(
        &mut self,
        services: &BTreeMap<ServiceName, Arc<Service>>,
        options: &TrafficOptions,
    ) -> Committed {
        let context = self.next_context.take().unwrap_or_else(|| Arc::clone(self.published.context()));
        let context_changed = !Arc::ptr_eq(&context, self.published.context());
        let mut touched = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.recategorize) {
            touched.extend(services.keys().cloned());
        }
        let triggers = std::mem::take(&mut self.triggers).into_values().flatten().collect();
        let mut next = self.published.successor(context);
        let mut publication = Publication { next: &mut next, affected: BTreeSet::new() };
        for name in &touched {
            let fresh = match services.get(name) {
                Some(service) => self.ports_of(service, options, publication.next.context()),
                None => Vec::new(),
            };
            publication.replace(name, fresh);
        }
        publication.settle();
        let changed = context_changed
            || !self.published.ports.ptr_eq(&next.ports) && {
                self.published.ports.diff(&next.ports).next().is_some()
            };
        if changed {
            self.published = next;
        }
        Committed { changed, triggers }
    }

    /// The slices of a Service, in the order of their names.
    fn slices_of<'a>(&'a self, service: &'a ServiceName) -> impl Iterator<Item = &'a EndpointSlice> {
        let first = SliceName { service: service.clone(), name: "".into() };
        let from = self.slices.range(first..);
        from.take_while(move |(name, _)| name.service == *service).map(|(_, slice)| &**slice)
    }

    /// All ports of a Service in this family, frontends not yet resolved.
    fn ports_of(
        &self,
        service: &Service,
        options: &TrafficOptions,
        context: &NodeContext,
    ) -> Vec<ServicePort> {
        let Some(spec) = spec_of(service, self.family, options) else { return Vec::new() };
        let mut spec = Arc::new(spec);
        let mut out = Vec::with_capacity(service.ports.len());
        for port in &service.ports {
            let name = ServicePortName {
                service: service.name.clone(),
                port: Arc::clone(&port.name),
                protocol: port.protocol,
            };
            let before = self.published.port(&name);
            if let Some(old) = before.filter(|old| old.spec == spec) {
                spec = Arc::clone(&old.spec);
            }
            let node = context.node.name.as_str();
            let slices = self.slices_of(&service.name);
            let mut endpoints: Arc<[Endpoint]> = merge(slices, &port.name, port.protocol, node).into();
            if let Some(old) = before.filter(|old| old.endpoints == endpoints) {
                endpoints = Arc::clone(&old.endpoints);
            }
            let categories = categorize(
                &endpoints,
                &CategorizeInput {
                    internal_policy: spec.internal_policy,
                    external_policy: spec.external_policy,
                    externally_accessible: externally_accessible(&spec, port.node_port),
                    node: &context.node.name,
                    zone: context.node.zone.as_deref(),
                    node_hints: options.node_hints,
                },
            );
            out.push(ServicePort {
                name,
                port: port.port,
                node_port: port.node_port,
                spec: Arc::clone(&spec),
                frontends: Vec::new(),
                conflicts: Vec::new(),
                endpoints,
                categories,
            });
        }
        out
    }
}

/// What the ports of a Service share in one family; `None` without a cluster IP there.
fn spec_of(service: &Service, family: IpFamily, options: &TrafficOptions) -> Option<ServiceSpec> {
    let cluster_ip = (*service.cluster_ips.get(family))?;
    let external_ips = service.external_ips.get(family);
    Some(ServiceSpec {
        created: service.created,
        cluster_ip,
        has_raw_external_ips: !external_ips.is_empty(),
        external_ips: if options.external_ips { external_ips.clone() } else { Vec::new() },
        load_balancer_vips: service.load_balancer_vips.get(family).clone(),
        source_ranges: service.source_ranges.get(family).clone(),
        external_policy: service.external_policy,
        internal_policy: service.internal_policy,
        affinity: service.affinity,
        health_check_node_port: service.health_check_node_port,
    })
}

/// Merges slices, visited in the order of their names, into the endpoints of one port (core spec 2.1).
fn merge<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    port_name: &str,
    protocol: Protocol,
    node: &str,
) -> Vec<Endpoint> {
    let mut by_addr: BTreeMap<EndpointAddr, Endpoint> = BTreeMap::new();
    for slice in slices {
        for port in slice.ports.iter().filter(|p| &*p.name == port_name && p.protocol == protocol) {
            for endpoint in &slice.endpoints {
                let addr = EndpointAddr { ip: endpoint.ip, port: port.port };
                if endpoint.conditions.terminating && by_addr.contains_key(&addr) {
                    continue;
                }
                let local = !node.is_empty() && endpoint.node.as_deref() == Some(node);
                by_addr.insert(
                    addr,
                    Endpoint {
                        addr,
                        conditions: endpoint.conditions,
                        local,
                        node: endpoint.node.clone(),
                        hints: endpoint.hints.clone(),
                    },
                );
            }
        }
    }
    let mut out: Vec<Endpoint> = by_addr.into_values().collect();
    out.sort_by_cached_key(|e| e.addr.to_string());
    out
}

/// A snapshot in the making.
struct Publication<'a> {
    next: &'a mut Snapshot,
    /// Service ports whose frontends may have a new owner.
    affected: BTreeSet<ServicePortName>,
}

impl Publication<'_> {
    /// Puts the new ports of a Service in the place of its old ones, wishes for frontends included.
    fn replace(&mut self, service: &ServiceName, fresh: Vec<ServicePort>) {
        let old: Vec<Arc<ServicePort>> = self.next.service_ports(service).cloned().collect();
        for port in &old {
            let successor = fresh.iter().find(|p| p.name == port.name);
            let kept: Vec<(Frontend, Option<Timestamp>)> =
                successor.map(|p| wishes(p).map(|w| (w, p.spec.created)).collect()).unwrap_or_default();
            for wish in wishes(port) {
                if !kept.contains(&(wish, port.spec.created)) {
                    self.withdraw(wish.key, &port.name);
                }
            }
            if successor.is_none() {
                self.next.ports.remove(&port.name);
                self.affected.remove(&port.name);
            }
        }
        for port in fresh {
            for wish in wishes(&port) {
                self.claim(wish, &port);
            }
            self.affected.insert(port.name.clone());
            let before = old.iter().find(|p| p.name == port.name);
            let resolved = match before {
                Some(b) => {
                    ServicePort { frontends: b.frontends.clone(), conflicts: b.conflicts.clone(), ..port }
                }
                None => port,
            };
            if before.is_none_or(|b| **b != resolved) {
                self.next.ports.insert(resolved.name.clone(), Arc::new(resolved));
            }
        }
    }

    fn claim(&mut self, wish: Frontend, port: &ServicePort) {
        let claim = Claim { created: port.spec.created, port: port.name.clone(), kind: wish.kind };
        let old = self.next.claims(&wish.key);
        if old.contains(&claim) {
            return;
        }
        let mut claims: Vec<Claim> = old.iter().filter(|c| c.port != port.name).cloned().collect();
        claims.push(claim);
        claims.sort_by(claim_order);
        self.affected.extend(claims.iter().map(|c| c.port.clone()));
        self.next.claims.insert(wish.key, claims.into());
    }

    fn withdraw(&mut self, key: FrontendKey, name: &ServicePortName) {
        let left: Vec<Claim> = self.next.claims(&key).iter().filter(|c| c.port != *name).cloned().collect();
        self.affected.extend(left.iter().map(|c| c.port.clone()));
        if left.is_empty() {
            self.next.claims.remove(&key);
        } else {
            self.next.claims.insert(key, left.into());
        }
    }

    /// Gives every affected service port the frontends that are now its own.
    fn settle(self) {
        for name in self.affected {
            let Some(port) = self.next.ports.get(&name) else { continue };
            let mut frontends = Vec::new();
            let mut conflicts = Vec::new();
            for frontend in wishes(port) {
                match self.next.claims(&frontend.key).first() {
                    Some(winner) if winner.port != name => {
                        conflicts.push(Conflict { frontend, winner: winner.port.clone() });
                    }
                    _ => frontends.push(frontend),
                }
            }
            if frontends != port.frontends || conflicts != port.conflicts {
                let resolved = ServicePort { frontends, conflicts, ..(**port).clone() };
                self.next.ports.insert(name, Arc::new(resolved));
            }
        }
    }
}

/// The older Service first, one without a time last; then by name and kind, so that the order is total.
fn claim_order(a: &Claim, b: &Claim) -> std::cmp::Ordering {
    let age = |c: &Claim| (c.created.is_none(), c.created);
    age(a)
        .cmp(&age(b))
        .then_with(|| a.port.service.cmp(&b.port.service))
        .then_with(|| a.kind.cmp(&b.kind))
        .then_with(|| a.port.cmp(&b.port))
}

/// The frontends a service port would have if it were alone, sorted, one for each key: of several kinds for one
/// address the first in [`FrontendKind`]'s order counts, so that source ranges hold for an address that is a VIP as well.
fn wishes(port: &ServicePort) -> impl Iterator<Item = Frontend> + use<> {
    let (protocol, number) = (port.protocol(), port.port);
    let at = |kind, ip: IpAddr| Frontend { kind, key: FrontendKey::Address { ip, protocol, port: number } };
    let mut out = vec![at(FrontendKind::ClusterIp, port.spec.cluster_ip)];
    out.extend(port.spec.load_balancer_vips.iter().map(|ip| at(FrontendKind::LoadBalancerVip, *ip)));
    out.extend(port.spec.external_ips.iter().map(|ip| at(FrontendKind::ExternalIp, *ip)));
    let mut seen = BTreeSet::new();
    out.retain(|f| seen.insert(f.key));
    out.extend(port.node_port.map(|np| Frontend {
        kind: FrontendKind::NodePort,
        key: FrontendKey::NodePort { protocol, port: np },
    }));
    out.into_iter()
}

#[cfg(test)]
mod tests;
