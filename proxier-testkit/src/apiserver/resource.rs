//! The resources the server knows.

use serde_json::{Map, Value};

use super::shape::{self, Shape};

/// What a request wants to do, as RBAC names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object by name.
    Get,
    /// A collection, once.
    List,
    /// Changes of a collection.
    Watch,
    /// A new object.
    Create,
    /// An object replaced.
    Update,
    /// An object changed in part.
    Patch,
    /// An object removed.
    Delete,
}

impl Verb {
    /// The verb as rules and messages write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One resource of one API version.
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) namespaced: bool,
    /// Whether clients may write it. Everything else is written by the test only.
    pub(super) writable: bool,
    /// Which collection holds its objects: Events are one collection under two groups.
    pub(super) store: usize,
    pub(super) shape: &'static Shape,
    /// What follows the metadata of an object that has nothing else, as bookmarks carry it.
    pub(super) empty: &'static str,
    /// Selectable fields besides name and namespace, each with its place in the stored form.
    pub(super) fields: &'static [(&'static str, &'static str)],
}

/// Number of collections.
pub(super) const STORES: usize = 5;

/// Collection of Events, kept in the form of events.k8s.io/v1.
pub(super) const EVENTS: usize = 4;

/// Top-level fields of an Event: in events.k8s.io/v1, and in core/v1.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Every resource; the first of each collection gives the stored form.
pub(super) static RESOURCES: [Resource; 6] = [
    Resource {
        group: "",
        version: "v1",
        kind: "Service",
        plural: "services",
        singular: "service",
        short: &["svc"],
        namespaced: true,
        writable: false,
        store: 0,
        shape: &shape::SERVICE,
        empty: r#""spec":{},"status":{"loadBalancer":{}}"#,
        fields: &[("spec.clusterIP", "/spec/clusterIP"), ("spec.type", "/spec/type")],
    },
    Resource {
        group: "discovery.k8s.io",
        version: "v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        short: &[],
        namespaced: true,
        writable: false,
        store: 1,
        shape: &shape::ENDPOINT_SLICE,
        empty: r#""addressType":"","endpoints":null,"ports":null"#,
        fields: &[],
    },
    Resource {
        group: "",
        version: "v1",
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short: &["no"],
        namespaced: false,
        writable: false,
        store: 2,
        shape: &shape::NODE,
        empty: concat!(
            r#""spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","#,
            r#""systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","#,
            r#""kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#
        ),
        fields: &[("spec.unschedulable", "/spec/unschedulable")],
    },
    Resource {
        group: "networking.k8s.io",
        version: "v1",
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        singular: "servicecidr",
        short: &[],
        namespaced: false,
        writable: false,
        store: 3,
        shape: &shape::SERVICE_CIDR,
        empty: r#""spec":{},"status":{}"#,
        fields: &[],
    },
    Resource {
        group: "events.k8s.io",
        version: "v1",
        kind: "Event",
        plural: "events",
        singular: "event",
        short: &["ev"],
        namespaced: true,
        writable: true,
        store: EVENTS,
        shape: &shape::EVENT,
        empty: concat!(
            r#""eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"#,
            r#""deprecatedLastTimestamp":null"#
        ),
        fields: &[
            ("regarding.kind", "/regarding/kind"),
            ("regarding.namespace", "/regarding/namespace"),
            ("regarding.name", "/regarding/name"),
            ("regarding.uid", "/regarding/uid"),
            ("reportingController", "/reportingController"),
            ("reason", "/reason"),
            ("type", "/type"),
        ],
    },
    Resource {
        group: "",
        version: "v1",
        kind: "Event",
        plural: "events",
        singular: "event",
        short: &["ev"],
        namespaced: true,
        writable: true,
        store: EVENTS,
        shape: &shape::CORE_EVENT,
        empty: concat!(
            r#""involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"#,
            r#""reportingComponent":"","reportingInstance":"""#
        ),
        fields: &[
            ("involvedObject.kind", "/regarding/kind"),
            ("involvedObject.namespace", "/regarding/namespace"),
            ("involvedObject.name", "/regarding/name"),
            ("involvedObject.uid", "/regarding/uid"),
            ("reportingComponent", "/reportingController"),
            ("source", "/deprecatedSource/component"),
            ("reason", "/reason"),
            ("type", "/type"),
        ],
    },
];

