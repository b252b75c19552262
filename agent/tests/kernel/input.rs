//! Objects that contradict one another or make no sense.

use crate::program::service;
use crate::stage::{Stage, table, until};

fn created(name: &str, cluster_ip: &str, endpoint: &str, when: &str) -> String {
    service(name, cluster_ip, &[endpoint]).replace("2026-01-01", when)
}

/// Cases: nftables-12.31
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn of_two_services_with_one_frontend_the_older_wins() {
    // The younger one comes first by file and by name.
    let stage = Stage::new(&[
        ("a.yaml", &created("a-younger", "10.96.0.1", "10.244.1.1", "2026-02-02")),
        ("b.yaml", &created("b-older", "10.96.0.1", "10.244.1.2", "2026-01-01")),
        ("c.yaml", &service("bystander", "10.96.0.9", &["10.244.1.9"])),
    ]);
    let daemon = stage.run();
    let line = daemon.logged(&[("message", "frontend belongs to an older service")]);
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["service.port"], "shop/a-younger:http");
    assert_eq!(line["winner"], "shop/b-older:http");
    assert!(line["frontend"].as_str().expect("text").contains("10.96.0.1:80"), "{line}");
    let now = table("ip");
    assert!(now.contains("10.244.1.2 . 8080") && !now.contains("10.244.1.1 . 8080"), "{now}");
    assert!(now.contains("shop/bystander:http"), "{now}");
    stage.in_order();

    // When the older one goes, the other one gets it.
    stage.folder.remove("b.yaml");
    until("the heir", || table("ip").contains("10.244.1.1 . 8080"));
    assert!(!table("ip").contains("10.244.1.2 . 8080"));
    stage.in_order();

    // And loses it again when an older one comes; told anew.
    stage.folder.write("b.yaml", &created("b-older", "10.96.0.1", "10.244.1.2", "2026-01-01"));
    daemon.logged(&[("message", "frontend belongs to an older service"), ("winner", "shop/b-older:http")]);
    until("the older one", || table("ip").contains("10.244.1.2 . 8080"));
    assert!(!table("ip").contains("10.244.1.1 . 8080"));
    stage.in_order();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_is_malformed_is_reported_and_the_rest_is_programmed() {
    let good = service("good", "10.96.0.1", &["10.244.1.1"]);
    let stage = Stage::new(&[
        ("address.yaml", &service("address", "10.96.0.300", &["10.244.1.2"])),
        ("endpoint.yaml", &service("endpoint", "10.96.0.3", &["10.244.1.3", "10.244.1.400"])),
        ("good.yaml", &good),
        ("port.yaml", &service("port", "10.96.0.4", &["10.244.1.4"]).replace("port: 80}", "port: 0}")),
        (
            "protocol.yaml",
            &service("protocol", "10.96.0.5", &["10.244.1.5"])
                .replace("port: 80}", "port: 80, protocol: FOO}"),
        ),
        (
            "half.yaml",
            &service("half", "10.96.0.6", &["10.244.1.6"]).replace(
                "ports: [{name: http, port: 80}",
                "ports: [{name: bad, port: 70000}, {name: http, port: 80}",
            ),
        ),
    ]);
    let daemon = stage.run();
    for problem in [
        "Service shop/address: spec.clusterIPs[0]: \"10.96.0.300\" is not an IP address",
        "endpoints[1].addresses[0]: \"10.244.1.400\" is not an IP address",
        "Service shop/port: spec.ports[0].port is missing or 0",
        "Service shop/protocol: spec.ports[0].protocol: \"FOO\" is not TCP, UDP or SCTP",
        "Service shop/half: spec.ports[0].port: \"70000\" is not a port number",
    ] {
        let line = daemon.logged(&[("message", "input problem"), ("problem", problem)]);
        assert_eq!(line["level"], "WARN");
    }
    assert_eq!(daemon.count(&[("message", "input problem")]), 0, "nothing else");
    let now = table("ip");
    for there in
        ["shop/good:http", "10.244.1.1 . 8080", "10.244.1.3 . 8080", "shop/half:http", "10.244.1.6 . 8080"]
    {
        assert!(now.contains(there), "{there} not in\n{now}");
    }
    for absent in ["shop/port", "shop/protocol", "shop/address", "70000"] {
        assert!(!now.contains(absent), "{absent} in\n{now}");
    }
    stage.in_order();

    stage.folder.write("port.yaml", &service("port", "10.96.0.4", &["10.244.1.4"]));
    daemon.logged(&[("message", "input problem solved"), ("about", "service shop/port")]);
    until("the repaired service", || table("ip").contains("shop/port:http"));
}
