//! The backend, driven as the agent drives it, on a kernel that has IPVS: each test in a network namespace of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proxier_core::backend::Backend;
use proxier_core::cluster::{Cluster, DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, NodeName, Port, Protocol, ServicePortName};
use proxier_core::model::{EndpointSlice, NodeFacts, Service, ServiceType, TrafficPolicy};
use proxier_core::snapshot::Snapshot;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};
use proxier_testkit::scale;

use crate::{Ipvs, Options};

const NODE_IP: &str = "192.0.2.3";

/// Runs a tool; `'...'` is one word.
fn tool(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
    }
    let output = SystemRunner::new().run(&CommandSpec::new(words[0], words[1..].iter().copied())).unwrap();
    assert!(output.success(), "{line}: {}", output.stderr_text());
    output.stdout_text()
}

struct Bench {
    cluster: Cluster,
    driver: Driver<Ipvs>,
    options: Options,
}

impl Bench {
    /// On a host with one address beside loopback.
    fn new(options: Options) -> Self {
        proxier_sys::netns::enter_new().expect("root, to make a network namespace");
        tool("ip link set lo up");
        tool("ip link add br0 type bridge");
        tool(&format!("ip address add {NODE_IP}/24 dev br0"));
        tool("ip link set br0 up");
        let traffic = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
            node_port_addresses: NodePortSelector::Primary,
            ..TrafficOptions::default()
        };
        let mut cluster = Cluster::new(NodeName::new(scale::NODE), traffic);
        let mut node = NodeFacts::default();
        node.ips.ipv4 = NODE_IP.parse().ok();
        node.host_addresses = vec![NODE_IP.parse().unwrap()];
        cluster.set_node(node);
        let driver = Self::driver(&options);
        Self { cluster, driver, options }
    }

    /// One that has looked at the host, as the agent makes it do first.
    fn driver(options: &Options) -> Driver<Ipvs> {
        let mut backend = Ipvs::new(IpFamily::Ipv4, options.clone());
        let capabilities = backend.probe().unwrap();
        assert_eq!(capabilities.missing().count(), 0, "{:#?}", capabilities.requirements);
        Driver::new(backend)
    }

    /// Another process in the place of this one, which was killed.
    fn restart(&mut self) {
        self.driver = Self::driver(&self.options);
    }

    fn put(&mut self, number: u32, endpoints: u32, change: impl FnOnce(&mut Service)) {
        let mut service = scale::service(number);
        change(&mut service);
        self.cluster.upsert_service(service);
        self.cluster.upsert_slice(scale::slice(number, endpoints, 0));
    }

    fn slice(&mut self, slice: EndpointSlice) {
        self.cluster.upsert_slice(slice);
    }

    fn snapshot(&mut self) -> Snapshot {
        self.cluster.commit().snapshot(IpFamily::Ipv4).clone()
    }

    fn sync(&mut self) -> SyncReport {
        let snapshot = self.snapshot();
        self.driver.sync(&snapshot, SyncKind::Partial).unwrap()
    }

    fn full(&mut self) -> SyncReport {
        let snapshot = self.driver.adopted().unwrap().clone();
        self.driver.sync(&snapshot, SyncKind::Full).unwrap()
    }

    fn drift(&self) -> Vec<String> {
        let drift = self.driver.verification().unwrap().run().unwrap();
        drift.items.iter().map(ToString::to_string).collect()
    }

    /// The kernel holds exactly what is believed, and what a process that has just been started makes of the same cluster.
    #[track_caller]
    fn in_order(&self, after: &str) {
        assert_eq!(self.drift(), [""; 0], "after {after}");
        let snapshot = self.driver.adopted().unwrap().clone();
        let drift = Self::driver(&self.options).compare(&snapshot).unwrap();
        assert!(drift.is_empty(), "after {after}, a new process: {:#?}", drift.items);
    }
}

/// A load balancer with every kind of frontend.
fn rich(service: &mut Service) {
    service.kind = ServiceType::LoadBalancer;
    service.external_policy = TrafficPolicy::Local;
    service.load_balancer_vips.ipv4 = vec!["198.51.100.1".parse().unwrap()];
    service.external_ips.ipv4 = vec!["198.51.100.2".parse().unwrap()];
    service.source_ranges.ipv4 = vec!["203.0.113.0/24".parse().unwrap(), "192.0.2.7/32".parse().unwrap()];
    service.ports[0].node_port = Port::new(30080);
    service.health_check_node_port = Port::new(32080);
}

