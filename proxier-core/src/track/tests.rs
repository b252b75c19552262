//! Change tracking: collapsing, merging, conflicts, cost.

use std::sync::Arc;

use proptest::prelude::*;

use crate::changes::ChangeSet;
use crate::cluster::{Cluster, TrafficOptions};
use crate::ids::{IpFamily, NodeName, Protocol, Timestamp};
use crate::model::{NodeFacts, Service, SlicePort, TrafficPolicy};
use crate::snapshot::{ServicePort, Snapshot};
use crate::tests::{ip, name, port, port_name, service, service_port, slice};

const V4: IpFamily = IpFamily::Ipv4;

fn cluster() -> Cluster {
    Cluster::new(NodeName::new("node-1"), TrafficOptions::default())
}

fn commit(cluster: &mut Cluster) -> Snapshot {
    cluster.commit().snapshot(V4).clone()
}

fn http(snapshot: &Snapshot, service: &str) -> Arc<ServicePort> {
    Arc::clone(snapshot.port(&port_name(service, "http", Protocol::Tcp)).unwrap())
}

fn addrs(port: &ServicePort) -> Vec<String> {
    port.endpoints.iter().map(|e| e.addr.to_string()).collect()
}

/// Cases: core-11.19
#[test]
fn edge_19_add_then_delete_is_nothing() {
    let mut c = cluster();
    assert!(c.upsert_service(service("ns/a", "10.0.0.1")));
    c.remove_service(&name("ns/a"));
    let done = c.commit();
    assert!(!done.changed.ipv4);
    assert_eq!(done.snapshot(V4).generation().0, 0);
}

/// Cases: core-11.20
#[test]
fn edge_20_a_change_and_back_is_nothing() {
    let mut c = cluster();
    c.upsert_service(service("ns/a", "10.0.0.1"));
    let first = commit(&mut c);
    c.upsert_service(Service {
        ports: vec![service_port("http", Protocol::Tcp, 81)],
        ..service("ns/a", "10.0.0.1")
    });
    c.upsert_service(service("ns/a", "10.0.0.1"));
    let second = commit(&mut c);
    assert_eq!(first.generation(), second.generation());
    assert!(!c.upsert_service(service("ns/a", "10.0.0.1")), "an identical object leaves nothing pending");
}

/// Cases: core-11.21, core-11.22
#[test]
fn edge_21_and_22_ports_are_removed_and_renamed() {
    let two = vec![service_port("http", Protocol::Tcp, 80), service_port("https", Protocol::Tcp, 443)];
    let mut c = cluster();
    c.upsert_service(Service { ports: two, ..service("ns/a", "10.0.0.1") });
    c.upsert_slice(slice("ns/a", "s", &["10.1.0.1"]));
    let first = commit(&mut c);
    assert_eq!(first.len(), 2);
    c.upsert_service(service("ns/a", "10.0.0.1"));
    let second = commit(&mut c);
    let changes = ChangeSet::between(Some(&first), &second);
    assert_eq!(changes.ports.len(), 1);
    assert_eq!(changes.ports[0].name, port_name("ns/a", "https", Protocol::Tcp));
    assert!(changes.ports[0].new.is_none());

    c.upsert_service(Service {
        ports: vec![service_port("web", Protocol::Tcp, 80)],
        ..service("ns/a", "10.0.0.1")
    });
    let third = commit(&mut c);
    let renamed = third.port(&port_name("ns/a", "web", Protocol::Tcp)).unwrap();
    assert!(renamed.endpoints.is_empty(), "endpoints follow only when the slice uses the new name");
    assert_eq!(renamed.frontends.len(), 1, "the new name owns the address at once");
    let mut moved = slice("ns/a", "s", &["10.1.0.1"]);
    moved.ports[0].name = "web".into();
    c.upsert_slice(moved);
    let fourth = commit(&mut c);
    assert_eq!(addrs(fourth.port(&port_name("ns/a", "web", Protocol::Tcp)).unwrap()), ["10.1.0.1:8080"]);
}

/// Cases: core-11.23
#[test]
fn edge_23_one_number_two_protocols() {
    let mut c = cluster();
    let ports = vec![service_port("dns", Protocol::Udp, 53), service_port("dns-tcp", Protocol::Tcp, 53)];
    c.upsert_service(Service { ports, ..service("ns/dns", "10.0.0.10") });
    let snapshot = commit(&mut c);
    assert_eq!(snapshot.len(), 2);
    assert!(snapshot.ports().all(|p| p.frontends.len() == 1 && p.conflicts.is_empty()));
}

