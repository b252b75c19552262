//! What the tests of this folder share: small clusters, plans for them, a model of the kernel, and what is seen of it.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by tests that each use a part"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backend_ipvs::belief::Belief;
use backend_ipvs::objects::{RealServer, ServiceKey, VirtualServer};
use backend_ipvs::observed::{Observed, SeenReal, SeenService, SeenSet};
use backend_ipvs::ops::{self, Action, Op};
use backend_ipvs::options::{Facts, Options};
use backend_ipvs::plan::Plan;
use backend_ipvs::render::render;
use backend_ipvs::sets::{Entry, SetId};
use ipnet::IpNet;
use proxier_core::backend::{RenderInput, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::cluster::{Cluster, DetectLocal, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName, Port, Protocol, ServiceName, ServicePortName, Timestamp};
use proxier_core::model::{
    Conditions, EndpointSlice, Hints, NodeFacts, PerFamily, Service, ServicePortSpec, ServiceType,
    SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
};
use proxier_core::snapshot::Snapshot;
use proxier_testkit::ipvs::Host;
use proxier_xtables::saved;

pub fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

pub fn full(snapshot: &Snapshot) -> Plan {
    planned(snapshot, &Options::default(), None)
}

pub fn planned(snapshot: &Snapshot, options: &Options, held: Option<&(Belief, Snapshot)>) -> Plan {
    let changes = ChangeSet::between(held.map(|h| &h.1), snapshot);
    let set_aside = SetAside::new();
    let belief = held.map(|h| &h.0);
    let input = RenderInput { snapshot, changes: &changes, belief, set_aside: &set_aside };
    render(snapshot.family(), options, &Facts::default(), input)
}

/// The text of operations, as a tool would be given it.
pub fn text_of<'a>(family: IpFamily, actions: impl IntoIterator<Item = &'a Action>) -> String {
    ops::entries(family, actions).iter().fold(String::new(), |text, entry| text + &entry.text + "\n")
}

/// Applies a plan to a model.
pub fn apply(host: &mut Host, plan: &Plan) {
    let actions = plan.steps().iter().flat_map(|s| &s.actions);
    host.apply(&text_of(plan.family(), actions)).unwrap_or_else(|e| panic!("{e}"));
}

/// What a model holds, as a backend would read it.
pub fn observe(host: &Host, family: IpFamily) -> Observed {
    let of = |ip: IpAddr| IpFamily::of(ip) == family;
    let services = host.servers().iter().filter(|((_, socket), _)| of(socket.ip()));
    let sets = SetId::ALL.into_iter().filter_map(|id| {
        let set = host.sets().get(&id.name(family))?;
        let right = set.kind.name() == id.set_type().name();
        let entries = set.entries.iter().map(|e| entry(&e.to_string())).collect();
        Some((
            id,
            SeenSet {
                other_type: (!right).then(|| set.kind.name().to_owned()),
                entries,
                strange: Vec::new(),
            },
        ))
    });
    Observed {
        services: services.map(|(key, service)| seen_service(key, service)).collect(),
        sets: sets.collect(),
        device: host.device().is_there(),
        bound: host.addresses().iter().copied().filter(|ip| of(*ip)).collect(),
        rules: saved::parse("iptables-save", &host.rules().get(family).print(), |_, _| true).unwrap(),
    }
}

fn seen_service(
    key: &proxier_testkit::ipvs::Key,
    service: &proxier_testkit::ipvs::Service,
) -> (ServiceKey, SeenService) {
    let real = |(socket, weight): (&SocketAddr, &u32)| {
        let real = RealServer { ip: socket.ip(), port: port(socket.port()) };
        (real, SeenReal { weight: *weight, ..SeenReal::PLAIN })
    };
    let key = ServiceKey {
        protocol: Protocol::from_number(key.0).unwrap(),
        ip: key.1.ip(),
        port: port(key.1.port()),
    };
    let server = VirtualServer {
        key,
        scheduler: Arc::clone(&service.flags.scheduler),
        persistence: service.flags.persistence.map(|s| Duration::from_secs(s.into())),
        hash_port: service.flags.scheduler_flags.as_deref() == Some("mh-port"),
    };
    (key, SeenService { server, odd: false, real: service.real.iter().map(real).collect() })
}

