//! Golden texts: what is rendered for cases of the corpus, and what a change writes. `cargo xtask golden` regenerates them; the diff is
//! what a reviewer reads.

#![allow(clippy::unwrap_used, reason = "constants of a test")]

use backend_nftables::options::Layout;
use backend_nftables::{Nftables, Options, text};
use proxier_core::backend::{Backend as _, Plan as _, RenderInput, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::cluster::{Cluster, DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::ids::{IpFamily, NodeName, Port};
use proxier_core::model::{NodeFacts, TrafficPolicy};
use proxier_core::snapshot::Snapshot;
use proxier_testkit::{corpus, scale};

fn rendered(snapshot: &Snapshot, layout: Layout) -> String {
    let backend = Nftables::new(snapshot.family(), Options { layout, ..Options::default() });
    let changes = ChangeSet::between(None, snapshot);
    let set_aside = SetAside::new();
    let input = RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside };
    backend.render(input).text()
}

/// Cases: nftables-12.1, nftables-12.5
#[test]
fn golden_cases_of_the_corpus() {
    let cases = corpus::cases().unwrap();
    for name in ["peer-state", "worked-example"] {
        let case = cases.iter().find(|c| c.file == format!("{name}.yaml")).expect("in the corpus");
        for family in IpFamily::ALL {
            for layout in [Layout::Maps, Layout::Chains] {
                let text = rendered(case.commit.snapshot(family), layout);
                insta::assert_snapshot!(format!("{name}-{family}-{layout:?}"), text);
            }
        }
    }
}

/// A cluster that is changed step by step, and the plan of each step.
struct Story {
    cluster: Cluster,
    backend: Nftables,
    held: Option<(backend_nftables::belief::Belief, Snapshot)>,
    told: String,
}

impl Story {
    fn new() -> Self {
        let traffic = TrafficOptions {
            detect_local: DetectLocal::ClusterCidr(vec![scale::CLUSTER_CIDR.parse().unwrap()]),
            node_port_addresses: NodePortSelector::Primary,
            ..TrafficOptions::default()
        };
        let mut cluster = Cluster::new(NodeName::new(scale::NODE), traffic);
        let mut node = NodeFacts::default();
        node.ips.ipv4 = "192.0.2.3".parse().ok();
        cluster.set_node(node);
        let backend = Nftables::new(IpFamily::Ipv4, Options::default());
        Self { cluster, backend, held: None, told: String::new() }
    }

    /// Makes a change and writes down what it costs; the first one builds the table and is not told.
    fn step(&mut self, what: &str, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        let snapshot = self.cluster.commit().snapshot(IpFamily::Ipv4).clone();
        let changes = ChangeSet::between(self.held.as_ref().map(|h| &h.1), &snapshot);
        let set_aside = SetAside::new();
        let plan = self.backend.render(RenderInput {
            snapshot: &snapshot,
            changes: &changes,
            belief: self.held.as_ref().map(|h| &h.0),
            set_aside: &set_aside,
        });
        if self.held.is_some() {
            assert!(!plan.is_full(), "{what}");
            // Chains are deleted after the transaction; the golden text is the transaction.
            self.told += &format!("# {what}\n{}\n", text::ops_text(plan.table(), plan.ops()));
        }
        self.held = Some((plan.next().clone(), snapshot));
    }
}

#[test]
fn golden_changes() {
    let mut story = Story::new();
    story.step("start", |c| {
        c.upsert_service(scale::service(0));
        c.upsert_slice(scale::slice(0, 3, 0));
    });
    story.step("one endpoint replaced", |c| {
        c.upsert_slice(scale::slice(0, 3, 1));
    });
    story.step("one endpoint more", |c| {
        c.upsert_slice(scale::slice(0, 4, 1));
    });
    story.step("the first endpoint gone: the last takes its index", |c| {
        let mut slice = scale::slice(0, 4, 1);
        slice.endpoints.remove(0);
        c.upsert_slice(slice);
    });
    story.step("nine endpoints, more than few", |c| {
        c.upsert_slice(scale::slice(0, 9, 0));
    });
    story.step("ten endpoints", |c| {
        c.upsert_slice(scale::slice(0, 10, 0));
    });
    story.step("three again", |c| {
        c.upsert_slice(scale::slice(0, 3, 0));
    });
    story.step("a node port, policy Local", |c| {
        let mut service = scale::service(0);
        service.kind = proxier_core::model::ServiceType::NodePort;
        service.ports[0].node_port = Port::new(30080);
        service.external_policy = TrafficPolicy::Local;
        c.upsert_service(service);
    });
    story.step("no endpoints", |c| {
        c.upsert_slice(scale::slice(0, 0, 0));
    });
    story.step("a second service of the same address, younger", |c| {
        let mut service = scale::service(1);
        service.cluster_ips = scale::service(0).cluster_ips;
        c.upsert_service(service);
        c.upsert_slice(scale::slice(1, 1, 0));
    });
    story.step("the first one deleted: the second takes the address over", |c| {
        c.remove_service(&scale::service(0).name);
        c.remove_slice(&scale::slice(0, 0, 0).name);
    });
    story.step("affinity", |c| {
        let mut service = scale::service(1);
        service.cluster_ips = scale::service(0).cluster_ips;
        service.affinity = Some(std::time::Duration::from_secs(600));
        c.upsert_service(service);
    });
    story.step("everything gone", |c| {
        c.remove_service(&scale::service(1).name);
    });
    insta::assert_snapshot!("changes", story.told);
}

#[test]
fn golden_names_are_the_references() {
    let case =
        corpus::cases().unwrap().into_iter().find(|c| c.file == "peer-state.yaml").expect("in the corpus");
    let text = rendered(case.commit.snapshot(IpFamily::Ipv4), Layout::Chains);
    for name in [
        "service-AKD4XF6G-service-dataplane/echo-server/tcp/http",
        "external-AKD4XF6G-service-dataplane/echo-server/tcp/http",
        "endpoint-Q7LEI3H3-service-dataplane/echo-server/tcp/http__10.244.1.2/8080",
        "endpoint-JHFC3PET-service-dataplane/echo-server/tcp/http__10.244.2.2/8080",
    ] {
        assert!(text.contains(&format!("add chain ip kube-proxy {name}\n")), "{name}");
    }
}
