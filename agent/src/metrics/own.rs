//! Our own metrics, and what Kubernetes' programs tell of their build and gates.

use std::sync::PoisonError;

use super::Metrics;
use super::kubeproxy::label;
use super::page::{Family, Page};

const SYNCS_FAILED: Family =
    Family::counter("proxier_sync_failures_total", "Syncs that did not go in; what was in force stayed.");
const REFUSED: Family = Family::counter(
    "proxier_plans_refused_total",
    "Plans that did not go in, those of syncs that then did included.",
);
const DRIFT_ITEMS: Family = Family::gauge(
    "proxier_drift_items",
    "Differences between the kernel and what was programmed that the last comparison found.",
);
const DRIFTS: Family =
    Family::counter("proxier_drifts_total", "Comparisons that found the kernel otherwise than programmed.");
const VERIFICATIONS: Family =
    Family::counter("proxier_verifications_total", "Comparisons of the kernel with what was programmed.");
const LAST_VERIFICATION: Family = Family::gauge(
    "proxier_last_verification_timestamp_seconds",
    "When the kernel was last compared, in seconds since the epoch; 0 for never.",
);
const SET_ASIDE: Family = Family::gauge(
    "proxier_set_aside_service_ports",
    "Service ports that are left out because the kernel refuses them.",
);
const BYTES: Family = Family::histogram(
    "proxier_commit_bytes",
    "Bytes that a sync with something to write handed to the kernel or the tool.",
);
const MESSAGES: Family = Family::histogram(
    "proxier_commit_messages",
    "Messages, or processes, of a sync with something to write.",
);
const OPERATIONS: Family =
    Family::histogram("proxier_commit_operations", "Operations of a sync with something to write.");
const LAG: Family = Family::histogram(
    "proxier_event_to_kernel_duration_seconds",
    "Time from the first event that a sync took in until its rules were in force.",
);
const LAST_EVENT: Family = Family::gauge(
    "proxier_last_event_timestamp_seconds",
    "When an event of a Service, EndpointSlice or Node last came, in seconds since the epoch; 0 for never.",
);
const BUILD: Family = Family::gauge("proxier_build_info", "1, with what this program is.");
const KUBERNETES_BUILD: Family = Family::gauge(
    "kubernetes_build_info",
    "[ALPHA] 1, with what this program is, as Kubernetes' programs tell it. The version is proxier's.",
);
const FEATURE: Family =
    Family::gauge("kubernetes_feature_enabled", "[BETA] 1 if the gate is on, 0 if it is off.");

/// Feature gates: name, and whether it is on.
pub type Gates = Vec<(String, bool)>;

/// How far gates are (core spec 7.9); others are generally available, which is told by no word.
const STAGES: [(&str, &str); 7] = [
    ("ComponentFlagz", "BETA"),
    ("ComponentStatusz", "BETA"),
    ("ContextualLogging", "BETA"),
    ("LoggingAlphaOptions", "ALPHA"),
    ("LoggingBetaOptions", "BETA"),
    ("NativeHistograms", "ALPHA"),
    ("NFTablesProxyMode", ""),
];

fn stage(gate: &str) -> &'static str {
    STAGES.iter().find(|(name, _)| *name == gate).map_or("", |(_, stage)| *stage)
}

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `linux/amd64`, as Kubernetes writes it.
#[must_use]
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

impl Metrics {
    pub(super) fn collect_own(&self, page: &mut Page) {
        for (family, lane) in self.lanes() {
            let labels = &[("ip_family", label(family))];
            page.sample(SYNCS_FAILED, labels, lane.failed_syncs.get() as f64);
            page.sample(REFUSED, labels, lane.refused.get() as f64);
            page.sample(DRIFT_ITEMS, labels, lane.drift_items.get());
            page.sample(DRIFTS, labels, lane.drifts.get() as f64);
            page.sample(VERIFICATIONS, labels, lane.verifications.get() as f64);
            page.sample(LAST_VERIFICATION, labels, lane.last_verification.get());
            page.sample(SET_ASIDE, labels, lane.set_aside.get());
            page.histogram(BYTES, labels, &lane.bytes.observed());
            page.histogram(MESSAGES, labels, &lane.messages.observed());
            page.histogram(OPERATIONS, labels, &lane.operations.observed());
            page.histogram(LAG, labels, &lane.lag.observed());
        }
        page.sample(LAST_EVENT, &[], self.last_event.get());
        page.sample(BUILD, &[("mode", &self.mode), ("version", VERSION)], 1.0);
        let (mut parts, version) = (VERSION.split('.'), format!("v{VERSION}"));
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (major, minor, platform) = (part(), part(), platform());
        let labels = [
            ("compiler", "rustc"),
            ("git_version", &*version),
            ("major", &*major),
            ("minor", &*minor),
            ("platform", &*platform),
        ];
        page.sample(KUBERNETES_BUILD, &labels, 1.0);
        for (name, on) in self.gates.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let labels = [("name", &**name), ("stage", stage(name))];
            page.sample(FEATURE, &labels, f64::from(u8::from(*on)));
        }
    }
}
