//! Virtual servers and real servers.

use std::time::Duration;

use proxier_core::ids::{EndpointAddr, IpFamily, Port, Protocol};
use proxier_sys::netlink::{AttrWriter, GenericFamily, Requests, errno_name};

use super::{Exchange, HEADERS, captured, captured_all, flat, head, survives_damage};
use crate::objects::{RealServer, ServiceKey, VirtualServer};
use crate::wire::DecodeError;
use crate::wire::ipvs::*;

const FILE: &str = include_str!("ipvs.txt");
const FAMILY: GenericFamily = GenericFamily::new(0x20, 1);

fn said(command: &str) -> Exchange {
    captured(FILE, command)
}

fn key(protocol: Protocol, ip: &str, port: u16) -> ServiceKey {
    ServiceKey { protocol, ip: ip.parse().unwrap(), port: Port::new(port).unwrap() }
}

fn real(ip: &str, port: u16) -> RealServer {
    EndpointAddr { ip: ip.parse().unwrap(), port: Port::new(port).unwrap() }
}

fn server(key: ServiceKey, scheduler: &str, persistence: Option<u64>) -> VirtualServer {
    let persistence = persistence.map(Duration::from_secs);
    VirtualServer { key, scheduler: scheduler.into(), persistence, hash_port: false }
}

fn dns() -> ServiceKey {
    key(Protocol::Tcp, "10.96.0.10", 53)
}

fn mh() -> VirtualServer {
    VirtualServer { hash_port: true, ..server(key(Protocol::Udp, "10.96.10.2", 443), "mh", Some(10_800)) }
}

fn sctp() -> ServiceKey {
    key(Protocol::Sctp, "2001:db8::10", 2905)
}

fn written(change: &Change) -> Vec<u8> {
    let mut requests = Requests::new();
    let index = push(&mut requests, &FAMILY, change);
    requests.message_bytes(index).unwrap().to_vec()
}

fn attributes(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = AttrWriter::new(&mut bytes);
    fill(&mut writer);
    writer.finish().unwrap();
    bytes
}

#[test]
fn virtual_servers_are_written_as_ipvsadm_writes_them() {
    for (command, change) in [
        ("ipvsadm -A -t 10.96.0.10:53 -s rr", Change::NewService(server(dns(), "rr", None))),
        ("ipvsadm -A -u 10.96.10.2:443 -s mh -p 10800 -b mh-port", Change::NewService(mh())),
        (
            "ipvsadm -A --sctp-service [2001:db8::10]:2905 -s wrr",
            Change::NewService(server(sctp(), "wrr", None)),
        ),
        ("ipvsadm -E -t 10.96.0.10:53 -s wrr -p 300", Change::SetService(server(dns(), "wrr", Some(300)))),
    ] {
        let (ours, theirs) = (written(&change), said(command));
        assert_eq!(head(&ours), head(theirs.request()), "{command}");
        assert_eq!(ours[16..], theirs.request()[16..], "{command}");
        // A plan's text of it is the command's.
        assert_eq!(format!("ipvsadm {change}"), command);
    }
}

/// The tool also sends what the kernel does not look at there: scheduler and so on of the virtual server, kinds of tunnels.
#[test]
fn deletions_and_real_servers_are_written_as_ipvsadm_writes_them() {
    const IDLE_SERVICE: [u16; 4] = [6, 7, 8, 9];
    const IDLE_REAL: [u16; 3] = [13, 14, 15];
    let five = real("10.244.0.5", 5353);
    for (command, change) in [
        ("ipvsadm -a -t 10.96.0.10:53 -r 10.244.0.5:5353 -m -w 1", Change::NewReal(dns(), five, 1)),
        ("ipvsadm -e -t 10.96.0.10:53 -r 10.244.0.5:5353 -m -w 0", Change::SetReal(dns(), five, 0)),
        (
            "ipvsadm -a --sctp-service [2001:db8::10]:2905 -r [2001:db8:1::5]:2905 -m -w 1",
            Change::NewReal(sctp(), real("2001:db8:1::5", 2905), 1),
        ),
        (
            "ipvsadm -d -t 10.96.0.10:53 -r 10.244.0.6:5353",
            Change::DeleteReal(dns(), real("10.244.0.6", 5353)),
        ),
        ("ipvsadm -D -t 10.96.0.10:53", Change::DeleteService(dns())),
    ] {
        let (ours, theirs) = (written(&change), said(command));
        assert_eq!(ours[16..HEADERS], theirs.request()[16..HEADERS], "{command}");
        let mut expected = flat(&theirs.request()[HEADERS..]);
        expected.retain(|(way, _)| match way[..] {
            [1, kind] => !IDLE_SERVICE.contains(&kind),
            // A deletion names address and port, nothing else.
            [2, kind] if matches!(change, Change::DeleteReal(..)) => [1, 2, 11].contains(&kind),
            [2, kind] => !IDLE_REAL.contains(&kind),
            _ => true,
        });
        assert_eq!(flat(&ours[HEADERS..]), expected, "{command}");
        assert_eq!(format!("ipvsadm {change}"), command);
    }
}

