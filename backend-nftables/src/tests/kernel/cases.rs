//! Numbered cases that only the running kernel can show; see `docs/cases.md`.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use proxier_core::ids::ServiceName;
use proxier_core::names;
use proxier_sys::netlink::{Batch, NetfilterSocket, flags, subsystem};
use proxier_sys::sysctl::Sysctl;

use super::*;
use crate::options::CtInvalid;

const BOTH: [Layout; 2] = [Layout::Maps, Layout::Chains];

/// The chains of a listing with handles, each with its rules, whose name holds `part`.
fn chains_of(part: &str) -> Vec<String> {
    let listing = nft("-a list table ip kube-proxy");
    let whole = |block: &str| block.split("\n\t}").next().unwrap_or_default().to_owned();
    let blocks = listing.split("\tchain ").skip(1).map(whole);
    blocks.filter(|block| block.split(' ').next().is_some_and(|name| name.contains(part))).collect()
}

/// A chain that somebody else still jumps to cannot be deleted, which is no failure: it is tried again, and used again if needed.
///
/// Cases: nftables-12.6, nftables-12.8, report-C3-37
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_8_a_chain_that_is_busy_is_deleted_later_and_used_again_meanwhile() {
    for layout in BOTH {
        netns_test();
        let mut b = Bench::new(layout);
        b.put(0, 9, |_| {});
        b.put(1, 10, |_| {});
        b.sync();
        let name = match layout {
            Layout::Maps => "cluster-9".to_owned(),
            Layout::Chains => format!("service-{}", names::object_name(&names::base_of(&scale_name(0)))),
        };
        nft_script(&format!("add chain ip kube-proxy holder\nadd rule ip kube-proxy holder goto {name}"));
        let gone = |b: &mut Bench<Nftables>| {
            b.cluster.remove_service(&scale::service(0).name);
            b.sync()
        };
        let report = gone(&mut b);
        assert_eq!((report.kind, report.attempts), (SyncKind::Partial, 1));
        assert_eq!(report.follow_up, Some(Duration::from_secs(1)), "deleted by the next sync");
        let report = b.sync();
        assert_eq!((report.attempts, report.follow_up), (1, Some(Duration::from_secs(1))), "busy");
        let doomed: Vec<_> = b.driver.belief().unwrap().doomed().map(ToString::to_string).collect();
        assert!(doomed.contains(&name), "{doomed:?}");

        b.put(0, 9, |_| {});
        assert_eq!(b.sync().attempts, 1, "it comes back before the chain was deleted");
        assert!(b.driver.belief().unwrap().doomed().all(|n| **n != *name));
        assert!(chains_of(&name)[0].contains("numgen"), "and has its rules");

        gone(&mut b);
        nft_script("flush chain ip kube-proxy holder\ndelete chain ip kube-proxy holder");
        let report = b.sync();
        assert_eq!((report.kind, report.follow_up), (SyncKind::Partial, None));
        assert_eq!(b.driver.belief().unwrap().doomed().count(), 0);
        assert_eq!(chains_of(&name), [""; 0]);
        b.in_order("deleting what was busy");
    }
}

/// Cases: nftables-12.7, report-C3-37
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_37_services_and_endpoints_go_together_and_come_back() {
    for layout in BOTH {
        netns_test();
        let mut b = Bench::new(layout);
        b.put(7, 2, |_| {});
        b.sync();
        for round in 0..5 {
            let affinity = |s: &mut Service| s.affinity = (round % 2 == 0).then(|| Duration::from_secs(60));
            for number in 0..3 {
                b.put(number, number + 1, |s| {
                    rich(s);
                    s.ports[0].node_port = port(30_080 + u16::try_from(number).unwrap());
                    affinity(s);
                });
            }
            assert_eq!((b.sync().attempts, b.driver.set_aside().len()), (1, 0), "{layout:?} {round}");
            b.in_order("coming back");
            for number in 0..3 {
                b.cluster.remove_slice(&scale::slice(number, 0, 0).name);
                b.cluster.remove_service(&scale::service(number).name);
            }
            assert_eq!(b.sync().attempts, 1, "{layout:?} {round}");
            b.in_order("going together");
            b.sync();
            assert_eq!(b.driver.belief().unwrap().doomed().count(), 0);
        }
    }
}

