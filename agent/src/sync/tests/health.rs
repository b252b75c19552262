//! What health says of the loop.

use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::health::{Follower, Health, Moment, State};

/// Late after twice this.
const PERIOD: Duration = Duration::from_secs(30);

/// Lets health follow the loop, on the same clock.
fn followed(mut bench: Bench, families: &[IpFamily]) -> (Bench, Arc<Health>) {
    let now = Arc::clone(&bench.now);
    let clock = Box::new(move || {
        let since = Duration::from_millis(now.load(Ordering::SeqCst));
        Moment { since, wall: Timestamp::UNIX_EPOCH + since }
    });
    let health = Arc::new(Health::with_clock(State::new(PERIOD, false), clock));
    health.started(families);
    let follower = Follower::new(Arc::clone(&health), Arc::default(), NodeName::new("n1"), families.to_vec());
    bench.sync = bench.sync.observed_by(Box::new(follower));
    (bench, health)
}

/// As the daemon does it.
fn hand_over(health: &Health, events: Vec<SourceEvent>) -> Message {
    health.handed_over();
    Message::Events(events)
}

fn node(zone: &str) -> SourceEvent {
    let labels = if zone.is_empty() { json!({}) } else { json!({"topology.kubernetes.io/zone": zone}) };
    let node = json!({"metadata": {"name": "n1", "labels": labels}});
    SourceEvent::Upsert(Object::Node(Box::new(serde_json::from_value(node).expect("a Node"))))
}

/// Cases: core-11.61, report-C6-62
#[test]
fn a_sync_that_fails_for_two_periods_is_late_until_it_goes_in() {
    let (mut bench, health) = followed(Bench::running(1), &[IpFamily::Ipv4]);
    bench.kernel().failures = vec![RetryClass::Transient; 1000].into();
    let message = hand_over(&health, vec![service("a", 2)]);
    bench.pass(Duration::from_secs(1));
    bench.step([message]);
    for _ in 0..58 {
        bench.pass(Duration::from_secs(1));
        bench.step([]);
        assert!(health.is_healthy());
    }
    bench.pass(Duration::from_secs(1));
    bench.step([]);
    assert!(!health.is_healthy(), "two periods after it was handed over");
    bench.kernel().failures.clear();
    bench.pass(PERIOD);
    assert!(!health.is_healthy(), "it is still not in the kernel");
    bench.step([]);
    assert!(health.is_healthy());
}

#[test]
fn a_loop_that_takes_nothing_is_late() {
    let (mut bench, health) = followed(Bench::running(1), &[IpFamily::Ipv4]);
    let message = hand_over(&health, vec![service("a", 2)]);
    bench.pass(PERIOD * 2);
    assert!(!health.is_healthy());
    bench.step([message]);
    assert!(health.is_healthy());
    // What changes nothing is not waited for.
    let message = hand_over(&health, vec![service("a", 2)]);
    assert_eq!(bench.step([message]), []);
    bench.pass(PERIOD * 2);
    assert!(health.is_healthy());
}

/// Cases: core-11.53
#[test]
fn one_family_that_fails_is_enough() {
    let families = [IpFamily::Ipv4, IpFamily::Ipv6];
    let (mut bench, health) = followed(Bench::new(&families), &families);
    let message = hand_over(&health, vec![service("four", 1), SourceEvent::Synced]);
    bench.step([message]);
    bench.kernel().failures = vec![RetryClass::Transient].into();
    let message = hand_over(&health, vec![service("four", 2)]);
    bench.step([message]);
    bench.pass(PERIOD * 2);
    bench.kernel().failures = vec![RetryClass::Transient].into();
    let message = hand_over(&health, vec![upsert("six", "fd00::1", "IPv6")]);
    let calls = bench.step([message]);
    assert_eq!(calls, [Apply(IpFamily::Ipv4, true, 1), Apply(IpFamily::Ipv6, false, 1)]);
    assert!(!health.is_healthy(), "the other family's success does not help");
    bench.pass(PERIOD);
    bench.step([]);
    assert!(health.is_healthy());
}

/// Cases: core-11.52
#[test]
fn before_the_first_complete_list_only_a_zone_is_waited_for() {
    for (zone, healthy) in [("", true), ("zone-a", false)] {
        let (mut bench, health) = followed(Bench::new(&[IpFamily::Ipv4]), &[IpFamily::Ipv4]);
        let message = hand_over(&health, vec![node(zone), service("a", 1)]);
        assert_eq!(bench.step([message]), []);
        assert!(health.is_healthy());
        bench.pass(PERIOD * 2);
        assert_eq!(health.is_healthy(), healthy, "{zone:?}");
        let message = hand_over(&health, vec![SourceEvent::Synced]);
        bench.step([message]);
        assert!(health.is_healthy(), "{zone:?}");
    }
}

#[test]
fn what_the_kernel_refuses_of_one_service_is_no_matter_of_health() {
    let (mut bench, health) = followed(Bench::running(1), &[IpFamily::Ipv4]);
    bench.kernel().poison.insert("bad".to_owned());
    let message = hand_over(&health, vec![service("bad", 2), service("good", 3)]);
    bench.step([message]);
    bench.pass(PERIOD * 2);
    assert!(health.is_healthy());
}

#[test]
fn a_difference_that_cannot_be_repaired_is_late() {
    let (mut bench, health) = followed(Bench::running(1), &[IpFamily::Ipv4]);
    bench.kernel().findings = [drift()].into();
    bench.kernel().failures = vec![RetryClass::Transient; 1000].into();
    bench.pass(VERIFY);
    bench.step([]);
    let found = bench.comparison();
    bench.step([found]);
    assert!(health.is_healthy());
    bench.pass(PERIOD * 2);
    assert!(!health.is_healthy());
    bench.kernel().failures.clear();
    bench.step([]);
    assert!(health.is_healthy());
}

#[test]
fn another_sync_period_is_another_patience() {
    let (mut bench, health) = followed(Bench::running(1), &[IpFamily::Ipv4]);
    let policy = Policy { retry_max: PERIOD * 4, ..Policy::default() };
    bench.step([Message::Settings(Box::new(settings(policy)))]);
    let message = hand_over(&health, vec![service("a", 2)]);
    bench.pass(PERIOD * 7);
    assert!(health.is_healthy());
    bench.pass(PERIOD);
    assert!(!health.is_healthy());
    bench.step([message]);
    assert!(health.is_healthy());
}
