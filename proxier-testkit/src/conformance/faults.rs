//! Kernels that fail.

use std::net::IpAddr;

use proxier_core::changes::ChangeSet;
use proxier_core::driver::{Driver, Instance, SyncKind};
use proxier_core::ids::{Generation, ServicePortName};
use proxier_core::oracle::{Packet, decide};
use proxier_core::snapshot::{Frontend, FrontendKey, Snapshot};

use super::histories::{for_each_history, is_right, same_objects};
use super::kernel::{Kernel, TextKernel};
use super::walks::Walker;
use super::{Failure, Model, Subject, Tally};
use crate::build::{Dice, packets};

/// In a random history some applies fail. Each failure is reported, leaves kernel and adopted snapshot as they were, and the next
/// sync, of the same or of a later snapshot, ends in the right state.
///
/// # Errors
/// The smallest history found for which that is not so.
pub fn failures_are_repaired<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
    count: usize,
) -> Result<Tally, Failure> {
    for_each_history(subject, seeds, |history, family, seed, tally| {
        let kernel = Kernel::default();
        let mut driver = Driver::new(TextKernel::new(subject, family, kernel.clone()));
        let mut dice = Dice::new(seed);
        history.play(|number, commit| {
            let snapshot = commit.snapshot(family);
            let place = |e: String| format!("commit {number}: {e}");
            if dice.one_in(3) {
                fail_once(&mut driver, &kernel, snapshot).map_err(place)?;
                tally.failures += 1;
                if dice.one_in(2) {
                    return Ok(());
                }
            }
            let report = driver.sync(snapshot, SyncKind::Partial).map_err(|e| place(e.to_string()))?;
            tally.syncs += 1;
            if report.generation != snapshot.generation() {
                return Err(place("another generation was adopted".into()));
            }
            is_right(subject, &kernel, snapshot, seed, count, tally).map_err(place)
        })
    })
}

fn fail_once<S: Subject>(
    driver: &mut Driver<TextKernel<S>>,
    kernel: &Kernel<S>,
    snapshot: &Snapshot,
) -> Result<(), String> {
    let generation = |d: &Driver<TextKernel<S>>| d.adopted().map(Snapshot::generation);
    let (adopted, objects): (Option<Generation>, _) = (generation(driver), kernel.model().objects());
    kernel.fail_after(0);
    let outcome = driver.sync(snapshot, SyncKind::Partial);
    kernel.heal();
    if outcome.is_ok() {
        return Err("a failed apply was taken for a good one".into());
    }
    if generation(driver) != adopted {
        return Err("a failed apply was adopted".into());
    }
    same_objects(&objects, &kernel.model().objects())
}

/// In a random history the kernel refuses whatever would be added for one service port that changed: everything else goes in with
/// the same sync, the port is named, and once the kernel takes it a full sync puts it in.
///
/// # Errors
/// The smallest history found for which that is not so.
pub fn refused_ports_are_set_aside<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
    count: usize,
) -> Result<Tally, Failure> {
    for_each_history(subject, seeds, |history, family, seed, tally| {
        let kernel = Kernel::default();
        let mut driver = Driver::new(TextKernel::new(subject, family, kernel.clone()));
        let mut dice = Dice::new(seed);
        history.play(|number, commit| {
            let snapshot = commit.snapshot(family);
            let place = |e: String| format!("commit {number}: {e}");
            let changes = ChangeSet::between(driver.adopted(), snapshot);
            let changed: Vec<&ServicePortName> =
                changes.ports.iter().filter(|c| c.new.is_some()).map(|c| &c.name).collect();
            let bad = if dice.one_in(2) { dice.pick(&changed).copied() } else { None };
            bad.into_iter().for_each(|bad| kernel.refuse(bad.clone()));
            let report = driver.sync(snapshot, SyncKind::Partial).map_err(|e| place(e.to_string()))?;
            tally.syncs += 1;
            if let Some(bad) = bad {
                kernel.heal();
                let aside: Vec<&ServicePortName> = driver.set_aside().keys().collect();
                let named: Vec<&ServicePortName> = report.refused.iter().map(|r| &r.port).collect();
                if aside != named || aside.iter().any(|a| *a != bad) {
                    return Err(place(format!("{bad} was refused; set aside {aside:?}, named {named:?}")));
                }
                // Something whose frontends all belong to others may need nothing to be added.
                if !aside.is_empty() {
                    tally.set_aside += 1;
                    let questions = packets(&mut Dice::new(seed), snapshot, count);
                    let walker = Walker::new(subject, kernel.model(), snapshot);
                    others_work(&walker, &questions, bad, tally).map_err(place)?;
                    driver.sync(snapshot, SyncKind::Full).map_err(|e| place(e.to_string()))?;
                }
            }
            is_right(subject, &kernel, snapshot, seed, count, tally).map_err(place)
        })
    })
}

/// Packets to the service port that was set aside are not looked at, nor those that only its addresses or its node port concern: some
/// backends make an address this host's by serving it, also as a source.
fn others_work<S: Subject>(
    walker: &Walker<'_, S>,
    questions: &[Packet],
    bad: &ServicePortName,
    tally: &mut Tally,
) -> Result<(), String> {
    let bad_port = walker.snapshot.port(bad);
    let has = |ip: IpAddr| {
        let address = |f: &Frontend| matches!(f.key, FrontendKey::Address { ip: own, .. } if own == ip);
        bad_port.is_some_and(|p| p.frontends.iter().any(address) || p.spec.cluster_ip == ip)
    };
    let concerned = |packet: &Packet| {
        bad_port.is_some_and(|p| {
            let node_port = p.node_port.map(|n| (bad.protocol, n.get()));
            has(packet.destination)
                || packet.protocol.is_some_and(|protocol| node_port == Some((protocol, packet.port)))
        })
    };
    for packet in questions {
        let decision = decide(walker.snapshot, packet);
        let skip = match &decision.frontend {
            Some((_, owner)) => owner == bad,
            None => concerned(packet),
        };
        if !skip && !has(packet.source) {
            walker.one(packet, &decision, None, tally)?;
        }
    }
    Ok(())
}
