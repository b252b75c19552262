//! What must happen to packets: the client matrix of iptables spec 5.14 cell by cell, then the edge cases of the specs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::cluster::{Cluster, DetectLocal, NodePortSelector, TrafficOptions};
use crate::ids::{IpFamily, NodeName, ServiceName, Timestamp};
use crate::model::{
    Conditions, EndpointSlice, Hints, NodeFacts, PerFamily, Service, ServicePortSpec, ServiceType,
    SliceEndpoint, SliceName, SlicePort,
};
use crate::snapshot::{FrontendKind, Snapshot};

/// Addresses of the lab, by name, in both families.
fn ip(name: &str, family: IpFamily) -> IpAddr {
    let (v4, v6) = match name {
        "loopback" => ("127.0.0.1", "::1"),
        "node" => ("172.30.0.3", "fd00:30::3"),
        "second" => ("192.168.7.3", "fd00:77::3"),
        "bridge" => ("10.244.1.1", "fd00:10:244:1::1"),
        "pod" => ("10.244.1.9", "fd00:10:244:1::9"),
        "far pod" => ("10.244.2.9", "fd00:10:244:2::9"),
        "outside" => ("172.30.0.5", "fd00:30::5"),
        "local endpoint" => ("10.244.1.2", "fd00:10:244:1::2"),
        "remote endpoint" => ("10.244.2.2", "fd00:10:244:2::2"),
        "cluster IP" => ("10.96.1.1", "fd00:96::1:1"),
        "free cluster IP" => ("10.96.9.9", "fd00:96::9:9"),
        "VIP" => ("192.0.2.10", "2001:db8::10"),
        "external IP" => ("192.0.2.77", "2001:db8::77"),
        "elsewhere" => ("198.51.100.1", "2001:db8:1::1"),
        other => other.split_once(" | ").unwrap_or((other, other)),
    };
    match family {
        IpFamily::Ipv4 => v4.parse().unwrap(),
        IpFamily::Ipv6 => v6.parse().unwrap(),
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

/// A cluster seen from node `worker`, one Service web/front in it. Change the parts, then ask.
#[derive(Clone, Debug)]
struct World {
    family: IpFamily,
    options: TrafficOptions,
    node: NodeFacts,
    service: Service,
    endpoints: Vec<SliceEndpoint>,
    others: Vec<Service>,
}

impl World {
    /// Node ports everywhere, pods detected by the cluster's range, ports 80 and 30080, an endpoint here and one elsewhere.
    fn new(family: IpFamily) -> Self {
        let options = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![net("10.244.0.0/16"), net("fd00:10:244::/48")]),
            service_cidrs: vec![net("10.96.0.0/12"), net("fd00:96::/64")],
            ..TrafficOptions::default()
        };
        let host = ["loopback", "node", "second", "bridge"].map(|n| IpFamily::ALL.map(|f| ip(n, f)));
        let node = NodeFacts {
            ips: PerFamily { ipv4: Some(ip("node", IpFamily::Ipv4)), ipv6: Some(ip("node", IpFamily::Ipv6)) },
            host_addresses: host.concat(),
            ..NodeFacts::default()
        };
        let endpoints = vec![endpoint("local endpoint", family), endpoint("remote endpoint", family)];
        let mut service = bare_service("front", "cluster IP", family);
        service.ports[0].node_port = Some(port(30080));
        service.external_ips.get_mut(family).push(ip("external IP", family));
        service.load_balancer_vips.get_mut(family).push(ip("VIP", family));
        Self { family, options, node, service, endpoints, others: Vec::new() }
    }

    fn v4() -> Self {
        Self::new(IpFamily::Ipv4)
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn external_local(self) -> Self {
        self.with(|w| w.service.external_policy = TrafficPolicy::Local)
    }

    fn internal_local(self) -> Self {
        self.with(|w| w.service.internal_policy = TrafficPolicy::Local)
    }

    fn remote_only(self) -> Self {
        self.with(|w| {
            w.endpoints.remove(0);
        })
    }

    fn snapshot(&self) -> Snapshot {
        let mut cluster = Cluster::new(NodeName::new("worker"), self.options.clone());
        cluster.set_node(self.node.clone());
        for service in self.others.iter().chain([&self.service]) {
            cluster.upsert_service(service.clone());
            cluster.upsert_slice(EndpointSlice {
                name: SliceName { service: service.name.clone(), name: "a".into() },
                family: self.family,
                ports: service
                    .ports
                    .iter()
                    .map(|p| SlicePort { name: Arc::clone(&p.name), protocol: p.protocol, port: port(8080) })
                    .collect(),
                endpoints: self.endpoints.clone(),
                trigger: None,
            });
        }
        cluster.commit().snapshot(self.family).clone()
    }

    /// A TCP packet: `client` is one of those below, `to` a name of [`ip`] and a port.
    fn packet(&self, client: &str, to: &str) -> Packet {
        let (destination, number) = to.rsplit_once(':').unwrap();
        let (source, interface) = match client {
            "pod" | "local endpoint" => (client, Some("cni0")),
            "far pod" | "remote endpoint" | "outside" | "elsewhere" => (client, Some("eth0")),
            "node process" => ("node", None),
            other => (other.strip_prefix("host as ").unwrap_or_else(|| panic!("{other:?}")), None),
        };
        Packet {
            source: ip(source, self.family),
            destination: ip(destination, self.family),
            protocol: Some(Protocol::Tcp),
            port: number.parse().unwrap(),
            entry: interface.map_or(Entry::Host, |i| Entry::Interface(i.into())),
        }
    }

    fn decide(&self, client: &str, to: &str) -> Decision {
        decide(&self.snapshot(), &self.packet(client, to))
    }

    /// In short: `all`, `loc` or `far` endpoints, `M` when all are masqueraded, `–` when none is, `H` when some are.
    fn ask(&self, client: &str, to: &str) -> String {
        self.shorten(&self.decide(client, to))
    }

    fn shorten(&self, decision: &Decision) -> String {
        let choices = match &decision.outcome {
            Outcome::Reject => return "reject".into(),
            Outcome::Drop => return "drop".into(),
            Outcome::NotOurs => return "pass".into(),
            Outcome::Endpoints(choices) => choices,
        };
        let addresses: Vec<IpAddr> = choices.iter().map(|c| c.endpoint.ip).collect();
        let [local, remote] = ["local endpoint", "remote endpoint"].map(|n| ip(n, self.family));
        let set = match addresses[..] {
            [a, b] if (a, b) == (local, remote) => "all",
            [a] if a == local => "loc",
            [a] if a == remote => "far",
            _ => panic!("{decision:?}"),
        };
        assert!(choices.iter().all(|c| c.weight == 1 && c.endpoint.port.get() == 8080));
        let masquerade = match choices.iter().filter(|c| c.masquerade).count() {
            0 => "–",
            n if n == choices.len() => "M",
            _ => "H",
        };
        assert_eq!(decision.masquerade.is_empty(), masquerade == "–");
        format!("{set} {masquerade}")
    }
}

fn bare_service(name: &str, cluster_ip: &str, family: IpFamily) -> Service {
    let mut service = Service {
        name: ServiceName::new("web", name),
        created: None,
        kind: ServiceType::LoadBalancer,
        cluster_ips: PerFamily::default(),
        ports: vec![ServicePortSpec {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: port(80),
            node_port: None,
        }],
        external_ips: PerFamily::default(),
        load_balancer_vips: PerFamily::default(),
        source_ranges: PerFamily::default(),
        external_policy: TrafficPolicy::Cluster,
        internal_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: None,
    };
    *service.cluster_ips.get_mut(family) = Some(ip(cluster_ip, family));
    service
}

fn endpoint(name: &str, family: IpFamily) -> SliceEndpoint {
    let node = if name == "local endpoint" { "worker" } else { "worker2" };
    SliceEndpoint {
        ip: ip(name, family),
        conditions: Conditions::default(),
        node: Some(node.into()),
        hints: Hints::default(),
    }
}

const NOT_READY: Conditions = Conditions { ready: false, serving: false, terminating: false };
const DRAINING: Conditions = Conditions { ready: false, serving: true, terminating: true };

/// All external frontends, as destinations.
const EXTERNAL: [&str; 4] = ["VIP:80", "external IP:80", "node:30080", "second:30080"];

/// Rows of iptables spec 5.14: client, destination, then default, eTP Local, iTP Local.
const MATRIX: &str = "
pod          | ClusterIP | all – | all – | loc –
pod          | external  | all M | all – | all M
node process | ClusterIP | all M | all M | loc M
node process | external  | all M | all M | all M
outside      | ClusterIP | all M | all M | loc M
outside      | external  | all M | loc – | all M
far pod      | ClusterIP | all – | all – | loc –
far pod      | external  | all M | all – | all M
";

const NO_DETECTOR: &str = "
pod          | ClusterIP | all – | all – | loc –
pod          | external  | all M | loc – | all M
node process | ClusterIP | all – | all – | loc –
node process | external  | all M | all M | all M
outside      | ClusterIP | all – | all – | loc –
outside      | external  | all M | loc – | all M
";

const MASQUERADE_ALL: &str = "
pod          | ClusterIP | all M | all M | loc M
pod          | external  | all M | all – | all M
node process | ClusterIP | all M | all M | loc M
node process | external  | all M | all M | all M
outside      | ClusterIP | all M | all M | loc M
outside      | external  | all M | loc – | all M
";

/// By interface only this node's pods are recognised; what the host sends never is.
const INTERFACE: &str = "
pod          | ClusterIP | all – | all – | loc –
pod          | external  | all M | all – | all M
far pod      | ClusterIP | all M | all M | loc M
far pod      | external  | all M | loc – | all M
node process | ClusterIP | all M | all M | loc M
node process | external  | all M | all M | all M
host as bridge | ClusterIP | all M | all M | loc M
host as bridge | external  | all M | all M | all M
outside      | ClusterIP | all M | all M | loc M
outside      | external  | all M | loc – | all M
";

fn check_matrix(matrix: &str, change: impl Fn(&mut World)) {
    for family in IpFamily::ALL {
        let world = World::new(family).with(&change);
        let columns = [world.clone(), world.clone().external_local(), world.internal_local()];
        for row in matrix.lines().filter(|l| !l.is_empty()) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [client, to, wants @ ..] = cells.as_slice() else { panic!("{row}") };
            let destinations: &[&str] = match *to {
                "ClusterIP" => &["cluster IP:80"],
                "external" => &EXTERNAL,
                other => panic!("{other}"),
            };
            assert_eq!(wants.len(), columns.len());
            for (world, want) in columns.iter().zip(wants) {
                for to in destinations {
                    let external = world.service.external_policy;
                    let internal = world.service.internal_policy;
                    let got = world.ask(client, to);
                    assert_eq!(got, *want, "{family} {client} -> {to}, eTP {external}, iTP {internal}");
                }
            }
        }
    }
}

