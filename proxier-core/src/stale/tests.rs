//! Which flows go, by example (core spec 5.4, and what is done better).

use super::*;
use crate::cluster::{Cluster, NodePortSelector, TrafficOptions};
use crate::ids::{IpFamily, NodeName};
use crate::model::{Conditions, EndpointSlice, NodeFacts, Service, TrafficPolicy};
use crate::tests::{ip, name, port, service, service_port, slice};

const NODE: &str = "172.30.0.3";

struct Bench {
    cluster: Cluster,
    old: Option<Snapshot>,
}

/// What one step left behind, and the search for it.
struct Step {
    stale: StaleFlows,
    search: Search,
}

impl Step {
    fn is_empty(&self) -> bool {
        self.stale.is_empty()
    }
    fn verdict(&self, destination: &str, answers_from: &str) -> Verdict {
        self.search.judge(&flow(destination, answers_from))
    }
    fn is_stale(&self, destination: &str, answers_from: &str) -> bool {
        self.verdict(destination, answers_from) == Verdict::Stale
    }
    fn looks(&self) -> Vec<String> {
        match self.search.looks() {
            Looks::Everywhere => vec!["everywhere".to_owned()],
            Looks::At(looks) => looks.iter().map(text).collect(),
        }
    }
}

fn text(look: &Look) -> String {
    match look {
        Look::Source(place) => place.to_string(),
        Look::Port(port) => format!("*:{port}"),
        Look::Address(ip) => format!("{ip}:*"),
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(&[NODE, "127.0.0.1"])
    }
    fn with(addresses: &[&str]) -> Self {
        let options = TrafficOptions {
            node_port_addresses: NodePortSelector::Cidrs(Vec::new()),
            ..TrafficOptions::default()
        };
        let mut bench = Self { cluster: Cluster::new(NodeName::new("node-1"), options), old: None };
        bench.addresses(addresses);
        bench
    }
    fn addresses(&mut self, texts: &[&str]) {
        let host_addresses = texts.iter().map(|text| ip(text)).collect();
        self.cluster.set_node(NodeFacts { host_addresses, ..NodeFacts::default() });
    }
    fn step(&mut self) -> Step {
        self.step_in(IpFamily::Ipv4)
    }
    fn step_in(&mut self, family: IpFamily) -> Step {
        let new = self.cluster.commit().snapshot(family).clone();
        let changes = ChangeSet::between(self.old.as_ref(), &new);
        let stale = StaleFlows::plan(self.old.as_ref(), &new, &changes);
        let search = Search::new(&stale, &new);
        self.old = Some(new);
        Step { stale, search }
    }
    /// One that served for a while.
    fn serving(texts: &[&str]) -> Self {
        let mut bench = Self::new();
        bench.cluster.upsert_service(udp());
        bench.cluster.upsert_slice(endpoints(texts));
        bench.step();
        bench
    }
}

/// The service of core spec 5.4.
fn udp() -> Service {
    let mut s = service("ns/u", "172.30.1.1");
    s.ports = vec![service_port("http", Protocol::Udp, 8000)];
    s.ports[0].node_port = Some(port(32000));
    s.load_balancer_vips.ipv4 = vec![ip("1.2.3.4")];
    s.external_ips.ipv4 = vec![ip("192.168.99.100")];
    s
}

fn endpoints(texts: &[&str]) -> EndpointSlice {
    let mut s = slice("ns/u", "s", texts);
    s.ports[0].protocol = Protocol::Udp;
    s.ports[0].port = port(9090);
    s
}

fn flow(destination: &str, answers_from: &str) -> Flow {
    let [destination, answers_from] = [destination, answers_from].map(|text| text.parse().unwrap());
    Flow { protocol: 17, default_zone: true, destination, answers_from }
}

