//! The codec on the kernel, and on bytes that came from one.

use super::*;
use crate::netns;
use crate::runner::{CommandSpec, Runner as _, SystemRunner};

const UDP: u8 = 17;
const TCP: u8 = 6;

fn flow(protocol: u8, client: &str, to: &str, from: &str) -> Flow {
    let [client, to, from] = [client, to, from].map(|text| text.parse().unwrap());
    Flow {
        protocol,
        original: Tuple::new(client, to),
        reply: Tuple::new(from, client),
        zone: 0,
        id: None,
        status: 0x8,
    }
}

fn udp(client: &str, to: &str, from: &str) -> Flow {
    flow(UDP, client, to, from)
}

/// What is listed, without the kernel's numbers.
fn listed(family: Family, filter: Option<&Filter>) -> (Listing, Vec<Flow>) {
    let mut flows = Vec::new();
    let listing = Conntrack::open()
        .unwrap()
        .list(family, filter, |flow| {
            assert!(flow.id.is_some());
            flows.push(*flow);
        })
        .unwrap();
    flows.sort_by_key(|flow| flow.original.source);
    (listing, flows)
}

fn sources(flows: &[Flow]) -> Vec<String> {
    flows.iter().map(|flow| flow.original.source.to_string()).collect()
}

fn make(flows: &[Flow]) {
    netns::enter_new().unwrap();
    let refused = Conntrack::open().unwrap().create(flows, 600).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

/// What Linux 6.18 on x86-64 listed of the two flows below.
#[cfg(target_endian = "little")]
mod captured {
    pub(super) const V4: &str = "34000180 14000180 08000100 0a000001 08000200 0a60000a 1c000280 05000100 11000000 06000200 03e80000
        06000300 00350000 34000280 14000180 08000100 0af40107 08000200 0a000001 1c000280 05000100 11000000 06000200 14e90000 06000300
        03e80000 08000800 00000000 08000c00 e1fdebb7 08000b00 00000001 08000700 00000257 1c001880 08000100 00000000 08000200 00000000
        08000300 00000000";
    pub(super) const V6: &str = "4c000180 2c000180 14000300 fd000000 00000000 00000000 00000001 14000400 fd000096 00000000 00000000
        0000000a 1c000280 05000100 11000000 06000200 03e90000 06000300 00350000 4c000280 2c000180 14000300 fd000244 00000000 00000000
        00000007 14000400 fd000000 00000000 00000000 00000001 1c000280 05000100 11000000 06000200 14e90000 06000300 03e90000 08000800
        00000000 08000c00 d2c1a412 08000b00 00000001 08000700 00000257 1c001880 08000100 00000000 08000200 00000000 08000300 00000000";
    /// Length of the original tuple in each.
    pub(super) const TUPLES: [usize; 2] = [0x34, 0x4c];
}

#[cfg(target_endian = "little")]
fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn two() -> [Flow; 2] {
    [
        udp("10.0.0.1:1000", "10.96.0.10:53", "10.244.1.7:5353"),
        udp("[fd00::1]:1001", "[fd00:96::a]:53", "[fd00:244::7]:5353"),
    ]
}

#[test]
#[cfg(target_endian = "little")]
fn what_a_kernel_said_is_read_and_written_as_it_says_it() {
    let ids = [0xe1fd_ebb7, 0xd2c1_a412];
    for (((hex, id), flow), length) in
        [captured::V4, captured::V6].iter().zip(ids).zip(two()).zip(captured::TUPLES)
    {
        let said = bytes(hex);
        let flow = Flow { id: Some(id), status: 0, ..flow };
        assert_eq!(Flow::read(&said), Some(flow));
        let mut written = Vec::new();
        codec::write_new(&mut AttrWriter::new(&mut written), &flow, 600);
        assert_eq!(written[..2 * length], said[..2 * length]);
        written.clear();
        codec::write_identity(&mut AttrWriter::new(&mut written), &flow);
        assert_eq!(written[..length], said[..length]);
        assert_eq!(written[length..], [&[8, 0, 12, 0][..], &id.to_be_bytes()].concat());
    }
}

/// The message with which the kernel listed one flow of four, byte by byte.
#[test]
#[cfg(target_endian = "little")]
fn a_filter_is_the_message_that_a_kernel_understood() {
    let filter = Filter {
        reply_source: Some("10.244.1.7".parse().unwrap()),
        reply_source_port: Some(5353),
        ..Filter::protocol(UDP)
    };
    let mut written = Vec::new();
    codec::write_filter(&mut AttrWriter::new(&mut written), &filter);
    let expected = "14000180 04000180 0c000280 05000100 11000000
        24000280 0c000180 08000100 0af40107 14000280 05000100 11000000 06000200 14e90000
        14001980 08000100 08000000 08000200 19000000";
    assert_eq!(written, bytes(expected));
}

#[test]
fn damaged_flows_are_none_and_never_a_panic() {
    let mut whole = Vec::new();
    codec::write_new(&mut AttrWriter::new(&mut whole), &Flow { zone: 3, ..two()[1] }, 9);
    assert_eq!(Flow::read(&whole), Some(Flow { zone: 3, ..two()[1] }));
    let (mut read, mut none) = (0, 0);
    for at in 0..whole.len() {
        for value in [0, 1, 3, 4, 0x7f, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            *(if Flow::read(&damaged).is_some() { &mut read } else { &mut none }) += 1;
        }
        none += usize::from(Flow::read(&whole[..at]).is_none());
    }
    assert!(read > 100 && none > 100, "{read} {none}");
    assert_eq!(Flow::read(&[]), None);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn flows_of_both_families_read_back() {
    make(&two());
    for (family, flow) in [Family::Ipv4, Family::Ipv6].into_iter().zip(two()) {
        let (listing, seen) = listed(family, None);
        assert_eq!(listing, Listing { walked: Walked::Whole, flows: 1, unasked: 0, malformed: 0 });
        assert_eq!((seen[0].protocol, seen[0].original, seen[0].reply), (UDP, flow.original, flow.reply));
        assert!(seen[0].in_default_zone());
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_kernel_leaves_out_what_a_filter_does_not_ask_for() {
    make(&[
        udp("10.0.0.1:1001", "10.96.0.10:53", "10.244.1.7:5353"),
        udp("10.0.0.1:1002", "10.96.0.10:53", "10.244.1.8:5353"),
        udp("10.0.0.1:1003", "10.96.0.10:54", "10.244.1.7:5354"),
        udp("10.0.0.1:1004", "10.96.0.11:53", "10.96.0.11:53"),
        flow(TCP, "10.0.0.1:1005", "10.96.0.10:53", "10.244.1.7:5353"),
        udp("[fd00::1]:1006", "[fd00:96::a]:53", "[fd00:244::7]:5353"),
        udp("[fd00::1]:1007", "[fd00:96::a]:53", "[fd00:244::8]:5353"),
    ]);
    let all = Filter::protocol(UDP);
    let ip = |text: &str| Some(text.parse().unwrap());
    for (family, filter, expected) in [
        (Family::Ipv4, all, &[1001, 1002, 1003, 1004][..]),
        (Family::Ipv4, Filter { destination: ip("10.96.0.10"), ..all }, &[1001, 1002, 1003]),
        (Family::Ipv4, Filter { destination_port: Some(53), ..all }, &[1001, 1002, 1004]),
        (Family::Ipv4, Filter { reply_source: ip("10.244.1.7"), ..all }, &[1001, 1003]),
        (
            Family::Ipv4,
            Filter { reply_source: ip("10.244.1.7"), reply_source_port: Some(5353), ..all },
            &[1001],
        ),
        (Family::Ipv4, Filter { reply_source_port: Some(5353), ..all }, &[1001, 1002]),
        (Family::Ipv4, Filter { destination_port: Some(53), reply_source_port: Some(53), ..all }, &[1004]),
        (Family::Ipv4, Filter { destination: ip("10.96.0.99"), ..all }, &[]),
        (Family::Ipv4, Filter::protocol(TCP), &[1005]),
        (Family::Ipv6, all, &[1006, 1007]),
        (Family::Ipv6, Filter { reply_source: ip("fd00:244::8"), ..all }, &[1007]),
        (
            Family::Ipv6,
            Filter { destination: ip("fd00:96::a"), destination_port: Some(53), ..all },
            &[1006, 1007],
        ),
    ] {
        let (listing, flows) = listed(family, Some(&filter));
        let ports: Vec<u16> = flows.iter().map(|flow| flow.original.source.port()).collect();
        assert_eq!(ports, expected, "{filter:?}");
        assert_eq!((listing.walked, listing.unasked, listing.malformed), (Walked::Whole, 0, 0));
    }
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn exactly_the_named_flows_go() {
    let doomed = udp("10.0.0.1:1001", "10.96.0.10:53", "10.244.1.7:5353");
    make(&[
        doomed,
        udp("10.0.0.1:1002", "10.96.0.10:53", "10.244.1.7:5353"),
        flow(TCP, "10.0.0.1:1001", "10.96.0.10:53", "10.244.1.7:5353"),
        Flow { zone: 7, ..doomed },
        Flow {
            original: Tuple { zone: 9, ..doomed.original },
            ..udp("10.0.0.1:1001", "10.96.0.10:53", "10.244.1.9:5353")
        },
        udp("[fd00::1]:1001", "[fd00:96::a]:53", "[fd00:244::7]:5353"),
    ]);
    let (_, before) = listed(Family::Ipv4, None);
    assert_eq!(before.iter().filter(|f| f.in_default_zone()).count(), 3);
    let mut conntrack = Conntrack::open().unwrap();
    for flow in before.iter().filter(|f| f.protocol == UDP && f.original.source.port() == 1001) {
        let (_, now) = listed(Family::Ipv4, None);
        let deletion = conntrack.delete(&[*flow, *flow]).unwrap();
        assert_eq!(deletion, Deletion { deleted: 1, gone: 1, refused: Vec::new() });
        let (_, after) = listed(Family::Ipv4, None);
        let expected: Vec<_> = now.into_iter().filter(|f| f != flow).collect();
        assert_eq!(after, expected, "{flow:?}");
    }
    let (_, left) = listed(Family::Ipv4, None);
    assert_eq!(left.len(), 2);
    let (_, six) = listed(Family::Ipv6, None);
    assert_eq!(conntrack.delete(&six).unwrap().deleted, 1);
    assert!(listed(Family::Ipv6, None).1.is_empty());
    assert_eq!(conntrack.delete(&[]).unwrap(), Deletion::default());
}

/// Between the listing and the deletion the flow ended and another one began with the same addresses and ports.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_tuple_that_was_used_again_is_not_hit() {
    let before = udp("10.0.0.1:1001", "10.96.0.10:53", "10.244.1.7:5353");
    make(&[before]);
    let (_, seen) = listed(Family::Ipv4, None);
    let mut conntrack = Conntrack::open().unwrap();
    assert_eq!(conntrack.delete(&seen).unwrap().deleted, 1);
    let mut number = seen[0].id;
    while number == seen[0].id {
        // The number comes from where the kernel keeps the flow, among other things; it may be the same once.
        let (_, now) = listed(Family::Ipv4, None);
        conntrack.delete(&now).unwrap();
        let now = udp("10.0.0.1:1001", "10.96.0.10:53", "10.244.1.8:5353");
        assert!(conntrack.create(&[now], 600).unwrap().is_empty());
        number = listed(Family::Ipv4, None).1[0].id;
    }
    let deletion = conntrack.delete(&seen).unwrap();
    assert_eq!(deletion, Deletion { deleted: 0, gone: 1, refused: Vec::new() });
    assert_eq!(listed(Family::Ipv4, None).1[0].reply.source, "10.244.1.8:5353".parse().unwrap());
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn thousands_are_listed_as_they_come_and_deleted_together() {
    let flows: Vec<Flow> = (0..10_000u32)
        .map(|i| {
            let client = format!("10.0.{}.{}:4000", i / 250, i % 250 + 1);
            udp(&client, "10.96.0.10:53", "10.244.1.7:53")
        })
        .collect();
    make(&flows);
    let (listing, seen) = listed(Family::Ipv4, Some(&Filter::protocol(UDP)));
    assert_eq!((listing.flows, seen.len()), (10_000, 10_000));
    let mut conntrack = Conntrack::open().unwrap();
    let deletion = conntrack.delete(&seen[..9_000]).unwrap();
    assert_eq!(deletion, Deletion { deleted: 9_000, gone: 0, refused: Vec::new() });
    assert_eq!(conntrack.take_sent().messages, 9_000);
    assert_eq!(sources(&listed(Family::Ipv4, None).1), sources(&seen[9_000..]));
}

/// The right is that of the network namespace's own user namespace; without it, neither listing nor deleting is possible.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn without_the_right_it_is_said_that_it_is_missing() {
    const INSIDE: &str = "PROXIER_TEST_WITHOUT_RIGHT";
    if std::env::var_os(INSIDE).is_some() {
        let mut conntrack = Conntrack::open().unwrap();
        let errors = [
            conntrack.list(Family::Ipv4, None, |_| {}).unwrap_err(),
            conntrack.list(Family::Ipv6, Some(&Filter::protocol(UDP)), |_| {}).unwrap_err(),
        ];
        for error in errors {
            assert!(error.is_permission() && error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        }
        let deletion = conntrack.delete(&[two()[0]]).unwrap();
        assert_eq!(deletion.refused[0].errno, Errno::EPERM as i32);
        return;
    }
    let this = std::env::current_exe().unwrap();
    let name = "conntrack::tests::without_the_right_it_is_said_that_it_is_missing";
    let inside = format!("{INSIDE}=1");
    let args = [
        &inside,
        "unshare",
        "-n",
        // In a user namespace of its own, which is not that of the network namespace.
        "unshare",
        "-U",
        this.to_str().unwrap(),
        "--ignored",
        "--exact",
        name,
    ];
    let output = SystemRunner::new().run(&CommandSpec::new("env", args)).unwrap();
    assert_eq!(output.code, 0, "{}{}", output.stdout_text(), output.stderr_text());
    assert!(output.stdout_text().contains("1 passed"), "{}", output.stdout_text());
}
