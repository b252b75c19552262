//! Lists of checks: every one is run, whatever the others say, and all failures are reported at the end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::tally::Tally;
use crate::{cases, metadata, packages, process, tasks, vm};

/// One check of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    run: fn() -> anyhow::Result<Tally>,
}

/// Parts of the test material that only some of the workspace asks for.
const FEATURES: [&str; 2] = ["--features", "proxier-testkit/testapi"];

/// Cargo's arguments for all test programs, those with kernel tests among them.
pub(crate) const KERNEL_TESTS: [&str; 6] =
    ["test", "--workspace", FEATURES[0], FEATURES[1], "--tests", "--no-fail-fast"];

const FMT: Step = Step { name: "fmt", run: || cargo(&["fmt", "--all", "--check"]) };
const CLIPPY: Step = Step { name: "clippy", run: clippy };
const DOC: Step = Step { name: "doc", run: doc };
const CASES: Step = Step { name: "cases", run: cases::check };

/// The steps of `cargo xtask lint`.
pub(crate) const LINT: &[Step] = &[COMPONENTS, FMT, CLIPPY, DOC, CASES];

/// The steps of `cargo xtask test`.
pub(crate) const TEST: &[Step] = &[
    Step { name: "tools", run: tools },
    FMT,
    CLIPPY,
    DOC,
    CASES,
    Step { name: "tests", run: || counted(&KERNEL_TESTS) },
    Step {
        name: "doctests",
        run: || counted(&["test", "--workspace", FEATURES[0], FEATURES[1], "--doc", "--no-fail-fast"]),
    },
    Step { name: "kernel", run: kernel },
    Step { name: "lab", run: lab },
    Step { name: "vm", run: vm::step },
    Step { name: "deny", run: tasks::deny_if_there },
];

const COMPONENTS: Step =
    Step { name: "components", run: || packages::ensure_components().map(|()| Tally::ONE) };

/// The names of the steps of `cargo xtask test`.
pub(crate) fn names() -> Vec<&'static str> {
    TEST.iter().map(|step| step.name).collect()
}

/// What came out of a step.
struct Outcome {
    name: &'static str,
    took: Duration,
    result: anyhow::Result<Tally>,
}

impl Outcome {
    /// A step that does not get to count fails as one check.
    fn tally(&self) -> Tally {
        match &self.result {
            Ok(tally) => tally.clone(),
            Err(error) => Tally { failed: 1, failures: vec![format!("{error:#}")], ..Tally::default() },
        }
    }

    /// A line for each check that failed, after the name of the step, and one for those whose names were not printed.
    fn failures(&self) -> Vec<String> {
        let Tally { failed, failures, .. } = self.tally();
        let named = u64::try_from(failures.len()).unwrap_or(u64::MAX);
        let mut lines: Vec<String> =
            failures.iter().map(|failure| format!("{}: {failure}", self.name)).collect();
        if let Some(unnamed) = failed.checked_sub(named).filter(|unnamed| *unnamed > 0) {
            lines.push(format!("{}: {unnamed} more; see its output above", self.name));
        }
        lines
    }

    fn line(&self) -> String {
        let Tally { passed, failed, .. } = self.tally();
        let verdict = match &self.result {
            Ok(_) if passed + failed == 0 => "not run".to_owned(),
            Ok(_) if failed == 0 => format!("ok      {passed} passed"),
            Ok(_) => format!("FAILED  {passed} passed, {failed} failed"),
            Err(error) => format!("FAILED  {error:#}"),
        };
        format!("{:<11}{:>7.1} s  {verdict}", self.name, self.took.as_secs_f64())
    }
}

/// Runs the steps whose names are in `only`, or all; the last line printed says how many checks passed and failed.
///
/// # Errors
/// When any check failed.
pub(crate) fn run(steps: &[Step], only: &[String]) -> anyhow::Result<()> {
    let chosen = steps.iter().filter(|step| only.is_empty() || only.iter().any(|name| name == step.name));
    let mut outcomes = Vec::new();
    for step in chosen {
        println!("\n== {} ==", step.name);
        let start = Instant::now();
        let outcome = Outcome { name: step.name, result: (step.run)(), took: start.elapsed() };
        println!("{}", outcome.line());
        outcomes.push(outcome);
    }
    let total = summary(&outcomes);
    if total.failed > 0 {
        // The summary is the last line; an error of our own would follow it.
        std::process::exit(1);
    }
    Ok(())
}

fn summary(outcomes: &[Outcome]) -> Tally {
    let mut total = Tally::default();
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.tally().failed > 0).collect();
    if !failed.is_empty() {
        println!("\n== failures ==");
        for outcome in failed {
            for line in outcome.failures() {
                println!("{line}");
            }
        }
    }
    println!("\n== summary ==");
    for outcome in outcomes {
        println!("{}", outcome.line());
        total += outcome.tally();
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    total
}

fn tools() -> anyhow::Result<Tally> {
    packages::ensure(&[packages::LAB, packages::TESTS].concat())?;
    packages::ensure_components()?;
    Ok(Tally::ONE)
}

fn cargo(arguments: &[&str]) -> anyhow::Result<Tally> {
    process::run(&mut process::cargo(arguments))?;
    Ok(Tally::ONE)
}

