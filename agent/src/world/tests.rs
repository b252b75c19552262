use std::io;
use std::sync::Mutex;

use proxier_core::ids::IpFamily;
use serde_json::{Value, json};
use tracing::subscriber::with_default;

use super::*;
use crate::source::SourceProblem;

fn world() -> World {
    World::new(NodeName::new("n1"), TrafficOptions::default(), NodeOverrides::default())
}

fn service(object: Value) -> SourceEvent {
    SourceEvent::Upsert(Object::Service(Box::new(serde_json::from_value(object).expect("a service"))))
}

fn good_service() -> SourceEvent {
    service(json!({
        "metadata": {"namespace": "d", "name": "web"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]},
    }))
}

fn slice(owner: &str, addresses: &[&str]) -> SourceEvent {
    let endpoints: Vec<_> = addresses.iter().map(|a| json!({"addresses": [a]})).collect();
    let object = json!({
        "metadata": {"namespace": "d", "name": "web-1", "labels": {"kubernetes.io/service-name": owner}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": endpoints,
    });
    SourceEvent::Upsert(Object::EndpointSlice(Box::new(serde_json::from_value(object).expect("a slice"))))
}

fn node(name: &str, ip: &str, zone: &str) -> SourceEvent {
    let object = json!({
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"podCIDRs": ["10.244.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": ip}]},
    });
    SourceEvent::Upsert(Object::Node(Box::new(serde_json::from_value(object).expect("a node"))))
}

fn delete(kind: ObjectKind, namespace: &str, name: &str, service: Option<&str>) -> SourceEvent {
    let key = ObjectKey { kind, namespace: namespace.into(), name: name.into() };
    SourceEvent::Delete { key, service: service.map(Arc::from) }
}

/// Endpoints of each service port, as published now.
fn endpoints(world: &mut World) -> Vec<usize> {
    world.commit().snapshot(IpFamily::Ipv4).ports().map(|p| p.endpoints.len()).collect()
}

/// What is logged while `work` runs.
fn logged(work: impl FnOnce()) -> Vec<String> {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("one thread").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    with_default(subscriber, work);
    let bytes = lines.0.lock().expect("one thread").clone();
    String::from_utf8(bytes).expect("text").lines().map(|l| l.trim().to_owned()).collect()
}

#[test]
fn the_node_object_of_this_node_counts() {
    let mut world = world();
    assert!(!world.node_seen());
    world.apply(vec![node("n2", "10.0.0.2", "b")]);
    assert!(!world.node_seen(), "another node");
    world.apply(vec![node("n1", "10.0.0.1", "a")]);
    assert!(world.node_seen());
    assert_eq!(world.node().ips.ipv4, Some("10.0.0.1".parse().expect("address")));
    assert_eq!(world.node().zone.as_deref(), Some("a"));
    assert_eq!(world.node().pod_cidrs, ["10.244.1.0/24".parse().expect("range")]);
}

#[test]
fn the_node_object_may_be_missing_when_the_configuration_knows() {
    let mut overrides = NodeOverrides { zone: Some("z".into()), ..NodeOverrides::default() };
    overrides.ips.ipv6 = Some("fd00::9".parse().expect("address"));
    let mut world = World::new(NodeName::new("n1"), TrafficOptions::default(), overrides);
    assert_eq!(world.node().ips.ipv6, Some("fd00::9".parse().expect("address")));
    assert_eq!(world.node().zone.as_deref(), Some("z"));
    world.apply(vec![node("n1", "10.0.0.1", "a")]);
    assert_eq!(world.node().ips.ipv4, Some("10.0.0.1".parse().expect("address")), "of the object");
    assert_eq!(world.node().zone.as_deref(), Some("z"), "of the configuration");
}

#[test]
fn a_deleted_node_object_stays_in_use() {
    let mut world = world();
    world.apply(vec![node("n1", "10.0.0.1", "a"), node("n2", "10.0.0.2", "b")]);
    let log = logged(|| {
        world.apply(vec![delete(ObjectKind::Node, "", "n1", None), delete(ObjectKind::Node, "", "n2", None)]);
    });
    assert_eq!(log, ["WARN node object deleted; its last state stays in use node=n1"]);
    assert_eq!(world.node().ips.ipv4, Some("10.0.0.1".parse().expect("address")));
    assert_eq!(world.node().zone.as_deref(), Some("a"));
}

