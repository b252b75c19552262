use proxier_core::ids::IpFamily::{Ipv4, Ipv6};

use super::*;

/// Both families were updated at 0, and are late after 10 s.
fn state() -> State {
    let mut state = State::new(Duration::from_secs(5), true);
    state.set_node(NodeState::Stays);
    state.updated(Ipv4, moment(0));
    state.updated(Ipv6, moment(0));
    state
}

fn both(state: &State, at: u64) -> (u16, u16) {
    (state.healthz(moment(at)).0, state.livez(moment(at)).0)
}

/// Core spec 4.4.
#[test]
fn the_worked_timeline() {
    let mut state = state();
    assert_eq!(both(&state, 0), (200, 200));
    assert_eq!(both(&state, 25), (200, 200), "time alone makes nothing late");
    assert!(state.healthz(moment(25)).1.starts_with(r#"{"lastUpdated":"2025-01-01T00:00:25Z","#));
    state.queued(Ipv4, moment(25));
    assert_eq!(both(&state, 25), (200, 200));
    assert_eq!(both(&state, 34), (200, 200));
    assert_eq!(
        state.healthz(moment(35)),
        (
            503,
            r#"{"lastUpdated":"2025-01-01T00:00:00Z","currentTime":"2025-01-01T00:00:35Z","nodeEligible":true,"healthy":false,"status":{"IPv4":{"lastUpdated":"2025-01-01T00:00:00Z","healthy":false},"IPv6":{"lastUpdated":"2025-01-01T00:00:00Z","healthy":true}}}"#
                .to_owned()
        )
    );
    state.updated(Ipv6, moment(36));
    assert_eq!(both(&state, 36), (503, 503));
    assert!(state.livez(moment(36)).1.starts_with(r#"{"lastUpdated":"2025-01-01T00:00:36Z","#), "the newest");
    state.updated(Ipv4, moment(37));
    assert_eq!(both(&state, 37), (200, 200));
    state.set_node(NodeState::Leaves);
    assert_eq!(both(&state, 37), (503, 200));
    let (_, text) = state.healthz(moment(37));
    assert!(text.contains(r#""nodeEligible":false,"healthy":true,"#), "{text}");
    assert!(state.healthy(moment(37)), "what health check node ports ask");
}

/// Cases: core-11.53
#[test]
fn a_late_family_is_cured_by_its_own_update_alone() {
    let mut state = state();
    state.queued(Ipv4, moment(10));
    state.queued(Ipv4, moment(19));
    state.queued(Ipv6, moment(12));
    state.updated(Ipv6, moment(13));
    assert_eq!(both(&state, 20), (503, 503), "the oldest request counts");
    state.updated(Ipv6, moment(21));
    assert_eq!(both(&state, 21), (503, 503));
    state.set_sync_period(Duration::from_secs(30));
    assert_eq!(both(&state, 21), (200, 200), "another period, another patience");
    state.set_sync_period(Duration::from_secs(5));
    state.updated(Ipv4, moment(22));
    assert_eq!(both(&state, 22), (200, 200));
}

#[test]
fn a_family_that_was_never_reported_is_not_listed() {
    let mut state = State::new(Duration::from_secs(5), true);
    state.set_node(NodeState::Stays);
    state.queued(Ipv4, moment(0));
    let expected =
        r#"{"lastUpdated":"2025-01-01T00:01:00Z","currentTime":"2025-01-01T00:01:00Z","healthy":true}"#;
    assert_eq!(state.livez(moment(60)), (200, expected.to_owned()));
    state.set_node(NodeState::Leaves);
    let (status, text) = state.healthz(moment(60));
    assert_eq!(status, 503);
    assert!(text.starts_with(r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"#), "{text}");
    state.updated(Ipv6, moment(61));
    let (_, text) = state.livez(moment(61));
    assert!(
        text.ends_with(r#""status":{"IPv6":{"lastUpdated":"2025-01-01T00:01:01Z","healthy":true}}}"#),
        "{text}"
    );
}

#[test]
fn times_have_as_many_digits_as_they_need() {
    let state = state();
    let now =
        Moment { since: Duration::ZERO, wall: "2025-01-01T00:00:01.120000003Z".parse().expect("a time") };
    assert!(state.livez(now).1.contains(r#""currentTime":"2025-01-01T00:00:01.120000003Z""#));
    let now = Moment { since: Duration::ZERO, wall: "2025-01-01T00:00:01.5Z".parse().expect("a time") };
    assert!(state.livez(now).1.contains(r#""currentTime":"2025-01-01T00:00:01.5Z""#));
}

#[test]
fn an_unknown_node_is_eligible_only_where_no_node_is_needed() {
    for (required, status) in [(true, 503), (false, 200)] {
        let mut state = State::new(Duration::from_secs(5), required);
        assert_eq!(state.healthz(moment(0)).0, status);
        assert_eq!(state.livez(moment(0)).0, 200);
        state.set_node(NodeState::Stays);
        assert_eq!(state.healthz(moment(0)).0, 200);
    }
}

#[test]
fn what_is_handed_over_is_pending_before_anybody_looks_at_it() {
    let mut state = state();
    state.handed_over(moment(1));
    state.handed_over(moment(5));
    assert_eq!(both(&state, 10), (200, 200));
    assert_eq!(both(&state, 11), (503, 503), "nothing is taken in");
    assert_eq!(state.livez(moment(11)).1.matches(r#""healthy":false"#).count(), 3, "any family may be meant");
    state.taken();
    assert_eq!(both(&state, 11), (503, 503), "taken in, not decided upon");
    state.queued(Ipv4, moment(11));
    state.decided();
    assert_eq!(both(&state, 11), (503, 503), "late since it was handed over");
    state.updated(Ipv4, moment(12));
    assert_eq!(both(&state, 12), (200, 200));
    assert_eq!(both(&state, 15), (503, 503), "the second batch");
    state.taken();
    state.decided();
    assert_eq!(both(&state, 15), (200, 200), "it changed nothing");
    state.taken();
    assert_eq!(both(&state, 99), (200, 200), "nothing more was handed over");
}
