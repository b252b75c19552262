//! A real kube-proxy's rules (Kubernetes 1.36, `nft list table`): 12 Services on node `worker`, 172.30.0.3 and fd00:30::3,
//! pods 10.244.1.0/24. The answers were worked out by hand from the listing, nftables spec 5 and 12 and iptables spec 5.14.

use proxier_testkit::nft::{self, Ruleset};
use proxier_testkit::walk::{BranchOutcome, Delivery, WalkHost};

use crate::rows;

pub(crate) const IPV4: &str = include_str!("../../corpus/peer/nft-list-ip.txt");
pub(crate) const IPV6: &str = include_str!("../../corpus/peer/nft-list-ip6.txt");

/// The node that the rules were made for, with the address of its pods' bridge.
pub(crate) fn host() -> WalkHost {
    WalkHost::new(["172.30.0.3", "fd00:30::3", "10.244.1.1"].map(|ip| ip.parse().unwrap()))
}

fn rules() -> Ruleset {
    let mut rules = nft::parse(IPV4).unwrap();
    rules.apply(IPV6).unwrap();
    rules
}

#[test]
fn listings_parse_completely() {
    let rules = rules();
    let count = |family, listing: &str| {
        let table = rules.table(family, "kube-proxy").unwrap();
        let begins = |prefix: &str| listing.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!(table.chains().count(), begins("\tchain "));
        assert_eq!(table.sets().count(), begins("\tset ") + begins("\tmap "));
        // Within chains every line is a rule, but for the type of base chains and one comment.
        let chains = &listing[listing.find("\tchain ").unwrap()..];
        let lines = chains.lines().filter(|line| line.starts_with("\t\t"));
        let rules =
            lines.filter(|line| !line.starts_with("\t\ttype ") && !line.starts_with("\t\tcomment ")).count();
        assert_eq!(table.chains().map(|(_, chain)| chain.rules.len()).sum::<usize>(), rules);
    };
    count(proxier_core::ids::IpFamily::Ipv4, IPV4);
    count(proxier_core::ids::IpFamily::Ipv6, IPV6);
    let elements =
        |family, set: &str| rules.table(family, "kube-proxy").unwrap().set(set).unwrap().elements.len();
    assert_eq!(elements(proxier_core::ids::IpFamily::Ipv4, "service-ips"), 17);
    assert_eq!(elements(proxier_core::ids::IpFamily::Ipv4, "hairpin-connections"), 11);
    assert_eq!(elements(proxier_core::ids::IpFamily::Ipv6, "cluster-ips"), 2);
}

