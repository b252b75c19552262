//! The edge cases of iptables spec 12, by number, as far as rules decide them.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod kit;

use std::sync::Arc;
use std::time::Duration;

use backend_iptables::names::Kind;
use backend_iptables::options::{CtInvalid, Facts, Options};
use backend_iptables::render::{LARGE_CLUSTER, render};
use backend_iptables::skeleton;
use kit::{Story, Tables, chain_of, cluster, endpoint, net, port, service, slice, traffic};
use proxier_core::backend::{Plan as _, RenderInput, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::cluster::{DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::model::{Conditions, Service, ServicePortSpec, SliceEndpoint, TrafficPolicy};
use proxier_xtables::objects::{Op, Table};

/// The tables for one Service.
fn tables(service: &Service, endpoints: Vec<SliceEndpoint>) -> Tables {
    with(traffic(), &Facts::default(), service, endpoints)
}

fn with(options: TrafficOptions, facts: &Facts, service: &Service, endpoints: Vec<SliceEndpoint>) -> Tables {
    let family = if service.cluster_ips.ipv6.is_some() { IpFamily::Ipv6 } else { IpFamily::Ipv4 };
    let mut cluster = cluster(options);
    cluster.upsert_service(service.clone());
    cluster.upsert_slice(slice(service, endpoints));
    Tables::of(&kit::full(cluster.commit().snapshot(family), facts))
}

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
    out.load_balancer_vips.ipv4.push(kit::ip("192.0.2.10"));
    out.external_ips.ipv4.push(kit::ip("192.0.2.77"));
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

fn nat(tables: &Tables, kind: Kind) -> Vec<String> {
    tables.chain(Table::Nat, &chain_of("front", kind))
}

fn has(tables: &Tables, kind: Kind) -> bool {
    tables.chains.contains_key(&skeleton::chain(Table::Nat, &chain_of("front", kind)))
}

/// Cases: iptables-12.1, iptables-12.6
#[test]
fn nowhere_to_go() {
    for endpoints in
        [vec![], vec![state(elsewhere(), false, false, false), state(here(), false, false, true)]]
    {
        let tables = tables(&balancer(), endpoints);
        let refused = tables.grep("has no endpoints");
        assert_eq!(refused.len(), 4, "{refused:#?}");
        assert!(refused.iter().all(|r| r.starts_with("filter ") && r.ends_with("icmp-port-unreachable")));
        assert_eq!(refused.iter().filter(|r| r.contains("KUBE-EXTERNAL-SERVICES")).count(), 3);
        assert_eq!((tables.count(Table::Filter), tables.count(Table::Nat)), (4 + 4, 5));
    }
}

/// Cases: iptables-12.2
#[test]
fn internal_local_without_an_endpoint_here() {
    let tables = tables(&internal_local(service("front", "10.96.0.1")), vec![elsewhere()]);
    let dropped = tables.grep("has no local endpoints");
    assert_eq!(dropped.len(), 1);
    assert!(dropped[0].contains("KUBE-SERVICES -d 10.96.0.1/32") && dropped[0].ends_with("-j DROP"));
    assert!(Kind::ALL[1..].iter().all(|k| !has(&tables, *k)));
    assert_eq!(tables.count(Table::Nat), 5);
}

/// Cases: iptables-12.3, iptables-12.38
#[test]
fn internal_local_leaves_external_traffic_alone() {
    let tables = tables(&internal_local(balancer()), vec![elsewhere()]);
    assert_eq!(tables.grep("has no local endpoints").len(), 1, "the cluster IP only");
    assert_eq!(tables.grep("has no local endpoints")[0].split(' ').nth(3), Some("10.96.0.1/32"));
    // The masquerade rule of cluster IPs belongs to the internal chain, which is not there.
    assert_eq!(nat(&tables, Kind::Cluster).len(), 1);
    assert_eq!(nat(&tables, Kind::External).len(), 2);
    assert!(nat(&tables, Kind::External)[0].ends_with("-j KUBE-MARK-MASQ"));
}

/// Cases: iptables-12.4
#[test]
fn external_local_without_an_endpoint_here() {
    let tables = tables(&local(balancer()), vec![elsewhere()]);
    let rules = nat(&tables, Kind::External);
    assert_eq!(rules.len(), 3, "pods, and this host twice: {rules:#?}");
    assert!(
        rules[0].starts_with("-s 10.244.0.0/16 ") && rules[2].ends_with(&chain_of("front", Kind::Cluster))
    );
    assert!(!has(&tables, Kind::Local));
    let dropped = tables.grep("has no local endpoints");
    assert_eq!(dropped.len(), 3);
    assert!(dropped.iter().all(|r| r.contains("KUBE-EXTERNAL-SERVICES") && r.ends_with("-j DROP")));
}

/// Cases: iptables-12.5
#[test]
fn one_that_is_going_elsewhere() {
    let tables = tables(&local(balancer()), vec![state(elsewhere(), false, true, true)]);
    assert!(nat(&tables, Kind::Cluster).iter().any(|r| r.contains("-> 10.244.1.1:8080")));
    assert_eq!(tables.grep("has no local endpoints").len(), 3);
    assert!(tables.grep("has no endpoints").is_empty());
}

/// Cases: iptables-12.7
#[test]
fn those_that_are_going_serve_when_no_other_does() {
    let going = |e| state(e, false, true, true);
    let alone = tables(&local(balancer()), vec![going(here()), going(elsewhere())]);
    assert_eq!(nat(&alone, Kind::Cluster).len(), 3);
    assert_eq!(nat(&alone, Kind::Local).len(), 1);
    let with_others = tables(&local(balancer()), vec![going(here()), elsewhere()]);
    assert_eq!(nat(&with_others, Kind::Cluster).len(), 2);
    assert!(nat(&with_others, Kind::Cluster)[1].contains("10.244.1.1"));
    assert!(nat(&with_others, Kind::Local)[0].contains("10.244.0.1"));
}

/// Cases: iptables-12.8
#[test]
fn an_address_that_is_used_again() {
    let old = state(elsewhere(), false, true, true);
    let new = SliceEndpoint { node: here().node, ..elsewhere() };
    for endpoints in [vec![old.clone(), new.clone()], vec![new, old]] {
        let tables = tables(&local(balancer()), endpoints);
        assert_eq!(nat(&tables, Kind::Local).len(), 1, "the one that stays decides where it is");
    }
}

/// Cases: iptables-12.9
#[test]
fn protocols_on_one_number() {
    let mut three = service("front", "10.96.0.1");
    for (name, protocol) in [("u", Protocol::Udp), ("s", Protocol::Sctp)] {
        three.ports.push(ServicePortSpec { name: name.into(), protocol, ..three.ports[0].clone() });
    }
    let tables = tables(&three, vec![here()]);
    let dispatch = tables.chain(Table::Nat, skeleton::SERVICES);
    for (protocol, name) in [("tcp", "http"), ("udp", "u"), ("sctp", "s")] {
        let want = format!(
            "-d 10.96.0.1/32 -p {protocol} -m comment --comment \"ns/front:{name} cluster IP\" -m {protocol} --dport 80 -j KUBE-SVC-"
        );
        assert_eq!(dispatch.iter().filter(|r| r.starts_with(&want)).count(), 1, "{want}");
    }
    assert_eq!(dispatch.len(), 4);
}

/// Cases: iptables-12.10
#[test]
fn an_unnamed_port_has_no_colon() {
    let mut unnamed = service("front", "10.96.0.1");
    unnamed.ports[0].name = "".into();
    let tables = tables(&unnamed, vec![here()]);
    assert!(tables.grep("ns/front:").is_empty());
    assert!(!tables.grep("--comment \"ns/front cluster IP\"").is_empty());
}

/// Cases: iptables-12.13, iptables-12.14
#[test]
fn source_ranges() {
    let mut front = balancer();
    front.source_ranges.ipv6.push(net("fd00::/64"));
    assert!(!has(&tables(&front, vec![here()]), Kind::Firewall), "ranges of the other family allow all");
    front.source_ranges.ipv4 = vec![net("203.0.113.0/24"), net("198.51.100.7/32")];
    let tables = tables(&front, vec![here()]);
    let firewall = chain_of("front", Kind::Firewall);
    let entries: Vec<String> = tables.grep(&format!("-j {firewall}"));
    assert_eq!(entries.len(), 1, "the VIP only: not the external IP, not the node port");
    assert!(entries[0].contains("-d 192.0.2.10/32"));
    let rules = nat(&tables, Kind::Firewall);
    // In the order of the specification; pods have no rule of their own.
    assert!(rules[0].starts_with("-s 203.0.113.0/24 ") && rules[1].starts_with("-s 198.51.100.7/32 "));
    assert_eq!(rules.len(), 3);
    assert!(!rules[2].contains("-j"));
    let dropped = tables.chain(Table::Filter, skeleton::PROXY_FIREWALL);
    assert_eq!(dropped.len(), 1);
    assert!(dropped[0].contains(&firewall) && dropped[0].ends_with("-j DROP"));
}

/// Cases: iptables-12.15
#[test]
fn this_nodes_address_in_a_range() {
    let mut front = balancer();
    front.source_ranges.ipv4.push(net("192.168.0.0/16"));
    assert!(nat(&tables(&front, vec![here()]), Kind::Firewall)[1].starts_with("-s 192.0.2.10/32 "));
    front.source_ranges.ipv4.push(net("127.0.0.0/8"));
    for own in [None, Some(kit::ip("127.0.0.1"))] {
        let mut cluster = cluster(traffic());
        let mut node = cluster.node().clone();
        node.ips.ipv4 = own;
        cluster.set_node(node);
        cluster.upsert_service(front.clone());
        cluster.upsert_slice(slice(&front, vec![here()]));
        let tables = Tables::of(&kit::full(cluster.commit().snapshot(IpFamily::Ipv4), &Facts::default()));
        assert!(nat(&tables, Kind::Firewall).iter().all(|r| !r.contains("192.0.2.10/32")), "{own:?}");
    }
}

/// Cases: iptables-12.16
#[test]
fn source_ranges_without_endpoints() {
    let mut front = balancer();
    front.source_ranges.ipv4.push(net("203.0.113.0/24"));
    let tables = tables(&front, vec![]);
    assert!(tables.chain(Table::Filter, skeleton::PROXY_FIREWALL).is_empty());
    assert!(!has(&tables, Kind::Firewall));
    assert_eq!(tables.grep("has no endpoints").len(), 4);
}

/// Cases: iptables-12.17
#[test]
fn health_check_node_ports() {
    let mut front = local(balancer());
    front.health_check_node_port = Some(port(32000));
    let mut story = Story::new(traffic(), Facts::default());
    story.set(&front, vec![]);
    let want = [
        "-p tcp -m comment --comment \"ns/front:http health check node port\" -m tcp --dport 32000 -j ACCEPT",
    ];
    assert_eq!(story.tables.chain(Table::Filter, skeleton::NODEPORTS), want);
    let name = front.name.clone();
    story.step(|c| {
        c.remove_service(&name);
    });
    assert!(story.tables.chain(Table::Filter, skeleton::NODEPORTS).is_empty());
}

fn tail(options: TrafficOptions, family: IpFamily) -> (Vec<String>, usize) {
    let snapshot = cluster(options).commit().snapshot(family).clone();
    let tables = Tables::of(&kit::full(&snapshot, &Facts::default()));
    let tail = tables.chain(Table::Nat, skeleton::SERVICES);
    let comment = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" ";
    let short = tail.iter().map(|r| r.replacen(comment, "", 1).replace(" -j KUBE-NODEPORTS", ""));
    (short.collect(), tables.chain(Table::Filter, skeleton::FIREWALL).len())
}

/// Where node ports answer, and whether the rule that guards loopback is there.
///
/// Cases: iptables-12.18, iptables-12.19, iptables-12.20, iptables-12.21, core-11.76
#[test]
fn node_port_addresses() {
    let ask = |localhost, list: &[&str], family| {
        let node_port_addresses = NodePortSelector::Cidrs(list.iter().map(|c| net(c)).collect());
        tail(TrafficOptions { localhost_node_ports: localhost, node_port_addresses, ..traffic() }, family)
    };
    let some =
        |rules: &[&str], guarded: usize| (rules.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>(), guarded);
    let (v4, v6) = (IpFamily::Ipv4, IpFamily::Ipv6);
    let everywhere = "-m addrtype --dst-type LOCAL";
    let six = some(&[&format!("! -d ::1/128 {everywhere}")], 0);
    assert_eq!(ask(true, &[], v4), some(&[everywhere], 1));
    assert_eq!(ask(false, &[], v4), some(&[&format!("! -d 127.0.0.0/8 {everywhere}")], 0));
    assert_eq!(ask(true, &[], v6), six);
    // 18
    assert_eq!(ask(true, &["127.0.0.0/8"], v4), some(&["-d 127.0.0.1/32"], 1));
    assert_eq!(ask(true, &["127.0.0.0/8"], v6), six);
    // 19
    assert_eq!(ask(false, &["192.168.0.0/24", "127.0.0.1/32"], v4), some(&["-d 192.168.0.2/32"], 0));
    // 20
    assert_eq!(ask(true, &["::1/128"], v6), some(&[], 0));
    assert_eq!(ask(true, &["::/0"], v6), six);
    // 21
    assert_eq!(ask(true, &["10.20.30.0/24"], v4), some(&[], 0));
    assert_eq!(ask(true, &["10.20.30.0/24"], v6), six);
}

/// Cases: iptables-12.24, iptables-12.25
#[test]
fn a_service_and_then_its_endpoints() {
    let mut story = Story::new(traffic(), Facts::default());
    story.set(&service("other", "10.96.0.9"), vec![here()]);
    let front = service("front", "10.96.0.1");
    let first = kit::lines(&story.set(&front, vec![]));
    assert_eq!(first.len(), 1);
    assert!(first[0].starts_with("filter -I KUBE-SERVICES -d 10.96.0.1/32 "));
    let second = kit::lines(&story.set(&front, vec![here()]));
    assert_eq!(second.iter().filter(|l| l.contains("KUBE-SERVICES")).count(), 2);
    assert!(second.last().unwrap().starts_with("filter -D KUBE-SERVICES -d 10.96.0.1/32 "));
    assert_eq!(story.step(|_| ()).operations(), 0, "no change, nothing written");
    let same = story.set(&front, vec![here()]);
    assert!(same.inputs().is_empty());
}

/// What another service has is not touched, not even in the chains that all share.
///
/// Cases: iptables-12.23, iptables-12.26
#[test]
fn an_endpoint_is_replaced() {
    let mut story = Story::new(traffic(), Facts::default());
    story.set(&service("other", "10.96.0.9"), vec![endpoint("10.244.0.7", true)]);
    let front = service("front", "10.96.0.1");
    story.set(&front, vec![here(), elsewhere()]);
    let lines = kit::lines(&story.set(&front, vec![here(), endpoint("10.244.1.2", false)]));
    assert!(lines.iter().all(|l| l.starts_with("nat ")), "{lines:#?}");
    assert!(lines.iter().all(|l| !l.contains("other") && !l.contains("KUBE-SERVICES")));
    let verbs: String = lines
        .iter()
        .filter_map(|l| l.as_bytes().get(4..6))
        .map(|v| v[usize::from(v[0] == b'-')] as char)
        .collect();
    // Two chains written and one emptied, their five rules, and only then the emptied one dropped.
    assert_eq!(verbs, ":::AAAAAX");
    assert_eq!(story.tables.in_meaning(), story.fresh().in_meaning());
}

fn many(count: usize) -> Vec<SliceEndpoint> {
    (0..count).map(|i| endpoint(&format!("10.244.{}.{}", i / 250, i % 250 + 1), i == 0)).collect()
}

/// Comments of endpoints, and how many rules of endpoints there are.
fn commented(tables: &Tables, name: &str) -> (usize, usize) {
    let endpoints = tables.grep("KUBE-SEP-");
    let of = |part: &str| tables.grep(part).len();
    (of(&format!("ns/{name}:http ->")) + of(&format!("--comment \"ns/{name}:http\"")), endpoints.len())
}

/// Cases: iptables-12.27, iptables-12.28, iptables-12.29, core-11.63
#[test]
fn large_clusters() {
    let mut story = Story::new(traffic(), Facts::default());
    let (big, small) = (service("big", "10.96.0.8"), service("front", "10.96.0.1"));
    story.set(&small, vec![here()]);
    story.set(&big, many(LARGE_CLUSTER - 1));
    assert_eq!(commented(&story.tables, "big").0, 3 * (LARGE_CLUSTER - 1), "1000 is not large yet");
    story.set(&big, many(LARGE_CLUSTER));
    assert_eq!(commented(&story.tables, "big").0, 0, "who is written now loses them");
    assert_eq!(commented(&story.tables, "front").0, 3, "who did not change keeps them");
    assert!(
        !story.tables.grep("ns/big:http cluster IP").is_empty(),
        "only what is repeated for each endpoint"
    );
    let rewritten = story.set(&small, vec![elsewhere()]);
    assert!(kit::lines(&rewritten).iter().all(|l| !l.contains("ns/front:http ->")));
    // What was deleted goes at once: nothing is swept later.
    let name = big.name.clone();
    story.step(|c| {
        c.remove_service(&name);
    });
    assert_eq!(story.tables.grep("KUBE-SEP-").len(), 3);
    assert_eq!(story.tables.count(Table::Nat), 5 + 2 + 3);
}

/// Cases: iptables-12.30
#[test]
fn an_endpoint_that_reaches_itself() {
    let none = TrafficOptions { detect_local: DetectLocal::ClusterCidr(Vec::new()), ..traffic() };
    let tables = with(none, &Facts::default(), &service("front", "10.96.0.1"), vec![here()]);
    let itself = tables.grep("-s 10.244.0.1/32 ");
    assert_eq!(itself.len(), 1);
    assert!(itself[0].ends_with("-j KUBE-MARK-MASQ"));
    assert_eq!(nat(&tables, Kind::Cluster).len(), 1, "and no other rule masquerades");
}

fn forward(facts: &Facts, options: &Options) -> Vec<String> {
    let snapshot = cluster(traffic()).commit().snapshot(IpFamily::Ipv4).clone();
    let (changes, set_aside) = (ChangeSet::between(None, &snapshot), SetAside::new());
    let input = RenderInput { snapshot: &snapshot, changes: &changes, belief: None, set_aside: &set_aside };
    Tables::of(&render(IpFamily::Ipv4, options, facts, input)).chain(Table::Filter, skeleton::FORWARD)
}

/// Cases: iptables-12.31, iptables-12.32
#[test]
fn invalid_packets() {
    let invalid = |ct_invalid| Options { ct_invalid, ..Options::default() };
    let liberal = Facts { tcp_be_liberal: true, ..Facts::default() };
    let plain = "-m conntrack --ctstate INVALID -j DROP";
    assert_eq!(forward(&Facts::default(), &invalid(CtInvalid::Auto))[0], plain);
    assert_eq!(forward(&liberal, &invalid(CtInvalid::Drop))[0], plain);
    let counted =
        "-m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP";
    assert_eq!(forward(&kit::counted(), &Options::default())[0], counted);
    for rules in [
        forward(&liberal, &invalid(CtInvalid::Auto)),
        forward(&Facts::default(), &invalid(CtInvalid::Ignore)),
    ] {
        assert_eq!(rules.len(), 2);
        assert!(rules.iter().all(|r| r.ends_with("-j ACCEPT")));
    }
}

/// A counter that is not there is not named, each for itself.
///
/// Cases: iptables-12.32
#[test]
fn counters_that_are_missing() {
    let front = balancer();
    for (count_invalid, count_localhost, rules) in
        [(false, false, 0), (true, false, 1), (false, true, 1), (true, true, 2)]
    {
        let facts = Facts { count_invalid, count_localhost, ..Facts::default() };
        assert_eq!(with(traffic(), &facts, &front, vec![here()]).grep("nfacct").len(), rules);
    }
    let off = TrafficOptions { localhost_node_ports: false, ..traffic() };
    assert_eq!(with(off, &kit::counted(), &front, vec![here()]).grep("nfacct").len(), 1);
}

/// Who compares may have rights that whoever wrote the rules lacked, and the other way round.
#[test]
fn rules_that_count_mean_the_same_as_those_that_do_not() {
    for (count_invalid, count_localhost) in [(true, true), (true, false), (false, false)] {
        let written = Facts { count_invalid, count_localhost, ..Facts::default() };
        let service = balancer();
        let there = with(traffic(), &written, &service, vec![here()]).saved();
        for comparing in [Facts::default(), kit::counted()] {
            assert_eq!(comparing.counting_like(&there), written);
        }
    }
}

/// Cases: iptables-12.33, iptables-12.34
#[test]
fn hints() {
    let hinted = |e: SliceEndpoint, zone: &str| {
        let mut e = e;
        e.hints.zones = Some(Arc::new([zone.into()]));
        e
    };
    let zone_a = |endpoints: Vec<SliceEndpoint>| {
        let front = local(balancer());
        let mut cluster = cluster(traffic());
        let mut node = cluster.node().clone();
        node.zone = Some("a".into());
        cluster.set_node(node);
        cluster.upsert_service(front.clone());
        cluster.upsert_slice(slice(&front, endpoints));
        Tables::of(&kit::full(cluster.commit().snapshot(IpFamily::Ipv4), &Facts::default()))
    };
    let all = zone_a(vec![here(), hinted(elsewhere(), "a")]);
    assert_eq!(nat(&all, Kind::Cluster).len(), 3, "one without a hint: hints do not count");
    let apart = zone_a(vec![hinted(here(), "b"), hinted(elsewhere(), "a")]);
    assert_eq!(nat(&apart, Kind::Cluster).len(), 2);
    assert!(nat(&apart, Kind::Cluster)[1].contains("10.244.1.1"));
    assert_eq!(nat(&apart, Kind::Local).len(), 1);
    assert!(nat(&apart, Kind::Local)[0].contains("10.244.0.1"));
    assert_eq!(apart.grep("DNAT").len(), 3, "both endpoints, and the rule that guards loopback");
}

/// Cases: iptables-12.35
#[test]
fn two_claim_one_address() {
    let mut older = balancer();
    older.name = proxier_core::ids::ServiceName::new("ns", "zz-older");
    older.cluster_ips.ipv4 = Some(kit::ip("10.96.0.2"));
    let mut younger = balancer();
    younger.created = Some(proxier_core::ids::Timestamp(5));
    let mut story = Story::new(traffic(), Facts::default());
    story.set(&younger, vec![here()]);
    story.set(&older, vec![here()]);
    for address in ["192.0.2.10/32", "192.0.2.77/32", "--dport 30080"] {
        let rules = story.tables.grep(address);
        assert_eq!(rules.len(), 1, "{rules:#?}");
        assert!(rules[0].contains("ns/zz-older:http"));
    }
    assert!(!has(&story.tables, Kind::External), "nothing leads there");
    let name = older.name.clone();
    story.step(|c| {
        c.remove_service(&name);
    });
    assert!(story.tables.grep("192.0.2.10/32")[0].contains("ns/front:http"));
    assert_eq!(story.tables.in_meaning(), story.fresh().in_meaning());
}

/// Cases: iptables-12.38
#[test]
fn masquerading_of_cluster_ips() {
    let rule = |options: TrafficOptions, service: &Service| {
        let tables = with(options, &Facts::default(), service, vec![here()]);
        let kind = if service.internal_policy == TrafficPolicy::Local { Kind::Local } else { Kind::Cluster };
        nat(&tables, kind).into_iter().find(|r| r.contains("cluster IP"))
    };
    let front = service("front", "10.96.0.1");
    let rest = "-d 10.96.0.1/32 -p tcp -m comment --comment \"ns/front:http cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ";
    let bridge = |detect_local| TrafficOptions { detect_local, ..traffic() };
    for front in [front.clone(), internal_local(front)] {
        let all = TrafficOptions { masquerade_all: true, ..traffic() };
        assert_eq!(rule(all, &front).unwrap(), rest);
        assert_eq!(rule(traffic(), &front).unwrap(), format!("! -s 10.244.0.0/16 {rest}"));
        let by_bridge = rule(bridge(DetectLocal::BridgeInterface("cni0".into())), &front).unwrap();
        assert_eq!(by_bridge, rest.replace("-p tcp", "! -i cni0 -p tcp"));
        let by_prefix = rule(bridge(DetectLocal::InterfaceNamePrefix("veth".into())), &front).unwrap();
        assert_eq!(by_prefix, rest.replace("-p tcp", "! -i veth+ -p tcp"));
        assert_eq!(rule(bridge(DetectLocal::ClusterCidr(Vec::new())), &front), None);
    }
}

/// Affinity: lists are asked before anything is left to chance, and without the match the rest still works.
#[test]
fn affinity() {
    let mut sticky = service("front", "10.96.0.1");
    sticky.affinity = Some(Duration::from_secs(600));
    let endpoints = || vec![here(), elsewhere(), endpoint("10.244.2.1", false)];
    let rules = nat(&tables(&sticky, endpoints()), Kind::Cluster);
    assert_eq!(rules.len(), 1 + 3 + 3);
    assert!(
        rules[1..4].iter().all(|r| r.contains("-m recent --rcheck --seconds 600 --reap --name KUBE-SEP-"))
    );
    let chances: Vec<bool> = rules[4..].iter().map(|r| r.contains("--probability")).collect();
    assert_eq!(chances, [true, true, false]);
    let facts = Facts { recent: false, ..Facts::default() };
    let mut cluster = cluster(traffic());
    cluster.upsert_service(sticky.clone());
    cluster.upsert_slice(slice(&sticky, endpoints()));
    let plan = kit::full(cluster.commit().snapshot(IpFamily::Ipv4), &facts);
    assert_eq!(nat(&Tables::of(&plan), Kind::Cluster).len(), 1 + 3);
    assert_eq!(plan.unsupported().len(), 1);
    assert!(plan.unsupported()[0].feature.starts_with("session affinity"));
}

/// A name that rules cannot carry sets aside its service port, and nothing else.
#[test]
fn names_that_would_break_a_line() {
    let mut bad = service("front", "10.96.0.1");
    bad.ports[0].name = "x\n-A INPUT -j ACCEPT".into();
    let mut cluster = cluster(traffic());
    for service in [&bad, &service("good", "10.96.0.2")] {
        cluster.upsert_service(service.clone());
        cluster.upsert_slice(slice(service, vec![here()]));
    }
    let plan = kit::full(cluster.commit().snapshot(IpFamily::Ipv4), &Facts::default());
    assert!(!plan.text().contains("-A INPUT -j ACCEPT"));
    assert_eq!(plan.unsupported().len(), 1);
    assert!(plan.unsupported()[0].feature.contains("'\\n'"));
    assert!(plan.text().contains("ns/good:http"));
}

/// iptables spec 6.5.
#[test]
fn numbers_of_rules() {
    let empty =
        Tables::of(&kit::full(cluster(traffic()).commit().snapshot(IpFamily::Ipv4), &Facts::default()));
    assert_eq!((empty.count(Table::Filter), empty.count(Table::Nat)), (4, 5));
    for n in [1, 2, 5, 20] {
        let tables = tables(&service("front", "10.96.0.1"), many(n));
        assert_eq!((tables.count(Table::Filter), tables.count(Table::Nat)), (4, 5 + 2 + 3 * n));
        let mut front = balancer();
        front.source_ranges.ipv4.push(net("203.0.113.0/24"));
        let tables = with(traffic(), &kit::counted(), &front, many(n));
        assert_eq!((tables.count(Table::Filter), tables.count(Table::Nat)), (4 + 1, 5 + 10 + 3 * n));
        let tables = with(traffic(), &kit::counted(), &front, vec![]);
        assert_eq!((tables.count(Table::Filter), tables.count(Table::Nat)), (4 + 4, 5));
    }
    let one = tables(&service("front", "10.96.0.1"), vec![]);
    assert_eq!((one.count(Table::Filter), one.count(Table::Nat)), (4 + 1, 5));
}

/// What a change of one endpoint writes does not depend on how many services there are.
#[test]
fn a_change_costs_what_changed() {
    let written = |services: u8| {
        let mut story = Story::new(traffic(), Facts::default());
        for i in 0..services {
            story.set(&service(&format!("s{i}"), &format!("10.96.1.{}", i + 1)), vec![here()]);
        }
        let front = service("front", "10.96.0.1");
        story.set(&front, many(5));
        let mut others = many(6);
        others.remove(2);
        story.set(&front, others).operations()
    };
    // Three chain lines; the dispatch with its six rules and the new endpoint's two; the old endpoint's chain dropped.
    assert_eq!(written(0), 3 + 8 + 1);
    assert_eq!(written(100), 3 + 8 + 1);
}

/// The tool's time grows with the square of the chains of an input.
#[test]
fn inputs_are_bounded() {
    let chains = |plan: &backend_iptables::plan::Plan| -> Vec<usize> {
        let count = |i: &proxier_xtables::objects::Input| {
            i.steps.iter().filter(|s| matches!(s.op, Op::Chain(_))).count()
        };
        plan.inputs().iter().map(count).collect()
    };
    let snapshot = |services: u32| {
        let options = TrafficOptions {
            first_services: Arc::new([proxier_core::ids::ServiceName::new("ns", "z-dns")]),
            ..traffic()
        };
        let mut cluster = cluster(options);
        let names = (0..services).map(|i| (format!("s{i}"), format!("10.96.{}.{}", i / 250, i % 250 + 1)));
        for (name, ip) in names.chain([("z-dns".to_owned(), "10.96.200.1".to_owned())]) {
            let service = service(&name, &ip);
            cluster.upsert_service(service.clone());
            cluster.upsert_slice(slice(&service, vec![here(), elsewhere()]));
        }
        cluster.commit().snapshot(IpFamily::Ipv4).clone()
    };
    let facts = Facts { chains_per_input: Some(100), ..Facts::default() };
    let plan = kit::full(&snapshot(300), &facts);
    let sizes = chains(&plan);
    assert!(sizes.len() >= 9 && sizes.iter().all(|n| *n <= 108), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 3 * 301 + 13);
    assert_eq!(plan.progress().last(), Some(&301));
    assert!(plan.progress().is_sorted());
    let legacy = Facts::of(backend_iptables::options::Variant::Legacy);
    let one = kit::full(&snapshot(300), &legacy);
    assert_eq!(one.inputs().len(), 1);
    assert_eq!(Tables::of(&one).in_meaning(), Tables::of(&plan).in_meaning());
    // The node's most urgent services are in the first input, and it ends with everything that leads there.
    let mut first = Tables::default();
    first.apply(&plan.inputs()[..1]);
    assert!(!first.grep("ns/z-dns:http cluster IP").is_empty());
    assert!(first.chain(Table::Nat, "PREROUTING")[0].ends_with("-j KUBE-SERVICES"));
    // After each input, every service that is dispatched to is whole.
    let mut tables = Tables::default();
    let whole = Tables::of(&plan);
    for input in plan.inputs() {
        tables.apply(std::slice::from_ref(input));
        let services = tables.chain(Table::Nat, skeleton::SERVICES);
        assert!(services.last().unwrap().ends_with("-j KUBE-NODEPORTS"));
        for (id, rules) in tables.chains.iter().filter(|(id, _)| Kind::of(&id.name).is_some()) {
            assert_eq!(whole.chains.get(id), Some(rules), "{}", id.name);
        }
    }
}
