//! Passes over a table that can be told to fail, and the thread.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use proxier_core::backend::SetAside;
use proxier_core::changes::ChangeSet;
use proxier_core::cluster::{Cluster, TrafficOptions};
use proxier_core::driver::{SyncKind, SyncReport};
use proxier_core::ids::{NodeName, Port, Protocol, ServiceName};
use proxier_core::model::{
    Conditions, EndpointSlice, Hints, NodeFacts, PerFamily, Service, ServicePortSpec, ServiceType,
    SliceEndpoint, SliceName, SlicePort, TrafficPolicy,
};
use proxier_core::snapshot::Snapshot;
use proxier_core::stale::{Search, StaleFlows};
use proxier_sys::conntrack::{Deletion, Family, Filter, Flow, Listing, Tuple};
use proxier_sys::netlink::{Errno, MessageIndex, NetlinkError, RefusedMessage, Walked};

use super::sweep::{Tally, sweep};
use super::*;
use crate::sync::{Observer as _, Synced};

const LIMIT: Duration = Duration::from_secs(30);
const FRONTEND: &str = "10.96.0.10:53";

/// What the kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// To list, with this filter.
    List(Option<Filter>),
    /// To delete so many.
    Delete(usize),
}

#[derive(Default)]
struct Kernel {
    flows: Vec<Flow>,
    asked: Vec<Asked>,
    /// Listings that will be interrupted before they come to source port 100.
    interruptions: u32,
    /// Answers to listings with a filter.
    filter_errno: Option<Errno>,
    /// Takes filters and lists everything.
    ignores_filters: bool,
    /// Answer to every listing, to every deletion.
    list_errno: Option<Errno>,
    delete_errno: Option<Errno>,
    /// Flows with this source port are not deleted.
    stubborn: Option<u16>,
    /// Is told when a listing begins, and waited for before it goes on.
    gate: Option<(Sender<()>, Receiver<()>)>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Kernel>>);

impl Fake {
    fn with(flows: Vec<Flow>) -> Self {
        let fake = Self::default();
        fake.kernel().flows = flows;
        fake
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.0.lock().expect("no panic")
    }

    fn tables(&self) -> Tables {
        Tables { list: Box::new(self.clone()), delete: Box::new(self.clone()) }
    }

    fn sweep(&self, search: &Search, filters: &mut bool) -> (Tally, Result<(), SweepError>) {
        sweep(&mut self.tables(), IpFamily::Ipv4, search, filters)
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.kernel().asked)
    }

    fn left(&self) -> Vec<u16> {
        self.kernel().flows.iter().map(|flow| flow.original.source.port()).collect()
    }
}

fn refused(errno: Errno) -> NetlinkError {
    NetlinkError::Refused { errno: errno as i32, message: None }
}

impl List for Fake {
    fn list(
        &mut self,
        family: Family,
        filter: Option<&Filter>,
        each: &mut dyn FnMut(&Flow),
    ) -> Result<Listing, NetlinkError> {
        let gate = self.kernel().gate.take();
        if let Some((begun, go_on)) = gate {
            begun.send(()).expect("somebody listens");
            go_on.recv().expect("somebody speaks");
        }
        let (flows, interrupted, ignores) = {
            let mut kernel = self.kernel();
            kernel.asked.push(Asked::List(filter.copied()));
            if let Some(errno) = kernel.list_errno.or(filter.and(kernel.filter_errno)) {
                return Err(refused(errno));
            }
            let interrupted = kernel.interruptions > 0;
            kernel.interruptions = kernel.interruptions.saturating_sub(1);
            let mut flows: Vec<Flow> =
                kernel.flows.iter().filter(|f| f.family() == family).copied().collect();
            if interrupted {
                flows.retain(|flow| flow.original.source.port() < 100);
            }
            (flows, interrupted, kernel.ignores_filters)
        };
        let walked = if interrupted { Walked::Interrupted } else { Walked::Whole };
        let mut out = Listing { walked, flows: 0, unasked: 0, malformed: 0 };
        for flow in flows {
            let matches = filter.is_none_or(|f| f.matches(&flow));
            out.flows += u64::from(matches || ignores);
            out.unasked += u64::from(!matches && ignores);
            if matches {
                each(&flow);
            }
        }
        Ok(out)
    }

