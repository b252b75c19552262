//! Intake, case by case; `edge_N_` is number N of core spec 11.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use serde_json::{Value, json};

use super::*;
use crate::ids::{IpFamily, NodeName, Port, Protocol, ServiceName, Timestamp};
use crate::model::{
    Conditions, EndpointSlice, NodeFacts, PerFamily, Service, ServiceType, SliceEndpoint, TrafficPolicy,
};

/// Lays `patch` over `base`: objects are merged, everything else is replaced, `null` removes.
fn overlay(base: &mut Value, patch: &Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    base.remove(key);
                } else {
                    overlay(base.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (base, patch) => *base = patch.clone(),
    }
}

/// A ClusterIP Service web/front, 10.96.1.1 port 80, changed by `patch`.
fn raw_service(patch: &Value) -> core::Service {
    let mut object = json!({
        "metadata": {"namespace": "web", "name": "front"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.1.1",
            "clusterIPs": ["10.96.1.1"],
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    });
    overlay(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

/// A Service with this `spec` laid over the standard one, and the problems as text.
fn read(spec: &Value) -> (Service, Vec<String>) {
    read_object(&json!({ "spec": spec }))
}

fn read_object(patch: &Value) -> (Service, Vec<String>) {
    let intake = service(&raw_service(patch));
    assert_eq!(intake.ignored, None);
    (intake.accepted.expect("accepted"), texts(&intake.problems))
}

/// The same, without any problem.
fn clean(spec: &Value) -> Service {
    let (service, problems) = read(spec);
    assert_eq!(problems, [""; 0]);
    service
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|t| ip(t)).collect()
}

fn nets(texts: &[&str]) -> Vec<ipnet::IpNet> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

/// An EndpointSlice of web/front with one TCP port and `endpoints`, changed by `patch`.
fn raw_slice(patch: &Value) -> discovery::EndpointSlice {
    let mut object = json!({
        "metadata": {"namespace": "web", "name": "front-a", "labels": {"kubernetes.io/service-name": "front"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.244.1.1"]}],
    });
    overlay(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

fn read_slice(patch: &Value) -> (EndpointSlice, Vec<String>) {
    let intake = endpoint_slice(&raw_slice(patch));
    assert_eq!(intake.ignored, None);
    (intake.accepted.expect("accepted"), texts(&intake.problems))
}

/// The one endpoint that `entry` gives.
fn read_endpoint(entry: &Value) -> SliceEndpoint {
    let (slice, problems) = read_slice(&json!({"endpoints": [entry]}));
    assert_eq!(problems, [""; 0]);
    let [endpoint] = <[SliceEndpoint; 1]>::try_from(slice.endpoints).unwrap();
    endpoint
}

fn read_node(object: &Value) -> (NodeFacts, Vec<String>) {
    let intake = node(&serde_json::from_value(object.clone()).unwrap());
    (intake.accepted.expect("accepted"), texts(&intake.problems))
}

#[test]
fn a_whole_service() {
    let (got, problems) = read_object(&json!({
        "metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local",
            "healthCheckNodePort": 32100,
            "externalIPs": ["192.0.2.77"],
            "loadBalancerSourceRanges": ["203.0.113.0/24", "198.51.100.7/32"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30180, "protocol": "TCP"},
                {"name": "dns", "port": 80, "nodePort": 30180, "protocol": "UDP"},
                {"name": "m3ua", "port": 2905, "protocol": "SCTP"},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10", "ipMode": "VIP"}]}},
    }));
    assert_eq!(problems, [""; 0]);
    assert_eq!(got.name, ServiceName::new("web", "front"));
    assert_eq!(got.created, Some(Timestamp(1_735_689_600_000_000_000)));
    assert_eq!(got.kind, ServiceType::LoadBalancer);
    assert_eq!(got.cluster_ips, PerFamily { ipv4: Some(ip("10.96.1.1")), ipv6: None });
    assert_eq!(got.external_ips.ipv4, ips(&["192.0.2.77"]));
    assert_eq!(got.load_balancer_vips.ipv4, ips(&["192.0.2.10"]));
    assert_eq!(got.source_ranges.ipv4, nets(&["203.0.113.0/24", "198.51.100.7/32"]));
    assert_eq!((got.external_policy, got.internal_policy), (TrafficPolicy::Local, TrafficPolicy::Local));
    assert_eq!(got.affinity, Some(Duration::from_secs(600)));
    assert_eq!(got.health_check_node_port.map(Port::get), Some(32100));
    let ports: Vec<_> =
        got.ports.iter().map(|p| (&*p.name, p.protocol, p.port.get(), p.node_port.map(Port::get))).collect();
    assert_eq!(
        ports,
        [
            ("http", Protocol::Tcp, 80, Some(30180)),
            ("dns", Protocol::Udp, 80, Some(30180)),
            ("m3ua", Protocol::Sctp, 2905, None),
        ]
    );
}

#[test]
fn defaults_of_a_bare_service() {
    let got = clean(&json!({"type": null, "ports": [{"port": 80}]}));
    assert_eq!(got.kind, ServiceType::ClusterIp);
    assert_eq!((got.external_policy, got.internal_policy), (TrafficPolicy::Cluster, TrafficPolicy::Cluster));
    assert_eq!((got.affinity, got.health_check_node_port, got.created), (None, None, None));
    let [port] = got.ports.as_slice() else { panic!("{:?}", got.ports) };
    assert_eq!((&*port.name, port.protocol, port.node_port), ("", Protocol::Tcp, None));
}

/// The worked example of core spec 1.4.
#[test]
fn filtering_example() {
    let (got, problems) = read_object(&json!({
        "spec": {
            "clusterIP": "172.30.0.041",
            "clusterIPs": ["172.30.0.041"],
            "externalIPs": ["192.168.099.022", "", "fd00::1", "junk"],
            "loadBalancerSourceRanges": [" 203.0.113.000/025", "2001:db8::/32"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.004"}]}},
    }));
    assert_eq!(got.cluster_ips.ipv4, Some(ip("172.30.0.41")));
    assert_eq!(got.load_balancer_vips.ipv4, ips(&["1.2.3.4"]));
    assert_eq!(got.external_ips.ipv4, ips(&["192.168.99.22"]));
    assert_eq!(got.source_ranges.ipv4, nets(&["203.0.113.0/25"]));
    assert_eq!(problems, ["Service web/front: spec.externalIPs[3]: \"junk\" is not an IP address"]);
}

/// The table of core spec 1.3.
#[test]
fn cluster_ip_of_each_family() {
    let cases = [
        (json!(null), "10.0.0.10", json!(null), Some("10.0.0.10"), None),
        (json!([]), "2000::1", json!([]), None, Some("2000::1")),
        (json!(null), "10.0.0.10", json!(["10.0.0.99"]), Some("10.0.0.10"), None),
        (json!(["IPv4"]), "10.0.0.10", json!(["10.0.0.10"]), Some("10.0.0.10"), None),
        (
            json!(["IPv6", "IPv4"]),
            "2000::1",
            json!(["2000::1", "10.0.0.10"]),
            Some("10.0.0.10"),
            Some("2000::1"),
        ),
        (json!(["IPv4", "IPv6"]), "10.0.0.10", json!(["10.0.0.10"]), Some("10.0.0.10"), None),
        (json!(["IPv6"]), "10.0.0.10", json!(null), None, None),
        (json!(["IPv4", "IPv4"]), "10.0.0.10", json!(["10.0.0.10", "10.0.0.11"]), Some("10.0.0.10"), None),
        (json!(["IPv4", "IPv6"]), "10.0.0.10", json!(["10.0.0.10", ""]), Some("10.0.0.10"), None),
    ];
    for (families, single, list, want_v4, want_v6) in cases {
        let got = clean(&json!({"ipFamilies": families, "clusterIP": single, "clusterIPs": list}));
        let want = PerFamily { ipv4: want_v4.map(ip), ipv6: want_v6.map(ip) };
        assert_eq!(got.cluster_ips, want, "{families} {single} {list}");
    }
}

#[test]
fn unusable_cluster_ips_are_reported() {
    let spec = json!({
        "ipFamilies": ["IPv4", "IPv6", "IPv5"],
        "clusterIPs": ["10.0.0", "10.0.0.2", "10.0.0.3"],
    });
    let (got, problems) = read(&spec);
    assert_eq!(got.cluster_ips, PerFamily::default());
    assert_eq!(
        problems,
        [
            "Service web/front: spec.clusterIPs[0]: \"10.0.0\" is not an IP address: 3 parts between dots instead of 4",
            "Service web/front: spec.clusterIPs[1]: \"10.0.0.2\" is not an IPv6 address",
            "Service web/front: spec.ipFamilies[2]: \"IPv5\" is not IPv4 or IPv6",
        ]
    );
    let (got, problems) = read(&json!({"ipFamilies": null, "clusterIP": "ten"}));
    assert_eq!(got.cluster_ips, PerFamily::default());
    assert_eq!(problems, ["Service web/front: spec.clusterIP: \"ten\" is not an IP address"]);
}

/// Cases: core-11.1
#[test]
fn edge_1_headless_services_are_ignored() {
    for ports in
        [json!([{"port": 53, "protocol": "UDP"}]), json!([{"port": 9, "protocol": "SCTP"}]), json!(null)]
    {
        let object =
            raw_service(&json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": ports}}));
        assert_eq!(service(&object), Intake::ignored(Ignored::Headless));
    }
    assert_eq!(clean(&json!({"ports": null})).ports, []);
}

#[test]
fn services_of_nobody_and_of_others_are_ignored() {
    for empty in
        [json!({"spec": {"clusterIP": ""}}), json!({"spec": {"clusterIP": null}}), json!({"spec": null})]
    {
        assert_eq!(service(&raw_service(&empty)), Intake::ignored(Ignored::NoClusterIp));
    }
    for value in ["", "other"] {
        let labels = json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": value}}});
        assert_eq!(service(&raw_service(&labels)), Intake::ignored(Ignored::OtherProxy));
    }
}

/// Cases: core-11.2
#[test]
fn edge_2_external_name_with_a_cluster_ip_is_ignored() {
    let object = raw_service(&json!({"spec": {"type": "ExternalName"}}));
    assert_eq!(service(&object), Intake::ignored(Ignored::ExternalName));
}

/// Cases: core-11.3
#[test]
fn edge_3_node_port_of_a_cluster_ip_service_is_kept() {
    let got = clean(&json!({"ports": [{"port": 80, "nodePort": 30080}]}));
    assert_eq!(got.kind, ServiceType::ClusterIp);
    assert_eq!(got.ports[0].node_port.map(Port::get), Some(30080));
}

/// Cases: core-11.4
#[test]
fn edge_4_vip_left_over_on_a_cluster_ip_service_is_kept() {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let (got, problems) = read_object(&status);
    assert_eq!((got.load_balancer_vips.ipv4, problems), (ips(&["192.0.2.1"]), vec![]));
}

/// Cases: core-11.5
#[test]
fn edge_5_ipv6_service_has_nothing_in_ipv4() {
    let got = clean(&json!({"ipFamilies": ["IPv6"], "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]}));
    assert_eq!(got.cluster_ips, PerFamily { ipv4: None, ipv6: Some(ip("fd00::1")) });
}

/// Cases: core-11.6, iptables-12.22
#[test]
fn edge_6_each_family_sees_its_own() {
    let (got, problems) = read_object(&json!({
        "spec": {
            "ipFamilies": ["IPv4", "IPv6"],
            "clusterIPs": ["10.96.1.1", "fd00:96::1"],
            "externalIPs": ["fd00::5", "192.0.2.5"],
            "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/16"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"ip": "fd00::9"}]}},
    }));
    assert_eq!(problems, [""; 0]);
    let one = |v4: &str, v6: &str| PerFamily { ipv4: ips(&[v4]), ipv6: ips(&[v6]) };
    assert_eq!(got.external_ips, one("192.0.2.5", "fd00::5"));
    assert_eq!(got.load_balancer_vips, one("192.0.2.9", "fd00::9"));
    assert_eq!(got.source_ranges, PerFamily { ipv4: nets(&["10.0.0.0/8"]), ipv6: nets(&["fd00::/16"]) });
}

/// Cases: core-11.7, nftables-12.22, iptables-12.12
#[test]
fn edge_7_source_range_with_leading_space() {
    let got = clean(&json!({"loadBalancerSourceRanges": [" 10.1.2.0/28", "\t10.1.3.0/28 ", ""]}));
    assert_eq!(got.source_ranges.ipv4, nets(&["10.1.2.0/28", "10.1.3.0/28"]));
}

/// Cases: core-11.8, iptables-12.12
#[test]
fn edge_8_range_of_everything_lifts_the_restriction() {
    let got = clean(&json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "0.0.0.0/0", "fd00::/16"]}));
    assert_eq!(got.source_ranges, PerFamily { ipv4: vec![], ipv6: nets(&["fd00::/16"]) });
}

/// Cases: core-11.9
#[test]
fn edge_9_ranges_of_the_other_family_restrict_nothing_here() {
    let got = clean(&json!({"loadBalancerSourceRanges": ["2001:db8::/32"]}));
    assert_eq!(got.source_ranges, PerFamily { ipv4: vec![], ipv6: nets(&["2001:db8::/32"]) });
}

/// Cases: core-11.10
#[test]
fn edge_10_garbage_range_is_reported_and_restricts_nothing() {
    let (got, problems) = read(&json!({"loadBalancerSourceRanges": ["garbage"]}));
    assert_eq!(got.source_ranges, PerFamily::default());
    assert_eq!(
        problems,
        [
            "Service web/front: spec.loadBalancerSourceRanges[0]: \"garbage\" is not an IP address",
            "Service web/front: spec.loadBalancerSourceRanges has no usable range: all sources are allowed",
        ]
    );
    let (got, problems) = read(&json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "10.0.0.0"]}));
    assert_eq!(got.source_ranges.ipv4, nets(&["10.0.0.0/8"]));
    assert_eq!(
        problems,
        [
            "Service web/front: spec.loadBalancerSourceRanges[1]: \"10.0.0.0\" has no prefix length, as in 10.0.0.0/8"
        ]
    );
}

/// Cases: core-11.11, iptables-12.22
#[test]
fn edge_11_external_ip_blank_and_spaced() {
    let (got, problems) = read(&json!({"externalIPs": ["", "  ", " 1.2.3.4"]}));
    assert_eq!(got.external_ips, PerFamily::default());
    assert_eq!(problems, ["Service web/front: spec.externalIPs[2]: \" 1.2.3.4\" contains white space"]);
}

/// Cases: core-11.12, nftables-12.32
#[test]
fn edge_12_leading_zeros_become_canonical() {
    let (got, problems) = read_object(&json!({
        "spec": {
            "ipFamilies": null,
            "clusterIP": "172.30.0.041",
            "externalIPs": ["1.2.3.004", "1.2.3.4", "::ffff:1.2.3.4"],
            "loadBalancerSourceRanges": ["203.0.113.000/025", "203.0.113.7/25"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.004"}, {"ip": "1.2.3.4"}]}},
    }));
    assert_eq!(problems, [""; 0]);
    assert_eq!(got.cluster_ips.ipv4, Some(ip("172.30.0.41")));
    assert_eq!(got.external_ips, PerFamily { ipv4: ips(&["1.2.3.4"]), ipv6: vec![] });
    assert_eq!(got.load_balancer_vips.ipv4, ips(&["1.2.3.4"]));
    assert_eq!(got.source_ranges.ipv4, nets(&["203.0.113.0/25"]));
}

/// Cases: core-11.13
#[test]
fn edge_13_only_readable_addresses_of_mode_vip_are_vips() {
    let ingress = json!([
        {"hostname": "lb.example.com"}, {"ip": "192.0.2.1", "ipMode": "Proxy"}, {"ip": "192.0.2.2"},
        {"ip": "192.0.2.3", "ipMode": "VIP"}, {"ip": "192.0.2.4", "ipMode": "Else"}, {"ip": "junk"}, {"ip": ""},
        {"ip": "192.0.2.5", "hostname": "x", "ports": [{"port": 80, "protocol": "TCP"}]},
    ]);
    let (got, problems) = read_object(&json!({"status": {"loadBalancer": {"ingress": ingress}}}));
    assert_eq!(got.load_balancer_vips.ipv4, ips(&["192.0.2.2", "192.0.2.3", "192.0.2.5"]));
    assert_eq!(problems, [""; 0]);
}

/// Cases: core-11.14
#[test]
fn edge_14_health_check_port_without_any_external_address() {
    let (got, problems) = read_object(&json!({
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "Proxy"}]}},
    }));
    assert_eq!(problems, [""; 0]);
    assert_eq!(got.load_balancer_vips, PerFamily::default());
    assert_eq!(got.health_check_node_port.map(Port::get), Some(32000));
}

/// Cases: core-11.15, iptables-12.39
#[test]
fn edge_15_local_policy_of_a_cluster_ip_service() {
    let with =
        |ips: Value| clean(&json!({"externalTrafficPolicy": "Local", "externalIPs": ips})).external_policy;
    assert_eq!(with(json!(["192.0.2.1"])), TrafficPolicy::Local);
    assert_eq!(with(json!([""])), TrafficPolicy::Local, "the raw list counts");
    assert_eq!(with(json!(["fd00::1"])), TrafficPolicy::Local, "of any family");
    assert_eq!(with(json!([])), TrafficPolicy::Cluster);
    assert_eq!(with(json!(null)), TrafficPolicy::Cluster);
}

/// Cases: core-11.16
#[test]
fn edge_16_local_policy_without_a_type_is_cluster() {
    for kind in [json!(null), json!("")] {
        let spec = json!({"type": kind, "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"]});
        assert_eq!(clean(&spec).external_policy, TrafficPolicy::Cluster);
    }
}

