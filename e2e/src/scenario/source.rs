//! Experiments A and C: which source address an endpoint sees.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Expect, Experiment, Kernel, Layout, NODES, Object, Step, Traffic, pod};
use crate::topology::Pod;

const SERVER: &str = "source-ip-server";
const LOCAL: &str = "client-local-node";
const REMOTE: &str = "client-remote-node";

/// Experiment A: the seven rows measured on a real cluster.
pub(super) fn ipv4() -> Experiment {
    Experiment {
        id: "A",
        title: "source address",
        of: |_| true,
        pods: pods(),
        cluster_cidr: "10.244.0.0/16",
        servers: &[SERVER],
        manifests: &[
            NODES,
            ("source-ip.yaml", include_str!("../../manifests/source-ip.yaml")),
            ("source-ip-slice.yaml", include_str!("../../manifests/source-ip-slice.yaml")),
        ],
        frontends: &[("ip", "10.96.123.219 . tcp . 80")],
        steps: rows("source-ip.yaml", &V4),
        kernel: |layout| kernel(layout, "ip", &RULES_V4, Some(&FILTER_V4)),
    }
}

/// Experiment C: the same seven rows on IPv6, for a Service of both families, and one row that its IPv4 half works too.
pub(super) fn dual_stack() -> Experiment {
    let cluster_ip = SocketAddr::new(v4([10, 96, 123, 220]), 80);
    let mut steps = vec![traffic(REMOTE, cluster_ip, "-", Expect::Source(v4([10, 244, 2, 2])))];
    steps.extend(rows("dual-stack.yaml", &V6));
    Experiment {
        id: "C",
        title: "source address, dual stack",
        of: |_| true,
        pods: pods(),
        cluster_cidr: "10.244.0.0/16,fd00:10:244::/48",
        servers: &[SERVER],
        manifests: &[
            NODES,
            ("dual-stack.yaml", include_str!("../../manifests/dual-stack.yaml")),
            ("dual-stack-slices.yaml", include_str!("../../manifests/dual-stack-slices.yaml")),
        ],
        frontends: &[("ip", "10.96.123.220 . tcp . 80"), ("ip6", "fd00:10:96::7bdc . tcp . 80")],
        steps,
        kernel: |layout| kernel(layout, "ip6", &RULES_V6, None),
    }
}

fn pods() -> Vec<Pod> {
    vec![pod(SERVER, "worker", 1, 3), pod(LOCAL, "worker", 1, 4), pod(REMOTE, "worker2", 2, 2)]
}

/// The addresses of the rows in one family.
struct Family {
    cluster_ip: SocketAddr,
    worker: SocketAddr,
    worker2: SocketAddr,
    /// Of worker, in its pod range.
    gateway: IpAddr,
    local: IpAddr,
    remote: IpAddr,
    client: IpAddr,
}

const V4: Family = Family {
    cluster_ip: SocketAddr::new(v4([10, 96, 123, 219]), 80),
    worker: SocketAddr::new(v4([172, 30, 0, 3]), 30080),
    worker2: SocketAddr::new(v4([172, 30, 0, 4]), 30080),
    gateway: v4([10, 244, 1, 1]),
    local: v4([10, 244, 1, 4]),
    remote: v4([10, 244, 2, 2]),
    client: v4([172, 30, 0, 5]),
};

const V6: Family = Family {
    cluster_ip: SocketAddr::new(v6([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x7bdc]), 80),
    worker: SocketAddr::new(v6([0xfd00, 0x30, 0, 0, 0, 0, 0, 3]), 30082),
    worker2: SocketAddr::new(v6([0xfd00, 0x30, 0, 0, 0, 0, 0, 4]), 30082),
    gateway: v6([0xfd00, 0x10, 0x244, 1, 0, 0, 0, 1]),
    local: v6([0xfd00, 0x10, 0x244, 1, 0, 0, 0, 4]),
    remote: v6([0xfd00, 0x10, 0x244, 2, 0, 0, 0, 2]),
    client: v6([0xfd00, 0x30, 0, 0, 0, 0, 0, 5]),
};