/// Cases: core-11.28, report-C1-1
#[test]
fn edge_28_running_beats_terminating_in_any_order() {
    for slices in [["a", "b"], ["b", "a"]] {
        let mut c = cluster();
        c.upsert_service(service("ns/a", "10.0.0.1"));
        c.upsert_slice(slice("ns/a", slices[0], &["~10.1.0.9@node-1"]));
        c.upsert_slice(slice("ns/a", slices[1], &["10.1.0.9@node-2"]));
        let port = http(&commit(&mut c), "ns/a");
        assert_eq!(port.endpoints.len(), 1);
        assert!(port.endpoints[0].conditions.ready);
        assert_eq!(port.endpoints[0].node.as_deref(), Some("node-2"));
    }
}

/// Cases: core-11.29, report-C1-2
#[test]
fn edge_29_one_address_two_ports() {
    let mut c = cluster();
    c.upsert_service(service("ns/a", "10.0.0.1"));
    c.upsert_slice(slice("ns/a", "a", &["10.1.0.1"]));
    let mut other = slice("ns/a", "b", &["10.1.0.1"]);
    other.ports[0].port = port(80);
    c.upsert_slice(other);
    assert_eq!(addrs(&http(&commit(&mut c), "ns/a")), ["10.1.0.1:80", "10.1.0.1:8080"]);
}

/// Cases: core-11.30
#[test]
fn edge_30_namespaces_are_apart() {
    let mut c = cluster();
    c.upsert_service(service("one/a", "10.0.0.1"));
    c.upsert_service(service("two/a", "10.0.0.2"));
    c.upsert_slice(slice("one/a", "s", &["10.1.0.1"]));
    c.upsert_slice(slice("two/a", "s", &["10.1.0.2"]));
    let snapshot = commit(&mut c);
    assert_eq!(addrs(&http(&snapshot, "one/a")), ["10.1.0.1:8080"]);
    assert_eq!(addrs(&http(&snapshot, "two/a")), ["10.1.0.2:8080"]);
}

/// Cases: core-11.31, core-11.32, core-11.33
#[test]
fn edge_31_32_33_slices_repeat_go_and_stay() {
    let mut c = cluster();
    c.upsert_service(service("ns/a", "10.0.0.1"));
    c.upsert_slice(slice("ns/a", "a", &["10.1.0.1"]));
    c.upsert_slice(slice("ns/a", "b", &["10.1.0.2"]));
    commit(&mut c);
    assert!(!c.upsert_slice(slice("ns/a", "a", &["10.1.0.1"])), "sent again unchanged");
    assert!(!c.remove_slice(&slice("ns/a", "never", &[]).name), "never seen");
    assert!(c.remove_slice(&slice("ns/a", "a", &[]).name));
    assert_eq!(addrs(&http(&commit(&mut c), "ns/a")), ["10.1.0.2:8080"]);
}

/// Cases: core-11.31
#[test]
fn edge_31_another_order_of_endpoints_publishes_nothing() {
    let mut c = cluster();
    c.upsert_service(service("ns/a", "10.0.0.1"));
    c.upsert_slice(slice("ns/a", "a", &["10.1.0.1", "10.1.0.2"]));
    let first = commit(&mut c);
    assert!(c.upsert_slice(slice("ns/a", "a", &["10.1.0.2", "10.1.0.1"])), "the slice is another one");
    let done = c.commit();
    assert!(!done.changed.ipv4, "but what it says is the same");
    assert_eq!(done.snapshot(V4).generation(), first.generation());
}

/// Cases: core-11.37
#[test]
fn edge_37_endpoints_are_sorted_as_text() {
    let mut c = cluster();
    c.upsert_service(service("ns/a", "10.0.0.1"));
    let mut s = slice("ns/a", "a", &["10.0.1.1", "10.0.1.10"]);
    s.ports = vec![SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: port(80) }];
    c.upsert_slice(s);
    assert_eq!(addrs(&http(&commit(&mut c), "ns/a")), ["10.0.1.10:80", "10.0.1.1:80"]);
}

/// Cases: core-11.24
#[test]
fn edge_24_the_external_ip_gate_hides_them_but_the_service_stays_accessible() {
    let options = TrafficOptions { external_ips: false, ..TrafficOptions::default() };
    let mut c = Cluster::new(NodeName::new("node-1"), options);
    let mut s = service("ns/a", "10.0.0.1");
    s.external_ips.ipv4 = vec![ip("192.0.2.1")];
    c.upsert_service(s);
    let port = http(&commit(&mut c), "ns/a");
    assert_eq!(port.frontends.len(), 1);
    assert!(port.externally_accessible());
    c.set_options(TrafficOptions::default());
    assert_eq!(http(&commit(&mut c), "ns/a").frontends.len(), 2, "and comes back with the gate");
}

