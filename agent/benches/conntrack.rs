//! What it costs to find and delete stale UDP flows among very many: passes of the agent's own thread over the kernel's table.
//!
//! `cargo bench -p agent --bench conntrack [-- WORD ...]`, as root; the words are in `docs/bench.md`. CPU time is that of the thread that
//! runs the pass, the kernel's work included. A network namespace may hold `nf_conntrack_max` flows, which only the host's own can
//! change; where that is less than what is asked for, further namespaces hold the rest. The kernel has one table for all of them, so that
//! a walk costs as much; only what is listed is less, and that is said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark, not shipped")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use agent::conntrack::{Cleaner, List, Pass, Tables};
use nix::time::{ClockId, clock_gettime};
use proxier_core::changes::ChangeSet;
use proxier_core::cluster::{Cluster, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName, Port, Protocol, ServiceName};
use proxier_core::model::{
    Conditions, EndpointSlice, Hints, PerFamily, Service, ServicePortSpec, ServiceType, SliceEndpoint,
    SliceName, SlicePort, TrafficPolicy,
};
use proxier_core::snapshot::Snapshot;
use proxier_core::stale::{Scope, StaleFlows};
use proxier_sys::conntrack::{Conntrack, Family, Filter, Flow, Listing, Tuple};
use proxier_sys::netlink::{Errno, NetlinkError, Sent};
use proxier_sys::netns;
use proxier_sys::sysctl::Sysctl;
use proxier_testkit::bench::bars::{FLOWS_CPU_MS, verdict};
use proxier_testkit::bench::{Arguments, Process, Samples, Table, report};

/// Stale flows in each pass.
const STALE: u32 = 1_000;
/// UDP services besides the one that changes.
const OTHERS: u16 = 1_000;
/// How often each kind of pass is run.
const ROUNDS: usize = 5;
/// Room in a namespace for flows that are not ours.
const MARGIN: u32 = 4_096;

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    Duration::new(now.tv_sec().try_into().unwrap(), now.tv_nsec().try_into().unwrap())
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

/// Endpoint `e` of the service that changes.
fn endpoint(e: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::from(0x0af4_0000 + u32::from(e)).into(), 53)
}

fn cluster_ip(service: u16) -> IpAddr {
    Ipv4Addr::from(0x0a60_0000 + u32::from(service)).into()
}

/// A flow of the `n`th client to endpoint `e`.
fn flow(n: u32, e: u16) -> Flow {
    let client = SocketAddr::new(Ipv4Addr::from(0x6440_0000 + n / 4).into(), 40_000 + (n % 4) as u16);
    let frontend = SocketAddr::new(cluster_ip(0), 53);
    Flow {
        protocol: 17,
        original: Tuple::new(client, frontend),
        reply: Tuple::new(endpoint(e), client),
        zone: 0,
        id: None,
        status: 0x8,
    }
}

/// Makes flows in the namespace of this thread.
fn make(flows: impl Iterator<Item = Flow>) {
    let mut conntrack = Conntrack::open().unwrap();
    let mut together = Vec::new();
    let mut flows = flows.peekable();
    while flows.peek().is_some() {
        together.extend(flows.by_ref().take(4096));
        let refused = conntrack.create(&together, 36_000).unwrap();
        assert!(refused.is_empty(), "{} refused: {}", refused.len(), refused[0]);
        together.clear();
    }
}

/// A kernel that knows no filters.
struct Plain(Conntrack);

impl List for Plain {
    fn list(
        &mut self,
        family: Family,
        filter: Option<&Filter>,
        each: &mut dyn FnMut(&Flow),
    ) -> Result<Listing, NetlinkError> {
        match filter {
            Some(_) => Err(NetlinkError::Refused { errno: Errno::EINVAL as i32, message: None }),
            None => self.0.list(family, None, each),
        }
    }

    fn take_sent(&mut self) -> Sent {
        self.0.take_sent()
    }
}

