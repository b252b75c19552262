//! Every field of a `KubeProxyConfiguration` (core spec 7.2): default, a valid value, a wrong one.

use serde_json::json;

use super::*;
use crate::config::table;

struct Field {
    path: &'static str,
    /// Default in a `KubeProxyConfiguration`, as kept.
    default: Value,
    /// A valid value as written, and as kept.
    good: (&'static str, Value),
    /// A wrong value as written, and what is said about it; none where everything of the type is right.
    bad: Option<(&'static str, &'static str)>,
    /// The mode in which the field counts.
    mode: &'static str,
}

fn field(
    path: &'static str,
    default: Value,
    good: (&'static str, Value),
    bad: Option<(&'static str, &'static str)>,
) -> Field {
    let section = path.split('.').next().unwrap_or_default();
    let mode = if ["ipvs", "nftables"].contains(&section) { section } else { "iptables" };
    Field { path, default, good, bad, mode }
}

const TEXT: Option<(&str, &str)> = Some(("5", "expected a text, found the number 5"));
const SWITCH: Option<(&str, &str)> = Some(("'yes'", "expected true or false, found the text \"yes\""));
const NEGATIVE: Option<(&str, &str)> = Some(("-1s", "\"-1s\" is negative"));

#[expect(clippy::too_many_lines, reason = "a table")]
fn fields() -> Vec<Field> {
    let text = |path, default: &str| field(path, default.into(), ("some", "some".into()), TEXT);
    let switch = |path, default: bool| {
        field(path, default.into(), (if default { "false" } else { "true" }, (!default).into()), SWITCH)
    };
    let duration = |path, default: &str| field(path, default.into(), ("90s", "1m30s".into()), NEGATIVE);
    let bit = |path| {
        let bad = Some(("32", "expected a number from 0 to 31, found the number 32"));
        field(path, json!(14), ("31", json!(31)), bad)
    };
    let amount = |path, default: i64| {
        let bad = Some(("-1", "expected a number from 0 up, found the number -1"));
        field(path, default.into(), ("7", json!(7)), bad)
    };
    vec![
        text("clientConnection.kubeconfig", ""),
        text("clientConnection.acceptContentTypes", ""),
        text("clientConnection.contentType", "application/vnd.kubernetes.protobuf"),
        field(
            "clientConnection.qps",
            json!(5),
            ("7.5", json!(7.5)),
            Some(("many", "expected a number, found the text \"many\"")),
        ),
        amount("clientConnection.burst", 10),
        field(
            "logging.format",
            json!("text"),
            ("json", json!("json")),
            Some(("xml", "\"xml\" is not one of text, json")),
        ),
        field(
            "logging.flushFrequency",
            json!("5s"),
            ("1500000000", json!("1.5s")),
            Some(("soon", "\"soon\" is not a duration such as 30s, 1m30s or 500ms")),
        ),
        field(
            "logging.verbosity",
            json!(0),
            ("7", json!(7)),
            Some(("2147483648", "expected a number from 0 up, found the number 2147483648")),
        ),
        field(
            "logging.vmodule",
            json!([]),
            ("[{filePattern: proxier, verbosity: 5}]", json!([{"filePattern": "proxier", "verbosity": 5}])),
            Some((
                "[{filePattern: 'a=b', verbosity: 5}]",
                "filePattern: \"a=b\" is empty, or has = or , in it",
            )),
        ),
        switch("logging.options.text.splitStream", false),
        field(
            "logging.options.text.infoBufferSize",
            json!("0"),
            ("4Mi", json!("4Mi")),
            Some(("large", "\"large\" is not a size such as 4Mi")),
        ),
        switch("logging.options.json.splitStream", false),
        field(
            "logging.options.json.infoBufferSize",
            json!("0"),
            ("100", json!("100")),
            Some(("[]", "expected a size such as 4Mi, found a list")),
        ),
        field("hostnameOverride", json!(""), ("' Node-A '", json!("node-a")), Some(("'  '", "blank"))),
        field(
            "bindAddress",
            json!("0.0.0.0"),
            ("'::'", json!("::")),
            Some(("'[::]'", "\"[::]\" has brackets; give the address alone")),
        ),
        field(
            "healthzBindAddress",
            json!("0.0.0.0:10256"),
            ("1.2.3.4", json!("1.2.3.4:10256")),
            Some((
                "localhost:10256",
                "\"localhost:10256\" is no IP:port such as 127.0.0.1:10256 or [::1]:10256",
            )),
        ),
        field(
            "metricsBindAddress",
            json!("127.0.0.1:10249"),
            ("'[::]:9090'", json!("[::]:9090")),
            Some(("1.2.3.4:0", "\"1.2.3.4:0\" has port \"0\", which is not a number from 1 to 65535")),
        ),
        switch("bindAddressHardFail", false),
        switch("enableProfiling", false),
        field(
            "showHiddenMetricsForVersion",
            json!(""),
            ("'1.35'", json!("1.35")),
            Some(("'1.34'", "\"1.34\" is not 1.35, the only version that has hidden metrics")),
        ),
        field(
            "mode",
            json!("iptables"),
            ("nftables", json!("nftables")),
            Some(("userspace", "\"userspace\" is not one of nftables, iptables, ipvs, auto")),
        ),
        bit("iptables.masqueradeBit"),
        switch("iptables.masqueradeAll", false),
        switch("iptables.localhostNodePorts", true),
        duration("iptables.syncPeriod", "30s"),
        field("iptables.minSyncPeriod", json!("1s"), ("5s", json!("5s")), NEGATIVE),
        duration("ipvs.syncPeriod", "30s"),
        field("ipvs.minSyncPeriod", json!("0s"), ("5s", json!("5s")), NEGATIVE),
        text("ipvs.scheduler", ""),
        field(
            "ipvs.excludeCIDRs",
            Value::Null,
            ("[10.0.0.0/8]", json!(["10.0.0.0/8"])),
            Some(("[10.0.0.0]", "\"10.0.0.0\" has no prefix length, as in 10.0.0.0/8")),
        ),
        switch("ipvs.strictARP", false),
        duration("ipvs.tcpTimeout", "0s"),
        duration("ipvs.tcpFinTimeout", "0s"),
        duration("ipvs.udpTimeout", "0s"),
        bit("nftables.masqueradeBit"),
        switch("nftables.masqueradeAll", false),
        duration("nftables.syncPeriod", "30s"),
        field("nftables.minSyncPeriod", json!("1s"), ("5s", json!("5s")), NEGATIVE),
        text("winkernel.networkName", ""),
        text("winkernel.sourceVip", ""),
        switch("winkernel.enableDSR", false),
        text("winkernel.rootHnsEndpointName", ""),
        switch("winkernel.forwardHealthCheckVip", false),
        field(
            "detectLocalMode",
            json!("ClusterCIDR"),
            ("NodeCIDR", json!("NodeCIDR")),
            Some((
                "PodCIDR",
                "\"PodCIDR\" is not one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix",
            )),
        ),
        text("detectLocal.bridgeInterface", ""),
        text("detectLocal.interfaceNamePrefix", ""),
        field(
            "clusterCIDR",
            json!(""),
            ("'10.0.0.0/8,fd00::/64'", json!("10.0.0.0/8,fd00::/64")),
            Some((
                "10.0.0.0/33",
                "\"10.0.0.0/33\" has prefix length \"33\", which is not a number from 0 to 32",
            )),
        ),
        field(
            "nodePortAddresses",
            json!(["0.0.0.0/0", "::/0"]),
            ("[primary]", json!(["primary"])),
            Some(("[10.0.0.1]", "\"10.0.0.1\" has no prefix length, as in 10.0.0.0/8")),
        ),
        field(
            "oomScoreAdj",
            json!(-999),
            ("1000", json!(1000)),
            Some(("1001", "expected a number from -1000 to 1000, found the number 1001")),
        ),
        amount("conntrack.maxPerCore", 32768),
        amount("conntrack.min", 131_072),
        duration("conntrack.tcpEstablishedTimeout", "24h0m0s"),
        duration("conntrack.tcpCloseWaitTimeout", "1h0m0s"),
        switch("conntrack.tcpBeLiberal", false),
        duration("conntrack.udpTimeout", "0s"),
        duration("conntrack.udpStreamTimeout", "0s"),
        duration("configSyncPeriod", "15m0s"),
        text("portRange", ""),
        switch("windowsRunAsService", false),
    ]
}

/// A file that says one thing more than the mode: `a.b: c` is `a: {b: c}`.
fn body(path: &str, value: &str, mode: &str) -> String {
    let (open, close) = (path.replace('.', ": {"), "}".repeat(path.matches('.').count()));
    let gates = "featureGates: {LoggingAlphaOptions: true}\n";
    let mode = if path == "mode" { String::new() } else { format!("mode: {mode}\n") };
    format!("{mode}{gates}{open}: {value}{close}\n")
}

#[test]
fn every_field_has_its_default() {
    for Field { path, default, mode, .. } in fields() {
        let config = peer(&if path == "mode" { String::new() } else { format!("mode: {mode}\n") });
        assert_eq!(listed(&config, path), default, "{path}");
        let said = config.origin(path).is_some_and(Origin::said);
        assert!(!said, "{path}");
    }
}

#[test]
fn every_field_takes_its_values_and_keeps_where_they_came_from() {
    for Field { path, good: (written, kept), mode, .. } in fields() {
        let config = peer(&body(path, written, mode));
        assert_eq!(listed(&config, path), kept, "{path}");
        assert_eq!(config.origin(path), Some(&Origin::File("peer.yaml".into())), "{path}");
        let own = format!("{HEAD}{}", body(path, written, mode));
        let own = Draft::parse(Some(("own.yaml", &own)), &[], MODES).finish();
        assert_eq!(
            listed(&own.unwrap_or_else(|e| panic!("{path}: {e}")), path),
            kept,
            "{path} of our own kind"
        );
    }
}

/// Cases: core-11.66
#[test]
fn every_field_refuses_other_values_with_its_path() {
    for Field { path, bad, mode, .. } in fields() {
        let Some((written, message)) = bad else { continue };
        for (head, name) in [(PEER_HEAD, "peer"), (HEAD, "own")] {
            let file = format!("{head}{}", body(path, written, mode));
            let said = lines(Draft::parse(Some((name, &file)), &[], MODES).finish());
            assert_eq!(said.len(), 1, "{path}: {said:?}");
            assert!(said[0].starts_with(&format!("{name}: {path}")), "{said:?}");
            assert!(said[0].contains(message), "{path}: {said:?} has no {message}");
        }
    }
    assert_eq!(
        peer_faults("iptables: {minSyncPeriod: 5s, syncPeriod: 1s}\n"),
        ["peer.yaml: iptables.minSyncPeriod: longer than iptables.syncPeriod, which is 1s"]
    );
    for bit in ["32", "-1"] {
        let said = format!(
            "peer.yaml: iptables.masqueradeBit: expected a number from 0 to 31, found the number {bit}"
        );
        assert_eq!(peer_faults(&format!("mode: ipvs\niptables: {{masqueradeBit: {bit}}}\n")), [said]);
    }
}

#[test]
fn every_field_of_the_table_is_here_and_null_is_as_if_it_was_not() {
    let mut here: Vec<&str> = fields().iter().map(|f| f.path).collect();
    let mut there: Vec<&str> = table::settings().filter(|s| s.of_peer).map(|s| s.path).collect();
    here.sort_unstable();
    there.sort_unstable();
    assert_eq!(here, there);
    for Field { path, default, mode, .. } in fields() {
        let config = peer(&body(path, "", mode));
        assert_eq!(listed(&config, path), default, "{path}");
    }
}

#[test]
fn what_has_no_meaning_here_says_why() {
    for (body, why) in [
        ("portRange: '1-2'", "portRange: it has no meaning here: it is about a mode in which"),
        ("winkernel: {enableDSR: true}", "winkernel.enableDSR: it has no meaning here: it is about Windows"),
        ("windowsRunAsService: true", "windowsRunAsService: it has no meaning here: it is about Windows"),
        (
            "logging: {flushFrequency: 1s}",
            "logging.flushFrequency: it has no meaning here: lines are written",
        ),
        (
            "logging: {vmodule: [{filePattern: a, verbosity: 1}]}",
            "logging.vmodule: it has no meaning here: it names",
        ),
        (
            "clientConnection: {contentType: a/b}",
            "clientConnection.contentType: it has no meaning here: objects",
        ),
        ("configSyncPeriod: 1m", "configSyncPeriod: it has no meaning here: objects that did not change"),
    ] {
        let said = warnings(&peer(&format!("nodePortAddresses: [primary]\n{body}\n")));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with(&format!("peer.yaml: {why}")), "{said:?}");
    }
    let quiet = "nodePortAddresses: [primary]\nwinkernel: {enableDSR: false}\nportRange: ''\n";
    assert_eq!(warnings(&peer(quiet)), [""; 0]);
}
