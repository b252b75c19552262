//! What single matches and targets do to a packet.

use proxier_testkit::iptables::{Families, RECENT_ADDRESSES};
use proxier_testkit::walk::{WalkError, WalkHost};

use crate::{host_with, input, parse, rows};

fn host() -> WalkHost {
    WalkHost::new(["10.0.0.1".parse().unwrap()])
        .with_route("10.9.0.0/16".parse().unwrap(), "cni0")
        .with_route("10.7.0.0/16".parse().unwrap(), "eth1")
}

/// Rules whose `T` is asked in FORWARD.
fn forward(lines: &str) -> Families {
    host_with(parse(&input("filter", &format!("-A FORWARD -j T\n{lines}"))))
}

/// A packet that holds what the match says is dropped; another one is not.
fn matches(conditions: &str, holds: &str, fails: &str) {
    for (negated, conditions) in [("", conditions.to_owned()), ("! ", conditions.replace('@', "! "))] {
        let conditions = conditions.replace('@', "");
        let rules = forward(&format!("-A T {conditions} -j DROP"));
        let (yes, no) = if negated.is_empty() { ("drop", "untouched") } else { ("untouched", "drop") };
        rows::check(&rules, &host(), &format!("{holds} = {yes}\n{fails} = {no}"));
    }
}

#[test]
fn addresses_interfaces_protocols_and_ports() {
    matches("@-s 10.1.0.0/16", "10.1.2.3@eth0 > 10.9.0.1 tcp 1", "10.2.2.3@eth0 > 10.9.0.1 tcp 1");
    matches("@-d 10.9.0.1", "10.1.2.3@eth0 > 10.9.0.1 tcp 1", "10.1.2.3@eth0 > 10.9.0.2 tcp 1");
    matches("@-i eth0", "10.1.2.3@eth0 > 10.9.0.1 tcp 1", "10.1.2.3@eth01 > 10.9.0.1 tcp 1");
    matches("@-i eth+", "10.1.2.3@eth01 > 10.9.0.1 tcp 1", "10.1.2.3@veth0 > 10.9.0.1 tcp 1");
    matches("@-o cni+", "10.1.2.3@eth0 > 10.9.0.1 tcp 1", "10.1.2.3@eth0 > 10.7.0.1 tcp 1");
    matches("@-p udp", "10.1.2.3@eth0 > 10.9.0.1 udp 1", "10.1.2.3@eth0 > 10.9.0.1 tcp 1");
    matches("@-p icmp", "10.1.2.3@eth0 > 10.9.0.1 icmp 0", "10.1.2.3@eth0 > 10.9.0.1 tcp 1");
    matches(
        "-p tcp -m tcp @--dport 80",
        "10.1.2.3@eth0 > 10.9.0.1 tcp 80",
        "10.1.2.3@eth0 > 10.9.0.1 tcp 81",
    );
    matches("-p sctp @--dport 80:90", "10.1.2.3@eth0 > 10.9.0.1 sctp 85", "10.1.2.3@eth0 > 10.9.0.1 sctp 91");
}

#[test]
fn the_other_protocol_is_never_meant() {
    let rules = forward("-A T -p tcp -m tcp ! --dport 80 -j DROP");
    rows::check(
        &rules,
        &host(),
        "10.1.2.3@eth0 > 10.9.0.1 udp 81 = untouched\n10.1.2.3@eth0 > 10.9.0.1 icmp 0 = untouched",
    );
}

