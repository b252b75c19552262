//! One version of one object: its JSON, written once, and what selectors ask for.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::json;
use super::resource::{RESOURCES, Resource};

/// One version of one object, as stored.
#[derive(Debug)]
pub(super) struct Object {
    /// `namespace/name`, or `name` without a namespace: the order of lists.
    pub(super) key: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    fields: Vec<(&'static str, String)>,
    store: usize,
    /// JSON without kind and apiVersion, in the stored form.
    body: Bytes,
    /// The same in the collection's other form, where it has one.
    other: OnceLock<Bytes>,
}

impl Object {
    /// `value` without kind and apiVersion, in the stored form of the collection `store`.
    pub(super) fn new(store: usize, value: &Value) -> Self {
        let text = |pointer: &str| match value.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            _ => String::new(),
        };
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let labels = value.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let fields =
            RESOURCES.iter().filter(|resource| resource.store == store).flat_map(|resource| resource.fields);
        Self {
            key: key(&namespace, &name),
            labels: labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
            fields: fields.map(|(label, pointer)| (*label, text(pointer))).collect(),
            namespace,
            name,
            store,
            body: rendered(value, Resource::stored(store)),
            other: OnceLock::new(),
        }
    }

    /// JSON as an item of a list of `resource`: without kind and apiVersion.
    pub(super) fn item(&self, resource: &Resource) -> &Bytes {
        if resource.is_stored_form() {
            return &self.body;
        }
        self.other.get_or_init(|| {
            let mut fields = self.fields();
            resource.view(&mut fields);
            rendered(&Value::Object(fields), resource)
        })
    }

    /// Appends the whole object, with kind and apiVersion.
    pub(super) fn write(&self, out: &mut Vec<u8>, resource: &Resource) {
        out.push(b'{');
        out.extend_from_slice(resource.type_fields().as_bytes());
        out.extend_from_slice(&self.item(resource)[1..]);
    }

    /// The stored form, parsed again.
    pub(super) fn fields(&self) -> Map<String, Value> {
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }

    /// The whole object in the stored form.
    pub(super) fn value(&self) -> Value {
        let mut fields = self.fields();
        let resource = Resource::stored(self.store);
        fields.insert("kind".into(), resource.kind.into());
        fields.insert("apiVersion".into(), resource.api_version().into());
        Value::Object(fields)
    }

    /// The same object under another resource version, as an event about its end carries it.
    pub(super) fn at_version(&self, version: u64) -> Self {
        let mut value = Value::Object(self.fields());
        value["metadata"]["resourceVersion"] = version.to_string().into();
        Self::new(self.store, &value)
    }

    /// The value of a selectable field; empty where the object does not have it.
    pub(super) fn field(&self, label: &str) -> Option<&str> {
        match label {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => self.fields.iter().find(|(known, _)| *known == label).map(|(_, value)| value.as_str()),
        }
    }
}

/// Where an object is in its collection.
pub(super) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn rendered(value: &Value, resource: &Resource) -> Bytes {
    let mut out = Vec::new();
    json::write(&mut out, value, resource.shape);
    out.into()
}
