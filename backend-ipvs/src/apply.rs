//! Carries operations out, in order: those of one kind that follow each other go to the kernel together.
//!
//! Each stands for itself. One that is refused does not keep the others back; it is named, and so is the service port that it is for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proxier_core::backend::{ApplyReport, Progress, ProgressSink, Refused, RetryClass};
use proxier_core::ids::{IpFamily, ServicePortName};
use proxier_sys::netlink::Errno;
use proxier_xtables::restore::Restorer;

use crate::drain::{Drains, Verdict, verdict};
use crate::error::{Error, RefusedOperation};
use crate::kernel::{Kernel, Refusal};
use crate::objects::{DRAINING, RealServer, ServiceKey, WEIGHT};
use crate::observe;
use crate::ops::{Action, Op, drains};
use crate::order::Step;
use crate::sets::{Entry, SetId};
use crate::wire::ipset::{Definition, EntryChange, FULL, MAX_ENTRIES, Verb};
use crate::wire::ipvs::Change;

/// How long after a look at real servers on their way out the next one is due.
pub(crate) const DRAIN_CHECK: Duration = Duration::from_secs(10);

/// Which call an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sets,
    Device,
    Entries,
    Rules,
    Services,
    Bind,
    Unbind,
}

impl Kind {
    fn of(op: &Op) -> Self {
        match op {
            Op::CreateSet(_) => Self::Sets,
            Op::CreateDevice => Self::Device,
            Op::AddEntry(..) | Op::DeleteEntry(..) => Self::Entries,
            Op::Rules(_) => Self::Rules,
            Op::Bind(_) => Self::Bind,
            Op::Unbind(_) => Self::Unbind,
            Op::AddService(_)
            | Op::EditService(_)
            | Op::DeleteService(_)
            | Op::AddServer(..)
            | Op::Revive(..)
            | Op::Retire(..) => Self::Services,
        }
    }
}

/// An operation that was refused.
#[derive(Debug)]
struct Fault {
    operation: RefusedOperation,
    port: Option<ServicePortName>,
    class: RetryClass,
}

/// Carries operations out.
#[derive(Debug)]
pub(crate) struct Applier<'a> {
    pub(crate) kernel: &'a mut Kernel,
    pub(crate) restorer: Restorer<'a>,
    pub(crate) family: IpFamily,
    faults: Vec<Fault>,
    report: ApplyReport,
}

impl<'a> Applier<'a> {
    /// One that has done nothing yet.
    pub(crate) fn new(kernel: &'a mut Kernel, restorer: Restorer<'a>, family: IpFamily) -> Self {
        Self { kernel, restorer, family, faults: Vec::new(), report: ApplyReport::default() }
    }

    /// Carries steps out, and tells after each how far it is, if they are several.
    ///
    /// # Errors
    /// What cannot be gone on after: a socket that fails, rules that are refused.
    pub(crate) fn steps(&mut self, steps: &[Step], told: ProgressSink<'_>) -> Result<(), Error> {
        let all = steps.last().map_or(0, |last| last.ports);
        for (at, step) in steps.iter().enumerate() {
            let mut rest = step.actions.as_slice();
            while let Some(first) = rest.first() {
                let kind = Kind::of(&first.op);
                let same = |action: &&Action| Kind::of(&action.op) == kind;
                // An input of rules is a call for itself.
                let many = if kind == Kind::Rules { 1 } else { rest.iter().take_while(same).count() };
                let (together, later) = rest.split_at(many);
                self.together(kind, together)?;
                self.report.operations += many;
                rest = later;
            }
            if steps.len() > 1 {
                told(Progress { ports: step.ports, ports_all: all, steps: at + 1, steps_all: steps.len() });
            }
        }
        Ok(())
    }

