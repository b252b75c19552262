//! The follower, the board and what is answered, over real snapshots and invented syncs.

mod answers;
mod serving;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proxier_core::backend::{RetryClass, RuleCount, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::cluster::{Cluster, TrafficOptions};
use proxier_core::driver::{SyncError, SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, NodeName, ServicePortName};
use proxier_core::model::PerFamily;
use proxier_core::snapshot::Snapshot;
use proxier_core::stale::StaleFlows;
use proxier_testkit::scale;

use super::*;
use crate::metrics::{Figures, Metrics};
use crate::sync::{Failed, Observer as _, Synced};

/// A moment in 2023.
pub(crate) const NOW: f64 = 1_700_000_000.0;

pub(crate) fn clock() -> f64 {
    NOW
}

/// The loop, without a kernel.
pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) insight: Arc<Insight>,
    pub(crate) follower: Follower,
    pub(crate) asked: Arc<AtomicBool>,
    pub(crate) force: PerFamily<Option<Snapshot>>,
    desired: PerFamily<Option<Snapshot>>,
    pub(crate) set_aside: SetAside,
}

impl Rig {
    pub(crate) fn new(mode: &'static str, figures: Figures) -> Self {
        let metrics = Metrics::new(mode, figures, &IpFamily::ALL, clock);
        let insight = Insight::new(metrics, Board::new(mode, &IpFamily::ALL, clock));
        let asked = Arc::new(AtomicBool::new(false));
        let follower = Follower::new(Arc::clone(&insight), Arc::clone(&asked), Printers::default());
        let cluster = Cluster::new(NodeName::new(scale::NODE), TrafficOptions::default());
        let (force, desired) = (PerFamily::default(), PerFamily::default());
        Self { cluster, insight, follower, asked, force, desired, set_aside: SetAside::new() }
    }

    /// One with so many Services of an endpoint each, in force.
    pub(crate) fn running(services: u32) -> Self {
        let mut rig = Self::new("fake", Figures { partial: true, ..Figures::NONE });
        for number in 0..services {
            rig.cluster.upsert_service(scale::service(number));
            rig.cluster.upsert_slice(scale::slice(number, 1, 0));
        }
        rig.round();
        rig
    }

    pub(crate) fn commit(&mut self) {
        let first = self.desired.ipv4.is_none();
        let commit = self.cluster.commit();
        self.follower.committed(&commit);
        for family in IpFamily::ALL {
            if first || *commit.changed.get(family) {
                self.follower.queued(family);
            }
            *self.desired.get_mut(family) = Some(commit.snapshot(family).clone());
        }
    }

    pub(crate) fn report(&self, family: IpFamily, kind: SyncKind) -> SyncReport {
        let snapshot = self.desired.get(family).as_ref().expect("committed");
        let changed = ChangeSet::between(self.force.get(family).as_ref(), snapshot).ports.len();
        SyncReport {
            kind,
            generation: snapshot.generation(),
            changed_ports: changed,
            operations: changed,
            bytes: changed * 100,
            messages: changed,
            attempts: 1,
            setbacks: Vec::new(),
            refused: Vec::new(),
            unsupported: Vec::new(),
            stale_flows: StaleFlows::default(),
            follow_up: None,
            cleanup_failures: 0,
            rules: Vec::new(),
        }
    }

    pub(crate) fn sync_with(&mut self, family: IpFamily, asked: SyncKind, report: &SyncReport) {
        let snapshot = self.desired.get(family).clone().expect("committed");
        let before = self.force.get_mut(family).replace(snapshot.clone());
        self.follower.synced(&Synced {
            backend: "fake",
            family,
            kind: asked,
            report,
            before: before.as_ref(),
            snapshot: &snapshot,
            set_aside: self.set_aside.len(),
            left_out: &self.set_aside,
            took: Duration::from_millis(3),
        });
    }

    pub(crate) fn sync(&mut self, family: IpFamily, kind: SyncKind) {
        let report = self.report(family, kind);
        self.sync_with(family, kind, &report);
    }

    pub(crate) fn fail(&mut self, family: IpFamily, kind: SyncKind) {
        let generation = self.desired.get(family).as_ref().expect("committed").generation();
        let error = SyncError {
            backend: "fake",
            family,
            generation,
            class: RetryClass::Transient,
            source: "no room".into(),
        };
        self.follower.failed(&Failed {
            backend: "fake",
            family,
            kind,
            error: &error,
            took: Duration::from_millis(3),
        });
    }

