//! What is rendered for one cluster state is what a real kube-proxy 1.36 programmed for it, but for the differences that are meant.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

mod kit;

use std::collections::BTreeSet;

use backend_ipvs::takeover;
use proxier_core::ids::IpFamily;
use proxier_testkit::corpus;
use proxier_testkit::ipvs::Host;

/// Every difference that is meant, by its reason: `-` stands only there, `+` only here. The README's section "Differences from kube-proxy" says
/// more. One that is not met fails the test.
const INTENDED: &[(&str, &[&str])] = &[
    (
        "What has no endpoints is refused at once, by a rule: IPVS answers with an ICMP message, which clients may not get.",
        &[
            r#"+IPv4 filter KUBE-IPVS-FILTER -m comment --comment "Kubernetes service frontends without endpoints" -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-REJECT dst,dst -j REJECT --reject-with icmp-port-unreachable"#,
            r#"+IPv4 filter KUBE-IPVS-FILTER -p tcp -m comment --comment "Kubernetes service frontends without endpoints" -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-REJECT dst,dst -j REJECT --reject-with tcp-reset"#,
            r#"+IPv6 filter KUBE-IPVS-FILTER -m comment --comment "Kubernetes service frontends without endpoints" -m conntrack --ctstate NEW -m set --match-set KUBE-6-IPVS-REJECT dst,dst -j REJECT --reject-with icmp6-port-unreachable"#,
            r#"+IPv6 filter KUBE-IPVS-FILTER -p tcp -m comment --comment "Kubernetes service frontends without endpoints" -m conntrack --ctstate NEW -m set --match-set KUBE-6-IPVS-REJECT dst,dst -j REJECT --reject-with tcp-reset"#,
            r#"+entry KUBE-IPVS-REJECT 10.0.2.15,tcp:30480"#,
            r#"+entry KUBE-IPVS-REJECT 10.96.0.1,tcp:443"#,
            r#"+entry KUBE-IPVS-REJECT 10.96.4.1,tcp:80"#,
            r#"+entry KUBE-IPVS-REJECT 172.30.0.3,tcp:30480"#,
            r#"+entry KUBE-IPVS-REJECT 192.0.2.88,tcp:80"#,
            r#"+set KUBE-6-IPVS-REJECT hash:ip,port IPv6"#,
            r#"+set KUBE-IPVS-REJECT hash:ip,port IPv4"#,
        ],
    ),
    (
        "Policy Local means Local: what nobody here can answer is dropped before IPVS sees it.",
        &[
            r#"+IPv4 filter KUBE-IPVS-FILTER ! -s 10.244.0.0/16 -m comment --comment "Kubernetes service frontends with externalTrafficPolicy=local and no endpoint here" -m addrtype ! --src-type LOCAL -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-DROP-OUTSIDE dst,dst -j DROP"#,
            r#"+IPv4 filter KUBE-IPVS-FILTER -m comment --comment "Kubernetes service frontends with internalTrafficPolicy=local and no endpoint here" -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-DROP dst,dst -j DROP"#,
            r#"+IPv4 mangle KUBE-PROXY-FIREWALL ! -s 10.244.0.0/16 -m comment --comment "Kubernetes service frontends with externalTrafficPolicy=local and no endpoint here" -m addrtype ! --src-type LOCAL -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-DROP-OUTSIDE dst,dst -j DROP"#,
            r#"+IPv4 mangle KUBE-PROXY-FIREWALL -m comment --comment "Kubernetes service frontends with internalTrafficPolicy=local and no endpoint here" -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-DROP dst,dst -j DROP"#,
            r#"+IPv6 filter KUBE-IPVS-FILTER ! -s fd00:10:244::/56 -m comment --comment "Kubernetes service frontends with externalTrafficPolicy=local and no endpoint here" -m addrtype ! --src-type LOCAL -m conntrack --ctstate NEW -m set --match-set KUBE-6-IPVS-DROP-OUTSIDE dst,dst -j DROP"#,
            r#"+IPv6 filter KUBE-IPVS-FILTER -m comment --comment "Kubernetes service frontends with internalTrafficPolicy=local and no endpoint here" -m conntrack --ctstate NEW -m set --match-set KUBE-6-IPVS-DROP dst,dst -j DROP"#,
            r#"+IPv6 mangle KUBE-PROXY-FIREWALL ! -s fd00:10:244::/56 -m comment --comment "Kubernetes service frontends with externalTrafficPolicy=local and no endpoint here" -m addrtype ! --src-type LOCAL -m conntrack --ctstate NEW -m set --match-set KUBE-6-IPVS-DROP-OUTSIDE dst,dst -j DROP"#,
            r#"+IPv6 mangle KUBE-PROXY-FIREWALL -m comment --comment "Kubernetes service frontends with internalTrafficPolicy=local and no endpoint here" -m conntrack --ctstate NEW -m set --match-set KUBE-6-IPVS-DROP dst,dst -j DROP"#,
            r#"+entry KUBE-IPVS-DROP 10.96.2.2,tcp:9100"#,
            r#"+entry KUBE-IPVS-DROP-OUTSIDE 10.0.2.15,tcp:30280"#,
            r#"+entry KUBE-IPVS-DROP-OUTSIDE 172.30.0.3,tcp:30280"#,
            r#"+entry KUBE-IPVS-DROP-OUTSIDE 192.0.2.20,tcp:80"#,
            r#"+set KUBE-6-IPVS-DROP hash:ip,port IPv6"#,
            r#"+set KUBE-6-IPVS-DROP-OUTSIDE hash:ip,port IPv6"#,
            r#"+set KUBE-IPVS-DROP hash:ip,port IPv4"#,
            r#"+set KUBE-IPVS-DROP-OUTSIDE hash:ip,port IPv4"#,
        ],
    ),
    (
        "IPVS does not tell whose a virtual server is; this set does, for addresses that kube-ipvs0 has not.",
        &[
            r#"+entry KUBE-6-IPVS-SERVERS fd00:30::3,tcp:30680"#,
            r#"+entry KUBE-6-IPVS-SERVERS fec0::5054:ff:fe12:3456,tcp:30680"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,sctp:30905"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30080"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30081"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30143"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30180"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30280"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30480"#,
            r#"+entry KUBE-IPVS-SERVERS 10.0.2.15,tcp:30680"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,sctp:30905"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30080"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30081"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30143"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30180"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30280"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30480"#,
            r#"+entry KUBE-IPVS-SERVERS 172.30.0.3,tcp:30680"#,
            r#"+set KUBE-6-IPVS-SERVERS hash:ip,port IPv6"#,
            r#"+set KUBE-IPVS-SERVERS hash:ip,port IPv4"#,
        ],
    ),
    (
        "Source ranges come before refusals, and hold for whatever this host sends: asked in mangle, before IPVS, by one look into the sets. kube-proxy has a rule for each VIP, which asks for one source.",
        &[
            r#"+IPv4 filter KUBE-IPVS-FILTER -m comment --comment "Kubernetes service load balancer ip + port for load balancer with sourceRange" -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL"#,
            r#"+IPv4 mangle KUBE-PROXY-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port for load balancer with sourceRange" -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL"#,
            r#"+IPv4 mangle KUBE-SOURCE-RANGES-FIREWALL -j DROP"#,
            r#"+IPv4 mangle KUBE-SOURCE-RANGES-FIREWALL -m comment --comment "Kubernetes service load balancer ip + port + source cidr for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN"#,
            r#"+IPv4 mangle OUTPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL"#,
            r#"+IPv6 mangle KUBE-SOURCE-RANGES-FIREWALL -j DROP"#,
            r#"+IPv6 mangle OUTPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL"#,
            r#"+chain IPv4 mangle KUBE-PROXY-FIREWALL"#,
            r#"+chain IPv4 mangle KUBE-SOURCE-RANGES-FIREWALL"#,
            r#"+chain IPv6 mangle KUBE-PROXY-FIREWALL"#,
            r#"+chain IPv6 mangle KUBE-SOURCE-RANGES-FIREWALL"#,
            r#"-IPv4 filter KUBE-IPVS-OUT-FILTER -s 192.0.2.10/32 -m ipvs --vproto 6 --vaddr 192.0.2.10 --vport 443 -j DROP"#,
            r#"-IPv4 filter KUBE-IPVS-OUT-FILTER -s 192.0.2.10/32 -m ipvs --vproto 6 --vaddr 192.0.2.10 --vport 80 -j DROP"#,
        ],
    ),
    (
        "What this host sends to a frontend with policy Local has the frontend's address as its source: masqueraded, or other nodes' endpoints could not reply.",
        &[
            r#"+IPv4 nat KUBE-LOAD-BALANCER ! -s 10.244.0.0/16 -m comment --comment "Kubernetes service load balancer ip + port with externalTrafficPolicy=local" -m addrtype --src-type LOCAL -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j KUBE-MARK-MASQ"#,
            r#"+IPv4 nat KUBE-NODE-PORT ! -s 10.244.0.0/16 -p tcp -m comment --comment "Kubernetes nodeport TCP port with externalTrafficPolicy=local" -m addrtype --src-type LOCAL -m set --match-set KUBE-NODE-PORT-LOCAL-TCP dst -j KUBE-MARK-MASQ"#,
            r#"+IPv4 nat KUBE-SERVICES ! -s 10.244.0.0/16 -m comment --comment "Kubernetes service external ip + port with externalTrafficPolicy=local" -m addrtype --src-type LOCAL -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j KUBE-MARK-MASQ"#,
        ],
    ),
];

