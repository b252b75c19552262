//! The backend against the running kernel, each test in a network namespace of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proxier_core::backend::{
    ApplyReport, Backend, Capabilities, CleanupReport, Drift, ProgressSink, RenderInput, TakeOver,
};
use proxier_core::cluster::{Cluster, DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::driver::{Driver, Instance, SyncKind, SyncReport};
use proxier_core::ids::{IpFamily, NodeName, Port, ServicePortName};
use proxier_core::model::{Conditions, NodeFacts, Service, ServiceType, TrafficPolicy};
use proxier_core::snapshot::Snapshot;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};
use proxier_testkit::scale;

use crate::Nftables;
use crate::belief::Belief;
use crate::error::Error;
use crate::objects::{Element, Key, Op, Value};
use crate::options::{Layout, Options};
use crate::plan::Plan;

mod cases;

const NODE_IP: &str = "192.0.2.3";

/// Puts a test into a network namespace of its own.
fn netns_test() {
    proxier_sys::netns::enter_new().expect("root, to make a network namespace");
}

fn nft(args: &str) -> String {
    let output = SystemRunner::new().run(&CommandSpec::new("nft", args.split(' '))).unwrap();
    assert!(output.success(), "nft {args}: {}", output.stderr_text());
    output.stdout_text()
}

fn nft_script(script: &str) {
    let spec = CommandSpec::new("nft", ["-f", "-"]).stdin(script.to_owned());
    let output = SystemRunner::new().run(&spec).unwrap();
    assert!(output.success(), "{script}: {}", output.stderr_text());
}

fn port(number: u16) -> Option<Port> {
    Port::new(number)
}

struct Bench<B: Backend> {
    cluster: Cluster,
    driver: Driver<B>,
}

impl Bench<Nftables> {
    fn new(layout: Layout) -> Self {
        let options = Options { layout, ..Options::default() };
        Self::with(Nftables::new(IpFamily::Ipv4, options))
    }

    /// The kernel holds exactly what is believed.
    fn in_order(&mut self, after: &str) {
        let drift = self.driver.verification().unwrap().run().unwrap();
        assert!(drift.is_empty(), "after {after}: {:#?}", drift.items);
    }
}

impl<B: Backend + 'static> Bench<B> {
    fn with(backend: B) -> Self {
        let traffic = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
            node_port_addresses: NodePortSelector::Primary,
            service_cidrs: vec!["10.64.0.0/12".parse().unwrap(), "10.96.0.0/12".parse().unwrap()],
            ..TrafficOptions::default()
        };
        let mut cluster = Cluster::new(NodeName::new(scale::NODE), traffic);
        let mut node = NodeFacts::default();
        *node.ips.get_mut(IpFamily::Ipv4) = NODE_IP.parse().ok();
        cluster.set_node(node);
        Self { cluster, driver: Driver::new(backend) }
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
}

/// A load balancer with everything that leaves a trace in the table.
fn rich(service: &mut Service) {
    service.kind = ServiceType::LoadBalancer;
    service.external_policy = TrafficPolicy::Local;
    service.load_balancer_vips.ipv4 = vec!["198.51.100.1".parse().unwrap()];
    service.external_ips.ipv4 = vec!["198.51.100.2".parse().unwrap()];
    service.source_ranges.ipv4 = vec!["203.0.113.0/24".parse().unwrap(), "192.0.2.0/29".parse().unwrap()];
    service.ports[0].node_port = port(30080);
    service.health_check_node_port = port(32080);
}

