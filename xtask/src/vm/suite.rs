//! `cargo xtask vm test`: the tests that need a kernel, and the lab, once more on the machine's kernel.

use std::ffi::OsStr;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use cargo_metadata::{Artifact, Message};

use super::image;
use super::machine::{Sink, Sinks};
use super::session::{Session, quoted};
use super::verdict::Verdict;
use super::{kernel, pass_on, report};
use crate::tally::Tally;
use crate::{metadata, process, steps, tasks};

/// In a module of this name are tests that need the machine: what they try, this kernel may lack.
pub(crate) const MODULE: &str = "machine::";

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The step of `cargo xtask test`: the tests that need the machine, and the lab's experiments with every backend.
    Step,
    /// What fits a test run.
    Selection,
    /// Everything.
    Full,
}

/// A test that is not run there.
#[derive(Clone, Copy, Debug)]
struct Exception {
    /// Its path within its test program, or how those of several begin.
    test: &'static str,
    reason: &'static str,
    /// Also with [`Extent::Full`].
    always: bool,
}

const LAB_ITSELF: &str = "the lab is run by itself there, with its own words and counts";

/// A test of the lab, with a shell script in the agent's place.
const fn of_the_lab(test: &'static str) -> Exception {
    const REASON: &str =
        "tests the lab and no kernel, by a script that emulation makes slower than the lab is patient";
    Exception { test, reason: REASON, always: false }
}

/// Every test that is not run there, with the reason that is printed.
const EXCEPTIONS: &[Exception] = &[
    Exception { test: "vm::tests::", reason: "boots a machine itself", always: true },
    Exception { test: "the_agent_passes_every_experiment", reason: LAB_ITSELF, always: true },
    Exception { test: "the_agent_passes_the_matrix", reason: LAB_ITSELF, always: true },
    of_the_lab("a_kill_leaves_nothing"),
    of_the_lab("a_plain_user_can_run_it"),
    of_the_lab("an_agent_that_"),
    of_the_lab("an_interrupt_leaves_nothing"),
    of_the_lab("right_rules_pass_and_nothing_is_left"),
    of_the_lab("wrong_rules_are_differences"),
    Exception {
        test: "a_large_folder_is_cheap",
        reason: "measures processor time, which emulation multiplies",
        always: true,
    },
    Exception {
        test: "wire::tests::kernel::changes_while_reading_are_never_seen_by_half",
        reason: "fails there: while a transaction is prepared, which takes long there, the kernel may list an element twice, \
                 and the backend does not notice",
        always: false,
    },
];

/// How a section of the output begins: of tests, and of the lab.
const TESTS: &str = "== machine: tests of ";
const LABS: &str = "== machine: proxier-lab";

/// Which part of the lab's matrix is run.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    arguments: &'static [&'static str],
    told: &'static str,
}

impl Matrix {
    fn of(extent: Extent) -> Self {
        match extent {
            Extent::Selection => Self {
                arguments: &["--only", "maps/default", "--only", "chains/default"],
                told: "the default setting of each layout of nftables; the rest takes minutes under emulation (--full runs all)",
            },
            Extent::Step => Self {
                arguments: &[],
                told: "left out: it takes minutes under emulation (cargo xtask vm test runs it)",
            },
            Extent::Full => Self { arguments: &[], told: "all of it" },
        }
    }
}

/// A test program of the workspace with tests that need a kernel.
#[derive(Clone, Debug)]
struct Program {
    package: String,
    target: String,
    executable: PathBuf,
    /// The package's folder, in which its tests run.
    folder: PathBuf,
    /// Names of the ignored tests.
    tests: Vec<String>,
    /// Names of those that are not to be run.
    skipped: Vec<String>,
}

/// Builds, boots, runs, counts.
///
/// # Errors
/// When something cannot be built or started, when the machine fails, and when fewer tests ran than there are.
pub(crate) fn run(extent: Extent, limit: Duration) -> anyhow::Result<Tally> {
    let image = image::prepare()?;
    let mut programs = programs()?;
    if let Some(stale) = stale(EXCEPTIONS, &programs) {
        bail!("the table of exceptions names {}, which is no test any more", stale.test);
    }
    // Built with the tests that start them.
    let lab = tasks::program("proxier-lab", "debug")?;
    for line in without_exceptions(&mut programs, extent) {
        println!("not run in the machine: {line}");
    }
    if extent == Extent::Step {
        let others = only_the_machines(&mut programs);
        println!(
            "not run in the machine: {others} tests that this machine's kernel has run (cargo xtask vm test runs them there)"
        );
    }
    let matrix = Matrix::of(extent);
    println!("the lab's matrix in the machine: {}", matrix.told);
    let mut session = Session::new(&image);
    for path in [&lab, &tasks::program("proxier", "debug")?] {
        session.add(path, path)?;
    }
    for program in &programs {
        session.add(&program.executable, &program.executable)?;
        session.directory(&program.folder);
    }
    for folder in metadata::folders()? {
        share_data(&mut session, &folder)?;
    }
    let counts = Arc::new(Mutex::new(Counts::default()));
    let err = Sink::new(|piece| pass_on(&mut std::io::stderr(), piece));
    let sinks = Sinks { out: counting(&counts), err };
    let labs = [Some(&[][..]), (extent != Extent::Step).then_some(matrix.arguments)];
    let outcome = session.run(&script(&programs, &lab, labs), limit, &sinks)?;
    report(&outcome, false);
    let counts = *counts.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = counts.tests.failed + counts.lab.failed > 0;
    if outcome.verdict != Verdict::Exit(u8::from(failed)) {
        bail!("{}", outcome.verdict.sentence());
    }
    let (ran, there) =
        (counts.tests.passed + counts.tests.failed, programs.iter().map(|p| p.tests.len()).sum());
    if usize::try_from(ran) != Ok(there) {
        bail!("{ran} tests were run in the machine, but the programs hold {there}");
    }
    if counts.lab.passed + counts.lab.failed == 0 {
        bail!("the lab has checked nothing in the machine");
    }
    Ok(counts.sum())
}

