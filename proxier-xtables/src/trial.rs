//! A place where rules can be tried for real: a network namespace of its own, gone when it is dropped.
//!
//! `iptables-restore --test` asks no kernel: with 1.8.9 it takes a match on a counter that does not exist, `MASQUERADE` in a chain that
//! `PREROUTING` jumps to, and with nft also a jump to nowhere. So what the kernel says is found out here, where nothing of the host
//! changes.

use std::collections::BTreeSet;
use std::thread;

use proxier_core::backend::Refused;
use proxier_core::ids::ServicePortName;
use proxier_sys::netns::{self, Netns, NetnsError};
use proxier_sys::runner::{CommandSpec, Output, RunError, Runner, SystemRunner};

use crate::accounting;
use crate::message;
use crate::objects::{ChainId, Input, KUBE, Op, Step};
use crate::restore;
use crate::tool::Tools;

/// Somewhere to try rules.
pub trait Trial: Runner {
    /// Makes a counting object there.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn account(&self, name: &str) -> Result<(), String>;
}

/// Makes a new, empty [`Trial`], or says why it cannot.
pub type NewTrial<'a> = &'a dyn Fn() -> Result<Box<dyn Trial>, String>;

/// A network namespace that nobody else uses.
#[derive(Debug)]
pub struct Scratch(Netns);

impl Scratch {
    /// A new one.
    ///
    /// # Errors
    /// Without the right to make one (CAP_SYS_ADMIN).
    pub fn new() -> Result<Self, NetnsError> {
        let made = thread::Builder::new().name("scratch".to_owned()).spawn(|| {
            netns::enter_new()?;
            Netns::current()
        });
        let made = made.map_err(|source| NetnsError::Thread { source })?;
        made.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)).map(Self)
    }

    /// Does a piece of work there on a thread of its own, such as making what rules mention.
    ///
    /// # Errors
    /// When the place cannot be entered, or no thread be started.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        self.0.run(work)
    }
}

/// A new [`Scratch`].
///
/// # Errors
/// Why there is none, in words.
pub fn scratch() -> Result<Box<dyn Trial>, String> {
    match Scratch::new() {
        Ok(scratch) => Ok(Box::new(scratch)),
        Err(error) => Err(error.to_string()),
    }
}

impl Runner for Scratch {
    fn run(&self, command: &CommandSpec) -> Result<Output, RunError> {
        let inside = || SystemRunner::new().run(command);
        self.0.run(inside).unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(RunError::Start { program: command.program.clone(), source })
        })
    }
}

impl Trial for Scratch {
    fn account(&self, name: &str) -> Result<(), String> {
        let made = self.0.run(|| accounting::ensure(&[name])).map_err(|e| e.to_string())?;
        made.map_err(|e| e.to_string()).and_then(|names| {
            if names.is_empty() { Err("the kernel has no counting objects".to_owned()) } else { Ok(()) }
        })
    }
}

/// Built-in chains: there without being declared.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// The chain that a rule jumps to, if it is one of Kubernetes: none of a tool's extensions is called so.
fn target(step: &Step) -> Option<ChainId> {
    let (Op::Append(chain, rule) | Op::Insert(chain, rule)) = &step.op else { return None };
    let name = restore::target(rule)?;
    name.starts_with(KUBE).then(|| ChainId { table: chain.table, name: name.into() })
}

/// The same steps so that they stand alone: every chain is declared first, and what would take something away is left out.
#[must_use]
pub fn standing_alone(steps: &[&Step]) -> Input {
    let adds = |step: &&&Step| matches!(step.op, Op::Append(..) | Op::Insert(..));
    let mentioned = |step: &&Step| [Some(step.op.chain().clone()), target(step)].into_iter().flatten();
    let chains: BTreeSet<ChainId> = steps.iter().filter(adds).flat_map(mentioned).collect();
    let chains = chains.into_iter().filter(|c| !BUILT_IN.contains(&&*c.name));
    let mut alone: Vec<Step> = chains.map(|c| Step { op: Op::Chain(c), port: None }).collect();
    alone.extend(steps.iter().filter(adds).map(|step| Step::clone(step)));
    alone.sort_by_key(|step| step.op.chain().table);
    Input { steps: alone }
}

/// Makes the counting objects that rules mention; an error is the reason of the first that could not be made.
pub(crate) fn accounts(trial: &dyn Trial, input: &Input) -> Result<(), String> {
    let mut made = Ok(());
    for step in &input.steps {
        if let Op::Append(_, rule) | Op::Insert(_, rule) = &step.op
            && let Some((_, rest)) = rule.0.split_once("--nfacct-name ")
        {
            let one = trial.account(rest.split(' ').next().unwrap_or_default());
            made = made.and(one);
        }
    }
    made
}

/// Tries steps. `None` if they are taken, else the answer.
fn refusal(new: NewTrial<'_>, tools: &Tools, steps: &[&Step]) -> Option<String> {
    let trial = new().ok()?;
    let input = standing_alone(steps);
    // Without one, the rule is refused, and that is the answer.
    let _ = accounts(&*trial, &input);
    let output = trial.run(&restore::command(tools, &input.text().0)).ok()?;
    if output.success() { None } else { Some(message::answer(&output)) }
}

/// The line that makes steps be refused: with those before it, it is, without it, they are not. Found by halves.
fn culprit(new: NewTrial<'_>, tools: &Tools, refused: &[&Step]) -> String {
    let (mut taken, mut not) = (0, refused.len());
    while not - taken > 1 {
        let middle = taken.midpoint(not);
        match refusal(new, tools, refused.get(..middle).unwrap_or(refused)) {
            Some(_) => not = middle,
            None => taken = middle,
        }
    }
    refused.get(taken).map_or_else(String::new, |step| step.op.line())
}

/// Names no more service ports than this; the next plan names the others.
const MOST: usize = 16;

/// Which service ports the kernel refuses, and for which line, when all that is known is that it refuses some of the steps: by halves.
///
/// Empty if each is taken alone: then the refusal comes from what else the tables hold.
#[must_use]
pub fn isolate(new: NewTrial<'_>, tools: &Tools, steps: &[Step]) -> Vec<Refused> {
    let mut ports: Vec<&ServicePortName> = steps.iter().filter_map(|s| s.port.as_ref()).collect();
    ports.sort();
    ports.dedup();
    let mut found = Vec::new();
    let mut open = vec![ports.as_slice()];
    while let Some(some) = open.pop() {
        let theirs: Vec<&Step> = steps
            .iter()
            .filter(|s| s.port.as_ref().is_some_and(|p| some.binary_search(&p).is_ok()))
            .collect();
        let Some(reason) = refusal(new, tools, &theirs) else { continue };
        if let [port] = some {
            let reason = format!("{reason}: {}", culprit(new, tools, &theirs));
            found.push(Refused { port: (*port).clone(), reason });
        } else {
            let (left, right) = some.split_at(some.len() / 2);
            open.extend([right, left]);
        }
        if found.len() == MOST {
            break;
        }
    }
    found
}
