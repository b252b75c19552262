//! Events for those who look with `kubectl describe` (core spec 7.10): what happened to this node and to Services on it.

use std::fmt;
use std::sync::Arc;

use proxier_core::ids::ServiceName;

/// Is it good or bad news?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        })
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Regarding {
    /// This node.
    Node,
    /// A Service.
    Service(ServiceName),
}

impl fmt::Display for Regarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("this node"),
            Self::Service(name) => write!(f, "Service {name}"),
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Good or bad.
    pub kind: EventType,
    /// What happened, in one word.
    pub reason: &'static str,
    /// What was being done.
    pub action: &'static str,
    /// What it is about.
    pub regarding: Regarding,
    /// More, for people; may be empty.
    pub note: String,
}

impl Event {
    /// This node's proxy started.
    #[must_use]
    pub fn starting() -> Self {
        Self::node(EventType::Normal, "Starting", "")
    }

    /// Something about this node's proxy; the action is the reference's.
    #[must_use]
    pub fn node(kind: EventType, reason: &'static str, note: impl Into<String>) -> Self {
        Self { kind, reason, action: "StartKubeProxy", regarding: Regarding::Node, note: note.into() }
    }

    /// A Service's health check port cannot be served.
    #[must_use]
    pub fn no_health_port(service: ServiceName, note: impl Into<String>) -> Self {
        Self {
            kind: EventType::Warning,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            regarding: Regarding::Service(service),
            note: note.into(),
        }
    }
}

/// Where events go. Recording never blocks, and an event may be lost: the log has it in any case.
pub trait EventRecorder: Send + Sync {
    /// Takes an event.
    fn record(&self, event: Event);
}

/// Events go to the log and nowhere else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logged;

impl EventRecorder for Logged {
    fn record(&self, event: Event) {
        log(&event);
    }
}

/// A recorder that several hold.
pub type SharedRecorder = Arc<dyn EventRecorder>;

/// Writes an event to the log.
pub(crate) fn log(event: &Event) {
    let Event { kind, reason, regarding, note, .. } = event;
    match kind {
        EventType::Normal => tracing::info!(reason, regarding = %regarding, note, "event"),
        EventType::Warning => tracing::warn!(reason, regarding = %regarding, note, "event"),
    }
}
