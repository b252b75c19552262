//! Removes everything of this backend, knowing nothing but names: as after a crash, or where a kube-proxy in IPVS mode ran (ipvs spec 9).
//!
//! What stays: virtual servers of others and those that `excludeCIDRs` name; settings of the kernel; and the chains that iptables mode has under the
//! same names, where that mode is in force. It works without IPVS in the kernel, and without tools.

use std::net::IpAddr;

use proxier_core::backend::CleanupReport;
use proxier_core::cluster::{TrafficOptions, resolve};
use proxier_core::ids::IpFamily;
use proxier_core::model::NodeFacts;
use proxier_sys::addresses::host_addresses;
use proxier_sys::runner::Runner;
use proxier_xtables::objects::{ChainId, Input, Op, Rule, Step, Table};
use proxier_xtables::restore::{self, Patience, Restorer};
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::tool::{self, Tools};
use proxier_xtables::trial::scratch;

use crate::environment::Environment;
use crate::error::Error;
use crate::kernel::{DEVICE, Kernel, temporary};
use crate::observe;
use crate::observed::Observed;
use crate::ops::server_text;
use crate::options::{Facts, Options};
use crate::sets::SetId;
use crate::skeleton;
use crate::takeover::{is_excluded, is_ours};
use crate::wire::ipset::IN_USE;
use crate::wire::ipvs::{Change, ServiceId};

/// Chains that iptables mode has under the same names.
const SHARED: [(Table, &str); 5] = [
    (Table::Nat, skeleton::SERVICES),
    (Table::Nat, skeleton::POSTROUTING),
    (Table::Nat, skeleton::MARK_MASQ),
    (Table::Filter, skeleton::FORWARD),
    (Table::Filter, skeleton::PROXY_FIREWALL),
];
/// A chain of nat that is there while iptables mode is in force, and otherwise is not.
const IPTABLES_MODE: &str = "KUBE-NODEPORTS";
/// How often sets are tried that rules hold which are gone: the kernel puts those away a little later.
const TRIES: u32 = 10;

/// Removes what is ours of one family.
///
/// # Errors
/// When nothing at all could be looked at. What could not be removed is told in the report.
pub(crate) fn cleanup(
    runner: &dyn Runner,
    family: IpFamily,
    options: &Options,
) -> Result<CleanupReport, Error> {
    let mut report = CleanupReport::default();
    let mut kernel = Kernel::open();
    let seen = kernel.as_mut().ok().map(|kernel| look(kernel, family, &mut report));
    let tools = rules(runner, family, &mut report);
    let kernel = match (&mut kernel, seen) {
        (Ok(kernel), Some(seen)) => {
            services(kernel, family, options, &seen, &mut report);
            addresses(kernel, &seen, &mut report);
            let wait = || {
                if let Some(tools) = tools.first() {
                    // A listing takes some milliseconds, and is what there is to wait by.
                    let _ = saved::read(runner, tools, |_, _| false);
                }
            };
            sets(kernel, family, wait, &mut report);
            return Ok(report);
        }
        (kernel, _) => kernel,
    };
    match kernel {
        Err(Error::NoIpset) | Ok(_) => Ok(report),
        Err(error) if report.removed.is_empty() => Err(std::mem::replace(error, Error::NoIpset)),
        Err(error) => {
            report.stayed.push(format!("{family}: {error}"));
            Ok(report)
        }
    }
}

fn told<T>(report: &mut CleanupReport, what: &str, result: Result<T, Error>) -> Option<T> {
    result.map_err(|error| report.stayed.push(format!("{what}: {error}"))).ok()
}

/// What tells ours from others': our sets, the addresses of the device, and the virtual servers.
fn look(kernel: &mut Kernel, family: IpFamily, report: &mut CleanupReport) -> Observed {
    let sets = observe::sets(kernel, family);
    let bound = kernel.device.bound(family);
    let services = match observe::services(kernel, family) {
        // There is none to remove.
        Err(Error::NoIpvs) => Ok(Default::default()),
        services => services,
    };
    Observed {
        services: told(report, "virtual servers", services).unwrap_or_default(),
        sets: told(report, "ipsets", sets).unwrap_or_default(),
        bound: told(report, DEVICE, bound).unwrap_or_default().into_iter().collect(),
        ..Observed::default()
    }
}

fn environment(family: IpFamily, options: &Options) -> Environment {
    let own = host_addresses().unwrap_or_default().into_iter().filter(|(interface, _)| interface != DEVICE);
    let node = NodeFacts { host_addresses: own.map(|(_, ip)| ip).collect(), ..NodeFacts::default() };
    let context = resolve(&TrafficOptions::default(), &node, family);
    Environment::new(&context, family, options, &Facts::default())
}

fn services(
    kernel: &mut Kernel,
    family: IpFamily,
    options: &Options,
    seen: &Observed,
    report: &mut CleanupReport,
) {
    let env = environment(family, options);
    let mut changes = Vec::new();
    let mut names = Vec::new();
    for (key, service) in &seen.services {
        let text = format!("virtual server {}", server_text(&service.server));
        if is_excluded(key, &env) {
            report.stayed.push(format!("{text}: excludeCIDRs name its address"));
        } else if is_ours(key, &env, seen) {
            changes.push(Change::DeleteService(*key));
            names.push(text);
        } else {
            report.stayed.push(format!("{text}: not ours"));
        }
    }
    let foreign = kernel.ipvs().and_then(crate::kernel::Ipvs::services).unwrap_or_default();
    for service in foreign {
        if let ServiceId::Foreign(of, text) = &service.id
            && *of == family
        {
            report.stayed.push(format!("virtual server {text}: not ours"));
        }
    }
    if changes.is_empty() {
        return;
    }
    let done = kernel.ipvs().and_then(|ipvs| ipvs.change(&changes));
    let Some(refusals) = told(report, "virtual servers", done) else { return };
    for (at, name) in names.into_iter().enumerate() {
        match refusals.iter().find(|refusal| refusal.index == at) {
            Some(refusal) => report.stayed.push(format!("{name}: {}", refusal.reason)),
            None => report.removed.push(name),
        }
    }
}

