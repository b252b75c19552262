//! From a start to an end: the configuration read again, addresses that come and go, and what goes wrong around the program.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::program::{PROGRAM, proxier, service, tool};
use crate::stage::{Daemon, Stage, nft, table, tables, until};

const NODE_PORT: &str = "port: 80, nodePort: 30080}";

fn web(endpoint: &str) -> String {
    service("web", "10.96.0.1", &[endpoint])
        .replace("spec:\n", "spec:\n  type: NodePort\n")
        .replace("port: 80}", NODE_PORT)
}

fn stage() -> Stage {
    Stage::new(&[("web.yaml", &web("10.244.1.1"))])
}

fn with_handles() -> String {
    nft(&["-a", "list", "ruleset"], "")
}

fn ip(args: &str) {
    let words: Vec<&str> = args.split(' ').collect();
    let output = tool("ip", &words, "");
    assert_eq!(output.code, 0, "ip {args}: {}", output.stderr_text());
}

fn node_port_addresses() -> String {
    nft(&["list", "set", "ip", "kube-proxy", "nodeport-ips"], "")
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_configuration_read_again_changes_what_it_can_and_tells_the_rest() {
    let stage = stage();
    stage.configure("serviceCIDRs: [10.96.0.0/16]\n");
    let daemon = stage.run();
    until("the range", || table("ip").contains("10.96.0.0/16"));
    let before = with_handles();

    // Another text that means the same, and a signal: nothing is written.
    stage.configure("# a word\nserviceCIDRs: ['10.96.0.0/16']\n");
    daemon.logged(&[("message", "configuration read again: nothing changed"), ("cause", "the file changed")]);
    daemon.signal(Signal::SIGHUP);
    daemon.logged(&[("message", "configuration read again: nothing changed"), ("cause", "SIGHUP")]);
    assert_eq!(daemon.count(&[("message", "synced"), ("sync.kind", "partial")]), 0);
    assert_eq!(with_handles(), before);

    // What is wrong is told, line by line, and the old state stays.
    stage.configure("serviceCIDRs: [10.96.0.0/40]\nmasqueradeEverything: true\n");
    let refused = "configuration refused; the one before stays in force";
    daemon.logged(&[("message", refused), ("reason", "serviceCIDRs[0]")]);
    daemon.logged(&[("message", refused), ("reason", "masqueradeEverything")]);
    assert_eq!(with_handles(), before);

    // A live one, one for the next start, and the log's level.
    stage.configure("serviceCIDRs: [10.97.0.0/16]\nbindAddressHardFail: true\n");
    daemon.logged(&[("message", "setting changed"), ("setting", "serviceCIDRs")]);
    daemon.logged(&[("message", "setting takes a restart"), ("setting", "bindAddressHardFail")]);
    until("the other range", || {
        table("ip").contains("10.97.0.0/16") && !table("ip").contains("10.96.0.0/16")
    });

    // An option of the backend: new instances take over, and connections' rules are there all the time.
    stage.configure("serviceCIDRs: [10.97.0.0/16]\nnftables: {layout: chains}\n");
    until("chains", || table("ip").contains("service-"));
    stage.in_order();
    stage.folder.write("web.yaml", &web("10.244.1.9"));
    until("a change afterwards", || table("ip").contains("10.244.1.9"));
    stage.in_order();
    let (status, lines) = daemon.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    let errors = lines.iter().filter(|l| l["level"] == "ERROR" && l["message"] != refused).count();
    assert_eq!(errors, 0, "{lines:#?}");
}

/// Cases: nftables-12.21
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn addresses_of_the_host_are_followed() {
    let stage = stage();
    stage.configure("nodePortAddresses: [192.0.2.0/24]\nverifyPeriod: 0s\n");
    ip("link add br0 type bridge");
    ip("addr add 192.0.2.1/24 dev br0");
    let daemon = stage.run();
    until("the first address", || node_port_addresses().contains("{ 192.0.2.1 }"));
    ip("addr add 192.0.2.2/24 dev br0");
    until("the second address", || node_port_addresses().contains("{ 192.0.2.1, 192.0.2.2 }"));
    ip("link del br0");
    until("no address", || !node_port_addresses().contains("192.0.2."));
    stage.in_order();
    assert_eq!(daemon.count(&[("level", "ERROR")]), 0);
}

/// Cases: core-11.74
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn pod_ranges_and_node_addresses_are_followed() {
    let stage = stage();
    let node = |range: &str, address: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: worker}}\nspec: {{podCIDRs: [{range}]}}\n\
             status: {{addresses: [{{type: InternalIP, address: {address}}}]}}\n"
        )
    };
    stage.folder.write("node.yaml", &node("10.244.1.0/24", "192.0.2.1"));
    stage.configure("detectLocalMode: NodeCIDR\n");
    let mut daemon = stage.run();
    until("the node's range", || table("ip").contains("10.244.1.0/24"));
    stage.folder.write("node.yaml", &node("10.244.7.0/24", "192.0.2.9"));
    until("the other range", || {
        table("ip").contains("10.244.7.0/24") && !table("ip").contains("10.244.1.0/24")
    });
    until("the other address", || node_port_addresses().contains("{ 192.0.2.9 }"));
    assert!(daemon.is_running());
    stage.in_order();
}

