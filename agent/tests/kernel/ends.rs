//! However the program ends, the rules stay; the next one takes over, and `cleanup` removes everything.

use nix::sys::signal::Signal;

use crate::program::{proxier, service, tool};
use crate::stage::{Stage, nft, tables, until};

fn stage() -> Stage {
    Stage::new(&[
        ("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.2"])),
        ("old.yaml", &service("old", "10.96.0.2", &["10.244.1.3"])),
        ("six.yaml", &service("six", "fd00:10:96::1", &["fd00:10:244::1"])),
    ])
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn asked_to_stop_it_leaves_the_rules() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let stage = stage();
        let daemon = stage.run();
        let before = tables();
        let (status, lines) = daemon.end(signal);
        assert_eq!(status.code(), Some(0), "{lines:#?}");
        let last = lines.last().expect("a last word");
        assert_eq!(last["message"], "stopping; the rules stay in force");
        assert_eq!(tables(), before);
        stage.in_order();
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn killed_it_leaves_the_rules_and_the_next_one_takes_over() {
    let stage = stage();
    let (_, lines) = {
        let daemon = stage.run();
        let before = tables();
        let ended = daemon.end(Signal::SIGKILL);
        assert_eq!(tables(), before);
        ended
    };
    assert!(lines.iter().all(|l| l["level"] != "ERROR"), "{lines:#?}");

    // What changed in between is made up for, what was removed is gone.
    stage.folder.remove("old.yaml");
    stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.2", "10.244.1.4"]));
    stage.folder.write("new.yaml", &service("new", "10.96.0.3", &["10.244.1.5"]));
    assert_eq!(stage.answer("verify").code, 3);
    let daemon = stage.run();
    stage.in_order();
    let now = tables();
    for gone in ["shop/old", "10.96.0.2", "10.244.1.3 ", "10.244.1.1 "] {
        assert!(!now.contains(gone), "{gone} in\n{now}");
    }
    for there in ["shop/new:http", "10.244.1.4 . 8080", "shop/six:http"] {
        assert!(now.contains(there), "{there} not in\n{now}");
    }
    assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
}

/// Cases: nftables-12.11, report-C6-71
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_start_with_nothing_new_changes_no_rule() {
    let stage = stage();
    stage.run().end(Signal::SIGKILL);
    // Handles are numbers that the kernel gives anew to what is made anew.
    let with_handles = || nft(&["-a", "list", "ruleset"], "");
    let before = with_handles();
    let daemon = stage.run();
    stage.in_order();
    assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
    assert_eq!(with_handles(), before);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_layout_may_be_another_one_after_a_start() {
    let stage = stage();
    for layout in ["maps", "chains", "maps"] {
        stage.configure(&format!("nftables: {{layout: {layout}}}\n"));
        let daemon = stage.run();
        stage.in_order();
        let endpoint = format!("10.244.9.{}", layout.len());
        stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", &endpoint]));
        until(layout, || tables().contains(&endpoint));
        stage.in_order();
        stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.2"]));
        until(layout, || !tables().contains(&endpoint));
        stage.in_order();
        let (status, lines) = daemon.end(Signal::SIGTERM);
        assert_eq!(status.code(), Some(0));
        assert!(lines.iter().all(|l| l["level"] != "ERROR"), "{lines:#?}");
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn cleanup_removes_everything_of_ours_and_may_be_repeated() {
    let stage = stage();
    stage.run().end(Signal::SIGKILL);
    let first = proxier(&["cleanup"]);
    assert_eq!((first.code, first.stderr_text().as_str()), (0, ""));
    assert_eq!(first.stdout_text(), "removed table ip kube-proxy\nremoved table ip6 kube-proxy\n");
    assert_eq!(tables(), "");
    stage.others_untouched();
    let second = proxier(&["cleanup"]);
    assert_eq!((second.code, second.stdout_text().as_str(), second.stderr_text().as_str()), (0, "", ""));
    stage.others_untouched();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn cleanup_finds_the_table_by_its_configured_name() {
    let stage = stage();
    stage.configure("nftables: {table: mine}\n");
    stage.run().end(Signal::SIGKILL);
    assert_eq!(tables(), "", "nothing under the usual name");
    let config = stage.config();
    let output = proxier(&["cleanup", "--config", &config]);
    assert_eq!(output.stdout_text(), "removed table ip mine\nremoved table ip6 mine\n");
    stage.others_untouched();
}

/// Cases: core-11.78, report-C2-28
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn another_mode_takes_the_place_of_the_one_before() {
    let stage = stage();
    let mut before = String::new();
    for (mode, gone) in [("nftables", ""), ("iptables", "table ip"), ("nftables", "KUBE-SVC-")] {
        stage.configure(&format!("mode: {mode}\niptables: {{variant: legacy}}\n"));
        let daemon = stage.run();
        let rules = || tables() + &tool("iptables-legacy-save", &[], "").stdout_text();
        if gone.is_empty() {
            assert!(rules().contains("10.96.0.1"));
        } else {
            assert!(before.contains(gone), "{mode}: nothing was there to go:\n{before}");
            until(format!("{mode} without {gone}"), || {
                !rules().contains(gone) && rules().contains("10.96.0.1")
            });
            daemon.logged(&[("message", "removed what another backend left"), ("family", "IPv4")]);
        }
        before = rules();
        stage.in_order();
        assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
    }
}

/// Cases: core-11.77
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn without_ipv6_a_node_is_served_by_ipv4_unless_ipv6_comes_first() {
    let stage = stage();
    std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").expect("a namespace of our own");
    let daemon = stage.start();
    daemon.logged(&[("message", "family cannot be served"), ("family", "IPv6"), ("reason", "switched off")]);
    daemon.logged(&[("message", "synced"), ("family", "IPv4"), ("sync.kind", "full")]);
    assert!(tables().contains("10.96.0.1") && !tables().contains("fd00:10:96::1"));
    assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));

    let before = tables();
    stage.configure("bindAddress: 2001:db8::1\n");
    let daemon = stage.start();
    let line = daemon.failed();
    assert!(line.contains("the node's first family is IPv6"), "{line}");
    assert_eq!(tables(), before, "what was in force stays");
}
