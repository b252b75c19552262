//! Checks against node and host (core spec 7.6).

use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;

use super::*;

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|t| t.parse().expect("range")).collect()
}

/// What is found with this file on a host that serves these families.
fn found(body: &str, families: &[IpFamily], pod_cidrs: &[&str]) -> Vec<String> {
    let pod_cidrs = nets(pod_cidrs);
    let ips = PerFamily {
        ipv4: Some("10.0.0.1".parse().expect("address")),
        ipv6: Some("fd00::1".parse().expect("address")),
    };
    let supported =
        PerFamily { ipv4: families.contains(&IpFamily::Ipv4), ipv6: families.contains(&IpFamily::Ipv6) };
    let facts = StartFacts { primary: IpFamily::Ipv4, supported, ips, pod_cidrs: &pod_cidrs };
    let level = |f: &Finding| if f.severity == Severity::Fatal { "fatal" } else { "warn" };
    peer(body).start_findings(&facts).iter().map(|f| format!("{} {}", level(f), f.path)).collect()
}

const V4: [IpFamily; 1] = [IpFamily::Ipv4];
const BOTH: [IpFamily; 2] = IpFamily::ALL;

#[test]
fn what_fits_is_silent() {
    for mode in ["iptables", "ipvs", "nftables"] {
        let file = format!(
            "mode: {mode}\nclusterCIDR: 10.0.0.0/8\nnodePortAddresses: [primary]\nmetricsBindAddress: 127.0.0.1\n"
        );
        assert_eq!(found(&file, &BOTH, &["10.0.1.0/24"]), [""; 0]);
        assert_eq!(found(&file, &V4, &["10.0.1.0/24"]), [""; 0]);
    }
}

#[test]
fn families_that_are_not_served() {
    assert_eq!(found("", &[IpFamily::Ipv6], &[]), ["fatal mode"]);
    assert_eq!(found("", &[], &[]), ["fatal mode"]);
}

#[test]
fn node_port_addresses_of_one_family() {
    let only = |list: &str| format!("clusterCIDR: 10.0.0.0/8\nnodePortAddresses: [{list}]\n");
    assert_eq!(found(&only("'fd00::/8'"), &BOTH, &[]), ["warn nodePortAddresses"]);
    assert_eq!(found(&only("10.0.0.0/8"), &BOTH, &[]), [""; 0], "a single-stack cluster");
    assert_eq!(found(&only("10.0.0.0/8"), &BOTH, &["10.0.1.0/24", "fd00::/64"]), ["warn nodePortAddresses"]);
    assert_eq!(found(&only("10.0.0.0/8, 'fd00::/8'"), &BOTH, &["10.0.1.0/24", "fd00::/64"]), [""; 0]);
}

/// The source waits 30 s for an address (`NODE_WAIT`); then node ports answer everywhere.
/// Cases: core-11.80
#[test]
fn an_own_address_that_is_not_known() {
    let config = peer("nodePortAddresses: [primary]\n");
    let ips = PerFamily { ipv4: Some("127.0.0.1".parse().expect("address")), ipv6: None };
    let supported = PerFamily { ipv4: true, ipv6: true };
    let facts = StartFacts { primary: IpFamily::Ipv4, supported, ips, pod_cidrs: &[] };
    let said: Vec<String> = config.start_findings(&facts).iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].contains("own IPv4 address is not known") && said[1].contains("own IPv6"), "{said:?}");
}

#[test]
fn ranges_of_the_other_family() {
    let cluster = "clusterCIDR: 'fd00::/48'\nnodePortAddresses: [primary]\n";
    assert_eq!(found(cluster, &BOTH, &[]), ["warn clusterCIDR"]);
    assert_eq!(found(cluster, &V4, &[]), ["fatal clusterCIDR"]);
    assert_eq!(found(&format!("{cluster}detectLocalMode: NodeCIDR\n"), &V4, &[]), ["warn clusterCIDR"]);
    let primary = "nodePortAddresses: [primary]\n";
    assert_eq!(found(primary, &BOTH, &["fd00::/64"]), ["warn detectLocalMode"]);
    assert_eq!(
        found(&format!("{primary}detectLocalMode: NodeCIDR\n"), &BOTH, &["fd00::/64"]),
        ["fatal detectLocalMode"]
    );
    let excluded = format!("{primary}mode: ipvs\nipvs: {{excludeCIDRs: ['fd00::/8']}}\n");
    assert_eq!(found(&excluded, &V4, &[]), ["warn ipvs.excludeCIDRs"]);
    assert_eq!(found(&excluded, &BOTH, &[]), [""; 0]);
}

#[test]
fn addresses_of_the_other_family() {
    let file = "nodePortAddresses: [primary]\nhealthzBindAddress: '[fd00::1]:1'\nmetricsBindAddress: '[::]:1'\nwinkernel: {sourceVip: 'fd00::9'}\n";
    assert_eq!(found(file, &V4, &[]), ["warn winkernel.sourceVip", "warn healthzBindAddress"]);
    assert_eq!(found(file, &BOTH, &[]), ["warn winkernel.sourceVip"]);
}

/// Cases: report-C1-7
#[test]
fn pods_outside_of_the_clusters_range() {
    let file = "clusterCIDR: 10.32.0.0/16\nnodePortAddresses: [primary]\n";
    assert_eq!(found(file, &BOTH, &["10.32.5.0/24"]), [""; 0]);
    assert_eq!(found(file, &BOTH, &["10.34.0.0/24"]), ["warn clusterCIDR"]);
    assert_eq!(found(file, &BOTH, &["10.32.5.0/24", "fd00::/64"]), [""; 0], "no range of that family");
    let by_node = format!("{file}detectLocalMode: NodeCIDR\n");
    assert_eq!(found(&by_node, &BOTH, &["10.34.0.0/24"]), [""; 0]);
}
