//! Kinds of Services, traffic policies, protocols.

use proxier_core::ids::Protocol;
use proxier_core::model::TrafficPolicy::{self, Cluster, Local};

use crate::matrix::plan;
use crate::matrix::row::{Caller, Claim, EVERYBODY, EVERYWHERE, Group, Place, Row};
use crate::matrix::shape::{Kind, sctp, service, tcp, udp};

/// Where the endpoints of a policy row are: on both workers, on one, nowhere.
const PLACEMENTS: [(&str, &[&str]); 4] =
    [("both", &["one", "three"]), ("near", &["one", "two"]), ("far", &["three", "four"]), ("none", &[])];

const POLICIES: [(&str, TrafficPolicy, TrafficPolicy); 4] = [
    ("cluster", Cluster, Cluster),
    ("ext-local", Local, Cluster),
    ("int-local", Cluster, Local),
    ("local", Local, Local),
];

/// Every pair of policies, every placement, every kind of frontend, everybody, TCP and UDP.
/// Cases: core-11.38, nftables-12.1, nftables-12.3, nftables-12.4, nftables-12.5, nftables-12.38, nftables-12.39, report-C1-10, report-C1-11, report-C1-16, report-C3-34
pub(super) fn policies() -> Group {
    let settings = &["no-detector", "node-cidr", "bridge", "prefix", "masquerade-all"];
    let mut group = Group::new("policies", settings);
    for (policy, external, internal) in POLICIES {
        for (placement, pods) in PLACEMENTS {
            let shape = service(format!("{policy}-{placement}"))
                .everywhere()
                .policies(external, internal)
                .ports([tcp("http", 80), udp("dns", 80)])
                .on(pods);
            group.cross(shape, &EVERYBODY, &EVERYWHERE, |row| Some(claim(row, external, internal, pods)));
        }
    }
    group
}

/// What clients see (iptables spec 5.14), with the cluster's pod range as the detector.
fn claim(row: &Row, external: TrafficPolicy, internal: TrafficPolicy, pods: &[&str]) -> Claim {
    let own_node = match row.from {
        Caller::Pod(plan::CALLER | "one") => "worker",
        Caller::Pod(_) => "worker2",
        Caller::Host(node) | Caller::Loopback(node) => node,
        Caller::Vip => "worker",
        Caller::Client(name) => plan::entry_node(name).unwrap_or_default(),
    };
    let (entry, narrow) = match row.place {
        Place::ClusterIp => (own_node, internal == Local),
        Place::NodePort(node) => (node, external == Local),
        _ => (own_node, external == Local),
    };
    let short_circuit = row.place != Place::ClusterIp
        && match row.from {
            Caller::Pod(_) => true,
            Caller::Host(node) => node == entry,
            _ => false,
        };
    let near = pods.iter().any(|pod| ["one", "two"].contains(pod) == (entry == "worker"));
    match (pods.is_empty(), narrow && !short_circuit && !near) {
        (true, _) => Claim::Refused,
        (false, true) => Claim::Dropped,
        (false, false) => Claim::Served,
    }
}

const SOME: [Caller; 4] =
    [Caller::Pod(plan::CALLER), Caller::Host("worker"), Caller::Client("client"), Caller::Client("client2")];

/// Every kind of Service, also those that are not proxied.
/// Cases: core-11.1, core-11.15, nftables-12.25
pub(super) fn kinds() -> Group {
    let mut group = Group::new("kinds", &[]);
    let served = |_: &Row| Some(Claim::Served);
    let only = |wanted: &'static [Place]| {
        move |row: &Row| Some(if wanted.contains(&row.place) { Claim::Served } else { Claim::LeftAlone })
    };
    let both = ["one", "three"];
    let node = Place::NodePort("worker");
    group.cross(service("cluster-ip").on(&both), &EVERYBODY, &[Place::ClusterIp], served);
    group.cross(service("node-port").node_port().on(&both), &SOME, &[Place::ClusterIp, node], served);
    let mut external = service("external-ip").on(&both);
    external.external_ip = true;
    group.cross(external.clone(), &SOME, &[Place::ClusterIp, Place::ExternalIp], served);
    external.name = "external-ip-local".into();
    external.external = Local;
    group.cross(external, &EVERYBODY, &[Place::ClusterIp, Place::ExternalIp], served);
    let mut bare = service("balancer-without-node-ports").everywhere().on(&both);
    (bare.node_ports, bare.external_ip) = (false, false);
    group.cross(bare.clone(), &SOME, &[Place::ClusterIp, Place::Vip], served);
    // The balancer sends to node ports itself; its address is not ours.
    (bare.name, bare.vip, bare.node_ports) = ("balancer-proxy-mode".into(), Some("Proxy"), true);
    group.cross(
        bare,
        &SOME,
        &[Place::ClusterIp, node, Place::Vip],
        only(&[Place::ClusterIp, Place::NodePort("worker")]),
    );
    let mut headless = service("headless").on(&both);
    headless.kind = Kind::Headless;
    group.cross(headless, &SOME, &[Place::ClusterIp], |_| Some(Claim::Dropped));
    let mut other = service("other-proxy").everywhere().on(&both);
    other.other_proxy = true;
    group.cross(other, &SOME, &EVERYWHERE, |row| {
        Some(if row.place == Place::ClusterIp { Claim::Dropped } else { Claim::LeftAlone })
    });
    group
}

/// SCTP beside the other protocols on the same number.
/// Cases: nftables-12.16
pub(super) fn third_protocol() -> Group {
    let mut group = Group::new("sctp", &["no-detector", "masquerade-all"]);
    for (name, policy, pods) in [
        ("sctp", Cluster, &["one", "three"][..]),
        ("sctp-local", Local, &["three"]),
        ("sctp-none", Cluster, &[]),
    ] {
        let shape = service(name)
            .everywhere()
            .policies(policy, policy)
            .ports([sctp("m3ua", 80), tcp("http", 80), udp("dns", 80)])
            .on(pods);
        group.cross(shape, &EVERYBODY, &EVERYWHERE, |row| Some(claim(row, policy, policy, pods)));
    }
    group.rows.retain(|row| row.port == 0);
    // Another protocol's port of the same number is no answer: the TCP-only service refuses SCTP.
    let shape = service("not-sctp").on(&["one"]);
    group.each_family(&shape, |row| Row { protocol: Some(Protocol::Sctp), ..row }, |_| Some(Claim::Refused));
    group.services.push(shape);
    group
}
