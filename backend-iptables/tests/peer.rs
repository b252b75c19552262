//! What is rendered for one cluster state is, rule for rule, what a real kube-proxy 1.36 programmed for it.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod kit;

use std::collections::BTreeMap;

use backend_iptables::skeleton;
use kit::Tables;
use proxier_core::ids::IpFamily;
use proxier_testkit::corpus;
use proxier_xtables::objects::{ChainId, Rule, Table};

/// Every difference that is intended: the chain, and ours and theirs of it. The README's section "Differences from kube-proxy" has the
/// reasons. None is known for this state.
const INTENDED: [(&str, &str); 0] = [];

fn peer(family: IpFamily) -> Tables {
    let name = if family == IpFamily::Ipv4 { "iptables-save.txt" } else { "ip6tables-save.txt" };
    let text = std::fs::read_to_string(corpus::folder().join("peer").join(name)).unwrap();
    let mut chains: BTreeMap<ChainId, Vec<Rule>> = BTreeMap::new();
    let mut table = Table::Filter;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = *[Table::Filter, Table::Mangle, Table::Nat].iter().find(|t| t.name() == name).unwrap();
        } else if let Some(rest) = line.strip_prefix(':') {
            chains.insert(skeleton::chain(table, rest.split(' ').next().unwrap()), Vec::new());
        } else if let Some(rest) = line.strip_prefix("-A ") {
            let (name, rule) = rest.split_once(' ').unwrap();
            chains.get_mut(&skeleton::chain(table, name)).unwrap().push(Rule(rule.into()));
        }
    }
    chains.retain(|id, rules| !(skeleton::is_built_in(&id.name) && rules.is_empty()));
    Tables { chains }
}

/// Compares, and returns how many rules are the same.
fn compare(family: IpFamily) -> usize {
    let case = corpus::load(&kit::cases().join("peer-state.yaml")).unwrap();
    let ours = Tables::of(&kit::full(case.commit.snapshot(family), &kit::counted())).in_meaning();
    let theirs = peer(family).in_meaning();
    let mut differences = Vec::new();
    for id in ours.keys().chain(theirs.keys().filter(|id| !ours.contains_key(*id))) {
        let (a, b) = (ours.get(id), theirs.get(id));
        if a != b && !INTENDED.iter().any(|(name, _)| *name == &*id.name) {
            let show = |rules: Option<&Vec<Rule>>| match rules {
                None => "no chain".to_owned(),
                Some(rules) => rules.iter().map(|r| format!("\n    {r}")).collect(),
            };
            differences.push(format!(
                "{} {}\n  ours:{}\n  theirs:{}",
                id.table.name(),
                id.name,
                show(a),
                show(b)
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    ours.values().map(Vec::len).sum()
}

/// Cases: iptables-12.1, iptables-12.2, iptables-12.4, iptables-12.6, iptables-12.7, iptables-12.9, iptables-12.11, iptables-12.17, iptables-12.33
#[test]
fn ipv4() {
    assert_eq!(compare(IpFamily::Ipv4), 179);
}

/// Cases: iptables-12.20
#[test]
fn ipv6() {
    assert_eq!(compare(IpFamily::Ipv6), 46);
}

/// The last rule of dispatch is last, and of two rules for one node port the one that counts loopback is first; sorting would hide it.
#[test]
fn order_where_it_matters() {
    let case = corpus::load(&kit::cases().join("peer-state.yaml")).unwrap();
    let tables = Tables::of(&kit::full(case.commit.snapshot(IpFamily::Ipv4), &kit::counted()));
    let services = tables.chain(Table::Nat, skeleton::SERVICES);
    assert!(services.last().unwrap().ends_with("-j KUBE-NODEPORTS"));
    assert_eq!(services.iter().filter(|r| r.ends_with("-j KUBE-NODEPORTS")).count(), 1);
    let node_ports = tables.chain(Table::Nat, skeleton::NODEPORTS);
    assert_eq!(node_ports.len(), 14);
    for pair in node_ports.chunks(2) {
        let without = pair[0]
            .replace("-d 127.0.0.0/8 ", "")
            .replace("-m nfacct --nfacct-name  localhost_nps_accepted_pkts ", "");
        assert_ne!(without, pair[0]);
        assert_eq!(without, pair[1]);
    }
}

/// The comparison sees a difference where there is one.
#[test]
fn a_missing_rule_is_seen() {
    let theirs = peer(IpFamily::Ipv4);
    let mut less = theirs.clone();
    let id = skeleton::chain(Table::Nat, "KUBE-SVL-YQ5SW7GJMA7ZB6YD");
    less.chains.get_mut(&id).unwrap_or_else(|| panic!("{id:?}")).pop();
    assert_ne!(theirs.in_meaning(), less.in_meaning());
}

/// The rules that a walk through kube-proxy's iptables mode (Kubernetes 1.35, three nodes) printed of its Service, letter for letter.
#[test]
fn the_rules_of_a_known_service() {
    let case = corpus::load(&kit::cases().join("peer-state.yaml")).unwrap();
    let tables = Tables::of(&kit::full(case.commit.snapshot(IpFamily::Ipv4), &kit::counted()));
    let chain = |name| tables.chain(Table::Nat, name);
    let svc = "-m comment --comment \"service-path/source-ip:http -> 10.244.1.3:8080\" -j KUBE-SEP-MGYZ72N52QLOHZGY";
    assert_eq!(chain("KUBE-SVC-HMXYGTJUZB5GQ45C")[1], svc);
    assert_eq!(chain("KUBE-SVL-HMXYGTJUZB5GQ45C"), [svc]);
    assert_eq!(chain("KUBE-EXT-HMXYGTJUZB5GQ45C").last().unwrap(), "-j KUBE-SVL-HMXYGTJUZB5GQ45C");
    let way_out =
        "-m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully";
    assert_eq!(chain("KUBE-POSTROUTING").last().unwrap(), way_out);
    assert!(chain("KUBE-SERVICES").iter().any(|r| r.starts_with("-d 10.96.123.219/32 -p tcp ")
        && r.ends_with("--dport 80 -j KUBE-SVC-HMXYGTJUZB5GQ45C")));
    assert!(
        chain("KUBE-NODEPORTS")
            .iter()
            .any(|r| r.starts_with("-p tcp ") && r.ends_with("--dport 30080 -j KUBE-EXT-HMXYGTJUZB5GQ45C"))
    );
}
