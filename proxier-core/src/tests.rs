//! Builders for this crate's own tests.

use std::net::IpAddr;
use std::sync::Arc;

use crate::ids::{IpFamily, Port, Protocol, ServiceName, ServicePortName, Timestamp};
use crate::model::{
    Conditions, EndpointSlice, Hints, PerFamily, Service, ServicePortSpec, ServiceType, SliceEndpoint,
    SliceName, SlicePort, TrafficPolicy,
};

pub(crate) fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn name(text: &str) -> ServiceName {
    let (namespace, name) = text.split_once('/').unwrap();
    ServiceName::new(namespace, name)
}

pub(crate) fn port_name(service: &str, port: &str, protocol: Protocol) -> ServicePortName {
    ServicePortName { service: name(service), port: port.into(), protocol }
}

/// A ClusterIP Service with one TCP port named `http`, 80.
pub(crate) fn service(text: &str, cluster_ip: &str) -> Service {
    let addr = ip(cluster_ip);
    let mut cluster_ips = PerFamily::default();
    *cluster_ips.get_mut(IpFamily::of(addr)) = Some(addr);
    Service {
        name: name(text),
        created: Some(Timestamp(0)),
        kind: ServiceType::ClusterIp,
        cluster_ips,
        ports: vec![service_port("http", Protocol::Tcp, 80)],
        external_ips: PerFamily::default(),
        load_balancer_vips: PerFamily::default(),
        source_ranges: PerFamily::default(),
        external_policy: TrafficPolicy::Cluster,
        internal_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: None,
    }
}

pub(crate) fn service_port(name: &str, protocol: Protocol, number: u16) -> ServicePortSpec {
    ServicePortSpec { name: name.into(), protocol, port: port(number), node_port: None }
}

/// A slice whose port is `http` TCP 8080. Endpoints as `ip`, `ip@node`, with `!` in front for unready, `~` for terminating but serving.
pub(crate) fn slice(service: &str, slice: &str, endpoints: &[&str]) -> EndpointSlice {
    let endpoints: Vec<SliceEndpoint> = endpoints.iter().map(|e| endpoint(e)).collect();
    let family = endpoints.first().map_or(IpFamily::Ipv4, |e| IpFamily::of(e.ip));
    EndpointSlice {
        name: SliceName { service: name(service), name: slice.into() },
        family,
        ports: vec![SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: port(8080) }],
        endpoints,
        trigger: None,
    }
}

fn endpoint(text: &str) -> SliceEndpoint {
    let (conditions, rest) = match text.split_at(1) {
        ("!", rest) => (Conditions { ready: false, serving: false, terminating: false }, rest),
        ("~", rest) => (Conditions { ready: false, serving: true, terminating: true }, rest),
        _ => (Conditions::default(), text),
    };
    let (addr, node) = rest.split_once('@').map_or((rest, None), |(a, n)| (a, Some(n)));
    SliceEndpoint { ip: ip(addr), conditions, node: node.map(Arc::from), hints: Hints::default() }
}
