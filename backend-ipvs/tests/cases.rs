//! The edge cases of ipvs spec 11, by number, as far as plans decide them; and what a change writes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

mod kit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backend_ipvs::diff;
use backend_ipvs::observed::{Observed, SeenReal, SeenSet};
use backend_ipvs::plan::Plan;
use backend_ipvs::sets::SetId;
use backend_ipvs::takeover;
use kit::{Story, endpoint, inputs, ip, lines, net, port, service, slice, traffic};
use proxier_core::backend::{DriftItem, Plan as _};
use proxier_core::cluster::{DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::model::{Conditions, NodeFacts, Service, ServicePortSpec, SliceEndpoint, TrafficPolicy};
use proxier_core::oracle::{Choice, Entry, Outcome, Packet};
use proxier_testkit::ipvs::Host;
use proxier_testkit::walk::WalkHost;

fn here() -> SliceEndpoint {
    endpoint("10.244.0.1", true)
}

fn elsewhere() -> SliceEndpoint {
    endpoint("10.244.1.1", false)
}

fn state(mut e: SliceEndpoint, ready: bool, serving: bool, terminating: bool) -> SliceEndpoint {
    e.conditions = Conditions { ready, serving, terminating };
    e
}

/// With a VIP, an external IP and a node port.
fn balancer() -> Service {
    let mut out = service("front", "10.96.0.1");
    out.ports[0].node_port = Some(port(30080));
    out.load_balancer_vips.ipv4.push(ip("192.0.2.10"));
    out.external_ips.ipv4.push(ip("192.0.2.77"));
    out
}

fn local(mut service: Service) -> Service {
    service.external_policy = TrafficPolicy::Local;
    service
}

fn internal_local(mut service: Service) -> Service {
    service.internal_policy = TrafficPolicy::Local;
    service
}

/// A cluster with one Service.
fn with(options: TrafficOptions, service: &Service, endpoints: Vec<SliceEndpoint>) -> Story {
    let mut story = Story::new(options);
    if service.cluster_ips.ipv6.is_some() {
        story.family = IpFamily::Ipv6;
    }
    story.set(service, endpoints);
    story
}

fn story(service: &Service, endpoints: Vec<SliceEndpoint>) -> Story {
    with(traffic(), service, endpoints)
}

/// Real servers of a virtual server, `tcp 10.96.0.1:80`, or that there is none.
fn real(host: &Host, name: &str) -> Option<Vec<String>> {
    let (protocol, socket) = name.split_once(' ').unwrap();
    let protocol = Protocol::ALL.into_iter().find(|p| p.as_str() == protocol).unwrap();
    let service = host.servers().get(&(protocol.number(), socket.parse().unwrap()))?;
    Some(service.real.iter().filter(|(_, weight)| **weight > 0).map(|(real, _)| real.to_string()).collect())
}

fn servers(host: &Host) -> Vec<String> {
    let name = |protocol: u8| Protocol::from_number(protocol).unwrap();
    host.servers().iter().map(|((protocol, socket), _)| format!("{} {socket}", name(*protocol))).collect()
}

fn entries(host: &Host, id: SetId) -> Vec<String> {
    let set = host.sets().get(&id.name(IpFamily::Ipv4)).unwrap();
    set.entries.iter().map(ToString::to_string).collect()
}

fn bound(host: &Host) -> Vec<String> {
    host.addresses().iter().map(ToString::to_string).collect()
}

/// Where a packet ends: `host`, or the interface that it arrives on.
fn end(story: &Story, from: &str, entry: &str, to: &str, number: u16) -> Outcome {
    sent(story, Some(Protocol::Tcp), from, entry, to, number)
}

fn sent(
    story: &Story,
    protocol: Option<Protocol>,
    from: &str,
    entry: &str,
    to: &str,
    number: u16,
) -> Outcome {
    let entry = if entry == "host" { Entry::Host } else { Entry::Interface(entry.into()) };
    let packet = Packet { source: ip(from), destination: ip(to), protocol, port: number, entry };
    let node = WalkHost::new(kit::node().host_addresses);
    story.host.walk(&packet, &node).unwrap().outcome().unwrap()
}

fn to(reals: &[&str], masquerade: bool) -> Outcome {
    let choice = |text: &&str| {
        let socket: std::net::SocketAddr = text.parse().unwrap();
        let endpoint = proxier_core::ids::EndpointAddr { ip: socket.ip(), port: port(socket.port()) };
        Choice { endpoint, weight: 1, masquerade }
    };
    Outcome::Endpoints(reals.iter().map(choice).collect())
}

const CLIENT: &str = "203.0.113.9";
const POD: &str = "10.244.0.9";
const NODE: &str = "192.168.0.2";
const EXTERNAL: [(&str, u16); 3] = [("192.0.2.10", 80), ("192.0.2.77", 80), (NODE, 30080)];

/// Virtual servers and entries are there all the same; a rule refuses at once what arrives, IPVS what this host sends.
///
/// Cases: ipvs-11.1
#[test]
fn nowhere_to_go() {
    for endpoints in
        [vec![], vec![state(elsewhere(), false, false, false), state(here(), false, false, true)]]
    {
        let story = story(&balancer(), endpoints);
        assert_eq!(servers(&story.host).len(), 4);
        for server in servers(&story.host) {
            assert_eq!(real(&story.host, &server), Some(vec![]), "{server}");
        }
        assert_eq!(entries(&story.host, SetId::ClusterIp), ["10.96.0.1,tcp:80"]);
        assert_eq!(entries(&story.host, SetId::Reject).len(), 4);
        for (address, number) in EXTERNAL.into_iter().chain([("10.96.0.1", 80)]) {
            for (from, entry) in [(CLIENT, "eth0"), (POD, "veth1"), (NODE, "host")] {
                assert_eq!(end(&story, from, entry, address, number), Outcome::Reject, "{from} {address}");
            }
        }
    }
}

/// Whatever else the Service has: kube-proxy would send to the cluster's endpoints where it is reachable from outside.
///
/// Cases: ipvs-11.2
#[test]
fn internal_policy_local_without_an_endpoint_here() {
    for service in [service("front", "10.96.0.1"), balancer()] {
        let story = story(&internal_local(service), vec![elsewhere()]);
        assert_eq!(real(&story.host, "tcp 10.96.0.1:80"), Some(vec![]));
        for (from, entry) in [(CLIENT, "eth0"), (POD, "veth1"), (NODE, "host"), ("10.96.0.1", "host")] {
            assert_eq!(end(&story, from, entry, "10.96.0.1", 80), Outcome::Drop, "{from}");
        }
    }
}

/// Pods and this host get to the cluster's endpoints, everybody else is dropped. A load balancer is told to stay away.
///
/// Cases: ipvs-11.3, ipvs-11.19
#[test]
fn external_policy_local_without_an_endpoint_here() {
    let mut front = local(balancer());
    front.health_check_node_port = Some(port(32000));
    let story = story(&front, vec![elsewhere()]);
    for (address, number) in EXTERNAL {
        let ask = |from, entry| end(&story, from, entry, address, number);
        assert_eq!(ask(CLIENT, "eth0"), Outcome::Drop);
        assert_eq!(ask(POD, "veth1"), to(&["10.244.1.1:8080"], false));
        assert_eq!(ask(NODE, "host"), to(&["10.244.1.1:8080"], true));
        assert_eq!(ask(address, "host"), to(&["10.244.1.1:8080"], true), "as this host sends");
    }
    assert_eq!(entries(&story.host, SetId::HealthCheck), ["32000"]);
    let mut open = balancer();
    open.health_check_node_port = None;
    let story = self::story(&open, vec![]);
    assert_eq!(entries(&story.host, SetId::HealthCheck), [""; 0]);
    let accepts = story.host.rules().get(IpFamily::Ipv4).print();
    assert!(accepts.contains("--match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT"));
}

/// Cases: ipvs-11.4, ipvs-11.15
#[test]
fn external_policy_local_with_endpoints_here() {
    let story = story(&local(balancer()), vec![here(), elsewhere()]);
    for (address, number) in EXTERNAL {
        assert_eq!(end(&story, CLIENT, "eth0", address, number), to(&["10.244.0.1:8080"], false));
    }
    let both = to(&["10.244.0.1:8080", "10.244.1.1:8080"], true);
    assert_eq!(end(&story, CLIENT, "eth0", "10.96.0.1", 80), both);
    assert_eq!(entries(&story.host, SetId::NodePortTcp), entries(&story.host, SetId::NodePortLocalTcp));
    let rules = story.host.rules().get(IpFamily::Ipv4).print();
    let keep = rules.find("KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN").unwrap();
    assert!(keep < rules.find("KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ").unwrap());
}

/// Cases: ipvs-11.5
#[test]
fn terminating_endpoints() {
    let leaving = |e| state(e, false, true, true);
    let real_of = |endpoints, server| real(&story(&local(balancer()), endpoints).host, server).unwrap();
    assert_eq!(real_of(vec![leaving(elsewhere())], "tcp 10.96.0.1:80"), ["10.244.1.1:8080"]);
    let mixed = || vec![leaving(here()), elsewhere()];
    assert_eq!(real_of(mixed(), "tcp 10.96.0.1:80"), ["10.244.1.1:8080"]);
    assert_eq!(real_of(mixed(), "tcp 192.0.2.10:80"), ["10.244.0.1:8080"]);
}

/// Cases: ipvs-11.6, ipvs-11.35
#[test]
fn without_a_detector() {
    let none = TrafficOptions { detect_local: DetectLocal::ClusterCidr(Vec::new()), ..traffic() };
    let story = with(none, &service("front", "10.96.0.1"), vec![here()]);
    let ask = |from, entry| end(&story, from, entry, "10.96.0.1", 80);
    let plain = to(&["10.244.0.1:8080"], false);
    let masqueraded = to(&["10.244.0.1:8080"], true);
    assert_eq!(ask("10.244.0.1", "veth0"), masqueraded, "it reaches itself");
    assert_eq!(ask(POD, "veth1"), plain);
    assert_eq!(ask(CLIENT, "eth0"), plain);
    assert_eq!(ask("10.96.0.1", "host"), masqueraded, "this host has the cluster IP as its source");
}

/// Cases: ipvs-11.7, ipvs-11.28, report-C5-53
#[test]
fn an_address_stays_until_its_last_port_goes() {
    let mut front = service("front", "10.96.0.1");
    let second =
        ServicePortSpec { name: "alt".into(), protocol: Protocol::Tcp, port: port(81), node_port: None };
    front.ports.push(second);
    front.external_ips.ipv4.push(ip("192.0.2.77"));
    let mut story = story(&front, vec![here(), elsewhere()]);
    story.busy = true;
    assert_eq!(bound(&story.host), ["10.96.0.1", "192.0.2.77"]);
    assert_eq!(servers(&story.host).len(), 4);
    front.ports.pop();
    story.set(&front, vec![here(), elsewhere()]);
    assert_eq!(bound(&story.host), ["10.96.0.1", "192.0.2.77"]);
    assert_eq!(servers(&story.host), ["tcp 10.96.0.1:80", "tcp 192.0.2.77:80"]);
    assert_eq!(end(&story, CLIENT, "eth0", "10.96.0.1", 81), Outcome::Reject);
    // Whatever connections there are.
    story.remove(&front);
    assert_eq!(bound(&story.host), [""; 0]);
    assert_eq!(servers(&story.host), [""; 0]);
    assert!(story.belief().drains().is_empty());
    for id in SetId::ALL {
        assert_eq!(entries(&story.host, id), [""; 0], "{id:?}");
    }
}

/// Cases: ipvs-11.9
#[test]
fn a_vip_that_is_the_hosts_own() {
    let mut front = service("front", "10.96.0.1");
    front.load_balancer_vips.ipv4.push(ip(NODE));
    let story = story(&front, vec![elsewhere()]);
    assert_eq!(bound(&story.host), ["10.96.0.1"]);
    assert_eq!(entries(&story.host, SetId::IpvsIps), ["10.96.0.1"]);
    assert_eq!(end(&story, CLIENT, "eth0", NODE, 80), to(&["10.244.1.1:8080"], true));
    assert_eq!(end(&story, CLIENT, "eth0", NODE, 22), Outcome::NotOurs, "the host stays reachable");
}

/// Cases: ipvs-11.10
#[test]
fn loopback_addresses_are_refused() {
    let mut front = service("front", "10.96.0.1");
    front.external_ips.ipv4 = vec![ip("127.0.0.1"), ip("192.0.2.77")];
    let mut story = story(&front, vec![here()]);
    assert_eq!(servers(&story.host), ["tcp 10.96.0.1:80", "tcp 192.0.2.77:80"]);
    assert_eq!(bound(&story.host), ["10.96.0.1", "192.0.2.77"]);
    let plan = kit::full(&story.snapshot());
    let [lacking] = plan.unsupported() else { panic!("{:?}", plan.unsupported()) };
    assert!(lacking.feature.contains("127.0.0.1"), "{lacking:?}");
}

/// Cases: ipvs-11.11
#[test]
fn an_external_ip_of_the_other_family() {
    let mut front = service("front", "10.96.0.1");
    front.external_ips.ipv6 = vec![ip("2001:db8::77")];
    assert_eq!(servers(&story(&front, vec![here()]).host), ["tcp 10.96.0.1:80"]);
}

/// Cases: ipvs-11.12
#[test]
fn three_protocols_on_one_number() {
    let mut front = service("front", "10.96.0.1");
    front.ports = Protocol::ALL
        .map(|protocol| ServicePortSpec {
            name: protocol.as_str().into(),
            protocol,
            port: port(80),
            node_port: None,
        })
        .to_vec();
    let story = story(&front, vec![here()]);
    assert_eq!(servers(&story.host), ["tcp 10.96.0.1:80", "udp 10.96.0.1:80", "sctp 10.96.0.1:80"]);
    assert_eq!(
        entries(&story.host, SetId::ClusterIp),
        ["10.96.0.1,tcp:80", "10.96.0.1,udp:80", "10.96.0.1,sctp:80"]
    );
    for protocol in Protocol::ALL {
        let outcome = sent(&story, Some(protocol), POD, "veth1", "10.96.0.1", 80);
        assert_eq!(outcome, to(&["10.244.0.1:8080"], false), "{protocol}");
    }
}

fn node_port(protocol: Protocol) -> Service {
    let mut out = service("front", "10.96.0.1");
    out.ports[0].protocol = protocol;
    out.ports[0].node_port = Some(port(30080));
    out
}

fn two_addresses(story: &mut Story) {
    story.step(|c| {
        let mut node = kit::node();
        node.host_addresses.push(ip("172.16.0.2"));
        c.set_node(node);
    });
}

/// Cases: ipvs-11.13, ipvs-11.14
#[test]
fn node_ports_of_udp_and_sctp() {
    for (protocol, kept, all, bitmap) in [
        (Protocol::Sctp, SetId::NodePortLocalSctp, SetId::NodePortSctp, false),
        (Protocol::Udp, SetId::NodePortLocalUdp, SetId::NodePortUdp, true),
    ] {
        let mut story = story(&local(node_port(protocol)), vec![here()]);
        two_addresses(&mut story);
        let want: &[&str] =
            if bitmap { &["30080"] } else { &["172.16.0.2,sctp:30080", "192.168.0.2,sctp:30080"] };
        assert_eq!(entries(&story.host, all), want);
        assert_eq!(entries(&story.host, kept), want);
        assert_eq!(entries(&story.host, SetId::NodePortTcp), [""; 0]);
        let servers = servers(&story.host);
        assert!(servers.contains(&format!("{protocol} 172.16.0.2:30080")), "{servers:?}");
        assert_eq!(servers.len(), 3, "no address of the other family: {servers:?}");
        let rules = story.host.rules().get(IpFamily::Ipv4).print();
        assert!(!rules.contains("KUBE-NODE-PORT -p tcp"), "{rules}");
    }
}

/// Cases: ipvs-11.16
#[test]
fn a_vip_of_mode_proxy() {
    let case =
        proxier_testkit::corpus::load(&proxier_testkit::corpus::folder().join("cases/lb-proxy-mode.yaml"));
    let case = case.unwrap();
    let mut host = Host::default();
    kit::apply(&mut host, &kit::full(case.commit.snapshot(IpFamily::Ipv4)));
    let vips: BTreeSet<String> = case
        .commit
        .snapshot(IpFamily::Ipv4)
        .ports()
        .flat_map(|p| p.spec.load_balancer_vips.iter().map(ToString::to_string))
        .collect();
    let listed: BTreeSet<String> = entries(&host, SetId::LoadBalancer)
        .iter()
        .filter_map(|e| Some(e.split_once(',')?.0.to_owned()))
        .collect();
    assert_eq!(listed, vips, "only those that the core calls VIPs");
}

/// Cases: ipvs-11.17, ipvs-11.18
#[test]
fn source_ranges_are_for_vips_and_for_this_host_too() {
    let mut front = balancer();
    front.source_ranges.ipv4 = vec![net("203.0.113.0/25"), net("10.244.0.0/24")];
    let mut story = story(&front, vec![elsewhere()]);
    let goes = to(&["10.244.1.1:8080"], true);
    let vip = |story: &Story, from, entry| end(story, from, entry, "192.0.2.10", 80);
    assert_eq!(vip(&story, CLIENT, "eth0"), goes);
    assert_eq!(vip(&story, "203.0.113.200", "eth0"), Outcome::Drop);
    assert_eq!(vip(&story, POD, "veth1"), goes);
    assert_eq!(vip(&story, "10.244.1.9", "veth1"), Outcome::Drop, "a pod that is not let in");
    for from in ["192.0.2.10", NODE] {
        assert_eq!(vip(&story, from, "host"), Outcome::Drop, "this host, from {from}");
    }
    assert_eq!(entries(&story.host, SetId::LoadBalancerSourceIp), [""; 0]);
    for (address, number) in [("192.0.2.77", 80), (NODE, 30080), ("10.96.0.1", 80)] {
        assert_eq!(end(&story, "203.0.113.200", "eth0", address, number), goes, "{address}");
    }
    front.source_ranges.ipv4.push(net("192.168.0.0/24"));
    story.set(&front, vec![elsewhere()]);
    assert_eq!(entries(&story.host, SetId::LoadBalancerSourceIp), ["192.0.2.10,tcp:80,192.0.2.10"]);
    for from in ["192.0.2.10", NODE] {
        assert_eq!(vip(&story, from, "host"), goes, "this host, from {from}");
    }
    // What the reference does with a rule for each VIP is done without: rules do not grow with Services.
    let rules = story.host.rules().get(IpFamily::Ipv4).print();
    assert!(!rules.contains("192.0.2.10"), "{rules}");
}

/// Cases: ipvs-11.20
#[test]
fn no_address_for_node_ports() {
    let nowhere = NodePortSelector::Cidrs(vec![net("172.31.0.0/16")]);
    let options = TrafficOptions { node_port_addresses: nowhere, ..traffic() };
    let mut front = local(balancer());
    front.health_check_node_port = Some(port(32000));
    let story = with(options, &front, vec![here()]);
    assert_eq!(entries(&story.host, SetId::NodePortTcp), [""; 0]);
    assert_eq!(servers(&story.host).len(), 3);
    assert_eq!(entries(&story.host, SetId::HealthCheck), ["32000"]);
}

/// Addresses of `kube-ipvs0` are not among the host's, wherever `nodePortAddresses` reach.
///
/// Cases: ipvs-11.21
#[test]
fn node_ports_do_not_answer_on_bound_addresses() {
    let wide = NodePortSelector::Cidrs(vec![net("192.0.2.0/24"), net("192.168.0.0/16")]);
    let options = TrafficOptions { node_port_addresses: wide, ..traffic() };
    let story = with(options, &balancer(), vec![here()]);
    assert_eq!(real(&story.host, "tcp 192.0.2.10:30080"), None);
    assert_eq!(end(&story, CLIENT, "eth0", "192.0.2.10", 30080), Outcome::Reject);
    assert!(real(&story.host, "tcp 192.168.0.2:30080").is_some());
}

/// What the kernel lists is what was written, also where it lists a range of one address without its length.
///
/// Cases: ipvs-11.24
#[test]
fn a_range_of_one_address_does_not_flicker() {
    let mut front = balancer();
    front.source_ranges.ipv4 = vec![net("198.51.100.7/32"), net("203.0.113.0/24")];
    let mut story = story(&front, vec![here()]);
    let seen = kit::observe(&story.host, IpFamily::Ipv4);
    assert!(diff::drift(story.belief(), &seen).is_empty());
    let again = takeover::take_over(kit::full(&story.snapshot()), &seen);
    assert_eq!(again.operations(), 0, "{:?}", lines(&again));
    // A change never takes away what is still wanted.
    front.source_ranges.ipv4.push(net("10.0.0.0/8"));
    let plan = story.set(&front, vec![here()]);
    assert_eq!(lines(&plan), ["add KUBE-LOAD-BALANCER-SOURCE-CIDR 192.0.2.10,tcp:80,10.0.0.0/8 -exist"]);
}

fn seen(story: &Story) -> Observed {
    kit::observe(&story.host, IpFamily::Ipv4)
}

fn taken_over(story: &mut Story, seen: &Observed) -> Plan {
    takeover::take_over(kit::full(&story.snapshot()), seen)
}

/// Cases: ipvs-11.25
#[test]
fn entries_that_others_changed() {
    let mut story = story(&balancer(), vec![here()]);
    story
        .host
        .apply("# ipset restore\nadd KUBE-CLUSTER-IP 10.96.0.99,tcp:80\ndel KUBE-CLUSTER-IP 10.96.0.1,tcp:80")
        .unwrap();
    let seen = kit::observe(&story.host, IpFamily::Ipv4);
    let items: Vec<String> =
        diff::drift(story.belief(), &seen).items.iter().map(ToString::to_string).collect();
    assert_eq!(
        items,
        [
            "missing: entry KUBE-CLUSTER-IP 10.96.0.1,tcp:80",
            "unexpected: entry KUBE-CLUSTER-IP 10.96.0.99,tcp:80"
        ]
    );
    let plan = taken_over(&mut story, &seen);
    assert_eq!(
        lines(&plan),
        ["add KUBE-CLUSTER-IP 10.96.0.1,tcp:80 -exist", "del KUBE-CLUSTER-IP 10.96.0.99,tcp:80 -exist"]
    );
    kit::apply(&mut story.host, &plan);
    assert!(diff::drift(story.belief(), &kit::observe(&story.host, IpFamily::Ipv4)).is_empty());
}

/// Cases: ipvs-11.26
#[test]
fn a_set_of_another_type() {
    let story = story(&balancer(), vec![here()]);
    let mut seen = kit::observe(&story.host, IpFamily::Ipv4);
    let other =
        SeenSet { other_type: Some("hash:net".into()), entries: BTreeSet::new(), strange: Vec::new() };
    seen.sets.insert(SetId::LoadBalancerFw, other);
    let items = diff::drift(story.belief(), &seen).items;
    let [DriftItem::Different(want, there)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(want, "set KUBE-LOAD-BALANCER-FW hash:ip,port");
    assert_eq!(there, "set KUBE-LOAD-BALANCER-FW is a hash:net, not a hash:ip,port");
}

/// Ours is what our sets or `kube-ipvs0` name; everything else stays, and so does what is excluded.
///
/// Cases: ipvs-11.27
#[test]
fn whose_a_virtual_server_is() {
    let mut story = story(&balancer(), vec![here()]);
    story.options.exclude_cidrs = vec![net("192.0.2.64/26")];
    let foreign = "# ipvsadm --restore\n-A -t 5.5.5.5:80 -s wlc\n-a -t 5.5.5.5:80 -r 6.6.6.6:80 -m -w 3\n-A -u 192.168.0.2:514 -s rr\n";
    story.host.apply(foreign).unwrap();
    let empty = Story::new(traffic()).snapshot();
    let plan = kit::planned(&empty, &story.options, None);
    let plan = takeover::take_over(plan, &kit::observe(&story.host, IpFamily::Ipv4));
    kit::apply(&mut story.host, &plan);
    assert_eq!(servers(&story.host), ["tcp 5.5.5.5:80", "tcp 192.0.2.77:80", "udp 192.168.0.2:514"]);
    assert_eq!(real(&story.host, "tcp 5.5.5.5:80").unwrap(), ["6.6.6.6:80"]);
    // A kube-proxy's sets name node ports by their number.
    let mut theirs = Host::default();
    theirs
        .load_ipset("create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\n")
        .unwrap();
    theirs.load_ipvsadm("-A -t 192.168.0.2:30080 -s rr\n-A -t 5.5.5.5:30080 -s rr\n").unwrap();
    let plan = takeover::take_over(kit::full(&empty), &kit::observe(&theirs, IpFamily::Ipv4));
    let gone: Vec<String> = lines(&plan).into_iter().filter(|l| l.starts_with("-D")).collect();
    assert_eq!(gone, ["-D -t 192.168.0.2:30080"]);
}

/// Cases: ipvs-11.28, ipvs-11.29, report-C5-55
#[test]
fn what_waits_for_its_connections() {
    for protocol in Protocol::ALL {
        let front = node_port(protocol);
        let mut story = story(&front, vec![here(), elsewhere()]);
        story.busy = true;
        let plan = story.set(&front, vec![here()]);
        let option =
            ["-t", "-u", "--sctp-service"][Protocol::ALL.iter().position(|p| *p == protocol).unwrap()];
        let (command, end) = if protocol == Protocol::Udp { ("-d", "") } else { ("-e", " -m -w 0") };
        let line = |server: &str| format!("{command} {option} {server} -r 10.244.1.1:8080{end}");
        assert_eq!(lines(&plan), [line("10.96.0.1:80"), line("192.168.0.2:30080")]);
        assert_eq!(story.belief().drains().len(), if protocol == Protocol::Udp { 0 } else { 2 });
        // Nothing more is written while they wait.
        assert_eq!(story.plan().operations(), 0);
    }
}

/// Its connections go on.
///
/// Cases: ipvs-11.30
#[test]
fn an_endpoint_that_comes_back_takes_part_again() {
    let front = service("front", "10.96.0.1");
    let mut story = story(&front, vec![here(), elsewhere()]);
    story.busy = true;
    story.set(&front, vec![here()]);
    let plan = story.set(&front, vec![here(), elsewhere()]);
    assert_eq!(lines(&plan), ["-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1"]);
    assert!(story.belief().drains().is_empty());
}

/// Cases: ipvs-11.31
#[test]
fn a_new_process_reads_who_waits_from_the_kernel() {
    let front = service("front", "10.96.0.1");
    let mut story = story(&front, vec![here(), elsewhere()]);
    story.busy = true;
    story.set(&front, vec![here()]);
    let there = seen(&story);
    let plan = taken_over(&mut story, &there);
    assert_eq!(plan.operations(), 0, "{:?}", lines(&plan));
    assert_eq!(plan.next().drains(), story.belief().drains(), "it goes on");
    assert!(diff::drift(plan.next(), &kit::observe(&story.host, IpFamily::Ipv4)).is_empty());
    // One that is wanted by now.
    story.cluster.upsert_slice(slice(&front, vec![here(), elsewhere()]));
    let plan = taken_over(&mut story, &there);
    assert_eq!(lines(&plan), ["-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1"]);
    assert!(plan.next().drains().is_empty());
    // And one that somebody gave another weight.
    let mut seen = kit::observe(&story.host, IpFamily::Ipv4);
    let service = seen.services.values_mut().next().unwrap();
    for real in service.real.values_mut() {
        *real = SeenReal { weight: 5, ..SeenReal::PLAIN };
    }
    assert_eq!(lines(&taken_over(&mut story, &seen)).len(), 2);
}

/// Cases: ipvs-11.33
#[test]
fn affinity_is_switched_in_place() {
    let mut front = balancer();
    let mut story = story(&front, vec![here()]);
    let servers = ["10.96.0.1:80", "192.0.2.10:80", "192.0.2.77:80", "192.168.0.2:30080"];
    front.affinity = Some(Duration::from_secs(600));
    let on = story.set(&front, vec![here()]);
    assert_eq!(lines(&on), servers.map(|s| format!("-E -t {s} -s rr -p 600")));
    front.affinity = None;
    let off = story.set(&front, vec![here()]);
    assert_eq!(lines(&off), servers.map(|s| format!("-E -t {s} -s rr")));
    story.options.scheduler = "mh".into();
    let other = story.step(|_| {});
    assert_eq!(lines(&other), servers.map(|s| format!("-E -t {s} -s mh -b mh-port")));
}

/// The older one has it, whoever comes first.
///
/// Cases: ipvs-11.34
#[test]
fn two_claim_one_external_ip() {
    let with_ip = |name: &str, cluster_ip: &str| {
        let mut out = service(name, cluster_ip);
        out.external_ips.ipv4.push(ip("192.0.2.77"));
        out
    };
    let (mut older, younger) = (with_ip("older", "10.96.0.1"), with_ip("younger", "10.96.0.2"));
    older.created = Some(proxier_core::ids::Timestamp(-1));
    for turned in [false, true] {
        let mut story = Story::new(traffic());
        let mut both = [(&older, here()), (&younger, elsewhere())];
        if turned {
            both.reverse();
        }
        for (service, endpoint) in both {
            story.set(service, vec![endpoint]);
        }
        assert_eq!(real(&story.host, "tcp 192.0.2.77:80").unwrap(), ["10.244.0.1:8080"]);
        let plan = story.remove(&older);
        assert_eq!(real(&story.host, "tcp 192.0.2.77:80").unwrap(), ["10.244.1.1:8080"]);
        assert!(
            !lines(&plan).iter().any(|l| l.contains("address") && l.contains("192.0.2.77")),
            "it stays local"
        );
    }
}

/// Cases: ipvs-11.36
#[test]
fn what_no_service_has_is_refused() {
    let story = story(&balancer(), vec![here()]);
    for address in ["10.96.0.1", "192.0.2.10", "192.0.2.77"] {
        for (from, entry) in [(CLIENT, "eth0"), (POD, "veth1"), (NODE, "host")] {
            assert_eq!(sent(&story, None, from, entry, address, 0), Outcome::Reject, "a ping of {address}");
            assert_eq!(end(&story, from, entry, address, 22), Outcome::Reject, "{address}");
        }
    }
    let rules = story.host.rules().get(IpFamily::Ipv4).print();
    let last =
        "-A KUBE-IPVS-FILTER -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT";
    assert!(rules.contains(last), "established connections of this host are not touched");
}

/// Cases: ipvs-11.22, ipvs-11.38
#[test]
fn node_addresses_come_and_go() {
    let one = NodePortSelector::Cidrs(vec![net("192.168.0.0/24"), net("172.16.0.0/12")]);
    let options = TrafficOptions { node_port_addresses: one, ..traffic() };
    let mut story = with(options, &node_port(Protocol::Tcp), vec![here()]);
    let node_ports = |story: &Story| -> Vec<String> {
        servers(&story.host).into_iter().filter(|s| s.ends_with(":30080")).collect()
    };
    assert_eq!(node_ports(&story), ["tcp 192.168.0.2:30080"]);
    two_addresses(&mut story);
    assert_eq!(node_ports(&story), ["tcp 172.16.0.2:30080", "tcp 192.168.0.2:30080"]);
    story.step(|c| {
        c.set_node(NodeFacts { host_addresses: vec![ip("172.16.0.2"), ip("10.0.0.5")], ..kit::node() });
    });
    // The node's own address counts, whether an interface has it or not.
    assert_eq!(node_ports(&story), ["tcp 172.16.0.2:30080", "tcp 192.168.0.2:30080"]);
    let plan = story.step(|c| {
        let nodes = NodeFacts { host_addresses: vec![ip("10.0.0.5")], ..NodeFacts::default() };
        c.set_node(nodes);
    });
    assert_eq!(node_ports(&story), [""; 0]);
    assert!(lines(&plan).contains(&"-D -t 172.16.0.2:30080".to_owned()));
}

/// An address that is the node's own and has the number of a node port comes before that, and gives it back.
#[test]
fn an_external_ip_with_the_number_of_a_node_port() {
    let mut story = story(&node_port(Protocol::Tcp), vec![here()]);
    let mut other = service("other", "10.96.0.2");
    other.ports[0].port = port(30080);
    other.external_ips.ipv4.push(ip(NODE));
    let held = story.set(&other, vec![elsewhere()]);
    assert_eq!(real(&story.host, "tcp 192.168.0.2:30080").unwrap(), ["10.244.1.1:8080"]);
    assert!(!lines(&held).iter().any(|l| l.starts_with("-D") || l.starts_with("-A -t 192.168")), "in place");
    story.remove(&other);
    assert_eq!(real(&story.host, "tcp 192.168.0.2:30080").unwrap(), ["10.244.0.1:8080"]);
    let seen = kit::observe(&story.host, IpFamily::Ipv4);
    assert!(diff::drift(story.belief(), &seen).is_empty());
}

/// Every difference of a kind, named.
#[test]
fn every_drift_is_named() {
    let mut front = balancer();
    front.source_ranges.ipv4 = vec![net("203.0.113.0/24")];
    let mut story = story(&front, vec![here(), elsewhere()]);
    let damage = "\
# ipvsadm --restore
-D -t 192.0.2.77:80
-E -t 192.0.2.10:80 -s wlc
-d -t 10.96.0.1:80 -r 10.244.0.1:8080
-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 0
-a -t 10.96.0.1:80 -r 10.9.9.9:1 -m -w 1
-a -t 10.96.0.1:80 -r 10.9.9.8:1 -m -w 0
-A -u 10.96.0.1:53 -s rr
# ip -batch -
address del 192.0.2.77/32 dev kube-ipvs0
address add 192.0.2.99/32 dev kube-ipvs0
# iptables-restore --noflush
*filter
-D KUBE-SOURCE-RANGES-FIREWALL -j DROP
-A KUBE-FORWARD -j DROP
-F INPUT
COMMIT
";
    story.host.apply(damage).unwrap();
    let seen = kit::observe(&story.host, IpFamily::Ipv4);
    let items: Vec<String> =
        diff::drift(story.belief(), &seen).items.iter().map(ToString::to_string).collect();
    let jump = |comment: &str, to: &str| {
        format!("missing: rule filter -A INPUT -m comment --comment \"{comment}\" -j {to}")
    };
    let mut want = vec![
        "missing: virtual server -t 192.0.2.77:80 -s rr".to_owned(),
        "different: want virtual server -t 192.0.2.10:80 -s rr, seen virtual server -t 192.0.2.10:80 -s wlc".into(),
        "missing: real server -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1".into(),
        "different: want real server -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1, seen real server -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 0".into(),
        "unexpected: real server -t 10.96.0.1:80 -r 10.9.9.9:1 -m -w 1".into(),
        "unexpected: virtual server -u 10.96.0.1:53 -s rr".into(),
        "missing: address 192.0.2.77 of kube-ipvs0".into(),
        "unexpected: address 192.0.2.99 of kube-ipvs0".into(),
        "missing: rule filter -A KUBE-SOURCE-RANGES-FIREWALL -j DROP".into(),
        "unexpected: rule filter -A KUBE-FORWARD -j DROP".into(),
        jump("kubernetes health check rules", "KUBE-NODE-PORT"),
        jump("kube-proxy firewall rules", "KUBE-PROXY-FIREWALL"),
        jump("kubernetes ipvs access filter", "KUBE-IPVS-FILTER"),
    ];
    want.sort();
    let mut found = items;
    found.sort();
    assert_eq!(found, want);
    // And taken over, it is as it was.
    let plan = taken_over(&mut story, &seen);
    kit::apply(&mut story.host, &plan);
    assert!(diff::drift(story.belief(), &kit::observe(&story.host, IpFamily::Ipv4)).is_empty());
}

/// How much a change writes: rules do not grow with Services, and nothing grows with the cluster.
#[test]
fn what_a_change_writes() {
    let mut story = Story::new(traffic());
    for number in 0..40 {
        story.set(&service(&format!("s{number}"), &format!("10.96.1.{number}")), vec![here(), elsewhere()]);
    }
    let front = balancer();
    let first = story.set(&front, vec![here(), elsewhere()]);
    // A virtual server each, its entries, its real servers, and the addresses: 4 + 8 + 8 + 3; and rules for three kinds of frontends.
    assert_eq!((lines(&first).len(), inputs(&first)), (4 + 8 + 8 + 3, 1), "{:#?}", lines(&first));
    let mut second = balancer();
    second.name.name = Arc::from("second");
    second.cluster_ips.ipv4 = Some(ip("10.96.0.3"));
    second.load_balancer_vips.ipv4 = vec![ip("192.0.2.11")];
    second.external_ips.ipv4 = vec![ip("192.0.2.78")];
    second.ports[0].node_port = Some(port(30081));
    let more = story.set(&second, vec![here(), elsewhere()]);
    assert_eq!((lines(&more).len(), inputs(&more)), (4 + 8 + 8 + 3, 0), "{:#?}", lines(&more));
    let replaced = story.set(&front, vec![here(), endpoint("10.244.2.1", false)]);
    assert_eq!((lines(&replaced).len(), inputs(&replaced)), (8, 0));
    let gone = story.remove(&second);
    assert_eq!((lines(&gone).len(), inputs(&gone)), (3 + 4 + 8, 0), "{:#?}", lines(&gone));
    let rules =
        story.host.rules().get(IpFamily::Ipv4).print().lines().filter(|l| l.starts_with("-A")).count();
    assert_eq!(rules, 43);
    assert_eq!(story.step(|_| {}).operations(), 0);
}

/// A cold start is a row of steps, each with whole service ports, those that the node needs first in front.
#[test]
fn a_cold_start_goes_step_by_step() {
    let first = proxier_core::ids::ServiceName::new("ns", "s0700");
    let options = TrafficOptions { first_services: [first].into(), ..traffic() };
    let mut cluster = kit::cluster(options);
    for number in 0..1200 {
        let service = service(&format!("s{number:04}"), &format!("10.97.{}.{}", number / 250, number % 250));
        cluster.upsert_slice(slice(&service, vec![here()]));
        cluster.upsert_service(service);
    }
    let plan = kit::full(cluster.commit().snapshot(IpFamily::Ipv4));
    let ports: Vec<usize> = plan.steps().iter().map(|s| s.ports).collect();
    assert_eq!(ports, [500, 1000, 1200]);
    let step = |server: &str| {
        plan.steps().iter().position(|s| s.actions.iter().any(|a| a.op.text(IpFamily::Ipv4).contains(server)))
    };
    assert_eq!(step("-A -t 10.97.2.200:80"), Some(0), "first");
    assert_eq!(step("-A -t 10.97.4.199:80"), Some(2));
    assert_eq!(inputs(&plan), 1);
    let mut host = Host::default();
    kit::apply(&mut host, &plan);
    assert_eq!(host.servers().iter().count(), 1200);
    let seen = kit::observe(&host, IpFamily::Ipv4);
    assert!(diff::drift(plan.next(), &seen).is_empty());
}
