//! Any history of changes, written as differences, leads where a fresh start leads; and packets that pass between two commits find what
//! they must find.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod kit;

use backend_iptables::counts::Counts;
use backend_iptables::options::{Facts, Variant};
use backend_iptables::skeleton::{self, Shared};
use backend_iptables::takeover::{replace, take_over};
use backend_iptables::{belief::Belief, diff};
use kit::{Tables, full, planned};
use proptest::prelude::*;
use proxier_core::backend::Plan as _;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::{FrontendKey, FrontendKind, ServicePort, Snapshot};
use proxier_testkit::build::History;
use proxier_xtables::objects::{Rule, Table};

/// Loopback node ports by the seed, since the builders leave them off.
fn history(seed: u64) -> History {
    let mut out = History::from_seed(seed);
    out.options.localhost_node_ports = seed.is_multiple_of(2);
    for step in &mut out.steps {
        if let proxier_testkit::build::Step::SetOptions(options) = step {
            options.localhost_node_ports = seed.is_multiple_of(3);
        }
    }
    out
}

/// Counters, bounds, and what a kernel may lack, by the seed.
fn facts(seed: u64) -> Facts {
    let base = if seed.is_multiple_of(4) { Facts::of(Variant::Legacy) } else { Facts::default() };
    Facts {
        count_localhost: seed.is_multiple_of(2),
        recent: !seed.is_multiple_of(5),
        chains_per_input: base.chains_per_input.map(|_| 1 + (seed % 7) as usize),
        ..base
    }
}

/// Of a frontend, the part that its rules begin with, and the chains that dispatch it and refuse it.
fn places(port: &ServicePort) -> Vec<(String, Shared, Shared, bool)> {
    let place = |f: &proxier_core::snapshot::Frontend| {
        let bits = |ip: std::net::IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        let served = match f.kind {
            FrontendKind::ClusterIp => port.has_internal(),
            _ => port.has_external(),
        };
        match f.key {
            FrontendKey::Address { ip, protocol, port } => {
                let refusal = if f.kind == FrontendKind::ClusterIp {
                    Shared::FilterServices
                } else {
                    Shared::FilterExternal
                };
                (
                    format!("-d {ip}/{} -p {protocol} |--dport {port} ", bits(ip)),
                    Shared::NatServices,
                    refusal,
                    served,
                )
            }
            FrontendKey::NodePort { protocol, port } => (
                format!("-p {protocol} |--dport {port} "),
                Shared::NatNodePorts,
                Shared::FilterExternal,
                served,
            ),
        }
    };
    port.frontends.iter().map(place).collect()
}

fn matching(tables: &Tables, shared: Shared, what: &str) -> bool {
    let (begins, port) = what.split_once('|').unwrap();
    let rules: &[Rule] = tables.chains.get(&shared.id()).map_or(&[], Vec::as_slice);
    rules.iter().any(|r| r.0.starts_with(begins) && r.0.contains(port))
}

/// Between two commits: who can be served before and after is dispatched, and who was there and stays is dispatched or refused.
fn watched(tables: &Tables, old: &Snapshot, new: &Snapshot) -> Result<(), String> {
    for port in new.ports() {
        let Some(before) = old.port(&port.name) else { continue };
        let before = places(before);
        for (what, dispatch, refusal, served) in places(port) {
            let Some((.., was_served)) = before.iter().find(|p| p.0 == what && p.1 == dispatch) else {
                continue;
            };
            let dispatched = matching(tables, dispatch, &what);
            let refused = matching(tables, refusal, &what);
            if (served && *was_served && !dispatched) || !(dispatched || refused) {
                return Err(format!("{}: {what}: {dispatched} {refused}", port.name));
            }
        }
    }
    Ok(())
}

