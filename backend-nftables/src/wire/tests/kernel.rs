//! The codec against the kernel and nft 1.0.6, each writer in a network namespace of its own.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proxier_core::ids::{IpFamily, Protocol};
use proxier_sys::netlink::{AttrIter, BatchAnswer, MessageType, NetfilterSocket, errno_name, subsystem};
use proxier_sys::netns;
use proxier_sys::runner::{CommandSpec, Output, Runner as _, SystemRunner};

use super::super::{WireError, encode, nfproto, observe};
use super::samples::{Sample, name, port, rule, sorted};
use crate::objects::*;
use crate::text::{family, ops_text};

/// After this long a packet is not going to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs in a new network namespace.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            netns::enter_new().unwrap();
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn nft(args: &[&str], input: &str) -> Output {
    SystemRunner::new().run(&CommandSpec::new("nft", args.iter().copied()).stdin(input)).unwrap()
}

/// A writer: hands operations to the kernel, which must take them.
type Writer = fn(&Table, &[Op]);

fn by_netlink(table: &Table, ops: &[Op]) {
    let answer = send(table, ops).1;
    assert!(answer.is_committed(), "{answer:?}");
}

fn by_text(table: &Table, ops: &[Op]) {
    load(&ops_text(table, ops));
}

fn load(script: &str) {
    let output = nft(&["-f", "-"], script);
    assert!(output.success(), "{}\n{script}", output.stderr_text());
}

fn send(table: &Table, ops: &[Op]) -> (Vec<usize>, BatchAnswer) {
    let encoded = encode(table, ops).unwrap();
    let answer = NetfilterSocket::open().unwrap().send_batch(&encoded.batch).unwrap();
    (encoded.owner, answer)
}

fn listing(table: &Table) -> String {
    let output = nft(&["list", "table", family(table), &table.name], "");
    assert!(output.success(), "{}", output.stderr_text());
    output.stdout_text()
}

fn observed(table: &Table) -> Observed {
    sorted(observe(&mut NetfilterSocket::open().unwrap(), table).unwrap())
}

/// What the kernel shows of sets and rules, except for handles and positions.
fn raw_objects(table: &Table) -> Vec<Vec<(u16, Vec<u8>)>> {
    let mut out = Vec::new();
    // NFT_MSG_GETSET with NFTA_SET_HANDLE, NFT_MSG_GETRULE with NFTA_RULE_HANDLE and NFTA_RULE_POSITION.
    for (message, left_out) in [(10, &[16][..]), (7, &[3, 6][..])] {
        let kind = MessageType::new(subsystem::NFTABLES, message);
        let objects = NetfilterSocket::open()
            .unwrap()
            .dump(kind, nfproto(table.family), |w| w.put_str(1, &table.name))
            .unwrap();
        for object in objects {
            let attrs = AttrIter::new(&object.payload).map(Result::unwrap);
            let attrs = attrs.filter(|attr| !left_out.contains(&attr.kind));
            out.push(attrs.map(|attr| (attr.kind, attr.payload.to_vec())).collect());
        }
    }
    out
}

/// Compares line by line, so that a failure shows the line.
fn assert_same_listing(one: &str, other: &str) {
    for (a, b) in one.lines().zip(other.lines()) {
        assert_eq!(a, b);
    }
    assert_eq!(one, other);
}