fn fill(b: &mut Bench) {
    b.put(0, 2, |_| {});
    b.put(1, 3, rich);
    b.put(2, 2, |s| s.affinity = Some(Duration::from_secs(600)));
    b.put(3, 0, |s| s.ports[0].node_port = Port::new(30090));
}

fn name(number: u32) -> ServicePortName {
    let service = scale::service(number);
    let port = &service.ports[0];
    ServicePortName { service: service.name, port: Arc::clone(&port.name), protocol: port.protocol }
}

/// Listed until two listings are the same: others, of whatever namespace, that come and go meanwhile have the kernel pass over or repeat some.
fn virtual_servers() -> Vec<String> {
    let mut before = tool("ipvsadm -Sn");
    loop {
        let now = tool("ipvsadm -Sn");
        if now == before {
            return now.lines().map(str::to_owned).collect();
        }
        before = now;
    }
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn what_is_synced_stays_and_goes_again() {
    let mut b = Bench::new(Options::default());
    fill(&mut b);
    let report = b.sync();
    assert!(report.setbacks.is_empty() && report.refused.is_empty(), "{report:?}");
    assert!(report.messages > 0 && report.bytes > 0);
    b.in_order("the first sync");
    assert_eq!(b.full().operations, 0, "a second full sync finds nothing to do");
    b.restart();
    let again = b.sync();
    assert_eq!(again.operations, 0, "another process takes over what is there");

    b.cluster.remove_service(&scale::service(1).name);
    b.sync();
    b.in_order("a Service is gone");
    assert!(virtual_servers().iter().all(|l| !l.contains("198.51.100.") && !l.contains(":30080")));
    let report = b.driver.cleanup().unwrap();
    assert_eq!(report.stayed, [""; 0]);
    assert_eq!(virtual_servers(), [""; 0]);
    assert_eq!(tool("ipset list -name"), "");
    assert!(!tool("iptables-nft-save").contains("KUBE-"));
    assert!(!tool("ip -br link").contains("kube-ipvs0"));
    let twice = b.driver.cleanup().unwrap();
    assert_eq!((twice.removed, twice.stayed), (vec![], vec![]));
}

/// Cases: ipvs-11.25, ipvs-11.36
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn every_kind_of_damage_is_named_and_repaired() {
    let mut b = Bench::new(Options::default());
    fill(&mut b);
    b.sync();
    let (cluster, other) = (scale::cluster_ip(0), scale::cluster_ip(2));
    let (first, stranger) = (scale::endpoint_ip(0, 0, 0), scale::endpoint_ip(9, 9, 9));
    let damages = [
        (format!("ipvsadm -D -t {cluster}:80"), "missing: virtual server"),
        (format!("ipvsadm -E -t {cluster}:80 -s wrr"), "different: want virtual server"),
        (format!("ipvsadm -E -t {other}:80 -s rr -p 60"), "different: want virtual server"),
        (format!("ipvsadm -d -t {cluster}:80 -r {first}:8080"), "missing: real server"),
        (format!("ipvsadm -e -t {cluster}:80 -r {first}:8080 -m -w 0"), "different: want real server"),
        (format!("ipvsadm -e -t {cluster}:80 -r {first}:8080 -m -w 7"), "different: want real server"),
        (format!("ipvsadm -a -t {cluster}:80 -r {stranger}:8080 -m -w 1"), "unexpected: real server"),
        (format!("ipvsadm -A -t {cluster}:81 -s rr"), "unexpected: virtual server"),
        ("ipvsadm -C".to_owned(), "missing: virtual server"),
        (format!("ipset del KUBE-CLUSTER-IP {cluster},tcp:80"), "missing: entry KUBE-CLUSTER-IP"),
        ("ipset add KUBE-CLUSTER-IP 10.9.9.9,tcp:80".to_owned(), "unexpected: entry KUBE-CLUSTER-IP"),
        ("ipset add KUBE-CLUSTER-IP 10.9.9.9,udplite:80".to_owned(), "unexpected: entry KUBE-CLUSTER-IP"),
        (
            "ipset flush KUBE-LOAD-BALANCER-SOURCE-CIDR".to_owned(),
            "missing: entry KUBE-LOAD-BALANCER-SOURCE-CIDR",
        ),
        (format!("ip address del {cluster}/32 dev kube-ipvs0"), "missing: address"),
        ("ip address add 10.9.9.9/32 dev kube-ipvs0".to_owned(), "unexpected: address"),
        ("ip link del kube-ipvs0".to_owned(), "missing: interface kube-ipvs0"),
        ("iptables-nft -t nat -F KUBE-SERVICES".to_owned(), "missing: "),
        (
            "iptables-nft -D INPUT -m comment --comment 'kubernetes ipvs access filter' -j KUBE-IPVS-FILTER"
                .to_owned(),
            "missing: ",
        ),
        ("iptables-nft -I KUBE-IPVS-FILTER -j ACCEPT".to_owned(), "unexpected: "),
    ];
    for (damage, named) in damages {
        tool(&damage);
        let drift = b.drift();
        assert!(drift.iter().any(|item| item.starts_with(named)), "{damage}: {drift:#?}");
        let report = b.full();
        assert!(report.operations > 0 || damage.contains("udplite"), "{damage}");
        b.in_order(&damage);
    }
}

/// Cases: ipvs-11.27
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn virtual_servers_of_others_are_never_touched() {
    let excluded = "10.64.0.7/32".parse().unwrap();
    let mut b = Bench::new(Options { exclude_cidrs: vec![excluded], ..Options::default() });
    let foreign = ["-A -t 5.5.5.5:80 -s wlc", "-a -t 5.5.5.5:80 -r 10.1.1.1:80 -m -w 3", "-A -f 7 -s rr"];
    for line in foreign {
        tool(&format!("ipvsadm {line}"));
    }
    fill(&mut b);
    b.sync();
    // Ours by its address, but for the range that it is in.
    b.put(7, 1, |_| {});
    b.sync();
    let there = |b: &Bench| {
        foreign.iter().all(|l| virtual_servers().iter().any(|v| v.starts_with(l))) && b.drift().is_empty()
    };
    assert!(there(&b), "{:#?}", virtual_servers());
    b.cluster.remove_service(&scale::service(7).name);
    b.restart();
    b.sync();
    assert!(
        virtual_servers().iter().any(|l| l.contains("10.64.0.8:80")) || there(&b),
        "{:#?}",
        virtual_servers()
    );
    b.full();
    assert!(there(&b));
    let report = b.driver.cleanup().unwrap();
    assert!(
        report.stayed.iter().any(|l| l.contains("5.5.5.5:80") && l.contains("not ours")),
        "{:?}",
        report.stayed
    );
    assert!(
        foreign.iter().all(|l| virtual_servers().iter().any(|v| v.starts_with(l))),
        "{:#?}",
        virtual_servers()
    );
}

/// Cases: ipvs-11.7
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn a_change_costs_a_few_messages_whatever_else_there_is() {
    let mut b = Bench::new(Options::default());
    for number in 0..500 {
        b.put(number, 5, |_| {});
    }
    b.sync();
    b.slice(scale::slice(17, 5, 1));
    let report = b.sync();
    assert!(report.messages < 20, "{report:?}");
    assert_eq!(report.kind, SyncKind::Partial);
    b.in_order("an endpoint was replaced");
    assert_eq!(b.sync().messages, 0, "nothing changed");
}

/// A server on an address of this host, which is an endpoint of service 0.
struct Local {
    listener: TcpListener,
    address: IpAddr,
}

impl Local {
    fn new(endpoint: u32) -> Self {
        let address = IpAddr::V4(scale::endpoint_ip(0, endpoint, 0));
        tool(&format!("ip address add {address}/32 dev lo"));
        Self { listener: TcpListener::bind((address, 8080)).unwrap(), address }
    }

    /// Says something through a connection, both ways.
    #[track_caller]
    fn talk(stream: &mut TcpStream, peer: &mut TcpStream) {
        fn say(from: &mut TcpStream, to: &mut TcpStream) {
            from.write_all(b"x").unwrap();
            to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            to.read_exact(&mut [0]).unwrap();
        }
        say(stream, peer);
        say(peer, stream);
    }
}

fn weight_of(address: IpAddr) -> Option<u32> {
    let line = virtual_servers().into_iter().find(|l| l.contains(&format!("-r {address}:8080")))?;
    line.rsplit_once("-w ")?.1.trim().parse().ok()
}

/// Syncs until the real server is gone, or ten times the time of a check has passed.
fn until_gone(b: &mut Bench, address: IpAddr) -> bool {
    let deadline = Instant::now() + Duration::from_secs(100);
    while weight_of(address).is_some() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(500));
        b.sync();
    }
    true
}