/// The counts that are kept up with the belief are those of the tables, after a start, every difference and a change of the environment.
#[test]
fn rules_are_counted_as_they_are() {
    for seed in 0..20 {
        let facts = facts(seed);
        let (mut tables, mut held) = (Tables::default(), None::<(Belief, Snapshot)>);
        history(seed)
            .play(|step, commit| {
                let snapshot = commit.snapshot(IpFamily::Ipv4);
                let plan = planned(snapshot, &facts, held.as_ref());
                let plan = if plan.is_full() { take_over(plan, &tables.saved()) } else { plan };
                let written = Counts::written(plan.inputs());
                if tables.chains.is_empty() {
                    let jumps: usize =
                        skeleton::jumps().iter().filter(|j| j.from.table == Table::Nat).count();
                    assert_eq!(written.nat, plan.next().rules().nat + jumps, "seed {seed}: everything");
                }
                tables.apply(plan.inputs());
                // It is not ours alone: what is no longer needed there stays.
                let shared = tables.chain(Table::Filter, skeleton::FIREWALL).len();
                let ours = usize::from(plan.next().environment().loopback);
                let filter = tables.count(Table::Filter) - shared + ours;
                let counted = Counts { filter, nat: tables.count(Table::Nat) };
                assert_eq!(plan.next().rules(), counted, "seed {seed}, commit {step}");
                held = Some((plan.into_next(), snapshot.clone()));
                Ok::<(), ()>(())
            })
            .unwrap();
    }
}

/// Plays a history and checks each commit. Returns syncs, and those that wrote something.
fn play(seed: u64, family: IpFamily) -> (usize, usize) {
    let facts = facts(seed);
    let (mut tables, mut held) = (Tables::default(), None::<(Belief, Snapshot)>);
    let (mut syncs, mut wrote) = (0, 0);
    history(seed)
        .play(|step, commit| {
            let place = format!("seed {seed}, {family}, commit {step}");
            let snapshot = commit.snapshot(family);
            let plan = planned(snapshot, &facts, held.as_ref());
            let inputs =
                if plan.is_full() { replace(&plan, &tables.saved()) } else { plan.inputs().to_vec() };
            if let Some((_, old)) = held.as_ref().filter(|_| facts.chains_per_input.is_none()) {
                let taken = take_over(full(snapshot, &facts), &tables.saved());
                let mut bad = Ok(());
                tables.clone().apply_watched(taken.inputs(), |t| {
                    bad = bad.clone().and_then(|()| watched(t, old, snapshot));
                });
                assert_eq!(bad, Ok(()), "{place}, taken over");
            }
            match &held {
                // A frontend that one service port loses to another is not looked at: inputs may come between.
                Some((_, old)) if facts.chains_per_input.is_none() => {
                    let mut bad = Ok(());
                    tables.apply_watched(&inputs, |t| {
                        bad = bad.clone().and_then(|()| watched(t, old, snapshot));
                    });
                    assert_eq!(bad, Ok(()), "{place}");
                }
                _ => tables.apply(&inputs),
            }
            let fresh = Tables::of(&full(snapshot, &facts));
            let (mut ours, mut theirs) = (tables.in_meaning(), fresh.in_meaning());
            // It is not ours alone: what was put there stays.
            for side in [&mut ours, &mut theirs] {
                side.remove(&skeleton::chain(Table::Filter, skeleton::FIREWALL));
            }
            assert_eq!(ours, theirs, "{place}");
            let services = tables.chain(Table::Nat, skeleton::SERVICES);
            let tail = Shared::NatServices.tail(plan.next().environment());
            let last: Vec<String> = tail.iter().map(ToString::to_string).collect();
            assert!(services.ends_with(&last), "{place}");
            assert_eq!(diff::drift(plan.next(), &tables.saved()).items, [], "{place}");
            // A new process, and a repair: both find everything in place.
            assert_eq!(take_over(full(snapshot, &facts), &tables.saved()).operations(), 0, "{place}");
            wrote += usize::from(!inputs.is_empty());
            held = Some((plan.into_next(), snapshot.clone()));
            let again = planned(snapshot, &facts, held.as_ref());
            assert_eq!(again.operations(), 0, "{place}");
            syncs += 1;
            Ok::<(), ()>(())
        })
        .unwrap();
    (syncs, wrote)
}

/// Cases: iptables-12.23, iptables-12.24
#[test]
fn partial_plans_lead_where_full_plans_lead() {
    let mut total = (0, 0);
    for seed in 0..120 {
        for family in IpFamily::ALL {
            let (syncs, wrote) = play(seed, family);
            total = (total.0 + syncs, total.1 + wrote);
        }
    }
    assert!(total.0 > 1500 && total.1 > 900, "{total:?}");
}