impl Resource {
    /// The resource at `group`/`version`/`plural`.
    pub(super) fn at(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// The resource of objects that call themselves `api_version` and `kind`.
    pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.kind == kind && r.api_version() == api_version)
    }

    /// The first resource called `plural`.
    pub(super) fn called(plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.plural == plural)
    }

    /// The resource whose form a collection keeps.
    pub(super) fn stored(store: usize) -> &'static Self {
        RESOURCES.iter().find(|r| r.store == store).unwrap_or(&RESOURCES[0])
    }

    /// Whether objects are kept in this resource's own form.
    pub(super) fn is_stored_form(&self) -> bool {
        std::ptr::eq(self, Self::stored(self.store))
    }

    /// `v1` or `group/version`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural` or `plural.group`, as messages name it.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `"kind":"...","apiVersion":"...",`: what a single object has before its metadata and an item of a list has not.
    pub(super) fn type_fields(&self) -> String {
        format!(r#""kind":"{}","apiVersion":"{}","#, self.kind, self.api_version())
    }

    /// Brings an object of this resource into the stored form.
    pub(super) fn to_stored(&self, object: &mut Map<String, Value>) {
        if !self.is_stored_form() {
            rename(object, |field| EVENT_FIELDS.iter().find(|(_, core)| *core == field).map(|(new, _)| *new));
        }
        if self.store == EVENTS {
            for (field, default) in [
                ("deprecatedSource", Value::Object(Map::new())),
                ("regarding", Value::Object(Map::new())),
                ("deprecatedFirstTimestamp", Value::Null),
                ("deprecatedLastTimestamp", Value::Null),
                ("eventTime", Value::Null),
            ] {
                object.entry(field).or_insert(default);
            }
        }
    }

    /// Brings an object in the stored form into this resource's.
    pub(super) fn view(&self, object: &mut Map<String, Value>) {
        if !self.is_stored_form() {
            rename(object, |field| EVENT_FIELDS.iter().find(|(new, _)| *new == field).map(|(_, core)| *core));
            for field in ["reportingComponent", "reportingInstance"] {
                object.entry(field).or_insert_with(|| Value::String(String::new()));
            }
        }
    }
}

fn rename(object: &mut Map<String, Value>, new_name: impl Fn(&str) -> Option<&'static str>) {
    let fields = std::mem::take(object);
    object.extend(fields.into_iter().map(|(field, value)| match new_name(&field) {
        Some(new) => (new.to_owned(), value),
        None => (field, value),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_have_two_forms_and_come_back_from_either() {
        let core = Resource::at("", "v1", "events").unwrap();
        let mut event = json!({"involvedObject": {"name": "x"}, "message": "m", "source": {"component": "c"},
            "firstTimestamp": null, "lastTimestamp": null, "eventTime": null, "reportingComponent": "c",
            "reportingInstance": "i"});
        let want = event.clone();
        let object = event.as_object_mut().unwrap();
        core.to_stored(object);
        assert_eq!(object["note"], "m");
        assert_eq!(object["deprecatedSource"]["component"], "c");
        core.view(object);
        assert_eq!(event, want);
    }

    #[test]
    fn each_collection_has_a_stored_form() {
        for (i, resource) in RESOURCES.iter().enumerate() {
            assert!(resource.store < STORES);
            assert_eq!(resource.is_stored_form(), i < STORES);
            assert!(
                serde_json::from_str::<Value>(&format!("{{{}}}", resource.empty)).is_ok(),
                "{}",
                resource.kind
            );
        }
    }
}
