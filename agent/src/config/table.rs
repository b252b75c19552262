//! Every setting: its name, what it takes, its default. One row feeds the check of the file, the flags and the printed form.

use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::ServiceName;
use proxier_core::ip::{parse_cidr, parse_ip};
use serde_json::Value;

use super::duration::Written;
use crate::source::kubernetes::check_server;
use crate::telemetry::{LogFormat, parse_filter};

/// `apiVersion` of the file.
pub const API_VERSION: &str = "proxier.io/v1alpha1";
/// `kind` of the file.
pub const KIND: &str = "ProxierConfiguration";
/// The word for the node's own addresses in `nodePortAddresses`.
pub(super) const PRIMARY: &str = "primary";

/// What a setting takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    /// Any text.
    Text,
    /// The address of an API server.
    Server,
    /// True or false.
    Bool,
    /// A duration.
    Duration,
    /// Ranges in one text, separated by commas; blank entries are skipped (core spec 9.1).
    CommaCidrs,
    /// A list of ranges.
    Cidrs,
    /// A list of addresses.
    Ips,
    /// A list of Services, `namespace/name`.
    Services,
    /// A list of ranges, or only the word `primary` (core spec 7.2).
    NodePortAddresses,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// The name of a backend.
    Backend,
    /// A log filter.
    LogFilter,
}

/// The value when nothing is said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Default {
    /// A text.
    Text(&'static str),
    /// True or false.
    Bool(bool),
    /// A list of texts.
    List(&'static [&'static str]),
    /// The first backend there is.
    FirstBackend,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Name, with dots.
    pub(super) path: &'static str,
    /// What it takes.
    pub(super) takes: Takes,
    /// Default.
    pub(super) default: Default,
}

const fn row(path: &'static str, takes: Takes, default: Default) -> Setting {
    Setting { path, takes, default }
}

/// Modes of local traffic detection (core spec 9.1).
pub(super) const DETECT_LOCAL_MODES: [&str; 4] =
    ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"];

/// All settings but the backends' own sections, in the order in which they are printed.
pub(super) const SETTINGS: &[Setting] = &[
    row("apiVersion", Takes::OneOf(&[API_VERSION]), Default::Text(API_VERSION)),
    row("kind", Takes::OneOf(&[KIND]), Default::Text(KIND)),
    row("mode", Takes::Backend, Default::FirstBackend),
    row("hostnameOverride", Takes::Text, Default::Text("")),
    row("source.kubernetes.kubeconfig", Takes::Text, Default::Text("")),
    row("source.kubernetes.server", Takes::Server, Default::Text("")),
    row("source.manifests.path", Takes::Text, Default::Text("")),
    row("source.manifests.poll", Takes::Duration, Default::Text("30s")),
    row("clusterCIDR", Takes::CommaCidrs, Default::Text("")),
    row("detectLocalMode", Takes::OneOf(&DETECT_LOCAL_MODES), Default::Text("ClusterCIDR")),
    row("detectLocal.bridgeInterface", Takes::Text, Default::Text("")),
    row("detectLocal.interfaceNamePrefix", Takes::Text, Default::Text("")),
    row("nodePortAddresses", Takes::NodePortAddresses, Default::List(&[PRIMARY])),
    row("serviceCIDRs", Takes::Cidrs, Default::List(&[])),
    // What a node cannot do without: the API server and the cluster's DNS, under the name that Kubernetes gives it.
    row("firstServices", Takes::Services, Default::List(&["default/kubernetes", "kube-system/kube-dns"])),
    row("node.ips", Takes::Ips, Default::List(&[])),
    row("node.podCIDRs", Takes::Cidrs, Default::List(&[])),
    row("node.zone", Takes::Text, Default::Text("")),
    row("logging.format", Takes::OneOf(&LogFormat::NAMES), Default::Text("text")),
    row("logging.level", Takes::LogFilter, Default::Text("info")),
    row("syncPeriod", Takes::Duration, Default::Text("30s")),
    row("minSyncPeriod", Takes::Duration, Default::Text("0s")),
    row("verifyPeriod", Takes::Duration, Default::Text("60s")),
    row("featureGates.AllowServiceExternalIPs", Takes::Bool, Default::Bool(true)),
];

