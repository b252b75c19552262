//! Events written to the API server, on a thread of its own: nothing waits for it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Limited};
use k8s_openapi::jiff::Timestamp;
use proxier_core::ids::NodeName;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use super::access::Access;
use super::fault::{Fault, Status};
use super::limiter::Rate;
use super::link::Link;
use crate::events::{Event, EventRecorder, EventType, Regarding, log};
use crate::metrics::ClientMetrics;

/// Events that wait; what comes on top is lost to the API server, not to the log.
const WAITING: usize = 128;
/// An event that was written is not written again for so long.
const AGAIN: Duration = Duration::from_secs(600);
/// How often an event is tried.
const TRIES: u32 = 6;
/// The first delay between tries; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the beginning of an answer may take, and then its body.
const ANSWER: Duration = Duration::from_secs(10);
/// Largest answer that is read for its error.
const ERROR_BODY: usize = 64 << 10;

/// Who reports: the name that those who watch a cluster look for (core spec 7.10).
const REPORTER: &str = "kube-proxy";

/// Writes events to the API server, and to the log.
#[derive(Debug)]
pub struct Recorder {
    queue: Sender<Event>,
    /// When each was recorded last.
    seen: Mutex<BTreeMap<String, Instant>>,
}

impl Recorder {
    /// Starts the thread that writes, and counts its requests. It ends when the recorder is dropped and what waited has been tried.
    ///
    /// # Errors
    /// When there is no thread or no runtime to be had.
    pub fn start(
        access: Access,
        node: NodeName,
        rate: Rate,
        metrics: Arc<ClientMetrics>,
    ) -> io::Result<Self> {
        let (queue, events) = channel(WAITING);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("events".to_owned()).spawn(move || {
            let writer = Writer { link: Link::new(access, ANSWER, rate, metrics), node, denied: false };
            runtime.block_on(writer.run(events));
            runtime.shutdown_background();
        })?;
        Ok(Self { queue, seen: Mutex::default() })
    }

    /// Is it time to tell this again?
    fn is_new(&self, event: &Event, now: Instant) -> bool {
        let Event { kind, reason, action, regarding, note } = event;
        let key = format!("{kind} {reason} {action} {regarding:?} {note}");
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, at| now.saturating_duration_since(*at) < AGAIN);
        if seen.contains_key(&key) {
            return false;
        }
        seen.insert(key, now);
        true
    }
}

impl EventRecorder for Recorder {
    fn record(&self, event: Event) {
        if !self.is_new(&event, Instant::now()) {
            return;
        }
        log(&event);
        if self.queue.try_send(event).is_err() {
            tracing::debug!("too many events wait for the API server; this one is in the log only");
        }
    }
}

struct Writer {
    link: Link,
    node: NodeName,
    /// The right to write events is missing; told once.
    denied: bool,
}

impl Writer {
    async fn run(mut self, mut events: Receiver<Event>) {
        while let Some(event) = events.recv().await {
            let (path, object) = written(&event, self.node.as_str(), Timestamp::now());
            self.write(&path, &Bytes::from(object.to_string())).await;
        }
    }

    async fn write(&mut self, path: &str, object: &Bytes) {
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            let fault = match self.post(path, object.clone()).await {
                Ok(()) => {
                    self.denied = false;
                    return;
                }
                Err(fault) => fault,
            };
            self.link.failed(&fault).await;
            let text = fault.describe("create", "events");
            match fault {
                Fault::Forbidden { .. } => {
                    if !std::mem::replace(&mut self.denied, true) {
                        tracing::warn!(reason = %text, "events are in the log only");
                    }
                    return;
                }
                Fault::Absent | Fault::Refused(_) => {
                    tracing::warn!(reason = %text, "the API server does not take an event");
                    return;
                }
                _ if attempt == TRIES => tracing::debug!(reason = %text, "event given up"),
                _ => {
                    sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }

    async fn post(&self, path: &str, object: Bytes) -> Result<(), Fault> {
        self.link.turn().await;
        let response = self.link.post(path, object).await?;
        let (status, after) = (response.status(), super::link::retry_after(&response));
        // The body is read to its end in either case: the connection serves again.
        let body = timeout(ANSWER, Limited::new(response.into_body(), ERROR_BODY).collect()).await;
        if status.is_success() {
            return Ok(());
        }
        let text = body.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
        let said: Status = serde_json::from_slice(&text).unwrap_or_default();
        Err(Fault::of(status.as_u16(), after, &said))
    }
}

/// Where an event is created, and the object (`events.k8s.io/v1`).
fn written(event: &Event, node: &str, now: Timestamp) -> (String, Value) {
    let Event { kind, reason, action, regarding, note } = event;
    // An event about what has no namespace stands in this one (Kubernetes' own rule).
    let (namespace, regarding, name) = match regarding {
        Regarding::Node => ("default", json!({"kind": "Node", "name": node, "uid": node}), node),
        Regarding::Service(service) => (
            &*service.namespace,
            json!({"apiVersion": "v1", "kind": "Service", "namespace": &*service.namespace, "name": &*service.name}),
            &*service.name,
        ),
    };
    let mut object = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{name}.{:x}", now.as_nanosecond())},
        "eventTime": format!("{now:.6}"),
        "reportingController": REPORTER,
        "reportingInstance": format!("{REPORTER}-{node}"),
        "action": action,
        "reason": reason,
        "regarding": regarding,
        "type": match kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
    });
    if !note.is_empty()
        && let Some(map) = object.as_object_mut()
    {
        // The API server takes at most 1 kB.
        let cut = note.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= 1024).last();
        map.insert("note".to_owned(), note[..cut.unwrap_or(0)].into());
    }
    (format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), object)
}

#[cfg(test)]
mod tests {
    use proxier_core::ids::ServiceName;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-30T07:00:00Z".parse().expect("a time")
    }

    #[test]
    fn the_start_is_written_as_the_reference_writes_it() {
        let (path, object) = written(&Event::starting(), "worker", now());
        assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
        // The fields of the fixture of a real API server, and its way of writing times.
        let expected = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "default", "name": object["metadata"]["name"]},
            "eventTime": "2026-11-30T07:00:00.000000Z",
            "reportingController": "kube-proxy",
            "reportingInstance": "kube-proxy-worker",
            "action": "StartKubeProxy",
            "reason": "Starting",
            "regarding": {"kind": "Node", "name": "worker", "uid": "worker"},
            "type": "Normal",
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn what_concerns_a_service_stands_in_its_namespace() {
        let service = ServiceName { namespace: "shop".into(), name: "web".into() };
        let (path, object) = written(&Event::no_health_port(service, "ü".repeat(1000)), "worker", now());
        assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/shop/events");
        assert_eq!(object["regarding"]["name"], "web");
        assert_eq!(
            (&object["reason"], &object["action"], &object["type"]),
            (&"FailedToStartServiceHealthcheck".into(), &"Listen".into(), &"Warning".into())
        );
        assert_eq!(object["note"].as_str().map(str::len), Some(1024));
        assert!(object["metadata"]["name"].as_str().expect("a name").starts_with("web."));
    }

    #[test]
    fn the_same_is_told_again_after_a_while_only() {
        let (queue, _events) = channel(1);
        let recorder = Recorder { queue, seen: Mutex::default() };
        let (event, now) = (Event::starting(), Instant::now());
        assert!(recorder.is_new(&event, now));
        assert!(!recorder.is_new(&event, now + AGAIN / 2));
        assert!(recorder.is_new(&Event::node(EventType::Warning, "IPVSDeprecation", ""), now));
        assert!(recorder.is_new(&event, now + AGAIN));
    }
}
