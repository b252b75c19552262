//! Sets and their entries.

use std::net::IpAddr;

use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::netlink::{AttrWriter, MessageIndex, Requests};

use super::{Exchange, HEADERS, captured, captured_all, flat, head, survives_damage};
use crate::sets::{Entry, SetType};
use crate::wire::ipset::*;

const FILE: &str = include_str!("ipset.txt");
/// The protocol's version: the tool speaks 7.
const VERSION: &[u16] = &[1];
/// The revision of a set's type: the tool asks for the newest.
const REVISION: &[u16] = &[4];
/// The number of a line of the tool's input.
const LINE: &[u16] = &[7, 0x4009];

fn said(command: &str) -> Exchange {
    captured(FILE, command)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn cluster_ip(last: u8, number: u16) -> Entry {
    Entry::IpPort(IpAddr::from([10, 96, 0, last]), Protocol::Udp, port(number))
}

fn range(text: &str) -> Entry {
    Entry::IpPortNet(ip("198.51.100.20"), Protocol::Tcp, port(80), text.parse().unwrap())
}

fn sctp_range() -> Entry {
    Entry::IpPortNet(ip("fd00:96::10"), Protocol::Sctp, port(2905), "2001:db8::/32".parse().unwrap())
}

fn hairpin() -> Entry {
    Entry::IpPortIp(ip("10.244.0.5"), Protocol::Tcp, port(8080), ip("10.244.0.5"))
}

fn written(push: impl FnOnce(&mut Requests) -> MessageIndex) -> Vec<u8> {
    let mut requests = Requests::new();
    let index = push(&mut requests);
    requests.message_bytes(index).unwrap().to_vec()
}

fn attributes(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = AttrWriter::new(&mut bytes);
    fill(&mut writer);
    writer.finish().unwrap();
    bytes
}

/// Equal but for some attributes.
#[track_caller]
fn same_attributes(ours: &[u8], theirs: &[u8], but: &[&[u16]]) {
    let [ours, theirs] = [ours, theirs].map(|attributes| {
        let mut flat = flat(attributes);
        flat.retain(|(way, _)| !but.contains(&way.as_slice()));
        flat
    });
    assert!(!ours.is_empty());
    assert_eq!(ours, theirs);
}

#[test]
fn sets_are_made_as_ipset_makes_them() {
    use SetType as T;
    for (command, name, kind, family, revision) in [
        (
            "ipset create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536 -exist",
            "KUBE-CLUSTER-IP",
            T::HashIpPort,
            IpFamily::Ipv4,
            5,
        ),
        (
            "ipset create KUBE-6-IPVS-IPS hash:ip family inet6 hashsize 1024 maxelem 65536",
            "KUBE-6-IPVS-IPS",
            T::HashIp,
            IpFamily::Ipv6,
            4,
        ),
        (
            "ipset create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536",
            "KUBE-LOOP-BACK",
            T::HashIpPortIp,
            IpFamily::Ipv4,
            5,
        ),
        (
            "ipset create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip,port,net family inet6 hashsize 1024 maxelem 65536",
            "KUBE-6-LOAD-BALANCER-SOURCE-CID",
            T::HashIpPortNet,
            IpFamily::Ipv6,
            7,
        ),
        (
            "ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535",
            "KUBE-NODE-PORT-TCP",
            T::BitmapPort,
            IpFamily::Ipv4,
            3,
        ),
    ] {
        let theirs = said(command);
        let revisions = read_revisions(theirs.objects()[0]).unwrap();
        assert_eq!((revisions.oldest, revisions.choose(kind)), (0, revision), "{command}");
        let definition = Definition::new(name, kind, family);
        let ours = written(|r| push_create(r, &definition, revisions.choose(kind)));
        if command.ends_with("-exist") {
            assert_eq!(head(&ours).0, head(theirs.request()).0);
        } else {
            assert_eq!(head(&ours), head(theirs.request()));
        }
        same_attributes(&ours[HEADERS..], &theirs.request()[HEADERS..], &[VERSION, REVISION]);
        // The tool asks for a revision by the type's name, with the family where the type has one.
        let asked = attributes(|w| put_type(w, kind, family));
        same_attributes(&asked, &theirs.sent[0][HEADERS..], &[VERSION, &[5]]);
    }
}

#[test]
fn revisions_are_what_both_know() {
    assert_eq!(Revisions { oldest: 0, newest: 2 }.choose(SetType::HashIpPort), 2);
    assert_eq!(Revisions { oldest: 6, newest: 9 }.choose(SetType::HashIpPort), 6);
    assert_eq!(Revisions { oldest: 0, newest: 9 }.choose(SetType::HashIpPortNet), 7);
}

#[test]
fn entries_are_written_as_ipset_writes_them() {
    for (command, set, entry) in [
        ("ipset add KUBE-CLUSTER-IP 10.96.0.10,udp:53 -exist", "KUBE-CLUSTER-IP", cluster_ip(10, 53)),
        ("ipset add KUBE-6-IPVS-IPS fd00:96::10", "KUBE-6-IPVS-IPS", Entry::Ip(ip("fd00:96::10"))),
        ("ipset add KUBE-LOOP-BACK 10.244.0.5,tcp:8080,10.244.0.5", "KUBE-LOOP-BACK", hairpin()),
        (
            "ipset add KUBE-6-LOAD-BALANCER-SOURCE-CID fd00:96::10,sctp:2905,2001:db8::/32",
            "KUBE-6-LOAD-BALANCER-SOURCE-CID",
            sctp_range(),
        ),
        ("ipset add KUBE-NODE-PORT-TCP 30080", "KUBE-NODE-PORT-TCP", Entry::Port(port(30080))),
        ("ipset add CIDR4 198.51.100.20,tcp:80,203.0.113.0/25", "CIDR4", range("203.0.113.0/25")),
        // A range of one address goes without its length, and is listed so.
        ("ipset add CIDR4 198.51.100.20,tcp:80,203.0.113.7", "CIDR4", range("203.0.113.7/32")),
        ("ipset del KUBE-CLUSTER-IP 10.96.0.11,udp:53 -exist", "KUBE-CLUSTER-IP", cluster_ip(11, 53)),
    ] {
        let verb = if command.contains(" del ") { Verb::Delete } else { Verb::Add };
        let theirs = said(command);
        let ours = written(|r| push_change(r, set, verb, [&entry].into_iter()));
        assert_eq!(head(&ours).0, head(theirs.request()).0, "{command}");
        same_attributes(&ours[HEADERS..], &theirs.request()[HEADERS..], &[VERSION, LINE]);
        if command.ends_with("-exist") {
            assert_eq!(head(&ours), head(theirs.request()), "{command}");
        }
        let change = EntryChange { set: set.into(), verb, entry };
        assert_eq!(format!("ipset {change}"), format!("{} -exist", command.trim_end_matches(" -exist")));
    }
}

#[test]
fn several_entries_share_a_message_as_in_a_restore() {
    let tcp = |number| Entry::IpPort(ip("10.96.0.1"), Protocol::Tcp, port(number));
    let entries = [tcp(443), tcp(444), tcp(444)];
    let theirs = said("ipset restore");
    let ours = written(|r| push_change(r, "KUBE-CLUSTER-IP", Verb::Add, entries.iter()));
    same_attributes(&ours[HEADERS..], &theirs.request()[HEADERS..], &[VERSION]);
    assert_eq!(theirs.errno(), 4103);
}

#[test]
fn other_requests_are_those_of_ipset() {
    let swap = said("ipset swap tmp KUBE-CLUSTER-IP");
    let ours = attributes(|w| put_swap(w, "tmp", "KUBE-CLUSTER-IP"));
    same_attributes(&ours, &swap.request()[HEADERS..], &[VERSION]);
    let destroy = said("ipset destroy tmp");
    let ours = written(|r| push_destroy(r, "tmp"));
    assert_eq!(head(&ours), head(destroy.request()));
    same_attributes(&ours[HEADERS..], &destroy.request()[HEADERS..], &[VERSION]);
    let names = said("ipset list -name");
    same_attributes(&attributes(put_names), &names.request()[HEADERS..], &[VERSION]);
    let list = said("ipset list CIDR4");
    same_attributes(&attributes(|w| put_list(w, "CIDR4")), &list.request()[HEADERS..], &[VERSION]);
    // Nobody asks the tool for the header of one set; it is that of all, with a name.
    let terse = said("ipset list -terse");
    same_attributes(&attributes(|w| put_header(w, "x")), &terse.request()[HEADERS..], &[VERSION, &[2]]);
    let flush = said("ipset flush tmp");
    assert_eq!(flush.request()[4..6], [command::FLUSH, 6]);
    assert_eq!((swap.request()[4], list.request()[4]), (command::SWAP, command::LIST));
}

#[test]
fn sets_are_read() {
    for (command, kind, family, entries) in [
        (
            "ipset list KUBE-CLUSTER-IP",
            SetType::HashIpPort,
            IpFamily::Ipv4,
            vec![cluster_ip(10, 53), cluster_ip(11, 54)],
        ),
        (
            "ipset list KUBE-6-LOAD-BALANCER-SOURCE-CID",
            SetType::HashIpPortNet,
            IpFamily::Ipv6,
            vec![sctp_range()],
        ),
        (
            "ipset list CIDR4",
            SetType::HashIpPortNet,
            IpFamily::Ipv4,
            vec![range("203.0.113.0/25"), range("203.0.113.7/32")],
        ),
        (
            "ipset list KUBE-NODE-PORT-TCP",
            SetType::BitmapPort,
            IpFamily::Ipv4,
            vec![Entry::Port(port(30080))],
        ),
        ("ipset list KUBE-LOOP-BACK", SetType::HashIpPortIp, IpFamily::Ipv4, vec![hairpin()]),
        ("ipset list KUBE-6-IPVS-IPS", SetType::HashIp, IpFamily::Ipv6, vec![Entry::Ip(ip("fd00:96::10"))]),
    ] {
        let name = command.rsplit(' ').next().unwrap();
        let sets = read_sets(said(command).objects()).unwrap();
        let [set] = &sets[..] else { panic!("{sets:?}") };
        assert_eq!((set.name.as_str(), &set.entries, set.references), (name, &entries, 0));
        assert_eq!(set.strange, []);
        assert!(set.is_a(&Definition::new(name, kind, family)));
        let others = [SetType::HashIp, SetType::HashIpPortIp, SetType::BitmapPort];
        let other = others.into_iter().find(|other| *other != kind).unwrap();
        assert!(!set.is_a(&Definition::new(name, other, family)));
        let bitmap = kind == SetType::BitmapPort;
        assert_eq!(set.max_entries, (!bitmap).then_some(65_536));
        let other_family = IpFamily::ALL.into_iter().find(|f| *f != family).unwrap();
        assert_eq!(set.is_a(&Definition::new(name, kind, other_family)), bitmap);
    }
}

#[test]
fn a_set_of_several_messages_is_one() {
    let list = said("ipset list CIDR4");
    let first = list.objects()[0].to_vec();
    let more = attributes(|w| {
        put_name(w, "CIDR4");
        w.put_bytes(8, &flat_entries(said("ipset list STRANGE").objects()[0]));
    });
    let sets = read_sets([first.as_slice(), &more, &more]).unwrap();
    assert_eq!((sets.len(), sets[0].entries.len(), sets[0].strange.len()), (1, 4, 6));
    // Without what it is, a set means nothing.
    assert!(read_sets([more.as_slice()]).is_err());
}

/// The bytes of the attribute that holds a set's entries.
fn flat_entries(payload: &[u8]) -> Vec<u8> {
    let attrs = proxier_sys::netlink::AttrIter::new(payload).map(Result::unwrap);
    attrs.filter(|attr| attr.kind == 8).map(|attr| attr.payload.to_vec()).next().unwrap()
}

#[test]
fn entries_of_other_forms_are_kept_apart_and_can_be_taken_out() {
    let sets = read_sets(said("ipset list STRANGE").objects()).unwrap();
    let ten = Entry::IpPortNet(ip("10.0.0.1"), Protocol::Tcp, port(80), "10.0.0.0/8".parse().unwrap());
    assert_eq!((&sets[0].entries, sets[0].max_entries), (&vec![ten], Some(9)));
    let texts: Vec<_> = sets[0].strange.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "10.0.0.1,protocol 1 port 2048,10.0.0.0/8",
            "10.0.0.1,protocol 6 port 0,10.0.0.0/8",
            "10.0.0.1,protocol 6 port 80,10.1.0.0/16,nomatch"
        ]
    );
    let ours = written(|r| push_delete_strange(r, "STRANGE", &sets[0].strange[0]));
    let theirs = said("ipset del STRANGE 10.0.0.1,icmp:echo-request,10.0.0.0/8");
    let sorted = |attributes: &[u8]| {
        let mut flat = flat(attributes);
        flat.retain(|(way, _)| ![VERSION, LINE].contains(&way.as_slice()));
        flat.sort();
        flat
    };
    assert_eq!(sorted(&ours[HEADERS..]), sorted(&theirs.request()[HEADERS..]));
}

