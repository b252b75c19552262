//! From JSON text to objects: what a text is, and the typed object it holds.

use std::hash::{DefaultHasher, Hasher};

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::source::{Object, ObjectKey, ObjectKind};

const CORE: &str = "v1";
const DISCOVERY: &str = "discovery.k8s.io/v1";
const NETWORKING: &str = "networking.k8s.io/v1";

/// The part of an object that says what it is.
#[derive(Debug, Deserialize)]
struct Head<'a> {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
    /// Read only when the object is ours: what others have there is not our business.
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "a mapping")]
struct HeadMeta {
    namespace: Option<String>,
    name: Option<String>,
}

/// A fault of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Path of the field, if there is one.
    pub(super) field: Option<String>,
    /// What is wrong.
    pub(super) message: String,
}

impl Fault {
    fn field(field: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: message.into() }
    }
}

/// What a JSON text is.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// An object that we deliver.
    Object(ObjectKey),
    /// A list; the kind is that of items that do not say theirs.
    List(Vec<&'a RawValue>, Option<ObjectKind>),
    /// Something else, none of our business.
    Other,
}

/// Tells what a text is. `default` is the kind of an object that says none.
pub(super) fn classify(
    json: &str,
    default: Option<ObjectKind>,
) -> Result<Found<'_>, (Option<ObjectKey>, Fault)> {
    if !json.starts_with('{') {
        return Err((None, Fault { field: None, message: "expected a mapping".into() }));
    }
    let head: Head<'_> = parse(json).map_err(|f| (None, f))?;
    let (version, kind) = match (head.api_version.as_deref(), head.kind.as_deref(), default) {
        (Some(version), Some(kind), _) => (version, kind),
        (None, None, Some(kind)) => return key(kind, head.metadata),
        (None, _, _) => return Err((None, Fault::field("apiVersion", "missing"))),
        (_, None, _) => return Err((None, Fault::field("kind", "missing"))),
    };
    let list = |kind| match head.items.map(|raw| parse::<Vec<&RawValue>>(raw.get())) {
        None => Ok(Found::List(Vec::new(), kind)),
        Some(Ok(items)) => Ok(Found::List(items, kind)),
        Some(Err(fault)) => Err((None, Fault::field("items", fault.message))),
    };
    match (version, kind) {
        (CORE, "Service") => key(ObjectKind::Service, head.metadata),
        (DISCOVERY, "EndpointSlice") => key(ObjectKind::EndpointSlice, head.metadata),
        (CORE, "Node") => key(ObjectKind::Node, head.metadata),
        (NETWORKING, "ServiceCIDR") => key(ObjectKind::ServiceCidr, head.metadata),
        (CORE, "List") => list(None),
        (CORE, "ServiceList") => list(Some(ObjectKind::Service)),
        (DISCOVERY, "EndpointSliceList") => list(Some(ObjectKind::EndpointSlice)),
        (CORE, "NodeList") => list(Some(ObjectKind::Node)),
        (NETWORKING, "ServiceCIDRList") => list(Some(ObjectKind::ServiceCidr)),
        (other, "EndpointSlice" | "EndpointSliceList") if other.starts_with("discovery.k8s.io/") => {
            let object = key(ObjectKind::EndpointSlice, head.metadata).ok().and_then(|f| match f {
                Found::Object(key) => Some(key),
                _ => None,
            });
            Err((object, Fault::field("apiVersion", format!("{other} is not supported, only {DISCOVERY}"))))
        }
        _ => Ok(Found::Other),
    }
}

fn key<'a>(kind: ObjectKind, meta: Option<&RawValue>) -> Result<Found<'a>, (Option<ObjectKey>, Fault)> {
    let meta: HeadMeta = meta
        .map(|raw| parse(raw.get()))
        .transpose()
        .map_err(|fault| {
            let below = fault.field.map(|f| format!("metadata.{f}"));
            (None, Fault { field: Some(below.unwrap_or_else(|| "metadata".into())), message: fault.message })
        })?
        .unwrap_or_default();
    let Some(name) = meta.name.filter(|n| !n.is_empty()) else {
        return Err((None, Fault::field("metadata.name", "missing")));
    };
    let namespace = match kind {
        ObjectKind::Node | ObjectKind::ServiceCidr => String::new(),
        _ => meta.namespace.filter(|n| !n.is_empty()).unwrap_or_else(|| "default".into()),
    };
    Ok(Found::Object(ObjectKey { kind, namespace: namespace.into(), name: name.into() }))
}

/// The object that a text holds, its namespace filled in, without its record of who wrote which field.
pub(super) fn object(key: &ObjectKey, json: &str) -> Result<Object, Fault> {
    fn typed<T: DeserializeOwned + Metadata<Ty = ObjectMeta>>(
        key: &ObjectKey,
        json: &str,
    ) -> Result<Box<T>, Fault> {
        let mut object: Box<T> = parse(json)?;
        let meta = object.metadata_mut();
        meta.managed_fields = None;
        if !key.namespace.is_empty() {
            meta.namespace = Some(key.namespace.to_string());
        }
        Ok(object)
    }
    Ok(match key.kind {
        ObjectKind::Service => Object::Service(typed::<Service>(key, json)?),
        ObjectKind::EndpointSlice => Object::EndpointSlice(typed::<EndpointSlice>(key, json)?),
        ObjectKind::Node => Object::Node(typed::<Node>(key, json)?),
        ObjectKind::ServiceCidr => Object::ServiceCidr(typed::<ServiceCIDR>(key, json)?),
    })
}

/// Reads a text; only when that fails, again with an eye on where.
fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Fault> {
    if let Ok(value) = serde_json::from_str(json) {
        return Ok(value);
    }
    let error = match serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json)) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let field = Some(error.path().to_string()).filter(|p| p != ".");
    let message = error.inner().to_string();
    // the place is that in this object's text, which nobody has before them
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(m, _)| m).to_owned();
    Err(Fault { field, message })
}

/// A hash of an object's text.
pub(super) fn hash(json: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(json.as_bytes());
    hasher.finish()
}
