//! `cargo xtask vm test`: the tests that need a kernel, and the lab, once more on the machine's kernel.

mod programs;
mod selection;

use std::ffi::OsStr;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::bail;

use self::programs::{Program, programs};
pub(crate) use self::selection::{Extent, MODULE};
use self::selection::{Labs, chosen};
use super::image::{self, Image};
use super::machine::{Outcome, Sink, Sinks};
use super::session::{Session, quoted};
use super::verdict::Verdict;
use super::{kernel, pass_on, report};
use crate::tally::Tally;
use crate::{metadata, tasks};

/// How a section of the output begins: of tests, and of the lab.
const TESTS: &str = "== machine: tests of ";
const LABS: &str = "== machine: proxier-lab";

/// Builds, boots, runs, counts. The tests and the lab have a machine each, side by side: one of them mostly computes, the other one mostly waits.
///
/// # Errors
/// When something cannot be built or started, when a machine fails, and when fewer tests ran than there are.
pub(crate) fn run(extent: Extent, limit: Duration) -> anyhow::Result<Tally> {
    let image = image::prepare()?;
    let programs = chosen(programs()?, extent)?;
    let labs = Labs::of(extent);
    println!("the lab's matrix in the machine: {}", labs.told);
    // Built with the tests that start them.
    let lab = tasks::program("proxier-lab", "debug")?;
    let parts = [
        Part { files: Files::Tests(&programs), script: tests(&programs), lab: &lab, shown: true },
        Part { files: Files::Lab, script: lab_runs(&lab, &labs.runs()), lab: &lab, shown: false },
    ];
    let done = thread::scope(|scope| {
        let machines = parts.each_ref().map(|part| scope.spawn(|| part.run(&image, limit)));
        machines.map(|machine| machine.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let mut counts = Counts::default();
    let mut failed = None;
    for done in done {
        let done = done?;
        done.print();
        let all_passed = done.counts.tests.failed + done.counts.lab.failed == 0;
        if done.outcome.verdict != Verdict::Exit(u8::from(!all_passed)) {
            failed = failed.or(Some(done.outcome.verdict.sentence()));
        }
        counts.tests += done.counts.tests;
        counts.lab += done.counts.lab;
    }
    if let Some(sentence) = failed {
        bail!("{sentence}");
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

/// Which files a machine has beside the lab and the agent.
#[derive(Clone, Copy, Debug)]
enum Files<'a> {
    /// Test programs, and what they read.
    Tests(&'a [Program]),
    /// None.
    Lab,
}

/// What one of the machines does.
#[derive(Debug)]
struct Part<'a> {
    files: Files<'a>,
    script: String,
    lab: &'a Path,
    /// Its output is shown as it comes, that of the others at the end.
    shown: bool,
}

impl Part<'_> {
    fn run(&self, image: &Image, limit: Duration) -> anyhow::Result<Done> {
        let mut session = Session::new(image);
        for path in [self.lab, &tasks::program("proxier", "debug")?] {
            session.add(path, path)?;
        }
        if let Files::Tests(programs) = self.files {
            for program in programs {
                session.add(&program.executable, &program.executable)?;
                session.directory(&program.folder);
            }
            for folder in metadata::folders()? {
                share_data(&mut session, &folder)?;
            }
        }
        let (counts, kept) = (Arc::default(), Arc::default());
        let out = counting(&counts, (!self.shown).then_some(&kept));
        let err = if self.shown {
            Sink::new(|piece| pass_on(&mut std::io::stderr(), piece))
        } else {
            let kept = Arc::clone(&kept);
            Sink::new(move |piece| lock(&kept).extend_from_slice(piece))
        };
        let outcome = session.run(&self.script, limit, &Sinks { out, err })?;
        let (counts, kept) = (std::mem::take(&mut *lock(&counts)), std::mem::take(&mut *lock(&kept)));
        Ok(Done { outcome, counts, kept })
    }
}

/// What came of a machine.
struct Done {
    outcome: Outcome,
    counts: Counts,
    /// Output that was not shown yet.
    kept: Vec<u8>,
}

impl Done {
    fn print(&self) {
        pass_on(&mut std::io::stdout(), &self.kept);
        report(&self.outcome, false);
    }
}

/// The shell script of the tests. Every test program gets namespaces of its own, as `cargo xtask test` gives them to all.
fn tests(programs: &[Program]) -> String {
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
    script.push_str("exit $failed\n");
    script
}

/// The shell script that runs the lab with these arguments, one after another.
fn lab_runs(lab: &Path, runs: &[String]) -> String {
    let mut script = String::from("failed=0\n");
    for arguments in runs {
        script.push_str(&format!("echo {}\n", quoted(OsStr::new(&format!("{LABS} {arguments}")))));
        script.push_str(&format!("{} {arguments} || failed=1\n", quoted(lab.as_os_str())));
    }
    script.push_str("exit $failed\n");
    script
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    fn sum(self) -> Tally {
        let mut sum = self.tests;
        sum += self.lab;
        sum
    }
}

/// A sink that prints, or else keeps what it takes, and counts by whole lines.
fn counting(counts: &Arc<Mutex<Counts>>, kept: Option<&Arc<Mutex<Vec<u8>>>>) -> Sink {
    let (counts, kept) = (Arc::clone(counts), kept.map(Arc::clone));
    let mut rest = Vec::new();
    Sink::new(move |piece| {
        match &kept {
            Some(kept) => lock(kept).extend_from_slice(piece),
            None => pass_on(&mut std::io::stdout(), piece),
        }
        rest.extend_from_slice(piece);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            lock(&counts).line(line.trim_end());
        }
    })
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::programs::tests::program;
    use super::*;

    #[test]
    fn skipped_tests_are_named_exactly() {
        let mut with = program("agent", &["a"]);
        with.skipped = vec!["m::b".to_owned()];
        let few = program("ipvs", &["machine::a"]);
        let few = Program { skipped: vec!["b".to_owned(), "c".to_owned()], ..few };
        let script = tests(&[with, few]);
        assert!(script.contains("'/t/exe' --ignored --exact 'machine::a' || failed=1\n"), "{script}");
        assert!(
            script
                .contains("unshare --net --mount -- '/t/exe' --ignored --exact --skip 'm::b' || failed=1\n"),
            "{script}"
        );
        assert!(script.ends_with("exit $failed\n"), "{script}");
    }

    #[test]
    fn the_lab_is_run_once_for_each_list_of_arguments() {
        let script = lab_runs(Path::new("/t/lab"), &[String::new(), "matrix --thin".to_owned()]);
        assert!(
            script.contains("'/t/lab'  || failed=1\n")
                && script.contains("'/t/lab' matrix --thin || failed=1\n"),
            "{script}"
        );
        assert!(script.ends_with("exit $failed\n"), "{script}");
    }

    #[test]
    fn the_words_of_a_lab_within_a_failed_test_are_not_counted() {
        let tally = |passed, failed| Tally { passed, failed, ..Tally::default() };
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
        assert_eq!(counts.tests, tally(2, 1));
        assert_eq!(counts.lab, tally(7, 0));
        assert_eq!(counts.sum(), tally(9, 1));
    }
}
