//! What the server says about itself.

use serde_json::{Value, json};

use super::json::pretty;
use super::resource::{RESOURCES, Resource};

/// Version of the server whose answers these are.
const VERSION: &str = concat!(
    r#"{"major":"1","minor":"36","emulationMajor":"1","emulationMinor":"36","minCompatibilityMajor":"1","#,
    r#""minCompatibilityMinor":"35","gitVersion":"v0.0.0-master+8e16b12fda5b1dccc41a6de48b3e356cc7d5048b","#,
    r#""gitCommit":"8e16b12fda5b1dccc41a6de48b3e356cc7d5048b","gitTreeState":"","#,
    r#""buildDate":"1970-01-01T00:00:00Z","goVersion":"go1.26.6","compiler":"gc","platform":"linux/amd64"}"#
);

/// An answer about the server.
pub(super) enum Document {
    /// JSON, compact.
    Json(Vec<u8>),
    /// JSON that is written as it is, whoever asks.
    Fixed(Vec<u8>),
    /// Plain text.
    Text(&'static str),
}

/// The document at a path (without its leading slash), if there is one.
pub(super) fn document(path: &str, address: &str) -> Option<Document> {
    let json = |value: &Value| Some(Document::Json(value.to_string().into_bytes()));
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["version"] => Some(Document::Fixed(pretty(VERSION.as_bytes()))),
        ["healthz" | "livez" | "readyz"] => Some(Document::Text("ok")),
        ["api"] => json(&json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        })),
        ["apis"] => {
            let mut groups: Vec<&str> = RESOURCES.iter().map(|resource| resource.group).collect();
            groups.sort_unstable();
            groups.dedup();
            let groups: Vec<Value> =
                groups.into_iter().filter(|group| !group.is_empty()).filter_map(group_document).collect();
            json(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] => {
            let mut document = group_document(group)?;
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            json(&document)
        }
        ["api", version] => json(&resources("", version)?),
        ["apis", group, version] => json(&resources(group, version)?),
        _ => None,
    }
}

fn group_document(group: &str) -> Option<Value> {
    let resource = RESOURCES.iter().find(|resource| resource.group == group && !group.is_empty())?;
    let version = json!({"groupVersion": resource.api_version(), "version": resource.version});
    Some(json!({"name": group, "versions": [version], "preferredVersion": version}))
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let is_of = |resource: &&Resource| resource.group == group && resource.version == version;
    let all: Vec<&Resource> = RESOURCES.iter().filter(is_of).collect();
    let first = all.first()?;
    let entry = |resource: &&Resource| {
        let mut verbs = vec!["get", "list", "watch"];
        if resource.writable {
            verbs.extend(["create", "delete", "patch", "update"]);
        }
        json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs,
            "shortNames": resource.short,
        })
    };
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": first.api_version(),
        "resources": all.iter().map(entry).collect::<Vec<_>>(),
    }))
}