#[test]
fn cluster_ips() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        # service-dataplane/echo-server: a pod here, its own endpoint, a pod elsewhere (an endpoint too, but not here),
        # a client outside, this host
        10.244.1.4@veth0  > 10.96.66.43 tcp 80 = 10.244.1.2:8080 | 10.244.2.2:8080
        10.244.1.2@veth0  > 10.96.66.43 tcp 80 = 10.244.1.2:8080 M | 10.244.2.2:8080
        10.244.2.2@eth0   > 10.96.66.43 tcp 80 = 10.244.1.2:8080 | 10.244.2.2:8080
        172.30.0.5@eth0   > 10.96.66.43 tcp 80 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        172.30.0.3@host   > 10.96.66.43 tcp 80 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        # wrong port, wrong protocol, no ports at all
        10.244.1.4@veth0  > 10.96.66.43 tcp 81 = reject
        172.30.0.5@eth0   > 10.96.66.43 tcp 81 = reject
        172.30.0.3@host   > 10.96.66.43 tcp 81 = reject
        10.244.1.4@veth0  > 10.96.66.43 udp 80 = reject
        10.244.1.4@veth0  > 10.96.66.43 icmp 0 = reject
        # in the range of cluster IPs, but nobody's; one of another proxy's
        10.244.1.4@veth0  > 10.96.200.200 tcp 80 = drop
        172.30.0.5@eth0   > 10.96.200.200 udp 53 = drop
        172.30.0.3@host   > 10.96.200.200 tcp 80 = drop
        10.244.1.4@veth0  > 10.96.8.1 tcp 80 = drop
        # just outside of the range
        10.244.1.4@veth0  > 10.112.0.1 tcp 80 = untouched
        # service-path/source-ip: one endpoint, and it calls itself
        10.244.2.2@eth0   > 10.96.123.219 tcp 80 = 10.244.1.3:8080
        10.244.1.3@veth0  > 10.96.123.219 tcp 80 = 10.244.1.3:8080 M
        172.30.0.3@host   > 10.96.123.219 tcp 80 = 10.244.1.3:8080 M
        # kube-system/dns: two protocols on one number
        10.244.1.4@veth0  > 10.96.0.10 udp 53 = 10.244.1.10:53 | 10.244.2.10:53
        10.244.1.4@veth0  > 10.96.0.10 tcp 53 = 10.244.1.10:53 | 10.244.2.10:53
        10.244.1.10@veth0 > 10.96.0.10 udp 53 = 10.244.1.10:53 M | 10.244.2.10:53
        10.244.1.4@veth0  > 10.96.0.10 sctp 53 = reject
        # telecom/sig
        10.244.1.4@veth0  > 10.96.3.1 sctp 2905 = 10.244.1.51:2905 | 10.244.2.51:2905 | 10.244.2.52:2905
        10.244.1.51@veth0 > 10.96.3.1 sctp 2905 = 10.244.1.51:2905 M | 10.244.2.51:2905 | 10.244.2.52:2905
        10.244.1.4@veth0  > 10.96.3.1 tcp 2905 = reject
        # web/front and web/draining have affinity; nobody has been here before
        10.244.1.4@veth0  > 10.96.1.1 tcp 80 = 10.244.1.21:8080 | 10.244.2.21:8080
        10.244.1.21@veth0 > 10.96.1.1 tcp 443 = 10.244.1.21:8443 M | 10.244.2.21:8443
        10.244.1.4@veth0  > 10.96.6.1 tcp 80 = 10.244.1.71:8080 | 10.244.2.71:8080
        # web/zoned: endpoints for zone-a only
        10.244.1.4@veth0  > 10.96.5.1 tcp 80 = 10.244.1.61:8080 | 10.244.2.62:8080
        # node/here and node/gone: internal policy Local, with and without an endpoint here
        10.244.1.4@veth0  > 10.96.2.1 tcp 9100 = 10.244.1.41:9100
        10.244.1.41@veth0 > 10.96.2.1 tcp 9100 = 10.244.1.41:9100 M
        172.30.0.3@host   > 10.96.2.1 tcp 9100 = 10.244.1.41:9100 M
        172.30.0.5@eth0   > 10.96.2.1 tcp 9100 = 10.244.1.41:9100 M
        10.244.1.4@veth0  > 10.96.2.2 tcp 9100 = drop
        172.30.0.3@host   > 10.96.2.2 tcp 9100 = drop
        172.30.0.5@eth0   > 10.96.2.2 tcp 9100 = drop
        # batch/empty and default/kubernetes: no endpoints
        10.244.1.4@veth0  > 10.96.4.1 tcp 80 = reject
        172.30.0.3@host   > 10.96.4.1 tcp 80 = reject
        172.30.0.5@eth0   > 10.96.0.1 tcp 443 = reject
        # the policies of external traffic do not matter here: web/away has its endpoint elsewhere
        10.244.1.4@veth0  > 10.96.1.2 tcp 80 = 10.244.2.31:8080
        ",
    );
    assert_eq!(rows, 40);
}

#[test]
fn external_addresses() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        # the VIP of web/front: external policy Local, sources 203.0.113.0/24 and 198.51.100.7
        203.0.113.9@eth0   > 192.0.2.10 tcp 80 = 10.244.1.21:8080
        203.0.114.0@eth0   > 192.0.2.10 tcp 80 = drop
        198.51.100.7@eth0  > 192.0.2.10 tcp 443 = 10.244.1.21:8443
        198.51.100.8@eth0  > 192.0.2.10 tcp 443 = drop
        10.244.1.4@veth0   > 192.0.2.10 tcp 80 = drop
        172.30.0.3@host    > 192.0.2.10 tcp 80 = drop
        198.51.100.8@eth0  > 192.0.2.10 tcp 8080 = untouched
        198.51.100.8@eth0  > 192.0.2.10 udp 80 = untouched
        # its address of ipMode Proxy
        203.0.113.9@eth0   > 192.0.2.11 tcp 80 = untouched
        # its external IP, which has no source ranges: outside, pods, host
        198.51.100.8@eth0  > 192.0.2.77 tcp 80 = 10.244.1.21:8080
        10.244.1.4@veth0   > 192.0.2.77 tcp 80 = 10.244.1.21:8080 | 10.244.2.21:8080
        10.244.2.9@eth0    > 192.0.2.77 tcp 443 = 10.244.1.21:8443 | 10.244.2.21:8443
        172.30.0.3@host    > 192.0.2.77 tcp 80 = 10.244.1.21:8080 M | 10.244.2.21:8080 M
        # web/away: external policy Local, and no endpoint here
        172.30.0.5@eth0    > 192.0.2.20 tcp 80 = drop
        10.244.1.4@veth0   > 192.0.2.20 tcp 80 = 10.244.2.31:8080
        172.30.0.3@host    > 192.0.2.20 tcp 80 = 10.244.2.31:8080 M
        # batch/empty
        172.30.0.5@eth0    > 192.0.2.88 tcp 80 = reject
        172.30.0.3@host    > 192.0.2.88 tcp 80 = reject
        172.30.0.5@eth0    > 192.0.2.88 tcp 81 = untouched
        # nobody's
        10.244.1.4@veth0   > 192.0.2.99 udp 53 = untouched
        10.244.1.4@veth0   > 10.244.2.2 tcp 8080 = untouched
        # a hairpin is one only for translated connections
        10.244.1.2@veth0   > 10.244.1.2 tcp 8080 = untouched
        ",
    );
    assert_eq!(rows, 22);
}

