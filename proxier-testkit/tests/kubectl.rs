//! A smoke test with the real `kubectl`, where it is installed.
//!
//! The program of this test is its own harness: only so can a test that is not ignored in the source say at run time that
//! it was ignored, and why. It prints what a test program prints, so that CI shows and counts it.

#![expect(clippy::unwrap_used, reason = "all of it is a test, though not to the compiler")]

use std::io::{Write, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use proxier_testkit::apiserver::{ApiServer, BlockingApiServer, Verb};
use serde_json::json;

/// Why nothing was run.
const MISSING: &str = "kubectl is not installed";

/// A server and what `kubectl` needs to talk to it.
struct World {
    server: BlockingApiServer,
    folder: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let server = BlockingApiServer::start(ApiServer::builder().tls().token("secret", "admin")).unwrap();
        server.put_yaml(include_str!("../corpus/peer/state.yaml")).unwrap();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kubectl-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config"), server.kubeconfig(Some("admin"))).unwrap();
        // What was found at another server must not be believed.
        let _none = std::fs::remove_dir_all(folder.join("cache"));
        Self { server, folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = kubectl();
        command.arg("--kubeconfig").arg(self.folder.join("config"));
        command.arg("--cache-dir").arg(self.folder.join("cache"));
        command.args(["--request-timeout", "20s"]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    /// Runs it and expects success.
    fn ok(&self, arguments: &[&str]) -> String {
        let (success, text) = self.run(arguments);
        assert!(success, "kubectl {arguments:?}: {text}");
        text
    }
}

#[expect(clippy::disallowed_methods, reason = "a test starts the tools it is about")]
fn kubectl() -> Command {
    Command::new("kubectl")
}

fn lists_and_describes() {
    let world = World::new("lists");
    assert!(world.ok(&["version"]).contains("Server Version: v0.0.0-master+8e16b12f"));
    assert_eq!(world.ok(&["get", "--raw", "/readyz"]).trim(), "ok");
    let resources = world.ok(&["api-resources", "-o", "name"]);
    for resource in ["services", "nodes", "endpointslices.discovery.k8s.io", "servicecidrs.networking.k8s.io"]
    {
        assert!(resources.lines().any(|line| line == resource), "{resource} in {resources}");
    }
    assert_eq!(world.ok(&["get", "svc", "-A", "-o", "name"]).lines().count(), 15);
    let lists = world.server.requests(Verb::List, "services");
    assert_eq!(world.ok(&["get", "svc", "-A", "--chunk-size=4", "-o", "name"]).lines().count(), 15);
    assert_eq!(world.server.requests(Verb::List, "services"), lists + 4, "in pages");
    let selector = "!service.kubernetes.io/service-proxy-name";
    let selected =
        world.ok(&["get", "svc", "-n", "web", "-l", selector, "--field-selector", "spec.clusterIP!=None"]);
    assert!(
        selected.contains("front") && !selected.contains("headless") && !selected.contains("other-proxy")
    );
    let described = world.ok(&["describe", "svc", "-n", "web", "front"]);
    assert!(described.contains("10.244.1.21:8080,10.244.2.21:8080"), "{described}");
    let (success, text) = world.run(&["get", "node", "none"]);
    assert!(!success && text.contains("nodes \"none\" not found"), "{text}");
}

fn watches() {
    let world = World::new("watches");
    let child =
        world.command(&["get", "svc", "-n", "web", "--watch", "-o", "name"]).stdout(Stdio::piped()).spawn();
    let child = child.unwrap();
    for _ in 0..2000 {
        if world.server.watches("services") > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(world.server.watches("services"), 1);
    let new = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "web", "name": "new"}});
    world.server.put(new).unwrap();
    world.server.end_watches();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().last(), Some("service/new"));
}

fn writes_events() {
    let world = World::new("events");
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"namespace": "default", "name": "e"}, "eventTime": "2026-11-30T07:00:00.000000Z",
        "type": "Normal", "reason": "Starting", "action": "Start", "reportingController": "proxier",
        "reportingInstance": "i", "regarding": {"kind": "Node", "name": "worker"}});
    let file = world.folder.join("event.json");
    std::fs::write(&file, event.to_string()).unwrap();
    world.ok(&["create", "--validate=false", "-f", file.to_str().unwrap()]);
    let listed = world.ok(&["events"]);
    assert!(listed.contains("Starting") && listed.contains("Node/worker"), "{listed}");
    let (success, text) = world.run(&["delete", "svc", "-n", "web", "front"]);
    assert!(!success && text.contains("MethodNotAllowed"), "{text}");
}

fn obeys_rules() {
    let world = World::new("rules");
    world.server.forbid("admin");
    let (success, text) = world.run(&["get", "nodes"]);
    assert!(!success && text.contains("User \"admin\" cannot list resource \"nodes\""), "{text}");
    world.server.add_token("other", "admin");
    std::fs::write(world.folder.join("config"), world.server.kubeconfig(None)).unwrap();
    assert!(!world.run(&["get", "nodes"]).0, "nobody");
}

const TESTS: [(&str, fn()); 4] = [
    ("lists_and_describes", lists_and_describes),
    ("watches", watches),
    ("writes_events", writes_events),
    ("obeys_rules", obeys_rules),
];

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    // None is marked as ignored, so that there is nothing to run for who asks for those only.
    let wanted = |name: &str| {
        !has("--ignored") && (filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str())))
    };
    let tests: Vec<_> = TESTS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let mut out = stdout();
    if has("--list") {
        return tests.iter().try_for_each(|(name, _)| writeln!(out, "{name}: test"));
    }
    let there = kubectl().args(["version", "--client"]).output().is_ok_and(|output| output.status.success());
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    writeln!(out, "\nrunning {} tests", tests.len())?;
    for (name, test) in &tests {
        let (count, verdict) = if !there {
            (&mut ignored, format!("ignored, {MISSING}"))
        } else if catch_unwind(AssertUnwindSafe(test)).is_ok() {
            (&mut passed, "ok".to_owned())
        } else {
            (&mut failed, "FAILED".to_owned())
        };
        *count += 1;
        writeln!(out, "test {name} ... {verdict}")?;
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let left = TESTS.len() - tests.len();
    writeln!(
        out,
        "\ntest result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {left} filtered out"
    )?;
    if failed > 0 { Err(std::io::Error::other("tests failed")) } else { Ok(()) }
}
