use std::collections::BTreeSet;

use proptest::prelude::*;
use proxier_core::ids::IpFamily;
use proxier_core::model::TrafficPolicy;
use proxier_core::oracle::{Entry, Origin, Outcome, Reason, decide};
use proxier_core::snapshot::{FrontendKind, LocalDetector, NodePortAddresses};

use super::*;

#[test]
fn the_same_seed_gives_the_same_cluster() {
    let text = |seed| format!("{:?}", Scenario::from_seed(seed));
    assert_eq!(text(5), text(5));
    assert_ne!(text(5), text(6));
    let steps = |seed| format!("{:?}", History::from_seed(seed));
    assert_eq!(steps(5), steps(5));
}

/// What the random clusters are made for is really in them, and the random packets find it.
#[test]
fn clusters_and_packets_cover_what_they_are_for() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for seed in 0..300 {
        let commit = Scenario::from_seed(seed).cluster().commit();
        for family in IpFamily::ALL {
            let snapshot = commit.snapshot(family);
            let context = snapshot.context();
            seen.insert(match &context.detector {
                None => "no detector".into(),
                Some(LocalDetector::Cidr(_)) => "detector cidr".into(),
                Some(LocalDetector::Interface(_)) => "detector interface".into(),
                Some(LocalDetector::InterfacePrefix(_)) => "detector prefix".into(),
            });
            seen.insert(match &context.node_port_addresses {
                NodePortAddresses::MatchAll => "node ports everywhere".into(),
                NodePortAddresses::Only(ips) if ips.is_empty() => "node ports nowhere".into(),
                NodePortAddresses::Only(_) => "node ports somewhere".into(),
            });
            for port in snapshot.ports() {
                seen.extend((!port.conflicts.is_empty()).then(|| "conflict".to_owned()));
                seen.extend(port.categories.cluster_fallback.then(|| "fallback".to_owned()));
                seen.insert(format!("{:?}", port.categories.topology));
                seen.insert(format!("{}", port.protocol()));
            }
            for packet in packets(&mut Dice::new(seed), snapshot, 60) {
                let decision = decide(snapshot, &packet);
                seen.insert(format!("{:?}", decision.reason));
                seen.insert(format!("{:?}", decision.origin));
                seen.insert(if packet.entry == Entry::Host { "sent" } else { "received" }.into());
                seen.extend(decision.affinity.map(|_| "affinity".to_owned()));
                seen.extend(decision.health_check.map(|_| "health check".to_owned()));
                for reason in &decision.masquerade {
                    let text = format!("{reason:?}");
                    seen.insert(text.split('(').next().unwrap_or_default().to_owned());
                }
                if let Some((frontend, _)) = &decision.frontend {
                    let name = format!("{:?}", frontend.kind);
                    seen.insert(format!("{name} {:?} {:?}", decision.policy.unwrap(), decision.scope));
                }
                if let Outcome::Endpoints(choices) = &decision.outcome
                    && choices.iter().any(|c| c.masquerade)
                    && choices.iter().any(|c| !c.masquerade)
                {
                    seen.insert("hairpin beside others".into());
                }
            }
        }
    }
    let mut wanted: Vec<String> = [
        "no detector",
        "detector cidr",
        "detector interface",
        "detector prefix",
        "node ports everywhere",
        "node ports nowhere",
        "node ports somewhere",
        "conflict",
        "fallback",
        "SameNode",
        "SameZone",
        "tcp",
        "udp",
        "sctp",
        "sent",
        "received",
        "affinity",
        "health check",
        "All",
        "NotFromPod",
        "ExternalPolicyCluster",
        "FromHost",
        "Hairpin",
        "hairpin beside others",
    ]
    .map(str::to_owned)
    .to_vec();
    let reasons = [
        Reason::NoFrontend,
        Reason::UnknownPortOfClusterIp,
        Reason::UnallocatedClusterIp,
        Reason::SourceNotInRanges,
        Reason::NoEndpoints,
        Reason::NoLocalEndpoints,
        Reason::Balanced,
    ];
    wanted.extend(reasons.map(|r| format!("{r:?}")));
    wanted.extend([Origin::Pod, Origin::Host, Origin::Outside].map(|o| format!("{o:?}")));
    let external = [FrontendKind::LoadBalancerVip, FrontendKind::ExternalIp, FrontendKind::NodePort];
    let [cluster, local] = [TrafficPolicy::Cluster, TrafficPolicy::Local];
    let scopes =
        external.into_iter().flat_map(|k| [(k, cluster, cluster), (k, local, cluster), (k, local, local)]);
    let cluster_ip = FrontendKind::ClusterIp;
    for (kind, policy, scope) in scopes.chain([(cluster_ip, cluster, cluster), (cluster_ip, local, local)]) {
        wanted.push(format!("{kind:?} {policy:?} {:?}", Some(scope)));
    }
    let missing: Vec<&String> = wanted.iter().filter(|w| !seen.contains(*w)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

#[test]
fn a_smaller_cluster_lacks_one_thing() {
    let scenario = Scenario::from_seed(3);
    let size = |s: &Scenario| s.units.len() + s.units.iter().map(|u| u.slices.len()).sum::<usize>();
    let all = scenario.smaller().count();
    assert_eq!(all, size(&scenario));
    assert!(scenario.smaller().all(|s| size(&s) < size(&scenario)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// The order in which objects arrive does not show in a snapshot.
    #[test]
    fn shuffled_objects_make_the_same_snapshot(scenario in strategy::scenarios(), seed in any::<u64>()) {
        let (a, b) = (scenario.cluster().commit(), scenario.shuffled(&mut Dice::new(seed)).commit());
        for family in IpFamily::ALL {
            let ports = |c: &proxier_core::cluster::Commit| {
                c.snapshot(family).ports().map(|p| (**p).clone()).collect::<Vec<_>>()
            };
            prop_assert_eq!(ports(&a), ports(&b));
        }
    }

    /// The last state of a history is that of a cluster that is given only the last of each object.
    #[test]
    fn a_history_ends_in_a_commit(history in strategy::histories()) {
        prop_assert!(matches!(history.steps.last(), Some(Step::Commit)));
        let mut commits = 0;
        history.play(|number, _| { commits = number + 1; Ok::<(), ()>(()) }).unwrap();
        let wanted = history.steps.iter().filter(|s| matches!(s, Step::Commit)).count();
        prop_assert_eq!(commits, wanted);
    }
}