#[test]
fn node_ports() {
    let rows = rows::check(
        &rules(),
        &host(),
        "
        # echo-server, external policy Cluster
        172.30.0.5@eth0   > 172.30.0.3 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        10.244.1.4@veth0  > 172.30.0.3 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        172.30.0.3@host   > 172.30.0.3 tcp 30081 = 10.244.1.2:8080 M | 10.244.2.2:8080 M
        172.30.0.5@eth0   > 172.30.0.3 udp 30081 = untouched
        # source-ip, external policy Local
        172.30.0.5@eth0   > 172.30.0.3 tcp 30080 = 10.244.1.3:8080
        10.244.2.2@eth0   > 172.30.0.3 tcp 30080 = 10.244.1.3:8080
        172.30.0.3@host   > 172.30.0.3 tcp 30080 = 10.244.1.3:8080 M
        # an address of the host that the detector takes for a pod's, which is asked first
        10.244.1.1@host   > 172.30.0.3 tcp 30080 = 10.244.1.3:8080
        # web/front ignores source ranges here
        198.51.100.8@eth0 > 172.30.0.3 tcp 30180 = 10.244.1.21:8080
        10.244.1.4@veth0  > 172.30.0.3 tcp 30143 = 10.244.1.21:8443 | 10.244.2.21:8443
        # web/away has no endpoint here
        172.30.0.5@eth0   > 172.30.0.3 tcp 30280 = drop
        10.244.1.4@veth0  > 172.30.0.3 tcp 30280 = 10.244.2.31:8080
        172.30.0.3@host   > 172.30.0.3 tcp 30280 = 10.244.2.31:8080 M
        # batch/empty; the host's own packet is refused in the input hook, after it went through lo
        172.30.0.5@eth0   > 172.30.0.3 tcp 30480 = reject
        10.244.1.4@veth0  > 172.30.0.3 tcp 30480 = reject
        172.30.0.3@host   > 172.30.0.3 tcp 30480 = reject
        # SCTP, dual stack
        172.30.0.5@eth0   > 172.30.0.3 sctp 30905 = 10.244.1.51:2905 M | 10.244.2.51:2905 M | 10.244.2.52:2905 M
        172.30.0.5@eth0   > 172.30.0.3 tcp 30905 = untouched
        172.30.0.5@eth0   > 172.30.0.3 tcp 30680 = 10.244.1.81:8080 M
        # addresses that node ports do not answer on: not selected, another node's, loopback
        10.244.1.4@veth0  > 10.244.1.1 tcp 30081 = untouched
        172.30.0.3@host   > 10.244.1.1 tcp 30480 = untouched
        172.30.0.5@eth0   > 172.30.0.4 tcp 30081 = untouched
        127.0.0.1@host    > 127.0.0.1 tcp 30081 = untouched
        127.0.0.1@host    > 127.0.0.1 tcp 30480 = untouched
        # health check node ports are the agent's own
        172.30.0.5@eth0   > 172.30.0.3 tcp 32100 = untouched
        ",
    );
    assert_eq!(rows, 25);
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
        fd00:30::3@host         > fd00:10:96::66 tcp 80 = [fd00:10:244:1::81]:8080 M
        fd00:10:244:1::9@veth0  > fd00:10:96::66 tcp 81 = reject
        fd00:10:244:1::9@veth0  > fd00:10:96::66 icmp 0 = reject
        fd00:10:244:1::9@veth0  > fd00:10:96::99 tcp 80 = drop
        fd00:10:244:1::9@veth0  > fd00:10:97::1 tcp 80 = untouched
        fd00:10:244:2::9@eth0   > fd00:10:96::a udp 53 = [fd00:10:244:1::10]:53 | [fd00:10:244:2::10]:53
        fd00:30::5@eth0         > fd00:10:96::a tcp 53 = [fd00:10:244:1::10]:53 M | [fd00:10:244:2::10]:53 M
        fd00:30::5@eth0         > fd00:30::3 tcp 30680 = [fd00:10:244:1::81]:8080 M
        fd00:30::3@host         > fd00:30::3 tcp 30680 = [fd00:10:244:1::81]:8080 M
        fd00:30::5@eth0         > fd00:30::3 tcp 30681 = untouched
        ::1@host                > ::1 tcp 30680 = untouched
        ",
    );
    assert_eq!(rows, 14);
}