    /// Publishes what changed, and brings it to both families.
    pub(crate) fn round(&mut self) {
        self.commit();
        for family in IpFamily::ALL {
            let kind = if self.force.get(family).is_some() { SyncKind::Partial } else { SyncKind::Full };
            self.sync(family, kind);
        }
    }

    /// The sample of a series.
    #[track_caller]
    pub(crate) fn sample(&self, series: &str) -> f64 {
        let text = self.insight.page().text();
        let line = text.lines().find(|l| l.rsplit_once(' ').is_some_and(|(name, _)| name == series));
        let line = line.unwrap_or_else(|| panic!("{series} not in\n{text}"));
        line.rsplit_once(' ').and_then(|(_, v)| v.parse().ok()).expect("a number")
    }
}

fn port(service: u32) -> ServicePortName {
    scale::service(service).name.port("http")
}

trait WithPort {
    fn port(self, name: &str) -> ServicePortName;
}

impl WithPort for proxier_core::ids::ServiceName {
    fn port(self, name: &str) -> ServicePortName {
        ServicePortName { service: self, port: name.into(), protocol: proxier_core::ids::Protocol::Tcp }
    }
}

#[test]
fn pending_is_what_is_not_in_force() {
    let mut rig = Rig::running(10);
    let [services, endpoints] =
        ["service", "endpoint"].map(|what| format!("kubeproxy_sync_proxy_rules_{what}_changes_pending"));
    assert_eq!((rig.sample(&services), rig.sample(&endpoints)), (0.0, 0.0));
    rig.cluster.upsert_slice(scale::slice(3, 2, 1));
    rig.cluster.upsert_slice(scale::slice(4, 2, 1));
    rig.cluster.remove_service(&scale::service(5).name);
    rig.cluster.upsert_service(scale::service(11));
    rig.commit();
    // The one that went had an endpoint, the one that came has none.
    assert_eq!((rig.sample(&services), rig.sample(&endpoints)), (2.0, 3.0));
    assert_eq!(rig.sample("proxier_generation{ip_family=\"IPv4\",state=\"desired\"}"), 2.0);
    assert_eq!(rig.sample("proxier_generation{ip_family=\"IPv4\",state=\"in_force\"}"), 1.0);
    rig.fail(IpFamily::Ipv4, SyncKind::Partial);
    assert_eq!(
        (rig.sample(&services), rig.sample(&endpoints)),
        (2.0, 3.0),
        "a failure brings nothing in force"
    );
    rig.sync(IpFamily::Ipv6, SyncKind::Partial);
    assert_eq!(
        (rig.sample(&services), rig.sample(&endpoints)),
        (2.0, 3.0),
        "one family says nothing of the other"
    );
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    assert_eq!((rig.sample(&services), rig.sample(&endpoints)), (0.0, 0.0));
    assert_eq!(rig.sample("proxier_generation{ip_family=\"IPv4\",state=\"in_force\"}"), 2.0);
}

/// An event that changes nothing is not what a later change waited for.
#[test]
fn lag_is_measured_from_the_event_that_led_to_it() {
    let mut rig = Rig::running(2);
    let lags = |rig: &Rig| rig.sample("proxier_event_to_kernel_duration_seconds_count{ip_family=\"IPv4\"}");
    let event = crate::source::SourceEvent::Synced;
    rig.follower.events(std::slice::from_ref(&event));
    rig.follower.decided();
    rig.cluster.upsert_slice(scale::slice(1, 2, 1));
    rig.round();
    assert_eq!(lags(&rig), 0.0);
    rig.follower.events(std::slice::from_ref(&event));
    rig.cluster.upsert_slice(scale::slice(1, 2, 2));
    rig.commit();
    rig.follower.decided();
    rig.fail(IpFamily::Ipv4, SyncKind::Partial);
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    assert_eq!(lags(&rig), 1.0);
    assert_eq!(rig.sample("proxier_event_to_kernel_duration_seconds_count{ip_family=\"IPv6\"}"), 0.0);
}

