//! A table in which every kind of object, statement, field, key and value occurs, in each family.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Port, Protocol};

use crate::objects::*;

/// Builds values of one family.
pub(super) struct Sample {
    pub(super) family: IpFamily,
}

pub(super) fn name(text: &str) -> Name {
    text.into()
}

pub(super) fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn jump(chain: &str) -> Stmt {
    Stmt::Verdict(Verdict::Jump(name(chain)))
}

fn goto(chain: &str) -> Stmt {
    Stmt::Verdict(Verdict::Goto(name(chain)))
}

pub(super) fn rule(stmts: impl IntoIterator<Item = Stmt>) -> Rule {
    Rule { stmts: stmts.into_iter().collect(), comment: None }
}

const ACCEPT: Stmt = Stmt::Verdict(Verdict::Accept);
const DROP: Stmt = Stmt::Verdict(Verdict::Drop);

impl Sample {
    pub(super) fn table(&self) -> Table {
        Table { family: self.family, name: name("kube-proxy") }
    }

    pub(super) fn addr(&self, last: u8) -> IpAddr {
        match self.family {
            IpFamily::Ipv4 => IpAddr::from([10, 96, 0, last]),
            IpFamily::Ipv6 => format!("fd96::{last:x}").parse().unwrap(),
        }
    }

    /// A network: of these texts the family's.
    pub(super) fn net(&self, v4: &str, v6: &str) -> IpNet {
        match self.family {
            IpFamily::Ipv4 => v4.parse().unwrap(),
            IpFamily::Ipv6 => v6.parse().unwrap(),
        }
    }

    fn set(text: &str, key: &[Field], data: Data) -> Set {
        Set { name: name(text), key: key.to_vec(), data, size: None, timeout: None, comment: None }
    }

    pub(super) fn sets() -> Vec<Set> {
        use Field::{Addr, Index, Proto, Service};
        let endpoint = Data::Fields(vec![Addr, Service]);
        let full = Set {
            size: Some(65_536),
            comment: Some(name("ClusterIP traffic")),
            ..Self::set("service-ips", &[Addr, Proto, Service], Data::Verdict)
        };
        let eps = Set {
            size: Some(65_536),
            comment: Some(name("endpoints, by address")),
            ..Self::set("cluster-endpoints", &[Addr, Proto, Service, Index], endpoint.clone())
        };
        let affinity = Set {
            timeout: Some(10_800),
            ..Self::set("affinity-P3OU6RQT-web/sticky/tcp/__10.244.0.21/8443", &[Addr], Data::None)
        };
        vec![
            Set { comment: Some(name("Active ClusterIPs")), ..Self::set("cluster-ips", &[Addr], Data::None) },
            Self::set("health-check-ports", &[Service], Data::None),
            Set {
                size: Some(1024),
                ..Self::set("hairpin-connections", &[Addr, Addr, Proto, Service], Data::None)
            },
            full,
            Self::set("service-nodeports", &[Proto, Service], Data::Verdict),
            eps,
            Self::set("nodeport-endpoints", &[Proto, Service, Index], endpoint.clone()),
            Self::set("plain-endpoints", &[Addr, Proto, Service], endpoint),
            affinity,
        ]
    }

    pub(super) fn chains() -> Vec<Chain> {
        let base = |text: &str, kind, hook, priority| Chain {
            name: name(text),
            base: Some(Base { kind, hook, priority }),
            comment: None,
        };
        let plain = |text: &str| Chain { name: name(text), base: None, comment: None };
        let both = base("filter-forward", ChainType::Filter, Hook::Forward, 0);
        vec![
            base("filter-prerouting-pre-dnat", ChainType::Filter, Hook::Prerouting, -110),
            base("filter-input", ChainType::Filter, Hook::Input, 0),
            Chain { comment: Some(name("with a comment")), ..both },
            base("nat-prerouting", ChainType::Nat, Hook::Prerouting, -100),
            base("nat-output", ChainType::Nat, Hook::Output, -100),
            base("nat-postrouting", ChainType::Nat, Hook::Postrouting, 100),
            Chain { comment: Some(name("helper for @no-endpoint-services")), ..plain("reject-chain") },
            plain("services"),
            plain("cluster-2"),
            plain("external-PLVUX2VM-web/frontend/tcp/http"),
            plain("checks"),
            plain("masquerading"),
            plain("mark-it"),
            plain("endpoint-a"),
            plain("endpoint-b"),
        ]
    }