/// Cases: core-11.55, report-C4-44
#[test]
fn edge_55_the_table_of_the_spec() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "!10.240.1.5"]));
    let step = b.step();
    assert_eq!(step.looks(), ["everywhere"]);
    for (destination, answers_from, stale) in [
        ("172.30.1.1:8000", "10.240.0.4:9090", false),
        ("172.30.1.1:8000", "10.240.0.4:8080", true),
        ("1.2.3.4:8000", "10.240.1.5:9090", true),
        ("192.168.99.100:8000", "10.240.2.6:9090", true),
        ("172.30.1.1:8000", "172.30.1.1:8000", true),
        ("172.30.1.1:3000", "10.240.2.6:9090", false),
        ("172.30.0.3:32000", "10.240.2.6:9090", true),
        ("172.30.0.3:32000", "10.240.0.4:9090", false),
        // Better than the reference: a host elsewhere that happens to use the number of a node port.
        ("203.0.113.9:32000", "203.0.113.9:32000", false),
        ("203.0.113.9:32000", "10.240.2.6:9090", false),
        ("127.0.0.1:32000", "10.240.2.6:9090", false),
    ] {
        assert_eq!(step.is_stale(destination, answers_from), stale, "{destination} <- {answers_from}");
        for protocol in [6, 132, 1] {
            let other = Flow { protocol, ..flow(destination, answers_from) };
            assert_eq!(step.search.judge(&other), Verdict::Foreign);
        }
        let elsewhere = Flow { default_zone: false, ..flow(destination, answers_from) };
        assert_eq!(step.search.judge(&elsewhere), Verdict::Foreign);
    }
}

/// The same endpoints, one after the other, as the agent sees it happen.
///
/// Cases: core-11.55
#[test]
fn edge_55_a_replaced_endpoint_is_looked_for_alone_and_at_every_frontend() {
    let mut b = Bench::serving(&["10.240.0.4", "10.240.0.5"]);
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "10.240.0.6"]));
    let step = b.step();
    assert_eq!(step.looks(), ["10.240.0.5:9090"]);
    for frontend in ["172.30.1.1:8000", "1.2.3.4:8000", "192.168.99.100:8000", "172.30.0.3:32000"] {
        assert_eq!(step.verdict(frontend, "10.240.0.5:9090"), Verdict::Stale, "{frontend}");
        assert_eq!(step.verdict(frontend, "10.240.0.4:9090"), Verdict::Good, "{frontend}");
        assert_eq!(step.verdict(frontend, "10.240.0.6:9090"), Verdict::Good, "{frontend}");
    }
    for (foreign, answers_from) in [
        ("10.240.0.5:9090", "10.240.0.5:9090"),
        ("172.30.1.1:8001", "10.240.0.5:9090"),
        ("172.30.1.2:8000", "10.240.0.5:9090"),
        ("203.0.113.9:32000", "10.240.0.5:9090"),
    ] {
        assert_eq!(step.verdict(foreign, answers_from), Verdict::Foreign, "{foreign}");
    }
}

/// Cases: report-C4-49
#[test]
fn row_49_a_restart_with_unchanged_input_keeps_flows_to_live_endpoints() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    assert!(!step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"));
    assert!(b.step().is_empty(), "and nothing is looked at when nothing changed");
}

/// Cases: core-11.56, iptables-12.40, report-C4-46
#[test]
fn row_46_the_last_endpoint_takes_its_flows_with_it() {
    let mut b = Bench::serving(&["10.240.0.4"]);
    b.cluster.upsert_slice(endpoints(&["!10.240.0.4"]));
    let step = b.step();
    assert_eq!(step.looks(), ["10.240.0.4:9090"]);
    assert!(step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"));
    assert!(step.is_stale("172.30.0.3:32000", "10.240.0.4:9090"));
    assert!(!step.is_stale("172.30.1.1:8000", "172.30.1.1:8000"), "nowhere to go");
    b.cluster.upsert_slice(endpoints(&["10.240.0.7"]));
    let step = b.step();
    assert_eq!(step.looks(), ["1.2.3.4:8000", "172.30.1.1:8000", "192.168.99.100:8000", "*:32000"]);
    assert!(step.is_stale("172.30.1.1:8000", "172.30.1.1:8000"));
    assert!(!step.is_stale("172.30.1.1:8000", "10.240.0.7:9090"));
}

#[test]
fn a_deleted_service_takes_its_own_flows_and_no_others() {
    let mut b = Bench::serving(&["10.240.0.4"]);
    b.cluster.remove_service(&name("ns/u"));
    let step = b.step();
    assert_eq!(step.looks(), ["10.240.0.4:9090"]);
    assert!(step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"));
    assert!(step.is_stale("172.30.0.3:32000", "10.240.0.4:9090"));
    assert!(!step.is_stale("172.30.0.3:32000", "172.30.0.3:32000"), "a host's own socket on that port");
    assert!(!step.is_stale("172.30.0.3:32000", "10.240.0.99:80"), "another agent's");
}

/// Cases: report-C4-50
#[test]
fn row_50_flows_made_in_a_gap_go_when_the_service_appears() {
    let mut b = Bench::new();
    b.step();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    assert!(step.is_stale("172.30.1.1:8000", "172.30.1.1:8000"));
    assert!(step.is_stale("172.30.0.3:32000", "172.30.0.3:32000"));
    assert!(!step.is_stale("203.0.113.9:32000", "203.0.113.9:32000"));
}

#[test]
fn growing_draining_and_policy_changes_leave_flows_alone() {
    let mut b = Bench::serving(&["10.240.0.4"]);
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "10.240.0.5"]));
    assert!(b.step().is_empty(), "one more endpoint");
    b.cluster.upsert_slice(endpoints(&["~10.240.0.4", "10.240.0.5"]));
    assert!(b.step().is_empty(), "terminating but serving");
    b.cluster.upsert_service(Service { internal_policy: TrafficPolicy::Local, ..udp() });
    assert!(b.step().is_empty(), "another policy");
    b.cluster.upsert_service(Service { affinity: Some(std::time::Duration::from_secs(9)), ..udp() });
    assert!(b.step().is_empty(), "affinity");
}