/// A client is remembered by its endpoint's own set. When the endpoint is not ready any more, the set goes with all who are in it,
/// however often they try; when it is back, nobody is bound to it.
///
/// Cases: nftables-12.28, report-C1-4
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_4_an_endpoint_that_is_not_ready_forgets_its_clients() {
    for layout in BOTH {
        netns_test();
        let mut b = Bench::new(layout);
        b.put(0, 2, |s| s.affinity = Some(Duration::from_secs(10)));
        b.sync();
        let slice = scale::slice(0, 2, 0);
        let sets = || nft("list sets").matches("set affinity-").count();
        let first = b.driver.adopted().unwrap().ports().next().unwrap().endpoints[0].addr;
        let base = names::endpoint_base(&names::base_of(&scale_name(0)), first);
        let set = format!("affinity-{}", names::object_name(&base));
        assert_eq!(sets(), 2);
        nft(&format!("add element ip kube-proxy {set} {{ 10.128.7.7 }}"));

        let mut unready = slice.clone();
        let gone = unready.endpoints.iter_mut().find(|e| e.ip == first.ip).unwrap();
        gone.conditions = Conditions { ready: false, serving: true, terminating: false };
        b.cluster.upsert_slice(unready);
        assert_eq!(b.sync().kind, SyncKind::Partial);
        assert_eq!(sets(), 1);
        let listing = nft("list table ip kube-proxy");
        assert!(!listing.contains(&set) && !listing.contains(&format!("dnat to {first}")), "{listing}");

        b.cluster.upsert_slice(slice);
        b.sync();
        assert!(!nft(&format!("list set ip kube-proxy {set}")).contains("10.128.7.7"));
        b.in_order("coming back");
    }
}

/// Cases: nftables-12.33, report-C3-40
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_33_an_element_with_another_verdict_is_found_and_repaired() {
    for layout in BOTH {
        netns_test();
        let mut b = Bench::new(layout);
        b.put(0, 9, |_| {});
        b.sync();
        let key = "10.64.0.1 . tcp . 80";
        nft_script(&format!(
            "delete element ip kube-proxy service-ips {{ {key} }}\nadd element ip kube-proxy service-ips {{ {key} : drop }}"
        ));
        let drift = b.driver.verification().unwrap().run().unwrap();
        let items: Vec<String> = drift.items.iter().map(ToString::to_string).collect();
        let told = |what| items.iter().any(|i| i.contains(&format!("{what}: element service-ips: {key}")));
        assert!(told("missing") && told("unexpected") && items.len() == 2, "{items:#?}");
        let snapshot = b.driver.adopted().unwrap().clone();
        let report = b.driver.sync(&snapshot, SyncKind::Full).unwrap();
        assert!((1..=2).contains(&report.operations), "only that one: {}", report.operations);
        b.in_order("another verdict");
    }
}

/// Cases: nftables-12.37
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_37_the_longest_names_fail_nobody() {
    for layout in BOTH {
        netns_test();
        let mut b = Bench::new(layout);
        let long = |c: &str| c.repeat(63);
        let mut service = scale::service(0);
        rich(&mut service);
        service.name = ServiceName::new(long("n").as_str(), long("s").as_str());
        service.ports[0].name = long("p").into();
        b.cluster.upsert_service(service);
        b.put(1, 9, |_| {});
        let report = b.sync();
        assert_eq!((report.attempts, report.refused.len()), (1, 0));
        b.in_order("long names");
        let map = nft("list map ip kube-proxy no-endpoint-services");
        assert!(map.contains(&format!("comment \"{}/", long("n"))), "{map}");
        assert!(nft("list map ip kube-proxy service-ips").contains("10.64.0.2 . tcp . 80"));
    }
}

/// Cases: nftables-12.41
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn edge_41_the_chains_of_others_are_not_touched() {
    netns_test();
    let mut b = Bench::new(Layout::Chains);
    for number in 0..3 {
        b.put(number, 2, |s| s.affinity = (number == 2).then(|| Duration::from_secs(60)));
    }
    b.sync();
    let of = |number| chains_of(&names::base_of(&scale_name(number)));
    // Handles are numbers that the kernel gives anew to what is made anew.
    let (own, others) = (of(0), [of(1), of(2)]);
    assert!(others.iter().all(|chains| !chains.is_empty()));
    b.put(0, 3, |s| s.external_policy = TrafficPolicy::Local);
    assert_eq!(b.sync().kind, SyncKind::Partial);
    assert_ne!(of(0), own);
    assert_eq!([of(1), of(2)], others);
    b.in_order("a change of one");
}

/// Appends something of a newer tool, with metadata that this one cannot know.
fn add_newer(batch: &mut Batch, table: &str) {
    // NFT_MSG_NEWTABLE, NEWCHAIN, NEWSET and the attributes NFTA_*_TABLE, NAME, USERDATA, for sets also KEY_TYPE, KEY_LEN, ID.
    let metadata: Vec<u8> = (0..=255).rev().collect();
    batch.message(0, flags::CREATE, 2, |w| {
        w.put_str(1, table);
        w.put_bytes(6, &metadata);
    });
    batch.message(3, flags::CREATE, 2, |w| {
        w.put_str(1, table);
        w.put_str(3, "newer-chain");
        w.put_bytes(12, &metadata);
    });
    for (id, length) in (1..).zip([256, 255, 1]) {
        batch.message(9, flags::CREATE, 2, |w| {
            w.put_str(1, table);
            w.put_str(2, &format!("newer-{id}"));
            w.put_u32_be(4, 0x00ff_ffff);
            w.put_u32_be(5, 4);
            w.put_u32_be(10, id);
            w.put_bytes(13, &metadata[..length]);
        });
    }
}

