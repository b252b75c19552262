//! The checks of an experiment: each sends traffic or asks a kernel, and becomes one line of the report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::bail;

use crate::listing;
use crate::pace::Patience;
use crate::report::Line;
use crate::saved;
use crate::scenario::{Expect, Kernel, Layout, Object, Traffic};
use crate::topology::Topology;
use crate::traffic::{Seen, connect};
use crate::virtual_servers;

/// How long an expected answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// How long nothing must come back to count as silence; a client's first repetition falls into it.
const SILENCE: Duration = Duration::from_millis(1200);

/// Further connections while an endpoint was not met yet: with two endpoints and a random choice, twelve connections miss
/// one of them once in 2,048 runs, 52 once in 10^15.
const FURTHER: usize = 40;

/// Sends the traffic and compares.
pub(super) fn traffic(
    label: &str,
    topology: &Topology,
    row: &Traffic,
    patience: Patience,
) -> anyhow::Result<Line> {
    let (answer, silence) = (patience.of(ANSWER), patience.of(SILENCE));
    let (expected, seen, passed) = match &row.expect {
        Expect::Source(source) => {
            let seen = connect(row.from, None, row.to, answer)?;
            let passed = matches!(&seen, Seen::Answered { client, .. } if client == source);
            (source.to_string(), seen.to_string(), passed)
        }
        Expect::Silence => {
            let seen = connect(row.from, None, row.to, silence)?;
            (Seen::TimedOut.to_string(), seen.to_string(), seen == Seen::TimedOut)
        }
        Expect::Turns { servers, connections, source } => {
            let mut seen = Vec::new();
            for _ in 0..*connections {
                seen.push(connect(row.from, None, row.to, ANSWER)?);
            }
            let expected = format!("{connections} x {} in turn", servers.join(" and "));
            let passed = in_turn(&seen, *source);
            (expected.clone(), if passed { expected } else { list(&seen) }, passed)
        }
        Expect::Spread { servers, connections, source } => {
            let spread =
                Spread::collect(servers, *connections, *source, || connect(row.from, None, row.to, answer))?;
            let expected = format!("{connections} x {}", servers.join(" or "));
            (expected, spread.to_string(), spread.passed(servers))
        }
    };
    Ok(Line {
        experiment: label.to_owned(),
        from: topology.describe_source(row.from, row.to.ip()),
        to: destination(topology, row.to),
        policy: row.policy.to_owned(),
        expected,
        seen,
        passed,
    })
}

/// Two servers, by turns.
fn in_turn(seen: &[Seen], source: Option<IpAddr>) -> bool {
    let names: Option<Vec<&str>> = seen
        .iter()
        .map(|one| match one {
            Seen::Answered { server, client } if source.is_none_or(|s| s == *client) => Some(server.as_str()),
            _ => None,
        })
        .collect();
    names.is_some_and(|names| {
        names.windows(2).all(|pair| pair[0] != pair[1]) && names.windows(3).all(|three| three[0] == three[2])
    })
}

