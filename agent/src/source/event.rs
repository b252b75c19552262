//! What sources say.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;

/// A kind of object that is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `v1` Node.
    Node,
    /// `networking.k8s.io/v1` ServiceCIDR.
    ServiceCidr,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Node => "Node",
            Self::ServiceCidr => "ServiceCIDR",
        })
    }
}

/// Identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: ObjectKind,
    /// Namespace; empty for a Node and a ServiceCIDR.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object as the API has it, perhaps without what nobody reads. Name and, if its kind has one, namespace are set.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A Service.
    Service(Box<Service>),
    /// An EndpointSlice.
    EndpointSlice(Box<EndpointSlice>),
    /// A Node.
    Node(Box<Node>),
    /// A ServiceCIDR.
    ServiceCidr(Box<ServiceCIDR>),
}

impl Object {
    /// For an EndpointSlice, the name of the Service that it says it belongs to.
    #[must_use]
    pub fn owning_service(&self) -> Option<&str> {
        let Self::EndpointSlice(slice) = self else { return None };
        let label = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
        Some(label).filter(|l| !l.is_empty()).map(String::as_str)
    }
}

/// Something that a source cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceProblem {
    /// Number of the document in its file, from 1.
    pub document: Option<usize>,
    /// Number of the item in its list, from 1.
    pub item: Option<usize>,
    /// The object, if it can be told.
    pub object: Option<ObjectKey>,
    /// Path of the field, e.g. `spec.ports[0].port`.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl SourceProblem {
    /// A problem with a file as a whole.
    #[must_use]
    pub fn whole(message: impl Into<String>) -> Self {
        Self { document: None, item: None, object: None, field: None, message: message.into() }
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.document, self.item) {
            (Some(document), Some(item)) => write!(f, "document {document}, item {item}: ")?,
            (Some(document), None) => write!(f, "document {document}: ")?,
            (None, _) => {}
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// This object is new or different.
    Upsert(Object),
    /// This object is gone.
    Delete {
        /// Which one.
        key: ObjectKey,
        /// For an EndpointSlice, the Service that it belonged to. A slice that changes owner is first deleted from the old one.
        service: Option<Arc<str>>,
    },
    /// Everything that was there at the start has been delivered. Said once.
    Synced,
    /// All problems that there now are with a file or folder, in place of those said before; none means that it is well again.
    /// The objects concerned keep their last good state.
    Problems {
        /// The file or folder.
        origin: Arc<str>,
        /// Its problems.
        problems: Vec<SourceProblem>,
    },
}
