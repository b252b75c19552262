use proxier_core::cluster::{Cluster, NodePortSelector, TrafficOptions};
use proxier_core::intake;
use proxier_core::model::NodeFacts;
use serde_json::{Value, json};

use super::*;

/// A cluster, and what of it is served at one loopback address. This node is `here`.
pub(super) struct Stage {
    pub(super) ip: Ipv4Addr,
    cluster: Cluster,
    ports: NodePorts,
    events: Arc<Recorded>,
    health: Arc<Health>,
    hand: Hand,
}

impl Stage {
    pub(super) fn new() -> Self {
        let ip = address();
        let [a, b, c, _] = ip.octets();
        let range = format!("{a}.{b}.{c}.0/24").parse().expect("a range");
        let options = TrafficOptions {
            node_port_addresses: NodePortSelector::Cidrs(vec![range]),
            ..TrafficOptions::default()
        };
        let hand = Hand::default();
        let health = Arc::new(Health::with_clock(State::new(Duration::from_secs(30), true), hand.clock()));
        health.started(&IpFamily::ALL);
        let events = Arc::new(Recorded::default());
        let servers = Servers::start().expect("a thread");
        let ports = NodePorts::new(
            IpFamily::Ipv4,
            NodeName::new("here"),
            servers,
            Arc::clone(&health),
            Arc::clone(&events) as Arc<dyn EventRecorder>,
        );
        let cluster = Cluster::new(NodeName::new("here"), options);
        let mut stage = Self { ip, cluster, ports, events, health, hand };
        stage.hosts(&[ip]);
        stage
    }

    fn hosts(&mut self, addresses: &[Ipv4Addr]) {
        let host_addresses = addresses.iter().map(|ip| IpAddr::V4(*ip)).collect();
        self.cluster.set_node(NodeFacts { host_addresses, ..NodeFacts::default() });
    }

    /// A load balancer with policy Local, some of whose fields are otherwise.
    pub(super) fn service(&mut self, name: &str, health: u16, otherwise: &Value) {
        let number = name.bytes().map(u32::from).sum::<u32>() % 250;
        let mut object = json!({
            "metadata": {"namespace": "web", "name": name},
            "spec": {
                "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": health,
                "clusterIP": format!("10.96.0.{number}"), "clusterIPs": [format!("10.96.0.{number}")],
                "ipFamilies": ["IPv4"],
                "ports": [
                    {"name": "http", "port": 80, "nodePort": 30080},
                    {"name": "more", "port": 81, "nodePort": 30081},
                ],
            },
        });
        for (part, fields) in otherwise.as_object().expect("an object") {
            for (key, value) in fields.as_object().expect("an object") {
                object[part][key] = value.clone();
            }
        }
        let service = intake::service(&serde_json::from_value(object).expect("a Service"));
        self.cluster.upsert_service(service.accepted.expect("accepted"));
    }

