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
    let ours = |l: &&str| match rules {
        Rules::Nftables => true,
        Rules::Iptables(_) => l.replace("KUBE-FIREWALL", "").contains("KUBE-"),
        Rules::VirtualServers => ["KUBE-", "kube-", "TCP", "UDP", "SCTP"].iter().any(|ours| l.contains(ours)),
    };
    let lines: Vec<&str> = text.lines().filter(ours).take(LINES).collect();
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// Lines shown of what is left.
const LINES: usize = 10;
