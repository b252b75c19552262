//! Every flag of kube-proxy's (core spec 7.4) and what counts beside a file.

use serde_json::json;

use super::*;

fn flags() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    vec![
        ("kubeconfig", "k", "clientConnection.kubeconfig", json!("k")),
        ("kube-api-content-type", "a/b", "clientConnection.contentType", json!("a/b")),
        ("kube-api-burst", "30", "clientConnection.burst", json!(30)),
        ("kube-api-qps", "20.5", "clientConnection.qps", json!(20.5)),
        ("hostname-override", "N", "hostnameOverride", json!("n")),
        ("master", "http://a", "source.kubernetes.server", json!("http://a")),
        ("bind-address", "fd00::1", "bindAddress", json!("fd00::1")),
        ("healthz-bind-address", "1.2.3.4", "healthzBindAddress", json!("1.2.3.4:10256")),
        ("metrics-bind-address", "[::]:1", "metricsBindAddress", json!("[::]:1")),
        ("bind-address-hard-fail", "true", "bindAddressHardFail", json!(true)),
        ("profiling", "1", "enableProfiling", json!(true)),
        ("show-hidden-metrics-for-version", "1.35", "showHiddenMetricsForVersion", json!("1.35")),
        ("proxy-mode", "ipvs", "mode", json!("ipvs")),
        ("iptables-masquerade-bit", "3", "iptables.masqueradeBit", json!(3)),
        ("iptables-localhost-nodeports", "false", "iptables.localhostNodePorts", json!(false)),
        ("masquerade-all", "true", "iptables.masqueradeAll", json!(true)),
        ("masquerade-all", "t", "nftables.masqueradeAll", json!(true)),
        ("iptables-sync-period", "1m", "iptables.syncPeriod", json!("1m0s")),
        ("iptables-sync-period", "1m", "nftables.syncPeriod", json!("1m0s")),
        ("iptables-min-sync-period", "2s", "iptables.minSyncPeriod", json!("2s")),
        ("iptables-min-sync-period", "2s", "nftables.minSyncPeriod", json!("2s")),
        ("ipvs-sync-period", "1m", "ipvs.syncPeriod", json!("1m0s")),
        ("ipvs-min-sync-period", "2s", "ipvs.minSyncPeriod", json!("2s")),
        ("ipvs-scheduler", "lc", "ipvs.scheduler", json!("lc")),
        ("ipvs-exclude-cidrs", "10.0.0.0/8,fd00::/8", "ipvs.excludeCIDRs", json!(["10.0.0.0/8", "fd00::/8"])),
        ("ipvs-strict-arp", "true", "ipvs.strictARP", json!(true)),
        ("ipvs-tcp-timeout", "1m", "ipvs.tcpTimeout", json!("1m0s")),
        ("ipvs-tcpfin-timeout", "1m", "ipvs.tcpFinTimeout", json!("1m0s")),
        ("ipvs-udp-timeout", "1m", "ipvs.udpTimeout", json!("1m0s")),
        ("detect-local-mode", "NodeCIDR", "detectLocalMode", json!("NodeCIDR")),
        ("pod-bridge-interface", "br0", "detectLocal.bridgeInterface", json!("br0")),
        ("pod-interface-name-prefix", "veth", "detectLocal.interfaceNamePrefix", json!("veth")),
        ("cluster-cidr", "10.0.0.0/8", "clusterCIDR", json!("10.0.0.0/8")),
        ("nodeport-addresses", "primary", "nodePortAddresses", json!(["primary"])),
        ("oom-score-adj", "-5", "oomScoreAdj", json!(-5)),
        ("config-sync-period", "1m", "configSyncPeriod", json!("1m0s")),
        ("conntrack-max-per-core", "0", "conntrack.maxPerCore", json!(0)),
        ("conntrack-min", "0", "conntrack.min", json!(0)),
        ("conntrack-tcp-timeout-established", "0", "conntrack.tcpEstablishedTimeout", json!("0s")),
        ("conntrack-tcp-timeout-close-wait", "0s", "conntrack.tcpCloseWaitTimeout", json!("0s")),
        ("conntrack-tcp-be-liberal", "true", "conntrack.tcpBeLiberal", json!(true)),
        ("conntrack-udp-timeout", "1m", "conntrack.udpTimeout", json!("1m0s")),
        ("conntrack-udp-timeout-stream", "1m", "conntrack.udpStreamTimeout", json!("1m0s")),
        ("v", "5", "logging.verbosity", json!(5)),
        (
            "vmodule",
            "a=1,b=2",
            "logging.vmodule",
            json!([{"filePattern": "a", "verbosity": 1}, {"filePattern": "b", "verbosity": 2}]),
        ),
        ("logging-format", "json", "logging.format", json!("json")),
        ("log-flush-frequency", "1s", "logging.flushFrequency", json!("1s")),
        ("log-text-split-stream", "false", "logging.options.text.splitStream", json!(false)),
        ("log-text-info-buffer-size", "00", "logging.options.text.infoBufferSize", json!("00")),
        ("log-json-split-stream", "false", "logging.options.json.splitStream", json!(false)),
        ("log-json-info-buffer-size", "00", "logging.options.json.infoBufferSize", json!("00")),
        ("feature-gates", "NativeHistograms=true", "featureGates.NativeHistograms", json!(true)),
        ("healthz-port", "0", "healthzBindAddress", json!("")),
        ("metrics-port", "0", "metricsBindAddress", json!("")),
    ]
}

