//! The suite that every backend runs, on a text model of iptables: both families.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

use backend_iptables::belief::Belief;
use backend_iptables::names::{Kind, ServiceNames};
use backend_iptables::plan::{self, Plan};
use backend_iptables::{Iptables, Options, takeover};
use proxier_core::backend::{Plan as _, PlanEntry, TakeOver};
use proxier_core::ids::{EndpointAddr, IpFamily, ServicePortName};
use proxier_core::oracle::{Choice, Decision, Entry, Outcome, Packet, Reason};
use proxier_core::snapshot::{Frontend, FrontendKey, FrontendKind, ServicePort, Snapshot};
use proxier_testkit::conformance::{self, BeliefOf, Failure, Gap, Script, Subject, Tally};
use proxier_testkit::corpus;
use proxier_testkit::iptables::Families;
use proxier_xtables::objects::Input;
use proxier_xtables::saved::{self, Saved};

/// Random clusters whose packets are walked, each in both families.
const CLUSTERS: u64 = 1200;
/// Random packets for each cluster and family.
const PACKETS: usize = 50;
/// Random histories of each property, both families each.
const HISTORIES: u64 = 40;
/// Random packets after each commit of a history.
const PACKETS_PER_COMMIT: usize = 6;

/// The backend.
#[derive(Clone, Debug)]
struct Chains;

fn saved(model: &Families, family: IpFamily) -> Saved {
    saved::parse("iptables-save", &model.get(family).print(), |_, _| true).unwrap()
}

fn script(family: IpFamily, inputs: &[Input], belief: &Belief) -> Script<Belief> {
    Script { entries: plan::entries(family, inputs), later: Vec::new(), belief: belief.clone() }
}

impl Subject for Chains {
    type Backend = Iptables;
    type Model = Families;

    fn name(&self) -> String {
        "iptables".into()
    }

    fn backend(&self, family: IpFamily) -> Iptables {
        Iptables::new(family, Options::default())
    }

    fn script(plan: &Plan) -> Script<BeliefOf<Self>> {
        let out = script(plan.family(), plan.inputs(), plan.next());
        assert_eq!(out.entries, plan.entries());
        out
    }

    fn replacing(plan: &Plan, model: &Families) -> Script<BeliefOf<Self>> {
        let inputs = takeover::replace(plan, &saved(model, plan.family()));
        script(plan.family(), &inputs, plan.next())
    }

    fn take_over(&self, plan: Plan, _: &Belief, model: &Families) -> TakeOver<Plan> {
        let saved = saved(model, plan.family());
        TakeOver::Differences(takeover::take_over(plan, &saved))
    }

    /// What carries the port's name in its comment and its protocol, or names a chain of its own.
    fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
        let text = &entry.text;
        let chain = ServiceNames::new(port).chain(Kind::Cluster);
        let hash = chain.strip_prefix(Kind::Cluster.prefix()).unwrap();
        let commented = [format!("\"{port} "), format!("\"{port}\"")].iter().any(|c| text.contains(c));
        let protocol = format!("-p {} ", port.protocol);
        // Ports of one Service that only differ in their protocol have this rule in common.
        let shared = text.contains(" health check node port\"");
        !shared
            && (text.starts_with("-A") || text.starts_with("-I"))
            && (text.contains(hash) || (commented && text.contains(&protocol)))
    }

    fn keeps_clients(&self) -> bool {
        true
    }

    fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
        ServiceNames::new(port).endpoint(endpoint).to_string()
    }

    fn gap(&self, snapshot: &Snapshot, packet: &Packet, decision: &Decision) -> Option<Gap> {
        let (why, outcome) = gap(snapshot, packet, decision)?;
        // A packet that would be treated like that anyway is none.
        (outcome != decision.outcome).then_some(Gap { why, outcome })
    }
}

fn is_local(snapshot: &Snapshot, packet: &Packet) -> bool {
    let ip = packet.destination;
    ip.is_loopback() || snapshot.context().node.host_addresses.contains(&ip)
}

/// What a service port's packets meet that are not dispatched.
fn refusal(port: &ServicePort) -> Outcome {
    if port.categories.has_any { Outcome::Drop } else { Outcome::Reject }
}

