//! The loop, step by step, over a real driver and a backend that writes down what it is asked to do.

mod health;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard};

use proxier_core::backend::{
    ApplyReport, Atomicity, Backend, BackendError, Capabilities, CleanupReport, DriftItem, Plan, PlanEntry,
    Progress, ProgressSink, Refused, RenderInput, RetryClass, Unsupported,
};
use proxier_core::cluster::TrafficOptions;
use proxier_core::driver::Driver;
use proxier_core::ids::{NodeName, ServicePortName};
use serde_json::json;

use super::*;
use crate::config::NodeOverrides;
use crate::source::{Object, ObjectKey, ObjectKind};

/// Something that the kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// To take a plan: full or not, with so many service ports.
    Apply(IpFamily, bool, usize),
    /// To be read, on the thread of this name.
    Verify(String),
    /// To be read, or emptied, otherwise.
    Other(&'static str),
}
use Call::{Apply, Verify};

#[derive(Default)]
struct Kernel {
    calls: Vec<Call>,
    /// How the next plans fail; then they are taken.
    failures: VecDeque<RetryClass>,
    /// What the next comparisons find; then nothing.
    findings: VecDeque<Result<Drift, Refusal>>,
    /// Services whose ports are refused.
    poison: BTreeSet<String>,
    follow_up: Option<Duration>,
}

#[derive(Clone)]
struct Fake {
    family: IpFamily,
    kernel: Arc<Mutex<Kernel>>,
}

impl Fake {
    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().expect("no test panics while it holds this")
    }
}

struct FakePlan {
    full: bool,
    ports: Vec<ServicePortName>,
    to: Generation,
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
        Vec::new()
    }

    fn operations(&self) -> usize {
        self.ports.len()
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
    type Belief = Generation;
    type Error = Refusal;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn family(&self) -> IpFamily {
        self.family
    }

    fn probe(&mut self) -> Result<Capabilities, Refusal> {
        self.kernel().calls.push(Call::Other("probe"));
        Ok(Capabilities {
            protocols: Vec::new(),
            session_affinity: true,
            source_ranges: true,
            localhost_node_ports: true,
            reject: true,
            partial_sync: true,
            atomicity: Atomicity::Whole,
            check: false,
            requirements: Vec::new(),
        })
    }

    fn render(&self, input: RenderInput<'_, Generation>) -> FakePlan {
        let partial = input.belief.is_some_and(|b| Some(*b) == input.changes.base);
        let names: Vec<ServicePortName> = if partial {
            input.changes.ports.iter().map(|c| c.name.clone()).collect()
        } else {
            input.snapshot.ports().map(|p| p.name.clone()).collect()
        };
        let ports = names.into_iter().filter(|n| !input.set_aside.contains_key(n)).collect();
        FakePlan { full: !partial, ports, to: input.snapshot.generation() }
    }

    fn check(&mut self, _: &FakePlan) -> Result<(), Refusal> {
        self.kernel().calls.push(Call::Other("check"));
        Ok(())
    }

    fn apply(
        &mut self,
        plan: FakePlan,
        told: ProgressSink<'_>,
    ) -> Result<(Generation, ApplyReport), Refusal> {
        told(Progress { ports: 0, ports_all: plan.ports.len(), steps: 1, steps_all: 2 });
        let mut kernel = self.kernel();
        kernel.calls.push(Apply(self.family, plan.full, plan.ports.len()));
        if let Some(class) = kernel.failures.pop_front() {
            return Err(Refusal(class, Vec::new()));
        }
        let bad = |p: &&ServicePortName| kernel.poison.contains(&*p.service.name);
        let refuse = |p: &ServicePortName| Refused { port: p.clone(), reason: "EINVAL".into() };
        let refused: Vec<Refused> = plan.ports.iter().filter(bad).map(refuse).collect();
        if !refused.is_empty() {
            return Err(Refusal(RetryClass::Bug, refused));
        }
        let follow_up = kernel.follow_up.take();
        Ok((plan.to, ApplyReport { operations: plan.ports.len(), follow_up, ..ApplyReport::default() }))
    }

    fn verify(&mut self, _: &Generation) -> Result<Drift, Refusal> {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        let mut kernel = self.kernel();
        kernel.calls.push(Verify(thread));
        kernel.findings.pop_front().unwrap_or_else(|| Ok(Drift::default()))
    }

    fn compare(&mut self, _: &Snapshot) -> Result<Drift, Refusal> {
        self.kernel().calls.push(Call::Other("compare"));
        Ok(Drift::default())
    }

    fn observer(&self) -> Self {
        self.clone()
    }

    fn cleanup(&mut self) -> Result<CleanupReport, Refusal> {
        self.kernel().calls.push(Call::Other("cleanup"));
        Ok(CleanupReport::default())
    }
}

