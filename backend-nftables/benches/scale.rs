//! What a sync costs at scale, in the kernel: the core and this backend in one thread, without a source.
//!
//! `cargo bench -p backend-nftables [-- WORD ...]`, as root; the words are in `docs/bench.md`. Every size runs in a process and a network
//! namespace of its own, so that memory and CPU time are its own; CPU time holds the kernel's work, since a commit is a synchronous system
//! call. The same plan's text given to `nft -f` stands beside it, in the same run, for the ratio.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark, not shipped")]
#![allow(clippy::disallowed_methods, reason = "it starts itself once for every size")]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend_nftables::{Nftables, Options};
use proxier_core::cluster::{Cluster, DetectLocal, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::snapshot::Snapshot;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};
use proxier_testkit::bench::series::{START, Stretch};
use proxier_testkit::bench::{
    Arguments, Change, Error, Fleet, Outcome, Process, Program, Row, Samples, Size, Subject, Synced, Table,
    report, series,
};
use proxier_testkit::scale;
use serde::{Deserialize, Serialize};

/// How often each single change is made.
const ROUNDS: usize = 201;
/// What a process that measures one size is told.
const ONE: &str = "one-size=";

/// The core and a driver, which sync when they are asked for news.
struct Bench {
    cluster: Cluster,
    driver: Driver<Nftables>,
    pending: bool,
}

impl Bench {
    fn new() -> Self {
        let traffic = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
            ..TrafficOptions::default()
        };
        Self {
            cluster: Cluster::new(NodeName::new(scale::NODE), traffic),
            driver: Driver::new(Nftables::new(IpFamily::Ipv4, Options::default())),
            pending: false,
        }
    }

    fn commit(&mut self) -> Snapshot {
        self.cluster.commit().snapshot(IpFamily::Ipv4).clone()
    }
}

impl Subject for Bench {
    fn send(&mut self, changes: &[Change]) -> Result<(), Error> {
        for change in changes {
            let _ = match change {
                Change::Service(number) => self.cluster.upsert_service(scale::service(*number)),
                Change::ServiceGone(number) => self.cluster.remove_service(&scale::service(*number).name),
                Change::Slice(part) => self.cluster.upsert_slice(part.model()),
                Change::SliceGone(part) => self.cluster.remove_slice(&part.model().name),
            };
        }
        self.pending = true;
        Ok(())
    }

    fn next(&mut self, until: Instant) -> Result<Option<Synced>, Error> {
        if self.pending {
            self.pending = false;
            let snapshot = self.commit();
            let report =
                self.driver.sync(&snapshot, SyncKind::Partial).map_err(|e| Error::Wrong(e.to_string()))?;
            if report.kind != SyncKind::Partial {
                return Err(Error::Wrong("a change was written in full".to_owned()));
            }
            if report.operations > 0 {
                return Ok(Some(Synced {
                    at: Instant::now(),
                    ports: report.changed_ports as u64,
                    messages: report.messages as u64,
                    bytes: report.bytes as u64,
                }));
            }
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok(None)
    }

    fn process(&self) -> Process {
        Process::own()
    }
}

/// A row of the table of what a start and a comparison consist of.
#[derive(Serialize, Deserialize)]
struct Detail {
    what: String,
    runs: usize,
    wall: Duration,
    cpu: Duration,
    more: String,
}

/// What the process of one size prints.
#[derive(Serialize, Deserialize)]
struct Measured {
    outcome: Outcome,
    details: Vec<Detail>,
    nft: Duration,
}

fn measure<T>(job: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let own = Process::own();
    let (cpu, wall) = (own.cpu().unwrap(), Instant::now());
    let result = job();
    (result, wall.elapsed(), own.cpu().unwrap() - cpu)
}

#[derive(Default)]
struct Details(Vec<Detail>);

impl Details {
    fn once<T>(&mut self, what: &str, job: impl FnOnce() -> T, more: impl FnOnce(&T) -> String) -> T {
        let (result, wall, cpu) = measure(job);
        self.0.push(Detail { what: what.to_owned(), runs: 1, wall, cpu, more: more(&result) });
        result
    }