    /// Endpoints of both ports, as `ip` or `ip@node`, with `~` before one that is terminating but serves.
    pub(super) fn slice(&mut self, service: &str, endpoints: &[&str]) {
        let endpoint = |text: &&str| {
            let (terminating, text) = text.strip_prefix('~').map_or((false, *text), |rest| (true, rest));
            let (ip, node) = text.split_once('@').unwrap_or((text, "elsewhere"));
            let conditions = json!({"ready": !terminating, "serving": true, "terminating": terminating});
            json!({"addresses": [ip], "nodeName": node, "conditions": conditions})
        };
        let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
        let object = json!({
            "metadata": {
                "namespace": "web", "name": format!("{service}-a"),
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}, {"name": "more", "port": 8081}],
            "endpoints": endpoints,
        });
        let slice = intake::endpoint_slice(&serde_json::from_value(object).expect("a slice"));
        self.cluster.upsert_slice(slice.accepted.expect("accepted"));
    }

    fn remove(&mut self, service: &str) {
        self.cluster.remove_service(&proxier_core::ids::ServiceName::new("web", service));
    }

    /// A sync went in.
    pub(super) fn adopt(&mut self) {
        let commit = self.cluster.commit();
        self.ports.adopt(commit.snapshot(IpFamily::Ipv4));
    }

    /// Status, weight, body; `None` where nobody listens.
    fn at(&self, ip: Ipv4Addr, port: u16) -> Option<(u16, String, Value)> {
        let answer = ask(ip, port, "GET /")?;
        let (_, weight) = answer.split_once("X-Load-Balancing-Endpoint-Weight: ").expect("a weight");
        let weight = weight.split("\r\n").next().expect("a line").to_owned();
        let body = serde_json::from_str(body(&answer)).expect("JSON");
        Some((status(&answer), weight, body))
    }

    /// Status and count; `None` where nobody listens.
    #[track_caller]
    fn count(&self, port: u16) -> Option<(u16, u64)> {
        let (status, weight, body) = self.at(self.ip, port)?;
        let count = body["localEndpoints"].as_u64().expect("a count");
        assert_eq!(weight, count.to_string());
        Some((status, count))
    }

    fn serves(&self, port: u16) -> String {
        let (_, _, body) = self.at(self.ip, port).expect("served");
        body["service"]["name"].as_str().expect("a name").to_owned()
    }
}

/// Cases: core-11.40, core-11.46, report-C6-61
#[test]
fn addresses_that_are_ready_and_here_count() {
    let mut stage = Stage::new();
    stage.service("front", 32100, &json!({}));
    stage.slice("front", &["10.1.0.1@here", "10.1.0.2@here", "10.1.0.3"]);
    stage.adopt();
    assert_eq!(stage.count(32100), Some((200, 2)));
    stage.slice("front", &["~10.1.0.1@here", "10.1.0.3"]);
    stage.adopt();
    assert_eq!(stage.count(32100), Some((503, 0)), "terminating ones never count");
    stage.slice("front", &["10.1.0.1@here"]);
    stage.adopt();
    assert_eq!(stage.count(32100), Some((200, 1)));
    stage.slice("front", &["10.1.0.1@elsewhere"]);
    stage.adopt();
    assert_eq!(stage.count(32100), Some((503, 0)), "moved to another node");
    stage.remove("front");
    stage.adopt();
    assert_eq!(stage.count(32100), None);
}

/// Cases: core-11.47, report-C6-62
#[test]
fn a_late_proxier_says_503_and_the_true_count() {
    let mut stage = Stage::new();
    stage.service("front", 32100, &json!({}));
    let endpoints: Vec<String> = (1..=7).map(|i| format!("10.1.0.{i}@here")).collect();
    stage.slice("front", &endpoints.iter().map(String::as_str).collect::<Vec<_>>());
    stage.adopt();
    stage.health.handed_over();
    stage.hand.set(59);
    assert_eq!(stage.count(32100), Some((200, 7)));
    stage.hand.set(60);
    let (status, weight, body) = stage.at(stage.ip, 32100).expect("served");
    assert_eq!((status, weight.as_str()), (503, "7"));
    let service = json!({"namespace": "web", "name": "front"});
    assert_eq!(body, json!({"service": service, "localEndpoints": 7, "serviceProxyHealthy": false}));
}

/// Cases: core-11.50
#[test]
fn any_path_and_method_gets_the_same_answer() {
    let mut stage = Stage::new();
    stage.service("front", 32100, &json!({}));
    stage.slice("front", &["10.1.0.1@here"]);
    stage.adopt();
    let without_date =
        |answer: String| answer.lines().filter(|l| !l.starts_with("Date:")).collect::<Vec<_>>().join("\n");
    let answers: Vec<String> = ["GET /", "GET /anything?x=y", "POST /", "DELETE /healthz"]
        .map(|request| without_date(ask(stage.ip, 32100, request).expect("served")))
        .to_vec();
    assert_eq!(status(&answers[0]), 200);
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:#?}");
    let head = ask(stage.ip, 32100, "HEAD /").expect("served");
    assert!(head.contains("\r\nContent-Length: 1") && body(&head).is_empty(), "{head}");
}