/// Cases: core-11.17
#[test]
fn edge_17_missing_health_check_port_is_reported() {
    for number in [json!(null), json!(0)] {
        let spec =
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": number});
        let (got, problems) = read(&spec);
        assert_eq!((got.external_policy, got.health_check_node_port), (TrafficPolicy::Local, None));
        assert_eq!(problems, ["Service web/front: spec.healthCheckNodePort is missing or 0"]);
    }
}

/// Cases: core-11.18
#[test]
fn edge_18_health_check_port_is_only_for_load_balancers_with_policy_local() {
    for (kind, policy) in [("NodePort", "Local"), ("LoadBalancer", "Cluster"), ("ClusterIP", "Local")] {
        let got = clean(&json!({
            "type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": 32000, "externalIPs": ["192.0.2.1"],
        }));
        assert_eq!(got.health_check_node_port, None, "{kind} {policy}");
    }
}

#[test]
fn affinity_timeouts() {
    let affinity = |spec: Value| read(&spec).0.affinity.map(|d| d.as_secs());
    assert_eq!(affinity(json!({"sessionAffinity": "None"})), None);
    assert_eq!(affinity(json!({"sessionAffinity": "ClientIP"})), Some(10_800));
    assert_eq!(affinity(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {}})), Some(10_800));
    let with = |seconds: i32| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
    assert_eq!(affinity(with(5)), Some(5));
    let (got, problems) = read(&with(-5));
    assert_eq!(got.affinity, Some(Duration::from_secs(10_800)));
    assert_eq!(
        problems,
        [
            "Service web/front: spec.sessionAffinityConfig.clientIP.timeoutSeconds: \"-5\" is not a positive number of seconds; 10800 is used"
        ]
    );
}

