//! What the kernel's part costs: virtual servers, sets and addresses at scale, beside the text tools that do the same.
//!
//! `cargo bench -p backend-ipvs --no-run`, then `cargo xtask vm -- PROGRAM [services|sets|addresses|whole ...]`: a kernel with IPVS is needed. `sets` alone runs
//! on any kernel, as root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark, not shipped")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_ipvs::kernel::{Device, Ipvs, Sets, load_modules};
use backend_ipvs::objects::{DRAINING, RealServer, ServiceKey, VirtualServer, WEIGHT};
use backend_ipvs::sets::{Entry, SetType};
use backend_ipvs::wire::ipset::{Definition, EntryChange, Verb};
use backend_ipvs::wire::ipvs::Change;
use backend_ipvs::wire::proc;
use backend_ipvs::{Ipvs as Ipvs4, Options};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use proxier_core::backend::Backend;
use proxier_core::cluster::{Cluster, DetectLocal, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind};
use proxier_core::ids::{EndpointAddr, IpFamily, NodeName, Port, Protocol};
use proxier_sys::netns;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};
use proxier_testkit::scale;

/// How often each thing is done.
const ROUNDS: usize = 3;
const SERVICES: u32 = 10_000;
const REALS: u16 = 5;
const ENTRIES: u32 = 20_000;
const ADDRESSES: u32 = 10_000;
/// Tools may be slow in an emulated machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let asked = |word: &str| words.is_empty() || words.iter().any(|asked| asked == word);
    netns::enter_new().unwrap();
    if asked("services") {
        services();
    }
    if asked("sets") {
        sets();
    }
    if asked("addresses") {
        addresses();
    }
    if asked("whole") {
        whole();
    }
}

/// Medians of what is done in turn with something that undoes it.
fn median(mut round: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    times.sort();
    times[ROUNDS / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    drop(work());
    begun.elapsed()
}

fn row(what: &str, time: Duration) {
    println!("{what:64} {:10.2} ms", time.as_secs_f64() * 1e3);
}

fn ratio(what: &str, tool: Duration, ours: Duration) {
    println!("{what:64} {:10.1} times", tool.as_secs_f64() / ours.as_secs_f64());
}

fn tool(line: &str, input: &str) {
    let mut words = line.split(' ');
    let spec = CommandSpec::new(words.next().unwrap(), words).stdin(input).timeout(PATIENCE);
    let output = SystemRunner::new().run(&spec).unwrap();
    assert!(output.success(), "{line}: {}", output.stderr_text());
}

fn ip(i: u32) -> IpAddr {
    IpAddr::from((0x0a60_0000 + i).to_be_bytes())
}

fn key(i: u32) -> ServiceKey {
    ServiceKey { protocol: Protocol::Tcp, ip: ip(i), port: Port::new(80).unwrap() }
}

fn real(i: u32, number: u16) -> RealServer {
    let ip = IpAddr::from((0x0af4_0000 + i * 8 + u32::from(number)).to_be_bytes());
    EndpointAddr { ip, port: Port::new(8080).unwrap() }
}

fn services() {
    load_modules(&SystemRunner::new(), "rr");
    let mut ipvs = Ipvs::open().unwrap();
    let mut load = Vec::new();
    for i in 0..SERVICES {
        let server =
            VirtualServer { key: key(i), scheduler: "rr".into(), persistence: None, hash_port: false };
        load.push(Change::NewService(server));
        load.extend((1..=REALS).map(|number| Change::NewReal(key(i), real(i, number), WEIGHT)));
    }
    let text: String = load.iter().map(|change| format!("{change}\n")).collect();
    println!("{SERVICES} virtual servers with {REALS} real servers each: {} messages", load.len());
    assert_eq!(ipvs.change(&load).unwrap(), []);
    readings(&mut ipvs);
    // In turn, so that both meet the same machine, and each in a namespace of its own: deleted real servers stay in a list for two minutes, which is
    // walked whenever one is added.
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        netns::enter_new().unwrap();
        theirs.push(timed(|| tool("ipvsadm -R", &text)));
        row("load by ipvsadm -R", theirs[theirs.len() - 1]);
        netns::enter_new().unwrap();
        ipvs = Ipvs::open().unwrap();
        ours.push(timed(|| assert_eq!(ipvs.change(&load).unwrap(), [])));
        row("load", ours[ours.len() - 1]);
    }
    theirs.sort();
    ours.sort();
    ratio("ipvsadm -R takes (medians)", theirs[ROUNDS / 2], ours[ROUNDS / 2]);
    ratio("ipvsadm -R takes, at least", theirs[0], ours[ROUNDS - 1]);
    row("the same again: all are there", median(|| timed(|| assert_eq!(ipvs.change(&load).unwrap(), []))));
    let one = Change::SetReal(key(7), real(7, 1), DRAINING);
    row("one weight", median(|| timed(|| ipvs.change(std::slice::from_ref(&one)).unwrap())));
    let replace =
        [Change::NewReal(key(8), real(8, 7), WEIGHT), Change::SetReal(key(8), real(8, 1), DRAINING)];
    row("one endpoint replaced: two messages", median(|| timed(|| ipvs.change(&replace).unwrap())));
    row("the real servers of one", median(|| timed(|| ipvs.reals(&key(7)).unwrap())));
    row("one virtual server by ipvsadm -R", median(|| timed(|| tool("ipvsadm -R", &format!("{one}\n")))));
    let gone: Vec<_> = (0..SERVICES).map(|i| Change::DeleteService(key(i))).collect();
    row("delete all", timed(|| assert_eq!(ipvs.change(&gone).unwrap(), [])));
}

