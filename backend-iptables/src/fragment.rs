//! One service port as rules: a pure function from what is decided to what must be in the tables (iptables spec 5.3 to 5.13).

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::EndpointAddr;
use proxier_core::model::{Endpoint, TrafficPolicy};
use proxier_core::snapshot::{Frontend, FrontendKey, FrontendKind, ServicePort};
use proxier_xtables::objects::{ChainId, Name, Rule, Table};
use proxier_xtables::rule::{Draft, End};

use crate::environment::Environment;
use crate::names::{Kind, ServiceNames};
use crate::options::LOCALHOST_ACCEPTED;
use crate::skeleton::{MARK_MASQ, PROXY_FIREWALL, Shared, loopback};

/// A service port as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programmed {
    /// The decision.
    pub port: Arc<ServicePort>,
    /// Written while the cluster was large: without the comments that would be repeated for every endpoint (iptables spec 6.4). It stays so
    /// until the service port is written again.
    pub large: bool,
}

/// Everything the tables must hold for one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Its rules in chains that all share; rules that stand together keep their order.
    pub shared: Vec<(Shared, Vec<Rule>)>,
    /// Its own chains, each before those that name it.
    pub own: Vec<(ChainId, Vec<Rule>)>,
}

impl Programmed {
    /// What the tables must hold for it.
    #[must_use]
    pub fn fragment(&self, env: &Environment) -> Fragment {
        let writer = Writer::new(&self.port, env, self.large);
        let mut out = Fragment::default();
        for frontend in &self.port.frontends {
            writer.frontend(*frontend, &mut out);
        }
        writer.health_check(&mut out);
        writer.own_chains(&mut out);
        out
    }
}

/// Why rules cannot carry this service port's name: it is part of comments, one line each.
///
/// # Errors
/// A character that is not printable ASCII.
pub fn printable(port: &ServicePort) -> Result<(), String> {
    match port.name.to_string().chars().find(|c| !c.is_ascii_graphic()) {
        None => Ok(()),
        Some(c) => Err(format!("a name with {c:?} in it, which rules cannot carry")),
    }
}

struct Writer<'a> {
    port: &'a ServicePort,
    env: &'a Environment,
    large: bool,
    /// Display name.
    name: String,
    names: ServiceNames,
    /// Some external frontend is ours and can be served.
    external: bool,
    firewall: bool,
}

impl<'a> Writer<'a> {
    fn new(port: &'a ServicePort, env: &'a Environment, large: bool) -> Self {
        let owns = |kind| port.frontends.iter().any(|f| f.kind == kind);
        let served = port.categories.has_any;
        let vip = owns(FrontendKind::LoadBalancerVip);
        Self {
            port,
            env,
            large,
            name: port.name.to_string(),
            names: ServiceNames::new(&port.name),
            external: served && (vip || owns(FrontendKind::ExternalIp) || owns(FrontendKind::NodePort)),
            firewall: served && vip && !port.spec.source_ranges.is_empty(),
        }
    }

    fn chain(&self, kind: Kind) -> Name {
        self.names.chain(kind)
    }

    fn comment(&self, what: &str) -> Draft {
        Draft::new().comment(&format!("{} {what}", self.name))
    }

    /// To the frontend's address and port.
    fn to(&self, draft: Draft, ip: IpAddr) -> Draft {
        draft.transport(self.port.protocol(), Some(self.port.port)).destination(false, ip.into())
    }

    fn frontend(&self, frontend: Frontend, out: &mut Fragment) {
        match frontend.key {
            FrontendKey::NodePort { .. } => self.node_port(frontend, out),
            FrontendKey::Address { ip, .. } if frontend.kind == FrontendKind::ClusterIp => {
                self.cluster_ip(ip, out);
            }
            FrontendKey::Address { ip, .. } => self.external_address(frontend.kind, ip, out),
        }
    }

    fn internal_chain(&self) -> Name {
        self.chain(match self.port.spec.internal_policy {
            TrafficPolicy::Cluster => Kind::Cluster,
            TrafficPolicy::Local => Kind::Local,
        })
    }

    fn cluster_ip(&self, ip: IpAddr, out: &mut Fragment) {
        if self.port.has_internal() {
            let rule = self.to(self.comment("cluster IP"), ip).jump(&self.internal_chain());
            out.shared.push((Shared::NatServices, vec![rule]));
        } else {
            out.shared.push((Shared::FilterServices, vec![self.refuse(|d| self.to(d, ip))]));
        }
    }

