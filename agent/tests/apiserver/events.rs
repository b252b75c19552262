//! Events written to the API server.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use agent::events::{Event, EventRecorder as _, EventType};
use agent::source::kubernetes::{Rate, Recorder};
use k8s_openapi::api::rbac::v1::PolicyRule;
use proxier_core::ids::{NodeName, ServiceName};
use proxier_testkit::apiserver::{Action, ApiServer, Fault, Verb};
use serde_json::Value;

use crate::stage::{LIMIT, Line, NODE, kubeconfig, server};

const USER: &str = "system:serviceaccount:kube-system:proxier";

fn rule() -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec!["events.k8s.io".into()]),
        resources: Some(vec!["events".into()]),
        verbs: vec!["create".into()],
        ..PolicyRule::default()
    }
}

/// All events of the server, once there are so many.
fn events(server: &ApiServer, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let events: Vec<Value> = server.all("events").expect("objects");
        if events.len() >= count {
            return events;
        }
        assert!(Instant::now() < deadline, "{count} expected: {events:#?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn events_come_to_the_api_server_once_and_through_its_faults() {
    let folder = tempfile::tempdir().expect("folder");
    let server = server(Line::Tls2.builder().token("secret", USER), 0);
    server.allow(USER, None, vec![rule()]);
    server.fault(Fault::on(Verb::Create, "events", Action::Status { code: 503, retry_after: None }).times(1));
    let access = kubeconfig(&folder, &server.kubeconfig(Some(USER)));
    let recorder =
        Recorder::start(access, NodeName::new(NODE), Rate::default(), Arc::default()).expect("a thread");
    recorder.record(Event::starting());
    recorder.record(Event::starting());
    recorder.record(Event::node(EventType::Warning, "IPVSDeprecation", "use another mode"));
    let service = ServiceName { namespace: "shop".into(), name: "web".into() };
    recorder.record(Event::no_health_port(service, "port 32100 is taken"));
    let events = events(&server, 3);
    let mut told: Vec<_> = events
        .iter()
        .map(|e| {
            ["reason", "note", "type", "reportingController"].map(|f| e[f].as_str().unwrap_or("-").to_owned())
        })
        .collect();
    told.sort();
    assert_eq!(
        told,
        [
            ["FailedToStartServiceHealthcheck", "port 32100 is taken", "Warning", "kube-proxy"],
            ["IPVSDeprecation", "use another mode", "Warning", "kube-proxy"],
            ["Starting", "-", "Normal", "kube-proxy"],
        ]
    );
}

#[test]
fn without_the_right_events_are_lost_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    let server = server(Line::Tls2.builder().token("secret", USER).forbid(USER), 0);
    let access = kubeconfig(&folder, &server.kubeconfig(Some(USER)));
    let recorder =
        Recorder::start(access, NodeName::new(NODE), Rate::default(), Arc::default()).expect("a thread");
    recorder.record(Event::starting());
    let deadline = Instant::now() + LIMIT;
    while server.requests(Verb::Create, "events") == 0 {
        assert!(Instant::now() < deadline, "never asked");
        thread::sleep(Duration::from_millis(5));
    }
    // The right comes; the next event is there.
    server.allow(USER, None, vec![rule()]);
    recorder.record(Event::node(EventType::Normal, "Next", ""));
    let reasons: Vec<_> = events(&server, 1).iter().map(|e| e["reason"].clone()).collect();
    assert_eq!(reasons, ["Next"]);
}
