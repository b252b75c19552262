//! Every fault, in the list and in the watch, on every kind of line: in the end the view is what the server has.

use std::thread;
use std::time::Duration;

use proxier_testkit::apiserver::{Action, Fault, Place, Then, Verb};

use crate::stage::{Churn, Line, Run, anyone, server};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

fn actions() -> Vec<Action> {
    let short = Duration::from_millis(120);
    let mut all = vec![
        Action::Close,
        Action::Silence,
        Action::Delay(short),
        Action::DelayBody(short),
        Action::Delay(Duration::from_millis(900)),
        Action::Drip { bytes: 700, pause: Duration::from_millis(1) },
    ];
    for code in [400, 401, 403, 404, 408, 410, 422, 429, 500, 502, 503, 504] {
        all.push(Action::Status { code, retry_after: None });
    }
    all.push(Action::Status { code: 429, retry_after: Some(1) });
    for then in [Then::End, Then::Abort, Then::Close, Then::Silence, Then::Expire] {
        for at in [Place::Bytes(0), Place::Bytes(5000), Place::Events(3), Place::InEventAfter(3)] {
            all.push(Action::Cut { at, then });
        }
    }
    all
}

/// Each action meets each request of a resource twice while objects change.
fn survives(line: Line, streaming: bool) {
    let actions = actions();
    let lanes = 4;
    thread::scope(|scope| {
        for lane in 0..lanes {
            let actions = actions.iter().skip(lane).step_by(lanes).collect::<Vec<_>>();
            scope.spawn(move || {
                for (n, action) in actions.into_iter().enumerate() {
                    fault_in_list_and_watch(
                        line,
                        streaming,
                        action,
                        u64::try_from(lane * 100 + n).expect("small"),
                    );
                }
            });
        }
    });
}

fn fault_in_list_and_watch(line: Line, streaming: bool, action: &Action, seed: u64) {
    let (server, folder) = (server(line.builder().streaming_lists(streaming), 40), folder());
    let mut churn = Churn::new(seed);
    for verb in [Verb::List, Verb::Watch] {
        for resource in ["services", "endpointslices", "nodes", "servicecidrs"] {
            server.fault(Fault::on(verb, resource, action.clone()).times(2));
        }
    }
    let run = Run::start(anyone(&server, &folder));
    for _ in 0..10 {
        churn.changes(&server, 40, 5);
        thread::sleep(Duration::from_millis(5));
    }
    run.settles(&server);
    // and again in the middle of a watch
    for resource in ["services", "endpointslices", "nodes", "servicecidrs"] {
        server.fault(Fault::on(Verb::Watch, resource, action.clone()).times(2));
    }
    server.end_watches();
    for _ in 0..10 {
        churn.changes(&server, 40, 5);
        thread::sleep(Duration::from_millis(5));
    }
    run.settles(&server);
    assert!(run.stop().is_ok(), "{line:?} {action:?}");
}

#[test]
fn over_plain_http() {
    survives(Line::Plain, true);
}

#[test]
fn over_plain_http_with_pages() {
    survives(Line::Plain, false);
}

#[test]
fn over_tls() {
    survives(Line::Tls1, true);
}

#[test]
fn over_http_2() {
    survives(Line::Tls2, true);
}

#[test]
fn over_http_2_with_pages() {
    survives(Line::Tls2, false);
}

#[test]
fn a_busy_server_is_left_alone() {
    let (server, folder) = (server(Line::Plain.builder(), 5), folder());
    let busy = Action::Status { code: 429, retry_after: Some(3) };
    server.fault(Fault::on(Verb::Watch, "services", busy).times(1));
    let run = Run::start(anyone(&server, &folder));
    run.until("the first try", |_| server.requests(Verb::Watch, "services") == 1);
    thread::sleep(Duration::from_millis(1000));
    assert_eq!(server.requests(Verb::Watch, "services"), 1, "not before the three seconds are over");
    run.settles(&server);
    assert_eq!(server.requests(Verb::List, "services"), 0, "and then as before");
}
