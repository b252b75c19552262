//! The published state: what every service port is, and what was decided for it.
//!
//! A [`Snapshot`] is immutable and cheap to clone: its maps are persistent, so that a commit that touches one
//! service shares everything else with the snapshot before it, and two snapshots are compared in the time of
//! what differs between them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use ipnet::IpNet;

use crate::categorize::Categories;
use crate::ids::{
    EndpointAddr, Generation, IpFamily, Port, Protocol, ServiceName, ServicePortName, Timestamp,
};
use crate::model::{Endpoint, NodeFacts, TrafficPolicy};

/// How traffic from this node's (or this cluster's) pods is recognised (core spec 9.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LocalDetector {
    /// Source address in this range.
    Cidr(IpNet),
    /// Arrives on this interface.
    Interface(Arc<str>),
    /// Arrives on an interface whose name begins so.
    InterfacePrefix(Arc<str>),
}

/// The addresses that node ports answer on (core spec 9.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// Every local address; loopback only where [`NodeContext::node_ports_on_loopback`] says so.
    MatchAll,
    /// These, sorted; may be empty. Loopback is among them only where [`NodeContext::node_ports_on_loopback`] says so.
    Only(Arc<[IpAddr]>),
}

/// What the node and the configuration contribute to every decision in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeContext {
    /// The node as last seen.
    pub node: NodeFacts,
    /// Local traffic detector; `None` when the mode gives none in this family.
    pub detector: Option<LocalDetector>,
    /// Masquerade all traffic to cluster IPs.
    pub masquerade_all: bool,
    /// Where node ports answer.
    pub node_port_addresses: NodePortAddresses,
    /// Where health check node ports listen: at the same addresses, loopback included (core spec 4.1).
    pub health_check_addresses: NodePortAddresses,
    /// Node ports answer this host's own processes on IPv4 loopback addresses, too (iptables spec 5.9).
    pub node_ports_on_loopback: bool,
    /// Known ranges of cluster IPs; traffic to unallocated addresses in them is dropped.
    pub service_cidrs: Vec<IpNet>,
    /// Services that the node needs before all others, in this order. No decision depends on it, only the order of writing.
    pub first_services: Arc<[ServiceName]>,
}

/// What kind of frontend an address and port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// Cluster IP.
    ClusterIp,
    /// Load balancer VIP; source ranges apply here only.
    LoadBalancerVip,
    /// External IP.
    ExternalIp,
    /// Node port.
    NodePort,
}

/// What a packet's destination must be to belong to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKey {
    /// This address and port.
    Address {
        /// Destination address.
        ip: IpAddr,
        /// Protocol.
        protocol: Protocol,
        /// Destination port.
        port: Port,
    },
    /// This port on any node port address.
    NodePort {
        /// Protocol.
        protocol: Protocol,
        /// Destination port.
        port: Port,
    },
}

/// A frontend that a service port owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// Kind.
    pub kind: FrontendKind,
    /// What it matches.
    pub key: FrontendKey,
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FrontendKind::ClusterIp => "cluster IP",
            FrontendKind::LoadBalancerVip => "load balancer VIP",
            FrontendKind::ExternalIp => "external IP",
            FrontendKind::NodePort => "node port",
        };
        match self.key {
            FrontendKey::Address { ip, protocol, port } => {
                write!(f, "{kind} {}/{protocol}", EndpointAddr { ip, port })
            }
            FrontendKey::NodePort { protocol, port } => write!(f, "{kind} {port}/{protocol}"),
        }
    }
}

/// A wish for a frontend; the first of those that wish for one key gets it.
///
/// Order: the older Service, then the kind, then the name (issue: "the older one wins, the other is reported").
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Creation time of the Service; one without a time comes last.
    pub created: Option<Timestamp>,
    /// Who wishes.
    pub port: ServicePortName,
    /// As what.
    pub kind: FrontendKind,
}

/// A frontend that a service port wished for and another one has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The frontend.
    pub frontend: Frontend,
    /// Who has it.
    pub winner: ServicePortName,
}

/// What all ports of a Service share in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Cluster IP in this family.
    pub cluster_ip: IpAddr,
    /// External IPs in this family.
    pub external_ips: Vec<IpAddr>,
    /// Load balancer VIPs in this family.
    pub load_balancer_vips: Vec<IpAddr>,
    /// Source ranges in this family.
    pub source_ranges: Vec<IpNet>,
    /// Has external IPs in this family even if the gate hides them (core spec 1.4).
    pub has_raw_external_ips: bool,
    /// External traffic policy.
    pub external_policy: TrafficPolicy,
    /// Internal traffic policy.
    pub internal_policy: TrafficPolicy,
    /// Session affinity timeout.
    pub affinity: Option<Duration>,
    /// Health check node port.
    pub health_check_node_port: Option<Port>,
}