#[test]
fn unknown_words_are_reported_and_mean_the_default() {
    let (got, problems) = read(&json!({
        "type": "Magic", "externalTrafficPolicy": "Near", "internalTrafficPolicy": "local", "sessionAffinity": "Cookie",
    }));
    assert_eq!(got.kind, ServiceType::ClusterIp);
    assert_eq!((got.external_policy, got.internal_policy), (TrafficPolicy::Cluster, TrafficPolicy::Cluster));
    assert_eq!(got.affinity, None);
    assert_eq!(
        problems,
        [
            "Service web/front: spec.type: \"Magic\" is not a known type; treated as ClusterIP",
            "Service web/front: spec.externalTrafficPolicy: \"Near\" is not a known policy; treated as Cluster",
            "Service web/front: spec.internalTrafficPolicy: \"local\" is not a known policy; treated as Cluster",
            "Service web/front: spec.sessionAffinity: \"Cookie\" is not a known affinity; treated as None",
        ]
    );
}

#[test]
fn a_malformed_port_loses_only_itself() {
    let (got, problems) = read(&json!({"ports": [
        {"name": "a", "port": 0}, {"name": "b", "port": 65536}, {"name": "c", "port": -1},
        {"name": "d", "port": 80, "protocol": "tcp"}, {"name": "e f", "port": 81},
        {"name": "g", "port": 65535, "nodePort": 70000}, {"name": "h", "port": 1},
    ]}));
    let ports: Vec<_> = got.ports.iter().map(|p| (&*p.name, p.port.get(), p.node_port)).collect();
    assert_eq!(ports, [("g", 65535, None), ("h", 1, None)]);
    assert_eq!(
        problems,
        [
            "Service web/front: spec.ports[0].port is missing or 0",
            "Service web/front: spec.ports[1].port: \"65536\" is not a port number from 1 to 65535",
            "Service web/front: spec.ports[2].port: \"-1\" is not a port number from 1 to 65535",
            "Service web/front: spec.ports[3].protocol: \"tcp\" is not TCP, UDP or SCTP",
            "Service web/front: spec.ports[4].name: \"e f\" has characters other than letters, digits, '-', '.' and '_'",
            "Service web/front: spec.ports[5].nodePort: \"70000\" is not a port number from 1 to 65535",
        ]
    );
}