fn file(name: &str) -> String {
    std::fs::read_to_string(corpus::folder().join("peer/ipvs").join(name)).unwrap()
}

/// Both families' plans in one kernel.
fn ours() -> Host {
    let case = corpus::load(&kit::cases().join("peer-state.yaml")).unwrap();
    let mut host = Host::default();
    for family in IpFamily::ALL {
        let plan = kit::full(case.commit.snapshot(family));
        let text = kit::text_of(family, plan.steps().iter().flat_map(|s| &s.actions));
        // The interface is both families'.
        let text = if family == IpFamily::Ipv6 {
            text.replace("link add kube-ipvs0 type dummy\n", "")
        } else {
            text
        };
        host.apply(&text).unwrap_or_else(|e| panic!("{e}"));
    }
    host
}

fn theirs() -> Host {
    let mut host = Host::default();
    host.load_ipvsadm(&file("ipvsadm-save.txt")).unwrap();
    host.load_ipset(&file("ipset-save.txt")).unwrap();
    host.load_addresses(&file("kube-ipvs0-addresses.txt")).unwrap();
    host.load_rules(IpFamily::Ipv4, &file("iptables-save.txt")).unwrap();
    host.load_rules(IpFamily::Ipv6, &file("ip6tables-save.txt")).unwrap();
    host
}

