//! What is refused, where, and what stays. The same lines are put to the real tools in `kernel.rs`.

use proxier_core::ids::IpFamily;
use proxier_testkit::iptables::{self, Cause, Ruleset, TableName};

use crate::input;

/// Table, lines, the line that is refused (of these), exit code of the nft variant. Each is refused by at least one of the variants.
pub(crate) const REFUSED: &[(&str, &str, usize, i32)] = &[
    // Names.
    ("filter", "-A T -j NOPE", 1, 2),
    ("filter", "-A T -g NOPE", 1, 2),
    ("filter", "-A NOPE -j ACCEPT", 1, 1),
    ("filter", "-A T -j V\n:V - [0:0]", 1, 2),
    ("filter", ":ABCDEFGHIJKLMNOPQRSTUVWXYZ012 - [0:0]", 1, 2),
    ("filter", "-N ABCDEFGHIJKLMNOPQRSTUVWXYZ012", 1, 2),
    ("filter", "-A T -j ABCDEFGHIJKLMNOPQRSTUVWXYZ012", 1, 2),
    ("filter", "-N -foo", 1, 2),
    ("filter", "-N DROP", 1, 2),
    ("filter", "-N T", 1, 1),
    ("filter", ":V", 1, 2),
    ("filter", ":V ACCEPT [0:0]", 1, 1),
    ("filter", "-P T DROP", 1, 1),
    // Rules that are not there.
    ("filter", "-A T -j ACCEPT\n-D T -j DROP", 2, 1),
    ("filter", "-A T -g U\n-D T -j U", 2, 1),
    (
        "filter",
        "-A T -m comment --comment x -p tcp -m tcp --dport 80\n-D T -p tcp -m tcp --dport 80 -m comment --comment x",
        2,
        1,
    ),
    ("filter", "-D NOPE -j ACCEPT", 1, 1),
    ("filter", "-A T -j ACCEPT\n-D T 2", 2, 1),
    ("filter", "-D T 0", 1, 2),
    ("filter", "-I T 3 -j DROP", 1, 1),
    ("filter", "-I T 0 -j DROP", 1, 2),
    ("filter", "-R T 1 -j DROP", 1, 1),
    ("filter", "-C T -j ACCEPT", 1, 1),
    ("filter", "-F NOPE", 1, 1),
    // Chains that cannot go.
    ("filter", "-X NOPE", 1, 1),
    ("filter", "-A T -j U\n-X U", 2, 4),
    ("filter", "-A T -g U\n-X U", 2, 4),
    ("filter", "-A U -j ACCEPT\n-X U", 2, 4),
    ("filter", "-A U -j T\n-X T\n-F U", 2, 4),
    ("filter", "-X INPUT", 1, 1),
    ("filter", "-X T\n-A U -j T", 2, 2),
    // Words and options.
    ("filter", "-A T -j ACCEPT extra", 1, 2),
    ("filter", "-A T -j ACCEPT --bogus", 1, 2),
    ("filter", "-A T --dport 80 -j ACCEPT", 1, 2),
    ("filter", "-A T -m nosuchmatch -j ACCEPT", 1, 2),
    ("filter", "-A T -j ACCEPT -j DROP", 1, 2),
    ("filter", "-A T -s 1.2.3.4 -s 1.2.3.5", 1, 2),
    ("filter", "-A T ! -m mark --mark 1", 1, 2),
    ("filter", "-A T -m comment --comment a\"b\"c", 1, 2),
    ("filter", "-A T -m comment --comment 'a b'", 1, 2),
    ("filter", "-A", 1, 2),
    ("filter", "-F T U", 1, 2),
    ("filter", "foo", 1, 2),
    ("filter", "   ", 1, 2),
    ("filter", "*nat", 1, 2),
    ("filter", "-A T -m comment -j ACCEPT", 1, 2),
    ("filter", "-A T -m conntrack -j ACCEPT", 1, 2),
    ("filter", "-A T -m mark -j ACCEPT", 1, 2),
    ("filter", "-A T -m addrtype -j ACCEPT", 1, 2),
    ("filter", "-A T -m recent --name A", 1, 2),
    ("filter", "-A T -m statistic --mode random", 1, 2),
    ("filter", "-A T -m statistic --probability 0.5", 1, 2),
    ("filter", "-A T -m statistic --mode nth --every 3", 1, 2),
    ("filter", "-A T -m nfacct", 1, 2),
    ("filter", "-A T -j MARK", 1, 2),
    // Values.
    ("filter", "-A T -s 1.2.3.4/33", 1, 2),
    ("filter", "-A T -s fd00::1", 1, 2),
    ("filter", "-A T ! -s 0.0.0.0/0", 1, 2),
    ("filter", "-A T -i abcdefghijklmnopq", 1, 2),
    ("filter", "-A T -i \"\"", 1, 2),
    ("filter", "-A T -p foo", 1, 2),
    ("filter", "-A T -p tcp --dport 80000", 1, 2),
    ("filter", "-A T -p tcp --dport 5:1", 1, 2),
    ("filter", "-A T -p tcp --dport x", 1, 2),
    ("filter", "-A T -p tcp --dport 1 --dport 2", 1, 2),
    ("filter", "-A T -p udp -m tcp --dport 80", 1, 2),
    ("filter", "-A T -m tcp --dport 80", 1, 2),
    ("filter", "-A T ! -p tcp -m tcp --dport 80", 1, 2),
    ("filter", "-A T -m statistic --mode random --probability 1.5", 1, 2),
    ("filter", "-A T -m statistic --mode random --probability x", 1, 2),
    ("filter", "-A T -m statistic --mode nth --every 3 --packet 3", 1, 2),
    ("filter", "-A T -m recent --name A --set --rcheck", 1, 2),
    ("filter", "-A T -m recent --name A --rcheck --reap", 1, 2),
    ("filter", "-A T -m recent --name A --rcheck --seconds 0", 1, 2),
    ("filter", "-A T -m recent --name A --set --seconds 5", 1, 2),
    ("filter", "-A T -m recent --name A/B --set", 1, 2),
    ("filter", "-A T -m mark --mark zz", 1, 2),
    ("filter", "-A T -m mark --mark 0x4000/", 1, 2),
    ("filter", "-A T -m mark --mark 0x1ffffffff", 1, 2),
    ("filter", "-A T -m addrtype --src-type FOO", 1, 2),
    ("filter", "-A T -m conntrack --ctstate FOO", 1, 2),
    ("filter", "-A T -m conntrack --ctstate NEW,", 1, 2),
    ("filter", "-A T -j REJECT --reject-with foo", 1, 2),
    ("filter", "-A T -p udp -j REJECT --reject-with tcp-reset", 1, 2),
    ("filter", "-A T -j MARK --set-mark 1 --or-mark 2", 1, 2),
    ("nat", "-A T -j DNAT --to-destination 1.2.3.4:80", 1, 2),
    ("nat", "-A T -p tcp -j DNAT --to-destination 1.2.3.4:99999", 1, 2),
    ("nat", "-A T -p tcp -j DNAT --to-destination [1.2.3.4]:80", 1, 2),
    ("nat", "-A T -p tcp -j DNAT", 1, 2),
    // Places.
    ("filter", "-A T -j MASQUERADE", 1, 4),
    ("filter", "-A T -p tcp -j DNAT --to-destination 1.2.3.4:80", 1, 4),
    ("nat", "-A T -j REJECT", 1, 4),
    ("nat", "-A T -j DROP", 1, 4),
    ("filter", "-A INPUT -j INPUT", 1, 4),
    ("filter", "-A T -j INPUT", 1, 4),
    ("filter", "-A INPUT -o eth0", 1, 2),
    ("filter", "-A OUTPUT -i eth0", 1, 2),
    ("nat", "-A T -p tcp -j DNAT --to-destination 1.2.3.4:80\n-A POSTROUTING -j T", 3, 4),
    ("nat", "-A T -j MASQUERADE\n-A PREROUTING -j T", 3, 4),
    ("filter", "-A T -j U\n-A U -j T\n-A INPUT -j T", 4, 4),
];