impl Setting {
    /// The default as a value.
    pub(super) fn default_value(&self, backends: &[&str]) -> Value {
        match self.default {
            Default::Text(text) => text.into(),
            Default::Bool(b) => b.into(),
            Default::List(list) => list.to_vec().into(),
            Default::FirstBackend => backends.first().copied().unwrap_or_default().into(),
        }
    }
}

/// What is wrong with a value: where below the setting (empty, or `[2]`), and what.
pub(super) type Complaint = (String, String);

/// Is this a value that the setting takes?
pub(super) fn check(takes: Takes, value: &Value, backends: &[&str]) -> Vec<Complaint> {
    let here = |message: String| vec![(String::new(), message)];
    match takes {
        Takes::Bool if value.is_boolean() => Vec::new(),
        Takes::Bool => here(expected("true or false", value)),
        Takes::Duration => match (serde_json::from_value::<Written>(value.clone()), value) {
            (Ok(_), _) => Vec::new(),
            (Err(e), Value::String(_) | Value::Number(_)) => here(e.to_string()),
            (Err(_), _) => here(expected("a duration such as 30s", value)),
        },
        Takes::Cidrs => each(value, "a list of CIDRs", |t| cidr(t).err()),
        Takes::Ips => each(value, "a list of IP addresses", |t| ip(t).err()),
        Takes::Services => each(value, "a list of Services", |t| service(t).err()),
        Takes::NodePortAddresses => each(value, "a list of CIDRs, or [primary]", |t| match t {
            PRIMARY if value.as_array().is_some_and(|a| a.len() == 1) => None,
            PRIMARY => Some("primary stands alone: [primary]".into()),
            _ => cidr(t).err(),
        }),
        Takes::Text
        | Takes::Server
        | Takes::CommaCidrs
        | Takes::OneOf(_)
        | Takes::Backend
        | Takes::LogFilter => {
            let Some(text) = value.as_str() else { return here(expected("a text", value)) };
            check_text(takes, text, backends).map(here).unwrap_or_default()
        }
    }
}

fn check_text(takes: Takes, text: &str, backends: &[&str]) -> Option<String> {
    match takes {
        Takes::Server if !text.is_empty() => check_server(text).err(),
        Takes::CommaCidrs => comma_cidrs(text).err(),
        Takes::OneOf(names) => one_of(text, names),
        Takes::Backend => one_of(text, backends),
        Takes::LogFilter => parse_filter(text).err().map(|e| e.to_string()),
        _ => None,
    }
}

fn one_of(text: &str, names: &[&str]) -> Option<String> {
    (!names.contains(&text)).then(|| {
        let hint = nearest(text, names.iter().copied()).map(|n| format!("; did you mean {n}?"));
        format!("{text:?} is not one of {}{}", names.join(", "), hint.unwrap_or_default())
    })
}

fn each(value: &Value, what: &str, complain: impl Fn(&str) -> Option<String>) -> Vec<Complaint> {
    let Some(items) = value.as_array() else { return vec![(String::new(), expected(what, value))] };
    let one = |item: &Value| match item.as_str() {
        Some(text) => complain(text),
        None => Some(expected("a text", item)),
    };
    items.iter().enumerate().filter_map(|(i, item)| Some((format!("[{i}]"), one(item)?))).collect()
}

/// `expected a list, found the number 3`.
pub(super) fn expected(what: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "nothing".into(),
        Value::Bool(b) => format!("{b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the text {s:?}"),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a mapping".into(),
    };
    format!("expected {what}, found {found}")
}

/// A range, masked.
pub(super) fn cidr(text: &str) -> Result<IpNet, String> {
    parse_cidr(text).map_err(|e| format!("{text:?} {e}"))
}

/// A Service by namespace and name.
pub(super) fn service(text: &str) -> Result<ServiceName, String> {
    let name = |part: &str| !part.is_empty() && !part.contains(|c: char| c == '/' || c.is_whitespace());
    match text.split_once('/') {
        Some((namespace, service)) if name(namespace) && name(service) => {
            Ok(ServiceName::new(namespace, service))
        }
        _ => Err(format!("{text:?} is no namespace/name")),
    }
}

/// An address.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    parse_ip(text).map_err(|e| format!("{text:?} {e}"))
}

/// Ranges separated by commas; blank entries are skipped.
pub(super) fn comma_cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    text.split(',').filter(|part| !part.trim().is_empty()).map(cidr).collect()
}

/// The known name that is nearest to a mistyped one, if any is near: at most a third of it differs, or only case.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= name.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
