//! The admin API: what is answered on the socket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use proxier_core::backend::{PlanEntry, SetAside};
use proxier_core::ids::{IpFamily, ServiceName};
use proxier_core::snapshot::Snapshot;
use serde_json::{Value, json};

use super::board::LaneState;
use super::history::port_name;
use super::{Insight, Printers, decisions};
use crate::http::{Head, Response};
use crate::metrics::VERSION;
use crate::sync::Order;
use crate::telemetry;
use crate::world::Problems;

/// Problems and service ports set aside that a status lists; more are only counted.
const LISTED: usize = 100;

/// Hands an order to the loop; `false` when it has too much to do to take one now.
type Give = Box<dyn Fn(Order) -> bool + Send + Sync>;

/// Answers an operator.
pub struct Desk {
    insight: Arc<Insight>,
    node: String,
    source: &'static str,
    problems: Problems,
    printers: Printers,
    give: Give,
    asked: Arc<AtomicBool>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("node", &self.node).finish_non_exhaustive()
    }
}

/// What a desk needs to know beside what is on the board.
pub(super) struct Papers {
    pub(super) node: String,
    pub(super) source: &'static str,
    pub(super) problems: Problems,
    pub(super) printers: Printers,
    pub(super) give: Give,
    pub(super) asked: Arc<AtomicBool>,
}