#[test]
fn client_matrix() {
    check_matrix(MATRIX, |_| {});
}

#[test]
fn client_matrix_without_detector() {
    check_matrix(NO_DETECTOR, |w| w.options.detect_local = DetectLocal::ClusterCidr(vec![]));
}

#[test]
fn client_matrix_with_masquerade_all() {
    check_matrix(MASQUERADE_ALL, |w| w.options.masquerade_all = true);
}

#[test]
fn client_matrix_by_interface() {
    check_matrix(INTERFACE, |w| w.options.detect_local = DetectLocal::BridgeInterface("cni0".into()));
    check_matrix(INTERFACE, |w| w.options.detect_local = DetectLocal::InterfaceNamePrefix("cni".into()));
}

/// The whole name counts for a bridge, its beginning for a prefix.
#[test]
fn interface_names() {
    let asks = |detector, interface: &str| {
        let world = World::v4().with(|w| w.options.detect_local = detector);
        let entry = Entry::Interface(interface.into());
        let packet = Packet { entry, ..world.packet("pod", "cluster IP:80") };
        decide(&world.snapshot(), &packet).origin
    };
    let bridge = || DetectLocal::BridgeInterface("cni0".into());
    let prefix = || DetectLocal::InterfaceNamePrefix("cni0".into());
    assert_eq!(asks(bridge(), "cni0"), Origin::Pod);
    assert_eq!(asks(bridge(), "cni01"), Origin::Outside);
    assert_eq!(asks(bridge(), "cni"), Origin::Outside);
    assert_eq!(asks(prefix(), "cni01"), Origin::Pod);
    assert_eq!(asks(prefix(), "cni"), Origin::Outside);
}

