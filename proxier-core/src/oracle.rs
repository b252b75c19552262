//! What must happen to a packet: the meaning of the whole project, as one pure function.
//!
//! [`decide`] looks at a [`Snapshot`](crate::snapshot::Snapshot) and a new connection's first packet and says which endpoints it may reach
//! with which probability, whether its source is kept, or why it is refused. Every backend is tested against it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::categorize::TopologyMode;
use crate::ids::{EndpointAddr, Port, Protocol, ServicePortName};
use crate::model::TrafficPolicy;
use crate::snapshot::{Frontend, LocalDetector};

mod decide;
mod display;
#[cfg(test)]
mod tests;

pub use decide::{decide, excluded};

/// Where a packet enters this node's network stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Sent by a process of this host (output path).
    Host,
    /// Received on the interface of this name (prerouting path).
    Interface(Arc<str>),
}

/// The first packet of a connection, as it enters the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Transport protocol; `None` for one without ports, such as ICMP.
    pub protocol: Option<Protocol>,
    /// Destination port; 0 where the protocol has none.
    pub port: u16,
    /// Where it enters.
    pub entry: Entry,
}

/// One endpoint that a packet may be sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    /// The endpoint.
    pub endpoint: EndpointAddr,
    /// Its share: it is chosen with probability `weight` / sum of all weights.
    pub weight: u32,
    /// The source is replaced by an address of the node on the way out.
    pub masquerade: bool,
}

/// What must happen to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Sent to one of these, sorted by endpoint; never empty.
    Endpoints(Vec<Choice>),
    /// Refused at once (ICMP port unreachable).
    Reject,
    /// Dropped without an answer.
    Drop,
    /// Left as it is.
    NotOurs,
}

/// Where the source of a packet was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A pod, as far as the local detector can tell.
    Pod,
    /// This host itself: the source is one of its addresses.
    Host,
    /// Anywhere else.
    Outside,
}

/// Why an endpoint is not among the choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// Neither ready nor serving while terminating.
    NotReady,
    /// Terminating, while ready ones exist in the scope.
    TerminatingWithReadyOthers,
    /// On another node, and the policy in force is Local.
    NotOnThisNode,
    /// Not hinted for this node or zone, and hints of that kind are obeyed.
    Topology(TopologyMode),
}

/// Why the outcome is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The destination is no frontend, no cluster IP and in no known range of them.
    NoFrontend,
    /// The destination is a cluster IP, but no service has this port.
    UnknownPortOfClusterIp,
    /// The destination is in a range of cluster IPs, but nobody has it.
    UnallocatedClusterIp,
    /// The source is not in the service's source ranges.
    SourceNotInRanges,
    /// No endpoint anywhere can serve.
    NoEndpoints,
    /// Endpoints exist, but none on this node, and the policy is Local.
    NoLocalEndpoints,
    /// Sent to the scope that [`Decision::scope`] names.
    Balanced,
}

/// Why the source is masqueraded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MasqueradeReason {
    /// `masqueradeAll` and the frontend is a cluster IP.
    All,
    /// To a cluster IP from a source that the local detector does not recognise.
    NotFromPod(LocalDetector),
    /// To an external frontend whose policy is Cluster.
    ExternalPolicyCluster,
    /// From this host to an external frontend whose policy is Local.
    FromHost,
    /// The endpoint reaches itself; concerns that choice only.
    Hairpin,
}

/// The full answer of [`decide`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What must happen.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
    /// The frontend that matched, and the service port that owns it.
    pub frontend: Option<(Frontend, ServicePortName)>,
    /// Where the packet comes from.
    pub origin: Origin,
    /// The policy of the frontend.
    pub policy: Option<TrafficPolicy>,
    /// The scope that was used: differs from `policy` for short-circuited traffic.
    pub scope: Option<TrafficPolicy>,
    /// Why choices are masqueraded; empty when none is.
    pub masquerade: Vec<MasqueradeReason>,
    /// Session affinity: a client stays with its first choice this long after its last new connection.
    pub affinity: Option<Duration>,
    /// The service's endpoints that are not among the choices, each with the filter that excluded it.
    pub excluded: Vec<(EndpointAddr, Exclusion)>,
    /// The healthCheckNodePort of some service: accepted whatever else holds.
    pub health_check: Option<Port>,
}
