//! Removes everything of this backend, in both variants, knowing nothing but names (iptables spec 9).
//!
//! It stays: `KUBE-FIREWALL` and the jumps to it, which are kubelet's as well; kubelet's own chains; rules of others; counting objects and
//! settings of the kernel; and the chains that IPVS mode has under the same names, where that mode is in force.

use proxier_core::backend::CleanupReport;
use proxier_core::ids::IpFamily;
use proxier_sys::runner::Runner;
use proxier_xtables::Error;
use proxier_xtables::objects::{ChainId, Input, Op, Step, Table};
use proxier_xtables::restore::{self, Patience, Restorer};
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::tool::{self, Tools, Variant};
use proxier_xtables::trial::NewTrial;

/// Chains of filter that are ours alone.
const FILTER: [&str; 6] = [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-FORWARD",
    "KUBE-NODEPORTS",
    "KUBE-PROXY-FIREWALL",
    CANARY,
];
/// Chains of nat that are ours alone, beside those of single objects.
const NAT: [&str; 5] = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", CANARY];
const CANARY: &str = "KUBE-PROXY-CANARY";
/// How chains of single objects begin.
const OBJECTS: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"];

/// Chains that IPVS mode has under the same names (ipvs spec 9).
const SHARED: [(Table, &str); 5] = [
    (Table::Filter, "KUBE-FORWARD"),
    (Table::Filter, "KUBE-PROXY-FIREWALL"),
    (Table::Nat, "KUBE-SERVICES"),
    (Table::Nat, "KUBE-POSTROUTING"),
    (Table::Nat, "KUBE-MARK-MASQ"),
];
/// A chain of nat that is there while IPVS mode is in force, and otherwise is not.
const IPVS_MODE: &str = "KUBE-NODE-PORT";

/// True for a chain that nobody but a service proxy has.
#[must_use]
pub fn is_ours(table: Table, chain: &str) -> bool {
    match table {
        Table::Filter => FILTER.contains(&chain),
        Table::Mangle => chain == CANARY,
        Table::Nat => NAT.contains(&chain) || OBJECTS.iter().any(|prefix| chain.starts_with(prefix)),
    }
}

/// Removes what is ours of one family, from each variant whose tools are installed.
///
/// # Errors
/// When nothing at all could be looked at. What could not be removed from one variant is told in the report.
pub fn cleanup(runner: &dyn Runner, trial: NewTrial<'_>, family: IpFamily) -> Result<CleanupReport, Error> {
    let all = tool::all(runner, family)?;
    let mut report = CleanupReport::default();
    let mut failed = None;
    for tools in &all {
        if let Err(error) = one(runner, trial, tools, &mut report) {
            report.stayed.push(format!("{family} {}: {error}", tools.variant));
            failed = Some(error);
        }
    }
    match failed {
        Some(error) if report.stayed.len() == all.len() && report.removed.is_empty() => Err(error),
        _ => Ok(report),
    }
}

fn one(
    runner: &dyn Runner,
    trial: NewTrial<'_>,
    tools: &Tools,
    report: &mut CleanupReport,
) -> Result<(), Error> {
    // Chains of others are read as well: they may have rules that jump to ours.
    let saved = saved::read(runner, tools, |_, _| true)?;
    let restorer = Restorer { runner, tools, trial, patience: Patience::default() };
    for table in [Table::Filter, Table::Nat, Table::Mangle] {
        let (jumps, chains) = removal(&saved, table);
        for steps in [jumps].into_iter().chain(bounded(&chains, tools.variant)) {
            restorer.run(&[Input { steps }], &mut |_| {})?;
        }
        report
            .removed
            .extend(chains.iter().map(|c| format!("{} {} chain {}", tools.tool, table.name(), c.name)));
    }
    Ok(())
}

/// Rules of others' chains that jump to ours, and our chains, those that jump before those that are jumped to.
fn removal(saved: &Saved, table: Table) -> (Vec<Step>, Vec<ChainId>) {
    let replaced = saved.chains.contains_key(&ChainId { table: Table::Nat, name: IPVS_MODE.into() });
    let stays = |chain: &str| replaced && SHARED.contains(&(table, chain));
    let goes = |chain: &str| is_ours(table, chain) && !stays(chain);
    let ours: Vec<&ChainId> = saved.chains.keys().filter(|c| c.table == table && goes(&c.name)).collect();
    // Of the jumps to chains that stay, those that only this mode has ask for new connections.
    let ends = |rule: &proxier_xtables::objects::Rule| {
        restore::target(rule).is_some_and(|t| goes(t) || stays(t) && rule.0.contains("--ctstate NEW"))
    };
    let mut jumps = Vec::new();
    for (chain, rules) in saved.chains.iter().filter(|(c, _)| c.table == table && !goes(&c.name)) {
        jumps.extend(rules.iter().filter(|r| ends(r)).map(|r| Op::Delete(chain.clone(), r.clone())));
    }
    let mut chains: Vec<ChainId> = ours.into_iter().cloned().collect();
    chains.sort_by_key(|c| depth(&c.name));
    (jumps.into_iter().map(|op| Step { op, port: None }).collect(), chains)
}

/// How far below the built-in chains a chain stands.
fn depth(chain: &str) -> usize {
    let order = ["KUBE-FW-", "KUBE-EXT-", "KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-MARK-MASQ"];
    order.iter().position(|prefix| chain.starts_with(prefix)).map_or(0, |at| at + 1)
}