#[test]
fn only_udp_is_looked_at_and_a_new_frontend_is() {
    let mut b = Bench::new();
    b.cluster.upsert_service(service("ns/t", "172.30.1.2"));
    b.cluster.upsert_slice(slice("ns/t", "s", &["10.240.0.9"]));
    b.step();
    b.cluster.upsert_slice(slice("ns/t", "s", &["10.240.0.8"]));
    assert!(b.step().is_empty());
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.step();
    let mut more = udp();
    more.external_ips.ipv4.push(ip("192.168.99.101"));
    more.ports[0].node_port = Some(port(32001));
    b.cluster.upsert_service(more);
    let step = b.step();
    assert_eq!(step.looks(), ["10.240.0.4:9090", "192.168.99.101:8000", "*:32001"]);
    assert!(step.is_stale("192.168.99.101:8000", "192.168.99.101:8000"));
    assert!(step.is_stale("172.30.0.3:32001", "172.30.0.3:32001"));
    assert!(step.is_stale("172.30.0.3:32000", "10.240.0.4:9090"), "the node port that it had");
    assert!(!step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"));
}

/// Cases: core-11.24
#[test]
fn edge_24_external_ips_behind_a_closed_gate_have_no_flows() {
    let mut b = Bench::new();
    b.cluster.set_options(TrafficOptions {
        node_port_addresses: NodePortSelector::Cidrs(Vec::new()),
        external_ips: false,
        ..TrafficOptions::default()
    });
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    assert!(step.is_stale("1.2.3.4:8000", "10.240.2.6:9090"), "its VIP has some");
    assert!(!step.is_stale("192.168.99.100:8000", "10.240.2.6:9090"));
}

/// An endpoint that is only not ready gets no new flow and keeps those it has.
///
/// Cases: core-11.34
#[test]
fn edge_34_an_unready_endpoint_that_serves_keeps_its_flows() {
    let mut b = Bench::serving(&["10.240.0.4", "10.240.0.5"]);
    let mut slice = endpoints(&["10.240.0.4", "10.240.0.6"]);
    slice.endpoints[0].conditions = Conditions { ready: false, serving: true, terminating: false };
    b.cluster.upsert_slice(slice);
    let step = b.step();
    assert!(!step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"));
    assert!(step.is_stale("172.30.1.1:8000", "10.240.0.5:9090"), "this one is gone");
    let port = b.old.as_ref().unwrap().ports().next().unwrap().clone();
    assert_eq!(port.categories.cluster, [1], "new flows go to the other");
}

/// A Service that publishes addresses that are not ready: `ready` is true, `serving` is what the pod is. New flows go there, so that those
/// that did may stay.
#[test]
fn an_endpoint_that_gets_new_flows_keeps_its_own() {
    let mut b = Bench::serving(&["10.240.0.4"]);
    let mut slice = endpoints(&["10.240.0.4"]);
    slice.endpoints[0].conditions = Conditions { ready: true, serving: false, terminating: false };
    b.cluster.upsert_slice(slice);
    assert!(b.step().is_empty());
    let port = b.old.as_ref().unwrap().ports().next().unwrap().clone();
    assert_eq!(port.categories.cluster, [0]);
    b.old = None;
    assert!(!b.step().is_stale("172.30.1.1:8000", "10.240.0.4:9090"), "nor after a restart");
}

/// Cases: core-11.57
#[test]
fn edge_57_a_change_of_the_tcp_port_looks_at_no_udp_flow() {
    let both = |number| {
        let mut s = udp();
        s.ports.push(service_port("web", Protocol::Tcp, number));
        s
    };
    let mut b = Bench::new();
    b.cluster.upsert_service(both(80));
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.step();
    b.cluster.upsert_service(both(81));
    assert!(b.step().is_empty());
    b.cluster.upsert_service(udp());
    assert!(b.step().is_empty(), "nor does its end");
}

/// Flows are judged by what serves, as rules are: one that began before anything did goes when something does, and not before.
///
/// Cases: report-C4-43
#[test]
fn row_43_flows_go_when_the_first_endpoint_serves() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["!10.240.0.4"]));
    let untranslated = ("172.30.1.1:8000", "172.30.1.1:8000");
    assert!(!b.step().is_stale(untranslated.0, untranslated.1), "nothing to move it to");
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    assert!(step.is_stale(untranslated.0, untranslated.1));
    assert!(!step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"), "those of its own rules stay");
}