#[test]
fn names_are_read() {
    let names = read_names(said("ipset list -name").objects()).unwrap();
    let expected = [
        "KUBE-CLUSTER-IP",
        "KUBE-6-IPVS-IPS",
        "KUBE-LOOP-BACK",
        "KUBE-6-LOAD-BALANCER-SOURCE-CID",
        "KUBE-NODE-PORT-TCP",
        "CIDR4",
    ];
    assert_eq!(names, expected);
    let headers = read_sets(said("ipset list -terse").objects()).unwrap();
    assert_eq!(headers.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), expected);
    assert!(headers.iter().all(|set| set.entries.is_empty()));
}

#[test]
fn refusals_are_words() {
    let twice = captured_all(FILE, "ipset destroy tmp");
    assert_eq!(describe(twice[1].errno(), None), "ENOENT");
    let busy = said("ipset destroy KUBE-CLUSTER-IP");
    assert_eq!(busy.errno(), IN_USE);
    assert_eq!(describe(busy.errno(), None), "the set is in use by a rule (ipset error 4100)");
    let full = said("ipset add STRANGE 10.0.0.1,tcp:99,10.0.0.0/8");
    assert_eq!(full.errno(), FULL);
    assert_eq!(words(FULL, Some(SetType::HashIpPort)), Some("the set is full"));
    assert_eq!(words(FULL, Some(SetType::BitmapPort)), Some("the port is outside of the set's range"));
    assert_eq!(words(NO_TYPE, None), Some("the kernel has no such type of set"));
    assert_eq!(words(17, None), None);
    let other_type = said("ipset create KUBE-CLUSTER-IP hash:ip");
    assert_eq!(describe(other_type.errno(), None), "EEXIST");
}

#[test]
fn damaged_answers_are_errors_or_objects_and_never_panic() {
    let commands = FILE.lines().filter_map(|line| line.strip_prefix("# ipset list "));
    for name in commands {
        for payload in said(&format!("ipset list {name}")).objects() {
            survives_damage(payload, |bytes| read_sets([bytes]));
            survives_damage(payload, |bytes| read_names([bytes]));
            survives_damage(payload, read_revisions);
        }
    }
}