/// Where kube-proxy's rules end otherwise (iptables spec 3.2, 5.4 to 5.7).
fn gap(snapshot: &Snapshot, packet: &Packet, decision: &Decision) -> Option<(&'static str, Outcome)> {
    match decision.reason {
        Reason::UnknownPortOfClusterIp | Reason::UnallocatedClusterIp => {
            return Some(("no rule is about cluster IPs as such", Outcome::NotOurs));
        }
        Reason::NoFrontend => {
            let refused = node_port(snapshot, packet).filter(|port| !port.has_external())?;
            let why = "refusals of node ports are for every local address, whatever nodePortAddresses says";
            return Some((why, refusal(refused)));
        }
        _ => {}
    }
    if let Outcome::Endpoints(choices) = &decision.outcome {
        return of_endpoints(snapshot, packet, choices);
    }
    let (Frontend { kind, .. }, name) = decision.frontend.as_ref()?;
    if !matches!(kind, FrontendKind::LoadBalancerVip | FrontendKind::ExternalIp) {
        return None;
    }
    let port = snapshot.port(name)?;
    let unrestricted = decision.reason == Reason::SourceNotInRanges && !port.categories.has_any;
    let refused = matches!(decision.reason, Reason::NoEndpoints | Reason::NoLocalEndpoints) || unrestricted;
    let firewall = *kind == FrontendKind::LoadBalancerVip
        && port.categories.has_any
        && !port.spec.source_ranges.is_empty();
    if refused && !firewall && packet.entry == Entry::Host && !is_local(snapshot, packet) {
        return Some(("KUBE-EXTERNAL-SERVICES is not asked about what this host sends", Outcome::NotOurs));
    }
    unrestricted.then_some(("without endpoints there is no chain of source ranges", Outcome::Reject))
}

/// What the chosen endpoints' own rules, and the filter table behind them, do otherwise.
fn of_endpoints(snapshot: &Snapshot, packet: &Packet, choices: &[Choice]) -> Option<(&'static str, Outcome)> {
    if let [Choice { endpoint, .. }] = choices
        && let Some(protocol) = packet.protocol
    {
        let key = FrontendKey::Address { ip: endpoint.ip, protocol, port: endpoint.port };
        let host = snapshot.context().node.host_addresses.contains(&endpoint.ip);
        let looked = host || packet.entry != Entry::Host;
        let owner = snapshot.owner(&key).filter(|(_, kind)| *kind != FrontendKind::ClusterIp && looked);
        if let Some((port, _)) = owner.filter(|(port, _)| !port.has_external()) {
            return Some(("the filter table looks at translated destinations, too", refusal(port)));
        }
    }
    let own = |c: &Choice| Choice { masquerade: c.masquerade || c.endpoint.ip == packet.source, ..c.clone() };
    let why = "whoever comes from an endpoint's address is taken for that endpoint, wherever it is";
    Some((why, Outcome::Endpoints(choices.iter().map(own).collect())))
}

/// The owner of the node port that a packet to an address of this host is for.
fn node_port<'a>(snapshot: &'a Snapshot, packet: &Packet) -> Option<&'a ServicePort> {
    let protocol = packet.protocol?;
    let port = proxier_core::ids::Port::new(packet.port)?;
    let (owner, _) = snapshot.owner(&FrontendKey::NodePort { protocol, port })?;
    is_local(snapshot, packet).then_some(owner)
}

