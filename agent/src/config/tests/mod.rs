use std::path::PathBuf;
use std::time::Duration;

mod fields;
mod flags;
mod output;
mod peer;
mod start;

use proxier_core::cluster::{DetectLocal, NodePortSelector, TrafficOptions};
use proxier_core::ids::ServiceName;
use proxier_core::model::NodeFacts;

use super::*;
use crate::telemetry::LogFormat;

const BACKENDS: &[Section] = &[
    Section { name: "nftables", keys: &["layout", "masqueradeAll"] },
    Section { name: "fake", keys: &["anything", "a"] },
];
const HEAD: &str = "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\n";

/// Three backends with the names and keys of those that are built in.
const MODES: &[Section] = &[
    Section { name: "nftables", keys: &["table", "masqueradeBit", "masqueradeAll"] },
    Section { name: "iptables", keys: &["masqueradeBit", "masqueradeAll", "localhostNodePorts", "variant"] },
    Section {
        name: "ipvs",
        keys: &[
            "scheduler",
            "excludeCIDRs",
            "strictARP",
            "tcpTimeout",
            "tcpFinTimeout",
            "udpTimeout",
            "drainTimeout",
            "masqueradeBit",
            "masqueradeAll",
        ],
    },
];
const PEER_HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/// A `KubeProxyConfiguration` with these flags.
fn peer_draft(body: &str, flags: &[FlagValue]) -> Draft<'static> {
    Draft::parse(Some(("peer.yaml", &format!("{PEER_HEAD}{body}"))), flags, MODES)
}

fn peer_with(body: &str, flags: &[FlagValue]) -> Config {
    peer_draft(body, flags).finish().unwrap_or_else(|e| panic!("{body}: {e}"))
}

fn peer(body: &str) -> Config {
    peer_with(body, &[])
}