#[test]
fn every_flag_sets_its_field() {
    for (name, value, path, kept) in flags() {
        let config = only_flags(&[(name, value)]).unwrap_or_else(|e| panic!("--{name}: {e}"));
        assert_eq!(listed(&config, path), kept, "--{name}");
        let dashes = if name.len() == 1 { "-" } else { "--" };
        assert_eq!(config.origin(path), Some(&Origin::Flag(format!("{dashes}{name}").into())), "--{name}");
    }
    let mut tested: Vec<&str> = flags().iter().map(|f| f.0).collect();
    tested.extend(["boot-id-file", "machine-id-file"]);
    let mut known: Vec<&str> = flag_specs().iter().filter(|f| f.of_peer).map(|f| f.name).collect();
    tested.sort_unstable();
    tested.dedup();
    known.sort_unstable();
    assert_eq!(tested, known);
}

#[test]
fn flags_that_are_wrong_name_themselves_and_the_field() {
    for (name, value, said) in [
        (
            "kube-api-burst",
            "many",
            "flag --kube-api-burst: clientConnection.burst: \"many\" is not a whole number",
        ),
        (
            "profiling",
            "yes",
            "flag --profiling: enableProfiling: expected true or false, found the text \"yes\"",
        ),
        (
            "iptables-sync-period",
            "5",
            "flag --iptables-sync-period: iptables.syncPeriod: \"5\" is not a duration such as 30s, 1m30s or 500ms",
        ),
        ("feature-gates", "A", "flag --feature-gates: featureGates: \"A\" is no NAME=true or NAME=false"),
        ("vmodule", "a", "flag --vmodule: logging.vmodule: \"a\" is no PATTERN=N"),
        (
            "metrics-port",
            "70000",
            "flag --metrics-port: metricsBindAddress: \"70000\" is not a number from 0 to 65535",
        ),
        (
            "log-text-split-stream",
            "true",
            "flag --log-text-split-stream: logging.options.text.splitStream: needs featureGates.LoggingAlphaOptions: true",
        ),
    ] {
        assert_eq!(lines(only_flags(&[(name, value)])), [said]);
    }
}

