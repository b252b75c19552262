//! The lab in the kernel: its topology carries traffic, it tells right from wrong, it leaves nothing behind, and the agent
//! passes it.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which fail by panicking")]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use e2e::isolate::cover_run;
use e2e::topology::{Pod, Topology, pod_addresses};
use e2e::traffic::{Lasting, Listen, Seen, Server, connect, exchange};
use e2e::{process, world::World};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proxier_sys::netns::Netns;

const LAB: &str = env!("CARGO_BIN_EXE_proxier-lab");
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-in.sh");

/// A machine of its own for one test: a thread in fresh network and mount namespaces with a private `/run`. Threads and
/// processes that the work starts live there too.
fn machine(work: impl FnOnce() + Send + 'static) {
    let enter = move || {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
        cover_run().unwrap();
        work();
    };
    std::thread::spawn(enter).join().unwrap();
}

/// Copies a program so that anybody can run it. A process of its own does it: a child that another test starts meanwhile
/// would inherit our handle for writing, and the kernel runs no file that is open for writing.
fn install(program: &str, copy: &Path) {
    process::run("install", ["-m", "755", program, copy.to_str().unwrap()], "").unwrap();
}

/// The stand-in for the agent at a path that no other process has in its arguments.
struct StandIn {
    folder: tempfile::TempDir,
}