#[test]
fn duplicate_ports_keep_the_first() {
    let (got, problems) = read(&json!({"ports": [
        {"name": "a", "port": 80, "nodePort": 30080},
        {"name": "a", "port": 81},
        {"name": "b", "port": 80},
        {"name": "c", "port": 82, "nodePort": 30080},
        {"name": "a", "port": 80, "nodePort": 30080, "protocol": "UDP"},
        {"name": "b", "port": 83},
    ]}));
    let ports: Vec<_> =
        got.ports.iter().map(|p| (&*p.name, p.protocol, p.port.get(), p.node_port.is_some())).collect();
    assert_eq!(
        ports,
        [
            ("a", Protocol::Tcp, 80, true),
            ("c", Protocol::Tcp, 82, false),
            ("a", Protocol::Udp, 80, true),
            ("b", Protocol::Tcp, 83, false),
        ]
    );
    assert_eq!(
        problems,
        [
            "Service web/front: spec.ports[1].name: \"a\" is the name of an earlier tcp port",
            "Service web/front: spec.ports[2].port: \"80\" is an earlier tcp port",
            "Service web/front: spec.ports[3].nodePort: \"30080\" is the node port of an earlier port",
        ]
    );
}

/// Cases: core-11.23
#[test]
fn edge_23_two_protocols_on_one_number_are_two_ports() {
    let got = clean(&json!({"ports": [
        {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]}));
    assert_eq!(got.ports.len(), 2);
}

#[test]
fn objects_without_a_usable_name_are_rejected() {
    let long = "x".repeat(64);
    for (metadata, problem) in [
        (json!({"name": null}), "Service web/: metadata.name is empty"),
        (json!({"namespace": ""}), "Service /front: metadata.namespace is empty"),
        (
            json!({"name": "a\nb"}),
            "Service web/a\\nb: metadata.name: \"a\\nb\" has characters other than letters, digits, '-', '.' and '_'",
        ),
        (
            json!({"name": long}),
            &format!("Service web/{long}: metadata.name: \"{long}\" is longer than 63 bytes"),
        ),
    ] {
        let object = raw_service(&json!({ "metadata": metadata }));
        let intake = service(&object);
        assert_eq!((&intake.accepted, intake.ignored), (&None, None));
        assert_eq!(texts(&intake.problems), [problem]);
        assert_eq!(service_name(&object), None);
    }
    assert_eq!(service_name(&raw_service(&json!({}))), Some(ServiceName::new("web", "front")));
    assert!(service(&core::Service::default()).accepted.is_none());
    assert!(endpoint_slice(&discovery::EndpointSlice::default()).accepted.is_none());
    assert!(node(&core::Node::default()).accepted.is_none());
}

#[test]
fn long_values_are_cut_in_problems() {
    let (_, problems) = read(&json!({"externalIPs": ["z".repeat(1000)]}));
    assert_eq!(
        problems,
        [format!("Service web/front: spec.externalIPs[0]: \"{}\" is not an IP address", "z".repeat(100))]
    );
}

#[test]
fn a_whole_slice() {
    let (got, problems) = read_slice(&json!({
        "metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2025-01-01T00:00:00.25Z"}},
        "endpoints": [
            {"addresses": ["10.244.1.1"], "nodeName": "node-a", "zone": "zone-z",
             "conditions": {"ready": false, "serving": true, "terminating": true},
             "hints": {"forZones": [{"name": "zone-a"}, {"name": "zone-b"}], "forNodes": [{"name": "node-a"}]}},
            {"addresses": ["10.244.1.2"], "nodeName": "node-a", "hints": {"forZones": [], "forNodes": []}},
        ],
    }));
    assert_eq!(problems, [""; 0]);
    assert_eq!(slice_name(&raw_slice(&json!({}))), Some(got.name.clone()));
    assert_eq!((got.name.service.to_string(), &*got.name.name), ("web/front".into(), "front-a"));
    assert_eq!((got.family, got.trigger), (IpFamily::Ipv4, Some(Timestamp(1_735_689_600_250_000_000))));
    assert_eq!((&*got.ports[0].name, got.ports[0].port.get()), ("http", 8080));
    let [a, b] = got.endpoints.as_slice() else { panic!("{:?}", got.endpoints) };
    assert_eq!(a.conditions, Conditions { ready: false, serving: true, terminating: true });
    assert_eq!(a.hints.zones.as_deref(), Some(&["zone-a".into(), "zone-b".into()][..]));
    assert_eq!(a.hints.nodes.as_deref(), Some(&["node-a".into()][..]));
    assert_eq!((&b.hints.zones, &b.hints.nodes), (&None, &None), "empty lists are no hints");
}

