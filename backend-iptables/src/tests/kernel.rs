//! The backend, driven as the agent drives it, on the running kernel: both variants, each test in network namespaces of its own.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{major, minor};
use proxier_core::backend::{
    ApplyReport, Backend, Capabilities, CleanupReport, Drift, Progress, ProgressSink, RenderInput,
    RetryClass, TakeOver,
};
use proxier_core::cluster::{Cluster, DetectLocal, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, NodeName, Port, ServicePortName};
use proxier_core::model::{NodeFacts, Service, ServiceType, TrafficPolicy};
use proxier_core::snapshot::Snapshot;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};
use proxier_testkit::build::History;
use proxier_testkit::{corpus, scale};
use proxier_xtables::objects::{ChainId, Op, Rule, Step, Table};
use proxier_xtables::restore::Patience;
use proxier_xtables::tool::{self, Variant};
use proxier_xtables::{accounting, saved};

use crate::belief::Belief;
use crate::error::Error;
use crate::names::{Kind, ServiceNames};
use crate::options::{INVALID_DROPPED, LOCALHOST_ACCEPTED, Options, VariantOption};
use crate::plan::Plan;
use crate::{Iptables, takeover};

const NODE_IP: &str = "192.0.2.3";

/// Puts a test into a network namespace of its own.
fn netns_test() {
    proxier_sys::netns::enter_new().expect("root, to make a network namespace");
}

fn options(variant: Variant) -> Options {
    let variant = match variant {
        Variant::Nft => VariantOption::Nft,
        Variant::Legacy => VariantOption::Legacy,
    };
    Options { variant, ..Options::default() }
}

/// A backend that has looked at the host, as the agent makes it do first.
fn backend(variant: Variant, family: IpFamily) -> Iptables {
    let mut backend = Iptables::new(family, options(variant));
    let capabilities = backend.probe().unwrap();
    assert_eq!(capabilities.missing().count(), 0, "{variant} {family}: {:?}", capabilities.requirements);
    backend
}

/// The tools of one variant and family.
#[derive(Clone, Copy)]
struct Host(Variant, IpFamily);

impl Host {
    fn tool(self, purpose: &str) -> String {
        let stem = if self.1 == IpFamily::Ipv4 { "iptables" } else { "ip6tables" };
        let variant = if self.0 == Variant::Nft { "nft" } else { "legacy" };
        format!("{stem}-{variant}{purpose}")
    }

    fn run(self, purpose: &str, args: &[&str], stdin: &str) -> String {
        let spec = CommandSpec::new(self.tool(purpose), args.iter().copied()).stdin(stdin.to_owned());
        let output = SystemRunner::new().run(&spec).unwrap();
        assert!(output.success(), "{purpose} {args:?}: {}", output.stderr_text());
        output.stdout_text()
    }

    /// Runs `iptables` with these words; `'...'` is one.
    fn command(self, line: &str) {
        let mut words: Vec<&str> = vec!["-w", "60"];
        for (at, part) in line.split('\'').enumerate() {
            if at % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
        }
        self.run("", &words, "");
    }

    /// Everything there is, without counters and times.
    fn list(self) -> Vec<String> {
        let text = self.run("-save", &[], "");
        let plain = |l: &str| l.split(" [").next().unwrap_or_default().to_owned();
        text.lines().filter(|l| !l.starts_with('#')).map(plain).collect()
    }

    /// What is not ours.
    fn foreign(self) -> Vec<String> {
        let chain = |l: &str| l.starts_with(':') && l.ends_with('-');
        let all = self.list().into_iter();
        all.filter(|l| !l.contains("KUBE-") && (l.starts_with("-A") || chain(l))).collect()
    }
}

struct Bench<B: Backend> {
    cluster: Cluster,
    driver: Driver<B>,
    host: Host,
}

impl Bench<Iptables> {
    fn new(variant: Variant) -> Self {
        Self::with(variant, backend(variant, IpFamily::Ipv4))
    }

