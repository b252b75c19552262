//! Addresses and ports: source ranges, several ports, families, node port addresses, addresses and ports that nobody has.

use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::model::TrafficPolicy::{Cluster, Local};

use crate::matrix::plan;
use crate::matrix::row::{Caller, Claim, EVERYBODY, EVERYWHERE, Group, Place, Row};
use crate::matrix::shape::{Shape, VipAt, service, tcp, udp};

const POD: Caller = Caller::Pod(plan::CALLER);
const CLIENT: Caller = Caller::Client("client");
const STRANGER: Caller = Caller::Client("stranger");
const BOTH: [&str; 2] = ["one", "three"];

fn served(_: &Row) -> Option<Claim> {
    Some(Claim::Served)
}

/// Source ranges restrict the VIP, and nothing else.
/// Cases: nftables-12.2, nftables-12.22, nftables-12.23, nftables-12.24, report-C2-25, report-C2-26, report-C2-29
pub(super) fn ranges() -> Group {
    let mut group = Group::new("ranges", &[]);
    let callers = [CLIENT, STRANGER, Caller::Client("client2"), POD, Caller::Host("worker"), Caller::Vip];
    let places = [Place::Vip, Place::ClusterIp, Place::ExternalIp, Place::NodePort("worker2")];
    let client = ["172.30.0.5/32", "fd00:30::5/128"];
    let with_nodes = [client.as_slice(), &["172.30.0.3/32", "fd00:30::3/128"]].concat();
    let with_pods = [client.as_slice(), &["10.244.0.0/16", "fd00:10:244::/48"]].concat();
    let ranged = |name: &str, ranges: &[&'static str]| {
        let mut shape = service(name).everywhere().on(&BOTH);
        (shape.ranges, shape.vip_at_worker) = (ranges.into(), VipAt::Address);
        shape.ports = vec![tcp("http", 80), udp("dns", 80)];
        shape
    };
    let only = |allowed: &'static [Caller]| {
        move |row: &Row| {
            let open = row.place != Place::Vip || allowed.contains(&row.from);
            Some(if open { Claim::Served } else { Claim::Dropped })
        }
    };
    group.cross(ranged("one-client", &client), &callers, &places, only(&[CLIENT]));
    // The node itself is allowed, so it is with the VIP as its own source.
    let worker = Caller::Host("worker");
    let nodes: &'static [Caller] = &[CLIENT, Caller::Host("worker"), Caller::Vip];
    group.cross(ranged("client-and-node", &with_nodes), &callers, &places, only(nodes));
    group.cross(ranged("client-and-pods", &with_pods), &callers, &places, only(&[CLIENT, POD]));
    group.cross(ranged("everybody", &["0.0.0.0/0", "::/0"]), &callers, &places, served);
    let mut local = ranged("one-client-local", &client);
    local.external = Local;
    group.cross(local, &[CLIENT, STRANGER, POD, worker], &places, |row| {
        let open = row.place != Place::Vip || row.from == CLIENT;
        Some(if open { Claim::Served } else { Claim::Dropped })
    });
    let empty = ranged("one-client-no-endpoints", &client).on(&[]);
    group.cross(empty, &[CLIENT, STRANGER], &places, |row| {
        let open = row.place != Place::Vip || row.from == CLIENT;
        Some(if open { Claim::Refused } else { Claim::Dropped })
    });
    let overlapping = [&client[..], &client, &["172.30.0.4/30", "172.30.0.5/31", "fd00:30::4/126"]].concat();
    group.cross(ranged("overlapping", &overlapping), &callers, &places, |row| {
        let open = row.place != Place::Vip || matches!(row.from, Caller::Client(_));
        Some(if open { Claim::Served } else { Claim::Dropped })
    });
    let mut sticky = ranged("one-client-sticky", &client);
    sticky.affinity = Some(600);
    group.cross(sticky, &[CLIENT, STRANGER], &places, only(&[CLIENT]));
    // The other worker does not know the way back to a VIP of this one.
    group.rows.retain(|row| row.from != Caller::Vip || row.place != Place::NodePort("worker2"));
    group
}

