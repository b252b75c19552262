//! Failures of a backend, and what becomes of them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::backend::{ApplyReport, Atomicity, CleanupReport, PlanEntry, ProgressSink};
use crate::cluster::{Cluster, TrafficOptions};
use crate::ids::{NodeName, Protocol, ServicePortName};
use crate::stale::Scope;
use crate::tests::{port_name, service, service_port, slice};

/// A kernel that holds a text for each service port, refuses some, and can be told to fail.
#[derive(Default)]
struct Fake {
    kernel: BTreeMap<ServicePortName, String>,
    poison: BTreeSet<ServicePortName>,
    failures: Vec<RetryClass>,
    applied: Vec<bool>,
    /// Can write differences from what is there.
    takes_over: bool,
    /// What is there cannot be read.
    unreadable: Option<RetryClass>,
}

#[derive(Clone)]
struct Belief(Generation);

struct FakePlan {
    full: bool,
    puts: BTreeMap<ServicePortName, Option<String>>,
    next: Belief,
}

#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct Refusal(RetryClass, Vec<Refused>);

impl BackendError for Refusal {
    fn retry_class(&self) -> RetryClass {
        self.0
    }
    fn refused(&self) -> &[Refused] {
        &self.1
    }
}

impl Plan for FakePlan {
    fn entries(&self) -> Vec<PlanEntry> {
        let entry =
            |(name, _): (&ServicePortName, _)| PlanEntry { text: name.to_string(), port: Some(name.clone()) };
        self.puts.iter().map(entry).collect()
    }
    fn operations(&self) -> usize {
        self.puts.len()
    }
    fn is_full(&self) -> bool {
        self.full
    }
    fn unsupported(&self) -> &[Unsupported] {
        &[]
    }
}

impl Backend for Fake {
    type Plan = FakePlan;
    type Belief = Belief;
    type Error = Refusal;

    fn name(&self) -> &'static str {
        "fake"
    }
    fn family(&self) -> IpFamily {
        IpFamily::Ipv4
    }
    fn probe(&mut self) -> Result<Capabilities, Refusal> {
        Ok(Capabilities {
            protocols: Vec::new(),
            session_affinity: false,
            source_ranges: false,
            localhost_node_ports: false,
            reject: false,
            partial_sync: true,
            atomicity: Atomicity::Whole,
            check: false,
            requirements: Vec::new(),
        })
    }
    fn render(&self, input: RenderInput<'_, Belief>) -> FakePlan {
        let text = |p: &crate::snapshot::ServicePort| {
            p.endpoints.iter().map(|e| e.addr.to_string()).collect::<Vec<_>>().join(",")
        };
        let next = Belief(input.snapshot.generation());
        let partial = input.belief.filter(|b| Some(b.0) == input.changes.base).is_some();
        let wanted = |name: &ServicePortName| !input.set_aside.contains_key(name);
        let puts = if partial {
            let change = |c: &crate::changes::Change| {
                (c.name.clone(), c.new.as_ref().filter(|p| wanted(&p.name)).map(|p| text(p)))
            };
            input.changes.ports.iter().map(change).collect()
        } else {
            let ports = input.snapshot.ports().filter(|p| wanted(&p.name));
            ports.map(|p| (p.name.clone(), Some(text(p)))).collect()
        };
        FakePlan { full: !partial, puts, next }
    }
    fn take_over(&mut self, plan: FakePlan) -> Result<TakeOver<FakePlan>, Refusal> {
        if let Some(class) = self.unreadable {
            return Err(Refusal(class, Vec::new()));
        }
        if !self.takes_over || self.kernel.is_empty() {
            return Ok(TakeOver::Replace(plan));
        }
        let differs =
            |(name, put): &(&ServicePortName, &Option<String>)| self.kernel.get(*name) != put.as_ref();
        let mut puts: BTreeMap<_, _> =
            plan.puts.iter().filter(differs).map(|(n, p)| (n.clone(), p.clone())).collect();
        let gone = self.kernel.keys().filter(|n| !plan.puts.contains_key(*n));
        puts.extend(gone.map(|n| (n.clone(), None)));
        Ok(TakeOver::Differences(FakePlan { full: false, puts, next: plan.next }))
    }
    fn check(&mut self, _: &FakePlan) -> Result<(), Refusal> {
        Ok(())
    }
    fn apply(&mut self, plan: FakePlan, told: ProgressSink<'_>) -> Result<(Belief, ApplyReport), Refusal> {
        self.applied.push(plan.full);
        told(Progress { ports: 0, ports_all: plan.puts.len(), steps: 1, steps_all: 2 });
        if let Some(class) = self.failures.pop() {
            return Err(Refusal(class, Vec::new()));
        }
        let bad: Vec<Refused> = plan
            .puts
            .iter()
            .filter(|(name, put)| put.is_some() && self.poison.contains(*name))
            .map(|(name, _)| Refused { port: name.clone(), reason: "EINVAL".into() })
            .collect();
        if !bad.is_empty() {
            return Err(Refusal(RetryClass::Bug, bad));
        }
        if plan.full {
            self.kernel.clear();
        }
        let operations = plan.puts.len();
        for (name, put) in plan.puts {
            match put {
                Some(text) => self.kernel.insert(name, text),
                None => self.kernel.remove(&name),
            };
        }
        Ok((plan.next, ApplyReport { operations, ..ApplyReport::default() }))
    }
    fn verify(&mut self, _: &Belief) -> Result<Drift, Refusal> {
        Ok(Drift::default())
    }
    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Refusal> {
        let missing = snapshot.ports().filter(|p| !self.kernel.contains_key(&p.name));
        Ok(Drift { items: missing.map(|p| crate::backend::DriftItem::Missing(p.name.to_string())).collect() })
    }
    fn observer(&self) -> Self {
        Self { kernel: self.kernel.clone(), ..Self::default() }
    }
    fn cleanup(&mut self) -> Result<CleanupReport, Refusal> {
        self.kernel.clear();
        Ok(CleanupReport::default())
    }
}