#[test]
fn what_differs_is_meant() {
    let (ours, theirs) = (kit::listing(&ours()), kit::listing(&theirs()));
    let here = ours.keys().filter(|k| !theirs.contains_key(*k)).map(|k| format!("+{k}"));
    let there = theirs.keys().filter(|k| !ours.contains_key(*k)).map(|k| format!("-{k}"));
    let found: BTreeSet<String> = here.chain(there).collect();
    let intended: BTreeSet<String> =
        INTENDED.iter().flat_map(|(_, lines)| *lines).map(ToString::to_string).collect();
    let list =
        |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        found == intended,
        "not meant:\n{}\nnot met:\n{}",
        list(&found, &intended),
        list(&intended, &found)
    );
}

/// Rules that both have stand in the same order.
#[test]
fn the_order_of_rules() {
    let (ours, theirs) = (ours(), theirs());
    let mut compared = 0;
    for family in IpFamily::ALL {
        for table in theirs.rules().get(family).tables() {
            for (name, chain) in table.chains().filter(|(_, chain)| !chain.rules.is_empty()) {
                let there: Vec<&str> = chain.rules.iter().map(|r| &*r.text).collect();
                let here = ours.rules().get(family).table(table.name()).unwrap().chain(name).unwrap();
                let here: Vec<&str> = here.rules.iter().map(|r| &*r.text).collect();
                let common = |a: &[&str], b: &[&str]| -> Vec<String> {
                    a.iter().filter(|r| b.contains(r)).map(ToString::to_string).collect()
                };
                assert_eq!(common(&here, &there), common(&there, &here), "{family} {name}");
                compared += common(&here, &there).len();
            }
        }
    }
    assert!(compared > 60, "{compared}");
}

/// The state of a kube-proxy is taken over in place: virtual servers and real servers stay, so do addresses and entries.
///
/// Cases: ipvs-11.8
#[test]
fn it_is_taken_over() {
    let case = corpus::load(&kit::cases().join("peer-state.yaml")).unwrap();
    let mut host = theirs();
    for family in IpFamily::ALL {
        let plan = takeover::take_over(kit::full(case.commit.snapshot(family)), &kit::observe(&host, family));
        let lines = kit::lines(&plan);
        let additions = |l: &&String| l.starts_with("create KUBE-") || l.starts_with("add KUBE-");
        assert!(lines.iter().all(|l| additions(&l) && l.contains("IPVS")), "{lines:#?}");
        kit::apply(&mut host, &plan);
        let again =
            takeover::take_over(kit::full(case.commit.snapshot(family)), &kit::observe(&host, family));
        assert_eq!(kit::lines(&again), [""; 0]);
        assert_eq!(kit::inputs(&again), 0);
    }
    assert_eq!(kit::listing(&host), kit::listing(&ours()));
}
