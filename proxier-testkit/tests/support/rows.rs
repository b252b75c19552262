//! Packets and what must become of them, one a line:
//! `SOURCE@ENTRY > DESTINATION PROTOCOL PORT = ANSWER`.
//!
//! ENTRY is `host` or an interface; ANSWER is `reject`, `drop`, `untouched`, or endpoints joined by ` | `, each possibly
//! with `*WEIGHT` and with `M` if the source is replaced.

use proxier_core::ids::{EndpointAddr, Port, Protocol};
use proxier_core::oracle::{Choice, Entry, Outcome, Packet};
use proxier_testkit::conformance::Model;
use proxier_testkit::walk::{Fraction, WalkHost, normalise};

/// Reads the left side of a row.
pub(crate) fn packet(text: &str) -> Packet {
    let (from, to) = text.split_once(" > ").expect("a row has an arrow");
    let (source, entry) = from.trim().split_once('@').expect("a source has an entry");
    let to: Vec<&str> = to.split_whitespace().collect();
    let [destination, protocol, port] = *to else { panic!("destination, protocol and port: {text}") };
    let protocol = match protocol {
        "icmp" => None,
        name => Some(Protocol::ALL.into_iter().find(|p| p.as_str() == name).expect("a protocol")),
    };
    Packet {
        source: source.parse().expect("a source address"),
        destination: destination.parse().expect("a destination address"),
        protocol,
        port: port.parse().expect("a port"),
        entry: if entry == "host" { Entry::Host } else { Entry::Interface(entry.into()) },
    }
}

fn choice(text: &str) -> Choice {
    let (text, masquerade) = match text.trim().strip_suffix(" M") {
        Some(text) => (text, true),
        None => (text.trim(), false),
    };
    let (address, weight) = text.split_once('*').unwrap_or((text, "1"));
    let address: std::net::SocketAddr = address.parse().expect("an endpoint");
    let endpoint = EndpointAddr { ip: address.ip(), port: Port::new(address.port()).expect("a port") };
    Choice { endpoint, weight: weight.parse().expect("a weight"), masquerade }
}

/// Reads the right side of a row.
pub(crate) fn answer(text: &str) -> Outcome {
    match text.trim() {
        "reject" => Outcome::Reject,
        "drop" => Outcome::Drop,
        "untouched" => Outcome::NotOurs,
        endpoints => normalise(Outcome::Endpoints(endpoints.split(" | ").map(choice).collect())),
    }
}

/// Walks every row and compares; lists all that differ. Blank lines and `#` lines are skipped. Returns how many.
pub(crate) fn check(rules: &impl Model, host: &WalkHost, rows: &str) -> usize {
    let mut wrong = Vec::new();
    let rows: Vec<&str> =
        rows.lines().map(str::trim).filter(|r| !r.is_empty() && !r.starts_with('#')).collect();
    for row in &rows {
        let (question, expected) = row.split_once(" = ").expect("a row has an answer");
        let walk = rules.walk(&packet(question), host).expect("the walk ends");
        let total = walk.branches.iter().try_fold(Fraction::ZERO, |sum, branch| sum.plus(branch.weight));
        assert_eq!(total, Some(Fraction::ONE), "{row}");
        let found = walk.outcome();
        if found != Ok(answer(expected)) {
            wrong.push(format!("{row}\n  found {found:?}\n  by {:#?}", walk.branches));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    rows.len()
}
