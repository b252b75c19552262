//! Services in few words, and the Kubernetes objects they stand for.

use super::plan;
use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::model::TrafficPolicy;

mod objects;

/// Namespace of all services of the matrix.
pub const NAMESPACE: &str = "matrix";

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

/// How a node has a VIP: agents of some load balancers give it to every node that may serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VipAt {
    /// Not at all.
    No,
    /// As an address of an interface.
    Address,
    /// By a route of type local, without being any interface's address.
    LocalRoute,
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
    /// How `worker` has the VIP.
    pub vip_at_worker: VipAt,
    /// Has an external IP.
    pub external_ip: bool,
    /// The external IP is the address of this node.
    pub external_at: Option<&'static str>,
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
        vip_at_worker: VipAt::No,
        external_ip: false,
        external_at: None,
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
    fn a_rival_wants_what_the_other_has() {
        let mut rival = service("younger").everywhere();
        rival.rival_of = Some("older");
        let mut shapes = [service("older").everywhere(), rival];
        number(&mut shapes);
        let topology = plan::topology(&[]);
        let ports = |s: &Shape| s.service_json(&topology)["spec"]["ports"][0]["nodePort"].clone();
        assert_eq!(ports(&shapes[0]), ports(&shapes[1]));
        assert_ne!(
            shapes[0].service_json(&topology)["spec"]["clusterIP"],
            shapes[1].service_json(&topology)["spec"]["clusterIP"]
        );
    }
}
