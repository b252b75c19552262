use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::events::Regarding;
use crate::source::{Object, SourceEvent};

use super::*;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../proxier-testkit/corpus/peer/");

/// What the real one answered to each request, times replaced by words.
fn recorded(file: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(format!("{PEER}{file}")).expect("recorded").replace('\r', "");
    let parts = format!("\n{}", text.trim_end());
    let one = |part: &str| {
        let (request, answer) = part.split_once('\n').expect("a request and an answer");
        (request.to_owned(), answer.trim_end().to_owned())
    };
    parts.split("\nGET :").skip(1).map(one).collect()
}

/// An answer as the recordings have it.
fn comparable(answer: &str) -> String {
    let answer = answer.replace("\r\n", "\n").replace("Connection: close\n", "");
    let (head, body) = answer.split_once("\n\n").expect("a body");
    let head: Vec<&str> =
        head.lines().map(|l| if l.starts_with("Date: ") { "Date: <date>" } else { l }).collect();
    let mut out = head.join("\n") + "\n\n";
    let mut rest = body;
    while let Some((before, time)) = rest.split_once("\":\"20") {
        let (_, after) = time.split_once('"').expect("the end of a time");
        out += before;
        out += "\":\"<time>\"";
        rest = after;
    }
    out + rest
}

/// A time that is as long as those of the recordings.
fn long() -> Clock {
    let wall = "2026-01-01T00:00:00.123456789Z".parse().expect("a time");
    Box::new(move || Moment { since: Duration::ZERO, wall })
}

fn served(health: &Arc<Health>, ip: Ipv4Addr) -> Outlet<SocketAddr> {
    let mut process = outlet(health, &Servers::start().expect("a thread"));
    process.want(Some(SocketAddr::from((ip, 10256))));
    process.settle().expect("free");
    process
}

/// Cases: core-11.50
#[test]
fn bodies_and_headers_are_those_of_the_real_one() {
    let health = Arc::new(Health::with_clock(State::new(Duration::from_secs(30), false), long()));
    health.started(&IpFamily::ALL);
    let ip = address();
    let _served = served(&health, ip);
    for (path, file_line) in [("/healthz", "10256/healthz"), ("/livez", "10256/livez")] {
        let all = recorded("health.txt");
        let (_, expected) = all.iter().find(|(request, _)| request == file_line).expect("recorded");
        for method in ["GET", "POST", "DELETE"] {
            let answer = ask(ip, 10256, &format!("{method} {path}")).expect("served");
            assert_eq!(comparable(&answer), *expected, "{method} {path}");
        }
    }
    let answer = ask(ip, 10256, "GET /readyz").expect("served");
    assert_eq!((status(&answer), body(&answer)), (404, "404 page not found\n"));
    let expected = Answers { healthz_200: 3, livez_200: 3, ..Answers::default() };
    assert_eq!(health.answers(), expected);
}

fn node(spec: &serde_json::Value, metadata: &serde_json::Value) -> Vec<SourceEvent> {
    let mut metadata = metadata.clone();
    if metadata.get("name").is_none() {
        metadata["name"] = "worker".into();
    }
    let node: Node = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Node");
    vec![SourceEvent::Upsert(Object::Node(Box::new(node)))]
}

/// Cases: core-11.51
#[test]
fn a_node_that_is_about_to_go_fails_healthz_alone() {
    let health = Arc::new(Health::new(State::new(Duration::from_secs(30), true)));
    health.started(&IpFamily::ALL);
    let mut follower =
        Follower::new(Arc::clone(&health), Arc::default(), NodeName::new("worker"), IpFamily::ALL.to_vec());
    let ip = address();
    let _served = served(&health, ip);
    let both = || {
        let of = |path: &str| status(&ask(ip, 10256, &format!("GET {path}")).expect("served"));
        (of("/healthz"), of("/livez"))
    };
    assert_eq!(both(), (503, 200), "not seen yet");
    let taint = |key: &str| json!({"taints": [{"key": key, "value": "x", "effect": "PreferNoSchedule"}]});
    for (spec, metadata, expected) in [
        (json!({}), json!({}), 200),
        (taint("node.kubernetes.io/not-ready"), json!({}), 200),
        (taint("ToBeDeletedByClusterAutoscaler"), json!({}), 503),
        (json!({}), json!({"name": "other"}), 503),
        (json!({}), json!({}), 200),
        (json!({}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), 503),
    ] {
        follower.events(&node(&spec, &metadata));
        assert_eq!(both(), (expected, 200), "{spec} {metadata}");
        assert!(health.is_healthy(), "health check node ports do not ask for the node");
    }
    let key = crate::source::ObjectKey {
        kind: crate::source::ObjectKind::Node,
        namespace: "".into(),
        name: "worker".into(),
    };
    follower.events(&node(&json!({}), &json!({})));
    follower.events(&[SourceEvent::Delete { key, service: None }]);
    assert_eq!(both(), (200, 200), "the last state seen stays in use");
}

