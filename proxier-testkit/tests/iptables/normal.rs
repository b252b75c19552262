//! The one form of each rule. The same rows are put to the real tools in `kernel.rs`.

use proxier_core::ids::IpFamily;
use proxier_testkit::iptables;

use crate::input;

/// Table, a rule, and how `iptables-save` prints it: what both variants of iptables 1.8.9 print.
pub(crate) const IPV4: &[(&str, &str, &str)] = &[
    (
        "filter",
        "-m comment --comment \"a b\" -m tcp -p tcp -d 10.0.0.1 --dport 80 -j REJECT",
        "-d 10.0.0.1/32 -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable",
    ),
    ("filter", "-m comment --comment \"a \\\" \\\\ ' b\"", "-m comment --comment \"a \\\" \\\\ \\' b\""),
    ("filter", "-m comment --comment plain_-1 -j ACCEPT", "-m comment --comment plain_-1 -j ACCEPT"),
    ("filter", "-m comment --comment a/b:c", "-m comment --comment \"a/b:c\""),
    ("filter", "-m comment --comment \"\" -j ACCEPT", "-m comment --comment \"\" -j ACCEPT"),
    ("filter", "-p 6 -j DROP", "-p tcp -j DROP"),
    ("filter", "-p all -s 0.0.0.0/0 -i + -j DROP", "-j DROP"),
    ("filter", "-p 200", "-p 200"),
    ("filter", "-d 10.1.2.3/255.255.0.0", "-d 10.1.0.0/16"),
    (
        "filter",
        "! -s 1.2.3.4 ! -d 4.3.2.1/8 ! -i eth0 ! -p tcp -j U",
        "! -s 1.2.3.4/32 ! -d 4.0.0.0/8 ! -i eth0 ! -p tcp -j U",
    ),
    ("filter", "-i veth+ ! -o eth0 -g U", "-i veth+ ! -o eth0 -g U"),
    ("filter", "-j U -p tcp -m tcp --dport 3", "-p tcp -m tcp --dport 3 -j U"),
    ("filter", "-p tcp -m comment --comment x --dport 3", "-p tcp -m comment --comment x -m tcp --dport 3"),
    (
        "filter",
        "-m tcp -p tcp -m comment --comment x --dport 3",
        "-p tcp -m tcp --dport 3 -m comment --comment x",
    ),
    (
        "filter",
        "-p tcp --sport 1:5 --dport 80: -j RETURN",
        "-p tcp -m tcp --sport 1:5 --dport 80:65535 -j RETURN",
    ),
    ("filter", "-p udp -m udp ! --dport 1:1", "-p udp -m udp ! --dport 1"),
    ("filter", "-p sctp -m sctp --dport 0:65535", "-p sctp -m sctp --dport 0:65535"),
    ("filter", "-p udp -m udp --dport 0:65535", "-p udp -m udp"),
    ("filter", "-p tcp -j REJECT --reject-with tcp-reset", "-p tcp -j REJECT --reject-with tcp-reset"),
    (
        "filter",
        "-m conntrack --ctstate ESTABLISHED,new,RELATED",
        "-m conntrack --ctstate NEW,RELATED,ESTABLISHED",
    ),
    (
        "filter",
        "-m conntrack ! --ctstate DNAT,UNTRACKED,INVALID,SNAT",
        "-m conntrack ! --ctstate INVALID,UNTRACKED,SNAT,DNAT",
    ),
    ("filter", "-m mark --mark 010/0xf", "-m mark --mark 0x8/0xf"),
    (
        "filter",
        "-m mark ! --mark 0x00004000/0x00004000 -j RETURN",
        "-m mark ! --mark 0x4000/0x4000 -j RETURN",
    ),
    ("filter", "-m mark --mark 0x0/0xffffffff", "-m mark --mark 0x0"),
    (
        "filter",
        "-m addrtype --dst-type local,UNICAST ! --src-type LOCAL",
        "-m addrtype ! --src-type LOCAL --dst-type UNICAST,LOCAL",
    ),
    (
        "filter",
        "-m statistic --mode random --probability 0.3333333333",
        "-m statistic --mode random --probability 0.33333333349",
    ),
    (
        "filter",
        "-m statistic --mode random ! --probability 0.1428571429",
        "-m statistic --mode random ! --probability 0.14285714272",
    ),
    (
        "filter",
        "-m statistic --mode random --probability 0.0000099999",
        "-m statistic --mode random --probability 0.00001000008",
    ),
    (
        "filter",
        "-m statistic --mode random --probability 1",
        "-m statistic --mode random --probability 1.00000000000",
    ),
    (
        "filter",
        "-m statistic --mode nth ! --every 3 --packet 0",
        "-m statistic --mode nth ! --every 3 --packet 0",
    ),
    (
        "filter",
        "-m recent --name A --rcheck --seconds 60 --reap -j U",
        "-m recent --rcheck --seconds 60 --reap --name A --mask 255.255.255.255 --rsource -j U",
    ),
    ("filter", "-m recent --set", "-m recent --set --name DEFAULT --mask 255.255.255.255 --rsource"),
    (
        "filter",
        "-m recent ! --update --name A --rdest",
        "-m recent ! --update --name A --mask 255.255.255.255 --rdest",
    ),
    ("nat", "-j MARK --set-mark 0x4000", "-j MARK --set-xmark 0x4000/0xffffffff"),
    ("nat", "-j MARK --set-mark 0x4000/0x1", "-j MARK --set-xmark 0x4000/0x4001"),
    ("nat", "-j MARK --or-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x4000"),
    ("nat", "-j MARK --and-mark 0xffff", "-j MARK --set-xmark 0x0/0xffff0000"),
    ("nat", "-j MARK --xor-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x0"),
    ("nat", "-j MASQUERADE --random-fully", "-j MASQUERADE --random-fully"),
    ("nat", "-p tcp -j DNAT --to-destination 10.0.0.1:80", "-p tcp -j DNAT --to-destination 10.0.0.1:80"),
    ("nat", "-j DNAT --to-destination 10.0.0.1", "-j DNAT --to-destination 10.0.0.1"),
    (
        "filter",
        "--source 1.2.3.4 --protocol udp --match udp --destination-port 5 --jump ACCEPT",
        "-s 1.2.3.4/32 -p udp -m udp --dport 5 -j ACCEPT",
    ),
];

