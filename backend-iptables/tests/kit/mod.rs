//! What the tests of this folder share: a model of the tables, small clusters, and rules in a spelling of their own.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by tests that each use a part"
)]

pub mod spelling;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use backend_iptables::belief::Belief;
use backend_iptables::names::{Kind, ServiceNames};
use backend_iptables::options::{Facts, Options};
use backend_iptables::plan::Plan;
use backend_iptables::render::render;
use backend_iptables::skeleton;
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
use proxier_xtables::objects::{ChainId, Input, Op, Rule, Table};
use proxier_xtables::saved::Saved;

/// The tables: each section of an input is taken whole, and must be one that the tool would take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    pub chains: BTreeMap<ChainId, Vec<Rule>>,
}

impl Tables {
    pub fn of(plan: &Plan) -> Self {
        let mut out = Self::default();
        out.apply(plan.inputs());
        out
    }

    pub fn apply(&mut self, inputs: &[Input]) {
        for input in inputs {
            input
                .steps
                .iter()
                .for_each(|s| self.step(&s.op).unwrap_or_else(|e| panic!("{}: {e}", s.op.line())));
        }
    }

    /// Applies inputs and looks at the tables after each section, as packets do.
    pub fn apply_watched(&mut self, inputs: &[Input], mut look: impl FnMut(&Self)) {
        for input in inputs {
            let tables = input.steps.iter().map(|s| s.op.chain().table);
            let next = tables.clone().skip(1).map(Some).chain([None]);
            for ((step, table), next) in input.steps.iter().zip(tables.clone()).zip(next) {
                self.step(&step.op).unwrap_or_else(|e| panic!("{}: {e}", step.op.line()));
                if next != Some(table) {
                    look(self);
                }
            }
        }
    }

    pub fn step(&mut self, op: &Op) -> Result<(), String> {
        let id = op.chain().clone();
        match op {
            Op::Chain(_) => {
                self.chains.insert(id, Vec::new());
            }
            Op::Append(_, rule) => {
                self.target_exists(&id, rule)?;
                self.rules(&id)?.push(rule.clone());
            }
            Op::Insert(_, rule) => {
                self.target_exists(&id, rule)?;
                self.rules(&id)?.insert(0, rule.clone());
            }
            Op::Delete(_, rule) => {
                let rules = self.rules(&id)?;
                let at = rules.iter().position(|r| r == rule).ok_or("no such rule")?;
                rules.remove(at);
            }
            Op::DropChain(_) => {
                let rules = self.chains.remove(&id).ok_or("no such chain")?;
                if !rules.is_empty() {
                    return Err("not empty".into());
                }
                let names = |rule: &Rule| target(rule) == Some(&*id.name);
                let mut same = self.chains.iter().filter(|(other, _)| other.table == id.table);
                if let Some((by, _)) = same.find(|(_, rules)| rules.iter().any(names)) {
                    return Err(format!("{} leads to it", by.name));
                }
            }
        }
        Ok(())
    }

    fn rules(&mut self, id: &ChainId) -> Result<&mut Vec<Rule>, String> {
        if skeleton::is_built_in(&id.name) {
            return Ok(self.chains.entry(id.clone()).or_default());
        }
        self.chains.get_mut(id).ok_or_else(|| "no such chain".into())
    }

    fn target_exists(&self, id: &ChainId, rule: &Rule) -> Result<(), String> {
        let Some(name) = target(rule).filter(|n| n.starts_with("KUBE-")) else { return Ok(()) };
        let to = ChainId { table: id.table, name: name.into() };
        self.chains.contains_key(&to).then_some(()).ok_or_else(|| format!("no chain {name}"))
    }

    pub fn saved(&self) -> Saved {
        Saved { chains: self.chains.clone() }
    }

    /// Without the order of rules that exclude one another.
    pub fn in_meaning(&self) -> BTreeMap<ChainId, Vec<Rule>> {
        let mut out = self.chains.clone();
        out.retain(|id, rules| !(skeleton::is_built_in(&id.name) && rules.is_empty()));
        for shared in skeleton::Shared::ALL {
            if let Some(rules) = out.get_mut(&shared.id()) {
                rules.sort();
            }
        }
        out
    }

    pub fn chain(&self, table: Table, name: &str) -> Vec<String> {
        let id = skeleton::chain(table, name);
        self.chains.get(&id).map(|r| r.iter().map(ToString::to_string).collect()).unwrap_or_default()
    }