#[test]
fn repeated_strings_of_a_slice_are_shared() {
    let entry = |n: u8| {
        json!({"addresses": [format!("10.244.1.{n}")], "nodeName": "node-a",
               "hints": {"forZones": [{"name": "a"}, {"name": "b"}], "forNodes": [{"name": "node-a"}]}})
    };
    let (got, _) = read_slice(&json!({"endpoints": [entry(1), entry(2)]}));
    let [a, b] = got.endpoints.as_slice() else { panic!("{:?}", got.endpoints) };
    let same =
        |x: &Option<Arc<str>>, y: &Option<Arc<str>>| Arc::ptr_eq(x.as_ref().unwrap(), y.as_ref().unwrap());
    assert!(same(&a.node, &b.node));
    assert!(Arc::ptr_eq(a.hints.zones.as_ref().unwrap(), b.hints.zones.as_ref().unwrap()));
    assert!(Arc::ptr_eq(&a.hints.nodes.as_ref().unwrap()[0], a.node.as_ref().unwrap()));
}

/// Cases: core-11.25
#[test]
fn edge_25_ports_without_name_or_number_are_skipped() {
    let (got, problems) = read_slice(&json!({"ports": [
        {"port": 1}, {"name": "", "port": 2}, {"name": "nil"}, {"name": "zero", "port": 0},
        {"name": "big", "port": 70000}, {"name": "odd", "port": 3, "protocol": "ICMP"}, {"name": "u", "port": 4, "protocol": "UDP"},
        {"name": "", "port": 2}, {"name": "", "port": 5},
    ]}));
    let ports: Vec<_> = got.ports.iter().map(|p| (&*p.name, p.port.get(), p.protocol)).collect();
    assert_eq!(ports, [("", 2, Protocol::Tcp), ("u", 4, Protocol::Udp), ("", 5, Protocol::Tcp)]);
    assert_eq!(
        problems,
        [
            "EndpointSlice web/front-a: ports[0].name is missing; an unnamed port has an empty name",
            "EndpointSlice web/front-a: ports[2].port is missing or 0",
            "EndpointSlice web/front-a: ports[3].port is missing or 0",
            "EndpointSlice web/front-a: ports[4].port: \"70000\" is not a port number from 1 to 65535",
            "EndpointSlice web/front-a: ports[5].protocol: \"ICMP\" is not TCP, UDP or SCTP",
        ]
    );
    assert_eq!(read_slice(&json!({"ports": null})).0.ports, []);
}