    fn often(&mut self, what: &str, runs: usize, mut job: impl FnMut(usize)) {
        let (mut walls, mut cpus) = (Samples::default(), Samples::default());
        for round in 0..runs {
            let ((), wall, cpu) = measure(|| job(round));
            walls.push(wall);
            cpus.push(cpu);
        }
        let (wall, cpu) = (walls.median(), cpus.median());
        self.0.push(Detail { what: what.to_owned(), runs, wall, cpu, more: "-".to_owned() });
    }
}

fn none<T>(_: &T) -> String {
    "-".to_owned()
}

fn run(size: Size, arguments: &Arguments) -> Measured {
    let (mut b, mut details) = (Bench::new(), Details::default());
    let mut fleet = Fleet::new(size);
    let stretch = Stretch::begin(Process::own()).unwrap();
    let all: Vec<Change> = fleet.all().collect();
    details.once("objects into the core", || b.send(&all).unwrap(), none);
    drop(all);
    let snapshot = details.once("decide and publish all", || b.commit(), none);
    let sync = details.once(
        "sync into an empty kernel",
        || b.driver.sync(&snapshot, SyncKind::Full).unwrap(),
        |r| format!("{} operations, {} messages, {} bytes", r.operations, r.messages, r.bytes),
    );
    b.pending = false;
    let peak_kib = stretch.end().unwrap().2;
    let total = |pick: fn(&Detail) -> Duration| details.0.iter().map(pick).sum::<Duration>();
    let (wall, cpu) = (total(|d| d.wall), total(|d| d.cpu));
    let start = Row {
        what: START.to_owned(),
        runs: 1,
        wall,
        p99: wall,
        cpu,
        peak_kib,
        messages: sync.messages as u64,
        bytes: sync.bytes as u64,
    };
    let rest_kib = Process::own().resident_kib().unwrap();
    let outcome =
        series::run(&mut b, &mut fleet, (start, rest_kib), arguments, (ROUNDS, Duration::ZERO)).unwrap();
    let nft = inspect(&mut b, &mut fleet, &mut details);
    Measured { outcome, details: details.0, nft }
}

/// What else belongs to a sync. The end state is compared with the kernel: a difference fails the run.
fn inspect(b: &mut Bench, fleet: &mut Fleet, details: &mut Details) -> Duration {
    details.often("nothing changed", ROUNDS, |_| {
        b.send(&[]).unwrap();
        assert!(b.next(Instant::now()).unwrap().is_none(), "something was written");
    });
    details.often("core: commit of one change", ROUNDS, |_| {
        let number = fleet.pick();
        b.send(&[fleet.replace(number)]).unwrap();
        b.commit();
    });
    let snapshot = b.commit();
    let copy = |_| {
        drop(snapshot.ports().map(|p| (p.name.clone(), Arc::clone(p))).collect::<BTreeMap<_, _>>());
    };
    details.often("core: copying the map instead", 11, copy);
    b.next(Instant::now()).unwrap();
    details.often("full sync over what is there", 3, |_| {
        let report = b.driver.sync(&snapshot, SyncKind::Full).unwrap();
        assert_eq!(report.operations, 0, "a full sync found something to write");
    });
    let drift = details.once(
        "compare kernel and belief",
        || b.driver.verification().unwrap().run().unwrap(),
        |drift| format!("{} differences", drift.items.len()),
    );
    assert!(drift.is_empty(), "{:?}", drift.items.first());
    let rendered = details.once(
        "render as text",
        || b.driver.render(&snapshot),
        |rendered| format!("{} operations", rendered.entries.len()),
    );
    let script = rendered.entries.iter().map(|e| format!("{}\n", e.text)).collect::<String>();
    let spec = CommandSpec::new("nft", ["-f", "-"]).stdin(script).timeout(Duration::from_secs(300));
    let (output, wall, _) = measure(|| SystemRunner::new().run(&spec).unwrap());
    assert!(output.success(), "{}", output.stderr_text());
    wall
}

/// Measures one size in a process of its own.
fn apart(size: Size, words: &[String]) -> Measured {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg(format!("{ONE}{size}"))
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{size}: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn print(measured: &[Measured]) {
    println!("\n## A sync: the core and the backend alone, IPv4, nftables, layout maps\n");
    let outcomes: Vec<Outcome> = measured.iter().map(|m| m.outcome.clone()).collect();
    println!("{}", report::tables(Program::Sync, &outcomes));
    for Measured { outcome, details, nft } in measured {
        println!("### In detail, {}\n", outcome.size);
        let mut table = Table::new(&["what", "runs", "wall ms", "CPU ms", "written or found"]);
        for d in details {
            table.row([&d.what, &d.runs.to_string(), &report::ms(d.wall), &report::ms(d.cpu), &d.more]);
        }
        let own = details.iter().find(|d| d.what == "sync into an empty kernel").unwrap().wall;
        let ratio = nft.as_secs_f64() / own.as_secs_f64();
        println!(
            "{table}\n\nThe same plan as text through `nft -f`: {:.0} ms wall, {ratio:.1} times the netlink writer's.\n",
            nft.as_secs_f64() * 1000.0
        );
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    if let Some(size) = words.first().and_then(|w| w.strip_prefix(ONE)) {
        proxier_sys::netns::enter_new().expect("a network namespace: run as root");
        let measured = run(size.parse().unwrap(), &Arguments::parse(&words[1..]).unwrap());
        println!("{}", serde_json::to_string(&measured).unwrap());
        return;
    }
    let arguments = Arguments::parse(&words).expect("arguments");
    if !arguments.wants("sync") {
        return;
    }
    let measured: Vec<Measured> = arguments.sizes.iter().map(|size| apart(*size, &words)).collect();
    print(&measured);
}
