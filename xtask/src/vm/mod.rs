//! An emulated machine with another kernel: Debian's cloud kernel, the tools of networking, and a program under test.
//!
//! `docs/vm.md` tells how to use it. The parts: [`kernel`] gets the kernel, [`modules`] chooses its modules, [`tree`] collects
//! files with the [`libraries`] that [`elf`] says they need, [`cpio`] writes them, [`image`] keeps what is the same each
//! time, [`session`] adds what is not, [`machine`] boots it, [`verdict`] says how it went, [`suite`] is `vm test`.

mod cpio;
mod elf;
mod image;
mod kernel;
mod libraries;
mod machine;
mod modules;
mod session;
mod suite;
mod tree;
mod verdict;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use self::machine::{Outcome, Sink, Sinks};
use self::session::{Session, quoted};
use self::suite::Extent;
pub(crate) use self::suite::MODULE;
use self::verdict::Verdict;
use crate::cli::{VmArguments, VmTask};
use crate::tally::Tally;
use crate::tasks;

pub(crate) use self::machine::EMULATOR;

/// Lines of the kernel's log that are shown at most: when the machine failed, and when only the program did.
const SHOWN: usize = 400;
const SHOWN_WELL: usize = 60;

/// What the kernel says when it starts the first process.
const UP: &str = "Run /init as init process";

/// How long the step may take on a busy machine.
const STEP_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The step of `cargo xtask test`.
///
/// # Errors
/// As [`suite::run`].
pub(crate) fn step() -> anyhow::Result<Tally> {
    suite::run(Extent::Step, STEP_LIMIT)
}

/// Makes sure of everything a machine is started from.
///
/// # Errors
/// What is missing and cannot be had.
pub(crate) fn prepare() -> anyhow::Result<()> {
    image::prepare().map(drop)
}

/// `cargo xtask vm`: the program's exit status is this command's.
///
/// # Errors
/// When the machine cannot be started.
pub(crate) fn run(arguments: &VmArguments) -> anyhow::Result<ExitCode> {
    match &arguments.task {
        Some(VmTask::Test { full }) => {
            let extent = if *full { Extent::Full } else { Extent::Selection };
            let tally = suite::run(extent, arguments.timeout)?;
            println!("{} passed, {} failed", tally.passed, tally.failed);
            Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Some(VmTask::Lab { args }) => {
            let image = image::prepare()?;
            let lab = tasks::build_lab(false)?;
            let mut session = Session::new(&image);
            session.add(&tasks::program("proxier", "debug")?, Path::new("/usr/bin/proxier"))?;
            session.add(&lab, Path::new("/usr/bin/proxier-lab"))?;
            let words: Vec<_> =
                std::iter::once(OsString::from("/usr/bin/proxier-lab")).chain(args.clone()).collect();
            finish(session, &line(&words), arguments)
        }
        None => program(arguments),
    }
}

/// Runs the program that was named, at its own path.
fn program(arguments: &VmArguments) -> anyhow::Result<ExitCode> {
    let Some(name) = arguments.program.first() else {
        bail!("nothing to run; give a program: cargo xtask vm -- PROGRAM [ARGUMENTS]");
    };
    let image = image::prepare()?;
    let mut session = Session::new(&image);
    let mut words = arguments.program.clone();
    if name.to_string_lossy().contains('/') && Path::new(name).exists() {
        let path =
            Path::new(name).canonicalize().with_context(|| format!("cannot find {}", name.display()))?;
        session.add(&path, &path)?;
        words[0] = path.into();
    }
    finish(session, &line(&words), arguments)
}

/// Adds the files that were asked for, runs, and reports.
fn finish(mut session: Session<'_>, line: &str, arguments: &VmArguments) -> anyhow::Result<ExitCode> {
    for file in &arguments.file {
        let here =
            file.here.canonicalize().with_context(|| format!("cannot find {}", file.here.display()))?;
        session.add(&here, file.there.as_deref().unwrap_or(&here))?;
    }
    let mut script = String::new();
    for assignment in &arguments.env {
        let Some((name, value)) = assignment.split_once('=') else { bail!("--env {assignment}: no `=`") };
        script.push_str(&format!("export {name}={}\n", quoted(OsStr::new(value))));
    }
    script.push_str(&format!("exec {line}\n"));
    let out = Sink::new(|piece| pass_on(&mut std::io::stdout(), piece));
    let err = Sink::new(|piece| pass_on(&mut std::io::stderr(), piece));
    let outcome = session.run(&script, arguments.timeout, &Sinks { out, err })?;
    report(&outcome, arguments.log);
    Ok(outcome.verdict.code().into())
}

fn line(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Nobody is left to be told when our own output is closed; the exit status says how it went.
fn pass_on(to: &mut impl Write, piece: &[u8]) {
    let _ = to.write_all(piece).and_then(|()| to.flush());
}

/// Says how it went; with the kernel's log when it went badly, or when it was asked for. Of a machine that came up well, what
/// it said before is left out.
fn report(outcome: &Outcome, log: bool) {
    let notable = verdict::notable(&outcome.console);
    if log || outcome.verdict != Verdict::Exit(0) || !notable.is_empty() {
        let up = outcome.console.iter().position(|line| line.contains(UP)).map_or(0, |at| at + 1);
        let came_up = matches!(outcome.verdict, Verdict::Exit(_) | Verdict::Timeout(_));
        let skipped = match (log, came_up) {
            (true, _) => 0,
            (false, true) => up.max(outcome.console.len().saturating_sub(SHOWN_WELL)),
            (false, false) => outcome.console.len().saturating_sub(SHOWN),
        };
        eprintln!("-- kernel log of the machine; {skipped} lines before it (--log shows all) --");
        for line in outcome.console.iter().skip(skipped) {
            eprintln!("{line}");
        }
        eprintln!("-- end of the kernel log --");
    }
    for line in notable {
        eprintln!("vm: the kernel warns: {line}");
    }
    let boot =
        outcome.boot.map_or("never".to_owned(), |boot| format!("{:.1} s after power-on", boot.as_secs_f64()));
    eprintln!("vm: started {boot}; {}", outcome.verdict.sentence());
}

/// `--file HERE[:THERE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedFile {
    /// A file or folder of this machine.
    pub(crate) here: PathBuf,
    /// Its path there, if another one.
    pub(crate) there: Option<PathBuf>,
}

impl SharedFile {
    /// As typed.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (here, there) = match text.split_once(':') {
            Some((here, there)) => (here, Some(PathBuf::from(there))),
            None => (text, None),
        };
        if here.is_empty() || there.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err("HOST_PATH or HOST_PATH:GUEST_PATH, the latter absolute".to_owned());
        }
        Ok(Self { here: here.into(), there })
    }
}

/// A number of seconds, or of minutes with an `m` behind it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    match number.parse::<u32>() {
        Ok(number @ 1..) => Ok(Duration::from_secs(u64::from(number) * unit)),
        _ => Err("a number of seconds (`90`, `90s`) or minutes (`10m`)".to_owned()),
    }
}

#[cfg(test)]
mod tests;