/// Cases: core-11.26
#[test]
fn edge_26_slices_of_other_types_or_of_no_service_are_ignored() {
    let reason = |patch: Value| {
        let intake = endpoint_slice(&raw_slice(&patch));
        assert_eq!((intake.accepted, intake.problems), (None, vec![]));
        intake.ignored.unwrap()
    };
    assert_eq!(reason(json!({"addressType": "FQDN"})), Ignored::UnsupportedAddressType);
    assert_eq!(reason(json!({"addressType": ""})), Ignored::UnsupportedAddressType);
    assert_eq!(reason(json!({"metadata": {"labels": null}})), Ignored::NoService);
    let empty = json!({"metadata": {"labels": {"kubernetes.io/service-name": ""}}});
    assert_eq!(slice_name(&raw_slice(&empty)), None);
    assert_eq!(reason(empty), Ignored::NoService);
    for value in ["", "true"] {
        let headless = json!({"metadata": {"labels": {"service.kubernetes.io/headless": value}}});
        assert_eq!(reason(headless), Ignored::HeadlessSlice);
    }
}

/// Cases: core-11.27
#[test]
fn edge_27_only_the_first_address_is_used() {
    let (got, problems) = read_slice(&json!({"endpoints": [
        {"addresses": ["10.244.1.1", "10.244.1.2"]}, {"addresses": []}, {"addresses": ["10.244.1"]},
        {"addresses": ["fd00::1"]}, {"addresses": ["10.244.001.003"]},
    ]}));
    let addresses: Vec<_> = got.endpoints.iter().map(|e| e.ip).collect();
    assert_eq!(addresses, ips(&["10.244.1.1", "10.244.1.3"]));
    assert_eq!(
        problems,
        [
            "EndpointSlice web/front-a: endpoints[1].addresses is empty",
            "EndpointSlice web/front-a: endpoints[2].addresses[0]: \"10.244.1\" is not an IP address: 3 parts between dots instead of 4",
            "EndpointSlice web/front-a: endpoints[3].addresses[0]: \"fd00::1\" is not an IPv4 address, as the slice's addressType says",
        ]
    );
}

