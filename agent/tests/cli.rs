//! The program from outside, without any right and without a kernel that does what it is told.

#![allow(clippy::expect_used, clippy::panic, reason = "all of it is a test")]

#[allow(dead_code, reason = "shared with the tests in the kernel, which use more of it")]
mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use program::{Folder, NODE, PROGRAM, peer, proxier, service, tool};
use proxier_sys::runner::Output;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer};
use serde_json::Value;

/// Runs a command without any capability, also when the tests have them all.
fn bare(command: &[&str]) -> Output {
    let status = fs::read_to_string("/proc/thread-self/status").expect("status");
    let rights = status.lines().find_map(|l| l.strip_prefix("CapEff:")).expect("rights");
    if rights.trim().chars().all(|c| c == '0') {
        tool(command[0], &command[1..], "")
    } else {
        let without = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"];
        tool("setpriv", &[&without, command].concat(), "")
    }
}

fn render(folder: &str, more: &[&str]) -> Output {
    bare(&[&[PROGRAM, "render", "--manifests", folder], &NODE[..], more].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The lines of a failure, each of which is the program's own.
#[track_caller]
fn failure(output: &Output) -> Vec<String> {
    assert_eq!(output.code, 1, "{output:?}");
    let line = |l: &str| l.strip_prefix("proxier: ").unwrap_or_else(|| panic!("whose line? {l}")).to_owned();
    output.stderr_text().lines().map(line).collect()
}

fn peer_folder() -> Folder {
    Folder::new(&[("state.yaml", &fs::read_to_string(peer()).expect("the corpus"))])
}

#[test]
fn render_needs_no_right() {
    let rights = bare(&["grep", "-E", "^Cap(Prm|Eff|Inh|Bnd|Amb)|^NoNewPrivs", "/proc/self/status"]);
    let effective = rights.stdout_text().lines().find(|l| l.starts_with("CapEff:")).map(str::to_owned);
    assert!(effective.expect("told").ends_with("\t0000000000000000"));
    let output = render(peer_folder().path(), &[]);
    assert_eq!(output.code, 0, "{}", output.stderr_text());
    assert_eq!(output.stderr_text(), "");
    let plan = output.stdout_text();
    for line in [
        r#"add element ip kube-proxy cluster-services { 10.96.66.43 . tcp . 80 comment "service-dataplane/echo-server:http" }"#,
        r#"add element ip6 kube-proxy cluster-services { fd00:10:96::a . tcp . 53 comment "kube-system/dns:dns-tcp" }"#,
        "add element ip kube-proxy nodeport-ips { 172.30.0.3 }",
        "add element ip6 kube-proxy nodeport-ips { fd00:30::3 }",
    ] {
        assert!(plan.contains(line), "{line} not in\n{plan}");
    }
}

#[test]
fn render_answers_in_json_what_it_answers_in_text() {
    let folder = peer_folder();
    let plan = render(folder.path(), &[]).stdout_text();
    let output = render(folder.path(), &["-o", "json"]);
    assert_eq!(output.code, 0, "{}", output.stderr_text());
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["problems"], Value::Array(Vec::new()));
    let plans = answer["plans"].as_array().expect("plans");
    let about: Vec<_> = plans.iter().map(|p| (p["backend"].as_str(), p["family"].as_str())).collect();
    assert_eq!(about, [(Some("nftables"), Some("IPv4")), (Some("nftables"), Some("IPv6"))]);
    let operations: Vec<&Value> =
        plans.iter().flat_map(|p| p["operations"].as_array().expect("list")).collect();
    let joined: String =
        operations.iter().map(|o| format!("{}\n", o["text"].as_str().expect("text"))).collect();
    assert_eq!(joined, plan);
    let for_dns = |o: &&&Value| o["servicePort"]["name"] == "dns" && o["servicePort"]["port"] == "dns-tcp";
    let dns: Vec<&&Value> = operations.iter().filter(for_dns).collect();
    assert!(!dns.is_empty());
    for operation in dns {
        assert_eq!(operation["servicePort"]["namespace"], "kube-system");
        assert_eq!(operation["servicePort"]["protocol"], "tcp");
        assert!(operation["text"].as_str().expect("text").contains(" . tcp . 53"), "{operation}");
    }
    assert!(operations.iter().any(|o| o["servicePort"].is_null()), "what all share belongs to none");
}

#[test]
fn render_is_the_same_from_any_file_and_in_any_order() {
    let whole = peer_folder();
    let state = fs::read_to_string(peer()).expect("the corpus");
    let documents: Vec<&str> = state.split("\n---\n").collect();
    assert!(documents.len() > 20);
    let single = Folder::new(&[]);
    for (i, document) in documents.iter().enumerate() {
        // neither the order of the documents nor its reverse
        single.write(&format!("{:02}.yaml", i * 7 % documents.len()), document);
    }
    let reversed: Vec<&str> = documents.iter().rev().copied().collect();
    let reversed = Folder::new(&[("a.yml", &reversed.join("\n---\n"))]);
    for more in [&[][..], &["-o", "json"]] {
        let first = render(whole.path(), more).stdout;
        assert!(first.len() > 10_000);
        assert_eq!(text(&render(whole.path(), more).stdout), text(&first), "twice");
        assert_eq!(text(&render(single.path(), more).stdout), text(&first), "a file for each");
        assert_eq!(text(&render(reversed.path(), more).stdout), text(&first), "backwards");
    }
}

#[test]
fn render_asks_an_api_server_as_well() {
    let server = BlockingApiServer::start(ApiServer::builder()).expect("a server");
    server.put_yaml(&fs::read_to_string(peer()).expect("the corpus")).expect("put");
    let folder = Folder::new(&[("kubeconfig", &server.kubeconfig(None))]);
    let from_files = render(peer_folder().path(), &[]).stdout;
    for source in [["--kubeconfig", &folder.file("kubeconfig")], ["--master", &server.url()]] {
        let output = bare(&[&[PROGRAM, "render"], &source[..], &NODE[..]].concat());
        assert_eq!(output.code, 0, "{}", output.stderr_text());
        assert_eq!(text(&output.stdout), text(&from_files), "{source:?}");
    }
    server.stop();
    let told = failure(&bare(&[&[PROGRAM, "render", "--master", &server.url()], &NODE[..]].concat()));
    let told = told.last().expect("told");
    assert!(told.starts_with("source kubernetes: the API server cannot be reached: "), "{told}");
}

#[test]
fn render_goes_on_after_broken_input_and_names_it() {
    let good = service("good", "10.96.0.1", &["10.244.1.1"]);
    let bad_field = service("typed", "10.96.0.2", &[]).replace("port: 80}", "port: eighty}");
    let folder = Folder::new(&[
        ("a.yaml", &format!("{good}---\n{bad_field}")),
        ("b.yaml", "kind: [\n"),
        ("c.yaml", &service("malformed", "10.96.0.300", &["10.244.1.3"])),
        ("d.json", r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop"}}"#),
    ]);
    let output = render(folder.path(), &["--log-format", "json"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout_text().contains(r#"comment "shop/good:http""#));
    let lines: Vec<Value> =
        output.stderr_text().lines().map(|l| serde_json::from_str(l).expect("a JSON line")).collect();
    let told: Vec<&str> = lines.iter().filter_map(|l| l["problem"].as_str()).collect();
    let has = |parts: &[&str]| told.iter().any(|t| parts.iter().all(|p| t.contains(p)));
    for parts in [
        &["a.yaml: document 3: ", "Service shop/typed", "spec.ports[0].port", "eighty"][..],
        &["b.yaml: document 1", "line "],
        &["Service shop/malformed", "spec.clusterIPs[0]", "10.96.0.300"],
        &["d.json: document 1", "metadata.name"],
    ] {
        assert!(has(parts), "{parts:?} not in {told:#?}");
    }
    assert_eq!(told.len(), 4, "{told:#?}");

    let output = render(folder.path(), &["-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut problems: Vec<&str> =
        answer["problems"].as_array().expect("list").iter().map(|p| p.as_str().expect("text")).collect();
    problems.sort_unstable();
    let mut expected = told.clone();
    expected.sort_unstable();
    assert_eq!(problems, expected);
}

#[test]
fn render_takes_the_node_from_its_object_or_the_configuration() {
    let service =
        service("s", "10.96.0.1", &["10.244.1.1"]).replace("port: 80}", "port: 80, nodePort: 30080}");
    let folder = Folder::new(&[("s.yaml", &service.replace("spec:\n", "spec:\n  type: NodePort\n"))]);
    let config = Folder::new(&[(
        "c.yaml",
        "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\ndetectLocalMode: NodeCIDR\nnode: {ips: [192.0.2.9], podCIDRs: [10.9.0.0/24]}\n",
    )]);
    let file = config.file("c.yaml");
    let args = [PROGRAM, "render", "--manifests", folder.path(), "--node", "Other ", "--config", &file];
    let plan = bare(&args).stdout_text();
    assert!(plan.contains("nodeport-ips { 192.0.2.9 }"), "{plan}");
    assert!(plan.contains("ip saddr != 10.9.0.0/24 "), "{plan}");

    folder.write(
        "n.yaml",
        "apiVersion: v1\nkind: Node\nmetadata: {name: other}\nspec: {podCIDRs: [10.8.0.0/24]}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.8}]}\n",
    );
    config.write(
        "c.yaml",
        "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\ndetectLocalMode: NodeCIDR\n",
    );
    let plan = bare(&args).stdout_text();
    assert!(plan.contains("nodeport-ips { 192.0.2.8 }"), "{plan}");
    assert!(plan.contains("ip saddr != 10.8.0.0/24 "), "{plan}");
}

#[test]
fn masquerading_everything_is_a_setting_of_the_backend() {
    let folder = Folder::new(&[("s.yaml", &service("s", "10.96.0.1", &["10.244.1.1"]))]);
    let config = Folder::new(&[(
        "c.yaml",
        "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\nnftables: {masqueradeAll: true}\n",
    )]);
    let detected = render(folder.path(), &[]).stdout_text();
    let all = render(folder.path(), &["--config", &config.file("c.yaml")]).stdout_text();
    assert!(detected.contains("ip saddr != 10.244.0.0/16 "));
    assert!(!all.contains("ip saddr != 10.244.0.0/16 "), "{all}");
}

#[test]
fn a_reader_may_stop_reading() {
    let folder = peer_folder();
    for more in [&[][..], &["-o", "json"]] {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(reader);
        #[allow(clippy::disallowed_methods, reason = "the runner reads what it starts to the end")]
        let mut command = std::process::Command::new(PROGRAM);
        command.args(["render", "--manifests", folder.path()]).args(NODE).args(more);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("started");
        assert_eq!(text(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn what_is_missing_is_named() {
    let missing = bare(&[PROGRAM, "render", "--manifests", "/nonexistent/folder", "--node", "n"]);
    assert_eq!(
        failure(&missing),
        ["cannot read folder /nonexistent/folder: No such file or directory (os error 2)"]
    );
    for command in ["run", "render", "verify"] {
        assert_eq!(
            failure(&bare(&[PROGRAM, command, "--node", "n"])),
            ["no source: give --kubeconfig FILE, --master URL or --manifests DIR, or a source in the file; \
              this is no pod with a service account either"],
            "{command}"
        );
    }
    for command in ["run", "render", "verify", "check-config", "cleanup", "probe"] {
        assert_eq!(
            failure(&bare(&[PROGRAM, command, "--backend", "nftabels"])),
            [
                "flag --backend: mode: \"nftabels\" is not one of nftables, iptables, ipvs, auto; did you mean nftables?"
            ],
            "{command}"
        );
        assert_eq!(
            failure(&bare(&[PROGRAM, command, "--config", "/nonexistent/c.yaml"])),
            ["/nonexistent/c.yaml: No such file or directory (os error 2)"],
            "{command}"
        );
    }
}

#[test]
fn the_lab_is_another_program_beside_this_one() {
    let folder = Folder::new(&[]);
    let program = folder.file("proxier");
    fs::copy(PROGRAM, &program).expect("copied");
    assert_eq!(
        failure(&bare(&[&program, "lab", "--only", "A"])),
        [format!(
            "{} is not there; build it with `cargo build --package e2e`, or use `cargo xtask lab`",
            folder.file("proxier-lab")
        )]
    );
    folder.write("proxier-lab", "#!/bin/sh\necho \"lab: $*\"\nexit 3\n");
    fs::set_permissions(folder.file("proxier-lab"), fs::Permissions::from_mode(0o755)).expect("executable");
    let output = bare(&[&program, "lab", "--only", "A", "--help"]);
    assert_eq!((output.code, output.stdout_text().trim_end()), (3, "lab: --only A --help"));
}

#[test]
fn check_config_prints_every_setting_with_its_source() {
    let config = Folder::new(&[(
        "c.yaml",
        "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\nclusterCIDR: 10.0.0.0/8\nverifyPeriod: 5s\nnftables: {layout: chains}\n",
    )]);
    let file = config.file("c.yaml");
    let args =
        ["check-config", "--config", &file, "--cluster-cidr", "10.244.0.0/16", "--manifests", "m", "-v"];
    let output = bare(&[&[PROGRAM], &args[..]].concat());
    assert_eq!((output.code, output.stderr_text().as_str()), (0, ""));
    let from_file = |line: &str| format!("{line}  # from {file}");
    let expected = [
        from_file(r#"apiVersion: "proxier.io/v1alpha1""#),
        from_file(r#"kind: "ProxierConfiguration""#),
        r#"mode: "nftables"  # from default"#.to_owned(),
        r#"auto.order: ["nftables","iptables","ipvs"]  # from default"#.to_owned(),
        r#"hostnameOverride: ""  # from default"#.to_owned(),
        r#"source.kubernetes.kubeconfig: ""  # from default"#.to_owned(),
        r#"source.kubernetes.server: ""  # from default"#.to_owned(),
        r#"source.manifests.path: "m"  # from flag --manifests"#.to_owned(),
        r#"clientConnection.qps: 5  # from default"#.to_owned(),
        r#"healthzBindAddress: "0.0.0.0:10256"  # from default"#.to_owned(),
        r#"admin.socket: "/run/proxier/admin.sock"  # from default"#.to_owned(),
        r#"syncPeriod: "30s"  # from nftables.syncPeriod"#.to_owned(),
        r#"minSyncPeriod: "0s"  # from nftables.minSyncPeriod"#.to_owned(),
        from_file(r#"verifyPeriod: "5s""#),
        r#"conntrack.maxPerCore: 32768  # from default"#.to_owned(),
        r#"clusterCIDR: "10.244.0.0/16"  # from flag --cluster-cidr"#.to_owned(),
        r#"nodePortAddresses: ["primary"]  # from default"#.to_owned(),
        r#"firstServices: ["default/kubernetes","kube-system/kube-dns"]  # from default"#.to_owned(),
        r#"logging.format: "text"  # from default"#.to_owned(),
        r#"logging.verbosity: 4  # from flag -v"#.to_owned(),
        r#"logging.level: "debug"  # from logging.verbosity"#.to_owned(),
        r#"iptables.masqueradeBit: 14  # from default"#.to_owned(),
        r#"iptables.localhostNodePorts: true  # from default"#.to_owned(),
        r#"iptables.variant: "auto"  # from default"#.to_owned(),
        r#"ipvs.scheduler: "rr"  # from default"#.to_owned(),
        r#"ipvs.drainTimeout: "900s"  # from default"#.to_owned(),
        r#"nftables.masqueradeBit: 14  # from default"#.to_owned(),
        r#"nftables.table: "kube-proxy"  # from default"#.to_owned(),
        from_file(r#"nftables.layout: "chains""#),
        r#"featureGates.AllowServiceExternalIPs: true  # from default"#.to_owned(),
    ];
    let text = output.stdout_text();
    let mut lines = text.lines();
    for line in &expected {
        assert!(lines.any(|l| l == line), "{line} not there, or not in its place, in\n{text}");
    }
    assert!(text.lines().all(|l| l.contains("  # from ")), "{text}");
}

#[test]
fn all_faults_of_a_configuration_come_at_once() {
    let config = Folder::new(&[(
        "c.yaml",
        "apiVersion: proxier.io/v1alpha1
mode: nftabels
syncperiod: 3s
masqueradeAll: true
clusterCIDR: 10.0.0.0/33
nftables: {layuot: maps, layout: trees, masqueradeBit: 99}
minSyncPeriod: 2h
syncPeriod: 3h
",
    )]);
    let file = config.file("c.yaml");
    let expected = [
        format!(
            "{file}: mode: \"nftabels\" is not one of nftables, iptables, ipvs, auto; did you mean nftables?"
        ),
        format!("{file}: syncperiod: unknown key; did you mean syncPeriod?"),
        format!("{file}: masqueradeAll: unknown key; did you mean iptables.masqueradeAll?"),
        format!("{file}: clusterCIDR: \"10.0.0.0/33\" has prefix length"),
        format!("{file}: nftables.layuot: unknown key; did you mean layout?"),
        format!("{file}: nftables.layout: expected maps or chains, got \"trees\""),
        format!("{file}: nftables.masqueradeBit: expected a number from 0 to 31, found the number 99"),
        format!("{file}: kind: missing; say kind: ProxierConfiguration"),
        format!("{file}: minSyncPeriod: longer than an hour"),
        "flag --log-format: logging.format: \"xml\" is not one of text, json".to_owned(),
    ];
    for command in ["check-config", "run", "render", "cleanup"] {
        let told = failure(&bare(&[PROGRAM, command, "--config", &file, "--log-format", "xml"]));
        for line in &expected {
            let found = told.iter().filter(|t| t.starts_with(line)).count();
            assert_eq!(found, 1, "{command}: {line} in {told:#?}");
        }
        assert_eq!(told.len(), expected.len(), "{command}: {told:#?}");
    }
}

/// What a DaemonSet of kube-proxy mounts and says.
const PEER: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
conntrack: {maxPerCore: null}
iptables: {minSyncPeriod: 0s}
mode: ''
metricsBindAddress: ''
foo: bar
";

#[test]
fn a_kube_proxys_file_is_read_as_it_is() {
    let config = Folder::new(&[("config.conf", PEER)]);
    let file = config.file("config.conf");
    let args =
        [PROGRAM, "check-config", "--config", &file, "--hostname-override=Worker", "--ipvs-scheduler=lc"];
    let output = bare(&args);
    assert_eq!((output.code, output.stderr_text().as_str()), (0, ""));
    let text = output.stdout_text();
    for line in [
        "mode: \"iptables\"  # from default".to_owned(),
        "hostnameOverride: \"worker\"  # from flag --hostname-override".to_owned(),
        format!("clusterCIDR: \"10.244.0.0/16\"  # from {file}"),
        "minSyncPeriod: \"1s\"  # from iptables.minSyncPeriod".to_owned(),
        "ipvs.scheduler: \"rr\"  # from default".to_owned(),
        "metricsBindAddress: \"127.0.0.1:10249\"  # from default".to_owned(),
        format!("# warning: {file}: foo: unknown field, ignored"),
        "# warning: flag --ipvs-scheduler: ipvs.scheduler: ignored: beside a KubeProxyConfiguration only the file says it".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
    }
}

#[test]
fn the_configuration_in_force_is_written_and_read_again() {
    let folder = Folder::new(&[("config.conf", PEER)]);
    let (file, written) = (folder.file("config.conf"), folder.file("written.yaml"));
    let output = bare(&[PROGRAM, "--config", &file, "--write-config-to", &written, "--v=5"]);
    assert_eq!((output.code, output.stdout_text().as_str()), (0, ""), "{output:?}");
    assert!(output.stderr_text().contains("unknown field, ignored"), "{output:?}");
    let values = |file: &str, more: &[&str]| -> Vec<String> {
        let output = bare(&[&[PROGRAM, "check-config", "--config", file], more].concat());
        assert_eq!(output.code, 0, "{output:?}");
        let values = output.stdout_text();
        let values = values.lines().filter(|l| !l.starts_with('#')).skip(2);
        values.filter_map(|l| Some(l.split_once("  # from ")?.0.to_owned())).collect()
    };
    assert_eq!(values(&written, &[]), values(&file, &["--v=5"]));
    let told = failure(&bare(&[PROGRAM, "--write-config-to", "/nonexistent/f"]));
    assert_eq!(told, ["/nonexistent/f: No such file or directory (os error 2)"]);
}

/// Cases: core-11.75
#[test]
fn cleaning_up_with_a_wrong_configuration_cleans_nothing() {
    let folder = Folder::new(&[("config.conf", &PEER.replace("mode: ''", "oomScoreAdj: 1001"))]);
    let file = folder.file("config.conf");
    for args in [&["--cleanup", "--config", &file][..], &["cleanup", "--config", &file]] {
        let output = bare(&[&[PROGRAM], args].concat());
        assert_eq!(output.stdout_text(), "");
        assert_eq!(
            failure(&output),
            [format!("{file}: oomScoreAdj: expected a number from -1000 to 1000, found the number 1001")]
        );
    }
}

#[test]
fn mode_auto_says_what_it_takes_and_why() {
    let output = bare(&[PROGRAM, "check-config", "--backend", "auto"]);
    assert_eq!((output.code, output.stderr_text().as_str()), (0, ""));
    let text = output.stdout_text();
    assert!(text.contains("mode: \"auto\"  # from flag --backend\n"), "{text}");
    let asked: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("# auto: ")).collect();
    // without any right the kernel can hardly be asked
    assert!(asked.len() >= 2, "{text}");
    assert!(asked[0].starts_with("nftables: "), "{text}");
    assert!(asked.last().expect("lines").starts_with("mode "), "{text}");
    let rendered = render(peer_folder().path(), &["--backend", "auto"]);
    assert_eq!(rendered.code, 0, "{rendered:?}");
    assert!(!rendered.stdout_text().is_empty());
}

#[test]
fn wrong_usage_is_told_apart() {
    for args in [&["render", "-o", "xml"][..], &["nothing"], &[], &["cleanup", "--manifests", "m"]] {
        let output = proxier(args);
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
        assert!(output.stderr_text().contains("--help"), "{args:?}: {output:?}");
    }
}

#[test]
fn help_names_every_flag() {
    let base = ["--config <FILE>", "--backend <NAME>", "--log-format <FORMAT>", "-v"];
    let run = ["--init-only", "--cleanup", "--write-config-to <FILE>", "--version"];
    let cluster = [
        "--kubeconfig <FILE>",
        "--master <URL>",
        "--manifests <DIR>",
        "--node <NAME>",
        "--cluster-cidr <CIDR>",
    ];
    let commands: [(&str, &[&[&str]]); 6] = [
        ("run", &[&base, &cluster, &run]),
        ("render", &[&base, &cluster, &["-o, --output <OUTPUT>", "text", "json"]]),
        ("verify", &[&base, &cluster]),
        ("check-config", &[&base, &cluster]),
        ("probe", &[&base]),
        ("cleanup", &[&base]),
    ];
    let all = proxier(&["--help"]);
    assert_eq!(all.code, 0);
    for (command, flags) in commands {
        assert!(all.stdout_text().contains(&format!("\n  {command} ")), "{command}");
        let output = proxier(&[command, "--help"]);
        assert_eq!(output.code, 0);
        for flag in flags.concat() {
            assert!(output.stdout_text().contains(flag), "{command}: {flag} not in {}", output.stdout_text());
        }
    }
    assert!(all.stdout_text().contains("\n  lab "));
    for version in ["--version", "--version=raw", "-V"] {
        let version = proxier(&[version]).stdout_text();
        assert_eq!(version.trim_end(), concat!("proxier ", env!("CARGO_PKG_VERSION")));
    }
}
