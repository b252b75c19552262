//! One service port as kernel objects: a pure function from what is decided to what must be in the table.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::EndpointAddr;
use proxier_core::model::TrafficPolicy;
use proxier_core::names;
use proxier_core::snapshot::{Frontend, FrontendKey, FrontendKind, ServicePort};

use crate::container::Container;
use crate::counts::{self, CountChain};
use crate::layout::{self, Environment, REJECT_CHAIN, goto, rule};
use crate::objects::{Data, Element, Field, Key, Name, Rule, Selector, Set, Stmt, Value, Verdict};
use crate::options::{Layout, Options};

/// A service port with the order that its endpoints have in the maps.
///
/// The order carries no meaning. It is kept from one plan to the next so that a change of one endpoint is a change of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programmed {
    /// The decision.
    pub port: Arc<ServicePort>,
    /// Endpoints of the cluster scope; the position is the index.
    pub cluster: Vec<EndpointAddr>,
    /// Endpoints of the local scope; the position is the index.
    pub local: Vec<EndpointAddr>,
}

/// Something several service ports need: there as long as one of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shared {
    /// An element without a value.
    Element(Container, Key),
    /// A chain for all services of one kind and count.
    Chain(CountChain),
}

/// Everything the table must hold for one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Elements that are this service port's alone, sorted.
    pub elements: Vec<(Container, Key, Value)>,
    /// What it shares with others, sorted, each once.
    pub shared: Vec<Shared>,
    /// Chains of its own, each with its rules.
    pub chains: Vec<(Name, Vec<Rule>)>,
    /// Affinity sets of its own.
    pub sets: Vec<Set>,
}

impl Fragment {
    /// An element that names the chain of a frontend.
    fn goes_to(&mut self, dispatch: Container, key: FrontendKey, chain: CountChain) {
        self.shared.push(Shared::Chain(chain));
        self.elements.push((dispatch, key_of(key), Value::Verdict(Verdict::Goto(chain.name()))));
    }

    /// An element for each endpoint, by its index from `first` on.
    fn endpoints(&mut self, map: Container, key: FrontendKey, endpoints: &[EndpointAddr], first: u32) {
        for (index, endpoint) in (first..).zip(endpoints) {
            self.elements.push((map, indexed(key, index), Value::Endpoint(endpoint.ip, endpoint.port)));
        }
    }
}

/// Keeps what stays in its place, puts newcomers where others left, and moves the last ones into the gaps that remain.
#[must_use]
pub fn assign(old: &[EndpointAddr], wanted: impl Iterator<Item = EndpointAddr>) -> Vec<EndpointAddr> {
    let wanted: Vec<EndpointAddr> = wanted.collect();
    if old.is_empty() {
        return wanted;
    }
    let still: BTreeSet<EndpointAddr> = wanted.iter().copied().collect();
    // In a damaged table one may have two places: it keeps the first.
    let mut kept: BTreeSet<EndpointAddr> = old.iter().filter(|e| still.contains(e)).copied().collect();
    let newcomers: Vec<EndpointAddr> = wanted.into_iter().filter(|e| !kept.contains(e)).collect();
    let mut newcomers = newcomers.into_iter();
    let mut slots: Vec<Option<EndpointAddr>> =
        old.iter().map(|e| if kept.remove(e) { Some(*e) } else { newcomers.next() }).collect();
    slots.extend(newcomers.map(Some));
    let mut out: Vec<EndpointAddr> = Vec::with_capacity(slots.len());
    let mut end = slots.len();
    let mut at = 0;
    while at < end {
        match slots[at] {
            Some(e) => {
                out.push(e);
                at += 1;
            }
            None => {
                end -= 1;
                slots.swap(at, end);
            }
        }
    }
    out
}

impl Programmed {
    /// The successor of what was programmed before, if anything was.
    #[must_use]
    pub fn new(port: &Arc<ServicePort>, before: Option<&Self>) -> Self {
        let old = |pick: fn(&Self) -> &Vec<EndpointAddr>| before.map(pick).map_or(&[][..], Vec::as_slice);
        Self {
            port: Arc::clone(port),
            cluster: assign(old(|p| &p.cluster), port.cluster_endpoints().map(|e| e.addr)),
            local: assign(old(|p| &p.local), port.local_endpoints().map(|e| e.addr)),
        }
    }

