//! What the whole `proxier run` process costs, fed from a folder of JSON manifests, in a network namespace of its own.
//!
//! `proxier-bench [--proxier PATH] [--runs N] [SERVICESxENDPOINTS ...]`, default `1000x5 10000x5`, three runs each. Prints medians of
//! the time from start to programmed, of the process's CPU time until then and of its peak memory, all as the system accounts them, and
//! the time from an edited file to the kernel.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark that starts the agent itself"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser;
use proxier_testkit::scale;
use serde_json::{Value, json};

/// Objects in one List, as `kubectl get -o json` of a large namespace would be split.
const LIST: u32 = 1_000;
/// Edits of one file whose way to the kernel is timed.
const EDITS: u32 = 21;

/// Arguments.
#[derive(Debug, Parser)]
struct Arguments {
    /// The agent's binary (default: `proxier` beside this one)
    #[arg(long)]
    proxier: Option<PathBuf>,
    /// Runs of each size
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Sizes, e.g. 10000x5
    scales: Vec<String>,
}

/// One run of the agent.
#[derive(Clone, Copy, Debug)]
struct Run {
    wall: Duration,
    cpu: Duration,
    peak_kib: u64,
    edit: Duration,
}

struct Agent {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Agent {
    fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new("unshare")
            .arg("--net")
            .arg("--")
            .arg(program)
            .args(["run", "--node", scale::NODE, "--cluster-cidr", scale::CLUSTER_CIDR, "--manifests"])
            .arg(folder)
            .args(["--log-format", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start unshare")?;
        let stderr = child.stderr.take().context("no standard error")?;
        Ok(Self { child, log: BufReader::new(stderr) })
    }

    /// Reads the log until IPv4 is in the kernel.
    fn synced(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.log.read_line(&mut line)? == 0 {
                bail!("the agent ended before it had programmed anything");
            }
            let event: Value =
                serde_json::from_str(&line).with_context(|| format!("the agent said: {line}"))?;
            if event["message"] == "synced" && event["family"] == "IPv4" {
                return Ok(());
            }
            if event["level"] == "ERROR" {
                bail!("the agent said: {line}");
            }
        }
    }

    /// CPU time so far, user and system, and the peak of resident memory.
    fn usage(&self) -> anyhow::Result<(Duration, u64)> {
        let pid = self.child.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after_name = stat.rsplit_once(')').context("no name in stat")?.1;
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(2).map(|t| t.parse::<u64>().unwrap_or(0)).sum();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("no peak in status")?;
        let peak = peak.trim().trim_end_matches(" kB").parse().context("odd peak")?;
        // Linux shows 100 ticks a second to user space (USER_HZ).
        Ok((Duration::from_millis(ticks * 10), peak))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_list(folder: &Path, name: &str, items: &[Value]) -> anyhow::Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let hidden = folder.join(format!(".{name}"));
    fs::write(&hidden, serde_json::to_vec_pretty(&list)?)?;
    fs::rename(hidden, folder.join(name))?;
    Ok(())
}

fn write_manifests(folder: &Path, services: u32, endpoints: u32) -> anyhow::Result<()> {
    let edited = services - 1;
    for start in (0..services).step_by(LIST as usize) {
        let numbers = start..(start + LIST).min(services);
        let items: Vec<_> = numbers.clone().map(scale::service_json).collect();
        write_list(folder, &format!("services-{start:06}.json"), &items)?;
        let items: Vec<_> =
            numbers.filter(|n| *n != edited).map(|n| scale::slice_json(n, endpoints, 0)).collect();
        write_list(folder, &format!("slices-{start:06}.json"), &items)?;
    }
    write_list(folder, "edited.json", &[scale::slice_json(edited, endpoints, 0)])
}

fn one_run(program: &Path, services: u32, endpoints: u32) -> anyhow::Result<Run> {
    let folder = tempfile::tempdir()?;
    write_manifests(folder.path(), services, endpoints)?;
    let begun = Instant::now();
    let mut agent = Agent::start(program, folder.path())?;
    agent.synced()?;
    let wall = begun.elapsed();
    let (cpu, peak_kib) = agent.usage()?;
    let mut edits = Vec::new();
    for edit in 1..=EDITS {
        let begun = Instant::now();
        write_list(
            folder.path(),
            "edited.json",
            &[scale::slice_json(services - 1, endpoints, edit % 2 + 1)],
        )?;
        agent.synced()?;
        edits.push(begun.elapsed());
    }
    let edit = median(edits.into_iter()).unwrap_or_default();
    Ok(Run { wall, cpu, peak_kib, edit })
}

fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values.get(values.len() / 2).copied()
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let program = match arguments.proxier {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("proxier"),
    };
    let program = program.canonicalize().with_context(|| format!("{} is not there", program.display()))?;
    let mut scales = arguments.scales;
    if scales.is_empty() {
        scales = vec!["1000x5".to_owned(), "10000x5".to_owned()];
    }
    println!("# proxier run: from a folder of JSON manifests to the kernel, nftables, layout maps\n");
    println!(
        "| services x endpoints | runs | start to programmed, s | CPU, s | peak RSS, MiB | edited file to kernel, ms |"
    );
    println!("|---|---|---|---|---|---|");
    for text in scales {
        let (services, endpoints) = text.split_once('x').context("a size is SERVICESxENDPOINTS")?;
        let (services, endpoints): (u32, u32) = (services.parse()?, endpoints.parse()?);
        let runs: Vec<Run> =
            (0..arguments.runs).map(|_| one_run(&program, services, endpoints)).collect::<Result<_, _>>()?;
        let seconds = |d: Option<Duration>| d.unwrap_or_default().as_secs_f64();
        let wall = seconds(median(runs.iter().map(|r| r.wall)));
        let cpu = seconds(median(runs.iter().map(|r| r.cpu)));
        let peak = median(runs.iter().map(|r| r.peak_kib)).unwrap_or(0) / 1024;
        let edit = seconds(median(runs.iter().map(|r| r.edit))) * 1000.0;
        println!("| {text} | {} | {wall:.2} | {cpu:.2} | {peak} | {edit:.1} |", runs.len());
    }
    Ok(())
}
