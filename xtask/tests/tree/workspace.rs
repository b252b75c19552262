//! The workspace as Cargo and Git see it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId};

/// The repository's root folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The workspace with all features and all dependencies that this machine's kind needs, as locked.
pub(crate) fn metadata() -> Metadata {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    MetadataCommand::new()
        .current_dir(root())
        .features(CargoOpt::AllFeatures)
        .other_options(["--locked", "--filter-platform", &platform].map(str::to_owned))
        .exec()
        .unwrap()
}

/// Packages that are built on this machine's kind: Cargo lists others beside them.
pub(crate) fn built(metadata: &Metadata) -> Vec<&Package> {
    let nodes = &metadata.resolve.as_ref().unwrap().nodes;
    nodes.iter().map(|node| &metadata[&node.id]).collect()
}

/// Names of all packages that become part of what `package` builds; development dependencies do not.
pub(crate) fn closure(metadata: &Metadata, package: &Package) -> BTreeSet<String> {
    let nodes: HashMap<&PackageId, _> =
        metadata.resolve.as_ref().unwrap().nodes.iter().map(|node| (&node.id, node)).collect();
    let (mut found, mut waiting) = (BTreeSet::new(), vec![&package.id]);
    while let Some(id) = waiting.pop() {
        for dependency in &nodes[id].deps {
            let counts = dependency.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development);
            if counts && found.insert(metadata[&dependency.pkg].name.to_string()) {
                waiting.push(&dependency.pkg);
            }
        }
    }
    found
}

/// Every file that is committed or, if nothing tells Git to ignore it, could be; relative to the root.
#[expect(clippy::disallowed_methods, reason = "asks Git once; nothing of the product runs here")]
pub(crate) fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut files: Vec<PathBuf> = listing.split_terminator('\0').map(PathBuf::from).collect();
    // Deleted ones that are still in Git's index.
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    files
}

/// The text of a file, or nothing when it is none.
pub(crate) fn text(file: &Path) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(file)).unwrap()).ok()
}

#[test]
fn a_closure_holds_what_is_built_and_not_what_only_tests_use() {
    let metadata = metadata();
    let package = |name: &str| *metadata.workspace_packages().iter().find(|p| p.name == name).unwrap();
    let agent = closure(&metadata, package("agent"));
    for name in ["proxier-core", "proxier-sys", "nix", "tracing-core"] {
        assert!(agent.contains(name), "{name}: {agent:?}");
    }
    assert!(!closure(&metadata, package("proxier-core")).contains("proptest"));
}

#[test]
fn files_are_found() {
    let files = files();
    assert!(files.contains(&PathBuf::from("Cargo.lock")));
    assert!(!files.iter().any(|file| file.starts_with("target")));
}