/// Cases: ipvs-11.28, ipvs-11.29, ipvs-11.30, ipvs-11.31, report-C5-55
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn connections_outlive_their_endpoint_a_restart_and_its_return() {
    let mut b = Bench::new(Options::default());
    let local = Local::new(0);
    b.put(0, 1, |_| {});
    b.sync();
    let mut client = TcpStream::connect((scale::cluster_ip(0), 80)).unwrap();
    let mut server = local.listener.accept().unwrap().0;
    Local::talk(&mut client, &mut server);

    b.slice(scale::slice(0, 0, 0));
    let report = b.sync();
    assert_eq!(weight_of(local.address), Some(0), "it drains");
    assert!(report.follow_up.is_some());
    b.in_order("an endpoint drains");
    b.restart();
    assert!(b.sync().follow_up.is_some(), "another process goes on with it");
    assert_eq!(weight_of(local.address), Some(0));
    Local::talk(&mut client, &mut server);

    b.slice(scale::slice(0, 1, 0));
    assert_eq!(b.sync().follow_up, None);
    assert_eq!(weight_of(local.address), Some(1), "it is back");
    Local::talk(&mut client, &mut server);

    b.slice(scale::slice(0, 0, 0));
    b.sync();
    reset(&client);
    drop((client, server));
    assert!(until_gone(&mut b, local.address), "{:?}", virtual_servers());
    b.in_order("it is gone");
    // A deleted Service takes everything along at once.
    let mut client = None;
    b.slice(scale::slice(0, 1, 0));
    b.sync();
    client.replace(TcpStream::connect((scale::cluster_ip(0), 80)).unwrap());
    b.cluster.remove_service(&scale::service(0).name);
    b.sync();
    assert_eq!(virtual_servers(), [""; 0]);
    assert!(b.driver.adopted().unwrap().port(&name(0)).is_none());
}