#[test]
fn a_recorded_client_stays_with_its_endpoint() {
    const HERE: &str = "affinity-IBCHFH4S-web/front/tcp/http__10.244.1.21/8080";
    const AWAY: &str = "affinity-ZJ5EG7RC-web/front/tcp/http__10.244.2.21/8080";
    let mut rules = rules();
    for client in ["10.244.1.4", "203.0.113.9"] {
        rules.add_element(AWAY, client.parse().unwrap()).unwrap();
    }
    rules.add_element(HERE, "10.244.1.5".parse().unwrap()).unwrap();
    rows::check(
        &rules,
        &host(),
        "
        10.244.1.4@veth0  > 10.96.1.1 tcp 80 = 10.244.2.21:8080
        10.244.1.5@veth0  > 10.96.1.1 tcp 80 = 10.244.1.21:8080
        10.244.1.6@veth0  > 10.96.1.1 tcp 80 = 10.244.1.21:8080 | 10.244.2.21:8080
        # another port of the service knows nothing of it
        10.244.1.4@veth0  > 10.96.1.1 tcp 443 = 10.244.1.21:8443 | 10.244.2.21:8443
        # an endpoint that the policy excludes does not count
        203.0.113.9@eth0  > 192.0.2.10 tcp 80 = 10.244.1.21:8080
        ",
    );
    let question = rows::packet("10.244.1.4@veth0 > 10.96.1.1 tcp 80");
    let walk = nft::walk(&rules, &question, &host()).unwrap();
    let [branch] = walk.branches.as_slice() else { panic!("one branch: {walk:?}") };
    assert_eq!(branch.affinity_updates, [(AWAY.to_owned(), question.source)]);
    assert_eq!(
        branch.outcome,
        BranchOutcome::Accepted {
            dnat: Some(("10.244.2.21".parse().unwrap(), 8080)),
            masquerade: false,
            delivery: Delivery::Forwarded
        }
    );
    assert_eq!(
        branch.trace.iter().map(String::as_str).collect::<Vec<_>>(),
        [
            "filter-prerouting-pre-dnat: ct state new jump firewall-check",
            "nat-prerouting: jump services",
            "services: ip daddr . meta l4proto . th dport vmap @service-ips",
            "service-ZCF77UOZ-web/front/tcp/http: ip saddr \
             @affinity-ZJ5EG7RC-web/front/tcp/http__10.244.2.21/8080 goto \
             endpoint-ZJ5EG7RC-web/front/tcp/http__10.244.2.21/8080",
            "endpoint-ZJ5EG7RC-web/front/tcp/http__10.244.2.21/8080: update \
             @affinity-ZJ5EG7RC-web/front/tcp/http__10.244.2.21/8080 { ip saddr }",
            "endpoint-ZJ5EG7RC-web/front/tcp/http__10.244.2.21/8080: meta l4proto tcp dnat to 10.244.2.21:8080",
            "filter-forward: ct state new jump service-endpoints-check",
            "filter-forward: ct state new jump cluster-ips-check",
            "nat-postrouting: jump masquerading",
        ]
    );
}

#[test]
fn the_host_passes_input_over_lo() {
    let question = rows::packet("172.30.0.3@host > 172.30.0.3 tcp 30480");
    let walk = nft::walk(&rules(), &question, &host()).unwrap();
    let [branch] = walk.branches.as_slice() else { panic!("one branch: {walk:?}") };
    // Measured on Linux 6.18 with counters: the filter chain of prerouting sees it again on lo, the nat chain does not.
    let chains: Vec<&str> = branch.trace.iter().filter_map(|step| step.split(':').next()).collect();
    assert_eq!(
        chains,
        [
            "filter-output-pre-dnat",
            "nat-output",
            "filter-output",
            "filter-output",
            "nat-postrouting",
            "filter-prerouting-pre-dnat",
            "filter-input",
            "nodeport-endpoints-check",
            "reject-chain",
        ]
    );
}
