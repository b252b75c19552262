//! What `KubeProxyConfiguration` has a section for: its modes, and Windows. What backends know besides, they say themselves.

use super::Change::{Instances, Live};
use super::{Default, Empty, Flag, Modes, Setting, peer, row};
use crate::config::takes::Takes;

const BIT: Takes = Takes::Int(0, 31);

const MASQUERADE_ALL: &[Flag] = &[peer("masquerade-all", "", "Masquerade all traffic to cluster IPs")];
const SYNC: &[Flag] = &[peer(
    "iptables-sync-period",
    "DURATION",
    "The longest delay between attempts after failures, in modes other than ipvs",
)];
const MIN_SYNC: &[Flag] = &[peer(
    "iptables-min-sync-period",
    "DURATION",
    "The least time from one sync to the next, in modes other than ipvs; 0 for none",
)];

const fn period(path: &'static str, default: Default, modes: Modes, flags: &'static [Flag]) -> Setting {
    row(path, Takes::Duration, default, Live).peer().empty(Empty::DefaultInPeerFile).modes(modes).flags(flags)
}

const fn ipvs(path: &'static str, takes: Takes, default: Default, flags: &'static [Flag]) -> Setting {
    row(path, takes, default, Instances).peer().modes(Modes::Only("ipvs")).flags(flags)
}

pub(super) const SETTINGS: &[Setting] = &[
    row("iptables.masqueradeBit", BIT, Default::Int(14), Instances).peer().flags(&[peer(
        "iptables-masquerade-bit",
        "N",
        "Bit of the packet mark that asks for masquerading, in modes other than nftables",
    )]),
    row("iptables.masqueradeAll", Takes::Bool, Default::Bool(false), Live).peer().flags(MASQUERADE_ALL),
    row("iptables.localhostNodePorts", Takes::Bool, Default::Bool(true), Live).peer().flags(&[peer(
        "iptables-localhost-nodeports",
        "",
        "Node ports answer on IPv4 loopback as well, in mode iptables",
    )]),
    period("iptables.syncPeriod", Default::Text("30s"), Modes::NeitherIpvsNorNftables, SYNC),
    period("iptables.minSyncPeriod", Default::ByKind("1s", "0s"), Modes::NeitherIpvsNorNftables, MIN_SYNC),
    period(
        "ipvs.syncPeriod",
        Default::Text("30s"),
        Modes::Only("ipvs"),
        &[peer(
            "ipvs-sync-period",
            "DURATION",
            "The longest delay between attempts after failures, in mode ipvs",
        )],
    ),
    period(
        "ipvs.minSyncPeriod",
        Default::Text("0s"),
        Modes::Only("ipvs"),
        &[peer(
            "ipvs-min-sync-period",
            "DURATION",
            "The least time from one sync to the next, in mode ipvs; 0 for none",
        )],
    ),
    ipvs(
        "ipvs.scheduler",
        Takes::Text,
        Default::Text(""),
        &[peer("ipvs-scheduler", "NAME", "How virtual servers choose; empty for rr")],
    ),
    ipvs(
        "ipvs.excludeCIDRs",
        Takes::Cidrs,
        Default::Unset,
        &[peer("ipvs-exclude-cidrs", "CIDR,...", "Virtual servers at these addresses are left alone")],
    )
    .empty(Empty::Default),
    ipvs(
        "ipvs.strictARP",
        Takes::Bool,
        Default::Bool(false),
        &[peer("ipvs-strict-arp", "", "Answer ARP for addresses of virtual servers on no other interface")],
    ),
    ipvs(
        "ipvs.tcpTimeout",
        Takes::Seconds,
        Default::Text("0s"),
        &[peer(
            "ipvs-tcp-timeout",
            "DURATION",
            "How long idle TCP connections are known; 0 leaves the kernel's setting",
        )],
    ),
    ipvs(
        "ipvs.tcpFinTimeout",
        Takes::Seconds,
        Default::Text("0s"),
        &[peer("ipvs-tcpfin-timeout", "DURATION", "The same after a FIN")],
    ),
    ipvs(
        "ipvs.udpTimeout",
        Takes::Seconds,
        Default::Text("0s"),
        &[peer("ipvs-udp-timeout", "DURATION", "The same for UDP")],
    ),
    row("nftables.masqueradeBit", BIT, Default::Int(14), Instances).peer().modes(Modes::Only("nftables")),
    row("nftables.masqueradeAll", Takes::Bool, Default::Bool(false), Live).peer().flags(MASQUERADE_ALL),
    period("nftables.syncPeriod", Default::Text("30s"), Modes::Only("nftables"), SYNC),
    period("nftables.minSyncPeriod", Default::ByKind("1s", "0s"), Modes::Only("nftables"), MIN_SYNC),
];

const WINDOWS: &str = "it is about Windows, and this program is for Linux";

const fn windows(path: &'static str, takes: Takes, default: Default) -> Setting {
    row(path, takes, default, Live).peer().idle(WINDOWS)
}

pub(super) const IDLE: &[Setting] = &[
    windows("winkernel.networkName", Takes::Text, Default::Text("")),
    windows("winkernel.sourceVip", Takes::Text, Default::Text("")),
    windows("winkernel.enableDSR", Takes::Bool, Default::Bool(false)),
    windows("winkernel.rootHnsEndpointName", Takes::Text, Default::Text("")),
    windows("winkernel.forwardHealthCheckVip", Takes::Bool, Default::Bool(false)),
    row("portRange", Takes::Text, Default::Text(""), Live)
        .peer()
        .idle("it is about a mode in which the proxy opened ports itself, and which is gone"),
    windows("windowsRunAsService", Takes::Bool, Default::Bool(false)).omitted(),
];
