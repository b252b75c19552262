//! The agent under test: one process per node, inside the node's namespace.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proxier_sys::netns::Netns;

use crate::pace::Patience;
use crate::process;

/// How long an agent may take to end when asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How agents are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The `proxier` binary.
    pub program: PathBuf,
    /// The watched folder of manifests.
    pub manifests: PathBuf,
    /// Name of the backend.
    pub backend: &'static str,
    /// The pods' ranges, comma separated.
    pub cluster_cidr: &'static str,
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// Folder for the agents' logs.
    pub logs: PathBuf,
    /// How much longer than on a real machine an agent may take to end.
    pub patience: Patience,
}

impl Launch {
    /// The command line's arguments for a node.
    #[must_use]
    pub fn arguments(&self, node: &str) -> Vec<String> {
        let path = |p: &Path| p.to_string_lossy().into_owned();
        let mut arguments: Vec<String> =
            ["run", "--manifests", &path(&self.manifests), "--node", node].map(str::to_owned).into();
        arguments.extend(["--backend", self.backend, "--cluster-cidr", self.cluster_cidr].map(str::to_owned));
        // All nodes share this machine's file system.
        arguments.push(format!("--admin-socket={}", path(&self.logs.join(format!("{node}.sock")))));
        if let Some(config) = &self.config {
            arguments.extend(["--config".to_owned(), path(config)]);
        }
        arguments
    }
}

/// A running agent; asked to end, then killed, when dropped.
#[derive(Debug)]
pub struct Agent {
    node: &'static str,
    child: Child,
    log: PathBuf,
    grace: Duration,
}

impl Agent {
    /// Starts the agent of a node.
    ///
    /// # Errors
    /// When the program cannot be started or its log cannot be created.
    pub fn start(launch: &Launch, node: &'static str) -> anyhow::Result<Self> {
        fs::create_dir_all(&launch.logs).context("creating the log folder")?;
        let log = launch.logs.join(format!("{node}.log"));
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let errors = output.try_clone().context("sharing the log")?;
        let mut command = process::command(&launch.program, &launch.arguments(node));
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = Netns::named(node)?
            .run(|| command.spawn())?
            .with_context(|| format!("cannot run {} on {node}", launch.program.display()))?;
        Ok(Self { node, child, log, grace: launch.patience.of(GRACE) })
    }

    /// The node it runs on.
    #[must_use]
    pub fn node(&self) -> &'static str {
        self.node
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("asking for the agent's state")
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
        tail(&text, lines)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let id = Pid::from_raw(self.child.id().cast_signed());
        let deadline = Instant::now() + self.grace;
        let mut asked = false;
        // Not waited for yet, so the number is still this child's; a refused signal is followed by the kill.
        while let Ok(None) = self.child.try_wait() {
            if !asked {
                let _ = kill(id, Signal::SIGTERM);
                asked = true;
            } else if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|l| format!("  {l}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_documented_ones() {
        let mut launch = Launch {
            program: "proxier".into(),
            manifests: "/m".into(),
            backend: "nftables",
            cluster_cidr: "10.244.0.0/16",
            config: None,
            logs: "/l".into(),
            patience: Patience::REAL,
        };
        let plain = "run --manifests /m --node worker --backend nftables --cluster-cidr 10.244.0.0/16 \
                     --admin-socket=/l/worker.sock";
        assert_eq!(launch.arguments("worker").join(" "), plain);
        launch.config = Some("/c".into());
        assert_eq!(launch.arguments("worker").join(" "), format!("{plain} --config /c"));
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "  b\n  c\n");
        assert_eq!(tail("a\n", 5), "  a\n");
        assert_eq!(tail("", 5), "");
    }
}
