//! The backend as the suite tries it, and what it does otherwise than the oracle says.

#![allow(unreachable_pub, reason = "a module of one test")]

use std::net::IpAddr;

use backend_ipvs::belief::Belief;
use backend_ipvs::options::{Facts, Options};
use backend_ipvs::plan::Plan;
use backend_ipvs::render::render;
use backend_ipvs::takeover;
use proxier_core::backend::{
    ApplyReport, Backend, BackendError, Capabilities, CleanupReport, Drift, Plan as _, PlanEntry,
    ProgressSink, Refused, RenderInput, RetryClass, TakeOver,
};
use proxier_core::ids::{EndpointAddr, IpFamily, Protocol, ServicePortName};
use proxier_core::model::TrafficPolicy;
use proxier_core::oracle::{Choice, Decision, Entry, Origin, Outcome, Packet, Reason};
use proxier_core::snapshot::{FrontendKey, FrontendKind, ServicePort, Snapshot};
use proxier_testkit::conformance::{BeliefOf, Gap, Script, Subject};
use proxier_testkit::ipvs::Host;

use crate::kit::{observe, text_of};

/// The pure half of the backend; the other one needs a kernel.
#[derive(Debug)]
pub struct Rendering(pub IpFamily, pub Options);

/// There is no kernel.
#[derive(Debug, thiserror::Error)]
#[error("there is no kernel here")]
pub struct NoKernel;

impl BackendError for NoKernel {
    fn retry_class(&self) -> RetryClass {
        RetryClass::Unsupported
    }

    fn refused(&self) -> &[Refused] {
        &[]
    }
}

impl Backend for Rendering {
    type Plan = Plan;
    type Belief = Belief;
    type Error = NoKernel;

    fn name(&self) -> &'static str {
        "ipvs"
    }

    fn family(&self) -> IpFamily {
        self.0
    }

    fn probe(&mut self) -> Result<Capabilities, NoKernel> {
        Err(NoKernel)
    }

    fn render(&self, input: RenderInput<'_, Belief>) -> Plan {
        render(self.0, &self.1, &Facts::default(), input)
    }

    fn check(&mut self, _: &Plan) -> Result<(), NoKernel> {
        Err(NoKernel)
    }

    fn apply(&mut self, _: Plan, _: ProgressSink<'_>) -> Result<(Belief, ApplyReport), NoKernel> {
        Err(NoKernel)
    }

    fn verify(&mut self, _: &Belief) -> Result<Drift, NoKernel> {
        Err(NoKernel)
    }

    fn compare(&mut self, _: &Snapshot) -> Result<Drift, NoKernel> {
        Err(NoKernel)
    }

    fn observer(&self) -> Self {
        Self(self.0, self.1.clone())
    }

    fn cleanup(&mut self) -> Result<CleanupReport, NoKernel> {
        Err(NoKernel)
    }
}

/// The backend on a model of its kernel. Real servers that are retired keep their connections, or have none.
#[derive(Clone, Debug)]
pub struct Servers {
    /// They keep them: every real server that is not UDP's stays, with weight 0.
    pub busy: bool,
}

impl Subject for Servers {
    type Backend = Rendering;
    type Model = Host;

    fn name(&self) -> String {
        format!("ipvs, {} connections", if self.busy { "with" } else { "without" })
    }

    fn backend(&self, family: IpFamily) -> Rendering {
        Rendering(family, Options::default())
    }

    fn script(plan: &Plan) -> Script<BeliefOf<Self>> {
        let family = plan.family();
        let entries = plan.entries();
        let text = text_of(family, plan.steps().iter().flat_map(|s| &s.actions));
        assert_eq!(entries.iter().map(|e| format!("{}\n", e.text)).collect::<String>(), text);
        Script { entries, later: Vec::new(), belief: plan.next().clone() }
    }

    fn replacing(plan: &Plan, model: &Host) -> Script<BeliefOf<Self>> {
        Self::script(&takeover::take_over(plan.clone(), &observe(model, plan.family())))
    }

