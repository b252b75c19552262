//! Somebody else lays hands on our table.

use std::io::Write as _;
use std::process::Stdio;

use crate::program::service;
use crate::stage::{Daemon, Stage, nft, table, tables, until};

fn watchful() -> (Stage, Daemon) {
    let stage = Stage::new(&[
        ("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.2"])),
        ("six.yaml", &service("six", "fd00:10:96::1", &["fd00:10:244::1"])),
    ]);
    stage.configure("verifyPeriod: 100ms\n");
    let daemon = stage.run();
    (stage, daemon)
}

/// Does the damage, and expects the item to be told and everything to be repaired.
#[track_caller]
fn repaired(damage: &str, family: &str, item: &str) {
    let (stage, mut daemon) = watchful();
    nft(&["-f", "-"], damage);
    let line = daemon.logged(&[("message", "drift"), ("family", family), ("item", item)]);
    assert_eq!((&line["level"], &line["backend"]), (&"WARN".into(), &"nftables".into()));
    daemon.logged(&[("message", "synced"), ("sync.kind", "full"), ("family", family)]);
    until(damage, || stage.answer("verify").code == 0);
    stage.in_order();
    // Once repaired there is nothing left to tell.
    daemon.forget();
    daemon.compared();
    assert_eq!(daemon.count(&[("message", "drift")]), 0);
    assert!(daemon.is_running());
}

/// The handle of the first rule of a chain.
fn first_rule(chain: &str) -> String {
    let listing = nft(&["-a", "list", "chain", "ip", "kube-proxy", chain], "");
    let rule = listing.lines().find(|l| !l.contains('{') && l.contains("# handle ")).expect("a rule");
    rule.rsplit(' ').next().expect("a number").to_owned()
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_deleted_element_is_put_back() {
    repaired(
        "delete element ip kube-proxy cluster-services { 10.96.0.1 . tcp . 80 }",
        "IPv4",
        "missing: element cluster-services: 10.96.0.1 . tcp . 80",
    );
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_foreign_element_is_removed() {
    repaired(
        "add element ip6 kube-proxy cluster-ips { fd00::bad }",
        "IPv6",
        "unexpected: element cluster-ips: fd00::bad",
    );
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_foreign_rule_is_removed() {
    repaired(
        "insert rule ip kube-proxy services limit rate 5/second counter drop",
        "IPv4",
        "unexpected: rule services: ",
    );
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_foreign_chain_is_removed() {
    repaired("add chain ip kube-proxy mine", "IPv4", "unexpected: chain mine");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_deleted_chain_is_put_back() {
    repaired("delete chain ip kube-proxy nat-prerouting", "IPv4", "missing: chain nat-prerouting");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_flushed_table_is_filled() {
    repaired("flush table ip6 kube-proxy", "IPv6", "missing: rule ");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_flushed_map_is_filled() {
    repaired(
        "flush set ip kube-proxy cluster-services",
        "IPv4",
        "missing: element cluster-services: 10.96.0.1",
    );
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_deleted_table_is_put_back() {
    repaired("delete table ip kube-proxy", "IPv4", "missing: table ip kube-proxy");
}

/// Cases: report-C3-40
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_deleted_rule_is_put_back() {
    let (stage, daemon) = watchful();
    let handle = first_rule("services");
    nft(&["delete", "rule", "ip", "kube-proxy", "services", "handle", &handle], "");
    daemon.logged(&[("message", "drift"), ("item", "missing: rule services: "), ("family", "IPv4")]);
    until("the rule", || stage.answer("verify").code == 0);
    stage.in_order();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_others_do_beside_us_is_no_drift() {
    let (stage, daemon) = watchful();
    let before = tables();
    daemon.forget();
    for i in 0..20 {
        nft(
            &["-f", "-"],
            &format!("add table ip beside-{i}\nadd chain ip beside-{i} c\nadd rule ip beside-{i} c drop"),
        );
        daemon.compared();
    }
    assert_eq!(daemon.count(&[("message", "drift")]), 0);
    assert_eq!(tables(), before);
    stage.others_untouched();
}

/// Cases: report-C3-32
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_change_meets_a_table_that_is_gone() {
    let stage = Stage::new(&[
        ("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"])),
        ("other.yaml", &service("other", "10.96.0.2", &["10.244.1.2"])),
    ]);
    // Nobody looks: the change itself finds out.
    stage.configure("verifyPeriod: 0\n");
    let daemon = stage.run();
    nft(&["delete", "table", "ip", "kube-proxy"], "");
    stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.9"]));
    daemon.logged(&[("message", "plan refused; tried again"), ("family", "IPv4")]);
    daemon.logged(&[("message", "synced"), ("sync.kind", "full"), ("family", "IPv4")]);
    let now = table("ip");
    assert!(now.contains("10.244.1.9 . 8080") && now.contains("10.244.1.2 . 8080"), "{now}");
    stage.in_order();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn changes_that_cannot_be_written_are_written_later() {
    let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"]))]);
    stage.configure("verifyPeriod: 0\n");
    // Another process owns the table: the kernel refuses everybody else, until it ends and the table with it.
    #[allow(clippy::disallowed_methods, reason = "the runner waits for what it starts")]
    let mut command = std::process::Command::new("nft");
    let mut owner = command.arg("-i").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("nft");
    let mut input = owner.stdin.take().expect("piped");
    input.write_all(b"add table ip kube-proxy { flags owner; }\n").expect("written");
    input.flush().expect("written");
    until("the owned table", || table("ip").contains("flags owner"));

    let daemon = stage.start();
    daemon.logged(&[("message", "synced"), ("family", "IPv6")]);
    let line = daemon.logged(&[("message", "sync failed; what was in force stays"), ("family", "IPv4")]);
    assert_eq!(line["level"], "ERROR");
    assert!(line["error"].as_str().expect("text").contains("EPERM"), "{line}");
    stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.7"]));
    stage.folder.write("late.yaml", &service("late", "10.96.0.2", &["10.244.1.8"]));
    daemon.logged(&[("message", "sync failed; what was in force stays"), ("family", "IPv4")]);
    assert!(!table("ip").contains("10.96.0.1"));

    drop(input);
    owner.wait().expect("ends");
    daemon.logged(&[("message", "synced"), ("family", "IPv4"), ("sync.kind", "full")]);
    let now = table("ip");
    assert!(now.contains("10.244.1.7 . 8080") && now.contains("10.244.1.8 . 8080"), "{now}");
    stage.in_order();
}
