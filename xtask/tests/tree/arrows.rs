//! Which crate may use which: core <- sys <- xtables <- backend-* <- agent, with the test crates beside them.

use cargo_metadata::{DependencyKind, Edition, Metadata, Package};

use crate::workspace::{closure, metadata};

/// What a member of the workspace is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Core,
    Sys,
    /// What backends share that write with the iptables tools.
    Xtables,
    Backend,
    Agent,
    Testkit,
    EndToEnd,
    Xtask,
}

impl Room {
    fn of(name: &str) -> Option<Self> {
        match name {
            "proxier-core" => Some(Self::Core),
            "proxier-sys" => Some(Self::Sys),
            "proxier-xtables" => Some(Self::Xtables),
            "proxier-testkit" => Some(Self::Testkit),
            "agent" => Some(Self::Agent),
            "e2e" => Some(Self::EndToEnd),
            "xtask" => Some(Self::Xtask),
            _ => name.starts_with("backend-").then_some(Self::Backend),
        }
    }

    /// Members that may become part of what it builds.
    fn may_use(self) -> &'static [Self] {
        match self {
            Self::Core | Self::Xtask => &[],
            Self::Sys => &[Self::Core],
            Self::Xtables | Self::Testkit => &[Self::Core, Self::Sys],
            Self::Backend => &[Self::Core, Self::Sys, Self::Xtables],
            Self::Agent => &[Self::Core, Self::Sys, Self::Backend],
            // The agent is driven as a program, so that any agent can be.
            Self::EndToEnd => &[Self::Core, Self::Sys, Self::Testkit],
        }
    }

    /// Members that its tests may use besides. Core and sys are below testkit: with it, their tests would see two copies
    /// of each type.
    fn tests_may_use(self) -> &'static [Self] {
        match self {
            Self::Xtables | Self::Backend | Self::Agent => &[Self::Testkit],
            _ => &[],
        }
    }

    /// Packages (and their `name-*` families) that must not be in what it builds, however far down.
    fn must_not_build(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["tokio", "tracing", "kube", "nix", "netlink", "rtnetlink", "genetlink"],
            Self::Sys | Self::Xtables | Self::Backend => &["kube"],
            _ => &[],
        }
    }
}

/// A member and the members it names.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    uses: Vec<String>,
    tests_use: Vec<String>,
}

impl Member {
    fn new(package: &Package) -> Self {
        let names = |development: bool| {
            let chosen = package
                .dependencies
                .iter()
                .filter(|d| d.path.is_some() && (d.kind == DependencyKind::Development) == development);
            chosen.map(|d| d.name.clone()).collect()
        };
        Self { name: package.name.to_string(), uses: names(false), tests_use: names(true) }
    }

    fn violations(&self) -> Vec<String> {
        let Some(room) = Room::of(&self.name) else {
            return vec![format!(
                "{}: unknown crate; say in the table of this test what it is and may use",
                self.name
            )];
        };
        let refused = |names: &[String], rooms: &[Room], how: &str| -> Vec<String> {
            let outside = |name: &&String| Room::of(name).is_none_or(|used| !rooms.contains(&used));
            names.iter().filter(outside).map(|used| format!("{} {how} {used}", self.name)).collect()
        };
        let mut violations = refused(&self.uses, room.may_use(), "must not use");
        let in_tests = [room.may_use(), room.tests_may_use()].concat();
        violations.extend(refused(&self.tests_use, &in_tests, "must not use in tests"));
        violations
    }
}

