//! What stays behind when Services come and go: `proxier run`, fed by an API server over TLS, in a network namespace of its own.
//!
//! `cargo bench --package agent --bench turnover [-- WORD ...]`, as root; the words are in `docs/bench.md`.
//!
//! Services of type LoadBalancer with policy Local, each with a slice and a health check node port, are created and deleted in waves, so that every
//! one of them is in the kernel and its port open before it goes. Resident memory, file descriptors and sockets are counted when each name was there once, and
//! all that grows once has grown, and after the last wave.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a benchmark, not shipped")]

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use proxier_sys::netns;
use proxier_sys::runner::{CommandSpec, Runner as _, SystemRunner};
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};
use proxier_testkit::bench::{Agent, Arguments, Feed, Process, Table, report, verify};
use proxier_testkit::scale;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_proxier");
/// Services of one wave, as many as there are ports from here on.
const WAVE: u32 = 1000;
const FIRST_PORT: u16 = 20_000;
/// Services with names of their own; then they come again.
const NAMES: u32 = 20_000;
/// How long a wave may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Holds {
    resident_kib: u64,
    descriptors: usize,
    sockets: usize,
}

fn holds(process: Process) -> Holds {
    let entries = fs::read_dir(format!("/proc/{}/fd", process.id())).expect("running");
    let targets: Vec<_> = entries.filter_map(|e| fs::read_link(e.ok()?.path()).ok()).collect();
    let sockets = targets.iter().filter(|t| t.to_string_lossy().starts_with("socket:")).count();
    Holds { resident_kib: process.resident_kib().expect("running"), descriptors: targets.len(), sockets }
}

fn health_port(number: u32) -> u16 {
    FIRST_PORT + u16::try_from(number % WAVE).expect("small")
}

fn objects(number: u32) -> [Value; 2] {
    scale::health_checked_json(number, 5, scale::NODE, health_port(number))
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < deadline, "never so: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A wave comes and goes: the last port of it is open in between and closed in the end.
fn wave(server: &BlockingApiServer, first: u32) {
    let numbers = first..first + WAVE;
    server.put_all(numbers.clone().flat_map(objects)).expect("put");
    let ports = [numbers.start, numbers.end - 1].map(health_port);
    until("health check ports are open", || ports.iter().all(|p| is_open(*p)));
    for number in numbers {
        server.delete("endpointslices", scale::NAMESPACE, &slice_name(number)).expect("there");
        server.delete("services", scale::NAMESPACE, &format!("svc-{number}")).expect("there");
    }
    until("health check ports are closed", || ports.iter().all(|p| !is_open(*p)));
}

fn slice_name(number: u32) -> String {
    objects(number)[1]["metadata"]["name"].as_str().expect("a name").to_owned()
}

fn run(services: u32) -> (Holds, Holds, Duration, Duration) {
    let ip = SystemRunner::new().run(&CommandSpec::new("ip", ["link", "set", "lo", "up"])).expect("ip runs");
    assert!(ip.success(), "{}", ip.stderr_text());
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let builder = ApiServer::builder().tls().token("secret", "proxier").history(10_000);
    let server = BlockingApiServer::start(builder).expect("a server");
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": scale::NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]},
    });
    server.put(node).expect("put");
    fs::write(&kubeconfig, server.kubeconfig(Some("proxier"))).expect("written");
    let (feed, program) = (Feed::Kubeconfig(&kubeconfig), Path::new(PROGRAM));
    let agent = Agent::start(program, feed).expect("started");
    let process = agent.process().expect("running");
    // What is made once, and the allocator's own reserve.
    (0..NAMES / WAVE).for_each(|i| wave(&server, i * WAVE));
    let before = holds(process);
    let (begun, cpu) = (Instant::now(), process.cpu().expect("running"));
    let mut gone = 0;
    while gone < services {
        wave(&server, gone % NAMES);
        gone += WAVE;
    }
    let (wall, cpu) = (begun.elapsed(), process.cpu().expect("running") - cpu);
    until("no descriptor more", || holds(process).descriptors <= before.descriptors);
    let after = holds(process);
    verify(program, feed).unwrap_or_else(|e| panic!("after {services} Services: {e}"));
    (before, after, wall, cpu)
}

fn main() {
    let arguments = Arguments::parse(std::env::args().skip(1)).expect("arguments");
    if !arguments.wants("turnover") {
        return;
    }
    let services = arguments.turnover;
    let job = move || {
        netns::enter_new().expect("a network namespace: run as root");
        run(services)
    };
    let (before, after, wall, cpu) = thread::spawn(job).join().expect("no panic");
    println!(
        "\n## Services that come and go: {services} created and deleted, with a slice and a health check port each\n"
    );
    let mut table = Table::new(&["what", "before", "after", "bar"]);
    let mib = |kib: u64| format!("{:.1}", report::mib(kib));
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    let growth = after.resident_kib as f64 / before.resident_kib.max(1) as f64;
    let memory = format!("where it started; {growth:.2} times");
    table.row(["resident memory, MiB", &mib(before.resident_kib), &mib(after.resident_kib), &memory]);
    let same = |before: usize, after: usize| if after <= before { "as many: met" } else { "as many: missed" };
    for (what, before, after) in [
        ("file descriptors", before.descriptors, after.descriptors),
        ("sockets", before.sockets, after.sockets),
    ] {
        table.row([what, &before.to_string(), &after.to_string(), same(before, after)]);
    }
    println!("{table}\n");
    println!("{:.1} s in all, {:.1} s CPU of the agent.\n", wall.as_secs_f64(), cpu.as_secs_f64());
}
