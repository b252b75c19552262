//! The agent's program as a child, observed by its log.

#![allow(
    clippy::disallowed_methods,
    reason = "the runner waits for a tool's end; an agent runs on while it is measured"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Error, Process, Synced};
use crate::scale;

/// Where an agent has its objects from.
#[derive(Clone, Copy, Debug)]
pub enum Feed<'a> {
    /// The API server of this kubeconfig.
    Kubeconfig(&'a Path),
    /// The files in this folder.
    Manifests(&'a Path),
}

impl Feed<'_> {
    fn arguments(&self) -> (&'static str, &Path) {
        match self {
            Self::Kubeconfig(path) => ("--kubeconfig", path),
            Self::Manifests(path) => ("--manifests", path),
        }
    }
}

/// A running agent; killed when dropped. What it programmed stays.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    log: Receiver<Result<Synced, String>>,
    begun: Instant,
}

impl Agent {
    /// Starts `proxier run` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, feed: Feed<'_>) -> Result<Self, Error> {
        let begun = Instant::now();
        let mut child = subcommand(program, "run", feed)
            .args(["--log-format", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::io(program.display().to_string(), source))?;
        let (sender, log) = channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || read(stderr, &sender));
        }
        Ok(Self { child, log, begun })
    }

    /// When it was started.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Its costs.
    ///
    /// # Errors
    /// When it has ended.
    pub fn process(&self) -> Result<Process, Error> {
        Process::of(self.child.id())
    }

    /// The next IPv4 sync that wrote something; `None` if there was none until then.
    ///
    /// # Errors
    /// When it ended, or logged an error.
    pub fn next(&self, until: Instant) -> Result<Option<Synced>, Error> {
        match self.log.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Ok(sync)) => Ok(Some(sync)),
            Ok(Err(line)) => Err(Error::Wrong(format!("the agent said: {line}"))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Wrong("the agent ended".to_owned())),
        }
    }

    /// Waits for the sync after which everything is in the kernel.
    ///
    /// # Errors
    /// As [`Agent::next`], and when it takes longer than `limit`.
    pub fn programmed(&self, limit: Duration) -> Result<Synced, Error> {
        let sync = self.next(self.begun + limit)?;
        sync.ok_or_else(|| Error::Wrong(format!("nothing was in the kernel after {limit:?}")))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has `proxier verify` compare the kernel with the same objects, in the calling thread's network namespace.
///
/// # Errors
/// When there is any difference; the error holds what it said.
pub fn verify(program: &Path, feed: Feed<'_>) -> Result<(), Error> {
    let output = subcommand(program, "verify", feed)
        .output()
        .map_err(|source| Error::io(program.display().to_string(), source))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Err(Error::Wrong(format!("verify: {}", text.concat())))
}

fn subcommand(program: &Path, name: &str, feed: Feed<'_>) -> Command {
    let mut command = Command::new(program);
    let (flag, path) = feed.arguments();
    command.args([name, "--node", scale::NODE, "--cluster-cidr", scale::CLUSTER_CIDR, flag]).arg(path);
    command
}

/// Passes on what concerns a benchmark, until the log ends.
fn read(stderr: ChildStderr, out: &Sender<Result<Synced, String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let at = Instant::now();
        let said = match serde_json::from_str::<Value>(&line) {
            Ok(event) if event["level"] == "ERROR" => Err(line),
            Ok(event) if event["message"] == "synced" && event["family"] == "IPv4" => Ok(synced(at, &event)),
            Ok(_) => continue,
            Err(_) => Err(line),
        };
        if out.send(said).is_err() {
            return;
        }
    }
}

fn synced(at: Instant, event: &Value) -> Synced {
    let number = |name: &str| event[name].as_u64().unwrap_or(0);
    Synced {
        at,
        ports: number("ports.changed"),
        messages: number("plan.messages"),
        bytes: number("plan.bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> (Child, Receiver<Result<Synced, String>>) {
        let mut child = Command::new("sh").args(["-c", text]).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, log) = channel();
        std::thread::spawn(move || read(stderr, &sender));
        (child, log)
    }

    #[test]
    fn a_log_is_read_to_its_end() {
        let lines = r#"
            {"level":"INFO","message":"starting"}
            {"level":"INFO","message":"synced","family":"IPv6","ports.changed":9}
            {"level":"INFO","message":"synced","family":"IPv4","ports.changed":3,"plan.messages":4,"plan.bytes":424}
            {"level":"ERROR","message":"sync failed"}"#;
        let (child, log) = script(&format!("cat >&2 <<'END'{lines}\nEND"));
        let mut agent = Agent { child, log, begun: Instant::now() };
        let sync = agent.programmed(Duration::from_secs(60)).unwrap();
        assert_eq!((sync.ports, sync.messages, sync.bytes), (3, 4, 424));
        let error = agent.next(Instant::now() + Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("sync failed"), "{error}");
        agent.child.wait().unwrap();
        let error = agent.next(Instant::now() + Duration::from_secs(60)).unwrap_err().to_string();
        assert_eq!(error, "the agent ended");
    }
}