/// Reads an entry in the kernel's spelling.
pub fn entry(text: &str) -> Entry {
    let parts: Vec<&str> = text.split(',').collect();
    let protocol_port = |text: &str| {
        let (protocol, number) = text.split_once(':').unwrap();
        let protocol = Protocol::ALL.into_iter().find(|p| p.as_str() == protocol).unwrap();
        (protocol, port(number.parse().unwrap()))
    };
    match *parts {
        [one] if one.contains(['.', ':']) => Entry::Ip(ip(one)),
        [number] => Entry::Port(port(number.parse().unwrap())),
        [a, b] => Entry::IpPort(ip(a), protocol_port(b).0, protocol_port(b).1),
        [a, b, c] if c == a => Entry::IpPortIp(ip(a), protocol_port(b).0, protocol_port(b).1, ip(c)),
        [a, b, c] => {
            let range = c.parse().unwrap_or_else(|_| IpNet::from(ip(c)));
            Entry::IpPortNet(ip(a), protocol_port(b).0, protocol_port(b).1, range)
        }
        _ => panic!("{text}"),
    }
}

pub fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

pub fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A Service `ns/NAME` with port `http` 80 at a cluster IP.
pub fn service(name: &str, cluster_ip: &str) -> Service {
    let cluster_ip = ip(cluster_ip);
    let mut cluster_ips = PerFamily::default();
    *cluster_ips.get_mut(IpFamily::of(cluster_ip)) = Some(cluster_ip);
    Service {
        name: ServiceName::new("ns", name),
        created: Some(Timestamp(0)),
        kind: ServiceType::LoadBalancer,
        cluster_ips,
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
    }
}

/// An endpoint; `here` on this node.
pub fn endpoint(address: &str, here: bool) -> SliceEndpoint {
    SliceEndpoint {
        ip: ip(address),
        conditions: Conditions::default(),
        node: Some(if here { "node-a" } else { "node-b" }.into()),
        hints: Hints::default(),
    }
}

/// The endpoints of a Service, each at port 8080 for each of its ports.
pub fn slice(service: &Service, endpoints: Vec<SliceEndpoint>) -> EndpointSlice {
    let six = endpoints.iter().any(|e| e.ip.is_ipv6());
    EndpointSlice {
        name: SliceName { service: service.name.clone(), name: "a".into() },
        family: if six { IpFamily::Ipv6 } else { IpFamily::Ipv4 },
        ports: service
            .ports
            .iter()
            .map(|p| SlicePort { name: Arc::clone(&p.name), protocol: p.protocol, port: port(8080) })
            .collect(),
        endpoints,
        trigger: None,
    }
}

pub fn port_name(name: &str) -> ServicePortName {
    ServicePortName { service: ServiceName::new("ns", name), port: "http".into(), protocol: Protocol::Tcp }
}

/// Pods in 10.244.0.0/16, node ports everywhere; no Service.
pub fn traffic() -> TrafficOptions {
    TrafficOptions {
        detect_local: DetectLocal::ClusterCidr(vec![net("10.244.0.0/16"), net("fd00:10:244::/48")]),
        ..TrafficOptions::default()
    }
}

pub fn node() -> NodeFacts {
    let ips = PerFamily { ipv4: Some(ip("192.168.0.2")), ipv6: Some(ip("fd00:30::2")) };
    let host_addresses = ["127.0.0.1", "::1", "192.168.0.2", "fd00:30::2"].map(ip).to_vec();
    NodeFacts { ips, host_addresses, ..NodeFacts::default() }
}

pub fn cluster(options: TrafficOptions) -> Cluster {
    let mut cluster = Cluster::new(NodeName::new("node-a"), options);
    cluster.set_node(node());
    cluster
}

