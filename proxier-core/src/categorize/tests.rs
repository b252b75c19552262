//! Endpoint categorization, row by row of core spec 3.4; `edge_N_` is number N of core spec 11.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ids::{EndpointAddr, Port};
use crate::model::{Conditions, Hints};

/// Columns: number; internal/external policy/externally accessible; node, zone; endpoints; cluster; local; reachable; any.
///
/// An endpoint is a letter, a state of core spec 3.2 (`r p t s u x`), `L` when on this node, zone hints `z=`, node
/// hints `n=`. `–` as a policy stands for both; as a node or zone for none; as a result, like `∅`, for nothing.
const TABLE: &str = r#"
 1 | –/–/yes | –            | none                                              | ∅       | ∅   | ∅       | no
 1 | –/–/no  | –            | none                                              | ∅       | ∅   | ∅       | no
 2 | C/–/no  | –            | A r L; B r R                                      | A B     | –   | A B     | yes
 3 | C/–/no  | –            | A u; B u                                          | ∅       | –   | ∅       | no
 4 | C/–/no  | –            | A u; B r                                          | B       | –   | B       | yes
 5 | C/–/no  | –            | A t L; B t R                                      | A B     | –   | A B     | yes
 6 | C/–/no  | –            | A r; B t                                          | A       | –   | A       | yes
 7 | C/–/no  | –            | A s                                               | ∅       | –   | ∅       | no
 8 | C/–/no  | –            | A x                                               | ∅       | –   | ∅       | no
 9 | C/–/no  | –            | A p; B t                                          | A       | –   | A       | yes
10 | L/–/no  | –            | A r R; B r R                                      | –       | ∅   | ∅       | yes
11 | L/–/no  | –            | A r L; B r R                                      | –       | A   | A       | yes
12 | L/–/no  | –            | A r L; B r L                                      | –       | A B | A B     | yes
13 | L/–/no  | –            | A t L; B r R                                      | –       | A   | A       | yes
14 | L/–/no  | –            | A t R                                             | –       | ∅   | ∅       | yes
15 | L/–/no  | –            | A u L; B x R                                      | –       | ∅   | ∅       | no
16 | L/C/yes | –            | A r L; B r R                                      | A B     | A   | A B     | yes
17 | C/L/yes | –            | A r L; B r R                                      | A B     | A   | A B     | yes
18 | L/L/yes | –            | A r L; B r R                                      | A B     | A   | A B     | yes
19 | L/L/yes | –            | A r R; B r R                                      | A B     | ∅   | A B     | yes
20 | L/L/yes | –            | A t R; B t R                                      | A B     | ∅   | A B     | yes
21 | C/L/yes | –            | A r R; B u L; C t L; D t R                        | A       | C   | A C     | yes
22 | C/L/no  | –            | A r R; B r L                                      | A B     | –   | A B     | yes
23 | C/C/yes | –            | A r L; B r R                                      | A B     | –   | A B     | yes
24 | C/–/no  | –, a         | A r z=a; B r z=b; C r z=c; D r z=a                | A D     | –   | A D     | yes
25 | C/–/no  | –            | A r z=a                                           | A       | –   | A       | yes
26 | C/–/no  | –, ""        | A r z=a                                           | A       | –   | A       | yes
27 | C/–/no  | –, b         | A r z=a                                           | A       | –   | A       | yes
28 | C/–/no  | –, a         | A r z=a; B r z=b; C r z=c; D u z=a                | A       | –   | A       | yes
29 | C/–/no  | –, a         | A u z=a; B r z=b; C r z=c; D u z=a                | B C     | –   | B C     | yes
30 | C/–/no  | –, a         | A r z=a; B r z=b; C r; D r z=a                    | A B C D | –   | A B C D | yes
31 | C/–/no  | –, c         | A r z=a,b,c; B r z=b,c; C r z=b,d; D r z=c        | A B D   | –   | A B D   | yes
32 | C/L/yes | –, a         | A r L z=a; B r L z=b; C r R z=c; D r R z=a        | A D     | A B | A B D   | yes
33 | L/C/yes | –, a         | A r L z=a; B r L z=b; C r R z=c; D r R z=a        | A D     | A B | A B D   | yes
34 | C/–/no  | node-1, a    | A r z=a n=1; B r z=b n=2; C r z=c n=3; D r z=a n=4 | A       | –   | A       | yes
35 | C/–/no  | node-1, a    | A r z=a n=1; B r; C r z=c n=3; D r z=a n=4        | A B C D | –   | A B C D | yes
36 | C/–/no  | node-0, a    | A r z=a n=1; B r z=b n=2; C r z=c n=3; D r z=a n=4 | A D     | –   | A D     | yes
37 | C/–/no  | node-1, a, gate off | A r z=a n=1; B r z=b n=2; C r z=c n=3; D r z=a n=4 | A D | – | A D     | yes
38 | C/–/no  | node-0, a    | A r n=1; B r n=2                                  | A B     | –   | A B     | yes
39 | C/–/no  | node-1, a    | A r n=1; B r n=2; C t                             | A       | –   | A       | yes
40 | C/–/no  | node-1, a    | A u z=a n=1; B r z=b n=2                          | B       | –   | B       | yes
41 | C/–/no  | –, a         | A t z=a; B t z=b                                  | A B     | –   | A B     | yes
42 | L/C/yes | –, a         | A r R z=a; B t L z=b                              | A       | B   | A B     | yes
43 | C/–/no  | node-1, b    | A r z=a n=1; B r z=b n=2                          | A       | –   | A       | yes
"#;

