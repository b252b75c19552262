use proxier_core::backend::BackendError;
use proxier_core::ids::{IpFamily, Protocol, ServiceName};

use super::*;
use crate::objects::{ChainId, Table};
use crate::tool::{Variant, Version};
use crate::trial::Trial;
use proxier_testkit::script::Script;

const RESTORE: &str = "iptables-restore -w 5 --noflush --counters";
const LOCK: &str = "Another app is currently holding the xtables lock. Stopped waiting after 5s.\n";

fn tools() -> Tools {
    let name = |tail: &str| format!("iptables{tail}");
    Tools {
        family: IpFamily::Ipv4,
        variant: Variant::Legacy,
        version: Version(1, 8, 9),
        tool: name(""),
        save: name("-save"),
        restore: name("-restore"),
    }
}

fn port(name: &str) -> ServicePortName {
    ServicePortName { service: ServiceName::new("ns", name), port: "".into(), protocol: Protocol::Tcp }
}

fn chain(table: Table, name: &str) -> ChainId {
    ChainId { table, name: name.into() }
}

fn append(table: Table, name: &str, rule: &str, port: Option<ServicePortName>) -> Step {
    Step { op: Op::Append(chain(table, name), Rule(rule.into())), port }
}

fn declare(table: Table, name: &str) -> Step {
    Step { op: Op::Chain(chain(table, name)), port: None }
}

fn no_trial() -> Result<Box<dyn Trial>, String> {
    Err("no right".to_owned())
}

fn run(script: &Script, inputs: &[Input]) -> Result<ApplyReport, Error> {
    Restorer { runner: script, tools: &tools(), trial: &no_trial }.run(inputs, &mut |_| {})
}

/// Two tables; in nat a service port's chain, then one that it jumps to.
fn two_tables() -> Input {
    let steps = vec![
        declare(Table::Filter, "KUBE-SERVICES"),
        declare(Table::Nat, "KUBE-SVC-A"),
        append(Table::Nat, "KUBE-SVC-A", "-j KUBE-SEP-A", Some(port("a"))),
        append(Table::Nat, "KUBE-SERVICES", "-d 10.96.0.1/32 -j KUBE-SVC-A", Some(port("b"))),
    ];
    Input { steps }
}

#[test]
fn each_table_is_a_process_of_its_own() {
    let script = Script::new().says(RESTORE, "");
    let report = run(&script, &[two_tables(), Input::default()]).unwrap();
    assert_eq!(
        script.inputs(),
        [
            "*filter\n:KUBE-SERVICES - [0:0]\nCOMMIT\n",
            "*nat\n:KUBE-SVC-A - [0:0]\n-A KUBE-SVC-A -j KUBE-SEP-A\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-A\nCOMMIT\n",
        ]
    );
    assert_eq!((report.operations, report.messages), (4, 2));
    assert_eq!(report.bytes, script.inputs().iter().map(String::len).sum::<usize>());
}

#[test]
fn a_part_that_met_the_lock_is_given_again_and_the_others_are_not() {
    let script =
        Script::new().says(RESTORE, "").fails(RESTORE, 4, LOCK).fails(RESTORE, 4, LOCK).says(RESTORE, "");
    run(&script, &[two_tables()]).unwrap();
    let tables: Vec<_> = script.inputs().iter().map(|i| i.lines().next().unwrap().to_owned()).collect();
    assert_eq!(tables, ["*filter", "*nat", "*nat", "*nat"]);
}

#[test]
fn a_lock_that_stays_is_transient_and_nothing_was_lost() {
    let script = Script::new().fails(RESTORE, 4, LOCK);
    let error = run(&script, &[two_tables()]).unwrap_err();
    assert!(matches!(error, Error::Locked { tries: 3, .. }), "{error}");
    assert_eq!(error.retry_class(), RetryClass::Transient);
    assert_eq!(script.inputs().len(), 3);
}

