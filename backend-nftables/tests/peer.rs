//! The rules rendered for one cluster state and those that a real kube-proxy 1.36 programmed for it treat every packet alike.
//!
//! Both are walked by the same walker; the packets are an exhaustive product of addresses, ports, protocols, sources and entries.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::collections::BTreeSet;
use std::net::IpAddr;

use backend_nftables::options::Layout;
use backend_nftables::{Nftables, Options};
use proxier_core::backend::{Backend, Plan, RenderInput, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::oracle::{Entry, Outcome, Packet};
use proxier_core::snapshot::{FrontendKey, Snapshot};
use proxier_testkit::walk::{Walk, WalkHost};
use proxier_testkit::{corpus, nft};

/// What the two may do differently, each with its reason: the packet's text must contain the first. None is known: the accept
/// for health check node ports opens a port that nothing else of either table closes.
const INTENDED: [(&str, &str); 0] = [];

/// The state, published as the peer saw it: its node and options are those of the corpus case.
fn state() -> corpus::Case {
    corpus::load(&corpus::folder().join("cases/peer-state.yaml")).unwrap()
}

fn peer(family: IpFamily) -> nft::Ruleset {
    let name = if family == IpFamily::Ipv4 { "nft-list-ip.txt" } else { "nft-list-ip6.txt" };
    nft::parse(&std::fs::read_to_string(corpus::folder().join("peer").join(name)).unwrap()).unwrap()
}

fn ours(snapshot: &Snapshot, layout: Layout) -> nft::Ruleset {
    let backend = Nftables::new(snapshot.family(), Options { layout, ..Options::default() });
    let (changes, set_aside) = (ChangeSet::between(None, snapshot), SetAside::new());
    let input = RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside };
    nft::parse(&backend.render(input).text()).unwrap()
}

fn addresses(texts: &[&str], family: IpFamily) -> Vec<IpAddr> {
    let all = texts.iter().map(|t| t.parse::<IpAddr>().unwrap());
    all.filter(|ip| IpFamily::of(*ip) == family).collect()
}

type Target = (IpAddr, Option<Protocol>, u16);

/// What packets are sent to: every frontend address with every number that some service port has, in every protocol; every
/// address of the node with every node port as well; to each number and address also its neighbour; and addresses that have no
/// frontend, where one port of each kind says all.
fn targets(snapshot: &Snapshot) -> BTreeSet<Target> {
    let (service, node) = numbers(snapshot);
    let frontends: BTreeSet<IpAddr> = snapshot
        .ports()
        .flat_map(|p| p.frontends.iter())
        .filter_map(|f| match f.key {
            FrontendKey::Address { ip, .. } => Some(ip),
            FrontendKey::NodePort { .. } => None,
        })
        .collect();
    let mut out = BTreeSet::new();
    let mut add = |ips: &mut dyn Iterator<Item = IpAddr>, numbers: &BTreeSet<u16>| {
        for ip in ips {
            out.insert((ip, None, 0));
            out.extend(numbers.iter().flat_map(|n| Protocol::ALL.map(|p| (ip, Some(p), *n))));
        }
    };
    let own = ["127.0.0.1", "172.30.0.3", "10.244.1.1", "::1", "fd00:30::3"];
    add(&mut addresses(&own, snapshot.family()).into_iter(), &service.union(&node).copied().collect());
    add(&mut frontends.iter().copied(), &service);
    let few = BTreeSet::from([80, 53, 8080, 30_081, 30_480]);
    add(&mut frontends.iter().map(|ip| next(*ip)), &few);
    add(&mut snapshot.ports().flat_map(|p| p.endpoints.iter()).map(|e| e.addr.ip), &few);
    let others = [
        "172.30.0.4",
        "10.96.200.200",
        "10.111.255.255",
        "10.112.0.0",
        "10.96.8.1",
        "192.0.2.11",
        "8.8.8.8",
        "fd00:30::4",
        "fd00:10:96::ffff",
        "fd00:10:96::1:0",
        "2001:db8::1",
    ];
    add(&mut addresses(&others, snapshot.family()).into_iter(), &few);
    out
}

fn next(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) + 1).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) + 1).into()),
    }
}

/// The numbers of service ports, with one of an endpoint and two of node ports, and those of node ports and health checks; each with its
/// neighbour.
fn numbers(snapshot: &Snapshot) -> (BTreeSet<u16>, BTreeSet<u16>) {
    let mut service = BTreeSet::from([8080, 30_081, 30_480]);
    let mut node = BTreeSet::new();
    for port in snapshot.ports() {
        service.extend([port.port.get(), port.port.get() + 1]);
        node.extend(port.node_port.into_iter().flat_map(|n| [n.get(), n.get() + 1]));
        node.extend(port.spec.health_check_node_port.map(proxier_core::ids::Port::get));
    }
    (service, node)
}

