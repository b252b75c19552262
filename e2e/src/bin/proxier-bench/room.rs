//! Network namespaces without names: each lives as long as the thread that made it.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Context as _;
use e2e::process;
use proxier_sys::netns::{self, Netns};

/// A network namespace with its loopback device up; gone when dropped.
pub(crate) struct Room {
    netns: Netns,
    /// The thread that keeps it waits for this to go.
    _keep: Sender<()>,
}

impl Room {
    /// A new one.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (keep, until) = channel();
        let (say, said) = channel();
        thread::Builder::new().name("room".to_owned()).spawn(move || hold(&say, &until))?;
        let path: String = said.recv().context("the thread ended")??;
        Ok(Self { netns: Netns::at(path)?, _keep: keep })
    }

    /// The namespace's file, for `ip`.
    pub(crate) fn path(&self) -> &Path {
        self.netns.path()
    }

    /// Does something inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(self.netns.run(work)?)
    }

    /// Runs lines of `ip -batch` inside.
    pub(crate) fn ip(&self, lines: &[String]) -> anyhow::Result<()> {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        self.run(|| process::run("ip", ["-batch", "-"], &text))??;
        Ok(())
    }

    /// Writes a setting below `/proc/sys/net` inside.
    pub(crate) fn set(&self, setting: &str, value: &str) -> anyhow::Result<()> {
        let path = format!("/proc/sys/net/{setting}");
        self.run(|| fs::write(&path, value))?.with_context(|| format!("writing {value} to {path}"))
    }
}

fn hold(say: &Sender<anyhow::Result<String>>, until: &Receiver<()>) {
    let made = netns::enter_new().context("making a network namespace: run as root");
    let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
    if say.send(made.map(|()| path)).is_ok() {
        // Ends when the room is dropped.
        let _ = until.recv();
    }
}
