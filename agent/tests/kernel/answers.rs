//! Commands that look: `probe`, `verify`, and `render` as nft sees it.

use std::fs;

use serde_json::Value;

use crate::program::{peer, proxier, service, tool};
use crate::stage::{Stage, nft};

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn probe_says_what_there_is_and_changes_nothing() {
    let stage = Stage::new(&[]);
    let before = nft(&["list", "ruleset"], "");
    let output = proxier(&["probe"]);
    assert_eq!((output.code, output.stderr_text().as_str()), (0, ""));
    let text = output.stdout_text();
    for line in
        ["nftables IPv4: usable\n", "nftables IPv6: usable\n", "  found              nat chains (yes)\n"]
    {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
    assert!(!text.to_lowercase().contains("missing"), "{text}");
    assert_eq!(nft(&["list", "ruleset"], ""), before);
    stage.others_untouched();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn verify_tells_the_item_and_changes_nothing() {
    let stage = Stage::new(&[("web.yaml", &service("web", "10.96.0.1", &["10.244.1.1", "10.244.1.2"]))]);
    let output = stage.answer("verify");
    assert_eq!(output.code, 3);
    assert!(output.stdout_text().contains("  missing: table ip kube-proxy\n"), "{}", output.stdout_text());

    let daemon = stage.run();
    let output = stage.answer("verify");
    assert_eq!((output.code, output.stderr_text().as_str()), (0, ""));
    assert_eq!(output.stdout_text(), "nftables IPv4: 0 differences\nnftables IPv6: 0 differences\n");

    nft(&["delete", "element", "ip", "kube-proxy", "cluster-services", "{ 10.96.0.1 . tcp . 80 }"], "");
    nft(&["add", "chain", "ip6", "kube-proxy", "mine"], "");
    // An empty chain may be what a sync leaves for a while; one with rules is not.
    nft(&["add", "rule", "ip6", "kube-proxy", "mine", "drop"], "");
    let before = nft(&["list", "ruleset"], "");
    let output = stage.answer("verify");
    assert_eq!(output.code, 3);
    let text = output.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!((lines[0], lines[2]), ("nftables IPv4: 1 differences", "nftables IPv6: 1 differences"));
    assert!(lines[1].starts_with("  missing: element cluster-services: 10.96.0.1 . tcp . 80 "), "{text}");
    assert_eq!(lines[3], "  unexpected: chain mine");
    assert_eq!(nft(&["list", "ruleset"], ""), before);
    drop(daemon);
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn nft_takes_what_render_prints() {
    let state = fs::read_to_string(peer()).expect("the corpus");
    for layout in ["maps", "chains"] {
        let stage = Stage::new(&[("state.yaml", &state)]);
        stage.configure(&format!("nftables: {{layout: {layout}}}\n"));
        let output = stage.answer("render");
        assert_eq!(output.code, 0, "{}", output.stderr_text());
        let plan = output.stdout_text();
        nft(&["-c", "-f", "-"], &plan);
        nft(&["-f", "-"], &plan);
        stage.in_order();
        let once = nft(&["-f", "-"], &plan);
        assert_eq!(once, "", "and twice");
        stage.in_order();

        let config = stage.config();
        let mut line = stage.line("render", &config);
        line.extend(["-o", "json"]);
        let answer: Value = serde_json::from_slice(&proxier(&line).stdout).expect("JSON");
        let plans = answer["plans"].as_array().expect("list");
        let operations = plans.iter().flat_map(|p| p["operations"].as_array().expect("list"));
        let texts: Vec<&str> = operations.map(|o| o["text"].as_str().expect("text")).collect();
        assert_eq!(tool("nft", &["-c", "-f", "-"], &texts.join("\n")).code, 0);
    }
}