struct Bench {
    cluster: Cluster,
    driver: Driver<Fake>,
}

impl Bench {
    fn new() -> Self {
        let mut cluster = Cluster::new(NodeName::new("node-1"), TrafficOptions::default());
        for (name, ip) in [("ns/a", "10.0.0.1"), ("ns/b", "10.0.0.2"), ("ns/c", "10.0.0.3")] {
            cluster.upsert_service(service(name, ip));
            cluster.upsert_slice(slice(name, "s", &["10.1.0.1"]));
        }
        Self { cluster, driver: Driver::new(Fake::default()) }
    }
    fn endpoint(&mut self, service: &str, endpoint: &str) {
        self.cluster.upsert_slice(slice(service, "s", &[endpoint]));
    }
    fn sync(&mut self) -> Result<SyncReport, SyncError> {
        let commit = self.cluster.commit();
        self.driver.sync(commit.snapshot(IpFamily::Ipv4), SyncKind::Partial)
    }
    fn kernel(&self, service: &str) -> Option<&str> {
        self.driver.backend.kernel.get(&http(service)).map(String::as_str)
    }
}

fn http(service: &str) -> ServicePortName {
    port_name(service, "http", Protocol::Tcp)
}

#[test]
fn whoever_listens_is_told_how_far_a_sync_is() {
    let mut b = Bench::new();
    let (told, heard) = std::sync::mpsc::channel();
    b.driver.on_progress(Box::new(move |p| told.send(p).unwrap()));
    b.sync().unwrap();
    assert_eq!(
        heard.try_iter().map(|p| (p.ports_all, p.steps, p.steps_all)).collect::<Vec<_>>(),
        [(3, 1, 2)]
    );
}

#[test]
fn the_first_sync_is_full_and_the_next_writes_the_difference() {
    let mut b = Bench::new();
    let first = b.sync().unwrap();
    assert_eq!((first.kind, first.operations), (SyncKind::Full, 3));
    b.endpoint("ns/b", "10.1.0.2");
    let second = b.sync().unwrap();
    assert_eq!((second.kind, second.operations, second.changed_ports), (SyncKind::Partial, 1, 1));
    assert_eq!(b.kernel("ns/b"), Some("10.1.0.2:8080"));
}

/// Cases: report-C3-31
#[test]
fn a_failed_sync_loses_no_change_and_the_next_is_full() {
    let mut b = Bench::new();
    b.sync().unwrap();
    let adopted = b.driver.adopted().unwrap().generation();
    b.endpoint("ns/b", "10.1.0.2");
    b.driver.backend.failures = vec![RetryClass::Transient];
    let error = b.sync().unwrap_err();
    assert_eq!(error.class, RetryClass::Transient);
    assert!(error.to_string().contains("fake IPv4 generation 2"), "{error}");
    assert_eq!(b.driver.adopted().unwrap().generation(), adopted, "the belief stands");
    b.endpoint("ns/c", "10.1.0.3");
    let repaired = b.sync().unwrap();
    assert_eq!((repaired.kind, repaired.changed_ports), (SyncKind::Full, 2));
    assert_eq!(b.kernel("ns/b"), Some("10.1.0.2:8080"));
    assert_eq!(b.kernel("ns/c"), Some("10.1.0.3:8080"));
}

