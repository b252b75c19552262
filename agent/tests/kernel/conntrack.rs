//! UDP flows that a change of the rules leaves behind, and all those that it must not touch.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use proxier_sys::conntrack::{Conntrack, Family, Flow, Tuple};

use crate::program::tool;
use crate::stage::{Daemon, Stage, until};

const CLUSTER: [&str; 2] = ["10.96.0.10:53", "[fd00:10:96::a]:53"];
const EXTERNAL: [&str; 2] = ["198.51.100.7:53", "[2001:db8:51::7]:53"];
const NODE_PORT: [&str; 2] = ["192.0.2.1:30053", "[2001:db8::1]:30053"];

/// A Service of both families with a UDP port, reachable in all three ways, and its slices. Endpoints are numbers.
fn dns(tcp: u16, endpoints: &[u16]) -> String {
    let slice = |family: &str, address: &dyn Fn(u16) -> String| {
        let listed: String =
            endpoints.iter().map(|e| format!("- addresses: ['{}']\n", address(*e))).collect();
        let endpoints =
            if listed.is_empty() { "endpoints: []\n".to_owned() } else { format!("endpoints:\n{listed}") };
        format!(
            "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: dns-{family}, namespace: shop, labels: {{kubernetes.io/service-name: dns}}}}
addressType: {family}
ports: [{{name: dns, port: 5353, protocol: UDP}}, {{name: dns-tcp, port: 5353, protocol: TCP}}]
{endpoints}"
        )
    };
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: dns, namespace: shop, creationTimestamp: '2026-01-01T00:00:00Z'}}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, 'fd00:10:96::a']
  ipFamilies: [IPv4, IPv6]
  externalIPs: [198.51.100.7, '2001:db8:51::7']
  ports:
  - {{name: dns, port: 53, protocol: UDP, nodePort: 30053}}
  - {{name: dns-tcp, port: {tcp}, protocol: TCP, nodePort: 30054}}
{}{}",
        slice("IPv4", &|e| format!("10.244.1.{e}")),
        slice("IPv6", &|e| format!("fd00:10:244::{e}"))
    )
}

fn endpoint(family: usize, number: u16) -> String {
    [format!("10.244.1.{number}:5353"), format!("[fd00:10:244::{number}]:5353")][family].clone()
}

/// The addresses of the node and, as if its pods were processes of its own, of endpoints.
fn node(stage: &mut Stage) {
    stage.open_loopback();
    for command in [
        "addr add 192.0.2.1/32 dev lo",
        "addr add 10.244.1.1/32 dev lo",
        "addr add 10.244.1.2/32 dev lo",
        "route add default dev lo",
        "addr add 2001:db8::1/128 dev lo nodad",
        "addr add fd00:10:244::1/128 dev lo nodad",
        "addr add fd00:10:244::2/128 dev lo nodad",
        "-6 route add default dev lo",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let output = tool("ip", &args, "");
        assert_eq!(output.code, 0, "{command}: {}", output.stderr_text());
    }
}

fn flow(protocol: u8, client: u16, to: &str, from: &str) -> Flow {
    let [to, from]: [SocketAddr; 2] = [to, from].map(|text| text.parse().expect("an address"));
    let client = match to {
        SocketAddr::V4(_) => SocketAddr::new([10, 244, 9, 9].into(), client),
        SocketAddr::V6(_) => SocketAddr::new("fd00:10:244::9:9".parse().expect("an address"), client),
    };
    Flow {
        protocol,
        original: Tuple::new(client, to),
        reply: Tuple::new(from, client),
        zone: 0,
        id: None,
        status: 0x8,
    }
}

fn udp(client: u16, to: &str, from: &str) -> Flow {
    flow(17, client, to, from)
}

fn make(flows: &[Flow]) {
    let refused = Conntrack::open().expect("a socket").create(flows, 600).expect("sent");
    assert!(refused.is_empty(), "{refused:?}");
}

/// Client ports of the flows that were made and are there; real packets have others.
fn there() -> Vec<u16> {
    let mut out = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let each = |flow: &Flow| out.push(flow.original.source.port());
        Conntrack::open().expect("a socket").list(family, None, each).expect("listed");
    }
    out.retain(|port| *port < 1000);
    out.sort_unstable();
    out
}

