//! Lists in every way there is, what is selected, and when the beginning is over.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use agent::metrics::{ClientMetrics, Page};
use agent::source::ObjectKind;
use proxier_testkit::apiserver::{Action, Fault, Verb};
use serde_json::json;

use crate::stage::{Churn, Line, Run, anyone, node, server, service, slice, source};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

#[test]
fn a_streaming_list_goes_over_into_the_watch() {
    for line in Line::ALL {
        let (server, folder) = (server(line.builder(), 300), folder());
        let run = Run::start(anyone(&server, &folder));
        run.settles(&server);
        {
            let view = run.view();
            assert_eq!(view.count_at_sync(ObjectKind::Service), 300, "all of them, before it was said");
            assert_eq!(view.count_at_sync(ObjectKind::EndpointSlice), 300);
            assert_eq!(view.count_at_sync(ObjectKind::Node), 1);
        }
        for resource in ["services", "endpointslices", "nodes", "servicecidrs"] {
            assert_eq!(server.requests(Verb::List, resource), 0, "{line:?}: a list is not needed");
        }
        let seen = server.seen();
        assert!(seen.iter().all(|s| s.user_agent.starts_with("proxier/")), "{seen:?}");
        assert!(seen.iter().all(|s| s.http2 == matches!(line, Line::Tls2)), "{line:?}: {seen:?}");
        Churn::new(1).changes(&server, 300, 200);
        run.settles(&server);
        run.stop().expect("stops");
    }
}

#[test]
fn requests_are_counted() {
    let (server, folder) = (server(Line::Plain.builder().streaming_lists(false), 600), folder());
    let metrics = Arc::<ClientMetrics>::default();
    let run = Run::start_source(source(anyone(&server, &folder)).counted(Arc::clone(&metrics)));
    run.settles(&server);
    run.stop().expect("stops");
    let (requests, failed) = metrics.totals();
    // Four that are refused, as streams; four lists, two of them of two pages; four watches.
    assert!(requests >= 14 && failed >= 4, "{requests}, {failed}");
    let mut page = Page::new();
    metrics.collect(&mut page);
    let text = page.text();
    let seen = |line: &&str| line.starts_with("rest_client_requests_total{code=\"200\",host=\"127.0.0.1:");
    assert_eq!(text.lines().filter(seen).count(), 1, "{text}");
}

#[test]
fn pages_are_the_second_way() {
    for line in Line::ALL {
        let (server, folder) = (server(line.builder().streaming_lists(false), 1200), folder());
        let run = Run::start(anyone(&server, &folder));
        run.settles(&server);
        assert_eq!(server.requests(Verb::List, "services"), 3, "pages of 500");
        assert_eq!(server.requests(Verb::List, "nodes"), 1);
        Churn::new(2).changes(&server, 300, 200);
        run.settles(&server);
    }
}

#[test]
fn what_changes_while_pages_are_read_is_not_missed() {
    let (server, folder) = (server(Line::Plain.builder().streaming_lists(false), 1200), folder());
    for resource in ["services", "endpointslices"] {
        let delay = Action::DelayBody(Duration::from_millis(150));
        server.fault(Fault::on(Verb::List, resource, delay).times(3));
    }
    let run = Run::start(anyone(&server, &folder));
    let mut churn = Churn::new(3);
    for _ in 0..40 {
        churn.changes(&server, 1200, 20);
        thread::sleep(Duration::from_millis(10));
    }
    run.settles(&server);
}

#[test]
fn the_whole_list_is_the_third_way() {
    let (server, folder) = (server(Line::Tls2.builder().streaming_lists(false), 1200), folder());
    let delay = Action::DelayBody(Duration::from_millis(400));
    server.fault(Fault::on(Verb::List, "services", delay));
    let run = Run::start(anyone(&server, &folder));
    run.until("the first page is under way", |_| server.requests(Verb::List, "services") == 1);
    thread::sleep(Duration::from_millis(50));
    server.expire_continue_tokens();
    run.settles(&server);
    let lists: Vec<_> = server
        .seen()
        .into_iter()
        .filter(|s| s.verb == Some(Verb::List) && s.resource == "services")
        .collect();
    assert_eq!(lists.len(), 3, "{lists:?}");
    assert!(lists[1].uri.contains("continue="), "{lists:?}");
    assert!(!lists[2].uri.contains("limit="), "{lists:?}");
    Churn::new(4).changes(&server, 300, 100);
    run.settles(&server);
}