    pub(super) fn elements(&self) -> Vec<(Name, Vec<Element>)> {
        use Protocol::{Sctp, Tcp, Udp};
        let goto = |chain: &str| Value::Verdict(Verdict::Goto(name(chain)));
        let plain = |key, value| Element { key, value, comment: None };
        let commented = |key, value| Element { key, value, comment: Some(name("kube-system/dns:dns")) };
        let (a, b) = (self.addr(10), self.addr(11));
        let to = |last, number| Value::Endpoint(self.addr(last), port(number));
        let of = |set: &str, elements: Vec<Element>| (name(set), elements);
        vec![
            of("cluster-ips", vec![plain(Key::Addr(a), Value::None), commented(Key::Addr(b), Value::None)]),
            of("health-check-ports", vec![plain(Key::Port(port(31_000)), Value::None)]),
            of("hairpin-connections", vec![plain(Key::Hairpin(a, Sctp, port(2905)), Value::None)]),
            of(
                "service-ips",
                vec![
                    commented(Key::AddrPort(a, Udp, port(53)), goto("cluster-2")),
                    plain(Key::AddrPort(b, Tcp, port(443)), Value::Verdict(Verdict::Drop)),
                    plain(Key::AddrPort(b, Tcp, port(80)), Value::Verdict(Verdict::Accept)),
                    plain(Key::AddrPort(b, Tcp, port(81)), Value::Verdict(Verdict::Jump(name("mark-it")))),
                ],
            ),
            of("service-nodeports", vec![plain(Key::ProtoPort(Tcp, port(30_080)), goto("cluster-2"))]),
            of(
                "cluster-endpoints",
                vec![
                    plain(Key::AddrPortIndex(a, Udp, port(53), 0), to(20, 53)),
                    plain(Key::AddrPortIndex(a, Udp, port(53), 1), to(21, 5353)),
                    plain(Key::AddrPortIndex(a, Udp, port(53), 70_000), to(22, 5353)),
                ],
            ),
            of("nodeport-endpoints", vec![plain(Key::ProtoPortIndex(Tcp, port(30_080), 1), to(23, 8080))]),
            of("plain-endpoints", vec![plain(Key::AddrPort(a, Tcp, port(1)), to(24, 65_535))]),
        ]
    }

    /// Rules with the chain that they are legal in.
    pub(super) fn rules(&self) -> Vec<(Name, Rule)> {
        let mut out = Vec::new();
        let mut to = |chain: &str, rules: Vec<Rule>| {
            out.extend(rules.into_iter().map(|rule| (name(chain), rule)));
        };
        to(
            "filter-input",
            vec![
                rule([Stmt::CtState(CtState::New), jump("checks")]),
                rule([Stmt::CtState(CtState::Invalid), DROP]),
                rule([
                    Stmt::L4Proto(Protocol::Tcp),
                    Stmt::InSet { selectors: vec![Selector::DestPort], set: name("health-check-ports") },
                    ACCEPT,
                ]),
            ],
        );
        to("checks", self.address_rules());
        to("checks", self.interface_and_set_rules());
        to("reject-chain", vec![rule([Stmt::L4Proto(Protocol::Tcp), Stmt::Reset]), rule([Stmt::Reject])]);
        to("nat-prerouting", vec![rule([jump("services")])]);
        to("nat-postrouting", vec![rule([jump("masquerading")])]);
        to(
            "mark-it",
            vec![
                Rule { comment: Some(name("masquerade it's \\ all")), ..rule([Stmt::OrMark(0x4000)]) },
                rule([Stmt::FibLocal(Selector::SourceAddr), Stmt::OrMark(0x8000_0001)]),
            ],
        );
        to(
            "masquerading",
            vec![
                rule([Stmt::MarkSet(0x4000), Stmt::XorMark(0x4000), Stmt::Masquerade]),
                rule([
                    Stmt::CtStatusDnat,
                    Stmt::InSet {
                        selectors: vec![
                            Selector::SourceAddr,
                            Selector::DestAddr,
                            Selector::L4Proto,
                            Selector::DestPort,
                        ],
                        set: name("hairpin-connections"),
                    },
                    Stmt::Masquerade,
                ]),
            ],
        );
        to("services", self.dispatch_rules());
        to("cluster-2", self.dnat_rules());
        out
    }

