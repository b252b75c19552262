//! The `proxier` program.

use std::process::ExitCode;

use agent::cli::Cli;
use agent::commands::{self, Ended};
use clap::Parser as _;

#[expect(clippy::print_stderr, reason = "the program's last word before it fails")]
fn main() -> ExitCode {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let ended = commands::run(Cli::parse().command, &mut out);
    let flushed = std::io::Write::flush(&mut out);
    match (ended, flushed) {
        (Ok(Ended::Well), Ok(())) => ExitCode::SUCCESS,
        (Ok(Ended::Found), Ok(())) => ExitCode::from(3),
        // Whoever read the answer has seen enough.
        (Ok(_), Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        (Ok(_), Err(error)) => {
            eprintln!("proxier: {error}");
            ExitCode::FAILURE
        }
        (Err(error), _) => {
            eprintln!("proxier: {error:#}");
            ExitCode::FAILURE
        }
    }
}