    pub fn count(&self, table: Table) -> usize {
        let ours = |id: &&ChainId| id.table == table && !skeleton::is_built_in(&id.name);
        self.chains.iter().filter(|(id, _)| ours(id)).map(|(_, rules)| rules.len()).sum()
    }

    /// Every rule that has this in it, with its chain.
    pub fn grep(&self, part: &str) -> Vec<String> {
        let all = self.chains.iter().flat_map(|(id, rules)| {
            rules.iter().map(move |r| format!("{} {} {r}", id.table.name(), id.name))
        });
        all.filter(|line| line.contains(part)).collect()
    }
}

pub fn target(rule: &Rule) -> Option<&str> {
    rule.0.rsplit_once("-j ").and_then(|(_, rest)| rest.split(' ').next())
}

pub fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// With both counters, as on the node of the peer.
pub fn counted() -> Facts {
    Facts { count_invalid: true, count_localhost: true, ..Facts::default() }
}

pub fn full(snapshot: &Snapshot, facts: &Facts) -> Plan {
    planned(snapshot, facts, None)
}

pub fn planned(snapshot: &Snapshot, facts: &Facts, held: Option<&(Belief, Snapshot)>) -> Plan {
    let changes = ChangeSet::between(held.map(|h| &h.1), snapshot);
    let set_aside = SetAside::new();
    let belief = held.map(|h| &h.0);
    let input = RenderInput { snapshot, changes: &changes, belief, set_aside: &set_aside };
    render(snapshot.family(), &Options::default(), facts, input)
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

/// The chain of a kind that the Service `ns/NAME:http` has.
pub fn chain_of(name: &str, kind: Kind) -> String {
    ServiceNames::new(&port_name(name)).chain(kind).to_string()
}

pub fn port_name(name: &str) -> ServicePortName {
    ServicePortName { service: ServiceName::new("ns", name), port: "http".into(), protocol: Protocol::Tcp }
}

/// Pods in 10.244.0.0/16, node ports everywhere, loopback included; no Service.
pub fn traffic() -> TrafficOptions {
    TrafficOptions {
        detect_local: DetectLocal::ClusterCidr(vec![net("10.244.0.0/16"), net("fd00:10:244::/48")]),
        localhost_node_ports: true,
        ..TrafficOptions::default()
    }
}

pub fn cluster(options: TrafficOptions) -> Cluster {
    let mut cluster = Cluster::new(NodeName::new("node-a"), options);
    let ips = PerFamily { ipv4: Some(ip("192.168.0.2")), ipv6: Some(ip("fd00:30::2")) };
    let host_addresses = ["127.0.0.1", "::1", "192.168.0.2", "fd00:30::2"].map(ip).to_vec();
    cluster.set_node(NodeFacts { ips, host_addresses, ..NodeFacts::default() });
    cluster
}

/// A cluster that is changed step by step: what the tables hold after each step, by partial plans.
pub struct Story {
    pub cluster: Cluster,
    pub facts: Facts,
    pub family: IpFamily,
    pub tables: Tables,
    pub held: Option<(Belief, Snapshot)>,
}

impl Story {
    pub fn new(options: TrafficOptions, facts: Facts) -> Self {
        let cluster = cluster(options);
        Self { cluster, facts, family: IpFamily::Ipv4, tables: Tables::default(), held: None }
    }

    /// Makes a change and applies its plan.
    pub fn step(&mut self, change: impl FnOnce(&mut Cluster)) -> Plan {
        change(&mut self.cluster);
        let snapshot = self.cluster.commit().snapshot(self.family).clone();
        let plan = planned(&snapshot, &self.facts, self.held.as_ref());
        assert_eq!(plan.inputs().iter().map(|i| i.steps.len()).sum::<usize>(), {
            use proxier_core::backend::Plan as _;
            plan.operations()
        });
        self.tables.apply(plan.inputs());
        self.held = Some((plan.next().clone(), snapshot));
        plan
    }

    /// The tables of a fresh start.
    pub fn fresh(&self) -> Tables {
        Tables::of(&full(&self.held.as_ref().unwrap().1, &self.facts))
    }

    pub fn set(&mut self, service: &Service, endpoints: Vec<SliceEndpoint>) -> Plan {
        let slice = slice(service, endpoints);
        self.step(|c| {
            c.upsert_service(service.clone());
            c.upsert_slice(slice);
        })
    }
}

/// The lines that change something, without those that frame them.
pub fn lines(plan: &Plan) -> Vec<String> {
    plan.inputs()
        .iter()
        .flat_map(|i| &i.steps)
        .map(|s| format!("{} {}", s.op.chain().table.name(), s.op.line()))
        .collect()
}
