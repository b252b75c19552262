//! What the whole `proxier run` process costs, fed by an API server over TLS, in a network namespace of its own.
//!
//! `cargo bench --package agent --bench api [-- SERVICESxENDPOINTS ... [storm=SECONDS] [rate=UPDATES]]`, as root; default `1000x5 10000x5
//! storm=10 rate=10000`.
//!
//! The server is in this process, so that only the agent's own costs are counted; both share the processors, though. First the
//! start until IPv4 is in the kernel, then single changes on their way there, then, at the largest size, a storm of changes:
//! so many a second, each to one slice, and how long after the last one the kernel has it. In the end `proxier verify` must find no difference
//! between server and kernel.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a benchmark, not shipped")]
#![allow(clippy::disallowed_methods, reason = "it starts the agent and looks at it while it runs")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use proxier_sys::netns;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};
use proxier_testkit::scale;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_proxier");
/// Single changes whose way to the kernel is timed.
const EDITS: u32 = 21;
/// Pause between bursts of a storm.
const TICK: Duration = Duration::from_millis(10);

struct Agent {
    child: Child,
    log: Receiver<Value>,
}

impl Agent {
    fn start(kubeconfig: &str) -> Self {
        let mut child = Command::new(PROGRAM)
            .args([
                "run",
                "--node",
                scale::NODE,
                "--cluster-cidr",
                scale::CLUSTER_CIDR,
                "--log-format",
                "json",
            ])
            .args(["--kubeconfig", kubeconfig])
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it said: {line}"));
                assert!(event["level"] != "ERROR", "it said: {line}");
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, log }
    }

    /// Waits until IPv4 is in the kernel once more.
    fn synced(&self) {
        loop {
            let event = self.log.recv_timeout(Duration::from_secs(120)).expect("it says something");
            if event["message"] == "synced" && event["family"] == "IPv4" {
                return;
            }
        }
    }

    /// CPU time so far, user and system; Linux shows 100 ticks a second to user space (USER_HZ).
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("running");
        let (_, after_name) = stat.rsplit_once(')').expect("a name");
        let ticks = after_name.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().expect("ticks"));
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    fn memory_mib(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("running");
        let line = status.lines().find_map(|l| l.strip_prefix(field)).expect("field");
        let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
        f64::from(kib.parse::<u32>().expect("KiB")) / 1024.0
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

fn storm(server: &ApiServer, agent: &Agent, services: u32, endpoints: u32, seconds: u64, rate: u64) {
    let bursts = rate * u64::try_from(TICK.as_millis()).expect("small") / 1000;
    let (begun, cpu) = (Instant::now(), agent.cpu());
    let (mut sent, mut seed, mut memory) = (0_u64, 1_u32, Vec::new());
    let mut next = begun;
    while begun.elapsed() < Duration::from_secs(seconds) {
        let slices = (0..bursts).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            scale::slice_json((seed >> 8) % (services - 1) + 1, endpoints, seed >> 20)
        });
        server.put_all(slices).expect("put");
        sent += bursts;
        if memory.len() < usize::try_from(begun.elapsed().as_secs()).expect("small") {
            memory.push(agent.memory_mib("VmRSS"));
        }
        next += TICK;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let took = begun.elapsed();
    let marker = scale::slice_json(0, endpoints, 77);
    let address = marker["endpoints"][0]["addresses"][0].as_str().expect("an address").to_owned();
    let mut syncs = agent.log.try_iter().filter(|e| e["message"] == "synced").count();
    let last = Instant::now();
    server.put(marker).expect("put");
    // the last sync is the one that brings it: nothing else changes any more
    let mut behind = Duration::ZERO;
    while let Ok(event) = agent.log.recv_timeout(Duration::from_secs(2)) {
        if event["message"] == "synced" {
            (behind, syncs) = (last.elapsed(), syncs + 1);
        }
    }
    let cpu = agent.cpu() - cpu;
    let held = first_endpoint(endpoints);
    assert!(held.contains(&address), "{address} is not what the kernel has: {held}");
    #[allow(clippy::cast_precision_loss, reason = "figures")]
    let per_second = sent as f64 / took.as_secs_f64();
    let tenths = memory.len().div_ceil(10).max(1);
    let steps: Vec<_> = memory.iter().step_by(tenths).map(|m| format!("{m:.0}")).collect();
    println!(
        "\nstorm: {sent} updates in {:.1} s ({per_second:.0}/s), {syncs} syncs, agent's CPU {:.1} s; \
         the last one in the kernel after {:.0} ms\nresident memory over time, MiB: {}; peak {:.0}",
        took.as_secs_f64(),
        cpu.as_secs_f64(),
        behind.as_secs_f64() * 1000.0,
        steps.join(" "),
        agent.memory_mib("VmHWM"),
    );
}