/// The next pass of both families, and what they deleted.
fn passes(daemon: &Daemon) -> [u64; 2] {
    ["IPv4", "IPv6"].map(|family| {
        let line = daemon.logged(&[("message", "stale UDP flows"), ("family", family)]);
        line["deleted"].as_u64().expect("a number")
    })
}

fn started(stage: &Stage) -> Daemon {
    let daemon = stage.run();
    assert_eq!(passes(&daemon), [0, 0]);
    daemon
}

/// Flows as they would be after a while: to endpoint 1, and to endpoint 2, through all frontends.
fn usual() -> Vec<Flow> {
    let mut out = Vec::new();
    for family in [0, 1] {
        for (number, frontend) in [CLUSTER, EXTERNAL, NODE_PORT].into_iter().enumerate() {
            let client =
                100 * u16::try_from(family).expect("small") + 10 * u16::try_from(number).expect("small");
            for e in [1, 2] {
                out.push(udp(client + e, frontend[family], &endpoint(family, e)));
            }
        }
    }
    out
}

/// Those of [`usual`] that go to this endpoint.
fn to(endpoint: u16) -> impl Fn(&u16) -> bool {
    move |client| *client < 200 && client % 10 == endpoint
}

/// What nobody may touch, whatever happens to the service.
fn foreign() -> Vec<Flow> {
    vec![
        // TCP with the same addresses and ports.
        flow(6, 201, CLUSTER[0], &endpoint(0, 2)),
        flow(6, 202, NODE_PORT[1], &endpoint(1, 2)),
        // Another port of our address, another address with our port.
        udp(203, "10.96.0.10:54", &endpoint(0, 2)),
        udp(204, "10.96.0.11:53", &endpoint(0, 2)),
        udp(205, "[fd00:10:96::b]:53", &endpoint(1, 2)),
        // A pod that talks to a host elsewhere, which happens to use the number of a node port.
        udp(206, "203.0.113.9:30053", "203.0.113.9:30053"),
        udp(207, "[2001:db8:9::9]:30053", "[2001:db8:9::9]:30053"),
        // A pod that talks to the endpoint itself.
        udp(208, &endpoint(0, 2), &endpoint(0, 2)),
        // A container's host port that somebody else translates, on our node port.
        udp(209, NODE_PORT[0], "10.244.1.77:80"),
        udp(210, NODE_PORT[1], "[fd00:10:244::77]:80"),
        // In a zone of somebody else.
        Flow { zone: 3, ..udp(211, CLUSTER[0], &endpoint(0, 2)) },
        // Of this host's loopback, where node ports do not answer.
        udp(212, "127.0.0.1:30053", "127.0.0.1:30053"),
    ]
}

fn is_foreign(client: &u16) -> bool {
    (201..=212).contains(client)
}

/// Cases: core-11.55, iptables-12.40, nftables-12.42, report-C4-44, report-C4-47
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_55_a_replaced_endpoint_takes_its_flows_along_and_nothing_else() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1, 2]))]);
    node(&mut stage);
    let daemon = started(&stage);
    make(&usual());
    make(&foreign());
    let before = there();
    assert_eq!(before.len(), 12 + 12);
    stage.folder.write("dns.yaml", &dns(53, &[1, 3]));
    assert_eq!(passes(&daemon), [3, 3]);
    let expected: Vec<u16> = before.iter().copied().filter(|c| !to(2)(c)).collect();
    assert_eq!(there(), expected);
    stage.in_order();
}

