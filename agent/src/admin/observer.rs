//! Follows the sync loop: counts for machines, and writes on the board for people.

use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use proxier_core::changes::ChangeSet;
use proxier_core::cluster::Commit;
use proxier_core::driver::{Instance, Printer, SyncKind};
use proxier_core::ids::{IpFamily, Timestamp};
use proxier_core::model::PerFamily;
use proxier_core::snapshot::Snapshot;

use super::Insight;
use super::history::{Difference, SyncRecord, cut, cut_setbacks};
use crate::source::{Object, ObjectKind, SourceEvent};
use crate::sync::{Failed, Observer, Synced};

/// Trigger times that wait for a sync that goes in; more are not measured.
const TRIGGERS: usize = 10_000;

/// What prints each family's rules, as the instance that serves it would write them.
pub type Printers = Arc<Mutex<Vec<Printer>>>;

/// What is known of one family between its syncs.
#[derive(Debug, Default)]
struct Lane {
    /// What is in force.
    force: Option<Snapshot>,
    /// When the first event came that is not in force yet.
    waiting: Option<Instant>,
    triggers: Vec<Timestamp>,
    drifted: bool,
    failed: bool,
    set_aside: bool,
}

/// The observer.
#[derive(Debug)]
pub struct Follower {
    insight: Arc<Insight>,
    /// An operator asked for a sync.
    asked: Arc<AtomicBool>,
    printers: Printers,
    lanes: PerFamily<Lane>,
    /// When the first event came that is not decided upon.
    heard: Option<Instant>,
}

impl Follower {
    /// One that writes there, and keeps what prints each family's rules. `asked` is raised by whoever asks for a sync.
    #[must_use]
    pub fn new(insight: Arc<Insight>, asked: Arc<AtomicBool>, printers: Printers) -> Self {
        Self { insight, asked, printers, lanes: PerFamily::default(), heard: None }
    }

    /// Why there was a sync, in words.
    fn cause(&mut self, family: IpFamily, other: bool, difference: &Difference) -> String {
        let lane = self.lanes.get_mut(family);
        let start = lane.force.is_none();
        let asked = self.asked.load(Ordering::Relaxed);
        let changed = difference.services.count;
        let noun = if changed == 1 { "service" } else { "services" };
        let change = (changed > 0).then(|| format!("{changed} {noun} changed"));
        let said = |yes: bool, what: &str| yes.then(|| what.to_owned());
        let reasons = [
            said(start, "start"),
            said(other && !start, "other settings"),
            said(asked, "asked for"),
            said(take(&mut lane.drifted), "the kernel differed"),
            said(take(&mut lane.failed), "the last one failed"),
            change.filter(|_| !start),
            said(difference.context, "the node or the configuration changed"),
        ];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        match (reasons.is_empty(), lane.set_aside) {
            (false, _) => reasons.join("; "),
            (true, true) => "service ports that are set aside are tried again".to_owned(),
            (true, false) => "leftovers".to_owned(),
        }
    }

    /// What a record says of any sync.
    fn record(&self, family: IpFamily, cause: String, asked: SyncKind, difference: Difference) -> SyncRecord {
        SyncRecord {
            at: self.insight.metrics.now(),
            family: family.to_string(),
            cause,
            asked: asked.to_string(),
            kind: None,
            generation: 0,
            duration: 0.0,
            operations: 0,
            messages: 0,
            bytes: 0,
            setbacks: 0,
            setback_errors: Vec::new(),
            set_aside: 0,
            error: None,
            difference,
        }
    }
}

/// An event of a Service, or of a slice in a family of ours that says whose it is.
fn counts(event: &SourceEvent) -> (u64, u64) {
    match event {
        SourceEvent::Upsert(Object::Service(_)) => (1, 0),
        SourceEvent::Upsert(object @ Object::EndpointSlice(slice)) => {
            let ours = matches!(&*slice.address_type, "IPv4" | "IPv6") && object.owning_service().is_some();
            (0, ours.into())
        }
        SourceEvent::Delete { key, .. } if key.kind == ObjectKind::Service => (1, 0),
        SourceEvent::Delete { key, service } if key.kind == ObjectKind::EndpointSlice => {
            (0, service.is_some().into())
        }
        _ => (0, 0),
    }
}

