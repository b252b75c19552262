//! A kube-proxy in mode iptables ends, and the agent begins with the rules that are there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use proxier_sys::netns::Netns;

use super::script::{Calls, LASTING, Script, TCP, UDP, ways};
use crate::matrix::variant::Rules;
use crate::process;
use crate::saved::{Tables, rules, save};

const BOTH: [&str; 2] = ["one", "three"];
/// Packets that every rule says it has seen. A rule that says less was written since.
const SEEN: u64 = 1_000_000;
/// Rules and chains of one family for one service port with one endpoint and a cluster IP: a new one is what the agent learns on its way.
const NEWS: usize = 5 + 2;
/// A service that is gone: kube-proxy had not come to remove its chains.
const STALE: [&str; 2] = ["KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-SEP-AAAAAAAAAAAAAAAA"];
/// How long calls go on at least after the agents have what is new, and how often it is looked whether that is enough.
const AFTER: Duration = Duration::from_millis(500);
const BEAT: Duration = Duration::from_millis(20);

pub(super) fn from_kube_proxy(script: &mut Script<'_>) -> anyhow::Result<()> {
    let Rules::Iptables(tables) = script.cast.variant.rules else { bail!("only for iptables") };
    let shape = script.service().on(&BOTH);
    script.put(&shape)?;
    script.cast.stop();
    let topology = script.cast.stage.world.topology();
    let places: Vec<_> = topology.nodes.iter().flat_map(|n| ["ip", "ip6"].map(|f| (n.name, f))).collect();
    for (node, family) in &places {
        load(node, tables, family)?;
    }
    let before = places.iter().map(|(n, f)| identities(n, tables, f)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, LASTING, &BOTH)?);
    }
    let calling: &Script<'_> = script;
    let results = calling.under_calls(|calls| {
        calling.cast.start()?;
        calling.put(&shape)?;
        let (begun, longest) = (Instant::now(), calling.patience().of(AFTER * 4));
        while begun.elapsed() < AFTER || !calls.are_enough() && begun.elapsed() < longest {
            std::thread::sleep(BEAT);
        }
        Ok(())
    })?;
    for (way, met) in results {
        let good: usize = BOTH.iter().filter_map(|s| met.get(*s)).sum();
        let all: usize = met.values().sum();
        let what = format!("while the agents take over every connection is answered: {way}");
        script.check(what, good == all && all >= Calls::ENOUGH, format!("{met:?}"));
    }
    script.last("taken over", &mut kept);
    for ((node, family), before) in places.into_iter().zip(before) {
        let after = identities(node, tables, family)?;
        let (old, new) = (before.intersection(&after).count(), after.difference(&before).count());
        let what = format!("{node}, {family}: what was right was not written again");
        // The last thing learnt and the stale service went.
        let enough = new <= NEWS && old + 2 * NEWS >= before.len() && old > 2 * NEWS;
        script.check(what, enough, format!("{new} written, {old} kept of {}", before.len()));
        let plain = save(node, tables, family, false)?;
        let gone = STALE.iter().all(|chain| rules(&plain, "nat", chain).is_none());
        script.check(format!("{node}, {family}: what nobody wants is gone"), gone, "its chains");
    }
    script.put(&shape.on(&["two"]))?;
    script.meets("afterwards a change is made", &ways(), &[TCP, UDP], &["two"])
}

/// Loads a node's rules anew, as a kube-proxy would have left them.
fn load(node: &str, tables: Tables, family: &str) -> anyhow::Result<()> {
    let text = kube_proxys(&save(node, tables, family, false)?, family);
    let tool = tables.tool(family, "restore");
    let output = Netns::named(node)?.run(|| process::output(&tool, ["-c"], &text))??;
    if !output.success() {
        bail!("{node}: {tool} failed: {}", output.stderr_text().trim());
    }
    Ok(())
}

