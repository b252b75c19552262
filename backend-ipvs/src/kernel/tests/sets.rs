//! Sets: written by us and shown by `ipset`, and the other way round.

use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::backend::{BackendError, RetryClass};
use proxier_core::ids::{IpFamily, Port, Protocol};

use super::{isolated, sorted, tool, tool_with, try_tool};
use crate::error::Error;
use crate::kernel::{Kernel, Sets, temporary};
use crate::sets::{Entry, SetType};
use crate::wire::ipset::{self, Definition, EntryChange, Verb};

const HASHES: [SetType; 4] =
    [SetType::HashIp, SetType::HashIpPort, SetType::HashIpPortIp, SetType::HashIpPortNet];

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn ip(family: IpFamily, last: u8) -> IpAddr {
    match family {
        IpFamily::Ipv4 => IpAddr::from([10, 96, 0, last]),
        IpFamily::Ipv6 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last.into()]),
    }
}

fn nets(family: IpFamily) -> [&'static str; 4] {
    match family {
        IpFamily::Ipv4 => ["203.0.113.0/25", "203.0.113.7/32", "0.0.0.0/1", "128.0.0.0/1"],
        IpFamily::Ipv6 => ["2001:db8::/32", "2001:db8::7/128", "::/1", "8000::/1"],
    }
}

/// Some entries of a type.
fn entries(kind: SetType, family: IpFamily) -> Vec<Entry> {
    let ip = |last| ip(family, last);
    let mut entries = match kind {
        SetType::HashIp => vec![Entry::Ip(ip(1)), Entry::Ip(ip(255))],
        SetType::HashIpPort => {
            Protocol::ALL.map(|protocol| Entry::IpPort(ip(1), protocol, port(53))).to_vec()
        }
        SetType::HashIpPortIp => vec![
            Entry::IpPortIp(ip(1), Protocol::Tcp, port(1), ip(1)),
            Entry::IpPortIp(ip(1), Protocol::Sctp, port(65535), ip(2)),
        ],
        SetType::HashIpPortNet => nets(family)
            .map(|net| Entry::IpPortNet(ip(1), Protocol::Udp, port(53), net.parse().unwrap()))
            .to_vec(),
        SetType::BitmapPort => vec![Entry::Port(port(1)), Entry::Port(port(30080)), Entry::Port(port(65535))],
    };
    entries.sort_unstable();
    entries
}

fn definition(name: &str, kind: SetType, family: IpFamily) -> Definition {
    Definition::new(name, kind, family)
}

fn changes(set: &str, verb: Verb, entries: &[Entry]) -> Vec<EntryChange> {
    let set: Arc<str> = set.into();
    entries.iter().map(|entry| EntryChange { set: Arc::clone(&set), verb, entry: *entry }).collect()
}

#[track_caller]
fn add(sets: &mut Sets, set: &str, entries: &[Entry]) {
    assert_eq!(sets.change(&changes(set, Verb::Add, entries), |_| None).unwrap(), []);
}

