//! What the loop logs of syncs, conflicts and leftovers.

use std::time::Duration;

use proxier_core::driver::{Instance, SyncReport};
use proxier_core::snapshot::Snapshot;

/// The loop's: whoever filters its log need not know which file a line is from.
const TARGET: &str = "agent::sync";

/// Removes what a backend left behind when another one ran here. What cannot be removed is told and left.
pub(super) fn clear(mut replaced: Box<dyn Instance>) {
    let (backend, family) = (replaced.name(), replaced.family());
    match replaced.cleanup() {
        Ok(report) => {
            if !report.removed.is_empty() {
                tracing::info!(target: TARGET, backend, %family, objects = report.removed.len(), "removed what another backend left");
            }
            for what in report.removed {
                tracing::debug!(target: TARGET, backend, %family, what = %what, "removed");
            }
            for what in report.stayed {
                tracing::warn!(target: TARGET, backend, %family, what = %what, "another backend's leftover stays");
            }
        }
        Err(error) => {
            tracing::warn!(target: TARGET, backend, %family, error = %error.source, "cannot remove what another backend left");
        }
    }
}

pub(super) fn tell_report(instance: &dyn Instance, report: &SyncReport, took: Duration, first: bool) {
    let (backend, family) = (instance.name(), instance.family());
    for setback in &report.setbacks {
        tracing::warn!(target: TARGET, backend, %family, error = %setback, "plan refused; tried again");
    }
    for refused in &report.refused {
        tracing::error!(target: TARGET, backend, %family, service.port = %refused.port, reason = %refused.reason, "service port set aside");
    }
    for unsupported in &report.unsupported {
        tracing::warn!(target: TARGET, backend, %family, service.port = %unsupported.port, feature = %unsupported.feature, "not supported");
    }
    if report.operations == 0 && !first {
        return;
    }
    tracing::info!(target: TARGET,
        backend,
        %family,
        generation = report.generation.0,
        sync.kind = %report.kind,
        ports.changed = report.changed_ports,
        plan.ops = report.operations,
        plan.messages = report.messages,
        plan.bytes = report.bytes,
        duration.ms = took.as_secs_f64() * 1000.0,
        "synced"
    );
}

/// Frontends that two service ports wish for: told when the snapshot that shows them is published.
pub(super) fn tell_conflicts(old: Option<&Snapshot>, new: &Snapshot) {
    let changes = proxier_core::changes::ChangeSet::between(old, new);
    for change in &changes.ports {
        let before = change.old.as_ref().map_or(&[][..], |p| &p.conflicts);
        let Some(port) = &change.new else { continue };
        for conflict in port.conflicts.iter().filter(|c| !before.contains(c)) {
            tracing::warn!(target: TARGET,
                frontend = %conflict.frontend,
                service.port = %port.name,
                winner = %conflict.winner,
                "frontend belongs to an older service"
            );
        }
    }
}
