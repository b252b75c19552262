//! A real kube-proxy's rules (Kubernetes 1.36, iptables mode): 12 Services on node `worker`, 172.30.0.3 and fd00:30::3, pods
//! 10.244.1.0/24. The answers were worked out by hand from iptables spec 5 and 12.

use proxier_core::ids::IpFamily;
use proxier_testkit::iptables::Families;
use proxier_testkit::walk::WalkHost;

use crate::rows;

pub(crate) const IPV4: &str = include_str!("../../corpus/peer/iptables-save.txt");
pub(crate) const IPV6: &str = include_str!("../../corpus/peer/ip6tables-save.txt");

/// The node that the rules were made for, with the address of its pods' bridge.
pub(crate) fn host() -> WalkHost {
    WalkHost::new(["172.30.0.3", "fd00:30::3", "10.244.1.1"].map(|ip| ip.parse().unwrap()))
}

fn rules() -> Families {
    let mut families = Families::default();
    families.get_mut(IpFamily::Ipv4).restore(IPV4).unwrap();
    families.get_mut(IpFamily::Ipv6).restore(IPV6).unwrap();
    families
}

#[test]
fn the_output_is_printed_as_it_was() {
    let rules = rules();
    for (family, text) in [(IpFamily::Ipv4, IPV4), (IpFamily::Ipv6, IPV6)] {
        let lines = |text: &str| -> Vec<String> {
            let rules = text.lines().filter(|line| line.starts_with("-A"));
            // The one thing that the tool does not print like everything else.
            let mut lines: Vec<String> =
                rules.map(|line| line.replace("nfacct-name  ", "nfacct-name ")).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines(&rules.get(family).print()), lines(text));
    }
}

#[test]
fn cluster_ips_and_external_addresses() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        10.244.1.4@veth0  > 10.96.66.43 tcp 80 = 10.244.1.2:8080 | 10.244.2.2:8080
        10.244.1.2@veth0  > 10.96.66.43 tcp 80 = 10.244.1.2:8080 M | 10.244.2.2:8080
        172.30.0.5@eth0   > 10.96.66.43 tcp 80 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        172.30.0.3@host   > 10.96.66.43 tcp 80 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        10.244.1.4@veth0  > 10.96.66.43 tcp 81 = untouched
        10.244.1.4@veth0  > 10.96.66.43 icmp 0 = untouched
        10.244.1.3@veth0  > 10.96.123.219 tcp 80 = 10.244.1.3:8080 M
        10.244.1.4@veth0  > 10.96.0.10 udp 53 = 10.244.1.10:53 | 10.244.2.10:53
        10.244.1.4@veth0  > 10.96.0.10 tcp 53 = 10.244.1.10:53 | 10.244.2.10:53
        10.244.1.4@veth0  > 10.96.3.1 sctp 2905 = 10.244.1.51:2905 | 10.244.2.51:2905 | 10.244.2.52:2905
        10.244.1.21@veth0 > 10.96.1.1 tcp 443 = 10.244.1.21:8443 M | 10.244.2.21:8443
        10.244.1.4@veth0  > 10.96.6.1 tcp 80 = 10.244.1.71:8080 | 10.244.2.71:8080
        10.244.1.4@veth0  > 10.96.5.1 tcp 80 = 10.244.1.61:8080 | 10.244.2.62:8080
        10.244.1.4@veth0  > 10.96.2.1 tcp 9100 = 10.244.1.41:9100
        172.30.0.5@eth0   > 10.96.2.1 tcp 9100 = 10.244.1.41:9100 M
        10.244.1.4@veth0  > 10.96.2.2 tcp 9100 = drop
        172.30.0.3@host   > 10.96.2.2 tcp 9100 = drop
        10.244.1.4@veth0  > 10.96.4.1 tcp 80 = reject
        172.30.0.5@eth0   > 10.96.0.1 tcp 443 = reject
        10.244.1.4@veth0  > 10.96.1.2 tcp 80 = 10.244.2.31:8080
        # the VIP of web/front: external policy Local, sources 203.0.113.0/24 and 198.51.100.7
        203.0.113.9@eth0   > 192.0.2.10 tcp 80 = 10.244.1.21:8080
        203.0.114.0@eth0   > 192.0.2.10 tcp 80 = drop
        198.51.100.7@eth0  > 192.0.2.10 tcp 443 = 10.244.1.21:8443
        10.244.1.4@veth0   > 192.0.2.10 tcp 80 = drop
        172.30.0.3@host    > 192.0.2.10 tcp 80 = drop
        198.51.100.8@eth0  > 192.0.2.10 udp 80 = untouched
        203.0.113.9@eth0   > 192.0.2.11 tcp 80 = untouched
        # its external IP, which has no source ranges
        198.51.100.8@eth0  > 192.0.2.77 tcp 80 = 10.244.1.21:8080
        10.244.1.4@veth0   > 192.0.2.77 tcp 80 = 10.244.1.21:8080 | 10.244.2.21:8080
        172.30.0.3@host    > 192.0.2.77 tcp 80 = 10.244.1.21:8080 M | 10.244.2.21:8080 M
        # web/away: external policy Local, and no endpoint here
        172.30.0.5@eth0    > 192.0.2.20 tcp 80 = drop
        10.244.1.4@veth0   > 192.0.2.20 tcp 80 = 10.244.2.31:8080
        172.30.0.3@host    > 192.0.2.20 tcp 80 = 10.244.2.31:8080 M
        # batch/empty
        172.30.0.5@eth0    > 192.0.2.88 tcp 80 = reject
        172.30.0.3@host    > 192.0.2.88 tcp 80 = untouched
        # a hairpin is one only for translated connections
        10.244.1.2@veth0   > 10.244.1.2 tcp 8080 = untouched
        ",
    );
    assert_eq!(rows, 36);
}

