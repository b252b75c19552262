//! What is written is what is read, and where it belongs is known.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use proxier_core::ids::{IpFamily, Protocol};
use proxier_sys::netlink::AttrIter;

use super::super::parse::{Attrs, RawRule, RawSet};
use super::super::raise::{Content, Raiser};
use super::super::{WireError, decode, encode};
use super::samples::{Sample, name, port, rule};
use crate::objects::*;

/// The messages of a transaction: type and attributes.
pub(super) fn messages(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut rest = bytes;
    let mut out = Vec::new();
    while let Some((head, _)) = rest.split_first_chunk::<16>() {
        let length = u32::from_ne_bytes(head[..4].try_into().unwrap()) as usize;
        let kind = u16::from_ne_bytes(head[4..6].try_into().unwrap());
        out.push((kind, &rest[20..length]));
        rest = &rest[length.next_multiple_of(4)..];
    }
    out[1..out.len() - 1].to_vec()
}

/// Reads the rules of a transaction as if it were a dump. Anonymous sets go by their name's pattern, so that a rule
/// may have one of each.
fn read_back(family: IpFamily, bytes: &[u8]) -> Vec<ObservedRule> {
    let (mut anonymous, mut open, mut out) = (BTreeMap::new(), None, Vec::new());
    for (kind, payload) in messages(bytes) {
        match kind & 0xff {
            9 => open = Some(RawSet::read(payload).unwrap()),
            12 => {
                let raw: &RawSet<'_> = open.as_ref().unwrap();
                let content = decode::content_of(family, raw, &[payload]).unwrap_or(Content::Foreign);
                anonymous.insert(raw.name.to_owned(), content);
            }
            6 => {
                let raiser = Raiser { family, anonymous: &anonymous };
                out.push(raiser.rule(&RawRule::read(payload).unwrap()));
                anonymous.clear();
            }
            other => panic!("message {other}"),
        }
    }
    out
}

#[test]
fn every_statement_reads_back() {
    for family in IpFamily::ALL {
        let sample = Sample { family };
        for (chain, rule) in sample.rules() {
            let encoded = encode(&sample.table(), &[Op::AddRule(chain, rule.clone())]).unwrap();
            let read = read_back(family, encoded.batch.bytes().unwrap());
            assert_eq!(read, [ObservedRule::Known(rule)], "{family}");
        }
    }
}

#[test]
fn one_network_in_braces_is_a_plain_comparison() {
    let sample = Sample { family: IpFamily::Ipv4 };
    let cidr = sample.net("10.0.0.0/8", "fd00::/8");
    let (selector, negated) = (Selector::SourceAddr, true);
    let within = rule([Stmt::AddrIn { selector, negated, cidrs: vec![cidr] }]);
    let is = rule([Stmt::Addr { selector, negated, cidr }]);
    let written = |rule| encode(&sample.table(), &[Op::AddRule(name("c"), rule)]).unwrap();
    assert_eq!(written(within).batch.bytes().unwrap(), written(is).batch.bytes().unwrap());
}

#[test]
fn messages_belong_to_their_operations() {
    let sample = Sample { family: IpFamily::Ipv6 };
    let two_sets = rule([
        Stmt::AddrIn {
            selector: Selector::SourceAddr,
            negated: false,
            cidrs: vec![sample.net("10.0.0.0/8", "fd00::/8"), sample.net("12.0.0.0/8", "fe00::/8")],
        },
        Stmt::GotoRandom(vec![name("a"), name("b")]),
    ]);
    let ops = [
        Op::AddTable,
        Op::AddElements(name("empty"), Vec::new()),
        Op::AddRule(name("c"), two_sets),
        Op::DeleteTable,
    ];
    let encoded = encode(&sample.table(), &ops).unwrap();
    assert_eq!(encoded.owner, [0, 2, 2, 2, 2, 2, 3]);
    assert_eq!(encoded.owner.len(), encoded.batch.len());
}

#[test]
fn long_lists_are_split_below_the_limit_of_an_attribute() {
    let sample = Sample { family: IpFamily::Ipv6 };
    let comment = "x".repeat(200);
    let elements: Vec<Element> = (1..=5000)
        .map(|number| Element {
            key: Key::AddrPort(sample.addr(1), Protocol::Tcp, port(number)),
            value: Value::Verdict(Verdict::Goto(name(&"y".repeat(250)))),
            comment: Some(name(&comment)),
        })
        .collect();
    let keys = elements.iter().map(|element| element.key).collect();
    let ops = [Op::AddElements(name("m"), elements), Op::DeleteElements(name("m"), keys)];
    let encoded = encode(&sample.table(), &ops).unwrap();
    let bytes = encoded.batch.bytes().unwrap();
    let mut counts = [0; 2];
    for ((_, payload), owner) in messages(bytes).into_iter().zip(&encoded.owner) {
        let list = Attrs::<5>::read(AttrIter::new(payload)).unwrap();
        counts[*owner] += list.nested(3).unwrap().map(Result::unwrap).count();
    }
    assert_eq!(counts, [5000, 5000]);
    assert!(encoded.owner.len() > 20);
}