/// A cluster whose first service changes.
struct Node {
    cluster: Cluster,
    before: Option<Snapshot>,
}

impl Node {
    fn new() -> Self {
        let mut cluster = Cluster::new(NodeName::new("n"), TrafficOptions::default());
        for number in 0..=OTHERS {
            cluster.upsert_service(service(number));
            cluster.upsert_slice(slice(number, &[endpoint(60_000)]));
        }
        Self { cluster, before: None }
    }

    /// What is left behind when the service has these endpoints from now on.
    fn endpoints(&mut self, numbers: impl Iterator<Item = u16>) -> (StaleFlows, Snapshot) {
        self.cluster.upsert_slice(slice(0, &numbers.map(endpoint).collect::<Vec<_>>()));
        let new = self.cluster.commit().snapshot(IpFamily::Ipv4).clone();
        let before = self.before.replace(new.clone());
        let changes = ChangeSet::between(before.as_ref(), &new);
        (StaleFlows::plan(before.as_ref(), &new, &changes), new)
    }
}

fn name(number: u16) -> ServiceName {
    ServiceName::new("bench", format!("s{number}"))
}

fn service(number: u16) -> Service {
    let node_port = Some(port(30_000 + number % 2_000));
    Service {
        name: name(number),
        created: None,
        kind: ServiceType::NodePort,
        cluster_ips: PerFamily { ipv4: Some(cluster_ip(number)), ipv6: None },
        ports: vec![ServicePortSpec {
            name: "udp".into(),
            protocol: Protocol::Udp,
            port: port(53),
            node_port,
        }],
        external_ips: PerFamily::default(),
        load_balancer_vips: PerFamily::default(),
        source_ranges: PerFamily::default(),
        external_policy: TrafficPolicy::Cluster,
        internal_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: None,
    }
}

fn slice(number: u16, endpoints: &[SocketAddr]) -> EndpointSlice {
    let endpoint = |address: &SocketAddr| SliceEndpoint {
        ip: address.ip(),
        conditions: Conditions::default(),
        node: None,
        hints: Hints::default(),
    };
    EndpointSlice {
        name: SliceName { service: name(number), name: format!("s{number}-1").into() },
        family: IpFamily::Ipv4,
        ports: vec![SlicePort { name: "udp".into(), protocol: Protocol::Udp, port: port(53) }],
        endpoints: endpoints.iter().map(endpoint).collect(),
        trigger: None,
    }
}

/// The agent's thread, and the CPU time of each of its passes.
struct Bench {
    cleaner: Cleaner,
    passes: Receiver<(Pass, Duration)>,
    node: Node,
    /// Flows in this namespace.
    flows: u32,
}

impl Bench {
    fn new(filters: bool, flows: u32) -> Self {
        let (told, passes) = channel();
        let mut spent = Duration::ZERO;
        let open = move || {
            let list: Box<dyn List> =
                if filters { Box::new(Conntrack::open()?) } else { Box::new(Plain(Conntrack::open()?)) };
            Ok(Tables { list, delete: Box::new(Conntrack::open()?) })
        };
        let on_pass = move |pass: &Pass| {
            let now = cpu();
            told.send((*pass, now - spent)).unwrap();
            spent = now;
        };
        let cleaner = Cleaner::start_on(open, on_pass).unwrap();
        Self { cleaner, passes, node: Node::new(), flows }
    }

    fn pass(&self, stale: &StaleFlows, snapshot: &Snapshot) -> (Pass, Duration) {
        self.cleaner.look(stale, snapshot);
        self.passes.recv_timeout(Duration::from_secs(120)).expect("a pass")
    }

