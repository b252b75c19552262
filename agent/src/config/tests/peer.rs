//! A `KubeProxyConfiguration` as an operator has it.

use super::*;

/// What kubeadm writes, with everything that it leaves empty.
const KUBEADM: &str = "bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: '', burst: 0, contentType: '', kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: '', interfaceNamePrefix: ''}
detectLocalMode: ''
enableProfiling: false
healthzBindAddress: ''
hostnameOverride: ''
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: '', strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: '0'}, text: {infoBufferSize: '0'}}, verbosity: 0}
metricsBindAddress: ''
mode: ''
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ''
showHiddenMetricsForVersion: ''
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: '', rootHnsEndpointName: '', sourceVip: ''}
";

#[test]
fn kubeadms_file_is_all_defaults_but_what_it_says() {
    let (config, plain) = (peer(KUBEADM), peer(""));
    let said = ["clientConnection.kubeconfig", "clusterCIDR"];
    let differing: Vec<String> = plain.difference(&config).into_iter().map(|d| d.path).collect();
    assert_eq!(differing, said);
    assert_eq!(config.kind, Kind::Peer);
    assert_eq!(config.mode, "iptables");
    assert_eq!(config.healthz_bind_address, Some("0.0.0.0:10256".parse().expect("address")));
    assert_eq!(config.metrics_bind_address, Some("127.0.0.1:10249".parse().expect("address")));
    assert_eq!((config.client.qps, config.client.burst), (5.0, 10));
    assert_eq!(config.conntrack.tcp_established_timeout, Some(Duration::from_secs(86400)));
    assert_eq!(config.conntrack.udp_timeout, None);
    assert!(matches!(config.source, Some(SourceConfig::Kubernetes(k)) if k.kubeconfig.is_some()));
    assert_eq!(
        warnings(&peer(KUBEADM)),
        [
            "default: nodePortAddresses: not given: node ports answer on every address of this host; say [primary] for the node's own"
        ]
    );
}

/// Cases: core-11.71
#[test]
fn what_is_unknown_or_twice_there_warns_and_another_kind_is_refused() {
    let config = peer(
        "nodePortAddresses: [primary]\nfoo: bar\nmode: ipvs\nmode: nftables\niptables: {masquradeBit: 3}\nnftables: {table: x}\nsource: {manifests: {path: m}}\n",
    );
    assert_eq!(config.mode, "nftables", "the last one counts");
    assert_eq!(config.source, None);
    assert_eq!(listed(&config, "iptables.masqueradeBit"), 14);
    assert_eq!(
        warnings(&config),
        [
            "peer.yaml: mode: given more than once; the last one counts",
            "peer.yaml: foo: unknown field, ignored",
            "peer.yaml: iptables.masquradeBit: unknown field, ignored; did you mean masqueradeBit?",
            "peer.yaml: nftables.table: unknown field, ignored; it is one of ProxierConfiguration",
            "peer.yaml: source: unknown field, ignored; it is one of ProxierConfiguration",
        ]
    );
    let said = |text: &str| lines(Draft::parse(Some(("c", text)), &[], MODES).finish());
    assert_eq!(
        said("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nmode: x\n"),
        [
            "c: kind: \"KubeSchedulerConfiguration\" is not one of ProxierConfiguration, KubeProxyConfiguration"
        ]
    );
    assert_eq!(
        said("apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\n"),
        [
            "c: apiVersion: \"kubeproxy.config.k8s.io/v1beta1\" is unknown; say apiVersion: kubeproxy.config.k8s.io/v1alpha1 with kind KubeProxyConfiguration"
        ]
    );
    assert_eq!(said("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: [\n").len(), 1, "a broken file");
    assert_eq!(peer_faults("winkernel: [1]\noomScoreAdj: '5'\n").len(), 2, "wrong types are refused");
}

