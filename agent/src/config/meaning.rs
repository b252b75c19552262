//! From what was typed to what it means; the rules that concern several settings (core spec 7.2, 7.3).

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::cluster::{DetectLocal, NodePortSelector};
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::model::PerFamily;

use super::error::{ConfigError, ConfigErrors};
use super::layers::{Layers, Origin};
use super::raw::{RawConfig, RawNode, RawSource};
use super::table::{self, PRIMARY};
use super::{Config, KubernetesConfig, Logging, ManifestsConfig, NodeOverrides, Periods, SourceConfig};
use crate::telemetry::LogFormat;

/// The longest time between syncs that the loop lets pass anyway (core spec 6.3).
const MAX_MIN_SYNC_PERIOD: Duration = Duration::from_secs(3600);

/// Checks what is left to check.
pub(super) fn config(mut layers: Layers<'_>) -> Result<Config, ConfigErrors> {
    let raw: RawConfig = match serde_json::from_value(layers.tree()) {
        Ok(raw) => raw,
        Err(e) => {
            // the table lets no such value through; said instead of assumed
            let error = ConfigError { origin: Origin::Default, path: String::new(), message: e.to_string() };
            layers.errors.push(error);
            return Err(ConfigErrors::Invalid(layers.errors));
        }
    };
    if raw.mode.is_empty() {
        layers.complain("mode", "this program was built without any backend".into());
    }
    let hostname_override = hostname(&raw, &mut layers);
    let detect_local = detect_local(&raw, &mut layers);
    let periods = periods(&raw, &mut layers);
    let source = source(&raw.source, &mut layers);
    if !layers.errors.is_empty() {
        return Err(ConfigErrors::Invalid(layers.errors));
    }
    let node_port_addresses = match raw.node_port_addresses.as_slice() {
        [] => NodePortSelector::Primary,
        [one] if one == PRIMARY => NodePortSelector::Primary,
        list => NodePortSelector::Cidrs(cidrs(list)),
    };
    Ok(Config {
        hostname_override,
        source,
        detect_local,
        node_port_addresses,
        service_cidrs: cidrs(&raw.service_cidrs),
        first_services: raw.first_services.iter().filter_map(|t| table::service(t).ok()).collect(),
        node: node(&raw.node),
        logging: Logging {
            format: LogFormat::from_name(&raw.logging.format).unwrap_or_default(),
            level: raw.logging.level,
        },
        periods,
        external_ips: raw.feature_gates.allow_service_external_ips,
        mode: raw.mode,
        listing: layers.listing(),
    })
}

/// Trimmed and lower-cased; blank is a fault, empty is "not given".
fn hostname(raw: &RawConfig, layers: &mut Layers<'_>) -> Option<NodeName> {
    if raw.hostname_override.is_empty() {
        return None;
    }
    let name = NodeName::new(&raw.hostname_override);
    if name.as_str().is_empty() {
        layers.complain("hostnameOverride", "blank".into());
    }
    Some(name)
}

/// One at most.
fn source(raw: &RawSource, layers: &mut Layers<'_>) -> Option<SourceConfig> {
    let RawSource { kubernetes, manifests } = raw;
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    let (kubeconfig, server) = (given(&kubernetes.kubeconfig), given(&kubernetes.server));
    let kubernetes = (kubeconfig.is_some() || server.is_some())
        .then(|| KubernetesConfig { kubeconfig: kubeconfig.map(Into::into), server });
    let manifests = given(&manifests.path)
        .map(|path| ManifestsConfig { path: path.into(), poll: unless_zero(manifests.poll.0) });
    match (kubernetes, manifests) {
        (Some(kubernetes), Some(_)) => {
            let path = match kubernetes.kubeconfig {
                Some(_) => "source.kubernetes.kubeconfig",
                None => "source.kubernetes.server",
            };
            layers.complain(path, "source.manifests.path is given as well; name one source".into());
            None
        }
        (Some(kubernetes), None) => Some(SourceConfig::Kubernetes(kubernetes)),
        (None, manifests) => manifests.map(SourceConfig::Manifests),
    }
}

fn detect_local(raw: &RawConfig, layers: &mut Layers<'_>) -> DetectLocal {
    let mut named = |path, name: &str| {
        if name.is_empty() {
            layers.complain(path, format!("needed when detectLocalMode is {}", raw.detect_local_mode));
        } else if let Some(why) = no_interface(name) {
            layers.complain(path, format!("{name:?} is no name of an interface that rules can carry: {why}"));
        }
        name.into()
    };
    match raw.detect_local_mode.as_str() {
        "NodeCIDR" => DetectLocal::NodeCidr,
        "BridgeInterface" => DetectLocal::BridgeInterface(named(
            "detectLocal.bridgeInterface",
            &raw.detect_local.bridge_interface,
        )),
        "InterfaceNamePrefix" => DetectLocal::InterfaceNamePrefix(named(
            "detectLocal.interfaceNamePrefix",
            &raw.detect_local.interface_name_prefix,
        )),
        _ => {
            let cidrs = table::comma_cidrs(&raw.cluster_cidr).unwrap_or_default();
            let of = |f| cidrs.iter().filter(|c| IpFamily::of(c.addr()) == f).count();
            if IpFamily::ALL.into_iter().any(|f| of(f) > 1) {
                layers.complain("clusterCIDR", "more than one range of one family".into());
            }
            DetectLocal::ClusterCidr(cidrs)
        }
    }
}

/// Why no interface, or none that rules can tell from others, is called so. The kernel takes at most 15 bytes, without white space, `/` and `:`
/// (`dev_valid_name` of Linux); a tool takes `+` or `*` at the end for anything, and quotes have a meaning of their own.
fn no_interface(name: &str) -> Option<&'static str> {
    let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '/' | ':' | '"' | '\'' | '\\');
    match name {
        _ if name.len() > 15 => Some("longer than 15 bytes"),
        _ if name.contains(odd) => {
            Some("it has white space, a quote or one of / : \\ in it, or is not ASCII")
        }
        _ if name.ends_with(['+', '*']) => Some("it ends like a pattern"),
        "." | ".." => Some("the kernel does not take it"),
        _ => None,
    }
}

fn periods(raw: &RawConfig, layers: &mut Layers<'_>) -> Periods {
    let (sync, min_sync) = (raw.sync_period.0, raw.min_sync_period.0);
    if sync.is_zero() {
        layers.complain("syncPeriod", "must be longer than 0".into());
    }
    if min_sync > sync {
        layers.complain("minSyncPeriod", format!("longer than syncPeriod, which is {sync:?}"));
    } else if min_sync > MAX_MIN_SYNC_PERIOD {
        layers.complain("minSyncPeriod", "longer than an hour".into());
    }
    Periods { sync, min_sync, verify: unless_zero(raw.verify_period.0) }
}

fn node(raw: &RawNode) -> NodeOverrides {
    let ips: Vec<IpAddr> = raw.ips.iter().filter_map(|t| table::ip(t).ok()).collect();
    let first = |family| ips.iter().find(|ip| IpFamily::of(**ip) == family).copied();
    NodeOverrides {
        ips: PerFamily { ipv4: first(IpFamily::Ipv4), ipv6: first(IpFamily::Ipv6) },
        pod_cidrs: cidrs(&raw.pod_cidrs),
        zone: (!raw.zone.is_empty()).then(|| raw.zone.as_str().into()),
    }
}

/// The table has checked them.
fn cidrs(texts: &[String]) -> Vec<IpNet> {
    texts.iter().filter_map(|t| table::cidr(t).ok()).collect()
}

fn unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}
