//! The command line of `proxier-lab`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::pace::Patience;
use crate::scenario::{Experiment, VARIANTS, Variant};

/// Build nodes out of network namespaces, run the proxier agent on them, send traffic, compare with what real clusters do.
///
/// Runs as root or, where the kernel allows user namespaces, as any user. Nothing is changed outside; everything goes
/// with the process. Exit status: 0 as expected, 1 differences, 2 usage, 3 the lab cannot run here.
#[derive(Clone, Debug, Parser)]
#[command(name = "proxier-lab", version)]
pub struct Arguments {
    /// What to run [default: the experiments]
    #[command(subcommand)]
    pub task: Option<Task>,

    /// The agent binary [default: `proxier` beside this program]
    #[arg(long, global = true, value_name = "PATH")]
    pub proxier: Option<PathBuf>,

    /// Run only this, or only one variant of it; may be repeated
    #[arg(long, global = true, value_name = "A|maps|A/maps")]
    pub only: Vec<String>,

    /// How many times longer than on a real machine everything may take, as where processors are emulated; and so many times less is
    /// done at once
    #[arg(long, global = true, value_name = "N", default_value_t = Patience::REAL, value_parser = Patience::parse)]
    pub patience: Patience,

    /// How the lab starts itself in namespaces of its own.
    #[arg(long, hide = true, value_name = "NAMESPACES")]
    pub inside: Option<String>,
}

/// What there is to run besides the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Task {
    /// Every Service kind, policy, caller, protocol and family against the oracle; `--only` takes variant, setting, group or scenario
    Matrix {
        /// Rows that differ in protocol and family alone by two of the four ways, and fewer connections for each
        #[arg(long)]
        thin: bool,
    },
}

/// The pairs of experiment and variant to run.
///
/// # Errors
/// A selector that names nothing.
pub fn matrix<'a>(
    experiments: &'a [Experiment],
    only: &[String],
) -> anyhow::Result<Vec<(&'a Experiment, &'static Variant)>> {
    let all = experiments.iter().flat_map(|e| VARIANTS.iter().map(move |v| (e, v)));
    let all: Vec<_> = all.filter(|(e, v)| (e.of)(v.layout)).collect();
    let matches = |(e, v): &(&Experiment, &Variant), selector: &str| {
        selector == e.id || selector == v.name || selector.split_once('/') == Some((e.id, v.name))
    };
    if let Some(unknown) = only.iter().find(|s| !all.iter().any(|pair| matches(pair, s))) {
        let mut ids: Vec<_> = experiments.iter().map(|e| e.id).collect();
        ids.dedup();
        let names = VARIANTS.map(|v| v.name);
        anyhow::bail!(
            "--only {unknown}: no such experiment ({}) or variant ({})",
            ids.join(", "),
            names.join(", ")
        );
    }
    Ok(all.into_iter().filter(|pair| only.is_empty() || only.iter().any(|s| matches(pair, s))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::experiments;

    fn selected(only: &[&str]) -> Vec<String> {
        let only: Vec<String> = only.iter().map(|s| (*s).to_owned()).collect();
        matrix(&experiments(), &only).unwrap().iter().map(|(e, v)| format!("{}/{}", e.id, v.name)).collect()
    }

    #[test]
    fn selectors_narrow_the_matrix() {
        let mut all = selected(&[]);
        all.sort_unstable();
        let mut expected = ["A", "B", "C"].map(|e| VARIANTS.map(|v| format!("{e}/{}", v.name))).concat();
        expected.sort_unstable();
        assert_eq!(all, expected);
        assert_eq!(selected(&["C/iptables-legacy", "C/maps"]), ["C/maps", "C/iptables-legacy"]);
        assert_eq!(selected(&["A"]).len(), VARIANTS.len());
        assert_eq!(selected(&["chains"]), ["A/chains", "B/chains", "C/chains"]);
        assert!(matrix(&experiments(), &["D".to_owned()]).is_err());
    }

    #[test]
    fn the_command_line_is_well_formed() {
        fn clap_command<T: clap::CommandFactory>() -> clap::Command {
            T::command()
        }
        clap_command::<Arguments>().debug_assert();
    }
}
