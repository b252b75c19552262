//! The restore input of iptables spec 11, with its six services on node 192.168.0.2, and the jumps of iptables spec 3.2.

use proxier_testkit::iptables::Families;
use proxier_testkit::walk::WalkHost;

use crate::{host_with, parse, rows};

pub(crate) const INPUT: &str = include_str!("../../corpus/iptables/worked-example.txt");

/// As on an empty host: each one inserted at the top, in the order of the table.
pub(crate) const JUMPS: &str = "*filter
-I INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-I FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-I INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-I FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-I OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-I FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-I INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-I OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-I FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-I INPUT -j KUBE-FIREWALL
-I OUTPUT -j KUBE-FIREWALL
COMMIT
*nat
-I OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-I PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-I POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
COMMIT
";

/// The node of the example.
pub(crate) fn host() -> WalkHost {
    WalkHost::new(["192.168.0.2", "10.244.0.1"].map(|ip| ip.parse().unwrap()))
}

fn rules() -> Families {
    let mut ruleset = parse(INPUT);
    ruleset.restore(JUMPS).unwrap();
    host_with(ruleset)
}

#[test]
fn the_input_sends_packets_where_the_services_say() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        10.244.0.9@veth0    > 10.96.0.1 tcp 443 = 172.18.0.2:6443
        192.168.0.2@host    > 10.96.0.1 tcp 443 = 172.18.0.2:6443 M
        203.0.113.1@eth0    > 10.96.0.1 tcp 443 = 172.18.0.2:6443 M
        10.244.0.5@veth0    > 10.96.0.10 udp 53 = 10.244.0.5:53 M | 10.244.1.7:53
        10.244.0.9@veth0    > 10.96.0.10 tcp 53 = 10.244.0.5:53 | 10.244.1.7:53
        10.244.0.9@veth0    > 10.96.0.10 sctp 53 = untouched
        10.244.0.9@veth0    > 10.96.0.10 icmp 0 = untouched
        # web/frontend
        10.244.0.9@veth0    > 10.96.10.1 tcp 80 = 10.244.0.11:8080 | 10.244.1.12:8080
        203.0.113.1@eth0    > 198.51.100.20 tcp 80 = 10.244.0.11:8080
        203.0.113.200@eth0  > 198.51.100.20 tcp 80 = drop
        10.244.0.9@veth0    > 198.51.100.20 tcp 80 = drop
        192.168.0.2@host    > 198.51.100.20 tcp 80 = 10.244.0.11:8080 M | 10.244.1.12:8080 M
        198.51.100.20@eth0  > 198.51.100.20 tcp 80 = 10.244.0.11:8080
        203.0.113.200@eth0  > 203.0.113.10 tcp 80 = 10.244.0.11:8080
        10.244.0.9@veth0    > 203.0.113.10 tcp 80 = 10.244.0.11:8080 | 10.244.1.12:8080
        203.0.113.200@eth0  > 192.168.0.2 tcp 30080 = 10.244.0.11:8080
        203.0.113.200@eth0  > 198.51.100.21 tcp 80 = untouched
        # web/sticky
        10.244.0.9@veth0    > 10.96.10.2 tcp 443 = 10.244.0.21:8443 | 10.244.1.22:8443 | 10.244.2.23:8443
        203.0.113.1@eth0    > 192.0.2.50 tcp 443 = 10.244.0.21:8443 M | 10.244.1.22:8443 M | 10.244.2.23:8443 M
        10.244.0.9@veth0    > 10.244.0.1 tcp 30443 = 10.244.0.21:8443 M | 10.244.1.22:8443 M | 10.244.2.23:8443 M
        127.0.0.1@host      > 127.0.0.1 tcp 30443 = 10.244.0.21:8443 M | 10.244.1.22:8443 M | 10.244.2.23:8443 M
        10.244.0.9@veth0    > 192.168.0.3 tcp 30443 = untouched
        # telecom/sig: both policies Local, the endpoint elsewhere
        10.244.0.9@veth0    > 10.96.10.3 sctp 2905 = drop
        192.168.0.2@host    > 10.96.10.3 sctp 2905 = drop
        203.0.113.1@eth0    > 198.51.100.30 sctp 2905 = drop
        10.244.0.9@veth0    > 198.51.100.30 sctp 2905 = 10.244.1.31:2905
        192.168.0.2@host    > 192.168.0.2 sctp 30905 = 10.244.1.31:2905 M
        203.0.113.1@eth0    > 192.168.0.2 sctp 30905 = drop
        # batch/empty
        10.244.0.9@veth0    > 10.96.10.4 tcp 8080 = reject
        192.168.0.2@host    > 10.96.10.4 tcp 8080 = reject
        203.0.113.1@eth0    > 198.51.100.40 tcp 8080 = reject
        203.0.113.1@eth0    > 192.168.0.2 tcp 30808 = reject
        # this host's own packet is refused in INPUT, after it went through lo
        192.168.0.2@host    > 192.168.0.2 tcp 30808 = reject
        # but nothing in OUTPUT refuses one that it sends to an external address
        192.168.0.2@host    > 198.51.100.40 tcp 8080 = untouched
        # cluster IPs without such a port, or that nobody has, are left alone
        10.244.0.9@veth0    > 10.96.10.4 tcp 8081 = untouched
        10.244.0.9@veth0    > 10.96.10.9 tcp 80 = untouched
        # loopback addresses from elsewhere, and health check node ports
        203.0.113.1@eth0    > 127.0.0.1 tcp 22 = drop
        127.0.0.1@host      > 127.0.0.1 tcp 22 = untouched
        203.0.113.1@eth0    > 192.168.0.2 tcp 31500 = untouched
        ",
    );
    assert_eq!(rows, 39);
}