/// Core spec 2.5 and 2.7; slices of other address types, and those that belong to nobody, are none of ours.
#[test]
fn events_are_counted_once_whatever_the_families() {
    use crate::source::{Object, ObjectKey, ObjectKind, SourceEvent};
    let mut rig = Rig::running(0);
    let slice = |kind: &str, service: Option<&str>| {
        let labels = service.map(|s| serde_json::json!({"kubernetes.io/service-name": s}));
        let object = serde_json::json!({
            "metadata": {"namespace": "a", "name": "s", "labels": labels},
            "addressType": kind,
            "endpoints": [],
        });
        let object = serde_json::from_value(object).expect("a slice");
        SourceEvent::Upsert(Object::EndpointSlice(Box::new(object)))
    };
    let gone = |kind, service: Option<&str>| SourceEvent::Delete {
        key: ObjectKey { kind, namespace: "a".into(), name: "s".into() },
        service: service.map(Into::into),
    };
    let events = [
        SourceEvent::Upsert(Object::Service(Box::default())),
        gone(ObjectKind::Service, None),
        slice("IPv4", Some("web")),
        slice("IPv6", Some("web")),
        slice("FQDN", Some("web")),
        slice("IPv4", None),
        gone(ObjectKind::EndpointSlice, Some("web")),
        gone(ObjectKind::EndpointSlice, None),
        SourceEvent::Upsert(Object::Node(Box::default())),
    ];
    rig.follower.events(&events);
    let [services, endpoints] =
        ["service", "endpoint"].map(|w| format!("kubeproxy_sync_proxy_rules_{w}_changes_total"));
    assert_eq!((rig.sample(&services), rig.sample(&endpoints)), (2.0, 3.0));
    assert_eq!(rig.sample("proxier_last_event_timestamp_seconds"), NOW);
}

#[test]
fn a_record_says_why_and_what() {
    let mut rig = Rig::running(30);
    rig.cluster.upsert_slice(scale::slice(3, 2, 1));
    rig.cluster.remove_service(&scale::service(5).name);
    rig.cluster.upsert_service(scale::service(31));
    rig.round();
    let history = rig.insight.board.history();
    let record = history.iter().find(|r| r.family == "IPv4").expect("synced");
    assert_eq!((&*record.cause, record.kind.as_deref()), ("3 services changed", Some("partial")));
    let difference = &record.difference;
    assert_eq!(difference.services.first, ["bench/svc-3", "bench/svc-31", "bench/svc-5"]);
    assert_eq!(difference.added.first, ["bench/svc-31:http/tcp"]);
    assert_eq!(difference.changed.first, ["bench/svc-3:http/tcp"]);
    assert_eq!(difference.removed.first, ["bench/svc-5:http/tcp"]);
    let first = history.last().expect("the first");
    assert_eq!(
        (&*first.cause, first.difference.added.count, first.difference.added.first.len()),
        ("start", 30, 20)
    );
}

#[test]
fn causes_are_told() {
    let mut rig = Rig::running(2);
    let last = |rig: &Rig| rig.insight.board.history()[0].cause.clone();
    rig.follower.verified("fake", IpFamily::Ipv4, 2);
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    assert_eq!(last(&rig), "the kernel differed");
    rig.sync(IpFamily::Ipv4, SyncKind::Partial);
    assert_eq!(last(&rig), "leftovers");
    rig.cluster.upsert_service(scale::service(7));
    rig.commit();
    rig.fail(IpFamily::Ipv4, SyncKind::Partial);
    let failed = Arc::clone(&rig.insight.board.history()[0]);
    assert_eq!(
        (&*failed.cause, failed.error.as_deref(), &failed.kind),
        ("1 service changed", Some("no room"), &None)
    );
    assert_eq!(failed.difference.added.first, ["bench/svc-7:http/tcp"]);
    rig.asked.store(true, std::sync::atomic::Ordering::Relaxed);
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    assert_eq!(last(&rig), "asked for; the last one failed; 1 service changed");
    rig.set_aside.insert(port(7), "EINVAL".to_owned());
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    assert_eq!(last(&rig), "service ports that are set aside are tried again");
}

#[test]
fn a_hundred_thousand_creates_and_deletes_leave_nothing() {
    let mut rig = Rig::running(3);
    let size = |rig: &Rig| {
        let text = rig.insight.page().text();
        // Numbers grow; lines do not.
        (text.lines().count(), rig.insight.metrics.held())
    };
    let before = size(&rig);
    for number in 0..100_000_u32 {
        let mut service = scale::service(number % 250);
        service.name.name = format!("churn-{number}").into();
        service.internal_policy = proxier_core::model::TrafficPolicy::Local;
        let mut slice = scale::slice(number % 250, 1, number);
        slice.name.service = service.name.clone();
        slice.trigger = Some(proxier_core::ids::Timestamp((NOW as i128 + 1) * 1_000_000_000));
        let (name, slice_name) = (service.name.clone(), slice.name.clone());
        rig.cluster.upsert_service(service);
        rig.cluster.upsert_slice(slice);
        rig.commit();
        if number % 3 != 0 {
            rig.sync(IpFamily::Ipv4, SyncKind::Partial);
        } else if number % 9 == 0 {
            rig.fail(IpFamily::Ipv4, SyncKind::Partial);
        }
        rig.cluster.remove_slice(&slice_name);
        rig.cluster.remove_service(&name);
        rig.commit();
        rig.sync(IpFamily::Ipv4, SyncKind::Partial);
    }
    assert_eq!(size(&rig), before);
    let history = rig.insight.board.history();
    assert_eq!(history.len(), SYNCS);
    let longest = history.iter().map(|r| serde_json::to_string(&**r).expect("JSON").len()).max();
    assert!(longest < Some(2048), "{longest:?}");
}

