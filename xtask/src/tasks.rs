//! The commands that are no list of checks.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::tally::Tally;
use crate::{metadata, packages, process};

/// What the lab consists of: its own package, and the agent's.
const LAB_BUILD: [&str; 6] = ["build", "--package", "agent", "--package", "e2e", "--bins"];

/// Cargo's option for optimised builds.
const RELEASE: &str = "--release";

/// How to get cargo-deny, which takes minutes to build and is therefore never installed unasked.
const DENY_ADVICE: &str = "cargo-deny is not installed; install with: cargo install --locked cargo-deny";

/// Builds the agent and the lab; gives the lab's path.
pub(crate) fn build_lab(release: bool) -> anyhow::Result<PathBuf> {
    let mut build = process::cargo(&LAB_BUILD);
    if release {
        build.arg(RELEASE);
    }
    process::run(&mut build)?;
    program("proxier-lab", if release { "release" } else { "debug" })
}

/// Where cargo put a program that it built.
pub(crate) fn program(name: &str, profile: &str) -> anyhow::Result<PathBuf> {
    Ok(metadata::load()?.target_directory.join(profile).join(name).into())
}

/// Becomes the lab: its exit status and the way it takes signals are this command's.
pub(crate) fn lab(release: bool, arguments: &[OsString]) -> anyhow::Result<()> {
    packages::ensure(packages::LAB)?;
    let program = build_lab(release)?;
    let error = process::command(&program, arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Writes all golden files anew and shows which of them changed.
pub(crate) fn golden() -> anyhow::Result<()> {
    let mut tests = process::cargo(&["test", "--workspace", "--tests", "--", "golden"]);
    let tally = process::run_counted(tests.env("INSTA_UPDATE", "always"), Tally::of_test_program)?;
    if tally.failed > 0 {
        bail!("{} golden tests fail for another reason than their files", tally.failed);
    }
    if tally.passed == 0 {
        bail!("there is no test with `golden` in its name");
    }
    println!("{} golden tests ran; files that changed, to be reviewed as a diff:", tally.passed);
    process::run(&mut process::command("git", &["status", "--short", "--", "*.snap"]))
}

/// Runs every benchmark of the workspace, then the one end to end if there is one.
pub(crate) fn bench(arguments: &[OsString]) -> anyhow::Result<()> {
    packages::ensure(packages::LAB)?;
    let metadata = metadata::load()?;
    let benches = metadata::benches(&metadata);
    let end_to_end = metadata::has_binary(&metadata, "e2e", "proxier-bench");
    if benches.is_empty() && !end_to_end {
        bail!("the workspace has no benchmarks");
    }
    if !benches.is_empty() {
        let mut command: Vec<OsString> = vec!["bench".into()];
        for (package, name) in benches {
            command.extend(["--package".into(), package.into(), "--bench".into(), name.into()]);
        }
        // Built first and outside: there is no network inside.
        process::run(process::cargo(&command).arg("--no-run"))?;
        command.push("--".into());
        command.extend_from_slice(arguments);
        process::run(&mut process::isolated(process::cargo_program(), &command)?)?;
    }
    if end_to_end {
        process::run(process::cargo(&LAB_BUILD).arg(RELEASE))?;
        process::run(&mut process::isolated(program("proxier-bench", "release")?, arguments)?)?;
    }
    Ok(())
}

/// Whether cargo-deny can be run here.
pub(crate) fn has_deny() -> bool {
    process::cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Runs cargo-deny over licences, bans and sources; advisories need a database that is not part of this repository.
pub(crate) fn deny() -> anyhow::Result<()> {
    if !has_deny() {
        bail!(DENY_ADVICE);
    }
    process::run(&mut process::cargo(&["deny", "check", "bans", "licenses", "sources"].map(OsStr::new)))
}

/// As [`deny`], but where cargo-deny is not installed it says so and counts nothing: the tests of this package check the
/// same rules.
pub(crate) fn deny_if_there() -> anyhow::Result<Tally> {
    if has_deny() {
        return deny().map(|()| Tally::ONE);
    }
    println!("not run: {DENY_ADVICE}; licences, bans and sources are also checked in step `tests`");
    Ok(Tally::default())
}