    /// Refused when no endpoint anywhere can serve, dropped when there is none here.
    fn refuse(&self, narrow: impl FnOnce(Draft) -> Draft) -> Rule {
        if self.port.categories.has_any {
            narrow(self.comment("has no local endpoints")).jump("DROP")
        } else {
            narrow(self.comment("has no endpoints")).reject(self.env.family)
        }
    }

    fn external_address(&self, kind: FrontendKind, ip: IpAddr, out: &mut Fragment) {
        let balancer = kind == FrontendKind::LoadBalancerVip;
        let firewall = balancer && self.firewall;
        if self.port.categories.has_any {
            let what = if balancer { "loadbalancer IP" } else { "external IP" };
            let entry = if firewall { Kind::Firewall } else { Kind::External };
            let rule = self.to(self.comment(what), ip).jump(&self.chain(entry));
            out.shared.push((Shared::NatServices, vec![rule]));
        }
        if firewall {
            let what = format!("traffic not accepted by {}", self.chain(Kind::Firewall));
            let rule = self.to(self.comment(&what), ip).jump("DROP");
            out.shared.push((Shared::FilterFirewall, vec![rule]));
        }
        if !self.port.has_external() {
            out.shared.push((Shared::FilterExternal, vec![self.refuse(|d| self.to(d, ip))]));
        }
    }

    fn node_port(&self, frontend: Frontend, out: &mut Fragment) {
        let FrontendKey::NodePort { protocol, port } = frontend.key else { return };
        let draft = || Draft::new().comment(&self.name).transport(protocol, Some(port));
        if self.port.categories.has_any {
            let entry = self.chain(Kind::External);
            let mut rules = vec![draft().jump(&entry)];
            if self.env.loopback && self.env.facts.count_localhost {
                let local = draft().destination(false, loopback(self.env.family)).count(LOCALHOST_ACCEPTED);
                rules.insert(0, local.jump(&entry));
            }
            out.shared.push((Shared::NatNodePorts, rules));
        }
        if !self.port.has_external() {
            let rule = self.refuse(|d| d.local(End::Destination).transport(protocol, Some(port)));
            out.shared.push((Shared::FilterExternal, vec![rule]));
        }
    }

    fn health_check(&self, out: &mut Fragment) {
        let Some(port) = self.port.spec.health_check_node_port else { return };
        let draft = self.comment("health check node port");
        let rule = draft.transport(proxier_core::ids::Protocol::Tcp, Some(port)).jump("ACCEPT");
        out.shared.push((Shared::FilterNodePorts, vec![rule]));
    }

    /// Only chains that some rule leads to.
    fn own_chains(&self, out: &mut Fragment) {
        let port = self.port;
        let spec = &port.spec;
        let cluster_ip = port.frontends.iter().any(|f| f.kind == FrontendKind::ClusterIp);
        let internal = |policy| cluster_ip && port.has_internal() && spec.internal_policy == policy;
        let local_external = self.external && spec.external_policy == TrafficPolicy::Local;
        let all = self.external || internal(TrafficPolicy::Cluster);
        let here = internal(TrafficPolicy::Local) || (local_external && port.has_external());
        let categories = &port.categories;
        let used = |i: &u32| {
            (all && categories.cluster.binary_search(i).is_ok())
                || (here && categories.local.binary_search(i).is_ok())
        };
        for i in categories.reachable.iter().filter(|i| used(i)) {
            if let Some(endpoint) = port.endpoints.get(*i as usize) {
                self.push(out, self.names.endpoint(endpoint.addr), self.endpoint(endpoint.addr));
            }
        }
        if all {
            let masquerade = internal(TrafficPolicy::Cluster).then(|| self.masquerade()).flatten();
            let rules = self.dispatch(masquerade, port.cluster_endpoints());
            self.push(out, self.chain(Kind::Cluster), rules);
        }
        if here {
            let masquerade = internal(TrafficPolicy::Local).then(|| self.masquerade()).flatten();
            let rules = self.dispatch(masquerade, port.local_endpoints());
            self.push(out, self.chain(Kind::Local), rules);
        }
        if self.external {
            self.push(out, self.chain(Kind::External), self.external_rules());
        }
        if self.firewall {
            self.push(out, self.chain(Kind::Firewall), self.firewall_rules());
        }
    }

    fn push(&self, out: &mut Fragment, name: Name, rules: Vec<Rule>) {
        out.own.push((ChainId { table: Table::Nat, name }, rules));
    }