/// A history that meets every kind of operation: what it does, and to which services.
type History<B> = Vec<(&'static str, fn(&mut Bench<B>))>;

fn history<B: Backend + 'static>() -> History<B> {
    vec![
        ("a cluster IP", |b| b.put(0, 2, |_| {})),
        ("an endpoint replaced", |b| {
            b.cluster.upsert_slice(scale::slice(0, 2, 1));
        }),
        ("an endpoint more", |b| b.put(0, 3, |_| {})),
        ("more than few endpoints", |b| b.put(0, 9, |_| {})),
        ("one more of many", |b| b.put(0, 10, |_| {})),
        ("few endpoints again", |b| b.put(0, 3, |_| {})),
        ("a second service with as many", |b| b.put(1, 3, |_| {})),
        ("a load balancer with everything", |b| b.put(2, 3, rich)),
        ("its policy Cluster", |b| {
            b.put(2, 3, |s| {
                rich(s);
                s.external_policy = TrafficPolicy::Cluster;
            });
        }),
        ("affinity", |b| {
            b.put(2, 3, |s| {
                rich(s);
                s.affinity = Some(Duration::from_secs(60));
            });
        }),
        ("another timeout", |b| {
            b.put(2, 3, |s| {
                rich(s);
                s.affinity = Some(Duration::from_secs(90));
            });
        }),
        ("an endpoint less under affinity", |b| {
            b.cluster.upsert_slice(scale::slice(2, 2, 0));
        }),
        ("affinity gone", |b| b.put(2, 3, rich)),
        ("one source range", |b| {
            b.put(2, 3, |s| {
                rich(s);
                s.source_ranges.ipv4.truncate(1);
            });
        }),
        ("no endpoints", |b| b.put(2, 0, rich)),
        ("endpoints again", |b| b.put(2, 4, rich)),
        ("internal policy Local", |b| {
            b.put(0, 3, |s| s.internal_policy = TrafficPolicy::Local);
        }),
        ("two of three terminating", |b| {
            let mut slice = scale::slice(1, 3, 0);
            for e in slice.endpoints.iter_mut().skip(1) {
                e.conditions = Conditions { ready: false, serving: true, terminating: true };
            }
            b.cluster.upsert_slice(slice);
        }),
        ("two claim one external IP", |b| {
            b.put(3, 1, |s| s.external_ips.ipv4 = vec!["198.51.100.2".parse().unwrap()]);
        }),
        ("the older of them goes", |b| {
            b.cluster.remove_service(&scale::service(2).name);
        }),
        ("another node address", |b| {
            let mut node = NodeFacts::default();
            *node.ips.get_mut(IpFamily::Ipv4) = "192.0.2.4".parse().ok();
            b.cluster.set_node(node);
        }),
        ("everything goes", |b| {
            for number in 0..4 {
                b.cluster.remove_service(&scale::service(number).name);
                b.cluster.remove_slice(&scale::slice(number, 0, 0).name);
            }
        }),
    ]
}

