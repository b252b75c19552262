//! The suite that every backend runs, on a text model of nftables: both layouts, both families.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use backend_nftables::belief::Belief;
use backend_nftables::objects::Chain;
use backend_nftables::options::Layout;
use backend_nftables::plan::Plan;
use backend_nftables::{Nftables, Options, takeover, text};
use proxier_core::backend::{Backend, Plan as _, PlanEntry, TakeOver};
use proxier_core::ids::{EndpointAddr, IpFamily, NodeName, Port, ServicePortName};
use proxier_core::model::{
    Conditions, Hints, NodeFacts, ServiceType, SliceEndpoint, SlicePort, TrafficPolicy,
};
use proxier_core::names;
use proxier_testkit::build::{self, Dice, History, Step};
use proxier_testkit::conformance::{self, BeliefOf, Failure, Script, Subject, Tally};
use proxier_testkit::{corpus, nft};

/// Seeds of the random clusters whose packets are walked, for each layout; each cluster in both families.
const CLUSTERS: [Range<u64>; 2] = [0..1200, 0..800];
/// Random packets for each cluster and family.
const PACKETS: usize = 50;
/// Random histories of each property, in each layout; both families each.
const HISTORIES: u64 = 40;
/// Random packets after each commit of a history.
const PACKETS_PER_COMMIT: usize = 6;

/// The backend with one layout.
#[derive(Clone, Debug)]
pub struct Nft(pub Layout);

impl Nft {
    fn options(&self) -> Options {
        Options { layout: self.0, ..Options::default() }
    }
}

impl Subject for Nft {
    type Backend = Nftables;
    type Model = nft::Ruleset;

    fn name(&self) -> String {
        format!("nftables, layout {:?}", self.0)
    }

    fn backend(&self, family: IpFamily) -> Nftables {
        Nftables::new(family, self.options())
    }

    fn script(plan: &Plan) -> Script<BeliefOf<Self>> {
        let mut entries = plan.entries();
        entries.truncate(plan.ops().len());
        let later = plan.later();
        assert_eq!(plan.operations(), entries.len() + later.len());
        let later = later.iter().map(|op| text::op_text(plan.table(), op)).collect();
        Script { entries, later, belief: plan.next().clone() }
    }

    fn take_over(&self, plan: Plan, held: &Belief, model: &nft::Ruleset) -> TakeOver<Plan> {
        let options = self.options();
        let mut observed = held.expected(&options);
        let Some(table) = model.table(plan.table().family, &plan.table().name) else {
            return TakeOver::Replace(plan);
        };
        for name in held.doomed().filter(|name| table.chain(name).is_some()) {
            let emptied = Chain { name: Arc::clone(name), base: None, comment: None };
            observed.chains.insert(Arc::clone(name), (emptied, Vec::new()));
        }
        takeover::take_over(&options, plan, &observed)
    }

    /// Elements carry the name as a comment behind protocol and port; chains have it in theirs.
    fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
        let text = &entry.text;
        let (comment, protocol) = (format!(" comment \"{port}\""), format!("{} .", port.protocol));
        let before_number = |i: usize| text[..i].trim_end_matches(|c: char| c.is_ascii_digit()).trim_end();
        let element = text.starts_with("add element")
            && text.match_indices(&comment).any(|(i, _)| before_number(i).ends_with(&protocol));
        let chain = text.starts_with("add rule") && text.contains(&format!("-{} ", names::base_of(port)));
        element || chain
    }

    fn keeps_clients(&self) -> bool {
        true
    }

    fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
        let base = names::endpoint_base(&names::base_of(port), endpoint);
        format!("affinity-{}", names::object_name(&base))
    }
}

const LAYOUTS: [Nft; 2] = [Nft(Layout::Maps), Nft(Layout::Chains)];

#[track_caller]
#[expect(
    clippy::panic,
    reason = "the assertion of all tests below, which prints a failure as a person reads it"
)]
fn all(property: impl Fn(&Nft) -> Result<Tally, Failure>) -> [Tally; 2] {
    LAYOUTS.map(|layout| property(&layout).unwrap_or_else(|failure| panic!("{failure}")))
}

#[test]
fn packets_go_where_the_oracle_says() {
    let seeds = |s: &Nft| CLUSTERS[usize::from(s.0 == Layout::Chains)].clone();
    let tallies = all(|s| conformance::walks_as_decided(s, seeds(s), PACKETS));
    assert_eq!(tallies.iter().map(|t| t.clusters).sum::<usize>(), 2000);
    for tally in tallies {
        let enough = tally.clusters * PACKETS * 2;
        assert!(tally.packets >= enough, "{tally:?}");
        // Every kind of end is asked for often enough to mean something.
        let kinds = [tally.balanced, tally.masqueraded, tally.rejected, tally.dropped, tally.untouched];
        assert!(kinds.iter().all(|n| *n > enough / 50), "{tally:?}");
        assert!(tally.recorded > enough / 100, "{tally:?}");
        assert_eq!(tally.gaps, 0, "this backend declares none");
    }
}

#[test]
fn the_corpus() {
    let cases = corpus::cases().unwrap();
    let questions: usize = cases.iter().map(|c| c.questions.len()).sum();
    for tally in all(|s| conformance::corpus(s, &cases)) {
        assert_eq!((tally.clusters, tally.packets), (cases.len(), questions));
    }
}

#[test]
fn partial_plans_lead_where_full_plans_lead() {
    for tally in all(|s| conformance::partial_equals_full(s, 0..2 * HISTORIES, PACKETS_PER_COMMIT)) {
        assert!(tally.syncs > 500, "{tally:?}");
    }
}

