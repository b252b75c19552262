//! What clients may write: Events. Creation, merge patches, replacement and removal.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::object::{Object, key};
use super::request::{Query, Target};
use super::resource::{EVENTS, Resource, Verb};
use super::shared::Shared;
use super::status::Refusal;
use super::store::Store;

/// Longest action, reason and reporting instance, and longest note (Kubernetes API reference, Event).
const SHORT: usize = 128;
const NOTE: usize = 1024;

/// Fields of an Event that are structures of their own, whose parts have owners.
const STRUCTURES: [&str; 2] = ["series", "deprecatedSource"];

/// What comes with a write.
pub(super) struct Write<'a> {
    pub(super) target: &'a Target,
    pub(super) query: &'a Query,
    pub(super) user_agent: &'a str,
    pub(super) content_type: &'a str,
    pub(super) body: &'a [u8],
}

/// Carries a write out: the status code and the object.
pub(super) fn write(shared: &Shared, write: &Write) -> Result<(u16, Bytes), Refusal> {
    let Target { resource, verb, .. } = *write.target;
    if !resource.writable {
        return Err(Refusal::method());
    }
    let media = write.content_type.split(';').next().unwrap_or_default().trim();
    let wanted = match verb {
        Verb::Patch => &["application/merge-patch+json"][..],
        Verb::Delete => &["", "application/json"],
        _ => &["application/json"],
    };
    if !wanted.contains(&media) {
        return Err(Refusal::media_type(415));
    }
    let object = |store: &mut Store| match verb {
        Verb::Create => create(store, write),
        Verb::Patch => patch(store, write),
        Verb::Update => update(store, write),
        _ => delete(store, write),
    };
    let code = if verb == Verb::Create { 201 } else { 200 };
    shared.change(object).map(|bytes| (code, bytes))
}

fn parsed(write: &Write) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(write.body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Refusal::bad_request("the body is not an object")),
        Err(error) => Err(Refusal::bad_request(format!("the body is not JSON: {error}"))),
    }
}

/// The object of the body, in the stored form, checked against the path.
fn given(write: &Write) -> Result<Map<String, Value>, Refusal> {
    let Target { resource, namespace, .. } = write.target;
    let mut fields = parsed(write)?;
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != resource.kind || text("apiVersion") != resource.api_version() {
        let (version, kind) = (text("apiVersion"), text("kind"));
        return Err(Refusal::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}",
            resource.kind
        )));
    }
    fields.remove("kind");
    fields.remove("apiVersion");
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Refusal::bad_request("metadata is not an object"));
    };
    let other = metadata.get("namespace").and_then(Value::as_str).filter(|other| other != namespace);
    if other.is_some_and(|other| !other.is_empty()) {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(message));
    }
    metadata.insert("namespace".into(), namespace.clone().into());
    resource.to_stored(&mut fields);
    let time = fields.get_mut("eventTime").filter(|time| time.is_string());
    if let Some(time) = time {
        *time = micros(time.as_str().unwrap_or_default()).into();
    }
    Ok(fields)
}

fn create(store: &mut Store, write: &Write) -> Result<Bytes, Refusal> {
    let resource = write.target.resource;
    let mut fields = given(write)?;
    let metadata = &mut fields["metadata"];
    let mut name = metadata["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        let start = metadata["generateName"].as_str().unwrap_or_default();
        if start.is_empty() {
            let problem = "Required value: name or generateName is required".to_owned();
            return Err(Refusal::invalid(
                resource.group,
                resource.kind,
                "",
                &[("metadata.name".into(), problem)],
            ));
        }
        name = format!("{start}{}", store.clock.suffix());
        metadata["name"] = name.clone().into();
    }
    check(resource, &name, &fields)?;
    if store.get(EVENTS, &key(&write.target.namespace, &name)).is_some() {
        return Err(Refusal::exists(resource, &name));
    }
    let owner = owner(store, write, &fields);
    fields["metadata"]["managedFields"] = json!([owner]);
    put(store, resource, fields)
}