/// What both variants take.
pub(crate) const TAKEN: &[(&str, &str)] = &[
    ("filter", ":ABCDEFGHIJKLMNOPQRSTUVWXYZ01 - [0:0]"),
    ("filter", "-A T -j U\n-A U -j T"),
    ("filter", "-A T -j T"),
    ("filter", "-A U -j T\n-F U\n-X T"),
    ("filter", "-X T\n:T - [0:0]\n-A T -j ACCEPT"),
    ("filter", "-X U"),
    ("filter", "-X"),
    ("filter", "-F"),
    ("filter", "-N V\n-A V -j ACCEPT"),
    ("filter", ":V - [0:0]\n:V -"),
    ("filter", ":INPUT - [0:0]\n:FORWARD DROP\n-P OUTPUT DROP"),
    ("filter", "# a comment\n\n -A T -j ACCEPT\n[1:2] -A T -j DROP\n-A T -c 5 6 -j RETURN"),
    ("filter", "-A T -j ACCEPT\n-C T -j ACCEPT"),
    ("nat", "-A T -p tcp -j DNAT --to-destination 1.2.3.4:80\n-A OUTPUT -j T\n-A PREROUTING -j T"),
    ("nat", "-A T -j MASQUERADE\n-A POSTROUTING -j T"),
];