/// The shell script of the whole run. Every test program gets namespaces of its own, as `cargo xtask test` gives them to all.
fn script(programs: &[Program], lab: &Path, [experiments, matrix]: [Option<&[&str]>; 2]) -> String {
    let mut script = String::from("failed=0\n");
    for program in programs {
        let (package, target) = (&program.package, &program.target);
        script.push_str(&format!("echo {}\n", quoted(OsStr::new(&format!("{TESTS}{package} {target}")))));
        let words = |before: &str, tests: &[String]| -> Vec<String> {
            tests.iter().map(|test| format!(" {before}{}", quoted(OsStr::new(test)))).collect()
        };
        // The shorter list of the two.
        let skips = if program.tests.len() < program.skipped.len() {
            words("", &program.tests)
        } else {
            words("--skip ", &program.skipped)
        };
        script.push_str(&format!(
            "cd {folder} && CARGO_MANIFEST_DIR={folder} unshare --net --mount -- {executable} --ignored --exact{skips} || failed=1\n",
            folder = quoted(program.folder.as_os_str()),
            executable = quoted(program.executable.as_os_str()),
            skips = skips.concat(),
        ));
    }
    let matrix = matrix.map(|arguments| [&["matrix"], arguments].concat());
    for arguments in [experiments.map(<[&str]>::to_vec), matrix].into_iter().flatten() {
        let arguments = arguments.join(" ");
        script.push_str(&format!("echo {}\n", quoted(OsStr::new(&format!("{LABS} {arguments}")))));
        script.push_str(&format!("{} {arguments} || failed=1\n", quoted(lab.as_os_str())));
    }
    script.push_str("exit $failed\n");
    script
}

/// The test programs of the workspace that hold ignored tests, built as the step `kernel` builds them.
fn programs() -> anyhow::Result<Vec<Program>> {
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

/// Takes the exceptions out; gives what was taken out, as the lines to print.
fn without_exceptions(programs: &mut Vec<Program>, extent: Extent) -> Vec<String> {
    let mut lines = Vec::new();
    for program in &mut *programs {
        let exception = |test: &str| {
            let mut all = EXCEPTIONS.iter().filter(|e| e.always || extent != Extent::Full);
            all.find(|e| test.starts_with(e.test))
        };
        let (skipped, tests): (Vec<String>, Vec<String>) =
            std::mem::take(&mut program.tests).into_iter().partition(|t| exception(t).is_some());
        lines.extend(skipped_lines(&program.package, &skipped, exception));
        (program.skipped, program.tests) = (skipped, tests);
    }
    programs.retain(|program| !program.tests.is_empty());
    lines
}

/// Leaves the tests that need the machine; returns how many there are beside them.
fn only_the_machines(programs: &mut Vec<Program>) -> usize {
    let mut others = 0;
    for program in &mut *programs {
        let (own, other): (Vec<String>, Vec<String>) =
            std::mem::take(&mut program.tests).into_iter().partition(|test| needs_machine(test));
        others += other.len();
        program.tests = own;
        program.skipped.extend(other);
    }
    programs.retain(|program| !program.tests.is_empty());
    others
}

/// Is it one of the tests that need the machine?
pub(crate) fn needs_machine(test: &str) -> bool {
    test.starts_with(MODULE) || test.contains(&format!("::{MODULE}"))
}

/// An exception that fits no test.
fn stale<'a>(exceptions: &'a [Exception], programs: &[Program]) -> Option<&'a Exception> {
    let fits = |e: &Exception| programs.iter().flat_map(|p| &p.tests).any(|test| test.starts_with(e.test));
    exceptions.iter().find(|exception| !fits(exception))
}

