//! Kubernetes objects of a case, through intake.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proxier_core::cluster::Cluster;
use proxier_core::intake::{self, Intake, Problem};
use proxier_core::model::NodeFacts;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Takes objects in, one after another.
pub(super) struct Objects {
    pub(super) cluster: Cluster,
    pub(super) node: NodeFacts,
    pub(super) problems: Vec<Problem>,
}

/// A path within the object, and what is wrong there.
type Fault = (String, String);

impl Objects {
    /// Takes in one object; its namespace is `default` if it says none.
    pub(super) fn add(&mut self, object: Value) -> Result<(), Fault> {
        let object = with_namespace(object);
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        match (version.as_str(), kind.as_str()) {
            ("v1", "Service") => {
                let taken = intake::service(&typed::<Service>(object)?);
                if let Some(service) = self.accept(taken) {
                    self.cluster.upsert_service(service);
                }
            }
            ("discovery.k8s.io/v1", "EndpointSlice") => {
                let taken = intake::endpoint_slice(&typed::<EndpointSlice>(object)?);
                if let Some(slice) = self.accept(taken) {
                    self.cluster.upsert_slice(slice);
                }
            }
            ("v1", "Node") => {
                let taken = intake::node(&typed::<Node>(object)?);
                if let Some(node) = self.accept(taken).filter(|n| n.name == self.node.name) {
                    self.node = NodeFacts { host_addresses: self.node.host_addresses.clone(), ..node };
                }
            }
            _ => return Err(("kind".into(), format!("{version} {kind} is not an object that matters"))),
        }
        Ok(())
    }

    /// Takes it out again, by its name.
    pub(super) fn remove(&mut self, object: Value) -> Result<(), Fault> {
        let object = with_namespace(object);
        if object.get("kind").and_then(Value::as_str) == Some("Service") {
            if let Some(name) = intake::service_name(&typed::<Service>(object)?) {
                self.cluster.remove_service(&name);
            }
        } else if let Some(name) = intake::slice_name(&typed::<EndpointSlice>(object)?) {
            self.cluster.remove_slice(&name);
        }
        Ok(())
    }

    fn accept<T>(&mut self, taken: Intake<T>) -> Option<T> {
        self.problems.extend(taken.problems);
        taken.accepted
    }
}

fn with_namespace(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("namespace").or_insert_with(|| "default".into());
    }
    object
}

fn typed<T: DeserializeOwned>(object: Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(object).map_err(|e| (e.path().to_string(), e.inner().to_string()))
}
