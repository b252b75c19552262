//! A network namespace with a folder of manifests, the program running in it, and what can be seen from outside.

use std::fmt::Debug;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proxier_sys::netns;
use proxier_sys::runner::Output;
use serde_json::Value;

use crate::program::{Folder, NODE, PROGRAM, proxier, tool};

/// How long anything may take; only failures take so long.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked at.
const BEAT: Duration = Duration::from_millis(20);

/// Rules of somebody else in the same namespace.
const OTHERS: &str = "
table ip kube-proxy-neighbour {
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 80 : accept } }
    chain services { type nat hook prerouting priority -99; ip daddr . meta l4proto . th dport vmap @service-ips; }
}
table inet firewall {
    set open { type inet_service; elements = { 22, 443 } }
    chain input { type filter hook input priority 5; policy drop; tcp dport @open accept comment \"mine\"; }
}
";

/// A namespace and a folder. Somebody else's rules are there before the program is.
pub(crate) struct Stage {
    pub(crate) folder: Folder,
    config: Folder,
    others: String,
}

impl Stage {
    /// Moves this thread into a new namespace. Without the right to make one, the test fails.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        netns::enter_new().expect("these tests need root");
        nft(&["-f", "-"], OTHERS);
        let stage = Self { folder: Folder::new(files), config: Folder::new(&[]), others: String::new() };
        stage.configure("");
        Self { others: stage.others(), ..stage }
    }

    /// Lets the others accept what comes over loopback.
    pub(crate) fn open_loopback(&mut self) {
        nft(&["add", "rule", "inet", "firewall", "input", "iif", "lo", "accept"], "");
        self.others = self.others();
    }

    /// Settings besides the flags.
    pub(crate) fn configure(&self, settings: &str) {
        let head = "apiVersion: proxier.io/v1alpha1\nkind: ProxierConfiguration\nlogging: {format: json, level: 'info,agent::sync=debug,agent::conntrack=debug'}\n";
        // Network namespaces do not keep sockets in the file system apart.
        let admin = format!("admin: {{socket: '{}'}}\n", self.admin_socket());
        self.config.write("c.yaml", &format!("{head}{admin}{settings}"));
    }

    /// Where the program can be asked.
    pub(crate) fn admin_socket(&self) -> String {
        self.config.file("admin.sock")
    }

    /// A command with everything that it takes to know the cluster.
    pub(crate) fn line<'a>(&'a self, command: &'a str, config: &'a str) -> Vec<&'a str> {
        [&[command, "--manifests", self.folder.path(), "--config", config], &NODE[..]].concat()
    }

    pub(crate) fn config(&self) -> String {
        self.config.file("c.yaml")
    }

    /// Runs a command to its end.
    pub(crate) fn answer(&self, command: &str) -> Output {
        proxier(&self.line(command, &self.config()))
    }

    /// Starts the program and waits until both families are in the kernel.
    pub(crate) fn run(&self) -> Daemon {
        let daemon = self.start();
        for family in ["IPv4", "IPv6"] {
            daemon.logged(&[("message", "synced"), ("family", family), ("sync.kind", "full")]);
        }
        daemon
    }

    pub(crate) fn start(&self) -> Daemon {
        Daemon::start(&self.line("run", &self.config()))
    }

    /// Another process finds nothing to complain about, and neighbours have what they had.
    #[track_caller]
    pub(crate) fn in_order(&self) {
        let output = self.answer("verify");
        assert_eq!(output.code, 0, "{}{}", output.stdout_text(), output.stderr_text());
        self.others_untouched();
    }

    #[track_caller]
    pub(crate) fn others_untouched(&self) {
        assert_eq!(self.others(), self.others);
    }

    fn others(&self) -> String {
        nft(&["list", "table", "ip", "kube-proxy-neighbour"], "")
            + &nft(&["list", "table", "inet", "firewall"], "")
    }
}

