//! EndpointSlices (core spec 1.7, 2.2, 2.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as api;
use k8s_openapi::jiff;

use super::problem::{MAX_LABEL, MAX_SUBDOMAIN, Report, identity, part};
use super::{Ignored, Intake};
use crate::ids::{IpFamily, ServiceName, Timestamp};
use crate::ip::parse_ip;
use crate::model::{Conditions, EndpointSlice, Hints, SliceEndpoint, SliceName, SlicePort};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Presence of this label, whatever its value, says that the Service is headless (core spec 1.1).
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Takes in an EndpointSlice.
///
/// An endpoint whose address is not of the slice's address type is left out and reported: no backend could use it.
#[must_use]
pub fn endpoint_slice(object: &api::EndpointSlice) -> Intake<EndpointSlice> {
    let (namespace, name) = match identity("EndpointSlice", &object.metadata, MAX_SUBDOMAIN) {
        Ok(names) => names,
        Err(problem) => return Intake::rejected(problem),
    };
    if object.metadata.labels.as_ref().is_some_and(|l| l.contains_key(HEADLESS_LABEL)) {
        return Intake::ignored(Ignored::HeadlessSlice);
    }
    let service = service_label(object);
    if service.is_empty() {
        return Intake::ignored(Ignored::NoService);
    }
    let family = match object.address_type.as_str() {
        "IPv4" => IpFamily::Ipv4,
        "IPv6" => IpFamily::Ipv6,
        _ => return Intake::ignored(Ignored::UnsupportedAddressType),
    };
    let id = format!("EndpointSlice {namespace}/{name}");
    if let Err(problem) = part(&id, &format!("metadata.labels[{SERVICE_LABEL}]"), service, MAX_LABEL) {
        return Intake::rejected(problem);
    }
    let mut report = Report::new(id);
    let accepted = EndpointSlice {
        name: SliceName { service: ServiceName::new(namespace, service), name: name.into() },
        family,
        trigger: trigger(object, &mut report),
        ports: ports(object, &mut report),
        endpoints: endpoints(object, family, &mut report),
    };
    Intake { accepted: Some(accepted), ignored: None, problems: report.problems }
}

/// The name that [`endpoint_slice`] gives this object; `None` when it has none. For deletions.
#[must_use]
pub fn slice_name(object: &api::EndpointSlice) -> Option<SliceName> {
    let (namespace, name) = identity("EndpointSlice", &object.metadata, MAX_SUBDOMAIN).ok()?;
    let service = service_label(object);
    part("", SERVICE_LABEL, service, MAX_LABEL).ok()?;
    Some(SliceName { service: ServiceName::new(namespace, service), name: name.into() })
}

fn service_label(object: &api::EndpointSlice) -> &str {
    let labels = object.metadata.labels.as_ref();
    labels.and_then(|l| l.get(SERVICE_LABEL)).map(String::as_str).unwrap_or_default()
}

fn trigger(object: &api::EndpointSlice, report: &mut Report) -> Option<Timestamp> {
    let text = object.metadata.annotations.as_ref()?.get(TRIGGER_ANNOTATION)?;
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(Timestamp(time.as_nanosecond())),
        Err(_) => {
            let field = format!("metadata.annotations[{TRIGGER_ANNOTATION}]");
            report.add(field, Some(text), "is not a time of RFC 3339");
            None
        }
    }
}

fn ports(object: &api::EndpointSlice, report: &mut Report) -> Vec<SlicePort> {
    let mut out = Vec::new();
    for (i, entry) in object.ports.iter().flatten().enumerate() {
        let port = slice_port(i, entry, report);
        out.extend(port.filter(|p| !out.contains(p)));
    }
    out
}

fn slice_port(i: usize, entry: &api::EndpointPort, report: &mut Report) -> Option<SlicePort> {
    let field = |name: &str| format!("ports[{i}].{name}");
    let Some(name) = entry.name.as_deref() else {
        report.add(field("name"), None, "is missing; an unnamed port has an empty name");
        return None;
    };
    if !report.usable_name(field("name"), name, MAX_LABEL) {
        return None;
    }
    let port = report.port(field("port"), entry.port)?;
    let protocol = report.protocol(field("protocol"), entry.protocol.as_deref())?;
    Some(SlicePort { name: name.into(), protocol, port })
}

fn endpoints(object: &api::EndpointSlice, family: IpFamily, report: &mut Report) -> Vec<SliceEndpoint> {
    let mut strings = Interner::default();
    let entries = object.endpoints.iter().enumerate();
    entries.filter_map(|(i, entry)| endpoint(i, entry, family, &mut strings, report)).collect()
}

fn endpoint<'a>(
    i: usize,
    entry: &'a api::Endpoint,
    family: IpFamily,
    strings: &mut Interner<'a>,
    report: &mut Report,
) -> Option<SliceEndpoint> {
    let Some(text) = entry.addresses.first() else {
        report.add(format!("endpoints[{i}].addresses"), None, "is empty");
        return None;
    };
    let field = || format!("endpoints[{i}].addresses[0]");
    let ip = match parse_ip(text) {
        Ok(ip) if IpFamily::of(ip) == family => ip,
        Ok(_) => {
            report.add(
                field(),
                Some(text),
                format!("is not an {family} address, as the slice's addressType says"),
            );
            return None;
        }
        Err(e) => {
            report.add(field(), Some(text), e.to_string());
            return None;
        }
    };
    let conditions = entry.conditions.as_ref().map_or_else(Conditions::default, |c| Conditions {
        ready: c.ready.unwrap_or(true),
        serving: c.serving.unwrap_or(true),
        terminating: c.terminating.unwrap_or(false),
    });
    let node = entry.node_name.as_deref().filter(|n| !n.is_empty()).map(|n| strings.one(n));
    let hints = entry.hints.as_ref();
    let zones = hints.and_then(|h| h.for_zones.as_ref()).into_iter().flatten().map(|z| z.name.as_str());
    let nodes = hints.and_then(|h| h.for_nodes.as_ref()).into_iter().flatten().map(|n| n.name.as_str());
    let hints = Hints { zones: strings.list(zones), nodes: strings.list(nodes) };
    Some(SliceEndpoint { ip, conditions, node, hints })
}

/// Keeps one copy of each node name, zone name and list of them: a slice of 1,000 endpoints has a handful.
#[derive(Default)]
struct Interner<'a> {
    strings: BTreeMap<&'a str, Arc<str>>,
    lists: BTreeMap<Vec<&'a str>, Arc<[Arc<str>]>>,
}

impl<'a> Interner<'a> {
    fn one(&mut self, text: &'a str) -> Arc<str> {
        Arc::clone(self.strings.entry(text).or_insert_with(|| text.into()))
    }

    /// `None` for an empty list, which means "no hint of that kind".
    fn list(&mut self, texts: impl Iterator<Item = &'a str>) -> Option<Arc<[Arc<str>]>> {
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() {
            return None;
        }
        if let Some(list) = self.lists.get(&texts) {
            return Some(Arc::clone(list));
        }
        let list: Arc<[Arc<str>]> = texts.iter().map(|t| self.one(t)).collect();
        self.lists.insert(texts, Arc::clone(&list));
        Some(list)
    }
}
