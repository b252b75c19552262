//! Refusals: `Status` objects, worded as the real server words them.

use super::json;
use super::resource::{Resource, Verb};

/// Why a request is refused.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: u16,
    /// A `StatusReason`; empty where the real server gives none.
    reason: &'static str,
    message: String,
    /// The inside of `details`, as JSON fields.
    details: Option<String>,
    /// A token by which a list can go on.
    resume: Option<String>,
    pub(super) retry_after: Option<u64>,
    /// Forbids browsers to guess a type.
    pub(super) nosniff: bool,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let (message, details, resume, retry_after) = (message.into(), None, None, None);
        Self { code, reason, message, details, resume, retry_after, nosniff: false }
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden(
        user: &str,
        verb: Verb,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Self {
        let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {namespace:?}")
        };
        let message = format!(
            "{}{named} is forbidden: User {user:?} cannot {} resource {:?} in API group {:?} {place}",
            resource.qualified(),
            verb.name(),
            resource.plural,
            resource.group
        );
        let mut refusal = Self::new(403, "Forbidden", message).about(resource, name);
        refusal.nosniff = true;
        refusal
    }

    pub(super) fn no_path() -> Self {
        let refusal = Self::new(404, "NotFound", "the server could not find the requested resource");
        Self { details: Some(String::new()), ..refusal }
    }

    pub(super) fn no_object(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified()))
            .about(resource, name)
    }

    pub(super) fn exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", resource.qualified()))
            .about(resource, name)
    }

    pub(super) fn method() -> Self {
        let refusal = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        Self { details: Some(String::new()), ..refusal }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn media_type(code: u16) -> Self {
        let message = "only the following media types are accepted: application/json";
        let reason = if code == 406 { "NotAcceptable" } else { "UnsupportedMediaType" };
        Self::new(code, reason, message)
    }

    /// Fields of `kind` (with its group) that are wrong: each the field and what is wrong with it.
    pub(super) fn invalid(group: &str, kind: &str, name: &str, problems: &[(String, String)]) -> Self {
        let texts: Vec<String> =
            problems.iter().map(|(field, problem)| format!("{field}: {problem}")).collect();
        let problems = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let refusal = Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {problems}"));
        refusal.details_of(group, kind, name)
    }

    pub(super) fn bad_version(text: &str) -> Self {
        let message = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        Self::new(500, "", message)
    }

    pub(super) fn list_expired() -> Self {
        Self::new(410, "Expired", "The resourceVersion for the provided list is too old.")
    }

    /// An expired continue token; `resume` is the one to go on with.
    pub(super) fn token_expired(resume: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start \
                       a new list without the continue parameter, or use the continue token in this response to \
                       retrieve the remainder of the results. Continuing with the provided token results in an \
                       inconsistent list - objects that were created, modified, or deleted between the time the \
                       first chunk was returned and now may show up in the list.";
        Self { resume: Some(resume), ..Self::new(410, "Expired", message) }
    }

    /// A watch from before what is remembered.
    pub(super) fn watch_expired(version: u64, floor: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {version} ({floor})"))
    }

    pub(super) fn from_the_future(version: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        let causes =
            r#""causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]"#;
        let details = Some(format!(r#"{causes},"retryAfterSeconds":1"#));
        Self { details, retry_after: Some(1), ..Self::new(504, "Timeout", message) }
    }

    /// A refusal on demand.
    pub(super) fn on_demand(code: u16, retry_after: Option<u64>) -> Self {
        let (reason, message) = match code {
            401 => return Self::unauthorized(),
            410 => return Self { retry_after, ..Self::list_expired() },
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            500 => ("InternalError", "Internal error occurred: a fault on demand"),
            503 => ("ServiceUnavailable", "apiserver not ready"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            _ => ("", "a fault on demand"),
        };
        let details = retry_after.map(|seconds| format!(r#""retryAfterSeconds":{seconds}"#));
        Self { details, retry_after, ..Self::new(code, reason, message) }
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        self.details_of(resource.group, resource.plural, name)
    }

    fn details_of(mut self, group: &str, kind: &str, name: &str) -> Self {
        let fields = [("name", name), ("group", group), ("kind", kind)];
        let mut out = Vec::new();
        for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            if !out.is_empty() {
                out.push(b',');
            }
            json::write_string(&mut out, field);
            out.push(b':');
            json::write_string(&mut out, value);
        }
        self.details = String::from_utf8(out).ok();
        self
    }

    /// The `Status` object, compact.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut out = br#"{"kind":"Status","apiVersion":"v1","metadata":{"#.to_vec();
        if let Some(token) = &self.resume {
            out.extend_from_slice(br#""continue":"#);
            json::write_string(&mut out, token);
        }
        out.extend_from_slice(br#"},"status":"Failure","message":"#);
        json::write_string(&mut out, &self.message);
        if !self.reason.is_empty() {
            out.extend_from_slice(format!(r#","reason":"{}""#, self.reason).as_bytes());
        }
        if let Some(details) = &self.details {
            out.extend_from_slice(format!(r#","details":{{{details}}}"#).as_bytes());
        }
        out.extend_from_slice(format!(r#","code":{}}}"#, self.code).as_bytes());
        out
    }
}
