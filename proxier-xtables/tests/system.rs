//! The real tools on the real kernel, both variants, each test in a network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use proxier_core::backend::{BackendError, RetryClass};
use proxier_core::ids::{IpFamily, Protocol, ServiceName, ServicePortName};
use proxier_sys::netns;
use proxier_sys::runner::{CommandSpec, Output, RunError, Runner, SystemRunner};
use proxier_xtables::feature::{Feature, attempt, printed_alike};
use proxier_xtables::objects::{ChainId, Input, Op, Rule, Step, Table};
use proxier_xtables::restore::Restorer;
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::tool::{self, Tools, Variant};
use proxier_xtables::trial::{Scratch, scratch};
use proxier_xtables::{Error, accounting};

/// The worked example of iptables spec 11, as `iptables-save` prints it.
const WORKED: &str = include_str!("worked.save");

fn tools(family: IpFamily, variant: Variant) -> Tools {
    tool::choose(&SystemRunner::new(), family, Some(variant)).unwrap().tools
}

fn restorer<'a>(runner: &'a dyn Runner, tools: &'a Tools) -> Restorer<'a> {
    Restorer { runner, tools, trial: &scratch }
}

fn list(tools: &Tools) -> Saved {
    saved::read(&SystemRunner::new(), tools, |_, _| true).unwrap()
}

fn port(name: &str) -> ServicePortName {
    ServicePortName { service: ServiceName::new("ns", name), port: "".into(), protocol: Protocol::Tcp }
}

fn id(table: Table, name: &str) -> ChainId {
    ChainId { table, name: name.into() }
}

fn declare(table: Table, name: &str) -> Step {
    Step { op: Op::Chain(id(table, name)), port: None }
}

fn append(table: Table, name: &str, rule: &str, port: Option<ServicePortName>) -> Step {
    Step { op: Op::Append(id(table, name), Rule(rule.into())), port }
}

