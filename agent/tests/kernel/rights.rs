//! Without the right to change the network.

use crate::program::{PROGRAM, service, tool};
use crate::stage::{Stage, tables};

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
