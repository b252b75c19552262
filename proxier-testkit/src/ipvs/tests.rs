use std::net::IpAddr;

use proxier_core::ids::Protocol;
use proxier_core::oracle::{Choice, Entry, Outcome};

use super::*;

fn host(text: &str) -> Host {
    let mut host = Host::default();
    host.apply(text).unwrap();
    host
}

fn packet(from: &str, entry: Entry, to: &str, port: u16) -> Packet {
    Packet {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol: Some(Protocol::Tcp),
        port,
        entry,
    }
}

fn end(host: &Host, packet: &Packet) -> Outcome {
    let node = WalkHost::new(["172.30.0.3".parse::<IpAddr>().unwrap()]);
    host.walk(packet, &node).unwrap().outcome().unwrap()
}

fn to(choices: &[(&str, u32, bool)]) -> Outcome {
    let choice = |(real, weight, masquerade): &(&str, u32, bool)| {
        let socket: std::net::SocketAddr = real.parse().unwrap();
        let port = proxier_core::ids::Port::new(socket.port()).unwrap();
        let endpoint = proxier_core::ids::EndpointAddr { ip: socket.ip(), port };
        Choice { endpoint, weight: *weight, masquerade: *masquerade }
    };
    Outcome::Endpoints(choices.iter().map(choice).collect())
}

const SERVICE: &str = "\
# ip -batch -
link add kube-ipvs0 type dummy
address add 10.96.0.1/32 dev kube-ipvs0
# ipvsadm --restore
-A -t 10.96.0.1:80 -s rr
-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1
-a -t 10.96.0.1:80 -r 172.30.0.3:8080 -m -w 1
-a -t 10.96.0.1:80 -r 10.244.1.3:8080 -m -w 0
";

#[test]
fn ipvs_sends_what_is_for_a_local_address() {
    let mut there = host(SERVICE);
    let pod = || Entry::Interface("veth1".into());
    let both = to(&[("10.244.1.1:8080", 1, false), ("172.30.0.3:8080", 1, false)]);
    for (from, entry) in [("10.244.1.9", pod()), ("172.30.0.3", Entry::Host)] {
        assert_eq!(end(&there, &packet(from, entry, "10.96.0.1", 80)), both, "{from}");
    }
    assert_eq!(end(&there, &packet("10.244.1.9", pod(), "10.96.0.1", 81)), Outcome::NotOurs);
    there.apply("# ip -batch -\naddress del 10.96.0.1/32 dev kube-ipvs0").unwrap();
    assert_eq!(end(&there, &packet("10.244.1.9", pod(), "10.96.0.1", 80)), Outcome::NotOurs, "forwarded");
    assert_eq!(
        end(&there, &packet("172.30.0.3", Entry::Host, "10.96.0.1", 80)),
        both,
        "asked on the way out"
    );
    there.apply("# ipvsadm --restore\n-e -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 0").unwrap();
    there.apply("# ipvsadm --restore\n-d -t 10.96.0.1:80 -r 172.30.0.3:8080").unwrap();
    assert_eq!(end(&there, &packet("172.30.0.3", Entry::Host, "10.96.0.1", 80)), Outcome::Reject);
}

/// Which hooks a packet passes before and after IPVS.
#[test]
fn rules_stand_before_and_behind_ipvs() {
    let rules = "\
# iptables-restore
*mangle
-A OUTPUT -d 10.96.0.1 -s 172.30.0.4 -j DROP
COMMIT
*nat
-A PREROUTING -d 10.96.0.1 -j MARK --or-mark 0x4000
-A OUTPUT -d 10.96.0.1 -j MARK --or-mark 0x4000
-A POSTROUTING -m mark --mark 0x4000/0x4000 -m ipvs --vaddr 10.96.0.1 --vport 80 --vproto 6 -j MASQUERADE
COMMIT
*filter
-A INPUT -d 10.96.0.1 -s 10.244.1.7 -j DROP
-A FORWARD -j DROP
-A OUTPUT -d 10.96.0.1 -j DROP
-A OUTPUT -d 10.244.1.1 -s 10.244.1.8 -j REJECT
COMMIT
";
    let there = host(&format!("{SERVICE}-d -t 10.96.0.1:80 -r 172.30.0.3:8080\n{rules}"));
    let pod = |from: &str| end(&there, &packet(from, Entry::Interface("veth1".into()), "10.96.0.1", 80));
    let masqueraded = to(&[("10.244.1.1:8080", 1, true)]);
    assert_eq!(pod("10.244.1.9"), masqueraded, "FORWARD does not see it, OUTPUT does not see the frontend");
    assert_eq!(pod("10.244.1.7"), Outcome::Drop, "INPUT sees the frontend");
    assert_eq!(pod("10.244.1.8"), Outcome::Reject, "OUTPUT sees the endpoint");
    let own = |from: &str| end(&there, &packet(from, Entry::Host, "10.96.0.1", 80));
    assert_eq!(own("172.30.0.3"), masqueraded);
    assert_eq!(own("172.30.0.4"), Outcome::Drop, "mangle sees the frontend");
}

