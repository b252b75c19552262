//! The Kubernetes objects that a service stands for.

use proxier_core::ids::IpFamily;
use proxier_core::model::TrafficPolicy;
use serde_json::{Value, json};

use super::{EndpointShape, Kind, NAMESPACE, PortShape, Shape};
use crate::matrix::plan;
use crate::topology::{Dual, Topology};

/// The place of the health check's port among a service's node ports: the last one.
const HEALTH_CHECK: usize = 7;

impl Shape {
    /// Its external IP.
    #[must_use]
    pub fn external_address(&self, topology: &Topology) -> Dual {
        let node = self.external_at.and_then(|name| topology.node(name));
        node.map_or_else(|| plan::external_ip(self.outer_number), |n| n.addresses)
    }

    /// The Service object.
    #[must_use]
    pub fn service_json(&self, topology: &Topology) -> Value {
        let ports: Vec<Value> = self.ports.iter().enumerate().map(|(i, p)| self.port_json(i, p)).collect();
        let families: Vec<String> = self.families.iter().map(ToString::to_string).collect();
        let texts = |dual: Dual| -> Vec<String> {
            self.families.iter().map(|f| plan::of(dual, *f).to_string()).collect()
        };
        let cluster_ips = if self.kind == Kind::Headless {
            vec!["None".to_owned()]
        } else {
            texts(plan::cluster_ip(self.number))
        };
        let mut spec = json!({
            "type": match self.kind {
                Kind::ClusterIp | Kind::Headless => "ClusterIP",
                Kind::NodePort => "NodePort",
                Kind::LoadBalancer => "LoadBalancer",
            },
            "clusterIP": cluster_ips.first(),
            "clusterIPs": cluster_ips,
            "ipFamilies": families,
            "ports": ports,
            "internalTrafficPolicy": self.internal.to_string(),
        });
        let mut put = |key: &str, value: Value| spec[key] = value;
        if self.kind != Kind::ClusterIp || self.external_ip {
            put("externalTrafficPolicy", self.external.to_string().into());
        }
        if self.kind == Kind::LoadBalancer && self.external == TrafficPolicy::Local {
            put("healthCheckNodePort", plan::node_port(self.number, HEALTH_CHECK).into());
        }
        if self.external_ip {
            put("externalIPs", texts(self.external_address(topology)).into());
        }
        if !self.ranges.is_empty() {
            put("loadBalancerSourceRanges", self.ranges.clone().into());
        }
        if let Some(seconds) = self.affinity {
            put("sessionAffinity", "ClientIP".into());
            put("sessionAffinityConfig", json!({ "clientIP": { "timeoutSeconds": seconds } }));
        }
        let ingress: Vec<Value> = self.vip.map_or_else(Vec::new, |mode| {
            texts(plan::vip(self.outer_number)).iter().map(|ip| json!({ "ip": ip, "ipMode": mode })).collect()
        });
        let labels = if self.other_proxy {
            json!({ "service.kubernetes.io/service-proxy-name": "another" })
        } else {
            json!({})
        };
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "namespace": NAMESPACE,
                "name": self.name,
                "labels": labels,
                "creationTimestamp": format!("2025-09-{:02}T00:00:00Z", self.day),
            },
            "spec": spec,
            "status": { "loadBalancer": { "ingress": ingress } },
        })
    }

    fn port_json(&self, index: usize, port: &PortShape) -> Value {
        let mut out = json!({
            "name": port.name,
            "protocol": port.protocol.as_str().to_uppercase(),
            "port": port.port,
            "targetPort": port.target,
        });
        if self.node_ports {
            out["nodePort"] = plan::node_port(self.outer_number, index).into();
        }
        out
    }

    /// The EndpointSlices: one of each family.
    #[must_use]
    pub fn slices_json(&self, topology: &Topology) -> Vec<Value> {
        self.families.iter().map(|family| self.slice_json(*family, topology)).collect()
    }

    fn slice_json(&self, family: IpFamily, topology: &Topology) -> Value {
        let ports: Vec<Value> = self
            .ports
            .iter()
            .map(|p| json!({ "name": p.name, "protocol": p.protocol.as_str().to_uppercase(), "port": p.target }))
            .collect();
        let endpoints: Vec<Value> =
            self.endpoints.iter().filter_map(|e| endpoint_json(e, family, topology)).collect();
        let mut labels = json!({ "kubernetes.io/service-name": self.name });
        if self.kind == Kind::Headless {
            labels["service.kubernetes.io/headless"] = "".into();
        }
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": NAMESPACE,
                "name": format!("{}-{}", self.name, family.to_string().to_lowercase()),
                "labels": labels,
            },
            "addressType": family.to_string(),
            "endpoints": endpoints,
            "ports": ports,
        })
    }
}

fn endpoint_json(endpoint: &EndpointShape, family: IpFamily, topology: &Topology) -> Option<Value> {
    let pod = topology.pods.iter().find(|p| p.name == endpoint.of).map(|p| (p.addresses, p.node));
    let (addresses, node) = pod.or_else(|| topology.node(endpoint.of).map(|n| (n.addresses, n.name)))?;
    let names = |list: &[&'static str]| list.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
    let mut out = json!({
        "addresses": [plan::of(addresses, family)],
        "nodeName": node,
        "conditions": {
            "ready": endpoint.ready,
            "serving": endpoint.serving,
            "terminating": endpoint.terminating,
        },
    });
    if !endpoint.zones.is_empty() || !endpoint.nodes.is_empty() {
        out["hints"] = json!({ "forZones": names(&endpoint.zones), "forNodes": names(&endpoint.nodes) });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{number, sctp, service, tcp, udp};
    use super::*;

    #[test]
    fn objects_are_what_the_intake_takes_without_a_complaint() {
        let topology = plan::topology(&[]);
        let mut shape =
            service("all").everywhere().ports([tcp("http", 80), udp("dns", 53), sctp("m3ua", 2905)]);
        shape.affinity = Some(5);
        shape.ranges = vec!["172.30.0.5/32", "fd00:30::5/128"];
        shape.endpoints = vec![
            EndpointShape::ready("one").for_zone("a"),
            EndpointShape::draining("three").for_node("worker2"),
            EndpointShape::ready("worker2"),
        ];
        let mut shapes = [shape];
        number(&mut shapes);
        let object = serde_json::from_value(shapes[0].service_json(&topology)).unwrap();
        let intake = proxier_core::intake::service(&object);
        assert_eq!(intake.problems, []);
        let taken = intake.accepted.unwrap();
        assert_eq!(taken.ports.len(), 3);
        assert_eq!(taken.ports[2].node_port.unwrap().get(), 30_002);
        assert!(taken.affinity.is_some() && !taken.load_balancer_vips.ipv6.is_empty());
        for slice in shapes[0].slices_json(&topology) {
            let intake = proxier_core::intake::endpoint_slice(&serde_json::from_value(slice).unwrap());
            assert_eq!(intake.problems, []);
            assert_eq!(intake.accepted.unwrap().endpoints.len(), 3);
        }
    }
}
