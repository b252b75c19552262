//! What is exposed, beside what a real kube-proxy exposed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proxier_core::driver::SyncKind;
use proxier_core::model::TrafficPolicy;
use proxier_testkit::build::History;
use proxier_testkit::scale;

use super::*;
use crate::admin::tests::{NOW, Rig};
use crate::registry::BACKENDS;

fn peer(file: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxier-testkit/corpus/peer");
    let text = fs::read_to_string(folder.join(file)).expect("the corpus");
    text.lines().map(str::to_owned).collect()
}

/// What the kernel of the peer counted.
fn packets() -> Vec<(&'static str, u64)> {
    vec![("ct_state_invalid_dropped_pkts", 7), ("localhost_nps_accepted_pkts", 11)]
}

/// Values of a mode that is built in.
fn rig(mode: &str) -> Option<Rig> {
    let entry = BACKENDS.iter().find(|e| e.section.name == mode)?;
    let figures =
        Figures { packets: entry.figures.packets.map(|_| packets as figures::Packets), ..entry.figures };
    let mut rig = Rig::new(entry.section.name, figures);
    rig.insight.metrics.client().request("GET", "127.0.0.1:6443", Some(200), Duration::from_millis(4));
    rig.insight.metrics.probes(|| (vec![(200, 3), (503, 1)], vec![(200, 2)]));
    rig.round();
    Some(rig)
}