fn cluster_ips(count: u32) -> Vec<Entry> {
    let ip = |i: u32| IpAddr::from((0x0a60_0000 + i).to_be_bytes());
    (0..count).map(|i| Entry::IpPort(ip(i), Protocol::Tcp, port(80))).collect()
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn every_type_is_shown_by_ipset_as_it_is_printed_and_read_back() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let mut expected = Vec::new();
    for family in IpFamily::ALL {
        for (place, kind) in HASHES.into_iter().chain([SetType::BitmapPort]).enumerate() {
            let name = format!("KUBE-{place}-{family}");
            sets.create(&[definition(&name, kind, family)]).unwrap();
            let entries = entries(kind, family);
            add(&mut sets, &name, &entries);
            let seen = sets.read(&name).unwrap().unwrap();
            assert_eq!((&seen.entries, &seen.strange, seen.references), (&entries, &Vec::new(), 0));
            expected.push(match kind {
                SetType::BitmapPort => format!("create {name} bitmap:port range 0-65535"),
                _ => {
                    let inet = if family == IpFamily::Ipv4 { "inet" } else { "inet6" };
                    let type_name = ipset::type_name(kind);
                    format!("create {name} {type_name} family {inet} hashsize 1024 maxelem 65536")
                }
            });
            expected.extend(entries.iter().map(|entry| format!("add {name} {entry}")));
        }
    }
    let saved = tool("ipset save");
    assert_eq!(sorted(&saved), sorted(&expected.join("\n")));
    assert_eq!(sets.names().unwrap().len(), 10);

    // What the tool writes is read the same.
    let read = |sets: &mut Sets, name: &str| sets.read(name).unwrap().unwrap();
    let names = sets.names().unwrap();
    let before: Vec<_> = names.iter().map(|name| read(&mut sets, name)).collect();
    tool("ipset destroy");
    tool_with("ipset restore", &saved);
    assert_eq!(names.iter().map(|name| read(&mut sets, name)).collect::<Vec<_>>(), before);
    let gone = names.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(sets.destroy(&gone).unwrap(), []);
    assert_eq!(sets.destroy(&gone).unwrap(), []);
    assert_eq!(sets.names().unwrap(), Vec::<String>::new());
    assert_eq!(sets.read("KUBE-0-IPv4").unwrap(), None);
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn a_plans_lines_are_taken_by_ipset() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let name = "KUBE-LOAD-BALANCER-SOURCE-CIDR";
    sets.create(&[definition(name, SetType::HashIpPortNet, IpFamily::Ipv4)]).unwrap();
    let entries = entries(SetType::HashIpPortNet, IpFamily::Ipv4);
    let mut lines: Vec<_> = changes(name, Verb::Add, &entries);
    lines.extend(changes(name, Verb::Delete, &entries[..1]));
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    tool_with("ipset restore", &input);
    assert_eq!(sets.read(name).unwrap().unwrap().entries, entries[1..]);
    assert_eq!(sets.change(&changes(name, Verb::Delete, &entries), |_| None).unwrap(), []);
    assert_eq!(sets.read(name).unwrap().unwrap().entries, []);
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn what_is_there_is_added_and_what_is_gone_deleted() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let set = definition("KUBE-CLUSTER-IP", SetType::HashIpPort, IpFamily::Ipv4);
    for _ in 0..2 {
        sets.create(std::slice::from_ref(&set)).unwrap();
    }
    let entries = cluster_ips(20_000);
    for _ in 0..2 {
        add(&mut sets, &set.name, &entries);
    }
    let seen = sets.read(&set.name).unwrap().unwrap();
    assert_eq!((seen.entries.len(), &seen.entries), (20_000, &entries));
    let half = changes(&set.name, Verb::Delete, &entries[..10_000]);
    for _ in 0..2 {
        assert_eq!(sets.change(&half, |_| None).unwrap(), []);
    }
    assert_eq!(sets.read(&set.name).unwrap().unwrap().entries, entries[10_000..]);
    assert_eq!(sets.change(&[], |_| None).unwrap(), []);
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn refused_entries_are_named_and_all_others_are_in() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let small =
        Definition { max_entries: 300, ..definition("KUBE-CLUSTER-IP", SetType::HashIpPort, IpFamily::Ipv4) };
    let ports = definition("KUBE-NODE-PORT-TCP", SetType::BitmapPort, IpFamily::Ipv4);
    sets.create(&[small.clone(), ports.clone()]).unwrap();
    // Of the wrong family, between good ones of the same message.
    let mut entries = cluster_ips(200);
    entries.insert(60, Entry::IpPort(ip(IpFamily::Ipv6, 1), Protocol::Tcp, port(80)));
    entries.insert(150, Entry::Port(port(9)));
    let mut all = changes(&small.name, Verb::Add, &entries);
    all.extend(changes(
        &ports.name,
        Verb::Add,
        &[Entry::Port(port(30080)), Entry::Ip(ip(IpFamily::Ipv4, 1))],
    ));
    all.extend(changes("KUBE-MISSING", Verb::Add, &[Entry::Port(port(1))]));
    let kind = |name: &str| (name == &*small.name).then_some(small.kind);
    let refused = sets.change(&all, kind).unwrap();
    assert_eq!(refused.iter().map(|r| r.index).collect::<Vec<_>>(), [60, 150, 203, 204], "{refused:?}");
    assert_eq!(refused[3].reason, "ENOENT");
    assert_eq!(sets.read(&small.name).unwrap().unwrap().entries, cluster_ips(200));
    assert_eq!(sets.read(&ports.name).unwrap().unwrap().entries, [Entry::Port(port(30080))]);

    // More than there is room for: the kernel keeps a few buckets more than it says, so what is in is counted.
    let refused = sets.change(&changes(&small.name, Verb::Add, &cluster_ips(2_000)), kind).unwrap();
    let seen = sets.read(&small.name).unwrap().unwrap();
    assert_eq!(seen.entries.len() + refused.len(), 2_000);
    assert!(refused.iter().all(|r| r.reason == "the set is full (ipset error 4352)"), "{:?}", refused[0]);
    assert!(refused.len() >= 1_600);
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn entries_of_other_forms_are_seen_and_taken_out() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let set = definition("KUBE-LOAD-BALANCER-SOURCE-CIDR", SetType::HashIpPortNet, IpFamily::Ipv4);
    sets.create(std::slice::from_ref(&set)).unwrap();
    for entry in [
        "icmp:echo-request,10.0.0.0/8",
        "tcp:0,10.0.0.0/8",
        "tcp:80,10.1.0.0/16 nomatch",
        "tcp:80,10.0.0.0/8",
    ] {
        tool(&format!("ipset add {} 10.0.0.1,{entry}", set.name));
    }
    let seen = sets.read(&set.name).unwrap().unwrap();
    assert_eq!((seen.entries.len(), seen.strange.len()), (1, 3));
    assert_eq!(sets.delete_strange(&set.name, &seen.strange).unwrap(), []);
    let seen = sets.read(&set.name).unwrap().unwrap();
    assert_eq!((seen.entries.len(), seen.strange.len()), (1, 0));
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn a_set_of_another_type_is_replaced_unless_a_rule_uses_it() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let set = definition("KUBE-CLUSTER-IP", SetType::HashIpPort, IpFamily::Ipv4);
    tool("ipset create KUBE-CLUSTER-IP hash:ip");
    sets.create(std::slice::from_ref(&set)).unwrap();
    assert!(sets.read(&set.name).unwrap().unwrap().is_a(&set));

    tool("ipset destroy KUBE-CLUSTER-IP");
    tool("ipset create KUBE-CLUSTER-IP hash:ip,port family inet6");
    tool("ip6tables -A INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN");
    let error = sets.create(std::slice::from_ref(&set)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "set KUBE-CLUSTER-IP exists as hash:ip,port (IPv6), where hash:ip,port (IPv4) is needed, and 1 rules look into it"
    );
    assert!(matches!(error, Error::OtherSet { .. }));
    // Another size is no other set.
    let small = Definition { max_entries: 9, ..definition("KUBE-6-X", SetType::HashIp, IpFamily::Ipv6) };
    sets.create(std::slice::from_ref(&small)).unwrap();
    sets.create(&[Definition { max_entries: 10, ..small }]).unwrap();
    assert_eq!(sets.read("KUBE-6-X").unwrap().unwrap().max_entries, Some(9));
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn a_set_that_a_rule_uses_stays_until_the_rule_is_gone() {
    isolated();
    let mut sets = Sets::open().unwrap();
    let set = definition("KUBE-CLUSTER-IP", SetType::HashIpPort, IpFamily::Ipv4);
    sets.create(&[set.clone(), definition("KUBE-X", SetType::HashIp, IpFamily::Ipv4)]).unwrap();
    let rule = "INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN";
    for variant in ["legacy", "nft"] {
        tool(&format!("iptables-{variant} -A {rule}"));
        let refused = sets.destroy(&["KUBE-CLUSTER-IP", "KUBE-X"]).unwrap();
        assert_eq!(refused.iter().map(|r| (r.index, r.errno)).collect::<Vec<_>>(), [(0, ipset::IN_USE)]);
        assert_eq!(sets.read(&set.name).unwrap().unwrap().references, 1);
        tool(&format!("iptables-{variant} -D {rule}"));
        let mut tries = 0;
        while !sets.destroy(&["KUBE-CLUSTER-IP"]).unwrap().is_empty() {
            tries += 1;
            assert!(tries < 10_000, "still in use");
        }
        sets.create(std::slice::from_ref(&set)).unwrap();
    }
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn a_rebuild_keeps_the_rules_and_leaves_nothing_behind() {
    isolated();
    let mut sets = Sets::open().unwrap();
    for family in IpFamily::ALL {
        let name = if family == IpFamily::Ipv4 { "KUBE-CLUSTER-IP" } else { "KUBE-6-CLUSTER-IP" };
        let set = Definition { max_entries: 2, ..definition(name, SetType::HashIpPort, family) };
        sets.create(std::slice::from_ref(&set)).unwrap();
        let tables = if family == IpFamily::Ipv4 { "iptables" } else { "ip6tables" };
        tool(&format!("{tables} -A INPUT -m set --match-set {name} dst,dst -j RETURN"));
        // Left over from a rebuild that was cut off, and of another type.
        tool(&format!("ipset create {} hash:net", temporary(family)));
        let wanted: Vec<_> =
            (1..200).map(|last| Entry::IpPort(ip(family, last), Protocol::Tcp, port(80))).collect();
        let larger = Definition { max_entries: 131_072, ..set.clone() };
        assert_eq!(sets.rebuild(&larger, &wanted).unwrap(), []);
        let seen = sets.read(name).unwrap().unwrap();
        assert_eq!((seen.references, seen.max_entries, &seen.entries), (1, Some(131_072), &wanted));

        // An entry at fault: everything stays.
        let refused = sets.rebuild(&larger, &[Entry::Port(port(1)), wanted[0]]).unwrap();
        assert_eq!(refused.len(), 1);
        assert_eq!(sets.read(name).unwrap().unwrap().entries, wanted);
        assert!(!sets.names().unwrap().iter().any(|name| name == temporary(family)));
    }
    // Without the set there is nothing to take the place of.
    let set = definition("KUBE-GONE", SetType::HashIp, IpFamily::Ipv4);
    assert!(sets.rebuild(&set, &[Entry::Ip(ip(IpFamily::Ipv4, 1))]).is_err());
    assert_eq!(sets.names().unwrap().len(), 2);
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn types_are_found_and_their_revisions_known_to_the_tool() {
    isolated();
    let mut sets = Sets::open().unwrap();
    for kind in HASHES.into_iter().chain([SetType::BitmapPort]) {
        let revisions = sets.revisions(kind, IpFamily::Ipv6).unwrap();
        assert!((revisions.oldest..=revisions.newest).contains(&revisions.choose(kind)), "{kind:?}");
    }
    // A set of ours has no seed, which the tool would print and no two runs would share.
    sets.create(&[definition("KUBE-X", SetType::HashIp, IpFamily::Ipv4)]).unwrap();
    assert!(!tool("ipset list KUBE-X").contains("bucketsize"));
    assert_eq!(try_tool("ipset list KUBE-Y").code, 1);
}

#[test]
#[ignore = "needs root and ipset in the kernel: run by cargo xtask test"]
fn a_kernel_without_ipvs_says_so_and_its_leftovers_can_be_removed() {
    isolated();
    let mut kernel = Kernel::open().unwrap();
    match kernel.ipvs().map(drop) {
        Ok(()) => assert!(kernel.ipvs().unwrap().info().unwrap().table > 0),
        Err(error) => {
            assert!(matches!(error, Error::NoIpvs), "{error}");
            assert_eq!(error.retry_class(), RetryClass::Unsupported);
        }
    }
    match kernel.device.ensure() {
        Ok(link) => assert!(!link.up),
        Err(error) => assert!(matches!(error, Error::NoDummies), "{error}"),
    }
    let made = kernel.device.find().unwrap().is_some();
    assert_eq!(kernel.device.remove().unwrap(), made);
    assert_eq!(kernel.sets.destroy(&["KUBE-CLUSTER-IP"]).unwrap(), []);
}
