//! The script of nftables spec 11, with its six services on node 192.168.0.2, and a layout of maps instead of chains.

use proxier_core::ids::IpFamily;
use proxier_testkit::nft;
use proxier_testkit::walk::WalkHost;

use crate::rows;

pub(crate) const SCRIPT: &str = include_str!("../../corpus/nft/worked-example.nft");

/// The node of the example.
pub(crate) fn host() -> WalkHost {
    WalkHost::new(["192.168.0.2", "10.244.0.1"].map(|ip| ip.parse().unwrap()))
}

#[test]
fn the_script_sends_packets_where_the_services_say() {
    let rules = nft::parse(SCRIPT).unwrap();
    let rows = rows::check(
        &rules,
        &host(),
        "
        10.244.0.9@veth0    > 10.96.0.1 tcp 443 = 172.18.0.2:6443
        192.168.0.2@host    > 10.96.0.1 tcp 443 = 172.18.0.2:6443 M
        10.244.0.5@veth0    > 10.96.0.10 udp 53 = 10.244.0.5:53 M | 10.244.1.7:53
        10.244.0.9@veth0    > 10.96.0.10 tcp 53 = 10.244.0.5:53 | 10.244.1.7:53
        # web/frontend
        10.244.0.9@veth0    > 10.96.10.1 tcp 80 = 10.244.0.11:8080 | 10.244.1.12:8080
        203.0.113.1@eth0    > 198.51.100.20 tcp 80 = 10.244.0.11:8080
        203.0.113.200@eth0  > 198.51.100.20 tcp 80 = drop
        10.244.0.9@veth0    > 198.51.100.20 tcp 80 = drop
        192.168.0.2@host    > 198.51.100.20 tcp 80 = 10.244.0.11:8080 M | 10.244.1.12:8080 M
        198.51.100.20@eth0  > 198.51.100.20 tcp 80 = 10.244.0.11:8080
        203.0.113.200@eth0  > 203.0.113.10 tcp 80 = 10.244.0.11:8080
        203.0.113.200@eth0  > 192.168.0.2 tcp 30080 = 10.244.0.11:8080
        203.0.113.200@eth0  > 198.51.100.21 tcp 80 = untouched
        # web/sticky
        10.244.0.9@veth0    > 10.96.10.2 tcp 443 = 10.244.0.21:8443 | 10.244.1.22:8443 | 10.244.2.23:8443
        203.0.113.1@eth0    > 192.0.2.50 tcp 443 = 10.244.0.21:8443 M | 10.244.1.22:8443 M | 10.244.2.23:8443 M
        # telecom/sig: both policies Local, the endpoint elsewhere
        10.244.0.9@veth0    > 10.96.10.3 sctp 2905 = drop
        203.0.113.1@eth0    > 198.51.100.30 sctp 2905 = drop
        10.244.0.9@veth0    > 198.51.100.30 sctp 2905 = 10.244.1.31:2905
        192.168.0.2@host    > 192.168.0.2 sctp 30905 = 10.244.1.31:2905 M
        203.0.113.1@eth0    > 192.168.0.2 sctp 30905 = drop
        # batch/empty
        10.244.0.9@veth0    > 10.96.10.4 tcp 8080 = reject
        203.0.113.1@eth0    > 198.51.100.40 tcp 8080 = reject
        192.168.0.2@host    > 192.168.0.2 tcp 30808 = reject
        10.244.0.9@veth0    > 10.96.10.9 tcp 80 = drop
        ",
    );
    assert_eq!(rows, 24);
}

#[test]
fn a_second_run_changes_nothing() {
    let first = nft::parse(SCRIPT).unwrap();
    let mut second = first.clone();
    second.apply(SCRIPT).unwrap();
    let table = |rules: &nft::Ruleset| {
        let table = rules.table(IpFamily::Ipv4, "kube-proxy").unwrap();
        let chains: Vec<_> = table.chains().map(|(name, chain)| (name.to_owned(), chain.clone())).collect();
        let sets: Vec<_> = table.sets().map(|(name, set)| (name.to_owned(), set.clone())).collect();
        (chains, sets)
    };
    assert_eq!(table(&first), table(&second));
}

#[test]
fn node_ports_on_all_addresses() {
    let mut rules = nft::parse(SCRIPT).unwrap();
    rules
        .apply(
            "flush chain ip kube-proxy nodeport-endpoints-check
             flush chain ip kube-proxy services
             delete set ip kube-proxy nodeport-ips
             add rule ip kube-proxy nodeport-endpoints-check ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @no-endpoint-nodeports
             add rule ip kube-proxy services fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports",
        )
        .unwrap();
    rows::check(
        &rules,
        &host(),
        "
        203.0.113.1@eth0 > 192.168.0.2 tcp 30443 = 10.244.0.21:8443 M | 10.244.1.22:8443 M | 10.244.2.23:8443 M
        10.244.0.9@veth0 > 10.244.0.1 tcp 30443 = 10.244.0.21:8443 M | 10.244.1.22:8443 M | 10.244.2.23:8443 M
        10.244.0.9@veth0 > 10.244.0.1 tcp 30808 = reject
        10.244.0.9@veth0 > 192.168.0.3 tcp 30443 = untouched
        127.0.0.1@host   > 127.0.0.1 tcp 30443 = untouched
        127.0.0.1@host   > 127.0.0.1 tcp 30808 = untouched
        ",
    );
}