struct Bench {
    kernel: Arc<Mutex<Kernel>>,
    now: Arc<AtomicU64>,
    sync: SyncLoop,
    sender: SyncSender<Message>,
    receiver: Receiver<Message>,
}

const VERIFY: Duration = Duration::from_secs(60);

impl Bench {
    fn new(families: &[IpFamily]) -> Self {
        Self::with_policy(families, Policy { verify_interval: Some(VERIFY), ..Policy::default() })
    }

    fn with_policy(families: &[IpFamily], policy: Policy) -> Self {
        let kernel = Arc::<Mutex<Kernel>>::default();
        let instance = |family: &IpFamily| -> Box<dyn Instance> {
            Box::new(Driver::new(Fake { family: *family, kernel: Arc::clone(&kernel) }))
        };
        let instances = families.iter().map(instance).collect();
        let (sender, receiver) = sync_channel(1024);
        let now = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&now);
        let world = World::new(NodeName::new("n1"), TrafficOptions::default(), NodeOverrides::default());
        let clock = Box::new(move || Duration::from_millis(clock.load(Ordering::SeqCst)));
        let sync = SyncLoop::with_clock(world, instances, policy, sender.clone(), clock);
        Self { kernel, now, sync, sender, receiver }
    }

    /// One that has written these services.
    fn running(services: u8) -> Self {
        let mut bench = Self::new(&[IpFamily::Ipv4]);
        let mut events: Vec<SourceEvent> = (1..=services).map(|i| service(&format!("s{i}"), i)).collect();
        events.push(SourceEvent::Synced);
        assert_eq!(bench.step([Message::Events(events)]), [Apply(IpFamily::Ipv4, true, services.into())]);
        bench
    }

    fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).expect("short");
        self.now.fetch_add(millis, Ordering::SeqCst);
    }

    /// Lets the loop take in these messages and do what is due; returns what it asked of the kernel.
    fn step(&mut self, messages: impl IntoIterator<Item = Message>) -> Vec<Call> {
        for message in messages {
            self.sender.send(message).expect("room");
        }
        let first = self.receiver.try_recv().ok();
        assert!(self.sync.step(first, &self.receiver).is_continue(), "the loop ended");
        self.calls()
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.kernel().calls)
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().expect("no test panics while it holds this")
    }

    /// Orders so many comparisons at once; what the thread that compares reports. It has to wait until the loop has taken them all in,
    /// which would take in the report as well.
    fn ordered_comparison(&mut self, orders: usize) -> Message {
        let kernel = Arc::clone(&self.kernel);
        let held = kernel.lock().expect("no test panics while it holds this");
        for _ in 0..orders {
            self.sender.send(Message::Ordered(Order::Verify)).expect("room");
        }
        let first = self.receiver.try_recv().ok();
        assert!(self.sync.step(first, &self.receiver).is_continue(), "the loop ended");
        drop(held);
        self.comparison()
    }

    /// What the thread that compares reports.
    fn comparison(&self) -> Message {
        self.receiver.recv_timeout(Duration::from_secs(30)).expect("a result")
    }
}

fn service(name: &str, number: u8) -> SourceEvent {
    upsert(name, &format!("10.96.0.{number}"), "IPv4")
}