    /// The kernel holds exactly what is believed, and what a process that has just been started makes of the same cluster.
    fn in_order(&mut self, after: &str) {
        let drift = self.driver.verification().unwrap().run().unwrap();
        assert!(drift.is_empty(), "after {after}: {:#?}", drift.items);
        let snapshot = self.driver.adopted().unwrap().clone();
        let drift = Driver::new(backend(self.host.0, snapshot.family())).compare(&snapshot).unwrap();
        assert!(drift.is_empty(), "after {after}, a new process: {:#?}", drift.items);
    }
}

impl<B: Backend + 'static> Bench<B> {
    fn with(variant: Variant, backend: B) -> Self {
        let traffic = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
            localhost_node_ports: true,
            ..TrafficOptions::default()
        };
        let mut cluster = Cluster::new(NodeName::new(scale::NODE), traffic);
        let mut node = NodeFacts::default();
        *node.ips.get_mut(IpFamily::Ipv4) = NODE_IP.parse().ok();
        cluster.set_node(node);
        let host = Host(variant, backend.family());
        Self { cluster, driver: Driver::new(backend), host }
    }

    fn put(&mut self, number: u32, endpoints: u32, change: impl FnOnce(&mut Service)) {
        let mut service = scale::service(number);
        change(&mut service);
        self.cluster.upsert_service(service);
        self.cluster.upsert_slice(scale::slice(number, endpoints, 0));
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

    fn drift(&mut self) -> Vec<String> {
        let drift = self.driver.verification().unwrap().run().unwrap();
        drift.items.iter().map(ToString::to_string).collect()
    }
}

/// A load balancer with every kind of frontend.
fn rich(service: &mut Service) {
    service.kind = ServiceType::LoadBalancer;
    service.external_policy = TrafficPolicy::Local;
    service.load_balancer_vips.ipv4 = vec!["198.51.100.1".parse().unwrap()];
    service.external_ips.ipv4 = vec!["198.51.100.2".parse().unwrap()];
    service.source_ranges.ipv4 = vec!["203.0.113.0/24".parse().unwrap(), "192.0.2.0/29".parse().unwrap()];
    service.ports[0].node_port = Port::new(30080);
    service.health_check_node_port = Port::new(32080);
}

fn fill<B: Backend + 'static>(b: &mut Bench<B>) {
    b.put(0, 2, |_| {});
    b.put(1, 3, rich);
    b.put(2, 2, |s| s.affinity = Some(Duration::from_secs(600)));
    b.put(3, 0, |s| s.ports[0].node_port = Port::new(30090));
}

fn scale_name(number: u32) -> ServicePortName {
    let service = scale::service(number);
    let port = &service.ports[0];
    ServicePortName { service: service.name, port: Arc::clone(&port.name), protocol: port.protocol }
}