/// Cases: core-11.43
#[test]
fn edge_43_a_zone_that_arrives_later_changes_the_decision() {
    let mut c = cluster();
    c.upsert_service(service("ns/a", "10.0.0.1"));
    let mut s = slice("ns/a", "a", &["10.1.0.1", "10.1.0.2"]);
    for (endpoint, zone) in s.endpoints.iter_mut().zip(["a", "b"]) {
        endpoint.hints.zones = Some(vec![Arc::from(zone)].into());
    }
    c.upsert_slice(s);
    assert_eq!(http(&commit(&mut c), "ns/a").categories.cluster.len(), 2);
    assert!(c.set_node(NodeFacts { zone: Some("b".into()), ..NodeFacts::default() }));
    assert_eq!(http(&commit(&mut c), "ns/a").categories.cluster, [1]);
}

/// Cases: nftables-12.31
#[test]
fn the_older_service_gets_a_frontend_that_two_claim_and_it_moves_when_it_goes() {
    let at = |text: &str, age| Service { created: age, ..service(text, "10.0.0.1") };
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let services =
            [at("ns/old", Some(Timestamp(1))), at("ns/young", Some(Timestamp(2))), at("ns/ageless", None)];
        let mut c = cluster();
        for i in order {
            c.upsert_service(services[i].clone());
            commit(&mut c);
        }
        let s = commit(&mut c);
        assert_eq!(http(&s, "ns/old").frontends.len(), 1);
        for loser in ["ns/young", "ns/ageless"] {
            let port = http(&s, loser);
            assert!(port.frontends.is_empty());
            assert_eq!(port.conflicts[0].winner.service, name("ns/old"));
        }
        c.remove_service(&name("ns/old"));
        let s = commit(&mut c);
        assert_eq!(http(&s, "ns/young").frontends.len(), 1);
        assert_eq!(http(&s, "ns/ageless").conflicts[0].winner.service, name("ns/young"));
    }
}

#[test]
fn a_slice_that_changes_its_family_leaves_the_other() {
    let mut c = cluster();
    let mut s = service("ns/a", "10.0.0.1");
    s.cluster_ips.ipv6 = Some(ip("fd00::1"));
    c.upsert_service(s);
    c.upsert_slice(slice("ns/a", "a", &["10.1.0.1"]));
    commit(&mut c);
    c.upsert_slice(slice("ns/a", "a", &["fd00:1::1"]));
    let done = c.commit();
    let http = port_name("ns/a", "http", Protocol::Tcp);
    assert!(done.snapshot(V4).port(&http).unwrap().endpoints.is_empty());
    assert_eq!(done.snapshot(IpFamily::Ipv6).port(&http).unwrap().endpoints.len(), 1);
}

#[test]
fn trigger_times_are_handed_over_once_and_forgotten_with_the_slice() {
    let mut c = cluster();
    let timed = |t, ip: &str| {
        let mut s = slice("ns/a", "a", &[ip]);
        s.trigger = Some(Timestamp(t));
        s
    };
    c.upsert_slice(timed(1, "10.1.0.1"));
    c.upsert_slice(timed(2, "10.1.0.2"));
    assert_eq!(c.commit().triggers.ipv4, [Timestamp(1), Timestamp(2)]);
    c.upsert_slice(timed(3, "10.1.0.3"));
    c.remove_slice(&slice("ns/a", "a", &[]).name);
    c.upsert_slice(timed(4, "10.1.0.4"));
    assert_eq!(c.commit().triggers.ipv4, [Timestamp(4)]);
    assert!(c.commit().triggers.ipv4.is_empty());
}