#[test]
fn node_ports() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        172.30.0.5@eth0   > 172.30.0.3 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        172.30.0.3@host   > 172.30.0.3 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        172.30.0.5@eth0   > 172.30.0.3 udp 30081 = untouched
        # on every address of the host, loopback included
        10.244.1.4@veth0  > 10.244.1.1 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        127.0.0.1@host    > 127.0.0.1 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        127.0.0.1@host    > 127.0.0.1 tcp 30480 = reject
        172.30.0.5@eth0   > 172.30.0.4 tcp 30081 = untouched
        172.30.0.5@eth0   > 172.30.0.3 tcp 30080 = 10.244.1.3:8080
        172.30.0.3@host   > 172.30.0.3 tcp 30080 = 10.244.1.3:8080 M
        198.51.100.8@eth0 > 172.30.0.3 tcp 30180 = 10.244.1.21:8080
        10.244.1.4@veth0  > 172.30.0.3 tcp 30143 = 10.244.1.21:8443 | 10.244.2.21:8443
        172.30.0.5@eth0   > 172.30.0.3 tcp 30280 = drop
        172.30.0.3@host   > 172.30.0.3 tcp 30280 = 10.244.2.31:8080 M
        172.30.0.5@eth0   > 172.30.0.3 tcp 30480 = reject
        172.30.0.3@host   > 172.30.0.3 tcp 30480 = reject
        172.30.0.5@eth0   > 172.30.0.3 sctp 30905 = 10.244.1.51:2905 M | 10.244.2.51:2905 M | 10.244.2.52:2905 M
        172.30.0.5@eth0   > 172.30.0.3 tcp 32100 = untouched
        # martian for the kernel; the rules refuse it as well
        172.30.0.5@eth0   > 127.0.0.1 tcp 22 = drop
        ",
    );
    assert_eq!(rows, 18);
}

#[test]
fn ipv6() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        fd00:10:244:1::9@veth0  > fd00:10:96::66 tcp 80 = [fd00:10:244:1::81]:8080
        fd00:10:244:1::81@veth0 > fd00:10:96::66 tcp 80 = [fd00:10:244:1::81]:8080 M
        fd00:30::5@eth0         > fd00:10:96::66 tcp 80 = [fd00:10:244:1::81]:8080 M
        fd00:10:244:1::9@veth0  > fd00:10:96::66 icmp 0 = untouched
        fd00:10:244:2::9@eth0   > fd00:10:96::a udp 53 = [fd00:10:244:1::10]:53 | [fd00:10:244:2::10]:53
        fd00:30::5@eth0         > fd00:30::3 tcp 30680 = [fd00:10:244:1::81]:8080 M
        ::1@host                > ::1 tcp 30680 = untouched
        ",
    );
    assert_eq!(rows, 7);
}
