//! Services (core spec 1.2 to 1.5).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;

use super::problem::{MAX_LABEL, Report, identity};
use super::{Ignored, Intake};
use crate::ids::{IpFamily, Port, Protocol, ServiceName, Timestamp};
use crate::ip::{parse_cidr, parse_ip};
use crate::model::{PerFamily, Service, ServicePortSpec, ServiceType, TrafficPolicy};

/// Presence of this label, whatever its value, hands the Service to another proxy (core spec 1.1).
const OTHER_PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// `sessionAffinityConfig.clientIP.timeoutSeconds` when it is missing (core spec 1.2).
const DEFAULT_AFFINITY: Duration = Duration::from_secs(10_800);

/// Takes in a Service.
#[must_use]
pub fn service(object: &api::Service) -> Intake<Service> {
    let (namespace, name) = match identity("Service", &object.metadata, MAX_LABEL) {
        Ok(names) => names,
        Err(problem) => return Intake::rejected(problem),
    };
    let default = api::ServiceSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&default);
    if let Some(reason) = ignored(object, spec) {
        return Intake::ignored(reason);
    }
    let mut report = Report::new(format!("Service {namespace}/{name}"));
    let kind = service_type(spec, &mut report);
    let external_policy = external_policy(spec, kind, &mut report);
    let accepted = Service {
        name: ServiceName::new(namespace, name),
        created: object.metadata.creation_timestamp.as_ref().map(|t| Timestamp(t.0.as_nanosecond())),
        kind,
        cluster_ips: cluster_ips(spec, &mut report),
        ports: ports(spec, &mut report),
        external_ips: external_ips(spec, &mut report),
        load_balancer_vips: load_balancer_vips(object),
        source_ranges: source_ranges(spec, &mut report),
        external_policy,
        internal_policy: policy(
            "spec.internalTrafficPolicy",
            spec.internal_traffic_policy.as_deref(),
            &mut report,
        ),
        affinity: affinity(spec, &mut report),
        health_check_node_port: health_check_node_port(spec, kind, external_policy, &mut report),
    };
    Intake { accepted: Some(accepted), ignored: None, problems: report.problems }
}

/// The name that [`service`] gives this object; `None` when it would reject it. For deletions.
#[must_use]
pub fn service_name(object: &api::Service) -> Option<ServiceName> {
    let (namespace, name) = identity("Service", &object.metadata, MAX_LABEL).ok()?;
    Some(ServiceName::new(namespace, name))
}

fn ignored(object: &api::Service, spec: &api::ServiceSpec) -> Option<Ignored> {
    if object.metadata.labels.as_ref().is_some_and(|l| l.contains_key(OTHER_PROXY_LABEL)) {
        return Some(Ignored::OtherProxy);
    }
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(Ignored::ExternalName);
    }
    match spec.cluster_ip.as_deref().unwrap_or_default() {
        "" => Some(Ignored::NoClusterIp),
        "None" => Some(Ignored::Headless),
        _ => None,
    }
}

fn service_type(spec: &api::ServiceSpec, report: &mut Report) -> ServiceType {
    match spec.type_.as_deref().unwrap_or_default() {
        "" | "ClusterIP" => ServiceType::ClusterIp,
        "NodePort" => ServiceType::NodePort,
        "LoadBalancer" => ServiceType::LoadBalancer,
        other => {
            report.add("spec.type", Some(other), "is not a known type; treated as ClusterIP");
            ServiceType::ClusterIp
        }
    }
}

fn policy(field: &str, value: Option<&str>, report: &mut Report) -> TrafficPolicy {
    match value {
        None | Some("" | "Cluster") => TrafficPolicy::Cluster,
        Some("Local") => TrafficPolicy::Local,
        Some(other) => {
            report.add(field, Some(other), "is not a known policy; treated as Cluster");
            TrafficPolicy::Cluster
        }
    }
}