fn upsert(name: &str, cluster_ip: &str, family: &str) -> SourceEvent {
    let object = json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ipFamilies": [family], "ports": [{"port": 80}]},
    });
    SourceEvent::Upsert(Object::Service(Box::new(serde_json::from_value(object).expect("a service"))))
}

fn gone(name: &str) -> SourceEvent {
    let key = ObjectKey { kind: ObjectKind::Service, namespace: "default".into(), name: name.into() };
    SourceEvent::Delete { key, service: None }
}

fn drift() -> Result<Drift, Refusal> {
    Ok(Drift { items: vec![DriftItem::Missing("something".into())] })
}

fn full(ports: usize) -> Vec<Call> {
    vec![Apply(IpFamily::Ipv4, true, ports)]
}

fn partial(ports: usize) -> Vec<Call> {
    vec![Apply(IpFamily::Ipv4, false, ports)]
}

/// Cases: core-11.62
#[test]
fn nothing_is_written_before_the_first_complete_list() {
    let mut bench = Bench::new(&[IpFamily::Ipv4]);
    assert_eq!(bench.step([Message::Events(vec![service("a", 1)])]), []);
    assert_eq!(bench.sync.timeout(), None, "it waits for the source alone");
    bench.pass(VERIFY * 2);
    assert_eq!(bench.step([Message::Events(vec![service("b", 2)])]), []);
    assert_eq!(bench.step([Message::Events(vec![SourceEvent::Synced])]), full(2));
    assert_eq!(bench.sync.timeout(), Some(VERIFY));
}

#[test]
fn a_cluster_without_services_is_written_too() {
    let mut bench = Bench::new(&[IpFamily::Ipv4]);
    assert_eq!(bench.step([Message::Events(vec![SourceEvent::Synced])]), full(0));
}

#[test]
fn a_burst_is_one_sync() {
    let mut bench = Bench::running(1);
    let burst = (2..=51).map(|i| Message::Events(vec![service(&format!("s{i}"), i)]));
    assert_eq!(bench.step(burst), partial(50));
}

#[test]
fn what_is_taken_back_within_a_burst_is_not_written() {
    let mut bench = Bench::running(1);
    let burst = [service("a", 9), gone("a"), service("s1", 9), service("s1", 1)];
    assert_eq!(bench.step(burst.map(|e| Message::Events(vec![e]))), []);
}

#[test]
fn a_flood_does_not_keep_the_kernel_waiting() {
    let mut bench = Bench::running(1);
    let one = |i| upsert(&format!("f{i}"), &format!("10.97.{}.{}", i / 256, i % 256), "IPv4");
    let flood = (0..MAX_BATCHES + 1).map(|i| Message::Events(vec![one(i)]));
    assert_eq!(bench.step(flood), partial(MAX_BATCHES));
    assert_eq!(bench.step([]), partial(1), "the rest follows");
}

#[test]
fn a_family_that_a_change_does_not_concern_is_left_alone() {
    let mut bench = Bench::new(&IpFamily::ALL);
    let six = upsert("six", "fd00::1", "IPv6");
    let events = vec![service("four", 1), six, SourceEvent::Synced];
    let calls = bench.step([Message::Events(events)]);
    assert_eq!(calls, [Apply(IpFamily::Ipv4, true, 1), Apply(IpFamily::Ipv6, true, 1)]);
    let calls = bench.step([Message::Events(vec![upsert("six", "fd00::2", "IPv6")])]);
    assert_eq!(calls, [Apply(IpFamily::Ipv6, false, 1)]);
}

#[test]
fn a_change_never_reads_the_kernel() {
    let mut bench = Bench::running(3);
    let mut asked = Vec::new();
    for i in 0..20 {
        asked.extend(bench.step([Message::Events(vec![service("s1", 100 + i)])]));
        bench.pass(Duration::from_millis(1));
    }
    assert_eq!(asked, vec![Apply(IpFamily::Ipv4, false, 1); 20]);
}