#[test]
fn host_addresses_survive_a_node_update_and_change_nothing_when_repeated() {
    let mut world = world();
    let all = [("eth1", "10.0.0.8"), ("eth0", "10.0.0.7"), ("eth1", "10.0.0.7"), ("kube-ipvs0", "10.96.0.1")];
    let addresses = || all.map(|(interface, a)| (interface.to_owned(), a.parse().expect("address")));
    world.set_host_addresses(addresses());
    world.apply(vec![node("n1", "10.0.0.1", "a")]);
    let held = &world.node().host_addresses;
    assert_eq!(held.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.7", "10.0.0.8"]);
    world.commit();
    world.set_host_addresses(addresses());
    assert!(!world.has_pending());
}

#[test]
fn a_deleted_slice_takes_its_endpoints_along() {
    let mut world = world();
    world.apply(vec![good_service(), slice("web", &["10.244.1.1", "10.244.1.2"])]);
    assert_eq!(endpoints(&mut world), [2]);
    assert_eq!(world.objects(), (1, 1));
    world.apply(vec![delete(ObjectKind::EndpointSlice, "d", "web-1", Some("other"))]);
    assert_eq!(endpoints(&mut world), [2], "it belongs to another service");
    world.apply(vec![delete(ObjectKind::EndpointSlice, "d", "web-1", Some("web"))]);
    assert_eq!(endpoints(&mut world), [0]);
    assert_eq!(world.objects(), (1, 0));
    world.apply(vec![delete(ObjectKind::Service, "d", "web", None)]);
    assert_eq!(endpoints(&mut world), [] as [usize; 0]);
}

#[test]
fn a_slice_that_is_no_longer_usable_is_dropped() {
    let mut world = world();
    world.apply(vec![good_service(), slice("web", &["10.244.1.1"])]);
    assert_eq!(endpoints(&mut world), [1]);
    let headless = json!({
        "metadata": {"namespace": "d", "name": "web", "labels": {"service.kubernetes.io/service-proxy-name": "x"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]},
    });
    world.apply(vec![service(headless)]);
    assert_eq!(endpoints(&mut world), [] as [usize; 0], "another proxy's");
}

/// Cases: core-11.26
#[test]
fn edge_26_what_is_ignored_asks_for_no_sync() {
    let mut world = world();
    world.apply(vec![good_service(), slice("web", &["10.244.1.1"]), SourceEvent::Synced]);
    world.commit();
    let strange = |name: &str, kind: &str, labels: Value| {
        let object = json!({
            "metadata": {"namespace": "d", "name": name, "labels": labels},
            "addressType": kind,
            "endpoints": [{"addresses": ["example.com"]}],
            "ports": [{"name": "http", "port": 80}],
        });
        SourceEvent::Upsert(Object::EndpointSlice(Box::new(serde_json::from_value(object).expect("a slice"))))
    };
    world.apply(vec![
        strange("names", "FQDN", json!({"kubernetes.io/service-name": "web"})),
        strange("nobodys", "IPv4", json!({})),
        strange("empty", "IPv4", json!({"kubernetes.io/service-name": ""})),
    ]);
    assert!(!world.has_pending());
    assert_eq!(endpoints(&mut world), [1]);
}

#[test]
fn problems_of_objects_are_told_once_and_when_they_are_over() {
    let mut world = world();
    let bad = |port: u16| {
        service(json!({
            "metadata": {"namespace": "d", "name": "bad"},
            "spec": {"clusterIP": "10.96.0.300", "ports": [{"name": "a", "port": port}, {"name": "b", "port": 81}]},
        }))
    };
    let address = r#"Service d/bad: spec.clusterIP: "10.96.0.300" is not an IP address"#;
    let port = "Service d/bad: spec.ports[0].port is missing or 0";

    let log = logged(|| world.apply(vec![bad(0), good_service()]));
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0].starts_with(&format!("WARN input problem problem={address}")), "{log:?}");
    assert_eq!(log[1], format!("WARN input problem problem={port}"));
    assert_eq!(world.problems().count(), 2);
    assert_eq!(endpoints(&mut world).len(), 1, "the good one is there");

    assert_eq!(logged(|| world.apply(vec![bad(0)])), [] as [&str; 0], "nothing new");
    assert_eq!(logged(|| world.apply(vec![bad(80)])), [] as [&str; 0], "less is nothing new");
    assert_eq!(world.problems().count(), 1);
    assert_eq!(logged(|| world.apply(vec![bad(0)])), [format!("WARN input problem problem={port}")]);

    let well = service(json!({
        "metadata": {"namespace": "d", "name": "bad"},
        "spec": {"clusterIP": "10.96.0.3", "ports": [{"name": "a", "port": 80}]},
    }));
    assert_eq!(logged(|| world.apply(vec![well])), ["INFO input problem solved about=service d/bad"]);
    assert_eq!(world.problems().count(), 0);
    assert_eq!(endpoints(&mut world).len(), 2);
}

