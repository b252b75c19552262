//! Which of the things this backend needs the kernel has.
//!
//! Each feature is tried in a transaction that is never committed: the kernel looks at it and undoes it, so that a probe changes nothing and asks
//! the kernel itself rather than a version number.

use std::sync::Arc;

use proxier_core::backend::{Atomicity, Capabilities, Requirement};
use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::netlink::{NetfilterSocket, NetlinkError};
use proxier_sys::sysctl::Sysctl;
use proxier_sys::version::KernelVersion;

use crate::container::Container;
use crate::error::Error;
use crate::objects::{
    Base, Chain, ChainType, CtState, Data, Field, Hook, Name, Op, Rule, Selector, Set, Stmt, Table, Verdict,
};
use crate::options::CtInvalid;
use crate::wire;

/// Asks the kernel for every feature.
///
/// # Errors
/// When the kernel does not answer at all, or lacks the right to be asked.
pub fn probe(socket: &mut NetfilterSocket, family: IpFamily) -> Result<Capabilities, Error> {
    // Never committed, so the name matters only for messages.
    let table = Table { family, name: "proxier-probe".into() };
    let mut requirements = vec![kernel_version()];
    for feature in features(family) {
        let answer = try_feature(socket, &table, &feature)?;
        requirements.push(Requirement {
            what: feature.name.to_owned(),
            found: answer.is_none(),
            required: feature.required,
            detail: answer.unwrap_or_else(|| "yes".to_owned()),
        });
    }
    let found = |what: &str| requirements.iter().any(|r| r.what == what && r.found);
    Ok(Capabilities {
        protocols: Protocol::ALL.to_vec(),
        session_affinity: found(AFFINITY),
        source_ranges: found(RANGES),
        localhost_node_ports: false,
        reject: found(REJECT),
        partial_sync: true,
        atomicity: Atomicity::Whole,
        check: true,
        requirements,
    })
}

/// The oldest kernel that kube-proxy's nftables mode supports (nftables spec 1); told, not required: the features are what counts.
fn kernel_version() -> Requirement {
    let oldest = KernelVersion { major: 5, minor: 13, patch: 0 };
    match KernelVersion::running() {
        Ok(version) => Requirement {
            what: "kernel 5.13 or newer".to_owned(),
            found: version >= oldest,
            required: false,
            detail: version.to_string(),
        },
        Err(error) => Requirement {
            what: "kernel 5.13 or newer".to_owned(),
            found: false,
            required: false,
            detail: error.to_string(),
        },
    }
}

/// What [`CtInvalid::Auto`] means on this host: out-of-window packets are dropped, unless connection tracking is told to let them pass.
#[must_use]
pub fn ct_invalid(sysctl: &Sysctl) -> (CtInvalid, Requirement) {
    const KEY: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";
    let (decision, detail) = match sysctl.read_number::<u32>(KEY) {
        Ok(0) => (CtInvalid::Drop, "0: invalid packets are dropped".to_owned()),
        Ok(value) => (CtInvalid::Ignore, format!("{value}: invalid packets are left alone")),
        Err(error) => (CtInvalid::Drop, format!("invalid packets are dropped; {error}")),
    };
    let what = "nf_conntrack_tcp_be_liberal".to_owned();
    (decision, Requirement { what, found: true, required: false, detail })
}

const AFFINITY: &str = "sets that packets fill, with timeout";
const RANGES: &str = "interval sets";
const REJECT: &str = "reject";

struct Feature {
    name: &'static str,
    required: bool,
    ops: Vec<Op>,
}