/// The same for IPv6.
pub(crate) const IPV6: &[(&str, &str, &str)] = &[
    (
        "filter",
        "-p icmpv6 -s fd00::1 ! -d fd00:1::7/64 -j REJECT",
        "-s fd00::1/128 ! -d fd00:1::/64 -p ipv6-icmp -j REJECT --reject-with icmp6-port-unreachable",
    ),
    (
        "filter",
        "-s ::/0 -m recent --name X --set",
        "-m recent --set --name X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource",
    ),
    ("filter", "-d ::ffff:1.2.3.4 -j DROP", "-d ::ffff:1.2.3.4/128 -j DROP"),
    ("nat", "-p tcp -j DNAT --to-destination [fd00::1]:80", "-p tcp -j DNAT --to-destination [fd00::1]:80"),
    ("nat", "-p tcp -j DNAT --to-destination [fd00::1]", "-p tcp -j DNAT --to-destination fd00::1"),
];

#[test]
fn rules_are_printed_as_by_the_tool() {
    for (family, rows) in [(IpFamily::Ipv4, IPV4), (IpFamily::Ipv6, IPV6)] {
        for (table, rule, normal) in rows {
            let text = input(table, &format!("-A T {rule}"));
            let mut ruleset = iptables::parse(family, &text).unwrap_or_else(|e| panic!("{rule}: {e}"));
            let printed = ruleset.print();
            let found = printed.lines().find_map(|line| line.strip_prefix("-A T "));
            assert_eq!(found, Some(*normal), "{rule}");
            // Either spelling deletes the rule.
            let empty = input(table, "");
            for delete in [rule, normal] {
                let mut ruleset = ruleset.clone();
                ruleset
                    .restore(&format!("*{table}\n-D T {delete}\nCOMMIT\n"))
                    .unwrap_or_else(|e| panic!("{rule}: {e}"));
                assert_eq!(ruleset, iptables::parse(family, &empty).unwrap(), "{rule}");
            }
            // Twice over it is still the same.
            ruleset.restore(&text).unwrap();
            assert_eq!(ruleset.print(), printed);
        }
    }
}

#[test]
fn long_texts_are_cut_as_by_the_kernel() {
    let long = "x".repeat(300);
    let text =
        input("filter", &format!("-A T -m comment --comment {long}\n-A U -m recent --set --name {long}"));
    let printed = iptables::parse(IpFamily::Ipv4, &text).unwrap().print();
    assert!(printed.contains(&format!("-A T -m comment --comment {}\n", "x".repeat(255))));
    assert!(printed.contains(&format!("-A U -m recent --set --name {} --mask", "x".repeat(199))));
}

#[test]
fn inserted_replaced_and_deleted_by_number() {
    let lines =
        "-A T -j ACCEPT\n-I T -j U\n-I T 2 -j DROP\n-R T 3 -j RETURN\n-D T 1\n-A T -j DROP\n-D T -j DROP";
    let printed = iptables::parse(IpFamily::Ipv4, &input("filter", lines)).unwrap().print();
    let rules: Vec<&str> = printed.lines().filter(|line| line.starts_with("-A")).collect();
    assert_eq!(rules, ["-A T -j RETURN", "-A T -j DROP"]);
}