#[test]
fn persistence_is_remembered_while_the_real_server_takes_part() {
    let mut there = host(
        "# ipvsadm\n-A -t 10.96.0.1:80 -s rr -p 600\n-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1\n-a -t 10.96.0.1:80 -r 10.244.1.2:8080 -m -w 1\n",
    );
    let ask = |there: &Host| end(there, &packet("172.30.0.3", Entry::Host, "10.96.0.1", 80));
    let real = "10.244.1.2:8080".parse().unwrap();
    there.servers_mut().remember(real, "172.30.0.3".parse().unwrap()).unwrap();
    assert_eq!(ask(&there), to(&[("10.244.1.2:8080", 1, false)]));
    there.apply("# ipvsadm\n-e -t 10.96.0.1:80 -r 10.244.1.2:8080 -m -w 0").unwrap();
    assert_eq!(ask(&there), to(&[("10.244.1.1:8080", 1, false)]));
    assert!(
        there.servers_mut().remember("10.9.9.9:1".parse().unwrap(), "172.30.0.3".parse().unwrap()).is_err()
    );
}

#[test]
fn what_is_refused() {
    let refused = |text: &str| host(SERVICE).apply(text).unwrap_err().to_string();
    for (text, why) in [
        ("# ipvsadm\n-A -t 10.96.0.1:80 -s rr", "already exists"),
        ("# ipvsadm\n-D -t 10.96.0.1:81", "No such service"),
        ("# ipvsadm\n-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1", "Destination already exists"),
        ("# ipvsadm\n-e -t 10.96.0.1:80 -r 10.9.9.9:8080 -m -w 1", "No such destination"),
        ("# ipvsadm\n-A -t 10.96.0.1 -s rr", "illegal address:port"),
        ("# ip\nlink add kube-ipvs0 type dummy", "File exists"),
        ("# ip\naddress add 10.96.0.1/32 dev kube-ipvs0", "File exists"),
        ("# ip\naddress add 10.96.0.1/24 dev kube-ipvs0", "prefix"),
        ("# ipset\nadd X 1.2.3.4", "does not exist"),
        ("# iptables-restore\n*filter\n-A INPUT -m set --match-set X dst,dst -j DROP\nCOMMIT", "line 3"),
        ("-A -t 1.2.3.4:5", "in no section"),
    ] {
        let found = refused(text);
        assert!(found.contains(why), "{text}: {found}");
    }
    let mut there = host(
        "# ipset\ncreate X hash:ip\n# iptables-restore\n*filter\n-A INPUT -m set --match-set X dst -j DROP\nCOMMIT\n",
    );
    assert!(there.apply("# ipset\ndestroy X").unwrap_err().why.contains("in use"));
}

/// What a real kube-proxy 1.36 programmed can be loaded and asked.
#[test]
fn the_peer_state() {
    let file =
        |name: &str| std::fs::read_to_string(crate::corpus::folder().join("peer/ipvs").join(name)).unwrap();
    let mut there = Host::default();
    there.load_ipvsadm(&file("ipvsadm-save.txt")).unwrap();
    there.load_ipset(&file("ipset-save.txt")).unwrap();
    there.load_addresses(&file("kube-ipvs0-addresses.txt")).unwrap();
    there.load_rules(IpFamily::Ipv4, &file("iptables-save.txt")).unwrap();
    there.load_rules(IpFamily::Ipv6, &file("ip6tables-save.txt")).unwrap();
    assert_eq!((there.servers().iter().count(), there.addresses().len()), (42, 19));
    let printed = there.rules().get(IpFamily::Ipv4).print();
    let theirs = file("iptables-save.txt");
    let rules = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|l| l.starts_with("-A")).map(str::to_owned).collect()
    };
    assert_eq!(rules(&printed), rules(&theirs), "each rule is printed as it was read");
    let outside =
        |to: &str, port| end(&there, &packet("203.0.113.9", Entry::Interface("eth0".into()), to, port));
    assert_eq!(outside("192.0.2.10", 443), to(&[("10.244.1.21:8443", 1, false)]));
    assert_eq!(outside("192.0.2.10", 22), Outcome::Reject);
    let stranger = packet("192.0.2.200", Entry::Interface("eth0".into()), "192.0.2.10", 443);
    assert_eq!(end(&there, &stranger), Outcome::Drop);
    let own = packet("192.0.2.10", Entry::Host, "192.0.2.10", 443);
    assert_eq!(end(&there, &own), Outcome::Drop, "KUBE-IPVS-OUT-FILTER");
}