/// A pod here and one elsewhere, every endpoint, the host, another host, clients in and out of the source ranges, every VIP; by each entry.
fn sources(snapshot: &Snapshot) -> BTreeSet<(IpAddr, &'static str)> {
    let around = [
        "10.244.1.4",
        "10.244.3.9",
        "172.30.0.5",
        "203.0.113.9",
        "203.0.114.1",
        "198.51.100.7",
        "198.51.100.8",
        "fd00:10:244:1::9",
        "fd00:10:244:f0::9",
        "fd00:10:244:100::9",
        "fd00:30::5",
        "2001:db8::9",
    ];
    let mut out: BTreeSet<(IpAddr, &'static str)> = addresses(&around, snapshot.family())
        .into_iter()
        .flat_map(|ip| [(ip, "veth0"), (ip, "eth0")])
        .collect();
    out.extend(snapshot.ports().flat_map(|p| p.endpoints.iter()).map(|e| (e.addr.ip, "veth0")));
    let vips = snapshot.ports().flat_map(|p| p.spec.load_balancer_vips.iter().chain(&p.spec.external_ips));
    out.extend(vips.flat_map(|ip| [(*ip, "eth0"), (*ip, "host")]));
    let host = addresses(&["127.0.0.1", "172.30.0.3", "10.244.1.1", "::1", "fd00:30::3"], snapshot.family());
    out.extend(host.into_iter().map(|ip| (ip, "host")));
    out
}

fn questions(snapshot: &Snapshot) -> Vec<Packet> {
    let targets = targets(snapshot);
    let mut out = Vec::new();
    for (source, entry) in sources(snapshot) {
        for (destination, protocol, port) in &targets {
            let entry = if entry == "host" { Entry::Host } else { Entry::Interface(entry.into()) };
            out.push(Packet { source, destination: *destination, protocol: *protocol, port: *port, entry });
        }
    }
    out
}

fn traces(walk: &Walk) -> String {
    let branch =
        |b: &proxier_testkit::walk::Branch| format!("{:?}\n      {}", b.outcome, b.trace.join("\n      "));
    walk.branches.iter().map(branch).collect::<Vec<_>>().join("\n    ")
}

/// Returns how many packets were walked, and how many of them went to endpoints.
fn compare(family: IpFamily) -> (usize, usize) {
    let case = state();
    let snapshot = case.commit.snapshot(family);
    let host = WalkHost::new(snapshot.context().node.host_addresses.iter().copied());
    let peer = peer(family);
    let ours = [Layout::Maps, Layout::Chains].map(|layout| (layout, ours(snapshot, layout)));
    let (mut balanced, mut differing) = (0, Vec::new());
    let questions = questions(snapshot);
    for packet in &questions {
        let theirs = nft::walk(&peer, packet, &host).unwrap();
        let want = theirs.outcome();
        balanced += usize::from(matches!(want, Ok(Outcome::Endpoints(_))));
        for (layout, rules) in &ours {
            let walk = nft::walk(rules, packet, &host).unwrap();
            let found = walk.outcome();
            if want == found {
                continue;
            }
            let text = format!("{packet:?}");
            if !INTENDED.iter().any(|(part, _)| text.contains(part)) {
                let (peer, ours) = (traces(&theirs), traces(&walk));
                let what =
                    format!("{text}\n  peer: {want:?}\n    {peer}\n  {layout:?}: {found:?}\n    {ours}");
                differing.push(what);
            }
        }
    }
    assert!(differing.is_empty(), "{} of {}, the first:\n{}", differing.len(), questions.len(), differing[0]);
    (questions.len(), balanced)
}

#[test]
fn ipv4() {
    let (all, balanced) = compare(IpFamily::Ipv4);
    assert!(all > 50_000 && balanced > 1000, "{all} packets, {balanced} balanced");
}

#[test]
fn ipv6() {
    let (all, balanced) = compare(IpFamily::Ipv6);
    assert!(all > 2000 && balanced > 50, "{all} packets, {balanced} balanced");
}

/// The comparison sees a difference where there is one.
#[test]
fn a_missing_rule_is_seen() {
    let case = state();
    let snapshot = case.commit.snapshot(IpFamily::Ipv4);
    let host = WalkHost::new(snapshot.context().node.host_addresses.iter().copied());
    let (peer, mut ours) = (peer(IpFamily::Ipv4), ours(snapshot, Layout::Maps));
    ours.apply("delete element ip kube-proxy hairpin-connections { 10.244.1.3 . 10.244.1.3 . tcp . 8080 }\n")
        .unwrap();
    let itself = Packet {
        source: "10.244.1.3".parse().unwrap(),
        destination: "10.96.123.219".parse().unwrap(),
        protocol: Some(Protocol::Tcp),
        port: 80,
        entry: Entry::Interface("veth0".into()),
    };
    let [a, b] = [&peer, &ours].map(|rules| nft::walk(rules, &itself, &host).unwrap().outcome());
    assert_ne!(a, b);
}
