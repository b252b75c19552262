//! A backend whose kernel is a model: its plans go in as text.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use proxier_core::backend::{
    ApplyReport, Atomicity, Backend, BackendError, Capabilities, CleanupReport, Drift, DriftItem, Plan as _,
    PlanEntry, ProgressSink, Refused, RenderInput, RetryClass, TakeOver,
};
use proxier_core::ids::{IpFamily, Protocol, ServicePortName};
use proxier_core::snapshot::Snapshot;

use super::{BeliefOf, Failure, Model, Script, Subject, fresh};

struct State<S: Subject> {
    model: S::Model,
    /// What the plan that went in last believes.
    held: Option<BeliefOf<S>>,
    /// Applies to come that fail: true at the front is the next one.
    failing: VecDeque<bool>,
    poison: BTreeSet<ServicePortName>,
    keep_emptied: bool,
    refusals: Vec<String>,
    applies: usize,
}

/// A handle on the kernel of a [`TextKernel`]: to look at it, and to tell it to fail.
pub struct Kernel<S: Subject>(Arc<Mutex<State<S>>>);

impl<S: Subject> Clone for Kernel<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Subject> Default for Kernel<S> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            model: S::Model::default(),
            held: None,
            failing: VecDeque::new(),
            poison: BTreeSet::new(),
            keep_emptied: false,
            refusals: Vec::new(),
            applies: 0,
        })))
    }
}

impl<S: Subject> Kernel<S> {
    fn with<T>(&self, f: impl FnOnce(&mut State<S>) -> T) -> T {
        // A panic of another holder leaves nothing half done that a test could still care about.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of what the kernel holds.
    #[must_use]
    pub fn model(&self) -> S::Model {
        self.with(|s| s.model.clone())
    }

    /// Another kernel that holds the same, and fails at nothing.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = Self::default();
        let (model, held, keep) = self.with(|s| (s.model.clone(), s.held.clone(), s.keep_emptied));
        copy.with(|s| (s.model, s.held, s.keep_emptied) = (model, held, keep));
        copy
    }

    /// Records a client, as the rules do when it connects; see [`Model::remember`].
    ///
    /// # Errors
    /// There is no such record.
    pub fn remember(&self, record: &str, client: IpAddr) -> Result<(), String> {
        self.with(|s| s.model.remember(record, client))
    }

    /// Lets the next apply fail, or the one after `skip` others. The failed one changes nothing.
    pub fn fail_after(&self, skip: usize) {
        self.with(|s| {
            s.failing.clear();
            s.failing.extend(std::iter::repeat_n(false, skip).chain([true]));
        });
    }

    /// Refuses every plan that adds something for this service port.
    pub fn refuse(&self, port: ServicePortName) {
        self.with(|s| s.poison.insert(port));
    }

    /// Refuses nothing any more.
    pub fn heal(&self) {
        self.with(|s| {
            s.poison.clear();
            s.failing.clear();
        });
    }

    /// From now on, what a plan deletes afterwards stays: a kernel before 6.2, which calls emptied chains busy for a while.
    pub fn keep_emptied(&self, keep: bool) {
        self.with(|s| s.keep_emptied = keep);
    }

    /// Why the model itself refused a plan; a correct plan is never refused.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.with(|s| s.refusals.clone())
    }

    /// Plans that were handed over, failed ones included.
    #[must_use]
    pub fn applies(&self) -> usize {
        self.with(|s| s.applies)
    }
}

/// Why a plan did not go in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TextError {
    class: RetryClass,
    message: String,
    refused: Vec<Refused>,
}

impl TextError {
    fn new(class: RetryClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), refused: Vec::new() }
    }
}

impl BackendError for TextError {
    fn retry_class(&self) -> RetryClass {
        self.class
    }

    fn refused(&self) -> &[Refused] {
        &self.refused
    }
}

/// A subject's backend on a model of its kernel.
pub struct TextKernel<S: Subject> {
    subject: S,
    backend: S::Backend,
    kernel: Kernel<S>,
}

impl<S: Subject> TextKernel<S> {
    /// A backend without a belief, as in a new process, on this kernel.
    pub fn new(subject: &S, family: IpFamily, kernel: Kernel<S>) -> Self {
        Self { subject: subject.clone(), backend: subject.backend(family), kernel }
    }
}

fn text_of(entries: &[PlanEntry]) -> String {
    entries.iter().fold(String::new(), |mut out, entry| {
        out.push_str(&entry.text);
        out.push('\n');
        out
    })
}

fn script_for<S: Subject>(plan: &<S::Backend as Backend>::Plan, model: &S::Model) -> Script<BeliefOf<S>> {
    if plan.is_full() { S::replacing(plan, model) } else { S::script(plan) }
}