/// Cases: report-C6-71
#[test]
fn the_kernel_is_read_when_it_is_time_and_on_another_thread() {
    let mut bench = Bench::running(1);
    bench.pass(VERIFY - Duration::from_millis(1));
    assert_eq!(bench.step([]), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.sync.timeout(), Some(Duration::ZERO));
    let mut calls = bench.step([]);
    let result = bench.comparison();
    calls.extend(bench.calls());
    assert_eq!(calls, [Verify("verify-IPv4".to_owned())]);
    assert_eq!(bench.sync.timeout(), None, "one comparison at a time");
    assert_eq!(bench.step([result]), [], "all in order");
    assert_eq!(bench.sync.timeout(), Some(VERIFY), "and the next one an interval later");
}

#[test]
fn a_change_does_not_wait_for_a_comparison() {
    let mut bench = Bench::running(1);
    bench.pass(VERIFY);
    bench.step([]);
    let result = bench.comparison();
    bench.calls();
    assert_eq!(bench.step([Message::Events(vec![service("s1", 7)])]), partial(1));
    assert_eq!(bench.step([result]), []);
}

#[test]
fn drift_is_repaired_in_full() {
    let mut bench = Bench::running(2);
    bench.kernel().findings.push_back(drift());
    bench.pass(VERIFY);
    bench.step([]);
    let result = bench.comparison();
    bench.calls();
    assert_eq!(bench.step([result]), full(2));
    assert_eq!(bench.sync.timeout(), Some(VERIFY));
}

#[test]
fn drift_of_a_generation_that_is_past_is_not_believed() {
    let mut bench = Bench::running(2);
    bench.kernel().findings.push_back(drift());
    bench.pass(VERIFY);
    bench.step([]);
    let result = bench.comparison();
    bench.calls();
    assert_eq!(bench.step([Message::Events(vec![service("s1", 9)])]), partial(1));
    assert_eq!(bench.step([result]), []);
    assert_eq!(bench.sync.timeout(), Some(VERIFY), "it is looked at again in time");
}

#[test]
fn a_kernel_that_cannot_be_read_is_read_again_later() {
    let mut bench = Bench::running(1);
    bench.kernel().findings.push_back(Err(Refusal(RetryClass::Transient, Vec::new())));
    bench.pass(VERIFY);
    bench.step([]);
    let result = bench.comparison();
    bench.calls();
    assert_eq!(bench.step([result]), []);
    assert_eq!(bench.sync.timeout(), Some(VERIFY));
}

#[test]
fn an_operator_may_ask_for_a_sync_or_a_comparison() {
    let mut bench = Bench::new(&[IpFamily::Ipv4]);
    let orders = || [Order::Sync, Order::Verify].map(Message::Ordered);
    assert_eq!(bench.step(orders()), [], "not before the first complete list");
    let mut bench = Bench::running(2);
    assert_eq!(bench.step([Message::Ordered(Order::Sync)]), full(2));
    assert_eq!(bench.step([]), [], "once");
    let comparison = bench.ordered_comparison(2);
    bench.step([comparison]);
    assert!(bench.receiver.try_recv().is_err(), "one comparison at a time");
    bench.ordered_comparison(1);
    assert_eq!(bench.calls(), [Verify("verify-IPv4".to_owned())]);
}

/// Cases: core-11.61, report-C3-31
#[test]
fn a_failure_is_tried_again_in_full_and_loses_nothing() {
    let mut bench = Bench::running(2);
    // a partial plan that fails transiently, then each retry
    bench.kernel().failures.extend([RetryClass::Transient; 3]);
    assert_eq!(bench.step([Message::Events(vec![service("s1", 9)])]), partial(1));
    assert_eq!(bench.sync.timeout(), Some(Duration::from_millis(500)));
    assert_eq!(bench.step([]), [], "not before its time");
    bench.pass(Duration::from_millis(500));
    assert_eq!(bench.step([]), full(2));
    assert_eq!(bench.sync.timeout(), Some(Duration::from_secs(1)), "longer each time");
    assert_eq!(bench.step([Message::Events(vec![service("s3", 3)])]), full(3), "a change does not wait");
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.step([]), full(3));
    assert_eq!(bench.sync.timeout(), Some(VERIFY), "done");
    assert_eq!(bench.step([Message::Events(vec![service("s1", 10)])]), partial(1));
}