    fn take_over(&self, plan: Plan, _: &Belief, model: &Host) -> TakeOver<Plan> {
        let seen = observe(model, plan.family());
        TakeOver::Differences(takeover::take_over(plan, &seen))
    }

    /// What names a frontend that is this service port's own: a virtual server that is made for it, or gets a real server.
    fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
        let adds = entry.text.starts_with("-A ") || entry.text.starts_with("-a ");
        adds && entry.port.as_ref() == Some(port) && entry.text.contains(option(port))
    }

    fn keeps_clients(&self) -> bool {
        true
    }

    fn affinity_record(&self, _: &ServicePortName, endpoint: EndpointAddr) -> String {
        endpoint.to_string()
    }

    fn gap(&self, snapshot: &Snapshot, packet: &Packet, decision: &Decision) -> Option<Gap> {
        let (why, outcome) = gap(snapshot, packet, decision)?;
        // A packet that would be treated like that anyway is none.
        (outcome != decision.outcome).then_some(Gap { why, outcome })
    }
}

fn option(port: &ServicePortName) -> &'static str {
    match port.protocol {
        Protocol::Tcp => " -t ",
        Protocol::Udp => " -u ",
        Protocol::Sctp => "--sctp-service ",
    }
}

/// What `kube-ipvs0` has: every address of a service that is not the host's own, and cluster IPs in any case.
fn is_bound(snapshot: &Snapshot, ip: IpAddr) -> bool {
    let host = snapshot.context().node.host_addresses.contains(&ip);
    let mut frontends = snapshot.ports().flat_map(|p| &p.frontends);
    !ip.is_loopback()
        && frontends.any(|f| match f.key {
            FrontendKey::Address { ip: own, .. } => own == ip && (f.kind == FrontendKind::ClusterIp || !host),
            FrontendKey::NodePort { .. } => false,
        })
}

fn is_health_check(snapshot: &Snapshot, packet: &Packet) -> bool {
    let bitmap = matches!(packet.protocol, Some(Protocol::Tcp | Protocol::Udp));
    let mut numbers = snapshot.ports().filter_map(|p| p.spec.health_check_node_port);
    bitmap && numbers.any(|n| n.get() == packet.port)
}

/// Where IPVS, and the reference's rules around it, end otherwise.
fn gap(snapshot: &Snapshot, packet: &Packet, decision: &Decision) -> Option<(&'static str, Outcome)> {
    match decision.reason {
        Reason::NoFrontend | Reason::UnknownPortOfClusterIp | Reason::UnallocatedClusterIp
            if is_bound(snapshot, packet.destination) =>
        {
            if is_health_check(snapshot, packet) {
                let why =
                    "a health check node port is let through whatever address it is sent to, UDP as well";
                return Some((why, Outcome::NotOurs));
            }
            let why = "an address of kube-ipvs0 answers nothing but its services, not even a ping";
            return Some((why, Outcome::Reject));
        }
        Reason::UnallocatedClusterIp => {
            return Some(("no rule is about ranges of cluster IPs", Outcome::NotOurs));
        }
        Reason::NoFrontend => return None,
        _ => {}
    }
    let (frontend, name) = decision.frontend.as_ref()?;
    if packet.destination.is_loopback() {
        return Some(("nobody binds loopback addresses", Outcome::NotOurs));
    }
    let port = snapshot.port(name)?;
    if decision.reason == Reason::SourceNotInRanges {
        return None;
    }
    if frontend.kind == FrontendKind::LoadBalancerVip && !may_pass(snapshot, port, packet) {
        let why = "a VIP is reached from this host with itself as the source, not with another VIP";
        return Some((why, Outcome::Drop));
    }
    let (why, outcome) = to_frontend(snapshot, port, frontend.kind, packet, decision.origin)?;
    Some(behind_ipvs(snapshot, packet, &outcome).unwrap_or((why, outcome)))
}

