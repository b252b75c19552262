use super::*;

const DELAYS: Delays = Delays {
    retry: Bounds { first: Duration::from_millis(800), longest: Duration::from_secs(30) },
    absent: Duration::from_secs(300),
    steady: Duration::from_secs(10),
};
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(400);

struct Trip {
    course: Course,
    dice: Dice,
}

impl Trip {
    fn new(needed: bool) -> Self {
        Self { course: Course::new(needed, DELAYS), dice: Dice::seeded(7) }
    }

    /// A course that watches from version 10.
    fn watching() -> Self {
        let mut trip = Self::new(true);
        assert_eq!(trip.course.ask(), Ask::Stream);
        assert!(trip.course.marked("10"));
        trip
    }

    fn end(&mut self, end: End, lasted: Duration) -> Duration {
        self.course.ended(end, lasted, &mut self.dice)
    }

    fn fail(&mut self, fault: Fault) -> Duration {
        self.course.ask();
        self.end(End::Failed(fault), SHORT)
    }
}

fn page(token: Option<&str>, version: &str) -> End {
    End::Listed { version: version.into(), token: token.map(Into::into) }
}

fn watch(version: &str) -> Ask {
    Ask::Watch { version: version.into() }
}

fn refused() -> Fault {
    Fault::Refused("no".into())
}

fn broken() -> Fault {
    Fault::Broken("torn".into())
}

#[test]
fn a_streaming_list_becomes_the_watch() {
    let mut trip = Trip::new(true);
    assert_eq!(trip.course.ask(), Ask::Stream);
    trip.course.reached("7");
    assert!(!trip.course.listed(), "the versions of single objects say nothing");
    assert!(trip.course.marked("10"));
    assert!(trip.course.listed());
    assert!(!trip.course.marked("11"), "once");
    trip.course.reached("12");
    assert_eq!(trip.end(End::Closed, LONG), Duration::ZERO);
    assert_eq!(trip.course.ask(), watch("12"));
}

#[test]
fn a_server_without_streaming_lists_is_asked_for_pages_at_once() {
    let mut trip = Trip::new(true);
    assert_eq!(trip.fail(refused()), Duration::ZERO);
    assert_eq!(trip.course.ask(), Ask::Page { token: None });
    assert_eq!(trip.end(page(Some("a"), "10"), SHORT), Duration::ZERO);
    assert_eq!(trip.course.ask(), Ask::Page { token: Some("a".into()) });
    trip.end(page(Some("b"), "11"), SHORT);
    assert_eq!(trip.course.ask(), Ask::Page { token: Some("b".into()) });
    assert!(!trip.course.listed());
    trip.end(page(None, "12"), SHORT);
    assert!(trip.course.listed());
    assert_eq!(trip.course.ask(), watch("10"), "from the first page on, so that nothing is missed");
}

#[test]
fn a_stream_that_breaks_off_twice_is_no_way_to_list() {
    for (first, second) in
        [(End::Failed(broken()), End::Closed), (End::Closed, End::Failed(Fault::Silent(LONG)))]
    {
        let mut trip = Trip::new(true);
        trip.course.ask();
        trip.end(first, SHORT);
        assert_eq!(trip.course.ask(), Ask::Stream);
        trip.end(second, SHORT);
        assert_eq!(trip.course.ask(), Ask::Page { token: None });
    }
}

#[test]
fn an_expired_token_leads_to_the_whole_list() {
    for fault in [Fault::Expired, refused()] {
        let mut trip = Trip::new(true);
        trip.fail(refused());
        trip.course.ask();
        trip.end(page(Some("a"), "10"), SHORT);
        assert_eq!(trip.fail(fault), Duration::ZERO);
        let ask = trip.course.ask();
        assert_eq!(ask, Ask::Whole);
        assert!(ask.begins_list());
        trip.end(page(None, "20"), SHORT);
        assert_eq!(trip.course.ask(), watch("20"));
    }
}

#[test]
fn a_page_that_breaks_off_is_asked_for_again() {
    let mut trip = Trip::new(true);
    trip.fail(refused());
    trip.course.ask();
    trip.end(page(Some("a"), "10"), SHORT);
    for _ in 0..5 {
        trip.fail(broken());
        assert_eq!(trip.course.ask(), Ask::Page { token: Some("a".into()) });
    }
}

#[test]
fn a_list_that_is_refused_in_every_way_is_tried_again_with_a_delay() {
    let mut trip = Trip::new(true);
    let mut waited = Duration::ZERO;
    for _ in 0..40 {
        waited += trip.fail(refused());
    }
    assert!(waited > Duration::from_secs(60), "{waited:?}");
    assert!(!trip.course.listed());
}

#[test]
fn an_expired_version_leads_to_a_new_list_after_a_short_wait() {
    let mut trip = Trip::watching();
    trip.end(End::Closed, LONG);
    let wait = trip.fail(Fault::Expired);
    assert!(wait <= DELAYS.retry.first, "{wait:?}");
    assert_eq!(trip.course.ask(), Ask::Stream);
}

#[test]
fn a_broken_watch_goes_on_where_it_was() {
    let mut trip = Trip::watching();
    for (n, fault) in [
        broken(),
        Fault::Unreachable("refused".into()),
        Fault::Unauthorized("who".into()),
        Fault::Forbidden { user: None },
        Fault::Absent,
        Fault::Busy { code: 429, after: None, message: "busy".into() },
    ]
    .into_iter()
    .enumerate()
    {
        trip.course.ask();
        let version = (20 + n).to_string();
        trip.course.reached(&version);
        trip.end(End::Failed(fault.clone()), SHORT);
        assert_eq!(trip.course.ask(), watch(&version), "{fault:?}");
    }
}

