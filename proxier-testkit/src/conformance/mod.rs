//! The suite that every backend runs: it calls the functions here with its [`Subject`].
//!
//! A backend is tried on a [`Model`] of its kernel that takes the text of its plans: no privilege, and thousands of packets a
//! second. The same backend code renders; only the last step, handing the plan to the kernel, is replaced by [`TextKernel`], which can
//! also be told to fail.
//!
//! | function | property |
//! |---|---|
//! | [`walks_as_decided`] | packets of random clusters go where the oracle says, recorded clients where they went before |
//! | [`corpus`] | the same for every case of the corpus, against expectations worked out by hand |
//! | [`partial_equals_full`] | after each commit of a random history the state is that of a fresh full plan; syncing again writes nothing |
//! | [`order_does_not_matter`] | objects that arrive in another order give the same bytes |
//! | [`failures_are_repaired`] | the n-th apply fails: the error is reported, nothing changes, the next sync repairs |
//! | [`refused_ports_are_set_aside`] | a refused service port does not keep out the others |
//! | [`restarts_end_right`] | a process without belief takes over whatever state is there |
//!
//! What a backend does otherwise on purpose is declared by [`Subject::gap`] with its own expected outcome, never skipped.
//!
//! Everything returns a [`Failure`] that names the seed, and a [`Tally`] of what was tried, so that a suite can see that it tried enough.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use proxier_core::backend::{Backend, PlanEntry, TakeOver};
use proxier_core::ids::{EndpointAddr, IpFamily, ServicePortName};
use proxier_core::oracle::{Decision, Outcome, Packet};
use proxier_core::snapshot::Snapshot;

use crate::walk::{Walk, WalkHost};

mod cases;
mod faults;
mod histories;
mod iptables;
mod ipvs;
mod kernel;
mod nft;
mod order;
mod walks;

pub use cases::corpus;
pub use faults::{failures_are_repaired, refused_ports_are_set_aside};
pub use histories::{partial_equals_full, partial_history, restarts_end_right};
pub use kernel::{Kernel, TextError, TextKernel};
pub use order::order_does_not_matter;
pub use walks::{expected, fresh, observable, walk_scenario, walks_as_decided};

#[cfg(test)]
mod tests;

/// A model of a kernel: text changes it, packets walk it.
pub trait Model: Clone + Default + Send + 'static {
    /// Runs a script. When it is refused, what the kernel would have kept of it stays: nothing, where all of it is one transaction;
    /// what was committed before, where each table is one.
    ///
    /// # Errors
    /// What the kernel would refuse.
    fn apply(&mut self, script: &str) -> Result<(), String>;

    /// Follows the first packet of a connection.
    ///
    /// # Errors
    /// Why there is no answer.
    fn walk(&self, packet: &Packet, host: &WalkHost) -> Result<Walk, String>;

    /// Records a client where rules record clients, under the name that [`Subject::affinity_record`] gives.
    ///
    /// # Errors
    /// There is no such record.
    fn remember(&mut self, record: &str, client: IpAddr) -> Result<(), String>;

    /// What is there, in words. Two states that differ only in what means nothing (the order of endpoints, sizes, emptied
    /// chains that wait to be deleted) have the same words.
    fn objects(&self) -> BTreeSet<String>;
}

/// A plan taken apart.
#[derive(Clone, Debug)]
pub struct Script<B> {
    /// The operations that go in together, in order.
    pub entries: Vec<PlanEntry>,
    /// What is tried afterwards, each for itself; the kernel may refuse it.
    pub later: Vec<String>,
    /// What is believed once `entries` are in.
    pub belief: B,
}

/// Something that a backend does otherwise than the oracle says, on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Why, in an operator's words.
    pub why: &'static str,
    /// What it does instead.
    pub outcome: Outcome,
}

/// A backend that is tried.
pub trait Subject: Clone + Send + 'static {
    /// The backend.
    type Backend: Backend + 'static;
    /// The model of its kernel.
    type Model: Model;

    /// Name and settings, for messages.
    fn name(&self) -> String;

    /// A new instance.
    fn backend(&self, family: IpFamily) -> Self::Backend;

    /// Takes a plan apart.
    fn script(plan: &<Self::Backend as Backend>::Plan) -> Script<<Self::Backend as Backend>::Belief>;

    /// Takes apart a full plan for a kernel that holds something, where what it writes then differs from what it writes to an empty
    /// one. The default says that it does not.
    fn replacing(
        plan: &<Self::Backend as Backend>::Plan,
        _model: &Self::Model,
    ) -> Script<<Self::Backend as Backend>::Belief> {
        Self::script(plan)
    }

    /// The name of what records the clients of an endpoint of a service port with session affinity, as [`Model::remember`] takes it.
    fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String;

    /// The backend's [`take_over`](Backend::take_over), for a kernel that holds what a belief says; the model tells which emptied chains
    /// are still there. The default takes nothing over.
    fn take_over(
        &self,
        plan: <Self::Backend as Backend>::Plan,
        _held: &BeliefOf<Self>,
        _model: &Self::Model,
    ) -> TakeOver<<Self::Backend as Backend>::Plan> {
        TakeOver::Replace(plan)
    }

    /// Does this operation add something that is this service port's alone, whether the plan says so or not?
    fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool;

    /// Clients stay with their endpoints when the process is started again.
    fn keeps_clients(&self) -> bool {
        false
    }

    /// What the backend declares to do otherwise for this packet. The default declares nothing.
    fn gap(&self, _snapshot: &Snapshot, _packet: &Packet, _decision: &Decision) -> Option<Gap> {
        None
    }
}

/// The belief of a subject's backend.
pub type BeliefOf<S> = <<S as Subject>::Backend as Backend>::Belief;

/// A property does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}, {place}: {what}")]
pub struct Failure {
    /// Who.
    pub subject: String,
    /// Where: family, seed, step.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl Failure {
    pub(crate) fn new(subject: &impl Subject, place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { subject: subject.name(), place: place.to_string(), what: what.to_string() }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Clusters, histories or cases.
    pub clusters: usize,
    /// Syncs.
    pub syncs: usize,
    /// Packets walked.
    pub packets: usize,
    /// Of these, sent to endpoints.
    pub balanced: usize,
    /// Of these, masqueraded, if only on some branch.
    pub masqueraded: usize,
    /// Packets rejected.
    pub rejected: usize,
    /// Packets dropped.
    pub dropped: usize,
    /// Packets left as they are.
    pub untouched: usize,
    /// Packets of clients that were recorded before.
    pub recorded: usize,
    /// Packets for which a declared gap held.
    pub gaps: usize,
    /// Applies that failed.
    pub failures: usize,
    /// Service ports that were set aside.
    pub set_aside: usize,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        self.packets += 1;
        match outcome {
            Outcome::Endpoints(choices) => {
                self.balanced += 1;
                self.masqueraded += usize::from(choices.iter().any(|c| c.masquerade));
            }
            Outcome::Reject => self.rejected += 1,
            Outcome::Drop => self.dropped += 1,
            Outcome::NotOurs => self.untouched += 1,
        }
    }
}
