//! Health check node ports that come and go leave nothing behind. Alone in its process, so that descriptors can be counted.

#![allow(clippy::expect_used, reason = "all of it is a test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use agent::events::Logged;
use agent::health::{Health, NodePorts, State};
use agent::http::Servers;
use proxier_core::cluster::{Cluster, NodePortSelector, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName, ServiceName};
use proxier_core::intake;
use proxier_core::model::NodeFacts;
use serde_json::json;

/// Services at a time.
const SERVICES: u16 = 100;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("readable").count()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("readable").count()
}

/// Resident memory in KiB.
fn memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

struct Churn {
    ip: Ipv4Addr,
    cluster: Cluster,
    ports: NodePorts,
}

impl Churn {
    fn new() -> Self {
        let process = u8::try_from(std::process::id() % 200).expect("below 200");
        let ip = Ipv4Addr::new(127, 20 + process, 0, 1);
        let options = TrafficOptions {
            node_port_addresses: NodePortSelector::Cidrs(vec![IpAddr::V4(ip).into()]),
            ..TrafficOptions::default()
        };
        let mut cluster = Cluster::new(NodeName::new("here"), options);
        cluster.set_node(NodeFacts { host_addresses: vec![IpAddr::V4(ip)], ..NodeFacts::default() });
        let health = Arc::new(Health::new(State::new(Duration::from_secs(30), true)));
        let servers = Servers::start().expect("a thread");
        let events = Arc::new(Logged);
        let ports = NodePorts::new(IpFamily::Ipv4, NodeName::new("here"), servers, health, events);
        Self { ip, cluster, ports }
    }

    fn adopt(&mut self) {
        let commit = self.cluster.commit();
        self.ports.adopt(commit.snapshot(IpFamily::Ipv4));
    }

    /// Creates Services, asks one of them over a connection that is kept, and deletes them all.
    fn round(&mut self) {
        for i in 0..SERVICES {
            let ip = format!("10.96.0.{i}");
            let object = json!({
                "metadata": {"namespace": "web", "name": format!("s{i}")},
                "spec": {
                    "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000 + i,
                    "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ports": [{"port": 80}],
                },
            });
            let service = intake::service(&serde_json::from_value(object).expect("a Service"));
            self.cluster.upsert_service(service.accepted.expect("accepted"));
        }
        self.adopt();
        assert_eq!((self.ports.sockets(), self.ports.incomplete()), (usize::from(SERVICES), false));
        let mut kept = TcpStream::connect((self.ip, 31000)).expect("served");
        kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        let mut status = [0; 12];
        kept.read_exact(&mut status).expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 503");
        for i in 0..SERVICES {
            self.cluster.remove_service(&ServiceName::new("web", format!("s{i}")));
        }
        self.adopt();
        assert_eq!(self.ports.sockets(), 0);
    }
}

/// Cases: report-C6-70
#[test]
fn ten_thousand_ports_leave_no_descriptor_no_thread_and_no_memory() {
    let mut churn = Churn::new();
    // what is allocated once
    for _ in 0..10 {
        churn.round();
    }
    let before = (descriptors(), threads());
    let memory_before = memory();
    for _ in 0..100 {
        churn.round();
    }
    assert_eq!((descriptors(), threads()), before);
    let grown = memory().saturating_sub(memory_before);
    assert!(grown < 4096, "{grown} KiB more");
}