/// The table of the lab's experiment A, as far as the choice and the source go.
#[test]
fn lab_source_address() {
    let here = World::v4().with(|w| {
        w.endpoints.remove(1);
    });
    assert_eq!(here.ask("pod", "cluster IP:80"), "loc –");
    assert_eq!(here.ask("far pod", "cluster IP:80"), "loc –");
    assert_eq!(here.ask("local endpoint", "cluster IP:80"), "loc M");
    assert_eq!(here.ask("outside", "node:30080"), "loc M");
    assert_eq!(here.clone().external_local().ask("outside", "node:30080"), "loc –");
    let there = World::v4().remote_only();
    assert_eq!(there.ask("outside", "node:30080"), "far M");
    assert_eq!(there.external_local().ask("outside", "node:30080"), "drop");
}

#[test]
fn decision_names_what_it_used() {
    let world = World::v4().external_local().with(|w| w.service.affinity = Some(Duration::from_secs(600)));
    let got = world.decide("node process", "VIP:80");
    let (frontend, owner) = got.frontend.clone().unwrap();
    assert_eq!(frontend.kind, FrontendKind::LoadBalancerVip);
    assert_eq!(owner.to_string(), "web/front:http");
    assert_eq!((got.origin, got.reason.clone()), (Origin::Host, Reason::Balanced));
    assert_eq!((got.policy, got.scope), (Some(TrafficPolicy::Local), Some(TrafficPolicy::Cluster)));
    assert_eq!(got.masquerade, [MasqueradeReason::FromHost]);
    assert_eq!(got.affinity, Some(Duration::from_secs(600)));
    assert_eq!((got.excluded, got.health_check), (vec![], None));

    let got = world.decide("outside", "node:30080");
    assert_eq!(got.frontend.unwrap().0.kind, FrontendKind::NodePort);
    assert_eq!((got.policy, got.scope), (Some(TrafficPolicy::Local), Some(TrafficPolicy::Local)));
    let far = EndpointAddr { ip: ip("remote endpoint", IpFamily::Ipv4), port: port(8080) };
    assert_eq!(got.excluded, [(far, Exclusion::NotOnThisNode)]);

    let got = world.decide("outside", "cluster IP:80");
    let detector = LocalDetector::Cidr(net("10.244.0.0/16"));
    assert_eq!(got.masquerade, [MasqueradeReason::NotFromPod(detector)]);
    assert_eq!(
        World::v4().decide("pod", "external IP:80").masquerade,
        [MasqueradeReason::ExternalPolicyCluster]
    );
}

/// A source that is both in the detector's range and this host's own is treated as a pod.
#[test]
fn host_address_in_the_pod_range_counts_as_pod() {
    let world = World::v4().external_local();
    assert_eq!(world.ask("host as bridge", "cluster IP:80"), "all –");
    assert_eq!(world.ask("host as bridge", "VIP:80"), "all –");
    assert_eq!(world.decide("host as bridge", "VIP:80").origin, Origin::Pod);
    assert_eq!(world.decide("host as loopback", "VIP:80").origin, Origin::Host);
    assert_eq!(world.decide("host as 127.9.9.9", "VIP:80").origin, Origin::Host);
}