    /// What the table must hold for it.
    #[must_use]
    pub fn fragment(&self, env: &Environment, options: &Options) -> Fragment {
        let own_chains = options.layout == Layout::Chains || self.port.spec.affinity.is_some();
        let mut out = Fragment::default();
        self.common(&mut out, env);
        if own_chains {
            OwnChains::new(self, env).add(&mut out);
        } else {
            for frontend in &self.port.frontends {
                self.in_maps(&mut out, *frontend);
            }
        }
        out.elements.sort_unstable();
        out.shared.sort_unstable();
        out.shared.dedup();
        out
    }

    /// What is the same in both layouts.
    fn common(&self, out: &mut Fragment, env: &Environment) {
        let port = &*self.port;
        let element = |container, key| Shared::Element(container, key);
        out.shared.push(element(Container::ClusterIps, Key::Addr(port.spec.cluster_ip)));
        if let Some(health) = port.spec.health_check_node_port {
            out.shared.push(element(Container::HealthCheckPorts, Key::Port(health)));
        }
        for endpoint in port.reachable_endpoints().filter(|e| e.local) {
            let key = Key::Hairpin(endpoint.addr.ip, port.protocol(), endpoint.addr.port);
            out.shared.push(element(Container::Hairpin, key));
        }
        for frontend in &port.frontends {
            if let Some(verdict) = self.refusal(*frontend) {
                let container = match frontend.kind {
                    FrontendKind::NodePort => Container::NoEndpointNodePorts,
                    _ => Container::NoEndpointServices,
                };
                out.elements.push((container, key_of(frontend.key), Value::Verdict(verdict)));
            }
        }
        self.firewall(out, env);
    }

    /// What happens to traffic that finds no endpoint: refused when there is none anywhere, dropped when there is none here.
    fn refusal(&self, frontend: Frontend) -> Option<Verdict> {
        let served = match frontend.kind {
            FrontendKind::ClusterIp => self.port.has_internal(),
            _ => self.port.has_external(),
        };
        if served {
            None
        } else if self.port.categories.has_any {
            Some(Verdict::Drop)
        } else {
            Some(Verdict::Goto(REJECT_CHAIN.into()))
        }
    }

    /// Source ranges of load balancer VIPs, whether there are endpoints or not (nftables spec 2.4).
    fn firewall(&self, out: &mut Fragment, env: &Environment) {
        let spec = &self.port.spec;
        let vips: Vec<IpAddr> = self
            .port
            .frontends
            .iter()
            .filter(|f| f.kind == FrontendKind::LoadBalancerVip)
            .filter_map(|f| match f.key {
                FrontendKey::Address { ip, .. } => Some(ip),
                FrontendKey::NodePort { .. } => None,
            })
            .collect();
        if vips.is_empty() || spec.source_ranges.is_empty() {
            return;
        }
        let own = env.node_ip.is_some_and(|ip| spec.source_ranges.iter().any(|r| r.contains(&ip)));
        let looped = spec.load_balancer_vips.iter().filter(|_| own).map(|ip| ipnet::IpNet::from(*ip));
        let ranges = layout::merge_ranges(spec.source_ranges.iter().copied().chain(looped));
        if ranges.iter().any(|r| r.prefix_len() == 0) {
            return;
        }
        let chain = self.chain_name("firewall-");
        let refuse = layout::in_ranges(Selector::SourceAddr, true, &ranges);
        let rules = refuse.map(|m| rule([m, Stmt::Verdict(Verdict::Drop)])).into_iter().collect();
        for vip in vips {
            let key = Key::AddrPort(vip, self.port.protocol(), self.port.port);
            let value = Value::Verdict(Verdict::Goto(Arc::clone(&chain)));
            out.elements.push((Container::FirewallIps, key, value));
        }
        out.chains.push((chain, rules));
    }