    /// So many endpoints go at once, with a thousand flows between them. Endpoint 1 has all other flows.
    fn gone(&mut self, what: &str, endpoints: u16, whole: bool, table: &mut Table) {
        let (mut wall, mut times) = (Samples::default(), Samples::default());
        let process = Process::own();
        let (mut last, mut peak) = (None, 0);
        for _ in 0..ROUNDS {
            self.node.endpoints(1..=endpoints + 1);
            let doomed = (0..STALE).map(|n| flow(self.flows + n, 2 + (n % u32::from(endpoints)) as u16));
            make(doomed);
            let (mut stale, snapshot) = self.node.endpoints(1..=1);
            if whole {
                stale.scope = Scope::Everything;
            }
            let before = process.resident_kib().unwrap();
            process.forget_peak().unwrap();
            let (pass, spent) = self.pass(&stale, &snapshot);
            peak = peak.max(process.peak_kib().unwrap().saturating_sub(before));
            assert_eq!((pass.deleted, pass.partial), (u64::from(STALE), false), "{pass:?}");
            wall.push(pass.took);
            times.push(spent);
            last = Some(pass);
        }
        let pass = last.expect("a round");
        let bar = if endpoints == 1 && !whole {
            let (value, limit) = (times.median().as_secs_f64() * 1000.0, FLOWS_CPU_MS);
            format!("CPU ≤ {limit} ms: {}", verdict(value, limit))
        } else {
            "-".to_owned()
        };
        table.row([
            what,
            &ROUNDS.to_string(),
            &pass.walks.to_string(),
            &pass.examined.to_string(),
            &pass.sent.messages.to_string(),
            &pass.sent.bytes.to_string(),
            &report::ms(wall.median()),
            &report::ms(times.median()),
            &peak.to_string(),
            &bar,
        ]);
    }
}

fn main() {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            println!("{error}");
            std::process::exit(2);
        }
    };
    if !arguments.wants("conntrack") {
        return;
    }
    let most: u32 = Sysctl::new().read_number("net/netfilter/nf_conntrack_max").unwrap();
    let buckets: u32 = Sysctl::new().read_number("net/netfilter/nf_conntrack_buckets").unwrap();
    let here = if most == 0 { arguments.flows } else { arguments.flows.min(most.saturating_sub(MARGIN)) };
    // These threads hold their namespaces until the end.
    let mut elsewhere = arguments.flows - here;
    let (filled, ready) = channel();
    let mut namespaces = 0;
    while elsewhere > 0 {
        let share = elsewhere.min(here);
        elsewhere -= share;
        namespaces += 1;
        let filled = filled.clone();
        thread::spawn(move || {
            netns::enter_new().unwrap();
            make((0..share).map(|n| flow(n, 1)));
            filled.send(()).unwrap();
            thread::park();
        });
    }
    for _ in 0..namespaces {
        ready.recv().unwrap();
    }
    netns::enter_new().unwrap();
    make((0..here).map(|n| flow(n, 1)));

    println!("### Stale UDP flows\n");
    println!(
        "{} flows in the kernel's table of {buckets} buckets, {here} of them in the namespace of the passes, {STALE} of them stale; \
         {OTHERS} other UDP services.\n",
        arguments.flows
    );
    let columns = [
        "what",
        "runs",
        "walks",
        "flows listed",
        "messages",
        "bytes",
        "wall ms",
        "CPU ms",
        "memory KiB",
        "bar",
    ];
    let mut table = Table::new(&columns);
    let mut bench = Bench::new(true, here);
    let (stale, snapshot) = bench.node.endpoints(1..=1);
    bench.pass(&stale, &snapshot);
    bench.gone("one endpoint gone", 1, false, &mut table);
    bench.gone("four endpoints gone", 4, false, &mut table);
    bench.gone("a hundred endpoints gone", 100, false, &mut table);
    bench.gone("everything, as after a start", 1, true, &mut table);
    let mut bench = Bench::new(false, here);
    let (stale, snapshot) = bench.node.endpoints(1..=1);
    bench.pass(&stale, &snapshot);
    bench.gone("a kernel without filters", 1, true, &mut table);
    println!("{table}");
}