    fn address_rules(&self) -> Vec<Rule> {
        let is = |negated, v4, v6| {
            let cidr = self.net(v4, v6);
            rule([Stmt::Addr { selector: Selector::SourceAddr, negated, cidr }, DROP])
        };
        let within = |negated, nets: &[(&str, &str)]| {
            let cidrs = nets.iter().map(|(v4, v6)| self.net(v4, v6)).collect();
            rule([Stmt::AddrIn { selector: Selector::DestAddr, negated, cidrs }, DROP])
        };
        vec![
            is(false, "10.244.0.0/16", "fd00:10:244::/48"),
            is(true, "10.244.0.0/16", "fd00:10:244::/48"),
            is(false, "10.128.0.0/9", "fd00::/9"),
            is(true, "192.168.7.0/25", "fd00:1234:5678:9abc:8000::/65"),
            is(false, "10.0.0.1/32", "fd00::1/128"),
            is(true, "127.0.0.0/8", "::1/128"),
            is(false, "0.0.0.0/0", "::/0"),
            within(false, &[("10.0.0.1/32", "fd00::1/128"), ("10.0.0.3/32", "fd00::3/128")]),
            within(
                true,
                &[("10.0.1.0/24", "fd01::/16"), ("10.0.2.0/24", "fd02::/16"), ("192.0.2.0/24", "fd10::/16")],
            ),
            within(
                true,
                &[
                    ("192.168.0.0/16", "fd00::/16"),
                    ("198.51.100.20/32", "fd10::1/128"),
                    ("255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
                ],
            ),
            within(false, &[("0.0.0.0/1", "::/1"), ("224.0.0.0/3", "e000::/3")]),
        ]
    }

    fn interface_and_set_rules(&self) -> Vec<Rule> {
        let iif = |negated, text: &str, prefix| {
            rule([Stmt::IifName { negated, name: name(text), prefix }, goto("mark-it")])
        };
        let in_set =
            |selectors: &[Selector], set: &str| Stmt::InSet { selectors: selectors.to_vec(), set: name(set) };
        vec![
            iif(false, "cni0", false),
            iif(true, "abcdefghijklmno", false),
            iif(false, "veth", true),
            iif(true, "abcdefghijklmn", true),
            iif(false, "tcp", false),
            iif(false, "odd*", false),
            rule([Stmt::L4Proto(Protocol::Tcp), in_set(&[Selector::DestAddr], "cluster-ips"), Stmt::Reset]),
            rule([in_set(&[Selector::DestAddr], "cluster-ips"), Stmt::Reject]),
            rule([in_set(&[Selector::SourceAddr], "cluster-ips"), ACCEPT]),
        ]
    }

    fn dispatch_rules(&self) -> Vec<Rule> {
        let vmap =
            |selectors: &[Selector], map: &str| Stmt::Vmap { selectors: selectors.to_vec(), map: name(map) };
        let full = [Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
        vec![
            rule([vmap(&full, "service-ips")]),
            rule([
                Stmt::FibLocal(Selector::DestAddr),
                Stmt::Addr {
                    selector: Selector::DestAddr,
                    negated: true,
                    cidr: self.net("127.0.0.0/8", "::1/128"),
                },
                vmap(&full[1..], "service-nodeports"),
            ]),
        ]
    }

    fn dnat_rules(&self) -> Vec<Rule> {
        let affinity = name("affinity-P3OU6RQT-web/sticky/tcp/__10.244.0.21/8443");
        let full = vec![Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
        vec![
            rule([
                Stmt::InSet { selectors: vec![Selector::SourceAddr], set: affinity.clone() },
                goto("endpoint-a"),
            ]),
            rule([Stmt::UpdateSource(affinity)]),
            rule([Stmt::DnatMap {
                selectors: full.clone(),
                modulus: 3,
                offset: 196_608,
                map: name("cluster-endpoints"),
            }]),
            rule([Stmt::DnatMap {
                selectors: full[1..].to_vec(),
                modulus: 1000,
                offset: 0,
                map: name("nodeport-endpoints"),
            }]),
            rule([
                Stmt::L4Proto(Protocol::Tcp),
                Stmt::DnatRandom(vec![(self.addr(1), port(80)), (self.addr(2), port(8080))]),
            ]),
            rule([Stmt::L4Proto(Protocol::Udp), Stmt::DnatRandom(vec![(self.addr(1), port(53))])]),
            rule([Stmt::L4Proto(Protocol::Sctp), Stmt::Dnat(self.addr(1), port(2905))]),
            rule([Stmt::GotoRandom(vec![name("endpoint-b"), name("endpoint-a"), name("endpoint-b")])]),
            rule([Stmt::GotoRandom(vec![name("endpoint-a")])]),
        ]
    }

    /// Everything in one transaction.
    pub(super) fn ops(&self) -> Vec<Op> {
        let mut ops = vec![Op::AddTable];
        ops.extend(Self::chains().into_iter().map(Op::AddChain));
        ops.extend(Self::sets().into_iter().map(Op::AddSet));
        ops.extend(self.elements().into_iter().map(|(set, elements)| Op::AddElements(set, elements)));
        ops.extend(self.rules().into_iter().map(|(chain, rule)| Op::AddRule(chain, rule)));
        ops
    }

    /// What must be observed after [`Sample::ops`].
    pub(super) fn expected(&self) -> Observed {
        let mut out = Observed { exists: true, chains: BTreeMap::new(), sets: BTreeMap::new() };
        for chain in Self::chains() {
            out.chains.insert(chain.name.clone(), (chain, Vec::new()));
        }
        for set in Self::sets() {
            out.sets.insert(set.name.clone(), (set, Vec::new()));
        }
        for (chain, rule) in self.rules() {
            out.chains.get_mut(&chain).unwrap().1.push(ObservedRule::Known(rule));
        }
        for (set, elements) in self.elements() {
            out.sets.get_mut(&set).unwrap().1.extend(elements.into_iter().map(ObservedElement::Known));
        }
        sorted(out)
    }
}

/// Elements in an order that can be compared.
pub(super) fn sorted(mut observed: Observed) -> Observed {
    for (_, elements) in observed.sets.values_mut() {
        elements.sort();
    }
    observed
}
