//! The Rust files that `cargo xtask test` builds: from the root of each target along its `mod` lines.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use cargo_metadata::{Metadata, TargetKind};

/// Conditions that hold wherever the tests of the workspace are built.
const HOLDS: [&str; 3] = ["#[cfg(test)]", "#[cfg(feature = \"k8s\")]", "#[cfg(feature = \"apiserver\")]"];

/// Rust files, absolute.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Those that are built with the tests.
    pub(super) built: BTreeSet<PathBuf>,
    /// All there are in the folders of the workspace's packages.
    pub(super) all: BTreeSet<PathBuf>,
}

impl Sources {
    /// Of the workspace at `root`.
    pub(super) fn of(metadata: &Metadata, root: &Path) -> anyhow::Result<Self> {
        let mut sources = Self::default();
        let tested = [TargetKind::Lib, TargetKind::Bin, TargetKind::Test];
        for package in metadata.workspace_packages() {
            let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
            anyhow::ensure!(folder.as_std_path() != root, "{}: a package at the root", package.name);
            collect(folder.as_std_path(), &mut sources.all)?;
            let roots = package.targets.iter().filter(|t| t.kind.iter().any(|kind| tested.contains(kind)));
            for target in roots {
                sources.enter(target.src_path.as_std_path(), true)?;
            }
        }
        Ok(sources)
    }

    /// Takes in a file and the modules below it.
    fn enter(&mut self, file: &Path, is_root: bool) -> anyhow::Result<()> {
        if !self.built.insert(file.to_owned()) {
            return Ok(());
        }
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let folder = file.parent().context("a file is in a folder")?;
        let stem = file.file_stem().unwrap_or_default();
        let below = if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
        for module in modules(&text) {
            let places = match module.path {
                Some(path) => vec![straight(&folder.join(path))],
                None => {
                    let name = module.name;
                    vec![below.join(format!("{name}.rs")), below.join(name).join("mod.rs")]
                }
            };
            let place = places.iter().find(|place| place.is_file());
            let place =
                place.with_context(|| format!("{}: no file for `mod {}`", file.display(), module.name))?;
            self.enter(place, false)?;
        }
        Ok(())
    }
}

/// A module that is in a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Module<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Where it says that its file is.
    pub(super) path: Option<&'a str>,
}

/// The modules that a file declares and that are built, except for those that are written out in it.
pub(super) fn modules(text: &str) -> Vec<Module<'_>> {
    // As rustfmt writes them: at the beginning of the line, which tells them from text and from modules within modules.
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mut declaration = *line;
        if let Some(after) = declaration.strip_prefix("pub") {
            let narrowed = after.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            declaration = narrowed.map_or(after, |(_, rest)| rest).trim_start();
        }
        let Some(name) = declaration.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) else {
            continue;
        };
        let above = lines[..at].iter().rev().take_while(|l| l.starts_with("#[") || l.starts_with("//"));
        let mut conditions = above.clone().filter(|l| l.starts_with("#[cfg"));
        if conditions.all(|l| HOLDS.contains(l)) {
            found.push(Module {
                name,
                path: above.clone().find_map(|l| l.strip_prefix("#[path = \"")?.strip_suffix("\"]")),
            });
        }
    }
    found
}

/// The same path without `..`.
fn straight(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut out, part| {
        if part == Component::ParentDir {
            out.pop();
        } else {
            out.push(part);
        }
        out
    })
}

fn collect(path: &Path, into: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.insert(path);
        }
    }
    Ok(())
}
