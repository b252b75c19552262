//! The two kinds of file.

use serde_json::Value;

use super::takes::expected;

/// `apiVersion` of our own file.
pub const API_VERSION: &str = "proxier.io/v1alpha1";
/// `kind` of our own file.
pub const KIND: &str = "ProxierConfiguration";
/// `apiVersion` of kube-proxy's file.
pub const PEER_API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// `kind` of kube-proxy's file.
pub const PEER_KIND: &str = "KubeProxyConfiguration";

/// Which of the two a file is. Without a file it is our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A `KubeProxyConfiguration`, read as kube-proxy reads it.
    Peer,
    /// A `ProxierConfiguration`: the same fields and ours; what stands in it is meant.
    #[default]
    Own,
}

impl Kind {
    /// `apiVersion` and `kind`.
    #[must_use]
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Peer => (PEER_API_VERSION, PEER_KIND),
            Self::Own => (API_VERSION, KIND),
        }
    }

    /// Which one a file says it is, and what is wrong with how it says so; `None` for neither.
    pub(super) fn of(root: &Value) -> (Option<Self>, Vec<(&'static str, String)>) {
        let said = |key: &str| root.get(key).filter(|v| !v.is_null());
        let (version, kind) = (said("apiVersion"), said("kind"));
        let of_peer = |v: &Value| v.as_str().is_some_and(|v| v.starts_with("kubeproxy.config.k8s.io/"));
        let guess = match kind.map(|k| k.as_str().ok_or(k)) {
            Some(Ok(PEER_KIND)) => Self::Peer,
            Some(Ok(KIND)) => Self::Own,
            Some(Ok(other)) => {
                return (None, vec![("kind", format!("{other:?} is not one of {KIND}, {PEER_KIND}"))]);
            }
            Some(Err(other)) => return (None, vec![("kind", expected("a text", other))]),
            None if version.is_some_and(of_peer) => Self::Peer,
            None => Self::Own,
        };
        let (want_version, want_kind) = guess.names();
        let mut faults = Vec::new();
        if kind.is_none() {
            faults.push(("kind", format!("missing; say kind: {want_kind}")));
        }
        match version {
            None => faults.push(("apiVersion", format!("missing; say apiVersion: {want_version}"))),
            Some(v) if v == want_version => {}
            Some(v) => {
                let found = v.as_str().map_or_else(|| expected("a text", v), |t| format!("{t:?} is unknown"));
                faults.push((
                    "apiVersion",
                    format!("{found}; say apiVersion: {want_version} with kind {want_kind}"),
                ));
            }
        }
        (Some(guess), faults)
    }
}