/// The answer of a kernel that refuses additions for these service ports. It names a port where the plan says whose each
/// refused operation is.
fn refusal<S: Subject>(
    subject: &S,
    entries: &[PlanEntry],
    poison: &BTreeSet<ServicePortName>,
) -> Option<TextError> {
    let mut error = TextError::new(RetryClass::Bug, "EINVAL: told to refuse");
    let mut unnamed = false;
    let mut any = false;
    for port in poison {
        for entry in entries.iter().filter(|e| subject.adds_for(e, port)) {
            any = true;
            unnamed |= entry.port.as_ref() != Some(port);
            if error.refused.iter().all(|r| r.port != *port) {
                error.refused.push(Refused { port: port.clone(), reason: format!("EINVAL: {}", entry.text) });
            }
        }
    }
    if unnamed {
        error.refused.clear();
    }
    any.then_some(error)
}

impl<S: Subject> Backend for TextKernel<S> {
    type Plan = <S::Backend as Backend>::Plan;
    type Belief = BeliefOf<S>;
    type Error = TextError;

    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn family(&self) -> IpFamily {
        self.backend.family()
    }

    fn probe(&mut self) -> Result<Capabilities, TextError> {
        Ok(Capabilities {
            protocols: Protocol::ALL.to_vec(),
            session_affinity: true,
            source_ranges: true,
            localhost_node_ports: false,
            reject: true,
            partial_sync: true,
            atomicity: Atomicity::Whole,
            check: true,
            requirements: Vec::new(),
        })
    }

    fn render(&self, input: RenderInput<'_, Self::Belief>) -> Self::Plan {
        self.backend.render(input)
    }

    fn take_over(&mut self, plan: Self::Plan) -> Result<TakeOver<Self::Plan>, TextError> {
        Ok(self.kernel.with(|s| match s.held.as_ref() {
            Some(held) => self.subject.take_over(plan, held, &s.model),
            None => TakeOver::Replace(plan),
        }))
    }

    fn check(&mut self, plan: &Self::Plan) -> Result<(), TextError> {
        let mut model = self.kernel.model();
        let script = script_for::<S>(plan, &model);
        let refuse = |why: String| TextError::new(RetryClass::Bug, why);
        model.apply(&text_of(&script.entries)).map_err(refuse)
    }

    fn apply(
        &mut self,
        plan: Self::Plan,
        _: ProgressSink<'_>,
    ) -> Result<(Self::Belief, ApplyReport), TextError> {
        self.kernel.with(|s| {
            let script = script_for::<S>(&plan, &s.model);
            let text = text_of(&script.entries);
            s.applies += 1;
            if s.failing.pop_front().unwrap_or(false) {
                return Err(TextError::new(RetryClass::Transient, "EAGAIN: told to fail"));
            }
            if let Some(error) = refusal(&self.subject, &script.entries, &s.poison) {
                return Err(error);
            }
            if let Err(why) = s.model.apply(&text) {
                s.refusals.push(why.clone());
                return Err(TextError::new(RetryClass::Bug, why));
            }
            if !s.keep_emptied {
                for line in &script.later {
                    // As the kernel may, the model may find it busy or gone.
                    let _ = s.model.apply(line);
                }
            }
            s.held = Some(script.belief.clone());
            let operations = script.entries.len();
            let report =
                ApplyReport { operations, bytes: text.len(), messages: operations, ..ApplyReport::default() };
            Ok((script.belief, report))
        })
    }

    /// A belief cannot be compared with a model; [`Backend::compare`] can.
    fn verify(&mut self, _: &Self::Belief) -> Result<Drift, TextError> {
        Err(TextError::new(RetryClass::Unsupported, "a model of a kernel verifies no belief"))
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, TextError> {
        let want = fresh(&self.subject, snapshot)
            .map_err(|e: Failure| TextError::new(RetryClass::Bug, e.to_string()))?
            .objects();
        let seen = self.kernel.model().objects();
        let missing = want.difference(&seen).cloned().map(DriftItem::Missing);
        let unexpected = seen.difference(&want).cloned().map(DriftItem::Unexpected);
        let mut items: Vec<DriftItem> = missing.chain(unexpected).collect();
        items.sort_unstable();
        Ok(Drift { items })
    }

    fn observer(&self) -> Self {
        Self { subject: self.subject.clone(), backend: self.backend.observer(), kernel: self.kernel.copy() }
    }

    fn cleanup(&mut self) -> Result<CleanupReport, TextError> {
        self.kernel.with(|s| (s.model, s.held) = (S::Model::default(), None));
        Ok(CleanupReport { removed: vec!["everything".into()], stayed: Vec::new() })
    }
}
