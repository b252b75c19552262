//! The health server and the health check node ports of the program, as they are asked over the network.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::stage::{Daemon, Stage, nft, until};

const ALL: &str = "nodePortAddresses: [0.0.0.0/0, '::/0']\n";

const V4: &str = "127.0.0.1";
const V6: &str = "::1";

/// Status, headers and body; `None` where nobody listens.
fn ask(ip: &str, port: u16, path: &str) -> Option<(u16, String, Value)> {
    let address = SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port);
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    Some((status, head.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null)))
}

fn status(ip: &str, port: u16, path: &str) -> Option<u16> {
    ask(ip, port, path).map(|(status, ..)| status)
}

fn node(more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Node
metadata: {{name: worker}}
spec: {{{more}}}
status: {{addresses: [{{type: InternalIP, address: 192.0.2.1}}]}}
"
    )
}

/// A load balancer of both families with policy Local, with endpoints on these nodes in IPv4, and one here in IPv6.
fn balancer(name: &str, number: u8, health: u16, nodes: &[&str]) -> String {
    let mut out = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop, creationTimestamp: '2026-01-0{number}T00:00:00Z'}}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: {health}
  clusterIP: '10.96.0.{number}'
  clusterIPs: ['10.96.0.{number}', 'fd00:10:96::{number}']
  ipFamilies: [IPv4, IPv6]
  ports: [{{name: http, port: 80, nodePort: 3008{number}}}]
"
    );
    let four: Vec<(String, &str)> =
        nodes.iter().zip(1..).map(|(node, i)| (format!("10.244.{number}.{i}"), *node)).collect();
    let six = vec![(format!("fd00:10:244::{number}"), "worker")];
    for (family, endpoints) in [("IPv4", four), ("IPv6", six)] {
        let endpoints: String = endpoints
            .iter()
            .map(|(ip, node)| format!("- {{addresses: ['{ip}'], nodeName: {node}}}\n"))
            .collect();
        write!(
            out,
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-{family}, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {family}
ports: [{{name: http, port: 8080}}]
endpoints:
{endpoints}"
        )
        .expect("text");
    }
    out
}

/// A namespace with loopback open, the Node and one load balancer.
fn stage(settings: &str) -> Stage {
    let web = balancer("web", 1, 32100, &["worker", "worker", "other"]);
    let mut stage = Stage::new(&[("node.yaml", &node("")), ("web.yaml", &web)]);
    stage.open_loopback();
    stage.configure(settings);
    stage
}

fn listens(stage: &Stage) -> Daemon {
    let daemon = stage.run();
    until("the health server", || status(V4, 10256, "/healthz") == Some(200));
    daemon
}

/// Cases: core-11.46, core-11.51
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn probes_are_answered_in_both_families_and_the_node_may_leave() {
    let stage = stage(ALL);
    let daemon = listens(&stage);
    for ip in [V4, V6] {
        let (code, head, body) = ask(ip, 10256, "/healthz").expect("served");
        assert_eq!(code, 200, "{ip}: {head}");
        assert_eq!((&body["nodeEligible"], &body["healthy"]), (&true.into(), &true.into()));
        let families: Vec<&String> = body["status"].as_object().expect("families").keys().collect();
        assert_eq!(families, ["IPv4", "IPv6"]);
        assert_eq!(status(ip, 10256, "/livez"), Some(200));
        assert_eq!(status(ip, 10256, "/readyz"), Some(404));
    }
    // Each family counts its own endpoints.
    until("health check node ports", || {
        let count = |ip| ask(ip, 32100, "/").and_then(|(_, _, body)| body["localEndpoints"].as_u64());
        (count(V4), count(V6)) == (Some(2), Some(1))
    });
    let (_, head, _) = ask(V4, 32100, "/").expect("served");
    assert!(head.contains("\r\nX-Load-Balancing-Endpoint-Weight: 2\r\n"), "{head}");
    stage.folder.write("web.yaml", &balancer("web", 1, 32100, &["other"]));
    until("no endpoint here", || status(V4, 32100, "/") == Some(503));
    assert_eq!(status(V6, 32100, "/"), Some(200));

    let taint = "taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]";
    stage.folder.write("node.yaml", &node(taint));
    until("the node leaves", || status(V4, 10256, "/healthz") == Some(503));
    assert_eq!((status(V4, 10256, "/livez"), status(V6, 32100, "/")), (Some(200), Some(200)));
    stage.folder.write("node.yaml", &node(""));
    until("the node stays", || status(V4, 10256, "/healthz") == Some(200));

    // A connection that asks nothing does not hold up the end; nothing listens afterwards.
    let _idle = TcpStream::connect((V4, 10256)).expect("served");
    let begun = Instant::now();
    assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5));
    for port in [10256, 32100] {
        assert_eq!((status(V4, port, "/"), status(V6, port, "/")), (None, None), "{port}");
    }
}