/// What is before the lines: the table and two chains.
const BEFORE: usize = 3;

#[test]
fn refused_lines() {
    let base = Ruleset::new(IpFamily::Ipv4);
    for (table, lines, line, exit_code) in REFUSED {
        let mut ruleset = base.clone();
        let error = ruleset.restore(&input(table, lines)).expect_err(lines);
        assert_eq!((error.line, error.cause.exit_code()), (line + BEFORE, *exit_code), "{lines}: {error}");
        assert!(!matches!(error.cause, Cause::OutsideTable | Cause::CommitExpected), "{lines}: {error}");
        assert_eq!(ruleset, base, "{lines}");
    }
}

#[test]
fn taken_lines() {
    for (table, lines) in TAKEN {
        iptables::parse(IpFamily::Ipv4, &input(table, lines)).unwrap_or_else(|e| panic!("{lines}: {e}"));
    }
}

#[test]
fn each_table_is_committed_for_itself() {
    let mut ruleset = Ruleset::new(IpFamily::Ipv4);
    let error = ruleset
        .restore("*filter\n:F - [0:0]\nCOMMIT\n*nat\n:N - [0:0]\n-A NOPE -j ACCEPT\nCOMMIT\n*mangle\n:M - [0:0]\nCOMMIT\n")
        .unwrap_err();
    assert_eq!((error.line, error.cause), (6, Cause::NoChain("NOPE".into())));
    assert!(ruleset.table(TableName::Filter).unwrap().chain("F").is_some());
    assert!(ruleset.table(TableName::Nat).is_none() && ruleset.table(TableName::Mangle).is_none());
    // A table that was there keeps what it had.
    ruleset.restore("*nat\n:N - [0:0]\n-A N -j RETURN\nCOMMIT\n").unwrap();
    let before = ruleset.clone();
    ruleset.restore("*nat\n-F N\n-A N -j NOPE\nCOMMIT\n").unwrap_err();
    assert_eq!(ruleset, before);
}

#[test]
fn sections_begin_and_end() {
    let cause = |text: &str| {
        let error = iptables::parse(IpFamily::Ipv4, text).expect_err(text);
        (error.line, error.cause)
    };
    assert_eq!(cause("*filter\n:Q - [0:0]\n"), (3, Cause::CommitExpected));
    assert_eq!(cause("-A INPUT -j ACCEPT\n"), (1, Cause::OutsideTable));
    assert_eq!(cause("\nCOMMIT\n"), (2, Cause::OutsideTable));
    assert_eq!(cause("*nope\nCOMMIT\n"), (1, Cause::NoTable("nope".into())));
    assert_eq!(cause("*nat\nCOMMIT x\n"), (2, Cause::BadArgument("COMMIT".into())));
}

#[test]
fn counters_that_are_not_there() {
    let text = input("filter", "-A T -m nfacct --nfacct-name lost -j DROP");
    assert!(iptables::parse(IpFamily::Ipv4, &text).is_ok());
    let mut some = Ruleset::new(IpFamily::Ipv4).with_counters(["dropped"]);
    assert_eq!(some.restore(&text).unwrap_err().cause, Cause::NoCounter("lost".into()));
    some.restore(&text.replace("lost", "dropped")).unwrap();
}

#[test]
fn what_the_model_does_not_know_is_told() {
    for lines in [
        "-A T -s 1.2.3.4,1.2.3.5",
        "-A T -m addrtype --src-type BROADCAST",
        "-A T -m recent --set --name A --mask 255.255.255.0",
        "-A T -j QUEUE",
        "-A T ! -i +",
        "-E T V",
        "-A T -j ACCEPT\n-Z",
    ] {
        let error = iptables::parse(IpFamily::Ipv4, &input("filter", lines)).expect_err(lines);
        assert!(matches!(error.cause, Cause::Unsupported(_)), "{error}");
    }
    assert!(iptables::parse(IpFamily::Ipv4, &input("filter", "-A T -m multiport")).is_err());
}

#[test]
fn chains_may_be_deep_but_not_too_deep() {
    let chain = |levels: usize| {
        let mut lines = "-A INPUT -j C1\n".to_owned();
        let mut names = String::new();
        for n in 1..=levels {
            names += &format!(":C{n} - [0:0]\n");
            if n < levels {
                lines += &format!("-A C{n} -j C{}\n", n + 1);
            }
        }
        iptables::parse(IpFamily::Ipv4, &format!("*filter\n{names}{lines}COMMIT\n")).map_err(|e| e.cause)
    };
    assert!(chain(15).is_ok());
    assert_eq!(chain(16), Err(Cause::TooDeep("C16".into())));
}
