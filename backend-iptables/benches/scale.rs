//! What iptables costs at scale: this backend through a driver, in both variants, and beside it the two inputs by which kube-proxy does the same.
//!
//! `cargo bench -p backend-iptables [-- WORD ...]`, as root; the words are in `docs/bench.md`. Sizes of more than 60,000 endpoints are left
//! out, and said. CPU time is that of this process and of the tools that it started, the kernel's work included.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a benchmark, not shipped")]

use std::thread;
use std::time::{Duration, Instant};

use backend_iptables::options::VariantOption;
use backend_iptables::{Iptables, Options};
use nix::sys::resource::{UsageWho, getrusage};
use proxier_core::cluster::{Cluster, DetectLocal, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_sys::netns;
use proxier_sys::runner::SystemRunner;
use proxier_testkit::bench::{Arguments, Change, Fleet, Size, Table, report};
use proxier_testkit::scale;
use proxier_xtables::objects::{ChainId, Input, Op, Step, Table as RuleTable};
use proxier_xtables::restore::Restorer;
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::tool::{self, Tools, Variant};
use proxier_xtables::trial::scratch;

/// Endpoints beyond which a load takes minutes.
const MOST: u32 = 60_000;
/// Chains beyond which kube-proxy's load is not repeated with nft: it grows with their square.
const KUBE_PROXY_CHAINS: u32 = 15_000;
/// How often each change is made.
const ROUNDS: usize = 5;

/// CPU time of this process and of those that it started and that ended.
fn cpu() -> Duration {
    let of = |who| {
        let usage = getrusage(who).unwrap();
        [usage.user_time(), usage.system_time()].into_iter().map(seconds).sum::<Duration>()
    };
    of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}

fn seconds(t: nix::sys::time::TimeVal) -> Duration {
    Duration::new(t.tv_sec().try_into().unwrap(), u32::try_from(t.tv_usec()).unwrap() * 1000)
}

/// Wall time and CPU time.
type Sample = (Duration, Duration);

struct Bench {
    cluster: Cluster,
    driver: Driver<Iptables>,
    table: Table,
}

impl Bench {
    fn new(variant: VariantOption) -> Self {
        let traffic = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
            ..TrafficOptions::default()
        };
        let options = Options { variant, ..Options::default() };
        let mut driver = Driver::new(Iptables::new(IpFamily::Ipv4, options));
        let capabilities = driver.probe().unwrap();
        assert!(capabilities.usable(), "{:?}", capabilities.missing().collect::<Vec<_>>());
        let table = Table::new(&["what", "runs", "wall ms", "CPU ms", "written"]);
        Self { cluster: Cluster::new(NodeName::new(scale::NODE), traffic), driver, table }
    }

    fn row(&mut self, what: &str, samples: &mut [Sample], written: &str) {
        samples.sort_unstable();
        let wall = samples[samples.len() / 2].0;
        samples.sort_unstable_by_key(|s| s.1);
        let cpu = samples[samples.len() / 2].1;
        self.table.row([what, &samples.len().to_string(), &report::ms(wall), &report::ms(cpu), written]);
    }

    fn send(&mut self, changes: &[Change]) {
        for change in changes {
            let _ = match change {
                Change::Service(number) => self.cluster.upsert_service(scale::service(*number)),
                Change::ServiceGone(number) => self.cluster.remove_service(&scale::service(*number).name),
                Change::Slice(part) => self.cluster.upsert_slice(part.model()),
                Change::SliceGone(part) => self.cluster.remove_slice(&part.model().name),
            };
        }
    }

    fn sync(&mut self, kind: SyncKind) -> (SyncReport, Sample) {
        let (before, begun) = (cpu(), Instant::now());
        let snapshot = self.cluster.commit().snapshot(IpFamily::Ipv4).clone();
        let report = self.driver.sync(&snapshot, kind).unwrap();
        (report, (begun.elapsed(), cpu() - before))
    }

    /// Makes a kind of change some times, each in a sync of its own.
    fn changes(&mut self, what: &str, mut change: impl FnMut(usize) -> Vec<Change>) {
        let (mut samples, mut written) = (Vec::new(), String::new());
        for round in 0..ROUNDS {
            let changes = change(round);
            self.send(&changes);
            let (report, sample) = self.sync(SyncKind::Partial);
            assert_eq!(report.kind, SyncKind::Partial, "{what} was written in full");
            written = described(&report);
            samples.push(sample);
        }
        self.row(what, &mut samples, &written);
    }
}

fn described(report: &SyncReport) -> String {
    format!("{} lines, {} bytes, {} runs of the tool", report.operations, report.bytes, report.messages)
}

