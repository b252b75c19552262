//! Timelines (core spec 6.3).

use super::*;

const DONE: Outcome = Outcome::Done { follow_up: None, incomplete: false };

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

fn policy(min: f64, retry: f64, max: f64) -> Policy {
    Policy {
        min_interval: secs(min),
        retry_initial: secs(retry),
        retry_max: secs(max),
        verify_interval: None,
    }
}

/// Ready, and through its first sync at time 0.
fn started(policy: Policy) -> Reconciler {
    let mut r = Reconciler::new(policy);
    r.ready();
    assert_eq!(r.next(Duration::ZERO), Action::Sync(SyncKind::Full));
    r.started();
    r.finished(Duration::ZERO, DONE);
    r
}

/// Cases: core-11.62
#[test]
fn edge_62_nothing_happens_before_the_lists_are_complete() {
    let mut r = Reconciler::new(policy(0.0, 1.0, 30.0));
    r.request(SyncKind::Partial);
    r.request(SyncKind::Full);
    assert_eq!(r.next(secs(1e6)), Action::Wait(None));
    r.ready();
    assert_eq!(r.next(secs(1e6)), Action::Sync(SyncKind::Full));
}

/// Cases: core-11.60
#[test]
fn edge_60_a_request_runs_at_once_and_those_that_follow_share_one_run() {
    let mut r = started(policy(1.0, 5.0, 30.0));
    assert_eq!(r.next(secs(100.0)), Action::Wait(None));
    r.request(SyncKind::Partial);
    assert_eq!(r.next(secs(100.0)), Action::Sync(SyncKind::Partial));
    r.started();
    for _ in 0..99 {
        r.request(SyncKind::Partial);
    }
    r.finished(secs(100.2), DONE);
    assert_eq!(r.next(secs(100.5)), Action::Wait(Some(secs(101.2))), "min counts from the end of the run");
    assert_eq!(r.next(secs(101.2)), Action::Sync(SyncKind::Partial));
    r.started();
    r.finished(secs(101.3), DONE);
    assert_eq!(r.next(secs(200.0)), Action::Wait(None));
}

#[test]
fn without_a_minimum_one_change_goes_out_at_once() {
    let mut r = started(policy(0.0, 1.0, 30.0));
    r.request(SyncKind::Partial);
    assert_eq!(r.next(Duration::ZERO), Action::Sync(SyncKind::Partial));
}

/// Cases: core-11.61
#[test]
fn a_failure_is_retried_in_full_with_growing_delays() {
    let mut r = started(policy(0.0, 0.5, 3.0));
    r.request(SyncKind::Partial);
    let mut now = 10.0;
    for delay in [0.5, 1.0, 2.0, 3.0, 3.0] {
        r.started();
        r.finished(secs(now), Outcome::Failed);
        assert_eq!(r.next(secs(now)), Action::Wait(Some(secs(now + delay))));
        now += delay;
        assert_eq!(r.next(secs(now)), Action::Sync(SyncKind::Full));
    }
    assert_eq!(r.failures(), 5);
    r.started();
    r.finished(secs(now), DONE);
    assert_eq!((r.failures(), r.next(secs(now + 100.0))), (0, Action::Wait(None)));
}

#[test]
fn a_request_after_a_failure_does_not_wait_for_the_retry_and_its_success_cancels_it() {
    let mut r = started(policy(1.0, 5.0, 5.0));
    r.request(SyncKind::Partial);
    r.started();
    r.finished(secs(10.0), Outcome::Failed);
    r.request(SyncKind::Partial);
    assert_eq!(r.next(secs(10.5)), Action::Wait(Some(secs(11.0))));
    assert_eq!(r.next(secs(11.0)), Action::Sync(SyncKind::Partial));
    r.started();
    r.finished(secs(11.0), DONE);
    assert_eq!(r.next(secs(15.0)), Action::Wait(None));
}