/// Compares object by object, so that a failure shows the object.
fn assert_same_objects(one: &Observed, other: &Observed) {
    for (name, chain) in &one.chains {
        assert_eq!(Some(chain), other.chains.get(name), "chain {name}");
    }
    for (name, set) in &one.sets {
        assert_eq!(Some(set), other.sets.get(name), "set {name}");
    }
    assert_eq!(one, other);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn both_writers_leave_the_same_table() {
    for family in IpFamily::ALL {
        let sample = Sample { family };
        let (table, ops) = (sample.table(), sample.ops());
        let write = |writer: Writer| {
            apart(|| {
                writer(&table, &ops);
                (listing(&table), raw_objects(&table))
            })
        };
        let (netlink, text) = (write(by_netlink), write(by_text));
        assert_same_listing(&netlink.0, &text.0);
        for (a, b) in netlink.1.iter().zip(&text.1) {
            assert_eq!(a, b);
        }
        assert_eq!(netlink.1, text.1);
        assert!(netlink.1.len() > 30, "only {} objects", netlink.1.len());
    }
}

/// Cases: nftables-12.10
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_was_written_is_observed_whoever_wrote_it() {
    for family in IpFamily::ALL {
        let sample = Sample { family };
        let table = sample.table();
        for writer in [by_netlink as Writer, by_text] {
            let seen = apart(|| {
                assert_eq!(observed(&table), Observed::default());
                writer(&table, &sample.ops());
                observed(&table)
            });
            assert_same_objects(&seen, &sample.expected());
        }
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_listing_loads_again_to_the_same_table() {
    for family in IpFamily::ALL {
        let sample = Sample { family };
        let table = sample.table();
        let first = apart(|| {
            by_netlink(&table, &sample.ops());
            listing(&table)
        });
        let again = apart(|| {
            load(&first);
            (listing(&table), observed(&table))
        });
        assert_same_listing(&again.0, &first);
        assert_same_objects(&again.1, &sample.expected());
    }
}

/// Changes of a table that is there, as a running backend makes them.
fn changes(sample: &Sample) -> Vec<Op> {
    let key = |index| Key::AddrPortIndex(sample.addr(10), Protocol::Udp, port(53), index);
    let element = |key, value| Element { key, value, comment: None };
    let full = vec![Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
    vec![
        Op::AddTable,
        Op::DeleteElements(name("cluster-endpoints"), vec![key(70_000), key(0)]),
        Op::AddElements(
            name("cluster-endpoints"),
            vec![element(key(0), Value::Endpoint(sample.addr(99), port(99)))],
        ),
        Op::DeleteElements(
            name("service-ips"),
            vec![Key::AddrPort(sample.addr(11), Protocol::Tcp, port(443))],
        ),
        // The chain stays, the rules go.
        Op::FlushChain(name("nat-output")),
        Op::FlushChain(name("mark-it")),
        Op::AddChain(Chain { name: name("fresh"), base: None, comment: None }),
        Op::AddRule(name("fresh"), rule([Stmt::Vmap { selectors: full, map: name("service-ips") }])),
        // nft makes one range of these, and prints it in a form that it loads as something else.
        Op::AddRule(
            name("fresh"),
            rule([Stmt::AddrIn {
                selector: Selector::SourceAddr,
                negated: true,
                cidrs: vec![sample.net("10.0.1.0/24", "fd01::/16"), sample.net("10.0.2.0/24", "fd02::/16")],
            }]),
        ),
        Op::FlushChain(name("cluster-2")),
        Op::DeleteSet(name("plain-endpoints")),
        Op::DeleteSet(name("nodeport-endpoints")),
        Op::DeleteChain(name("external-PLVUX2VM-web/frontend/tcp/http")),
    ]
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn both_writers_change_and_delete_alike() {
    for family in IpFamily::ALL {
        let sample = Sample { family };
        let table = sample.table();
        let run = |writer: Writer| {
            apart(|| {
                writer(&table, &sample.ops());
                writer(&table, &changes(&sample));
                let changed = (listing(&table), observed(&table));
                // The whole table anew, as one transaction.
                writer(&table, &[vec![Op::AddTable, Op::DeleteTable], sample.ops()].concat());
                let anew = observed(&table);
                writer(&table, &[Op::DeleteTable]);
                assert_eq!(observed(&table), Observed::default());
                (changed, anew)
            })
        };
        let (netlink, text) = (run(by_netlink), run(by_text));
        assert_same_listing(&netlink.0.0, &text.0.0);
        assert_same_objects(&netlink.0.1, &text.0.1);
        assert_same_objects(&netlink.1, &text.1);
        let (seen, expected) = (&netlink.0.1, sample.expected());
        assert_same_objects(&netlink.1, &expected);
        assert_eq!(seen.sets.len(), expected.sets.len() - 2);
        assert_eq!(seen.chains.len(), expected.chains.len());
        assert_eq!(seen.sets["cluster-endpoints"].1.len(), 2);
        assert!(seen.chains["mark-it"].1.is_empty());
        assert!(seen.chains["fresh"].1.iter().all(|rule| matches!(rule, ObservedRule::Known(_))));
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn refusals_belong_to_their_operations() {
    let sample = Sample { family: IpFamily::Ipv4 };
    let table = sample.table();
    let key = Key::AddrPort(sample.addr(10), Protocol::Udp, port(53));
    let add = |to: &str| {
        let value = Value::Verdict(Verdict::Goto(name(to)));
        Op::AddElements(name("service-ips"), vec![Element { key, value, comment: None }])
    };
    let bad: [(Op, &str); 7] = [
        (add("mark-it"), "EEXIST"),
        (add("no-such-chain"), "ENOENT"),
        (Op::DeleteElements(name("cluster-ips"), vec![Key::Addr(sample.addr(200))]), "ENOENT"),
        (Op::AddRule(name("no-such-chain"), rule([Stmt::Reject])), "ENOENT"),
        (Op::AddRule(name("mark-it"), rule([Stmt::UpdateSource(name("no-such-set"))])), "ENOENT"),
        (Op::DeleteChain(name("mark-it")), "EBUSY"),
        (Op::DeleteSet(name("service-ips")), "EBUSY"),
    ];
    apart(|| {
        by_netlink(&table, &sample.ops());
        let before = listing(&table);
        for (op, errno) in bad {
            let good = Op::AddChain(Chain { name: name("new"), base: None, comment: None });
            let (owner, answer) = send(&table, &[good.clone(), op.clone(), good]);
            let refused: Vec<_> =
                answer.refused.iter().map(|r| (owner[r.index.get()], errno_name(r.errno))).collect();
            assert_eq!(refused, [(1, errno.to_owned())], "{op:?}");
        }
        // The same element with the same value is no clash.
        by_netlink(&table, &[add("cluster-2")]);
        assert_eq!(listing(&table), before);
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_set_that_is_full_is_refused() {
    let sample = Sample { family: IpFamily::Ipv4 };
    let table = sample.table();
    let set = Set {
        name: name("small"),
        key: vec![Field::Service],
        data: Data::None,
        size: Some(3),
        timeout: None,
        comment: None,
    };
    let element = |number| Element { key: Key::Port(port(number)), value: Value::None, comment: None };
    let elements =
        |numbers: std::ops::Range<u16>| Op::AddElements(name("small"), numbers.map(element).collect());
    apart(|| {
        by_netlink(&table, &[Op::AddTable, Op::AddSet(set), elements(1..4)]);
        let answer = send(&table, &[elements(4..5)]).1;
        assert_eq!(answer.refused.iter().map(|r| errno_name(r.errno)).collect::<Vec<_>>(), ["ENFILE"]);
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_dynamic_set_has_the_kernels_limit_whether_declared_or_not() {
    for family in IpFamily::ALL {
        let table = Sample { family }.table();
        let set = |size| Set {
            name: name("affinity"),
            key: vec![Field::Addr],
            data: Data::None,
            size,
            timeout: Some(600),
            comment: None,
        };
        for size in [None, Some(65_535), Some(1000)] {
            apart(|| {
                let chain = Chain { name: name("endpoint"), base: None, comment: None };
                let remember = Op::AddRule(name("endpoint"), rule([Stmt::UpdateSource(name("affinity"))]));
                by_netlink(&table, &[Op::AddTable, Op::AddSet(set(size)), Op::AddChain(chain), remember]);
                let limit = format!("size {}\n", size.unwrap_or(65_535));
                assert!(listing(&table).contains(&limit), "{}", listing(&table));
                let expected = set(size.filter(|size| *size != 65_535));
                assert_eq!(observed(&table).sets["affinity"].0, expected);
            });
        }
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_others_put_into_the_table_is_described() {
    let table = Sample { family: IpFamily::Ipv4 }.table();
    let script = "
        table ip kube-proxy {
            set ours { type ipv4_addr; }
            set marks { type mark; elements = { 7 }; }
            set ranges { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }
            set counted { type ipv4_addr; counter; elements = { 10.0.0.1 }; }
            map odd { type ipv4_addr . inet_proto . inet_service : verdict;
                elements = { 10.0.0.1 . 1 . 7 : drop, 10.0.0.1 . tcp . 0 : drop, 10.0.0.1 . tcp . 1 : return,
                             10.0.0.1 . tcp . 2 : drop }; }
            chain route { type route hook output priority 5; }
            chain closed { type filter hook input priority 7; policy drop; accept; }
            chain rules {
                ip saddr 10.0.0.1 accept
                counter accept comment \"counted\"
                ip saddr 10.0.0.1-10.0.0.9 accept
                tcp dport 80 accept
                return
                meta mark set 7
                meta mark & 0xff == 1 accept
                ct state established accept
                update @aff { ip saddr timeout 5s }
                reject with icmp host-unreachable
                ip saddr . tcp dport vmap { 10.0.0.1 . 80 : drop }
                numgen inc mod 2 vmap { 0 : drop, 1 : accept }
                numgen random mod 2 vmap { 0 : goto closed2, 1 : jump closed2 }
                numgen random mod 3 vmap { 0 : goto closed2, 1 : goto closed2 }
                fib saddr . iif type local accept
                limit rate 1/second accept
            }
            chain closed2 { }
            set aff { type ipv4_addr; flags dynamic,timeout; timeout 1500ms; }
        }
        table ip other { chain c { type filter hook input priority 0; accept; }; set s { type mark; }; }
        table ip6 kube-proxy { chain six { accept; }; }
    ";
    let seen = apart(|| {
        load(script);
        observed(&table)
    });
    let rules = &seen.chains["rules"].1;
    let known = rules.iter().filter(|rule| matches!(rule, ObservedRule::Known(_))).count();
    assert_eq!((known, rules.len()), (1, 16), "{rules:#?}");
    let counted = "not a rule of this backend: counter, immediate comment \"counted\"";
    assert_eq!(rules[1], ObservedRule::Foreign(counted.into()));
    assert_eq!(
        seen.chains.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["closed", "closed2", "route", "rules"]
    );
    for (chain, rules) in [("route", 1), ("closed", 2)] {
        assert_eq!(seen.chains[chain].0.base, None);
        assert_eq!(seen.chains[chain].1.len(), rules);
        assert!(matches!(&seen.chains[chain].1[0], ObservedRule::Foreign(words) if words.contains("hook")));
    }
    for (set, known, foreign) in
        [("ours", 0, 0), ("marks", 0, 1), ("ranges", 0, 1), ("odd", 1, 3), ("counted", 0, 1), ("aff", 0, 1)]
    {
        let elements = &seen.sets[set].1;
        let seen = elements.iter().filter(|e| matches!(e, ObservedElement::Known(_))).count();
        assert_eq!((seen, elements.len() - seen), (known, foreign), "{set}: {elements:?}");
    }
    assert_eq!(seen.sets.len(), 6);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_dormant_table_counts_as_absent() {
    let sample = Sample { family: IpFamily::Ipv6 };
    let table = sample.table();
    apart(|| {
        load("table ip6 kube-proxy { flags dormant; }");
        assert_eq!(observed(&table), Observed::default());
        by_netlink(&table, &[vec![Op::AddTable, Op::DeleteTable], sample.ops()].concat());
        assert_same_objects(&observed(&table), &sample.expected());
    });
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn many_elements_are_written_and_observed() {
    let sample = Sample { family: IpFamily::Ipv6 };
    let table = sample.table();
    let elements: Vec<Element> = (1..=60_000u16)
        .map(|number| Element {
            key: Key::AddrPort(sample.addr(1), Protocol::Tcp, port(number)),
            value: Value::Verdict(Verdict::Goto(name("services"))),
            comment: Some(name("namespace/name:port")),
        })
        .collect();
    let seen = apart(|| {
        let mut ops = vec![Op::AddTable];
        ops.extend(Sample::chains().into_iter().map(Op::AddChain));
        ops.extend(Sample::sets().into_iter().map(Op::AddSet));
        ops.push(Op::AddElements(name("service-ips"), elements.clone()));
        by_netlink(&table, &ops);
        observed(&table)
    });
    let want: Vec<ObservedElement> = elements.into_iter().map(ObservedElement::Known).collect();
    assert!(seen.sets["service-ips"].1 == want, "{} elements", seen.sets["service-ips"].1.len());
}

/// Comments as they come from names that nobody expected.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn no_comment_breaks_out_of_its_quotes() {
    let sample = Sample { family: IpFamily::Ipv4 };
    let table = sample.table();
    let evil = [
        "a\" ; flush ruleset ; \"",
        "two\nlines\u{7}",
        "\\",
        "ends with \\",
        "é€$x{}#'",
        &"é".repeat(100),
        "",
    ];
    let mut ops = vec![Op::AddTable];
    ops.extend(Sample::chains().into_iter().map(Op::AddChain));
    ops.extend(Sample::sets().into_iter().map(Op::AddSet));
    for (i, comment) in (1..).zip(evil) {
        let comment = Some(name(comment));
        ops.push(Op::AddRule(name("mark-it"), Rule { comment: comment.clone(), ..rule([Stmt::OrMark(1)]) }));
        let key = Key::Addr(sample.addr(i));
        ops.push(Op::AddElements(name("cluster-ips"), vec![Element { key, value: Value::None, comment }]));
    }
    let write = |writer: Writer| {
        apart(|| {
            writer(&table, &ops);
            (listing(&table), observed(&table))
        })
    };
    let netlink = write(by_netlink);
    assert_eq!(netlink, write(by_text));
    assert_eq!(netlink.1.chains["mark-it"].1.len(), evil.len());
}

/// The rule that serves all protocols of an address does so, whoever wrote it. nft would put a match on TCP in front
/// of it if the map were declared with `tcp dport`.
/// Cases: nftables-12.16, nftables-12.40
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn one_map_rule_translates_tcp_and_udp() {
    let sample = Sample { family: IpFamily::Ipv4 };
    let table = sample.table();
    let full = vec![Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
    let base = Base { kind: ChainType::Nat, hook: Hook::Output, priority: -100 };
    let maps = Sample::sets().into_iter().filter(|set| &*set.name == "cluster-endpoints");
    for writer in [by_netlink as Writer, by_text] {
        apart(|| {
            let (tcp, udp) =
                (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
            let (frontend, local) = (sample.addr(10), IpAddr::from([127, 0, 0, 1]));
            let to = |protocol, number| Element {
                key: Key::AddrPortIndex(frontend, protocol, port(53), 0),
                value: Value::Endpoint(local, port(number)),
                comment: None,
            };
            let mut ops = vec![Op::AddTable];
            ops.push(Op::AddChain(Chain { name: name("nat-output"), base: Some(base), comment: None }));
            ops.extend(maps.clone().map(Op::AddSet));
            let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
            let elements = vec![to(Protocol::Tcp, tcp_port), to(Protocol::Udp, udp_port)];
            ops.push(Op::AddElements(name("cluster-endpoints"), elements));
            let selectors = full.clone();
            let stmt = Stmt::DnatMap { selectors, modulus: 1, offset: 0, map: name("cluster-endpoints") };
            ops.push(Op::AddRule(name("nat-output"), rule([stmt])));
            writer(&table, &ops);
            let route =
                CommandSpec::new("ip", ["route", "add", "10.96.0.0/16", "dev", "lo", "src", "127.0.0.1"]);
            assert!(SystemRunner::new().run(&route).unwrap().success());

            let mut client = TcpStream::connect_timeout(&(frontend, 53).into(), PATIENCE).unwrap();
            client.write_all(b"tcp").unwrap();
            drop(client);
            let mut got = String::new();
            tcp.accept().unwrap().0.read_to_string(&mut got).unwrap();
            assert_eq!(got, "tcp");

            udp.set_read_timeout(Some(PATIENCE)).unwrap();
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"udp", (frontend, 53)).unwrap();
            let mut buffer = [0; 8];
            let length = udp.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"udp");
        });
    }
}

/// Ends the other thread also when this one fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A reading that another transaction came into is begun anew: what is seen is one state or the other.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn changes_while_reading_are_never_seen_by_half() {
    let sample = Sample { family: IpFamily::Ipv4 };
    let table = sample.table();
    let key = |number| Key::AddrPort(sample.addr(1), Protocol::Tcp, port(number));
    let element =
        |number| Element { key: key(number), value: Value::Verdict(Verdict::Accept), comment: None };
    let drop_rule = Op::AddRule(name("mark-it"), rule([Stmt::Verdict(Verdict::Drop)]));
    let there = [Op::AddElements(name("service-ips"), (1..3000).map(element).collect()), drop_rule];
    let gone = [
        Op::DeleteElements(name("service-ips"), (1..3000).map(key).collect()),
        Op::FlushChain(name("mark-it")),
    ];
    let done = AtomicBool::new(false);
    apart(|| {
        by_netlink(&table, &sample.ops());
        by_netlink(&table, &[Op::FlushChain(name("mark-it"))]);
        let without = observed(&table);
        by_netlink(&table, &there);
        let with = observed(&table);
        assert_ne!(with, without);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for ops in [&gone, &there] {
                        by_netlink(&table, ops);
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            });
            let _stop = SetOnDrop(&done);
            let mut socket = NetfilterSocket::open().unwrap();
            let mut read = 0;
            while read < 30 {
                match observe(&mut socket, &table) {
                    Ok(seen) => {
                        let seen = sorted(seen);
                        assert!(seen == with || seen == without);
                        read += 1;
                    }
                    Err(error) => assert!(matches!(error, WireError::Changing { .. }), "{error}"),
                }
            }
        });
    });
}
