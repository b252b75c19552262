//! What is told to whoever watches a running agent.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::program::{proxier, service, tool};
use crate::stage::{Stage, nft, until};

/// Somebody takes a Service away.
const DAMAGE: &str = "delete element ip kube-proxy cluster-services { 10.96.0.1 . tcp . 80 }";

fn scrape() -> Option<String> {
    let mut stream = TcpStream::connect("127.0.0.1:10249").ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The value of a series.
#[track_caller]
fn value(series: &str) -> f64 {
    let text = scrape().expect("served");
    let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} not in\n{text}")).parse().expect("a number")
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn metrics_follow_what_is_in_the_kernel() {
    let mut stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"]))]);
    assert_eq!(tool("ip", &["link", "set", "lo", "up"], "").code, 0);
    stage.open_loopback();
    stage.configure("verifyPeriod: 100ms\n");
    let daemon = stage.run();
    let generation =
        |state: &str| value(&format!("proxier_generation{{ip_family=\"IPv4\",state=\"{state}\"}}"));
    until("served", || scrape().is_some());
    until("in force", || generation("desired") >= 1.0 && generation("desired") == generation("in_force"));
    let before = generation("in_force");
    assert_eq!(value("proxier_service_ports{ip_family=\"IPv4\"}"), 1.0);
    assert_eq!(value("proxier_set_aside_service_ports{ip_family=\"IPv4\"}"), 0.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    stage.folder.write("more.yaml", &service("more", "10.96.0.2", &["10.244.1.2"]));
    until("more", || generation("in_force") > before);
    assert_eq!(value("proxier_service_ports{ip_family=\"IPv4\"}"), 2.0);
    let family = "{ip_family=\"IPv4\"}";
    let partial = format!("kubeproxy_sync_partial_proxy_rules_duration_seconds_count{family}");
    assert!(value(&partial) >= 1.0);
    assert!(value(&format!("proxier_event_to_kernel_duration_seconds_count{family}")) >= 1.0);
    assert!(value("kubeproxy_sync_proxy_rules_service_changes_total") >= 2.0);
    nft(&["-f", "-"], DAMAGE);
    until("drift found", || value(&format!("proxier_drifts_total{family}")) >= 1.0);
    until("drift repaired", || value(&format!("proxier_drift_items{family}")) == 0.0);
    stage.in_order();
    drop(daemon);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn an_operator_may_ask() {
    let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.2"]))]);
    let daemon = stage.run();
    let socket = stage.admin_socket();
    let ask = |command: &str, more: &[&str]| {
        let output = proxier(&[&[command, "--socket", &socket], more].concat());
        assert_eq!((output.code, output.stderr_text().as_str()), (0, ""), "{command}");
        output.stdout_text()
    };
    until("asked", || proxier(&["status", "--socket", &socket]).code == 0);
    let status = ask("status", &[]);
    assert!(status.starts_with("node worker, mode nftables, version "), "{status}");
    assert!(status.contains("\nIPv4: generation 1 in force, 1 desired; 1 service ports\n"), "{status}");
    let snapshot = ask("snapshot", &["shop/web", "--family", "ipv4"]);
    assert!(snapshot.contains("10.244.1.2:8080") && snapshot.contains("cluster: used"), "{snapshot}");
    // What is told to be in force is what the kernel takes, and has.
    let rules = ask("rules", &["--family", "ipv4"]);
    assert!(rules.contains("10.96.0.1 . tcp . 80"), "{rules}");
    stage.in_order();
    let syncs = ask("syncs", &[]);
    assert!(
        syncs.contains(" IPv4 full generation 1: ") && syncs.contains("  + shop/web:http/tcp"),
        "{syncs}"
    );
    let post = |path: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("there");
        let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    };
    nft(&["-f", "-"], DAMAGE);
    post("/verify");
    until("repaired", || ask("syncs", &[]).contains("the kernel differed"));
    until("in order", || stage.answer("verify").code == 0);
    nft(&["-f", "-"], DAMAGE);
    post("/sync");
    until("asked for", || ask("syncs", &[]).contains("asked for"));
    until("in order", || stage.answer("verify").code == 0);
    drop(daemon);
    assert_eq!(proxier(&["status", "--socket", &socket]).code, 1, "nobody is there");
}