/// A cluster whose service has a UDP port.
fn udp(b: &mut Bench, endpoints: &[&str]) {
    let mut udp = service("ns/u", "10.0.0.9");
    udp.ports = vec![service_port("http", Protocol::Udp, 53)];
    b.cluster.upsert_service(udp);
    let mut slice = slice("ns/u", "s", endpoints);
    slice.ports[0].protocol = Protocol::Udp;
    b.cluster.upsert_slice(slice);
}

fn former(stale: &StaleFlows) -> Vec<String> {
    stale.former.values().flatten().map(ToString::to_string).collect()
}

/// Cases: report-C3-31
#[test]
fn row_31_stale_flows_outlive_syncs_that_fail() {
    let mut b = Bench::new();
    udp(&mut b, &["10.1.0.1", "10.1.0.2"]);
    assert_eq!(b.sync().unwrap().stale_flows.scope, Scope::Everything, "nothing is known of what was before");
    udp(&mut b, &["10.1.0.1"]);
    let plain = b.sync().unwrap().stale_flows;
    assert_eq!((plain.scope, former(&plain)), (Scope::Changes, vec!["10.1.0.2:8080".to_owned()]));
    // One endpoint goes in a sync that fails; another one comes in it and is gone in the next one.
    udp(&mut b, &["10.1.0.3"]);
    b.driver.backend.failures = vec![RetryClass::Transient];
    b.sync().unwrap_err();
    udp(&mut b, &["10.1.0.4"]);
    b.driver.backend.failures = vec![RetryClass::Transient];
    b.sync().unwrap_err();
    udp(&mut b, &["10.1.0.5"]);
    let repaired = b.sync().unwrap().stale_flows;
    assert_eq!(former(&repaired), ["10.1.0.1:8080", "10.1.0.3:8080", "10.1.0.4:8080"]);
    assert_eq!(repaired.scope, Scope::Frontends, "and rules may have been missing");
    udp(&mut b, &["10.1.0.6"]);
    let next = b.sync().unwrap().stale_flows;
    assert_eq!((next.scope, former(&next)), (Scope::Changes, vec!["10.1.0.5:8080".to_owned()]));
}

/// What was missing in the kernel may have been missing for a while; a full sync that finds all in place says nothing.
#[test]
fn a_repair_has_all_frontends_looked_at() {
    let mut b = Bench::new();
    b.driver.backend.takes_over = true;
    b.sync().unwrap();
    let snapshot = b.driver.adopted().unwrap().clone();
    assert!(b.driver.sync(&snapshot, SyncKind::Full).unwrap().stale_flows.is_empty());
    b.driver.backend.kernel.remove(&http("ns/b"));
    let report = b.driver.sync(&snapshot, SyncKind::Full).unwrap();
    assert_eq!((report.operations, report.stale_flows.scope), (1, Scope::Frontends));
}

/// Cases: report-C3-32
#[test]
fn row_32_a_wrong_belief_is_rebuilt_in_full_in_the_same_sync() {
    let mut b = Bench::new();
    b.sync().unwrap();
    b.endpoint("ns/b", "10.1.0.2");
    b.driver.backend.kernel.clear();
    b.driver.backend.failures = vec![RetryClass::NeedsFullSync];
    let report = b.sync().unwrap();
    assert_eq!((report.kind, report.attempts, report.setbacks.len()), (SyncKind::Full, 2, 1));
    assert_eq!(b.driver.backend.kernel.len(), 3);
}

/// Cases: report-C3-41
#[test]
fn a_refused_service_is_set_aside_with_its_reason_and_the_rest_goes_in() {
    let mut b = Bench::new();
    b.driver.backend.poison = [http("ns/a"), http("ns/c")].into();
    let report = b.sync().unwrap();
    assert_eq!(report.refused.len(), 2);
    assert_eq!(b.driver.set_aside().get(&http("ns/c")).map(String::as_str), Some("EINVAL"));
    assert_eq!((b.kernel("ns/a"), b.kernel("ns/b")), (None, Some("10.1.0.1:8080")));

    b.endpoint("ns/b", "10.1.0.2");
    let quiet = b.sync().unwrap();
    assert_eq!((quiet.kind, quiet.attempts), (SyncKind::Partial, 1), "others do not suffer for it");

    b.driver.backend.poison.clear();
    b.endpoint("ns/a", "10.1.0.3");
    b.sync().unwrap();
    assert_eq!(b.kernel("ns/a"), Some("10.1.0.3:8080"), "a changed service gets another try");
    assert_eq!(b.kernel("ns/c"), None);
    let snapshot = b.driver.adopted().unwrap().clone();
    b.driver.sync(&snapshot, SyncKind::Full).unwrap();
    assert_eq!(b.kernel("ns/c"), Some("10.1.0.1:8080"), "and so does every one in a full sync");
}