    /// What was done, or what of it was refused.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn end(mut self) -> Result<ApplyReport, Error> {
        let sent = self.kernel.take_sent();
        self.report.messages += sent.messages;
        self.report.bytes += sent.bytes;
        let Some(first) = self.faults.first() else { return Ok(self.report) };
        let first = Box::new(first.operation.clone());
        let mut ports: BTreeMap<ServicePortName, String> = BTreeMap::new();
        for fault in &self.faults {
            if let Some(port) = &fault.port {
                let RefusedOperation { operation, answer } = &fault.operation;
                ports.entry(port.clone()).or_insert_with(|| format!("{operation}: {answer}"));
            }
        }
        Err(Error::Refused {
            first,
            count: self.faults.len(),
            ports: ports.into_iter().map(|(port, reason)| Refused { port, reason }).collect(),
            shared: self.faults.iter().any(|f| f.port.is_none()),
            class: self
                .faults
                .iter()
                .map(|f| f.class)
                .find(|c| *c != RetryClass::Transient)
                .unwrap_or(RetryClass::Transient),
        })
    }

    fn together(&mut self, kind: Kind, actions: &[Action]) -> Result<(), Error> {
        match kind {
            Kind::Sets => self.create_sets(actions),
            Kind::Device => self.kernel.device.ensure().map(drop),
            Kind::Entries => self.entries(actions),
            Kind::Rules => self.rules(actions),
            Kind::Services => self.services(actions),
            Kind::Bind | Kind::Unbind => self.addresses(kind, actions),
        }
    }

    fn fault(&mut self, action: &Action, answer: String) {
        let operation = RefusedOperation { operation: action.op.text(self.family), answer };
        self.faults.push(Fault { operation, port: action.port.clone(), class: RetryClass::NeedsFullSync });
    }

    fn faults(&mut self, actions: &[Action], refusals: Vec<Refusal>) {
        for refusal in refusals {
            if let Some(action) = actions.get(refusal.index) {
                self.fault(action, refusal.reason);
            }
        }
    }

    fn create_sets(&mut self, actions: &[Action]) -> Result<(), Error> {
        let definition = |action: &Action| match &action.op {
            Op::CreateSet(id) => Some(id.definition(self.family)),
            _ => None,
        };
        let sets: Vec<Definition> = actions.iter().filter_map(definition).collect();
        self.kernel.sets.create(&sets)
    }

    fn rules(&mut self, actions: &[Action]) -> Result<(), Error> {
        for action in actions {
            let Op::Rules(input) = &action.op else { continue };
            let done = self.restorer.run(std::slice::from_ref(input), &mut |_| {})?;
            self.report.messages += done.messages;
            self.report.bytes += done.bytes;
        }
        Ok(())
    }

    fn entries(&mut self, actions: &[Action]) -> Result<(), Error> {
        let names: BTreeMap<SetId, Arc<str>> =
            SetId::ALL.into_iter().map(|id| (id, id.name(self.family).into())).collect();
        let change = |action: &Action| {
            let (id, entry, verb) = match &action.op {
                Op::AddEntry(id, entry) => (id, entry, Verb::Add),
                Op::DeleteEntry(id, entry) => (id, entry, Verb::Delete),
                _ => return None,
            };
            Some(EntryChange { set: Arc::clone(names.get(id)?), verb, entry: *entry })
        };
        let changes: Vec<EntryChange> = actions.iter().filter_map(change).collect();
        let family = self.family;
        let refusals = self.kernel.sets.change(&changes, |name| Some(SetId::of(name, family)?.set_type()))?;
        let (full, others): (Vec<Refusal>, Vec<Refusal>) =
            refusals.into_iter().partition(|refusal| refusal.errno == FULL);
        self.faults(actions, others);
        self.grow(actions, &full)
    }

    /// A set that is full is made anew with more room, at one stroke.
    fn grow(&mut self, actions: &[Action], full: &[Refusal]) -> Result<(), Error> {
        let mut lacking: BTreeMap<SetId, Vec<(&Action, Entry)>> = BTreeMap::new();
        for action in full.iter().filter_map(|refusal| actions.get(refusal.index)) {
            if let Op::AddEntry(id, entry) = &action.op {
                lacking.entry(*id).or_default().push((action, *entry));
            }
        }
        for (id, waiting) in lacking {
            let name = id.name(self.family);
            let mut entries = self.kernel.sets.read(&name)?.map(|seen| seen.entries).unwrap_or_default();
            entries.extend(waiting.iter().map(|(_, entry)| *entry));
            let room = u32::try_from(entries.len().saturating_mul(2)).unwrap_or(u32::MAX).max(MAX_ENTRIES);
            tracing::info!(
                set = name,
                entries = entries.len(),
                maxelem = room,
                "set is full: made anew with more room"
            );
            let definition = Definition {
                max_entries: room.checked_next_power_of_two().unwrap_or(room),
                ..id.definition(self.family)
            };
            if let Some(refusal) = self.kernel.sets.rebuild(&definition, &entries)?.into_iter().next() {
                for (action, _) in waiting {
                    self.fault(
                        action,
                        format!("the set is full, and cannot be made anew: {}", refusal.reason),
                    );
                }
            }
        }
        Ok(())
    }

    fn services(&mut self, actions: &[Action]) -> Result<(), Error> {
        let changes: Vec<Change> = actions.iter().filter_map(|action| change(&action.op)).collect();
        let mut again: Vec<(&Action, Change)> = Vec::new();
        for refusal in self.kernel.ipvs()?.change(&changes)? {
            let Some(action) = actions.get(refusal.index) else { continue };
            match (&action.op, Errno::from_raw(refusal.errno)) {
                // It went by itself, or with its virtual server (ipvs spec 11, number 32).
                (Op::Retire(..), Errno::ENOENT | Errno::ESRCH) => {}
                (Op::Revive(key, real), Errno::ENOENT) => {
                    again.push((action, Change::NewReal(*key, *real, WEIGHT)));
                }
                (Op::EditService(server), Errno::ESRCH) => {
                    again.push((action, Change::NewService(server.clone())));
                }
                _ => self.fault(action, refusal.reason),
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = again.iter().map(|(_, change)| change.clone()).collect();
        for refusal in self.kernel.ipvs()?.change(&changes)? {
            if let Some((action, _)) = again.get(refusal.index) {
                self.fault(action, refusal.reason);
            }
        }
        Ok(())
    }

    /// An address that cannot be bound takes nothing from the virtual servers behind it, which local clients of other addresses still reach: no
    /// service port is to blame, and it is tried again.
    fn addresses(&mut self, kind: Kind, actions: &[Action]) -> Result<(), Error> {
        let link = self.kernel.device.ensure()?;
        let address = |action: &Action| match &action.op {
            Op::Bind(ip) | Op::Unbind(ip) => Some(*ip),
            _ => None,
        };
        let all: Vec<IpAddr> = actions.iter().filter_map(address).collect();
        let refusals = match kind {
            Kind::Bind => self.kernel.device.bind(&link, &all)?,
            _ => self.kernel.device.unbind(&link, &all)?,
        };
        for refusal in refusals {
            let Some(action) = actions.get(refusal.index) else { continue };
            let operation =
                RefusedOperation { operation: action.op.text(self.family), answer: refusal.reason };
            self.faults.push(Fault { operation, port: None, class: RetryClass::Transient });
        }
        Ok(())
    }

    /// Looks at real servers on their way out: those without connections, and those whose time is up, are deleted. Costs one listing for each virtual
    /// server that has any, and nothing otherwise.
    ///
    /// # Errors
    /// A failure of the socket.
    pub(crate) fn drain(&mut self, waiting: &mut Drains, cap: Duration, now: Instant) -> Result<(), Error> {
        if waiting.is_empty() {
            return Ok(());
        }
        waiting.start(now);
        let all: Vec<(ServiceKey, Vec<(RealServer, Instant)>)> = waiting
            .iter()
            .map(|(key, reals)| {
                (*key, reals.iter().map(|(real, since)| (*real, since.unwrap_or(now))).collect())
            })
            .collect();
        let mut changes = Vec::new();
        for (key, reals) in all {
            let seen = observe::reals(self.kernel, &key)?;
            for (real, since) in reals {
                match seen.get(&real) {
                    None => waiting.remove(&key, &real),
                    Some(there) => {
                        let waited = now.saturating_duration_since(since);
                        if verdict(there.connections(), waited, cap) == Verdict::Delete {
                            changes.push(Change::DeleteReal(key, real));
                            waiting.remove(&key, &real);
                        } else if there.weight != DRAINING {
                            changes.push(Change::SetReal(key, real, DRAINING));
                        }
                    }
                }
            }
        }
        self.report.operations += changes.len();
        for refusal in self.kernel.ipvs()?.change(&changes)? {
            if let Some(change) = changes.get(refusal.index) {
                tracing::warn!(family = %self.family, %change, reason = refusal.reason, "real server on its way out");
            }
        }
        self.report.follow_up = (!waiting.is_empty()).then_some(DRAIN_CHECK);
        Ok(())
    }
}

fn change(op: &Op) -> Option<Change> {
    Some(match op {
        Op::AddService(server) => Change::NewService(server.clone()),
        Op::EditService(server) => Change::SetService(server.clone()),
        Op::DeleteService(key) => Change::DeleteService(*key),
        Op::AddServer(key, real) => Change::NewReal(*key, *real, WEIGHT),
        Op::Revive(key, real) => Change::SetReal(*key, *real, WEIGHT),
        Op::Retire(key, real) if drains(key) => Change::SetReal(*key, *real, DRAINING),
        Op::Retire(key, real) => Change::DeleteReal(*key, *real),
        _ => return None,
    })
}