#[test]
fn address_types_states_and_marks() {
    matches(
        "-m addrtype @--src-type UNICAST",
        "10.0.0.2@eth0 > 10.9.0.1 tcp 1",
        "10.0.0.1@eth0 > 10.9.0.1 tcp 1",
    );
    let lines = "-A INPUT -m addrtype --dst-type LOCAL -j DROP\n-A FORWARD -m addrtype --dst-type LOCAL,UNICAST -j REJECT";
    let rules = host_with(parse(&input("filter", lines)));
    rows::check(
        &rules,
        &host(),
        "10.1.2.3@eth0 > 10.0.0.1 tcp 1 = drop\n10.1.2.3@eth0 > 10.9.0.1 tcp 1 = reject",
    );
    matches(
        "-m addrtype @--src-type LOCAL",
        "127.0.0.1@eth0 > 10.9.0.1 tcp 1",
        "10.0.0.2@eth0 > 10.9.0.1 tcp 1",
    );
    let rules = |states: &str| {
        let nat = "*nat\n-A PREROUTING -d 10.9.0.1 -p tcp -m tcp --dport 1 -j DNAT --to-destination 10.9.0.2:2\n\
                   -A PREROUTING -d 10.9.0.1 -p tcp -m tcp --dport 3 -j DNAT --to-destination 10.9.0.1:3\nCOMMIT\n";
        let mut ruleset = parse(nat);
        ruleset.restore(&input("filter", &format!("-A FORWARD -m conntrack {states} -j DROP"))).unwrap();
        host_with(ruleset)
    };
    let translated = "10.1.2.3@eth0 > 10.9.0.1 tcp 1";
    let same = "10.1.2.3@eth0 > 10.9.0.1 tcp 3";
    let check = |states: &str, translated_is: &str, same_is: &str| {
        rows::check(&rules(states), &host(), &format!("{translated} = {translated_is}\n{same} = {same_is}"));
    };
    check("--ctstate NEW", "drop", "drop");
    check("--ctstate DNAT", "drop", "10.9.0.1:3");
    check("! --ctstate DNAT", "10.9.0.2:2", "drop");
    check("--ctstate INVALID,RELATED,ESTABLISHED", "10.9.0.2:2", "10.9.0.1:3");
    check("! --ctstate RELATED,ESTABLISHED,DNAT", "10.9.0.2:2", "drop");
    check("! --ctstate RELATED,ESTABLISHED", "drop", "drop");
}

#[test]
fn marks_are_set_and_seen_by_later_hooks() {
    let marks = |change: &str, seen: &str| {
        let mut ruleset = parse(&format!(
            "*mangle\n-A PREROUTING -j MARK --set-xmark 0x5\n-A PREROUTING -j MARK {change}\nCOMMIT\n"
        ));
        ruleset.restore(&input("filter", &format!("-A FORWARD -m mark --mark {seen} -j DROP"))).unwrap();
        rows::check(&host_with(ruleset), &host(), "10.1.2.3@eth0 > 10.9.0.1 tcp 1 = drop");
    };
    marks("--or-mark 0x4002", "0x4007");
    marks("--and-mark 0x4", "0x4");
    marks("--xor-mark 0x4001", "0x4004");
    marks("--set-mark 0x2/0x3", "0x6");
    marks("--set-xmark 0x6/0x1", "0x2");
    marks("--set-xmark 0x4000/0x4000", "0x4000/0x4000");
}

#[test]
fn jumps_gotos_and_returns() {
    let rules = |lines: &str| forward(lines);
    let packet = |lines: &str, answer: &str| {
        rows::check(&rules(lines), &host(), &format!("10.1.2.3@eth0 > 10.9.0.1 tcp 1 = {answer}"));
    };
    packet("-A T -j U\n-A T -j DROP\n-A U -j RETURN\n-A U -j REJECT", "drop");
    packet("-A T -j U\n-A T -j DROP", "drop");
    // After a goto, the end of the chain is that of the one before.
    packet("-A T -g U\n-A T -j DROP", "untouched");
    packet("-A T -g U\n-A T -j DROP\n-A FORWARD -j REJECT", "reject");
    packet("-A T -j ACCEPT\n-A T -j DROP", "untouched");
    packet("-A T\n-A T -m comment --comment x\n-A T -j REJECT", "reject");
    packet(":FORWARD DROP [0:0]\n-A T -j RETURN", "drop");
    packet(":FORWARD DROP [0:0]\n-A T -g U", "drop");
    packet(":FORWARD DROP [0:0]\n-A T -j ACCEPT", "untouched");
}

#[test]
fn chances_are_exact() {
    let nat = |lines: &str| host_with(parse(&input("nat", &format!("-A PREROUTING -j T\n{lines}"))));
    let to = |probability: &str, n: u8| {
        format!("-A T -p tcp {probability} -j DNAT --to-destination 10.9.0.{n}:80\n")
    };
    let random = |p: &str| format!("-m statistic --mode random --probability {p}");
    let mut lines = String::new();
    for n in 1..=7_u8 {
        let p = format!("{:.10}", 1.0 / f64::from(8 - n));
        lines += &to(&if n == 7 { String::new() } else { random(&p) }, n);
    }
    let equal: Vec<String> = (1..=7).map(|n| format!("10.9.0.{n}:80")).collect();
    rows::check(&nat(&lines), &host(), &format!("10.1.2.3@eth0 > 10.8.0.1 tcp 80 = {}", equal.join(" | ")));
    let lines = to(&random("0.75"), 1)
        + &to(&random("! --probability 0.5").replace("--probability !", "!"), 2)
        + &to("", 3);
    rows::check(
        &nat(&lines),
        &host(),
        "10.1.2.3@eth0 > 10.8.0.1 tcp 80 = 10.9.0.1:80*6 | 10.9.0.2:80 | 10.9.0.3:80",
    );
    let lines = to(&random("1"), 1) + &to("", 2);
    rows::check(&nat(&lines), &host(), "10.1.2.3@eth0 > 10.8.0.1 tcp 80 = 10.9.0.1:80");
    let lines = to(&random("0"), 1) + &to("", 2);
    rows::check(&nat(&lines), &host(), "10.1.2.3@eth0 > 10.8.0.1 tcp 80 = 10.9.0.2:80");
}

