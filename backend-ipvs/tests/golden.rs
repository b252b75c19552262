//! Golden texts: what is rendered for known clusters, and what a change writes. `cargo xtask golden` regenerates them; the diff is what a
//! reviewer reads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

mod kit;

use std::collections::BTreeSet;

use kit::{Story, endpoint, service};
use proxier_core::backend::Plan as _;
use proxier_core::ids::IpFamily;
use proxier_core::model::TrafficPolicy;
use proxier_testkit::corpus;
use proxier_testkit::ipvs::Host;

fn case(name: &str) -> corpus::Case {
    corpus::load(&kit::cases().join(name)).unwrap()
}

#[test]
fn golden_known_clusters() {
    let example = case("worked-example.yaml");
    insta::assert_snapshot!("worked-example", kit::full(example.commit.snapshot(IpFamily::Ipv4)).text());
    let peer = case("peer-state.yaml");
    for family in IpFamily::ALL {
        let text = kit::full(peer.commit.snapshot(family)).text();
        insta::assert_snapshot!(format!("peer-state-{family}"), text);
    }
}

/// What we have besides: see the README's section "Differences from kube-proxy".
fn is_ours(line: &str) -> bool {
    let twin = line.contains("filter KUBE-IPVS-FILTER") && line.contains("KUBE-LOAD-BALANCER-FW");
    let own = line.contains(" nat ") && line.contains("-m addrtype --src-type LOCAL");
    let sets = ["KUBE-IPVS-REJECT", "KUBE-IPVS-DROP", "KUBE-IPVS-SERVERS"];
    twin || own || line.contains(" mangle ") || sets.iter().any(|s| line.contains(s))
}

/// The texts of ipvs spec 10, loaded into a model, are what our plan makes of it, but for what we have besides.
#[test]
fn the_worked_example() {
    let file =
        |name: &str| std::fs::read_to_string(kit::cases().join(format!("worked-example.{name}"))).unwrap();
    let mut theirs = Host::default();
    theirs.load_ipset(&file("ipset")).unwrap();
    theirs.load_ipvsadm(&file("ipvsadm")).unwrap();
    theirs.load_addresses(&file("addresses")).unwrap();
    theirs.load_rules(IpFamily::Ipv4, &file("rules")).unwrap();
    let mut ours = Host::default();
    kit::apply(&mut ours, &kit::full(case("worked-example.yaml").commit.snapshot(IpFamily::Ipv4)));
    // The example is one input: jumps, which are looked for by single commands, are not in it.
    let jump = |line: &String| {
        ["INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"]
            .iter()
            .any(|c| line.contains(&format!(" {c} ")))
    };
    let here: BTreeSet<String> =
        kit::listing(&ours).into_keys().filter(|l| !is_ours(l) && !jump(l)).collect();
    let there: BTreeSet<String> = kit::listing(&theirs).into_keys().collect();
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    assert_eq!(only(&here, &there), [""; 0]);
    // Internal policy Local: kube-proxy sends to the cluster IP's remote endpoint, since the Service has external frontends, too.
    assert_eq!(only(&there, &here), ["real (132, 10.96.10.3:2905) 10.244.1.31:2905 1"]);
    assert_eq!(there.len(), 164);
}

/// One Service through its life, and what each step writes.
#[test]
fn golden_changes() {
    let mut story = Story::new(kit::traffic());
    let mut front = service("front", "10.96.0.1");
    let mut told = String::new();
    let mut tell = |what: &str, plan: &backend_ipvs::plan::Plan| {
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
    front.source_ranges.ipv4[0] = kit::net("198.51.100.7/32");
    tell("other source ranges", &story.set(&front, pods(&[0, 2])));
    front.external_policy = TrafficPolicy::Local;
    front.health_check_node_port = Some(kit::port(32000));
    tell("external policy Local", &story.set(&front, pods(&[0, 2])));
    tell("no endpoint on this node", &story.set(&front, pods(&[2])));
    front.affinity = Some(std::time::Duration::from_secs(600));
    tell("affinity, and one here again", &story.set(&front, pods(&[0, 2])));
    tell("no endpoints", &story.set(&front, Vec::new()));
    tell("the Service is deleted", &story.remove(&front));
    let range = story.step(|c| {
        let options = proxier_core::cluster::TrafficOptions { masquerade_all: true, ..kit::traffic() };
        c.set_options(options);
    });
    tell("all traffic to cluster IPs is masqueraded", &range);
    insta::assert_snapshot!("changes", told);
}