/// The family's addresses, and the device with the last of them.
fn addresses(kernel: &mut Kernel, seen: &Observed, report: &mut CleanupReport) {
    let Some(Some(link)) = told(report, DEVICE, kernel.device.find()) else { return };
    let bound: Vec<IpAddr> = seen.bound.iter().copied().collect();
    let done = kernel.device.unbind(&link, &bound);
    let Some(refusals) = told(report, DEVICE, done) else { return };
    for (at, ip) in bound.iter().enumerate() {
        match refusals.iter().find(|refusal| refusal.index == at) {
            Some(refusal) => report.stayed.push(format!("address {ip} of {DEVICE}: {}", refusal.reason)),
            None => report.removed.push(format!("address {ip} of {DEVICE}")),
        }
    }
    // The other family's cleanup takes it away with its own addresses.
    let left = IpFamily::ALL.into_iter().any(|f| kernel.device.bound(f).is_ok_and(|all| !all.is_empty()));
    if !left && told(report, DEVICE, kernel.device.remove()) == Some(true) {
        report.removed.push(format!("interface {DEVICE}"));
    }
}

/// Our names, whatever stands behind them.
fn sets(kernel: &mut Kernel, family: IpFamily, wait: impl Fn(), report: &mut CleanupReport) {
    let Some(there) = told(report, "ipsets", kernel.sets.names()) else { return };
    let ours = SetId::ALL.into_iter().map(|id| id.name(family)).chain([temporary(family).to_owned()]);
    let mut names: Vec<String> = ours.filter(|name| there.contains(name)).collect();
    for tries in 1.. {
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let Some(refusals) = told(report, "ipsets", kernel.sets.destroy(&asked)) else { return };
        let mut held = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            match refusals.iter().find(|refusal| refusal.index == at) {
                None => report.removed.push(format!("ipset {name}")),
                Some(refusal) if refusal.errno == IN_USE && tries < TRIES => held.push(name),
                Some(refusal) => report.stayed.push(format!("ipset {name}: {}", refusal.reason)),
            }
        }
        if held.is_empty() {
            return;
        }
        names = held;
        wait();
    }
}

/// Rules in each variant whose tools are installed; returns the tools.
fn rules(runner: &dyn Runner, family: IpFamily, report: &mut CleanupReport) -> Vec<Tools> {
    let tools = tool::all(runner, family).map_err(Error::from);
    let tools = told(report, "iptables", tools).unwrap_or_default();
    for tools in &tools {
        let done = rules_of(runner, tools, report);
        told(report, &format!("{family} {}", tools.variant), done.map_err(Error::from));
    }
    tools
}

fn rules_of(
    runner: &dyn Runner,
    tools: &Tools,
    report: &mut CleanupReport,
) -> Result<(), proxier_xtables::Error> {
    // Chains of others are read as well: they may have rules that jump to ours.
    let saved = saved::read(runner, tools, |_, _| true)?;
    let restorer = Restorer { runner, tools, trial: &scratch, patience: Patience::default() };
    for table in [Table::Filter, Table::Nat, Table::Mangle] {
        let (steps, chains) = removal(&saved, table);
        if steps.is_empty() {
            continue;
        }
        restorer.run(&[Input { steps }], &mut |_| {})?;
        let told = |c: &ChainId| format!("{} {} chain {}", tools.tool, table.name(), c.name);
        report.removed.extend(chains.iter().map(told));
    }
    Ok(())
}

/// Jumps to our chains go, then the chains are emptied, then dropped.
fn removal(saved: &Saved, table: Table) -> (Vec<Step>, Vec<ChainId>) {
    let replaced = saved.chains.contains_key(&skeleton::chain(Table::Nat, IPTABLES_MODE));
    let is_shared = |name: &str| replaced && SHARED.contains(&(table, name));
    let names: Vec<ChainId> = skeleton::names().into_iter().filter(|c| c.table == table).collect();
    let is_ours = |name: &str| names.iter().any(|c| *c.name == *name) && !is_shared(name);
    let chains: Vec<ChainId> =
        saved.chains.keys().filter(|c| c.table == table && is_ours(&c.name)).cloned().collect();
    // Of those to chains that stay, only what iptables mode has otherwise.
    let own_jump = |from: &ChainId, rule: &Rule| {
        skeleton::jumps().iter().any(|(f, r)| f == from && r == rule)
            && restore::target(rule) == Some(skeleton::PROXY_FIREWALL)
    };
    let mut ops = Vec::new();
    for (from, rules) in saved.chains.iter().filter(|(c, _)| c.table == table && !is_ours(&c.name)) {
        let goes = |rule: &&Rule| restore::target(rule).is_some_and(is_ours) || own_jump(from, rule);
        ops.extend(rules.iter().filter(goes).map(|rule| Op::Delete(from.clone(), rule.clone())));
    }
    ops.extend(chains.iter().cloned().map(Op::Chain));
    ops.extend(chains.iter().cloned().map(Op::DropChain));
    (ops.into_iter().map(|op| Step { op, port: None }).collect(), chains)
}
