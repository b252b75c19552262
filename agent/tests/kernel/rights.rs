//! Without the right to change the network.

use std::fs;

use nix::sys::signal::Signal;

use crate::program::{PROGRAM, proxier, service, tool};
use crate::stage::{Daemon, Stage, tables, until};

const RIGHT: &str = "CAP_NET_ADMIN is needed";

/// Words that name the right, a line for each thing that took it, and no more.
#[track_caller]
fn refused(setpriv: &[&str], command: &[&str]) {
    let output = tool("setpriv", &[setpriv, &[PROGRAM], command].concat(), "");
    assert_eq!(output.code, 1, "{command:?}: {output:?}");
    assert_eq!(output.stdout_text(), "", "{command:?}");
    let text = output.stderr_text();
    assert!(text.lines().any(|l| l.starts_with("proxier: ") && l.contains(RIGHT)), "{command:?}: {text}");
    assert!(!text.contains("panicked"), "{command:?}: {text}");
    assert_eq!(text.lines().filter(|l| !l.starts_with("proxier: ")).count(), 0, "{command:?}: {text}");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_missing_right_is_named() {
    let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"]))]);
    let without = ["--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let config = stage.config();
    refused(&without, &stage.line("run", &config));
    refused(&without, &stage.line("verify", &config));
    refused(&without, &["probe"]);
    refused(&without, &["cleanup"]);
    assert_eq!(tables(), "");
    stage.others_untouched();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn no_other_right_is_needed() {
    let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"]))]);
    // dac_override: the folder is the tests' own.
    let only = "--bounding-set=-all,+net_admin,+dac_override";
    let config = stage.config();
    let args = stage.line("verify", &config);
    let output =
        tool("setpriv", &[&[only, "--inh-caps=-all", "--no-new-privs", PROGRAM], &args[..]].concat(), "");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.stdout_text().contains("missing: table ip kube-proxy"), "{}", output.stdout_text());
}

/// Starts the program as `deploy/daemonset.yaml` does: with these capabilities alone, below a root file system and a `/proc/sys` that are read-only. What it
/// may write is in the folder of its configuration; the rest of what a host has there is made anew: `/run`.
fn confined(stage: &Stage, capabilities: &str) -> Daemon {
    let shell = "set -e; mount -t tmpfs none /run; mount --bind \"$1\" \"$1\"; mount --bind /proc/sys /proc/sys
        mount -o remount,ro,bind /proc/sys; mount -o remount,ro,bind /; ! touch /written 2>/dev/null; rights=$2; shift 2
        exec setpriv --bounding-set=-all,$rights --inh-caps=-all --no-new-privs \"$0\" \"$@\"";
    let config = stage.config();
    let socket = stage.admin_socket();
    let folder = socket.rsplit_once('/').expect("a path").0;
    let line = stage.line("run", &config);
    Daemon::start_by(
        "unshare",
        &[&["--mount", "sh", "-c", shell, PROGRAM, folder, capabilities], &line[..]].concat(),
    )
}

const MANIFEST: &str = include_str!("../../../deploy/daemonset.yaml");

/// Rules come, follow changes, are compared and stay, whatever the mode.
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn the_manifests_rights_and_a_read_only_root_are_enough() {
    assert!(MANIFEST.contains("readOnlyRootFilesystem: true") && MANIFEST.contains("drop: [ALL]"));
    let granted = MANIFEST.split_once("add: [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    let granted: Vec<String> =
        granted.split(", ").map(|right| format!("+{}", right.to_lowercase())).collect();
    // The tests' own folder may be another user's.
    let granted = granted.join(",") + ",+dac_override";
    for (mode, capabilities, save) in [
        ("mode: nftables\n", granted.clone(), "nft"),
        ("mode: iptables\niptables: {variant: nft}\n", granted.clone(), "iptables-nft-save"),
        (
            "mode: iptables\niptables: {variant: legacy}\n",
            granted.clone() + ",+net_raw",
            "iptables-legacy-save",
        ),
    ] {
        let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"]))]);
        // What only the host's own network namespace can have is left alone, and so is the score, for which whoever runs the tests may lack the right.
        let rest =
            "nodePortAddresses: [127.0.0.0/8, '::1/128']\nconntrack: {maxPerCore: 0}\noomScoreAdj: 0\n";
        stage.configure(&format!("{mode}{rest}"));
        let config = stage.config();
        // Settings need more, and come from an init container.
        let output = proxier(&["--init-only", "--config", &config, "--node", "worker"]);
        assert_eq!(output.code, 0, "{mode}: {}", output.stderr_text());
        let rules = || {
            let arguments: &[&str] = if save == "nft" { &["list", "ruleset"] } else { &[] };
            tool(save, arguments, "").stdout_text()
        };
        let daemon = confined(&stage, &capabilities);
        until(mode, || rules().contains("10.244.1.1"));
        stage.folder.write("web.yaml", &service("web", "10.96.0.1", &["10.244.1.2"]));
        until(mode, || rules().contains("10.244.1.2") && !rules().contains("10.244.1.1"));
        let status = proxier(&["status", "--socket", &stage.admin_socket()]);
        assert_eq!(status.code, 0, "{mode}: {}", status.stderr_text());
        stage.in_order();
        let (status, lines) = daemon.end(Signal::SIGTERM);
        assert_eq!(status.code(), Some(0), "{mode}");
        let complaints: Vec<_> =
            lines.iter().filter(|l| l["level"] == "ERROR" || l["level"] == "WARN").collect();
        assert!(complaints.is_empty(), "{mode}: {complaints:#?}");
        assert!(rules().contains("10.244.1.2"), "{mode}");
    }
    assert!(fs::metadata("/written").is_err());
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn legacy_tools_name_the_right_that_they_need() {
    let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1"]))]);
    stage.configure("mode: iptables\niptables: {variant: legacy}\n");
    let text = confined(&stage, "+net_admin,+dac_override").failed();
    assert!(text.contains("right CAP_NET_RAW is missing: iptables-legacy opens a raw socket"), "{text}");
}