#[test]
fn delays_grow_until_a_request_lasts() {
    let mut trip = Trip::watching();
    let gone = || Fault::Unreachable("refused".into());
    for _ in 0..10 {
        trip.fail(gone());
    }
    assert!(trip.fail(gone()) >= Duration::from_secs(15));
    trip.course.ask();
    trip.course.reached("11");
    assert!(trip.end(End::Failed(broken()), SHORT) >= Duration::from_secs(15), "one event is not enough");
    trip.course.ask();
    assert!(trip.end(End::Failed(broken()), LONG) <= DELAYS.retry.first);
}

#[test]
fn a_busy_server_is_left_alone_as_long_as_it_says() {
    let mut trip = Trip::watching();
    let after = Duration::from_secs(7);
    let busy = || Fault::Busy { code: 429, after: Some(after), message: "busy".into() };
    for _ in 0..12 {
        let wait = trip.fail(busy());
        assert!(wait >= after && wait <= after + DELAYS.retry.first, "{wait:?}");
    }
}

#[test]
fn a_server_that_closes_at_once_is_not_asked_at_once() {
    let mut trip = Trip::watching();
    let mut waited = Duration::ZERO;
    for n in 0..8 {
        trip.course.ask();
        trip.course.reached(&(20 + n).to_string());
        waited += trip.end(End::Closed, SHORT);
    }
    assert!(waited > Duration::from_secs(10), "{waited:?}");
}

#[test]
fn a_version_that_the_server_does_not_know_is_given_up() {
    // restored from a backup: it waits for our version and says nothing, not even a bookmark
    for silence in [End::Closed, End::Failed(Fault::Silent(LONG))] {
        let mut trip = Trip::watching();
        for _ in 0..2 {
            assert!(matches!(trip.course.ask(), Ask::Watch { .. } | Ask::Stream));
            trip.end(silence.clone(), LONG);
        }
        trip.course.ask();
        trip.end(silence.clone(), LONG);
        assert_eq!(trip.course.ask(), Ask::Stream);
    }
    let mut trip = Trip::watching();
    for n in 0..20 {
        trip.course.ask();
        if n % 2 == 0 {
            trip.course.reached("10");
        }
        trip.end(End::Closed, LONG);
        assert_eq!(trip.course.ask(), watch("10"), "a bookmark shows that it is known");
    }
}

#[test]
fn a_step_back_is_noticed() {
    let mut trip = Trip::watching();
    assert!(trip.course.reached("10") && trip.course.reached("9007199254740993"));
    assert!(!trip.course.reached("9007199254740992"));
    trip.end(End::Failed(Fault::Expired), SHORT);
    assert_eq!(trip.course.ask(), Ask::Stream);
    assert!(trip.course.reached("7"), "in a list, objects come with versions of their own");

    let mut trip = Trip::new(true);
    trip.course.ask();
    trip.course.marked("b");
    assert!(trip.course.reached("a"), "what is no number cannot be compared");
    trip.end(End::Closed, LONG);
    assert_eq!(trip.course.ask(), watch("a"));
}

#[test]
fn a_version_that_the_server_cannot_serve_is_given_up() {
    let mut trip = Trip::watching();
    trip.end(End::Closed, LONG);
    assert!(trip.fail(refused()) <= DELAYS.retry.first);
    assert_eq!(trip.course.ask(), Ask::Stream);

    let mut trip = Trip::watching();
    trip.end(End::Closed, LONG);
    let fails = |trip: &mut Trip| trip.fail(Fault::Server { code: 500, message: "no".into() });
    for _ in 0..4 {
        fails(&mut trip);
        assert_eq!(trip.course.ask(), watch("10"));
    }
    fails(&mut trip);
    assert_eq!(trip.course.ask(), Ask::Stream);
}

#[test]
fn what_can_be_done_without_is_asked_for_rarely() {
    for fault in [Fault::Absent, Fault::Forbidden { user: None }] {
        let mut trip = Trip::new(false);
        for _ in 0..5 {
            let wait = trip.fail(fault.clone());
            assert!(wait >= DELAYS.absent && wait <= DELAYS.absent * 2, "{wait:?}");
            assert_eq!(trip.course.ask(), Ask::Stream);
        }
        let mut trip = Trip::new(true);
        assert!(trip.fail(fault) <= DELAYS.retry.first, "what is needed, often");
    }
}

#[test]
fn failures_are_counted_until_something_comes() {
    let mut trip = Trip::watching();
    trip.end(End::Closed, LONG);
    for n in 1..4 {
        trip.fail(Fault::Unreachable("refused".into()));
        assert_eq!(trip.course.failures(), n);
    }
    trip.course.ask();
    trip.course.reached("11");
    trip.end(End::Failed(broken()), SHORT);
    assert_eq!(trip.course.failures(), 1);
    trip.course.ask();
    trip.end(End::Closed, LONG);
    assert_eq!(trip.course.failures(), 0);
}

#[test]
fn rights_are_named_by_the_verb_that_the_server_checks() {
    assert_eq!(Ask::Stream.verb(), "watch");
    assert_eq!(watch("1").verb(), "watch");
    assert_eq!(Ask::Whole.verb(), "list");
    assert_eq!(Ask::Page { token: None }.verb(), "list");
}
