//! The model against the real tools, both variants: what is taken and refused, and how it is printed.

use std::io::Write;
use std::process::{Command, Stdio};

use proxier_core::ids::IpFamily;
use proxier_testkit::iptables::{self, Ruleset, differences};

use crate::{example, input, normal, peer, refusals};

const VARIANTS: [&str; 2] = ["nft", "legacy"];

/// Runs a shell script in a network namespace of its own, with a text as its input; its output, if it succeeds.
#[expect(clippy::disallowed_methods, reason = "a test starts the tools it is about")]
fn in_a_namespace(script: &str, text: &str) -> Result<String, String> {
    let mut child = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", script])
        // In a namespace of its own nobody else writes, and the usual file may not be ours to open.
        .env("XTABLES_LOCKFILE", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the text is taken");
    let output = child.wait_with_output().expect("the script ends");
    let [out, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("tools print text"));
    if output.status.success() { Ok(out) } else { Err(format!("{}: {errors}", output.status)) }
}

fn tool(family: IpFamily, variant: &str) -> String {
    format!("{}-{variant}", if family == IpFamily::Ipv4 { "iptables" } else { "ip6tables" })
}

/// What the tool prints of these tables after it has taken an input.
fn saved(family: IpFamily, variant: &str, text: &str, tables: &Ruleset) -> Result<String, String> {
    let tool = tool(family, variant);
    // One by one: only root may ask the legacy variant which tables there are.
    let saves = tables.tables().map(|table| format!(" && {tool}-save -t {}", table.name().as_str()));
    in_a_namespace(&format!("{tool}-restore --noflush{}", saves.collect::<String>()), text)
}

/// Is what the tool prints what the model prints?
fn same_print(family: IpFamily, text: &str) {
    let model = iptables::parse(family, text).unwrap_or_else(|error| panic!("{error}"));
    for variant in VARIANTS {
        let saved = saved(family, variant, text, &model).unwrap_or_else(|error| panic!("{variant}: {error}"));
        let mut tables: Vec<String> = Vec::new();
        for line in saved.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with('*') {
                tables.push(String::new());
            }
            let table = tables.last_mut().expect("a table begins first");
            *table += line;
            *table += "\n";
        }
        for table in &tables {
            assert!(model.print().contains(table), "{variant} prints\n{table}\nthe model\n{}", model.print());
        }
        assert_eq!(tables.len(), model.tables().count(), "{variant}");
        let read = iptables::parse(family, &saved).unwrap_or_else(|error| panic!("{variant}: {error}"));
        assert_eq!(differences(&model, &read), [], "{variant}");
    }
}

#[test]
#[ignore = "needs iptables in both variants and the right to make a network namespace"]
fn whole_rulesets_are_printed_alike() {
    same_print(IpFamily::Ipv4, &format!("{}{}", example::INPUT, example::JUMPS));
    // nfacct objects would have to be made first, with a tool of their own.
    for (family, text) in [(IpFamily::Ipv4, peer::IPV4), (IpFamily::Ipv6, peer::IPV6)] {
        let mut without = String::new();
        for line in text.lines() {
            match line.split_once(" -m nfacct --nfacct-name  ") {
                Some((before, after)) => {
                    let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
                    without += &format!("{before} {rest}\n");
                }
                None => without += &format!("{line}\n"),
            }
        }
        same_print(family, &without);
    }
}

#[test]
#[ignore = "needs iptables in both variants and the right to make a network namespace"]
fn every_rule_is_printed_alike() {
    for (family, rows) in [(IpFamily::Ipv4, normal::IPV4), (IpFamily::Ipv6, normal::IPV6)] {
        for table in ["filter", "nat"] {
            let rules = rows.iter().filter(|(of, _, _)| *of == table);
            let lines: String = rules.map(|(_, rule, _)| format!("-A T {rule}\n")).collect();
            same_print(family, &input(table, &lines));
        }
    }
}

#[test]
#[ignore = "needs iptables in both variants and the right to make a network namespace"]
fn what_is_taken_is_printed_alike() {
    for (table, lines) in refusals::TAKEN {
        same_print(IpFamily::Ipv4, &input(table, lines));
    }
}

#[test]
#[ignore = "needs iptables in both variants and the right to make a network namespace"]
fn what_is_refused_is_refused_by_a_variant() {
    let script = |variant: &str| format!("iptables-{variant}-restore --noflush");
    let mut wrong = Vec::new();
    for (table, lines, _, _) in refusals::REFUSED {
        let text = input(table, lines);
        if VARIANTS.iter().all(|variant| in_a_namespace(&script(variant), &text).is_ok()) {
            wrong.push(lines);
        }
    }
    assert_eq!(wrong, [&""; 0]);
}
