//! The lists of `deny.toml`, held against Cargo's metadata: licences, bans and sources of all dependencies.

use std::path::Path;

use cargo_metadata::Package;

use crate::licence::satisfied;
use crate::workspace::{built, metadata, text};

/// The part of `deny.toml` that is checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Policy {
    licences: Vec<String>,
    banned: Vec<String>,
}

impl Policy {
    fn read() -> Self {
        let file = text(Path::new("deny.toml")).unwrap();
        Self { licences: list(&file, "licenses", "allow"), banned: list(&file, "bans", "deny") }
    }

    fn faults(&self, name: &str, licence: Option<&str>, source: Option<&str>) -> Vec<String> {
        let mut faults = Vec::new();
        match licence.map(|expression| satisfied(expression, &self.licences)) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => faults.push(format!("{name}: licence {} is not allowed", licence.unwrap())),
            Some(Err(error)) => faults.push(format!("{name}: licence: {error}")),
            None => faults.push(format!("{name}: no licence")),
        }
        if self.banned.iter().any(|banned| banned == name) {
            faults.push(format!("{name}: banned"));
        }
        // Members of the workspace have no source.
        if let Some(source) = source.filter(|source| !is_default_registry(source)) {
            faults.push(format!("{name}: comes from {source}"));
        }
        faults
    }
}

fn is_default_registry(source: &str) -> bool {
    source.strip_prefix("registry+").is_some_and(|url| url.ends_with("/rust-lang/crates.io-index"))
}

/// The first quoted string of each line of a list that is written with one entry a line.
fn list(file: &str, section: &str, key: &str) -> Vec<String> {
    let header = format!("[{section}]");
    let start = format!("{key} = [");
    let mut lines = file.lines().map(str::trim).skip_while(|line| *line != header).skip(1);
    let in_section = lines.by_ref().take_while(|line| !line.starts_with('['));
    let entries = in_section.skip_while(|line| *line != start).skip(1).take_while(|line| *line != "]");
    entries.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

#[test]
fn dependencies_follow_the_policy() {
    let (policy, metadata) = (Policy::read(), metadata());
    let packages = built(&metadata);
    assert!(packages.len() > metadata.workspace_members.len(), "no dependencies found");
    let faults = |package: &&Package| {
        let source = package.source.as_ref().map(|source| source.repr.as_str());
        policy.faults(&package.name, package.license.as_deref(), source)
    };
    assert_eq!(packages.iter().flat_map(faults).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_policy_is_read() {
    let policy = Policy::read();
    assert!(policy.licences.contains(&"Apache-2.0".to_owned()), "{policy:?}");
    assert_eq!(policy.banned, ["native-tls", "openssl", "openssl-sys"]);
}

#[test]
fn a_list_ends_where_it_ends() {
    let file = "[a]\nallow = [\n]\n[b]\nother = [\n\"x\",\n]\nallow = [\n  \"y\", # \"z\"\n]\n[c]\nallow = [\n\"w\"\n]\n";
    assert_eq!(list(file, "b", "allow"), ["y"]);
    assert_eq!(list(file, "a", "allow"), [""; 0]);
    assert_eq!(list(file, "a", "other"), [""; 0]);
}

#[test]
fn faults_are_seen() {
    let policy = Policy { licences: vec!["MIT".to_owned()], banned: vec!["openssl".to_owned()] };
    let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
    assert_eq!(policy.faults("good", Some("MIT"), registry), [""; 0]);
    assert_eq!(policy.faults("good", Some("MIT"), None), [""; 0]);
    assert_eq!(policy.faults("openssl", Some("MIT"), registry), ["openssl: banned"]);
    assert_eq!(policy.faults("x", Some("GPL-3.0"), registry), ["x: licence GPL-3.0 is not allowed"]);
    assert_eq!(policy.faults("x", None, registry), ["x: no licence"]);
    let git = "git+https://example.com/x";
    assert_eq!(policy.faults("x", Some("MIT"), Some(git)), [format!("x: comes from {git}")]);
}