/// Cases: core-11.48
#[test]
fn another_port_number_closes_the_old_one_first() {
    let mut stage = Stage::new();
    stage.service("front", 32100, &json!({}));
    stage.slice("front", &["10.1.0.1@here"]);
    stage.adopt();
    stage.service("front", 32101, &json!({}));
    stage.adopt();
    assert_eq!(stage.count(32100), None);
    assert_eq!(stage.count(32101), Some((200, 1)));
}

/// Cases: core-11.49
#[test]
fn a_port_moves_between_services_in_one_sync() {
    let mut stage = Stage::new();
    stage.service("a", 32100, &json!({}));
    stage.service("b", 32101, &json!({}));
    stage.slice("b", &["10.1.0.1@here"]);
    stage.adopt();
    for _ in 0..20 {
        stage.service("a", 32101, &json!({}));
        stage.service("b", 32100, &json!({}));
        stage.adopt();
        assert_eq!((stage.serves(32100), stage.serves(32101)), ("b".to_owned(), "a".to_owned()));
        assert_eq!(stage.count(32100), Some((200, 1)));
        stage.service("a", 32100, &json!({}));
        stage.service("b", 32101, &json!({}));
        stage.adopt();
        assert_eq!((stage.serves(32100), stage.serves(32101)), ("a".to_owned(), "b".to_owned()));
    }
    assert_eq!(stage.events.take(), []);
}

/// Cases: core-11.49
#[test]
fn of_two_that_want_one_port_the_older_is_served_and_the_other_told_of() {
    let mut stage = Stage::new();
    let made = |day: u8| json!({"metadata": {"creationTimestamp": format!("2026-01-0{day}T00:00:00Z")}});
    stage.service("a", 32100, &made(2));
    stage.service("b", 32100, &made(1));
    stage.slice("a", &["10.1.0.1@here"]);
    stage.adopt();
    assert_eq!(stage.serves(32100), "b");
    let told = stage.events.take();
    let [event] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (event.kind, event.reason, event.action),
        (EventType::Warning, "FailedToStartServiceHealthcheck", "Listen")
    );
    assert_eq!(event.regarding.to_string(), "Service web/a");
    let cause = format!("{}:32100 is served for Service web/b", stage.ip);
    assert_eq!(event.note, format!("node here: healthCheckNodePort 32100 is not served: {cause}"));
    // It is tried again at each sync, and told once.
    stage.slice("a", &["10.1.0.1@here", "10.1.0.2@here"]);
    stage.adopt();
    stage.ports.retry();
    assert_eq!(stage.events.take(), []);
    assert!(stage.ports.incomplete());
    stage.remove("b");
    stage.adopt();
    assert_eq!((stage.serves(32100), stage.count(32100)), ("a".to_owned(), Some((200, 2))));
    assert!(!stage.ports.incomplete());
    // Lost again, it is told again.
    stage.remove("a");
    stage.service("b", 32100, &made(1));
    stage.adopt();
    stage.service("a", 32100, &made(2));
    stage.adopt();
    assert_eq!(stage.events.take().len(), 1);
}

#[test]
fn a_port_that_somebody_else_has_is_served_once_it_is_free() {
    let mut stage = Stage::new();
    let taken = std::net::TcpListener::bind((stage.ip, 32100)).expect("free");
    stage.service("front", 32100, &json!({}));
    stage.slice("front", &["10.1.0.1@here"]);
    stage.adopt();
    stage.ports.retry();
    let told = stage.events.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].note.contains(&format!("cannot listen at {}:32100: ", stage.ip)), "{told:?}");
    drop(taken);
    stage.ports.retry();
    assert_eq!(stage.count(32100), Some((200, 1)));
    assert_eq!(stage.events.take(), []);
}

