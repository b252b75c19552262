//! The lab as a whole: isolate, run the matrix, report.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::cli::{Arguments, Task, matrix};
use crate::matrix::{self as rows, Selection};
use crate::pace::Pace;
use crate::report::{self, Line};
use crate::scenario::experiments;
use crate::{experiment, isolate, process};

/// Runs the lab and gives its exit status: 0 as expected, 1 differences; other values come from a signal.
///
/// # Errors
/// When the lab cannot run here.
pub fn main(arguments: &Arguments) -> anyhow::Result<u8> {
    match &arguments.inside {
        None => outside(arguments),
        Some(outside) => inside(arguments, outside),
    }
}

/// Checks what can be checked before anything is made, then starts the inner half.
fn outside(arguments: &Arguments) -> anyhow::Result<u8> {
    let selected = match arguments.task {
        None => matrix(&experiments(), &arguments.only).map(drop),
        Some(Task::Matrix { .. }) => Selection::parse(&arguments.only).map(drop),
    };
    if let Err(unknown) = selected {
        Arguments::command().error(ErrorKind::InvalidValue, unknown).exit();
    }
    let program = match &arguments.proxier {
        Some(path) => path.clone(),
        None => process::sibling("proxier").context("the lab's own path")?,
    };
    let Ok(program) = program.canonicalize() else {
        bail!(
            "no agent at {}: build it with `cargo build --bin proxier`, or name one with --proxier",
            program.display()
        );
    };
    let mut inner: Vec<OsString> = vec!["--proxier".into(), program.into_os_string()];
    inner.extend(["--patience".into(), arguments.patience.to_string().into()]);
    for selector in &arguments.only {
        inner.extend(["--only".into(), selector.into()]);
    }
    if let Some(Task::Matrix { thin }) = arguments.task {
        inner.push("matrix".into());
        inner.extend(thin.then(|| "--thin".into()));
    }
    isolate::supervise(&inner)
}

fn inside(arguments: &Arguments, outside: &str) -> anyhow::Result<u8> {
    let work = isolate::enter(outside)?;
    let program: PathBuf = arguments.proxier.clone().context("the inner half needs --proxier")?;
    if !program.is_file() {
        bail!("{} is hidden by the lab's private /run: use an agent outside of /run", program.display());
    }
    if let Some(Task::Matrix { thin }) = arguments.task {
        let pace = Pace { patience: arguments.patience, thin };
        let report = rows::run(&Selection::parse(&arguments.only)?, pace, &program, &work)?;
        writeln!(std::io::stdout().lock(), "{}", report.text).context("writing the report")?;
        return Ok(u8::from(!report.passed));
    }
    let (mut lines, mut listings, mut logs) = (Vec::<Line>::new(), String::new(), String::new());
    let experiments = experiments();
    let mut left_out = String::new();
    for (experiment, variant) in matrix(&experiments, &arguments.only)? {
        if let Err(why) = variant.layout.is_possible() {
            if arguments.only.iter().any(|only| only.contains(variant.name)) {
                bail!("{}/{}: {why}", experiment.id, variant.name);
            }
            let _ = writeln!(left_out, "not run: {}/{}: {why}", experiment.id, variant.name);
            continue;
        }
        let outcome = experiment::run(experiment, variant, (&program, &work), arguments.patience)
            .with_context(|| format!("experiment {} with {}", experiment.id, variant.name))?;
        lines.extend(outcome.lines);
        listings.push_str(&outcome.listing);
        logs.push_str(&outcome.logs);
    }
    let mut text = report::table(&lines);
    for part in [listings, logs].iter().filter(|p| !p.is_empty()) {
        text.push('\n');
        text.push_str(part);
    }
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}\n{left_out}{}", report::summary(&lines)).context("writing the report")?;
    Ok(u8::from(lines.iter().any(|l| !l.passed)))
}
