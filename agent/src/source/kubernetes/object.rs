//! From the server's JSON to objects, without what nobody reads: who wrote which field, the images of a node.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeSpec, NodeStatus, Service, ServiceSpec, ServiceStatus,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::fault::Status;
use crate::source::{Object, ObjectKind, SourceProblem};

/// The annotations that are read; the others are dropped.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) version: Cow<'a, str>,
}

/// One line of a watch.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The object is there.
    Put(&'a RawValue),
    /// The object is gone, or no longer selected.
    Gone(&'a RawValue),
    /// Nothing older than this version will come. `mark`: everything that there was at the beginning has come.
    Bookmark { version: String, mark: bool },
    /// The server gives up.
    Error(Status),
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct RawHead<'a> {
    #[serde(borrow)]
    metadata: HeadMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta<'a> {
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct RawBookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// What a list says beside its items.
#[derive(Debug, Deserialize)]
pub(super) struct ListHead {
    pub(super) metadata: ListMeta,
}

/// Metadata of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) token: Option<String>,
}

/// Reads a line of a watch.
///
/// # Errors
/// What is wrong with it, on one line.
pub(super) fn event(line: &[u8]) -> Result<Event<'_>, String> {
    let raw: RawEvent<'_> = read(line, "an event")?;
    match &*raw.kind {
        "ADDED" | "MODIFIED" => Ok(Event::Put(raw.object)),
        "DELETED" => Ok(Event::Gone(raw.object)),
        "BOOKMARK" => {
            let meta = read::<RawBookmark>(raw.object.get().as_bytes(), "a bookmark")?.metadata;
            let mark = meta.annotations.and_then(|mut a| a.remove(INITIAL_EVENTS_END));
            Ok(Event::Bookmark { version: meta.resource_version, mark: mark.as_deref() == Some("true") })
        }
        "ERROR" => Ok(Event::Error(read(raw.object.get().as_bytes(), "a status")?)),
        other => Err(format!("the server sent an event of unknown type {other:?}")),
    }
}

/// Reads what an object of this kind is.
///
/// # Errors
/// When it has no name or version, or a kind with namespaces none of those.
pub(super) fn head(kind: ObjectKind, json: &[u8]) -> Result<Head<'_>, String> {
    let meta = read::<RawHead<'_>>(json, "an object")?.metadata;
    let given = |value: Option<Cow<'_, str>>, what| match value {
        Some(value) if !value.is_empty() => Ok(value.into_owned()),
        _ => Err(format!("the server sent a {kind} without a {what}")),
    };
    let namespaced = matches!(kind, ObjectKind::Service | ObjectKind::EndpointSlice);
    Ok(Head {
        namespace: if namespaced { given(meta.namespace, "namespace")?.into() } else { Cow::Borrowed("") },
        name: given(meta.name, "name")?.into(),
        version: given(meta.resource_version, "version")?.into(),
    })
}

fn read<'a, T: Deserialize<'a>>(json: &'a [u8], what: &str) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|e| format!("the server sent {what} that cannot be read: {e}"))
}

/// Reads an object.
///
/// # Errors
/// Where it is wrong.
pub(super) fn object(kind: ObjectKind, json: &[u8]) -> Result<Object, SourceProblem> {
    Ok(match kind {
        ObjectKind::Service => Object::Service(Box::new(typed::<SlimService>(json)?.into())),
        ObjectKind::EndpointSlice => Object::EndpointSlice(Box::new(typed::<SlimSlice>(json)?.into())),
        ObjectKind::Node => Object::Node(Box::new(typed::<SlimNode>(json)?.into())),
        ObjectKind::ServiceCidr => Object::ServiceCidr(Box::new(typed::<SlimCidr>(json)?.into())),
    })
}

/// Reads a value; only when that fails, again with an eye on where.
fn typed<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, SourceProblem> {
    if let Ok(value) = serde_json::from_slice(json) {
        return Ok(value);
    }
    let error = match serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json)) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let field = Some(error.path().to_string()).filter(|p| p != ".");
    let message = error.inner().to_string();
    // the place is that in this object's text, which nobody has before them
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(m, _)| m).to_owned();
    Err(SourceProblem { field, ..SourceProblem::whole(message) })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<SlimAnnotations>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

#[derive(Deserialize)]
struct SlimAnnotations {
    #[serde(rename = "endpoints.kubernetes.io/last-change-trigger-time")]
    trigger_time: Option<String>,
}

impl From<SlimMeta> for ObjectMeta {
    fn from(meta: SlimMeta) -> Self {
        let trigger_time = meta.annotations.and_then(|a| a.trigger_time);
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            labels: meta.labels,
            annotations: trigger_time.map(|t| BTreeMap::from([(TRIGGER_TIME.to_owned(), t)])),
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
struct SlimService {
    metadata: SlimMeta,
    spec: Option<ServiceSpec>,
    status: Option<ServiceStatus>,
}

impl From<SlimService> for Service {
    fn from(slim: SlimService) -> Self {
        Self { metadata: slim.metadata.into(), spec: slim.spec, status: slim.status }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSlice {
    metadata: SlimMeta,
    address_type: String,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<EndpointPort>>,
}

impl From<SlimSlice> for EndpointSlice {
    fn from(slim: SlimSlice) -> Self {
        Self {
            metadata: slim.metadata.into(),
            address_type: slim.address_type,
            endpoints: slim.endpoints.unwrap_or_default(),
            ports: slim.ports,
        }
    }
}

#[derive(Deserialize)]
struct SlimNode {
    metadata: SlimMeta,
    spec: Option<NodeSpec>,
    status: Option<SlimNodeStatus>,
}

#[derive(Deserialize)]
struct SlimNodeStatus {
    addresses: Option<Vec<NodeAddress>>,
}

impl From<SlimNode> for Node {
    fn from(slim: SlimNode) -> Self {
        let status = slim.status.map(|s| NodeStatus { addresses: s.addresses, ..NodeStatus::default() });
        Self { metadata: slim.metadata.into(), spec: slim.spec, status }
    }
}

#[derive(Deserialize)]
struct SlimCidr {
    metadata: SlimMeta,
    spec: Option<ServiceCIDRSpec>,
}

impl From<SlimCidr> for ServiceCIDR {
    fn from(slim: SlimCidr) -> Self {
        Self { metadata: slim.metadata.into(), spec: slim.spec, status: None }
    }
}

#[cfg(test)]
mod tests;