#[test]
fn problems_go_with_their_object() {
    let mut world = world();
    let nameless = json!({"metadata": {"namespace": "d", "name": "n"}, "spec": {"clusterIP": "10.96.0.300"}});
    world.apply(vec![service(nameless)]);
    assert_eq!(world.problems().count(), 1);
    let log = logged(|| world.apply(vec![delete(ObjectKind::Service, "d", "n", None)]));
    assert_eq!(log, ["INFO input problem solved about=service d/n"]);
    assert_eq!(world.problems().count(), 0);
}

#[test]
fn problems_of_files_name_the_file() {
    let mut world = world();
    let problem = SourceProblem { document: Some(2), ..SourceProblem::whole("broken") };
    let said = |problems| SourceEvent::Problems { origin: "m/a.yaml".into(), problems };
    let log = logged(|| world.apply(vec![said(vec![problem.clone()])]));
    assert_eq!(log, ["WARN input problem problem=m/a.yaml: document 2: broken"]);
    assert_eq!(world.problems().first(9), ["m/a.yaml: document 2: broken"]);
    assert_eq!(logged(|| world.apply(vec![said(vec![problem])])), [] as [&str; 0]);
    assert_eq!(logged(|| world.apply(vec![said(vec![])])), ["INFO input problem solved about=m/a.yaml"]);
}

#[test]
fn synced_is_said_by_the_source() {
    let mut world = world();
    assert!(!world.synced());
    world.apply(vec![SourceEvent::Synced]);
    assert!(world.synced());
}

#[test]
fn ranges_of_cluster_ips_are_counted_by_who_names_them() {
    let configured: IpNet = "10.64.0.0/16".parse().expect("range");
    let options = TrafficOptions { service_cidrs: vec![configured], ..TrafficOptions::default() };
    let mut world = World::new(NodeName::new("n1"), options, NodeOverrides::default());
    world.commit();
    let cidr = |name: &str, cidrs: &[&str]| {
        let object = json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}});
        SourceEvent::Upsert(Object::ServiceCidr(Box::new(serde_json::from_value(object).expect("a range"))))
    };
    let ranges = |world: &mut World, family| {
        let commit = world.commit();
        let context = commit.snapshot(family).context();
        context.service_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    world.apply(vec![
        cidr("a", &["10.96.0.0/12", "fd00::/112"]),
        cidr("b", &["10.96.0.0/12", "10.64.0.0/16"]),
    ]);
    assert!(world.has_pending(), "a sync is asked for");
    assert_eq!(ranges(&mut world, IpFamily::Ipv4), ["10.64.0.0/16", "10.96.0.0/12"]);
    assert_eq!(ranges(&mut world, IpFamily::Ipv6), ["fd00::/112"]);
    world.apply(vec![delete(ObjectKind::ServiceCidr, "", "a", None)]);
    assert_eq!(ranges(&mut world, IpFamily::Ipv4), ["10.64.0.0/16", "10.96.0.0/12"], "b names it as well");
    assert_eq!(ranges(&mut world, IpFamily::Ipv6), [] as [&str; 0]);
    world.apply(vec![cidr("b", &["10.112.0.0/12"])]);
    assert_eq!(ranges(&mut world, IpFamily::Ipv4), ["10.64.0.0/16", "10.112.0.0/12"]);
    let log = logged(|| world.apply(vec![cidr("b", &["10.112.0.0/33"])]));
    assert!(
        log[0].starts_with("WARN input problem problem=ServiceCIDR b: spec.cidrs[0]: \"10.112.0.0/33\""),
        "{log:?}"
    );
    world.apply(vec![delete(ObjectKind::ServiceCidr, "", "b", None)]);
    assert_eq!(ranges(&mut world, IpFamily::Ipv4), ["10.64.0.0/16"], "what was configured stays");
    assert_eq!(world.problems().count(), 0);
}