/// The tables as some later state of a history left them, and damage done to them.
fn damaged(seed: u64, damage: &[(u16, u8)]) -> (Tables, Snapshot, Facts) {
    let facts = facts(seed);
    let (mut snapshots, family) = (Vec::new(), IpFamily::ALL[(seed % 2) as usize]);
    history(seed)
        .play(|_, commit| {
            snapshots.push(commit.snapshot(family).clone());
            Ok::<(), ()>(())
        })
        .unwrap();
    let last = snapshots.pop().unwrap();
    let before = snapshots.get(seed as usize % snapshots.len().max(1)).unwrap_or(&last).clone();
    let mut tables = Tables::of(&full(&before, &facts));
    for (at, what) in damage {
        let ids: Vec<_> = tables.chains.keys().cloned().collect();
        let Some(id) = ids.get(usize::from(*at) % ids.len().max(1)) else { continue };
        let rules = tables.chains.get_mut(id).unwrap();
        match what % 6 {
            0 => drop(tables.chains.remove(id)),
            1 => drop(rules.pop()),
            2 => rules.reverse(),
            3 => rules.insert(0, Rule("-s 198.51.100.1/32 -j ACCEPT".into())),
            4 => rules.extend(rules.clone()),
            _ => tables.chains.retain(|other, _| other.table != id.table),
        }
    }
    // What is left must be tables that a kernel could hold: no rule leads nowhere.
    let names: std::collections::BTreeSet<_> = tables.chains.keys().cloned().collect();
    for (id, rules) in &mut tables.chains {
        rules.retain(|r| {
            let to = kit::target(r).filter(|t| t.starts_with("KUBE-"));
            to.is_none_or(|t| names.contains(&skeleton::chain(id.table, t)))
        });
    }
    (tables, last, facts)
}

/// What is not ours alone may hold more.
fn same_but_for_others(ours: &Tables, fresh: &Tables) -> Result<(), String> {
    let (mut ours, mut fresh) = (ours.in_meaning(), fresh.in_meaning());
    for side in [&mut ours, &mut fresh] {
        side.retain(|id, _| !skeleton::is_built_in(&id.name) && &*id.name != skeleton::FIREWALL);
    }
    if ours == fresh {
        return Ok(());
    }
    let differs = ours.keys().chain(fresh.keys()).find(|id| ours.get(*id) != fresh.get(*id));
    Err(format!("{differs:?}: {:?} {:?}", differs.map(|id| ours.get(id)), differs.map(|id| fresh.get(id))))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is found, taking it over and replacing it end right; foreign rules of built-in chains stay; doing it again writes nothing.
    #[test]
    fn any_state_is_repaired(seed in 0u64..400, damage in prop::collection::vec((any::<u16>(), any::<u8>()), 0..6)) {
        let (mut tables, snapshot, facts) = damaged(seed, &damage);
        let plan = full(&snapshot, &facts);
        let fresh = Tables::of(&plan);
        let foreign = |t: &Tables| {
            let all = t.chains.iter().filter(|(id, _)| skeleton::is_built_in(&id.name));
            all.flat_map(|(_, r)| r).filter(|r| r.0.ends_with("-j ACCEPT")).count()
        };
        let before = foreign(&tables);
        let mut replaced = tables.clone();
        replaced.apply(&replace(&plan, &tables.saved()));
        let taken = take_over(plan.clone(), &tables.saved());
        let expected_drift = diff::drift_in_meaning(plan.next().clone(), &tables.saved());
        prop_assert_eq!(expected_drift.is_empty(), taken.operations() == 0);
        tables.apply(taken.inputs());
        for side in [&tables, &replaced] {
            prop_assert_eq!(same_but_for_others(side, &fresh), Ok(()));
            prop_assert_eq!(foreign(side), before);
            prop_assert_eq!(diff::drift(taken.next(), &side.saved()).items, vec![]);
            prop_assert_eq!(take_over(plan.clone(), &side.saved()).operations(), 0);
        }
    }
}