fn update(store: &mut Store, write: &Write) -> Result<Bytes, Refusal> {
    let (_, name) = existing(store, write)?;
    let mut fields = given(write)?;
    fields["metadata"]["name"] = name.as_str().into();
    check(write.target.resource, &name, &fields)?;
    put(store, write.target.resource, fields)
}

fn patch(store: &mut Store, write: &Write) -> Result<Bytes, Refusal> {
    let resource = write.target.resource;
    let (before, name) = existing(store, write)?;
    let mut fields = before;
    resource.view(&mut fields);
    let mut object = Value::Object(fields);
    let patch = Value::Object(parsed(write)?);
    merge(&mut object, &patch);
    let Value::Object(mut fields) = object else {
        return Err(Refusal::bad_request("the patch leaves no object"));
    };
    for field in ["kind", "apiVersion"] {
        fields.remove(field);
    }
    fields["metadata"]["name"] = name.as_str().into();
    fields["metadata"]["namespace"] = write.target.namespace.as_str().into();
    resource.to_stored(&mut fields);
    check(resource, &name, &fields)?;
    put(store, resource, fields)
}

fn delete(store: &mut Store, write: &Write) -> Result<Bytes, Refusal> {
    let Target { resource, namespace, name, .. } = write.target;
    let (_, object) = store
        .delete(resource, &key(namespace, name), None)
        .map_err(|_| Refusal::no_object(resource, name))?;
    Ok(whole(&object, resource))
}

fn existing(store: &Store, write: &Write) -> Result<(Map<String, Value>, String), Refusal> {
    let Target { resource, namespace, name, .. } = write.target;
    let object =
        store.get(EVENTS, &key(namespace, name)).ok_or_else(|| Refusal::no_object(resource, name))?;
    Ok((object.fields(), name.clone()))
}

fn put(store: &mut Store, resource: &'static Resource, fields: Map<String, Value>) -> Result<Bytes, Refusal> {
    let stored = store.put_stored(resource, fields, None);
    let (_, object) = stored.map_err(|error| Refusal::bad_request(error.to_string()))?;
    Ok(whole(&object, resource))
}

fn whole(object: &Object, resource: &Resource) -> Bytes {
    let mut out = Vec::new();
    object.write(&mut out, resource);
    out.into()
}

/// Puts a merge patch (RFC 7386) over `target`.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (field, change) in changes {
        if change.is_null() {
            fields.remove(field);
        } else {
            merge(fields.entry(field.as_str()).or_insert(Value::Null), change);
        }
    }
}

/// A time with six digits behind the second, as the API writes a MicroTime.
fn micros(time: &str) -> String {
    let Some(time) = time.strip_suffix('Z') else { return time.to_owned() };
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    format!("{seconds}.{fraction:0<6.6}Z")
}

/// The entry of `managedFields` for a creation.
fn owner(store: &Store, write: &Write, fields: &Map<String, Value>) -> Value {
    let agent = write.user_agent.split('/').next().unwrap_or_default();
    let manager = match write.query.text("fieldManager") {
        "" => agent,
        named => named,
    };
    let resource = write.target.resource;
    let mut given = fields.clone();
    given.remove("metadata");
    given.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|inner| !inner.is_empty()));
    let mut owned = Map::new();
    for (field, value) in &given {
        let inner = value.as_object().filter(|_| STRUCTURES.contains(&field.as_str()));
        let mut parts: Map<String, Value> =
            inner.into_iter().flatten().map(|(part, _)| (format!("f:{part}"), json!({}))).collect();
        if field == "series" {
            parts.insert(".".to_owned(), json!({}));
        }
        owned.insert(field.clone(), Value::Object(parts));
    }
    resource.view(&mut owned);
    // A view adds what the form always has; only what was given is owned.
    owned.retain(|_, value| value.is_object());
    let mut owned: Map<String, Value> =
        owned.into_iter().map(|(field, value)| (format!("f:{field}"), value)).collect();
    let metadata: Map<String, Value> = ["labels", "annotations"]
        .into_iter()
        .filter_map(|field| {
            let keys = fields["metadata"][field].as_object()?;
            let mut parts: Map<String, Value> =
                keys.keys().map(|key| (format!("f:{key}"), json!({}))).collect();
            parts.insert(".".to_owned(), json!({}));
            Some((format!("f:{field}"), Value::Object(parts)))
        })
        .collect();
    if !metadata.is_empty() {
        owned.insert("f:metadata".to_owned(), Value::Object(metadata));
    }
    json!({
        "manager": manager,
        "operation": "Update",
        "apiVersion": resource.api_version(),
        "time": store.clock.seconds_text(),
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    })
}

