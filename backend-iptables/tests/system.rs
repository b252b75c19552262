//! Probe and cleanup on the real kernel, both variants, each test in a network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::thread;

use backend_iptables::cleanup::{self, is_ours};
use backend_iptables::probe;
use proxier_core::ids::IpFamily;
use proxier_sys::netns;
use proxier_sys::runner::SystemRunner;
use proxier_sys::sysctl::Sysctl;
use proxier_xtables::objects::{ChainId, Input, Op, Rule, Step, Table};
use proxier_xtables::restore::Restorer;
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::tool::{self, Tools, Variant};
use proxier_xtables::trial::scratch;

fn tools(family: IpFamily, variant: Variant) -> Tools {
    tool::choose(&SystemRunner::new(), family, Some(variant)).unwrap().tools
}

fn list(tools: &Tools) -> Saved {
    saved::read(&SystemRunner::new(), tools, |_, _| true).unwrap()
}

fn id(table: Table, name: &str) -> ChainId {
    ChainId { table, name: name.into() }
}

fn declare(table: Table, name: &str) -> Step {
    Step { op: Op::Chain(id(table, name)), port: None }
}

fn append(table: Table, name: &str, rule: &str) -> Step {
    Step { op: Op::Append(id(table, name), Rule(rule.into())), port: None }
}

/// Writes steps.
fn write(tools: &Tools, steps: Vec<Step>) {
    let restorer = Restorer { runner: &SystemRunner::new(), tools, trial: &scratch };
    restorer.run(&[Input { steps }], &mut |_| {}).unwrap();
}

/// Runs a test for both variants, each on a thread and in a namespace of its own.
fn on_both(test: impl Fn(Variant) + Send + Sync) {
    for variant in Variant::ALL {
        thread::scope(|scope| {
            scope.spawn(|| {
                netns::enter_new().unwrap();
                test(variant);
            });
        });
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_probe_finds_this_kernel_usable_and_changes_nothing() {
    on_both(|variant| {
        for family in IpFamily::ALL {
            let runner = SystemRunner::new();
            let probed = probe::probe(&runner, &scratch, &Sysctl::new(), family, Some(variant)).unwrap();
            let missing: Vec<_> = probed.capabilities.missing().collect();
            assert!(missing.is_empty(), "{variant} {family}: {missing:?}");
            assert!(
                probed.random_fully && probed.recent && probed.same_spelling,
                "{variant} {family}: {probed:?}"
            );
            let all = tool::all(&runner, family).unwrap();
            assert!(
                all.iter().all(|t| list(t).chains.keys().all(|c| !is_ours(c.table, &c.name))),
                "{variant}"
            );
        }
        let names = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
        assert_eq!(names, "", "{variant}: the probe made tables");
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn nothing_of_ours_is_left_and_all_of_others_stays() {
    on_both(|variant| {
        for family in IpFamily::ALL {
            let tools = tools(family, variant);
            let runner = SystemRunner::new();
            let others = [
                declare(Table::Nat, "KUBE-KUBELET-CANARY"),
                declare(Table::Nat, "DOCKER"),
                append(Table::Nat, "PREROUTING", "-j DOCKER"),
                declare(Table::Filter, "KUBE-FIREWALL"),
                append(Table::Filter, "INPUT", "-j KUBE-FIREWALL"),
                declare(Table::Mangle, "KUBE-IPTABLES-HINT"),
            ];
            write(&tools, others.into());
            let before = list(&tools);
            let mut ours: Vec<Step> = Vec::new();
            for chain in [
                "KUBE-SERVICES",
                "KUBE-SVC-A",
                "KUBE-SEP-A",
                "KUBE-MARK-MASQ",
                "KUBE-EXT-STALE",
                "KUBE-PROXY-CANARY",
            ] {
                ours.push(declare(Table::Nat, chain));
            }
            for (from, to) in [
                ("KUBE-SERVICES", "KUBE-SVC-A"),
                ("KUBE-SVC-A", "KUBE-SEP-A"),
                ("KUBE-SEP-A", "KUBE-MARK-MASQ"),
                ("PREROUTING", "KUBE-SERVICES"),
                ("OUTPUT", "KUBE-SERVICES"),
            ] {
                ours.push(append(Table::Nat, from, &format!("-j {to}")));
            }
            ours.push(declare(Table::Filter, "KUBE-FORWARD"));
            ours.push(append(Table::Filter, "FORWARD", "-j KUBE-FORWARD"));
            ours.push(declare(Table::Mangle, "KUBE-PROXY-CANARY"));
            write(&tools, ours);

            let report = cleanup::cleanup(&runner, &scratch, family).unwrap();
            assert_eq!((report.removed.len(), report.stayed.len()), (8, 0), "{variant} {family}: {report:?}");
            assert_eq!(list(&tools), before, "{variant} {family}");
            let again = cleanup::cleanup(&runner, &scratch, family).unwrap();
            assert_eq!((again.removed.len(), again.stayed.len()), (0, 0), "{variant} {family}: {again:?}");
        }
    });
}