/// Cases: core-11.67
#[test]
fn an_address_alone_gets_its_servers_port() {
    let healthz = |text: &str| peer_draft(&format!("healthzBindAddress: '{text}'\n"), &[]).finish();
    for (text, at) in
        [("1.2.3.4", "1.2.3.4:10256"), ("fd00::5", "[fd00::5]:10256"), ("[fd00::5]:7", "[fd00::5]:7")]
    {
        let config = healthz(text).expect(text);
        assert_eq!(config.healthz_bind_address.expect("a server").to_string(), at);
        assert_eq!(listed(&config, "healthzBindAddress"), at);
    }
    for text in ["[fd00::5]", "1.2.3.4:", ":10256", "fd00::5:x", "1.2.3.4:65536"] {
        let said = lines(healthz(text));
        assert!(said.len() == 1 && said[0].starts_with("peer.yaml: healthzBindAddress: "), "{said:?}");
    }
}

/// Cases: core-11.68
#[test]
fn the_bind_address_decides_the_servers_defaults_and_has_no_brackets() {
    let config = peer("bindAddress: '::'\n");
    let at = |address: Option<SocketAddr>| address.expect("a server").to_string();
    assert_eq!(
        (at(config.healthz_bind_address), at(config.metrics_bind_address)),
        ("[::]:10256".into(), "[::1]:10249".into())
    );
    assert_eq!(config.origin("healthzBindAddress"), Some(&Origin::Follows("bindAddress")));
    assert!(config.bind_address.is_ipv6() && config.bind_address.is_unspecified());
    assert_eq!(
        peer_faults("bindAddress: '[::]'\n"),
        ["peer.yaml: bindAddress: \"[::]\" has brackets; give the address alone"]
    );
    let flags = only_flags(&[("bind-address", "::")]).expect("good");
    assert_eq!(at(flags.healthz_bind_address), "0.0.0.0:10256", "flags have fixed defaults");
}

/// Cases: core-11.69
#[test]
fn a_pair_of_ranges_is_one_of_each_family_in_the_mode_that_uses_it() {
    for wrong in ["10.0.0.0/8,10.1.0.0/16", "10.0.0.0/8,fd00::/8,fd01::/16", "10.0.0.0/8, fd00::/8"] {
        let said = peer_faults(&format!("clusterCIDR: '{wrong}'\n"));
        assert!(said.len() == 1 && said[0].starts_with("peer.yaml: clusterCIDR: "), "{said:?}");
        let other = peer(&format!("clusterCIDR: '{wrong}'\ndetectLocalMode: NodeCIDR\n"));
        assert_eq!(other.detect_local, DetectLocal::NodeCidr);
    }
    for right in ["", "10.0.0.0/8", "fd00::/8,10.0.0.0/8"] {
        peer(&format!("clusterCIDR: '{right}'\n"));
    }
}

/// Cases: core-11.64
#[test]
fn the_word_primary_stands_alone() {
    assert_eq!(
        peer_faults("nodePortAddresses: [primary, 10.0.0.0/8]\n"),
        ["peer.yaml: nodePortAddresses[0]: primary stands alone: [primary]"]
    );
}

/// Cases: core-11.81
#[test]
fn a_minimum_above_an_hour_is_refused() {
    for mode in ["iptables", "nftables", "ipvs"] {
        assert_eq!(
            peer_faults(&format!("mode: {mode}\n{mode}: {{minSyncPeriod: 2h, syncPeriod: 2h}}\n")),
            [format!("peer.yaml: {mode}.minSyncPeriod: longer than an hour")]
        );
    }
}

