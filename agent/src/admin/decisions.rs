//! What was decided for service ports, as JSON: which endpoints which traffic may reach, and why not the others.

use proxier_core::ids::ServiceName;
use proxier_core::model::TrafficPolicy;
use proxier_core::oracle::{Exclusion, excluded};
use proxier_core::snapshot::{LocalDetector, NodeContext, NodePortAddresses, ServicePort, Snapshot};
use serde_json::{Value, json};

/// What decisions depend on beside the objects.
pub(super) fn context(context: &NodeContext) -> Value {
    let detector = context.detector.as_ref().map(|d| match d {
        LocalDetector::Cidr(cidr) => format!("source in {cidr}"),
        LocalDetector::Interface(name) => format!("arrives on {name}"),
        LocalDetector::InterfacePrefix(prefix) => format!("arrives on {prefix}*"),
    });
    let node_ports = match &context.node_port_addresses {
        NodePortAddresses::MatchAll => json!("all"),
        NodePortAddresses::Only(list) => list.iter().map(ToString::to_string).collect(),
    };
    json!({
        "node": context.node.name.as_str(),
        "zone": context.node.zone.as_deref(),
        "podTraffic": detector,
        "masqueradeAll": context.masquerade_all,
        "nodePortAddresses": node_ports,
        "nodePortsOnLoopback": context.node_ports_on_loopback,
        "serviceCIDRs": context.service_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// A line of the list of all service ports.
pub(super) fn summary(port: &ServicePort) -> Value {
    json!({
        "servicePort": super::history::port_name(&port.name),
        "endpoints": port.endpoints.len(),
        "cluster": port.categories.cluster.len(),
        "local": port.categories.local.len(),
        "conflicts": port.conflicts.len(),
    })
}

/// The service ports of one Service.
pub(super) fn of_service(
    snapshot: &Snapshot,
    service: &ServiceName,
    set_aside: &proxier_core::backend::SetAside,
) -> Vec<Value> {
    let each = |port: &std::sync::Arc<ServicePort>| {
        let mut value = of_port(port);
        if let (Some(fields), Some(reason)) = (value.as_object_mut(), set_aside.get(&port.name)) {
            fields.insert("setAside".to_owned(), json!(reason));
        }
        value
    };
    snapshot.service_ports(service).map(each).collect()
}

fn of_port(port: &ServicePort) -> Value {
    let spec = &port.spec;
    let conflict = |c: &proxier_core::snapshot::Conflict| json!({ "frontend": c.frontend.to_string(), "belongsTo": super::history::port_name(&c.winner) });
    json!({
        "servicePort": super::history::port_name(&port.name),
        "frontends": port.frontends.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "conflicts": port.conflicts.iter().map(conflict).collect::<Vec<_>>(),
        "internalPolicy": spec.internal_policy.to_string(),
        "externalPolicy": spec.external_policy.to_string(),
        "sourceRanges": spec.source_ranges.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "affinitySeconds": spec.affinity.map(|a| a.as_secs()),
        "healthCheckNodePort": spec.health_check_node_port.map(proxier_core::ids::Port::get),
        "topology": format!("{:?}", port.categories.topology),
        "endpoints": endpoints(port),
    })
}

/// Every endpoint, and for each scope that is used whether it is chosen, or else why not.
fn endpoints(port: &ServicePort) -> Vec<Value> {
    let input = uses(port);
    let scopes = [("cluster", TrafficPolicy::Cluster, input.0), ("local", TrafficPolicy::Local, input.1)];
    let reasons = scopes.map(|(name, scope, used)| (name, used, excluded(port, scope)));
    let verdict = |used: bool, excluded: &[(proxier_core::ids::EndpointAddr, Exclusion)], addr| {
        if !used {
            return Value::Null;
        }
        let reason = excluded.iter().find(|(a, _)| *a == addr).map(|(_, why)| why.to_string());
        Value::from(reason.unwrap_or_else(|| "used".to_owned()))
    };
    let each = |e: &proxier_core::model::Endpoint| {
        let mut value = json!({
            "address": e.addr.to_string(),
            "ready": e.conditions.ready,
            "serving": e.conditions.serving,
            "terminating": e.conditions.terminating,
            "local": e.local,
            "node": e.node.as_deref(),
            "zones": e.hints.zones.as_deref().map(|z| z.iter().map(|z| &**z).collect::<Vec<&str>>()),
        });
        for (name, used, excluded) in &reasons {
            value["verdict"][*name] = verdict(*used, excluded, e.addr);
        }
        value
    };
    port.endpoints.iter().map(each).collect()
}

/// Whether some traffic may reach endpoints of the whole cluster, and some only those of this node (core spec 1.5).
fn uses(port: &ServicePort) -> (bool, bool) {
    let (internal, external) = (port.spec.internal_policy, port.spec.external_policy);
    let outside = port.externally_accessible();
    let local = internal == TrafficPolicy::Local || (external == TrafficPolicy::Local && outside);
    (internal == TrafficPolicy::Cluster || outside, local)
}
