//! Golden texts: what is rendered for known clusters, and what a change writes. `cargo xtask golden` regenerates them; the diff is what a
//! reviewer reads.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod kit;

use backend_iptables::options::Facts;
use backend_iptables::skeleton;
use kit::{Story, Tables, endpoint, service, spelling};
use proxier_core::backend::Plan as _;
use proxier_core::ids::IpFamily;
use proxier_core::model::TrafficPolicy;
use proxier_testkit::corpus;
use proxier_xtables::objects::{ChainId, Rule, Table};

fn case(name: &str) -> corpus::Case {
    corpus::load(&kit::cases().join(name)).unwrap()
}

#[test]
fn golden_known_clusters() {
    let example = case("worked-example.yaml");
    insta::assert_snapshot!(
        "worked-example",
        kit::full(example.commit.snapshot(IpFamily::Ipv4), &Facts::default()).text()
    );
    let peer = case("peer-state.yaml");
    for family in IpFamily::ALL {
        let text = kit::full(peer.commit.snapshot(family), &kit::counted()).text();
        insta::assert_snapshot!(format!("peer-state-{family}"), text);
    }
}

/// The restore input of iptables spec 11, rule for rule and in its order within each chain, but for the order of service ports.
///
/// Cases: iptables-12.1, iptables-12.4, iptables-12.10, iptables-12.11, iptables-12.15, iptables-12.16, iptables-12.17, iptables-12.31
#[test]
fn the_worked_example() {
    let text = std::fs::read_to_string(kit::cases().join("worked-example.rules")).unwrap();
    let mut wanted = Tables::default();
    let mut table = Table::Filter;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = if name == "nat" { Table::Nat } else { Table::Filter };
        } else if let Some((name, _)) = line.strip_prefix(':').and_then(|l| l.split_once(' ')) {
            wanted.chains.insert(skeleton::chain(table, name), Vec::new());
        } else if let Some((name, rule)) = line.strip_prefix("-A ").and_then(|l| l.split_once(' ')) {
            let rules = wanted.chains.get_mut(&skeleton::chain(table, name)).unwrap();
            rules.push(Rule(spelling::saved(rule).into()));
        }
    }
    let mut ours = Tables::of(&kit::full(
        case("worked-example.yaml").commit.snapshot(IpFamily::Ipv4),
        &Facts::default(),
    ));
    // The example is one input: what is done once, by single commands, is not in it.
    ours.chains.retain(|id: &ChainId, _| !skeleton::is_built_in(&id.name) && &*id.name != skeleton::CANARY);
    assert_eq!(wanted.chains.values().map(Vec::len).sum::<usize>(), 85);
    let (ours, wanted) = (ours.in_meaning(), wanted.in_meaning());
    for (id, rules) in &wanted {
        assert_eq!(ours.get(id), Some(rules), "{}", id.name);
    }
    assert_eq!(ours.len(), wanted.len());
}

/// One Service through its life, and what each step writes.
#[test]
fn golden_changes() {
    let mut story = Story::new(kit::traffic(), kit::counted());
    let mut front = service("front", "10.96.0.1");
    let mut told = String::new();
    let mut tell = |what: &str, plan: &backend_iptables::plan::Plan| {
        told += &format!("# {what}\n{}\n", plan.text());
    };
    let pods = |numbers: &[u8]| numbers.iter().map(|n| endpoint(&format!("10.244.{n}.1"), *n == 0)).collect();
    story.set(&service("other", "10.96.0.9"), pods(&[0]));
    tell("a Service without endpoints", &story.set(&front, Vec::new()));
    tell("its first endpoint", &story.set(&front, pods(&[0])));
    tell("one more", &story.set(&front, pods(&[0, 1])));
    tell("one replaced", &story.set(&front, pods(&[0, 2])));
    front.ports[0].node_port = Some(kit::port(30080));
    front.load_balancer_vips.ipv4.push(kit::ip("192.0.2.10"));
    tell("a node port and a VIP", &story.set(&front, pods(&[0, 2])));
    front.source_ranges.ipv4.push(kit::net("203.0.113.0/24"));
    tell("source ranges", &story.set(&front, pods(&[0, 2])));
    front.external_policy = TrafficPolicy::Local;
    front.health_check_node_port = Some(kit::port(32000));
    tell("external policy Local", &story.set(&front, pods(&[0, 2])));
    tell("no endpoint on this node", &story.set(&front, pods(&[2])));
    front.affinity = Some(std::time::Duration::from_secs(600));
    tell("affinity", &story.set(&front, pods(&[0, 2])));
    tell("no endpoints", &story.set(&front, Vec::new()));
    let name = front.name.clone();
    let gone = story.step(|c| {
        c.remove_service(&name);
    });
    tell("the Service is deleted", &gone);
    let range = story.step(|c| {
        let options = proxier_core::cluster::TrafficOptions {
            node_port_addresses: proxier_core::cluster::NodePortSelector::Primary,
            ..kit::traffic()
        };
        c.set_options(options);
    });
    tell("node ports on the node's own address only", &range);
    insta::assert_snapshot!("changes", told);
}
