//! Which flows go, by example (core spec 5.4, and what is done better).

use super::*;
use crate::cluster::{Cluster, NodePortSelector, TrafficOptions};
use crate::ids::{IpFamily, NodeName};
use crate::model::{Conditions, EndpointSlice, NodeFacts, Service};
use crate::tests::{ip, name, port, service, service_port, slice};

const NODE: &str = "172.30.0.3";

struct Bench {
    cluster: Cluster,
    old: Option<Snapshot>,
}

impl Bench {
    fn new() -> Self {
        let options = TrafficOptions {
            node_port_addresses: NodePortSelector::Cidrs(Vec::new()),
            ..TrafficOptions::default()
        };
        let mut cluster = Cluster::new(NodeName::new("node-1"), options);
        let host_addresses = vec![ip(NODE), ip("127.0.0.1")];
        cluster.set_node(NodeFacts { host_addresses, ..NodeFacts::default() });
        Self { cluster, old: None }
    }
    fn plan(&mut self) -> StaleFlows {
        let new = self.cluster.commit().snapshot(IpFamily::Ipv4).clone();
        let changes = ChangeSet::between(self.old.as_ref(), &new);
        let plan = StaleFlows::plan(self.old.as_ref(), &new, &changes);
        self.old = Some(new);
        plan
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

fn flow(destination: &str, reply: &str) -> Flow {
    let split = |t: &str| {
        let (a, p) = t.rsplit_once(':').unwrap();
        (ip(a), p.parse::<u16>().unwrap())
    };
    let ((destination, port), (reply_address, reply_port)) = (split(destination), split(reply));
    Flow { destination, port, reply_address, reply_port }
}

/// Cases: core-11.55, report-C4-44
#[test]
fn edge_55_the_table_of_the_spec() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "!10.240.1.5"]));
    let plan = b.plan();
    for (destination, reply, stale) in [
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
        ("127.0.0.1:32000", "10.240.2.6:9090", false),
    ] {
        assert_eq!(plan.is_stale(&flow(destination, reply)), stale, "{destination} <- {reply}");
    }
}

/// Cases: report-C4-49
#[test]
fn row_49_a_restart_with_unchanged_input_keeps_flows_to_live_endpoints() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let plan = b.plan();
    assert!(!plan.is_stale(&flow("172.30.1.1:8000", "10.240.0.4:9090")));
    assert!(b.plan().is_empty(), "and nothing is looked at when nothing changed");
}

/// Cases: core-11.56, report-C4-46
#[test]
fn row_46_the_last_endpoint_takes_its_flows_with_it() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.plan();
    b.cluster.upsert_slice(endpoints(&["!10.240.0.4"]));
    let plan = b.plan();
    assert!(plan.is_stale(&flow("172.30.1.1:8000", "10.240.0.4:9090")));
    assert!(plan.is_stale(&flow("172.30.0.3:32000", "10.240.0.4:9090")));
}

#[test]
fn a_deleted_service_takes_its_own_flows_and_no_others() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.plan();
    b.cluster.remove_service(&name("ns/u"));
    let plan = b.plan();
    assert!(plan.is_stale(&flow("172.30.1.1:8000", "10.240.0.4:9090")));
    assert!(
        !plan.is_stale(&flow("172.30.0.3:32000", "172.30.0.3:32000")),
        "a host's own socket on that port"
    );
}

/// Cases: report-C4-50
#[test]
fn row_50_flows_made_in_a_gap_go_when_the_service_appears() {
    let mut b = Bench::new();
    b.plan();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let plan = b.plan();
    assert!(plan.is_stale(&flow("172.30.1.1:8000", "172.30.1.1:8000")));
}

#[test]
fn growing_draining_and_policy_changes_leave_flows_alone() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.plan();
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "10.240.0.5"]));
    assert!(b.plan().is_empty(), "one more endpoint");
    b.cluster.upsert_slice(endpoints(&["~10.240.0.4", "10.240.0.5"]));
    assert!(b.plan().is_empty(), "terminating but serving");
    b.cluster.upsert_service(Service { internal_policy: crate::model::TrafficPolicy::Local, ..udp() });
    assert!(b.plan().is_empty(), "another policy");
}

#[test]
fn only_udp_is_looked_at_and_a_new_frontend_is() {
    let mut b = Bench::new();
    b.cluster.upsert_service(service("ns/t", "172.30.1.2"));
    b.cluster.upsert_slice(slice("ns/t", "s", &["10.240.0.9"]));
    assert!(b.plan().is_empty());
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    b.plan();
    let mut more = udp();
    more.external_ips.ipv4.push(ip("192.168.99.101"));
    b.cluster.upsert_service(more);
    let plan = b.plan();
    assert_eq!(plan.addresses.len(), 1);
    assert!(plan.is_stale(&flow("192.168.99.101:8000", "192.168.99.101:8000")));
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
    let plan = b.plan();
    assert!(plan.is_stale(&flow("1.2.3.4:8000", "10.240.2.6:9090")), "its VIP has some");
    assert!(!plan.is_stale(&flow("192.168.99.100:8000", "10.240.2.6:9090")));
}

/// An endpoint that is only not ready gets no new flow and keeps those it has.
///
/// Cases: core-11.34
#[test]
fn edge_34_an_unready_endpoint_that_serves_keeps_its_flows() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["10.240.0.4", "10.240.0.5"]));
    b.plan();
    let mut slice = endpoints(&["10.240.0.4", "10.240.0.6"]);
    slice.endpoints[0].conditions = Conditions { ready: false, serving: true, terminating: false };
    b.cluster.upsert_slice(slice);
    let plan = b.plan();
    assert!(!plan.is_stale(&flow("172.30.1.1:8000", "10.240.0.4:9090")));
    assert!(plan.is_stale(&flow("172.30.1.1:8000", "10.240.0.5:9090")), "this one is gone");
    let port = b.old.as_ref().unwrap().ports().next().unwrap().clone();
    assert_eq!(port.categories.cluster, [1], "new flows go to the other");
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
    b.plan();
    b.cluster.upsert_service(both(81));
    assert!(b.plan().is_empty());
    b.cluster.upsert_service(udp());
    assert!(b.plan().is_empty(), "nor does its end");
}

/// Flows are judged by what serves, as rules are: one that began before anything did goes when something does, and not before.
///
/// Cases: report-C4-43
#[test]
fn row_43_flows_go_when_the_first_endpoint_serves() {
    let mut b = Bench::new();
    b.cluster.upsert_service(udp());
    b.cluster.upsert_slice(endpoints(&["!10.240.0.4"]));
    let untranslated = flow("172.30.1.1:8000", "172.30.1.1:8000");
    assert!(!b.plan().is_stale(&untranslated), "it would only be made again");
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let plan = b.plan();
    assert!(plan.is_stale(&untranslated));
    assert!(!plan.is_stale(&flow("172.30.1.1:8000", "10.240.0.4:9090")), "those of its own rules stay");
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
    b.cluster.upsert_service(dns);
    b.cluster.upsert_slice(endpoints(&["10.240.0.4"]));
    let plan = b.plan();
    assert!(plan.is_stale(&flow("172.30.0.3:53", "172.30.0.3:53")));
    for port in [1, 52, 54, 8472, 51820, 65535] {
        let foreign = format!("{NODE}:{port}");
        assert!(!plan.is_stale(&flow(&foreign, &foreign)), "{foreign}");
    }
    let ours: Vec<_> = plan.addresses.keys().filter(|(address, _)| *address == ip(NODE)).collect();
    assert_eq!(ours, [&(ip(NODE), port(53))], "what is asked of the kernel names the port");
}
