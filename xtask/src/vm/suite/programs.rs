//! The test programs of the workspace.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail};
use cargo_metadata::{Artifact, Message};

use crate::vm::kernel;
use crate::{process, steps};

/// A test program of the workspace with tests that need a kernel.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) package: String,
    pub(super) target: String,
    pub(super) executable: PathBuf,
    /// The package's folder, in which its tests run.
    pub(super) folder: PathBuf,
    /// Names of the ignored tests.
    pub(super) tests: Vec<String>,
    /// Names of those that are not to be run.
    pub(super) skipped: Vec<String>,
}

/// The test programs of the workspace that hold ignored tests, built as the step `kernel` builds them.
pub(super) fn programs() -> anyhow::Result<Vec<Program>> {
    let mut build = process::cargo(&steps::KERNEL_TESTS);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let shown = process::shown(&build);
    println!("$ {shown}");
    let mut child = build.spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut programs = Vec::new();
    if let Some(output) = child.stdout.take() {
        for message in Message::parse_stream(BufReader::new(output)) {
            if let Message::CompilerArtifact(artifact) = message.context("cargo's messages")? {
                programs.extend(program(&artifact)?);
            }
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(programs)
}

/// A test program with ignored tests; nothing for anything else that cargo builds.
fn program(artifact: &Artifact) -> anyhow::Result<Option<Program>> {
    let (Some(executable), Some(folder)) = (&artifact.executable, artifact.manifest_path.parent()) else {
        return Ok(None);
    };
    if !artifact.profile.test {
        return Ok(None);
    }
    let list = kernel::output(executable.as_str(), &["--list", "--ignored"])?;
    let tests = listed(&list);
    let package = folder.file_name().unwrap_or_default().to_owned();
    let found = Program {
        package,
        target: artifact.target.name.clone(),
        executable: executable.into(),
        folder: folder.into(),
        tests,
        skipped: Vec::new(),
    };
    Ok(Some(found).filter(|program| !program.tests.is_empty()))
}

/// The names in a test program's list of tests.
fn listed(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One that is nowhere.
    pub(in crate::vm::suite) fn program(package: &str, tests: &[&str]) -> Program {
        Program {
            package: package.to_owned(),
            target: "target".to_owned(),
            executable: "/t/exe".into(),
            folder: "/p".into(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            skipped: Vec::new(),
        }
    }

    #[test]
    fn lists_of_tests_are_read() {
        assert_eq!(listed("a::b: test\nc: test\nd: benchmark\n\n2 tests, 1 benchmark\n"), ["a::b", "c"]);
    }
}