#[test]
fn hairpin_is_masqueraded_for_that_choice_only() {
    for family in IpFamily::ALL {
        for world in
            [World::new(family), World::new(family).with(|w| w.options.detect_local = DetectLocal::NodeCidr)]
        {
            let got = world.decide("local endpoint", "cluster IP:80");
            let Outcome::Endpoints(choices) = &got.outcome else { panic!("{got:?}") };
            let masqueraded: Vec<_> = choices
                .iter()
                .map(|c| (c.endpoint.ip == ip("local endpoint", family), c.masquerade))
                .collect();
            assert_eq!(masqueraded, [(true, true), (false, false)]);
            assert_eq!(got.masquerade, [MasqueradeReason::Hairpin]);
        }
        let short_circuited = World::new(family).external_local().decide("local endpoint", "VIP:80");
        assert_eq!(short_circuited.masquerade, [MasqueradeReason::Hairpin]);
        let already = World::new(family).decide("local endpoint", "VIP:80");
        assert_eq!(already.masquerade, [MasqueradeReason::ExternalPolicyCluster]);
    }
}

/// An endpoint of another node cannot reach itself through this one (nftables spec 12, number 26).
#[test]
fn remote_endpoint_as_client_is_no_hairpin() {
    assert_eq!(World::v4().ask("remote endpoint", "cluster IP:80"), "all –");
}

#[test]
fn no_endpoints_is_rejected_everywhere() {
    for endpoints in [vec![], vec![NOT_READY], vec![Conditions { serving: true, ..NOT_READY }]] {
        for world in [World::v4(), World::v4().external_local(), World::v4().internal_local()] {
            let world = world.with(|w| {
                w.endpoints.truncate(endpoints.len());
                w.endpoints.iter_mut().zip(&endpoints).for_each(|(e, c)| e.conditions = *c);
            });
            for to in EXTERNAL.iter().chain(&["cluster IP:80"]) {
                for client in ["pod", "outside", "node process"] {
                    let got = world.decide(client, to);
                    assert_eq!(
                        (got.outcome, got.reason),
                        (Outcome::Reject, Reason::NoEndpoints),
                        "{client} {to}"
                    );
                    assert_eq!(got.excluded.len(), endpoints.len());
                    assert!(got.excluded.iter().all(|(_, e)| *e == Exclusion::NotReady));
                    assert_eq!((got.scope, got.masquerade, got.affinity), (None, vec![], None));
                }
            }
        }
    }
}

/// Core spec 3.5 and nftables spec 12, numbers 3 to 5.
#[test]
fn no_local_endpoints() {
    let external = World::v4().external_local().remote_only();
    for to in EXTERNAL {
        let got = external.decide("outside", to);
        assert_eq!((got.outcome, got.reason), (Outcome::Drop, Reason::NoLocalEndpoints));
        assert_eq!(got.scope, Some(TrafficPolicy::Local));
        assert_eq!(got.excluded.len(), 1);
        assert_eq!(external.ask("pod", to), "far –");
        assert_eq!(external.ask("node process", to), "far M");
    }
    assert_eq!(external.ask("outside", "cluster IP:80"), "far M");

    let internal = World::v4().internal_local().remote_only();
    for client in ["pod", "outside", "node process"] {
        assert_eq!(internal.ask(client, "cluster IP:80"), "drop");
        assert_eq!(internal.ask(client, "VIP:80"), "far M");
    }
    let only_internal = internal.with(|w| {
        w.service.external_ips = PerFamily::default();
        w.service.load_balancer_vips = PerFamily::default();
        w.service.ports[0].node_port = None;
    });
    assert_eq!(only_internal.ask("pod", "cluster IP:80"), "drop");
    assert_eq!(only_internal.decide("pod", "cluster IP:80").reason, Reason::NoLocalEndpoints);
    let both = World::v4().internal_local().external_local().remote_only();
    assert_eq!(both.ask("pod", "VIP:80"), "far –");
    assert_eq!(both.ask("pod", "cluster IP:80"), "drop");
}

/// iptables spec 12, numbers 5 and 7.
#[test]
fn terminating_endpoints() {
    let only_remote_draining =
        World::v4().external_local().remote_only().with(|w| w.endpoints[0].conditions = DRAINING);
    assert_eq!(only_remote_draining.ask("pod", "cluster IP:80"), "far –");
    assert_eq!(only_remote_draining.ask("outside", "VIP:80"), "drop");

    let local_draining = World::v4().external_local().with(|w| w.endpoints[0].conditions = DRAINING);
    let inside = local_draining.decide("pod", "cluster IP:80");
    assert_eq!(local_draining.shorten(&inside), "far –");
    let local = EndpointAddr { ip: ip("local endpoint", IpFamily::Ipv4), port: port(8080) };
    assert_eq!(inside.excluded, [(local, Exclusion::TerminatingWithReadyOthers)]);
    assert_eq!(local_draining.ask("outside", "VIP:80"), "loc –");
    assert_eq!(local_draining.ask("pod", "VIP:80"), "far –");

    let all_draining = World::v4().with(|w| w.endpoints.iter_mut().for_each(|e| e.conditions = DRAINING));
    assert_eq!(all_draining.ask("pod", "cluster IP:80"), "all –");
}

