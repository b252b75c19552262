//! What is wrong with a part of an API object, and the pen that writes it down.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::ids::{Port, Protocol};
use crate::names::truncate_comment;

/// Longest part of a value that is repeated to the operator, in bytes.
const MAX_VALUE: usize = 100;
/// Longest namespace, name or port name: that of a DNS label (RFC 1123), on which the lengths of [`names`](crate::names) rest.
pub(super) const MAX_LABEL: usize = 63;
/// Longest name of an EndpointSlice or Node: that of a DNS subdomain.
pub(super) const MAX_SUBDOMAIN: usize = 253;

/// A part of an API object that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// Kind, namespace and name of the object.
    pub object: String,
    /// Path of the field.
    pub field: String,
    /// The value found there, at most 100 bytes of it; `None` when there is none.
    pub value: Option<String>,
    /// What is wrong with it: continues a sentence that begins with the value.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.field)?;
        match &self.value {
            Some(value) => write!(f, ": {value:?} {}", self.message),
            None => write!(f, " {}", self.message),
        }
    }
}

/// Collects the problems of one object.
pub(super) struct Report {
    object: String,
    pub(super) problems: Vec<Problem>,
}

impl Report {
    pub(super) fn new(object: String) -> Self {
        Self { object, problems: Vec::new() }
    }

    pub(super) fn add(&mut self, field: impl Into<String>, value: Option<&str>, message: impl Into<String>) {
        self.problems.push(Problem {
            object: self.object.clone(),
            field: field.into(),
            value: value.map(|v| truncate_comment(v, MAX_VALUE).to_owned()),
            message: message.into(),
        });
    }

    /// A port number; nothing and 0 are reported as missing, others out of range as such.
    pub(super) fn port(&mut self, field: impl Into<String>, number: Option<i32>) -> Option<Port> {
        let Some(number) = number.filter(|n| *n != 0) else {
            self.add(field, None, "is missing or 0");
            return None;
        };
        let port = u16::try_from(number).ok().and_then(Port::new);
        if port.is_none() {
            self.add(field, Some(&number.to_string()), "is not a port number from 1 to 65535");
        }
        port
    }

    /// A protocol; none means TCP, as the API's default is.
    pub(super) fn protocol(&mut self, field: impl Into<String>, name: Option<&str>) -> Option<Protocol> {
        match name {
            None | Some("" | "TCP") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some("SCTP") => Some(Protocol::Sctp),
            Some(other) => {
                self.add(field, Some(other), "is not TCP, UDP or SCTP");
                None
            }
        }
    }

    /// May this name stand in kernel object names and comments?
    pub(super) fn usable_name(&mut self, field: impl Into<String>, name: &str, max: usize) -> bool {
        let problem = name_problem(name, max);
        if let Some(message) = &problem {
            self.add(field, Some(name), message);
        }
        problem.is_none()
    }
}

/// Names come from the API server, which checks them; this keeps out what could not be printed as part of a rule.
fn name_problem(name: &str, max: usize) -> Option<String> {
    if name.len() > max {
        return Some(format!("is longer than {max} bytes"));
    }
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    (!name.bytes().all(fine))
        .then(|| "has characters other than letters, digits, '-', '.' and '_'".to_owned())
}

/// Namespace and name of a namespaced object, or why they cannot be used.
pub(super) fn identity<'a>(
    kind: &str,
    metadata: &'a ObjectMeta,
    max_name: usize,
) -> Result<(&'a str, &'a str), Problem> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let object =
        format!("{kind} {}/{}", truncate_comment(namespace, MAX_VALUE), truncate_comment(name, MAX_VALUE));
    part(&object, "metadata.namespace", namespace, MAX_LABEL)?;
    part(&object, "metadata.name", name, max_name)?;
    Ok((namespace, name))
}

/// A non-empty, printable part of an identity.
pub(super) fn part(object: &str, field: &str, value: &str, max: usize) -> Result<(), Problem> {
    let message = if value.is_empty() { Some("is empty".to_owned()) } else { name_problem(value, max) };
    let Some(message) = message else { return Ok(()) };
    let value = (!value.is_empty()).then(|| truncate_comment(value, MAX_VALUE).to_owned());
    // The object's name is not trusted here: control characters must not reach a log.
    let object = object.escape_debug().to_string();
    Err(Problem { object, field: field.to_owned(), value, message })
}