/// A newer nft leaves metadata that makes an older one crash when it lists. Here nobody lists but by netlink, and metadata that is not
/// understood is none.
///
/// Cases: report-C3-35
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_35_metadata_of_a_newer_tool_is_no_matter() {
    netns_test();
    let send = |table: &str| {
        let mut batch = Batch::new(subsystem::NFTABLES);
        add_newer(&mut batch, table);
        let answer = NetfilterSocket::open().unwrap().send_batch(&batch).unwrap();
        assert!(answer.is_committed(), "{answer:?}");
    };
    send("newer");
    let mut b = Bench::new(Layout::Maps);
    b.put(0, 2, |_| {});
    b.sync();
    b.in_order("a start beside it");
    b.put(0, 3, |_| {});
    assert_eq!(b.sync().kind, SyncKind::Partial);
    b.in_order("a change beside it");

    // In our own table: told by name, and removed.
    send("kube-proxy");
    let drift = b.driver.verification().unwrap().run().unwrap();
    let items: Vec<String> = drift.items.iter().map(ToString::to_string).collect();
    for found in ["unexpected: chain newer-chain", "unexpected: set newer-1", "unexpected: set newer-3"] {
        assert!(items.iter().any(|i| i.contains(found)), "{found}: {items:#?}");
    }
    let snapshot = b.driver.adopted().unwrap().clone();
    b.driver.sync(&snapshot, SyncKind::Full).unwrap();
    b.in_order("removing it");
}

/// A packet that connection tracking calls invalid must not come through untranslated: whoever gets it resets the connection. Here one
/// is invalid because the connection began before anybody tracked it, and tracking may not pick it up in the middle.
///
/// Cases: report-C4-52
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_52_invalid_packets_are_dropped_unless_told_otherwise() {
    for (ct_invalid, comes_through) in [(CtInvalid::Drop, false), (CtInvalid::Ignore, true)] {
        netns_test();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut buffer = [0; 1];
        client.write_all(b"a").unwrap();
        server.read_exact(&mut buffer).unwrap();

        let options = Options { ct_invalid, ..Options::default() };
        let mut b = Bench::with(Nftables::new(IpFamily::Ipv4, options));
        b.put(0, 2, |_| {});
        b.sync();
        Sysctl::new().ensure("net/netfilter/nf_conntrack_tcp_loose", "0").unwrap();
        client.write_all(b"b").unwrap();
        match server.read_exact(&mut buffer) {
            Ok(()) => assert!(comes_through, "{ct_invalid:?}"),
            Err(error) => {
                assert_eq!((error.kind(), comes_through), (ErrorKind::WouldBlock, false), "{error}");
            }
        }
        let forward = nft("list chain ip kube-proxy filter-forward");
        assert_eq!(forward.contains("ct state invalid drop"), !comes_through, "{forward}");
    }
}

/// 5,006 Services with 50 endpoints each, which took others minutes: everything goes in, and a change costs what it changes.
///
/// Cases: report-C6-67
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn row_67_among_a_quarter_million_endpoints_a_change_is_small() {
    netns_test();
    let mut b = Bench::new(Layout::Maps);
    for number in 0..5_006 {
        b.put(number, 50, |_| {});
    }
    let report = b.sync();
    assert_eq!((report.attempts, report.refused.len()), (1, 0));
    // An element for each endpoint and frontend, few operations with many elements each; nothing grows faster.
    assert!(report.operations < 5_006 * 8, "{}", report.operations);
    assert!(report.bytes < 250_300 * 400, "{} bytes", report.bytes);
    b.in_order("a start");
    for round in 1..4 {
        b.cluster.upsert_slice(scale::slice(2_503, 50, round));
        let report = b.sync();
        assert_eq!((report.kind, report.changed_ports), (SyncKind::Partial, 1));
        assert!(report.operations <= 4 && report.bytes < 10_000, "{} {}", report.operations, report.bytes);
    }
    b.put(2_503, 49, |_| {});
    let report = b.sync();
    assert!(report.operations <= 12 && report.bytes < 10_000, "{} {}", report.operations, report.bytes);
    b.cluster.remove_service(&scale::service(2_503).name);
    let report = b.sync();
    assert!(report.operations <= 12 && report.bytes < 20_000, "{} {}", report.operations, report.bytes);
    b.in_order("changes");
}