/// The last endpoint goes, and later another one comes: the flows go with the first, and those that began in between with the second.
///
/// Cases: core-11.56, iptables-12.40, report-C4-43, report-C4-46
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_56_to_zero_and_back() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1]))]);
    node(&mut stage);
    let daemon = started(&stage);
    make(&usual().into_iter().filter(|f| to(1)(&f.original.source.port())).collect::<Vec<_>>());
    make(&foreign());
    stage.folder.write("dns.yaml", &dns(53, &[]));
    assert_eq!(passes(&daemon), [3, 3]);
    assert!(there().iter().all(is_foreign), "{:?}", there());

    let gap: Vec<Flow> = [CLUSTER, EXTERNAL, NODE_PORT]
        .iter()
        .flatten()
        .zip(300..)
        .map(|(f, client)| udp(client, f, f))
        .collect();
    make(&gap);
    stage.folder.write("dns.yaml", &dns(53, &[2]));
    assert_eq!(passes(&daemon), [3, 3]);
    let left = there();
    assert!(left.iter().all(is_foreign) && left.len() == foreign().len(), "{left:?}");
}

/// Cases: core-11.57
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_57_a_change_of_the_tcp_port_deletes_nothing() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1, 2]))]);
    node(&mut stage);
    let daemon = started(&stage);
    make(&usual());
    make(&foreign());
    let before = there();
    stage.folder.write("dns.yaml", &dns(5353, &[1, 2]));
    daemon.logged(&[("message", "synced"), ("sync.kind", "partial"), ("family", "IPv6")]);
    // What follows is a pass; one before it would have been told before it.
    stage.folder.write("dns.yaml", &dns(5353, &[1]));
    assert_eq!(passes(&daemon), [3, 3]);
    assert_eq!(there(), before.into_iter().filter(|c| !to(2)(c)).collect::<Vec<_>>());
    assert_eq!(daemon.count(&[("message", "stale UDP flows")]), 0, "one pass a family");
}

/// Deleted, and made again: flows of before go with the deletion, those of the gap with the creation.
///
/// Cases: report-C4-50
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_50_a_service_that_is_deleted_and_made_again() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1, 2]))]);
    node(&mut stage);
    let daemon = started(&stage);
    make(&usual());
    make(&foreign());
    stage.folder.remove("dns.yaml");
    assert_eq!(passes(&daemon), [6, 6]);
    assert_eq!(there().len(), foreign().len());
    make(&[udp(300, CLUSTER[0], CLUSTER[0]), udp(301, NODE_PORT[1], NODE_PORT[1])]);
    stage.folder.write("dns.yaml", &dns(53, &[1]));
    assert_eq!(passes(&daemon), [1, 1]);
    let left = there();
    assert!(left.iter().all(is_foreign) && left.len() == foreign().len(), "{left:?}");
}

/// What was missed while nobody was there is made up for; flows to endpoints that are still there stay.
///
/// Cases: report-C4-49
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_49_a_restart_repairs_what_was_missed_and_keeps_the_rest() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1, 2]))]);
    node(&mut stage);
    let daemon = started(&stage);
    make(&usual());
    make(&foreign());
    assert!(daemon.end(Signal::SIGTERM).0.success());
    let daemon = stage.run();
    // Somebody else's translation of our node port cannot be told from a former endpoint's after a start.
    assert_eq!(passes(&daemon), [1, 1]);
    assert_eq!(there().len(), 12 + 10);
    assert!(daemon.end(Signal::SIGKILL).1.iter().all(|line| line["level"] != "ERROR"));

    stage.folder.write("dns.yaml", &dns(53, &[2]));
    let daemon = stage.run();
    assert_eq!(passes(&daemon), [3, 3]);
    assert!(!there().iter().any(to(1)));
    assert_eq!(there().len(), 6 + 10);
}

/// Rules that somebody removed are written again: flows that began without them are not translated.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn flows_that_began_while_rules_were_missing_go_when_they_are_back() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1]))]);
    stage.configure("verifyPeriod: 1s");
    node(&mut stage);
    let daemon = started(&stage);
    make(&foreign());
    make(&[udp(1, CLUSTER[0], &endpoint(0, 1))]);
    crate::stage::nft(&["delete", "table", "ip", "kube-proxy"], "");
    make(&[udp(300, CLUSTER[0], CLUSTER[0]), udp(301, NODE_PORT[0], NODE_PORT[0])]);
    let line = daemon.logged(&[("message", "deleted stale UDP flows"), ("family", "IPv4")]);
    assert_eq!((line["deleted"].as_u64(), line["scope"].as_str()), (Some(2), Some("all frontends")));
    let left = there();
    assert!(left[1..].iter().all(is_foreign) && left.len() == foreign().len() + 1, "{left:?}");
}

