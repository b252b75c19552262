//! Endpoints: their conditions, hints and places; endpoints that reach themselves; clients that stay with one.

use proxier_core::model::TrafficPolicy::{Cluster, Local};

use crate::matrix::plan;
use crate::matrix::row::{Caller, Claim, EVERYBODY, EVERYWHERE, Group, Place, Row};
use crate::matrix::shape::{EndpointShape, service, tcp, udp};

const POD: Caller = Caller::Pod(plan::CALLER);
const POD2: Caller = Caller::Pod(plan::CALLER2);
const CLIENT: Caller = Caller::Client("client");
const CLIENT2: Caller = Caller::Client("client2");
const NEAR: Place = Place::NodePort("worker");
const FAR: Place = Place::NodePort("worker2");

fn served(_: &Row) -> Option<Claim> {
    Some(Claim::Served)
}

/// Ready, draining, gone, starting, and mixes of them.
/// Cases: core-11.40, report-C1-17
pub(super) fn conditions() -> Group {
    use EndpointShape as E;
    let mut group = Group::new("conditions", &[]);
    let callers = [POD, POD2, CLIENT, CLIENT2];
    let mut add =
        |name: &'static str, local, endpoints: Vec<EndpointShape>, claim: fn(&Row) -> Option<Claim>| {
            let policy = if local { Local } else { Cluster };
            let shape = service(name).everywhere().policies(policy, Cluster).endpoints(endpoints);
            group.cross(shape, &callers, &[Place::ClusterIp, NEAR, FAR, Place::Vip], claim);
        };
    let refused: fn(&Row) -> Option<Claim> = |_| Some(Claim::Refused);
    add("ready-beats-draining", false, vec![E::ready("one"), E::draining("three")], served);
    add("all-draining", false, vec![E::draining("one"), E::draining("three"), E::gone("four")], served);
    add("all-gone", false, vec![E::gone("one"), E::starting("three")], refused);
    add("starting-is-not-used", false, vec![E::ready("one"), E::starting("three")], served);
    // On each worker for itself: the draining one of a worker without a ready one serves there.
    add("draining-here-ready-there", true, vec![E::draining("one"), E::ready("three")], served);
    add("gone-here-ready-there", true, vec![E::gone("one"), E::ready("three")], |row| {
        let outside = matches!(row.from, Caller::Client(_));
        let entry = match row.place {
            NEAR => "worker",
            FAR => "worker2",
            _ => plan::entry_node(row.from.namespace()).unwrap_or_default(),
        };
        let dropped = outside && row.place != Place::ClusterIp && entry == "worker";
        Some(if dropped { Claim::Dropped } else { Claim::Served })
    });
    group
}

/// Hints for zones and nodes. `worker` is in zone `a`, `worker2` in zone `b`.
/// Cases: core-11.41, core-11.42, report-C1-13, report-C1-14
pub(super) fn topology() -> Group {
    use EndpointShape as E;
    let mut group = Group::new("topology", &[]);
    let mut add = |name: &'static str, endpoints: Vec<EndpointShape>| {
        let shape = service(name).everywhere().endpoints(endpoints);
        group.cross(
            shape,
            &[POD, POD2, CLIENT, CLIENT2],
            &[Place::ClusterIp, NEAR, FAR, Place::ExternalIp],
            served,
        );
    };
    add("zones", vec![E::ready("one").for_zone("a"), E::ready("three").for_zone("b")]);
    add("nodes", vec![E::ready("one").for_node("worker"), E::ready("three").for_node("worker2")]);
    add("one-without-hint", vec![E::ready("one").for_zone("a"), E::ready("three")]);
    add("nobody-in-my-zone", vec![E::ready("one").for_zone("a"), E::ready("two").for_zone("a")]);
    add(
        "hint-of-unready",
        vec![E::ready("one").for_zone("a"), E::starting("three"), E::ready("four").for_zone("b")],
    );
    add(
        "nodes-before-zones",
        vec![
            E::ready("one").for_zone("a").for_node("worker"),
            E::ready("two").for_zone("a").for_node("worker2"),
            E::ready("three").for_zone("b").for_node("worker"),
        ],
    );
    group
}

/// Endpoints that call their own service.
/// Cases: nftables-12.26, report-C1-23
pub(super) fn hairpin() -> Group {
    let mut group = Group::new("hairpin", &["no-detector", "node-cidr", "bridge", "masquerade-all"]);
    let ports = || [tcp("http", 80), udp("dns", 80)];
    let selves = [Caller::Pod("one"), Caller::Pod("three")];
    for (name, external, pods) in [
        ("alone", Cluster, &["one"][..]),
        ("alone-local", Local, &["one"]),
        ("among-others", Cluster, &["one", "two", "three"]),
        ("among-others-local", Local, &["one", "two", "three"]),
    ] {
        let shape = service(name).everywhere().policies(external, Cluster).ports(ports()).on(pods);
        group.cross(shape, &selves, &EVERYWHERE, served);
    }
    group
}

/// Endpoints in the network of a host.
pub(super) fn host_network() -> Group {
    let mut group = Group::new("host-network", &["masquerade-all"]);
    let shape = service("on-worker2").everywhere().ports([tcp("http", 80), udp("dns", 80)]).on(&["worker2"]);
    let callers = [POD, POD2, Caller::Host("worker"), CLIENT, CLIENT2];
    group.cross(shape, &callers, &EVERYWHERE, served);
    let shape = service("on-worker2-local").everywhere().policies(Local, Cluster).on(&["worker2"]);
    group.cross(shape, &callers, &[Place::ClusterIp, FAR, Place::Vip], |row| {
        let dropped = row.from == CLIENT && row.place == Place::Vip;
        Some(if dropped { Claim::Dropped } else { Claim::Served })
    });
    group
}

/// Clients stay with their endpoint; what that is, is nobody's claim.
/// Cases: report-C1-5
pub(super) fn affinity() -> Group {
    let mut group = Group::new("affinity", &["no-detector"]);
    for (name, policy, pods) in [
        ("sticky", Cluster, &["one", "two", "three", "four"][..]),
        ("sticky-local", Local, &["one", "two", "three"]),
        ("sticky-alone", Cluster, &["three"]),
        ("sticky-none", Cluster, &[]),
    ] {
        let mut shape = service(name)
            .everywhere()
            .policies(policy, policy)
            .ports([tcp("http", 80), udp("dns", 80)])
            .on(pods);
        shape.affinity = Some(600);
        let claim = if pods.is_empty() { Claim::Refused } else { Claim::Served };
        // The Local one has endpoints on both workers, so that all are served here too.
        group.cross(shape, &EVERYBODY, &EVERYWHERE, |_| Some(claim));
    }
    group
}
