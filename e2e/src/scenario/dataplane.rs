//! Experiment B: one Service with an endpoint on each worker, twelve new connections, and the kernel's own listing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Expect, Experiment, Kernel, Layout, NODES, Object, Step, Traffic, pod};

const SERVERS: &[&str] = &["echo-server-1", "echo-server-2"];
const CLIENT: &str = "client-pod";

/// Experiment B.
pub(super) fn echo_server() -> Experiment {
    let client = IpAddr::V4(Ipv4Addr::new(10, 244, 2, 3));
    let to = |octets: [u8; 4], port| SocketAddr::new(octets.into(), port);
    Experiment {
        id: "B",
        title: "one Service, its kernel state",
        of: |layout| layout != Layout::VirtualServers,
        pods: vec![
            pod(SERVERS[0], "worker", 1, 2),
            pod(SERVERS[1], "worker2", 2, 2),
            pod(CLIENT, "worker2", 2, 3),
        ],
        cluster_cidr: "10.244.0.0/16",
        servers: SERVERS,
        manifests: &[
            NODES,
            ("echo-server.yaml", include_str!("../../manifests/echo-server.yaml")),
            ("echo-server-slice.yaml", include_str!("../../manifests/echo-server-slice.yaml")),
        ],
        frontends: &[("ip", "10.96.66.43 . tcp . 80")],
        steps: vec![
            twelve(CLIENT, to([10, 96, 66, 43], 80), "-", Some(client)),
            twelve(CLIENT, to([172, 30, 0, 4], 30081), "Cluster", None),
            twelve("client", to([172, 30, 0, 3], 30081), "Cluster", None),
        ],
        kernel: |layout| match layout {
            Layout::Maps => maps(),
            Layout::Chains => chains(),
            Layout::Rules(_) => rules(),
            Layout::VirtualServers => Vec::new(),
        },
    }
}

/// Experiment B on IPVS, where the real cluster's Service had another address.
pub(super) fn virtual_servers() -> Experiment {
    let client = IpAddr::V4(Ipv4Addr::new(10, 244, 2, 3));
    let to = |octets: [u8; 4], port| SocketAddr::new(octets.into(), port);
    let turns = |from, to, policy, source| {
        let expect = Expect::Turns { servers: ["echo-server-1", "echo-server-2"], connections: 12, source };
        Step::Traffic(Traffic { from, to, policy, expect })
    };
    Experiment {
        of: |layout| layout == Layout::VirtualServers,
        manifests: &[
            NODES,
            ("echo-server.yaml", include_str!("../../manifests/echo-server-ipvs.yaml")),
            ("echo-server-slice.yaml", include_str!("../../manifests/echo-server-slice.yaml")),
        ],
        frontends: &[("ip", "10.96.169.181 . tcp . 80")],
        steps: vec![
            turns(CLIENT, to([10, 96, 169, 181], 80), "-", Some(client)),
            turns(CLIENT, to([172, 30, 0, 4], 30081), "Cluster", None),
            turns("client", to([172, 30, 0, 3], 30081), "Cluster", None),
        ],
        kernel: |_| {
            let real: &[&str] = &["-> 0AF40102:1F90 Masq 1", "-> 0AF40202:1F90 Masq 1"];
            vec![
                worker2(Object::VirtualServer("TCP 0A60A9B5:0050 rr"), real),
                worker2(Object::VirtualServer("TCP AC1E0004:7581 rr"), real),
                worker2(Object::Device, &["DOWN", "10.96.169.181/32"]),
                worker2(Object::Set("KUBE-CLUSTER-IP"), &["10.96.169.181,tcp:80"]),
                worker2(Object::Set("KUBE-NODE-PORT-TCP"), &["30081"]),
                worker2(Object::Set("KUBE-LOOP-BACK"), &["10.244.2.2,tcp:8080,10.244.2.2"]),
                worker2(
                    Object::Own("nat", "KUBE-SERVICES"),
                    &[
                        "-s 127.0.0.0/8 -j RETURN",
                        r#"! -s 10.244.0.0/16 -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ"#,
                        "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
                        "-m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT",
                    ],
                ),
                worker2(
                    Object::Own("nat", "KUBE-NODE-PORT"),
                    &[
                        r#"-p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ"#,
                    ],
                ),
            ]
        },
        ..echo_server()
    }
}

fn worker2(object: Object, expect: &'static [&'static str]) -> Kernel {
    Kernel { node: "worker2", family: "ip", object, expect }
}

fn twelve(from: &'static str, to: SocketAddr, policy: &'static str, source: Option<IpAddr>) -> Step {
    let expect = Expect::Spread { servers: SERVERS, connections: 12, source };
    Step::Traffic(Traffic { from, to, policy, expect })
}

/// A chain of iptables in table nat.
fn nat(
    object: fn(&'static str, &'static str) -> Object,
    name: &'static str,
    expect: &'static [&'static str],
) -> Kernel {
    Kernel { node: "worker2", family: "ip", object: object("nat", name), expect }
}