#[test]
fn one_change_among_many_services_touches_that_one() {
    let mut c = cluster();
    for i in 0..2000u32 {
        let text = format!("ns/s{i}");
        c.upsert_service(service(&text, &format!("10.0.{}.{}", i / 250, i % 250 + 1)));
        c.upsert_slice(slice(&text, "a", &["10.1.0.1"]));
    }
    let before = commit(&mut c);
    c.upsert_slice(slice("ns/s1234", "a", &["10.1.0.2"]));
    let after = commit(&mut c);
    let changes = ChangeSet::between(Some(&before), &after);
    assert_eq!(changes.ports.len(), 1);
    let shared = before.ports().zip(after.ports()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert_eq!(shared, 1999, "everything else is the same object, not a copy");
}

/// What is left of objects that came and went is nothing: as text, the cluster that saw 100,000 of each is a new one, but for the number
/// of its last snapshot.
///
/// Cases: report-C6-70
#[test]
fn row_70_objects_that_are_gone_leave_nothing() {
    const ROUNDS: u32 = 100_000;
    let mut c = cluster();
    for i in 0..ROUNDS {
        let text = format!("ns/s{i}");
        let mut s = service(&text, &format!("10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255));
        s.ports[0].node_port = Some(port(30_000));
        s.external_ips.ipv4 = vec![ip("192.0.2.1")];
        c.upsert_service(s);
        let mut e = slice(&text, "x", &["10.1.0.1", "10.1.0.2"]);
        e.trigger = Some(Timestamp(i.into()));
        c.upsert_slice(e);
        if i % 10 == 0 {
            commit(&mut c);
        }
        // The Service first or the slice first.
        if i % 2 == 0 {
            c.remove_service(&name(&text));
        }
        c.remove_slice(&slice(&text, "x", &[]).name);
        c.remove_service(&name(&text));
        if i % 100 == 0 {
            commit(&mut c);
        }
    }
    let last = commit(&mut c);
    assert_eq!((last.len(), last.claims.len()), (0, 0));
    let lived = format!("{c:?}").replace(&format!("{:?}", last.generation()), "Generation(0)");
    let mut fresh = cluster();
    commit(&mut fresh);
    assert_eq!(lived, format!("{fresh:?}"));
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Service(usize, u8, bool),
    Remove(usize),
    Slice(usize, u8, Vec<u8>),
    RemoveSlice(usize, u8),
    Zone(Option<u8>),
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5usize, 0..3u8, any::<bool>()).prop_map(|(s, v, l)| Step::Service(s, v, l)),
        1 => (0..5usize).prop_map(Step::Remove),
        4 => (0..5usize, 0..2u8, prop::collection::vec(0..6u8, 0..4)).prop_map(|(s, n, e)| Step::Slice(s, n, e)),
        1 => (0..5usize, 0..2u8).prop_map(|(s, n)| Step::RemoveSlice(s, n)),
        1 => prop::option::of(0..2u8).prop_map(Step::Zone),
        2 => Just(Step::Commit),
    ]
}

fn apply(c: &mut Cluster, step: &Step) {
    match step {
        Step::Service(s, variant, local) => {
            // Variants share addresses between services, so that frontends are fought for.
            let mut x = service(&format!("ns/s{s}"), &format!("10.0.0.{}", s % 3 + 1));
            x.created = Some(Timestamp(i128::from(*variant)));
            x.external_ips.ipv4 = vec![ip("192.0.2.1")];
            x.ports[0].node_port = (*variant > 0).then(|| port(30000 + u16::from(*variant)));
            if *local {
                x.external_policy = TrafficPolicy::Local;
            }
            c.upsert_service(x);
        }
        Step::Remove(s) => {
            c.remove_service(&name(&format!("ns/s{s}")));
        }
        Step::Slice(s, n, endpoints) => {
            let texts: Vec<String> =
                endpoints.iter().map(|e| format!("10.1.0.{}@node-{}", e + 1, e % 2)).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            c.upsert_slice(slice(&format!("ns/s{s}"), &format!("x{n}"), &texts));
        }
        Step::RemoveSlice(s, n) => {
            c.remove_slice(&slice(&format!("ns/s{s}"), &format!("x{n}"), &[]).name);
        }
        Step::Zone(zone) => {
            let zone = zone.map(|z| Arc::from(format!("z{z}")));
            c.set_node(NodeFacts { zone, ..NodeFacts::default() });
        }
        Step::Commit => {
            c.commit();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// However the objects came, with whatever commits in between: the snapshot is that of their last state, and old snapshot plus
    /// change set is the new one.
    /// Cases: report-C1-20
    #[test]
    fn any_history_ends_where_a_fresh_start_does(steps in prop::collection::vec(step(), 1..60)) {
        let mut lived = cluster();
        let mut previous = commit(&mut lived);
        for s in &steps {
            apply(&mut lived, s);
            if matches!(s, Step::Commit) {
                let next = commit(&mut lived);
                let changes = ChangeSet::between(Some(&previous), &next);
                let mut rebuilt: std::collections::BTreeMap<_, _> =
                    previous.ports().map(|p| (p.name.clone(), Arc::clone(p))).collect();
                for change in changes.ports {
                    prop_assert_eq!(rebuilt.get(&change.name).cloned(), change.old);
                    match change.new {
                        Some(new) => rebuilt.insert(change.name, new),
                        None => rebuilt.remove(&change.name),
                    };
                }
                prop_assert_eq!(rebuilt.into_values().collect::<Vec<_>>(), next.ports().cloned().collect::<Vec<_>>());
                previous = next;
            }
        }
        let mut fresh = cluster();
        for s in steps.iter().filter(|s| !matches!(s, Step::Commit)) {
            apply(&mut fresh, s);
        }
        let (a, b) = (commit(&mut lived), commit(&mut fresh));
        prop_assert_eq!(a.ports().collect::<Vec<_>>(), b.ports().collect::<Vec<_>>());
        prop_assert_eq!(a.claims, b.claims);
        prop_assert!(!lived.has_pending());
    }
}