#[test]
fn what_a_packet_does_not_tell_is_an_error() {
    for condition in ["-p tcp --sport 80", "-m statistic --mode nth --every 2 --packet 0"] {
        let rules = forward(&format!("-A T {condition} -j DROP"));
        let packet = rows::packet("10.1.2.3@eth0 > 10.9.0.1 tcp 80");
        assert!(matches!(rules.walk(&packet, &host()), Err(WalkError::Unknown(_))), "{condition}");
    }
    let rules = forward("-A T -o eth1 -j DROP");
    let packet = rows::packet("10.1.2.3@eth0 > 10.8.0.1 tcp 80");
    assert!(matches!(rules.walk(&packet, &host()), Err(WalkError::NoRoute(_))));
}

#[test]
fn recent_asks_and_records() {
    let mut rules = forward(
        "-A T -m recent --name asked --rcheck --seconds 60 --reap -j DROP
         -A T -m recent --name updated --update -j REJECT
         -A T -m recent --name other ! --rcheck --rdest -m recent --name set --set -p udp -j ACCEPT",
    );
    let client = |n: u8| std::net::IpAddr::from([10, 1, 0, n]);
    rules.add_recent("asked", client(1)).unwrap();
    rules.add_recent("updated", client(2)).unwrap();
    rules.add_recent("other", "10.9.0.2".parse().unwrap()).unwrap();
    rows::check(
        &rules,
        &host(),
        "10.1.0.1@eth0 > 10.9.0.1 tcp 1 = drop
         10.1.0.2@eth0 > 10.9.0.1 tcp 1 = reject
         10.1.0.3@eth0 > 10.9.0.1 tcp 1 = untouched",
    );
    let updates = |row: &str| {
        let walk = rules.walk(&rows::packet(row), &host()).unwrap();
        let [branch] = walk.branches.as_slice() else { panic!("one branch: {walk:?}") };
        branch.affinity_updates.clone()
    };
    assert_eq!(updates("10.1.0.1@eth0 > 10.9.0.1 tcp 1"), []);
    assert_eq!(updates("10.1.0.2@eth0 > 10.9.0.1 tcp 1"), [("updated".into(), client(2))]);
    assert_eq!(updates("10.1.0.3@eth0 > 10.9.0.1 udp 1"), [("set".into(), client(3))]);
    // The protocol is asked first, wherever it was written; a match only after those before it.
    assert_eq!(updates("10.1.0.3@eth0 > 10.9.0.1 tcp 1"), []);
    assert_eq!(updates("10.1.0.3@eth0 > 10.9.0.2 udp 1"), []);
    assert!(rules.add_recent("nobody", client(1)).is_err());
    for n in 2..=u8::try_from(RECENT_ADDRESSES).unwrap() + 1 {
        rules.add_recent("asked", client(n)).unwrap();
    }
    let asked = |n| rules.get(proxier_core::ids::IpFamily::Ipv4).is_recent("asked", client(n));
    assert_eq!([asked(1), asked(2), asked(101)], [false, true, true]);
}

#[test]
fn nat_is_asked_once_on_the_way_over_lo() {
    let rules = host_with(parse(
        "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 10.9.0.1:1\n-A POSTROUTING -j MARK --set-xmark 0x1\nCOMMIT\n\
         *mangle\n-A PREROUTING -i lo -m mark --mark 0x1 -j MARK --set-xmark 0x2\nCOMMIT\n\
         *filter\n-A INPUT -i lo -m mark --mark 0x2 -p tcp -m tcp --dport 7 -j REJECT\nCOMMIT\n",
    ));
    rows::check(
        &rules,
        &host(),
        "10.0.0.1@host > 10.0.0.1 tcp 7 = reject
         10.0.0.1@host > 10.0.0.1 tcp 8 = untouched
         10.1.2.3@eth0 > 10.0.0.1 tcp 7 = 10.9.0.1:1",
    );
}