fn elements(map: &'static str, key: &'static str, expect: &'static [&'static str]) -> Kernel {
    Kernel { node: "worker2", family: "ip", object: Object::Elements { map, key }, expect }
}

fn chain(name: &'static str, expect: &'static [&'static str]) -> Kernel {
    Kernel { node: "worker2", family: "ip", object: Object::Chain(name), expect }
}

const FRONTEND: &str = "10.96.66.43 . tcp . 80";
const NODE_PORT: &str = "tcp . 30081";
const ENDPOINTS: &[&str] = &["10.244.1.2 . 8080", "10.244.2.2 . 8080"];

fn maps() -> Vec<Kernel> {
    vec![
        chain("cluster-dispatch", &["numgen random mod 2 offset 131072 map @cluster-endpoints"]),
        elements("cluster-endpoints", FRONTEND, ENDPOINTS),
        elements("service-nodeports", NODE_PORT, &["goto nodeport-cluster-2"]),
        elements("nodeport-cluster-endpoints", NODE_PORT, ENDPOINTS),
    ]
}

/// The names are exact: a hash of the service port's or endpoint's name, then the name (nftables spec 3).
fn chains() -> Vec<Kernel> {
    vec![
        elements("service-ips", FRONTEND, &["goto service-AKD4XF6G-service-dataplane/echo-server/tcp/http"]),
        elements(
            "service-nodeports",
            NODE_PORT,
            &["goto external-AKD4XF6G-service-dataplane/echo-server/tcp/http"],
        ),
        chain(
            "service-AKD4XF6G-service-dataplane/echo-server/tcp/http",
            &[
                "numgen random mod 2 vmap",
                "goto endpoint-Q7LEI3H3-service-dataplane/echo-server/tcp/http__10.244.1.2/8080",
                "goto endpoint-JHFC3PET-service-dataplane/echo-server/tcp/http__10.244.2.2/8080",
            ],
        ),
        chain(
            "endpoint-Q7LEI3H3-service-dataplane/echo-server/tcp/http__10.244.1.2/8080",
            &["meta l4proto tcp dnat to 10.244.1.2:8080"],
        ),
        chain(
            "endpoint-JHFC3PET-service-dataplane/echo-server/tcp/http__10.244.2.2/8080",
            &["meta l4proto tcp dnat to 10.244.2.2:8080"],
        ),
    ]
}

/// The names are exact: hashes of the service port's name, its protocol and the endpoint (iptables spec 3).
fn rules() -> Vec<Kernel> {
    vec![
        nat(
            Object::Shared,
            "KUBE-SERVICES",
            &[
                r#"-d 10.96.66.43/32 -p tcp -m comment --comment "service-dataplane/echo-server:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A4KG4DGVQAT3OXM5"#,
            ],
        ),
        nat(
            Object::Shared,
            "KUBE-NODEPORTS",
            &[
                r#"-p tcp -m comment --comment "service-dataplane/echo-server:http" -m tcp --dport 30081 -j KUBE-EXT-A4KG4DGVQAT3OXM5"#,
            ],
        ),
        nat(
            Object::Own,
            "KUBE-EXT-A4KG4DGVQAT3OXM5",
            &[
                r#"-m comment --comment "masquerade traffic for service-dataplane/echo-server:http external destinations" -j KUBE-MARK-MASQ"#,
                "-j KUBE-SVC-A4KG4DGVQAT3OXM5",
            ],
        ),
        nat(
            Object::Own,
            "KUBE-SVC-A4KG4DGVQAT3OXM5",
            &[
                r#"! -s 10.244.0.0/16 -d 10.96.66.43/32 -p tcp -m comment --comment "service-dataplane/echo-server:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ"#,
                r#"-m comment --comment "service-dataplane/echo-server:http -> 10.244.1.2:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-PI64YNHVAVJ3V4SZ"#,
                r#"-m comment --comment "service-dataplane/echo-server:http -> 10.244.2.2:8080" -j KUBE-SEP-KZVBHUE7TBOAI3DF"#,
            ],
        ),
        nat(
            Object::Own,
            "KUBE-SEP-PI64YNHVAVJ3V4SZ",
            &[
                r#"-s 10.244.1.2/32 -m comment --comment "service-dataplane/echo-server:http" -j KUBE-MARK-MASQ"#,
                r#"-p tcp -m comment --comment "service-dataplane/echo-server:http" -m tcp -j DNAT --to-destination 10.244.1.2:8080"#,
            ],
        ),
        nat(
            Object::Own,
            "KUBE-SEP-KZVBHUE7TBOAI3DF",
            &[
                r#"-s 10.244.2.2/32 -m comment --comment "service-dataplane/echo-server:http" -j KUBE-MARK-MASQ"#,
                r#"-p tcp -m comment --comment "service-dataplane/echo-server:http" -m tcp -j DNAT --to-destination 10.244.2.2:8080"#,
            ],
        ),
    ]
}
