//! From what was typed to what it means; the rules that concern several settings (core spec 7.2, 7.3).

mod logging;
mod network;
mod periods;
mod source;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, NodeName};
use proxier_core::model::PerFamily;

pub(super) use self::periods::of_mode;
use super::error::ConfigErrors;
use super::layers::{Layers, Origin};
use super::text;
use super::types::{Admin, ClientConnection, Conntrack, NodeOverrides};
use super::{Config, findings};

/// Checks what is left to check, for the mode that is in use; none when it is not known which of several it will be.
pub(super) fn config(mut layers: Layers<'_>, mode: &str) -> Result<Config, ConfigErrors> {
    let candidates = layers.candidates();
    let modes: Vec<&str> =
        if mode.is_empty() { candidates.iter().map(String::as_str).collect() } else { vec![mode] };
    layers.settle(&modes);
    let mode = modes.first().copied().unwrap_or_default().to_owned();
    built_in(&mut layers, &mode);
    let hostname_override = hostname(&mut layers);
    let bind_address = bind_address(&mut layers);
    let (healthz_bind_address, metrics_bind_address) = servers(&mut layers);
    let detect_local = network::detect_local(&mut layers);
    let node_port_addresses = network::node_ports(&mut layers, &mode);
    let periods = periods::periods(&mut layers, &mode);
    let source = source::source(&mut layers);
    let logging = logging::logging(&mut layers);
    if !layers.errors.is_empty() {
        return Err(ConfigErrors::Invalid(layers.errors));
    }
    layers.tell_idle();
    findings::tell_static(&mut layers, &mode);
    let feature_gates = layers.gate_values();
    Ok(Config {
        kind: layers.kind,
        auto: (layers.text("mode") != mode).then_some(candidates),
        hostname_override,
        source,
        client: client(&layers),
        bind_address,
        healthz_bind_address,
        metrics_bind_address,
        bind_address_hard_fail: layers.switch("bindAddressHardFail"),
        enable_profiling: layers.switch("enableProfiling"),
        show_hidden_metrics_for_version: layers.given("showHiddenMetricsForVersion"),
        admin: Admin { socket: layers.given("admin.socket").map(Into::into) },
        oom_score_adj: i32::try_from(layers.int("oomScoreAdj")).unwrap_or_default(),
        conntrack: conntrack(&layers),
        detect_local,
        node_port_addresses,
        service_cidrs: cidrs(&layers.texts("serviceCIDRs")),
        exclude_cidrs: cidrs(&layers.texts("ipvs.excludeCIDRs")),
        first_services: layers.texts("firstServices").iter().filter_map(|t| text::service(t).ok()).collect(),
        node: node(&layers),
        logging,
        periods,
        config_sync_period: layers.duration("configSyncPeriod").unwrap_or_default(),
        external_ips: feature_gates.on("AllowServiceExternalIPs"),
        feature_gates,
        warnings: std::mem::take(&mut layers.warnings),
        rows: layers.rows(),
        listing: layers.listing(),
        mode,
    })
}

fn built_in(layers: &mut Layers<'_>, mode: &str) {
    let names = layers.names();
    if names.is_empty() {
        layers.complain("mode", "this program was built without any backend".into());
    } else if !names.contains(&mode) {
        layers.complain("mode", format!("{mode} is not built in; there is {}", names.join(", ")));
    }
}

/// Trimmed and lower-cased; blank is a fault, empty is "not given".
fn hostname(layers: &mut Layers<'_>) -> Option<NodeName> {
    let said = layers.given("hostnameOverride")?;
    let name = NodeName::new(&said);
    if name.as_str().is_empty() {
        layers.complain("hostnameOverride", "blank".into());
        return None;
    }
    let proper = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if !name.as_str().chars().all(proper) {
        let why = if said.contains("$(") { "; is the variable set?" } else { "" };
        layers
            .doubt("hostnameOverride", format!("no Node can be called {name:?}{why}", name = name.as_str()));
    }
    layers.mean("hostnameOverride", name.as_str().into(), layers.origin("hostnameOverride"));
    Some(name)
}

fn bind_address(layers: &mut Layers<'_>) -> IpAddr {
    let said = layers.text("bindAddress");
    text::ip(&said).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// In a file the servers' defaults follow the family of `bindAddress`; those of flags do not (core spec 7.4).
fn servers(layers: &mut Layers<'_>) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let by_ipv6 = layers.from.is_some() && text::ip(&layers.text("bindAddress")).is_ok_and(|ip| ip.is_ipv6());
    let mut listen = |path: &'static str, port, of_ipv6: &str| {
        let said = match layers.origin(path) {
            Origin::Default if by_ipv6 => {
                layers.mean(path, of_ipv6.into(), Origin::Follows("bindAddress"));
                of_ipv6.to_owned()
            }
            _ => layers.text(path),
        };
        text::listen(&said, port).ok()
    };
    let healthz = listen("healthzBindAddress", 10256, "[::]:10256");
    (healthz, listen("metricsBindAddress", 10249, "[::1]:10249"))
}

fn client(layers: &Layers<'_>) -> ClientConnection {
    ClientConnection {
        accept_content_types: layers.text("clientConnection.acceptContentTypes"),
        content_type: layers.text("clientConnection.contentType"),
        qps: layers.value("clientConnection.qps").as_f64().unwrap_or_default(),
        burst: u32::try_from(layers.int("clientConnection.burst")).unwrap_or_default(),
    }
}

fn conntrack(layers: &Layers<'_>) -> Conntrack {
    let number = |path| u32::try_from(layers.int(path)).unwrap_or_default();
    let timeout = |path| layers.duration(path).and_then(unless_zero);
    Conntrack {
        max_per_core: Some(number("conntrack.maxPerCore")).filter(|n| *n > 0),
        min: number("conntrack.min"),
        tcp_established_timeout: timeout("conntrack.tcpEstablishedTimeout"),
        tcp_close_wait_timeout: timeout("conntrack.tcpCloseWaitTimeout"),
        tcp_be_liberal: layers.switch("conntrack.tcpBeLiberal"),
        udp_timeout: timeout("conntrack.udpTimeout"),
        udp_stream_timeout: timeout("conntrack.udpStreamTimeout"),
    }
}

fn node(layers: &Layers<'_>) -> NodeOverrides {
    let ips: Vec<IpAddr> = layers.texts("node.ips").iter().filter_map(|t| text::ip(t).ok()).collect();
    let first = |family| ips.iter().find(|ip| IpFamily::of(**ip) == family).copied();
    NodeOverrides {
        ips: PerFamily { ipv4: first(IpFamily::Ipv4), ipv6: first(IpFamily::Ipv6) },
        first_family: ips.first().copied().map(IpFamily::of),
        pod_cidrs: cidrs(&layers.texts("node.podCIDRs")),
        zone: layers.given("node.zone").map(|z| z.as_str().into()),
    }
}

/// The table has checked them.
fn cidrs(texts: &[String]) -> Vec<IpNet> {
    texts.iter().filter_map(|t| text::cidr(t).ok()).collect()
}

fn unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}