/// Cases: nftables-12.6, nftables-12.7, nftables-12.29
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn after_every_change_the_kernel_holds_what_is_believed() {
    for layout in [Layout::Maps, Layout::Chains] {
        netns_test();
        let mut b = Bench::new(layout);
        b.sync();
        for (what, change) in history() {
            change(&mut b);
            let report = b.sync();
            assert!(report.operations > 0, "{what} changed nothing");
            b.in_order(what);
            let emptied = b.driver.belief().unwrap().doomed().count();
            assert_eq!(report.follow_up.is_some(), emptied > 0, "{what}");
            assert_eq!(b.sync().operations, emptied, "{what}: what it emptied is deleted by the next sync");
            assert_eq!(b.sync().operations, 0, "{what}: applied twice");
            let snapshot = b.driver.adopted().unwrap().clone();
            let fresh = b.driver.compare(&snapshot).unwrap();
            assert!(fresh.is_empty(), "{what}: a fresh render differs: {:#?}", fresh.items);
        }
        assert_eq!(b.driver.belief().unwrap().doomed().count(), 0, "emptied chains were deleted");
        let left = nft("list table ip kube-proxy");
        assert!(!left.contains("cluster-3") && !left.contains("svc-"), "{left}");
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_kernels_listing_reloads_and_lists_the_same() {
    for layout in [Layout::Maps, Layout::Chains] {
        netns_test();
        let mut b = Bench::new(layout);
        b.put(0, 2, |_| {});
        b.put(1, 3, rich);
        b.put(2, 2, |s| s.affinity = Some(Duration::from_secs(600)));
        b.put(3, 0, |s| s.ports[0].node_port = port(30090));
        b.sync();
        let listing = nft("list table ip kube-proxy");
        netns_test();
        nft_script(&listing);
        assert_eq!(nft("list table ip kube-proxy"), listing);
    }
}

/// Cases: nftables-12.40
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_text_of_a_plan_loads_into_the_same_table() {
    for layout in [Layout::Maps, Layout::Chains] {
        netns_test();
        let mut b = Bench::new(layout);
        b.put(0, 2, |_| {});
        b.put(1, 3, rich);
        b.sync();
        let snapshot = b.driver.adopted().unwrap().clone();
        let text: Vec<String> = b.driver.render(&snapshot).entries.into_iter().map(|e| e.text).collect();
        let by_netlink = nft("list table ip kube-proxy");
        netns_test();
        nft_script(&text.join("\n"));
        assert_eq!(nft("list table ip kube-proxy"), by_netlink);
    }
}

/// Cases: report-C3-40
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_40_every_kind_of_drift_is_found_named_and_repaired_and_foreign_tables_stay() {
    netns_test();
    nft_script("table ip other {\n chain c {\n type filter hook input priority 0;\n counter accept\n }\n}");
    let other = nft("list table ip other");
    let mut b = Bench::new(Layout::Maps);
    b.put(0, 2, |_| {});
    b.put(1, 3, rich);
    b.sync();
    let address = "10.64.0.1 . tcp . 80";
    for (damage, found) in [
        (
            "delete element ip kube-proxy cluster-services { 10.64.0.1 . tcp . 80 }",
            "missing: element cluster-services",
        ),
        (
            "delete element ip kube-proxy service-ips { 198.51.100.1 . tcp . 80 }",
            "missing: element service-ips",
        ),
        (
            "delete element ip kube-proxy cluster-endpoints { 10.64.0.1 . tcp . 80 . 131073 }",
            "missing: element cluster-endpoints",
        ),
        ("add element ip kube-proxy cluster-ips { 10.64.9.9 }", "unexpected: element cluster-ips"),
        ("add rule ip kube-proxy services drop", "unexpected: rule services"),
        ("insert rule ip kube-proxy filter-input counter accept", "unexpected: rule filter-input"),
        ("flush chain ip kube-proxy nat-postrouting", "missing: rule nat-postrouting"),
        ("add chain ip kube-proxy mine", "unexpected: chain mine"),
        ("add set ip kube-proxy mine { type ipv4_addr; }", "unexpected: set mine"),
        ("flush table ip kube-proxy", "missing: rule"),
        ("delete table ip kube-proxy", "missing: table ip kube-proxy"),
    ] {
        nft_script(damage);
        let drift = b.driver.verification().unwrap().run().unwrap();
        let items: Vec<String> = drift.items.iter().map(ToString::to_string).collect();
        assert!(items.iter().any(|i| i.contains(found)), "{damage}: {items:#?}");
        let snapshot = b.driver.adopted().unwrap().clone();
        b.driver.sync(&snapshot, SyncKind::Full).unwrap();
        b.in_order(damage);
    }
    assert!(nft("list set ip kube-proxy cluster-services").contains(address));
    assert_eq!(nft("list table ip other"), other);
}

/// Cases: report-C3-32
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_32_a_partial_sync_over_a_flushed_kernel_is_rebuilt_in_the_same_sync() {
    netns_test();
    let mut b = Bench::new(Layout::Maps);
    b.put(0, 2, |_| {});
    b.put(1, 2, |_| {});
    b.sync();
    nft("delete table ip kube-proxy");
    b.cluster.upsert_slice(scale::slice(0, 2, 1));
    let report = b.sync();
    assert_eq!((report.kind, report.attempts), (SyncKind::Full, 2));
    b.in_order("a rebuild");
    assert!(b.driver.set_aside().is_empty(), "no service is blamed for a missing table");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_map_that_runs_full_is_built_anew_with_twice_the_size() {
    netns_test();
    let mut b = Bench::new(Layout::Maps);
    b.put(0, 2, |_| {});
    b.put(1, 2, |_| {});
    b.sync();
    assert!(nft("list map ip kube-proxy cluster-endpoints").contains("size 4096"));
    b.put(0, 5_000, |_| {});
    let report = b.sync();
    assert_eq!((report.kind, report.attempts), (SyncKind::Full, 1), "the kernel is not asked in vain");
    assert!(nft("list map ip kube-proxy cluster-endpoints").contains("size 16384"));
    b.in_order("growing");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_restart_in_another_layout_takes_over_what_is_there() {
    netns_test();
    let mut first = Bench::new(Layout::Chains);
    first.put(0, 2, |_| {});
    first.put(7, 2, rich);
    first.sync();
    let mut second = Bench::new(Layout::Maps);
    second.put(0, 3, |_| {});
    assert_eq!(second.sync().kind, SyncKind::Full);
    second.in_order("a restart in another layout");
}

/// Cases: nftables-12.11
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_restart_writes_only_differences_and_keeps_the_affinity_of_clients() {
    for layout in [Layout::Maps, Layout::Chains] {
        netns_test();
        let fill = |b: &mut Bench<Nftables>| {
            b.put(0, 4, |_| {});
            b.put(1, 3, rich);
            b.put(2, 2, |s| s.affinity = Some(Duration::from_secs(600)));
        };
        let mut first = Bench::new(layout);
        fill(&mut first);
        // Places that a fresh render would not give.
        first.sync();
        first.cluster.upsert_slice(scale::slice(0, 4, 1));
        first.sync();
        first.cluster.upsert_slice(scale::slice(0, 4, 0));
        first.sync();
        // Emptied chains go with the next one.
        first.sync();
        let sets = nft("list sets");
        let affinity = sets.lines().find_map(|l| l.trim().strip_prefix("set affinity-")).unwrap();
        let affinity = format!("affinity-{}", affinity.trim_end_matches(" {"));
        nft(&format!("add element ip kube-proxy {affinity} {{ 10.128.7.7 }}"));

        let mut second = Bench::new(layout);
        fill(&mut second);
        let report = second.sync();
        assert_eq!((report.kind, report.operations), (SyncKind::Full, 0), "nothing differs");
        second.in_order("a restart");
        let listing = nft(&format!("list set ip kube-proxy {affinity}"));
        assert!(listing.contains("10.128.7.7"), "{listing}");

        let mut third = Bench::new(layout);
        fill(&mut third);
        third.cluster.upsert_slice(scale::slice(0, 3, 2));
        third.put(5, 1, |_| {});
        third.cluster.remove_service(&scale::service(1).name);
        let report = third.sync();
        assert!(report.operations < 40, "{}", report.operations);
        third.in_order("a restart with changes");
        assert!(nft(&format!("list set ip kube-proxy {affinity}")).contains("10.128.7.7"));
        third.cluster.upsert_slice(scale::slice(0, 5, 0));
        assert_eq!(third.sync().kind, SyncKind::Partial);
        third.in_order("the change after a restart");
        third.sync();
        assert_eq!(third.driver.belief().unwrap().doomed().count(), 0);
    }
}

/// Cases: nftables-12.10, report-C6-68
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_68_a_cold_start_writes_what_is_needed_first_and_the_rest_in_bounded_transactions() {
    for layout in [Layout::Maps, Layout::Chains] {
        netns_test();
        let mut b = Bench::new(layout);
        let first = [scale::service(1_234).name, scale::service(77).name];
        let traffic = TrafficOptions { first_services: first.clone().into(), ..TrafficOptions::default() };
        b.cluster.set_options(traffic);
        for number in 0..1_500 {
            b.put(number, 2, |s| {
                if number % 100 == 5 {
                    s.affinity = Some(Duration::from_secs(60));
                }
            });
        }
        let snapshot = b.snapshot();
        let mut backend = Nftables::new(IpFamily::Ipv4, Options { layout, ..Options::default() });
        let changes = proxier_core::changes::ChangeSet::between(None, &snapshot);
        let set_aside = Default::default();
        let full = backend.render(RenderInput {
            snapshot: &snapshot,
            changes: &changes,
            belief: None,
            set_aside: &set_aside,
        });
        let operations = full.ops.len();
        let TakeOver::Differences(cold) = backend.take_over(full).unwrap() else {
            panic!("nothing is there")
        };
        let sizes: Vec<usize> = cold.transactions().map(<[Op]>::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), operations);
        assert!(sizes.len() > 2 && sizes.iter().all(|s| *s < 2_100), "{sizes:?}");
        let progress = crate::cold::progress(&cold);
        assert_eq!((progress[0], progress.last().copied()), (2, Some(1_500)), "{progress:?}");
        let urgent: Vec<_> = cold.owners[..cold.cuts[0]].iter().flatten().map(|p| &p.name.service).collect();
        assert!(urgent.iter().all(|s| first.contains(s)) && *urgent[0] == first[0]);

        let report = b.driver.sync(&snapshot, SyncKind::Partial).unwrap();
        assert_eq!((report.attempts, report.kind), (1, SyncKind::Full));
        b.in_order("a cold start");
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_cold_start_that_is_refused_midway_ends_whole() {
    netns_test();
    let mut b = sabotaged(vec![scale_name(999)], Arc::default());
    for number in 0..1_000 {
        b.put(number, 2, |_| {});
    }
    let report = b.sync();
    assert_eq!(report.refused.len(), 1);
    assert_eq!(b.driver.set_aside().len(), 1);
    assert_eq!(b.driver.belief().unwrap().len(), 999);
    let drift = b.driver.verification().unwrap().run().unwrap();
    assert!(drift.is_empty(), "{:#?}", drift.items);
}

/// Cases: nftables-12.12
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_cannot_be_changed_in_place_is_replaced() {
    for damage in [
        "add element ip kube-proxy service-ips { 10.0.0.1 . icmp . 1 : drop }",
        "delete chain ip kube-proxy nat-output\nadd chain ip kube-proxy nat-output { type nat hook output priority -90 ; }",
        "add chain ip kube-proxy mine { type filter hook input priority 3 ; }\nadd rule ip kube-proxy mine counter drop",
    ] {
        netns_test();
        let mut b = Bench::new(Layout::Maps);
        b.put(0, 2, |_| {});
        b.sync();
        nft_script("flush chain ip kube-proxy nat-output");
        nft_script(damage);
        let snapshot = b.driver.adopted().unwrap().clone();
        b.driver.sync(&snapshot, SyncKind::Full).unwrap();
        b.in_order(damage);
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn probe_and_check_change_nothing_and_cleanup_leaves_nothing() {
    netns_test();
    let mut b = Bench::new(Layout::Maps);
    b.put(0, 2, |_| {});
    let capabilities = b.driver.probe().unwrap();
    let missing: Vec<_> = capabilities.missing().collect();
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(capabilities.session_affinity && capabilities.source_ranges && capabilities.reject);
    assert_eq!(nft("list ruleset"), "");

    let snapshot = b.snapshot();
    let mut backend = Nftables::new(IpFamily::Ipv4, Options::default());
    let render = |backend: &Nftables| {
        let changes = proxier_core::changes::ChangeSet::between(None, &snapshot);
        backend.render(RenderInput {
            snapshot: &snapshot,
            changes: &changes,
            belief: None,
            set_aside: &Default::default(),
        })
    };
    let good = render(&backend);
    backend.check(&good).unwrap();
    let mut bad = render(&backend);
    poison(&mut bad, &scale_name(0));
    let error = backend.check(&bad).unwrap_err();
    assert!(error.to_string().contains("ENOENT"), "{error}");
    assert_eq!(nft("list ruleset"), "");

    b.sync();
    assert_eq!(b.driver.cleanup().unwrap().removed, ["table ip kube-proxy"]);
    assert_eq!(nft("list ruleset"), "");
    assert_eq!(b.driver.cleanup().unwrap(), CleanupReport::default(), "twice in a row");
}

fn scale_name(number: u32) -> ServicePortName {
    let service = scale::service(number);
    ServicePortName {
        service: service.name,
        port: Arc::clone(&service.ports[0].name),
        protocol: service.ports[0].protocol,
    }
}

/// Adds an operation that the kernel refuses, in the name of a service port of the plan.
fn poison(plan: &mut Plan, victim: &ServicePortName) {
    let Some(owner) = plan.owners.iter().flatten().find(|p| p.name == *victim).cloned() else { return };
    let key = Key::Addr("10.0.0.1".parse().unwrap());
    let element = Element { key, value: Value::None, comment: None };
    plan.ops.push(Op::AddElements("no-such-set".into(), vec![element]));
    plan.owners.push(Some(owner));
}

/// The backend with service ports that the kernel does not like, and with applies that fail.
struct Saboteur {
    inner: Nftables,
    victims: Vec<ServicePortName>,
    fail: Arc<AtomicU32>,
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
    fn apply(&mut self, mut plan: Plan, told: ProgressSink<'_>) -> Result<(Belief, ApplyReport), Error> {
        if self.fail.load(Ordering::Relaxed) > 0 {
            self.fail.fetch_sub(1, Ordering::Relaxed);
            // Nobody's operation: the whole transaction fails.
            plan.ops.push(Op::FlushChain("no-such-chain".into()));
            plan.owners.push(None);
        }
        for victim in &self.victims {
            poison(&mut plan, victim);
        }
        self.inner.apply(plan, told)
    }
    fn verify(&mut self, belief: &Belief) -> Result<Drift, Error> {
        self.inner.verify(belief)
    }
    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Error> {
        self.inner.compare(snapshot)
    }
    fn observer(&self) -> Self {
        Self { inner: self.inner.observer(), victims: Vec::new(), fail: Arc::default() }
    }
    fn cleanup(&mut self) -> Result<CleanupReport, Error> {
        self.inner.cleanup()
    }
}

fn sabotaged(victims: Vec<ServicePortName>, fail: Arc<AtomicU32>) -> Bench<Saboteur> {
    let inner = Nftables::new(IpFamily::Ipv4, Options::default());
    Bench::with(Saboteur { inner, victims, fail })
}

/// Cases: report-C3-41
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_service_that_the_kernel_refuses_is_set_aside_and_the_rest_goes_in() {
    netns_test();
    let mut b = sabotaged(vec![scale_name(1)], Arc::default());
    for number in 0..3 {
        b.put(number, 2, |_| {});
    }
    let report = b.sync();
    assert_eq!((report.kind, report.attempts), (SyncKind::Full, 2));
    assert_eq!(report.refused.len(), 1);
    assert!(report.refused[0].reason.contains("ENOENT"), "{}", report.refused[0].reason);
    let set = nft("list set ip kube-proxy cluster-services");
    assert!(set.contains("10.64.0.1 ") && set.contains("10.64.0.3 ") && !set.contains("10.64.0.2 "), "{set}");
    assert!(b.driver.verification().unwrap().run().unwrap().is_empty());
}

/// Cases: nftables-12.9
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_nth_apply_fails_and_the_next_sync_repairs() {
    netns_test();
    let fail = Arc::new(AtomicU32::new(0));
    let mut b = sabotaged(Vec::new(), Arc::clone(&fail));
    b.sync();
    for (what, change) in history() {
        change(&mut b);
        let snapshot = b.snapshot();
        let before = nft("list table ip kube-proxy");
        // The difference, what is taken over, the replacement: all fail.
        fail.store(3, Ordering::Relaxed);
        let error = b.driver.sync(&snapshot, SyncKind::Partial).unwrap_err();
        assert!(error.to_string().contains("no-such-chain"), "{what}: {error}");
        assert_eq!(nft("list table ip kube-proxy"), before, "{what}: what was in force stays");
        fail.store(0, Ordering::Relaxed);
        b.driver.sync(&snapshot, SyncKind::Partial).unwrap();
        let drift = b.driver.verification().unwrap().run().unwrap();
        assert!(drift.is_empty(), "{what}: {:#?}", drift.items);
    }
}
