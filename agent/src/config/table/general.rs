//! What concerns the program and its node: mode, source, addresses, periods, connection tracking, traffic.

use super::Change::{Live, Restart};
use super::{Default, Empty, Flag, Setting, always, own, peer, row};
use crate::config::takes::Takes;

/// Modes of local traffic detection (core spec 9.1).
const DETECT_LOCAL_MODES: [&str; 4] = ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"];

const SOURCE: super::Change = Restart("the source is opened once, at the start");

const JSON: &str = "objects are always asked for as JSON";

/// `mode` and the flags that name it.
const MODE_FLAGS: &[Flag] = &[
    peer("proxy-mode", "MODE", "Data plane, as kube-proxy calls it (`mode` in the file)"),
    own("backend", "NAME", "Data plane: one that is built in, or auto (`mode` in the file)").everywhere(),
];

pub(super) const SETTINGS: &[Setting] = &[
    row("mode", Takes::Mode, Default::Mode, Restart("the mode is chosen once, at the start"))
        .peer()
        .empty(Empty::Default)
        .flags(MODE_FLAGS),
    row(
        "auto.order",
        Takes::Modes,
        Default::Modes(&["nftables", "iptables", "ipvs"]),
        Restart("the mode is chosen once, at the start"),
    ),
    row(
        "hostnameOverride",
        Takes::Text,
        Default::Text(""),
        Restart("the node's name is read once, at the start"),
    )
    .peer()
    .flags(&[
        always("hostname-override", "NAME", "This node's name, in place of the host's"),
        own("node", "NAME", "This node's name, in place of the host's"),
    ]),
    row("source.kubernetes.kubeconfig", Takes::Text, Default::Text(""), SOURCE),
    row("source.kubernetes.server", Takes::Server, Default::Text(""), SOURCE).flags(&[always(
        "master",
        "URL",
        "Address of the API server, in place of the kubeconfig's",
    )]),
    row("source.manifests.path", Takes::Text, Default::Text(""), SOURCE).flags(&[own(
        "manifests",
        "DIR",
        "Folder of manifests to read Services, EndpointSlices and Nodes from",
    )]),
    row("source.manifests.poll", Takes::Duration, Default::Text("30s"), SOURCE),
    row("clientConnection.kubeconfig", Takes::Text, Default::Text(""), SOURCE).peer().flags(&[peer(
        "kubeconfig",
        "FILE",
        "Kubeconfig: read Services, EndpointSlices and this Node from its API server",
    )]),
    row("clientConnection.acceptContentTypes", Takes::Text, Default::Text(""), Live).peer().idle(JSON),
    row(
        "clientConnection.contentType",
        Takes::Text,
        Default::Text("application/vnd.kubernetes.protobuf"),
        Live,
    )
    .peer()
    .empty(Empty::Default)
    .idle(JSON)
    .flags(&[peer(
        "kube-api-content-type",
        "TYPE",
        "Content type of requests to the API server; without meaning",
    )]),
    row("clientConnection.qps", Takes::Number, Default::Int(5), SOURCE)
        .peer()
        .empty(Empty::Default)
        .flags(&[peer("kube-api-qps", "N", "Requests to the API server a second; below 0 for any number")]),
    row("clientConnection.burst", Takes::Int(0, i32::MAX as i64), Default::Int(10), SOURCE)
        .peer()
        .empty(Empty::Default)
        .flags(&[peer("kube-api-burst", "N", "Requests to the API server at once")]),
    row(
        "bindAddress",
        Takes::Address,
        Default::Text("0.0.0.0"),
        Restart("it decides which family comes first"),
    )
    .peer()
    .empty(Empty::Default)
    .flags(&[peer("bind-address", "IP", "This node's own address, in place of the Node object's first")
        .empty_is_absent()]),
    row("healthzBindAddress", Takes::Listen(10256), Default::Text("0.0.0.0:10256"), Live)
        .peer()
        .empty(Empty::DefaultInPeerFile)
        .flags(&[peer("healthz-bind-address", "IP:PORT", "Address of the health server").empty_is_absent()]),
    row("metricsBindAddress", Takes::Listen(10249), Default::Text("127.0.0.1:10249"), Live)
        .peer()
        .empty(Empty::DefaultInPeerFile)
        .flags(&[peer("metrics-bind-address", "IP:PORT", "Address of the metrics server; empty for none")]),
    row("bindAddressHardFail", Takes::Bool, Default::Bool(false), Restart("it is about the start"))
        .peer()
        .flags(&[peer(
            "bind-address-hard-fail",
            "",
            "End when the health or metrics server cannot be opened",
        )]),
    row("enableProfiling", Takes::Bool, Default::Bool(false), Live).peer().flags(&[peer(
        "profiling",
        "",
        "Profiles on the metrics server",
    )]),
    row(
        "showHiddenMetricsForVersion",
        Takes::PreviousMinor,
        Default::Text(""),
        Restart("which metrics there are is decided at the start"),
    )
    .peer()
    .flags(&[peer(
        "show-hidden-metrics-for-version",
        "MINOR",
        "Show metrics that were hidden in this version",
    )]),
    row("admin.socket", Takes::Text, Default::Text("/run/proxier/admin.sock"), Live).flags(&[own(
        "admin-socket",
        "PATH",
        "Unix socket of the admin API; empty for none",
    )]),
    row("oomScoreAdj", Takes::Int(-1000, 1000), Default::Int(-999), Live).peer().flags(&[peer(
        "oom-score-adj",
        "N",
        "Own OOM score, -1000 to 1000",
    )]),
    row("configSyncPeriod", Takes::Duration, Default::Text("15m0s"), Live)
        .peer()
        .empty(Empty::DefaultInPeerFile)
        .idle("objects that did not change are never delivered again")
        .flags(&[peer(
            "config-sync-period",
            "DURATION",
            "How often objects are delivered again; without meaning",
        )]),
    row("syncPeriod", Takes::Duration, Default::Unset, Live),
    row("minSyncPeriod", Takes::Duration, Default::Unset, Live),
    row("verifyPeriod", Takes::Duration, Default::Text("1m0s"), Live),
    row("conntrack.maxPerCore", Takes::Int(0, i32::MAX as i64), Default::Int(32768), Live).peer().flags(&[
        peer(
            "conntrack-max-per-core",
            "N",
            "Connections to track for each CPU core; 0 leaves the kernel's limit",
        ),
    ]),
    row("conntrack.min", Takes::Int(0, i32::MAX as i64), Default::Int(131_072), Live).peer().flags(&[peer(
        "conntrack-min",
        "N",
        "Connections to track at least, however many cores there are",
    )]),
    row("conntrack.tcpEstablishedTimeout", Takes::Duration, Default::Text("24h0m0s"), Live).peer().flags(&[
        peer(
            "conntrack-tcp-timeout-established",
            "DURATION",
            "How long idle TCP connections are tracked; 0 leaves the kernel's setting",
        ),
    ]),
    row("conntrack.tcpCloseWaitTimeout", Takes::Duration, Default::Text("1h0m0s"), Live).peer().flags(&[
        peer("conntrack-tcp-timeout-close-wait", "DURATION", "The same for connections in CLOSE_WAIT"),
    ]),
    row("conntrack.tcpBeLiberal", Takes::Bool, Default::Bool(false), Live).peer().flags(&[peer(
        "conntrack-tcp-be-liberal",
        "",
        "Track TCP packets outside of the window as well",
    )]),
    row("conntrack.udpTimeout", Takes::Duration, Default::Text("0s"), Live).peer().flags(&[peer(
        "conntrack-udp-timeout",
        "DURATION",
        "How long idle UDP flows without an answer are tracked; 0 leaves the kernel's setting",
    )]),
    row("conntrack.udpStreamTimeout", Takes::Duration, Default::Text("0s"), Live).peer().flags(&[peer(
        "conntrack-udp-timeout-stream",
        "DURATION",
        "The same for UDP flows with answers",
    )]),
];

