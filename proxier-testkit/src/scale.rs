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

/// Namespace of all objects.
pub const NAMESPACE: &str = "bench";
/// The node that benchmarks run as.
pub const NODE: &str = "node-0";
/// Pod range of these clusters.
pub const CLUSTER_CIDR: &str = "10.128.0.0/9";

fn name(service: u32) -> ServiceName {
    ServiceName::new(NAMESPACE, format!("svc-{service}"))
}

/// The Service's address.
#[must_use]
pub fn cluster_ip(service: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 1)) + service)
}

/// Address of an endpoint; `version` makes another one in its place.
#[must_use]
pub fn endpoint_ip(service: u32, endpoint: u32, version: u32) -> Ipv4Addr {
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
#[must_use]
pub fn slice(service: u32, endpoints: u32, replaced: u32) -> EndpointSlice {
    Part::whole(service, endpoints, replaced).model()
}

/// One endpoint of a [`Part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Number among the Service's endpoints.
    pub number: u32,
    /// Another version is another pod with another address in its place.
    pub version: u32,
    /// The pod is shutting down: not ready any more, still serving.
    pub terminating: bool,
}

/// One slice of a Service: what both forms of it, model and JSON, are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the Service.
    pub service: u32,
    /// Number of the slice among the Service's slices.
    pub part: u32,
    /// Its endpoints.
    pub members: Vec<Member>,
}

impl Part {
    /// The only slice of a Service. `replaced` is the version of its first endpoint.
    #[must_use]
    pub fn whole(service: u32, endpoints: u32, replaced: u32) -> Self {
        let version = |number| if number == 0 { replaced } else { 0 };
        let member = |number| Member { number, version: version(number), terminating: false };
        Self { service, part: 0, members: (0..endpoints).map(member).collect() }
    }

    /// Name of the EndpointSlice object.
    #[must_use]
    pub fn object_name(&self) -> String {
        match self.part {
            0 => format!("svc-{}-x", self.service),
            part => format!("svc-{}-x{part}", self.service),
        }
    }

    /// As a model value.
    ///
    /// # Panics
    /// Never: its ports are not zero.
    #[must_use]
    #[expect(clippy::expect_used, reason = "constants")]
    pub fn model(&self) -> EndpointSlice {
        let endpoint = |m: &Member| SliceEndpoint {
            ip: IpAddr::V4(endpoint_ip(self.service, m.number, m.version)),
            conditions: Conditions { ready: !m.terminating, serving: true, terminating: m.terminating },
            node: Some(Arc::from(node_of(self.service, m.number))),
            hints: Hints::default(),
        };
        EndpointSlice {
            name: SliceName { service: name(self.service), name: self.object_name().into() },
            family: IpFamily::Ipv4,
            ports: vec![SlicePort {
                name: "http".into(),
                protocol: Protocol::Tcp,
                port: Port::new(8080).expect("not zero"),
            }],
            endpoints: self.members.iter().map(endpoint).collect(),
            trigger: None,
        }
    }

    /// As the API server has it.
    #[must_use]
    pub fn json(&self) -> Value {
        let service = self.service;
        let endpoint = |m: &Member| {
            json!({
                "addresses": [endpoint_ip(service, m.number, m.version).to_string()],
                "conditions": {"ready": !m.terminating, "serving": true, "terminating": m.terminating},
                "nodeName": node_of(service, m.number),
                "zone": format!("zone-{}", m.number % 3),
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("app-{service}-{}", m.number), "uid": format!("00000000-0000-4000-9000-{service:06}{:06}", m.number)}
            })
        };
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": self.object_name(),
                "namespace": NAMESPACE,
                "uid": format!("00000000-0000-4000-a000-{:04}{service:08}", self.part),
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
            "endpoints": self.members.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]
        })
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
            "namespace": NAMESPACE,
            "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "resourceVersion": number.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": format!("app-{number}"), "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": format!("app-{number}"), "meta.helm.sh/release-namespace": NAMESPACE},
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

/// A Service of type LoadBalancer and policy Local as the API server has it, and its slice, whose endpoints are on this node.
#[must_use]
pub fn health_checked_json(
    number: u32,
    endpoints: u32,
    node: &str,
    health_check_node_port: u16,
) -> [Value; 2] {
    let (mut service, mut slice) = (service_json(number), slice_json(number, endpoints, 0));
    service["spec"]["type"] = "LoadBalancer".into();
    service["spec"]["externalTrafficPolicy"] = "Local".into();
    service["spec"]["healthCheckNodePort"] = health_check_node_port.into();
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        endpoint["nodeName"] = node.into();
    }
    [service, slice]
}

/// The slice of a Service as the API server has it.
#[must_use]
pub fn slice_json(service: u32, endpoints: u32, replaced: u32) -> Value {
    Part::whole(service, endpoints, replaced).json()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service as ApiService;
    use k8s_openapi::api::discovery::v1::EndpointSlice as ApiSlice;
    use proxier_core::intake;

    use super::*;

    #[test]
    fn both_forms_of_an_object_mean_the_same() {
        let mut part = Part::whole(7, 5, 3);
        part.part = 2;
        part.members[1].terminating = true;
        let api: ApiSlice = serde_json::from_value(part.json()).unwrap();
        let mut read = intake::endpoint_slice(&api).accepted.unwrap();
        read.trigger = None;
        for endpoint in &mut read.endpoints {
            endpoint.hints = Hints::default();
        }
        assert_eq!(read, part.model());
        let api: ApiService = serde_json::from_value(service_json(7)).unwrap();
        let mut read = intake::service(&api).accepted.unwrap();
        read.created = service(7).created;
        assert_eq!(read, service(7));
    }

    #[test]
    fn addresses_of_services_and_endpoints_do_not_meet() {
        let mut seen = std::collections::BTreeSet::new();
        for service in [0, 1, 999, 49_999] {
            for part in [Part::whole(service, 51, 0), Part::whole(service, 1, 1)] {
                for endpoint in part.model().endpoints {
                    assert!(seen.insert(endpoint.ip), "{}", endpoint.ip);
                }
            }
        }
    }
}
