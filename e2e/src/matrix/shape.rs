//! Services in few words, and the Kubernetes objects they stand for.

use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::model::TrafficPolicy;
use serde_json::{Value, json};

use super::plan;
use crate::topology::{Dual, Topology};

/// Namespace of all services of the matrix.
pub const NAMESPACE: &str = "matrix";

/// The place of the health check's port among a service's node ports: the last one.
const HEALTH_CHECK: usize = 7;

/// `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ClusterIP.
    ClusterIp,
    /// NodePort.
    NodePort,
    /// LoadBalancer.
    LoadBalancer,
    /// ClusterIP with the cluster IP `None`.
    Headless,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortShape {
    /// Name.
    pub name: &'static str,
    /// Protocol.
    pub protocol: Protocol,
    /// Number on the service's addresses.
    pub port: u16,
    /// Number on the endpoints.
    pub target: u16,
}

/// An endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointShape {
    /// The pod, or the node for an endpoint in the host's network.
    pub of: &'static str,
    /// Ready.
    pub ready: bool,
    /// Serving.
    pub serving: bool,
    /// Terminating.
    pub terminating: bool,
    /// Hinted zones.
    pub zones: Vec<&'static str>,
    /// Hinted nodes.
    pub nodes: Vec<&'static str>,
}

impl EndpointShape {
    /// A ready endpoint.
    #[must_use]
    pub fn ready(of: &'static str) -> Self {
        Self { of, ready: true, serving: true, terminating: false, zones: Vec::new(), nodes: Vec::new() }
    }

    /// One that is shutting down and still serves.
    #[must_use]
    pub fn draining(of: &'static str) -> Self {
        Self { ready: false, terminating: true, ..Self::ready(of) }
    }

    /// One that has shut down.
    #[must_use]
    pub fn gone(of: &'static str) -> Self {
        Self { ready: false, serving: false, terminating: true, ..Self::ready(of) }
    }

    /// One that does not serve yet.
    #[must_use]
    pub fn starting(of: &'static str) -> Self {
        Self { ready: false, serving: false, ..Self::ready(of) }
    }

    /// Hinted for a zone.
    #[must_use]
    pub fn for_zone(mut self, zone: &'static str) -> Self {
        self.zones.push(zone);
        self
    }

    /// Hinted for a node.
    #[must_use]
    pub fn for_node(mut self, node: &'static str) -> Self {
        self.nodes.push(node);
        self
    }
}

/// A service and its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// Ports.
    pub ports: Vec<PortShape>,
    /// External traffic policy.
    pub external: TrafficPolicy,
    /// Internal traffic policy.
    pub internal: TrafficPolicy,
    /// Has node ports.
    pub node_ports: bool,
    /// Has a load balancer VIP; the text is its `ipMode`.
    pub vip: Option<&'static str>,
    /// The VIP is an address of `worker`, too.
    pub vip_on_worker: bool,
    /// Has an external IP.
    pub external_ip: bool,
    /// Source ranges.
    pub ranges: Vec<&'static str>,
    /// Session affinity timeout in seconds.
    pub affinity: Option<u32>,
    /// Families, the first one first.
    pub families: Vec<IpFamily>,
    /// Endpoints.
    pub endpoints: Vec<EndpointShape>,
    /// Day of creation.
    pub day: u8,
    /// Takes node ports, VIP and external IP of the service of this name instead of its own.
    pub rival_of: Option<&'static str>,
    /// Belongs to another proxy.
    pub other_proxy: bool,
    /// What its addresses are made of; 0 until [`number`] gave one.
    pub number: u8,
    /// The number that node ports, VIP and external IP are made of.
    pub outer_number: u8,
}

/// A ClusterIP service of both families with one port, 80/TCP, and no endpoints.
#[must_use]
pub fn service(name: impl Into<String>) -> Shape {
    Shape {
        name: name.into(),
        kind: Kind::ClusterIp,
        ports: vec![tcp("http", 80)],
        external: TrafficPolicy::Cluster,
        internal: TrafficPolicy::Cluster,
        node_ports: false,
        vip: None,
        vip_on_worker: false,
        external_ip: false,
        ranges: Vec::new(),
        affinity: None,
        families: IpFamily::ALL.into(),
        endpoints: Vec::new(),
        day: 10,
        rival_of: None,
        other_proxy: false,
        number: 0,
        outer_number: 0,
    }
}