/// What a comparison of all takes.
fn readings(ipvs: &mut Ipvs) {
    let services = median(|| timed(|| assert_eq!(ipvs.services().unwrap().len(), 10_000)));
    row("all virtual servers: two dumps", services);
    let listing = || std::fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap();
    row("all real servers: the listing alone", median(|| timed(listing)));
    let text = listing();
    row("all real servers: its text", median(|| timed(|| proc::read(&text).unwrap())));
    let both = median(|| timed(|| assert_eq!(ipvs.everything().unwrap().1.len(), 10_000)));
    row("all virtual servers and real servers: both at once", both);
    let each = median(|| timed(|| (0..SERVICES).map(|i| ipvs.reals(&key(i)).unwrap().len()).sum::<usize>()));
    row("all real servers: a dump of each virtual server", each);
    row("all by ipvsadm -S -n", timed(|| tool("ipvsadm -S -n", "")));
}

fn sets() {
    let set = Definition::new("KUBE-CLUSTER-IP", SetType::HashIpPort, IpFamily::Ipv4);
    let name: Arc<str> = Arc::clone(&set.name);
    let entries: Vec<_> =
        (0..ENTRIES).map(|i| Entry::IpPort(ip(i), Protocol::Tcp, Port::new(80).unwrap())).collect();
    let changes: Vec<_> = entries
        .iter()
        .map(|entry| EntryChange { set: Arc::clone(&name), verb: Verb::Add, entry: *entry })
        .collect();
    let text: String = changes.iter().map(|change| format!("{change}\n")).collect();
    let mut sets = Sets::open().unwrap();
    println!("{ENTRIES} entries of {}", set.name);
    let theirs = median(|| {
        sets.destroy(&[&name]).unwrap();
        sets.create(std::slice::from_ref(&set)).unwrap();
        timed(|| tool("ipset restore", &text))
    });
    row("add by ipset restore", theirs);
    let ours = median(|| {
        sets.destroy(&[&name]).unwrap();
        sets.create(std::slice::from_ref(&set)).unwrap();
        timed(|| assert_eq!(sets.change(&changes, |_| None).unwrap(), []))
    });
    row("add", ours);
    ratio("ipset restore takes", theirs, ours);
    row("read", median(|| timed(|| sets.read(&name).unwrap())));
    row("rebuild", median(|| timed(|| sets.rebuild(&set, &entries).unwrap())));
    row("one entry", median(|| timed(|| sets.change(&changes[..1], |_| None).unwrap())));
    row(
        "one entry by ipset restore",
        median(|| timed(|| tool("ipset restore", &format!("{}\n", changes[0])))),
    );
}