fn types(text: &str) -> BTreeMap<String, String> {
    let pair = |l: &str| {
        let (name, kind) = l.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

fn series(text: &str) -> BTreeSet<String> {
    let name = |l: &str| l.rsplit_once(' ').map(|(name, _)| name.to_owned());
    text.lines().filter(|l| !l.starts_with('#')).filter_map(name).collect()
}

/// Labels of a series in the order of their names, as the peer's list has them.
fn sorted(series: &str) -> String {
    let Some((name, rest)) = series.split_once('{') else { return series.to_owned() };
    let mut labels: Vec<&str> = rest.trim_end_matches('}').split(',').collect();
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}

/// Metrics of the peer's API client that we do not have, with the reason.
const NOT_OURS: [(&str, &str); 8] = [
    (
        "rest_client_exec_plugin_certificate_rotation_age",
        "a plug-in's certificate is used until the plug-in says it ends; its age is not kept",
    ),
    (
        "rest_client_exec_plugin_ttl_seconds",
        "the end of a plug-in's credentials is told in the log when they cannot be renewed",
    ),
    (
        "rest_client_rate_limiter_duration_seconds",
        "nothing waits for a limiter: there are four watches and no polling",
    ),
    ("rest_client_request_size_bytes", "requests have no body"),
    ("rest_client_response_size_bytes", "answers are streams without an end; what came of them are events"),
    ("rest_client_transport_cache_entries", "there is one transport, and no cache of them"),
    ("rest_client_transport_cert_rotation_gc_calls_total", "as above"),
    ("rest_client_transport_create_calls_total", "as above"),
];

#[test]
fn every_metric_of_the_peer_is_there_or_named() {
    let Some(rig) = rig("iptables") else { return eprintln!("skipped: iptables is not built in") };
    let ours = types(&rig.insight.page().text());
    let theirs = types(&peer("metrics-types.txt").join("\n"));
    assert!(theirs.len() == 25, "{}", theirs.len());
    let mut missing = BTreeSet::new();
    for (name, kind) in &theirs {
        match ours.get(name) {
            Some(own) => assert_eq!(own, kind, "{name}"),
            None => {
                missing.insert(name.as_str());
            }
        }
    }
    assert_eq!(missing, NOT_OURS.iter().map(|(name, _)| *name).collect());
}

#[test]
fn every_series_of_the_peer_is_there() {
    for mode in ["iptables", "nftables"] {
        let Some(rig) = rig(mode) else {
            eprintln!("skipped: {mode} is not built in");
            continue;
        };
        let ours: BTreeSet<String> = series(&rig.insight.page().text()).iter().map(|s| sorted(s)).collect();
        let theirs = peer(&format!("metrics-series-{mode}.txt"));
        assert!(theirs.len() > 120);
        let missing: Vec<&String> = theirs.iter().filter(|s| !ours.contains(&sorted(s))).collect();
        assert!(missing.is_empty(), "{mode}: {missing:#?}");
    }
}

/// Name, kind, labels beside `le`, buckets, and the modes (iptables, ipvs, nftables) that have it.
type Line = (&'static str, &'static str, &'static [&'static str], usize, [bool; 3]);

/// Core spec 8, line by line.
const SPEC: [Line; 22] = [
    ("sync_proxy_rules_duration_seconds", "histogram", &["ip_family"], 15, [true; 3]),
    ("sync_full_proxy_rules_duration_seconds", "histogram", &["ip_family"], 15, [true, false, true]),
    ("sync_partial_proxy_rules_duration_seconds", "histogram", &["ip_family"], 15, [true, false, true]),
    ("sync_proxy_rules_last_timestamp_seconds", "gauge", &["ip_family"], 0, [true; 3]),
    ("sync_proxy_rules_last_queued_timestamp_seconds", "gauge", &["ip_family"], 0, [true; 3]),
    ("network_programming_duration_seconds", "histogram", &["ip_family"], 80, [true; 3]),
    ("sync_proxy_rules_endpoint_changes_pending", "gauge", &[], 0, [true; 3]),
    ("sync_proxy_rules_endpoint_changes_total", "counter", &[], 0, [true; 3]),
    ("sync_proxy_rules_service_changes_pending", "gauge", &[], 0, [true; 3]),
    ("sync_proxy_rules_service_changes_total", "counter", &[], 0, [true; 3]),
    ("sync_proxy_rules_no_local_endpoints_total", "gauge", &["ip_family", "traffic_policy"], 0, [true; 3]),
    ("proxy_healthz_total", "counter", &["code"], 0, [true; 3]),
    ("proxy_livez_total", "counter", &["code"], 0, [true; 3]),
    ("sync_proxy_rules_iptables_total", "gauge", &["ip_family", "table"], 0, [true, false, false]),
    ("sync_proxy_rules_iptables_last", "gauge", &["ip_family", "table"], 0, [true, false, false]),
    ("sync_proxy_rules_iptables_restore_failures_total", "counter", &["ip_family"], 0, [true, true, false]),
    (
        "sync_proxy_rules_iptables_partial_restore_failures_total",
        "counter",
        &["ip_family"],
        0,
        [true, false, false],
    ),
    ("iptables_ct_state_invalid_dropped_packets_total", "counter", &[], 0, [true, false, false]),
    ("iptables_localhost_nodeports_accepted_packets_total", "counter", &[], 0, [true, false, false]),
    ("sync_proxy_rules_nftables_sync_failures_total", "counter", &["ip_family"], 0, [false, false, true]),
    ("sync_proxy_rules_nftables_cleanup_failures_total", "counter", &["ip_family"], 0, [false, false, true]),
    ("conntrack_reconciler_sync_duration_seconds", "histogram", &["ip_family"], 15, [true; 3]),
];

const SPEC_LAST: (&str, &str) = ("conntrack_reconciler_deleted_entries_total", "counter");

#[test]
fn each_mode_has_what_the_specification_says_and_no_more() {
    for (at, mode) in ["iptables", "ipvs", "nftables"].into_iter().enumerate() {
        let Some(rig) = rig(mode) else {
            eprintln!("skipped: {mode} is not built in");
            continue;
        };
        let text = rig.insight.page().text();
        let kinds = types(&text);
        let mut expected = BTreeMap::from([(SPEC_LAST.0, SPEC_LAST.1)]);
        expected.extend(SPEC.iter().filter(|row| row.4[at]).map(|row| (row.0, row.1)));
        let own =
            kinds.iter().filter_map(|(name, kind)| Some((name.strip_prefix("kubeproxy_")?, kind.as_str())));
        assert_eq!(own.collect::<BTreeMap<_, _>>(), expected, "{mode}");
        for (name, kind, labels, buckets, _) in SPEC.iter().filter(|row| row.4[at]) {
            let name = format!("kubeproxy_{name}");
            let suffix = if *kind == "histogram" { "_bucket{" } else { "" };
            let lines: Vec<String> =
                series(&text).into_iter().filter(|s| s.starts_with(&format!("{name}{suffix}"))).collect();
            assert!(!lines.is_empty(), "{mode} {name}");
            for line in &lines {
                let inside = line.split_once('{').map_or("", |(_, l)| l.trim_end_matches('}'));
                let found = inside.split(',').filter_map(|l| l.split_once('=')).map(|(n, _)| n);
                let found: Vec<&str> = found.filter(|n| *n != "le").collect();
                assert_eq!(found, *labels, "{line}");
            }
            if *kind == "histogram" {
                assert_eq!(
                    lines.len(),
                    2 * (buckets + 1),
                    "{mode} {name}, with the infinite one, of two families"
                );
            }
        }
        for line in text.lines().filter(|l| l.starts_with("# HELP kubeproxy_")) {
            assert!(line.contains(" [ALPHA] "), "{line}");
        }
    }
}

#[test]
fn counting_objects_that_the_kernel_lacks_are_left_out() {
    let figures = Figures { packets: Some(|| vec![("localhost_nps_accepted_pkts", 3)]), ..Figures::NONE };
    let rig = Rig::new("fake", figures);
    let text = rig.insight.page().text();
    assert!(text.contains("kubeproxy_iptables_localhost_nodeports_accepted_packets_total 3\n"));
    assert!(!text.contains("ct_state_invalid"), "{text}");
}

#[test]
fn values_before_the_first_sync() {
    let rig = Rig::new("fake", Figures::NONE);
    let stem = "kubeproxy_sync_proxy_rules";
    assert_eq!(rig.sample(&format!("{stem}_last_queued_timestamp_seconds{{ip_family=\"IPv6\"}}")), NOW);
    assert_eq!(rig.sample(&format!("{stem}_last_timestamp_seconds{{ip_family=\"IPv6\"}}")), 0.0);
    assert_eq!(rig.sample(&format!("{stem}_duration_seconds_count{{ip_family=\"IPv4\"}}")), 0.0);
}

/// Only families that are served have series.
#[test]
fn one_family_has_one_familys_series() {
    let metrics = Metrics::new("fake", Figures::NONE, &[IpFamily::Ipv4], crate::admin::tests::clock);
    let text = metrics.page(&Pending::default()).text();
    assert!(text.contains("ip_family=\"IPv4\"") && !text.contains("ip_family=\"IPv6\""));
}

/// A scrape of a large cluster is as long as one of a small cluster.
#[test]
fn nothing_is_counted_by_service() {
    let [small, large] = [3, 20_000].map(Rig::running);
    let names = |rig: &Rig| series(&rig.insight.page().text());
    assert_eq!(names(&small), names(&large));
    assert_eq!(large.sample("proxier_service_ports{ip_family=\"IPv4\"}"), 20_000.0);
}

/// Cases: core-11.38, core-11.39
#[test]
fn what_has_no_endpoint_here_is_counted_and_what_has_none_anywhere_is_not() {
    let mut rig = Rig::running(0);
    let count = |rig: &Rig, policy: &str| {
        rig.sample(&format!(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{{ip_family=\"IPv4\",traffic_policy=\"{policy}\"}}"
        ))
    };
    let mut service = scale::service(1);
    service.internal_policy = TrafficPolicy::Local;
    service.external_policy = TrafficPolicy::Local;
    rig.cluster.upsert_service(service.clone());
    rig.cluster.upsert_slice(scale::slice(1, 2, 0));
    rig.round();
    assert_eq!((count(&rig, "internal"), count(&rig, "external")), (1.0, 0.0), "not reachable from outside");
    service.ports[0].node_port = proxier_core::ids::Port::new(30_080);
    rig.cluster.upsert_service(service);
    rig.round();
    assert_eq!((count(&rig, "internal"), count(&rig, "external")), (1.0, 1.0));
    let mut slice = scale::slice(1, 2, 0);
    for endpoint in &mut slice.endpoints {
        endpoint.conditions =
            proxier_core::model::Conditions { ready: false, serving: false, terminating: false };
    }
    rig.cluster.upsert_slice(slice.clone());
    rig.round();
    assert_eq!((count(&rig, "internal"), count(&rig, "external")), (0.0, 0.0), "no usable endpoint anywhere");
    slice.endpoints[0].node = Some(scale::NODE.into());
    slice.endpoints[0].conditions =
        proxier_core::model::Conditions { ready: true, serving: true, terminating: false };
    rig.cluster.upsert_slice(slice);
    rig.round();
    assert_eq!((count(&rig, "internal"), count(&rig, "external")), (0.0, 0.0), "one is here");
}

/// Counted by changes as by a walk through all, in random histories.
#[test]
fn lacking_local_endpoints_are_counted_as_by_a_walk() {
    let mut seen = NoLocalCount::default();
    for seed in 0..100 {
        let mut counts = NoLocal::default();
        let mut held: Option<proxier_core::snapshot::Snapshot> = None;
        let played: Result<(), ()> = History::from_seed(seed).play(|step, commit| {
            let snapshot = commit.snapshot(IpFamily::Ipv4);
            // A failed sync now and then: the next change set spans several commits.
            if step % 5 == 3 {
                return Ok(());
            }
            counts.follow(&ChangeSet::between(held.as_ref(), snapshot));
            let lacks = |p: &proxier_core::snapshot::ServicePort, policy| {
                policy == TrafficPolicy::Local && p.categories.has_any && p.local_endpoints().len() == 0
            };
            let internal = snapshot.ports().filter(|p| lacks(p, p.spec.internal_policy));
            let external =
                snapshot.ports().filter(|p| p.externally_accessible() && lacks(p, p.spec.external_policy));
            let (internal, external): (Vec<_>, Vec<_>) = (internal.collect(), external.collect());
            let walked = NoLocalCount { internal: internal.len(), external: external.len() };
            assert_eq!(counts.count(false), walked, "seed {seed}, step {step}");
            let services = |ports: &[&Arc<proxier_core::snapshot::ServicePort>]| {
                ports.iter().map(|p| p.name.service.clone()).collect::<BTreeSet<_>>().len()
            };
            let by_service = NoLocalCount { internal: services(&internal), external: services(&external) };
            assert_eq!(counts.count(true), by_service, "seed {seed}, step {step}");
            seen = NoLocalCount {
                internal: seen.internal + walked.internal,
                external: seen.external + walked.external,
            };
            held = Some(snapshot.clone());
            Ok(())
        });
        played.expect("no error");
    }
    assert!(seen.internal > 50 && seen.external > 50, "{seen:?}");
}

/// Core spec 2.6: what the annotation says, unless it was before we began.
#[test]
fn programming_latency_is_measured_from_the_trigger() {
    let mut rig = Rig::running(2);
    let at = |seconds: f64| Some(Timestamp((seconds * 1e9) as i128));
    let count =
        |rig: &Rig| rig.sample("kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"}");
    let push = |rig: &mut Rig, version: u32, trigger| {
        let slice = proxier_core::model::EndpointSlice { trigger, ..scale::slice(1, 1, version) };
        rig.cluster.upsert_slice(slice);
        rig.commit();
    };
    push(&mut rig, 1, at(NOW - 1.0));
    rig.sync(IpFamily::Ipv4, SyncKind::Partial);
    assert_eq!(count(&rig), 0.0, "from before the start");
    push(&mut rig, 2, at(NOW + 1.0));
    rig.fail(IpFamily::Ipv4, SyncKind::Partial);
    push(&mut rig, 3, at(NOW + 2.0));
    assert_eq!(count(&rig), 0.0, "not in force");
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    assert_eq!(count(&rig), 2.0, "both, the one of the failed sync included");
    push(&mut rig, 4, None);
    rig.sync(IpFamily::Ipv4, SyncKind::Partial);
    assert_eq!(count(&rig), 2.0);
    // The annotation alone changes nothing: it is in force at once.
    push(&mut rig, 4, at(NOW + 3.0));
    assert_eq!(count(&rig), 3.0);
}