/// Everything [`categorize`] needs but the endpoints.
#[derive(Clone, Debug)]
struct Situation {
    internal: TrafficPolicy,
    external: TrafficPolicy,
    accessible: bool,
    node: NodeName,
    zone: Option<String>,
    node_hints: bool,
}

impl Situation {
    fn categorize(&self, endpoints: &[Endpoint]) -> Categories {
        categorize(
            endpoints,
            &CategorizeInput {
                internal_policy: self.internal,
                external_policy: self.external,
                externally_accessible: self.accessible,
                node: &self.node,
                zone: self.zone.as_deref(),
                node_hints: self.node_hints,
            },
        )
    }
}

/// All situations that `policies` and `place` stand for.
fn situations(policies: &str, place: &str) -> Vec<Situation> {
    let [internal, external, accessible] = policies.split('/').collect::<Vec<_>>()[..] else {
        panic!("{policies:?}")
    };
    let both = |text: &str| match text {
        "C" => vec![TrafficPolicy::Cluster],
        "L" => vec![TrafficPolicy::Local],
        "–" => vec![TrafficPolicy::Cluster, TrafficPolicy::Local],
        other => panic!("{other:?}"),
    };
    let mut place = place.split(", ");
    let node = NodeName::new(place.next().unwrap());
    let zone = place.next().map(|z| z.trim_matches('"').to_owned());
    let node_hints = match place.next() {
        None => true,
        Some("gate off") => false,
        Some(other) => panic!("{other:?}"),
    };
    let accessible = match accessible {
        "yes" => true,
        "no" => false,
        other => panic!("{other:?}"),
    };
    let mut out = Vec::new();
    for internal in both(internal) {
        for external in both(external) {
            let (node, zone) = (node.clone(), zone.clone());
            out.push(Situation { internal, external, accessible, node, zone, node_hints });
        }
    }
    out
}

fn conditions(state: &str) -> Conditions {
    let (ready, serving, terminating) = match state {
        "r" => (true, true, false),
        "p" => (true, true, true),
        "t" => (false, true, true),
        "s" => (false, true, false),
        "u" => (false, false, false),
        "x" => (false, false, true),
        other => panic!("unknown state {other:?}"),
    };
    Conditions { ready, serving, terminating }
}