fn list(seen: &[Seen]) -> String {
    let one = |seen: &Seen| match seen {
        Seen::Answered { server, client } => format!("{server} to {client}"),
        other => other.to_string(),
    };
    seen.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn destination(topology: &Topology, to: SocketAddr) -> String {
    match topology.nodes.iter().find(|n| n.addresses.contains(to.ip())) {
        Some(node) => format!("{} {to}", node.name),
        None => to.to_string(),
    }
}

/// Who answered how often.
#[derive(Debug, Default)]
struct Spread {
    answers: BTreeMap<String, usize>,
    /// The first connection that went wrong; no further ones are made.
    wrong: Option<String>,
}

impl Spread {
    fn collect<E>(
        servers: &[&str],
        connections: usize,
        source: Option<IpAddr>,
        mut one: impl FnMut() -> Result<Seen, E>,
    ) -> Result<Self, E> {
        let mut spread = Self::default();
        for number in 0..connections + FURTHER {
            if number >= connections && spread.answers.len() >= servers.len() {
                break;
            }
            match one()? {
                Seen::Answered { server, client } if source.is_none_or(|s| s == client) => {
                    *spread.answers.entry(server).or_default() += 1;
                }
                other => {
                    spread.wrong = Some(format!("connection {}: {other}", number + 1));
                    break;
                }
            }
        }
        Ok(spread)
    }

    fn passed(&self, servers: &[&str]) -> bool {
        self.wrong.is_none() && self.answers.keys().map(String::as_str).eq(servers.iter().copied())
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts: Vec<String> =
            self.answers.iter().map(|(name, count)| format!("{count} x {name}")).collect();
        parts.extend(self.wrong.clone());
        f.write_str(&parts.join(" + "))
    }
}

/// What a kernel object holds.
struct Found {
    /// Name for the table.
    object: String,
    /// In short, for the table.
    seen: String,
    passed: bool,
    /// All of it, for the listing.
    lines: Vec<String>,
}

/// Asks the node's kernel, compares, and gives the listing too.
pub(super) fn kernel(label: &str, layout: Layout, row: &Kernel) -> anyhow::Result<(Line, String)> {
    let (holder, found) = match (row.object, layout) {
        (Object::Elements { map, key }, _) => ("kube-proxy", elements(row, map, key)?),
        (Object::Chain(name), _) => ("kube-proxy", chain(row, name)?),
        (Object::VirtualServer(head), _) => ("IPVS", virtual_server(row, head)?),
        (Object::Device, _) => {
            ("addresses", words(row, virtual_servers::DEVICE, virtual_servers::device(row.node)?))
        }
        (Object::Set(name), _) => ("ipset", words(row, name, virtual_servers::entries(row.node, name)?)),
        (Object::Own(table, name) | Object::Shared(table, name) | Object::Absent(table, name), of) => {
            let tables = match of {
                Layout::Rules(tables) => tables,
                Layout::VirtualServers => saved::Tables::Nft,
                Layout::Maps | Layout::Chains => bail!("{name}: iptables only"),
            };
            (table, rules_of(row, &saved::save(row.node, tables, row.family, false)?, table, name))
        }
    };
    let mut text = format!("{label}: {}, table {} {holder}, {}\n", row.node, row.family, found.object);
    for line in found.lines {
        let _ = writeln!(text, "  {line}");
    }
    let line = Line {
        experiment: label.to_owned(),
        from: format!("kernel of {}", row.node),
        to: found.object,
        policy: "-".to_owned(),
        expected: row.expect.join(", "),
        seen: found.seen,
        passed: found.passed,
    };
    Ok((line, text))
}

fn elements(row: &Kernel, map: &str, key: &str) -> anyhow::Result<Found> {
    let elements = listing::map(row.node, row.family, map)?;
    let mut own: Vec<_> = elements.iter().flatten().filter(|e| e.belongs_to(key)).collect();
    own.sort_unstable();
    let mut values: Vec<&str> = own.iter().map(|e| e.value.as_str()).collect();
    values.sort_unstable();
    let seen = if elements.is_none() { "no such map".to_owned() } else { values.join(", ") };
    let lines = own.iter().map(ToString::to_string).collect();
    Ok(Found { object: format!("{map}: {key}"), seen, passed: values == sorted(row.expect), lines })
}

fn chain(row: &Kernel, name: &str) -> anyhow::Result<Found> {
    let text = listing::chain(row.node, row.family, name)?;
    let lines = text.as_deref().map_or_else(|| vec!["no such chain".to_owned()], rules);
    let all = lines.join("; ");
    let passed = row.expect.iter().all(|passage| contains_words(&all, passage));
    let seen = if passed { row.expect.join(", ") } else { all };
    Ok(Found { object: name.to_owned(), seen, passed, lines })
}

/// A virtual server: exactly these real servers.
fn virtual_server(row: &Kernel, head: &str) -> anyhow::Result<Found> {
    let listing = virtual_servers::listing(row.node)?;
    let lines = virtual_servers::of(&listing, head);
    let found =
        lines.as_ref().map_or_else(Vec::new, |lines| lines[1..].iter().map(|l| (*l).to_owned()).collect());
    let passed = lines.is_some();
    let out = words(row, head, found);
    let seen = if passed { out.seen.clone() } else { "no such virtual server".to_owned() };
    Ok(Found { passed: passed && out.passed, seen, ..out })
}

/// Exactly these words, in any order.
fn words(row: &Kernel, object: &str, mut found: Vec<String>) -> Found {
    let mut expected: Vec<&str> = row.expect.to_vec();
    expected.sort_unstable();
    let lines = found.clone();
    found.sort_unstable();
    Found { object: object.to_owned(), seen: found.join(", "), passed: found == expected, lines }
}

/// A chain of iptables.
fn rules_of(row: &Kernel, saved: &str, table: &str, name: &str) -> Found {
    let rules = saved::rules(saved, table, name);
    let (passed, lines) = match (&rules, row.object) {
        (None, Object::Absent(..)) => (true, Vec::new()),
        (None, _) => (false, vec!["no such chain"]),
        (Some(rules), Object::Shared(..)) => {
            (row.expect.iter().all(|r| rules.contains(r)), among(rules, row.expect))
        }
        (Some(rules), Object::Own(..)) => (rules == row.expect, rules.clone()),
        (Some(_), _) => (false, vec!["there is such a chain"]),
    };
    let seen = if passed { row.expect.join(", ") } else { lines.join(", ") };
    Found { object: name.to_owned(), seen, passed, lines: lines.into_iter().map(str::to_owned).collect() }
}

/// The rules that are expected; all, where one of these lacks.
fn among<'t>(rules: &[&'t str], expect: &[&str]) -> Vec<&'t str> {
    let found: Vec<_> = rules.iter().filter(|r| expect.contains(r)).copied().collect();
    if found.len() == expect.len() { found } else { rules.to_vec() }
}

fn sorted<'a>(values: &[&'a str]) -> Vec<&'a str> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values
}