/// An external IP that is the node's own address: other ports of it are somebody else's.
///
/// Cases: report-C4-47
#[test]
fn row_47_other_ports_and_protocols_of_the_address_are_left_alone() {
    let mut dns = udp();
    dns.ports = vec![service_port("http", Protocol::Udp, 53)];
    dns.external_ips.ipv4 = vec![ip(NODE)];
    let mut b = Bench::new();
    b.step();
    b.cluster.upsert_service(dns);
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    assert!(step.is_stale("172.30.0.3:53", "172.30.0.3:53"));
    for port in [1, 52, 54, 8472, 51820, 65535] {
        let foreign = format!("{NODE}:{port}");
        assert!(!step.is_stale(&foreign, &foreign), "{foreign}");
    }
    let looks = step.looks();
    assert!(
        looks.contains(&"172.30.0.3:53".to_owned()),
        "what is asked of the kernel names the port: {looks:?}"
    );
    assert_eq!(looks.len(), 3, "{looks:?}");
}

/// A container's host port, translated by the network plug-in, on the address and number of a node port or an external IP of ours.
#[test]
fn what_another_agent_translates_stays_except_in_the_first_search() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "10.240.0.5"]));
    let host_port = ("172.30.0.3:32000", "10.240.0.99:80");
    let first = b.step();
    assert!(first.is_stale(host_port.0, host_port.1), "after a start it could be an endpoint that is gone");
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    assert!(step.is_stale(host_port.0, "10.240.0.5:9090"));
    assert_eq!(step.verdict(host_port.0, host_port.1), Verdict::Foreign);
    let repaired = step.stale.after_repair();
    let search = Search::new(&repaired, b.old.as_ref().unwrap());
    assert_eq!(search.looks(), &Looks::Everywhere);
    assert_eq!(search.judge(&flow(host_port.0, host_port.1)), Verdict::Foreign);
    assert_eq!(
        search.judge(&flow("1.2.3.4:8000", "1.2.3.4:8000")),
        Verdict::Stale,
        "made while rules were missing"
    );
    assert_eq!(search.judge(&flow("1.2.3.4:8000", "10.240.0.5:9090")), Verdict::Stale);
}

/// A pod that reaches itself through the service: the answers come from the client's own address.
#[test]
fn hairpin_and_an_endpoint_on_the_frontends_own_address_stay() {
    let mut b = Bench::serving(&["10.240.0.4", "10.240.0.5"]);
    b.old = None;
    assert_eq!(b.step().verdict("172.30.1.1:8000", "10.240.0.4:9090"), Verdict::Good);
    // A host's own daemon behind a service whose external IP and port are its own.
    let mut own = udp();
    own.external_ips.ipv4 = vec![ip(NODE)];
    own.ports[0].port = port(9090);
    b.cluster.upsert_service(own);
    b.cluster.upsert_slice(endpoints(&[NODE]));
    b.step();
    b.old = None;
    assert_eq!(b.step().verdict("172.30.0.3:9090", "172.30.0.3:9090"), Verdict::Good);
}

#[test]
fn an_endpoint_that_came_back_is_neither_looked_for_nor_cut() {
    let mut b = Bench::serving(&["10.240.0.4", "10.240.0.5"]);
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let mut waiting = b.step().stale;
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "10.240.0.5"]));
    waiting.join(b.step().stale);
    let search = Search::new(&waiting, b.old.as_ref().unwrap());
    assert_eq!(search.looks(), &Looks::At(BTreeSet::new()));
    assert_eq!(search.judge(&flow("172.30.1.1:8000", "10.240.0.5:9090")), Verdict::Good);
}