/// Parameters of a request, decoded.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(head: &Head) -> Self {
        let text = head.uri.query().unwrap_or_default();
        let pairs = text.split('&').filter(|p| !p.is_empty());
        let pair = |p: &str| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            (decoded(name), decoded(value))
        };
        Self(pairs.map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// `family=ipv4`; both without one.
    fn family(&self) -> Result<Option<IpFamily>, Response> {
        match self.get("family").map(str::to_ascii_lowercase).as_deref() {
            None => Ok(None),
            Some("ipv4" | "4") => Ok(Some(IpFamily::Ipv4)),
            Some("ipv6" | "6") => Ok(Some(IpFamily::Ipv6)),
            Some(other) => Err(refuse(400, &format!("family is ipv4 or ipv6, not {other:?}"))),
        }
    }

    /// `service=namespace/name`.
    fn service(&self) -> Result<Option<ServiceName>, Response> {
        let Some(text) = self.get("service") else { return Ok(None) };
        match text.split_once('/').filter(|(ns, name)| !ns.is_empty() && !name.is_empty()) {
            Some((namespace, name)) => Ok(Some(ServiceName::new(namespace, name))),
            None => Err(refuse(400, &format!("service is namespace/name, not {text:?}"))),
        }
    }
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = (byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 2;
            }
            None => out.push(if byte == b'+' { b' ' } else { byte }),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn answer(status: u16, value: &Value) -> Response {
    Response::new(status, "application/json", format!("{value}\n"))
}

fn refuse(status: u16, why: &str) -> Response {
    answer(status, &json!({ "error": why }))
}

fn generation(snapshot: Option<&Snapshot>) -> Option<u64> {
    snapshot.map(|s| s.generation().0)
}

impl Desk {
    pub(super) fn new(insight: Arc<Insight>, papers: Papers) -> Self {
        let Papers { node, source, problems, printers, give, asked } = papers;
        Self { insight, node, source, problems, printers, give, asked }
    }

    /// Answers a request.
    #[must_use]
    pub fn answer(&self, head: &Head) -> Response {
        let query = Query::of(head);
        let result = match (head.method.as_str(), head.uri.path()) {
            ("GET" | "HEAD", "/status") => Ok(answer(200, &self.status())),
            ("GET" | "HEAD", "/snapshot") => self.snapshot(&query),
            ("GET" | "HEAD", "/rules") => self.rules(&query),
            ("GET" | "HEAD", "/syncs") => Ok(answer(200, &json!({ "syncs": self.syncs() }))),
            ("POST", "/sync") => Ok(self.order(Order::Sync)),
            ("POST", "/verify") => Ok(self.order(Order::Verify)),
            ("POST" | "PUT", "/log") => Ok(log(&query)),
            (_, "/status" | "/snapshot" | "/rules" | "/syncs" | "/sync" | "/verify" | "/log") => {
                Err(refuse(405, "GET what is read, POST what does something"))
            }
            _ => Err(refuse(404, "there are /status, /snapshot, /rules, /syncs, /sync, /verify and /log")),
        };
        result.unwrap_or_else(|refusal| refusal)
    }

    fn order(&self, order: Order) -> Response {
        if order == Order::Sync {
            self.asked.store(true, Ordering::Relaxed);
        }
        if (self.give)(order) {
            answer(202, &json!({ "asked": format!("{order:?}").to_ascii_lowercase() }))
        } else {
            self.asked.store(false, Ordering::Relaxed);
            refuse(503, "the sync loop has too much to do; ask again")
        }
    }

    fn syncs(&self) -> Vec<Value> {
        self.insight.board.history().iter().map(|sync| json!(**sync)).collect()
    }

    fn status(&self) -> Value {
        let metrics = &self.insight.metrics;
        let (last_event, listed) = self.insight.board.source();
        let (requests, failed) = metrics.client().totals();
        json!({
            "mode": metrics.mode(),
            "node": self.node,
            "version": VERSION,
            "started": metrics.started(),
            "now": metrics.now(),
            "source": {
                "kind": self.source,
                "listed": listed,
                "lastEvent": last_event,
                "requests": requests,
                "requestsFailed": failed,
            },
            "families": self.insight.board.lanes().iter().map(family).collect::<Vec<_>>(),
            "problems": { "count": self.problems.count(), "first": self.problems.first(LISTED) },
        })
    }

    /// What was decided; of what is in force with `state=in_force`.
    fn snapshot(&self, query: &Query) -> Result<Response, Response> {
        let (only, service) = (query.family()?, query.service()?);
        let in_force = match query.get("state") {
            None | Some("desired") => false,
            Some("in_force") => true,
            Some(other) => return Err(refuse(400, &format!("state is desired or in_force, not {other:?}"))),
        };
        let mut families = Vec::new();
        for lane in self.lanes(only) {
            let snapshot = if in_force { &lane.in_force } else { &lane.desired };
            let Some(snapshot) = snapshot else { continue };
            let ports = match &service {
                Some(service) => decisions::of_service(snapshot, service, &lane.set_aside),
                None => snapshot.ports().map(|p| decisions::summary(p)).collect(),
            };
            families.push(json!({
                "family": lane.family.to_string(),
                "generation": snapshot.generation().0,
                "inForce": generation(lane.in_force.as_ref()) == Some(snapshot.generation().0),
                "context": decisions::context(snapshot.context()),
                "servicePorts": ports,
            }));
        }
        Ok(answer(200, &json!({ "families": families })))
    }

    /// What the backend writes for what is in force.
    fn rules(&self, query: &Query) -> Result<Response, Response> {
        let (only, service) = (query.family()?, query.service()?);
        let mut plans = Vec::new();
        for lane in self.lanes(only) {
            let Some(snapshot) = &lane.in_force else { continue };
            let operations = self.printed(lane.family, snapshot, &lane.set_aside, service.as_ref());
            plans.push(json!({
                "backend": lane.backend,
                "family": lane.family.to_string(),
                "generation": snapshot.generation().0,
                "operations": operations,
            }));
        }
        Ok(answer(200, &json!({ "plans": plans })))
    }

    fn printed(
        &self,
        family: IpFamily,
        snapshot: &Snapshot,
        set_aside: &SetAside,
        service: Option<&ServiceName>,
    ) -> Vec<Value> {
        let printers = self.printers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(printer) = printers.iter().find(|p| p.family() == family) else { return Vec::new() };
        let rendered = printer.print(snapshot, set_aside);
        let wanted = |e: &&PlanEntry| {
            service.is_none_or(|service| e.port.as_ref().is_some_and(|p| p.service == *service))
        };
        let operation =
            |e: &PlanEntry| json!({ "text": e.text, "servicePort": e.port.as_ref().map(port_name) });
        rendered.entries.iter().filter(wanted).map(operation).collect()
    }

    fn lanes(&self, only: Option<IpFamily>) -> Vec<LaneState> {
        let mut lanes = self.insight.board.lanes();
        lanes.retain(|l| only.is_none_or(|family| l.family == family));
        lanes
    }
}

fn family(lane: &LaneState) -> Value {
    let set_aside: Vec<Value> = lane
        .set_aside
        .iter()
        .take(LISTED)
        .map(|(port, reason)| json!({ "servicePort": port_name(port), "reason": reason }))
        .collect();
    let failure = lane.last_failure.as_ref();
    json!({
        "family": lane.family.to_string(),
        "backend": lane.backend,
        "desiredGeneration": generation(lane.desired.as_ref()),
        "inForceGeneration": generation(lane.in_force.as_ref()),
        "servicePorts": lane.in_force.as_ref().map_or(0, Snapshot::len),
        "pendingSince": lane.pending_since,
        "lastSync": lane.last_sync.as_deref(),
        "failuresInARow": lane.failures,
        "lastFailure": failure.map(|f| json!({ "at": f.at, "class": f.class, "error": f.error })),
        "setAside": { "count": lane.set_aside.len(), "first": set_aside },
        "lastVerification": lane.verification.map(|(at, differences)| json!({ "at": at, "differences": differences })),
    })
}

/// `level=debug`, a filter as in `logging.level`, or a number as Kubernetes' programs have it.
fn log(query: &Query) -> Response {
    let Some(level) = query.get("level") else {
        return refuse(400, "give level=info, debug, trace or a filter");
    };
    match set_level(level) {
        Ok(filter) => answer(200, &json!({ "level": filter })),
        Err(error) => refuse(400, &error),
    }
}

/// Logs at this level from now on. Returns the filter that is in force.
pub(super) fn set_level(level: &str) -> Result<String, String> {
    let filter = level.parse().map_or(level, |number| telemetry::verbosity(number));
    telemetry::set_filter(filter).map_err(|e| e.to_string())?;
    tracing::info!(filter, "log level changed");
    Ok(filter.to_owned())
}