/// The rules in the listing of one chain, each on one line.
fn rules(listing: &str) -> Vec<String> {
    let inner = |line: &str| line.starts_with("\t\t") && !line.trim().is_empty();
    listing.lines().filter(|l| inner(l)).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Does the passage occur, ending where a word ends?
fn contains_words(text: &str, passage: &str) -> bool {
    let ends = |rest: &str| rest.chars().next().is_none_or(|c| " ,;}".contains(c));
    text.match_indices(passage).any(|(at, _)| ends(&text[at + passage.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(server: &str, client: &str) -> Result<Seen, ()> {
        Ok(Seen::Answered { server: server.to_owned(), client: client.parse().unwrap() })
    }

    #[test]
    fn twelve_connections_suffice_when_both_answered() {
        let mut number = 0;
        let spread = Spread::collect(&["a", "b"], 12, None, || {
            number += 1;
            answered(if number % 2 == 0 { "a" } else { "b" }, "10.0.0.1")
        });
        let spread = spread.unwrap();
        assert_eq!((number, spread.to_string().as_str()), (12, "6 x a + 6 x b"));
        assert!(spread.passed(&["a", "b"]));
    }

    #[test]
    fn an_endpoint_met_late_is_waited_for_and_one_never_met_is_a_difference() {
        let mut number = 0;
        let late = Spread::collect(&["a", "b"], 12, None, || {
            number += 1;
            answered(if number == 20 { "b" } else { "a" }, "10.0.0.1")
        });
        assert!(late.unwrap().passed(&["a", "b"]));
        assert_eq!(number, 20);
        let never = Spread::collect(&["a", "b"], 12, None, || answered("a", "10.0.0.1")).unwrap();
        assert_eq!(never.answers["a"], 52);
        assert!(!never.passed(&["a", "b"]));
    }

    #[test]
    fn a_stranger_a_wrong_source_or_a_refusal_is_a_difference() {
        let mut number = 0;
        let stranger = Spread::collect(&["a", "b"], 12, None, || {
            number += 1;
            answered(["a", "b", "c"][number % 3], "10.0.0.1")
        });
        assert!(!stranger.unwrap().passed(&["a", "b"]));
        let source = "10.0.0.1".parse().ok();
        let wrong = Spread::collect(&["a"], 12, source, || answered("a", "10.0.0.2")).unwrap();
        assert!(!wrong.passed(&["a"]));
        assert_eq!(wrong.to_string(), "connection 1: 10.0.0.2");
        let refused = Spread::collect(&["a"], 12, None, || Ok::<_, ()>(Seen::Refused)).unwrap();
        assert!(!refused.passed(&["a"]));
    }

    #[test]
    fn rules_are_the_lines_inside_the_chain() {
        let listing =
            "table ip kube-proxy {\n\tchain a/b {\n\t\tmeta l4proto tcp dnat to 10.0.0.1:80\n\t}\n}\n";
        assert_eq!(rules(listing), ["meta l4proto tcp dnat to 10.0.0.1:80"]);
    }

    const SAVED: &str = "*nat\n:SVC -\n:ALL -\n-A SVC -j ONE\n-A SVC -j TWO\n-A ALL -j SVC\nCOMMIT\n";

    fn found(object: Object, expect: &'static [&'static str]) -> (bool, String) {
        let row = Kernel { node: "worker", family: "ip", object, expect };
        let (Object::Own(table, name) | Object::Shared(table, name) | Object::Absent(table, name)) = object
        else {
            unreachable!("a chain of iptables")
        };
        let found = rules_of(&row, SAVED, table, name);
        (found.passed, found.seen)
    }

    #[test]
    fn own_chains_are_compared_whole_and_in_order_shared_ones_by_their_rules() {
        assert!(found(Object::Own("nat", "SVC"), &["-j ONE", "-j TWO"]).0);
        let other = (false, "-j ONE, -j TWO".to_owned());
        assert_eq!(found(Object::Own("nat", "SVC"), &["-j TWO", "-j ONE"]), other);
        assert_eq!(found(Object::Own("nat", "SVC"), &["-j ONE"]), other);
        assert!(found(Object::Shared("nat", "SVC"), &["-j TWO"]).0);
        assert_eq!(found(Object::Shared("nat", "SVC"), &["-j THREE"]), other);
        assert_eq!(found(Object::Own("filter", "SVC"), &[]), (false, "no such chain".to_owned()));
        assert!(found(Object::Absent("filter", "SVC"), &[]).0 && !found(Object::Absent("nat", "SVC"), &[]).0);
    }

    #[test]
    fn a_passage_must_end_with_its_word() {
        assert!(contains_words("0 : goto a/8080, 1 : goto b", "goto a/8080"));
        assert!(!contains_words("dnat to 10.0.0.1:8080", "dnat to 10.0.0.1:80"));
        assert!(contains_words("dnat to 10.0.0.1:80", "dnat to 10.0.0.1:80"));
    }
}
