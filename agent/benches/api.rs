//! What the whole `proxier run` process costs, fed by an API server over TLS, in a network namespace of its own.
//!
//! `cargo bench --package agent --bench api [-- WORD ...]`, as root; the words are in `docs/bench.md`.
//!
//! The server is in this process, so that only the agent's own costs are counted; both share the processors, though. First the start until
//! IPv4 is in the kernel, then single changes on their way there, steady change, and a rollout; then, at one size, a storm of changes: so
//! many a second, each to one slice, and how long after the last one the kernel has it. In the end `proxier verify` must find no difference
//! between server and kernel.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a benchmark, not shipped")]
#![allow(clippy::disallowed_methods, reason = "it starts the agent and looks at it while it runs")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use proxier_sys::netns;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};
use proxier_testkit::bench::series::{START, Stretch};
use proxier_testkit::bench::{
    Agent, Arguments, Change, Error, Feed, Fleet, Outcome, Process, Program, Row, Size, Subject, Synced,
    Table, bars, report, series, verify,
};
use proxier_testkit::scale;
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_proxier");
/// How often each single change is made.
const ROUNDS: usize = 101;
/// How long the agent is left alone after a change.
const SETTLE: Duration = Duration::from_millis(8);
/// How long after its start the agent is at rest.
const REST: Duration = Duration::from_secs(2);
/// How long a start may take until it counts as failed.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Pause between bursts of a storm.
const TICK: Duration = Duration::from_millis(10);

/// A server, and the agent that follows it.
struct Stage {
    server: BlockingApiServer,
    agent: Agent,
}

impl Subject for Stage {
    fn send(&mut self, changes: &[Change]) -> Result<(), Error> {
        for change in changes {
            let done = match change {
                Change::Service(number) => self.server.put(scale::service_json(*number)),
                Change::Slice(part) => self.server.put(part.json()),
                Change::ServiceGone(number) => {
                    self.server.delete("services", scale::NAMESPACE, &format!("svc-{number}"))
                }
                Change::SliceGone(part) => {
                    self.server.delete("endpointslices", scale::NAMESPACE, &part.object_name())
                }
            };
            done.map_err(|e| Error::Wrong(format!("the test API server: {e}")))?;
        }
        Ok(())
    }

    fn next(&mut self, until: Instant) -> Result<Option<Synced>, Error> {
        self.agent.next(until)
    }

    fn process(&self) -> Process {
        self.agent.process().expect("running")
    }
}

/// What came out of a storm.
struct Storm {
    size: Size,
    updates: u64,
    wall: Duration,
    syncs: u64,
    cpu: Duration,
    behind: Duration,
    /// Resident memory in KiB, once a second.
    memory: Vec<u64>,
}

/// The address that the kernel has for the first endpoint of Service 0.
fn first_endpoint(endpoints: u32) -> String {
    // Its index tells their number: see section "Objects" in the README of the backend.
    let index = if endpoints <= 8 { endpoints << 16 } else { 0 };
    let key = &format!("{{ 10.64.0.1 . tcp . 80 . {index} }}");
    let args = ["get", "element", "ip", "kube-proxy", "cluster-endpoints", key];
    let output = Command::new("nft").args(args).output().expect("nft runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn storm(stage: &Stage, size: Size, arguments: &Arguments) -> Storm {
    let bursts = u64::from(arguments.storm_rate) * u64::try_from(TICK.as_millis()).expect("small") / 1000;
    let process = stage.process();
    let stretch = Stretch::begin(process).expect("running");
    let begun = Instant::now();
    let (mut updates, mut seed, mut memory, mut syncs) = (0, 1_u32, Vec::new(), 0);
    let mut next = begun;
    while begun.elapsed() < Duration::from_secs(arguments.storm_seconds.into()) {
        let slices = (0..bursts).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            scale::slice_json((seed >> 8) % (size.services - 1).max(1) + 1, size.endpoints, seed >> 20)
        });
        stage.server.put_all(slices).expect("put");
        updates += bursts;
        if memory.len() < usize::try_from(begun.elapsed().as_secs()).expect("small") {
            memory.push(process.resident_kib().expect("running"));
        }
        next += TICK;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    while stage.agent.next(Instant::now()).expect("no error").is_some() {
        syncs += 1;
    }
    let wall = begun.elapsed();
    let marker = scale::slice_json(0, size.endpoints, 77);
    let address = marker["endpoints"][0]["addresses"][0].as_str().expect("an address").to_owned();
    let last = Instant::now();
    stage.server.put(marker).expect("put");
    // The last sync is the one that brings it: nothing else changes any more.
    let mut behind = Duration::ZERO;
    while let Some(sync) = stage.agent.next(Instant::now() + Duration::from_secs(2)).expect("no error") {
        (behind, syncs) = (sync.at.saturating_duration_since(last), syncs + 1);
    }
    let held = first_endpoint(size.endpoints);
    assert!(held.contains(&address), "{address} is not what the kernel has: {held}");
    let (_, cpu, _) = stretch.end().expect("running");
    Storm { size, updates, wall, syncs, cpu, behind, memory }
}