#[test]
fn topology_excludes_and_says_so() {
    let hinted = |zones: [&str; 2]| {
        World::v4().external_local().with(|w| {
            w.node.zone = Some("zone-a".into());
            for (e, zone) in w.endpoints.iter_mut().zip(zones) {
                e.hints.zones = Some([Arc::from(zone)].into());
            }
        })
    };
    let world = hinted(["zone-b", "zone-a"]);
    let got = world.decide("pod", "cluster IP:80");
    assert_eq!(world.shorten(&got), "far –");
    assert_eq!(got.excluded[0].1, Exclusion::Topology(TopologyMode::SameZone));
    assert_eq!(world.ask("outside", "VIP:80"), "loc –", "hints never affect the local set");
    assert_eq!(world.ask("node process", "VIP:80"), "far M");
    assert_eq!(hinted(["zone-b", "zone-c"]).ask("pod", "cluster IP:80"), "all –");
}

fn restricted(ranges: &[&str]) -> World {
    World::v4().with(|w| w.service.source_ranges.ipv4 = ranges.iter().map(|r| net(r)).collect())
}

/// nftables spec 12, number 24; iptables spec 12, number 14.
#[test]
fn source_ranges_apply_to_vips_and_to_everybody() {
    let world = restricted(&["203.0.113.0/24", "172.30.0.5/32"]);
    assert_eq!(world.ask("outside", "VIP:80"), "all M");
    for client in ["pod", "far pod", "node process", "local endpoint", "elsewhere"] {
        let got = world.decide(client, "VIP:80");
        assert_eq!((&got.outcome, &got.reason), (&Outcome::Drop, &Reason::SourceNotInRanges), "{client}");
        assert_eq!((got.policy, got.scope, got.excluded), (Some(TrafficPolicy::Cluster), None, vec![]));
        for to in ["external IP:80", "node:30080"] {
            assert_eq!(world.ask(client, to).split(' ').next(), Some("all"), "{client} {to}");
        }
    }
    assert_eq!(world.ask("pod", "cluster IP:80"), "all –");
}

/// nftables spec 12, number 2: before anything else.
#[test]
fn source_ranges_come_before_the_reject() {
    let world = restricted(&["172.30.0.5/32"]).with(|w| w.endpoints.clear());
    assert_eq!(world.ask("elsewhere", "VIP:80"), "drop");
    assert_eq!(world.ask("outside", "VIP:80"), "reject");
    let local = restricted(&["172.30.0.5/32"]).external_local().remote_only();
    assert_eq!(local.decide("elsewhere", "VIP:80").reason, Reason::SourceNotInRanges);
    assert_eq!(local.decide("outside", "VIP:80").reason, Reason::NoLocalEndpoints);
}

/// nftables spec 12, number 23.
#[test]
fn vip_as_source_is_allowed_when_the_node_is() {
    let with_node = restricted(&["172.30.0.0/24"]);
    assert_eq!(with_node.ask("host as VIP", "VIP:80"), "all M");
    assert_eq!(restricted(&["203.0.113.0/24"]).ask("host as VIP", "VIP:80"), "drop");
    let unknown_node = with_node.clone().with(|w| w.node.ips = PerFamily::default());
    assert_eq!(unknown_node.ask("host as VIP", "VIP:80"), "drop");
    assert_eq!(unknown_node.ask("node process", "VIP:80"), "all M", "as a source it is in the range");
    assert_eq!(with_node.ask("host as external IP", "VIP:80"), "drop", "VIPs only");
}

#[test]
fn source_ranges_of_the_other_family_restrict_nothing() {
    let world = World::v4().with(|w| w.service.source_ranges.ipv6.push(net("2001:db8::/32")));
    assert_eq!(world.ask("elsewhere", "VIP:80"), "all M");
}

/// nftables spec 12, number 30.
#[test]
fn external_ip_on_a_node_address_wins_over_a_node_port() {
    let world = World::v4().with(|w| {
        let mut other = bare_service("other", "free cluster IP", w.family);
        other.ports[0].port = port(30080);
        other.external_ips.ipv4.push(ip("node", w.family));
        w.others.push(other);
    });
    let owner = |to| world.decide("outside", to).frontend.map(|(f, p)| (f.kind, p.service.name.to_string()));
    assert_eq!(owner("node:30080"), Some((FrontendKind::ExternalIp, "other".into())));
    assert_eq!(owner("second:30080"), Some((FrontendKind::NodePort, "front".into())));
}

/// nftables spec 12, number 31: the older one wins, whatever came first; one without a time loses.
#[test]
fn conflicting_claims() {
    let rival = |created| {
        World::v4().with(|w| {
            w.service.created = Some(Timestamp(100));
            let mut other = bare_service("aaa", "free cluster IP", w.family);
            other.created = created;
            other.external_ips.ipv4.push(ip("external IP", w.family));
            other.ports[0].node_port = Some(port(30080));
            w.others.push(other);
        })
    };
    for (created, winner) in [(Some(Timestamp(99)), "aaa"), (Some(Timestamp(101)), "front"), (None, "front")]
    {
        let world = rival(created);
        for to in ["external IP:80", "node:30080"] {
            let (_, owner) = world.decide("outside", to).frontend.unwrap();
            assert_eq!(&*owner.service.name, winner, "{to}");
        }
        assert_eq!(&*world.decide("pod", "cluster IP:80").frontend.unwrap().1.service.name, "front");
    }
}