#[test]
fn a_change_that_is_refused_in_a_partial_sync_ends_set_aside_too() {
    let mut b = Bench::new();
    b.sync().unwrap();
    b.driver.backend.poison = [http("ns/b")].into();
    b.endpoint("ns/b", "10.1.0.2");
    b.endpoint("ns/c", "10.1.0.3");
    let report = b.sync().unwrap();
    assert_eq!(report.attempts, 3, "partial, full, full without it");
    assert_eq!((b.kernel("ns/b"), b.kernel("ns/c")), (None, Some("10.1.0.3:8080")));
}

#[test]
fn an_error_without_a_culprit_is_returned() {
    let mut b = Bench::new();
    b.driver.backend.failures = vec![RetryClass::Misconfigured];
    assert_eq!(b.sync().unwrap_err().class, RetryClass::Misconfigured);
    assert_eq!(b.driver.backend.applied.len(), 1, "no point in trying again at once");
}

#[test]
fn every_nth_effect_may_fail_and_the_next_sync_repairs() {
    for nth in 0..4 {
        let mut b = Bench::new();
        for round in 0..6u8 {
            b.endpoint("ns/a", &format!("10.1.1.{}", round + 1));
            b.endpoint("ns/b", &format!("10.1.2.{}", round + 1));
            if round == nth {
                b.driver.backend.failures = vec![RetryClass::Transient];
                b.sync().unwrap_err();
            } else {
                b.sync().unwrap();
                assert_eq!(b.kernel("ns/a"), Some(&*format!("10.1.1.{}:8080", round + 1)));
            }
        }
    }
}

#[test]
fn a_full_sync_writes_only_what_differs_where_the_backend_can() {
    let mut b = Bench::new();
    b.driver.backend.takes_over = true;
    assert_eq!(b.sync().unwrap().operations, 3, "nothing to take over yet");
    let old = std::mem::take(&mut b.driver.backend.kernel);
    b.driver = Driver::new(Fake { kernel: old, takes_over: true, ..Fake::default() });
    b.endpoint("ns/b", "10.1.0.2");
    b.cluster.remove_service(&crate::tests::name("ns/c"));
    let report = b.sync().unwrap();
    assert_eq!((report.kind, report.operations), (SyncKind::Full, 2));
    assert_eq!((b.kernel("ns/b"), b.kernel("ns/c")), (Some("10.1.0.2:8080"), None));

    b.endpoint("ns/b", "10.1.0.3");
    b.driver.backend.failures = vec![RetryClass::NeedsFullSync, RetryClass::NeedsFullSync];
    let report = b.sync().unwrap();
    assert_eq!(report.attempts, 3, "difference, taking over, replacement");
    assert_eq!(b.driver.backend.applied.iter().filter(|full| **full).count(), 1);
    assert_eq!(b.kernel("ns/b"), Some("10.1.0.3:8080"));
}

/// What is there cannot be read, so it is not known what differs. Where trying again does not help, everything is written anew.
///
/// Cases: nftables-12.34
#[test]
fn what_cannot_be_read_is_replaced() {
    let mut b = Bench::new();
    b.driver.backend.unreadable = Some(RetryClass::Bug);
    b.driver.backend.kernel.insert(http("ns/leftover"), "junk".into());
    let report = b.sync().unwrap();
    assert_eq!((report.kind, report.attempts, report.operations), (SyncKind::Full, 2, 3));
    assert_eq!(b.driver.backend.applied, [true], "as one replacement");
    assert_eq!(b.kernel("ns/leftover"), None);

    let mut b = Bench::new();
    b.driver.backend.unreadable = Some(RetryClass::Transient);
    b.driver.backend.kernel.insert(http("ns/leftover"), "junk".into());
    b.sync().unwrap_err();
    assert_eq!(b.driver.backend.applied, [false; 0], "nothing is written blindly while reading may yet work");
    assert_eq!(b.kernel("ns/leftover"), Some("junk"));
}

#[test]
fn a_verification_carries_the_generation_it_is_about() {
    let mut b = Bench::new();
    assert!(b.driver.verification().is_none(), "nothing is believed yet");
    b.sync().unwrap();
    let verification = b.driver.verification().unwrap();
    assert_eq!(verification.generation, b.driver.adopted().unwrap().generation());
    let drift = std::thread::spawn(|| verification.run()).join().unwrap().unwrap();
    assert!(drift.is_empty());
    b.driver.backend.kernel.clear();
    let snapshot = b.driver.adopted().unwrap().clone();
    assert_eq!(b.driver.compare(&snapshot).unwrap().items.len(), 3);
}

#[test]
fn cleanup_forgets_everything() {
    let mut b = Bench::new();
    b.sync().unwrap();
    b.driver.cleanup().unwrap();
    assert!(b.driver.adopted().is_none());
    assert_eq!(b.sync().unwrap().kind, SyncKind::Full);
}
