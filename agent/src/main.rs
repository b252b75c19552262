//! The `proxier` program.

use std::process::ExitCode;

use agent::cli::Cli;
use agent::commands::{self, Ended};

#[expect(clippy::print_stderr, reason = "the program's last words before it fails")]
fn main() -> ExitCode {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let command = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let ended = commands::run(command, &mut out);
    let flushed = std::io::Write::flush(&mut out).map_err(anyhow::Error::from);
    match ended.and_then(|ended| flushed.map(|()| ended)) {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Found) => ExitCode::from(3),
        // Whoever read the answer has seen enough.
        Err(error) if commands::is_unread(&error) => ExitCode::SUCCESS,
        Err(error) => {
            for line in commands::explain(&error).lines() {
                eprintln!("proxier: {line}");
            }
            ExitCode::FAILURE
        }
    }
}