fn refused(code: i32, said: &str) -> (Vec<(String, String)>, bool, RetryClass) {
    let script = Script::new().says(RESTORE, "").fails(RESTORE, code, said);
    match run(&script, &[two_tables()]).unwrap_err() {
        Error::Refused { ports, shared, class, .. } => {
            (ports.into_iter().map(|r| (r.port.to_string(), r.reason)).collect(), shared, class)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn lines_lead_to_service_ports() {
    let said = "iptables-nft-restore v1.8.9 (nf_tables): \n\
                line 3: RULE_APPEND failed (Invalid argument): rule in chain KUBE-SVC-A\n\
                line 4: RULE_APPEND failed (No such file or directory): rule in chain KUBE-SERVICES\n";
    let (ports, shared, class) = refused(4, said);
    let names: Vec<_> = ports.iter().map(|p| p.0.as_str()).collect();
    assert_eq!(names, ["ns/a", "ns/b"]);
    assert_eq!(
        ports[0].1,
        "RULE_APPEND failed (Invalid argument): rule in chain KUBE-SVC-A: -A KUBE-SVC-A -j KUBE-SEP-A"
    );
    assert_eq!((shared, class), (false, RetryClass::Bug));
}

#[test]
fn a_missing_chain_leads_to_who_jumps_there() {
    let said = "iptables-nft-restore v1.8.9 (nf_tables): Chain 'KUBE-SEP-A' does not exist\nError occurred at line: 5\n";
    let (ports, shared, class) = refused(2, said);
    assert_eq!(ports.len(), 1);
    assert_eq!((ports[0].0.as_str(), shared, class), ("ns/a", false, RetryClass::NeedsFullSync));
}

#[test]
fn a_line_that_all_share_names_nobody() {
    let said = "iptables-restore: line 2 failed\n";
    let (ports, shared, _) = refused(1, said);
    assert!(ports.is_empty() && shared);
    let script = Script::new().fails(RESTORE, 1, said);
    assert!(run(&script, &[two_tables()]).unwrap_err().refused().is_empty());
}

#[test]
fn a_refused_commit_without_a_place_to_try_asks_for_a_full_sync() {
    let (ports, shared, class) = refused(1, "iptables-restore: line 5 failed\n");
    assert!(ports.is_empty() && !shared);
    assert_eq!(class, RetryClass::NeedsFullSync);
}

/// Takes all but what is for port `b`.
struct Place;

impl Runner for Place {
    fn run(&self, command: &CommandSpec) -> Result<Output, proxier_sys::runner::RunError> {
        let input = String::from_utf8_lossy(command.stdin.as_deref().unwrap_or_default()).into_owned();
        let code = i32::from(input.contains("10.96.0.1"));
        Ok(Output { code, stderr: b"iptables-restore: line 9 failed\n".to_vec(), ..Output::default() })
    }
}

impl Trial for Place {
    fn account(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_refused_commit_is_looked_into_by_halves() {
    let script = Script::new().says(RESTORE, "").fails(RESTORE, 1, "iptables-restore: line 5 failed\n");
    let place = || Ok(Box::new(Place) as Box<dyn Trial>);
    let error = Restorer { runner: &script, tools: &tools(), trial: &place }
        .run(&[two_tables()], &mut |_| {})
        .unwrap_err();
    let names: Vec<_> = error.refused().iter().map(|r| r.port.to_string()).collect();
    assert_eq!(names, ["ns/b"]);
    assert_eq!(error.retry_class(), RetryClass::Bug);
}

#[test]
fn targets_are_the_last_jump() {
    for (rule, expected) in [
        ("-m comment --comment \"a -j b\" -j KUBE-X", Some("KUBE-X")),
        ("-j DNAT --to-destination 1.2.3.4:5", Some("DNAT")),
        ("-g KUBE-Y", Some("KUBE-Y")),
        ("-m comment --comment x", None),
    ] {
        assert_eq!(target(&Rule(rule.into())), expected, "{rule}");
    }
}

#[test]
fn large_inputs_get_more_time() {
    let small = command(&tools(), "*nat\nCOMMIT\n").timeout;
    let large = command(&tools(), &"-A KUBE-SERVICES\n".repeat(1_000_000)).timeout;
    assert!(small >= DEFAULT_TIMEOUT && large > small * 10, "{small:?} {large:?}");
}
