//! The text of a plan is what its tools take: the sections for `ipset restore` and `iptables-restore`, each handed to its tool in a network
//! namespace of its own, and printed by it as the model says. The sections for `ipvsadm` and `ip` need a kernel with IPVS.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

#[path = "../kit/mod.rs"]
mod kit;
mod machine;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use backend_ipvs::ops::Tool;
use backend_ipvs::plan::Plan;
use backend_ipvs::sets::SetId;
use proxier_core::ids::IpFamily;
use proxier_testkit::corpus;
use proxier_testkit::ipvs::Host;

/// Runs a shell script in a network namespace of its own; its output, if it succeeds.
#[expect(clippy::disallowed_methods, reason = "a test starts the tools it is about")]
fn in_a_namespace(script: &str) -> Result<String, String> {
    let mut child = Command::new("unshare")
        .args(["--net", "sh", "-e"])
        .env("XTABLES_LOCKFILE", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [out, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    if output.status.success() { Ok(out) } else { Err(format!("{}: {errors}", output.status)) }
}

/// A command for each section of the plan that is for one of these tools.
fn commands(plan: &Plan, tools: &[Tool], variant: &str) -> String {
    let mut out = String::new();
    let actions: Vec<_> = plan.steps().iter().flat_map(|s| &s.actions).collect();
    for section in actions.chunk_by(|a, b| a.op.tool() == b.op.tool()) {
        let tool = section[0].op.tool();
        if !tools.contains(&tool) {
            continue;
        }
        let command =
            tool.command(plan.family()).replace("tables-restore", &format!("tables-{variant}-restore"));
        let text: Vec<String> = section.iter().map(|a| a.op.text(plan.family())).collect();
        out += &format!("{command} <<'END'\n{}\nEND\n", text.join("\n"));
    }
    out
}

fn plans() -> Vec<Plan> {
    let case = corpus::load(&kit::cases().join("peer-state.yaml")).unwrap();
    IpFamily::ALL.map(|family| kit::full(case.commit.snapshot(family))).into()
}

#[test]
#[ignore = "needs root and the tools ipset and iptables, in a network namespace of its own"]
fn ipset_and_iptables_take_their_sections() {
    for plan in plans() {
        let family = plan.family();
        let mut model = Host::default();
        kit::apply(&mut model, &plan);
        for variant in ["nft", "legacy"] {
            let text = commands(&plan, &[Tool::Ipset, Tool::Iptables], variant);
            let program = if family == IpFamily::Ipv4 { "iptables" } else { "ip6tables" };
            let script = format!("{text}ipset save\n{program}-{variant}-save\n");
            let printed =
                in_a_namespace(&script).unwrap_or_else(|e| panic!("{family} {variant}: {e}\n{text}"));
            let lines = |prefix: &str| -> BTreeSet<String> {
                printed.lines().filter(|l| l.starts_with(prefix)).map(str::to_owned).collect()
            };
            let rules = model.rules().get(family).print();
            let wanted: BTreeSet<String> =
                rules.lines().filter(|l| l.starts_with("-A ")).map(str::to_owned).collect();
            assert_eq!(lines("-A "), wanted, "{family} {variant}");
            let entries: BTreeSet<String> = SetId::ALL
                .into_iter()
                .flat_map(|id| {
                    let name = id.name(family);
                    let set = model.sets().get(&name).unwrap();
                    set.entries.iter().map(|e| format!("add {name} {e}")).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(lines("add "), entries, "{family} {variant}");
            assert_eq!(lines("create ").len(), SetId::ALL.len());
        }
    }
}
