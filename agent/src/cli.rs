//! The command line as typed. What it means together with the file is [`crate::config`]'s business.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub use crate::commands::AdminArgs;
use crate::config::FlagValue;

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "proxier",
    version,
    about = "A Kubernetes Service proxy with exchangeable data planes",
    propagate_version = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Keep the kernel as the cluster says, until told to stop
    Run(ConfigFlags),
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

/// Flags of every command that reads the configuration. A flag overrides the file.
#[derive(Clone, Debug, Default, Args)]
pub struct BaseFlags {
    /// Configuration file, YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data plane (`mode` in the file)
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// How log lines look: text or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Log more: once for debug, twice for trace
    #[arg(short, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Flags of the commands that need to know the cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigFlags {
    /// Flags that every command has.
    #[command(flatten)]
    pub base: BaseFlags,
    /// Kubeconfig: read Services, EndpointSlices and this Node from its API server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// Address of the API server, in place of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Folder of manifests to read Services, EndpointSlices and Nodes from
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<String>,
    /// This node's name (default: the host's name)
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Pod ranges of the cluster, one of each family at most, separated by a comma
    #[arg(long, value_name = "CIDR")]
    pub cluster_cidr: Option<String>,
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

impl BaseFlags {
    /// The settings that were given as flags.
    #[must_use]
    pub fn settings(&self) -> Vec<FlagValue> {
        let level = match self.verbose {
            0 => None,
            1 => Some("debug"),
            _ => Some("trace"),
        };
        [
            FlagValue::text("mode", "--backend", self.backend.as_deref()),
            FlagValue::text("logging.format", "--log-format", self.log_format.as_deref()),
            FlagValue::text("logging.level", "-v", level),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl ConfigFlags {
    /// The settings that were given as flags.
    #[must_use]
    pub fn settings(&self) -> Vec<FlagValue> {
        let mut out = self.base.settings();
        let kubeconfig = self.kubeconfig.as_deref();
        out.extend(FlagValue::text("source.kubernetes.kubeconfig", "--kubeconfig", kubeconfig));
        out.extend(FlagValue::text("source.kubernetes.server", "--master", self.master.as_deref()));
        out.extend(FlagValue::text("source.manifests.path", "--manifests", self.manifests.as_deref()));
        out.extend(FlagValue::text("hostnameOverride", "--node", self.node.as_deref()));
        out.extend(FlagValue::text("clusterCIDR", "--cluster-cidr", self.cluster_cidr.as_deref()));
        out
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Command {
        Cli::try_parse_from(line.split(' ')).expect("parses").command
    }

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_small_run_needs_only_flags() {
        let Command::Run(flags) = parse(
            "proxier run --manifests m --node n1 --backend fake --cluster-cidr 10.0.0.0/8 --log-format json -vv",
        ) else {
            panic!("not run")
        };
        let mut settings: Vec<String> =
            flags.settings().iter().map(|s| format!("{}={}", s.path, s.value)).collect();
        settings.sort();
        assert_eq!(
            settings,
            [
                "clusterCIDR=\"10.0.0.0/8\"",
                "hostnameOverride=\"n1\"",
                "logging.format=\"json\"",
                "logging.level=\"trace\"",
                "mode=\"fake\"",
                "source.manifests.path=\"m\"",
            ]
        );
    }

    #[test]
    fn the_api_server_is_named_by_flags() {
        let Command::Render(args) = parse("proxier render --kubeconfig k --master https://a:1") else {
            panic!("not render")
        };
        let settings: Vec<_> =
            args.flags.settings().iter().map(|s| format!("{} {}={}", s.flag, s.path, s.value)).collect();
        assert_eq!(
            settings,
            [
                "--kubeconfig source.kubernetes.kubeconfig=\"k\"",
                "--master source.kubernetes.server=\"https://a:1\""
            ]
        );
    }

    #[test]
    fn render_has_formats() {
        let Command::Render(args) = parse("proxier render -o json") else { panic!("not render") };
        assert_eq!(args.output, OutputFormat::Json);
        assert!(Cli::try_parse_from(["proxier", "render", "-o", "xml"]).is_err());
    }

    #[test]
    fn lab_hands_everything_on() {
        let Command::Lab(args) = parse("proxier lab up --nodes 3 -v --help") else { panic!("not lab") };
        assert_eq!(args.args, ["up", "--nodes", "3", "-v", "--help"]);
    }

    #[test]
    fn cleanup_takes_a_backend_but_no_manifests() {
        let Command::Cleanup(flags) = parse("proxier cleanup --backend fake") else { panic!("not cleanup") };
        assert_eq!(flags.backend.as_deref(), Some("fake"));
        assert!(Cli::try_parse_from(["proxier", "cleanup", "--manifests", "m"]).is_err());
    }
}
