//! Rulesets side by side.

use proxier_testkit::conformance::Model;
use proxier_testkit::iptables::{differences, levels};

use crate::{example, host_with, input, parse};

fn compare(table: &str, expected: &str, seen: &str) -> Vec<String> {
    let [expected, seen] = [expected, seen].map(|lines| parse(&input(table, lines)));
    let found: Vec<String> = differences(&expected, &seen).iter().map(ToString::to_string).collect();
    let [expected, seen] = [expected, seen].map(|ruleset| host_with(ruleset).objects());
    let only_chains = found.iter().all(|d| d.contains(" :") && !d.contains("policy"));
    assert_eq!(expected == seen, only_chains, "{found:?}");
    found
}

#[test]
fn nothing_differs() {
    let rules = parse(example::INPUT);
    assert_eq!(differences(&rules, &rules), []);
    let printed = parse(&rules.print());
    assert_eq!(differences(&rules, &printed), []);
}

#[test]
fn chains_rules_and_policies() {
    let found = compare(
        "filter",
        ":V - [0:0]\n-A T -j U\n-A T -j ACCEPT\n-A T -j ACCEPT\n-A U -j DROP",
        ":W - [0:0]\n:INPUT DROP\n-A T -j U\n-A T -j ACCEPT\n-A T -j REJECT",
    );
    assert_eq!(
        found,
        [
            "missing: filter :V",
            "unexpected: filter :W",
            "other policy: filter :INPUT",
            "missing: filter -A T -j ACCEPT",
            "missing: filter -A U -j DROP",
            "unexpected: filter -A T -j REJECT --reject-with icmp-port-unreachable",
        ]
    );
    assert_eq!(compare("filter", "", ":W - [0:0]"), ["unexpected: filter :W"]);
}

#[test]
fn rules_that_exclude_one_another_may_change_places() {
    let same = |one: &str, other: &str| {
        assert_eq!(
            compare("filter", &format!("{one}\n{other}"), &format!("{other}\n{one}")),
            [""; 0],
            "{one}, {other}"
        );
    };
    same("-A T -d 10.0.0.1 -p tcp --dport 80 -j U", "-A T -d 10.0.0.2 -p tcp --dport 80 -j U");
    same("-A T -d 10.0.0.1 -p tcp --dport 80 -j U", "-A T -d 10.0.0.1 -p tcp --dport 81 -j U");
    same("-A T -d 10.0.0.1 -p tcp --dport 80 -j U", "-A T -d 10.0.0.1 -p udp --dport 80 -j U");
    same("-A T -s 10.0.0.0/9 -j U", "-A T -s 10.128.0.0/9 -j U");
    // Both accept, whichever comes first.
    same("-A T -p tcp --dport 80 -j ACCEPT", "-A T -m comment --comment x -p tcp -j ACCEPT");
}

#[test]
fn rules_that_could_both_match_may_not() {
    let other = |one: &str, other: &str| {
        let found = compare("filter", &format!("{one}\n{other}"), &format!("{other}\n{one}"));
        assert!(!found.is_empty() && found.iter().all(|d| d.starts_with("out of order")), "{found:?}");
    };
    other("-A T -d 10.0.0.1 -j U", "-A T -d 10.0.0.0/8 -j U");
    other("-A T -d 10.0.0.1 -j ACCEPT", "-A T -j DROP");
    other("-A T -p tcp --dport 1:5 -j U", "-A T -p tcp --dport 5 -j U");
    other("-A T ! -d 10.0.0.1 -j U", "-A T -d 10.0.0.2 -j U");
    other("-A T -m statistic --mode random --probability 0.5 -j ACCEPT", "-A T -j ACCEPT");
    other("-A T -m recent --set -j ACCEPT", "-A T -m mark --mark 1 -j ACCEPT");
    // A rule for everything keeps its place among those that exclude one another.
    let found = compare(
        "filter",
        "-A T -d 10.0.0.1 -j U\n-A T -d 10.0.0.2 -j U\n-A T -m addrtype --dst-type LOCAL -j U",
        "-A T -d 10.0.0.1 -j U\n-A T -m addrtype --dst-type LOCAL -j U\n-A T -d 10.0.0.2 -j U",
    );
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn one_rule_too_many_is_found() {
    let found = compare("filter", "-A T -j ACCEPT", "-A T -j ACCEPT\n-A T -j ACCEPT");
    assert_eq!(found, ["unexpected: filter -A T -j ACCEPT"]);
}

#[test]
fn levels_of_a_dispatch_chain() {
    let rules = parse(&input(
        "nat",
        "-A T -d 10.0.0.1 -p tcp --dport 80 -j U\n-A T -d 10.0.0.2 -p tcp --dport 80 -j U\n\
         -A T -d 10.0.0.1 -p tcp -j U\n-A T -m addrtype --dst-type LOCAL -j U",
    ));
    let table = rules.tables().next().unwrap();
    assert_eq!(levels(&table.chain("T").unwrap().rules), [0, 0, 1, 2]);
}