fn addresses() {
    let mut device = Device::open().unwrap();
    let all: Vec<IpAddr> = (0..ADDRESSES).map(ip).collect();
    let line = |verb: &str, ip: &IpAddr| format!("address {verb} {ip}/32 dev kube-ipvs0\n");
    let text: String = all.iter().map(|ip| line("add", ip)).collect();
    println!("{ADDRESSES} addresses of kube-ipvs0");
    let again = |device: &mut Device| {
        device.remove().unwrap();
        device.ensure().unwrap()
    };
    again(&mut device);
    let theirs = timed(|| tool("ip -batch -", &text));
    row("add by ip -batch", theirs);
    let link = again(&mut device);
    let ours = timed(|| assert_eq!(device.bind(&link, &all).unwrap(), []));
    row("add", ours);
    ratio("ip -batch takes", theirs, ours);
    row("list", median(|| timed(|| assert_eq!(device.bound(IpFamily::Ipv4).unwrap().len(), 10_000))));
    row("one more", median(|| timed(|| device.bind(&link, &[ip(ADDRESSES)]).unwrap())));
    row("one less", median(|| timed(|| device.unbind(&link, &[ip(ADDRESSES)]).unwrap())));
    row("delete all", timed(|| assert_eq!(device.unbind(&link, &all).unwrap(), [])));
}

/// The whole backend, as the agent drives it.
fn whole() {
    let traffic = TrafficOptions {
        detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
        ..TrafficOptions::default()
    };
    let mut cluster = Cluster::new(NodeName::new(scale::NODE), traffic);
    for number in 0..SERVICES {
        cluster.upsert_service(scale::service(number));
        cluster.upsert_slice(scale::slice(number, REALS.into(), 0));
    }
    let mut backend = Ipvs4::new(IpFamily::Ipv4, Options::default());
    assert!(backend.probe().unwrap().usable());
    let mut driver = Driver::new(backend);
    let snapshot = cluster.commit().snapshot(IpFamily::Ipv4).clone();
    println!("{SERVICES} services with {REALS} endpoints each: virtual servers, sets, addresses and rules");
    row("load", timed(|| driver.sync(&snapshot, SyncKind::Full).unwrap()));
    for _ in 0..ROUNDS {
        let before = cpu();
        let wall = timed(|| assert!(driver.verification().unwrap().run().unwrap().is_empty()));
        row("compare kernel and belief", wall);
        row("  CPU", cpu() - before);
    }
    row("full sync over what is there", timed(|| driver.sync(&snapshot, SyncKind::Full).unwrap()));
    cluster.upsert_slice(scale::slice(7, REALS.into(), 1));
    let snapshot = cluster.commit().snapshot(IpFamily::Ipv4).clone();
    let mut messages = 0;
    row(
        "one endpoint replaced",
        timed(|| messages = driver.sync(&snapshot, SyncKind::Partial).unwrap().messages),
    );
    println!("  in {messages} messages");
}

/// CPU time of this process and of those that it started and that ended.
fn cpu() -> Duration {
    let of = |who| {
        let usage = getrusage(who).unwrap();
        [usage.user_time(), usage.system_time()].into_iter().map(seconds).sum::<Duration>()
    };
    of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}

fn seconds(t: TimeVal) -> Duration {
    Duration::new(t.tv_sec().try_into().unwrap(), u32::try_from(t.tv_usec()).unwrap() * 1000)
}