/// What the API asks of an Event (Kubernetes API reference, Event v1 events.k8s.io; core/v1 asks less). Fields are named
/// as the real server names them: by the core form, whatever the request's.
fn check(resource: &Resource, name: &str, fields: &Map<String, Value>) -> Result<(), Refusal> {
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut problems: Vec<(String, String)> = Vec::new();
    let mut problem = |field: &str, what: String| problems.push((field.to_owned(), what));
    let namespace = fields["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = fields["regarding"]["namespace"].as_str().unwrap_or_default();
    let strict = resource.group == "events.k8s.io";
    let mismatch = format!("Invalid value: {about:?}: does not match event.namespace");
    if text("eventTime").is_empty() {
        let agrees = if about.is_empty() { namespace == "default" } else { about == namespace };
        if !agrees {
            problem("involvedObject.namespace", mismatch);
        }
        if strict {
            problem("eventTime", "Required value".to_owned());
        }
    } else {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            problem("involvedObject.namespace", mismatch);
        }
        for field in ["reportingController", "reportingInstance", "action", "reason"] {
            if text(field).is_empty() {
                problem(field, "Required value".to_owned());
            } else if field != "reportingController" && text(field).len() > SHORT {
                problem(field, format!("Invalid value: \"\": can have at most {SHORT} characters"));
            }
        }
        if text("note").len() > NOTE {
            problem("message", format!("Invalid value: \"\": can have at most {NOTE} characters"));
        }
    }
    if strict {
        if !matches!(text("type"), "Normal" | "Warning") {
            problem("type", format!("Invalid value: \"\": has invalid value: {}", text("type")));
        }
        let unset = [
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("deprecatedSource", "source"),
        ];
        for (field, core) in unset {
            let value = fields.get(field).unwrap_or(&Value::Null);
            if !(value.is_null() || value.as_object().is_some_and(Map::is_empty)) {
                problem(core, "Invalid value: \"\": needs to be unset".to_owned());
            }
        }
        if let Some(series) = fields.get("series").filter(|series| !series.is_null()) {
            if series["count"].as_i64().unwrap_or(0) < 2 {
                problem("series.count", "Invalid value: \"\": should be at least 2".to_owned());
            }
            if series["lastObservedTime"].is_null() {
                problem("series.lastObservedTime", "Required value".to_owned());
            }
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(resource.group, resource.kind, name, &problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_get_six_digits() {
        assert_eq!(micros("2026-11-30T07:00:00Z"), "2026-11-30T07:00:00.000000Z");
        assert_eq!(micros("2026-11-30T07:00:00.5Z"), "2026-11-30T07:00:00.500000Z");
        assert_eq!(micros("2026-11-30T07:00:00.123456789Z"), "2026-11-30T07:00:00.123456Z");
    }

    #[test]
    fn patches_merge_and_remove() {
        let mut target = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut target, &json!({"a": {"b": null, "e": {"f": null}}, "d": 3}));
        assert_eq!(target, json!({"a": {"c": 2, "e": {}}, "d": 3}));
    }
}