#[test]
fn the_first_sync_may_fail_for_long_without_a_busy_loop() {
    let policy = Policy { verify_interval: Some(Duration::from_millis(100)), ..Policy::default() };
    let mut bench = Bench::with_policy(&[IpFamily::Ipv4], policy);
    bench.kernel().failures.push_back(RetryClass::Transient);
    assert_eq!(bench.step([Message::Events(vec![service("a", 1), SourceEvent::Synced])]), full(1));
    // There is nothing to compare with yet.
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.step([]), []);
    assert_eq!(bench.sync.timeout(), Some(Duration::from_millis(100)));
    bench.pass(Duration::from_millis(400));
    assert_eq!(bench.step([]), full(1));
}

/// Cases: report-C3-41
#[test]
fn a_refused_service_port_is_set_aside_and_tried_again() {
    let mut bench = Bench::running(2);
    bench.kernel().poison.insert("bad".into());
    let calls = bench.step([Message::Events(vec![service("bad", 8), service("good", 9)])]);
    assert_eq!(calls.first(), partial(2).first());
    assert_eq!(calls.last(), full(3).last(), "in the end all but the one");
    assert_eq!(bench.sync.timeout(), Some(Duration::from_millis(500)));
    bench.kernel().poison.clear();
    bench.pass(Duration::from_millis(500));
    assert_eq!(bench.step([]), full(4));
    assert_eq!(bench.sync.timeout(), Some(VERIFY));
}

/// Cases: nftables-12.8
#[test]
fn leftovers_are_removed_when_the_backend_says() {
    let mut bench = Bench::running(2);
    bench.kernel().follow_up = Some(Duration::from_secs(5));
    assert_eq!(bench.step([Message::Events(vec![gone("s2")])]), partial(1));
    assert_eq!(bench.sync.timeout(), Some(Duration::from_secs(5)));
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.step([]), partial(0));
    assert_eq!(bench.sync.timeout(), Some(VERIFY));
}

#[test]
fn syncs_keep_their_distance() {
    let policy = Policy { min_interval: Duration::from_secs(1), ..Policy::default() };
    let mut bench = Bench::with_policy(&[IpFamily::Ipv4], policy);
    assert_eq!(bench.step([Message::Events(vec![service("a", 1), SourceEvent::Synced])]), full(1));
    assert_eq!(bench.step([Message::Events(vec![service("a", 2)])]), []);
    assert_eq!(bench.sync.timeout(), Some(Duration::from_secs(1)));
    assert_eq!(bench.step([Message::Events(vec![service("b", 3)])]), []);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.step([]), partial(2));
}

#[test]
fn stopping_leaves_the_kernel_as_it_is() {
    let bench = Bench::running(2);
    for message in [Message::Events(vec![gone("s1")]), Message::Stop] {
        bench.sender.send(message).expect("room");
    }
    let kernel = Arc::clone(&bench.kernel);
    assert!(bench.sync.run(&bench.receiver).is_ok());
    assert_eq!(kernel.lock().expect("unharmed").calls, []);
}

#[test]
fn a_source_that_cannot_go_on_ends_the_loop_and_is_told() {
    let bench = Bench::running(1);
    let error = SourceError::Closed(crate::source::SinkClosed);
    bench.sender.send(Message::SourceEnded(Err(error))).expect("room");
    let kernel = Arc::clone(&bench.kernel);
    assert!(matches!(bench.sync.run(&bench.receiver), Err(SourceError::Closed(_))));
    assert_eq!(kernel.lock().expect("unharmed").calls, []);
}

