//! The command line as typed. What it means together with the file is [`crate::config`]'s business.
//!
//! The flags that set something come from the table of settings ([`flag_specs`]), so that one row says all about a setting. Without a
//! subcommand the program is started as kube-proxy is: it runs, or does what one of kube-proxy's own flags asks for (core spec 7.4).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgMatches, Args, CommandFactory as _, FromArgMatches, Parser, Subcommand, ValueEnum,
};

pub use crate::commands::AdminArgs;
use crate::config::{FlagSpec, FlagValue, WRITE_CONFIG_TO, flag_specs};

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "proxier",
    about = "A Kubernetes Service proxy with exchangeable data planes",
    after_help = "Without a command the program runs, started by kube-proxy's flags or ours.",
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Option<Command>,
    /// Flags without a command.
    #[command(flatten)]
    run: RunArgs,
}

/// What the program can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Keep the kernel as the cluster says, until told to stop
    Run(RunArgs),
    /// Print what would be programmed; needs neither privilege nor kernel
    Render(RenderArgs),
    /// Remove everything that proxier left in the kernel
    Cleanup(BaseFlags),
    /// Check the configuration and print every setting with its source
    CheckConfig(ConfigFlags),
    /// Tell what this machine's kernel and tools can do
    Probe(BaseFlags),
    /// Compare the kernel with what should be in it; changes nothing
    Verify(ConfigFlags),
    /// Write the configuration in force to a file
    #[command(skip)]
    WriteConfig(ConfigFlags, PathBuf),
    /// Print the version
    #[command(skip)]
    Version,
    /// Ask the running agent how it is
    Status(AdminArgs),
    /// Ask the running agent what it decided, and why
    Snapshot(AdminArgs),
    /// Ask the running agent what it has written
    Rules(AdminArgs),
    /// Ask the running agent about its last syncs
    Syncs(AdminArgs),
    /// Build a cluster of network namespaces on this machine and work in it
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(LabArgs),
}

/// Everything that says something about the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFlags {
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// The flags that were given.
    pub given: Vec<FlagValue>,
}

/// The same, but only what commands take that need to know no cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseFlags(pub ConfigFlags);

/// Arguments of `run`, and of the program without a command.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// The configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// Set what needs privilege, and end
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, hide_possible_values = true)]
    pub init_only: bool,
    /// Remove everything that proxier and kube-proxy left in the kernel, and end
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, hide_possible_values = true)]
    cleanup: bool,
    /// Write the configuration in force to this file, and end
    #[arg(long, value_name = "FILE")]
    write_config_to: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'V', long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    version: Option<String>,
}

/// How `render` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The plan's own text.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Arguments of `render`.
#[derive(Clone, Debug, Args)]
pub struct RenderArgs {
    /// The configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Arguments of `lab`, handed on untouched.
#[derive(Clone, Debug, Args)]
pub struct LabArgs {
    /// Arguments of proxier-lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

impl Cli {
    /// Reads the command line. Empty arguments that no flag waits for are passed over: a template may leave them (core spec 7.4).
    ///
    /// # Errors
    /// What is wrong with it, or the help that was asked for.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
        let mut kept: Vec<OsString> = Vec::new();
        for arg in args {
            let waiting =
                kept.last().and_then(|a| a.to_str()).is_some_and(|a| a.starts_with('-') && !a.contains('='));
            if !arg.is_empty() || waiting {
                kept.push(arg);
            }
        }
        let cli = Self::try_parse_from(kept)?;
        match cli.command {
            Some(Command::Run(run)) => run.meant(),
            Some(command) => Ok(command),
            None => cli.run.meant(),
        }
    }
}

impl RunArgs {
    fn meant(mut self) -> Result<Command, clap::Error> {
        match self.version.as_deref() {
            None | Some("false") => {}
            Some("true" | "raw") => return Ok(Command::Version),
            Some(other) => {
                let message = format!("{other:?} is no value of --version: true, raw or false\n");
                return Err(Cli::command().error(ErrorKind::InvalidValue, message));
            }
        }
        if self.cleanup {
            return Ok(Command::Cleanup(BaseFlags(self.flags)));
        }
        if let Some(path) = self.write_config_to.take() {
            self.flags.given.push(FlagValue::new(WRITE_CONFIG_TO, path.to_string_lossy()));
            return Ok(Command::WriteConfig(self.flags, path));
        }
        Ok(Command::Run(self))
    }
}

const CONFIG: &str = "config";
const VERBOSITY: &str = "v";
const PEER_HEADING: &str = "kube-proxy's flags";

/// The arguments of these flags. kube-proxy's are beside those that both have in the help.
fn augment(command: clap::Command, everywhere_only: bool) -> clap::Command {
    let file = Arg::new(CONFIG).long(CONFIG).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
    let file =
        file.help("Configuration file, YAML or JSON: a ProxierConfiguration or a KubeProxyConfiguration");
    let flags = flag_specs().into_iter().filter(|flag| flag.everywhere || !everywhere_only);
    command.arg(file).args(flags.map(argument))
}

fn argument(flag: FlagSpec) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(flag.help).action(ArgAction::Append);
    let arg = match flag.name {
        VERBOSITY => arg.short('v').num_args(0..=1).default_missing_value("").value_name(flag.value),
        _ if flag.value.is_empty() => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL")
        }
        _ => arg.value_name(flag.value).allow_hyphen_values(true),
    };
    let familiar = ["kubeconfig", "master", "cluster-cidr", VERBOSITY].contains(&flag.name);
    if flag.of_peer && !familiar { arg.help_heading(PEER_HEADING) } else { arg }
}

