//! What is asked of the API server: the resources, their selectors (core spec 1.1), and how a request is written.

use std::fmt::Write as _;
use std::time::Duration;

use proxier_core::ids::NodeName;

use super::course::Ask;
use crate::source::ObjectKind;

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// A resource that is listed and watched.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// What its objects are.
    pub(super) kind: ObjectKind,
    /// Its name in rights and paths.
    pub(super) plural: &'static str,
    /// Its API group; empty for the core group.
    pub(super) group: &'static str,
    version: &'static str,
    /// The part of the query that selects.
    selector: String,
    /// Can nothing be programmed without it?
    pub(super) needed: bool,
}

impl Resource {
    /// Services that are ours to proxy.
    pub(super) fn services() -> Self {
        let labels = encode("!service.kubernetes.io/service-proxy-name");
        let fields = encode("spec.clusterIP!=None");
        Self {
            kind: ObjectKind::Service,
            plural: "services",
            group: "",
            version: "v1",
            selector: format!("labelSelector={labels}&fieldSelector={fields}"),
            needed: true,
        }
    }

    /// EndpointSlices of Services that have a cluster IP.
    pub(super) fn endpoint_slices() -> Self {
        Self {
            kind: ObjectKind::EndpointSlice,
            plural: "endpointslices",
            group: "discovery.k8s.io",
            version: "v1",
            selector: format!("labelSelector={}", encode("!service.kubernetes.io/headless")),
            needed: true,
        }
    }

    /// This node.
    pub(super) fn node(name: &NodeName) -> Self {
        Self {
            kind: ObjectKind::Node,
            plural: "nodes",
            group: "",
            version: "v1",
            selector: format!("fieldSelector={}", encode(&format!("metadata.name={}", name.as_str()))),
            needed: true,
        }
    }

    /// The ranges that cluster IPs come from. Clusters before 1.33 may not have this API.
    pub(super) fn service_cidrs() -> Self {
        Self {
            kind: ObjectKind::ServiceCidr,
            plural: "servicecidrs",
            group: "networking.k8s.io",
            version: "v1",
            selector: String::new(),
            needed: false,
        }
    }

    /// `services in the core group`.
    pub(super) fn describe(&self) -> String {
        match self.group {
            "" => format!("{} in the core group", self.plural),
            group => format!("{} in group {group}", self.plural),
        }
    }

    /// Path and query of a request. A watch ends after `timeout` unless something ends it earlier.
    pub(super) fn path(&self, ask: &Ask, timeout: Duration) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let mut path = format!("{root}/{}/{}?", self.version, self.plural);
        let watch = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={}", timeout.as_secs().max(1));
        let _ = match ask {
            Ask::Stream => {
                write!(path, "{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
            }
            Ask::Watch { version } => write!(path, "{watch}&resourceVersion={}", encode(version)),
            Ask::Page { token: None } => write!(path, "limit={PAGE}"),
            Ask::Page { token: Some(token) } => write!(path, "limit={PAGE}&continue={}", encode(token)),
            Ask::Whole => Ok(()),
        };
        if !self.selector.is_empty() {
            if !path.ends_with('?') {
                path.push('&');
            }
            path.push_str(&self.selector);
        }
        path
    }
}

/// Percent-encodes a value of a query.
fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, b| {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(333);

    #[test]
    fn requests_are_those_a_real_server_was_asked() {
        let services = Resource::services();
        let selector = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name&fieldSelector=spec.clusterIP%21%3DNone";
        assert_eq!(
            services.path(&Ask::Page { token: None }, SECONDS),
            format!("/api/v1/services?limit=500&{selector}")
        );
        assert_eq!(
            services.path(&Ask::Page { token: Some("a+b=".into()) }, SECONDS),
            format!("/api/v1/services?limit=500&continue=a%2Bb%3D&{selector}")
        );
        assert_eq!(services.path(&Ask::Whole, SECONDS), format!("/api/v1/services?{selector}"));
        assert_eq!(
            Resource::endpoint_slices().path(&Ask::Stream, SECONDS),
            "/apis/discovery.k8s.io/v1/endpointslices?watch=1&allowWatchBookmarks=true&timeoutSeconds=333\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &labelSelector=%21service.kubernetes.io%2Fheadless"
        );
        assert_eq!(
            Resource::node(&NodeName::new("worker-1")).path(&Ask::Watch { version: "12".into() }, SECONDS),
            "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=333&resourceVersion=12\
             &fieldSelector=metadata.name%3Dworker-1"
        );
        assert_eq!(
            Resource::service_cidrs().path(&Ask::Whole, SECONDS),
            "/apis/networking.k8s.io/v1/servicecidrs?"
        );
    }

    #[test]
    fn the_group_is_named() {
        assert_eq!(Resource::services().describe(), "services in the core group");
        assert_eq!(Resource::endpoint_slices().describe(), "endpointslices in group discovery.k8s.io");
    }
}