    fn take_sent(&mut self) -> Sent {
        Sent { messages: 1, bytes: 10 }
    }
}

impl Delete for Fake {
    fn delete(&mut self, flows: &[Flow]) -> Result<Deletion, NetlinkError> {
        let mut kernel = self.kernel();
        kernel.asked.push(Asked::Delete(flows.len()));
        if let Some(errno) = kernel.delete_errno {
            return Err(refused(errno));
        }
        let mut out = Deletion::default();
        for (index, flow) in flows.iter().enumerate() {
            let at = kernel.flows.iter().position(|f| f == flow);
            match at {
                _ if kernel.stubborn == Some(flow.original.source.port()) => {
                    let errno = Errno::EBUSY as i32;
                    out.refused.push(RefusedMessage {
                        index: MessageIndex(index),
                        errno,
                        message: None,
                        offset: None,
                    });
                }
                Some(at) => {
                    kernel.flows.swap_remove(at);
                    out.deleted += 1;
                }
                None => out.gone += 1,
            }
        }
        Ok(out)
    }

    fn take_sent(&mut self) -> Sent {
        Sent::default()
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn flow(client: u16, to: &str, from: &str) -> Flow {
    let client = SocketAddr::new([10, 0, 0, 1].into(), client);
    Flow {
        protocol: 17,
        original: Tuple::new(client, address(to)),
        reply: Tuple::new(address(from), client),
        zone: 0,
        id: Some(client.port().into()),
        status: 0,
    }
}

fn endpoint(number: u16) -> String {
    format!("10.244.{}.{}:53", number / 256, number % 256)
}

/// A node with one UDP service, and the snapshot that was in force last.
struct Node {
    cluster: Cluster,
    before: Option<Snapshot>,
}

impl Node {
    fn new() -> Self {
        let mut cluster = Cluster::new(NodeName::new("n"), TrafficOptions::default());
        cluster.set_node(NodeFacts { host_addresses: vec![[192, 0, 2, 1].into()], ..NodeFacts::default() });
        Self { cluster, before: None }
    }

    fn service() -> Service {
        let spec = ServicePortSpec {
            name: "dns".into(),
            protocol: Protocol::Udp,
            port: Port::new(53).expect("not 0"),
            node_port: Port::new(30053),
        };
        Service {
            name: ServiceName::new("kube-system", "dns"),
            created: None,
            kind: ServiceType::NodePort,
            cluster_ips: PerFamily { ipv4: Some([10, 96, 0, 10].into()), ipv6: None },
            ports: vec![spec],
            external_ips: PerFamily::default(),
            load_balancer_vips: PerFamily::default(),
            source_ranges: PerFamily::default(),
            external_policy: TrafficPolicy::Cluster,
            internal_policy: TrafficPolicy::Cluster,
            affinity: None,
            health_check_node_port: None,
        }
    }

    /// The service has these endpoints from now on.
    fn endpoints(&mut self, numbers: impl IntoIterator<Item = u16>) -> (StaleFlows, Snapshot) {
        let endpoint = |number| SliceEndpoint {
            ip: address(&endpoint(number)).ip(),
            conditions: Conditions::default(),
            node: None,
            hints: Hints::default(),
        };
        let service = Self::service();
        self.cluster.upsert_slice(EndpointSlice {
            name: SliceName { service: service.name.clone(), name: "s".into() },
            family: IpFamily::Ipv4,
            ports: vec![SlicePort {
                name: "dns".into(),
                protocol: Protocol::Udp,
                port: Port::new(53).expect("not 0"),
            }],
            endpoints: numbers.into_iter().map(endpoint).collect(),
            trigger: None,
        });
        self.cluster.upsert_service(service);
        let new = self.cluster.commit().snapshot(IpFamily::Ipv4).clone();
        let before = self.before.replace(new.clone());
        let stale = StaleFlows::plan(before.as_ref(), &new, &ChangeSet::between(before.as_ref(), &new));
        (stale, new)
    }

    fn search(&mut self, numbers: impl IntoIterator<Item = u16>) -> Search {
        let (stale, snapshot) = self.endpoints(numbers);
        Search::new(&stale, &snapshot)
    }
}

/// Flows of endpoints 1 to 3, two each, and some that are nobody's business.
fn table() -> Fake {
    let mut flows: Vec<Flow> = (1..=6).map(|n| flow(n, FRONTEND, &endpoint(n.div_ceil(2)))).collect();
    flows.push(flow(100, "10.96.0.11:53", &endpoint(2)));
    flows.push(flow(101, "198.51.100.1:30053", "198.51.100.1:30053"));
    flows.push(Flow { protocol: 6, ..flow(102, FRONTEND, &endpoint(2)) });
    flows.push(flow(103, "192.0.2.1:30053", &endpoint(2)));
    Fake::with(flows)
}

fn from(number: u16) -> Filter {
    let place = address(&endpoint(number));
    Filter { reply_source: Some(place.ip()), reply_source_port: Some(place.port()), ..Filter::protocol(17) }
}

/// Cases: core-11.55
#[test]
fn edge_55_one_question_for_one_endpoint_and_one_deletion_for_its_flows() {
    let (mut node, fake) = (Node::new(), table());
    node.endpoints([1, 2, 3]);
    let (tally, result) = fake.sweep(&node.search([1, 3]), &mut true);
    result.expect("complete");
    assert_eq!(fake.asked(), [Asked::List(Some(from(2))), Asked::Delete(3)]);
    assert_eq!(fake.left().len(), 7);
    assert!([3, 4, 103].iter().all(|n| !fake.left().contains(n)), "{:?}", fake.left());
    let expected = Tally { walks: 1, examined: 4, deleted: 3, refused: 0, partial: false, sent: tally.sent };
    assert_eq!(tally, expected);
}

#[test]
fn a_restart_looks_at_every_udp_flow_once() {
    let (mut node, fake) = (Node::new(), table());
    let (tally, result) = fake.sweep(&node.search([1, 3]), &mut true);
    result.expect("complete");
    assert_eq!(fake.asked(), [Asked::List(Some(Filter::protocol(17))), Asked::Delete(3)]);
    assert_eq!((tally.walks, tally.deleted), (1, 3));
}

#[test]
fn many_places_are_one_listing() {
    let (mut node, fake) = (Node::new(), table());
    node.endpoints(1..=5);
    assert_eq!(fake.sweep(&node.search([5]), &mut true).0.walks, 4);
    assert_eq!(fake.asked().len(), 4 + 3, "and a deletion where there was something");
    let fake = table();
    node.endpoints(1..=6);
    let (tally, _) = fake.sweep(&node.search([6]), &mut true);
    assert_eq!((tally.walks, tally.deleted), (1, 7));
    assert_eq!(fake.asked()[0], Asked::List(Some(Filter::protocol(17))));
}

#[test]
fn nothing_to_look_for_asks_nothing() {
    let (mut node, fake) = (Node::new(), table());
    node.endpoints([1, 2]);
    for filters in [true, false] {
        let (tally, result) = fake.sweep(&node.search([1, 2]), &mut { filters });
        result.expect("nothing to do");
        assert_eq!((tally.walks, fake.asked()), (0, Vec::new()));
    }
}

#[test]
fn a_kernel_without_filters_is_found_out_and_asked_for_everything() {
    for (ignores, errno) in [(true, None), (false, Some(Errno::EINVAL)), (false, Some(Errno::EOPNOTSUPP))] {
        let (mut node, fake) = (Node::new(), table());
        fake.kernel().ignores_filters = ignores;
        fake.kernel().filter_errno = errno;
        node.endpoints([1, 2, 3]);
        let mut filters = true;
        let (tally, result) = fake.sweep(&node.search([3]), &mut filters);
        result.expect("complete");
        assert!(!filters);
        let mut left = fake.left();
        left.sort_unstable();
        assert_eq!(left, [5, 6, 100, 101, 102]);
        assert_eq!(tally.deleted, 5);
        assert_eq!(tally.walks, 2);
        fake.asked();
        fake.sweep(&node.search([1]), &mut filters).1.expect("complete");
        assert_eq!(fake.asked(), [Asked::List(None), Asked::Delete(2)], "known from then on");
    }
}

/// Cases: core-11.59
#[test]
fn edge_59_a_listing_is_tried_five_times_and_what_was_seen_counts() {
    for (interruptions, walks, partial, deleted) in
        [(0, 1, false, 3), (1, 2, false, 3), (4, 5, false, 3), (5, 5, true, 2)]
    {
        let (mut node, fake) = (Node::new(), table());
        fake.kernel().interruptions = interruptions;
        let (tally, result) = fake.sweep(&node.search([1, 3]), &mut true);
        result.expect("an interruption is no failure");
        assert_eq!((tally.walks, tally.partial, tally.deleted), (walks, partial, deleted), "{interruptions}");
    }
}

/// Cases: core-11.59
#[test]
fn edge_59_what_is_not_allowed_is_told_apart() {
    let (mut node, fake) = (Node::new(), table());
    fake.kernel().list_errno = Some(Errno::EPERM);
    let search = node.search([1]);
    let error = fake.sweep(&search, &mut true).1.expect_err("not allowed");
    assert!(matches!(error, SweepError::Permission(_)), "{error}");
    assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    fake.kernel().list_errno = Some(Errno::EINVAL);
    let error = fake.sweep(&search, &mut true).1.expect_err("no such subsystem");
    assert!(error.to_string().contains("nf_conntrack_netlink"), "{error}");
    fake.kernel().list_errno = Some(Errno::ENOMEM);
    let error = fake.sweep(&search, &mut true).1.expect_err("no memory");
    assert!(matches!(error, SweepError::List(_)), "{error}");
    fake.kernel().list_errno = None;
    fake.kernel().delete_errno = Some(Errno::EPERM);
    let error = fake.sweep(&search, &mut true).1.expect_err("read only");
    assert!(matches!(error, SweepError::Permission(_)), "{error}");
}

#[test]
fn many_stale_flows_are_deleted_while_they_are_listed() {
    let fake = Fake::with((1..=5000).map(|n| flow(n, FRONTEND, &endpoint(2))).collect());
    fake.kernel().stubborn = Some(77);
    let (tally, result) = fake.sweep(&Node::new().search([1]), &mut true);
    result.expect("complete");
    assert_eq!((tally.deleted, tally.refused), (4999, 1));
    let deletions: Vec<_> = fake.asked().into_iter().skip(1).collect();
    assert_eq!(deletions, [1024, 1024, 1024, 1024, 904].map(Asked::Delete));
    assert_eq!(fake.left(), [77]);
}

#[test]
fn after_a_deletion_that_failed_none_is_tried_and_the_listing_ends() {
    let fake = Fake::with((1..=5000).map(|n| flow(n, FRONTEND, &endpoint(2))).collect());
    fake.kernel().delete_errno = Some(Errno::ENOBUFS);
    let (tally, result) = fake.sweep(&Node::new().search([1]), &mut true);
    assert!(matches!(result, Err(SweepError::Delete(_))), "{result:?}");
    assert_eq!((tally.examined, tally.deleted), (5000, 0));
    assert_eq!(fake.asked().len(), 2);
}

/// The thread, fed as the loop feeds it.
struct Stage {
    fake: Fake,
    node: Node,
    cleaner: Cleaner,
    passes: Receiver<Pass>,
}

impl Stage {
    fn new(fake: Fake) -> Self {
        let (on_pass, passes) = channel();
        let tables = fake.clone();
        let cleaner = Cleaner::start_on(
            move || Ok(tables.tables()),
            move |pass| {
                let _ = on_pass.send(*pass);
            },
        );
        Self { fake, node: Node::new(), cleaner: cleaner.expect("a thread"), passes }
    }

    /// A sync that gave the service these endpoints went in.
    fn synced(&mut self, numbers: impl IntoIterator<Item = u16>) {
        let before = self.node.before.clone();
        let (stale_flows, snapshot) = self.node.endpoints(numbers);
        let report = SyncReport {
            kind: SyncKind::Partial,
            generation: snapshot.generation(),
            changed_ports: 1,
            operations: 1,
            bytes: 1,
            messages: 1,
            attempts: 1,
            setbacks: Vec::new(),
            refused: Vec::new(),
            unsupported: Vec::new(),
            stale_flows,
            follow_up: None,
            cleanup_failures: 0,
            rules: Vec::new(),
        };
        self.cleaner.synced(&Synced {
            backend: "fake",
            family: IpFamily::Ipv4,
            kind: SyncKind::Partial,
            report: &report,
            before: before.as_ref(),
            snapshot: &snapshot,
            set_aside: 0,
            left_out: &SetAside::new(),
            took: Duration::ZERO,
        });
    }

    fn pass(&self) -> Pass {
        self.passes.recv_timeout(LIMIT).expect("a pass")
    }
}

#[test]
fn the_first_sync_is_followed_by_a_pass_over_everything_and_later_ones_by_what_they_left() {
    let mut stage = Stage::new(table());
    stage.synced([1, 2]);
    let first = stage.pass();
    assert_eq!((first.scope, first.walks, first.deleted), (Scope::Everything, 1, 2));
    assert_eq!((first.family, first.partial), (IpFamily::Ipv4, false));
    stage.synced([1, 2, 4]);
    stage.synced([1, 4]);
    let second = stage.pass();
    assert_eq!((second.scope, second.walks, second.deleted), (Scope::Changes, 1, 3));
    assert_eq!(stage.fake.asked()[2..], [Asked::List(Some(from(2))), Asked::Delete(3)]);
}

/// While a pass takes its time, syncs go on, and all that they leave behind is one pass more.
#[test]
fn a_long_pass_holds_nobody_up_and_what_comes_meanwhile_adds_up() {
    let fake = table();
    let (begun, beginning) = channel();
    let (go_on, going) = channel();
    fake.kernel().gate = Some((begun, going));
    let mut stage = Stage::new(fake);
    stage.synced([1, 2, 3]);
    beginning.recv_timeout(LIMIT).expect("the pass begins");
    for last in [3, 2] {
        stage.synced(1..last);
    }
    assert!(stage.passes.try_recv().is_err(), "the pass is under way");
    go_on.send(()).expect("it waits");
    assert_eq!(stage.pass().scope, Scope::Everything);
    let second = stage.pass();
    assert_eq!((second.scope, second.walks), (Scope::Changes, 2));
    assert_eq!(stage.fake.left().len(), 10 - 5);
}

/// Cases: core-11.59, report-C3-31
#[test]
fn edge_59_what_failed_is_made_up_for_by_the_next_pass() {
    let fake = table();
    fake.kernel().list_errno = Some(Errno::EPERM);
    let mut stage = Stage::new(fake);
    stage.synced([1, 2, 3]);
    assert_eq!(stage.pass().deleted, 0);
    stage.synced([1, 2]);
    assert_eq!(stage.pass().deleted, 0);
    stage.fake.kernel().list_errno = None;
    stage.synced([1]);
    let pass = stage.pass();
    assert_eq!((pass.scope, pass.deleted), (Scope::Everything, 5), "nothing was forgotten");
}

/// A pass that was interrupted is repeated without a further sync.
#[test]
fn a_partial_pass_is_repeated_by_itself() {
    let fake = table();
    fake.kernel().interruptions = 5;
    let mut stage = Stage::new(fake);
    stage.synced([1, 3]);
    let first = stage.pass();
    assert!(first.partial);
    let second = stage.pass();
    assert_eq!((second.partial, second.scope, first.deleted + second.deleted), (false, Scope::Everything, 3));
}

#[test]
fn the_thread_ends_with_the_loop() {
    let mut stage = Stage::new(table());
    stage.synced([1]);
    stage.pass();
    stage.cleaner.stopping();
    assert_eq!(stage.passes.recv_timeout(LIMIT), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}