/// nftables spec 12, numbers 13 and 15.
#[test]
fn wrong_port_or_protocol_of_a_cluster_ip_is_rejected() {
    let world = World::v4();
    for client in ["pod", "outside", "node process"] {
        let got = world.decide(client, "cluster IP:81");
        assert_eq!((got.outcome, got.reason), (Outcome::Reject, Reason::UnknownPortOfClusterIp));
        for protocol in [None, Some(Protocol::Udp), Some(Protocol::Sctp)] {
            let packet = Packet { protocol, ..world.packet(client, "cluster IP:80") };
            let got = decide(&world.snapshot(), &packet);
            assert_eq!((got.outcome, got.reason), (Outcome::Reject, Reason::UnknownPortOfClusterIp));
        }
    }
    assert_eq!(world.ask("pod", "VIP:81"), "pass");
    assert_eq!(world.ask("pod", "external IP:81"), "pass");
    assert_eq!(world.ask("pod", "cluster IP:0"), "reject");
    let icmp = Packet { protocol: None, port: 0, ..world.packet("pod", "VIP:80") };
    assert_eq!(decide(&world.snapshot(), &icmp).outcome, Outcome::NotOurs);
}

/// nftables spec 12, number 14.
#[test]
fn unallocated_cluster_ip_is_dropped_where_ranges_are_known() {
    for family in IpFamily::ALL {
        let world = World::new(family);
        for client in ["pod", "outside", "node process"] {
            let got = world.decide(client, "free cluster IP:80");
            assert_eq!((got.outcome, got.reason), (Outcome::Drop, Reason::UnallocatedClusterIp));
        }
        let unknown = world.clone().with(|w| w.options.service_cidrs.clear());
        assert_eq!(unknown.ask("pod", "free cluster IP:80"), "pass");
        assert_eq!(unknown.ask("pod", "cluster IP:81"), "reject");
        assert_eq!(world.ask("pod", "elsewhere:80"), "pass");
    }
}

/// The check sits in the forward and output paths: what arrives for an own address passes neither.
#[test]
fn cluster_ips_that_are_own_addresses() {
    for to in ["cluster IP", "free cluster IP"] {
        let world = World::v4().with(|w| w.node.host_addresses.push(ip(to, w.family)));
        assert_eq!(world.ask("pod", &format!("{to}:81")), "pass");
        assert_ne!(world.ask("node process", &format!("{to}:81")), "pass");
    }
    let world = World::v4().with(|w| w.node.host_addresses.push(ip("cluster IP", w.family)));
    assert_eq!(world.ask("pod", "cluster IP:80"), "all –");
}

/// nftables spec 12, number 16.
#[test]
fn protocols_on_one_number_are_apart() {
    let world = World::v4().with(|w| {
        let udp = ServicePortSpec { name: "u".into(), protocol: Protocol::Udp, ..w.service.ports[0].clone() };
        let sctp = ServicePortSpec { name: "s".into(), protocol: Protocol::Sctp, ..udp.clone() };
        w.service.ports.extend([udp, sctp]);
    });
    let snapshot = world.snapshot();
    for to in ["cluster IP:80", "VIP:80", "node:30080"] {
        for (protocol, name) in [(Protocol::Tcp, "http"), (Protocol::Udp, "u"), (Protocol::Sctp, "s")] {
            let packet = Packet { protocol: Some(protocol), ..world.packet("pod", to) };
            assert_eq!(&*decide(&snapshot, &packet).frontend.unwrap().1.port, name);
        }
    }
}

/// nftables spec 12, numbers 17 to 20.
#[test]
fn node_port_addresses() {
    let select = |selector| World::v4().with(|w| w.options.node_port_addresses = selector);
    let answers = |world: &World| {
        ["node:30080", "second:30080", "loopback:30080", "bridge:30080", "outside:30080"]
            .map(|to| world.ask("node process", to) != "pass")
    };
    let cidrs = |list: &[&str]| NodePortSelector::Cidrs(list.iter().map(|c| net(c)).collect());
    assert_eq!(answers(&select(cidrs(&[]))), [true, true, false, true, false]);
    assert_eq!(answers(&select(cidrs(&["192.168.0.0/16", "0.0.0.0/0"]))), [true, true, false, true, false]);
    assert_eq!(answers(&select(cidrs(&["192.168.0.0/16"]))), [false, true, false, false, false]);
    assert_eq!(answers(&select(NodePortSelector::Primary)), [true, false, false, false, false]);
    assert_eq!(answers(&select(cidrs(&["127.0.0.0/8"]))), [false; 5]);
    assert_eq!(answers(&select(cidrs(&["10.20.30.0/24"]))), [false; 5]);
    let six = World::new(IpFamily::Ipv6).with(|w| w.options.node_port_addresses = cidrs(&["192.168.0.0/16"]));
    assert_eq!(answers(&six), [true, true, false, true, false], "no range of its own matches all");
    assert_eq!(World::v4().ask("host as loopback", "127.0.0.2:30080"), "pass");
}