/// The same rules in kube-proxy's way: dispatch in another order, one stale service, all of them seen by many packets.
fn kube_proxys(saved: &str, family: &str) -> String {
    let gone = if family == "ip" { "10.96.3.1/32" } else { "fd00:10:96::3:1/128" };
    let [service, endpoint] = STALE;
    let mut out = String::new();
    let mut nat = false;
    let mut dispatch: Vec<String> = Vec::new();
    for line in saved.lines() {
        nat = if line.starts_with('*') { line == "*nat" } else { nat };
        let own = nat && line.starts_with("-A KUBE-SERVICES ");
        if own {
            dispatch.push(line.to_owned());
            continue;
        }
        if !dispatch.is_empty() {
            // The jump to node ports stays last.
            let last = dispatch.pop();
            dispatch.push(format!("-A KUBE-SERVICES -d {gone} -p tcp -m tcp --dport 80 -j {service}"));
            dispatch.reverse();
            for rule in dispatch.drain(..).chain(last) {
                out.push_str(&format!("[{SEEN}:{SEEN}] {rule}\n"));
            }
        }
        match line {
            "*nat" => out.push_str(&format!("*nat\n:{service} - [0:0]\n:{endpoint} - [0:0]\n")),
            "COMMIT" if nat => {
                out.push_str(&format!("[{SEEN}:{SEEN}] -A {service} -j {endpoint}\nCOMMIT\n"));
            }
            _ if line.starts_with(':') => out.push_str(&format!("{line} [0:0]\n")),
            _ if line.starts_with("-A ") => out.push_str(&format!("[{SEEN}:{SEEN}] {line}\n")),
            _ => out.push_str(&format!("{line}\n")),
        }
    }
    out
}

/// Names for what a node holds that are others once it is written again: with nf_tables, handles (the `-nft` tool for IPv6 gives rules
/// no counters); else, rules as they are while their counters say that they were seen.
fn identities(node: &str, tables: Tables, family: &str) -> anyhow::Result<BTreeSet<String>> {
    if tables == Tables::Legacy {
        return Ok(seen(&save(node, tables, family, true)?));
    }
    let mut out = BTreeSet::new();
    for table in ["nat", "filter"] {
        let list = || process::run("nft", ["-a", "list", "table", family, table], "");
        out.extend(handles(&Netns::named(node)?.run(list)??).map(|handle| format!("{table} {handle}")));
    }
    Ok(out)
}

/// The handles in a listing.
fn handles(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|l| l.rsplit_once(" # handle ").map(|(_, handle)| handle))
}

/// Rules with their table; those that saw few packets under another name.
fn seen(saved: &str) -> BTreeSet<String> {
    let mut table = "";
    let mut out = BTreeSet::new();
    for line in saved.lines() {
        table = line.strip_prefix('*').unwrap_or(table);
        let Some((counters, rule)) = line.strip_prefix('[').and_then(|l| l.split_once("] ")) else {
            continue;
        };
        let packets = counters.split(':').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        out.insert(format!("{}{table} {rule}", if packets >= SEEN { "" } else { "new " }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_proxys_rules_are_the_same_in_another_order_and_one_service_more() {
        let saved = "*nat\n:PREROUTING ACCEPT\n:KUBE-SERVICES -\n-A PREROUTING -j KUBE-SERVICES\n-A KUBE-SERVICES -j A\n\
                     -A KUBE-SERVICES -j B\n-A KUBE-SERVICES -j NODEPORTS\n-A KUBE-SVC-A -j C\nCOMMIT\n";
        let text = kube_proxys(saved, "ip");
        let rules: Vec<&str> = text.lines().filter_map(|l| l.split_once("-A ").map(|(_, r)| r)).collect();
        assert_eq!(
            rules,
            [
                "PREROUTING -j KUBE-SERVICES",
                "KUBE-SERVICES -d 10.96.3.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA",
                "KUBE-SERVICES -j B",
                "KUBE-SERVICES -j A",
                "KUBE-SERVICES -j NODEPORTS",
                "KUBE-SVC-A -j C",
                "KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA",
            ]
        );
        let seen = seen(&text);
        assert!(seen.len() == rules.len() && !seen.iter().any(|r| r.starts_with("new ")), "{seen:?}");
        assert!(text.contains("\n:PREROUTING ACCEPT [0:0]\n"));
    }

    #[test]
    fn what_is_written_again_has_another_name() {
        let before = "*nat\n[1000000:7] -A X -j Y\n[1000000:7] -A X -j Z\nCOMMIT\n";
        let after = "*nat\n[1000003:9] -A X -j Y\n[2:120] -A X -j Z\n:X - [0:0]\nCOMMIT\n";
        let (before, after) = (seen(before), seen(after));
        assert_eq!(after.difference(&before).collect::<Vec<_>>(), ["new nat -A X -j Z"]);
        let listing =
            "table ip nat { # handle 1\n\tchain X { # handle 2\n\t\tcounter accept # handle 3\n\t}\n}\n";
        assert_eq!(handles(listing).collect::<Vec<_>>(), ["1", "2", "3"]);
    }
}
