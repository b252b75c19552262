//! What the whole `proxier run` process costs, fed from a folder of JSON manifests, and what its rules cost a connection.
//!
//! `proxier-bench [--proxier PATH] [--runs N] [WORD ...]`, as root; the words are in `docs/bench.md`. Everything happens in network
//! namespaces of its own making.

#![allow(clippy::print_stdout, reason = "a benchmark prints its tables")]

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use proxier_testkit::bench;

mod connect;
mod folder;
mod manifests;
mod room;

/// Arguments.
#[derive(Debug, Parser)]
struct Arguments {
    /// The agent's binary (default: `proxier` beside this one)
    #[arg(long)]
    proxier: Option<PathBuf>,
    /// Runs of each size on a folder of manifests
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Sizes, e.g. 10000x5, and what else the benchmarks understand
    words: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let given = Arguments::parse();
    let program = match given.proxier {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("proxier"),
    };
    let program = program.canonicalize().with_context(|| format!("{} is not there", program.display()))?;
    let arguments = bench::Arguments::parse(&given.words)?;
    if arguments.wants("folder") {
        println!("\n## The agent on a folder of JSON manifests: `proxier run`, nftables, layout maps\n");
        println!("{}\n", folder::table(&program, &arguments.sizes, given.runs)?);
    }
    if arguments.wants("connect") {
        println!("\n## Connection set-up through Services, nftables, layout maps\n");
        println!("{}", connect::report(&program, arguments.connections)?);
    }
    Ok(())
}