/// Local counts only where traffic from outside can be meant: the external IPs are the raw list, and an empty type
/// is none of the three (core spec 1.2; 11, number 16).
fn external_policy(spec: &api::ServiceSpec, kind: ServiceType, report: &mut Report) -> TrafficPolicy {
    let wanted = policy("spec.externalTrafficPolicy", spec.external_traffic_policy.as_deref(), report);
    let applies = match kind {
        ServiceType::NodePort | ServiceType::LoadBalancer => true,
        ServiceType::ClusterIp => {
            spec.type_.as_deref() == Some("ClusterIP")
                && spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty())
        }
    };
    if applies { wanted } else { TrafficPolicy::Cluster }
}

/// Core spec 1.3.
fn cluster_ips(spec: &api::ServiceSpec, report: &mut Report) -> PerFamily<Option<IpAddr>> {
    let mut out = PerFamily::default();
    let families = spec.ip_families.as_deref().unwrap_or_default();
    if families.is_empty() {
        let text = spec.cluster_ip.as_deref().unwrap_or_default();
        match parse_ip(text) {
            Ok(ip) => *out.get_mut(IpFamily::of(ip)) = Some(ip),
            Err(e) => report.add("spec.clusterIP", Some(text), e.to_string()),
        }
        return out;
    }
    let mut seen = BTreeSet::new();
    let pairs = families.iter().zip(spec.cluster_ips.iter().flatten()).enumerate();
    for (i, (family, text)) in pairs {
        let family = match family.as_str() {
            "IPv4" => IpFamily::Ipv4,
            "IPv6" => IpFamily::Ipv6,
            other => {
                report.add(format!("spec.ipFamilies[{i}]"), Some(other), "is not IPv4 or IPv6");
                continue;
            }
        };
        if !seen.insert(family) || text.is_empty() {
            continue;
        }
        let field = || format!("spec.clusterIPs[{i}]");
        match parse_ip(text) {
            Ok(ip) if IpFamily::of(ip) == family => *out.get_mut(family) = Some(ip),
            Ok(_) => report.add(field(), Some(text), format!("is not an {family} address")),
            Err(e) => report.add(field(), Some(text), e.to_string()),
        }
    }
    out
}

/// Other families' addresses and blank ones are dropped silently, unreadable ones are reported (core spec 1.4).
fn external_ips(spec: &api::ServiceSpec, report: &mut Report) -> PerFamily<Vec<IpAddr>> {
    let mut out = PerFamily::default();
    for (i, text) in spec.external_ips.iter().flatten().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        match parse_ip(text) {
            Ok(ip) => push_new(out.get_mut(IpFamily::of(ip)), ip),
            Err(e) => report.add(format!("spec.externalIPs[{i}]"), Some(text), e.to_string()),
        }
    }
    out
}

/// Everything that is no readable address of mode VIP is dropped silently (core spec 1.4).
fn load_balancer_vips(object: &api::Service) -> PerFamily<Vec<IpAddr>> {
    let mut out = PerFamily::default();
    let balancer = object.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    for ingress in balancer.and_then(|b| b.ingress.as_ref()).into_iter().flatten() {
        let is_vip = matches!(ingress.ip_mode.as_deref(), None | Some("VIP"));
        let ip = ingress.ip.as_deref().filter(|_| is_vip).and_then(|text| parse_ip(text).ok());
        if let Some(ip) = ip {
            push_new(out.get_mut(IpFamily::of(ip)), ip);
        }
    }
    out
}