#[test]
fn requests_for_one_virtual_server_are_those_of_ipvsadm() {
    let listing = said("ipvsadm -Ln");
    let get_real = &listing.sent[1];
    assert_eq!(get_real[16], command::GET_DESTINATION);
    assert_eq!(get_real[HEADERS..], attributes(|w| put_key(w, &dns())));
    assert_eq!(listing.sent[0][16..], [command::GET_SERVICE, 1, 0, 0]);
}

#[test]
fn virtual_servers_are_read() {
    let listing = said("ipvsadm -Ln");
    let services: Vec<_> =
        listing.objects().into_iter().filter_map(|payload| read_service(payload).ok()).collect();
    let ours: Vec<_> = services.iter().map(SeenService::as_ours).collect();
    let expected =
        [Some(server(dns(), "wrr", Some(300))), Some(server(sctp(), "wrr", None)), Some(mh()), None];
    assert_eq!(ours, expected);
    let mark = &services[3];
    assert_eq!(mark.id.to_string(), "firewall mark 7 (IPv4)");
    assert_eq!((mark.id.family(), mark.scheduler.as_str(), mark.flags), (IpFamily::Ipv4, "rr", 0));
    // The kernel's own flag is gone.
    assert_eq!(services.iter().map(|service| service.flags).collect::<Vec<_>>(), [1, 0, 0x11, 0]);
}

#[test]
fn what_this_backend_never_makes_is_not_taken_for_its_own() {
    let listing = said("ipvsadm -Ln");
    let right = read_service(listing.objects()[0]).unwrap();
    for wrong in [
        SeenService { flags: right.flags | 0x4, ..right.clone() },
        SeenService { netmask: 0x00ff_ffff, ..right.clone() },
        SeenService { engine: Some("sip".into()), ..right.clone() },
    ] {
        assert_eq!(wrong.as_ours(), None, "{wrong:?}");
    }
    let id = ServiceId::new(Some(Protocol::Tcp), "192.0.2.1".parse().unwrap(), 0);
    assert_eq!(id.to_string(), "192.0.2.1 port 0 tcp");
}

#[test]
fn real_servers_are_read() {
    let listing = said("ipvsadm -Ln");
    let reals: Vec<_> = listing
        .objects()
        .into_iter()
        .filter_map(|payload| read_real(payload, IpFamily::Ipv4).ok())
        .map(|seen| (seen.server().unwrap(), seen.weight, seen.is_idle(), seen.masquerades))
        .collect();
    let expected = [
        (real("10.244.0.6", 5353), 1, true, true),
        (real("10.244.0.5", 5353), 0, true, true),
        (real("2001:db8:1::5", 2905), 1, true, true),
    ];
    assert_eq!(reals, expected);
}