fn rows(service: &'static str, family: &Family) -> Vec<Step> {
    vec![
        traffic(LOCAL, family.cluster_ip, "-", Expect::Source(family.local)),
        traffic(REMOTE, family.cluster_ip, "-", Expect::Source(family.remote)),
        traffic(SERVER, family.cluster_ip, "- (hairpin)", Expect::Source(family.gateway)),
        traffic("client", family.worker, "Cluster", Expect::Source(family.gateway)),
        traffic("client", family.worker2, "Cluster", Expect::Source(family.worker2.ip())),
        Step::Patch {
            file: service,
            passage: "externalTrafficPolicy: Cluster",
            replacement: "externalTrafficPolicy: Local",
        },
        traffic("client", family.worker, "Local", Expect::Source(family.client)),
        traffic("client", family.worker2, "Local", Expect::Silence),
    ]
}

fn traffic(from: &'static str, to: SocketAddr, policy: &'static str, expect: Expect) -> Step {
    Step::Traffic(Traffic { from, to, policy, expect })
}

const fn v4(octets: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
}

const fn v6(s: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]))
}

/// Node, object, rules.
type Rules = (&'static str, Object, &'static [&'static str]);

/// In iptables, at the end, with policy Local.
fn kernel(layout: Layout, family: &'static str, rules: &[Rules], filter: Option<&Rules>) -> Vec<Kernel> {
    match layout {
        Layout::Maps | Layout::Chains => Vec::new(),
        Layout::VirtualServers => virtual_servers(family),
        Layout::Rules(_) => rules
            .iter()
            .chain(filter)
            .map(|(node, object, expect)| Kernel { node, family, object: *object, expect })
            .collect(),
    }
}

/// The endpoint's own node has it for the node port, too; the other one lets nobody from outside through to it.
fn virtual_servers(family: &'static str) -> Vec<Kernel> {
    let rows: [(&str, Object, &[&str]); 6] = match family {
        "ip" => [
            ("worker", Object::VirtualServer("TCP 0A607BDB:0050 rr"), &["-> 0AF40103:1F90 Masq 1"]),
            ("worker", Object::VirtualServer("TCP AC1E0003:7580 rr"), &["-> 0AF40103:1F90 Masq 1"]),
            ("worker", Object::Set("KUBE-LOOP-BACK"), &["10.244.1.3,tcp:8080,10.244.1.3"]),
            ("worker", Object::Set("KUBE-NODE-PORT-LOCAL-TCP"), &["30080"]),
            ("worker", Object::Set("KUBE-IPVS-DROP-OUTSIDE"), &[]),
            ("worker2", Object::Set("KUBE-IPVS-DROP-OUTSIDE"), &["172.30.0.4,tcp:30080"]),
        ],
        _ => [
            (
                "worker",
                Object::VirtualServer("TCP [fd00:0010:0096:0000:0000:0000:0000:7bdc]:0050 rr"),
                &["-> [fd00:0010:0244:0001:0000:0000:0000:0003]:1F90 Masq 1"],
            ),
            (
                "worker",
                Object::VirtualServer("TCP [fd00:0030:0000:0000:0000:0000:0000:0003]:7582 rr"),
                &["-> [fd00:0010:0244:0001:0000:0000:0000:0003]:1F90 Masq 1"],
            ),
            ("worker", Object::Set("KUBE-6-LOOP-BACK"), &["fd00:10:244:1::3,tcp:8080,fd00:10:244:1::3"]),
            ("worker", Object::Set("KUBE-6-NODE-PORT-LOCAL-TCP"), &["30082"]),
            ("worker", Object::Set("KUBE-6-IPVS-DROP-OUTSIDE"), &[]),
            ("worker2", Object::Set("KUBE-6-IPVS-DROP-OUTSIDE"), &["fd00:30::4,tcp:30082"]),
        ],
    };
    rows.map(|(node, object, expect)| Kernel { node, family, object, expect }).into()
}

/// The names are those of the real cluster.
const RULES_V4: [Rules; 7] = [
    (
        "worker",
        Object::Shared("nat", "KUBE-SERVICES"),
        &[
            r#"-d 10.96.123.219/32 -p tcp -m comment --comment "service-path/source-ip:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-HMXYGTJUZB5GQ45C"#,
        ],
    ),
    (
        "worker",
        Object::Shared("nat", "KUBE-NODEPORTS"),
        &[
            r#"-p tcp -m comment --comment "service-path/source-ip:http" -m tcp --dport 30080 -j KUBE-EXT-HMXYGTJUZB5GQ45C"#,
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-SVC-HMXYGTJUZB5GQ45C"),
        &[
            r#"! -s 10.244.0.0/16 -d 10.96.123.219/32 -p tcp -m comment --comment "service-path/source-ip:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ"#,
            r#"-m comment --comment "service-path/source-ip:http -> 10.244.1.3:8080" -j KUBE-SEP-MGYZ72N52QLOHZGY"#,
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-EXT-HMXYGTJUZB5GQ45C"),
        &[
            r#"-s 10.244.0.0/16 -m comment --comment "pod traffic for service-path/source-ip:http external destinations" -j KUBE-SVC-HMXYGTJUZB5GQ45C"#,
            r#"-m comment --comment "masquerade LOCAL traffic for service-path/source-ip:http external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"#,
            r#"-m comment --comment "route LOCAL traffic for service-path/source-ip:http external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-HMXYGTJUZB5GQ45C"#,
            "-j KUBE-SVL-HMXYGTJUZB5GQ45C",
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-SVL-HMXYGTJUZB5GQ45C"),
        &[
            r#"-m comment --comment "service-path/source-ip:http -> 10.244.1.3:8080" -j KUBE-SEP-MGYZ72N52QLOHZGY"#,
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-SEP-MGYZ72N52QLOHZGY"),
        &[
            r#"-s 10.244.1.3/32 -m comment --comment "service-path/source-ip:http" -j KUBE-MARK-MASQ"#,
            r#"-p tcp -m comment --comment "service-path/source-ip:http" -m tcp -j DNAT --to-destination 10.244.1.3:8080"#,
        ],
    ),
    ("worker2", Object::Absent("nat", "KUBE-SVL-HMXYGTJUZB5GQ45C"), &[]),
];

/// What drops packets to the worker without an endpoint.
const FILTER_V4: Rules = (
    "worker2",
    Object::Shared("filter", "KUBE-EXTERNAL-SERVICES"),
    &[
        r#"-p tcp -m comment --comment "service-path/source-ip:http has no local endpoints" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j DROP"#,
    ],
);

const RULES_V6: [Rules; 7] = [
    (
        "worker",
        Object::Shared("nat", "KUBE-SERVICES"),
        &[
            r#"-d fd00:10:96::7bdc/128 -p tcp -m comment --comment "service-path/dual-stack:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-MC6QYYJL3TOGZLIU"#,
        ],
    ),
    (
        "worker",
        Object::Shared("nat", "KUBE-NODEPORTS"),
        &[
            r#"-p tcp -m comment --comment "service-path/dual-stack:http" -m tcp --dport 30082 -j KUBE-EXT-MC6QYYJL3TOGZLIU"#,
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-SVC-MC6QYYJL3TOGZLIU"),
        &[
            r#"! -s fd00:10:244::/48 -d fd00:10:96::7bdc/128 -p tcp -m comment --comment "service-path/dual-stack:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ"#,
            r#"-m comment --comment "service-path/dual-stack:http -> [fd00:10:244:1::3]:8080" -j KUBE-SEP-KTAIHCRRJDY5M7BO"#,
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-EXT-MC6QYYJL3TOGZLIU"),
        &[
            r#"-s fd00:10:244::/48 -m comment --comment "pod traffic for service-path/dual-stack:http external destinations" -j KUBE-SVC-MC6QYYJL3TOGZLIU"#,
            r#"-m comment --comment "masquerade LOCAL traffic for service-path/dual-stack:http external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"#,
            r#"-m comment --comment "route LOCAL traffic for service-path/dual-stack:http external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-MC6QYYJL3TOGZLIU"#,
            "-j KUBE-SVL-MC6QYYJL3TOGZLIU",
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-SVL-MC6QYYJL3TOGZLIU"),
        &[
            r#"-m comment --comment "service-path/dual-stack:http -> [fd00:10:244:1::3]:8080" -j KUBE-SEP-KTAIHCRRJDY5M7BO"#,
        ],
    ),
    (
        "worker",
        Object::Own("nat", "KUBE-SEP-KTAIHCRRJDY5M7BO"),
        &[
            r#"-s fd00:10:244:1::3/128 -m comment --comment "service-path/dual-stack:http" -j KUBE-MARK-MASQ"#,
            r#"-p tcp -m comment --comment "service-path/dual-stack:http" -m tcp -j DNAT --to-destination [fd00:10:244:1::3]:8080"#,
        ],
    ),
    ("worker2", Object::Absent("nat", "KUBE-SVL-MC6QYYJL3TOGZLIU"), &[]),
];