#[track_caller]
fn holds(property: Result<Tally, Failure>) -> Tally {
    property.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn packets_go_where_the_oracle_says() {
    let tally = holds(conformance::walks_as_decided(&Chains, 0..CLUSTERS, PACKETS));
    let enough = tally.clusters * PACKETS * 2;
    assert!(tally.packets >= enough, "{tally:?}");
    // Every kind of end is asked for often enough to mean something.
    let kinds = [tally.balanced, tally.masqueraded, tally.rejected, tally.dropped, tally.untouched];
    assert!(kinds.iter().all(|n| *n > enough / 50), "{tally:?}");
    assert!(tally.recorded > enough / 100, "{tally:?}");
    assert!(tally.gaps < enough / 4, "{tally:?}");
}

#[test]
fn the_corpus() {
    let cases = corpus::cases().unwrap();
    let questions: usize = cases.iter().map(|c| c.questions.len()).sum();
    let tally = holds(conformance::corpus(&Chains, &cases));
    assert_eq!((tally.clusters, tally.packets), (cases.len(), questions));
}

#[test]
fn partial_plans_lead_where_full_plans_lead() {
    let tally = holds(conformance::partial_equals_full(&Chains, 0..2 * HISTORIES, PACKETS_PER_COMMIT));
    assert!(tally.syncs > 500, "{tally:?}");
}

#[test]
fn the_order_of_objects_does_not_matter() {
    holds(conformance::order_does_not_matter(&Chains, 0..60));
}

#[test]
fn failed_applies_are_repaired() {
    let seeds = 100..100 + HISTORIES;
    let tally = holds(conformance::failures_are_repaired(&Chains, seeds, PACKETS_PER_COMMIT));
    assert!(tally.failures > 80, "{tally:?}");
}

#[test]
fn refused_service_ports_are_set_aside() {
    let seeds = 200..200 + HISTORIES;
    let tally = holds(conformance::refused_ports_are_set_aside(&Chains, seeds, PACKETS_PER_COMMIT));
    assert!(tally.set_aside > 60, "{tally:?}");
}

#[test]
fn restarts_end_right() {
    let seeds = 300..300 + HISTORIES;
    let tally = holds(conformance::restarts_end_right(&Chains, seeds, PACKETS_PER_COMMIT));
    assert!(tally.syncs > 100 && tally.recorded > 20, "{tally:?}");
}

/// A suite that cannot fail proves nothing: the same properties over a backend whose plans lack something.
mod broken {
    use super::*;

    /// Leaves out the lines that contain this.
    #[derive(Clone)]
    struct Without(&'static str);

    thread_local! {
        static LEFT_OUT: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
    }

    impl Without {
        fn new(what: &'static str) -> Self {
            LEFT_OUT.set(what);
            Self(what)
        }

        fn thinned(mut script: Script<Belief>) -> Script<Belief> {
            script.entries.retain(|e| !e.text.contains(LEFT_OUT.get()));
            script
        }
    }

    impl Subject for Without {
        type Backend = Iptables;
        type Model = Families;

        fn name(&self) -> String {
            format!("without {}", self.0)
        }

        fn backend(&self, family: IpFamily) -> Iptables {
            Chains.backend(family)
        }

        fn script(plan: &Plan) -> Script<Belief> {
            Self::thinned(Chains::script(plan))
        }

        fn replacing(plan: &Plan, model: &Families) -> Script<Belief> {
            Self::thinned(Chains::replacing(plan, model))
        }

        fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
            Chains.adds_for(entry, port)
        }

        fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
            Chains.affinity_record(port, endpoint)
        }

        fn gap(&self, snapshot: &Snapshot, packet: &Packet, decision: &Decision) -> Option<Gap> {
            Chains.gap(snapshot, packet, decision)
        }
    }

    /// Each kind of rule that decides where a packet goes.
    #[test]
    fn missing_rules_are_found() {
        for what in [
            "cluster IP\"",
            "external IP\"",
            "loadbalancer IP\"",
            "masquerade traffic for",
            "masquerade LOCAL traffic",
            "route LOCAL traffic",
            "pod traffic for",
            "traffic not accepted by",
            "has no endpoints",
            "has no local endpoints",
            "--rcheck",
            "--probability",
            "-j MASQUERADE",
            "j MARK --set-xmark 0x4000/0x4000",
            "nodeports; NOTE",
            "-j KUBE-PROXY-FIREWALL",
            "-j KUBE-EXTERNAL-SERVICES",
        ] {
            let walks = conformance::walks_as_decided(&Without::new(what), 0..150, 50);
            assert!(walks.is_err(), "without {what}: {walks:?}");
        }
    }

    #[test]
    fn rules_that_stay_are_found() {
        for what in ["-D KUBE-SERVICES", "-D KUBE-NODEPORTS", "-D KUBE-EXTERNAL-SERVICES"] {
            let histories = conformance::partial_equals_full(&Without::new(what), 0..20, 5);
            assert!(histories.is_err(), "without {what}: {histories:?}");
        }
    }
}
