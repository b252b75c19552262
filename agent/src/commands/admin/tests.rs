//! The commands, asking a desk on a socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use proxier_core::driver::SyncKind;
use proxier_core::ids::IpFamily;
use proxier_testkit::scale;

use super::*;
use crate::admin::tests::Rig;
use crate::admin::{Attached, MetricsOptions, Surroundings, attach};
use crate::events::Logged;
use crate::http::Servers;
use crate::world::Problems;

fn serve(rig: &Rig, socket: &Path) -> Attached {
    let options =
        MetricsOptions { address: None, admin_socket: Some(socket.to_owned()), ..MetricsOptions::default() };
    let around = Surroundings {
        insight: Arc::clone(&rig.insight),
        servers: Servers::start().expect("a thread"),
        node: "n1".to_owned(),
        source: "manifests",
        problems: Problems::default(),
        messages: sync_channel(1).0,
        events: Arc::new(Logged),
    };
    attach(options, around).expect("served").1
}

fn args(socket: &Path, service: Option<&str>, output: OutputFormat) -> AdminArgs {
    AdminArgs {
        socket: socket.to_owned(),
        service: service.map(str::to_owned),
        family: Some("ipv4".to_owned()),
        output,
    }
}

type Run = fn(&AdminArgs, &mut dyn Write) -> anyhow::Result<Ended>;

fn told(run: Run, args: &AdminArgs) -> Vec<String> {
    let mut out = Vec::new();
    assert_eq!(run(args, &mut out).expect("answered"), Ended::Well);
    String::from_utf8(out).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn answers_are_printed_for_people() {
    let folder = tempfile::tempdir().expect("folder");
    let socket = folder.path().join("admin.sock");
    let mut rig = Rig::running(25);
    rig.cluster.upsert_slice(scale::slice(3, 2, 1));
    rig.cluster.remove_service(&scale::service(5).name);
    rig.round();
    rig.set_aside.insert(
        rig.force.ipv4.as_ref().expect("in force").ports().next().expect("one").name.clone(),
        "EINVAL".into(),
    );
    rig.sync(IpFamily::Ipv4, SyncKind::Full);
    rig.cluster.upsert_service(scale::service(30));
    rig.commit();
    rig.fail(IpFamily::Ipv4, SyncKind::Partial);
    let attached = serve(&rig, &socket);
    let text = |service| args(&socket, service, OutputFormat::Text);
    let lines = told(status, &text(None));
    for line in [
        "node n1, mode fake, version 0.1.0, started 2023-11-14T22:13:20Z",
        "source manifests: list NOT COMPLETE YET, last event never, 0 requests, 0 failed",
        "IPv4: generation 2 in force, 3 desired; 24 service ports",
        "  PENDING since 0.0 s ago",
        "  last failure 0.0 s ago (1 in a row): no room [transient]",
        "  not compared with the kernel yet",
        "  SET ASIDE: 1 service ports",
        "    bench/svc-0:http/tcp: EINVAL",
        "input problems: 0",
    ] {
        assert!(lines.iter().any(|l| l == line), "{line} not in {lines:#?}");
    }
    let lines = told(syncs, &text(None));
    assert!(
        lines[0].starts_with("2023-11-14T22:13:20Z IPv4 FAILED generation 3: 0 operations"),
        "{lines:#?}"
    );
    for line in [
        "  error: no room",
        "  + bench/svc-30:http/tcp",
        "  ~ bench/svc-3:http/tcp",
        "  - bench/svc-5:http/tcp",
        "  + and 5 more",
    ] {
        assert!(lines.iter().any(|l| l == line), "{line} not in {lines:#?}");
    }
    let lines = told(snapshot, &text(None));
    assert_eq!(lines[0], "IPv4, generation 3, NOT IN FORCE YET");
    assert_eq!(lines[1], "  bench/svc-0:http/tcp: 1 endpoints, 1 for the cluster, 0 local");
    let lines = told(snapshot, &text(Some("bench/svc-0")));
    assert_eq!(
        lines[1..5],
        [
            "  bench/svc-0:http/tcp",
            "    SET ASIDE: EINVAL",
            "    cluster IP 10.64.0.1:80/tcp",
            "    policy: internal Cluster, external Cluster; topology None"
        ]
    );
    assert!(
        lines[5].starts_with("    10.128.0.0:8080 ") && lines[5].ends_with(" cluster: used"),
        "{lines:#?}"
    );
    assert_eq!(told(rules, &text(None)), [""; 0], "no printer");
    let json = told(status, &args(&socket, None, OutputFormat::Json)).join("\n");
    let value: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["node"], "n1");
    let refusal = snapshot(&text(Some("svc-0")), &mut Vec::new()).expect_err("refused").to_string();
    assert_eq!(refusal, "the agent says: service is namespace/name, not \"svc-0\"");
    drop(attached);
    let gone = status(&text(None), &mut Vec::new()).expect_err("gone").to_string();
    assert_eq!(gone, format!("cannot ask the agent at {}", socket.display()));
}

#[test]
fn what_is_asked_for_is_encoded() {
    let args = args(Path::new("s"), Some("a b/c&d"), OutputFormat::Text);
    assert_eq!(args.target("/snapshot"), "/snapshot?service=a%20b/c%26d&family=ipv4");
    let none = AdminArgs { service: None, family: None, ..args };
    assert_eq!(none.target("/status"), "/status");
}

#[test]
fn answers_that_are_none_are_told() {
    assert_eq!(read(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some((200, &b"{}"[..])));
    assert_eq!(read(b"HTTP/1.1 200 OK\r\nA: b\r\n"), None);
    assert_eq!(read(b"SSH-2.0\r\n\r\n"), None);
}