fn skipped_lines<'a>(
    package: &str,
    skipped: &[String],
    exception: impl Fn(&str) -> Option<&'a Exception>,
) -> Vec<String> {
    let reason = |test: &String| exception(test).map_or("", |exception| exception.reason);
    skipped.iter().map(|test| format!("{package} {test}: {}", reason(test))).collect()
}

/// Shares what tests read at run time, by paths that were fixed when they were built: all files of a package but sources.
fn share_data(session: &mut Session<'_>, folder: &Path) -> anyhow::Result<()> {
    for name in kernel::names(folder)? {
        let path = folder.join(&name);
        if path.is_dir() {
            share_data(session, &path)?;
        } else if path.is_file() && path.extension().is_none_or(|extension| extension != "rs") {
            session.add(&path, &path)?;
        }
    }
    Ok(())
}

/// What was counted, apart, since a test that fails may print the words of a lab that it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    tests: Tally,
    lab: Tally,
    in_lab: bool,
}

impl Counts {
    fn line(&mut self, line: &str) {
        if line.starts_with(TESTS) || line.starts_with(LABS) {
            self.in_lab = line.starts_with(LABS);
        } else if self.in_lab {
            self.lab += Tally::of_lab(line).unwrap_or_default();
        } else {
            self.tests += Tally::of_test_program(line).unwrap_or_default();
        }
    }

    fn sum(&self) -> Tally {
        let mut sum = self.tests;
        sum += self.lab;
        sum
    }
}

/// A sink that prints, and counts by whole lines.
fn counting(counts: &Arc<Mutex<Counts>>) -> Sink {
    let counts = Arc::clone(counts);
    let mut rest = Vec::new();
    Sink::new(move |piece| {
        pass_on(&mut std::io::stdout(), piece);
        rest.extend_from_slice(piece);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            counts.lock().unwrap_or_else(PoisonError::into_inner).line(line.trim_end());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, tests: &[&str]) -> Program {
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
    fn every_exception_is_told_with_its_reason_and_left_out() {
        let own = "vm::tests::a_machine_boots_runs_and_tells_how_it_went";
        let mut programs = vec![program("xtask", &[own]), program("agent", &["a", "b"])];
        let lines = without_exceptions(&mut programs, Extent::Full);
        assert_eq!(lines, [format!("xtask {own}: boots a machine itself")]);
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].tests, ["a", "b"]);
    }

    #[test]
    fn an_exception_for_no_test_is_found() {
        let exceptions = ["m::", "gone"].map(of_the_lab);
        let programs = [program("agent", &["m::a"])];
        assert_eq!(stale(&exceptions, &programs).map(|e| e.test), Some("gone"));
        assert!(stale(&exceptions[..1], &programs).is_none());
    }

    #[test]
    fn skipped_tests_are_named_exactly() {
        let mut with = program("agent", &["a"]);
        with.skipped = vec!["m::b".to_owned()];
        let few = program("ipvs", &["machine::a"]);
        let few = Program { skipped: vec!["b".to_owned(), "c".to_owned()], ..few };
        let script = script(&[with, few], Path::new("/t/lab"), [Some(&[]), Some(&[])]);
        assert!(script.contains("'/t/exe' --ignored --exact 'machine::a' || failed=1\n"), "{script}");
        assert!(
            script
                .contains("unshare --net --mount -- '/t/exe' --ignored --exact --skip 'm::b' || failed=1\n"),
            "{script}"
        );
        assert!(
            script.contains("'/t/lab'  || failed=1\n") && script.contains("'/t/lab' matrix || failed=1\n"),
            "{script}"
        );
        assert!(script.ends_with("exit $failed\n"), "{script}");
    }

    #[test]
    fn tests_that_need_the_machine_are_told_by_their_module() {
        assert!(needs_machine("machine::a") && needs_machine("kernel::tests::machine::b"));
        assert!(!needs_machine("kernel::machines::a") && !needs_machine("state_machine::b"));
        let mut programs = vec![program("x", &["m::machine::a", "b"]), program("y", &["c"])];
        assert_eq!(only_the_machines(&mut programs), 2);
        assert_eq!((programs.len(), programs[0].tests.len(), programs[0].skipped.len()), (1, 1, 1));
    }

    #[test]
    fn lists_of_tests_are_read() {
        assert_eq!(listed("a::b: test\nc: test\nd: benchmark\n\n2 tests, 1 benchmark\n"), ["a::b", "c"]);
    }

    #[test]
    fn the_words_of_a_lab_within_a_failed_test_are_not_counted() {
        let mut counts = Counts::default();
        for line in [
            &format!("{TESTS}e2e lab"),
            "5 passed, 1 failed",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            LABS,
            "7 passed, 0 failed",
        ] {
            counts.line(line);
        }
        assert_eq!(counts.tests, Tally { passed: 2, failed: 1, ignored: 0 });
        assert_eq!(counts.lab, Tally { passed: 7, failed: 0, ignored: 0 });
        assert_eq!(counts.sum(), Tally { passed: 9, failed: 1, ignored: 0 });
    }
}