#[test]
fn what_leaves_the_selectors_is_deleted_and_comes_back() {
    let (server, folder) = (server(Line::Plain.builder(), 3), folder());
    let run = Run::start(anyone(&server, &folder));
    run.settles(&server);
    let mut other = service(0, 80);
    other["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": ""});
    let mut headless = slice(1, 1, 1);
    headless["metadata"]["labels"]["service.kubernetes.io/headless"] = "".into();
    let mut stranger = node();
    stranger["metadata"]["name"] = "stranger".into();
    server.put_all([other, headless, stranger]).expect("put");
    run.until("both are gone", |v| {
        v.count(ObjectKind::Service) == 2 && v.count(ObjectKind::EndpointSlice) == 2
    });
    run.settles(&server);
    assert_eq!(run.view().count(ObjectKind::Node), 1);
    server.put_all([service(0, 80), slice(1, 1, 1)]).expect("put");
    run.until("both are back", |v| {
        v.count(ObjectKind::Service) == 3 && v.count(ObjectKind::EndpointSlice) == 3
    });
    run.settles(&server);
}

#[test]
fn nothing_is_said_to_be_complete_before_it_is() {
    for resource in ["services", "endpointslices"] {
        let (server, folder) = (server(Line::Plain.builder(), 20), folder());
        let torn = Action::Cut {
            at: proxier_testkit::apiserver::Place::Events(10),
            then: proxier_testkit::apiserver::Then::End,
        };
        server.fault(Fault::any(torn.clone()).times(0));
        server.fault(Fault::on(Verb::Watch, resource, torn.clone()).always());
        server.fault(Fault::on(Verb::List, resource, Action::Close).always());
        let run = Run::start(anyone(&server, &folder));
        run.until("it was tried", |_| server.requests(Verb::List, resource) >= 3);
        assert_eq!(run.view().synced, 0);
        server.clear_faults();
        run.settles(&server);
    }
}

#[test]
fn the_node_is_waited_for() {
    let (server, folder) = (server(Line::Plain.builder(), 5), folder());
    server.delete("nodes", "", "worker").expect("there");
    let run = Run::start(anyone(&server, &folder));
    run.until("everything else is there", |v| v.count(ObjectKind::EndpointSlice) == 5);
    let mut bare = node();
    bare["status"] = json!({});
    server.put(bare).expect("put");
    run.until("the node is there", |v| v.count(ObjectKind::Node) == 1);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(run.view().synced, 0, "it has no address yet");
    server.put(node()).expect("put");
    run.settles(&server);
    server.delete("nodes", "", "worker").expect("there");
    run.settles(&server);
}

#[test]
fn an_object_that_cannot_be_read_keeps_its_state_and_is_reported() {
    let (server, folder) = (server(Line::Plain.builder(), 3), folder());
    let run = Run::start(anyone(&server, &folder));
    run.settles(&server);
    let mut bad = service(0, 80);
    bad["spec"]["ports"][0]["port"] = "http".into();
    server.put(bad).expect("put");
    run.until("it was reported", |v| v.problems.len() == 1);
    let problems = run.view().problems.clone();
    let (origin, told) = problems.first_key_value().expect("one");
    assert_eq!(origin, "API server, Service ns-0/svc-0");
    assert!(told[0].starts_with("spec.ports[0].port: invalid type: string \"http\""), "{told:?}");
    assert_eq!(run.view().count(ObjectKind::Service), 3);
    server.put(service(1, 81)).expect("put");
    server.put(service(0, 82)).expect("put");
    run.settles(&server);
    assert!(run.view().problems.is_empty());
}