/// Cases: core-11.48, core-11.49
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn ports_that_are_taken_are_told_and_served_later() {
    let stage = stage(ALL);
    let server = TcpListener::bind((V6, 10256)).expect("free");
    let health = TcpListener::bind((V4, 32100)).expect("free");
    let daemon = stage.run();
    let line = daemon.logged(&[("message", "cannot serve"), ("what", "health"), ("at", "0.0.0.0:10256")]);
    assert_eq!(line["level"], "WARN");
    let line = daemon.logged(&[("message", "event"), ("reason", "FailedToStartServiceHealthcheck")]);
    assert_eq!(line["regarding"], "Service shop/web");
    until("the other family", || status(V6, 32100, "/") == Some(200));
    drop((server, health));
    until("the health server", || status(V6, 10256, "/healthz") == Some(200));
    until("the port", || status(V4, 32100, "/") == Some(200));

    // The port number goes to another Service, and the first gets one of its own, in one file.
    let both = balancer("web", 1, 32101, &["other"]) + "---\n" + &balancer("new", 2, 32100, &["worker"]);
    stage.folder.write("web.yaml", &both);
    until("both", || {
        let name = |port| ask(V4, port, "/").map(|(_, _, body)| body["service"]["name"].clone());
        (name(32100), name(32101)) == (Some("new".into()), Some("web".into()))
    });
    assert_eq!(daemon.count(&[("message", "event"), ("level", "WARN")]), 0, "told once");
    stage.in_order();
}

/// Cases: core-11.54
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn ranges_for_node_ports_say_where_health_ports_listen() {
    let stage = stage("nodePortAddresses: [127.0.0.0/8]\n");
    let _daemon = listens(&stage);
    // Each family is served when its own rules are in.
    until("the port in both families", || {
        (status(V4, 32100, "/"), status(V6, 32100, "/")) == (Some(200), Some(200))
    });
    let listening = crate::program::tool("ss", &["-Htln", "sport = :32100"], "").stdout_text();
    let mut at: Vec<&str> = listening.lines().filter_map(|l| l.split_whitespace().nth(3)).collect();
    at.sort_unstable();
    assert_eq!(at, ["127.0.0.1:32100", "[::]:32100"], "{listening}");
}

/// The text of an answer; empty where nobody listens.
fn page(port: u16, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect((V4, port)) else { return String::new() };
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn servers_and_settings_of_the_host_follow_the_configuration() {
    let stage = stage(ALL);
    let daemon = listens(&stage);
    until("both servers", || {
        status(V4, 10256, "/livez") == Some(200) && !page(10249, "/proxyMode").is_empty()
    });
    let rules = nft(&["-a", "list", "ruleset"], "");
    let timeout = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
    let set = |settings: &str, healthz: &str| {
        stage.configure(&format!("{ALL}{settings}healthzBindAddress: '{healthz}'\n"));
    };
    assert!(page(10249, "/flagz").contains(" 200 "));
    assert!(page(10249, "/debug/flags/v").contains(" 404 "));

    let other = "metricsBindAddress: 127.0.0.1:10349\nenableProfiling: true\nfeatureGates: {ComponentFlagz: false}\n\
                 conntrack: {tcpEstablishedTimeout: 1h7m}\n";
    set(other, "127.0.0.1:10356");
    until("the other ports", || {
        status(V4, 10356, "/livez") == Some(200) && !page(10349, "/proxyMode").is_empty()
    });
    until("not the old ones", || {
        status(V4, 10256, "/livez").is_none() && page(10249, "/proxyMode").is_empty()
    });
    until("the timeout", || fs::read_to_string(timeout).expect("a setting").trim() == "4020");
    until("what is in force", || page(10349, "/configz").contains("127.0.0.1:10356"));
    assert!(page(10349, "/flagz").contains(" 404 "), "its gate is off");
    assert!(page(10349, "/debug/flags/v").contains(" 405 "), "profiling is on");
    assert!(
        page(10349, "/metrics")
            .contains("kubernetes_feature_enabled{name=\"ComponentFlagz\",stage=\"BETA\"} 0\n")
    );

    // The port that it has, at more addresses.
    assert_eq!(status("127.0.0.2", 10356, "/livez"), None);
    set(other, "0.0.0.0:10356");
    until("more addresses", || status("127.0.0.2", 10356, "/livez") == Some(200));

    // One that is taken: the old one is served for as long.
    let taken = TcpListener::bind((V4, 10456)).expect("free");
    set(other, "127.0.0.1:10456");
    daemon.logged(&[("message", "cannot serve"), ("what", "health"), ("at", "127.0.0.1:10456")]);
    assert_eq!(status(V4, 10356, "/livez"), Some(200));
    drop(taken);
    until("free by now", || status(V4, 10456, "/livez") == Some(200));
    until("not the old one", || status(V4, 10356, "/livez").is_none());

    // None is wanted.
    set("metricsBindAddress: ''\n", "");
    until("nobody", || status(V4, 10456, "/livez").is_none() && page(10349, "/proxyMode").is_empty());
    assert_eq!(nft(&["-a", "list", "ruleset"], ""), rules, "rules have nothing to do with it");
    assert_eq!(daemon.count(&[("message", "setting takes a restart")]), 0);
    stage.in_order();
    assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
}