#[test]
fn the_service_manager_hears_how_far_the_loop_is() {
    use std::os::unix::net::UnixDatagram;

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_nonblocking(true).expect("set");
    let heard = || {
        let mut buffer = [0; 256];
        let next =
            || manager.recv(&mut buffer).ok().map(|n| String::from_utf8_lossy(&buffer[..n]).into_owned());
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    let mut bench = Bench::new(&[IpFamily::Ipv4, IpFamily::Ipv6]);
    let other = Bench::new(&[]);
    let loop_ = std::mem::replace(&mut bench.sync, other.sync);
    bench.sync = loop_.telling(Notifier::at(&path.into_os_string()).expect("a path"));
    bench.kernel().failures.push_back(RetryClass::Transient);
    bench.step([Message::Settings(Box::new(settings(Policy::default())))]);
    assert_eq!(heard(), [""; 0], "a reload before the rules are in force does not make it ready");
    bench.step([Message::Events(vec![service("a", 1), SourceEvent::Synced])]);
    let first = heard();
    assert!(first.contains(&"STATUS=fake IPv4: 0 of 1 service ports written".to_owned()), "{first:?}");
    assert!(!first.iter().any(|m| m.starts_with("READY=1")), "one family failed: {first:?}");
    bench.pass(Duration::from_secs(30));
    bench.step([]);
    let second = heard();
    let ready = "READY=1\nSTATUS=fake: 1 IPv4 service ports, 0 IPv6 service ports in force";
    assert_eq!(second.iter().filter(|m| *m == ready).count(), 1, "{second:?}");
    bench.step([Message::Events(vec![service("b", 2)])]);
    assert!(!heard().iter().any(|m| m.starts_with("READY=1")), "told once");
    bench.step([Message::Settings(Box::new(settings(Policy::default())))]);
    assert_eq!(
        heard(),
        ["READY=1\nSTATUS=the configuration was read again"],
        "whoever asked for a reload waits"
    );
}

#[test]
fn what_other_backends_left_goes_once_all_is_in_force() {
    let mut bench = Bench::new(&[IpFamily::Ipv4]);
    let left = Arc::<Mutex<Kernel>>::default();
    let fake = Fake { family: IpFamily::Ipv4, kernel: Arc::clone(&left) };
    let other = Bench::new(&[]);
    let loop_ = std::mem::replace(&mut bench.sync, other.sync);
    bench.sync = loop_.clearing(vec![Box::new(Driver::new(fake))]);
    let asked = || left.lock().expect("no test panics while it holds this").calls.clone();
    bench.kernel().failures.push_back(RetryClass::Transient);
    bench.step([Message::Events(vec![service("a", 1), SourceEvent::Synced])]);
    assert_eq!(asked(), [], "the rules are not in force");
    bench.pass(Duration::from_secs(30));
    bench.step([]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while asked().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    bench.step([Message::Events(vec![service("b", 2)])]);
    assert_eq!(asked(), [Call::Other("cleanup")], "once");
}

/// Writes down what it is told.
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().expect("no test panics while it holds this").push(line);
    }
}

impl Observer for Diary {
    fn events(&mut self, events: &[SourceEvent]) {
        self.note(format!("{} events", events.len()));
    }

    fn decided(&mut self) {
        self.note("decided".to_owned());
    }

    fn committed(&mut self, commit: &proxier_core::cluster::Commit) {
        self.note(format!("committed {}", commit.snapshot(IpFamily::Ipv4).len()));
    }

    fn queued(&mut self, family: IpFamily) {
        self.note(format!("queued {family}"));
    }

    fn synced(&mut self, synced: &Synced<'_>) {
        let Synced { backend, family, kind, before, snapshot, .. } = synced;
        let before = before.map(Snapshot::len);
        self.note(format!("synced {backend} {family} {kind} {before:?} -> {}", snapshot.len()));
    }

    fn failed(&mut self, failed: &Failed<'_>) {
        self.note(format!("failed {} {} {}", failed.family, failed.kind, failed.error.class));
    }

    fn verified(&mut self, _backend: &'static str, family: IpFamily, differences: usize) {
        self.note(format!("verified {family} {differences}"));
    }

    fn stopping(&mut self) {
        self.note("stopping".to_owned());
    }
}

