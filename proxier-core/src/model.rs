//! What the core knows of Services, EndpointSlices and the Node: only what matters, and valid by construction.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::ids::{EndpointAddr, IpFamily, NodeName, Port, Protocol, ServiceName, Timestamp};

/// One value for each IP family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerFamily<T> {
    /// The IPv4 value.
    pub ipv4: T,
    /// The IPv6 value.
    pub ipv6: T,
}

impl<T> PerFamily<T> {
    /// The value of one family.
    pub fn get(&self, family: IpFamily) -> &T {
        match family {
            IpFamily::Ipv4 => &self.ipv4,
            IpFamily::Ipv6 => &self.ipv6,
        }
    }

    /// The value of one family, to change it.
    pub fn get_mut(&mut self, family: IpFamily) -> &mut T {
        match family {
            IpFamily::Ipv4 => &mut self.ipv4,
            IpFamily::Ipv6 => &mut self.ipv6,
        }
    }
}

/// `spec.type` of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServiceType {
    /// ClusterIP, and anything unknown.
    #[default]
    ClusterIp,
    /// NodePort.
    NodePort,
    /// LoadBalancer.
    LoadBalancer,
}

/// A traffic policy, internal or external.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    /// Endpoints of the whole cluster.
    #[default]
    Cluster,
    /// Endpoints of this node only.
    Local,
}

impl fmt::Display for TrafficPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        })
    }
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePortSpec {
    /// Name, possibly empty.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the cluster IP, external IPs and load balancer VIPs.
    pub port: Port,
    /// Node port, whatever the type of the Service (core spec 1.2).
    pub node_port: Option<Port>,
}

/// A Service that is to be proxied, both families (core spec 1.2 to 1.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub name: ServiceName,
    /// Creation time; of two Services that claim one frontend the older one wins.
    pub created: Option<Timestamp>,
    /// Type, which decides only about policies and health checks.
    pub kind: ServiceType,
    /// The cluster IP of each family.
    pub cluster_ips: PerFamily<Option<IpAddr>>,
    /// Ports.
    pub ports: Vec<ServicePortSpec>,
    /// External IPs.
    pub external_ips: PerFamily<Vec<IpAddr>>,
    /// Load balancer addresses whose `ipMode` is VIP.
    pub load_balancer_vips: PerFamily<Vec<IpAddr>>,
    /// Source ranges for the load balancer VIPs, masked; empty allows all.
    pub source_ranges: PerFamily<Vec<IpNet>>,
    /// External traffic policy, after the type test of core spec 1.2.
    pub external_policy: TrafficPolicy,
    /// Internal traffic policy.
    pub internal_policy: TrafficPolicy,
    /// Session affinity by client IP: how long after its last new connection a client stays with its endpoint.
    pub affinity: Option<Duration>,
    /// Health check node port, only for type LoadBalancer with external policy Local.
    pub health_check_node_port: Option<Port>,
}

/// Conditions of an endpoint, defaults applied (core spec 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// Ready; nil means true.
    pub ready: bool,
    /// Serving; nil means true.
    pub serving: bool,
    /// Terminating; nil means false.
    pub terminating: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { ready: true, serving: true, terminating: false }
    }
}

impl Conditions {
    /// Serving while terminating: used only when nothing is ready (core spec 3.2).
    #[must_use]
    pub fn is_fallback(self) -> bool {
        self.serving && self.terminating
    }
}

/// Topology hints of an endpoint. `None` is "no hint of that kind"; lists are never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Zones the endpoint is meant for.
    pub zones: Option<Arc<[Arc<str>]>>,
    /// Nodes the endpoint is meant for.
    pub nodes: Option<Arc<[Arc<str>]>>,
}

/// An endpoint as a slice lists it, before it is combined with the slice's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// First address.
    pub ip: IpAddr,
    /// Conditions.
    pub conditions: Conditions,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// Topology hints.
    pub hints: Hints,
}

/// A named port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Name, possibly empty.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Number.
    pub port: Port,
}

/// Identity of an EndpointSlice: its Service and its own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceName {
    /// The owning Service.
    pub service: ServiceName,
    /// The slice's name.
    pub name: Arc<str>,
}

/// An EndpointSlice, only what matters (core spec 1.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Owning Service and name.
    pub name: SliceName,
    /// Family, from `addressType`.
    pub family: IpFamily,
    /// Ports.
    pub ports: Vec<SlicePort>,
    /// Endpoints.
    pub endpoints: Vec<SliceEndpoint>,
    /// When the change that this slice carries was triggered, for the network programming latency.
    pub trigger: Option<Timestamp>,
}

/// An endpoint of a service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port.
    pub addr: EndpointAddr,
    /// Conditions.
    pub conditions: Conditions,
    /// On this node.
    pub local: bool,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// Topology hints.
    pub hints: Hints,
}

/// What the core needs to know of the node it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name.
    pub name: NodeName,
    /// Value of label `topology.kubernetes.io/zone`; an empty label is no zone.
    pub zone: Option<Arc<str>>,
    /// The node's own address of each family (core spec 10.2); `None` when unknown.
    pub ips: PerFamily<Option<IpAddr>>,
    /// The family of its first address, which comes first in what concerns the node as a whole (core spec 10.2); `None` when no address is known.
    pub first_family: Option<IpFamily>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<IpNet>,
    /// All addresses of the host's interfaces, loopback included.
    pub host_addresses: Vec<IpAddr>,
}