/// Cases: core-11.34
#[test]
fn edge_34_conditions_default_one_by_one() {
    let conditions =
        |value: Value| read_endpoint(&json!({"addresses": ["10.244.1.1"], "conditions": value})).conditions;
    let want = |ready, serving, terminating| Conditions { ready, serving, terminating };
    assert_eq!(conditions(json!(null)), want(true, true, false));
    assert_eq!(conditions(json!({})), want(true, true, false));
    assert_eq!(conditions(json!({"ready": false})), want(false, true, false));
    assert!(!conditions(json!({"ready": false})).is_fallback());
    assert_eq!(conditions(json!({"serving": false})), want(true, false, false));
    assert_eq!(conditions(json!({"terminating": true})), want(true, true, true));
}

/// Cases: core-11.35
#[test]
fn edge_35_missing_node_name_is_no_node() {
    assert_eq!(read_endpoint(&json!({"addresses": ["10.244.1.1"]})).node, None);
    assert_eq!(read_endpoint(&json!({"addresses": ["10.244.1.1"], "nodeName": ""})).node, None);
    let named = read_endpoint(&json!({"addresses": ["10.244.1.1"], "nodeName": "Node-A"}));
    assert_eq!(named.node.as_deref(), Some("Node-A"), "compared byte by byte, so kept as it is");
}