/// A million entries would cost what ten thousand do: one walk, and one message for each flow that goes.
///
/// Cases: core-11.58
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_58_one_walk_and_one_message_for_each_stale_flow() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1, 2]))]);
    node(&mut stage);
    let daemon = started(&stage);
    let flows: Vec<Flow> = (0..10_000u32)
        .map(|n| {
            let e = if n % 100 == 0 { 2 } else { 1 };
            let mut flow = udp(0, CLUSTER[0], &endpoint(0, e));
            let client = SocketAddr::new([10, 200, (n / 250) as u8, (n % 250) as u8].into(), 4000);
            flow.original.source = client;
            flow.reply.destination = client;
            flow
        })
        .collect();
    make(&flows);
    stage.folder.write("dns.yaml", &dns(53, &[1]));
    let line = daemon.logged(&[("message", "deleted stale UDP flows"), ("family", "IPv4")]);
    let number = |field: &str| line[field].as_u64().expect("a number");
    assert_eq!(["walks", "examined", "deleted", "messages"].map(number), [1, 100, 100, 101], "{line}");

    // All of them, in a process that knows nothing yet.
    assert!(daemon.end(Signal::SIGTERM).0.success());
    stage.folder.write("dns.yaml", &dns(53, &[3]));
    let daemon = stage.run();
    let line = daemon.logged(&[("message", "deleted stale UDP flows"), ("family", "IPv4")]);
    let number = |field: &str| line[field].as_u64().expect("a number");
    assert_eq!(["walks", "examined", "deleted", "messages"].map(number), [1, 9900, 9900, 9901], "{line}");
}

/// Answers with its own address until told to stop.
fn serve(address: &str, stop: &Arc<AtomicBool>) {
    let socket = UdpSocket::bind(address).expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    let (stop, name) = (Arc::clone(stop), address.to_owned());
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((_, client)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(name.as_bytes(), client);
            }
        }
    });
}

/// Who answers now, if anybody does.
fn ask(client: &UdpSocket) -> Option<String> {
    let mut buffer = [0; 64];
    client.send(b"?").ok()?;
    let length = client.recv(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// One socket that never rests, through every kind of frontend and in both families: it keeps its endpoint as long as that is there, and
/// is then answered by the other one.
///
/// Cases: core-11.55, report-C4-44
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_busy_client_is_moved_to_the_endpoint_that_is_left() {
    let mut stage = Stage::new(&[("dns.yaml", &dns(53, &[1]))]);
    node(&mut stage);
    let stop = Arc::<AtomicBool>::default();
    for family in [0, 1] {
        for e in [1, 2] {
            serve(&endpoint(family, e), &stop);
        }
    }
    let daemon = started(&stage);
    let clients: Vec<(usize, &str, UdpSocket)> = [CLUSTER, EXTERNAL, NODE_PORT]
        .iter()
        .flat_map(|both| both.iter().enumerate())
        .map(|(family, frontend)| {
            let own = ["192.0.2.1:0", "[2001:db8::1]:0"][family];
            let socket = UdpSocket::bind(own).expect("bound");
            socket.connect(frontend).expect("connected");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
            (family, *frontend, socket)
        })
        .collect();
    for (family, frontend, client) in &clients {
        until(frontend, || ask(client) == Some(endpoint(*family, 1)));
    }
    stage.folder.write("dns.yaml", &dns(53, &[1, 2]));
    daemon.logged(&[("message", "synced"), ("sync.kind", "partial"), ("family", "IPv6")]);
    for (family, frontend, client) in &clients {
        assert_eq!(ask(client), Some(endpoint(*family, 1)), "{frontend}");
    }
    stage.folder.write("dns.yaml", &dns(53, &[2]));
    for (family, frontend, client) in &clients {
        until(frontend, || ask(client) == Some(endpoint(*family, 2)));
    }
    stop.store(true, Ordering::Relaxed);
    stage.in_order();
}