#[test]
fn what_counts_depends_on_the_mode() {
    let file = "iptables: {syncPeriod: 10s, minSyncPeriod: 2s, masqueradeBit: 3, masqueradeAll: true}
nftables: {syncPeriod: 20s, minSyncPeriod: 3s, masqueradeBit: 4}
ipvs: {syncPeriod: 40s, minSyncPeriod: 4s}
";
    let of = |mode: &str| {
        let draft = peer_draft(&format!("mode: {mode}\n{file}"), &[]);
        let section = draft.section(mode);
        let config = draft.finish().expect("good");
        let periods = (config.periods.sync.as_secs(), config.periods.min_sync.as_secs());
        (periods, section.get("masqueradeBit").cloned(), section.get("masqueradeAll").cloned())
    };
    assert_eq!(of("iptables"), ((10, 2), Some(3.into()), Some(true.into())));
    assert_eq!(of("ipvs"), ((40, 4), Some(3.into()), Some(true.into())), "its marks are those of iptables");
    assert_eq!(of("nftables"), ((20, 3), Some(4.into()), None));
    let everywhere =
        NodePortSelector::Cidrs(vec!["0.0.0.0/0".parse().expect("range"), "::/0".parse().expect("range")]);
    for (mode, addresses) in
        [("iptables", &everywhere), ("ipvs", &everywhere), ("nftables", &NodePortSelector::Primary)]
    {
        assert_eq!(&peer(&format!("mode: {mode}\n")).node_port_addresses, addresses, "{mode}");
        assert_eq!(
            &peer(&format!("mode: {mode}\nnodePortAddresses: []\n")).node_port_addresses,
            addresses,
            "{mode}"
        );
    }
}

#[test]
fn faults_in_the_section_of_another_mode_do_not_stop_a_peers_file() {
    let file = "nodePortAddresses: [primary]\nnftables: {masqueradeBit: 40, syncPeriod: -1s}\nipvs: {excludeCIDRs: [x], tcpTimeout: -5s}\niptables: {syncPeriod: 30s}\n";
    let mut draft = peer_draft(file, &[]);
    draft.refuse("ipvs", "scheduler", "no such scheduler".into());
    let config = draft.finish().expect("only warned");
    let said = warnings(&config);
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said.iter().all(|w| w.ends_with("; not used in mode iptables")), "{said:?}");
    let mut draft = peer_draft(&format!("mode: ipvs\n{file}"), &[]);
    draft.refuse("ipvs", "scheduler", "no such scheduler".into());
    assert_eq!(lines(draft.finish()).len(), 3);
    assert_eq!(
        peer_faults("mode: nftables\nipvs: {strictARP: 3}\n"),
        ["peer.yaml: ipvs.strictARP: expected true or false, found the number 3"],
        "a wrong type is refused everywhere"
    );
}

#[test]
fn gates_are_known_by_name() {
    let quiet = "nodePortAddresses: [primary]\n";
    let gates = |body: &str| peer_draft(&format!("{quiet}featureGates: {{{body}}}\n"), &[]).finish();
    let config = gates("AllowServiceExternalIPs: false, NativeHistograms: true, NFTablesProxyMode: true")
        .expect("good");
    assert!(!config.external_ips && config.feature_gates.on("NativeHistograms"));
    assert_eq!(warnings(&config), [""; 0]);
    assert_eq!(
        warnings(&gates("SidecarContainers: true, ContextualLogging: false").expect("good")),
        [
            "peer.yaml: featureGates.ContextualLogging: it has no meaning here: log lines are written in one way",
            "peer.yaml: featureGates.SidecarContainers: it has no meaning here: no part of a proxy asks for it",
        ]
    );
    for (body, said) in [
        ("NFTablesProxyMode: false", "peer.yaml: featureGates.NFTablesProxyMode: it is locked to true"),
        (
            "PreferSameTrafficDistribution: false",
            "peer.yaml: featureGates.PreferSameTrafficDistribution: it is locked to true",
        ),
        (
            "NativeHistogram: true",
            "peer.yaml: featureGates.NativeHistogram: unknown gate; did you mean NativeHistograms?",
        ),
        (
            "NativeHistograms: 1",
            "peer.yaml: featureGates.NativeHistograms: expected true or false, found the number 1",
        ),
    ] {
        assert_eq!(lines(gates(body)), [said]);
    }
    assert_eq!(
        lines(
            Draft::parse(
                Some(("own", &format!("{HEAD}featureGates: {{SidecarContainers: true}}\n"))),
                &[],
                MODES
            )
            .finish()
        ),
        ["own: featureGates.SidecarContainers: unknown gate"]
    );
}

