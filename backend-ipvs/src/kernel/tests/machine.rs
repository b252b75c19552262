//! IPVS and its device, on a kernel that has them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::links::RouteSocket;
use proxier_sys::runner::SystemRunner;

use super::{isolated, key, listing, real, server, sorted, tool, tool_with};
use crate::error::Error;
use crate::kernel::{DEVICE, Device, Ipvs, Kernel, RealServers, load_modules};
use crate::objects::{DRAINING, VirtualServer, WEIGHT};
use crate::wire::ipvs::{Change, SeenService, ServiceId, Timeouts};

/// Every scheduler of Linux 6.1.
const SCHEDULERS: [&str; 13] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh"];

/// The kernel's IPVS in a new network namespace.
fn ipvs() -> Ipvs {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        for scheduler in SCHEDULERS {
            assert_eq!(load_modules(&SystemRunner::new(), scheduler), None);
        }
    });
    isolated();
    Ipvs::open().unwrap()
}

/// The real servers of all.
fn all_reals(ipvs: &mut Ipvs) -> RealServers {
    ipvs.everything().unwrap().1
}

#[track_caller]
fn done(ipvs: &mut Ipvs, changes: &[Change]) {
    assert_eq!(ipvs.change(changes).unwrap(), []);
}

/// Virtual servers of all kinds, each with real servers.
fn all_kinds() -> Vec<Change> {
    let mut changes = Vec::new();
    let (mut port, ips) = (1000, ["10.96.0.10", "fd00:10:96::10"]);
    for ip in ips {
        for protocol in Protocol::ALL {
            for scheduler in SCHEDULERS {
                port += 1;
                let key = key(protocol, ip, port);
                let persistence = (port % 3 == 0).then(|| Duration::from_secs(10_800));
                let hash_port = scheduler == "mh" && protocol != Protocol::Udp;
                changes.push(Change::NewService(VirtualServer {
                    persistence,
                    hash_port,
                    ..server(key, scheduler)
                }));
                for number in 1..=u16::from(protocol == Protocol::Tcp) * 2 {
                    let at = if ip.contains('.') { "10.244.0.9" } else { "fd00:10:244::9" };
                    changes.push(Change::NewReal(key, real(at, number), WEIGHT));
                }
            }
        }
    }
    changes
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn all_kinds_of_virtual_servers_are_shown_by_ipvsadm_as_they_are_printed_and_read_back() {
    let mut ipvs = ipvs();
    let changes = all_kinds();
    done(&mut ipvs, &changes);
    let saved = listing("ipvsadm -S -n");
    let printed: String = changes.iter().map(|change| format!("{change}\n")).collect();
    assert_eq!(sorted(&saved), sorted(&printed));

    let mut expected: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            Change::NewService(server) => Some(server.clone()),
            _ => None,
        })
        .collect();
    let read = |ipvs: &mut Ipvs| {
        let mut seen: Vec<_> = ipvs.services().unwrap().iter().filter_map(SeenService::as_ours).collect();
        seen.sort();
        seen
    };
    expected.sort();
    assert_eq!(read(&mut ipvs), expected);
    for server in &expected {
        assert_eq!(ipvs.service(&server.key).unwrap().unwrap().as_ours().as_ref(), Some(server));
    }

    // What the tool writes from our lines is read the same, and the tool takes our changes and deletions, too.
    let reals = all_reals(&mut ipvs);
    tool("ipvsadm -C");
    tool_with("ipvsadm -R", &printed);
    assert_eq!((read(&mut ipvs), all_reals(&mut ipvs)), (expected, reals));
    let http = key(Protocol::Tcp, "10.96.0.10", 1001);
    let edits = [
        Change::SetService(server(http, "lc")),
        Change::SetReal(http, real("10.244.0.9", 1), DRAINING),
        Change::DeleteReal(http, real("10.244.0.9", 2)),
        Change::DeleteService(key(Protocol::Tcp, "10.96.0.10", 1002)),
    ];
    tool_with("ipvsadm -R", &edits.iter().map(|change| format!("{change}\n")).collect::<String>());
    let seen = ipvs.service(&http).unwrap().unwrap();
    assert_eq!(seen.scheduler, "lc");
    assert_eq!(ipvs.reals(&http).unwrap().iter().map(|real| real.weight).collect::<Vec<_>>(), [DRAINING]);
    assert_eq!(ipvs.service(&key(Protocol::Tcp, "10.96.0.10", 1002)).unwrap(), None);
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn real_servers_are_the_same_in_both_readings() {
    let mut ipvs = ipvs();
    done(&mut ipvs, &all_kinds());
    let all = all_reals(&mut ipvs);
    assert_eq!(all.len(), 2 * 3 * SCHEDULERS.len());
    for (key, reals) in &all {
        assert_eq!(&ipvs.reals(key).unwrap(), reals, "{key}");
        assert_eq!(reals.len(), if key.protocol == Protocol::Tcp { 2 } else { 0 });
    }
    assert_eq!(ipvs.reals(&key(Protocol::Tcp, "192.0.2.1", 1)).unwrap(), []);
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn changes_are_the_same_twice() {
    let mut ipvs = ipvs();
    let http = key(Protocol::Tcp, "10.96.0.10", 80);
    let sticky = VirtualServer { persistence: Some(Duration::from_secs(5)), ..server(http, "sh") };
    for server in [server(http, "rr"), sticky] {
        for weight in [WEIGHT, DRAINING] {
            done(
                &mut ipvs,
                &[Change::NewService(server.clone()), Change::NewReal(http, real("10.0.0.1", 80), weight)],
            );
            assert_eq!(ipvs.service(&http).unwrap().unwrap().as_ours(), Some(server.clone()));
            let reals = ipvs.reals(&http).unwrap();
            assert_eq!(reals.iter().map(|real| real.weight).collect::<Vec<_>>(), [weight]);
        }
    }
    for _ in 0..2 {
        done(&mut ipvs, &[Change::DeleteReal(http, real("10.0.0.1", 80)), Change::DeleteService(http)]);
        // The real server of no virtual server is gone as well.
        done(&mut ipvs, &[Change::DeleteReal(http, real("10.0.0.1", 80))]);
    }
    assert_eq!(ipvs.services().unwrap(), []);
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn refused_changes_are_named_and_all_others_are_in() {
    let mut ipvs = ipvs();
    let service = |i: u16| key(Protocol::Udp, "10.96.0.10", 1000 + i);
    let mut changes: Vec<_> = (0..3000).map(|i| Change::NewService(server(service(i), "rr"))).collect();
    changes[7] = Change::NewService(server(service(7), "none-such"));
    changes[1500] = Change::SetService(server(service(5000), "rr"));
    changes.push(Change::NewReal(service(7), real("10.0.0.1", 1), 1));
    changes.push(Change::SetReal(service(8), real("10.0.0.1", 1), 0));
    let refused = ipvs.change(&changes).unwrap();
    let told: Vec<_> = refused.iter().map(|r| (r.index, r.reason.as_str())).collect();
    let expected = [
        (7, "the kernel has no scheduler none-such (ENOENT)"),
        (1500, "no such virtual server (ESRCH)"),
        (3000, "no such virtual server (ESRCH)"),
        (3001, "no such real server (ENOENT)"),
    ];
    for ((index, reason), (expected, words)) in told.iter().zip(expected) {
        assert_eq!(*index, expected);
        assert!(reason.starts_with(words), "{reason}");
    }
    assert_eq!((told.len(), ipvs.services().unwrap().len()), (4, 2998));
}

/// Ends the work of another thread when it goes, also by a failed assertion.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All network namespaces share the kernel's table, and a dump counts its places.
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn a_listing_beside_writers_of_other_namespaces_is_whole_or_says_that_it_is_not() {
    const MANY: u16 = 1500;
    let stop = AtomicBool::new(false);
    let service = |i: u16| Change::NewService(server(key(Protocol::Udp, "10.96.0.10", 1000 + i), "rr"));
    let gone = |i: u16| Change::DeleteService(key(Protocol::Udp, "10.96.0.10", 1000 + i));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = ipvs();
            while !stop.load(Ordering::Relaxed) {
                // In bursts: in between there is time to find two listings that agree.
                done(&mut other, &(0..200).map(service).collect::<Vec<_>>());
                done(&mut other, &(0..200).map(gone).collect::<Vec<_>>());
                thread::sleep(Duration::from_millis(300));
            }
        });
        scope.spawn(|| {
            let _stop = Stop(&stop);
            let mut ipvs = ipvs();
            done(&mut ipvs, &(0..MANY).map(service).collect::<Vec<_>>());
            let mut whole = 0;
            for _ in 0..40 {
                match ipvs.services() {
                    Ok(seen) => {
                        let keys: BTreeSet<_> = seen.iter().map(|s| s.id.clone()).collect();
                        assert_eq!((seen.len(), keys.len()), (MANY.into(), MANY.into()));
                        whole += 1;
                    }
                    Err(error) => assert!(matches!(error, Error::Changing { .. }), "{error}"),
                }
            }
            assert!(whole > 0, "none of the listings was whole");
        });
    });
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn other_forms_of_others_are_seen_and_other_methods_repaired() {
    let mut ipvs = ipvs();
    let web = key(Protocol::Tcp, "10.96.0.10", 80);
    tool_with(
        "ipvsadm -R",
        "-A -f 7 -s rr\n-A -f 7 -6 -s rr\n-A -t 10.96.0.11:0 -s rr -p 9\n-A -t 10.96.0.10:80 -s rr -p 9 -M 255.255.255.0\n\
         -a -t 10.96.0.10:80 -r 10.0.0.1:80 -g -w 3\n-a -f 7 -r 10.0.0.2:0 -g\n",
    );
    let seen = ipvs.services().unwrap();
    assert!(seen.iter().all(|service| service.as_ours().is_none()));
    let mut texts: Vec<_> = seen.iter().map(|service| service.id.to_string()).collect();
    texts.sort();
    let expected =
        ["10.96.0.10:80/TCP", "10.96.0.11 port 0 tcp", "firewall mark 7 (IPv4)", "firewall mark 7 (IPv6)"];
    assert_eq!(texts, expected);
    assert_eq!(seen.iter().filter(|service| matches!(service.id, ServiceId::Key(_))).count(), 1);
    assert_eq!(all_reals(&mut ipvs).into_keys().collect::<Vec<_>>(), [web]);
    assert!(!ipvs.reals(&web).unwrap()[0].masquerades);
    done(
        &mut ipvs,
        &[Change::SetService(server(web, "rr")), Change::SetReal(web, real("10.0.0.1", 80), WEIGHT)],
    );
    let reals = ipvs.reals(&web).unwrap();
    assert_eq!((reals[0].masquerades, reals[0].weight), (true, WEIGHT));
    assert_eq!(ipvs.service(&web).unwrap().unwrap().as_ours(), Some(server(web, "rr")));
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn timeouts_are_set_and_zero_keeps_what_is() {
    let mut ipvs = ipvs();
    let all = Timeouts { tcp: 901, tcp_fin: 121, udp: 301 };
    ipvs.set_timeouts(&all).unwrap();
    assert_eq!(ipvs.timeouts().unwrap(), all);
    ipvs.set_timeouts(&Timeouts { udp: 7, ..Timeouts::default() }).unwrap();
    assert_eq!(ipvs.timeouts().unwrap(), Timeouts { udp: 7, ..all });
    let info = ipvs.info().unwrap();
    assert!(info.version >= (1, 2, 1) && info.table >= 256, "{info}");
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn each_network_namespace_has_its_own() {
    let mut ipvs = ipvs();
    done(&mut ipvs, &[Change::NewService(server(key(Protocol::Tcp, "10.96.0.10", 80), "rr"))]);
    let elsewhere = thread::spawn(|| {
        let mut other = self::ipvs();
        (other.services().unwrap(), all_reals(&mut other).len())
    });
    assert_eq!(elsewhere.join().unwrap(), (Vec::new(), 0));
    assert_eq!((ipvs.services().unwrap().len(), all_reals(&mut ipvs).len()), (1, 1));
}

/// Linux loses its place in `/proc/net/ip_vs` when other namespaces have virtual servers, too.
#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn no_real_server_is_missed_beside_other_namespaces() {
    let load = |ipvs: &mut Ipvs| {
        for i in 1..=300 {
            let web = key(Protocol::Tcp, "10.96.0.10", i);
            done(
                ipvs,
                &[Change::NewService(server(web, "rr")), Change::NewReal(web, real("10.0.0.1", i), 1)],
            );
        }
    };
    let mut ipvs = ipvs();
    load(&mut ipvs);
    let (loaded, wait) = std::sync::mpsc::channel();
    let (read, done_reading) = std::sync::mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let mut other = self::ipvs();
        load(&mut other);
        loaded.send(()).unwrap();
        // The namespace lives until then.
        let _ = done_reading.recv();
    });
    wait.recv().unwrap();
    let all = all_reals(&mut ipvs);
    let listed = std::fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap();
    drop(read);
    other.join().unwrap();
    assert_eq!(all.len(), 300);
    assert!(all.iter().all(|(key, reals)| reals.len() == 1 && reals[0].port == key.port.get()));
    // If the kernel has been mended, the comment on the reading wants to be changed.
    println!("{} of 300 were listed", listed.lines().filter(|line| line.starts_with("TCP")).count());
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn addresses_are_bound_and_unbound_and_the_device_stays_down() {
    isolated();
    let mut kernel = Kernel::open().unwrap();
    let device = &mut kernel.device;
    assert_eq!((device.find().unwrap(), device.remove().unwrap()), (None, false));
    assert_eq!(device.bound(IpFamily::Ipv4).unwrap(), Vec::<IpAddr>::new());
    let link = device.ensure().unwrap();
    assert_eq!(device.ensure().unwrap(), link);
    assert!(!link.up);
    let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let (v4, v6) = (ips(&["10.96.0.1", "10.96.0.10"]), ips(&["fd00::1", "fd00::10"]));
    let all = [v4.clone(), v6.clone()].concat();
    for _ in 0..2 {
        assert_eq!(device.bind(&link, &all).unwrap(), []);
        assert_eq!(device.bound(IpFamily::Ipv4).unwrap(), v4);
        assert_eq!(device.bound(IpFamily::Ipv6).unwrap(), v6);
    }
    // Packets to them stay here, though the device is down.
    assert!(tool("ip route show table local").contains("local 10.96.0.10"));
    assert!(tool("ip -6 route show table local").contains("local fd00::10"));
    // What does not count, and what is refused.
    tool(&format!("ip address add 10.9.0.1/24 dev {DEVICE}"));
    tool(&format!("ip address add 127.0.0.9/32 dev {DEVICE}"));
    tool(&format!("ip address add fe80::9/128 dev {DEVICE}"));
    assert_eq!(device.bound(IpFamily::Ipv4).unwrap(), v4);
    assert_eq!(device.bound(IpFamily::Ipv6).unwrap(), v6);
    let refused = device.bind(&link, &ips(&["10.96.0.3", "224.0.0.1", "ff02::1"])).unwrap();
    assert_eq!(refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [2], "{refused:?}");
    for _ in 0..2 {
        assert_eq!(device.unbind(&link, &[v4[1], v6[0]]).unwrap(), []);
    }
    assert_eq!(device.bound(IpFamily::Ipv6).unwrap(), v6[1..]);
    tool(&format!("ip link set {DEVICE} up"));
    assert!(device.find().unwrap().unwrap().up);
    assert!(device.remove().unwrap());
    assert_eq!(device.unbind(&link, &v4).unwrap(), []);
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn another_kind_of_device_is_left_alone() {
    isolated();
    RouteSocket::open().unwrap().create_link(DEVICE, "bridge").unwrap();
    let mut device = Device::open().unwrap();
    for result in
        [device.ensure().map(drop), device.remove().map(drop), device.bound(IpFamily::Ipv4).map(drop)]
    {
        assert!(matches!(result, Err(Error::OtherDevice { .. })), "{result:?}");
    }
}

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn ten_thousand_virtual_servers_go_in_and_are_read() {
    let mut ipvs = ipvs();
    let service = |i: u32| {
        let ip = IpAddr::from((0x0a60_0000 + i).to_be_bytes());
        crate::objects::ServiceKey { protocol: Protocol::Tcp, ip, port: Port::new(80).unwrap() }
    };
    let mut changes = Vec::new();
    for i in 0..10_000 {
        changes.push(Change::NewService(server(service(i), "rr")));
        changes.extend((1..=5).map(|n| Change::NewReal(service(i), real("10.244.0.1", n), WEIGHT)));
    }
    done(&mut ipvs, &changes);
    let reals = all_reals(&mut ipvs);
    assert_eq!((reals.len(), reals.values().map(Vec::len).sum::<usize>()), (10_000, 50_000));
    assert_eq!(ipvs.services().unwrap().len(), 10_000);
    let deletions: Vec<_> = (0..10_000).map(|i| Change::DeleteService(service(i))).collect();
    done(&mut ipvs, &deletions);
    assert_eq!(ipvs.services().unwrap(), []);
}
