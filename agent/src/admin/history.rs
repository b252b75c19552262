//! The last syncs: what each was for, what it did, and what came of it.

use proxier_core::changes::ChangeSet;
use proxier_core::ids::{ServiceName, ServicePortName};
use serde::Serialize;

/// Syncs that are remembered, of all families together.
pub const SYNCS: usize = 64;

/// Names that are listed of each kind of change; more are only counted.
const LISTED: usize = 20;

/// Services that are named as the cause.
const CAUSES: usize = 5;

/// Refused plans whose errors are kept, and how much of each.
const SETBACKS: usize = 3;
const ERROR_TEXT: usize = 500;

/// The first few names of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names {
    /// How many there are.
    pub count: usize,
    /// The first of them.
    pub first: Vec<String>,
}

impl Names {
    fn add(&mut self, name: impl FnOnce() -> String, listed: usize) {
        self.count += 1;
        if self.first.len() < listed {
            self.first.push(name());
        }
    }
}

/// What differs between what was in force and what then was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Services that changed.
    pub services: Names,
    /// Service ports that are new.
    pub added: Names,
    /// Service ports that are otherwise: endpoints, policies, addresses.
    pub changed: Names,
    /// Service ports that are gone.
    pub removed: Names,
    /// The node or the configuration is otherwise.
    pub context: bool,
}

impl Difference {
    /// In short.
    #[must_use]
    pub fn of(changes: &ChangeSet) -> Self {
        let mut out = Self { context: changes.base.is_some() && changes.context_changed, ..Self::default() };
        let mut last: Option<&ServiceName> = None;
        // Sorted by name: the ports of a Service stand together.
        for change in &changes.ports {
            if last != Some(&change.name.service) {
                out.services.add(|| change.name.service.to_string(), CAUSES);
                last = Some(&change.name.service);
            }
            let list = match (&change.old, &change.new) {
                (None, _) => &mut out.added,
                (Some(_), Some(_)) => &mut out.changed,
                (Some(_), None) => &mut out.removed,
            };
            list.add(|| port_name(&change.name), LISTED);
        }
        out
    }
}

/// A service port with its protocol.
pub(super) fn port_name(name: &ServicePortName) -> String {
    format!("{name}/{}", name.protocol)
}

/// A text of bounded length.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(ERROR_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn cut_setbacks(setbacks: &[String]) -> Vec<String> {
    setbacks.iter().take(SETBACKS).map(|s| cut(s)).collect()
}

/// One sync.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncRecord {
    /// When it ended, in seconds since the epoch.
    pub at: f64,
    /// Family.
    pub family: String,
    /// Why there was one.
    pub cause: String,
    /// What was asked for.
    pub asked: String,
    /// What it became; absent when it failed.
    pub kind: Option<String>,
    /// The generation that went in, or should have.
    pub generation: u64,
    /// Seconds that it took.
    pub duration: f64,
    /// Operations written.
    pub operations: usize,
    /// Messages or processes.
    pub messages: usize,
    /// Bytes written.
    pub bytes: usize,
    /// Plans that were refused before one went in.
    pub setbacks: usize,
    /// The first of their errors.
    pub setback_errors: Vec<String>,
    /// Service ports that are left out since this sync or before.
    pub set_aside: usize,
    /// Why it failed.
    pub error: Option<String>,
    /// What it changed, or should have.
    pub difference: Difference,
}