#[test]
fn what_several_syncs_left_adds_up_and_is_judged_by_the_newest() {
    let mut b = Bench::serving(&["10.240.0.4", "10.240.0.5"]);
    let mut waiting = StaleFlows::default();
    for texts in [&["10.240.0.4", "10.240.0.6"][..], &["10.240.0.6"]] {
        b.cluster.upsert_slice(endpoints(texts));
        waiting.join(b.step().stale);
    }
    b.cluster.remove_service(&name("ns/u"));
    waiting.join(b.step().stale);
    let search = Search::new(&waiting, b.old.as_ref().unwrap());
    for endpoint in ["10.240.0.4:9090", "10.240.0.5:9090", "10.240.0.6:9090"] {
        assert_eq!(search.judge(&flow("172.30.1.1:8000", endpoint)), Verdict::Stale, "{endpoint}");
    }
    assert_eq!(search.judge(&flow("172.30.1.1:8000", "10.240.0.7:9090")), Verdict::Foreign);
    let Looks::At(looks) = search.looks() else { panic!("everywhere") };
    assert_eq!(looks.len(), 3);
    waiting.join(StaleFlows { scope: Scope::Everything, ..StaleFlows::default() });
    assert_eq!(Search::new(&waiting, b.old.as_ref().unwrap()).looks(), &Looks::Everywhere);
}

/// Nobody may look for a long time: what waits stays within bounds.
#[test]
fn what_waits_is_bounded() {
    let key =
        |n: u32| FrontendKey::Address { ip: IpAddr::V4(n.into()), protocol: Protocol::Udp, port: port(53) };
    let lost = |n: u32| EndpointAddr { ip: IpAddr::V4(n.into()), port: port(53) };
    let left_behind = |keys: std::ops::Range<u32>, endpoints: std::ops::Range<u32>| {
        let endpoints: BTreeSet<_> = endpoints.map(lost).collect();
        StaleFlows { former: keys.map(|n| (key(n), endpoints.clone())).collect(), ..StaleFlows::default() }
    };
    let mut waiting = StaleFlows::default();
    for n in 0..16 {
        waiting.join(left_behind(n * 1024..(n + 1) * 1024, 0..2));
    }
    assert_eq!((waiting.scope, waiting.former.len()), (Scope::Changes, 16_384), "as many as there may be");
    waiting.join(left_behind(0..1, 0..5));
    assert_eq!(waiting.scope, Scope::Changes);
    waiting.join(left_behind(20_000..20_001, 0..1));
    assert_eq!((waiting.scope, waiting.former.len()), (Scope::Everything, 0), "one too many");

    let mut waiting = StaleFlows::default();
    waiting.join(left_behind(0..2, 0..65_536));
    assert_eq!(waiting.scope, Scope::Changes);
    waiting.join(left_behind(0..1, 65_536..65_537));
    assert_eq!((waiting.scope, waiting.former.len()), (Scope::Everything, 0));
}

/// A frontend goes from one service to another within a sync: what the first one's endpoints had is stale.
#[test]
fn a_frontend_that_changes_hands_is_judged_by_its_new_owner() {
    let mut b = Bench::serving(&["10.240.0.4"]);
    b.cluster.remove_service(&name("ns/u"));
    let mut heir = udp();
    heir.name = name("ns/v");
    b.cluster.upsert_service(heir);
    let mut slice = endpoints(&["10.240.0.8"]);
    slice.name.service = name("ns/v");
    b.cluster.upsert_slice(slice);
    let step = b.step();
    assert_eq!(step.looks(), ["10.240.0.4:9090"]);
    assert!(step.is_stale("172.30.1.1:8000", "10.240.0.4:9090"));
    assert!(!step.is_stale("172.30.1.1:8000", "10.240.0.8:9090"));
}