/// Chains of one input: with nft its tool's time is quadratic in them, with legacy each input exchanges the whole table.
const CHAINS: usize = 500;

/// Empties chains, then drops them: in inputs of bounded size with nft. A chain is emptied no later than what it jumps to is dropped.
fn bounded(chains: &[ChainId], variant: Variant) -> Vec<Vec<Step>> {
    let size = match variant {
        Variant::Nft => CHAINS,
        Variant::Legacy => chains.len().max(1),
    };
    let steps = |some: &[ChainId]| -> Vec<Step> {
        let ops = some.iter().cloned().map(Op::Chain).chain(some.iter().cloned().map(Op::DropChain));
        ops.map(|op| Step { op, port: None }).collect()
    };
    chains.chunks(size).map(steps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxier_testkit::script::Script;
    use proxier_xtables::trial::Trial;

    fn no_trial() -> Result<Box<dyn Trial>, String> {
        Err("no right".to_owned())
    }

    const RESTORE: &str = "iptables-legacy-restore -w 5 --noflush --counters";
    const LISTING: &str = "\
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A PREROUTING -j DOCKER
-A KUBE-SEP-A -s 10.0.0.1/32 -j KUBE-MARK-MASQ
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-A
-A KUBE-SVC-A -j KUBE-SEP-A
COMMIT
*filter
:INPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-NODEPORTS - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
COMMIT
*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-PROXY-CANARY - [0:0]
COMMIT
";

    #[test]
    fn ours_goes_from_the_top_and_the_rest_stays() {
        let script = Script::new()
            .says("iptables-legacy --version", "iptables v1.8.9 (legacy)\n")
            .says("iptables-legacy-save", LISTING)
            .says(RESTORE, "");
        let report = cleanup(&script, &no_trial, IpFamily::Ipv4).unwrap();
        assert_eq!(
            script.inputs(),
            [
                "*filter\n-D INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS\nCOMMIT\n",
                "*filter\n:KUBE-NODEPORTS - [0:0]\n-X KUBE-NODEPORTS\nCOMMIT\n",
                "*nat\n-D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n",
                "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-A - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                 -X KUBE-SERVICES\n-X KUBE-SVC-A\n-X KUBE-SEP-A\n-X KUBE-MARK-MASQ\nCOMMIT\n",
                "*mangle\n:KUBE-PROXY-CANARY - [0:0]\n-X KUBE-PROXY-CANARY\nCOMMIT\n",
            ]
        );
        assert_eq!(report.removed.len(), 6);
        assert!(report.stayed.is_empty());
    }

    #[test]
    fn where_ipvs_mode_is_in_force_the_chains_of_both_stay() {
        let listing = "\
*nat
:OUTPUT ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SERVICES - [0:0]
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-SEP-A -s 10.0.0.1/32 -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
COMMIT
*filter
:INPUT ACCEPT [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kube-proxy firewall rules\" -j KUBE-PROXY-FIREWALL
COMMIT
";
        let script = Script::new()
            .says("iptables-legacy --version", "iptables v1.8.9 (legacy)\n")
            .says("iptables-legacy-save", listing)
            .says(RESTORE, "");
        let report = cleanup(&script, &no_trial, IpFamily::Ipv4).unwrap();
        assert_eq!(
            script.inputs(),
            [
                "*filter\n-D INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\nCOMMIT\n",
                "*filter\n:KUBE-SERVICES - [0:0]\n-X KUBE-SERVICES\nCOMMIT\n",
                "*nat\n:KUBE-NODEPORTS - [0:0]\n:KUBE-SEP-A - [0:0]\n-X KUBE-NODEPORTS\n-X KUBE-SEP-A\nCOMMIT\n",
            ]
        );
        assert_eq!(report.removed.len(), 3);
    }

    #[test]
    fn what_fails_is_told_and_the_other_variant_is_still_cleaned() {
        let script = Script::new()
            .says("iptables-nft --version", "iptables v1.8.9 (nf_tables)\n")
            .says("iptables-legacy --version", "iptables v1.8.9 (legacy)\n")
            .fails("iptables-nft-save", 4, "iptables-nft-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n")
            .says("iptables-legacy-save", LISTING)
            .says(RESTORE, "");
        let report = cleanup(&script, &no_trial, IpFamily::Ipv4).unwrap();
        assert_eq!((report.removed.len(), report.stayed.len()), (6, 1));
        assert!(report.stayed[0].starts_with("IPv4 nft: "), "{:?}", report.stayed);
    }

    #[test]
    fn with_nft_inputs_are_bounded_and_a_caller_is_emptied_before_its_callee_goes() {
        let chain = |name: String| ChainId { table: Table::Nat, name: name.into() };
        let mut chains: Vec<_> = (0..700).map(|i| chain(format!("KUBE-SVC-{i}"))).collect();
        chains.extend((0..700).map(|i| chain(format!("KUBE-SEP-{i}"))));
        let inputs = bounded(&chains, Variant::Nft);
        assert_eq!(inputs.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 800]);
        assert_eq!(bounded(&chains, Variant::Legacy).len(), 1);
        assert!(depth("KUBE-SERVICES") < depth("KUBE-SVC-A") && depth("KUBE-SVC-A") < depth("KUBE-SEP-A"));
    }
}
