//! The program fed by an API server.

use std::fs;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};
use proxier_testkit::scale;
use serde_json::Value;

use crate::program::{Folder, NODE, service};
use crate::stage::{Daemon, Stage, table, tables, until};

const NODE_OBJECT: &str = "apiVersion: v1
kind: Node
metadata: {name: worker}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
";

struct Cluster {
    stage: Stage,
    server: BlockingApiServer,
    folder: Folder,
}

impl Cluster {
    /// A server with one Service, in a namespace of its own.
    fn new() -> Self {
        let mut stage = Stage::new(&[]);
        stage.open_loopback();
        let builder = ApiServer::builder().tls().token("secret", "proxier");
        let server = BlockingApiServer::start(builder).expect("a server");
        server.put_yaml(NODE_OBJECT).expect("put");
        server.put_yaml(&service("web", "10.96.0.1", &["10.244.1.1"])).expect("put");
        let folder = Folder::new(&[("kubeconfig", &server.kubeconfig(Some("proxier")))]);
        Self { stage, server, folder }
    }

    fn start(&self) -> Daemon {
        let (config, kubeconfig) = (self.stage.config(), self.folder.file("kubeconfig"));
        Daemon::start(&[&["run", "--kubeconfig", &kubeconfig, "--config", &config], &NODE[..]].concat())
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn objects_become_rules_and_changes_apply_live() {
    let cluster = Cluster::new();
    let daemon = cluster.start();
    daemon.logged(&[("message", "synced"), ("family", "IPv4"), ("sync.kind", "full")]);
    until("the range of the cluster's IPs", || table("ip").contains("10.96.0.0/16"));
    let four = table("ip");
    for part in ["10.96.0.1 . tcp . 80", "shop/web:http", "10.244.1.1 . 8080"] {
        assert!(four.contains(part), "{part} not in\n{four}");
    }
    cluster.server.put_yaml(&service("web", "10.96.0.1", &["10.244.1.2"])).expect("put");
    until("the new endpoint", || table("ip").contains("10.244.1.2 . 8080"));
    assert!(!table("ip").contains("10.244.1.1 . 8080"));
    cluster.server.delete("servicecidrs", "", "kubernetes").expect("there");
    until("no range any more", || !table("ip").contains("10.96.0.0/16"));
    cluster.server.delete("services", "shop", "web").expect("there");
    until("no service any more", || !table("ip").contains("shop/web:http"));
    cluster.stage.others_untouched();
    assert_eq!(daemon.count(&[("level", "ERROR")]), 0);
    let (status, _) = daemon.end(Signal::SIGTERM);
    assert!(status.success());
}

/// Cases: core-11.62
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn rules_of_a_previous_run_stay_until_the_first_complete_lists() {
    let cluster = Cluster::new();
    let daemon = cluster.start();
    daemon.logged(&[("message", "synced"), ("family", "IPv4"), ("sync.kind", "full")]);
    until("the range of the cluster's IPs", || table("ip").contains("10.96.0.0/16"));
    daemon.end(Signal::SIGTERM);
    let before = tables();

    cluster.server.stop();
    let daemon = cluster.start();
    let told = [("level", "WARN"), ("problem", "the API server cannot be reached: ")];
    daemon.logged(&told);
    cluster.server.put_yaml(&service("late", "10.96.0.2", &["10.244.1.3"])).expect("put");
    assert_eq!(tables(), before, "nothing was touched");
    assert_eq!(daemon.count(&[("message", "synced")]), 0);
    cluster.server.restart().expect("listens");
    until("the change meanwhile", || table("ip").contains("shop/late:http"));
    assert!(table("ip").contains("shop/web:http"));
    assert_eq!(daemon.count(&told), 0, "said once");
}

/// Services of a wave, each with a health check port of its own from here on.
const WAVE: u32 = 100;
const FIRST_PORT: u16 = 20_000;

fn port_of(number: u32) -> u16 {
    FIRST_PORT + u16::try_from(number % WAVE).expect("small")
}

fn balanced(number: u32) -> [Value; 2] {
    scale::health_checked_json(number, 2, "worker", port_of(number))
}

/// Services come, each is in the kernel and its port open, and all are deleted.
fn wave(server: &BlockingApiServer, first: u32) {
    let numbers = first..first + WAVE;
    server.put_all(numbers.clone().flat_map(balanced)).expect("put");
    let is_open = |number| TcpStream::connect(("127.0.0.1", port_of(number))).is_ok();
    until("every port is open", || numbers.clone().all(is_open));
    for [service, slice] in numbers.clone().map(balanced) {
        for (resource, object) in [("endpointslices", slice), ("services", service)] {
            let name = object["metadata"]["name"].as_str().expect("a name");
            server.delete(resource, scale::NAMESPACE, name).expect("there");
        }
    }
    until("every port is closed", || !numbers.clone().any(is_open));
}

/// Descriptors, sockets among them, and resident memory in KiB.
fn held(process: u32) -> (usize, usize, u64) {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("running");
    let targets: Vec<_> = entries.filter_map(|e| fs::read_link(e.ok()?.path()).ok()).collect();
    let sockets = targets.iter().filter(|t| t.to_string_lossy().starts_with("socket:")).count();
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("running");
    let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    (targets.len(), sockets, resident.and_then(|kib| kib.trim().parse().ok()).expect("a number"))
}

/// Cases: report-C6-70
///
/// A hundred thousand of them: bench `turnover`.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn services_that_come_and_go_leave_nothing_in_the_process() {
    const NAMES: u32 = 500;
    let cluster = Cluster::new();
    cluster.stage.configure("nodePortAddresses: [127.0.0.0/8, '::1/128']\n");
    let daemon = cluster.start();
    daemon.logged(&[("message", "synced"), ("family", "IPv4"), ("sync.kind", "full")]);
    // What is made once.
    (0..NAMES / WAVE).for_each(|i| wave(&cluster.server, i * WAVE));
    let before = held(daemon.id());
    (0..20).for_each(|i| wave(&cluster.server, i * WAVE % NAMES));
    until(format!("no more descriptors and sockets than {before:?}"), || {
        let now = held(daemon.id());
        now.0 <= before.0 && now.1 <= before.1
    });
    let grown = held(daemon.id()).2.saturating_sub(before.2);
    assert!(grown < 4096, "{grown} KiB more than {} KiB after 2,000 Services", before.2);
    cluster.stage.others_untouched();
    assert_eq!(daemon.count(&[("level", "ERROR")]), 0);
    assert!(daemon.end(Signal::SIGTERM).0.success());
}