fn verify(kubeconfig: &str) {
    let args =
        ["verify", "--node", scale::NODE, "--cluster-cidr", scale::CLUSTER_CIDR, "--kubeconfig", kubeconfig];
    let output = Command::new(PROGRAM).args(args).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("verify: {}", said.trim().replace('\n', ", "));
}

fn median(mut values: Vec<Duration>) -> f64 {
    values.sort();
    values[values.len() / 2].as_secs_f64() * 1000.0
}

fn run(services: u32, endpoints: u32, storm_for: Option<(u64, u64)>) {
    let builder = ApiServer::builder().tls().token("secret", "proxier").history(100_000);
    let server = BlockingApiServer::start(builder).expect("a server");
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": scale::NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    });
    server.put(node).expect("put");
    server.put_all((0..services).map(scale::service_json)).expect("put");
    server.put_all((0..services).map(|n| scale::slice_json(n, endpoints, 0))).expect("put");
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig(Some("proxier"))).expect("written");
    let kubeconfig = kubeconfig.to_str().expect("text");

    let begun = Instant::now();
    let agent = Agent::start(kubeconfig);
    agent.synced();
    let (wall, cpu, peak) = (begun.elapsed(), agent.cpu(), agent.memory_mib("VmHWM"));
    // IPv6 has its own, empty sync
    thread::sleep(Duration::from_millis(300));
    agent.log.try_iter().for_each(drop);
    let edits = (1..=EDITS).map(|version| {
        let begun = Instant::now();
        server.put(scale::slice_json(0, endpoints, version)).expect("put");
        agent.synced();
        begun.elapsed()
    });
    let edit = median(edits.collect());
    println!(
        "| {services}x{endpoints} | {:.2} | {:.2} | {peak:.0} | {:.0} | {edit:.1} |",
        wall.as_secs_f64(),
        cpu.as_secs_f64(),
        agent.memory_mib("VmRSS"),
    );
    if let Some((seconds, rate)) = storm_for {
        storm(&server, &agent, services, endpoints, seconds, rate);
    }
    verify(kubeconfig);
    drop(agent);
    let args = ["delete", "table", "ip", "kube-proxy"];
    Command::new("nft").args(args).status().expect("nft runs");
}

fn main() {
    let (mut sizes, mut seconds, mut rate) = (Vec::new(), 10, 10_000);
    for argument in std::env::args().skip(1).filter(|a| !a.starts_with("--")) {
        if let Some(value) = argument.strip_prefix("storm=") {
            seconds = value.parse().expect("seconds");
        } else if let Some(value) = argument.strip_prefix("rate=") {
            rate = value.parse().expect("a number");
        } else {
            let (services, endpoints) = argument.split_once('x').expect("a size is SERVICESxENDPOINTS");
            sizes.push((services.parse().expect("a number"), endpoints.parse().expect("a number")));
        }
    }
    if sizes.is_empty() {
        sizes = vec![(1_000, 5), (10_000, 5)];
    }
    netns::enter_new().expect("it needs root");
    println!("# proxier run: from an API server to the kernel, nftables, layout maps\n");
    println!(
        "| services x endpoints | start to programmed, s | CPU, s | peak RSS, MiB | RSS, MiB | change to kernel, ms |"
    );
    println!("|---|---|---|---|---|---|");
    let largest = sizes.iter().copied().max();
    for (services, endpoints) in sizes {
        let storm_for = (Some((services, endpoints)) == largest && seconds > 0).then_some((seconds, rate));
        run(services, endpoints, storm_for);
    }
}