#[test]
fn counts_of_connections_and_other_methods_are_read() {
    let put = |method, family: Option<u16>| {
        attributes(|w| {
            w.nest(2, |w| {
                w.put_bytes(1, &[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                w.put_u16_be(2, 0);
                w.put_u32(3, method);
                w.put_u32(4, 7);
                w.put_u32(7, 3);
                w.put_u32(8, 4);
                w.put_u32(99, 1);
                if let Some(family) = family {
                    w.put_u16(11, family);
                }
            });
        })
    };
    // Kernels before 3.18 do not tell the family; it is that of the virtual server.
    let seen = read_real(&put(0x100, None), IpFamily::Ipv4).unwrap();
    assert_eq!((seen.ip, seen.weight, seen.active, seen.inactive), ("10.0.0.1".parse().unwrap(), 7, 3, 4));
    assert_eq!((seen.server(), seen.is_idle(), seen.masquerades), (None, false, true));
    assert!(!read_real(&put(2, Some(2)), IpFamily::Ipv6).unwrap().masquerades);
    assert!(read_real(&put(2, Some(77)), IpFamily::Ipv4).is_err());
}

#[test]
fn timeouts_and_information_are_written_and_read() {
    let timeouts = Timeouts { tcp: 900, tcp_fin: 120, udp: 300 };
    let set = said("ipvsadm --set 900 120 300");
    assert_eq!(set.request()[16], command::SET_CONFIG);
    assert_eq!(set.request()[HEADERS..], attributes(|w| put_timeouts(w, &timeouts)));
    let get = said("ipvsadm -L --timeout");
    assert_eq!(get.request()[16..], [command::GET_CONFIG, 1, 0, 0]);
    assert_eq!(read_timeouts(get.objects()[0]).unwrap(), timeouts);
    let version = said("ipvsadm --version");
    assert_eq!(version.request()[16..], [command::GET_INFO, 1, 0, 0]);
    let info = read_info(version.objects()[0]).unwrap();
    assert_eq!(info.to_string(), "IPVS 1.2.1, connection table of 4096 buckets");
}

/// What the comments on the commands say.
#[test]
fn the_kernel_refuses_with_the_numbers_that_are_documented() {
    let twice = captured_all(FILE, "ipvsadm -a -t 10.96.0.10:53 -r 10.244.0.6:5353 -m -w 1");
    assert_eq!((twice.len(), errno_name(twice[1].errno()).as_str()), (2, "EEXIST"));
    for (command, errno) in [
        ("ipvsadm -d -t 10.96.0.10:53 -r 10.244.0.9:5353", "ENOENT"),
        ("ipvsadm -D -t 10.96.0.99:53", "ESRCH"),
        ("ipvsadm -A -t 10.96.0.99:53 -s nosuch", "ENOENT"),
    ] {
        assert_eq!(errno_name(said(command).errno()), errno, "{command}");
    }
}

#[test]
fn what_is_written_is_what_is_read() {
    for service in [server(dns(), "lblcr", None), mh(), server(sctp(), "sh", Some(1))] {
        let bytes = written(&Change::NewService(service.clone()));
        assert_eq!(read_service(&bytes[HEADERS..]).unwrap().as_ours(), Some(service));
    }
    let there = real("2001:db8:1::5", 2905);
    let bytes = written(&Change::SetReal(sctp(), there, 9));
    let seen = read_real(&bytes[HEADERS..], IpFamily::Ipv4).unwrap();
    assert_eq!((seen.server(), seen.weight), (Some(there), 9));
}

#[test]
fn what_is_missing_is_named() {
    let missing = |object, attribute| DecodeError::Missing { object, attribute };
    assert_eq!(read_service(&[]).unwrap_err(), missing("virtual server", "attributes"));
    let no_family = attributes(|w| w.nest(1, |w| w.put_u16(2, 6)));
    assert_eq!(read_service(&no_family).unwrap_err(), missing("virtual server", "family"));
    let no_address = attributes(|w| w.nest(1, |w| w.put_u16(1, 2)));
    assert_eq!(read_service(&no_address).unwrap_err(), missing("virtual server", "address"));
    let no_port = attributes(|w| w.nest(2, |w| w.put_bytes(1, &[0; 16])));
    assert_eq!(read_real(&no_port, IpFamily::Ipv4).unwrap_err(), missing("real server", "port"));
    assert_eq!(read_info(&[]).unwrap_err().to_string(), "information without version");
}

#[test]
fn damaged_answers_are_errors_or_objects_and_never_panic() {
    for payload in said("ipvsadm -Ln").objects() {
        survives_damage(payload, read_service);
        survives_damage(payload, |bytes| read_real(bytes, IpFamily::Ipv6));
    }
    survives_damage(said("ipvsadm -L --timeout").objects()[0], read_timeouts);
    survives_damage(said("ipvsadm --version").objects()[0], read_info);
}
