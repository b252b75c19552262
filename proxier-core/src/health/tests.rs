use crate::cluster::{Cluster, NodePortSelector, TrafficOptions};
use crate::ids::{IpFamily, NodeName, Protocol};
use crate::model::{EndpointSlice, NodeFacts, Service, TrafficPolicy};
use crate::snapshot::NodePortAddresses;
use crate::tests::{ip, name, port, service, service_port, slice};

use super::*;

fn cluster() -> Cluster {
    Cluster::new(NodeName::new("here"), TrafficOptions::default())
}

fn published(cluster: &mut Cluster) -> Snapshot {
    cluster.commit().snapshot(IpFamily::Ipv4).clone()
}

fn front() -> Service {
    Service {
        external_policy: TrafficPolicy::Local,
        health_check_node_port: Some(port(32100)),
        ..service("web/front", "10.96.0.1")
    }
}

fn ready(cluster: &mut Cluster) -> Option<usize> {
    of(&published(cluster), &name("web/front")).map(|c| c.ready)
}

/// A slice whose endpoints serve three ports.
fn three_ports(endpoints: &[&str]) -> EndpointSlice {
    let mut slice = slice("web/front", "a", endpoints);
    let first = slice.ports[0].clone();
    for (name, number) in [("metrics", 9100), ("admin", 9200)] {
        slice.ports.push(crate::model::SlicePort { name: name.into(), port: port(number), ..first.clone() });
    }
    slice
}

/// Cases: core-11.46
#[test]
fn addresses_count_not_ports() {
    let mut cluster = cluster();
    let mut front = front();
    front.ports.push(service_port("metrics", Protocol::Tcp, 9100));
    front.ports.push(service_port("admin", Protocol::Tcp, 9200));
    cluster.upsert_service(front);
    cluster.upsert_slice(three_ports(&["10.1.0.1@here", "10.1.0.2@here", "10.1.0.3@there", "10.1.0.4"]));
    let expected = HealthCheck { port: port(32100), created: Some(Timestamp(0)), ready: 2 };
    assert_eq!(of(&published(&mut cluster), &name("web/front")), Some(expected));
}

/// Cases: core-11.40
#[test]
fn terminating_endpoints_do_not_count_even_where_traffic_goes_to_them() {
    let mut cluster = cluster();
    cluster.upsert_service(Service { ports: vec![service_port("http", Protocol::Tcp, 80)], ..front() });
    cluster.upsert_slice(slice("web/front", "a", &["~10.1.0.1@here", "!10.1.0.2@here"]));
    assert_eq!(ready(&mut cluster), Some(0));
    cluster.upsert_slice(slice("web/front", "a", &["~10.1.0.1@here", "10.1.0.2@here"]));
    assert_eq!(ready(&mut cluster), Some(1));
}

/// Cases: core-11.36
#[test]
fn what_is_ready_while_terminating_counts() {
    let mut cluster = cluster();
    cluster.upsert_service(front());
    let mut unusual = slice("web/front", "a", &["10.1.0.1@here"]);
    unusual.endpoints[0].conditions.terminating = true;
    cluster.upsert_slice(unusual);
    assert_eq!(ready(&mut cluster), Some(1));
}

#[test]
fn only_services_with_such_a_port_are_told_each_once() {
    let mut cluster = cluster();
    let mut two = front();
    two.ports.push(service_port("metrics", Protocol::Tcp, 9100));
    cluster.upsert_service(two.clone());
    cluster.upsert_service(service("web/other", "10.96.0.2"));
    let first = published(&mut cluster);
    assert_eq!(changes(None, &first).into_keys().collect::<Vec<_>>(), [name("web/front")]);
    cluster.upsert_slice(slice("web/other", "a", &["10.1.0.9@here"]));
    let second = published(&mut cluster);
    assert!(changes(Some(&first), &second).is_empty());
    cluster.upsert_slice(three_ports(&["10.1.0.1@here"]));
    let third = published(&mut cluster);
    let changed = changes(Some(&second), &third);
    assert_eq!(changed[&name("web/front")].map(|c| c.ready), Some(1));
    two.health_check_node_port = None;
    cluster.upsert_service(two);
    let fourth = published(&mut cluster);
    assert_eq!(changes(Some(&third), &fourth), BTreeMap::from([(name("web/front"), None)]));
    cluster.remove_service(&name("web/front"));
    assert!(changes(Some(&fourth), &published(&mut cluster)).is_empty());
}

#[test]
fn families_have_ports_and_counts_of_their_own() {
    let mut cluster = cluster();
    let mut front = front();
    front.cluster_ips.ipv6 = Some(ip("fd00::1"));
    cluster.upsert_service(front);
    cluster.upsert_slice(slice("web/front", "a", &["fd00:1::1@here"]));
    let commit = cluster.commit();
    let ready = |family| of(commit.snapshot(family), &name("web/front")).map(|c| c.ready);
    assert_eq!((ready(IpFamily::Ipv4), ready(IpFamily::Ipv6)), (Some(0), Some(1)));
}

/// Cases: core-11.54
#[test]
fn node_port_addresses_say_where_loopback_included() {
    let at = |ranges: &[&str]| {
        let mut cluster = Cluster::new(
            NodeName::new("here"),
            TrafficOptions {
                node_port_addresses: NodePortSelector::Cidrs(
                    ranges.iter().map(|r| r.parse().unwrap()).collect(),
                ),
                ..TrafficOptions::default()
            },
        );
        let host_addresses = ["127.0.0.1", "192.0.2.7", "192.0.2.8", "::1"].map(ip).to_vec();
        cluster.set_node(NodeFacts { host_addresses, ..NodeFacts::default() });
        let commit = cluster.commit();
        let of = |f| commit.snapshot(f).context().health_check_addresses.clone();
        (of(IpFamily::Ipv4), of(IpFamily::Ipv6))
    };
    let only = |list: &[&str]| NodePortAddresses::Only(list.iter().map(|a| ip(a)).collect());
    let all = NodePortAddresses::MatchAll;
    assert_eq!(at(&[]), (all.clone(), all.clone()));
    assert_eq!(at(&["127.0.0.0/8"]), (only(&["127.0.0.1"]), all.clone()));
    assert_eq!(at(&["192.0.2.0/24"]), (only(&["192.0.2.7", "192.0.2.8"]), all.clone()));
    assert_eq!(at(&["198.51.100.0/24", "::1/128"]), (only(&[]), only(&["::1"])));
    assert_eq!(at(&["192.0.2.0/24", "0.0.0.0/0"]), (all.clone(), all));
}