/// Services as map elements, as nft 1.0.6 takes and lists them.
pub(crate) const MAPS: &str = "
add table ip p
add chain ip p pre { type nat hook prerouting priority -100 ; }
add chain ip p post { type nat hook postrouting priority 100 ; }
add chain ip p cluster-2
add chain ip p nodeport-cluster-3
add map ip p service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; size 100 ; }
add map ip p service-nodeports { type inet_proto . inet_service : verdict ; }
add map ip p endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport ; size 8 ; }
add map ip p nodeport-endpoints { typeof meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport ; }
add rule ip p pre ip daddr . meta l4proto . th dport vmap @service-ips
add rule ip p pre fib daddr type local meta l4proto . th dport vmap @service-nodeports
add rule ip p cluster-2 iifname != \"veth*\" mark set mark or 0x4000
add rule ip p cluster-2 dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints
add rule ip p nodeport-cluster-3 dnat ip to meta l4proto . th dport . numgen random mod 3 map @nodeport-endpoints
add rule ip p post mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random
add element ip p service-ips { 10.96.0.1 . tcp . 80 comment \"a/b:c\" : goto cluster-2 , 10.96.0.1 . udp . 80 : goto cluster-2 }
add element ip p service-nodeports { udp . 30000 : goto nodeport-cluster-3 }
add element ip p endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.1.1.1 . 8080 , 10.96.0.1 . tcp . 80 . 1 : 10.1.1.2 . 8080 }
add element ip p endpoints { 10.96.0.1 . udp . 80 . 0 : 10.1.1.1 . 8080 , 10.96.0.1 . udp . 80 . 1 : 10.1.1.2 . 8081 }
add element ip p nodeport-endpoints { udp . 30000 . 0 : 10.1.1.1 . 53 , udp . 30000 . 1 : 10.1.1.1 . 53 , udp . 30000 . 2 : 10.1.1.3 . 53 }
";

#[test]
fn services_as_map_elements() {
    let mut rules = nft::parse(MAPS).unwrap();
    rows::check(
        &rules,
        &host(),
        "
        10.244.0.9@veth0 > 10.96.0.1 tcp 80 = 10.1.1.1:8080 | 10.1.1.2:8080
        10.244.0.9@eth0  > 10.96.0.1 udp 80 = 10.1.1.1:8080 M | 10.1.1.2:8081 M
        10.244.0.9@eth0  > 192.168.0.2 udp 30000 = 10.1.1.1:53*2 | 10.1.1.3:53
        10.244.0.9@eth0  > 192.168.0.2 tcp 30000 = untouched
        ",
    );
    // An endpoint is replaced, another leaves, as a partial sync would do it.
    rules
        .apply(
            "delete element ip p endpoints { 10.96.0.1 . tcp . 80 . 0 }
             add element ip p endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.1.1.9 . 8080 }
             add chain ip p cluster-1
             add rule ip p cluster-1 dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @endpoints
             delete element ip p service-ips { 10.96.0.1 . udp . 80 }
             add element ip p service-ips { 10.96.0.1 . udp . 80 : goto cluster-1 }
             delete element ip p endpoints { 10.96.0.1 . udp . 80 . 1 }",
        )
        .unwrap();
    rows::check(
        &rules,
        &host(),
        "
        10.244.0.9@veth0 > 10.96.0.1 tcp 80 = 10.1.1.9:8080 | 10.1.1.2:8080
        10.244.0.9@veth0 > 10.96.0.1 udp 80 = 10.1.1.1:8080
        ",
    );
}

#[test]
fn names_keep_their_dots_and_slashes() {
    let cut = format!("endpoint-5OJB2KTY-{}/svc/tcp/__fd00.10.180..1/8...", "n".repeat(200));
    let rules = nft::parse(&format!(
        "add table ip6 t\nadd chain ip6 t {cut}\nadd rule ip6 t {cut} meta l4proto tcp dnat to [fd00:10:180::1]:80\n\
         add chain ip6 t pre {{ type nat hook prerouting priority -100 ; }}\nadd rule ip6 t pre ip6 daddr fd00::1 goto {cut}\n"
    ))
    .unwrap();
    assert!(rules.table(IpFamily::Ipv6, "t").unwrap().chain(&cut).is_some());
    rows::check(&rules, &host(), "fd00::9@eth0 > fd00::1 tcp 1 = [fd00:10:180::1]:80");
}

#[test]
fn thousands_of_services() {
    const SERVICES: u32 = 5_000;
    let mut listing =
        "table ip t {\n\tmap m {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n".to_owned();
    listing += "\t\telements = { ";
    let address = |n: u32| std::net::Ipv4Addr::from(0x0a60_0000 + n);
    for n in 0..SERVICES {
        let separator = if n == 0 { "" } else { ",\n\t\t\t     " };
        listing +=
            &format!("{separator}{} . tcp . 80 comment \"ns/svc-{n}:http\" : goto service-{n}", address(n));
    }
    listing += " }\n\t}\n";
    listing += "\tchain pre {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n";
    listing += "\t\tip daddr . meta l4proto . th dport vmap @m\n\t}\n";
    for n in 0..SERVICES {
        listing += &format!(
            "\tchain service-{n} {{\n\t\tmeta l4proto tcp dnat ip to numgen random mod 2 map {{ 0 : 10.1.0.{} . 80, 1 : 10.2.0.1 . 80 }}\n\t}}\n",
            n % 250
        );
    }
    listing += "}\n";
    let rules = nft::parse(&listing).unwrap();
    let rows = format!("10.9.9.9@eth0 > {} tcp 80 = 10.1.0.249:80 | 10.2.0.1:80", address(SERVICES - 1));
    rows::check(&rules, &host(), &rows);
}