fn names(prefix: &str, list: &str) -> Option<Arc<[Arc<str>]>> {
    Some(list.split(',').map(|n| format!("{prefix}{n}").into()).collect())
}

/// `A r L z=a n=1; B t R`, or `none`.
fn endpoints(text: &str) -> Vec<Endpoint> {
    let entries = text.split("; ").filter(|e| *e != "none");
    entries.zip(1u8..).map(|(entry, i)| endpoint(entry, i)).collect()
}

fn endpoint(entry: &str, i: u8) -> Endpoint {
    let mut words = entry.split_whitespace();
    let letter = words.next().unwrap();
    assert_eq!(letter, char::from(b'A' + i - 1).to_string(), "letters go up: {entry:?}");
    let mut out = Endpoint {
        addr: EndpointAddr { ip: IpAddr::from([10, 0, 0, i]), port: Port::new(80).unwrap() },
        conditions: conditions(words.next().unwrap()),
        local: false,
        node: None,
        hints: Hints::default(),
    };
    for word in words {
        match word.split_once('=') {
            None => out.local = matches!(word, "L") || (assert_eq!(word, "R"), false).1,
            Some(("z", zones)) => out.hints.zones = names("", zones),
            Some(("n", nodes)) => out.hints.nodes = names("node-", nodes),
            Some(other) => panic!("{other:?}"),
        }
    }
    out
}

/// `A C` for indices 0 and 2.
fn letters(indices: &[u32]) -> String {
    let letters: Vec<String> = indices.iter().map(|i| char::from(b'A' + *i as u8).to_string()).collect();
    letters.join(" ")
}

/// The decision for one situation, as `cluster | local | reachable | any`.
fn decide(policies: &str, place: &str, text: &str) -> String {
    let [situation] = &situations(policies, place)[..] else { panic!("ambiguous: {policies}") };
    show(&situation.categorize(&endpoints(text)))
}

fn show(c: &Categories) -> String {
    let any = if c.has_any { "yes" } else { "no" };
    format!("{} | {} | {} | {any}", letters(&c.cluster), letters(&c.local), letters(&c.reachable))
}

#[test]
fn truth_table() {
    let mut seen = BTreeSet::new();
    for row in TABLE.lines().filter(|l| !l.is_empty()) {
        let [number, policies, place, list, cluster, local, reachable, any] =
            row.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("not eight columns: {row}")
        };
        seen.insert(number.parse::<u32>().unwrap());
        let result = |text: &str| if matches!(text, "–" | "∅") { String::new() } else { text.to_owned() };
        let want = format!("{} | {} | {} | {any}", result(cluster), result(local), result(reachable));
        let endpoints = endpoints(list);
        for situation in situations(policies, place) {
            assert_eq!(show(&situation.categorize(&endpoints)), want, "row {row}\n{situation:?}");
        }
    }
    assert_eq!(seen, (1..=43).collect());
}

/// Core spec 3.2: what each state is usable as.
#[test]
fn states() {
    for (state, alone, beside_ready) in [
        ("r", "A |  | A | yes", "A B |  | A B | yes"),
        ("p", "A |  | A | yes", "A B |  | A B | yes"),
        ("t", "A |  | A | yes", "B |  | B | yes"),
        ("s", " |  |  | no", "B |  | B | yes"),
        ("u", " |  |  | no", "B |  | B | yes"),
        ("x", " |  |  | no", "B |  | B | yes"),
    ] {
        assert_eq!(decide("C/C/no", "–", &format!("A {state}")), alone, "{state}");
        assert_eq!(decide("C/C/no", "–", &format!("A {state}; B r")), beside_ready, "{state}");
    }
}

/// Ready without serving, as raw objects may say, is a first choice like any ready one.
#[test]
fn ready_counts_whatever_serving_says() {
    for terminating in [false, true] {
        let mut list = endpoints("A r; B t");
        list[0].conditions = Conditions { ready: true, serving: false, terminating };
        let got = situations("C/C/no", "–")[0].categorize(&list);
        assert_eq!(show(&got), "A |  | A | yes");
    }
}

