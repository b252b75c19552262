//! Hands inputs to `iptables-restore` and finds out what of them was refused.
//!
//! Each table's part of an input is a process of its own: the kernel takes or leaves a table's part as one in any case, and so a part that
//! met a lock can be given again without doing anything twice.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use proxier_core::backend::{ApplyReport, Progress, ProgressSink, Refused, RetryClass};
use proxier_core::ids::ServicePortName;
use proxier_sys::runner::{CommandSpec, DEFAULT_TIMEOUT, Output, Runner};

use crate::error::{Error, RefusedLine};
use crate::message::{self, Complaint, Failure};
use crate::objects::{Input, Op, Rule, Step};
use crate::tool::Tools;
use crate::trial::{self, NewTrial};

/// How long the tool waits for the lock, in seconds (iptables spec 2).
pub const WAIT: &str = "5";
/// How often a part that met a lock is given to the tool.
const TRIES: u32 = 3;
/// A line of an input takes some 30 microseconds of a fast processor, and one that is shared has to wait for its turn.
const FOR_A_LINE: Duration = Duration::from_millis(2);

/// The command that takes an input.
#[must_use]
pub fn command(tools: &Tools, text: &str) -> CommandSpec {
    let lines = u32::try_from(text.len() / 64).unwrap_or(u32::MAX);
    CommandSpec::new(&tools.restore, ["-w", WAIT, "--noflush", "--counters"])
        .stdin(text)
        .timeout(DEFAULT_TIMEOUT.saturating_add(FOR_A_LINE.saturating_mul(lines)))
}

/// What a rule jumps to.
#[must_use]
pub fn target(rule: &Rule) -> Option<&str> {
    let (_, rest) = rule.0.rsplit_once("-j ").or_else(|| rule.0.rsplit_once("-g "))?;
    rest.split(' ').next()
}

/// Gives inputs to the tool.
#[derive(Clone, Copy)]
pub struct Restorer<'a> {
    /// Runs it.
    pub runner: &'a dyn Runner,
    /// The tool.
    pub tools: &'a Tools,
    /// Where to look for what was refused when the tool does not say.
    pub trial: NewTrial<'a>,
}

impl std::fmt::Debug for Restorer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restorer").field("tools", self.tools).finish_non_exhaustive()
    }
}