    /// A frontend in layout `maps`: an element for each endpoint, and one that names the chain, or one without a verdict.
    fn in_maps(&self, out: &mut Fragment, frontend: Frontend) {
        if !self.port.categories.has_any {
            return;
        }
        let spec = &self.port.spec;
        let clusters = count(&self.cluster);
        let locals = count(&self.local);
        let (chain, cluster, local) = match (frontend.kind, spec.internal_policy, spec.external_policy) {
            (FrontendKind::ClusterIp, TrafficPolicy::Cluster, _) if clusters > 0 => {
                return self.cluster_ip(out, frontend.key, clusters);
            }
            (FrontendKind::ClusterIp, TrafficPolicy::Local, _) if locals > 0 => {
                (CountChain::InternalLocal(locals), false, true)
            }
            (FrontendKind::ClusterIp, ..) => return,
            (FrontendKind::NodePort, _, TrafficPolicy::Cluster) => {
                (CountChain::NodePortCluster(clusters), true, false)
            }
            (FrontendKind::NodePort, _, TrafficPolicy::Local) => {
                (CountChain::NodePortLocal(clusters, locals), true, true)
            }
            (_, _, TrafficPolicy::Cluster) => (CountChain::ExternalCluster(clusters), true, false),
            (_, _, TrafficPolicy::Local) => (CountChain::ExternalLocal(clusters, locals), true, true),
        };
        let (dispatch, in_cluster, in_local) = if frontend.kind == FrontendKind::NodePort {
            (
                Container::ServiceNodePorts,
                Container::NodePortClusterEndpoints,
                Container::NodePortLocalEndpoints,
            )
        } else {
            (Container::ServiceIps, Container::ClusterEndpoints, Container::LocalEndpoints)
        };
        out.goes_to(dispatch, frontend.key, chain);
        if cluster {
            out.endpoints(in_cluster, frontend.key, &self.cluster, 0);
        }
        if local {
            out.endpoints(in_local, frontend.key, &self.local, 0);
        }
    }

    /// A cluster IP with internal policy Cluster. Only with many endpoints it has a chain; it is in the set always, so that a packet finds
    /// it there that looked for the chain just before the number grew.
    fn cluster_ip(&self, out: &mut Fragment, key: FrontendKey, endpoints: u32) {
        out.elements.push((Container::ClusterServices, key_of(key), Value::None));
        if endpoints > counts::FEW {
            out.goes_to(Container::ServiceIps, key, CountChain::Cluster(endpoints));
        }
        out.endpoints(Container::ClusterEndpoints, key, &self.cluster, counts::first_index(endpoints));
    }

    /// Name of a chain of this service port's own (nftables spec 3).
    fn chain_name(&self, prefix: &str) -> Name {
        format!("{prefix}{}", names::object_name(&names::base_of(&self.port.name))).into()
    }
}

fn count(endpoints: &[EndpointAddr]) -> u32 {
    u32::try_from(endpoints.len()).unwrap_or(u32::MAX)
}

fn key_of(key: FrontendKey) -> Key {
    match key {
        FrontendKey::Address { ip, protocol, port } => Key::AddrPort(ip, protocol, port),
        FrontendKey::NodePort { protocol, port } => Key::ProtoPort(protocol, port),
    }
}

fn indexed(key: FrontendKey, index: u32) -> Key {
    match key {
        FrontendKey::Address { ip, protocol, port } => Key::AddrPortIndex(ip, protocol, port, index),
        FrontendKey::NodePort { protocol, port } => Key::ProtoPortIndex(protocol, port, index),
    }
}

/// A service port with chains of its own: one with session affinity, or any in layout `chains`.
struct OwnChains<'a> {
    programmed: &'a Programmed,
    env: &'a Environment,
    base: String,
    service: Name,
    local: Name,
    external: Name,
}

impl<'a> OwnChains<'a> {
    fn new(programmed: &'a Programmed, env: &'a Environment) -> Self {
        Self {
            programmed,
            env,
            base: names::base_of(&programmed.port.name),
            service: programmed.chain_name("service-"),
            local: programmed.chain_name("local-"),
            external: programmed.chain_name("external-"),
        }
    }