/// Runs nft, which must succeed.
#[track_caller]
pub(crate) fn nft(args: &[&str], input: &str) -> String {
    let output = tool("nft", args, input);
    assert_eq!(output.code, 0, "nft {args:?}: {}", output.stderr_text());
    output.stdout_text()
}

/// Our table of one family, as nft prints it; empty when there is none.
pub(crate) fn table(family: &str) -> String {
    let output = tool("nft", &["list", "table", family, "kube-proxy"], "");
    if output.code == 0 { output.stdout_text() } else { String::new() }
}

/// Our tables of both families.
pub(crate) fn tables() -> String {
    table("ip") + &table("ip6")
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: impl Debug, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < deadline, "never so: {what:?}; the tables are\n{}", tables());
        thread::sleep(BEAT);
    }
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<Value>>,
    more: Condvar,
}

/// The program, running. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_by(PROGRAM, args)
    }

    /// Starts the program by way of another one, which becomes it in the end.
    pub(crate) fn start_by(program: &str, args: &[&str]) -> Self {
        #[allow(clippy::disallowed_methods, reason = "the runner waits for what it starts")]
        let mut command = std::process::Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let log = Arc::<Log>::default();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let to = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines() {
                let line = line.expect("text");
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                to.lines.lock().expect("no panic").push(value);
                to.more.notify_all();
            }
        });
        Self { child, log, reader: Some(reader) }
    }

    /// Waits for a log line whose fields hold these texts; takes it out of the log.
    #[track_caller]
    pub(crate) fn logged(&self, fields: &[(&str, &str)]) -> Value {
        let deadline = Instant::now() + LIMIT;
        let mut lines = self.log.lines.lock().expect("no panic");
        loop {
            if let Some(at) = lines.iter().position(|line| matches(line, fields)) {
                return lines.remove(at);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let all = lines.clone();
                drop(lines);
                panic!("never logged: {fields:?}; what was: {all:#?}");
            }
            lines = self.log.more.wait_timeout(lines, left).expect("no panic").0;
        }
    }

    /// Waits for a comparison with the kernel that finds nothing.
    #[track_caller]
    pub(crate) fn compared(&self) {
        self.logged(&[("message", "kernel is as programmed")]);
    }

    /// Lines with these fields that are in the log now.
    pub(crate) fn count(&self, fields: &[(&str, &str)]) -> usize {
        self.log.lines.lock().expect("no panic").iter().filter(|line| matches(line, fields)).count()
    }

    /// Forgets what was logged so far.
    pub(crate) fn forget(&self) {
        self.log.lines.lock().expect("no panic").clear();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("sent");
    }

    /// Waits until it has failed by itself; returns its last words.
    #[track_caller]
    pub(crate) fn failed(mut self) -> String {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(BEAT);
        };
        self.reader.take().expect("joined once").join().expect("no panic");
        let lines = std::mem::take(&mut *self.log.lines.lock().expect("no panic"));
        assert_eq!(status.code(), Some(1), "{lines:#?}");
        lines.last().and_then(Value::as_str).expect("a last word that is no log line").to_owned()
    }

    /// Sends a signal and waits for the end. Whatever was not a log line by then was a panic, or another surprise.
    pub(crate) fn end(mut self, signal: Signal) -> (ExitStatus, Vec<Value>) {
        self.signal(signal);
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end by {signal}");
            thread::sleep(BEAT);
        };
        self.reader.take().expect("joined once").join().expect("no panic");
        let lines = std::mem::take(&mut *self.log.lines.lock().expect("no panic"));
        assert!(lines.iter().all(Value::is_object), "{lines:#?}");
        (status, lines)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn matches(line: &Value, fields: &[(&str, &str)]) -> bool {
    fields.iter().all(|(name, part)| match &line[name] {
        Value::String(text) => text.contains(part),
        Value::Number(number) => number.to_string().as_str() == *part,
        _ => false,
    })
}