    /// Traffic to the cluster IP: all of it, or what does not come from local pods.
    fn masquerade(&self) -> Option<Rule> {
        let draft = self.to(self.comment("cluster IP"), self.port.spec.cluster_ip);
        if self.env.masquerade_all {
            return Some(draft.jump(MARK_MASQ));
        }
        let strangers = self.env.pods.as_ref()?.narrow(draft, true)?;
        Some(strangers.jump(MARK_MASQ))
    }

    /// Seconds that a client is remembered.
    fn affinity(&self) -> Option<u64> {
        let seconds = self.port.spec.affinity?.as_secs();
        // With 0 the kernel would refuse to forget.
        self.env.facts.recent.then_some(seconds.max(1))
    }

    /// Clients that were here before go where they went, the others anywhere.
    fn dispatch<'e>(
        &self,
        masquerade: Option<Rule>,
        endpoints: impl ExactSizeIterator<Item = &'e Endpoint>,
    ) -> Vec<Rule> {
        let count = endpoints.len();
        let endpoints: Vec<(Draft, Name)> = endpoints
            .map(|e| {
                let to = format!("{} -> {}", self.name, e.addr);
                (self.unless_large(Draft::new(), &to), self.names.endpoint(e.addr))
            })
            .collect();
        let mut rules: Vec<Rule> = masquerade.into_iter().collect();
        if let Some(seconds) = self.affinity() {
            let back = |(draft, chain): &(Draft, Name)| {
                draft.clone().remembered(chain, seconds, self.env.family).jump(chain)
            };
            rules.extend(endpoints.iter().map(back));
        }
        rules.extend(endpoints.into_iter().enumerate().map(|(i, (draft, chain))| {
            let rest = count - i;
            let draft = if rest > 1 { draft.one_in(rest) } else { draft };
            draft.jump(&chain)
        }));
        rules
    }

    fn unless_large(&self, draft: Draft, comment: &str) -> Draft {
        if self.large { draft } else { draft.comment(comment) }
    }

    /// An endpoint that reaches itself must not see its own address as the source.
    fn endpoint(&self, addr: EndpointAddr) -> Vec<Rule> {
        let draft = || self.unless_large(Draft::new(), &self.name);
        let itself = draft().source(false, addr.ip.into()).jump(MARK_MASQ);
        let list = self.names.endpoint(addr);
        let client = match self.affinity() {
            Some(_) => draft().remember(&list, self.env.family),
            None => draft(),
        };
        vec![itself, client.transport(self.port.protocol(), None).dnat(addr)]
    }

    fn external_rules(&self) -> Vec<Rule> {
        let destinations = |what: &str| format!("{what} {} external destinations", self.name);
        let comment = |what: &str| Draft::new().comment(&destinations(what));
        let (all, here) = (self.chain(Kind::Cluster), self.chain(Kind::Local));
        if self.port.spec.external_policy == TrafficPolicy::Cluster {
            return vec![comment("masquerade traffic for").jump(MARK_MASQ), Draft::new().jump(&all)];
        }
        let pods = self.env.pods.as_ref().and_then(|p| p.narrow(comment("pod traffic for"), false));
        let from_host = [
            comment("masquerade LOCAL traffic for").local(End::Source).jump(MARK_MASQ),
            comment("route LOCAL traffic for").local(End::Source).jump(&all),
        ];
        let rest = self.port.has_external().then(|| Draft::new().jump(&here));
        pods.map(|d| d.jump(&all)).into_iter().chain(from_host).chain(rest).collect()
    }

    /// What falls off the end is not translated, and the filter table drops it.
    fn firewall_rules(&self) -> Vec<Rule> {
        let spec = &self.port.spec;
        let entry = self.chain(Kind::External);
        let from = |range: IpNet| self.comment("loadbalancer IP").source(false, range).jump(&entry);
        let mut rules: Vec<Rule> = spec.source_ranges.iter().map(|r| from(*r)).collect();
        // This node reaches the VIP with the VIP as its own source.
        let own = self.env.node_ip.is_some_and(|ip| spec.source_ranges.iter().any(|r| r.contains(&ip)));
        rules.extend(spec.load_balancer_vips.iter().filter(|_| own).map(|ip| from((*ip).into())));
        let rest = format!("other traffic to {} will be dropped by {PROXY_FIREWALL}", self.name);
        rules.push(Draft::new().comment(&rest).nothing());
        rules
    }
}