/// Cases: ipvs-11.32
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn a_real_server_that_somebody_deleted_is_gone_without_a_word() {
    let mut b = Bench::new(Options::default());
    b.put(0, 2, |_| {});
    b.sync();
    let gone = scale::endpoint_ip(0, 1, 0);
    tool(&format!("ipvsadm -d -t {}:80 -r {gone}:8080", scale::cluster_ip(0)));
    b.slice(scale::slice(0, 1, 0));
    let report = b.sync();
    assert!(report.setbacks.is_empty() && report.refused.is_empty(), "{report:?}");
    assert_eq!(report.follow_up, None);
    b.in_order("it went by itself");
}

/// Cases: ipvs-11.37
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn rules_that_cannot_be_written_fail_the_sync_and_the_next_one_brings_everything_in() {
    let mut b = Bench::new(Options::default());
    b.put(0, 2, |_| {});
    b.sync();
    // A table that iptables can neither show nor write.
    tool("nft add chain ip filter OF-OTHERS");
    tool("nft add rule ip filter OF-OTHERS numgen random mod 2 0 drop");
    b.put(1, 3, rich);
    let snapshot = b.snapshot();
    let error = b.driver.sync(&snapshot, SyncKind::Full).unwrap_err();
    assert!(error.to_string().contains("filter"), "{error}");
    assert!(b.driver.adopted().unwrap().port(&name(1)).is_none(), "what is believed is what went in");
    assert!(
        virtual_servers().iter().any(|l| l.contains(&scale::cluster_ip(0).to_string())),
        "what was served still is"
    );
    tool("nft delete chain ip filter OF-OTHERS");
    b.sync();
    b.in_order("the table is readable again");
}

/// What a client with this port is answered, within ten seconds.
fn ask(socket: &UdpSocket) -> Option<u8> {
    let mut answer = [0];
    // The first datagram after the change only ends the old flow.
    for _ in 0..20 {
        socket.send(b"?").ok();
        if socket.recv(&mut answer).is_ok() {
            return Some(answer[0]);
        }
    }
    None
}

