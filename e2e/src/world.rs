//! A topology that exists: namespaces, links and addresses, removed when the value is dropped.

use std::io;
use std::path::Path;

use anyhow::Context;
use proxier_sys::netns::Netns;

use crate::process;
use crate::topology::{Setup, Topology};

/// A running topology.
#[derive(Debug)]
pub struct World {
    topology: Topology,
}

impl World {
    /// Builds it. The caller must be isolated (see [`crate::isolate::enter`]).
    ///
    /// # Errors
    /// When a tool or the kernel refuses a step; what was built by then is removed again.
    pub fn up(topology: Topology) -> anyhow::Result<Self> {
        batch(&topology.creation()).context("creating network namespaces")?;
        let world = Self { topology };
        let setups = world.topology.setups();
        for setup in &setups {
            in_namespace(setup, |s| write_settings(&s.settings))?;
        }
        batch(&world.topology.links()).context("creating links")?;
        for setup in &setups {
            in_namespace(setup, |s| batch(&s.commands))?;
        }
        Ok(world)
    }

    /// What it was built from.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Nothing to do about a refusal here: the namespaces end with the lab's process at the latest.
        let _ = process::output("ip", ["-force", "-batch", "-"], &lines(&self.topology.removal()));
    }
}

fn in_namespace(setup: &Setup, step: impl FnOnce(&Setup) -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    let name = setup.namespace;
    Netns::named(name)?.run(|| step(setup))?.with_context(|| format!("setting up namespace {name}"))
}

fn batch(commands: &[String]) -> anyhow::Result<()> {
    process::run("ip", ["-batch", "-"], &lines(commands)).map(drop)
}

fn lines(commands: &[String]) -> String {
    commands.iter().map(|c| format!("{c}\n")).collect()
}

fn write_settings(settings: &[(&str, &str)]) -> anyhow::Result<()> {
    for (path, value) in settings {
        let file = Path::new("/proc/sys").join(path);
        match std::fs::write(&file, value) {
            // Only kernels with br_netfilter have these.
            Err(e) if e.kind() == io::ErrorKind::NotFound && path.starts_with("net/bridge/") => {}
            result => result.with_context(|| format!("writing {value} to {}", file.display()))?,
        }
    }
    Ok(())
}