/// A Service with session affinity changes from each state to each other: policies, timeout (none, one, another), with and without
/// endpoints. A set is in use as long as some rule names it, also one of a chain that is no longer needed.
#[test]
fn timeout_and_policies_change_at_once() {
    let mut steps = Vec::new();
    let pairs = (0..16).flat_map(|from| (0..16).map(move |to| (from, to)));
    for (from, to) in pairs.filter(|(from, to)| from >> 2 != to >> 2) {
        for state in [from, to] {
            steps.extend(sticky(state));
        }
    }
    let node = NodeFacts { name: NodeName::new(build::pool::NODE), ..build::node(&mut Dice::new(1)) };
    let history = History { node, options: build::options(&mut Dice::new(1)), steps };
    for tally in all(|s| conformance::partial_history(s, &history, IpFamily::Ipv4, PACKETS_PER_COMMIT)) {
        assert!(tally.syncs == 384 && tally.balanced > 100, "{tally:?}");
    }
}

/// One of sixteen states of one Service, published: an endpoint here and one elsewhere, or none.
fn sticky(state: usize) -> [Step; 3] {
    let policy = |bit: usize| [TrafficPolicy::Cluster, TrafficPolicy::Local][state >> bit & 1];
    let mut service = build::service(&mut Dice::new(1), 0);
    service.kind = ServiceType::NodePort;
    service.cluster_ips.ipv4 = Some(build::pool::cluster_ip(IpFamily::Ipv4, 1));
    service.ports.truncate(1);
    for port in &mut service.ports {
        port.node_port = Port::new(build::pool::NODE_PORTS[0]);
    }
    (service.internal_policy, service.external_policy) = (policy(0), policy(1));
    service.affinity = [None, Some(10), Some(600), Some(600)][state >> 2].map(Duration::from_secs);
    let mut slice = build::slice(&mut Dice::new(1), &service, IpFamily::Ipv4, 0);
    slice.ports = service
        .ports
        .iter()
        .map(|p| SlicePort { name: Arc::clone(&p.name), protocol: p.protocol, port: p.port })
        .collect();
    let endpoint = |ip| SliceEndpoint {
        ip,
        conditions: Conditions::default(),
        node: build::pool::node_of(ip),
        hints: Hints::default(),
    };
    let pods = [build::pool::local_pod(IpFamily::Ipv4, 2), build::pool::remote_pod(IpFamily::Ipv4, 2)];
    slice.endpoints = if state >> 2 == 3 { Vec::new() } else { pods.map(endpoint).to_vec() };
    [Step::UpsertService(Box::new(service)), Step::UpsertSlice(slice), Step::Commit]
}

#[test]
fn the_order_of_objects_does_not_matter() {
    all(|s| conformance::order_does_not_matter(s, 0..60));
}

#[test]
fn failed_applies_are_repaired() {
    for tally in all(|s| conformance::failures_are_repaired(s, 100..100 + HISTORIES, PACKETS_PER_COMMIT)) {
        assert!(tally.failures > 80, "{tally:?}");
    }
}

#[test]
fn refused_service_ports_are_set_aside() {
    for tally in
        all(|s| conformance::refused_ports_are_set_aside(s, 200..200 + HISTORIES, PACKETS_PER_COMMIT))
    {
        assert!(tally.set_aside > 60, "{tally:?}");
    }
}

#[test]
fn restarts_end_right() {
    for tally in all(|s| conformance::restarts_end_right(s, 300..300 + HISTORIES, PACKETS_PER_COMMIT)) {
        assert!(tally.syncs > 100 && tally.recorded > 20, "{tally:?}");
    }
}

/// A suite that cannot fail proves nothing: the same properties over a backend whose plans lack something.
mod broken {
    use super::*;

    /// Leaves out the operations that `without` names.
    #[derive(Clone)]
    struct Broken<const WHICH: usize>;

    const WITHOUT: [&str; 5] =
        ["@hairpin-connections", "short-circuit", "firewall-ips {", "delete element", "flush chain"];

    impl<const WHICH: usize> Subject for Broken<WHICH> {
        type Backend = Nftables;
        type Model = nft::Ruleset;

        fn name(&self) -> String {
            format!("without {}", WITHOUT[WHICH])
        }

        fn backend(&self, family: IpFamily) -> Nftables {
            Nftables::new(family, Options { table: Arc::from("t"), ..Options::default() })
        }

        fn script(plan: &<Nftables as Backend>::Plan) -> Script<BeliefOf<Self>> {
            let mut script = Nft::script(plan);
            script.entries.retain(|e| !e.text.contains(WITHOUT[WHICH]));
            script
        }

        fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
            Nft(Layout::Maps).adds_for(entry, port)
        }

        fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
            Nft(Layout::Maps).affinity_record(port, endpoint)
        }
    }

    #[test]
    fn missing_rules_are_found() {
        let walks = [
            conformance::walks_as_decided(&Broken::<0>, 0..60, 50),
            conformance::walks_as_decided(&Broken::<1>, 0..60, 50),
            conformance::walks_as_decided(&Broken::<2>, 0..60, 50),
        ];
        assert!(walks.iter().all(Result::is_err), "{walks:?}");
        let histories = [
            conformance::partial_equals_full(&Broken::<3>, 0..10, 5),
            conformance::partial_equals_full(&Broken::<4>, 0..10, 5),
        ];
        assert!(histories.iter().all(Result::is_err), "{histories:?}");
    }
}