fn stage(size: Size, kubeconfig: &Path) -> BlockingApiServer {
    let builder = ApiServer::builder().tls().token("secret", "proxier").history(100_000);
    let server = BlockingApiServer::start(builder).expect("a server");
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": scale::NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    });
    server.put(node).expect("put");
    server.put_all((0..size.services).map(scale::service_json)).expect("put");
    server.put_all((0..size.services).map(|n| scale::slice_json(n, size.endpoints, 0))).expect("put");
    fs::write(kubeconfig, server.kubeconfig(Some("proxier"))).expect("written");
    server
}

fn run(size: Size, arguments: &Arguments) -> (Outcome, Option<Storm>) {
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let feed = Feed::Kubeconfig(&kubeconfig);
    let program = Path::new(PROGRAM);
    let server = stage(size, &kubeconfig);
    let mut fleet = Fleet::new(size);

    let agent = Agent::start(program, feed).expect("started");
    let process = agent.process().expect("running");
    let sync = agent.programmed(START_LIMIT).expect("programmed");
    let (wall, cpu) = (sync.at - agent.begun(), process.cpu().expect("running"));
    let peak_kib = process.peak_kib().expect("running");
    thread::sleep(REST);
    let start = Row {
        what: START.to_owned(),
        runs: 1,
        wall,
        p99: wall,
        cpu,
        peak_kib,
        messages: sync.messages,
        bytes: sync.bytes,
    };
    let rest_kib = process.resident_kib().expect("running");
    let mut stage = Stage { server, agent };
    let outcome = series::run(&mut stage, &mut fleet, (start, rest_kib), arguments, (ROUNDS, SETTLE));
    let outcome = outcome.unwrap_or_else(|e| panic!("{size}: {e}"));
    verify(program, feed).unwrap_or_else(|e| panic!("{size}: {e}"));
    let storm = (arguments.storm_size() == Some(size)).then(|| storm(&stage, size, arguments));
    if storm.is_some() {
        verify(program, feed).unwrap_or_else(|e| panic!("{size}, after the storm: {e}"));
    }
    (outcome, storm)
}

#[allow(clippy::cast_precision_loss, reason = "figures")]
fn print_storm(storm: &Storm, rate: u32) {
    let Storm { size, updates, wall, syncs, cpu, behind, memory } = storm;
    println!("### A storm of updates, {size}\n");
    let mut table = Table::new(&["what", "seen", "bar"]);
    let seconds = wall.as_secs_f64();
    table.row([
        "updates, each one endpoint replaced",
        &format!("{updates} in {seconds:.1} s ({:.0}/s, {rate} asked for)", *updates as f64 / seconds),
        "-",
    ]);
    table.row(["lost, by `proxier verify` afterwards", "0", "0: met"]);
    table.row(["syncs", &syncs.to_string(), "-"]);
    table.row(["share of a processor", &format!("{:.0} %", cpu.as_secs_f64() / seconds * 100.0), "-"]);
    let behind = behind.as_secs_f64() * 1000.0;
    let limit = bars::STORM_BEHIND_MS;
    table.row([
        "last update in the kernel after",
        &format!("{behind:.1} ms"),
        &format!("≤ {limit} ms: {}", bars::verdict(behind, limit)),
    ]);
    // The first tenth is on the way to the plateau.
    let (early, late) =
        memory[memory.len() / 10..].split_at(memory.len().saturating_sub(memory.len() / 10) / 2);
    let peak = |part: &[u64]| part.iter().max().copied().unwrap_or(0).max(1) as f64;
    let growth = peak(late) / peak(early);
    let limit = bars::STORM_MEMORY;
    let steps = memory.iter().step_by(memory.len().div_ceil(10).max(1));
    let steps: Vec<_> = steps.map(|kib| format!("{:.0}", report::mib(*kib))).collect();
    table.row([
        "resident memory over time, MiB",
        &format!("{}; second half over first {growth:.2}", steps.join(" ")),
        &format!("≤ {limit}: {}", bars::verdict(growth, limit)),
    ]);
    println!("{table}\n");
}

fn main() {
    let arguments = Arguments::parse(std::env::args().skip(1)).expect("arguments");
    if !arguments.wants("api") {
        return;
    }
    let measured: Vec<_> = arguments
        .sizes
        .iter()
        .map(|&size| {
            // A thread for each size, so that each starts in an empty network namespace.
            let arguments = arguments.clone();
            let job = move || {
                netns::enter_new().expect("a network namespace: run as root");
                run(size, &arguments)
            };
            thread::spawn(job).join().expect("no panic")
        })
        .collect();
    let (outcomes, storms): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
    println!("\n## The agent on an API server: `proxier run`, TLS, HTTP/2, nftables, layout maps\n");
    println!("{}", report::tables(Program::Api, &outcomes));
    storms.iter().flatten().for_each(|storm| print_storm(storm, arguments.storm_rate));
}