/// Cases: core-11.65
#[test]
fn no_minimum_is_said_by_a_flag_and_is_a_default_in_a_peers_file() {
    let min = |config: &Config| config.periods.min_sync;
    for mode in ["iptables", "nftables"] {
        let file = format!("mode: {mode}\n{mode}: {{minSyncPeriod: 0s, syncPeriod: 0s}}\n");
        let config = peer(&file);
        assert_eq!((min(&config), config.periods.sync), (Duration::from_secs(1), Duration::from_secs(30)));
        let config = only_flags(&[("proxy-mode", mode), ("iptables-min-sync-period", "0")]).expect("good");
        assert_eq!(min(&config), Duration::ZERO);
    }
    assert_eq!(min(&peer("mode: ipvs\n")), Duration::ZERO);
}

/// Cases: core-11.72
#[test]
fn beside_a_peers_file_only_a_few_flags_count() {
    let given = [
        FlagValue::new("ipvs-scheduler", "x"),
        FlagValue::new("masquerade-all", "true"),
        FlagValue::new("feature-gates", "AllowServiceExternalIPs=false"),
        FlagValue::new("healthz-port", "0"),
        FlagValue::new("v", "7"),
        FlagValue::new("logging-format", "json"),
        FlagValue::new("hostname-override", "b"),
        FlagValue::new("master", "http://a"),
        FlagValue::new("backend", "ipvs"),
    ];
    let config =
        peer_with("ipvs: {scheduler: lc}\nhostnameOverride: a\nnodePortAddresses: [primary]\n", &given);
    assert_eq!(listed(&config, "ipvs.scheduler"), "lc");
    assert!(config.feature_gates.on("AllowServiceExternalIPs") && config.healthz_bind_address.is_some());
    assert_eq!(config.logging, Logging { format: LogFormat::Json, level: "trace".into() });
    assert_eq!(config.node_name("").expect("named").as_str(), "b");
    assert_eq!(config.mode, "ipvs", "our own flags win");
    assert!(
        matches!(config.source, Some(SourceConfig::Kubernetes(k)) if k.server.as_deref() == Some("http://a"))
    );
    let ignored = |flag: &str, path: &str| {
        format!("flag --{flag}: {path}: ignored: beside a KubeProxyConfiguration only the file says it")
    };
    assert_eq!(
        warnings(&config_of(&given)),
        [
            ignored("ipvs-scheduler", "ipvs.scheduler"),
            ignored("masquerade-all", "iptables.masqueradeAll"),
            ignored("feature-gates", "featureGates"),
            "flag --healthz-port: healthzBindAddress: ignored beside --config and --write-config-to"
                .to_owned(),
        ]
    );
}

fn config_of(given: &[FlagValue]) -> Config {
    peer_with("nodePortAddresses: [primary]\n", given)
}

#[test]
fn beside_our_own_file_every_flag_counts() {
    let flags = [FlagValue::new("cluster-cidr", "10.0.0.0/8"), FlagValue::new("conntrack-min", "3")];
    let config = parse("clusterCIDR: 11.0.0.0/8\nconntrack: {min: 5}\n", &flags).expect("good");
    assert_eq!(listed(&config, "clusterCIDR"), "10.0.0.0/8");
    assert_eq!(config.conntrack.min, 3);
    assert_eq!(warnings(&config), [""; 0]);
}

/// Cases: core-11.73
#[test]
fn a_node_name_is_trimmed_and_lowered_and_not_blank() {
    let name = |value| only_flags(&[("hostname-override", value)]).map(|c| c.node_name("host"));
    assert_eq!(name("  Bar ").expect("good").expect("named").as_str(), "bar");
    assert_eq!(name("").expect("good").expect("named").as_str(), "host");
    assert_eq!(
        lines(name("   ").map(|_| unreachable())),
        ["flag --hostname-override: hostnameOverride: blank"]
    );
    let config = peer_with(
        "hostnameOverride: a\nnodePortAddresses: [primary]\n",
        &[FlagValue::new("hostname-override", "$(NODE_NAME)")],
    );
    assert_eq!(
        warnings(&config),
        [
            "flag --hostname-override: hostnameOverride: no Node can be called \"$(node_name)\"; is the variable set?"
        ]
    );
}