#[test]
fn what_cannot_be_said_is_refused_with_its_operation() {
    let (v4, v6) = (Sample { family: IpFamily::Ipv4 }, Sample { family: IpFamily::Ipv6 });
    let element = |key, value| Op::AddElements(name("s"), vec![Element { key, value, comment: None }]);
    let of = |stmt| Op::AddRule(name("c"), rule([stmt]));
    let foreign = v6.addr(1);
    let wrong_family = [
        element(Key::Addr(foreign), Value::None),
        element(Key::Addr(v4.addr(1)), Value::Endpoint(foreign, port(1))),
        Op::DeleteElements(name("s"), vec![Key::Hairpin(foreign, Protocol::Tcp, port(1))]),
        of(Stmt::Dnat(foreign, port(1))),
        of(Stmt::DnatRandom(vec![(foreign, port(1))])),
        of(Stmt::Addr { selector: Selector::DestAddr, negated: false, cidr: foreign.into() }),
    ];
    for op in wrong_family {
        let error = encode(&v4.table(), &[Op::AddTable, op.clone()]).unwrap_err();
        assert!(
            matches!(error, WireError::WrongFamily { op: 1, addr, .. } if addr == foreign),
            "{op:?}: {error}"
        );
    }
    let iif = |text: &str, prefix| Stmt::IifName { negated: false, name: name(text), prefix };
    let inexpressible = [
        Stmt::DnatRandom(Vec::new()),
        Stmt::GotoRandom(Vec::new()),
        Stmt::AddrIn { selector: Selector::DestAddr, negated: false, cidrs: Vec::new() },
        Stmt::Addr { selector: Selector::DestPort, negated: false, cidr: v4.addr(1).into() },
        Stmt::DnatMap { selectors: vec![Selector::L4Proto], modulus: 0, offset: 0, map: name("m") },
        Stmt::DnatMap { selectors: vec![Selector::L4Proto], modulus: 1, offset: u32::MAX, map: name("m") },
        Stmt::Vmap { selectors: Vec::new(), map: name("m") },
        Stmt::FibLocal(Selector::L4Proto),
        iif("", true),
        iif("", false),
        iif("sixteen-bytes-xx", false),
    ];
    for stmt in inexpressible {
        let error = encode(&v4.table(), &[Op::AddTable, of(stmt.clone())]).unwrap_err();
        assert!(matches!(error, WireError::Inexpressible { op: 1, .. }), "{stmt:?}: {error}");
    }
}

/// A statement of the sample, or one with a network or a mark that it has not.
fn any_stmt(family: IpFamily) -> impl Strategy<Value = Stmt> {
    let pool: Vec<Stmt> = Sample { family }.rules().into_iter().flat_map(|(_, rule)| rule.stmts).collect();
    let net = (any::<u128>(), 0u8..=128, any::<bool>()).prop_map(move |(bits, len, negated)| {
        let (addr, len) = match family {
            IpFamily::Ipv4 => (IpAddr::V4(((bits >> 96) as u32).into()), len / 4),
            IpFamily::Ipv6 => (IpAddr::V6(bits.into()), len),
        };
        let cidr = IpNet::new(addr, len).unwrap().trunc();
        Stmt::Addr { selector: Selector::DestAddr, negated, cidr }
    });
    // A mark that changes nothing reads back as either kind.
    let mark = (1..u32::MAX).prop_flat_map(|mark| {
        prop::sample::select(vec![Stmt::MarkSet(mark), Stmt::OrMark(mark), Stmt::XorMark(mark)])
    });
    prop_oneof![prop::sample::select(pool), net, mark]
}

/// A family and a rule of it. Without a kernel that names them, sets of one rule cannot be told apart: it has one at
/// most.
fn any_rule() -> impl Strategy<Value = (IpFamily, Rule)> {
    prop::sample::select(IpFamily::ALL.to_vec()).prop_flat_map(|family| {
        prop::collection::vec(any_stmt(family), 1..6).prop_map(move |mut stmts| {
            let mut sets = 0;
            stmts.retain(|stmt| {
                sets += usize::from(matches!(
                    stmt,
                    Stmt::AddrIn { .. } | Stmt::DnatRandom(_) | Stmt::GotoRandom(_)
                ));
                sets < 2
            });
            (family, rule(stmts))
        })
    })
}

proptest! {
    /// No two statements run into one another when they stand side by side.
    #[test]
    fn any_sequence_reads_back((family, rule) in any_rule()) {
        let ops = [Op::AddRule(name("c"), rule.clone())];
        let encoded = encode(&Sample { family }.table(), &ops).unwrap();
        prop_assert_eq!(read_back(family, encoded.batch.bytes().unwrap()), [ObservedRule::Known(rule)]);
    }
}