fn clippy() -> anyhow::Result<Tally> {
    const STRICT: [&str; 3] = ["--", "-D", "warnings"];
    cargo(&[&["clippy", "--workspace", "--all-targets"], &FEATURES[..], &STRICT].concat())?;
    // What an embedder that leaves our features out gets: the core without API types, the agent without any backend.
    for package in ["proxier-core", "agent"] {
        let reduced = ["clippy", "--package", package, "--no-default-features"];
        cargo(&[&reduced[..], &STRICT].concat())?;
    }
    Ok(Tally::ONE)
}

fn doc() -> anyhow::Result<Tally> {
    let mut doc = process::cargo(&["doc", "--workspace", "--no-deps", FEATURES[0], FEATURES[1]]);
    process::run(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Tally::ONE)
}

/// Runs tests; none at all is a failure.
fn counted(arguments: &[&str]) -> anyhow::Result<Tally> {
    something(process::run_counted(&mut process::cargo(arguments), Tally::of_test_program)?)
}

fn something(tally: Tally) -> anyhow::Result<Tally> {
    if tally.passed + tally.failed == 0 {
        bail!("nothing was run");
    }
    Ok(tally)
}

/// Runs every test that plain `cargo test` ignores, in namespaces of their own; fewer than the sources hold is a failure.
fn kernel() -> anyhow::Result<Tally> {
    tasks::build_lab(false)?;
    // Built, and downloaded, first and outside: there is no network inside.
    vm::prepare()?;
    cargo(&[&KERNEL_TESTS[..], &["--no-run"]].concat())?;
    let mut inside = process::isolated(
        process::cargo_program(),
        &[&KERNEL_TESTS[..], &["--", "--ignored", "--skip", vm::MODULE]].concat(),
    )?;
    let tally = something(process::run_counted(&mut inside, Tally::of_test_program)?)?;
    if tally.failed > 0 && !packages::is_root() {
        println!("a user namespace does not give every privilege that these tests need: run as root");
    }
    let (written, elsewhere) = ignored_tests()?;
    println!("{elsewhere} tests need the emulated machine: step vm runs them");
    let ran = tally.passed + tally.failed;
    if ran < written {
        bail!("{ran} ignored tests were run, but the sources hold {written}");
    }
    Ok(tally)
}

/// How many tests the workspace's sources mark as ignored: those that this kernel can run, and those that need the emulated machine, which are in files
/// called like their module.
fn ignored_tests() -> anyhow::Result<(u64, u64)> {
    let metadata = metadata::load()?;
    let (mut here, mut there) = (0, 0);
    for package in metadata.workspace_packages() {
        if let Some(folder) = package.manifest_path.parent() {
            for part in ["src", "tests"] {
                let (own, other) = ignored_below(&folder.join(part).into_std_path_buf())?;
                here += own;
                there += other;
            }
        }
    }
    Ok((here, there))
}

fn ignored_below(path: &Path) -> anyhow::Result<(u64, u64)> {
    if path.is_dir() {
        let (mut here, mut there) = (0, 0);
        for entry in std::fs::read_dir(path)? {
            let (own, other) = ignored_below(&entry?.path())?;
            here += own;
            there += other;
        }
        return Ok((here, there));
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Ok((0, 0));
    }
    let text = std::fs::read_to_string(path)?;
    let count = text.lines().filter(|line| line.trim_start().starts_with("#[ignore")).map(|_| 1).sum();
    let module = vm::MODULE.trim_end_matches(':');
    Ok(if path.file_stem().is_some_and(|stem| stem == module) { (0, count) } else { (count, 0) })
}

/// Runs the lab as `cargo xtask lab` does.
fn lab() -> anyhow::Result<Tally> {
    let program = tasks::build_lab(false)?;
    something(process::run_counted(&mut process::command(program, &[] as &[&str]), Tally::of_lab)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, ignored: u64) -> Tally {
        Tally { passed, failed, ignored, failures: Vec::new() }
    }

    fn outcome(result: anyhow::Result<Tally>) -> Outcome {
        Outcome { name: "step", took: Duration::from_millis(1500), result }
    }

    #[test]
    fn a_step_that_breaks_off_is_one_failure() {
        let broken = outcome(Err(anyhow::anyhow!("no compiler")));
        assert_eq!(broken.line(), "step           1.5 s  FAILED  no compiler");
        assert_eq!(broken.failures(), ["step: no compiler"]);
        let total = summary(&[broken, outcome(Ok(tally(5, 2, 7)))]);
        assert_eq!((total.passed, total.failed, total.ignored), (5, 3, 7));
    }

    #[test]
    fn a_step_with_failures_is_not_ok() {
        let some = outcome(Ok(Tally { failures: vec!["test a ... FAILED".to_owned()], ..tally(5, 2, 0) }));
        assert_eq!(some.line(), "step           1.5 s  FAILED  5 passed, 2 failed");
        assert_eq!(some.failures(), ["step: test a ... FAILED", "step: 1 more; see its output above"]);
        assert_eq!(outcome(Ok(Tally::ONE)).line(), "step           1.5 s  ok      1 passed");
        assert_eq!(outcome(Ok(Tally::default())).line(), "step           1.5 s  not run");
    }

    #[test]
    fn a_run_without_tests_is_a_failure() {
        assert!(something(Tally { ignored: 4, ..Tally::default() }).is_err());
        assert!(something(Tally::ONE).is_ok());
    }

    #[test]
    fn tests_that_need_the_kernel_are_found_in_the_sources() {
        let (here, there) = ignored_tests().unwrap();
        assert!(here > 0 && there > 0, "{here} {there}");
        assert_eq!(ignored_below(Path::new("/nonexistent.txt")).unwrap(), (0, 0));
    }
}