/// A cluster that is changed step by step: what a kernel holds after each step, by partial plans. Real servers have no connections, unless
/// `busy`.
pub struct Story {
    pub cluster: Cluster,
    pub options: Options,
    pub family: IpFamily,
    pub host: Host,
    pub held: Option<(Belief, Snapshot)>,
    pub busy: bool,
}

impl Story {
    pub fn new(options: TrafficOptions) -> Self {
        Self {
            cluster: cluster(options),
            options: Options::default(),
            family: IpFamily::Ipv4,
            host: Host::default(),
            held: None,
            busy: false,
        }
    }

    /// Makes a change, looks at its plan, and applies it.
    pub fn step(&mut self, change: impl FnOnce(&mut Cluster)) -> Plan {
        change(&mut self.cluster);
        let plan = self.plan();
        apply(&mut self.host, &plan);
        let mut belief = plan.next().clone();
        if !self.busy {
            drained(&mut self.host, &mut belief);
        }
        self.held = Some((belief, self.snapshot()));
        plan
    }

    /// The plan for what was changed, which is not applied.
    pub fn plan(&mut self) -> Plan {
        self.cluster.commit();
        planned(&self.snapshot(), &self.options, self.held.as_ref())
    }

    pub fn snapshot(&mut self) -> Snapshot {
        self.cluster.commit().snapshot(self.family).clone()
    }

    pub fn set(&mut self, service: &Service, endpoints: Vec<SliceEndpoint>) -> Plan {
        let slice = slice(service, endpoints);
        self.step(|c| {
            c.upsert_service(service.clone());
            c.upsert_slice(slice);
        })
    }

    pub fn remove(&mut self, service: &Service) -> Plan {
        let name = service.name.clone();
        self.step(|c| {
            c.remove_service(&name);
        })
    }

    pub fn belief(&self) -> &Belief {
        &self.held.as_ref().unwrap().0
    }
}

/// Real servers that wait have no connections: they go.
pub fn drained(host: &mut Host, belief: &mut Belief) {
    let waiting: Vec<(ServiceKey, RealServer)> =
        belief.drains().iter().flat_map(|(key, all)| all.keys().map(move |real| (*key, *real))).collect();
    for (key, real) in waiting {
        let line = format!("# ipvsadm --restore\n-d {} -r {real}", ops::key_text(&key));
        host.apply(&line).unwrap_or_else(|e| panic!("{e}"));
        belief.drains_mut().remove(&key, &real);
    }
}

/// The lines of a plan, rules left out.
pub fn lines(plan: &Plan) -> Vec<String> {
    let actions = plan.steps().iter().flat_map(|s| &s.actions);
    actions.filter(|a| !matches!(a.op, Op::Rules(_))).map(|a| a.op.text(plan.family())).collect()
}

/// How many inputs of rules a plan has.
pub fn inputs(plan: &Plan) -> usize {
    plan.steps().iter().flat_map(|s| &s.actions).filter(|a| matches!(a.op, Op::Rules(_))).count()
}

pub fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// Everything a host holds, a line each; rules with their place in their chain.
pub fn listing(host: &Host) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for (key, service) in host.servers().iter() {
        out.insert(format!("server {key:?} {}", service.flags), 0);
        out.extend(service.real.iter().map(|(real, weight)| (format!("real {key:?} {real} {weight}"), 0)));
    }
    for (name, set) in host.sets().iter() {
        out.insert(format!("set {name} {set}"), 0);
        out.extend(set.entries.iter().map(|e| (format!("entry {name} {e}"), 0)));
    }
    out.extend(host.addresses().iter().map(|ip| (format!("address {ip}"), 0)));
    for family in IpFamily::ALL {
        for table in host.rules().get(family).tables() {
            for (name, chain) in table.chains() {
                let place = format!("{family} {} {name}", table.name().as_str());
                if chain.policy.is_none() {
                    out.insert(format!("chain {place}"), 0);
                }
                out.extend(chain.rules.iter().enumerate().map(|(at, r)| (format!("{place} {}", r.text), at)));
            }
        }
    }
    out
}