fn run(size: Size, variant: Variant) {
    let wanted = match variant {
        Variant::Nft => VariantOption::Nft,
        Variant::Legacy => VariantOption::Legacy,
    };
    let (mut b, mut fleet) = (Bench::new(wanted), Fleet::new(size));
    let all: Vec<Change> = fleet.all().collect();
    b.send(&all);
    let (report, sample) = b.sync(SyncKind::Full);
    b.row("load into an empty kernel", &mut [sample], &described(&report));
    let (report, sample) = b.sync(SyncKind::Full);
    assert_eq!(report.operations, 0, "a second full sync found something to write");
    b.row("full sync over what is there", &mut [sample], "0 lines");
    let numbers: Vec<u32> = (0..ROUNDS).map(|_| fleet.pick()).collect();
    b.changes("one endpoint replaced", |round| vec![fleet.replace(numbers[round])]);
    b.changes("endpoint count changed", |round| vec![fleet.recount(numbers[round])]);
    let extra = size.services + 1;
    b.changes("service without endpoints added, removed", |round| {
        if round % 2 == 0 { vec![Change::Service(extra)] } else { vec![Change::ServiceGone(extra)] }
    });
    let burst = size.services.min(100);
    b.changes(&format!("{burst} services changed in one sync"), |_| {
        let picked: Vec<u32> = (0..burst).map(|_| fleet.pick()).collect();
        picked.into_iter().map(|number| fleet.replace(number)).collect()
    });
    let (before, begun) = (cpu(), Instant::now());
    let drift = b.driver.verification().unwrap().run().unwrap();
    assert!(drift.is_empty(), "{:?}", drift.items.first());
    b.row("compare kernel and belief", &mut [(begun.elapsed(), cpu() - before)], "0 differences");
    beside(&mut b, size, variant);
    println!("### {size}, iptables-{variant}\n\n{}\n", b.table);
}

/// What kube-proxy gives to the same tool: for one change, all of `KUBE-SERVICES` and the service's chains; at the start, everything at once.
fn beside(b: &mut Bench, size: Size, variant: Variant) {
    let tools = tool::choose(&SystemRunner::new(), IpFamily::Ipv4, Some(variant)).unwrap().tools;
    let saved = saved::read(&SystemRunner::new(), &tools, |table, _| table == RuleTable::Nat).unwrap();
    let one = saved.chains.keys().find(|c| c.name.starts_with("KUBE-SVC-")).unwrap().clone();
    let services = ChainId { table: RuleTable::Nat, name: "KUBE-SERVICES".into() };
    let partial = rewritten(&saved, [&services, &one].into_iter());
    let mut samples: Vec<Sample> = (0..ROUNDS).map(|_| restore(&tools, &partial)).collect();
    b.row("kube-proxy's input for one change, the tool alone", &mut samples, &lines(&partial));
    let chains = size.services * (size.endpoints + 1);
    if variant == Variant::Nft && chains > KUBE_PROXY_CHAINS {
        println!("kube-proxy's load is left out at {size} with nft: minutes.\n");
        return;
    }
    let full = rewritten(&saved, saved.chains.keys().filter(|c| c.name.starts_with("KUBE-")));
    let sample = thread::scope(|scope| {
        let job = || {
            netns::enter_new().unwrap();
            restore(&tools, &full)
        };
        scope.spawn(job).join().unwrap()
    });
    b.row("kube-proxy's load, the tool alone", &mut [sample], &lines(&full));
}

fn lines(input: &Input) -> String {
    format!("{} lines", input.steps.len())
}

/// An input that writes these chains anew.
fn rewritten<'a>(saved: &Saved, chains: impl Iterator<Item = &'a ChainId>) -> Input {
    let chains: Vec<&ChainId> = chains.collect();
    let step = |op| Step { op, port: None };
    let mut steps: Vec<Step> = chains.iter().map(|c| step(Op::Chain((*c).clone()))).collect();
    for chain in chains {
        steps.extend(saved.rules(chain).iter().map(|r| step(Op::Append(chain.clone(), r.clone()))));
    }
    Input { steps }
}

fn restore(tools: &Tools, input: &Input) -> Sample {
    let runner = SystemRunner::new();
    let restorer = Restorer { runner: &runner, tools, trial: &scratch };
    let (before, begun) = (cpu(), Instant::now());
    restorer.run(std::slice::from_ref(input), &mut |_| {}).unwrap();
    (begun.elapsed(), cpu() - before)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    let arguments = Arguments::parse(&words).expect("arguments");
    if !arguments.wants("iptables") {
        return;
    }
    println!("\n## A sync: the core and the backend alone, IPv4, iptables\n");
    for size in &arguments.sizes {
        if size.services * size.endpoints > MOST {
            println!("{size} is left out: more than {MOST} endpoints, minutes with either variant.\n");
            continue;
        }
        for variant in Variant::ALL {
            thread::scope(|scope| {
                scope.spawn(|| {
                    netns::enter_new().expect("a network namespace: run as root");
                    run(*size, variant);
                });
            });
        }
    }
}
