//! The static skeleton of the table.
//!
//! Base chains, priorities and checks are those of kube-proxy's table (nftables spec 2); services are elements of the
//! maps that [`Container`] names.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::snapshot::{LocalDetector, NodeContext, NodePortAddresses};

use crate::container::{Container, Sizes};
use crate::counts;
use crate::objects::{
    Base, Chain, ChainType, CtState, Element, Hook, Key, Name, Op, Rule, Selector, Stmt, Value, Verdict,
};
use crate::options::{CtInvalid, Layout, Options};

/// What node and configuration contribute to the rules. Two contexts with equal environments give the same skeleton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Family.
    pub family: IpFamily,
    /// Local traffic detector.
    pub detector: Option<LocalDetector>,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Where node ports answer.
    pub node_port_addresses: NodePortAddresses,
    /// Ranges of cluster IPs, sorted, without overlaps.
    pub service_cidrs: Vec<IpNet>,
    /// The node's own address.
    pub node_ip: Option<IpAddr>,
}

impl Environment {
    /// From a snapshot's context.
    #[must_use]
    pub fn new(context: &NodeContext, family: IpFamily) -> Self {
        Self {
            family,
            detector: context.detector.clone(),
            masquerade_all: context.masquerade_all,
            node_port_addresses: context.node_port_addresses.clone(),
            service_cidrs: merge_ranges(context.service_cidrs.iter().copied()),
            node_ip: *context.node.ips.get(family),
        }
    }

    /// The match for traffic from local pods, or its opposite.
    fn local(&self, negated: bool) -> Option<Stmt> {
        Some(match self.detector.as_ref()? {
            LocalDetector::Cidr(cidr) => Stmt::Addr { selector: Selector::SourceAddr, negated, cidr: *cidr },
            LocalDetector::Interface(name) => {
                Stmt::IifName { negated, name: Arc::clone(name), prefix: false }
            }
            LocalDetector::InterfacePrefix(name) => {
                Stmt::IifName { negated, name: Arc::clone(name), prefix: true }
            }
        })
    }

    /// The rule that marks traffic to cluster IPs: all of it, or what does not come from local pods (core spec 9.2).
    #[must_use]
    pub fn masquerade_cluster_ip(&self, only: Option<IpAddr>) -> Option<Rule> {
        let mut stmts: Vec<Stmt> = only
            .map(|ip| Stmt::Addr { selector: Selector::DestAddr, negated: false, cidr: ip.into() })
            .into_iter()
            .collect();
        if !self.masquerade_all {
            stmts.push(self.local(true)?);
        }
        stmts.push(jump(MARK_FOR_MASQUERADE));
        Some(Rule { stmts, comment: None })
    }

    /// External policy Local: pods and this host reach the whole cluster, the rest only this node (core spec 9.2).
    ///
    /// `cluster` and `rest` are what is done then; the rules of `cluster` keep their comments.
    #[must_use]
    pub fn local_policy(&self, cluster: &[Rule], rest: Vec<Rule>) -> Vec<Rule> {
        let to_cluster = |from: &Stmt, comment: &str| -> Vec<Rule> {
            let qualified = |r: &Rule| Rule {
                stmts: std::iter::once(from).chain(&r.stmts).cloned().collect(),
                comment: r.comment.clone().or_else(|| Some(comment.into())),
            };
            cluster.iter().map(qualified).collect()
        };
        let from_host = Stmt::FibLocal(Selector::SourceAddr);
        let mut rules = Vec::with_capacity(7);
        if let Some(pods) = self.local(false) {
            rules.extend(to_cluster(&pods, "short-circuit pod traffic"));
        }
        rules.push(Rule {
            stmts: vec![from_host.clone(), jump(MARK_FOR_MASQUERADE)],
            comment: Some("masquerade local traffic".into()),
        });
        rules.extend(to_cluster(&from_host, "short-circuit local traffic"));
        rules.extend(rest);
        rules
    }