/// A configuration without a file.
fn only_flags(flags: &[(&'static str, &str)]) -> Result<Config, ConfigErrors> {
    let flags: Vec<FlagValue> = flags.iter().map(|(name, value)| FlagValue::new(name, *value)).collect();
    Draft::parse(None, &flags, MODES).finish()
}

fn lines(result: Result<Config, ConfigErrors>) -> Vec<String> {
    let Err(ConfigErrors::Invalid(errors)) = result else { panic!("accepted") };
    errors.iter().map(ToString::to_string).collect()
}

fn peer_faults(body: &str) -> Vec<String> {
    lines(peer_draft(body, &[]).finish())
}

fn warnings(config: &Config) -> Vec<String> {
    config.warnings().iter().map(ToString::to_string).collect()
}

/// The value of a setting as it is listed.
fn listed(config: &Config, path: &str) -> Value {
    let line = config.listing.iter().find(|l| l.path == path);
    line.unwrap_or_else(|| panic!("no {path}")).effective.value.clone()
}

fn parse(body: &str, flags: &[FlagValue]) -> Result<Config, ConfigErrors> {
    draft(body, flags).finish()
}

fn draft(body: &str, flags: &[FlagValue]) -> Draft<'static> {
    Draft::parse(Some(("config.yaml", &format!("{HEAD}{body}"))), flags, BACKENDS)
}

fn good(body: &str) -> Config {
    parse(body, &[]).unwrap_or_else(|e| panic!("{e}"))
}

fn faults(body: &str) -> Vec<String> {
    let Err(ConfigErrors::Invalid(errors)) = parse(body, &[]) else { panic!("accepted: {body}") };
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults() {
    let config = Draft::parse(None, &[], BACKENDS).finish().expect("no file is fine");
    assert_eq!(config.mode, "nftables");
    assert_eq!(config.source, None);
    assert_eq!(config.hostname_override, None);
    assert_eq!(config.node_name(" Host-A ").expect("named").as_str(), "host-a");
    assert_eq!(config.node_name(" "), None);
    assert_eq!(
        config.periods,
        Periods {
            sync: Duration::from_secs(30),
            min_sync: Duration::ZERO,
            verify: Some(Duration::from_secs(60)),
        }
    );
    let first = [("default", "kubernetes"), ("kube-system", "kube-dns")];
    let expected = TrafficOptions {
        node_port_addresses: NodePortSelector::Primary,
        first_services: first.map(|(namespace, name)| ServiceName::new(namespace, name)).into(),
        ..TrafficOptions::default()
    };
    assert_eq!(config.traffic_options(), expected);
}

#[test]
fn a_full_file() {
    let config = good(
        "mode: fake
hostnameOverride: ' Node-A '
source: {manifests: {path: m, poll: 0}}
clusterCIDR: 10.244.1.7/16,,fd00:10::/56
nodePortAddresses: [192.168.0.0/24]
serviceCIDRs: [10.96.0.0/12]
firstServices: [infra/registry, default/kubernetes]
node: {ips: [10.0.0.1, 10.0.0.2, 'fd00::1'], podCIDRs: [10.244.1.0/24], zone: a}
logging: {format: json, level: 'info,agent=debug'}
syncPeriod: 1m30s
minSyncPeriod: 500ms
verifyPeriod: 0
featureGates: {AllowServiceExternalIPs: false}
nftables:
",
    );
    assert_eq!(config.node_name("ignored").expect("named").as_str(), "node-a");
    let manifests = ManifestsConfig { path: "m".into(), poll: None };
    assert_eq!(config.source, Some(SourceConfig::Manifests(manifests)));
    let nets = |list: &[&str]| list.iter().map(|t| t.parse().expect("range")).collect::<Vec<IpNet>>();
    assert_eq!(config.detect_local, DetectLocal::ClusterCidr(nets(&["10.244.0.0/16", "fd00:10::/56"])));
    assert_eq!(config.logging, Logging { format: LogFormat::Json, level: "info,agent=debug".into() });
    assert_eq!(config.periods.verify, None);
    assert_eq!(config.periods.min_sync, Duration::from_millis(500));
    let options = config.traffic_options();
    assert!(!options.external_ips && options.node_hints);
    assert_eq!(options.node_port_addresses, NodePortSelector::Cidrs(nets(&["192.168.0.0/24"])));
    assert_eq!(options.service_cidrs, nets(&["10.96.0.0/12"]));
    let first = [("infra", "registry"), ("default", "kubernetes")];
    assert_eq!(*options.first_services, first.map(|(namespace, name)| ServiceName::new(namespace, name)));
}

#[test]
fn a_service_that_is_needed_first_has_a_namespace_and_a_name() {
    assert_eq!(good("firstServices: []\n").first_services, []);
    let faults = faults("firstServices: [default/kubernetes, dns, a/b/c, /x, 'a/ b']\n");
    let named: Vec<_> = faults.iter().filter(|f| f.contains("is no namespace/name")).collect();
    assert_eq!(named.len(), 4, "{faults:?}");
    assert!(named[0].contains("firstServices[1]") && named[0].contains("\"dns\""), "{faults:?}");
}

#[test]
fn node_overrides_win_over_the_object() {
    let config = good("node: {ips: ['fd00::1', 'fd00::2'], zone: b}\n");
    let mut facts = NodeFacts { zone: Some("a".into()), ..NodeFacts::default() };
    facts.ips.ipv4 = Some("10.0.0.9".parse().expect("address"));
    facts.pod_cidrs = vec!["10.1.0.0/24".parse().expect("range")];
    let before = facts.clone();
    NodeOverrides::default().apply(&mut facts);
    assert_eq!(facts, before);
    config.node.apply(&mut facts);
    assert_eq!(facts.zone.as_deref(), Some("b"));
    assert_eq!(facts.ips.ipv4, before.ips.ipv4);
    assert_eq!(facts.ips.ipv6, Some("fd00::1".parse().expect("address")));
    assert_eq!(facts.pod_cidrs, before.pod_cidrs);
}

#[test]
fn json_file() {
    let text = "{\n\t\"apiVersion\": \"proxier.io/v1alpha1\",\n\t\"kind\": \"ProxierConfiguration\",\n\t\"mode\": \"fake\"\n}\n";
    assert_eq!(Draft::parse(Some(("c.json", text)), &[], BACKENDS).finish().expect("json").mode, "fake");
}

#[test]
fn unknown_keys_name_their_path_and_the_nearest_known_one() {
    assert_eq!(
        faults(
            "detectLocal: {bridgeInterfce: br0}
syncperiod: 3s
bridgeInterface: br0
zzz: 1
nftable: {}
conntracks: {min: 1}
masqueradeAll: true
nftables: {layuot: maps, whatever: 1, syncperiod: 1s}
"
        ),
        [
            "config.yaml: bridgeInterface: unknown key; did you mean detectLocal.bridgeInterface?",
            "config.yaml: conntracks: unknown key; did you mean conntrack?",
            "config.yaml: detectLocal.bridgeInterfce: unknown key; did you mean bridgeInterface?",
            "config.yaml: masqueradeAll: unknown key; did you mean iptables.masqueradeAll?",
            "config.yaml: nftable: unknown key; did you mean nftables?",
            "config.yaml: nftables.layuot: unknown key; did you mean layout?",
            "config.yaml: nftables.syncperiod: unknown key; did you mean syncPeriod?",
            "config.yaml: nftables.whatever: unknown key",
            "config.yaml: syncperiod: unknown key; did you mean syncPeriod?",
            "config.yaml: zzz: unknown key",
        ]
    );
}

#[test]
fn wrong_types_name_the_path_and_what_was_expected() {
    assert_eq!(
        faults(
            "mode: 3
source: folder
clusterCIDR: [10.0.0.0/8]
nodePortAddresses: 10.0.0.0/8
serviceCIDRs: [10.0.0.0/8, 7, nonsense]
syncPeriod: 30
verifyPeriod: [1s]
featureGates: {AllowServiceExternalIPs: 'yes please'}
fake: []
"
        ),
        [
            "config.yaml: clusterCIDR: expected a text, found a list",
            "config.yaml: fake: expected a mapping, found a list",
            "config.yaml: featureGates.AllowServiceExternalIPs: expected true or false, found the text \"yes please\"",
            "config.yaml: mode: expected a text, found the number 3",
            "config.yaml: nodePortAddresses: expected a list of CIDRs, or [primary], found the text \"10.0.0.0/8\"",
            "config.yaml: serviceCIDRs[1]: expected a text, found the number 7",
            &format!("config.yaml: serviceCIDRs[2]: {}", text::cidr("nonsense").expect_err("no range")),
            "config.yaml: source: expected a mapping, found the text \"folder\"",
            "config.yaml: syncPeriod: 30 has no unit, such as 30s",
            "config.yaml: verifyPeriod: expected a duration such as 30s, found a list",
        ]
    );
}

#[test]
fn all_faults_come_at_once() {
    let found = faults(
        "mode: nftabels
mode: nftabels
hostnameOverride: '  '
detectLocalMode: BridgeInterface
nodePortAddresses: [primary, 10.0.0.0/8]
logging: {format: txt, level: loud}
syncPeriod: 0s
minSyncPeriod: -1s
featureGates: {AllowServiceExternalIP: true}
",
    );
    assert_eq!(
        found,
        [
            "config.yaml: mode: given more than once",
            "config.yaml: featureGates.AllowServiceExternalIP: unknown gate; did you mean AllowServiceExternalIPs?",
            "config.yaml: logging.format: \"txt\" is not one of text, json; did you mean text?",
            "config.yaml: logging.level: \"loud\" is not a log filter: \"loud\" is not a level",
            "config.yaml: minSyncPeriod: \"-1s\" is negative",
            "config.yaml: mode: \"nftabels\" is not one of nftables, fake, auto; did you mean nftables?",
            "config.yaml: nodePortAddresses[0]: primary stands alone: [primary]",
            "config.yaml: hostnameOverride: blank",
            "default: detectLocal.bridgeInterface: needed when detectLocalMode is BridgeInterface",
            "config.yaml: syncPeriod: must be longer than 0",
        ]
    );
}

#[test]
fn names_of_interfaces_are_such() {
    for (name, why) in [
        ("abcdefghijklmnop", "longer than 15 bytes"),
        ("a\\\"b", "it has white space, a quote or one of / : \\ in it, or is not ASCII"),
        ("veth ", "it has white space, a quote or one of / : \\ in it, or is not ASCII"),
        ("veth+", "it ends like a pattern"),
        ("cali*", "it ends like a pattern"),
        ("..", "the kernel does not take it"),
    ] {
        let text = name.replace('\\', "\\\\").replace('"', "\\\"");
        for (mode, key) in
            [("BridgeInterface", "bridgeInterface"), ("InterfaceNamePrefix", "interfaceNamePrefix")]
        {
            let said = format!(
                "config.yaml: detectLocal.{key}: {name:?} is no name of an interface that rules can carry: {why}"
            );
            assert_eq!(
                faults(&format!("detectLocalMode: {mode}\ndetectLocal: {{{key}: \"{text}\"}}\n")),
                [said]
            );
        }
    }
}

#[test]
fn a_refused_value_is_not_refused_twice() {
    assert_eq!(
        faults("detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: 5}\n"),
        ["config.yaml: detectLocal.interfaceNamePrefix: expected a text, found the number 5"]
    );
}

#[test]
fn version_and_kind_are_needed() {
    let Err(errors) =
        Draft::parse(Some(("c.yaml", "kind: Configuration\napiVersion: v1\n")), &[], BACKENDS).finish()
    else {
        panic!("accepted")
    };
    assert_eq!(
        errors.to_string(),
        "c.yaml: kind: \"Configuration\" is not one of ProxierConfiguration, KubeProxyConfiguration"
    );
    for (text, want) in [("", "c.yaml: kind: missing"), ("- a\n", "c.yaml: expected a mapping, found a list")]
    {
        let error =
            Draft::parse(Some(("c.yaml", text)), &[], BACKENDS).finish().expect_err("refused").to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

#[test]
fn cluster_cidr_is_one_of_each_family() {
    assert_eq!(
        faults("clusterCIDR: 10.0.0.0/8,11.0.0.0/8\n"),
        ["config.yaml: clusterCIDR: more than one range of one family"]
    );
    good("clusterCIDR: 10.0.0.0/8,fd00::/8\n");
    assert_eq!(
        good("clusterCIDR: 10.0.0.0/8,11.0.0.0/8\ndetectLocalMode: NodeCIDR\n").detect_local,
        DetectLocal::NodeCidr
    );
    assert_eq!(faults("clusterCIDR: '10.0.0.0/8, fd00::/8'\n").len(), 1, "no spaces");
}

#[test]
fn the_api_is_a_source_by_its_file_its_address_or_both() {
    let source = |body: &str| match good(body).source {
        Some(SourceConfig::Kubernetes(k)) => (k.kubeconfig, k.server),
        other => panic!("{other:?}"),
    };
    let (file, server) = (Some(PathBuf::from("/k")), Some("https://10.0.0.1:6443".to_owned()));
    assert_eq!(source("source: {kubernetes: {kubeconfig: /k}}\n"), (file.clone(), None));
    assert_eq!(source("source: {kubernetes: {server: 'https://10.0.0.1:6443'}}\n"), (None, server.clone()));
    assert_eq!(
        source("source: {kubernetes: {kubeconfig: /k, server: 'https://10.0.0.1:6443'}}\n"),
        (file, server)
    );
    assert_eq!(good("source: {kubernetes: {}}\n").source, None);
}

#[test]
fn there_is_one_source() {
    assert_eq!(
        faults("source: {kubernetes: {kubeconfig: /k}, manifests: {path: m}}\n"),
        [
            "config.yaml: source.kubernetes.kubeconfig: source.manifests.path is given as well; name one source"
        ]
    );
    let flags = [FlagValue::new("manifests", "m")];
    let error = parse("source: {kubernetes: {server: 'http://a'}}\n", &flags).expect_err("two").to_string();
    assert!(error.starts_with("config.yaml: source.kubernetes.server: source.manifests.path"), "{error}");
}

#[test]
fn an_address_is_a_url() {
    for bad in ["10.0.0.1:6443", "ftp://a", "https://", "https://a?b=c", "https://a b"] {
        let found = faults(&format!("source: {{kubernetes: {{server: '{bad}'}}}}\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("config.yaml: source.kubernetes.server: \""), "{found:?}");
    }
}

#[test]
fn local_modes_need_their_names() {
    let bridge = good("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: br0}\n");
    assert_eq!(bridge.detect_local, DetectLocal::BridgeInterface("br0".into()));
    let prefix = good("detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}\n");
    assert_eq!(prefix.detect_local, DetectLocal::InterfaceNamePrefix("veth".into()));
}

#[test]
fn periods_fit_together() {
    assert_eq!(
        faults("syncPeriod: 1s\nminSyncPeriod: 2s\n"),
        ["config.yaml: minSyncPeriod: longer than syncPeriod, which is 1s"]
    );
    assert_eq!(
        faults("syncPeriod: 2h\nminSyncPeriod: 61m\n"),
        ["config.yaml: minSyncPeriod: longer than an hour"]
    );
}

#[test]
fn an_empty_list_of_node_port_addresses_means_primary() {
    assert_eq!(good("nodePortAddresses: []\n").node_port_addresses, NodePortSelector::Primary);
    assert_eq!(good("nodePortAddresses: [primary]\n").node_port_addresses, NodePortSelector::Primary);
}

#[test]
fn flags_win_and_origins_are_kept() {
    let flags = [FlagValue::new("backend", "fake"), FlagValue::new("node", "n1")];
    let mut draft = draft("mode: nftables\nclusterCIDR: 10.0.0.0/8\nfake: {a: 1}\n", &flags);
    draft.list("fake", vec![("anything", "b".into()), ("a", 1.into())]);
    let config = draft.finish().expect("good");
    assert_eq!(config.mode, "fake");
    assert_eq!(config.origin("mode"), Some(&Origin::Flag("--backend".into())));
    assert_eq!(config.origin("kubeconfig"), None);
    let text = config.describe();
    for line in [
        "mode: \"fake\"  # from flag --backend\n",
        "clusterCIDR: \"10.0.0.0/8\"  # from config.yaml\n",
        "syncPeriod: \"30s\"  # from iptables.syncPeriod\n",
        "nodePortAddresses: [\"primary\"]  # from default\n",
        "fake.anything: \"b\"  # from default\n",
        "fake.a: 1  # from config.yaml\n",
    ] {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
}

#[test]
fn a_wrong_flag_is_named() {
    let error = parse("", &[FlagValue::new("cluster-cidr", "10.0.0.0")]).expect_err("refused").to_string();
    assert!(error.starts_with("flag --cluster-cidr: clusterCIDR: "), "{error}");
}

#[test]
fn a_program_without_backends_says_so() {
    let error = Draft::parse(None, &[], &[]).finish().expect_err("refused").to_string();
    assert_eq!(error, "default: mode: this program was built without any backend");
}

#[test]
fn an_unreadable_file_is_named() {
    let error =
        Draft::load(Some(Path::new("/nonexistent/c.yaml")), &[], BACKENDS).expect_err("missing").to_string();
    assert!(error.starts_with("/nonexistent/c.yaml: "), "{error}");
}

#[test]
fn sections_are_read_by_their_backends_and_refused_with_the_rest() {
    let mut draft =
        draft("syncPeriod: 0s\nzzz: 1\nfake: {anything: [goes, {here: 1}], a: , zz: 2}\nnftables:\n", &[]);
    let section = draft.section("fake");
    assert_eq!(section["anything"][1]["here"], 1);
    assert_eq!(section.len(), 1, "only known keys, and only those with a value");
    assert_eq!(draft.section("nftables").len(), 0);
    draft.refuse("fake", "anything", "not that".into());
    draft.refuse("nftables", "layout", "nobody said it".into());
    assert_eq!(
        draft.finish().expect_err("refused").to_string(),
        "config.yaml: fake.zz: unknown key
config.yaml: zzz: unknown key
config.yaml: fake.anything: not that
default: nftables.layout: nobody said it
config.yaml: syncPeriod: must be longer than 0"
    );
}