/// Whether `name` is `family` or one of its `family-*`.
fn is_of(name: &str, family: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// What a member builds and must not.
fn unwanted(metadata: &Metadata, package: &Package) -> Vec<String> {
    unwanted_in(Room::of(&package.name), metadata, package)
}

fn unwanted_in(room: Option<Room>, metadata: &Metadata, package: &Package) -> Vec<String> {
    let families = room.map_or(&[][..], Room::must_not_build);
    let names = closure(metadata, package);
    let hit = |name: &&String| families.iter().any(|family| is_of(name, family));
    names.iter().filter(hit).map(|name| format!("{} must not build {name}", package.name)).collect()
}

/// What every manifest says alike.
fn manifest_faults(package: &Package) -> Vec<String> {
    let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
    let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
    let folder = package.manifest_path.parent().and_then(|folder| folder.file_name());
    let rules = [
        (lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]), "inherits no lints"),
        (package.edition == Edition::E2024, "is not of edition 2024"),
        (package.license.as_deref() == Some("Apache-2.0"), "is not under Apache-2.0"),
        (package.publish.as_ref().is_some_and(Vec::is_empty), "can be published"),
        (folder == Some(package.name.as_str()), "is not in a folder of its name"),
    ];
    rules.iter().filter(|(holds, _)| !holds).map(|(_, fault)| format!("{} {fault}", package.name)).collect()
}

#[test]
fn arrows_point_to_the_core() {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    assert!(members.len() >= 7, "{}", members.len());
    let violations: Vec<String> = members.iter().flat_map(|p| Member::new(p).violations()).collect();
    assert_eq!(violations, [""; 0]);
}

#[test]
fn nothing_unwanted_is_built_into_the_inner_crates() {
    let metadata = metadata();
    let violations: Vec<String> =
        metadata.workspace_packages().into_iter().flat_map(|p| unwanted(&metadata, p)).collect();
    assert_eq!(violations, [""; 0]);
}

#[test]
fn every_manifest_follows_the_workspace() {
    let metadata = metadata();
    let faults: Vec<String> = metadata.workspace_packages().into_iter().flat_map(manifest_faults).collect();
    assert_eq!(faults, [""; 0]);
}

fn violations(name: &str, uses: &[&str], tests_use: &[&str]) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Member { name: name.to_owned(), uses: owned(uses), tests_use: owned(tests_use) }.violations()
}

#[test]
fn an_arrow_the_wrong_way_is_seen() {
    assert_eq!(violations("proxier-core", &["proxier-sys"], &[]), ["proxier-core must not use proxier-sys"]);
    assert_eq!(
        violations("backend-a", &["proxier-core", "backend-b", "agent"], &[]),
        ["backend-a must not use backend-b", "backend-a must not use agent"]
    );
    assert_eq!(violations("agent", &["proxier-testkit"], &[]), ["agent must not use proxier-testkit"]);
    assert_eq!(
        violations("e2e", &["proxier-testkit"], &["backend-a"]),
        ["e2e must not use in tests backend-a"]
    );
    assert_eq!(
        violations("proxier-xtables", &["proxier-sys", "backend-a"], &[]),
        ["proxier-xtables must not use backend-a"]
    );
    assert_eq!(violations("agent", &["proxier-xtables"], &[]), ["agent must not use proxier-xtables"]);
    assert_eq!(violations("backend-a", &["proxier-sys", "proxier-xtables"], &["proxier-testkit"]), [""; 0]);
}

#[test]
fn an_unknown_crate_is_a_violation() {
    assert!(violations("proxier-extra", &[], &[])[0].contains("say in the table"));
    assert_eq!(violations("agent", &["proxier-extra"], &[]), ["agent must not use proxier-extra"]);
}

#[test]
fn families_of_packages_are_told_from_namesakes() {
    assert!(is_of("kube", "kube") && is_of("kube-client", "kube") && is_of("netlink-sys", "netlink"));
    assert!(!is_of("kubelike", "kube") && !is_of("proxier-kube", "kube"));
    let metadata = metadata();
    let sys = metadata.workspace_packages().into_iter().find(|p| p.name == "proxier-sys").unwrap();
    let violations = unwanted_in(Some(Room::Core), &metadata, sys);
    assert!(violations.contains(&"proxier-sys must not build nix".to_owned()), "{violations:?}");
}
