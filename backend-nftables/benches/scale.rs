//! What a sync costs at scale, in the kernel, inside a network namespace of its own.
//!
//! Prints medians of wall time and of this thread's CPU time, which holds the kernel's work: a commit is a synchronous
//! system call. The same plan's text given to `nft -f` stands beside it, in the same run, for the ratio.
//!
//! `cargo bench -p backend-nftables [-- SERVICESxENDPOINTS ...]`, default `1000x5 10000x5`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark, not shipped")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_nftables::{Nftables, Options};
use proxier_core::cluster::{Cluster, DetectLocal, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::snapshot::Snapshot;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};
use proxier_testkit::scale;

const ROUNDS: usize = 201;

/// Wall and CPU time of one thing done.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

fn cpu_now() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn measure<T>(job: impl FnOnce() -> T) -> (T, Cost) {
    let (cpu, wall) = (cpu_now(), Instant::now());
    let result = job();
    (result, Cost { wall: wall.elapsed(), cpu: cpu_now() - cpu })
}

fn median(mut costs: Vec<Cost>) -> Cost {
    let mid = costs.len() / 2;
    costs.sort_by_key(|c| c.wall);
    let wall = costs[mid].wall;
    costs.sort_by_key(|c| c.cpu);
    Cost { wall, cpu: costs[mid].cpu }
}

fn row(what: &str, runs: usize, cost: Cost, more: &str) {
    let ms = |d: Duration| format!("{:.3}", d.as_secs_f64() * 1000.0);
    println!("| {what:<34} | {runs:>4} | {:>10} | {:>10} | {more} |", ms(cost.wall), ms(cost.cpu));
}

fn written(report: &SyncReport) -> String {
    format!("{} ops, {} messages, {} bytes", report.operations, report.messages, report.bytes)
}

struct Bench {
    cluster: Cluster,
    driver: Driver<Nftables>,
}

impl Bench {
    fn commit(&mut self) -> Snapshot {
        self.cluster.commit().snapshot(IpFamily::Ipv4).clone()
    }

    /// Median cost from the change of an object to the kernel.
    fn repeat(&mut self, what: &str, mut change: impl FnMut(&mut Cluster, usize)) {
        let mut costs = Vec::with_capacity(ROUNDS);
        let mut last = None;
        for round in 0..ROUNDS {
            let (report, cost) = measure(|| {
                change(&mut self.cluster, round);
                let snapshot = self.cluster.commit().snapshot(IpFamily::Ipv4).clone();
                self.driver.sync(&snapshot, SyncKind::Partial).unwrap()
            });
            assert_eq!(report.kind, SyncKind::Partial, "{what}");
            assert!(report.operations > 0 || report.changed_ports == 0, "{what} wrote nothing");
            costs.push(cost);
            last = Some(report);
        }
        row(what, ROUNDS, median(costs), &last.map(|r| written(&r)).unwrap_or_default());
    }
}