/// Several ports of one service.
/// Cases: nftables-12.16
pub(super) fn ports() -> Group {
    let mut group = Group::new("ports", &[]);
    let callers = [POD, Caller::Client("client2")];
    let shape = service("several").everywhere().on(&BOTH).ports([
        tcp("http", 80),
        tcp("admin", 81).to(plan::PORT + 1),
        udp("dns", 80).to(plan::PORT + 1),
        udp("more", 81).to(plan::PORT),
    ]);
    group.cross(shape, &callers, &EVERYWHERE, served);
    let crossed = service("crossed")
        .everywhere()
        .on(&["three"])
        .ports([tcp("a", plan::PORT + 1).to(plan::PORT), tcp("b", plan::PORT).to(plan::PORT + 1)]);
    group.cross(crossed, &callers, &EVERYWHERE, served);
    let same_name = service("same-name").everywhere().on(&["one"]).ports([tcp("dns", 53), udp("dns", 53)]);
    group.cross(same_name, &callers, &EVERYWHERE, served);
    group
}

/// Services of one family, and of two in either order.
/// Cases: report-C1-19
pub(super) fn families() -> Group {
    let mut group = Group::new("families", &[]);
    let callers = [POD, Caller::Host("worker"), CLIENT];
    for (name, families) in [
        ("ipv4-only", vec![IpFamily::Ipv4]),
        ("ipv6-only", vec![IpFamily::Ipv6]),
        ("ipv6-first", vec![IpFamily::Ipv6, IpFamily::Ipv4]),
    ] {
        let mut shape = service(name).everywhere().on(&BOTH);
        shape.families = families;
        group.cross(shape.clone(), &callers, &EVERYWHERE, served);
    }
    // Policies and placement of both families at once, with everybody.
    let both = service("both-local").everywhere().policies(Local, Cluster).on(&BOTH);
    group.cross(both, &EVERYBODY, &EVERYWHERE, served);
    group
}

/// Node ports on the addresses that are wanted, and on no other.
/// Cases: nftables-12.17, nftables-12.18, report-C6-65
pub(super) fn node_ports() -> Group {
    let mut group = Group::new("node-ports", &["node-cidr", "bridge"]);
    let callers = [POD, Caller::Host("worker"), Caller::Host("worker2"), CLIENT];
    let places = ["worker", "worker2"].map(|n| [Place::NodePort(n), Place::Second(n)]).concat();
    let wanted = |row: &Row| {
        Some(if matches!(row.place, Place::NodePort(_)) { Claim::Served } else { Claim::LeftAlone })
    };
    let ports = || [tcp("http", 80), udp("dns", 80)];
    group.cross(service("wanted").node_port().ports(ports()).on(&BOTH), &callers, &places, wanted);
    let local = service("wanted-local").node_port().policies(Local, Cluster).on(&BOTH);
    group.cross(local, &callers, &places, wanted);
    let none = service("wanted-none").node_port().ports(ports());
    group.cross(none, &callers, &places, |row| {
        Some(if matches!(row.place, Place::NodePort(_)) { Claim::Refused } else { Claim::LeftAlone })
    });
    let bridge = ["worker", "worker2"].map(Place::Gateway);
    let inside = [POD, Caller::Pod(plan::CALLER2), Caller::Host("worker")];
    group.cross(service("among-pods").node_port().ports(ports()).on(&BOTH), &inside, &bridge, wanted);
    let loopback = service("on-loopback").node_port().ports(ports()).on(&["one"]);
    group.cross(loopback, &[Caller::Loopback("worker")], &[Place::Loopback], |_| Some(Claim::LeftAlone));
    group
}

/// External IPs and VIPs that a node has as well.
pub(super) fn node_addresses() -> Group {
    let mut group = Group::new("node-addresses", &["no-detector", "node-cidr"]);
    let callers = [&EVERYBODY[..], &[Caller::Vip]].concat();
    let ports = || [tcp("http", 80), udp("dns", 80)];
    for (name, policy, pods) in [
        ("external-is-node", Cluster, &BOTH[..]),
        ("external-is-node-local", Local, &["three"]),
        ("external-is-node-none", Cluster, &[]),
    ] {
        let mut shape = service(name).everywhere().policies(policy, Cluster).ports(ports()).on(pods);
        shape.external_at = Some("worker");
        // One address for three services: each has a port of its own there.
        let number = 180 + u16::try_from(group.services.len()).unwrap_or(0);
        shape.ports.iter_mut().for_each(|p| p.port = number);
        group.cross(shape, &EVERYBODY, &[Place::ExternalIp], |_| None);
    }
    for (name, how) in [("vip-address", VipAt::Address), ("vip-local-route", VipAt::LocalRoute)] {
        for (policy, pods) in [(Cluster, &BOTH[..]), (Local, &["three"])] {
            let name = format!("{name}-{policy}").to_lowercase();
            let mut shape = service(name).everywhere().policies(policy, Cluster).ports(ports()).on(pods);
            shape.vip_at_worker = how;
            group.cross(shape, &callers, &[Place::Vip, Place::ClusterIp], |_| None);
        }
    }
    // IPv6 gives a socket no address that is no interface's (ipv6(7), EADDRNOTAVAIL).
    let unbindable = |row: &Row| {
        row.from == Caller::Vip && row.family == IpFamily::Ipv6 && row.service.contains("local-route")
    };
    group.rows.retain(|row| !unbindable(row));
    group
}