    /// What begins a look-up by node port: is the destination an address that node ports answer on?
    fn to_node_port(&self, in_input_hook: bool) -> Vec<Stmt> {
        match &self.node_port_addresses {
            NodePortAddresses::Only(_) => {
                vec![Stmt::InSet {
                    selectors: vec![Selector::DestAddr],
                    set: Container::NodePortIps.name().into(),
                }]
            }
            NodePortAddresses::MatchAll => {
                let loopback = match self.family {
                    IpFamily::Ipv4 => "127.0.0.0/8",
                    IpFamily::Ipv6 => "::1/128",
                };
                let not_loopback = loopback.parse().ok().map(|cidr| Stmt::Addr {
                    selector: Selector::DestAddr,
                    negated: true,
                    cidr,
                });
                let local = (!in_input_hook).then_some(Stmt::FibLocal(Selector::DestAddr));
                local.into_iter().chain(not_loopback).collect()
            }
        }
    }
}

/// Union of ranges as the fewest prefixes, sorted: what an interval set holds in its one normal form.
#[must_use]
pub fn merge_ranges(ranges: impl Iterator<Item = IpNet>) -> Vec<IpNet> {
    IpNet::aggregate(&ranges.map(|r| r.trunc()).collect())
}

/// Marks a packet for masquerading and returns.
pub const MARK_FOR_MASQUERADE: &str = "mark-for-masquerade";
/// Rejects; the target of elements for services without endpoints.
pub const REJECT_CHAIN: &str = "reject-chain";

/// Looks up node ports without endpoints.
const NODEPORT_ENDPOINTS_CHECK: &str = "nodeport-endpoints-check";
/// Looks up addresses without endpoints.
const SERVICE_ENDPOINTS_CHECK: &str = "service-endpoints-check";
/// Looks up source ranges.
const FIREWALL_CHECK: &str = "firewall-check";
/// Refuses what nobody translated.
const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
/// The dispatch.
const SERVICES: &str = "services";
/// The way out.
const MASQUERADING: &str = "masquerading";