/// One service port in one family: its definition, its endpoints, and the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Identity.
    pub name: ServicePortName,
    /// Port number of its addresses.
    pub port: Port,
    /// Node port.
    pub node_port: Option<Port>,
    /// What it shares with its siblings.
    pub spec: Arc<ServiceSpec>,
    /// Frontends it owns, sorted; those it lost are in `conflicts`.
    pub frontends: Vec<Frontend>,
    /// Frontends that another service port has.
    pub conflicts: Vec<Conflict>,
    /// All endpoints, whatever their state, sorted by the text of their address and port.
    pub endpoints: Arc<[Endpoint]>,
    /// Which of them which traffic may reach.
    pub categories: Categories,
}

impl ServicePort {
    /// Protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.name.protocol
    }

    /// Reachable from outside the cluster in this family (core spec 1.5).
    #[must_use]
    pub fn externally_accessible(&self) -> bool {
        externally_accessible(&self.spec, self.node_port)
    }

    /// Endpoints for traffic whose policy is Cluster.
    pub fn cluster_endpoints(&self) -> impl ExactSizeIterator<Item = &Endpoint> {
        pick(&self.endpoints, &self.categories.cluster)
    }

    /// Endpoints for traffic whose policy is Local.
    pub fn local_endpoints(&self) -> impl ExactSizeIterator<Item = &Endpoint> {
        pick(&self.endpoints, &self.categories.local)
    }

    /// All endpoints that some traffic may reach.
    pub fn reachable_endpoints(&self) -> impl ExactSizeIterator<Item = &Endpoint> {
        pick(&self.endpoints, &self.categories.reachable)
    }

    /// Endpoints for traffic to the cluster IP.
    #[must_use]
    pub fn has_internal(&self) -> bool {
        self.categories.has_any
            && !(self.spec.internal_policy == TrafficPolicy::Local && self.categories.local.is_empty())
    }

    /// Endpoints for traffic from outside to external frontends.
    #[must_use]
    pub fn has_external(&self) -> bool {
        self.categories.has_any
            && !(self.spec.external_policy == TrafficPolicy::Local && self.categories.local.is_empty())
    }
}

pub(crate) fn externally_accessible(spec: &ServiceSpec, node_port: Option<Port>) -> bool {
    node_port.is_some() || !spec.load_balancer_vips.is_empty() || spec.has_raw_external_ips
}

fn pick<'a>(endpoints: &'a [Endpoint], indices: &'a [u32]) -> impl ExactSizeIterator<Item = &'a Endpoint> {
    indices.iter().filter_map(|&i| endpoints.get(i as usize)).collect::<Vec<_>>().into_iter()
}

/// The published state of one family.
#[derive(Clone, Debug)]
pub struct Snapshot {
    generation: Generation,
    family: IpFamily,
    context: Arc<NodeContext>,
    pub(crate) ports: OrdMap<ServicePortName, Arc<ServicePort>>,
    pub(crate) claims: OrdMap<FrontendKey, Arc<[Claim]>>,
}

impl Snapshot {
    /// A snapshot without services.
    #[must_use]
    pub fn empty(family: IpFamily, context: Arc<NodeContext>) -> Self {
        Self {
            generation: Generation::default(),
            family,
            context,
            ports: OrdMap::new(),
            claims: OrdMap::new(),
        }
    }

    pub(crate) fn successor(&self, context: Arc<NodeContext>) -> Self {
        Self { generation: self.generation.next(), context, ..self.clone() }
    }

    /// Its number.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// Node and configuration.
    #[must_use]
    pub fn context(&self) -> &Arc<NodeContext> {
        &self.context
    }

    /// All service ports, sorted by namespace, name, port name and protocol.
    pub fn ports(&self) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.ports.values()
    }

    /// Number of service ports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Has no service ports.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// One service port.
    #[must_use]
    pub fn port(&self, name: &ServicePortName) -> Option<&Arc<ServicePort>> {
        self.ports.get(name)
    }

    /// The service ports of one Service.
    pub fn service_ports<'a>(
        &'a self,
        service: &'a ServiceName,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> {
        let from = ServicePortName { service: service.clone(), port: Arc::from(""), protocol: Protocol::Tcp };
        let from = self.ports.range(from..);
        from.take_while(move |(name, _)| name.service == *service).map(|(_, port)| port)
    }

    /// Who wishes for a frontend, the owner first.
    #[must_use]
    pub fn claims(&self, key: &FrontendKey) -> &[Claim] {
        self.claims.get(key).map_or(&[], |c| c)
    }

    /// The service port that has a frontend, and as what kind.
    #[must_use]
    pub fn owner(&self, key: &FrontendKey) -> Option<(&Arc<ServicePort>, FrontendKind)> {
        let claim = self.claims(key).first()?;
        Some((self.ports.get(&claim.port)?, claim.kind))
    }

    /// Is this the cluster IP of some service port?
    #[must_use]
    pub fn is_cluster_ip(&self, ip: IpAddr) -> bool {
        let (Some(first), Some(last)) = (Port::new(1), Port::new(u16::MAX)) else { return false };
        let from = FrontendKey::Address { ip, protocol: Protocol::Tcp, port: first };
        let to = FrontendKey::Address { ip, protocol: Protocol::Sctp, port: last };
        self.claims
            .range(from..=to)
            .any(|(_, claims)| claims.iter().any(|c| c.kind == FrontendKind::ClusterIp))
    }
}
