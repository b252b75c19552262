//! What a test can do wrong.

/// Why the server could not be started or its state not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An object without a kind that the server knows.
    #[error("no resource has objects of kind {kind:?} in {api_version:?}")]
    UnknownKind {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// No resource of that name.
    #[error("no resource is called {0:?}")]
    UnknownResource(String),
    /// An object without a name, or without (or with) a namespace against its kind.
    #[error("{kind} {name:?}: {problem}")]
    BadObject {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// No such object.
    #[error("there is no {resource} {key:?}")]
    NotFound {
        /// The resource.
        resource: String,
        /// `namespace/name` or `name`.
        key: String,
    },
    /// A resource version that is not after the current one.
    #[error("resource version {asked} is not after {current}")]
    NotForward {
        /// What was asked for.
        asked: u64,
        /// The current one.
        current: u64,
    },
    /// An object that does not fit the type asked for.
    #[error("an object does not fit the type: {0}")]
    Type(#[source] serde_json::Error),
    /// YAML that is none.
    #[error("not a list of objects: {0}")]
    Yaml(String),
    /// The listener.
    #[error("cannot listen: {0}")]
    Listen(#[source] std::io::Error),
    /// The runtime of a blocking server.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[source] std::io::Error),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// Keys or client certificates could not be set up.
    #[error("cannot set up TLS: {0}")]
    Verifier(String),
    /// TLS was asked of a server that was built without.
    #[error("the server was built without TLS")]
    NoTls,
}
