//! Clusters of a given size, for benchmarks: the same objects as model values and as Kubernetes JSON.
//!
//! Service `i` is `bench/svc-i`, ClusterIP, one port `http` 80, with `endpoints` ready endpoints on port 8080, one in a hundred
//! of them on the node `node-0`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use proxier_core::ids::{IpFamily, Port, Protocol, ServiceName, Timestamp};
use proxier_core::model::{
    Conditions, EndpointSlice, Hints, PerFamily, Service, ServicePortSpec, ServiceType, SliceEndpoint,
    SliceName, SlicePort, TrafficPolicy,
};
use serde_json::{Value, json};

/// The node that benchmarks run as.
pub const NODE: &str = "node-0";
/// Pod range of these clusters.
pub const CLUSTER_CIDR: &str = "10.128.0.0/9";

fn name(service: u32) -> ServiceName {
    ServiceName::new("bench", format!("svc-{service}"))
}

fn cluster_ip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 1)) + service)
}

/// Address of an endpoint; `version` makes another one in its place.
fn endpoint_ip(service: u32, endpoint: u32, version: u32) -> Ipv4Addr {
    let offset =
        service.wrapping_mul(64).wrapping_add(endpoint).wrapping_add(version.wrapping_mul(3_800_000))
            % (1 << 23);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 0)) + offset)
}

fn node_of(service: u32, endpoint: u32) -> String {
    format!("node-{}", service.wrapping_add(endpoint) % 100)
}

/// The Service of this number.
///
/// # Panics
/// Never: its ports are not zero.
#[must_use]
#[expect(clippy::expect_used, reason = "constants")]
pub fn service(number: u32) -> Service {
    let mut cluster_ips = PerFamily::default();
    *cluster_ips.get_mut(IpFamily::Ipv4) = Some(IpAddr::V4(cluster_ip(number)));
    Service {
        name: name(number),
        created: Some(Timestamp(i128::from(number))),
        kind: ServiceType::ClusterIp,
        cluster_ips,
        ports: vec![ServicePortSpec {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: Port::new(80).expect("not zero"),
            node_port: None,
        }],
        external_ips: PerFamily::default(),
        load_balancer_vips: PerFamily::default(),
        source_ranges: PerFamily::default(),
        external_policy: TrafficPolicy::Cluster,
        internal_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: None,
    }
}

/// The slice of a Service. `replaced` is the version of its first endpoint.
///
/// # Panics
/// Never: its ports are not zero.
#[must_use]
#[expect(clippy::expect_used, reason = "constants")]
pub fn slice(service: u32, endpoints: u32, replaced: u32) -> EndpointSlice {
    let endpoint = |e: u32| SliceEndpoint {
        ip: IpAddr::V4(endpoint_ip(service, e, if e == 0 { replaced } else { 0 })),
        conditions: Conditions::default(),
        node: Some(Arc::from(node_of(service, e))),
        hints: Hints::default(),
    };
    EndpointSlice {
        name: SliceName { service: name(service), name: format!("svc-{service}-x").into() },
        family: IpFamily::Ipv4,
        ports: vec![SlicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: Port::new(8080).expect("not zero"),
        }],
        endpoints: (0..endpoints).map(endpoint).collect(),
        trigger: None,
    }
}

/// The Service of this number as the API server has it.
#[must_use]
pub fn service_json(number: u32) -> Value {
    let ip = cluster_ip(number).to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": format!("svc-{number}"),
            "namespace": "bench",
            "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "resourceVersion": number.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": format!("app-{number}"), "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": format!("app-{number}"), "meta.helm.sh/release-namespace": "bench"},
            "managedFields": [{
                "manager": "helm", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:internalTrafficPolicy": {}, "f:ports": {}, "f:selector": {}, "f:sessionAffinity": {}, "f:type": {}}}
            }]
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "selector": {"app.kubernetes.io/name": format!("app-{number}")},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
        },
        "status": {"loadBalancer": {}}
    })
}

/// The slice of a Service as the API server has it.
#[must_use]
pub fn slice_json(service: u32, endpoints: u32, replaced: u32) -> Value {
    let endpoint = |e: u32| {
        json!({
            "addresses": [endpoint_ip(service, e, if e == 0 { replaced } else { 0 }).to_string()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": node_of(service, e),
            "zone": format!("zone-{}", e % 3),
            "targetRef": {"kind": "Pod", "namespace": "bench", "name": format!("app-{service}-{e}"), "uid": format!("00000000-0000-4000-9000-{service:06}{e:06}")}
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("svc-{service}-x"),
            "namespace": "bench",
            "uid": format!("00000000-0000-4000-a000-{service:012}"),
            "resourceVersion": service.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/service-name": format!("svc-{service}"),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"
            },
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": format!("svc-{service}"), "uid": format!("00000000-0000-4000-8000-{service:012}"), "controller": true, "blockOwnerDeletion": true}]
        },
        "addressType": "IPv4",
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]
    })
}