fn read(matches: &ArgMatches) -> ConfigFlags {
    let given = |flag: FlagSpec| {
        let values: Vec<String> = matches.try_get_many::<String>(flag.name).ok()??.cloned().collect();
        let values = if flag.name == VERBOSITY { vec![verbosity(&values)] } else { values };
        Some(FlagValue { name: flag.name, values })
    };
    let given = flag_specs().into_iter().filter_map(given).collect();
    ConfigFlags { config: matches.get_one::<PathBuf>(CONFIG).cloned(), given }
}

/// `-v` alone is 4 and twice is 6; otherwise the last number counts.
fn verbosity(values: &[String]) -> String {
    let bare = |text: &String| text.chars().all(|c| c == VERBOSITY.chars().next().unwrap_or_default());
    match values.iter().rfind(|text| !bare(text)) {
        Some(number) => number.clone(),
        None => (2 + 2 * values.iter().map(|text| text.len() + 1).sum::<usize>()).to_string(),
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(read(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = read(matches);
        Ok(())
    }
}

impl Args for ConfigFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        augment(command, false)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        augment(command, false)
    }
}

impl FromArgMatches for BaseFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(read(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self(read(matches));
        Ok(())
    }
}

impl Args for BaseFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        augment(command, true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        augment(command, true)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Command {
        Cli::read(line.split(' ').map(OsString::from)).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    fn refused(line: &str) -> ErrorKind {
        Cli::read(line.split(' ').map(OsString::from)).expect_err(line).kind()
    }

    fn given(flags: &ConfigFlags) -> Vec<String> {
        flags.given.iter().map(|f| format!("{}={}", f.name, f.values.join("|"))).collect()
    }

    fn run(line: &str) -> Vec<String> {
        let Command::Run(args) = parse(line) else { panic!("not run: {line}") };
        given(&args.flags)
    }

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_small_run_needs_only_flags() {
        let mut settings = run(
            "proxier run --manifests m --node n1 --backend fake --cluster-cidr 10.0.0.0/8 --log-format json -vv",
        );
        settings.sort();
        assert_eq!(
            settings,
            ["backend=fake", "cluster-cidr=10.0.0.0/8", "log-format=json", "manifests=m", "node=n1", "v=6"]
        );
    }

    #[test]
    fn without_a_command_it_runs_as_kube_proxy_does() {
        let Command::Run(args) =
            parse("proxier --config=/var/lib/kube-proxy/config.conf --hostname-override=$(NODE_NAME)")
        else {
            panic!("not run")
        };
        assert_eq!(args.flags.config.as_deref(), Some("/var/lib/kube-proxy/config.conf".as_ref()));
        assert_eq!(given(&args.flags), ["hostname-override=$(NODE_NAME)"]);
        assert!(!args.init_only);
        let Command::Run(args) = parse("proxier --init-only --config=c") else { panic!("not run") };
        assert!(args.init_only);
        assert!(
            matches!(parse("proxier --cleanup --config c"), Command::Cleanup(BaseFlags(f)) if f.config.is_some())
        );
        assert!(matches!(parse("proxier run --cleanup=true"), Command::Cleanup(_)));
        assert!(matches!(parse("proxier --cleanup=false"), Command::Run(_)));
        let Command::WriteConfig(flags, path) = parse("proxier --write-config-to f --healthz-port=0") else {
            panic!("not written")
        };
        assert_eq!(path, PathBuf::from("f"));
        assert_eq!(given(&flags), ["healthz-port=0", "write-config-to=f"]);
    }

    #[test]
    fn the_version_is_asked_for_as_go_programs_are() {
        for line in ["proxier --version", "proxier -V", "proxier --version=raw", "proxier run --version=true"]
        {
            assert!(matches!(parse(line), Command::Version), "{line}");
        }
        assert!(matches!(parse("proxier --version=false --config c"), Command::Run(_)));
        assert_eq!(refused("proxier --version=loud"), ErrorKind::InvalidValue);
    }

    #[test]
    fn switches_are_written_as_in_go() {
        for (line, value) in [
            ("--masquerade-all", "true"),
            ("--masquerade-all=true", "true"),
            ("--masquerade-all=false", "false"),
        ] {
            assert_eq!(run(&format!("proxier {line}")), [format!("masquerade-all={value}")]);
        }
        assert_eq!(refused("proxier --masquerade-all true"), ErrorKind::ArgumentConflict);
        assert_eq!(run("proxier --oom-score-adj -5"), ["oom-score-adj=-5"]);
        assert_eq!(
            run("proxier --feature-gates A=true --feature-gates B=false"),
            ["feature-gates=A=true|B=false"]
        );
    }

    #[test]
    fn verbosity_is_a_number_or_a_count() {
        for (line, value) in [
            ("-v", "4"),
            ("-vv", "6"),
            ("-v -v", "6"),
            ("-v=7", "7"),
            ("-v7", "7"),
            ("-v 7", "7"),
            ("--v=2", "2"),
            ("--v 2", "2"),
            ("-v --v=0", "0"),
        ] {
            assert_eq!(run(&format!("proxier run {line}")), [format!("v={value}")], "{line}");
        }
    }

    #[test]
    fn arguments_without_a_flag_are_refused_unless_they_are_empty() {
        assert_eq!(refused("proxier more"), ErrorKind::InvalidSubcommand);
        assert_eq!(refused("proxier --config c more"), ErrorKind::ArgumentConflict);
        assert_eq!(refused("proxier run more"), ErrorKind::UnknownArgument);
        assert_eq!(run("proxier run  --node n "), ["node=n"]);
        assert_eq!(run("proxier run --cluster-cidr "), ["cluster-cidr="]);
        assert_eq!(refused("proxier"), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    }

    #[test]
    fn the_api_server_is_named_by_flags() {
        let Command::Render(args) = parse("proxier render --kubeconfig k --master https://a:1") else {
            panic!("not render")
        };
        let mut given = given(&args.flags);
        given.sort();
        assert_eq!(given, ["kubeconfig=k", "master=https://a:1"]);
    }

    #[test]
    fn render_has_formats() {
        let Command::Render(args) = parse("proxier render -o json") else { panic!("not render") };
        assert_eq!(args.output, OutputFormat::Json);
        assert_eq!(refused("proxier render -o xml"), ErrorKind::InvalidValue);
    }

    #[test]
    fn lab_hands_everything_on() {
        let Command::Lab(args) = parse("proxier lab up --nodes 3 -v --help") else { panic!("not lab") };
        assert_eq!(args.args, ["up", "--nodes", "3", "-v", "--help"]);
    }

    #[test]
    fn cleanup_takes_a_backend_but_no_manifests() {
        let Command::Cleanup(flags) = parse("proxier cleanup --backend fake") else { panic!("not cleanup") };
        assert_eq!(given(&flags.0), ["backend=fake"]);
        assert_eq!(refused("proxier cleanup --manifests m"), ErrorKind::UnknownArgument);
    }
}
