//! What the workspace consists of, from Cargo's own description.

use std::path::PathBuf;

use anyhow::Context;
use cargo_metadata::{Metadata, MetadataCommand, TargetKind};

use crate::process;

/// The workspace without its dependencies.
pub(crate) fn load() -> anyhow::Result<Metadata> {
    MetadataCommand::new().current_dir(process::root()).no_deps().exec().context("cargo metadata")
}

/// The folders of the workspace's packages.
pub(crate) fn folders() -> anyhow::Result<Vec<PathBuf>> {
    let metadata = load()?;
    let packages = metadata.workspace_packages();
    Ok(packages.iter().filter_map(|package| Some(package.manifest_path.parent()?.into())).collect())
}

/// Package and name of every benchmark of the workspace.
pub(crate) fn benches(metadata: &Metadata) -> Vec<(String, String)> {
    targets(metadata, &TargetKind::Bench)
}

/// The packages whose kernel tests all run on the second kernel as well: their manifests say `second-kernel = "whole"` in
/// `[package.metadata.proxier]`.
pub(crate) fn whole_on_second_kernel(metadata: &Metadata) -> Vec<String> {
    let says_so = |package: &&cargo_metadata::Package| {
        package.metadata.pointer("/proxier/second-kernel").and_then(|v| v.as_str()) == Some("whole")
    };
    metadata.workspace_packages().into_iter().filter(says_so).map(|p| p.name.to_string()).collect()
}

/// Whether `package` has a program of this name.
pub(crate) fn has_binary(metadata: &Metadata, package: &str, name: &str) -> bool {
    targets(metadata, &TargetKind::Bin).iter().any(|(p, n)| p == package && n == name)
}

fn targets(metadata: &Metadata, kind: &TargetKind) -> Vec<(String, String)> {
    metadata
        .workspace_packages()
        .into_iter()
        .flat_map(|package| package.targets.iter().map(move |target| (package, target)))
        .filter(|(_, target)| target.kind.contains(kind))
        .map(|(package, target)| (package.name.to_string(), target.name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_that_the_commands_start_exist() {
        let metadata = load().unwrap();
        assert!(has_binary(&metadata, "agent", "proxier"));
        assert!(has_binary(&metadata, "e2e", "proxier-lab"));
        assert!(!has_binary(&metadata, "e2e", "proxier"));
    }

    #[test]
    fn packages_say_that_a_second_kernel_is_asked() {
        let whole = whole_on_second_kernel(&load().unwrap());
        assert!(whole.iter().any(|name| name == "proxier-sys"), "{whole:?}");
        assert!(!whole.iter().any(|name| name == "xtask"), "{whole:?}");
    }

    #[test]
    fn benchmarks_are_found() {
        let benches = benches(&load().unwrap());
        assert!(benches.iter().any(|(package, _)| package.starts_with("backend-")), "{benches:?}");
    }
}
