//! The text of every kind of operation. That nft loads it, and what it makes of it, is tested with the kernel in
//! `wire`.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use proxier_core::ids::{Port, Protocol};

use super::*;
use crate::objects::{CtState, Selector, Stmt, Value, Verdict};

fn table(family: IpFamily) -> Table {
    Table { family, name: "kube-proxy".into() }
}

fn v4() -> Table {
    table(IpFamily::Ipv4)
}

fn v6() -> Table {
    table(IpFamily::Ipv6)
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn rule(stmts: Vec<Stmt>) -> Rule {
    Rule { stmts, comment: None }
}

fn set(name: &str, key: &[Field], data: Data) -> Set {
    Set { name: name.into(), key: key.to_vec(), data, size: None, timeout: None, comment: None }
}

#[test]
fn a_transaction_is_one_command_per_line() {
    let base = Base { kind: ChainType::Nat, hook: Hook::Prerouting, priority: -100 };
    let goto = |chain: &str| Value::Verdict(Verdict::Goto(chain.into()));
    let dns = Key::AddrPort(addr("10.96.0.10"), Protocol::Udp, port(53));
    let other = Key::AddrPort(addr("10.96.0.11"), Protocol::Tcp, port(443));
    let element = |key, value| Element { key, value, comment: None };
    let ops = [
        Op::AddTable,
        Op::AddChain(Chain { name: "nat-prerouting".into(), base: Some(base), comment: None }),
        Op::AddChain(Chain { name: "services".into(), base: None, comment: None }),
        Op::AddChain(Chain { name: "reject-chain".into(), base: None, comment: Some("helper".into()) }),
        Op::FlushChain("services".into()),
        Op::AddRule("nat-prerouting".into(), rule(vec![Stmt::Verdict(Verdict::Jump("services".into()))])),
        Op::AddElements(
            "service-ips".into(),
            vec![
                Element { key: dns, value: goto("cluster-2"), comment: Some("kube-system/dns:dns".into()) },
                element(other, Value::Verdict(Verdict::Drop)),
            ],
        ),
        Op::AddElements("service-ips".into(), Vec::new()),
        Op::DeleteElements("service-ips".into(), vec![dns, other]),
        Op::DeleteElements("service-ips".into(), Vec::new()),
        Op::DeleteSet("service-ips".into()),
        Op::DeleteChain("services".into()),
        Op::DeleteTable,
    ];
    let want = "\
add table ip kube-proxy { comment \"rules for kube-proxy\" ; }
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; policy accept ; }
add chain ip kube-proxy services
add chain ip kube-proxy reject-chain { comment \"helper\" ; }
flush chain ip kube-proxy services
add rule ip kube-proxy nat-prerouting jump services
add element ip kube-proxy service-ips { 10.96.0.10 . udp . 53 comment \"kube-system/dns:dns\" : goto cluster-2, \
10.96.0.11 . tcp . 443 : drop }
delete element ip kube-proxy service-ips { 10.96.0.10 . udp . 53, 10.96.0.11 . tcp . 443 }
delete set ip kube-proxy service-ips
delete chain ip kube-proxy services
delete table ip kube-proxy
";
    assert_eq!(ops_text(&v4(), &ops), want);
    let each: Vec<String> = ops.iter().map(|op| op_text(&v4(), op)).filter(|line| !line.is_empty()).collect();
    assert_eq!(each.join("\n") + "\n", want);
}

#[test]
fn sets_are_declared_by_type_or_where_an_index_is_in_them_by_example() {
    use Field::{Addr, Index, Proto, Service};
    let endpoint = || Data::Fields(vec![Addr, Service]);
    let affinity =
        Set { size: Some(65_535), timeout: Some(10_800), ..set("affinity-x", &[Addr], Data::None) };
    let eps = Set {
        size: Some(65_536),
        comment: Some("endpoints".into()),
        ..set("cluster-endpoints", &[Addr, Proto, Service, Index], endpoint())
    };
    let texts = |table: &Table| {
        [
            set("cluster-ips", &[Addr], Data::None),
            set("service-nodeports", &[Proto, Service], Data::Verdict),
            set("plain", &[Addr, Proto, Service], endpoint()),
            affinity.clone(),
            eps.clone(),
        ]
        .map(|set| set_text(table, &set))
    };
    assert_eq!(
        texts(&v4()),
        [
            "set cluster-ips { type ipv4_addr ; }",
            "map service-nodeports { type inet_proto . inet_service : verdict ; }",
            "map plain { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service ; }",
            "set affinity-x { type ipv4_addr ; size 65535 ; flags dynamic,timeout ; timeout 10800s ; }",
            "map cluster-endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : \
         ip daddr . th dport ; size 65536 ; comment \"endpoints\" ; }",
        ]
    );
    assert_eq!(texts(&v6())[0], "set cluster-ips { type ipv6_addr ; }");
    assert!(texts(&v6())[4].contains("typeof ip6 daddr . meta l4proto . th dport . "));
}

#[test]
fn matches() {
    use Selector::{DestAddr, DestPort, L4Proto, SourceAddr};
    let is = |negated, cidr: &str| Stmt::Addr { selector: SourceAddr, negated, cidr: net(cidr) };
    let iif = |negated, name: &str, prefix| Stmt::IifName { negated, name: name.into(), prefix };
    let cases = [
        (Stmt::CtState(CtState::New), "ct state new"),
        (Stmt::CtState(CtState::Invalid), "ct state invalid"),
        (Stmt::CtStatusDnat, "ct status dnat"),
        (is(false, "10.0.0.0/8"), "ip saddr 10.0.0.0/8"),
        (is(true, "10.1.2.3/8"), "ip saddr != 10.0.0.0/8"),
        (is(false, "10.0.0.1/32"), "ip saddr 10.0.0.1"),
        (
            Stmt::AddrIn {
                selector: DestAddr,
                negated: true,
                cidrs: vec![net("192.168.0.0/16"), net("203.0.113.1/32")],
            },
            "ip daddr != { 192.168.0.0/16, 203.0.113.1 }",
        ),
        (
            Stmt::InSet { selectors: vec![SourceAddr, DestAddr, L4Proto, DestPort], set: "hairpin".into() },
            "ip saddr . ip daddr . meta l4proto . th dport @hairpin",
        ),
        (iif(false, "cni0", false), "iifname \"cni0\""),
        (iif(true, "veth", true), "iifname != \"veth*\""),
        (iif(false, "odd*", false), "iifname \"odd\\*\""),
        (Stmt::L4Proto(Protocol::Sctp), "meta l4proto sctp"),
        (Stmt::FibLocal(SourceAddr), "fib saddr type local"),
        (Stmt::FibLocal(DestAddr), "fib daddr type local"),
        (Stmt::MarkSet(0x4000), "meta mark & 0x00004000 != 0"),
    ];
    for (stmt, want) in cases {
        assert_eq!(rule_text(&v4(), &rule(vec![stmt])), want);
    }
    assert_eq!(rule_text(&v6(), &rule(vec![is(true, "::1/128")])), "ip6 saddr != ::1");
}

#[test]
fn actions() {
    use Selector::{DestAddr, DestPort, L4Proto};
    let full = || vec![DestAddr, L4Proto, DestPort];
    let cases = [
        (Stmt::OrMark(0x4000), "meta mark set meta mark | 0x00004000"),
        (Stmt::XorMark(1), "meta mark set meta mark ^ 0x00000001"),
        (
            Stmt::Vmap { selectors: full(), map: "service-ips".into() },
            "ip daddr . meta l4proto . th dport vmap @service-ips",
        ),
        (
            Stmt::DnatMap { selectors: full(), modulus: 3, offset: 0, map: "eps".into() },
            "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @eps",
        ),
        (
            Stmt::DnatMap { selectors: full(), modulus: 2, offset: 131_072, map: "eps".into() },
            "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 offset 131072 map @eps",
        ),
        (
            Stmt::DnatRandom(vec![(addr("10.0.0.1"), port(80)), (addr("10.0.0.2"), port(81))]),
            "dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 81 }",
        ),
        (
            Stmt::GotoRandom(vec!["a".into(), "b".into()]),
            "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }",
        ),
        (Stmt::Dnat(addr("10.0.0.1"), port(80)), "dnat to 10.0.0.1:80"),
        (Stmt::UpdateSource("aff".into()), "update @aff { ip saddr }"),
        (Stmt::Masquerade, "masquerade fully-random"),
        (Stmt::Reject, "reject"),
        (Stmt::Reset, "reject with tcp reset"),
        (Stmt::Verdict(Verdict::Accept), "accept"),
        (Stmt::Verdict(Verdict::Goto("c".into())), "goto c"),
    ];
    for (stmt, want) in cases {
        assert_eq!(rule_text(&v4(), &rule(vec![stmt])), want);
    }
    let six = Stmt::Dnat(addr("fd00::1"), port(80));
    assert_eq!(rule_text(&v6(), &rule(vec![six])), "dnat to [fd00::1]:80");
    let both = rule(vec![Stmt::CtState(CtState::New), Stmt::Verdict(Verdict::Drop)]);
    let commented = Rule { comment: Some("why".into()), ..both };
    assert_eq!(rule_text(&v4(), &commented), "ct state new drop comment \"why\"");
}

#[test]
fn elements_and_chains() {
    let (a, tcp) = (addr("fd00::1"), Protocol::Tcp);
    let keys = [
        (Key::Addr(a), "fd00::1"),
        (Key::Port(port(31_000)), "31000"),
        (Key::AddrPort(a, tcp, port(1)), "fd00::1 . tcp . 1"),
        (Key::ProtoPort(tcp, port(1)), "tcp . 1"),
        (Key::AddrPortIndex(a, tcp, port(1), 70_000), "fd00::1 . tcp . 1 . 70000"),
        (Key::ProtoPortIndex(tcp, port(1), 0), "tcp . 1 . 0"),
        (Key::Hairpin(a, tcp, port(1)), "fd00::1 . fd00::1 . tcp . 1"),
    ];
    for (key, want) in keys {
        assert_eq!(key_text(&key), want);
    }
    let value = Value::Endpoint(a, port(8080));
    let element = Element { key: Key::ProtoPortIndex(tcp, port(1), 0), value, comment: Some("c".into()) };
    assert_eq!(element_text(&element), "tcp . 1 . 0 comment \"c\" : fd00::1 . 8080");
    let plain = Chain { name: "services".into(), base: None, comment: None };
    assert_eq!(chain_text(&plain), "chain services");
}

#[test]
fn comments_cannot_end_their_quotes() {
    assert_eq!(comment_text("kube-system/dns:dns"), "kube-system/dns:dns");
    assert_eq!(comment_text("a\"b\nc\u{85}d"), "a'b c d");
    assert_eq!(comment_text(&"é".repeat(100)).len(), 126);
}

proptest! {
    #[test]
    fn every_comment_is_short_clean_and_stays_as_it_is(text in any::<String>(), padding in 0usize..140) {
        let text = text + &"x".repeat(padding);
        let once = comment_text(&text);
        prop_assert!(once.len() <= MAX_COMMENT);
        prop_assert!(!once.contains(|c: char| c == '"' || c.is_control()));
        prop_assert_eq!(comment_text(&once), once.as_ref());
    }
}