#[test]
fn a_retry_shorter_than_the_minimum_waits_for_the_minimum() {
    let mut r = started(policy(5.0, 1.0, 30.0));
    r.request(SyncKind::Partial);
    r.started();
    r.finished(secs(10.0), Outcome::Failed);
    assert_eq!(r.next(secs(12.0)), Action::Wait(Some(secs(15.0))));
    assert_eq!(r.next(secs(15.0)), Action::Sync(SyncKind::Full));
}

#[test]
fn leftovers_and_service_ports_set_aside_bring_it_back() {
    let mut r = started(policy(0.0, 2.0, 30.0));
    r.request(SyncKind::Partial);
    r.started();
    r.finished(secs(10.0), Outcome::Done { follow_up: Some(secs(1.0)), incomplete: false });
    assert_eq!(r.next(secs(11.0)), Action::Sync(SyncKind::Partial));
    r.started();
    r.finished(secs(11.0), Outcome::Done { follow_up: None, incomplete: true });
    assert_eq!(r.next(secs(12.0)), Action::Wait(Some(secs(13.0))));
    assert_eq!(r.next(secs(13.0)), Action::Sync(SyncKind::Full));
}

#[test]
fn verification_runs_when_idle_and_drift_asks_for_a_full_sync() {
    let mut r = started(Policy { verify_interval: Some(secs(60.0)), ..policy(0.0, 1.0, 30.0) });
    assert_eq!(r.next(secs(59.0)), Action::Wait(Some(secs(60.0))));
    assert_eq!(r.next(secs(60.0)), Action::Verify);
    r.request(SyncKind::Partial);
    assert_eq!(r.next(secs(60.0)), Action::Sync(SyncKind::Partial), "a change does not wait for it");
    r.started();
    r.finished(secs(61.0), DONE);
    assert_eq!(r.next(secs(121.0)), Action::Verify);
    r.verified(secs(121.0), true);
    assert_eq!(r.next(secs(122.0)), Action::Wait(Some(secs(181.0))));
    r.verified(secs(181.0), false);
    assert_eq!(r.next(secs(181.0)), Action::Sync(SyncKind::Full));
}

#[test]
fn other_periods_hold_from_then_on_and_lose_nothing() {
    let mut r = started(policy(0.0, 1.0, 30.0));
    assert_eq!(r.next(secs(9.0)), Action::Wait(None), "no comparison");
    let watchful = Policy { verify_interval: Some(secs(60.0)), ..policy(5.0, 1.0, 30.0) };
    r.set_policy(secs(10.0), watchful);
    assert_eq!(r.next(secs(10.0)), Action::Wait(Some(secs(70.0))));
    r.set_policy(secs(20.0), watchful);
    assert_eq!(r.next(secs(20.0)), Action::Wait(Some(secs(70.0))), "the same again puts nothing off");
    r.request(SyncKind::Partial);
    assert_eq!(r.next(secs(20.0)), Action::Sync(SyncKind::Partial));
    r.started();
    r.finished(secs(20.0), Outcome::Failed);
    r.set_policy(secs(20.5), policy(0.0, 1.0, 30.0));
    assert_eq!(r.next(secs(20.5)), Action::Wait(Some(secs(21.0))), "the retry stays");
    assert_eq!(r.next(secs(21.0)), Action::Sync(SyncKind::Full));
}

#[test]
fn a_comparison_that_is_asked_for_comes_after_what_is_to_be_written_and_once() {
    let mut r = started(policy(0.0, 1.0, 30.0));
    assert_eq!(r.next(secs(5.0)), Action::Wait(None), "never by itself");
    r.verify_soon();
    r.request(SyncKind::Partial);
    assert_eq!(r.next(secs(5.0)), Action::Sync(SyncKind::Partial));
    r.started();
    r.finished(secs(5.0), DONE);
    assert_eq!(r.next(secs(5.0)), Action::Verify);
    r.verified(secs(6.0), true);
    assert_eq!(r.next(secs(1e6)), Action::Wait(None));
}