/// Cases: core-11.36
#[test]
fn edge_36_terminating_but_ready_is_a_first_choice() {
    assert_eq!(decide("C/C/no", "–", "A p; B t"), "A |  | A | yes");
    assert_eq!(decide("L/C/no", "–", "A p L; B t L"), " | A | A | yes");
}

/// Cases: core-11.38
#[test]
fn edge_38_internal_local_with_remote_endpoints_only_still_has_any() {
    assert_eq!(decide("L/C/no", "–", "A r R; B r R"), " |  |  | yes");
}

/// Cases: core-11.39
#[test]
fn edge_39_no_usable_endpoint_anywhere() {
    for policies in ["C/C/no", "L/C/no", "C/L/yes", "L/L/yes"] {
        assert_eq!(decide(policies, "–", "A s L; B u R; C x L"), " |  |  | no", "{policies}");
    }
}

/// Cases: core-11.40
#[test]
fn edge_40_only_local_endpoint_terminating_still_serves_outside() {
    let got = situations("C/L/yes", "–")[0].categorize(&endpoints("A t L; B r R"));
    assert_eq!(show(&got), "B | A | A B | yes");
    assert!(got.local_fallback && !got.cluster_fallback);
}

/// Cases: core-11.41
#[test]
fn edge_41_one_unhinted_ready_endpoint_vetoes_topology() {
    let thousand = |last: &str| {
        let mut list: Vec<Endpoint> = vec![endpoint("A r z=a", 1); 1000];
        for (i, e) in list.iter_mut().enumerate().skip(1) {
            e.hints.zones = names("", if i % 2 == 0 { "a" } else { "b" });
        }
        list.push(endpoint(last, 1));
        situations("C/C/no", "–, a")[0].categorize(&list)
    };
    let vetoed = thousand("A r");
    assert_eq!((vetoed.cluster.len(), vetoed.topology), (1001, TopologyMode::None));
    for unready in ["A u", "A s", "A x", "A t"] {
        let got = thousand(unready);
        assert_eq!((got.cluster.len(), got.topology), (500, TopologyMode::SameZone), "{unready}");
    }
}

/// Cases: core-11.42, report-C1-13
#[test]
fn edge_42_hints_of_unready_endpoints_do_not_count() {
    assert_eq!(decide("C/C/no", "–, a", "A u z=a; B r z=b; C t z=a"), "B |  | B | yes");
}

/// Cases: core-11.43
#[test]
fn edge_43_a_zone_label_starts_zone_routing() {
    let list = "A r z=a; B r z=b";
    assert_eq!(decide("C/C/no", "–", list), "A B |  | A B | yes");
    assert_eq!(decide("C/C/no", "–, a", list), "A |  | A | yes");
}

/// Cases: core-11.44
#[test]
fn edge_44_local_endpoint_hinted_elsewhere_makes_a_true_union() {
    assert_eq!(decide("C/L/yes", "–, a", "A r R z=a; B r L z=b"), "A | B | A B | yes");
}

/// Cases: core-11.45
#[test]
fn edge_45_all_terminating_with_hints_uses_all() {
    let got = situations("C/C/no", "–, a")[0].categorize(&endpoints("A t z=a; B t z=b; C x z=a"));
    assert_eq!(show(&got), "A B |  | A B | yes");
    assert!(got.cluster_fallback);
    assert_eq!(got.topology, TopologyMode::None);
}

#[test]
fn modes_are_reported() {
    let mode = |place: &str, list: &str| situations("C/C/no", place)[0].categorize(&endpoints(list)).topology;
    assert_eq!(mode("node-1, a", "A r z=a n=1; B r z=b n=2"), TopologyMode::SameNode);
    assert_eq!(mode("node-1, a, gate off", "A r z=a n=1; B r z=b n=2"), TopologyMode::SameZone);
    assert_eq!(mode("node-1, a", "A r; B r"), TopologyMode::None);
    assert_eq!(mode("node-1, a", "none"), TopologyMode::None);
}

