//! The repository's own commands, run as `cargo xtask <command>`. They need a Rust toolchain and nothing else: system
//! packages that a command uses are installed by it as root on Debian, and named with the exact command elsewhere.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this program starts cargo and prints for a person; it is no part of the product"
)]

mod cases;
mod cli;
mod metadata;
mod packages;
mod process;
mod steps;
mod tally;
mod tasks;
mod vm;

use std::process::ExitCode;

use clap::Parser;

use cli::{Arguments, Task};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Lab { release, args } => tasks::lab(release, &args),
        Task::Test { only } => steps::run(steps::TEST, &only),
        Task::Lint => steps::run(steps::LINT, &[]),
        Task::Golden => tasks::golden(),
        Task::Bench { args } => tasks::bench(&args),
        Task::Cases { check: false } => cases::write(),
        Task::Cases { check: true } => cases::check().map(drop),
        Task::Deny => tasks::deny(),
        Task::Vm(arguments) => return vm::run(&arguments).unwrap_or_else(|error| failed(&error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}