impl StandIn {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let stand_in = Self { folder };
        install(STAND_IN, &stand_in.path());
        stand_in
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("stand-in")
    }

    fn lab(&self, only: &str, fault: &str) -> Command {
        lab(LAB, &[Path::new("--proxier"), &self.path(), Path::new("--only"), Path::new(only)], fault)
    }

    /// Processes with the path among their arguments.
    fn processes(&self) -> Vec<String> {
        let path = self.path();
        let own = std::process::id().to_string();
        let ids = fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
        ids.filter(|id| *id != own && id.bytes().all(|b| b.is_ascii_digit()))
            .filter_map(|id| fs::read(format!("/proc/{id}/cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains(path.to_str().unwrap()))
            .collect()
    }
}

fn lab(program: &str, arguments: &[&Path], fault: &str) -> Command {
    let mut command = process::command(program, arguments);
    command.env("STAND_IN_FAULT", fault).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everything of this thread's machine that the lab could have touched.
fn surroundings() -> [String; 5] {
    let run = |program: &str, arguments: &[&'static str]| {
        process::run(program, arguments.iter().copied(), "").unwrap()
    };
    [
        run("ip", &["netns", "list"]),
        run("ip", &["-o", "link"]),
        run("nft", &["list", "ruleset"]),
        fs::read_to_string("/proc/thread-self/mountinfo").unwrap(),
        run("find", &["/run"]),
    ]
}

/// A bystander's namespace, link and rules, which must stay as they are.
fn bystander() {
    process::run("ip", ["-batch", "-"], "netns add worker\nlink add br0 type bridge\nlink set br0 up\n")
        .unwrap();
    process::run("nft", ["-f", "-"], "table ip kube-proxy { chain services { drop; }; }").unwrap();
}

/// Runs the lab with `end`, which gets the running lab, and checks that nothing of it stays.
fn leaves_nothing(end: impl FnOnce(Child) -> Option<i32> + Send + 'static, expected: Option<i32>) {
    machine(move || {
        bystander();
        let stand_in = StandIn::new();
        let before = surroundings();
        let child = stand_in.lab("A/chains", "").spawn().unwrap();
        until("both agents run", || {
            stand_in.processes().iter().filter(|p| p.contains("run --manifests")).count() == 2
        });
        assert_eq!(end(child), expected);
        until("no process of the lab is left", || stand_in.processes().is_empty());
        assert_eq!(surroundings(), before);
    });
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn the_topology_connects_what_a_cluster_connects() {
    machine(|| {
        let pod = |name, node, cidr, number| Pod { name, node, addresses: pod_addresses(cidr, number) };
        let topology = Topology::two_workers(vec![
            pod("one", "worker", 1, 2),
            pod("two", "worker", 1, 3),
            pod("three", "worker2", 2, 2),
        ]);
        let world = World::up(topology).unwrap();
        let limit = Duration::from_secs(3);
        let mut servers = Vec::new();
        let mut targets: Vec<(&str, IpAddr)> = Vec::new();
        let members = world.topology().pods.iter().map(|p| (p.name, p.addresses));
        for (name, addresses) in members.chain(world.topology().nodes.iter().map(|n| (n.name, n.addresses))) {
            for address in addresses.both() {
                let sockets = [Listen::Tcp((address, 8080).into()), Listen::Udp((address, 8081).into())];
                servers.push(Server::start(name, name, &sockets).unwrap());
                targets.push((name, address));
            }
        }
        for pod in &world.topology().pods {
            for (server, target) in &targets {
                let own = pod.addresses.both()[usize::from(target.is_ipv6())];
                let expected = Seen::Answered { server: (*server).to_owned(), client: own };
                let tcp = connect(pod.name, Some(own), SocketAddr::new(*target, 8080), limit).unwrap();
                assert_eq!(tcp, expected, "tcp from {} to {target}", pod.name);
                let udp = exchange(pod.name, None, SocketAddr::new(*target, 8081), limit).unwrap();
                assert_eq!(udp, expected, "udp from {} to {target}", pod.name);
            }
        }
        // An outside client knows the nodes, not the pods.
        let seen = |to: &str| connect("client", None, to.parse().unwrap(), Duration::from_secs(1)).unwrap();
        assert!(matches!(seen("172.30.0.3:8080"), Seen::Answered { .. }));
        assert!(matches!(seen("[fd00:30::4]:8080"), Seen::Answered { .. }));
        assert_eq!(seen("172.30.0.3:8082"), Seen::Refused);
        assert_eq!(seen("10.244.1.2:8080"), Seen::TimedOut);
    });
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn a_server_ends_whoever_is_connected() {
    machine(|| {
        process::run("ip", ["netns", "add", "one"], "").unwrap();
        process::run("ip", ["-n", "one", "link", "set", "lo", "up"], "").unwrap();
        let limit = Duration::from_secs(20);
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        let both = ["127.0.0.1", "::1"];
        let of = |ip: &&str| [Listen::Tcp(at(ip, 80)), Listen::Udp(at(ip, 80)), Listen::Lasting(at(ip, 90))];
        let sockets: Vec<Listen> = both.iter().flat_map(of).collect();
        let mut kept = Vec::new();
        // The second finds every address free again.
        for _ in 0..2 {
            let server = Server::start("one", "s", &sockets).unwrap();
            for ip in both {
                let expected = Seen::Answered { server: "s".to_owned(), client: ip.parse().unwrap() };
                assert_eq!(connect("one", None, at(ip, 80), limit).unwrap(), expected);
                assert_eq!(exchange("one", None, at(ip, 80), limit).unwrap(), expected);
                let mut stays = Lasting::tcp("one", None, at(ip, 90), limit).unwrap().unwrap();
                assert_eq!([stays.ask(), stays.ask()], [expected.clone(), expected]);
                kept.push(stays);
            }
            drop(server);
            assert!(kept.iter_mut().all(|stays| matches!(stays.ask(), Seen::Failed(_))));
            assert_eq!(connect("one", None, at(both[0], 80), limit).unwrap(), Seen::Refused);
            assert_eq!(exchange("one", None, at(both[1], 80), limit).unwrap(), Seen::Refused);
        }
    });
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn a_world_is_gone_when_dropped() {
    machine(|| {
        bystander_free();
        let before = surroundings();
        let world = World::up(Topology::two_workers(vec![])).unwrap();
        assert_ne!(surroundings()[0], before[0]);
        drop(world);
        assert_eq!(surroundings()[0], before[0]);
        assert!(Netns::named("worker").is_err());
    });
}

/// The first `ip netns` command of a machine makes its folder a mount of its own; let that be before the comparison.
fn bystander_free() {
    process::run("ip", ["-batch", "-"], "netns add first\nnetns del first\n").unwrap();
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn right_rules_pass_and_nothing_is_left() {
    machine(|| {
        bystander();
        let stand_in = StandIn::new();
        let before = surroundings();
        let output = stand_in.lab("chains", "").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(text(&output).ends_with("23 passed, 0 failed\n"), "{}", text(&output));
        assert_eq!(stand_in.processes(), [""; 0]);
        assert_eq!(surroundings(), before);
    });
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn wrong_rules_are_differences() {
    let stand_in = StandIn::new();
    let output = stand_in.lab("A/chains", "no-masquerade").output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let differing: Vec<&str> = text.lines().filter(|l| l.ends_with("DIFFERS")).collect();
    // Without masquerading the hairpin and both node ports go wrong, and nothing else.
    assert_eq!(differing.len(), 3, "{text}");
    assert!(differing.iter().all(|l| l.contains("hairpin") || l.contains("Cluster")), "{text}");
    assert!(
        text.contains("end of the agent's log on worker2\n  stand-in: rules loaded on worker2"),
        "{text}"
    );
    assert!(text.ends_with("4 passed, 3 failed\n"), "{text}");
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn an_agent_that_ends_or_does_nothing_is_a_difference() {
    let stand_in = StandIn::new();
    let died = stand_in.lab("B/chains", "die").output().unwrap();
    assert_eq!(died.status.code(), Some(1), "{}", text(&died));
    assert!(text(&died).contains("the agent ended (exit status: 7)"), "{}", text(&died));
    assert!(text(&died).contains("  stand-in: told to die"), "{}", text(&died));
    let idle = stand_in.lab("B/chains", "idle").output().unwrap();
    assert_eq!(idle.status.code(), Some(1), "{}", text(&idle));
    assert!(text(&idle).contains("did not reach the kernel"), "{}", text(&idle));
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn an_interrupt_leaves_nothing() {
    let interrupt = |signal: Signal| {
        move |child: Child| {
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
            child.wait_with_output().unwrap().status.code()
        }
    };
    leaves_nothing(interrupt(Signal::SIGINT), Some(130));
    leaves_nothing(interrupt(Signal::SIGTERM), Some(143));
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn a_kill_leaves_nothing() {
    let end = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap().signal()
    };
    leaves_nothing(end, Some(9));
}

/// A copy of the lab that any user can run, whatever the permissions of the build folder.
fn public_lab(stand_in: &StandIn) -> String {
    let copy = stand_in.folder.path().join("proxier-lab");
    install(LAB, &copy);
    copy.to_str().unwrap().to_owned()
}

const AS_NOBODY: [&str; 5] =
    ["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--"];

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn a_plain_user_can_run_it() {
    let stand_in = StandIn::new();
    let (program, path) = (public_lab(&stand_in), stand_in.path());
    let mut arguments: Vec<&str> = AS_NOBODY.to_vec();
    arguments.extend([&program, "--proxier", path.to_str().unwrap(), "--only", "chains"]);
    let output = process::command("setpriv", &arguments).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).ends_with("23 passed, 0 failed\n"), "{}", text(&output));
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn without_user_namespaces_it_says_so() {
    let stand_in = StandIn::new();
    let (program, path) = (public_lab(&stand_in), stand_in.path());
    // A user namespace in which no further ones are allowed stands for a machine that refuses them.
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- \
         {program} --proxier {}",
        path.display()
    );
    let output =
        process::command("unshare", &["--user", "--map-root-user", "sh", "-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("does not let this user make namespaces"), "{}", text(&output));
    assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
}

#[test]
fn an_unknown_experiment_is_a_usage_error() {
    let output = lab(LAB, &[Path::new("--only"), Path::new("Z")], "").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains(
            "no such experiment (A, B, C) or variant (maps, chains, iptables-nft, iptables-legacy, ipvs)"
        ),
        "{}",
        text(&output)
    );
}

#[test]
fn a_missing_agent_is_named_with_the_way_to_build_it() {
    let output = lab(LAB, &[Path::new("--proxier"), Path::new("/nonexistent/proxier")], "").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("no agent at /nonexistent/proxier: build it with"), "{}", text(&output));
}

#[test]
#[ignore = "needs root and network namespaces: run by cargo xtask test"]
fn the_agent_passes_every_experiment() {
    let output = lab(LAB, &[], "").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