fn unreachable() -> Config {
    panic!("accepted")
}

/// Cases: core-11.79
#[test]
fn a_port_alone_counts_for_an_address_without_one() {
    let at = |flags: &[(&'static str, &str)]| only_flags(flags).expect("good");
    let healthz = |flags: &[(&'static str, &str)]| at(flags).healthz_bind_address.map(|a| a.to_string());
    assert_eq!(healthz(&[("healthz-port", "12345")]).as_deref(), Some("0.0.0.0:10256"));
    assert_eq!(
        warnings(&at(&[("healthz-port", "12345")])),
        ["flag --healthz-port: healthzBindAddress: ignored: the address has a port already"]
    );
    assert_eq!(healthz(&[("healthz-port", "0")]), None);
    assert_eq!(
        healthz(&[("healthz-port", "12345"), ("healthz-bind-address", "1.2.3.4")]).as_deref(),
        Some("1.2.3.4:12345")
    );
    assert_eq!(healthz(&[("healthz-bind-address", "")]).as_deref(), Some("0.0.0.0:10256"), "as kube-proxy");
    assert_eq!(at(&[("metrics-port", "0")]).metrics_bind_address, None);
    assert_eq!(at(&[("metrics-bind-address", "")]).metrics_bind_address, None, "as kube-proxy's help says");
    assert!(at(&[("metrics-port", "0"), (WRITE_CONFIG_TO, "f")]).metrics_bind_address.is_some());
}

/// Cases: core-11.70
#[test]
fn an_empty_cluster_range_is_none() {
    let config = only_flags(&[("cluster-cidr", "")]).expect("good");
    assert_eq!(config.detect_local, DetectLocal::ClusterCidr(Vec::new()));
    assert_eq!(only_flags(&[]).expect("good").detect_local, config.detect_local);
}

#[test]
fn patterns_of_flags_come_before_those_of_the_file() {
    let config = peer_with(
        "logging: {vmodule: [{filePattern: b, verbosity: 1}], verbosity: 4}\n",
        &[FlagValue { name: "vmodule", values: vec!["a=2".into(), "c=3".into()] }],
    );
    let patterns: Vec<_> = listed(&config, "logging.vmodule")
        .as_array()
        .expect("list")
        .iter()
        .map(|m| m["filePattern"].clone())
        .collect();
    assert_eq!(patterns, ["a", "c", "b"]);
    assert_eq!(config.logging.level, "debug");
}

#[test]
fn what_is_logged_follows_the_last_word() {
    let level = |body: &str, flags: &[FlagValue]| parse(body, flags).expect("good").logging.level;
    for (verbosity, expected) in
        [(0, "info"), (3, "info"), (4, "debug"), (5, "debug"), (6, "trace"), (10, "trace")]
    {
        assert_eq!(level(&format!("logging: {{verbosity: {verbosity}}}\n"), &[]), expected);
    }
    assert_eq!(level("logging: {verbosity: 9, level: 'warn,agent=debug'}\n", &[]), "warn,agent=debug");
    assert_eq!(level("logging: {level: warn}\n", &[FlagValue::new("v", "6")]), "trace");
}

#[test]
fn the_last_of_two_values_counts_and_lists_add_up() {
    let twice = |name, values: [&str; 2]| FlagValue { name, values: values.map(str::to_owned).into() };
    let flags = [
        twice("conntrack-min", ["1", "2"]),
        twice("nodeport-addresses", ["10.0.0.0/8", "11.0.0.0/8"]),
        FlagValue::new("node", "own"),
        FlagValue::new("hostname-override", "theirs"),
    ];
    let config = Draft::parse(None, &flags, MODES).finish().expect("good");
    assert_eq!(config.conntrack.min, 2);
    assert_eq!(listed(&config, "nodePortAddresses"), json!(["10.0.0.0/8", "11.0.0.0/8"]));
    assert_eq!(config.node_name("").expect("named").as_str(), "own");
}