/// Ports and addresses that no service has.
/// Cases: nftables-12.13, nftables-12.14, nftables-12.15, report-C1-22
pub(super) fn unknown() -> Group {
    let mut group = Group::new("unknown", &["no-detector", "masquerade-all"]);
    let callers = [POD, Caller::Host("worker"), CLIENT];
    let shape = service("known").everywhere().on(&BOTH);
    let mut add = |change: &dyn Fn(Row) -> Row, claim: Claim| {
        for from in callers {
            group.each_family(&shape, |row| change(Row { from, ..row }), |_| Some(claim));
        }
    };
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let wrong =
            move |place| move |row: Row| Row { place, number: Some(81), protocol: Some(protocol), ..row };
        add(&wrong(Place::ClusterIp), Claim::Refused);
        add(&wrong(Place::Unallocated), Claim::Dropped);
        add(&wrong(Place::Vip), Claim::LeftAlone);
        add(&wrong(Place::ExternalIp), Claim::LeftAlone);
        add(&wrong(Place::NodePort("worker")), Claim::LeftAlone);
    }
    // The right number, the wrong protocol.
    let udp = |place| move |row: Row| Row { place, protocol: Some(Protocol::Udp), ..row };
    add(&udp(Place::ClusterIp), Claim::Refused);
    add(&udp(Place::Vip), Claim::LeftAlone);
    add(&udp(Place::NodePort("worker2")), Claim::LeftAlone);
    // No port at all.
    let portless = |place| move |row: Row| Row { place, portless: true, ..row };
    add(&portless(Place::ClusterIp), Claim::Refused);
    add(&portless(Place::Unallocated), Claim::Dropped);
    add(&portless(Place::Vip), Claim::LeftAlone);
    add(&portless(Place::NodePort("worker")), Claim::LeftAlone);
    // A node port is no port of the service's other addresses, and they are no node ports (public report 22).
    for place in [Place::Vip, Place::ExternalIp] {
        add(&move |row: Row| Row { place, number: Some(NODE_PORT_OF_ANOTHER), ..row }, Claim::LeftAlone);
    }
    add(&|row: Row| Row { number: Some(NODE_PORT_OF_ANOTHER), ..row }, Claim::Refused);
    group.services.push(shape);
    group
}

/// A node port of the first service there is.
const NODE_PORT_OF_ANOTHER: u16 = 30_000;

/// Two services that wish for the same frontends: the older one has them, each keeps its cluster IP.
/// Cases: nftables-12.31
pub(super) fn conflicts() -> Group {
    let mut group = Group::new("conflicts", &[]);
    let pods: fn(&'static str, &'static str, u8) -> Shape = |name, pod, day| {
        let mut shape = service(name).everywhere().on(&[pod]);
        shape.day = day;
        shape
    };
    let callers = [POD, CLIENT];
    let mut younger = pods("younger", "three", 12);
    younger.rival_of = Some("older");
    group.cross(younger, &callers, &EVERYWHERE, served);
    group.cross(pods("older", "one", 11), &callers, &EVERYWHERE, served);
    // The older one keeps what it has even while it has no endpoints.
    let mut waiting = pods("younger-of-none", "three", 12);
    waiting.rival_of = Some("older-none");
    group.cross(waiting, &callers, &EVERYWHERE, |row| {
        Some(if row.place == Place::ClusterIp { Claim::Served } else { Claim::Refused })
    });
    group.cross(pods("older-none", "one", 11).on(&[]), &callers, &EVERYWHERE, |_| Some(Claim::Refused));
    group
}
