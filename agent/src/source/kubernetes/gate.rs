//! When everything that is needed at the start has been delivered.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use crate::source::ObjectKind;

/// How long the Node object is waited for once everything else is there (core spec 10.3).
pub(super) const NODE_WAIT: Duration = Duration::from_secs(30);

/// How long its pod ranges are waited for beyond that (core spec 10.3).
pub(super) const POD_CIDR_WAIT: Duration = Duration::from_secs(5 * 60);

/// What is needed of the Node object before anything is programmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeNeeds {
    /// An address.
    pub addresses: bool,
    /// A pod range; without one the source fails in the end.
    pub pod_cidrs: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for lists.
    Wait,
    /// Wait for the Node object, no longer than until this time, because it lacks this.
    WaitUntil(Duration, &'static str),
    /// Say that everything is there. `lacking` is what was waited for in vain.
    Open { lacking: Option<&'static str> },
    /// Say that it cannot go on.
    Fail(&'static str),
}

/// The gate. Times are since any origin.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    needs: NodeNeeds,
    services: bool,
    slices: bool,
    nodes: bool,
    node: Seen,
    /// Since when only the Node object is waited for.
    since: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    there: bool,
    addresses: bool,
    pod_cidrs: bool,
}

impl Gate {
    pub(super) fn new(needs: NodeNeeds) -> Self {
        Self { needs, services: false, slices: false, nodes: false, node: Seen::default(), since: None }
    }

    /// All objects of this kind have been delivered.
    pub(super) fn listed(&mut self, kind: ObjectKind) {
        match kind {
            ObjectKind::Service => self.services = true,
            ObjectKind::EndpointSlice => self.slices = true,
            ObjectKind::Node => self.nodes = true,
            ObjectKind::ServiceCidr => {}
        }
    }

    /// The Node object was delivered.
    pub(super) fn node(&mut self, node: &Node) {
        let addresses = node.status.as_ref().and_then(|s| s.addresses.as_deref()).unwrap_or_default();
        let spec = node.spec.as_ref();
        self.node = Seen {
            there: true,
            addresses: addresses.iter().any(|a| matches!(&*a.type_, "InternalIP" | "ExternalIP")),
            pod_cidrs: spec.is_some_and(|s| s.pod_cidr.is_some() || s.pod_cidrs.is_some()),
        };
    }

    /// What is to be done now.
    pub(super) fn step(&mut self, now: Duration) -> Step {
        if !self.services || !self.slices {
            return Step::Wait;
        }
        let since = *self.since.get_or_insert(now);
        let Some(lacking) = self.lacking() else { return Step::Open { lacking: None } };
        let patience = since + NODE_WAIT;
        if now < patience {
            Step::WaitUntil(patience, lacking)
        } else if !self.needs.pod_cidrs || self.node.pod_cidrs {
            Step::Open { lacking: Some(lacking) }
        } else if now < patience + POD_CIDR_WAIT {
            Step::WaitUntil(patience + POD_CIDR_WAIT, lacking)
        } else if self.node.there {
            Step::Fail("this node has no pod range, which detectLocalMode NodeCIDR needs")
        } else {
            Step::Fail("this node has no Node object, whose pod range detectLocalMode NodeCIDR needs")
        }
    }

    fn lacking(&self) -> Option<&'static str> {
        if !self.nodes && !self.node.there {
            Some("this node's object could not be read")
        } else if !self.node.there {
            Some("this node has no Node object")
        } else if self.needs.pod_cidrs && !self.node.pod_cidrs {
            Some("this node's object has no pod range")
        } else if self.needs.addresses && !self.node.addresses {
            Some("this node's object has no address")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: NodeNeeds = NodeNeeds { addresses: true, pod_cidrs: false };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn node(addresses: bool, pods: bool) -> Node {
        let mut node = serde_json::json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
        if addresses {
            node["status"]["addresses"] = serde_json::json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
        }
        if pods {
            node["spec"]["podCIDRs"] = serde_json::json!(["10.1.0.0/24"]);
        }
        serde_json::from_value(node).expect("a node")
    }

    fn listed(needs: NodeNeeds) -> Gate {
        let mut gate = Gate::new(needs);
        gate.listed(ObjectKind::Service);
        gate.listed(ObjectKind::EndpointSlice);
        gate
    }

    /// Cases: core-11.62
    #[test]
    fn nothing_opens_before_both_lists() {
        let mut gate = Gate::new(NEEDS);
        gate.node(&node(true, true));
        gate.listed(ObjectKind::Node);
        gate.listed(ObjectKind::ServiceCidr);
        gate.listed(ObjectKind::EndpointSlice);
        assert_eq!(gate.step(at(1000)), Step::Wait);
        gate.listed(ObjectKind::Service);
        assert_eq!(gate.step(at(1001)), Step::Open { lacking: None });
    }

    #[test]
    fn the_node_is_waited_for_half_a_minute() {
        let mut gate = listed(NEEDS);
        assert!(matches!(gate.step(at(100)), Step::WaitUntil(t, _) if t == at(130)));
        gate.listed(ObjectKind::Node);
        assert!(matches!(gate.step(at(101)), Step::WaitUntil(t, _) if t == at(130)), "none there");
        gate.node(&node(false, false));
        assert!(matches!(gate.step(at(102)), Step::WaitUntil(t, _) if t == at(130)), "without an address");
        let mut late = gate.clone();
        assert_eq!(late.step(at(130)), Step::Open { lacking: Some("this node's object has no address") });
        gate.node(&node(true, false));
        assert_eq!(gate.step(at(103)), Step::Open { lacking: None });
    }

    #[test]
    fn an_address_from_elsewhere_is_enough() {
        let mut gate = listed(NodeNeeds::default());
        gate.node(&node(false, false));
        assert_eq!(gate.step(at(0)), Step::Open { lacking: None });
    }

    #[test]
    fn pod_ranges_are_waited_for_longer_and_not_done_without() {
        let needs = NodeNeeds { addresses: true, pod_cidrs: true };
        let mut gate = listed(needs);
        gate.listed(ObjectKind::Node);
        assert!(matches!(gate.step(at(0)), Step::WaitUntil(t, _) if t == at(30)));
        assert!(matches!(gate.step(at(30)), Step::WaitUntil(t, _) if t == at(330)));
        let mut never = gate.clone();
        assert!(matches!(never.step(at(330)), Step::Fail(why) if why.contains("no Node object")));
        gate.node(&node(false, true));
        assert!(matches!(gate.step(at(40)), Step::Open { lacking: Some(_) }), "only the address lacks");
        gate.node(&node(true, false));
        assert!(matches!(gate.step(at(330)), Step::Fail(why) if why.contains("no pod range")));
    }
}