impl Restorer<'_> {
    /// Gives the inputs to the tool one after another, and tells how far it came if they are several.
    ///
    /// # Errors
    /// At the first that is refused. Its tables before the one that the error is about, and the inputs before it, are in force.
    pub fn run(&self, inputs: &[Input], told: ProgressSink<'_>) -> Result<ApplyReport, Error> {
        let mut report = ApplyReport::default();
        let ends = if inputs.len() > 1 { ends(inputs) } else { BTreeMap::new() };
        for (at, input) in inputs.iter().enumerate() {
            for part in parts(input) {
                report.bytes += self.part(&part)?;
                report.messages += 1;
                report.operations += part.steps.len();
            }
            if inputs.len() > 1 {
                let ports = ends.values().filter(|end| **end <= at).count();
                told(Progress { ports, ports_all: ends.len(), steps: at + 1, steps_all: inputs.len() });
            }
        }
        Ok(report)
    }

    /// Tries the inputs where nothing of the host changes: rules that would be added, each in its chain. Whether what would be taken away
    /// is there is not asked.
    ///
    /// # Errors
    /// What would be refused, or that there is no place to try it.
    pub fn check(&self, inputs: &[Input]) -> Result<(), Error> {
        let place = (self.trial)();
        let place = place.map_err(|message| Error::Denied { tool: self.tools.restore.clone(), message })?;
        let again = Restorer { runner: &*place, tools: self.tools, trial: self.trial };
        for input in inputs {
            let steps: Vec<&Step> = input.steps.iter().collect();
            let alone = trial::standing_alone(&steps);
            // Without one, the rule is refused, and that is the answer.
            let _ = trial::accounts(&*place, &alone);
            again.run(&[alone], &mut |_| {})?;
        }
        Ok(())
    }

    /// Gives one table's part to the tool; returns its size.
    fn part(&self, part: &Input) -> Result<usize, Error> {
        let (text, origins) = part.text();
        let command = command(self.tools, &text);
        let mut tries = 1;
        loop {
            let output = self.runner.run(&command)?;
            if output.success() {
                return Ok(text.len());
            }
            let tool = self.tools.restore.clone();
            match message::read(&output) {
                Failure::Locked(message) if tries < TRIES => {
                    tracing::warn!(family = %self.tools.family, tries, message, "waiting for the xtables lock");
                    tries += 1;
                }
                Failure::Locked(message) => return Err(Error::Locked { tool, tries, message }),
                Failure::Denied(message) => return Err(Error::Denied { tool, message }),
                Failure::Other(message) => {
                    return Err(Error::Failed { tool, code: output.code, message });
                }
                Failure::Lines(complaints) => {
                    log_refused(&text, &output, &complaints);
                    return Err(self.refused(&part.steps, &origins, complaints));
                }
            }
        }
    }

    /// Names the service ports that lines were for.
    fn refused(&self, steps: &[Step], origins: &[Option<usize>], complaints: Vec<Complaint>) -> Error {
        let mut ports: BTreeMap<ServicePortName, String> = BTreeMap::new();
        let (mut shared, mut lost) = (false, false);
        let mut first = None;
        let mut class = complaints.first().map_or(RetryClass::Bug, |c| c.class);
        let count = complaints.len();
        for complaint in complaints {
            let step = step_of(&complaint, steps, origins);
            let line = step.map_or_else(|| "a line that the tool does not name".to_owned(), |s| s.op.line());
            match step.map(|s| s.port.as_ref()) {
                Some(Some(port)) => {
                    ports.entry(port.clone()).or_insert_with(|| format!("{}: {line}", complaint.answer));
                }
                Some(None) => shared = true,
                None => lost = true,
            }
            first.get_or_insert(RefusedLine { line, answer: complaint.answer });
        }
        if lost && ports.is_empty() && !shared {
            let found = trial::isolate(self.trial, self.tools, steps);
            if !found.is_empty() && class == RetryClass::NeedsFullSync {
                class = RetryClass::Bug;
            }
            ports.extend(found.into_iter().map(|r| (r.port, r.reason)));
        }
        let unknown = || RefusedLine { line: "unknown".to_owned(), answer: "no message".to_owned() };
        let ports = ports.into_iter().map(|(port, reason)| Refused { port, reason }).collect();
        Error::Refused { first: Box::new(first.unwrap_or_else(unknown)), count, ports, shared, class }
    }
}

/// The step that a complaint is about.
fn step_of<'s>(complaint: &Complaint, steps: &'s [Step], origins: &[Option<usize>]) -> Option<&'s Step> {
    if let Some(chain) = &complaint.chain {
        let jumps = |step: &&Step| match &step.op {
            Op::Append(_, rule) | Op::Insert(_, rule) | Op::Delete(_, rule) => {
                target(rule) == Some(chain.as_str())
            }
            Op::Chain(_) | Op::DropChain(_) => false,
        };
        if let Some(step) = steps.iter().find(jumps) {
            return Some(step);
        }
    }
    let origin = origins.get(complaint.line?.checked_sub(1)?)?;
    steps.get((*origin)?)
}

/// The lines around the ones that were refused, for those who look closely.
fn log_refused(text: &str, output: &Output, complaints: &[Complaint]) {
    tracing::debug!(code = output.code, stderr = %output.stderr_text().trim(), "input refused");
    for at in complaints.iter().filter_map(|c| c.line) {
        for (number, line) in text.lines().enumerate().skip(at.saturating_sub(3)).take(5) {
            tracing::debug!(line = number + 1, text = line, "around the refused line");
        }
    }
}

/// The input by tables.
fn parts(input: &Input) -> Vec<Cow<'_, Input>> {
    let one = |steps: &[Step]| steps.first().map(|s| s.op.chain().table);
    let table = one(&input.steps);
    if input.steps.iter().all(|s| Some(s.op.chain().table) == table) {
        return if table.is_some() { vec![Cow::Borrowed(input)] } else { Vec::new() };
    }
    let same = |a: &Step, b: &Step| a.op.chain().table == b.op.chain().table;
    input.steps.chunk_by(same).map(|steps| Cow::Owned(Input { steps: steps.to_vec() })).collect()
}

/// With which input each service port is complete.
fn ends(inputs: &[Input]) -> BTreeMap<&ServicePortName, usize> {
    let mut ends = BTreeMap::new();
    for (at, input) in inputs.iter().enumerate() {
        for port in input.steps.iter().filter_map(|s| s.port.as_ref()) {
            ends.insert(port, at);
        }
    }
    ends
}

#[cfg(test)]
mod tests;
