//! Between two backends, and at the end: `proxier cleanup` leaves nothing of the one that ran.

use std::path::Path;
use std::time::Instant;

use proxier_sys::netns::Netns;

use super::setting::SETTINGS;
use super::table::{Failure, Line};
use super::variant::{Rules, Variant};
use crate::topology::Topology;
use crate::{listing, process, saved, virtual_servers};

/// Cleans every node and checks that nothing is left.
///
/// # Errors
/// When a tool cannot be run.
pub fn leave(topology: &Topology, variant: &Variant, program: &Path) -> anyhow::Result<Line> {
    let begun = Instant::now();
    let mut line = Line::new(variant.name, SETTINGS[0].name, "cleanup");
    let program = program.to_string_lossy();
    for node in &topology.nodes {
        let arguments = ["cleanup", "--backend", variant.backend];
        let output = Netns::named(node.name)?.run(|| process::output(&program, arguments, ""))??;
        let mut check = |title: String, wrong: Option<String>| {
            line.rows += 1;
            line.failures.extend(wrong.map(|details| Failure { title, details }));
        };
        let failed = (!output.success()).then(|| output.stderr_text());
        check(format!("{}: cleanup succeeds", node.name), failed);
        for family in ["ip", "ip6"] {
            let left = left(variant.rules, node.name, family)?;
            check(format!("{}, {family}: nothing is left", node.name), left);
        }
    }
    line.took = begun.elapsed();
    Ok(line)
}

/// What is left of a service proxy. `KUBE-FIREWALL` is kubelet's as well, and stays.
fn left(rules: Rules, node: &str, family: &str) -> anyhow::Result<Option<String>> {
    let text = match rules {
        Rules::Nftables => listing::table(node, family)?.unwrap_or_default(),
        Rules::Iptables(tables) => saved::save(node, tables, family, false)?,
        Rules::VirtualServers => {
            let saved = saved::save(node, saved::Tables::Nft, family, false)?;
            format!("{saved}{}", virtual_servers::left(node)?)
        }
    };
    let lines: Vec<&str> = text.lines().filter(|line| is_ours(rules, line)).take(LINES).collect();
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// Is a line of what is there a service proxy's? Where `KUBE-FIREWALL` stands in rules, an earlier backend may have left it.
fn is_ours(rules: Rules, line: &str) -> bool {
    let line = line.replace("KUBE-FIREWALL", "");
    match rules {
        Rules::Nftables => true,
        Rules::Iptables(_) => line.contains("KUBE-"),
        Rules::VirtualServers => {
            ["KUBE-", "kube-", "TCP", "UDP", "SCTP"].iter().any(|ours| line.contains(ours))
        }
    }
}

/// Lines shown of what is left.
const LINES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::Tables;

    #[test]
    fn kubelets_chain_may_stay_and_nothing_else_of_ours() {
        for rules in [Rules::Iptables(Tables::Nft), Rules::VirtualServers] {
            assert!(!is_ours(rules, "-A INPUT -j KUBE-FIREWALL") && !is_ours(rules, ":KUBE-FIREWALL -"));
            assert!(
                is_ours(rules, "-A KUBE-FIREWALL -j KUBE-MARK-DROP") && is_ours(rules, ":KUBE-SERVICES -")
            );
        }
        assert!(is_ours(Rules::VirtualServers, "TCP 0A600001:0050 rr"));
        assert!(is_ours(Rules::VirtualServers, "kube-ipvs0 DOWN"));
    }
}