/// An external IP on the node's own address, with the number of somebody's node port, comes before it.
#[test]
fn an_address_comes_before_a_node_port_of_the_same_number() {
    let mut shadow = udp();
    shadow.name = name("ns/a");
    shadow.cluster_ips.ipv4 = Some(ip("172.30.1.7"));
    shadow.load_balancer_vips.ipv4.clear();
    shadow.external_ips.ipv4 = vec![ip(NODE)];
    shadow.ports = vec![service_port("http", Protocol::Udp, 32000)];
    let mut slice = endpoints(&["10.240.0.9"]);
    slice.name.service = name("ns/a");
    let mut b = Bench::serving(&["10.240.0.4", "10.240.0.5"]);
    b.cluster.upsert_service(shadow);
    b.cluster.upsert_slice(slice.clone());
    let step = b.step();
    assert!(step.is_stale("172.30.0.3:32000", "10.240.0.4:9090"), "the node port's before, its own now");
    assert!(!step.is_stale("172.30.0.3:32000", "10.240.0.9:9090"));

    // A change of the node port's endpoints does not touch the other's flows.
    b.cluster.upsert_slice(endpoints(&["10.240.0.5"]));
    let step = b.step();
    assert_eq!(step.verdict("172.30.0.3:32000", "10.240.0.4:9090"), Verdict::Foreign);
    assert_eq!(step.verdict("1.2.3.4:8000", "10.240.0.4:9090"), Verdict::Stale);

    // When it goes, the node port takes its place.
    b.cluster.remove_service(&name("ns/a"));
    let step = b.step();
    assert!(step.is_stale("172.30.0.3:32000", "10.240.0.9:9090"));
    assert!(!step.is_stale("172.30.0.3:32000", "10.240.0.5:9090"));
}

/// The host got an address: node ports answer there, too, and flows that came before they did are not translated.
#[test]
fn a_new_address_of_the_host_is_looked_at() {
    let mut b = Bench::serving(&["10.240.0.4"]);
    b.addresses(&[NODE, "127.0.0.1", "172.30.0.9"]);
    let step = b.step();
    assert_eq!(step.looks(), ["172.30.0.9:*"]);
    assert!(step.is_stale("172.30.0.9:32000", "172.30.0.9:32000"));
    assert!(!step.is_stale("172.30.0.9:32001", "172.30.0.9:32001"));
    assert!(!step.is_stale("172.30.0.9:32000", "10.240.0.4:9090"));
    b.addresses(&[NODE, "127.0.0.1"]);
    assert!(b.step().is_empty());
    let mut plain = udp();
    plain.ports[0].node_port = None;
    b.cluster.upsert_service(plain);
    b.step();
    b.addresses(&[NODE, "172.30.0.9"]);
    assert!(b.step().is_empty(), "no node ports");
}

#[test]
fn the_other_family_is_judged_alike() {
    let mut s = udp();
    s.cluster_ips.ipv6 = Some(ip("fd00:96::a"));
    s.external_ips.ipv6 = vec![ip("2001:db8::5")];
    let six = |texts: &[&str]| {
        let mut slice = endpoints(texts);
        slice.name.name = "six".into();
        slice
    };
    let mut b = Bench::with(&["fd00::3", "::1"]);
    b.cluster.upsert_service(s);
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.cluster.upsert_slice(six(&["fd00:244::4", "fd00:244::5"]));
    b.step_in(IpFamily::Ipv6);
    b.cluster.upsert_slice(six(&["fd00:244::4"]));
    let step = b.step_in(IpFamily::Ipv6);
    assert_eq!(step.looks(), ["[fd00:244::5]:9090"]);
    for frontend in ["[fd00:96::a]:8000", "[2001:db8::5]:8000", "[fd00::3]:32000"] {
        assert!(step.is_stale(frontend, "[fd00:244::5]:9090"), "{frontend}");
        assert!(!step.is_stale(frontend, "[fd00:244::4]:9090"), "{frontend}");
    }
    assert!(!step.is_stale("[::1]:32000", "[fd00:244::5]:9090"));
    b.cluster.upsert_slice(endpoints(&["10.240.0.9"]));
    assert!(b.step_in(IpFamily::Ipv6).is_empty(), "nor does a change of IPv4 endpoints look at IPv6 flows");
}

/// The iptables backend serves node ports on loopback where it is asked to: on all of 127.0.0.0/8.
#[test]
fn node_ports_on_loopback_where_they_are_served() {
    let mut b = Bench::new();
    b.cluster.set_options(TrafficOptions {
        node_port_addresses: NodePortSelector::Cidrs(Vec::new()),
        localhost_node_ports: true,
        ..TrafficOptions::default()
    });
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let step = b.step();
    for address in ["127.0.0.1:32000", "127.1.2.3:32000"] {
        assert!(step.is_stale(address, "10.240.2.6:9090"), "{address}");
    }
}