#[test]
fn whoever_follows_the_loop_is_told_everything_in_order() {
    let mut bench = Bench::new(&[IpFamily::Ipv4]);
    let said = Arc::<Mutex<Vec<String>>>::default();
    bench.sync = bench.sync.observed_by(Box::new(Diary(Arc::clone(&said))));
    let told = || std::mem::take(&mut *said.lock().expect("no test panics while it holds this"));
    bench.step([Message::Events(vec![service("a", 1)])]);
    assert_eq!(told(), ["1 events", "decided"], "nothing is asked for before the first complete list");
    bench.step([Message::Events(vec![SourceEvent::Synced])]);
    assert_eq!(
        told(),
        ["1 events", "committed 1", "queued IPv4", "decided", "synced fake IPv4 full None -> 1"]
    );
    // Refused as a difference and as a whole: the sync fails, and the retry goes in.
    bench.kernel().failures = [RetryClass::Transient].into();
    bench.step([Message::Events(vec![service("b", 2)])]);
    assert_eq!(
        told(),
        ["1 events", "committed 2", "queued IPv4", "decided", "failed IPv4 partial transient"]
    );
    bench.pass(Duration::from_secs(1));
    bench.step([]);
    assert_eq!(told(), ["decided", "synced fake IPv4 full Some(1) -> 2"]);
    bench.kernel().findings = [drift()].into();
    bench.pass(VERIFY);
    bench.step([]);
    assert_eq!(told(), ["decided"]);
    let comparison = bench.comparison();
    bench.step([comparison]);
    assert_eq!(told(), ["verified IPv4 1", "queued IPv4", "decided", "synced fake IPv4 full Some(2) -> 2"]);
    bench.sender.send(Message::Stop).expect("room");
    bench.sync.run(&bench.receiver).expect("told to stop");
    assert_eq!(told(), ["stopping"]);
}

fn settings(policy: Policy) -> Settings {
    Settings { traffic: TrafficOptions::default(), node: NodeOverrides::default(), policy }
}

#[test]
fn settings_that_are_the_same_write_nothing() {
    let policy = Policy { verify_interval: Some(VERIFY), ..Policy::default() };
    let mut bench = Bench::running(3);
    bench.pass(Duration::from_secs(1));
    let before = bench.sync.timeout();
    assert_eq!(bench.step([Message::Settings(Box::new(settings(policy)))]), []);
    assert_eq!(bench.sync.timeout(), before);
}

#[test]
fn settings_that_differ_are_written_as_a_difference() {
    let policy = Policy { verify_interval: Some(VERIFY), ..Policy::default() };
    let mut bench = Bench::running(3);
    let mut other = settings(policy);
    other.traffic.service_cidrs = vec!["10.96.0.0/16".parse().expect("a range")];
    assert_eq!(
        bench.step([Message::Settings(Box::new(other.clone()))]),
        partial(0),
        "no service port differs"
    );
    other.policy.verify_interval = None;
    assert_eq!(bench.step([Message::Settings(Box::new(other))]), []);
    assert_eq!(bench.sync.timeout(), None, "nothing is compared any more");
}

#[test]
fn addresses_that_come_and_go_are_taken_over_at_once() {
    let mut bench = Bench::new(&[IpFamily::Ipv4]);
    let policy = Policy { verify_interval: Some(VERIFY), ..Policy::default() };
    let mut own = settings(policy);
    own.traffic.node_port_addresses =
        proxier_core::cluster::NodePortSelector::Cidrs(vec!["192.0.2.0/24".parse().expect("a range")]);
    bench.step([
        Message::Settings(Box::new(own)),
        Message::Events(vec![service("a", 1), SourceEvent::Synced]),
    ]);
    let address = |ip: &str| ("eth0".to_owned(), ip.parse().expect("an address"));
    assert_eq!(bench.step([Message::Addresses(vec![address("192.0.2.1")])]), partial(0));
    assert_eq!(bench.step([Message::Addresses(vec![address("192.0.2.1")])]), [], "the same again");
    let services = (crate::world::SERVICES_INTERFACE.to_owned(), "192.0.2.9".parse().expect("an address"));
    assert_eq!(
        bench.step([Message::Addresses(vec![address("192.0.2.1"), services])]),
        [],
        "none of the host's"
    );
}