impl Observer for Follower {
    fn events(&mut self, events: &[SourceEvent]) {
        let objects = |e: &SourceEvent| matches!(e, SourceEvent::Upsert(_) | SourceEvent::Delete { .. });
        let listed = events.contains(&SourceEvent::Synced);
        if !listed && !events.iter().any(objects) {
            return;
        }
        let (services, slices) = events.iter().map(counts).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.insight.metrics.events(services, slices);
        self.insight.board.heard(listed);
        self.heard.get_or_insert_with(Instant::now);
    }

    /// What was heard and not taken for a commit changes nothing.
    fn decided(&mut self) {
        self.heard = None;
    }

    fn committed(&mut self, commit: &Commit) {
        let heard = self.heard.take();
        for family in IpFamily::ALL {
            let lane = self.lanes.get_mut(family);
            let triggers = commit.triggers.get(family);
            if *commit.changed.get(family) {
                self.insight.board.desired(family, commit.snapshot(family));
                lane.waiting = lane.waiting.or(heard);
            } else if lane.waiting.is_none() && lane.triggers.is_empty() {
                // What is in force is what they ask for.
                self.insight.metrics.programmed(family, triggers);
                continue;
            }
            let room = TRIGGERS.saturating_sub(lane.triggers.len());
            lane.triggers.extend(triggers.iter().take(room));
        }
    }

    fn queued(&mut self, family: IpFamily) {
        self.insight.metrics.queued(family);
    }

    fn took_over(&mut self, instance: &dyn Instance) {
        let mut printers = self.printers.lock().unwrap_or_else(PoisonError::into_inner);
        printers.retain(|p| p.family() != instance.family());
        printers.push(instance.printer());
    }

    fn synced(&mut self, synced: &Synced<'_>) {
        let Synced { family, kind, report, before, snapshot, left_out, took, .. } = *synced;
        let changes = ChangeSet::between(self.lanes.get(family).force.as_ref(), snapshot);
        let difference = Difference::of(&changes);
        let cause = self.cause(family, before.is_none(), &difference);
        let lane = self.lanes.get_mut(family);
        lane.force = Some(snapshot.clone());
        let lag = lane.waiting.take().map(|since| since.elapsed());
        lane.set_aside = !left_out.is_empty();
        let triggers = take(&mut lane.triggers);
        let metrics = &self.insight.metrics;
        metrics.synced(family, kind, report, took);
        metrics.in_force(family, &changes, lag);
        metrics.programmed(family, &triggers);
        metrics.set_aside(family, left_out.len());
        let record = SyncRecord {
            kind: Some(report.kind.to_string()),
            generation: report.generation.0,
            duration: took.as_secs_f64(),
            operations: report.operations,
            messages: report.messages,
            bytes: report.bytes,
            setbacks: report.setbacks.len(),
            setback_errors: cut_setbacks(&report.setbacks),
            set_aside: left_out.len(),
            ..self.record(family, cause, kind, difference)
        };
        self.insight.board.synced(snapshot, left_out, record);
        self.asked.store(false, Ordering::Relaxed);
    }

    fn failed(&mut self, failed: &Failed<'_>) {
        let Failed { family, kind, error, took, .. } = *failed;
        self.insight.metrics.failed(family, kind, took);
        let lanes = self.insight.board.lanes();
        let desired = lanes.iter().find(|l| l.family == family).and_then(|l| l.desired.as_ref());
        let before = self.lanes.get(family).force.as_ref();
        let difference = desired.map(|d| Difference::of(&ChangeSet::between(before, d))).unwrap_or_default();
        let cause = self.cause(family, false, &difference);
        self.lanes.get_mut(family).failed = true;
        let record = SyncRecord {
            generation: error.generation.0,
            duration: took.as_secs_f64(),
            error: Some(cut(&error.source.to_string())),
            ..self.record(family, cause, kind, difference)
        };
        self.insight.board.failed(family, error.class.to_string(), record);
    }

    fn verified(&mut self, _backend: &'static str, family: IpFamily, differences: usize) {
        self.insight.metrics.verified(family, differences);
        self.insight.board.verified(family, differences);
        self.lanes.get_mut(family).drifted = differences > 0;
    }
}
