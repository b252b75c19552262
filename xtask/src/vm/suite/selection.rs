//! What of it all is run: which tests, and which part of the lab's matrix.

use anyhow::bail;

use super::programs::Program;
use crate::metadata;

/// In a module of this name are tests that need the machine: what they try, this kernel may lack.
pub(crate) const MODULE: &str = "machine::";

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The step of `cargo xtask test`: the tests that need the machine, those of some packages, the lab with every backend.
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

const SLOW: &str = "more of the same, which emulation makes take a minute";
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
    Exception { test: "tests::kernel::history::of_seed_2", reason: SLOW, always: false },
    Exception { test: "tests::kernel::history::of_seed_3", reason: SLOW, always: false },
];

/// What of the lab's matrix is run in the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labs {
    /// Under a thin pace.
    thin: bool,
    /// These alone, if any.
    only: &'static [&'static str],
    /// What that is, in words.
    pub(super) told: &'static str,
}

/// Emulation is slower by an order of magnitude.
const PATIENCE: &str = "--patience 10";

impl Labs {
    pub(super) fn of(extent: Extent) -> Self {
        match extent {
            Extent::Step | Extent::Selection => Self {
                thin: true,
                only: &["default"],
                told: "thin, in the default setting, with every backend; cargo xtask vm test --full runs every setting, and all rows",
            },
            Extent::Full => Self { thin: false, only: &[], told: "all of it" },
        }
    }

    /// The lab's arguments, run by run: the experiments, then the matrix.
    pub(super) fn runs(&self) -> Vec<String> {
        let thin = if self.thin { " --thin" } else { "" };
        let only: String = self.only.iter().map(|only| format!(" --only {only}")).collect();
        vec![PATIENCE.to_owned(), format!("{PATIENCE} matrix{thin}{only}")]
    }
}

/// Leaves the tests that are to be run, and prints what is left out.
///
/// # Errors
/// An exception that fits no test any more.
pub(super) fn chosen(mut programs: Vec<Program>, extent: Extent) -> anyhow::Result<Vec<Program>> {
    if let Some(stale) = stale(EXCEPTIONS, &programs) {
        bail!("the table of exceptions names {}, which is no test any more", stale.test);
    }
    for line in without_exceptions(&mut programs, extent) {
        println!("not run in the machine: {line}");
    }
    if extent == Extent::Step {
        let others = only_the_machines(&mut programs, &metadata::whole_on_second_kernel(&metadata::load()?));
        println!(
            "not run in the machine: {others} tests that this machine's kernel has run (cargo xtask vm test runs them there)"
        );
    }
    Ok(programs)
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

/// Leaves the tests that need the machine, and all of the packages that say so: whatever they ask of the kernel, a second one is asked. Returns how
/// many there are beside them.
fn only_the_machines(programs: &mut Vec<Program>, whole: &[String]) -> usize {
    let mut others = 0;
    for program in programs.iter_mut().filter(|p| !whole.contains(&p.package)) {
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

#[cfg(test)]
mod tests {
    use super::super::programs::tests::program;
    use super::*;

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
    fn the_lab_is_run_with_patience_for_the_experiments_and_for_the_matrix() {
        assert_eq!(
            Labs::of(Extent::Selection).runs(),
            ["--patience 10", "--patience 10 matrix --thin --only default"]
        );
        assert_eq!(Labs::of(Extent::Full).runs()[1], "--patience 10 matrix");
    }

    #[test]
    fn tests_that_need_the_machine_are_told_by_their_module() {
        assert!(needs_machine("machine::a") && needs_machine("kernel::tests::machine::b"));
        assert!(!needs_machine("kernel::machines::a") && !needs_machine("state_machine::b"));
        let mut programs =
            vec![program("x", &["m::machine::a", "b"]), program("y", &["c"]), program("z", &["d"])];
        assert_eq!(only_the_machines(&mut programs, &["z".to_owned()]), 2);
        assert_eq!((programs.len(), programs[0].tests.len(), programs[0].skipped.len()), (2, 1, 1));
        assert_eq!(programs[1].tests, ["d"], "all of it");
    }
}