#[test]
fn records_are_bounded_whatever_happens() {
    let mut rig = Rig::running(5000);
    for number in 0..5000 {
        rig.cluster.remove_service(&scale::service(number).name);
    }
    rig.commit();
    let mut report = rig.report(IpFamily::Ipv4, SyncKind::Partial);
    report.setbacks = vec!["x".repeat(100_000); 15];
    rig.sync_with(IpFamily::Ipv4, SyncKind::Partial, &report);
    let record = Arc::clone(&rig.insight.board.history()[0]);
    assert_eq!((record.difference.removed.count, record.setbacks), (5000, 15));
    assert!(serde_json::to_string(&*record).expect("JSON").len() < 4096);
}

/// What other threads see while the loop works is always whole.
#[test]
fn scrapes_while_syncs_run() {
    let mut rig = Rig::running(50);
    let insight = Arc::clone(&rig.insight);
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let seen = Arc::new(Mutex::new(0_usize));
    let scrapes = Arc::clone(&seen);
    let scraper = std::thread::spawn(move || {
        let mut last = 0.0;
        loop {
            let ended = stop.load(std::sync::atomic::Ordering::SeqCst);
            let text = insight.page().text();
            let of = |suffix: &str| -> f64 {
                let name = format!("kubeproxy_sync_proxy_rules_duration_seconds_{suffix}");
                let line = text.lines().find(|l| l.starts_with(&name)).expect("there");
                line.rsplit_once(' ').and_then(|(_, v)| v.parse().ok()).expect("a number")
            };
            let count = of("count{ip_family=\"IPv4\"}");
            assert_eq!(count, of("bucket{ip_family=\"IPv4\",le=\"+Inf\"}"), "torn");
            assert!(count >= last, "went back");
            last = count;
            *scrapes.lock().expect("no panic") += 1;
            if ended {
                return last;
            }
        }
    });
    let mut rounds = 0;
    while rounds < 300 || *seen.lock().expect("no panic") < 20 {
        rig.cluster.upsert_slice(scale::slice(rounds % 50, 1 + rounds % 3, rounds));
        rig.round();
        rounds += 1;
    }
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(scraper.join().expect("no panic"), f64::from(rounds + 1));
}

#[test]
fn rules_and_refusals_are_shown_as_the_backend_reports_them() {
    let figures = Figures {
        tables: &["filter", "nat"],
        restores: true,
        partial_restores: true,
        transactions: true,
        ..Figures::NONE
    };
    let mut rig = Rig::new("fake", figures);
    rig.commit();
    let mut report = rig.report(IpFamily::Ipv4, SyncKind::Full);
    report.rules = vec![
        RuleCount { table: "filter", total: 4, written: 3 },
        RuleCount { table: "nat", total: 50, written: 20 },
    ];
    report.setbacks = vec!["one".to_owned(), "two".to_owned()];
    report.cleanup_failures = 1;
    rig.sync_with(IpFamily::Ipv4, SyncKind::Partial, &report);
    rig.fail(IpFamily::Ipv4, SyncKind::Full);
    let stem = "kubeproxy_sync_proxy_rules";
    for (series, value) in [
        ("iptables_total{ip_family=\"IPv4\",table=\"nat\"}", 50.0),
        ("iptables_last{ip_family=\"IPv4\",table=\"filter\"}", 3.0),
        ("iptables_total{ip_family=\"IPv6\",table=\"nat\"}", 0.0),
        ("iptables_restore_failures_total{ip_family=\"IPv4\"}", 3.0),
        ("iptables_partial_restore_failures_total{ip_family=\"IPv4\"}", 1.0),
        ("nftables_sync_failures_total{ip_family=\"IPv4\"}", 3.0),
        ("nftables_cleanup_failures_total{ip_family=\"IPv4\"}", 1.0),
        ("duration_seconds_count{ip_family=\"IPv4\"}", 2.0),
    ] {
        assert_eq!(rig.sample(&format!("{stem}_{series}")), value, "{series}");
    }
    assert_eq!(rig.sample("proxier_sync_failures_total{ip_family=\"IPv4\"}"), 1.0);
}