#[test]
fn options_of_logging_need_their_gate_and_patterns_the_form_text() {
    assert_eq!(
        peer_faults("logging: {options: {text: {splitStream: true}, json: {infoBufferSize: 4Mi}}}\n"),
        [
            "peer.yaml: logging.options.text.splitStream: needs featureGates.LoggingAlphaOptions: true",
            "peer.yaml: logging.options.json.infoBufferSize: needs featureGates.LoggingAlphaOptions: true",
        ]
    );
    assert_eq!(
        peer_faults("logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n"),
        ["peer.yaml: logging.vmodule: only in format text"]
    );
}

#[test]
fn a_flag_of_ours_can_ask_for_a_folder_in_place_of_the_files_cluster() {
    let flags = [FlagValue::new("manifests", "m")];
    let config = peer_with("clientConnection: {kubeconfig: k}\n", &flags);
    assert!(matches!(config.source, Some(SourceConfig::Manifests(_))));
    assert_eq!(
        lines(only_flags(&[("kubeconfig", "k"), ("manifests", "m")])),
        [
            "flag --kubeconfig: clientConnection.kubeconfig: source.manifests.path is given as well; name one source"
        ]
    );
}

#[test]
fn the_mode_may_be_found_out() {
    let draft = peer_draft("mode: auto\nnodePortAddresses: [primary]\nnftables: {masqueradeBit: 40}\n", &[]);
    assert_eq!(draft.candidates(), ["nftables", "iptables", "ipvs"]);
    assert_eq!(lines(draft.clone().finish()).len(), 1, "every candidate counts");
    let config = draft.finish_as("iptables").expect("that one is not used");
    assert_eq!(config.mode, "iptables");
    assert_eq!(config.auto.expect("auto").len(), 3);
    let chosen = |mode| peer_draft("mode: auto\n", &[]).finish_as(mode).expect("good");
    assert_eq!(listed(&chosen("nftables"), "mode"), "auto");
    assert_eq!((warnings(&chosen("nftables")).len(), warnings(&chosen("ipvs")).len()), (0, 1));
    let own = |order: &str| {
        Draft::parse(Some(("own", &format!("{HEAD}mode: auto\nauto: {{order: {order}}}\n"))), &[], MODES)
    };
    assert_eq!(own("[ipvs, nftables]").candidates(), ["ipvs", "nftables"]);
    assert_eq!(
        lines(own("[ipvs, ebpf]").finish()),
        ["own: auto.order[1]: \"ebpf\" is not one of nftables, iptables, ipvs"]
    );
    assert_eq!(lines(own("[]").finish()), ["own: auto.order: name one mode at least"]);
}

#[test]
fn backends_get_what_they_can_read() {
    let body = "mode: ipvs\nnodePortAddresses: [primary]\nipvs: {tcpTimeout: 1500ms, udpTimeout: 90s, excludeCIDRs: [010.1.2.3/8]}\n";
    let draft = peer_draft(body, &[]);
    let section = draft.section("ipvs");
    assert_eq!((&section["tcpTimeout"], &section["udpTimeout"]), (&"1s".into(), &"1m30s".into()));
    assert_eq!(section["excludeCIDRs"], serde_json::json!(["10.0.0.0/8"]));
    let config = draft.finish().expect("good");
    assert_eq!(warnings(&config), ["peer.yaml: ipvs.tcpTimeout: cut to whole seconds, 1s"]);
    let own = format!(
        "{HEAD}mode: ipvs\nipvs: {{tcpTimeout: 1500ms, masqueradeBit: 5}}\niptables: {{masqueradeBit: 6, masqueradeAll: true}}\n"
    );
    let section = Draft::parse(Some(("own", &own)), &[], MODES).section("ipvs");
    assert_eq!(section["tcpTimeout"], "1.5s", "the backend refuses it");
    assert_eq!((&section["masqueradeBit"], &section["masqueradeAll"]), (&5.into(), &true.into()));
}
