//! What happens to the kernel when files change.

use crate::program::service;
use crate::stage::{Stage, nft, table, tables, until};

const NODE_FILE: &str = "apiVersion: v1
kind: Node
metadata: {name: worker}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: '2001:db8::1'}]}
";

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn files_become_rules_and_edits_apply_live() {
    let stage = Stage::new(&[
        ("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.2"])),
        ("six.yaml", &service("six", "fd00:10:96::1", &["fd00:10:244::1"])),
    ]);
    let daemon = stage.run();
    let (four, six) = (table("ip"), table("ip6"));
    for part in ["10.96.0.1 . tcp . 80", "shop/web:http", "10.244.1.1 . 8080", "10.244.1.2 . 8080"] {
        assert!(four.contains(part), "{part} not in\n{four}");
    }
    for part in ["fd00:10:96::1 . tcp . 80", "shop/six:http", "fd00:10:244::1 . 8080"] {
        assert!(six.contains(part), "{part} not in\n{six}");
    }
    stage.in_order();

    // An endpoint is replaced: written as a difference, in one family.
    stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.3"]));
    let line = daemon.logged(&[("message", "synced"), ("sync.kind", "partial"), ("family", "IPv4")]);
    assert_eq!(line["ports.changed"], 1);
    assert!(line["plan.ops"].as_u64().expect("number") <= 4, "{line}");
    let four = table("ip");
    assert!(four.contains("10.244.1.3 . 8080") && !four.contains("10.244.1.2 . 8080"), "{four}");
    assert_eq!(table("ip6"), six);
    stage.in_order();

    // A file is added, another one removed.
    stage.folder.write("late.yaml", &service("late", "10.96.0.2", &["10.244.2.1"]));
    until("the new service", || table("ip").contains("shop/late:http"));
    stage.folder.remove("web.yaml");
    until("the removed service", || !table("ip").contains("shop/web:http"));
    let four = table("ip");
    assert!(!four.contains("10.96.0.1") && !four.contains("10.244.1.1 . 8080"), "{four}");
    stage.in_order();
    assert_eq!(daemon.count(&[("level", "ERROR")]), 0);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_broken_file_is_reported_and_its_last_good_state_stays() {
    let good = service("web", "10.96.0.1", &["10.244.1.1"]);
    let stage =
        Stage::new(&[("web.yaml", &good), ("other.yaml", &service("other", "10.96.0.2", &["10.244.1.2"]))]);
    let daemon = stage.run();
    let before = tables();

    stage.folder.write("web.yaml", &good.replace("port: 80}", "port: eighty}"));
    let field = ["web.yaml: document 1: Service shop/web: spec.ports[0].port: ", "eighty"];
    let line = daemon.logged(&[("message", "input problem"), ("problem", field[0])]);
    assert_eq!(line["level"], "WARN");
    assert!(line["problem"].as_str().expect("text").contains(field[1]), "{line}");
    stage.folder.write("web.yaml", &good.replace("kind: EndpointSlice", "kind: [EndpointSlice"));
    daemon.logged(&[("message", "input problem"), ("problem", "web.yaml: document 2: ")]);
    assert_eq!(tables(), before);

    // The rest goes on meanwhile.
    stage.folder.write("other.yaml", &service("other", "10.96.0.2", &["10.244.1.9"]));
    until("the other's endpoint", || table("ip").contains("10.244.1.9 . 8080"));
    assert!(table("ip").contains("10.244.1.1 . 8080"));

    stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.7"]));
    daemon.logged(&[("message", "input problem solved"), ("about", "web.yaml")]);
    until("the repaired file", || table("ip").contains("10.244.1.7 . 8080"));
    stage.in_order();
}

/// Cases: nftables-12.21
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_node_that_gets_another_address_answers_there() {
    let web = service("web", "10.96.0.1", &["10.244.1.1"])
        .replace("spec:\n", "spec:\n  type: NodePort\n")
        .replace("port: 80}", "port: 80, nodePort: 30080}");
    let stage = Stage::new(&[("web.yaml", &web), ("node.yaml", NODE_FILE)]);
    let daemon = stage.run();
    assert!(nft(&["list", "set", "ip", "kube-proxy", "nodeport-ips"], "").contains("{ 192.0.2.1 }"));
    stage.folder.write("node.yaml", &NODE_FILE.replace("192.0.2.1", "192.0.2.99"));
    until("the new address", || {
        nft(&["list", "set", "ip", "kube-proxy", "nodeport-ips"], "").contains("{ 192.0.2.99 }")
    });
    stage.folder.remove("node.yaml");
    daemon.logged(&[("message", "node object deleted; its last state stays in use")]);
    stage.folder.write("late.yaml", &service("late", "10.96.0.2", &["10.244.2.1"]));
    until("the new service", || table("ip").contains("shop/late:http"));
    assert!(table("ip").contains("192.0.2.99"));
    assert_eq!(daemon.count(&[("level", "ERROR")]), 0);
}

/// Cases: report-C1-20
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn many_changes_at_once_are_few_syncs() {
    let stage = Stage::new(&[]);
    let daemon = stage.run();
    for i in 0..100 {
        let text = service(&format!("s{i}"), &format!("10.96.1.{i}"), &["10.244.1.1"]);
        stage.folder.write(&format!("{i}.yaml"), &text);
    }
    until("all services", || {
        let now = table("ip");
        (0..100).all(|i| now.contains(&format!("10.96.1.{i} . tcp . 80")))
    });
    let syncs = daemon.count(&[("message", "synced"), ("sync.kind", "partial")]);
    assert!((1..50).contains(&syncs), "{syncs}");
    stage.in_order();
}
