//! Decisions as text, for the person who wants to know where a packet goes and why.

use std::fmt;

use super::{Decision, Exclusion, MasqueradeReason, Origin, Outcome, Reason};
use crate::categorize::TopologyMode;
use crate::model::TrafficPolicy;
use crate::snapshot::{Frontend, FrontendKey, FrontendKind, LocalDetector};

impl fmt::Display for Decision {
    /// One line for each fact, the outcome first; no line for what does not apply.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outcome:    {}", self.outcome)?;
        write!(f, "\nbecause:    {}", self.reason)?;
        if let Some((frontend, port)) = &self.frontend {
            write!(f, "\nfrontend:   {} of {port}", Text(*frontend))?;
        }
        write!(f, "\nsource:     {}", self.origin)?;
        self.fmt_policy(f)?;
        for reason in &self.masquerade {
            write!(f, "\nmasquerade: {reason}")?;
        }
        if let Some(timeout) = self.affinity {
            let seconds = timeout.as_secs();
            write!(
                f,
                "\naffinity:   a client keeps its endpoint until {seconds} s after its last new connection"
            )?;
        }
        for (endpoint, exclusion) in &self.excluded {
            write!(f, "\nnot used:   {endpoint}: {exclusion}")?;
        }
        if let Some(port) = self.health_check {
            write!(f, "\naccepted:   {port}/tcp is a healthCheckNodePort")?;
        }
        Ok(())
    }
}

impl Decision {
    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(policy) = self.policy else { return Ok(()) };
        write!(f, "\npolicy:     {policy}")?;
        match self.scope {
            Some(TrafficPolicy::Cluster) if policy == TrafficPolicy::Local => {
                f.write_str(", but traffic that starts here may use endpoints of the whole cluster")
            }
            Some(TrafficPolicy::Local) => f.write_str(", only endpoints on this node"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = match self {
            Self::Reject => return f.write_str("rejected (ICMP port unreachable)"),
            Self::Drop => return f.write_str("dropped without an answer"),
            Self::NotOurs => return f.write_str("left as it is"),
            Self::Endpoints(choices) => choices,
        };
        let sum: u64 = choices.iter().map(|c| u64::from(c.weight)).sum();
        f.write_str(if choices.len() == 1 { "sent to " } else { "sent to one of " })?;
        for (i, choice) in choices.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}", choice.endpoint)?;
            if choices.len() > 1 {
                write!(f, " ({}/{sum})", choice.weight)?;
            }
            f.write_str(if choice.masquerade { " masqueraded" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFrontend => "the destination is no address and port of a service",
            Self::UnknownPortOfClusterIp => "the destination is a cluster IP, but no service has this port",
            Self::UnallocatedClusterIp => {
                "the destination is in a range of cluster IPs, but no service has it"
            }
            Self::SourceNotInRanges => "the source is not in the service's loadBalancerSourceRanges",
            Self::NoEndpoints => "the service has no endpoint that can serve",
            Self::NoLocalEndpoints => {
                "the service has endpoints, but none on this node, and its policy is Local"
            }
            Self::Balanced => "the service has endpoints for this traffic",
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "a pod, as the local traffic detector sees it",
            Self::Host => "this host itself",
            Self::Outside => "outside: neither a known pod nor this host",
        })
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "not ready",
            Self::TerminatingWithReadyOthers => "terminating, and others are ready",
            Self::NotOnThisNode => "not on this node",
            Self::Topology(TopologyMode::SameNode) => "hinted for other nodes",
            Self::Topology(TopologyMode::SameZone) => "hinted for other zones",
            Self::Topology(TopologyMode::None) => "not selected",
        })
    }
}

impl fmt::Display for MasqueradeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("masqueradeAll is set, and the destination is a cluster IP"),
            Self::NotFromPod(detector) => {
                write!(f, "to a cluster IP, and the source is no pod ({})", Text(detector))
            }
            Self::ExternalPolicyCluster => f.write_str("external traffic policy Cluster"),
            Self::FromHost => f.write_str("from this host to an external address with policy Local"),
            Self::Hairpin => f.write_str("only where the client is itself the endpoint"),
        }
    }
}

/// Text for types of other modules.
struct Text<T>(T);

impl fmt::Display for Text<Frontend> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0.kind {
            FrontendKind::ClusterIp => "cluster IP",
            FrontendKind::LoadBalancerVip => "load balancer VIP",
            FrontendKind::ExternalIp => "external IP",
            FrontendKind::NodePort => "node port",
        };
        match self.0.key {
            FrontendKey::Address { ip, protocol, port } => {
                write!(f, "{kind} {}/{protocol}", crate::ids::EndpointAddr { ip, port })
            }
            FrontendKey::NodePort { protocol, port } => write!(f, "{kind} {port}/{protocol}"),
        }
    }
}

impl fmt::Display for Text<&LocalDetector> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LocalDetector::Cidr(cidr) => write!(f, "its address is not in {cidr}"),
            LocalDetector::Interface(name) => write!(f, "it did not arrive on {name}"),
            LocalDetector::InterfacePrefix(prefix) => write!(f, "it did not arrive on {prefix}*"),
        }
    }
}
