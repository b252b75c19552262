//! What a configuration looks like to others.

use serde_json::json;

use super::*;

/// What the real one shows, with what it was told to.
#[test]
fn configz_is_what_kube_proxy_shows() {
    let peer_shows = concat!(env!("CARGO_MANIFEST_DIR"), "/../proxier-testkit/corpus/peer/configz.json");
    let shown = std::fs::read_to_string(peer_shows).expect("the corpus");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let config = peer(
        "clientConnection: {kubeconfig: <kubeconfig>}
hostnameOverride: worker
healthzBindAddress: 127.0.0.1:10256
mode: iptables
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
",
    );
    let configz = config.configz();
    let (ours, theirs) = (&configz["kubeproxy.config.k8s.io"], &shown["kubeproxy.config.k8s.io"]);
    for (key, value) in theirs.as_object().expect("a mapping") {
        assert_eq!(&ours[key], value, "{key}");
    }
    assert_eq!(configz, shown, "no key more");
}

#[test]
fn configz_shows_the_mode_in_use_and_the_gates_that_were_set() {
    let config = Draft::parse(
        Some((
            "own",
            &format!(
                "{HEAD}mode: auto\nminSyncPeriod: 2s\nfeatureGates: {{NativeHistograms: true}}\nwindowsRunAsService: true\n"
            ),
        )),
        &[],
        MODES,
    );
    let shown = config.finish_as("nftables").expect("good").configz();
    let shown = &shown["kubeproxy.config.k8s.io"];
    assert_eq!(shown["mode"], "nftables");
    assert_eq!(shown["nftables"]["minSyncPeriod"], "2s");
    assert_eq!(shown["nftables"]["syncPeriod"], "30s");
    assert_eq!(shown["iptables"]["syncPeriod"], "0s");
    assert_eq!(shown["nodePortAddresses"], json!(["primary"]));
    assert_eq!(shown["featureGates"], json!({"NativeHistograms": true}));
    assert_eq!(shown["windowsRunAsService"], true);
    assert_eq!(shown["source"], Value::Null, "nothing of ours");
}

#[test]
fn a_written_file_means_the_same() {
    let own = format!(
        "{HEAD}mode: ipvs\nsyncPeriod: 1m\nhealthzBindAddress: ''\nnode: {{zone: 'a: b'}}\nipvs: {{masqueradeBit: 3, drainTimeout: 5s}}\nlogging: {{level: warn}}\n"
    );
    let peers = format!(
        "{PEER_HEAD}mode: iptables\nhostnameOverride: ' A '\nlogging: {{verbosity: 4}}\nbindAddress: '::'\nfeatureGates: {{NativeHistograms: true}}\n"
    );
    let off = [FlagValue::new("metrics-port", "0"), FlagValue::new("iptables-min-sync-period", "0")];
    for (file, flags) in [(Some(own), &[][..]), (Some(peers), &[]), (None, &off)] {
        let mut draft = Draft::parse(file.as_ref().map(|f| ("c", f.as_str())), flags, MODES);
        let backend = |draft: &mut Draft<'_>| {
            let said = draft.section("ipvs");
            let value = |key, default: Value| (key, said.get(key).cloned().unwrap_or(default));
            draft.list("ipvs", vec![value("masqueradeBit", 14.into()), value("drainTimeout", "900s".into())]);
        };
        backend(&mut draft);
        let config = draft.finish().expect("good");
        let written = config.to_file();
        let mut again = Draft::parse(Some(("again", &written)), &[], MODES);
        backend(&mut again);
        let again = again.finish().unwrap_or_else(|e| panic!("{e}\n{written}"));
        let head = |d: &Difference| !["apiVersion", "kind"].contains(&d.path.as_str());
        let differences: Vec<_> = config.difference(&again).into_iter().filter(head).collect();
        assert_eq!(differences, [], "{written}");
        assert_eq!(config.traffic_options(), again.traffic_options());
        assert_eq!(
            (config.healthz_bind_address, config.metrics_bind_address, config.periods, config.logging),
            (again.healthz_bind_address, again.metrics_bind_address, again.periods, again.logging)
        );
        assert_eq!(
            (config.client, config.conntrack, config.mode),
            (again.client, again.conntrack, again.mode)
        );
    }
}

#[test]
fn a_difference_says_when_it_takes_effect() {
    let old = good("clusterCIDR: 10.0.0.0/8\noomScoreAdj: 3\nfake: {a: 1}\n");
    let new = good(
        "clusterCIDR: 11.0.0.0/8\nlogging: {verbosity: 4}\nnftables: {masqueradeBit: 3}\nfeatureGates: {NativeHistograms: true}\nsyncPeriod: 1m\n",
    );
    let differences = old.difference(&new);
    let found: Vec<_> = differences.iter().map(|d| (d.path.as_str(), d.change)).collect();
    assert_eq!(
        found,
        [
            ("clusterCIDR", Change::Live),
            ("featureGates.NativeHistograms", Change::Live),
            ("logging.level", Change::Live),
            ("logging.verbosity", Change::Live),
            ("nftables.masqueradeBit", Change::Instances),
            ("oomScoreAdj", Change::Live),
            ("syncPeriod", Change::Live),
        ]
    );
    let cidr = &differences[0];
    assert_eq!((&cidr.old, &cidr.new), (&json!("10.0.0.0/8"), &json!("11.0.0.0/8")));
    assert_eq!(old.difference(&old), []);
}

#[test]
fn the_documentation_has_every_setting_with_when_it_takes_effect_and_every_flag() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.md"));
    let text = text.expect("docs/config.md");
    let row = |word: &str| {
        text.lines().find(|l| l.starts_with("| `") && l.split(" | ").next().unwrap_or(l).contains(word))
    };
    for setting in table::settings() {
        let line =
            row(&format!("`{}`", setting.path)).unwrap_or_else(|| panic!("{} has no row", setting.path));
        let effect = match setting.change {
            Change::Live => "live",
            Change::Instances => "instances",
            Change::Restart(_) => "start",
        };
        assert!(line.ends_with(&format!("| {effect} |")), "{line}: not {effect}");
    }
    for flag in flag_specs() {
        let dashed =
            if flag.name.len() == 1 { format!("`-{}", flag.name) } else { format!("`--{}", flag.name) };
        let named = |l: &str| {
            l.starts_with("| `") && [" ", "`", "="].iter().any(|end| l.contains(&format!("{dashed}{end}")))
        };
        assert!(text.lines().any(named), "{dashed} has no row");
    }
    for gate in gates::GATES.iter().filter(|g| !["AllAlpha", "AllBeta"].contains(&g.name)) {
        assert!(row(&format!("`{}`", gate.name)).is_some(), "{} has no row", gate.name);
    }
}
