//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::vm::{self, SharedFile};

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
    /// Run the benchmarks in a network namespace of their own and print their tables as Markdown
    Bench {
        /// Arguments of the benchmarks, for example `quick` or `10000x5 only=api`; see docs/bench.md
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
    /// Boot an emulated machine with another kernel (Debian's, with IPVS) and run something in it as root
    Vm(VmArguments),
}

/// What to run in the machine, and with what. The exit status is the program's; 124 when its time was up, 125 when the machine
/// failed.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = false, subcommand_precedence_over_arg = true)]
pub(crate) struct VmArguments {
    #[command(subcommand)]
    pub(crate) task: Option<VmTask>,
    /// How long it may run after the machine has started
    #[arg(long, value_name = "10m|90s", default_value = "10m", value_parser = vm::duration)]
    pub(crate) timeout: Duration,
    /// A file or folder to have there, at its own path or another one; may be repeated
    #[arg(long, value_name = "HOST_PATH[:GUEST_PATH]", value_parser = SharedFile::parse)]
    pub(crate) file: Vec<SharedFile>,
    /// A variable of the program's environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Print the machine's whole kernel log in any case
    #[arg(long)]
    pub(crate) log: bool,
    /// A program of this machine by its path, or one of the machine's tools by its name, with its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What else to run in the machine.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum VmTask {
    /// All tests that need a kernel, and the lab, on the machine's kernel
    Test {
        /// Also what takes too long under emulation for every run
        #[arg(long)]
        full: bool,
    },
    /// The lab, with its arguments
    Lab {
        /// Arguments of the lab, for example `matrix --only maps`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
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

    fn machine(arguments: &[&str]) -> VmArguments {
        match Arguments::try_parse_from(["xtask", "vm"].iter().chain(arguments)).unwrap().task {
            Task::Vm(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_machine_takes_a_program_or_a_task() {
        let program = machine(&["--timeout", "5s", "--file", "/a", "--", "ip", "-V"]);
        assert_eq!(
            (program.program, program.timeout),
            (vec!["ip".into(), "-V".into()], Duration::from_secs(5))
        );
        assert!(program.task.is_none() && program.file[0].there.is_none());
        // A name behind the dashes is a program's, whatever it is.
        assert!(machine(&["--", "test"]).task.is_none());
        assert!(matches!(
            machine(&["--timeout", "9m", "test", "--full"]).task,
            Some(VmTask::Test { full: true })
        ));
        match machine(&["lab", "matrix", "--only", "maps"]).task {
            Some(VmTask::Lab { args }) => assert_eq!(args, ["matrix", "--only", "maps"].map(OsString::from)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(Arguments::try_parse_from(["xtask", "test", "--only", "kernel"]).is_ok());
        let error = Arguments::try_parse_from(["xtask", "test", "--only", "nonsense"]).unwrap_err();
        assert!(error.to_string().contains("kernel"), "{error}");
    }
}
