//! The values of one family.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proxier_core::changes::ChangeSet;
use proxier_core::driver::{SyncKind, SyncReport};

use super::figures::Figures;
use super::no_local::{NoLocal, NoLocalCount};
use super::values::{Counter, DURATIONS, Gauge, Histogram, PROGRAMMING, SIZES};

/// Rules of one table.
#[derive(Debug)]
pub(super) struct TableRules {
    pub(super) table: &'static str,
    pub(super) total: Gauge,
    pub(super) last: Gauge,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) syncs: Histogram,
    pub(super) full: Histogram,
    pub(super) partial: Histogram,
    pub(super) failed_syncs: Counter,
    pub(super) last_timestamp: Gauge,
    pub(super) last_queued: Gauge,
    pub(super) programming: Histogram,
    no_local: Mutex<(NoLocal, NoLocalCount)>,
    pub(super) rules: Vec<TableRules>,
    /// Plans that did not go in, and the partial ones among them.
    pub(super) refused: Counter,
    pub(super) refused_partial: Counter,
    pub(super) cleanup_failures: Counter,
    pub(super) conntrack: Histogram,
    pub(super) conntrack_deleted: Counter,
    pub(super) verifications: Counter,
    pub(super) drifts: Counter,
    pub(super) drift_items: Gauge,
    pub(super) last_verification: Gauge,
    pub(super) set_aside: Gauge,
    pub(super) bytes: Histogram,
    pub(super) messages: Histogram,
    pub(super) operations: Histogram,
    pub(super) lag: Histogram,
}

impl Lane {
    pub(super) fn new(figures: &Figures, now: f64) -> Self {
        let durations = || Histogram::new(DURATIONS);
        let sizes = || Histogram::new(SIZES);
        let rules =
            |table: &&'static str| TableRules { table, total: Gauge::default(), last: Gauge::default() };
        let last_queued = Gauge::default();
        last_queued.set(now);
        Self {
            syncs: durations(),
            full: durations(),
            partial: durations(),
            failed_syncs: Counter::default(),
            last_timestamp: Gauge::default(),
            last_queued,
            programming: Histogram::new(PROGRAMMING),
            no_local: Mutex::default(),
            rules: figures.tables.iter().map(rules).collect(),
            refused: Counter::default(),
            refused_partial: Counter::default(),
            cleanup_failures: Counter::default(),
            conntrack: durations(),
            conntrack_deleted: Counter::default(),
            verifications: Counter::default(),
            drifts: Counter::default(),
            drift_items: Gauge::default(),
            last_verification: Gauge::default(),
            set_aside: Gauge::default(),
            bytes: sizes(),
            messages: sizes(),
            operations: sizes(),
            lag: durations(),
        }
    }

    pub(super) fn sync_ended(&self, kind: SyncKind, took: Duration) {
        self.syncs.observe_duration(took);
        let own = if kind == SyncKind::Full { &self.full } else { &self.partial };
        own.observe_duration(took);
    }

    /// What a sync wrote. One that had nothing to write is no commit.
    pub(super) fn wrote(&self, report: &SyncReport) {
        for count in &report.rules {
            if let Some(rules) = self.rules.iter().find(|r| r.table == count.table) {
                rules.total.set(count.total as f64);
                rules.last.set(count.written as f64);
            }
        }
        if report.operations > 0 {
            self.bytes.observe(report.bytes as f64);
            self.messages.observe(report.messages as f64);
            self.operations.observe(report.operations as f64);
        }
    }

    /// Plans did not go in. The first of a partial sync was a partial one; what followed it was not.
    pub(super) fn refused(&self, asked: SyncKind, plans: u64) {
        self.refused.add(plans);
        if asked == SyncKind::Partial && plans > 0 {
            self.refused_partial.add(1);
        }
    }

    pub(super) fn verified(&self, differences: usize, now: f64) {
        self.verifications.add(1);
        self.drifts.add(u64::from(differences > 0));
        self.drift_items.set(differences as f64);
        self.last_verification.set(now);
    }

    pub(super) fn follow(&self, changes: &ChangeSet, by_service: bool) {
        let mut held = self.no_local.lock().unwrap_or_else(PoisonError::into_inner);
        held.0.follow(changes);
        held.1 = held.0.count(by_service);
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.no_local.lock().unwrap_or_else(PoisonError::into_inner).0.held()
    }

    pub(super) fn no_local(&self) -> NoLocalCount {
        self.no_local.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}
