//! The program fed by an API server.

use nix::sys::signal::Signal;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};

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