/// Cases: core-11.14, core-11.17, core-11.18
#[test]
fn who_has_a_health_check_node_port() {
    let mut stage = Stage::new();
    let proxied = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "Proxy"}]}});
    let ports = json!([{"name": "http", "port": 80}]);
    stage.service("proxied", 32100, &json!({"spec": {"ports": ports}, "status": proxied}));
    stage.service("missing", 0, &json!({}));
    stage.service("node-port", 32102, &json!({"spec": {"type": "NodePort"}}));
    stage.service("cluster", 32103, &json!({"spec": {"externalTrafficPolicy": "Cluster"}}));
    stage.adopt();
    assert_eq!(stage.count(32100), Some((503, 0)));
    for port in [32102, 32103] {
        assert_eq!(stage.count(port), None, "{port}");
    }
    assert_eq!(stage.ports.sockets(), 1);
    stage.service("proxied", 32100, &json!({"spec": {"externalTrafficPolicy": "Cluster"}}));
    stage.adopt();
    assert_eq!((stage.count(32100), stage.ports.sockets()), (None, 0));
}

/// Cases: core-11.19
#[test]
fn what_comes_and_goes_before_a_sync_opens_nothing() {
    let mut stage = Stage::new();
    // were it tried, this would be told
    let _taken = std::net::TcpListener::bind((stage.ip, 32100)).expect("free");
    stage.service("front", 32100, &json!({}));
    stage.remove("front");
    stage.adopt();
    assert_eq!((stage.events.take(), stage.ports.sockets()), (vec![], 0));
    // And one that goes and comes keeps its socket, with connections in it.
    stage.service("front", 32101, &json!({}));
    stage.adopt();
    let mut kept = TcpStream::connect((stage.ip, 32101)).expect("served");
    stage.remove("front");
    stage.service("front", 32101, &json!({}));
    stage.slice("front", &["10.1.0.1@here"]);
    stage.adopt();
    kept.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    kept.read_to_string(&mut answer).expect("an answer");
    assert_eq!(status(&answer), 200, "{answer}");
}

#[test]
fn addresses_of_the_host_are_followed() {
    let mut stage = Stage::new();
    let [a, b, c, _] = stage.ip.octets();
    let (first, second) = (stage.ip, Ipv4Addr::new(a, b, c, 2));
    let outside = Ipv4Addr::new(127, 19, c, 1);
    stage.service("front", 32100, &json!({}));
    stage.hosts(&[first, second, outside]);
    stage.adopt();
    let served = |stage: &Stage| [first, second, outside].map(|ip| stage.at(ip, 32100).is_some());
    assert_eq!(served(&stage), [true, true, false]);
    let mut kept = TcpStream::connect((second, 32100)).expect("served");
    stage.hosts(&[second, outside]);
    stage.adopt();
    assert_eq!(served(&stage), [false, true, false]);
    kept.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("a socket that stays keeps its connections");
    assert!(kept.read(&mut [0; 16]).expect("an answer") > 0);
    stage.hosts(&[outside]);
    stage.adopt();
    assert_eq!(
        (served(&stage), stage.ports.incomplete()),
        ([false; 3], false),
        "no address, no socket, no error"
    );
    // An address that cannot be had: what is open stays, the rest is tried again.
    let foreign = std::net::TcpListener::bind((first, 32100)).expect("free");
    stage.hosts(&[second]);
    stage.adopt();
    stage.hosts(&[first, second]);
    stage.adopt();
    assert_eq!(stage.events.take().len(), 1);
    assert!(stage.at(second, 32100).is_some() && stage.ports.incomplete());
    drop(foreign);
    stage.ports.retry();
    assert_eq!(served(&stage), [true, true, false]);
}