#[test]
fn a_taken_port_is_tried_again_or_ends_the_start() {
    let ip = address();
    let taken = std::net::TcpListener::bind((ip, 10256)).expect("free");
    let servers = Servers::start().expect("a thread");
    let events = Arc::new(Recorded::default());
    let recorder: Arc<dyn EventRecorder> = Arc::clone(&events) as _;
    let options = HealthOptions {
        address: Some(SocketAddr::from((ip, 10256))),
        hard_fail: true,
        sync_period: Duration::from_secs(30),
        node_required: false,
    };
    let start_ = |options| start(options, NodeName::new("n"), &IpFamily::ALL, &servers, &recorder);
    let error = start_(options).expect_err("the port is taken").to_string();
    assert!(error.starts_with(&format!("cannot serve health at {ip}:10256: ")), "{error}");
    let told = events.take();
    let [Event { kind: EventType::Warning, reason, action, regarding, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((*reason, *action), ("FailedToStartProxierHealthcheck", "StartKubeProxy"));
    assert_eq!(*regarding, Regarding::Node);

    let running = start_(HealthOptions { hard_fail: false, ..options }).expect("goes on without");
    assert_eq!(events.take(), []);
    drop(taken);
    let deadline = Instant::now() + Duration::from_secs(30);
    while ask(ip, 10256, "GET /livez").is_none() {
        assert!(Instant::now() < deadline, "never tried again");
        thread::sleep(Duration::from_millis(50));
    }
    // told to move, it does; told of a place that is taken, it stays
    let (mover, elsewhere) = (running.mover(), address());
    let settled = |ip: Ipv4Addr, gone: Ipv4Addr| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while ask(ip, 10256, "GET /livez").is_none() || ask(gone, 10256, "GET /livez").is_some() {
            assert!(Instant::now() < deadline, "never moved");
            thread::sleep(Duration::from_millis(10));
        }
    };
    mover.listen_at(Some(SocketAddr::from((elsewhere, 10256))));
    settled(elsewhere, ip);
    let taken = std::net::TcpListener::bind((ip, 10256)).expect("free again");
    mover.listen_at(Some(SocketAddr::from((ip, 10256))));
    thread::sleep(Duration::from_millis(300));
    assert!(ask(elsewhere, 10256, "GET /livez").is_some(), "the old place, as long as there is no new one");
    drop(taken);
    settled(ip, elsewhere);
    running.stop();
    assert_eq!(ask(ip, 10256, "GET /livez"), None);
    mover.listen_at(Some(SocketAddr::from((ip, 10256))));
    assert_eq!(ask(ip, 10256, "GET /livez"), None, "told in vain");
    drop(start_(HealthOptions { address: None, ..options }).expect("no server is wanted"));
}

/// Cases: report-C6-64
#[test]
fn health_check_node_ports_answer_as_those_of_the_real_one() {
    let mut stage = ports::Stage::new();
    stage.service("front", 32100, &json!({"metadata": {"namespace": "web"}}));
    stage.slice("front", &["10.1.0.1@here", "10.1.0.2"]);
    stage.service("away", 32101, &json!({"metadata": {"namespace": "web"}}));
    stage.slice("away", &["10.1.0.3"]);
    stage.adopt();
    let all = recorded("health-check-node-ports.txt");
    for (request, expected) in all.iter().filter(|(request, _)| request.starts_with("321")) {
        let port = request[..5].parse().expect("a port");
        let answer = ask(stage.ip, port, "GET /").expect("served");
        assert_eq!(comparable(&answer), *expected, "{request}");
    }
}
