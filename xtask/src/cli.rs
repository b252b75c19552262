//! The command line.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

/// The repository's own commands.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) task: Task,
}

/// One command.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Task {
    /// Build the agent and the lab, then run the lab: namespace nodes, real traffic, comparison with real clusters
    Lab {
        /// Build both with optimisation
        #[arg(long)]
        release: bool,
        /// Arguments of the lab, for example `--only A/maps`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run every check there is: lints, all tests including those in the kernel, the lab
    Test {
        /// Only this step; may be repeated
        #[arg(long, value_name = "STEP", value_parser = crate::steps::names())]
        only: Vec<String>,
    },
    /// Formatting, clippy and documentation
    Lint,
    /// Write the golden files anew; review them as a diff
    Golden,
    /// Run the benchmarks in a network namespace of their own
    Bench {
        /// Arguments of the benchmarks
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Write the table of numbered cases, docs/cases.md: which test shows which
    Cases {
        /// Write nothing; fail if a number has neither a test nor a reason, or the table is out of date
        #[arg(long)]
        check: bool,
    },
    /// Check licences, duplicates and sources of all dependencies with cargo-deny
    Deny,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn lab(arguments: &[&str]) -> (bool, Vec<String>) {
        let all = ["xtask", "lab"].iter().chain(arguments);
        match Arguments::try_parse_from(all).unwrap().task {
            Task::Lab { release, args } => {
                (release, args.iter().map(|a| a.to_str().unwrap().to_owned()).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_labs_arguments_are_passed_on() {
        assert_eq!(lab(&[]), (false, vec![]));
        assert_eq!(lab(&["--", "--only", "A"]), (false, vec!["--only".to_owned(), "A".to_owned()]));
        assert_eq!(lab(&["--release", "--only", "A"]), (true, vec!["--only".to_owned(), "A".to_owned()]));
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(Arguments::try_parse_from(["xtask", "test", "--only", "kernel"]).is_ok());
        let error = Arguments::try_parse_from(["xtask", "test", "--only", "nonsense"]).unwrap_err();
        assert!(error.to_string().contains("kernel"), "{error}");
    }
}