const ADDRESS: [Selector; 3] = [Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
const NODE_PORT: [Selector; 2] = [Selector::L4Proto, Selector::DestPort];

/// A jump.
#[must_use]
pub fn jump(chain: &str) -> Stmt {
    Stmt::Verdict(Verdict::Jump(chain.into()))
}

/// A goto.
#[must_use]
pub fn goto(chain: &Name) -> Stmt {
    Stmt::Verdict(Verdict::Goto(Arc::clone(chain)))
}

/// A rule without a comment.
#[must_use]
pub fn rule(stmts: impl IntoIterator<Item = Stmt>) -> Rule {
    Rule { stmts: stmts.into_iter().collect(), comment: None }
}

/// External policy Cluster: everybody is masqueraded.
#[must_use]
pub fn masquerade_rule() -> Rule {
    Rule { stmts: vec![jump(MARK_FOR_MASQUERADE)], comment: Some("masquerade".into()) }
}

fn base(name: &str, kind: ChainType, hook: Hook, priority: i32) -> Chain {
    Chain { name: name.into(), base: Some(Base { kind, hook, priority }), comment: None }
}

/// A chain that is only jumped to.
#[must_use]
pub fn regular(name: &Name) -> Chain {
    Chain { name: Arc::clone(name), base: None, comment: None }
}

/// The chains that exist whatever the services are, each with its rules, in the order of creation.
#[must_use]
pub fn chains(env: &Environment, options: &Options) -> Vec<(Chain, Vec<Rule>)> {
    use Hook::{Forward, Input, Output, Postrouting, Prerouting};
    let new = |target: &str| rule([Stmt::CtState(CtState::New), jump(target)]);
    let invalid = (options.ct_invalid != CtInvalid::Ignore)
        .then(|| rule([Stmt::CtState(CtState::Invalid), Stmt::Verdict(Verdict::Drop)]));
    let health = Rule {
        stmts: vec![
            Stmt::L4Proto(Protocol::Tcp),
            Stmt::InSet {
                selectors: vec![Selector::DestPort],
                set: Container::HealthCheckPorts.name().into(),
            },
            Stmt::Verdict(Verdict::Accept),
        ],
        comment: Some("health check node ports".into()),
    };
    // Its new destination is an endpoint. That this may also be a frontend, as with an endpoint on a host network, is no concern of the checks.
    let translated = Rule {
        stmts: vec![Stmt::CtStatusDnat, Stmt::Verdict(Verdict::Accept)],
        comment: Some("translated already".into()),
    };
    let with = |first: [Option<Rule>; 3], rest: &[Rule]| -> Vec<Rule> {
        first.into_iter().flatten().chain(rest.iter().cloned()).collect()
    };
    let input = [new(NODEPORT_ENDPOINTS_CHECK), new(SERVICE_ENDPOINTS_CHECK)];
    let beyond = [new(SERVICE_ENDPOINTS_CHECK), new(CLUSTER_IPS_CHECK)];
    let filter = ChainType::Filter;
    let nat = ChainType::Nat;
    let mut out = vec![
        (base("filter-prerouting-pre-dnat", filter, Prerouting, -110), vec![new(FIREWALL_CHECK)]),
        (base("filter-output-pre-dnat", filter, Output, -110), vec![new(FIREWALL_CHECK)]),
        (
            base("filter-input", filter, Input, 0),
            with([invalid.clone(), Some(translated.clone()), Some(health)], &input),
        ),
        (
            base("filter-forward", filter, Forward, 0),
            with([invalid, Some(translated.clone()), None], &beyond),
        ),
        (base("filter-output", filter, Output, 0), with([None, Some(translated), None], &beyond)),
        (base("nat-prerouting", nat, Prerouting, -100), vec![rule([jump(SERVICES)])]),
        (base("nat-output", nat, Output, -100), vec![rule([jump(SERVICES)])]),
        (base("nat-postrouting", nat, Postrouting, 100), vec![rule([jump(MASQUERADING)])]),
    ];
    out.extend(helpers(env, options));
    if options.layout == Layout::Maps {
        out.extend(counts::dispatch(env));
    }
    out
}

/// The chains that base chains jump to.
fn helpers(env: &Environment, options: &Options) -> Vec<(Chain, Vec<Rule>)> {
    let chain = |name: &str| Chain { name: name.into(), base: None, comment: None };
    let vmap = |selectors: &[Selector], map: Container| Stmt::Vmap {
        selectors: selectors.to_vec(),
        map: map.name().into(),
    };
    let mark = options.masquerade_mark();
    let node_port = |in_input_hook, map| {
        let lookup = vmap(&NODE_PORT, map);
        rule(env.to_node_port(in_input_hook).into_iter().chain([lookup]))
    };
    let to_cluster_ip =
        Stmt::InSet { selectors: vec![Selector::DestAddr], set: Container::ClusterIps.name().into() };
    let mut cluster_ips = refuse(&[to_cluster_ip], Some("traffic to invalid ports of ClusterIPs"));
    if let Some(in_cidrs) = in_ranges(Selector::DestAddr, false, &env.service_cidrs) {
        cluster_ips.push(Rule {
            stmts: vec![in_cidrs, Stmt::Verdict(Verdict::Drop)],
            comment: Some("Drop traffic to unallocated ClusterIPs".into()),
        });
    }
    let mut services = vec![rule([vmap(&ADDRESS, Container::ServiceIps)])];
    if options.layout == Layout::Maps {
        let few = Stmt::InSet { selectors: ADDRESS.to_vec(), set: Container::ClusterServices.name().into() };
        services.push(rule([few, goto(&counts::CLUSTER_DISPATCH.into())]));
    }
    services.push(node_port(false, Container::ServiceNodePorts));
    let hairpin = vec![Selector::SourceAddr, Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
    let reject = Chain {
        comment: Some("helper for @no-endpoint-services / @no-endpoint-nodeports".into()),
        ..chain(REJECT_CHAIN)
    };
    vec![
        (chain(NODEPORT_ENDPOINTS_CHECK), vec![node_port(true, Container::NoEndpointNodePorts)]),
        (chain(SERVICE_ENDPOINTS_CHECK), vec![rule([vmap(&ADDRESS, Container::NoEndpointServices)])]),
        (chain(FIREWALL_CHECK), vec![rule([vmap(&ADDRESS, Container::FirewallIps)])]),
        (chain(SERVICES), services),
        (
            chain(MASQUERADING),
            vec![
                rule([Stmt::MarkSet(mark), Stmt::XorMark(mark), Stmt::Masquerade]),
                rule([
                    Stmt::CtStatusDnat,
                    Stmt::InSet { selectors: hairpin, set: Container::Hairpin.name().into() },
                    Stmt::Masquerade,
                ]),
            ],
        ),
        (chain(CLUSTER_IPS_CHECK), cluster_ips),
        (chain(MARK_FOR_MASQUERADE), vec![rule([Stmt::OrMark(mark)])]),
        (reject, refuse(&[], None)),
    ]
}

/// Refuses what matches. TCP by a reset: a client on this node takes an ICMP error for no more than a hint and tries again after a second.
fn refuse(matches: &[Stmt], what: Option<&str>) -> Vec<Rule> {
    let tcp = Stmt::L4Proto(Protocol::Tcp);
    let reset = std::iter::once(&tcp).chain(matches).chain([&Stmt::Reset]);
    let comment = |verb: &str| what.map(|what| format!("{verb} {what}").into());
    vec![
        Rule { stmts: reset.cloned().collect(), comment: comment("Reset TCP") },
        Rule { stmts: matches.iter().chain([&Stmt::Reject]).cloned().collect(), comment: comment("Reject") },
    ]
}

/// A match on one range or on several; `None` for none.
#[must_use]
pub fn in_ranges(selector: Selector, negated: bool, cidrs: &[IpNet]) -> Option<Stmt> {
    match cidrs {
        [] => None,
        [cidr] => Some(Stmt::Addr { selector, negated, cidr: *cidr }),
        cidrs => Some(Stmt::AddrIn { selector, negated, cidrs: cidrs.to_vec() }),
    }
}

/// Elements that depend on the node alone.
#[must_use]
pub fn node_port_ips(env: &Environment) -> Vec<Element> {
    match &env.node_port_addresses {
        NodePortAddresses::MatchAll => Vec::new(),
        NodePortAddresses::Only(ips) => {
            ips.iter().map(|ip| Element { key: Key::Addr(*ip), value: Value::None, comment: None }).collect()
        }
    }
}

/// The containers of this environment.
pub fn containers(env: &Environment) -> impl Iterator<Item = Container> + use<> {
    let all = env.node_port_addresses == NodePortAddresses::MatchAll;
    Container::ALL.into_iter().filter(move |c| !(all && *c == Container::NodePortIps))
}

/// Operations that build the skeleton in an empty table.
#[must_use]
pub fn skeleton(env: &Environment, options: &Options, sizes: &Sizes) -> Vec<Op> {
    let mut ops: Vec<Op> = containers(env).map(|c| Op::AddSet(c.set(sizes.get(c)))).collect();
    let chains = chains(env, options);
    ops.extend(chains.iter().map(|(chain, _)| Op::AddChain(chain.clone())));
    for (chain, rules) in chains {
        ops.extend(rules.into_iter().map(|r| Op::AddRule(Arc::clone(&chain.name), r)));
    }
    let ips = node_port_ips(env);
    if !ips.is_empty() {
        ops.push(Op::AddElements(Container::NodePortIps.name().into(), ips));
    }
    ops
}