/// `None` if the kernel takes it, else its refusal.
fn try_feature(
    socket: &mut NetfilterSocket,
    table: &Table,
    feature: &Feature,
) -> Result<Option<String>, Error> {
    let mut ops = vec![Op::AddTable];
    ops.extend(feature.ops.iter().cloned());
    let encoded = wire::encode(table, &ops)?;
    match socket.check_batch(&encoded.batch) {
        Ok(answer) => Ok(answer.refused.first().map(ToString::to_string)),
        Err(error) if error.is_permission() => Err(error.into()),
        Err(error @ NetlinkError::BatchRefused { .. }) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

const CHAIN: &str = "probe";

fn regular() -> Op {
    Op::AddChain(Chain { name: CHAIN.into(), base: None, comment: None })
}

fn base(kind: ChainType, hook: Hook) -> Op {
    Op::AddChain(Chain { name: CHAIN.into(), base: Some(Base { kind, hook, priority: 0 }), comment: None })
}

fn rule(stmts: Vec<Stmt>) -> Op {
    Op::AddRule(CHAIN.into(), Rule { stmts, comment: None })
}

fn nat(stmts: Vec<Stmt>) -> Vec<Op> {
    vec![base(ChainType::Nat, Hook::Prerouting), rule(stmts)]
}

fn required(name: &'static str, ops: Vec<Op>) -> Feature {
    Feature { name, required: true, ops }
}

fn features(family: IpFamily) -> Vec<Feature> {
    let mut out = chains();
    out.extend(maps(family));
    out.extend(matches());
    out
}

fn chains() -> Vec<Feature> {
    let masquerade =
        vec![base(ChainType::Nat, Hook::Postrouting), rule(vec![Stmt::MarkSet(1), Stmt::Masquerade])];
    let reset = vec![Stmt::L4Proto(Protocol::Tcp), Stmt::Reset];
    vec![
        required("nf_tables tables and chains", vec![regular()]),
        required("filter chains", vec![base(ChainType::Filter, Hook::Forward)]),
        required("nat chains", vec![base(ChainType::Nat, Hook::Postrouting)]),
        required("masquerade fully-random", masquerade),
        required(REJECT, vec![regular(), rule(vec![Stmt::Reject]), rule(reset)]),
    ]
}

fn maps(family: IpFamily) -> Vec<Feature> {
    let set = |container: Container| Op::AddSet(container.set(64));
    let name = |container: Container| -> Name { container.name().into() };
    let address = || vec![Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
    let texts = match family {
        IpFamily::Ipv4 => ["192.0.2.0/25", "198.51.100.0/24"],
        IpFamily::Ipv6 => ["2001:db8::/64", "2001:db8:2::/64"],
    };
    let ranges: Vec<ipnet::IpNet> = texts.iter().filter_map(|r| r.parse().ok()).collect();
    let target: Vec<_> = ranges.first().map(ipnet::IpNet::addr).zip(Port::new(1)).into_iter().collect();
    let known = Set {
        name: "probe-affinity".into(),
        key: vec![Field::Addr],
        data: Data::None,
        size: Some(64),
        timeout: Some(1),
        comment: None,
    };
    let vmap = Stmt::Vmap { selectors: address(), map: name(Container::ServiceIps) };
    let endpoints = Container::ClusterEndpoints;
    let by_map = Stmt::DnatMap { selectors: address(), modulus: 2, offset: 1, map: name(endpoints) };
    let in_ranges = Stmt::AddrIn { selector: Selector::SourceAddr, negated: true, cidrs: ranges };
    let is_known = Stmt::InSet { selectors: vec![Selector::SourceAddr], set: Arc::clone(&known.name) };
    let remember = rule(vec![is_known, Stmt::UpdateSource(Arc::clone(&known.name))]);
    vec![
        required(
            "verdict maps with concatenated keys",
            vec![set(Container::ServiceIps), regular(), rule(vec![vmap])],
        ),
        required("numgen, and dnat by a map", [vec![set(endpoints)], nat(vec![by_map])].concat()),
        required("anonymous maps", nat(vec![Stmt::DnatRandom(target)])),
        required(RANGES, vec![regular(), rule(vec![in_ranges])]),
        Feature { name: AFFINITY, required: false, ops: vec![Op::AddSet(known), regular(), remember] },
    ]
}

fn matches() -> Vec<Feature> {
    let ct = vec![Stmt::CtState(CtState::New), Stmt::CtStatusDnat, Stmt::Verdict(Verdict::Drop)];
    let interface = Stmt::IifName { negated: false, name: "probe".into(), prefix: true };
    vec![
        required("fib address type", nat(vec![Stmt::FibLocal(Selector::DestAddr)])),
        required("ct state and status", vec![base(ChainType::Filter, Hook::Forward), rule(ct)]),
        required("interface names", nat(vec![interface])),
    ]
}