fn run(services: u32, endpoints: u32) {
    println!("\n## {services} services x {endpoints} endpoints\n");
    println!("| what | runs | wall ms | CPU ms | written |");
    println!("|---|---|---|---|---|");
    let traffic = TrafficOptions {
        detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
        ..TrafficOptions::default()
    };
    let mut b = Bench {
        cluster: Cluster::new(NodeName::new(scale::NODE), traffic),
        driver: Driver::new(Nftables::new(IpFamily::Ipv4, Options::default())),
    };
    let ((), intake) = measure(|| {
        for s in 0..services {
            b.cluster.upsert_service(scale::service(s));
            b.cluster.upsert_slice(scale::slice(s, endpoints, 0));
        }
    });
    row("objects into the core", 1, intake, "-");
    let (snapshot, publish) = measure(|| b.commit());
    row("decide and publish all", 1, publish, "-");
    let (rendered, render) = measure(|| b.driver.render(&snapshot));
    row("render as text", 1, render, &format!("{} operations", rendered.entries.len()));
    let (report, first) = measure(|| b.driver.sync(&snapshot, SyncKind::Full).unwrap());
    row("sync into an empty kernel", 1, first, &written(&report));
    let again: Vec<Cost> =
        (0..3).map(|_| measure(|| b.driver.sync(&snapshot, SyncKind::Full).unwrap()).1).collect();
    row("full sync over what is there", 3, median(again), "-");

    let pick = move |round: usize| u32::try_from(round * 7919).unwrap_or(0) % services;
    sharing(&mut b, pick, endpoints);
    b.repeat("nothing changed", |_, _| {});
    b.repeat("one endpoint replaced", |c, round| {
        c.upsert_slice(scale::slice(pick(round), endpoints, version(round)));
    });
    b.repeat("endpoint count changed", |c, round| {
        // Small clusters are gone round more than once.
        let more = version(round) / services + 1;
        c.upsert_slice(scale::slice(pick(round), endpoints + more, 0));
    });
    b.repeat("service added", |c, round| {
        let number = services + u32::try_from(round).unwrap_or(0);
        c.upsert_service(scale::service(number));
        c.upsert_slice(scale::slice(number, endpoints, 0));
    });
    b.repeat("service removed", |c, round| {
        let number = services + u32::try_from(round).unwrap_or(0);
        c.remove_service(&scale::service(number).name);
        c.remove_slice(&scale::slice(number, endpoints, 0).name);
    });
    let (drift, verify) = measure(|| b.driver.verification().unwrap().run().unwrap());
    row("compare kernel and belief", 1, verify, &format!("{} differences", drift.items.len()));
    compare_with_nft(&rendered.entries.iter().map(|e| e.text.clone()).collect::<Vec<_>>(), first);
}

/// Another endpoint in each round.
fn version(round: usize) -> u32 {
    u32::try_from(round).unwrap_or(0) + 1
}

/// What the core alone pays for one change, and what a snapshot would cost that shares nothing with the one before.
fn sharing(b: &mut Bench, pick: impl Fn(usize) -> u32, endpoints: u32) {
    let mut commits = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        b.cluster.upsert_slice(scale::slice(pick(round), endpoints, version(round) + 1_000));
        commits.push(measure(|| b.cluster.commit()).1);
    }
    row("core: commit of one change", ROUNDS, median(commits), "-");
    let snapshot = b.commit();
    let copy = || snapshot.ports().map(|p| (p.name.clone(), Arc::clone(p))).collect::<BTreeMap<_, _>>();
    let copies = (0..11).map(|_| measure(copy).1).collect();
    row("core: copying the map instead", 11, median(copies), "-");
    b.driver.sync(&snapshot, SyncKind::Partial).unwrap();
}

/// The same plan through the tool, in the same run. Its CPU time is the child's, so only wall times are compared.
fn compare_with_nft(lines: &[String], own: Cost) {
    let script = lines.join("\n") + "\n";
    let spec = CommandSpec::new("nft", ["-f", "-"]).stdin(script).timeout(Duration::from_secs(300));
    let (output, cost) = measure(|| SystemRunner::new().run(&spec).unwrap());
    assert!(output.success(), "{}", output.stderr_text());
    let ratio = cost.wall.as_secs_f64() / own.wall.as_secs_f64();
    println!(
        "\nThe same plan as text through `nft -f`: {:.0} ms wall, {ratio:.1} times the netlink writer's.",
        cost.wall.as_secs_f64() * 1000.0
    );
}

fn main() {
    let scales: Vec<(u32, u32)> = std::env::args()
        .skip(1)
        .filter_map(|a| {
            let (services, endpoints) = a.split_once('x')?;
            Some((services.parse().ok()?, endpoints.parse().ok()?))
        })
        .collect();
    let scales = if scales.is_empty() { vec![(1_000, 5), (10_000, 5)] } else { scales };
    println!("# backend-nftables: cost of a sync, IPv4, layout maps");
    for (services, endpoints) in scales {
        // A thread of its own for each size, so that each starts in an empty network namespace.
        let job = move || {
            proxier_sys::netns::enter_new().expect("a network namespace: run as root");
            run(services, endpoints);
        };
        std::thread::spawn(job).join().unwrap();
    }
}