/// A UDP endpoint that answers with its number.
fn answering(endpoint: u32) -> UdpSocket {
    let address = IpAddr::V4(scale::endpoint_ip(0, endpoint, 0));
    tool(&format!("ip address add {address}/32 dev lo"));
    let socket = UdpSocket::bind((address, 8080)).unwrap();
    let own = socket.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 8];
        while let Ok((_, from)) = own.recv_from(&mut buffer) {
            own.send_to(&[u8::try_from(endpoint).unwrap()], from).ok();
        }
    });
    socket
}

/// Cases: report-C5-59
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn a_udp_client_follows_its_service_to_another_endpoint() {
    let mut b = Bench::new(Options::default());
    let _servers = [answering(0), answering(1)];
    let udp = |service: &mut Service| service.ports[0].protocol = Protocol::Udp;
    let slice = |endpoint: usize| {
        let mut slice = scale::slice(0, 2, 0);
        slice.ports[0].protocol = Protocol::Udp;
        slice.endpoints = vec![slice.endpoints[endpoint].clone()];
        slice
    };
    b.put(0, 0, udp);
    b.slice(slice(0));
    b.sync();
    let client = UdpSocket::bind((NODE_IP, 0)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    client.connect((scale::cluster_ip(0), 80)).unwrap();
    assert_eq!(ask(&client), Some(0));
    b.slice(slice(1));
    b.sync();
    assert_eq!(ask(&client), Some(1), "the same flow");
}

/// Cases: report-C5-56
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn a_client_may_use_its_port_again_across_the_removal_of_an_endpoint() {
    let mut b = Bench::new(Options::default());
    let servers = [Local::new(0), Local::new(1)];
    let slice = |endpoint: usize| {
        let mut slice = scale::slice(0, 2, 0);
        slice.endpoints = vec![slice.endpoints[endpoint].clone()];
        slice
    };
    b.put(0, 0, |_| {});
    b.slice(slice(0));
    b.sync();
    for (endpoint, server) in servers.iter().enumerate() {
        b.slice(slice(endpoint));
        b.sync();
        let mut client = from_port(41_000, (scale::cluster_ip(0), 80).into());
        let mut peer = server.listener.accept().unwrap().0;
        Local::talk(&mut client, &mut peer);
        reset(&client);
    }
}

/// A connection from a port of the node's, which may just have been used.
fn from_port(port: u16, to: SocketAddr) -> TcpStream {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
    };
    use std::os::fd::AsRawFd;
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    setsockopt(&socket, sockopt::ReuseAddr, &true).unwrap();
    let (IpAddr::V4(node), SocketAddr::V4(to)) = (NODE_IP.parse().unwrap(), to) else { unreachable!("IPv4") };
    bind(socket.as_raw_fd(), &SockaddrIn::from(std::net::SocketAddrV4::new(node, port))).unwrap();
    connect(socket.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
    TcpStream::from(socket)
}

/// Closing it will send a reset: what is left of it is remembered for some seconds.
fn reset(stream: &TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn nobody_drains_longer_than_the_cap() {
    let mut b = Bench::new(Options { drain_timeout: Duration::from_secs(1), ..Options::default() });
    let local = Local::new(0);
    b.put(0, 1, |_| {});
    b.sync();
    let client = TcpStream::connect((scale::cluster_ip(0), 80)).unwrap();
    let server = local.listener.accept().unwrap().0;
    b.slice(scale::slice(0, 0, 0));
    b.sync();
    assert_eq!(weight_of(local.address), Some(0));
    assert!(until_gone(&mut b, local.address), "{:?}", virtual_servers());
    drop((client, server));
}

/// A set holds more than the kernel gives it at first.
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn a_full_set_is_made_anew_with_more_room() {
    let mut b = Bench::new(Options::default());
    b.put(0, 1, |_| {});
    b.sync();
    tool("ipset create small hash:ip,port family inet hashsize 64 maxelem 3");
    tool(&format!("ipset add small {},tcp:80", scale::cluster_ip(0)));
    tool("ipset swap small KUBE-CLUSTER-IP");
    tool("ipset destroy small");
    for number in 1..20 {
        b.put(number, 1, |_| {});
    }
    let report = b.sync();
    assert!(report.refused.is_empty() && report.setbacks.is_empty(), "{report:?}");
    b.in_order("a set grew");
    assert!(tool("ipset list -terse KUBE-CLUSTER-IP").contains("maxelem 65536"));
}
