//! Kubernetes API objects to the [`model`](crate::model), part by part (core spec 1).
//!
//! A malformed part (an address that does not parse, port 0, an unknown protocol) loses that part only, and a [`Problem`]
//! says so; the rest of the object is used. Objects that are not for us are ignored with a reason. Nothing here
//! decides: gates, endpoint choice and conflicts come later.

use std::fmt;

mod node;
mod problem;
mod service;
mod slice;
#[cfg(test)]
mod tests;

pub use node::node;
pub use problem::Problem;
pub use service::{service, service_name};
pub use slice::{endpoint_slice, slice_name};

/// What became of one API object.
///
/// `accepted` and `ignored` are never both set. Neither is set when the object was rejected as a whole; then `problems`
/// says why. Whoever holds an older version of an object that is not accepted must drop it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intake<T> {
    /// The object, as far as it is usable.
    pub accepted: Option<T>,
    /// Why it is not for us.
    pub ignored: Option<Ignored>,
    /// What is wrong with it, in the order of its fields.
    pub problems: Vec<Problem>,
}

impl<T> Intake<T> {
    fn ignored(reason: Ignored) -> Self {
        Self { accepted: None, ignored: Some(reason), problems: Vec::new() }
    }

    fn rejected(problem: Problem) -> Self {
        Self { accepted: None, ignored: None, problems: vec![problem] }
    }
}

/// Why an object is not for us; none of these is an error (core spec 1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ignored {
    /// A Service whose `clusterIP` is `None`.
    Headless,
    /// A Service of type ExternalName, even one with a cluster IP.
    ExternalName,
    /// A Service whose `clusterIP` is empty.
    NoClusterIp,
    /// A Service with label `service.kubernetes.io/service-proxy-name`, whatever its value.
    OtherProxy,
    /// An EndpointSlice with label `service.kubernetes.io/headless`, whatever its value.
    HeadlessSlice,
    /// An EndpointSlice without a value in label `kubernetes.io/service-name`.
    NoService,
    /// An EndpointSlice whose address type is neither IPv4 nor IPv6.
    UnsupportedAddressType,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headless => "headless service",
            Self::ExternalName => "service of type ExternalName",
            Self::NoClusterIp => "service without a cluster IP",
            Self::OtherProxy => "service for another proxy",
            Self::HeadlessSlice => "endpoint slice of a headless service",
            Self::NoService => "endpoint slice without a service",
            Self::UnsupportedAddressType => "endpoint slice of an unsupported address type",
        })
    }
}
