//! What is told to the people of a cluster as Events (core spec 7.10). Who writes them to the API, and who only logs them, implements
//! [`EventRecorder`].

use std::fmt;

use proxier_core::ids::{NodeName, ServiceName};

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// A Node.
    Node(NodeName),
    /// A Service.
    Service(ServiceName),
}

impl fmt::Display for Regarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "Node {name}"),
            Self::Service(name) => write!(f, "Service {name}"),
        }
    }
}

/// An event, as `events.k8s.io/v1` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How serious it is.
    pub kind: EventType,
    /// Why, in one word for machines.
    pub reason: &'static str,
    /// What was being done, in one word for machines.
    pub action: &'static str,
    /// What it is about.
    pub regarding: Regarding,
    /// What happened, for people.
    pub note: String,
}

/// Takes events.
pub trait EventRecorder: Send + Sync {
    /// Takes one. Must not block: whoever calls has something more important to do.
    fn record(&self, event: Event);
}

/// Only logs them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoggedEvents;

impl EventRecorder for LoggedEvents {
    fn record(&self, event: Event) {
        let Event { kind, reason, action, regarding, note } = event;
        match kind {
            EventType::Normal => {
                tracing::info!(reason, action, regarding = %regarding, note = %note, "event");
            }
            EventType::Warning => {
                tracing::warn!(reason, action, regarding = %regarding, note = %note, "event");
            }
        }
    }
}