/// Steps that make what a listing shows, apart from built-in chains.
fn steps(saved: &Saved) -> Input {
    let mut steps: Vec<Step> = Vec::new();
    for table in [Table::Filter, Table::Mangle, Table::Nat] {
        let chains = || saved.chains.iter().filter(|(c, _)| c.table == table);
        steps.extend(
            chains().filter(|(c, _)| c.name.starts_with("KUBE-")).map(|(c, _)| declare(table, &c.name)),
        );
        steps.extend(chains().flat_map(|(c, rules)| {
            rules.iter().map(|r| Step { op: Op::Append(c.clone(), r.clone()), port: None })
        }));
    }
    Input { steps }
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
fn what_is_written_is_read_back_letter_for_letter() {
    let worked = saved::parse("worked.save", WORKED, |_, _| true).unwrap();
    assert_eq!(worked.chains.len(), 39);
    on_both(|variant| {
        let tools = tools(IpFamily::Ipv4, variant);
        let runner = SystemRunner::new();
        let report = restorer(&runner, &tools).run(&[steps(&worked)], &mut |_| {}).unwrap();
        assert_eq!(report.messages, 2, "{variant}");
        let read = list(&tools);
        for (chain, rules) in &worked.chains {
            assert_eq!(read.rules(chain), rules, "{variant} {chain:?}");
        }
        // Declared again, a chain is emptied: twice the same input is once.
        restorer(&runner, &tools).run(&[steps(&worked)], &mut |_| {}).unwrap();
        assert_eq!(list(&tools), read, "{variant}");
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_check_asks_the_kernel_and_changes_nothing() {
    let worked = saved::parse("worked.save", WORKED, |_, _| true).unwrap();
    on_both(|variant| {
        let tools = tools(IpFamily::Ipv4, variant);
        let runner = SystemRunner::new();
        let before = list(&tools);
        restorer(&runner, &tools).check(&[steps(&worked)]).unwrap();
        let bad = Input { steps: vec![append(Table::Filter, "KUBE-A", "-j MASQUERADE", Some(port("bad")))] };
        let error = restorer(&runner, &tools).check(&[bad]).unwrap_err();
        assert_eq!(error.refused().len(), 1, "{variant}: {error}");
        assert_eq!(list(&tools), before, "{variant}");
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_refused_service_port_is_named() {
    let rules = [
        ("missing chain", "-j KUBE-NOPE", RetryClass::NeedsFullSync),
        ("bad port", "-p tcp -m tcp --dport 70000 -j RETURN", RetryClass::Bug),
        ("unknown match", "-m nosuch -j RETURN", RetryClass::Unsupported),
        ("unknown option", "--nosuch 1 -j RETURN", RetryClass::Unsupported),
        ("refused by the kernel", "-j MASQUERADE", RetryClass::Bug),
    ];
    on_both(|variant| {
        let tools = tools(IpFamily::Ipv4, variant);
        let runner = SystemRunner::new();
        for (what, rule, class) in rules {
            let mut steps: Vec<Step> =
                ["KUBE-A", "KUBE-B", "KUBE-C"].map(|c| declare(Table::Filter, c)).into();
            for (chain, rule) in [("KUBE-A", "-j RETURN"), ("KUBE-B", rule), ("KUBE-C", "-j KUBE-A")] {
                steps.push(append(Table::Filter, chain, rule, Some(port(&chain.to_lowercase()))));
            }
            let error = restorer(&runner, &tools).run(&[Input { steps }], &mut |_| {}).unwrap_err();
            let names: Vec<_> = error.refused().iter().map(|r| r.port.to_string()).collect();
            assert_eq!(names, ["ns/kube-b"], "{variant} {what}: {error}");
            assert_eq!(error.retry_class(), class, "{variant} {what}: {error}");
            assert!(!list(&tools).chains.contains_key(&id(Table::Filter, "KUBE-A")), "{variant} {what}");
        }
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn tables_that_are_not_as_believed_need_a_full_sync() {
    on_both(|variant| {
        let tools = tools(IpFamily::Ipv4, variant);
        let runner = SystemRunner::new();
        let run = |steps| restorer(&runner, &tools).run(&[Input { steps }], &mut |_| {});
        let step = |op| Step { op, port: Some(port("a")) };
        let nat = |name| id(Table::Nat, name);
        let referenced = vec![
            declare(Table::Nat, "KUBE-A"),
            declare(Table::Nat, "KUBE-B"),
            append(Table::Nat, "KUBE-A", "-j KUBE-B", None),
        ];
        run(referenced).unwrap();
        for op in [
            Op::DropChain(nat("KUBE-B")),
            Op::DropChain(nat("KUBE-NOPE")),
            Op::Delete(nat("KUBE-A"), Rule("-j RETURN".into())),
            Op::Append(nat("KUBE-NOPE"), Rule("-j RETURN".into())),
            Op::Insert(nat("KUBE-NOPE"), Rule("-j RETURN".into())),
        ] {
            let error = run(vec![step(op.clone())]).unwrap_err();
            assert_eq!(error.retry_class(), RetryClass::NeedsFullSync, "{variant} {op:?}: {error}");
        }
    });
}

/// Has the tools lock another file than the host's.
struct Locking(String);

impl Runner for Locking {
    fn run(&self, command: &CommandSpec) -> Result<Output, RunError> {
        SystemRunner::new().run(&command.clone().env("XTABLES_LOCKFILE", &self.0))
    }
}

#[test]
#[ignore = "needs root and a network namespace, takes ten seconds: run by cargo xtask test"]
fn a_lock_held_longer_than_the_tool_waits_is_waited_for() {
    netns::enter_new().unwrap();
    let path = std::env::temp_dir().join(format!("xtables-{}.lock", std::process::id()));
    let lock = File::create(&path).unwrap();
    lock.lock().unwrap();
    let (held, wait) = mpsc::channel();
    let holder = thread::spawn(move || {
        held.send(()).unwrap();
        // Longer than one try of the tool, shorter than two.
        thread::sleep(Duration::from_secs(8));
        drop(lock);
    });
    wait.recv().unwrap();
    let tools = tools(IpFamily::Ipv4, Variant::Legacy);
    let runner = Locking(path.to_string_lossy().into_owned());
    // Not idempotent: done twice, there would be two rules.
    let input = Input { steps: vec![append(Table::Nat, "PREROUTING", "-j RETURN", None)] };
    restorer(&runner, &tools).run(&[input], &mut |_| {}).unwrap();
    assert!(
        holder.is_finished() || {
            holder.join().unwrap();
            false
        },
        "written while the lock was held"
    );
    assert_eq!(list(&tools).rules(&id(Table::Nat, "PREROUTING")).len(), 1);
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn counting_objects_are_made_once_and_can_be_mentioned() {
    on_both(|variant| {
        let names = ["proxier_test_a", "proxier_test_b"];
        assert_eq!(accounting::ensure(&names).unwrap(), names);
        assert_eq!(accounting::ensure(&names).unwrap(), names);
        let tools = tools(IpFamily::Ipv4, variant);
        let rule = format!("-m conntrack --ctstate INVALID -m nfacct --nfacct-name {} -j DROP", names[0]);
        // In the spelling of a listing, two blanks included.
        let input = Input {
            steps: vec![
                declare(Table::Filter, "KUBE-FORWARD"),
                append(Table::Filter, "KUBE-FORWARD", &rule, None),
            ],
        };
        restorer(&SystemRunner::new(), &tools).run(&[input], &mut |_| {}).unwrap();
        let read = list(&tools);
        let rules = read.rules(&id(Table::Filter, "KUBE-FORWARD"));
        let words: Vec<&str> = rules[0].0.split_whitespace().collect();
        assert_eq!(words.join(" "), rule, "{variant}");
    });
}

#[test]
#[ignore = "needs root, a network namespace and nft: run by cargo xtask test"]
fn a_table_with_rules_of_nft_is_not_taken_for_empty() {
    netns::enter_new().unwrap();
    let tools = tools(IpFamily::Ipv4, Variant::Nft);
    let input = Input { steps: vec![declare(Table::Nat, "KUBE-SERVICES")] };
    restorer(&SystemRunner::new(), &tools).run(&[input], &mut |_| {}).unwrap();
    let foreign = "add chain ip nat foreign\nadd rule ip nat foreign numgen inc mod 2 1 drop\n";
    let nft = CommandSpec::new("nft", ["-f", "-"]).stdin(foreign);
    assert!(SystemRunner::new().run(&nft).unwrap().success());
    let error = saved::read(&SystemRunner::new(), &tools, |_, _| true).unwrap_err();
    assert!(matches!(error, Error::Incompatible { table: Table::Nat, .. }), "{error}");
}

/// What a backend can ask for before it relies on it: matches and targets that exist, one that a set must be made for, and what does not
/// exist.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn features_are_tried_where_nothing_of_the_host_changes() {
    on_both(|variant| {
        let tools = tools(IpFamily::Ipv4, variant);
        let before = list(&tools);
        let place = Scratch::new().unwrap();
        let namespace = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        assert_ne!(place.inside(namespace).unwrap(), namespace());
        for feature in [
            Feature::needed("comment", Table::Nat, &["-m comment --comment x"]),
            Feature::needed("conntrack", Table::Filter, &["-m conntrack --ctstate NEW -j RETURN"]),
            Feature::needed("addrtype", Table::Nat, &["-m addrtype --dst-type LOCAL -j RETURN"]),
            Feature::needed("random", Table::Nat, &["-j MASQUERADE --random-fully", "-j RETURN"]),
        ] {
            let told = feature.tried(&place, &tools);
            assert!(told.found && told.detail == "yes", "{variant}: {told:?}");
        }
        for (table, rules) in [
            (Table::Nat, &["-j RETURN", "-m nosuch -j RETURN"][..]),
            (Table::Filter, &["-j MASQUERADE"]),
            (Table::Nat, &["-p tcp -m tcp --dport 70000 -j RETURN"]),
            (Table::Nat, &["-m set --match-set proxier_test src -j RETURN"]),
        ] {
            let answer = attempt(&place, &tools, table, rules).unwrap_err();
            assert!(!answer.is_empty() && answer != "no message", "{variant} {rules:?}: {answer:?}");
        }
        let alike = |rule| printed_alike(&place, &tools, Table::Nat, &["-j RETURN", rule]);
        assert_eq!(alike("-d 192.0.2.1/32 -j RETURN"), Ok(()), "{variant}");
        let otherwise = "\"-d 192.0.2.1 -j RETURN\" is printed as \"-d 192.0.2.1/32 -j RETURN\"";
        assert_eq!(alike("-d 192.0.2.1 -j RETURN"), Err(otherwise.to_owned()), "{variant}");
        assert_eq!(list(&tools), before, "{variant}");
    });
}