/// A range of length 0 lifts the restriction of its family, and so does having no range left (core spec 1.4).
fn source_ranges(spec: &api::ServiceSpec, report: &mut Report) -> PerFamily<Vec<ipnet::IpNet>> {
    let mut out: PerFamily<Vec<ipnet::IpNet>> = PerFamily::default();
    let before = report.problems.len();
    for (i, text) in spec.load_balancer_source_ranges.iter().flatten().enumerate() {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            continue;
        }
        match parse_cidr(trimmed) {
            Ok(net) => push_new(out.get_mut(IpFamily::of(net.addr())), net),
            Err(e) => {
                report.add(format!("spec.loadBalancerSourceRanges[{i}]"), Some(text), e.to_string());
            }
        }
    }
    if report.problems.len() > before && out.ipv4.is_empty() && out.ipv6.is_empty() {
        report.add("spec.loadBalancerSourceRanges", None, "has no usable range: all sources are allowed");
    }
    for family in IpFamily::ALL {
        let ranges = out.get_mut(family);
        if ranges.iter().any(|net| net.prefix_len() == 0) {
            ranges.clear();
        }
    }
    out
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn affinity(spec: &api::ServiceSpec, report: &mut Report) -> Option<Duration> {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            report.add("spec.sessionAffinity", Some(other), "is not a known affinity; treated as None");
            return None;
        }
    }
    let config = spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref());
    let Some(seconds) = config.and_then(|c| c.timeout_seconds) else { return Some(DEFAULT_AFFINITY) };
    let timeout = u64::try_from(seconds).ok().filter(|s| *s > 0).map(Duration::from_secs);
    if timeout.is_none() {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        report.add(field, Some(&seconds.to_string()), "is not a positive number of seconds; 10800 is used");
    }
    timeout.or(Some(DEFAULT_AFFINITY))
}

/// Only for type LoadBalancer with policy Local; there it should exist (core spec 1.5).
fn health_check_node_port(
    spec: &api::ServiceSpec,
    kind: ServiceType,
    external_policy: TrafficPolicy,
    report: &mut Report,
) -> Option<Port> {
    if kind != ServiceType::LoadBalancer || external_policy != TrafficPolicy::Local {
        return None;
    }
    report.port("spec.healthCheckNodePort", spec.health_check_node_port)
}

/// What the ports before one already have; a second owner of the same thing is reported (core spec 0.2).
#[derive(Default)]
struct Taken<'a> {
    names: BTreeSet<(&'a str, Protocol)>,
    numbers: BTreeSet<(Port, Protocol)>,
    node_ports: BTreeSet<(Port, Protocol)>,
}

fn ports(spec: &api::ServiceSpec, report: &mut Report) -> Vec<ServicePortSpec> {
    let mut taken = Taken::default();
    let entries = spec.ports.iter().flatten().enumerate();
    entries.filter_map(|(i, port)| service_port(i, port, &mut taken, report)).collect()
}

fn service_port<'a>(
    i: usize,
    entry: &'a api::ServicePort,
    taken: &mut Taken<'a>,
    report: &mut Report,
) -> Option<ServicePortSpec> {
    let field = |name: &str| format!("spec.ports[{i}].{name}");
    let name = entry.name.as_deref().unwrap_or_default();
    if !report.usable_name(field("name"), name, MAX_LABEL) {
        return None;
    }
    let protocol = report.protocol(field("protocol"), entry.protocol.as_deref())?;
    let port = report.port(field("port"), Some(entry.port))?;
    if taken.names.contains(&(name, protocol)) {
        report.add(field("name"), Some(name), format!("is the name of an earlier {protocol} port"));
        return None;
    }
    if !taken.numbers.insert((port, protocol)) {
        report.add(field("port"), Some(&port.to_string()), format!("is an earlier {protocol} port"));
        return None;
    }
    taken.names.insert((name, protocol));
    let mut node_port = match entry.node_port {
        None | Some(0) => None,
        number => report.port(field("nodePort"), number),
    };
    if let Some(number) = node_port.filter(|n| !taken.node_ports.insert((*n, protocol))) {
        report.add(field("nodePort"), Some(&number.to_string()), "is the node port of an earlier port");
        node_port = None;
    }
    Some(ServicePortSpec { name: name.into(), protocol, port, node_port })
}