/// A TCP port to the servers' first port.
#[must_use]
pub fn tcp(name: &'static str, port: u16) -> PortShape {
    PortShape { name, protocol: Protocol::Tcp, port, target: plan::PORT }
}

/// A UDP port to the servers' first port.
#[must_use]
pub fn udp(name: &'static str, port: u16) -> PortShape {
    PortShape { protocol: Protocol::Udp, ..tcp(name, port) }
}

/// An SCTP port.
#[must_use]
pub fn sctp(name: &'static str, port: u16) -> PortShape {
    PortShape { protocol: Protocol::Sctp, ..tcp(name, port) }
}

impl PortShape {
    /// The same port to another number on the endpoints.
    #[must_use]
    pub fn to(self, target: u16) -> Self {
        Self { target, ..self }
    }
}

impl Shape {
    /// Type NodePort.
    #[must_use]
    pub fn node_port(self) -> Self {
        Self { kind: Kind::NodePort, node_ports: true, ..self }
    }

    /// Type LoadBalancer with node ports, VIP and external IP: every kind of frontend there is.
    #[must_use]
    pub fn everywhere(self) -> Self {
        Self { kind: Kind::LoadBalancer, node_ports: true, vip: Some("VIP"), external_ip: true, ..self }
    }

    /// Policies, external and internal.
    #[must_use]
    pub fn policies(self, external: TrafficPolicy, internal: TrafficPolicy) -> Self {
        Self { external, internal, ..self }
    }

    /// Ports.
    #[must_use]
    pub fn ports(self, ports: impl Into<Vec<PortShape>>) -> Self {
        Self { ports: ports.into(), ..self }
    }

    /// Ready endpoints.
    #[must_use]
    pub fn on(self, pods: &[&'static str]) -> Self {
        Self { endpoints: pods.iter().map(|p| EndpointShape::ready(p)).collect(), ..self }
    }

    /// Endpoints in any state.
    #[must_use]
    pub fn endpoints(self, endpoints: impl Into<Vec<EndpointShape>>) -> Self {
        Self { endpoints: endpoints.into(), ..self }
    }

    /// The place of a port in its list: the first of that protocol.
    #[must_use]
    pub fn port_of(&self, protocol: Protocol) -> usize {
        self.ports.iter().position(|p| p.protocol == protocol).unwrap_or(0)
    }

    /// The Service object.
    #[must_use]
    pub fn service_json(&self) -> Value {
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
            put("externalIPs", texts(plan::external_ip(self.outer_number)).into());
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

/// Numbers services from 1 on and tells rivals whose frontends they want.
pub fn number(shapes: &mut [Shape]) {
    for (shape, number) in shapes.iter_mut().zip(1..) {
        shape.number = number;
        shape.outer_number = number;
    }
    let numbers: Vec<(String, u8)> = shapes.iter().map(|s| (s.name.clone(), s.number)).collect();
    for shape in shapes.iter_mut() {
        let rival = shape.rival_of.and_then(|name| numbers.iter().find(|(n, _)| n == name));
        if let Some((_, number)) = rival {
            shape.outer_number = *number;
        }
    }
}

#[cfg(test)]
mod tests {
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
        let object = serde_json::from_value(shapes[0].service_json()).unwrap();
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

    #[test]
    fn a_rival_wants_what_the_other_has() {
        let mut rival = service("younger").everywhere();
        rival.rival_of = Some("older");
        let mut shapes = [service("older").everywhere(), rival];
        number(&mut shapes);
        let ports = |s: &Shape| s.service_json()["spec"]["ports"][0]["nodePort"].clone();
        assert_eq!(ports(&shapes[0]), ports(&shapes[1]));
        assert_ne!(
            shapes[0].service_json()["spec"]["clusterIP"],
            shapes[1].service_json()["spec"]["clusterIP"]
        );
    }
}