#[test]
fn a_recorded_client_stays_with_its_endpoint() {
    let mut rules = rules();
    let (here, away) = ("KUBE-SEP-LYGJNFXEUL5CJ6AO", "KUBE-SEP-6Q33V6BVZLGEQIRN");
    rules.add_recent(away, "10.244.0.9".parse().unwrap()).unwrap();
    rules.add_recent(here, "203.0.113.1".parse().unwrap()).unwrap();
    rows::check(
        &rules,
        &host(),
        "
        10.244.0.9@veth0 > 10.96.10.2 tcp 443 = 10.244.1.22:8443
        10.244.0.8@veth0 > 10.96.10.2 tcp 443 = 10.244.0.21:8443 | 10.244.1.22:8443 | 10.244.2.23:8443
        # all frontends of the service share the memory
        203.0.113.1@eth0 > 192.0.2.50 tcp 443 = 10.244.0.21:8443 M
        ",
    );
    let question = rows::packet("10.244.0.9@veth0 > 10.96.10.2 tcp 443");
    let walk = rules.walk(&question, &host()).unwrap();
    let [branch] = walk.branches.as_slice() else { panic!("one branch: {walk:?}") };
    assert_eq!(branch.affinity_updates, [(away.to_owned(), question.source)]);
    let chains: Vec<&str> = branch.trace.iter().filter_map(|step| step.split(':').next()).collect();
    assert_eq!(
        chains,
        [
            "PREROUTING",
            "KUBE-SERVICES",
            "KUBE-SVC-KCDUXOZ7CXWVN7TP",
            away,
            "FORWARD",
            "FORWARD",
            "FORWARD",
            "FORWARD",
            "POSTROUTING",
            "KUBE-POSTROUTING",
        ]
    );
    // Rewritten in one commit, a list stays; it goes with the last rule that names it.
    let family = proxier_core::ids::IpFamily::Ipv4;
    rules.get_mut(family).restore(INPUT).unwrap();
    assert!(rules.get(family).is_recent(away, question.source));
    rules
        .get_mut(family)
        .restore("*nat\n-F KUBE-SVC-KCDUXOZ7CXWVN7TP\n-F KUBE-SEP-6Q33V6BVZLGEQIRN\nCOMMIT\n")
        .unwrap();
    assert!(!rules.get(family).is_recent(away, question.source));
    assert!(rules.add_recent(away, question.source).is_err());
}

#[test]
fn a_second_run_changes_nothing() {
    let mut rules = parse(INPUT);
    rules.restore(JUMPS).unwrap();
    let first = rules.clone();
    rules.restore(INPUT).unwrap();
    assert_eq!(rules, first);
}