pub(super) const NODE: &[Setting] = &[
    row("clusterCIDR", Takes::Text, Default::Text(""), Live).peer().flags(&[peer(
        "cluster-cidr",
        "CIDR",
        "Pod ranges of the cluster, one of each family at most, separated by a comma",
    )]),
    row("detectLocalMode", Takes::OneOf(&DETECT_LOCAL_MODES), Default::Text("ClusterCIDR"), Live)
        .peer()
        .empty(Empty::Default)
        .flags(&[peer("detect-local-mode", "MODE", "How traffic of pods is recognised")]),
    row("detectLocal.bridgeInterface", Takes::Text, Default::Text(""), Live).peer().flags(&[peer(
        "pod-bridge-interface",
        "NAME",
        "The bridge of mode BridgeInterface",
    )]),
    row("detectLocal.interfaceNamePrefix", Takes::Text, Default::Text(""), Live).peer().flags(&[peer(
        "pod-interface-name-prefix",
        "PREFIX",
        "The prefix of mode InterfaceNamePrefix",
    )]),
    row("nodePortAddresses", Takes::NodePortAddresses, Default::Unset, Live)
        .peer()
        .empty(Empty::Default)
        .flags(&[peer("nodeport-addresses", "CIDR,...", "Where node ports answer: ranges, or primary")]),
    row("serviceCIDRs", Takes::Cidrs, Default::List(&[]), Live),
    // What a node cannot do without: the API server and the cluster's DNS, under the name that Kubernetes gives it.
    row(
        "firstServices",
        Takes::Services,
        Default::List(&["default/kubernetes", "kube-system/kube-dns"]),
        Live,
    ),
    row("node.ips", Takes::Ips, Default::List(&[]), Live),
    row("node.podCIDRs", Takes::Cidrs, Default::List(&[]), Live),
    row("node.zone", Takes::Text, Default::Text(""), Live),
];