/// Iptables spec 5.9 and 5.14; its edge cases 18 to 20.
#[test]
fn node_ports_on_loopback() {
    let cidrs = |list: &[&str]| NodePortSelector::Cidrs(list.iter().map(|c| net(c)).collect());
    let select = |world: World, selector| {
        world.with(|w| {
            w.options.localhost_node_ports = true;
            w.options.node_port_addresses = selector;
        })
    };
    let answers = |world: &World| {
        [("host as loopback", "loopback:30080"), ("host as loopback", "127.0.0.2:30080")]
            .map(|(from, to)| world.ask(from, to) != "pass")
    };
    let v4 = |list: &[&str]| select(World::v4(), cidrs(list));
    assert_eq!(answers(&v4(&[])), [true; 2]);
    assert_eq!(answers(&v4(&["172.30.0.0/16", "0.0.0.0/0"])), [true; 2]);
    // Of a range, what the host has on its interfaces.
    assert_eq!(answers(&v4(&["127.0.0.0/8"])), [true, false]);
    assert_eq!(answers(&v4(&["172.30.0.0/16", "127.0.0.1/32"])), [true, false]);
    assert_eq!(answers(&v4(&["120.0.0.0/5"])), [true, false]);
    assert_eq!(answers(&v4(&["172.30.0.0/16"])), [false; 2]);
    assert_eq!(v4(&["127.0.0.0/8"]).ask("node process", "node:30080"), "pass");
    // Of another port nothing is known, and of what arrives from elsewhere nothing is answered.
    assert_eq!(v4(&[]).ask("host as loopback", "loopback:30081"), "pass");
    assert_eq!(v4(&[]).ask("outside", "loopback:30080"), "pass");
    // Masqueraded whatever the policy is: the source would be a loopback address elsewhere.
    for world in [v4(&[]), v4(&[]).external_local(), v4(&[]).internal_local()] {
        assert_eq!(world.ask("host as loopback", "loopback:30080"), "all M");
        assert_eq!(world.remote_only().ask("host as loopback", "loopback:30080"), "far M");
    }
    let primary = select(World::v4(), NodePortSelector::Primary);
    assert_eq!(answers(&primary), [false; 2]);
    let nameless = primary.with(|w| w.node.ips.ipv4 = None);
    assert_eq!(answers(&nameless), [true; 2], "an unknown address of its own matches all");
    let six = select(World::new(IpFamily::Ipv6), cidrs(&[]));
    assert_eq!(six.ask("host as loopback", "loopback:30080"), "pass");
    assert_eq!(World::v4().ask("host as loopback", "loopback:30080"), "pass", "off by default");
}

/// Core spec 4.1 and iptables spec 5.10.
#[test]
fn health_check_node_port_is_accepted_on_own_addresses() {
    let world = World::v4().external_local().with(|w| w.service.health_check_node_port = Some(port(32100)));
    for to in ["node:32100", "second:32100", "loopback:32100"] {
        let got = world.decide("outside", to);
        assert_eq!((got.outcome, got.health_check), (Outcome::NotOurs, Some(port(32100))), "{to}");
    }
    for to in ["elsewhere:32100", "node:32101", "VIP:32100"] {
        assert_eq!(world.decide("outside", to).health_check, None, "{to}");
    }
    let udp = Packet { protocol: Some(Protocol::Udp), ..world.packet("outside", "node:32100") };
    assert_eq!(decide(&world.snapshot(), &udp).health_check, None);
}

/// Core spec 11, number 24, and 1.4: the gate hides the address, not the accessibility.
#[test]
fn external_ips_behind_a_closed_gate() {
    let world = World::v4().internal_local().remote_only().with(|w| w.options.external_ips = false);
    assert_eq!(world.ask("outside", "external IP:80"), "pass");
    assert_eq!(world.ask("outside", "VIP:80"), "far M");
}

#[test]
fn packets_of_the_other_family_are_not_ours() {
    let six = World::new(IpFamily::Ipv6).packet("pod", "cluster IP:80");
    let got = decide(&World::v4().snapshot(), &six);
    assert_eq!((got.outcome, got.reason), (Outcome::NotOurs, Reason::NoFrontend));
}

#[test]
fn choices_are_sorted_by_number_not_by_text() {
    let world = World::v4().with(|w| {
        let at = |n: u8| SliceEndpoint { ip: IpAddr::from([10, 244, 2, n]), ..w.endpoints[1].clone() };
        w.endpoints = vec![at(10), at(1), at(9)];
    });
    let Outcome::Endpoints(choices) = world.decide("pod", "cluster IP:80").outcome else { panic!() };
    let last: Vec<String> = choices.iter().map(|c| c.endpoint.to_string()).collect();
    assert_eq!(last, ["10.244.2.1:8080", "10.244.2.9:8080", "10.244.2.10:8080"]);
}

