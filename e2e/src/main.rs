//! `proxier-lab`: see the crate `e2e`.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// Exit status when the lab cannot run here.
const CANNOT_RUN: u8 = 3;

fn main() -> ExitCode {
    match e2e::lab::main(&e2e::cli::Arguments::parse()) {
        Ok(code) => code.into(),
        Err(error) => {
            // Nowhere left to report a closed standard error; the exit status says it too.
            let _ = writeln!(std::io::stderr(), "proxier-lab: {error:#}");
            CANNOT_RUN.into()
        }
    }
}
