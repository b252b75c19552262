//! What is answered on `metricsBindAddress` (core spec 4.6).

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Insight;
use super::desk::set_level;
use crate::http::{Head, Response};
use crate::metrics::page::{CONTENT_TYPE, Family};
use crate::metrics::{Page, VERSION, platform};

const PLAIN: &str = "text/plain; charset=utf-8";

/// The only check of this server: it answers. Health as probes ask for it is another server's.
const CHECK: &str = "ping";

const CHECK_NOW: Family =
    Family::gauge("kubernetes_healthcheck", "[STABLE] 1 if the check succeeded last, 0 if it failed.");
const CHECKS: Family = Family::counter("kubernetes_healthchecks_total", "[STABLE] Checks made, by result.");

const NOT_FOR_MACHINES: &str = "For people: this text may change from one version to the next.";

/// Answers scrapes, and people with `curl`.
pub struct Pages {
    insight: Arc<Insight>,
    configz: Mutex<Value>,
    flags: Vec<String>,
    doors: Mutex<Doors>,
    checks: AtomicU64,
}

/// What is answered of what could be.
#[derive(Clone, Debug, Default)]
struct Doors {
    profiling: bool,
    hidden: Vec<&'static str>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("doors", &self.doors()).finish_non_exhaustive()
    }
}

impl Pages {
    /// With the configuration in force, the command line, and what `enableProfiling` says.
    #[must_use]
    pub fn new(insight: Arc<Insight>, configz: Value, flags: Vec<String>, profiling: bool) -> Self {
        let doors = Mutex::new(Doors { profiling, hidden: Vec::new() });
        Self { insight, configz: Mutex::new(configz), flags, doors, checks: AtomicU64::new(0) }
    }

    /// The same without these paths: pages whose gate is off.
    #[must_use]
    pub fn without(self, hidden: Vec<&'static str>) -> Self {
        self.doors().hidden = hidden;
        self
    }

    /// `enableProfiling`, and the paths that are not answered, from now on.
    pub fn open(&self, profiling: bool, hidden: Vec<&'static str>) {
        *self.doors() = Doors { profiling, hidden };
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another configuration is in force.
    pub fn set_configz(&self, configz: Value) {
        *self.configz.lock().unwrap_or_else(PoisonError::into_inner) = configz;
    }

    /// Answers a request.
    #[must_use]
    pub fn answer(&self, head: &Head) -> Response {
        let query = head.uri.query().unwrap_or_default();
        let Doors { profiling, hidden } = self.doors().clone();
        match head.uri.path() {
            path if hidden.contains(&path) => Response::not_found(),
            "/metrics" => Response::new(200, CONTENT_TYPE, self.insight.page().text()),
            "/metrics/slis" => Response::new(200, CONTENT_TYPE, self.slis()),
            "/healthz" | "/healthz/ping" => self.healthz(query),
            "/proxyMode" => Response::new(200, PLAIN, self.insight.metrics.mode().to_owned()),
            "/configz" => {
                let config = self.configz.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Response::new(200, "application/json", config.to_string())
            }
            "/flagz" => Response::new(200, PLAIN, self.flagz()),
            "/statusz" => Response::new(200, PLAIN, self.statusz()),
            path if path.starts_with("/debug/") && profiling => debug(head, path, query),
            _ => Response::not_found(),
        }
    }

    fn healthz(&self, query: &str) -> Response {
        self.checks.fetch_add(1, Ordering::Relaxed);
        let verbose = query.split('&').any(|p| p == "verbose" || p.starts_with("verbose="));
        let body = if verbose { format!("[+]{CHECK} ok\nhealthz check passed\n") } else { "ok".to_owned() };
        Response::new(200, PLAIN, body)
    }

    fn slis(&self) -> String {
        let mut page = Page::new();
        page.sample(CHECK_NOW, &[("name", CHECK), ("type", "healthz")], 1.0);
        let labels = [("name", CHECK), ("status", "success"), ("type", "healthz")];
        page.sample(CHECKS, &labels, self.checks.load(Ordering::Relaxed) as f64);
        page.text()
    }

    fn flagz(&self) -> String {
        let mut out = format!("proxier flagz\n{NOT_FOR_MACHINES}\n\n");
        for flag in &self.flags {
            let _ = writeln!(out, "{flag}");
        }
        out
    }

    fn statusz(&self) -> String {
        let metrics = &self.insight.metrics;
        let up = (metrics.now() - metrics.started()).max(0.0);
        let mut out = format!("proxier statusz\n{NOT_FOR_MACHINES}\n\n");
        let _ = writeln!(out, "Started: {}", time(metrics.started()));
        let _ = writeln!(out, "Up: {up:.0} s");
        let _ = writeln!(out, "Binary version: {VERSION} ({})", platform());
        let _ = writeln!(out, "Mode: {}", metrics.mode());
        for lane in self.insight.board.lanes() {
            let number = |s: Option<&proxier_core::snapshot::Snapshot>| {
                s.map_or_else(|| "none".to_owned(), |s| s.generation().0.to_string())
            };
            let _ = writeln!(
                out,
                "{}: generation {} in force, {} desired; {} service ports, {} set aside; {} failures in a row",
                lane.family,
                number(lane.in_force.as_ref()),
                number(lane.desired.as_ref()),
                lane.in_force.as_ref().map_or(0, proxier_core::snapshot::Snapshot::len),
                lane.set_aside.len(),
                lane.failures
            );
        }
        out + "Paths: /configz /flagz /healthz /metrics /metrics/slis /proxyMode /statusz\n"
    }
}

/// A time as people and machines read it.
pub(super) fn time(seconds: f64) -> String {
    // Nanoseconds of a double are noise.
    Timestamp::from_millisecond((seconds * 1000.0) as i64).map_or_else(|_| "?".to_owned(), |t| t.to_string())
}

/// What `enableProfiling` opens. Bodies are not read: the level comes in the query.
fn debug(head: &Head, path: &str, query: &str) -> Response {
    match (path, head.method.as_str()) {
        ("/debug/flags/v", "PUT" | "POST") => {
            let level = query.split('&').find_map(|p| p.strip_prefix("v="));
            match level.map(set_level) {
                Some(Ok(filter)) => Response::text(200, format_args!("log level is {filter} now")),
                Some(Err(error)) => Response::text(400, error),
                None => Response::text(400, "give the level in the query: /debug/flags/v?v=4"),
            }
        }
        ("/debug/flags/v", _) => Response::text(405, "PUT /debug/flags/v?v=4 changes the log level"),
        _ if path.starts_with("/debug/pprof") => Response::text(
            404,
            "there are no profiles of this kind: they are made by Go's runtime, and this program is none of it; \
             use perf, for which it carries symbols",
        ),
        _ => Response::not_found(),
    }
}