/// Cases: core-11.75
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn init_only_sets_what_needs_privilege_and_writes_no_rule() {
    let stage = stage();
    stage.configure("mode: iptables\niptables: {variant: legacy}\nnodePortAddresses: [127.0.0.0/8]\n");
    let setting = "/proc/sys/net/ipv4/conf/all/route_localnet";
    assert_eq!(fs::read_to_string(setting).expect("a setting").trim(), "0");
    let config = stage.config();
    let output = proxier(&["--init-only", "--config", &config, "--node", "worker"]);
    assert_eq!(output.code, 0, "{}", output.stderr_text());
    assert!(output.stdout_text().contains("iptables IPv4: prepared"), "{}", output.stdout_text());
    assert_eq!(fs::read_to_string(setting).expect("a setting").trim(), "1");
    assert!(!tool("iptables-legacy-save", &[], "").stdout_text().contains("KUBE"));
    assert_eq!(tables(), "");
    stage.others_untouched();
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn settings_that_cannot_be_written_are_told_and_rules_come_anyway() {
    let stage = stage();
    stage.configure("conntrack: {tcpEstablishedTimeout: 1h7m}\n");
    let config = stage.config();
    let line = stage.line("run", &config);
    let shell =
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec \"$0\" \"$@\"";
    let by = [&["--mount", "sh", "-c", shell, PROGRAM], &line[..]].concat();
    let daemon = Daemon::start_by("unshare", &by);
    daemon.logged(&[
        ("level", "WARN"),
        ("setting", "nf_conntrack_tcp_timeout_established"),
        ("reason", "read-only"),
    ]);
    daemon.logged(&[("message", "synced"), ("family", "IPv4"), ("sync.kind", "full")]);
    assert!(table("ip").contains("10.96.0.1"));
    let (status, _) = daemon.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn a_log_that_cannot_be_written_stops_nothing() {
    let stage = stage();
    let config = stage.config();
    let line = stage.line("run", &config);
    let by = [&["-c", "exec \"$0\" \"$@\" 2>/dev/full", PROGRAM], &line[..]].concat();
    let mut daemon = Daemon::start_by("sh", &by);
    until("the service", || table("ip").contains("10.244.1.1 . 8080"));
    stage.folder.write("web.yaml", &web("10.244.1.2"));
    until("a change", || table("ip").contains("10.244.1.2 . 8080"));
    assert!(daemon.is_running());
    assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn ended_at_any_moment_the_next_state_is_right() {
    let stage = stage();
    for i in 0..300 {
        let (name, address) = (format!("s{i}"), format!("10.96.{}.{}", 1 + i / 200, 1 + i % 200));
        let text = service(&name, &address, &["10.244.1.1", "10.244.1.2"]);
        stage.folder.write(&format!("{name}.yaml"), &text);
    }
    // A start takes some tens of milliseconds from the first list to the last rule; moments before, within and after it.
    let mut seed = 7_u32;
    for round in 0..16 {
        let daemon = stage.start();
        if round % 2 == 1 {
            daemon.logged(&[("message", "first complete list")]);
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        thread::sleep(Duration::from_millis((seed >> 24).into()) / 4);
        let endpoint = format!("10.244.2.{round}");
        stage.folder.write("web.yaml", &web(&endpoint));
        let (_, lines) = daemon.end(if round % 3 == 0 { Signal::SIGTERM } else { Signal::SIGKILL });
        assert!(lines.iter().all(|l| l["level"] != "ERROR"), "{lines:#?}");
        stage.others_untouched();
        if round % 4 == 3 {
            let daemon = stage.run();
            until(&endpoint, || table("ip").contains(&format!("{endpoint} . 8080")));
            stage.in_order();
            assert_eq!(daemon.end(Signal::SIGTERM).0.code(), Some(0));
        }
    }
}
