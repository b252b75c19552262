//! Any input that is taken is printed so that it is read back as the same.

use proptest::prelude::*;
use proxier_core::ids::IpFamily;
use proxier_testkit::iptables::{self, differences};

use crate::{input, normal};

fn maybe(option: &'static str, value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    proptest::option::of((any::<bool>(), value)).prop_map(move |chosen| match chosen {
        None => String::new(),
        Some((true, value)) => format!("! {option} {value} "),
        Some((false, value)) => format!("{option} {value} "),
    })
}

fn net() -> impl Strategy<Value = String> {
    (any::<[u8; 4]>(), 1..=32_u8).prop_map(|(a, len)| format!("{}/{len}", std::net::Ipv4Addr::from(a)))
}

fn comment() -> impl Strategy<Value = String> {
    "[ -~é]{0,40}".prop_map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn one_match() -> impl Strategy<Value = String> {
    prop_oneof![
        comment().prop_map(|c| format!("-m comment --comment {c} ")),
        (any::<u32>(), any::<u32>()).prop_map(|(v, m)| format!("-m mark --mark {v}/{m:#x} ")),
        (0..=1_000_000_000_u32)
            .prop_map(|p| format!("-m statistic --mode random --probability {:.9} ", f64::from(p) / 1e9)),
        ("[A-Z]{1,9}", 1..99_u32)
            .prop_map(|(n, s)| format!("-m recent --name {n} --rcheck --seconds {s} --reap ")),
        "[A-Z]{1,9}".prop_map(|n| format!("-m recent --set --name {n} ")),
        proptest::sample::subsequence(iptables::CtStates::NAMES.to_vec(), 1..=7)
            .prop_map(|s| format!("-m conntrack ! --ctstate {} ", s.join(","))),
        Just("-m addrtype --dst-type LOCAL ".to_owned()),
        "[a-z]{1,9}".prop_map(|n| format!("-m nfacct --nfacct-name {n} ")),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    let header = (
        maybe("-s", net()),
        maybe("-d", net()),
        maybe("-i", "[a-z]{1,9}[+]?".prop_map(String::from)),
        prop_oneof![
            Just(""),
            Just("-p tcp -m tcp --dport 80 "),
            Just("-p udp --dport 5:9 "),
            Just("-p sctp ")
        ],
    );
    let target = prop_oneof![
        Just("-j ACCEPT"),
        Just("-j RETURN"),
        Just("-j U"),
        Just("-g U"),
        Just("-j MARK --or-mark 0x4000"),
        Just("-j MARK --set-mark 0x1/0x3"),
        Just("-j DNAT --to-destination 10.0.0.1"),
        Just(""),
    ];
    (header, proptest::collection::vec(one_match(), 0..4), target)
        .prop_map(|((s, d, i, p), matches, target)| format!("{s}{d}{i}{p}{}{target}", matches.concat()))
}

proptest! {
    #[test]
    fn printed_and_read_back_it_is_the_same(rules in proptest::collection::vec(rule(), 0..12)) {
        let lines: String = rules.iter().map(|rule| format!("-A T {rule}\n")).collect();
        let first = iptables::parse(IpFamily::Ipv4, &input("nat", &lines)).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let printed = first.print();
        let second = iptables::parse(IpFamily::Ipv4, &printed).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(&second, &first);
        prop_assert_eq!(second.print(), printed);
        prop_assert!(differences(&first, &second).is_empty());
        // Each rule deletes itself, in either spelling.
        let mut emptied = first.clone();
        for rule in &rules {
            emptied.restore(&format!("*nat\n-D T {rule}\nCOMMIT\n")).map_err(|e| TestCaseError::fail(e.to_string()))?;
        }
        prop_assert_eq!(emptied, iptables::parse(IpFamily::Ipv4, &input("nat", "")).map_err(|e| TestCaseError::fail(e.to_string()))?);
    }

    #[test]
    fn no_text_makes_it_panic(
        lines in proptest::collection::vec(
            prop_oneof![
                "[ -~]{0,60}",
                proptest::sample::select(normal::IPV4)
                    .prop_flat_map(|(_, rule, _)| (Just(rule), 0..rule.len()))
                    .prop_map(|(rule, end)| format!("-A T {}", rule.get(..end).unwrap_or_default())),
            ],
            0..6,
        )
    ) {
        let mut ruleset = iptables::Ruleset::new(IpFamily::Ipv4);
        let before = ruleset.clone();
        if ruleset.restore(&input("nat", &lines.join("\n"))).is_err() {
            prop_assert_eq!(ruleset, before);
        }
    }
}