#[test]
fn decisions_as_text() {
    let world = World::v4().external_local().with(|w| {
        w.service.affinity = Some(Duration::from_secs(600));
        w.service.health_check_node_port = Some(port(32100));
        w.endpoints.push(SliceEndpoint {
            ip: ip("10.244.2.3", w.family),
            conditions: NOT_READY,
            ..w.endpoints[1].clone()
        });
    });
    let text = |client, to| world.decide(client, to).to_string();
    assert_eq!(
        text("node process", "node:30080"),
        "outcome:    sent to one of 10.244.1.2:8080 (1/2) masqueraded, 10.244.2.2:8080 (1/2) masqueraded
because:    the service has endpoints for this traffic
frontend:   node port 30080/tcp of web/front:http
source:     this host itself
policy:     Local, but traffic that starts here may use endpoints of the whole cluster
masquerade: from this host to an external address with policy Local
affinity:   a client keeps its endpoint until 600 s after its last new connection
not used:   10.244.2.3:8080: not ready"
    );
    assert_eq!(
        text("outside", "VIP:80"),
        "outcome:    sent to 10.244.1.2:8080
because:    the service has endpoints for this traffic
frontend:   load balancer VIP 192.0.2.10:80/tcp of web/front:http
source:     outside: neither a known pod nor this host
policy:     Local, only endpoints on this node
affinity:   a client keeps its endpoint until 600 s after its last new connection
not used:   10.244.2.2:8080: not on this node
not used:   10.244.2.3:8080: not ready"
    );
    assert_eq!(
        text("outside", "cluster IP:81"),
        "outcome:    rejected (ICMP port unreachable)
because:    the destination is a cluster IP, but no service has this port
source:     outside: neither a known pod nor this host"
    );
    assert_eq!(
        text("outside", "node:32100"),
        "outcome:    left as it is
because:    the destination is no address and port of a service
source:     outside: neither a known pod nor this host
accepted:   32100/tcp is a healthCheckNodePort"
    );
    let hairpin = text("local endpoint", "cluster IP:80");
    assert!(
        hairpin.contains("sent to one of 10.244.1.2:8080 (1/2) masqueraded, 10.244.2.2:8080 (1/2)\n"),
        "{hairpin}"
    );
    let outside = text("outside", "cluster IP:80");
    assert!(outside.contains(
        "masquerade: to a cluster IP, and the source is no pod (its address is not in 10.244.0.0/16)"
    ));
}

/// A value of each field that could matter, to be combined at random.
fn any_world() -> impl Strategy<Value = World> {
    let conditions = proptest::sample::select(vec![Conditions::default(), NOT_READY, DRAINING]);
    (any::<[bool; 8]>(), proptest::collection::vec(conditions, 2), 0usize..=2).prop_map(
        |(b, conditions, n)| {
            World::v4().with(|w| {
                let policy = |local| if local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
                w.service.external_policy = policy(b[0]);
                w.service.internal_policy = policy(b[1]);
                w.options.masquerade_all = b[2];
                if b[3] {
                    w.options.detect_local = DetectLocal::BridgeInterface("cni0".into());
                }
                if b[4] {
                    w.service.source_ranges.ipv4.push(net("172.30.0.0/29"));
                }
                if b[5] {
                    w.service.load_balancer_vips.ipv4.clear();
                }
                if b[6] {
                    w.service.external_ips.ipv4.clear();
                }
                if b[7] {
                    w.service.ports[0].node_port = None;
                }
                w.endpoints.iter_mut().zip(conditions).for_each(|(e, c)| e.conditions = c);
                w.endpoints.truncate(n);
            })
        },
    )
}

const CLIENTS: [&str; 7] =
    ["pod", "far pod", "outside", "node process", "host as bridge", "local endpoint", "host as loopback"];
const DESTINATIONS: [&str; 9] = [
    "cluster IP:80",
    "cluster IP:81",
    "VIP:80",
    "external IP:80",
    "node:30080",
    "loopback:30080",
    "elsewhere:80",
    "free cluster IP:80",
    "node:80",
];

proptest! {
    /// What holds for every decision, whatever the services.
    #[test]
    fn decisions_are_coherent(world in any_world()) {
        let snapshot = world.snapshot();
        for (client, to) in CLIENTS.iter().flat_map(|c| DESTINATIONS.iter().map(move |d| (c, d))) {
            let got = decide(&snapshot, &world.packet(client, to));
            prop_assert_eq!(got.frontend.is_some(), got.policy.is_some());
            let service = snapshot.ports().next().unwrap();
            match &got.outcome {
                Outcome::Endpoints(choices) => {
                    prop_assert!(!choices.is_empty() && choices.is_sorted());
                    prop_assert_eq!(choices.iter().any(|c| c.masquerade), !got.masquerade.is_empty());
                    prop_assert_eq!(choices.len() + got.excluded.len(), service.endpoints.len());
                    prop_assert!(got.scope.is_some() && got.reason == Reason::Balanced);
                    let usable = |a: &EndpointAddr| service.reachable_endpoints().any(|e| e.addr == *a);
                    prop_assert!(choices.iter().all(|c| usable(&c.endpoint)));
                    prop_assert!(choices.iter().all(|c| !got.excluded.iter().any(|(e, _)| *e == c.endpoint)));
                }
                Outcome::NotOurs => prop_assert!(got.frontend.is_none()),
                Outcome::Reject | Outcome::Drop => prop_assert!(got.masquerade.is_empty() && got.affinity.is_none()),
            }
            let owned = matches!(*to, "cluster IP:80" | "VIP:80" | "external IP:80" | "node:30080");
            prop_assert!(owned || got.frontend.is_none());
            prop_assert!(!got.to_string().is_empty());
        }
    }
}