/// An empty zone label is no zone, even for an endpoint whose hint is empty.
#[test]
fn an_empty_zone_matches_no_hint() {
    let mut list = endpoints("A r z=a; B r z=b");
    list[0].hints.zones = Some([Arc::from("")].into());
    let got = situations("C/C/no", "–, \"\"")[0].categorize(&list);
    assert_eq!((letters(&got.cluster), got.topology), ("A B".into(), TopologyMode::None));
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    let hint = || proptest::option::of(proptest::sample::subsequence(vec!["a", "b", "c"], 1..=2));
    (any::<[bool; 4]>(), hint(), hint(), 1u8..=9).prop_map(|(flags, zones, nodes, i)| {
        let list = |l: Option<Vec<&str>>| l.map(|l| l.into_iter().map(Arc::from).collect());
        Endpoint {
            addr: EndpointAddr { ip: IpAddr::from([10, 0, 0, i]), port: Port::new(80).unwrap() },
            conditions: Conditions { ready: flags[0], serving: flags[1], terminating: flags[2] },
            local: flags[3],
            node: None,
            hints: Hints { zones: list(zones), nodes: list(nodes) },
        }
    })
}

fn any_situation() -> impl Strategy<Value = Situation> {
    let policy =
        || proptest::bool::ANY.prop_map(|l| if l { TrafficPolicy::Local } else { TrafficPolicy::Cluster });
    let zone = proptest::option::of(proptest::sample::select(vec!["a", "b", ""]));
    (policy(), policy(), any::<bool>(), zone, any::<bool>()).prop_map(
        |(internal, external, accessible, zone, node_hints)| Situation {
            internal,
            external,
            accessible,
            node: NodeName::new("a"),
            zone: zone.map(str::to_owned),
            node_hints,
        },
    )
}

proptest! {
    /// What every consumer relies on, for any input.
    #[test]
    fn invariants(list in proptest::collection::vec(any_endpoint(), 0..7), s in any_situation()) {
        let got = s.categorize(&list);
        let set = |v: &[u32]| v.iter().copied().collect::<BTreeSet<u32>>();
        for part in [&got.cluster, &got.local, &got.reachable] {
            prop_assert!(part.is_sorted_by(|a, b| a < b), "ascending, no duplicates");
            prop_assert!(part.iter().all(|i| (*i as usize) < list.len()));
        }
        prop_assert_eq!(set(&got.reachable), &set(&got.cluster) | &set(&got.local));
        prop_assert!(got.local.iter().all(|i| list[*i as usize].local));
        let usable = |e: &Endpoint| e.conditions.ready || (e.conditions.serving && e.conditions.terminating);
        prop_assert_eq!(got.has_any, list.iter().any(usable));
        prop_assert!(got.reachable.iter().all(|i| usable(&list[*i as usize])));
        let uses_cluster = s.internal == TrafficPolicy::Cluster || s.accessible;
        prop_assert_eq!(!got.cluster.is_empty(), uses_cluster && got.has_any, "never empty while anything can serve");
    }

    /// The order of endpoints carries no meaning.
    #[test]
    fn order_does_not_matter(list in proptest::collection::vec(any_endpoint(), 0..7), s in any_situation()) {
        let got = s.categorize(&list);
        let mut reversed = list.clone();
        reversed.reverse();
        let back = s.categorize(&reversed);
        let mirror = |v: &[u32]| v.iter().rev().map(|i| list.len() as u32 - 1 - i).collect::<Vec<_>>();
        prop_assert_eq!(mirror(&back.cluster), got.cluster);
        prop_assert_eq!(mirror(&back.local), got.local);
        prop_assert_eq!(back.has_any, got.has_any);
        prop_assert_eq!(back.topology, got.topology);
    }
}