fn chain(number: u32, kind: Kind) -> String {
    ServiceNames::new(&scale_name(number)).chain(kind).to_string()
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_is_synced_stays_and_goes_again() {
    for variant in Variant::ALL {
        netns_test();
        let mut b = Bench::new(variant);
        b.host.command("-t nat -N DOCKER");
        b.host.command("-t nat -A PREROUTING -j DOCKER");
        b.host.command("-A FORWARD -s 198.51.100.7 -j ACCEPT");
        let others = b.host.foreign();
        fill(&mut b);
        let report = b.sync();
        assert!(report.operations > 80 && report.attempts == 1, "{variant}: {report:?}");
        b.in_order("the first sync");
        assert_eq!((b.sync().operations, b.full().operations), (0, 0), "{variant}: nothing differs");
        assert_eq!(b.host.foreign(), others, "{variant}");

        let mut second = Bench::new(variant);
        fill(&mut second);
        let report = second.sync();
        assert_eq!((report.kind, report.operations), (SyncKind::Full, 0), "{variant}: a restart");
        second.put(4, 1, |_| {});
        let report = second.sync();
        assert_eq!((report.kind, report.changed_ports), (SyncKind::Partial, 1), "{variant}");
        assert!(report.operations < 10, "{variant}: {report:?}");

        let removed = second.driver.cleanup().unwrap();
        assert!(!removed.removed.is_empty() && removed.stayed.is_empty(), "{variant}: {removed:?}");
        let left: Vec<String> = b.host.list().into_iter().filter(|l| l.contains("KUBE-")).collect();
        assert!(left.iter().all(|l| l.contains("KUBE-FIREWALL")), "{variant}: {left:#?}");
        assert_eq!(b.host.foreign(), others, "{variant}");
        assert_eq!(second.driver.cleanup().unwrap(), CleanupReport::default(), "{variant}: twice in a row");
    }
}

/// Each damage with what verification must say and the operations that undo it at most. What several lines do is one damage.
fn damages() -> Vec<(Vec<String>, Vec<String>, usize)> {
    let svc = chain(0, Kind::Cluster);
    let endpoint = scale::slice(0, 2, 0).endpoints[1].ip;
    let addr = proxier_core::ids::EndpointAddr { ip: endpoint, port: Port::new(8080).unwrap() };
    let sep = ServiceNames::new(&scale_name(0)).endpoint(addr).to_string();
    let one = |damage: &str, found: &str, ops| (vec![damage.to_owned()], vec![found.to_owned()], ops);
    vec![
        one("-t nat -F", "missing: rule nat -A KUBE-SERVICES", 70),
        one("-t filter -F", "missing: rule filter -A KUBE-FORWARD", 40),
        (
            [format!("-t nat -F {svc}"), format!("-t nat -F {sep}"), format!("-t nat -X {sep}")].into(),
            vec![format!("missing: chain nat {sep}"), format!("missing: rule nat -A {svc}")],
            8,
        ),
        one("-t nat -D KUBE-SERVICES 1", "missing: rule nat -A KUBE-SERVICES -d ", 1),
        one("-D KUBE-FORWARD 2", "missing: rule filter -A KUBE-FORWARD", 4),
        one(
            "-t nat -I KUBE-SERVICES 2 -s 198.51.100.9 -j ACCEPT",
            "unexpected: rule nat -A KUBE-SERVICES -s 198.51.100.9/32 -j ACCEPT",
            1,
        ),
        one(
            "-t nat -A KUBE-SERVICES -d 198.51.100.9 -j RETURN",
            "unexpected: rule nat -A KUBE-SERVICES -d 198.51.100.9/32 -j RETURN",
            1,
        ),
        (
            vec![format!("-t nat -I {svc} 1 -s 198.51.100.9 -j ACCEPT")],
            vec![format!("unexpected: rule nat -A {svc} -s 198.51.100.9/32 -j ACCEPT")],
            4,
        ),
        one("-t mangle -X KUBE-PROXY-CANARY", "missing: chain mangle KUBE-PROXY-CANARY", 1),
        one(
            "-t nat -D PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
            "missing: rule nat -A PREROUTING",
            1,
        ),
        one("-t nat -N KUBE-SVC-AAAAAAAAAAAAAAAA", "unexpected: chain nat KUBE-SVC-AAAAAAAAAAAAAAAA", 2),
        (
            vec!["-t nat -R KUBE-POSTROUTING 1 -j RETURN".into()],
            vec![
                "missing: rule nat -A KUBE-POSTROUTING -m mark".into(),
                "unexpected: rule nat -A KUBE-POSTROUTING -j RETURN".into(),
            ],
            4,
        ),
    ]
}

/// A flush of nat alone is found as well: everything is compared, not a canary.
///
/// Cases: iptables-12.36
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn every_kind_of_damage_is_found_named_and_repaired_and_what_is_foreign_stays() {
    for variant in Variant::ALL {
        netns_test();
        let mut b = Bench::new(variant);
        fill(&mut b);
        b.sync();
        for (damage, found, most) in damages() {
            b.host.command("-t nat -I PREROUTING -d 198.51.100.77 -j RETURN");
            b.host.command("-A FORWARD -s 198.51.100.7 -j ACCEPT");
            damage.iter().for_each(|line| b.host.command(line));
            let others: Vec<String> =
                b.host.foreign().into_iter().filter(|l| !l.contains("198.51.100.9/")).collect();
            let items = b.drift();
            for found in &found {
                assert!(items.iter().any(|i| i.contains(found)), "{variant} {damage:?}: {items:#?}");
            }
            let report = b.full();
            assert_eq!(report.attempts, 1, "{variant} {damage:?}: {:?}", report.setbacks);
            assert!(
                (1..=most).contains(&report.operations),
                "{variant} {damage:?}: {} operations",
                report.operations
            );
            b.in_order(&format!("{variant} {damage:?}"));
            assert_eq!(b.host.foreign(), others, "{variant} {damage:?}");
        }
    }
}

/// The change after a flush meets tables that are not as believed; the same sync looks and repairs.
///
/// Cases: iptables-12.36
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_partial_sync_over_a_flushed_table_is_rebuilt_in_the_same_sync() {
    for variant in Variant::ALL {
        netns_test();
        let mut b = Bench::new(variant);
        fill(&mut b);
        b.sync();
        b.host.command("-t nat -F");
        b.host.command("-t nat -X");
        b.put(0, 1, |_| {});
        let report = b.sync();
        assert_eq!((report.kind, report.attempts), (SyncKind::Full, 2), "{variant}: {:?}", report.setbacks);
        assert!(b.driver.set_aside().is_empty(), "{variant}: no service is blamed");
        b.in_order("a rebuild");
    }
}

/// After every change of a random history the kernel holds what is believed: a test for each seed, so that many run at once, and a slow machine runs some.
mod history {
    use super::*;

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn of_seed_0() {
        play(0);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn of_seed_1() {
        play(1);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn of_seed_2() {
        play(2);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn of_seed_3() {
        play(3);
    }

    /// In both variants, IPv4 by even seeds and IPv6 by odd ones.
    fn play(seed: u64) {
        for variant in Variant::ALL {
            netns_test();
            let family = if seed.is_multiple_of(2) { IpFamily::Ipv4 } else { IpFamily::Ipv6 };
            let mut driver = Driver::new(backend(variant, family));
            let mut commits = 0;
            let played = History::from_seed(seed).play(|number, commit| {
                let place = format!("{variant}, seed {seed}, commit {number}");
                let snapshot = commit.snapshot(family);
                let report = driver.sync(snapshot, SyncKind::Partial).unwrap();
                assert_eq!(report.attempts, 1, "{place}: {:?}", report.setbacks);
                let drift = driver.verification().unwrap().run().unwrap();
                assert!(drift.is_empty(), "{place}: {:#?}", drift.items);
                assert_eq!(driver.sync(snapshot, SyncKind::Partial).unwrap().operations, 0, "{place}");
                let fresh = Driver::new(backend(variant, family)).compare(snapshot).unwrap();
                assert!(fresh.is_empty(), "{place}: {:#?}", fresh.items);
                commits += 1;
                Ok::<(), ()>(())
            });
            assert!(played.is_ok() && commits > 4, "{variant}, seed {seed}: {commits} commits");
        }
    }
}

/// With the save file of a kube-proxy in the kernel, a first sync changes nothing, and later ones only what changed.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_tables_of_a_kube_proxy_are_taken_over() {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let case = corpus::load(&cases.join("peer-state.yaml")).unwrap();
    for variant in Variant::ALL {
        for family in IpFamily::ALL {
            netns_test();
            accounting::ensure(&[INVALID_DROPPED, LOCALHOST_ACCEPTED]).unwrap();
            let host = Host(variant, family);
            let file = if family == IpFamily::Ipv4 { "iptables-save.txt" } else { "ip6tables-save.txt" };
            let theirs = std::fs::read_to_string(corpus::folder().join("peer").join(file)).unwrap();
            host.run("-restore", &["-w", "60"], &theirs);
            let before = host.list();
            let mut driver = Driver::new(backend(variant, family));
            let snapshot = case.commit.snapshot(family);
            let report = driver.sync(snapshot, SyncKind::Partial).unwrap();
            assert_eq!((report.kind, report.operations), (SyncKind::Full, 0), "{variant} {family}");
            assert_eq!(host.list(), before, "{variant} {family}");
            for count in &report.rules {
                let part = theirs.split(&format!("*{}\n", count.table)).nth(1).unwrap();
                let part = part.split("COMMIT").next().unwrap();
                let rules = part.lines().filter(|l| l.starts_with("-A KUBE-")).count();
                assert_eq!((count.total, count.written), (rules, 0), "{variant} {family} {}", count.table);
            }
            let counted: Vec<&str> =
                crate::counted_packets().unwrap().iter().map(|(name, _)| *name).collect();
            assert_eq!(counted, [INVALID_DROPPED, LOCALHOST_ACCEPTED], "{variant} {family}");
            assert!(driver.verification().unwrap().run().unwrap().is_empty(), "{variant} {family}");
        }
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_cold_start_is_written_in_bounded_inputs_and_tells_how_far_it_is() {
    for variant in Variant::ALL {
        netns_test();
        let mut b = Bench::new(variant);
        let first = [scale::service(1_234).name, scale::service(77).name];
        let traffic = TrafficOptions { first_services: first.into(), ..TrafficOptions::default() };
        b.cluster.set_options(traffic);
        for number in 0..1_500 {
            b.put(number, 2, |s| {
                if number % 100 == 5 {
                    s.affinity = Some(Duration::from_secs(60));
                }
            });
        }
        let told: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let sink = Arc::clone(&told);
        b.driver.on_progress(Box::new(move |p| sink.lock().unwrap().push(p)));
        let report = b.sync();
        assert_eq!((report.attempts, report.kind), (1, SyncKind::Full), "{variant}");
        let told = told.lock().unwrap().clone();
        match variant {
            // 4,500 chains, 2,000 an input at most.
            Variant::Nft => {
                assert!(told.len() > 2, "{told:?}");
                let last =
                    Progress { ports: 1_500, ports_all: 1_500, steps: told.len(), steps_all: told.len() };
                assert_eq!(told.last(), Some(&last));
                assert!(told.is_sorted_by_key(|p| p.ports) && told[0].ports > 100, "{told:?}");
            }
            // The whole table is exchanged each time: one input is the least work.
            Variant::Legacy => assert!(told.is_empty() && report.messages < 5, "{told:?} {report:?}"),
        }
        b.in_order("a cold start");
        b.cluster.upsert_slice(scale::slice(700, 2, 1));
        let report = b.sync();
        assert!(report.kind == SyncKind::Partial && report.operations < 12, "{variant}: {report:?}");
        b.in_order("a change");
    }
}

/// A table that the tool cannot show stops no change of a service, since that asks for no listing; what needs one says why, and changes
/// nothing.
///
/// Cases: iptables-12.37
#[test]
#[ignore = "needs root, a network namespace and nft: run by cargo xtask test"]
fn a_listing_that_fails_stops_no_change() {
    netns_test();
    let nft = |script: &str| {
        let spec = CommandSpec::new("nft", ["-f", "-"]).stdin(script.to_owned());
        assert!(SystemRunner::new().run(&spec).unwrap().success(), "{script}");
    };
    let mut b = Bench::new(Variant::Nft);
    fill(&mut b);
    b.sync();
    nft("add chain ip nat foreign\nadd rule ip nat foreign numgen inc mod 2 1 drop\n");
    b.put(0, 1, |_| {});
    let report = b.sync();
    assert_eq!((report.kind, report.attempts), (SyncKind::Partial, 1), "{:?}", report.setbacks);
    let error = b.driver.verification().unwrap().run().unwrap_err();
    assert_eq!(error.class, RetryClass::Misconfigured);
    assert!(error.to_string().contains("table nat cannot be read"), "{error}");
    let snapshot = b.driver.adopted().unwrap().clone();
    let error = b.driver.sync(&snapshot, SyncKind::Full).unwrap_err();
    assert_eq!(error.class, RetryClass::Misconfigured);
    nft("flush chain ip nat foreign\ndelete chain ip nat foreign\n");
    assert_eq!(b.full().operations, 0, "nothing was changed meanwhile, and what had to go is gone");
    b.in_order("the listing is back");
}

/// Adds a rule that the kernel refuses behind what a plan writes for a service port: none but `filter` takes `REJECT`.
fn poison(steps: &mut Vec<Step>, victim: &ServicePortName) {
    let own = |s: &Step| {
        s.port.as_ref() == Some(victim) && matches!(s.op, Op::Append(ref id, _) if id.table == Table::Nat)
    };
    let Some(at) = steps.iter().rposition(own) else { return };
    let name = ServiceNames::new(victim).chain(Kind::Cluster);
    let op = Op::Append(ChainId { table: Table::Nat, name }, Rule("-j REJECT".into()));
    steps.insert(at + 1, Step { op, port: Some(victim.clone()) });
}

/// The backend with service ports that the kernel does not like.
struct Saboteur {
    inner: Iptables,
    victims: Arc<Mutex<Vec<ServicePortName>>>,
}

impl Backend for Saboteur {
    type Plan = Plan;
    type Belief = Belief;
    type Error = Error;

    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn family(&self) -> IpFamily {
        self.inner.family()
    }
    fn probe(&mut self) -> Result<Capabilities, Error> {
        self.inner.probe()
    }
    fn render(&self, input: RenderInput<'_, Belief>) -> Plan {
        self.inner.render(input)
    }
    fn take_over(&mut self, plan: Plan) -> Result<TakeOver<Plan>, Error> {
        self.inner.take_over(plan)
    }
    fn check(&mut self, plan: &Plan) -> Result<(), Error> {
        self.inner.check(plan)
    }
    fn apply(&mut self, plan: Plan, told: ProgressSink<'_>) -> Result<(Belief, ApplyReport), Error> {
        let variant = self.inner.facts().variant;
        let (mut inputs, next) = if plan.full {
            let runner = SystemRunner::new();
            let tools = tool::choose(&runner, self.family(), Some(variant))?.tools;
            let saved = saved::read(&runner, &tools, |_, _| true)?;
            (takeover::replace(&plan, &saved), plan.next.clone())
        } else {
            (plan.inputs().to_vec(), plan.next.clone())
        };
        for victim in &*self.victims.lock().unwrap() {
            inputs.iter_mut().for_each(|input| poison(&mut input.steps, victim));
        }
        self.inner.apply(Plan { full: false, inputs: inputs.into(), next, ..plan }, told)
    }
    fn verify(&mut self, belief: &Belief) -> Result<Drift, Error> {
        self.inner.verify(belief)
    }
    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Error> {
        self.inner.compare(snapshot)
    }
    fn observer(&self) -> Self {
        Self { inner: self.inner.observer(), victims: Arc::default() }
    }
    fn cleanup(&mut self) -> Result<CleanupReport, Error> {
        self.inner.cleanup()
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_service_that_the_kernel_refuses_is_set_aside_and_the_rest_goes_in() {
    for variant in Variant::ALL {
        netns_test();
        let victims = Arc::new(Mutex::new(vec![scale_name(1)]));
        let inner = backend(variant, IpFamily::Ipv4);
        let mut b = Bench::with(variant, Saboteur { inner, victims: Arc::clone(&victims) });
        for number in 0..3 {
            b.put(number, 2, |_| {});
        }
        let report = b.sync();
        assert_eq!(report.kind, SyncKind::Full, "{variant}");
        assert_eq!(report.refused.len(), 1, "{variant}: {:?} {:?}", report.refused, report.setbacks);
        assert_eq!(report.refused[0].port, scale_name(1), "{variant}");
        assert!(report.refused[0].reason.contains("REJECT"), "{variant}: {}", report.refused[0].reason);
        let there = |b: &Bench<Saboteur>, n| {
            b.host.list().iter().any(|l| *l == format!(":{} -", chain(n, Kind::Cluster)))
        };
        assert!(there(&b, 0) && !there(&b, 1) && there(&b, 2), "{variant}: {:#?}", b.host.list());
        assert_eq!(b.drift(), Vec::<String>::new(), "{variant}");
        // One that comes later disturbs nobody either.
        victims.lock().unwrap().push(scale_name(5));
        b.put(4, 1, |_| {});
        b.put(5, 1, |_| {});
        let report = b.sync();
        assert!(report.refused.iter().any(|r| r.port == scale_name(5)), "{variant}: {:?}", report.refused);
        assert!(there(&b, 4) && !there(&b, 5) && there(&b, 0), "{variant}");
        // Once the kernel takes them, a full sync puts them in.
        victims.lock().unwrap().clear();
        assert!(b.full().refused.is_empty() && b.driver.set_aside().is_empty(), "{variant}");
        assert!(there(&b, 1) && there(&b, 5), "{variant}");
        assert_eq!(b.drift(), Vec::<String>::new(), "{variant}");
    }
}

/// A mount namespace with nothing in `/run`: the lock of the legacy tools is another one than the host's there.
fn own_run() {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).expect("root, to make a mount namespace");
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(none, "/run", Some("tmpfs"), MsFlags::empty(), none).unwrap();
}

/// Locks as another program does that writes with the legacy tools. Let go when it is dropped.
fn lock() -> File {
    let file = File::create("/run/xtables.lock").unwrap();
    file.lock().unwrap();
    file
}

/// Processes that wait for the lock (proc_locks(5)): `7: -> FLOCK  ADVISORY  WRITE 4242 00:5d:2 0 EOF`.
fn waiting(lock: &File) -> BTreeSet<u32> {
    let file = lock.metadata().unwrap();
    let place = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    let all = std::fs::read_to_string("/proc/locks").unwrap();
    let waits = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let here = words.get(1) == Some(&"->") && words.contains(&place.as_str());
        here.then(|| words[5].parse().unwrap())
    };
    all.lines().filter_map(waits).collect()
}

/// Another program keeps the lock until one tool has given up waiting for it and a second one waits.
#[test]
#[ignore = "needs root, a network and a mount namespace, and six seconds: run by cargo xtask test"]
fn a_sync_outlasts_a_lock_that_is_held_longer_than_the_tool_waits() {
    netns_test();
    own_run();
    let mut b = Bench::new(Variant::Legacy);
    fill(&mut b);
    let held = lock();
    let holder = thread::spawn(move || {
        let mut seen = BTreeSet::new();
        for _ in 0..600 {
            thread::sleep(Duration::from_millis(50));
            seen.extend(waiting(&held));
            if seen.len() > 1 {
                break;
            }
        }
        drop(held);
        seen.len()
    });
    let report = b.sync();
    assert_eq!(holder.join().unwrap(), 2, "tools that met the lock");
    assert_eq!((report.kind, report.attempts), (SyncKind::Full, 1), "{:?}", report.setbacks);
    assert!(b.host.list().contains(&format!(":{} -", chain(1, Kind::Cluster))), "{:#?}", b.host.list());
    b.in_order("a lock");
}

/// Another program holds the lock through all tries: nothing is written and nothing is forgotten. Who starts meanwhile still finds out what
/// the kernel can do.
#[test]
#[ignore = "needs root, a network and a mount namespace: run by cargo xtask test"]
fn a_lock_that_stays_fails_the_sync_and_the_next_one_brings_everything_in() {
    netns_test();
    own_run();
    let mut inner = backend(Variant::Legacy, IpFamily::Ipv4);
    inner.patience = Patience { wait: 1, ..Patience::default() };
    let mut b = Bench::with(Variant::Legacy, inner);
    fill(&mut b);
    b.sync();
    let (before, adopted) = (b.host.list(), b.driver.adopted().unwrap().generation());

    let held = lock();
    b.put(0, 1, |_| {});
    b.put(4, 2, |_| {});
    let snapshot = b.snapshot();
    for kind in [SyncKind::Partial, SyncKind::Full] {
        let error = b.driver.sync(&snapshot, kind).unwrap_err();
        assert_eq!(error.class, RetryClass::Transient, "{kind:?}: {error}");
        assert!(error.to_string().contains("held by another program for 3 tries"), "{kind:?}: {error}");
        assert_eq!(b.driver.adopted().unwrap().generation(), adopted, "{kind:?}");
        assert!(b.driver.set_aside().is_empty(), "{kind:?}: no service is blamed");
        assert_eq!(b.host.list(), before, "{kind:?}");
        assert_eq!(b.drift(), Vec::<String>::new(), "{kind:?}: the belief is of what is there");
    }
    let found = Iptables::new(IpFamily::Ipv4, options(Variant::Legacy)).probe().unwrap();
    let untried: Vec<_> = found.requirements.iter().filter(|r| r.detail.contains("not tried")).collect();
    assert!(found.usable() && untried.is_empty(), "{untried:?}");

    drop(held);
    b.put(5, 1, |_| {});
    let report = b.sync();
    assert_eq!((report.attempts, report.changed_ports), (1, 3), "{:?}", report.setbacks);
    for number in [4, 5] {
        assert!(b.host.list().contains(&format!(":{} -", chain(number, Kind::Cluster))), "{number}");
    }
    b.in_order("the lock was let go");
}
