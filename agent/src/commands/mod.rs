//! The subcommands: assembly of configuration, source, core and backend.

mod admin;
mod choice;
mod daemon;
mod host;
mod init;
mod inspect;
mod reload;
mod render;
mod setup;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, bail};

pub use self::admin::AdminArgs;
use self::setup::Setup;
use crate::cli::{BaseFlags, Command, ConfigFlags};
use crate::lab;

/// How a command ended, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Well,
    /// It found what it was asked to look for: drift, or a machine that cannot do it.
    Found,
}

/// Runs a subcommand, writing its answer to `out`.
///
/// # Errors
/// Whatever stopped it, with what it was about.
pub fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<Ended> {
    match command {
        Command::Run(args) if args.init_only => init::init(&args.flags, out),
        Command::Run(args) => daemon::run(&args.flags),
        Command::Render(args) => render::render(&args, out),
        Command::Cleanup(flags) => cleanup(&flags, out),
        Command::CheckConfig(flags) => check_config(&flags, out),
        Command::Probe(flags) => inspect::probe(&flags, out),
        Command::Verify(flags) => inspect::verify(&flags, out),
        Command::WriteConfig(flags, path) => write_config(&flags, &path),
        Command::Version => {
            writeln!(out, "proxier {}", env!("CARGO_PKG_VERSION"))?;
            Ok(Ended::Well)
        }
        Command::Status(args) => admin::status(&args, out),
        Command::Snapshot(args) => admin::snapshot(&args, out),
        Command::Rules(args) => admin::rules(&args, out),
        Command::Syncs(args) => admin::syncs(&args, out),
        Command::Lab(args) => match lab::exec(&args.args)? {},
    }
}

/// An error with its causes, as far as they say something new: many repeat theirs.
#[must_use]
pub fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |mut said, cause| {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            let _ = write!(said, ": {cause}");
        }
        said
    })
}

/// Did whoever read the answer stop reading?
#[must_use]
pub fn is_unread(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Removes what any of the backends left, whichever is configured (core spec 7.7).
fn cleanup(flags: &BaseFlags, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_base(flags)?;
    setup.log()?;
    let mut faults = Vec::new();
    for mut instance in setup.instances().into_iter().chain(setup.replaced()) {
        match instance.cleanup() {
            Ok(report) => {
                for removed in report.removed {
                    writeln!(out, "removed {removed}")?;
                }
                faults.extend(report.stayed.into_iter().map(|stayed| format!("stayed: {stayed}")));
            }
            Err(error) => faults.push(error.to_string()),
        }
    }
    if !faults.is_empty() {
        bail!("not everything could be removed:\n{}", faults.join("\n"));
    }
    Ok(Ended::Well)
}

fn check_config(flags: &ConfigFlags, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    out.write_all(setup.config.describe().as_bytes())?;
    if let Some(choice) = &setup.choice {
        out.write_all(choice.describe().as_bytes())?;
    }
    for finding in setup.config.warnings() {
        writeln!(out, "# warning: {finding}")?;
    }
    Ok(Ended::Well)
}

fn write_config(flags: &ConfigFlags, path: &Path) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    std::fs::write(path, setup.config.to_file()).with_context(|| path.display().to_string())?;
    tracing::info!(file = %path.display(), "configuration written");
    Ok(Ended::Well)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_told_once() {
        let inner = io::Error::other("no such thing");
        let error = Err::<(), _>(inner).context("reading it: no such thing").context("starting").unwrap_err();
        assert_eq!(explain(&error), "starting: reading it: no such thing");
        assert_eq!(explain(&anyhow::anyhow!("alone")), "alone");
    }

    #[test]
    fn a_reader_that_leaves_is_told_from_other_errors() {
        assert!(is_unread(&io::Error::from(io::ErrorKind::BrokenPipe).into()));
        assert!(!is_unread(&io::Error::from(io::ErrorKind::NotFound).into()));
        assert!(!is_unread(&anyhow::anyhow!("broken pipe")));
    }
}
