//! A server that goes away, comes back, and has forgotten.

use std::thread;
use std::time::Duration;

use agent::source::ObjectKind;
use agent::source::kubernetes::Timing;
use proxier_testkit::apiserver::Verb;

use crate::stage::{Churn, Line, Run, TIMING, anyone, server, source};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

#[test]
fn a_restart_is_survived_with_what_happened_meanwhile() {
    for line in Line::ALL {
        let (server, folder) = (server(line.builder(), 60), folder());
        let run = Run::start(anyone(&server, &folder));
        run.settles(&server);
        let mut churn = Churn::new(5);
        for round in 0..3 {
            server.stop();
            churn.changes(&server, 60, 60);
            thread::sleep(Duration::from_millis(60));
            server.restart().expect("listens");
            churn.changes(&server, 60, 5);
            run.settles(&server);
            let over = run.told("what=the API server");
            assert_eq!(run.told("the API server cannot be reached"), over, "{round}: {}", run.log());
        }
        let told = run.told("the API server cannot be reached");
        assert!((1..=3).contains(&told), "once for each outage that was noticed: {told}\n{}", run.log());
        assert_eq!(run.view().synced, 1);
    }
}

#[test]
fn a_server_that_is_not_there_yet_is_waited_for() {
    let (server, folder) = (server(Line::Tls2.builder(), 10), folder());
    server.stop();
    let run = Run::start(anyone(&server, &folder));
    run.until("it was noticed", |_| run.told("the API server cannot be reached") == 1);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(run.told("the API server cannot be reached"), 1, "once for all resources: {}", run.log());
    assert_eq!(run.view().synced, 0);
    server.restart().expect("listens");
    run.settles(&server);
}

#[test]
fn what_was_compacted_meanwhile_is_listed_again() {
    for line in Line::ALL {
        let (server, folder) = (server(line.builder(), 60), folder());
        let run = Run::start(anyone(&server, &folder));
        run.settles(&server);
        server.stop();
        Churn::new(6).changes(&server, 60, 100);
        server.compact(server.revision());
        server.restart().expect("listens");
        run.settles(&server);
        assert_eq!(server.requests(Verb::List, "services"), 0, "as a stream again");
    }
}

#[test]
fn expired_and_ended_watches_go_on() {
    let (server, folder) = (server(Line::Tls2.builder(), 60), folder());
    let run = Run::start(anyone(&server, &folder));
    run.settles(&server);
    let mut churn = Churn::new(7);
    for _ in 0..5 {
        server.expire_watches();
        churn.changes(&server, 60, 20);
        run.settles(&server);
        server.end_watches();
        churn.changes(&server, 60, 20);
        run.settles(&server);
    }
    assert_eq!(run.told("services"), 0, "nothing to worry anybody: {}", run.log());
}

#[test]
fn a_small_history_loses_nothing() {
    let (server, folder) = (server(Line::Plain.builder().history(20), 60), folder());
    let run = Run::start(anyone(&server, &folder));
    run.settles(&server);
    let mut churn = Churn::new(8);
    for _ in 0..20 {
        server.close_connections();
        churn.changes(&server, 60, 50);
    }
    run.settles(&server);
}

#[test]
fn a_connection_that_is_dead_without_a_word_is_found_out() {
    for line in Line::ALL {
        let (server, folder) = (server(line.builder(), 20), folder());
        let run = Run::start(anyone(&server, &folder));
        run.settles(&server);
        server.silence_connections();
        Churn::new(9).changes(&server, 20, 30);
        run.settles(&server);
    }
}

#[test]
fn a_server_that_waits_for_a_version_it_never_had_is_asked_for_everything() {
    // one that was restored from a backup: our version lies in its future, and it sends nothing, not even bookmarks
    let hour = Duration::from_secs(3600);
    let timing = Timing { watch_shortest: hour, watch_longest: hour, ..TIMING };
    let builder = || Line::Plain.builder().bookmark_every(hour);
    let (folder, first) = (folder(), server(builder(), 20));
    let run = Run::start_source(source(anyone(&first, &folder)).timing(timing));
    run.settles(&first);
    first.advance_to(1_000_000).expect("forward");
    first.bookmark();
    let address = first.address();
    Churn::new(11).changes(&first, 20, 20);
    run.settles(&first);
    drop(first);
    let second = server(builder().address(address), 10);
    run.until("what only the first had is gone", |v| v.count(ObjectKind::Service) == 10);
    second.delete("services", "ns-0", "svc-0").expect("there");
    run.until("and changes come", |v| v.count(ObjectKind::Service) == 9);
}

#[test]
fn a_slow_receiver_slows_the_source_and_loses_nothing() {
    let (server, folder) = (server(Line::Tls2.builder(), 400), folder());
    let run = Run::start_source(source(anyone(&server, &folder)).timing(TIMING));
    run.settles(&server);
    let mut churn = Churn::new(10);
    {
        // whoever takes the events is busy
        let _held = run.view();
        churn.changes(&server, 400, 3000);
        thread::sleep(Duration::from_millis(1500));
        churn.changes(&server, 400, 1000);
    }
    run.settles(&server);
}