#[test]
fn unreadable_trigger_time_is_reported() {
    let annotations = json!({"endpoints.kubernetes.io/last-change-trigger-time": "yesterday"});
    let (got, problems) = read_slice(&json!({"metadata": {"annotations": annotations}}));
    assert_eq!(got.trigger, None);
    assert_eq!(
        problems,
        [
            "EndpointSlice web/front-a: metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]: \"yesterday\" is not a time of RFC 3339"
        ]
    );
}

#[test]
fn ipv6_slices() {
    let (got, problems) = read_slice(&json!({
        "addressType": "IPv6", "endpoints": [{"addresses": ["FD00:0::1"]}, {"addresses": ["::ffff:10.0.0.1"]}],
    }));
    assert_eq!(got.family, IpFamily::Ipv6);
    assert_eq!(got.endpoints.iter().map(|e| e.ip).collect::<Vec<_>>(), ips(&["fd00::1"]));
    assert_eq!(problems.len(), 1, "a mapped address is IPv4");
}

#[test]
fn node_facts() {
    let (got, problems) = read_node(&json!({
        "metadata": {"name": "Worker", "labels": {"topology.kubernetes.io/zone": "zone-a"}},
        "spec": {"podCIDR": "10.9.9.0/24", "podCIDRs": ["10.244.1.7/24", "fd00:10:244:1::/64", "bad"]},
        "status": {"addresses": [
            {"type": "Hostname", "address": "worker"},
            {"type": "ExternalIP", "address": "2001:db8::1"}, {"type": "ExternalIP", "address": "198.51.100.1"},
            {"type": "InternalIP", "address": "10.0.0.x"},
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.2"},
        ]},
    }));
    assert_eq!(got.name, NodeName::new("worker"));
    assert_eq!(got.zone.as_deref(), Some("zone-a"));
    assert_eq!(got.ips, PerFamily { ipv4: Some(ip("10.0.0.1")), ipv6: Some(ip("2001:db8::1")) });
    assert_eq!(got.first_family, Some(IpFamily::Ipv4), "internal addresses come first");
    assert_eq!(got.pod_cidrs, nets(&["10.244.1.0/24", "fd00:10:244:1::/64"]));
    assert_eq!(got.host_addresses, ips(&[]));
    assert_eq!(
        problems,
        [
            "Node Worker: status.addresses[3].address: \"10.0.0.x\" is not an IP address: \"x\" is not a number from 0 to 255",
            "Node Worker: spec.podCIDRs[2]: \"bad\" is not an IP address",
        ]
    );
}

#[test]
fn node_without_zone_or_address() {
    let labels = json!({"topology.kubernetes.io/zone": ""});
    let addresses =
        json!([{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "InternalIP", "address": "::1"}]);
    let (got, problems) =
        read_node(&json!({"metadata": {"name": "n", "labels": labels}, "status": {"addresses": addresses}}));
    assert_eq!((got.zone, got.ips), (None, PerFamily::default()));
    assert_eq!(problems, [""; 0]);
    let (bare, _) = read_node(&json!({"metadata": {"name": "n"}}));
    assert_eq!((bare.zone, bare.ips, bare.pod_cidrs), (None, PerFamily::default(), vec![]));
    assert_eq!(bare.first_family, None);
}

/// The rows of core spec 10.2 that a Node object decides.
#[test]
fn the_first_address_says_which_family_comes_first() {
    let cases: [(&[&str], Option<IpFamily>); 4] = [
        (&["192.168.1.1"], Some(IpFamily::Ipv4)),
        (&["fd00:1234::1"], Some(IpFamily::Ipv6)),
        (&["2001:db8::2", "90.90.90.90"], Some(IpFamily::Ipv6)),
        (&["90.90.90.90", "2001:db8::2"], Some(IpFamily::Ipv4)),
    ];
    for (addresses, first) in cases {
        let entries: Vec<Value> =
            addresses.iter().map(|a| json!({"type": "InternalIP", "address": a})).collect();
        let object = json!({"metadata": {"name": "n"}, "status": {"addresses": entries}});
        assert_eq!(read_node(&object).0.first_family, first, "{addresses:?}");
    }
}
