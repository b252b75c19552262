//! The named sets and maps that exist whatever the services are, and their sizes.

use std::collections::BTreeMap;

use crate::objects::{Data, Field, Set};

/// A named set or map that exists whatever the services are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Container {
    /// Active cluster IPs.
    ClusterIps,
    /// Addresses that node ports answer on; only when they are not all local ones.
    NodePortIps,
    /// Health check node ports.
    HealthCheckPorts,
    /// Endpoints of this node as both ends of a connection.
    Hairpin,
    /// Cluster IPs with internal policy Cluster that have somewhere to go.
    ClusterServices,
    /// Cluster IPs, external IPs and load balancer VIPs that have somewhere to go, and need a chain for it.
    ServiceIps,
    /// Node ports that have somewhere to go.
    ServiceNodePorts,
    /// Endpoints of the whole cluster, by frontend address and index.
    ClusterEndpoints,
    /// Endpoints of this node, by frontend address and index.
    LocalEndpoints,
    /// Endpoints of the whole cluster, by node port and index.
    NodePortClusterEndpoints,
    /// Endpoints of this node, by node port and index.
    NodePortLocalEndpoints,
    /// Addresses that reject or drop.
    NoEndpointServices,
    /// Node ports that reject or drop.
    NoEndpointNodePorts,
    /// Load balancer VIPs with source ranges.
    FirewallIps,
}

impl Container {
    /// All of them, in the order of creation.
    pub const ALL: [Self; 14] = [
        Self::ClusterIps,
        Self::NodePortIps,
        Self::HealthCheckPorts,
        Self::Hairpin,
        Self::ClusterServices,
        Self::ServiceIps,
        Self::ServiceNodePorts,
        Self::ClusterEndpoints,
        Self::LocalEndpoints,
        Self::NodePortClusterEndpoints,
        Self::NodePortLocalEndpoints,
        Self::NoEndpointServices,
        Self::NoEndpointNodePorts,
        Self::FirewallIps,
    ];

    /// Its name in the kernel.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterIps => "cluster-ips",
            Self::NodePortIps => "nodeport-ips",
            Self::HealthCheckPorts => "health-check-ports",
            Self::Hairpin => "hairpin-connections",
            Self::ClusterServices => "cluster-services",
            Self::ServiceIps => "service-ips",
            Self::ServiceNodePorts => "service-nodeports",
            Self::ClusterEndpoints => "cluster-endpoints",
            Self::LocalEndpoints => "local-endpoints",
            Self::NodePortClusterEndpoints => "nodeport-cluster-endpoints",
            Self::NodePortLocalEndpoints => "nodeport-local-endpoints",
            Self::NoEndpointServices => "no-endpoint-services",
            Self::NoEndpointNodePorts => "no-endpoint-nodeports",
            Self::FirewallIps => "firewall-ips",
        }
    }

    fn comment(self) -> &'static str {
        match self {
            Self::ClusterIps => "Active ClusterIPs",
            Self::NodePortIps => "IPs that accept NodePort traffic",
            Self::HealthCheckPorts => "healthCheckNodePorts of load balancers",
            Self::Hairpin => "service hairpin connections",
            Self::ClusterServices => "ClusterIP traffic that cluster-dispatch knows",
            Self::ServiceIps => "ClusterIP, ExternalIP and LoadBalancer IP traffic",
            Self::ServiceNodePorts => "NodePort traffic",
            Self::ClusterEndpoints => "endpoints in the cluster, by address",
            Self::LocalEndpoints => "endpoints on this node, by address",
            Self::NodePortClusterEndpoints => "endpoints in the cluster, by node port",
            Self::NodePortLocalEndpoints => "endpoints on this node, by node port",
            Self::NoEndpointServices => "vmap to drop or reject packets to services with no endpoints",
            Self::NoEndpointNodePorts => {
                "vmap to drop or reject packets to service nodeports with no endpoints"
            }
            Self::FirewallIps => "destinations that are subject to LoadBalancerSourceRanges",
        }
    }

    fn shape(self) -> (Vec<Field>, Data) {
        use Field::{Addr, Index, Proto, Service};
        let address = vec![Addr, Proto, Service];
        let node_port = vec![Proto, Service];
        match self {
            Self::ClusterIps | Self::NodePortIps => (vec![Addr], Data::None),
            Self::HealthCheckPorts => (vec![Service], Data::None),
            Self::Hairpin => (vec![Addr, Addr, Proto, Service], Data::None),
            Self::ClusterServices => (address, Data::None),
            Self::ServiceIps | Self::NoEndpointServices | Self::FirewallIps => (address, Data::Verdict),
            Self::ServiceNodePorts | Self::NoEndpointNodePorts => (node_port, Data::Verdict),
            Self::ClusterEndpoints | Self::LocalEndpoints => {
                ([&address[..], &[Index]].concat(), Data::Fields(vec![Addr, Service]))
            }
            Self::NodePortClusterEndpoints | Self::NodePortLocalEndpoints => {
                ([&node_port[..], &[Index]].concat(), Data::Fields(vec![Addr, Service]))
            }
        }
    }

    /// The set or map, with room for this many elements.
    #[must_use]
    pub fn set(self, size: u32) -> Set {
        let (key, data) = self.shape();
        Set {
            name: self.name().into(),
            key,
            data,
            size: Some(size),
            timeout: None,
            comment: Some(self.comment().into()),
        }
    }

    /// Its elements carry the name of their service port.
    #[must_use]
    pub fn is_commented(self) -> bool {
        matches!(
            self,
            Self::ClusterServices
                | Self::ServiceIps
                | Self::ServiceNodePorts
                | Self::NoEndpointServices
                | Self::NoEndpointNodePorts
        )
    }
}

/// Room for elements of each container. The kernel takes a size as a hard limit (ENFILE), and sized sets are faster and
/// steadier than unsized ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes(BTreeMap<Container, u32>);

/// No container is made smaller than this.
const MIN_SIZE: u32 = 4096;

impl Sizes {
    /// Room for twice these numbers of elements, in powers of two.
    #[must_use]
    pub fn for_counts(counts: &BTreeMap<Container, usize>) -> Self {
        let room = |count: &usize| u32::try_from(count.saturating_mul(2)).unwrap_or(u32::MAX >> 1);
        let size = |count: &usize| room(count).clamp(MIN_SIZE, 1 << 30).next_power_of_two();
        Self(counts.iter().map(|(c, n)| (*c, size(n))).collect())
    }

    /// These sizes.
    #[must_use]
    pub fn exactly(sizes: BTreeMap<Container, u32>) -> Self {
        Self(sizes)
    }

    /// The size of one container.
    #[must_use]
    pub fn get(&self, container: Container) -> u32 {
        self.0.get(&container).copied().unwrap_or(MIN_SIZE)
    }

    /// Do these numbers of elements fit?
    #[must_use]
    pub fn hold(&self, counts: &BTreeMap<Container, usize>) -> bool {
        counts.iter().all(|(c, n)| *n <= self.get(*c) as usize)
    }
}
