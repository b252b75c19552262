//! The matrix passes with the agent, and tells when an agent is wrong or dead.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which fail by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use e2e::process;

const LAB: &str = env!("CARGO_BIN_EXE_proxier-lab");

fn matrix(arguments: &[&str]) -> Output {
    let mut all = vec!["matrix"];
    all.extend(arguments);
    process::command(LAB, &all).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A script in the agent's place; `$AGENT` in it is the agent.
fn in_its_place(folder: &Path, script: &str) -> PathBuf {
    let agent = Path::new(LAB).with_file_name("proxier");
    let path = folder.join("agent.sh");
    // Written by another process: no child of a test that runs meanwhile can hold it open for writing.
    let text = format!("#!/bin/sh\nAGENT={}\n{script}\n", agent.display());
    process::run("tee", [path.to_str().unwrap()], &text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn the_agent_passes_the_matrix() {
    let output = matrix(&[]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("\nGAP nftables: ") && text.contains("\nGAP iptables: "), "{text}");
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn an_agent_that_takes_pods_for_strangers_fails_it() {
    let folder = tempfile::tempdir().unwrap();
    // Its configuration file says how pods are told, and the range for that is not given.
    let script = r#"for last; do shift; [ "$last" = "10.244.0.0/16,fd00:10:244::/48" ] && last=; set -- "$@" "$last"; done; exec "$AGENT" "$@""#;
    let agent = in_its_place(folder.path(), script);
    for variant in ["maps", "iptables-nft", "iptables-legacy"] {
        let group = format!("{variant}/default/families");
        let output = matrix(&["--proxier", agent.to_str().unwrap(), "--only", &group]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let row = "pod caller to node port on worker of both-local: 10.244.1.20 to 172.30.0.3:";
        assert!(text.contains(&format!("DIFFERS {group}: {row}")), "{text}");
        assert!(text.contains("source:     a pod, as the local traffic detector sees it"), "{text}");
        assert!(text.contains("rules    the rules of worker: "), "{text}");
    }
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn an_agent_that_ends_fails_it() {
    let folder = tempfile::tempdir().unwrap();
    let agent = in_its_place(folder.path(), "echo about to end; exit 7");
    let output = matrix(&["--proxier", agent.to_str().unwrap(), "--only", "chains/bridge/hairpin"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ended (exit status: 7)") && text.contains("  about to end"), "{text}");
    assert!(text.contains("| agents  |    1 |      0 |      1 |"), "{text}");
    // Nor does it clean up.
    assert!(text.contains("\nchains  | default | cleanup |"), "{text}");
}

#[test]
fn an_unknown_selector_is_a_usage_error() {
    let output = matrix(&["--only", "maps/nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output)
            .contains("--only nonsense: none of maps, chains, iptables-nft, iptables-legacy, ipvs, default"),
        "{}",
        text(&output)
    );
}