    fn add(&self, out: &mut Fragment) {
        let port = &*self.programmed.port;
        if !port.categories.has_any {
            return;
        }
        let internal_local = port.spec.internal_policy == TrafficPolicy::Local;
        let cluster_ip = port.frontends.iter().find(|f| f.kind == FrontendKind::ClusterIp);
        // Rules are written as a whole, so here endpoints stand in the order of their text (iptables spec 1.4).
        let cluster: Vec<EndpointAddr> = port.cluster_endpoints().map(|e| e.addr).collect();
        let local: Vec<EndpointAddr> = port.local_endpoints().map(|e| e.addr).collect();
        for (endpoints, name, is_internal) in
            [(&cluster, &self.service, !internal_local), (&local, &self.local, internal_local)]
        {
            if !endpoints.is_empty() {
                let masquerade = cluster_ip
                    .filter(|_| is_internal)
                    .and_then(|_| self.env.masquerade_cluster_ip(Some(port.spec.cluster_ip)));
                out.chains.push((Arc::clone(name), self.dispatch(endpoints, masquerade)));
            }
        }
        let external = self.external_rules();
        let mut external_used = false;
        for frontend in &port.frontends {
            let (container, target) = match frontend.kind {
                FrontendKind::ClusterIp if !port.has_internal() => continue,
                FrontendKind::ClusterIp => {
                    (Container::ServiceIps, if internal_local { &self.local } else { &self.service })
                }
                FrontendKind::NodePort => (Container::ServiceNodePorts, &self.external),
                _ => (Container::ServiceIps, &self.external),
            };
            external_used |= Arc::ptr_eq(target, &self.external);
            let value = Value::Verdict(Verdict::Goto(Arc::clone(target)));
            out.elements.push((container, key_of(frontend.key), value));
        }
        if external_used {
            out.chains.push((Arc::clone(&self.external), external));
        }
        for endpoint in port.reachable_endpoints() {
            self.endpoint(out, endpoint.addr);
        }
    }

    /// Clients that were here before go where they went, the others anywhere.
    fn dispatch(&self, endpoints: &[EndpointAddr], masquerade: Option<Rule>) -> Vec<Rule> {
        let mut rules: Vec<Rule> = masquerade.into_iter().collect();
        if self.programmed.port.spec.affinity.is_some() {
            rules.extend(endpoints.iter().map(|e| {
                let known = Stmt::InSet {
                    selectors: vec![Selector::SourceAddr],
                    set: self.endpoint_name("affinity-", *e),
                };
                rule([known, goto(&self.endpoint_name("endpoint-", *e))])
            }));
        }
        let chains: Vec<Name> = endpoints.iter().map(|e| self.endpoint_name("endpoint-", *e)).collect();
        let first = chains.first().map(goto);
        rules.push(rule([Stmt::GotoRandom(chains)]));
        // The map is this rule's own: from a commit that replaces the rule, it is empty for packets that still see the rule.
        rules.extend(
            first.map(|stmt| Rule { stmts: vec![stmt], comment: Some("the endpoints just changed".into()) }),
        );
        rules
    }

    fn external_rules(&self) -> Vec<Rule> {
        let port = &*self.programmed.port;
        match port.spec.external_policy {
            TrafficPolicy::Cluster => {
                vec![layout::masquerade_rule(), rule([goto(&self.service)])]
            }
            TrafficPolicy::Local => {
                let here = port.has_external().then(|| rule([goto(&self.local)]));
                self.env.local_policy(&[rule([goto(&self.service)])], here.into_iter().collect())
            }
        }
    }

    fn endpoint(&self, out: &mut Fragment, endpoint: EndpointAddr) {
        let port = &*self.programmed.port;
        let mut rules = Vec::with_capacity(2);
        if let Some(timeout) = port.spec.affinity {
            let name = self.endpoint_name("affinity-", endpoint);
            rules.push(rule([Stmt::UpdateSource(Arc::clone(&name))]));
            out.sets.push(Set {
                name,
                key: vec![Field::Addr],
                data: Data::None,
                size: None,
                timeout: Some(u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
                comment: None,
            });
        }
        rules.push(rule([Stmt::L4Proto(port.protocol()), Stmt::Dnat(endpoint.ip, endpoint.port)]));
        out.chains.push((self.endpoint_name("endpoint-", endpoint), rules));
    }

    fn endpoint_name(&self, prefix: &str, endpoint: EndpointAddr) -> Name {
        let base = names::endpoint_base(&self.base, endpoint);
        format!("{prefix}{}", names::object_name(&base)).into()
    }
}

/// An element with the comment its container asks for.
#[must_use]
pub fn element(container: Container, key: Key, value: Value, comment: &Name) -> Element {
    let comment = container.is_commented().then(|| Arc::clone(comment));
    Element { key, value, comment }
}