/// An endpoint whose address `kube-ipvs0` has is this host, which asks its filter about what it sends to itself.
fn behind_ipvs(snapshot: &Snapshot, packet: &Packet, outcome: &Outcome) -> Option<(&'static str, Outcome)> {
    let Outcome::Endpoints(choices) = outcome else { return None };
    let [Choice { endpoint, .. }] = choices.as_slice() else { return None };
    if packet.entry != Entry::Host || !is_bound(snapshot, endpoint.ip) {
        return None;
    }
    let key = FrontendKey::Address { ip: endpoint.ip, protocol: packet.protocol?, port: endpoint.port };
    let serves = snapshot.owner(&key).is_some_and(|(port, _)| port.categories.has_any);
    let why = "an endpoint with the address of a frontend is not reached: the address is this host's";
    (!serves).then_some((why, Outcome::Reject))
}

fn may_pass(snapshot: &Snapshot, port: &ServicePort, packet: &Packet) -> bool {
    let ranges = &port.spec.source_ranges;
    let own = snapshot.context().node.ips.get(snapshot.family());
    ranges.is_empty()
        || ranges.iter().any(|r| r.contains(&packet.source))
        || (packet.source == packet.destination && own.is_some_and(|o| ranges.iter().any(|r| r.contains(&o))))
}

/// Where it comes from: an address of a service is one of this host, since what it sends there has it as its source.
fn origin(snapshot: &Snapshot, packet: &Packet, seen: Origin) -> Origin {
    if seen == Origin::Outside && is_bound(snapshot, packet.source) { Origin::Host } else { seen }
}

fn to_frontend(
    snapshot: &Snapshot,
    port: &ServicePort,
    kind: FrontendKind,
    packet: &Packet,
    seen: Origin,
) -> Option<(&'static str, Outcome)> {
    if !port.categories.has_any {
        return Some(("the same", Outcome::Reject));
    }
    let origin = origin(snapshot, packet, seen);
    let internal = kind == FrontendKind::ClusterIp;
    let policy = if internal { port.spec.internal_policy } else { port.spec.external_policy };
    let here = port.local_endpoints().len() > 0;
    let endpoints: Vec<_> = match policy {
        TrafficPolicy::Local if here => port.local_endpoints().collect(),
        TrafficPolicy::Local if internal || origin == Origin::Outside => {
            return Some(("the same", Outcome::Drop));
        }
        _ => port.cluster_endpoints().collect(),
    };
    let masquerade = masquerades(snapshot, packet, policy, internal, origin);
    let choice = |e: &proxier_core::model::Endpoint| Choice {
        endpoint: e.addr,
        weight: 1,
        masquerade: masquerade || (e.local && e.addr.ip == packet.source),
    };
    let mut choices: Vec<Choice> = endpoints.into_iter().map(choice).collect();
    choices.sort();
    let why = match policy {
        _ if packet.source.is_loopback() => "sources on loopback are not masqueraded",
        TrafficPolicy::Local if !internal => {
            "with policy Local and endpoints here, everybody is sent to these; service addresses are this host's own"
        }
        _ => "without a detector, what has a cluster IP as its source is masqueraded: this host's own",
    };
    Some((why, Outcome::Endpoints(choices)))
}

fn masquerades(
    snapshot: &Snapshot,
    packet: &Packet,
    policy: TrafficPolicy,
    internal: bool,
    origin: Origin,
) -> bool {
    let context = snapshot.context();
    if packet.source.is_loopback() {
        return false;
    }
    match policy {
        _ if internal && context.masquerade_all => true,
        _ if internal && context.detector.is_some() => origin != Origin::Pod,
        _ if internal => from_cluster_ip(snapshot, packet),
        TrafficPolicy::Cluster => true,
        TrafficPolicy::Local => origin == Origin::Host,
    }
}

/// Is the source, with the port that the packet goes to, a cluster IP?
fn from_cluster_ip(snapshot: &Snapshot, packet: &Packet) -> bool {
    let (Some(protocol), Some(port)) = (packet.protocol, proxier_core::ids::Port::new(packet.port)) else {
        return false;
    };
    let key = FrontendKey::Address { ip: packet.source, protocol, port };
    snapshot.owner(&key).is_some_and(|(_, kind)| kind == FrontendKind::ClusterIp)
}
