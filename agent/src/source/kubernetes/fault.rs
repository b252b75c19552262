//! What can go wrong between us and the API server, and what it says about itself.

use std::error::Error;
use std::time::Duration;

use serde::Deserialize;

/// Longest delay that a server may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A request that did not end as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The version or the continue token is too old (410).
    Expired,
    /// The server does not take such a request.
    Refused(String),
    /// We lack the right (403). The user is whom the server takes us for.
    Forbidden { user: Option<String> },
    /// The server does not accept who we are (401).
    Unauthorized(String),
    /// The server cannot be asked: something is wrong with the configuration or the credentials.
    Setup(String),
    /// There is no such API (404).
    Absent,
    /// The server has too much to do (429, 503, 504); it may say how long to wait.
    Busy { code: u16, after: Option<Duration>, message: String },
    /// The server failed otherwise.
    Server { code: u16, message: String },
    /// No connection.
    Unreachable(String),
    /// The answer ended too early, or is no answer.
    Broken(String),
    /// Nothing came for so long.
    Silent(Duration),
}

/// A fault without its details, to tell whether it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Will pass by itself.
    Passing,
    Refused,
    Forbidden,
    Unauthorized,
    Setup,
    Absent,
    Unreachable,
}

impl Fault {
    /// What an answer with this status code means.
    pub(super) fn of(code: u16, retry_after: Option<Duration>, status: &Status) -> Self {
        let message = status.message.clone().unwrap_or_else(|| format!("status {code}"));
        let after = status.details.as_ref().and_then(|d| d.retry_after_seconds).map(Duration::from_secs);
        let after = retry_after.or(after).filter(|a| !a.is_zero()).map(|a| a.min(LONGEST_RETRY_AFTER));
        match code {
            410 => Self::Expired,
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden { user: quoted_user(&message) },
            404 => Self::Absent,
            429 | 503 | 504 => Self::Busy { code, after, message },
            400..=499 | 501 => Self::Refused(message),
            500..=599 => Self::Server { code, message },
            _ => Self::Broken(format!("unexpected status {code}")),
        }
    }

    pub(super) fn sort(&self) -> Sort {
        match self {
            Self::Refused(_) => Sort::Refused,
            Self::Forbidden { .. } => Sort::Forbidden,
            Self::Unauthorized(_) => Sort::Unauthorized,
            Self::Setup(_) => Sort::Setup,
            Self::Absent => Sort::Absent,
            Self::Unreachable(_) => Sort::Unreachable,
            Self::Expired | Self::Busy { .. } | Self::Server { .. } | Self::Broken(_) | Self::Silent(_) => {
                Sort::Passing
            }
        }
    }

    /// What went wrong with doing `verb` to `what` (`services in the core group`), for people.
    pub(super) fn describe(&self, verb: &str, what: &str) -> String {
        match self {
            Self::Expired => format!("cannot {verb} {what}: the version is too old for the server"),
            Self::Refused(message) => format!("the server refuses to {verb} {what}: {message}"),
            Self::Forbidden { user } => {
                let user = user.as_deref().unwrap_or("this agent's user");
                format!("not allowed: {verb} {what}; grant it to {user}")
            }
            Self::Unauthorized(message) => {
                format!("the API server does not accept our credentials: {message}")
            }
            Self::Setup(message) => format!("the API server cannot be asked: {message}"),
            Self::Absent => format!("cannot {verb} {what}: the server has no such API"),
            Self::Busy { code, message, .. } | Self::Server { code, message } => {
                format!("cannot {verb} {what}: status {code}: {message}")
            }
            Self::Unreachable(message) => format!("the API server cannot be reached: {message}"),
            Self::Broken(message) => format!("cannot {verb} {what}: {message}"),
            Self::Silent(limit) => format!("cannot {verb} {what}: the server said nothing for {limit:?}"),
        }
    }
}

/// `v1` Status, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Status {
    pub(super) message: Option<String>,
    pub(super) code: Option<u16>,
    pub(super) details: Option<Details>,
}

/// The details of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Details {
    pub(super) retry_after_seconds: Option<u64>,
}

/// The user in `services is forbidden: User "NAME" cannot list ...`.
fn quoted_user(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("User \"")?;
    let (user, _) = rest.split_once('"')?;
    (!user.is_empty()).then(|| user.to_owned())
}

/// An error with its causes, as far as they say something new, on one line.
pub(super) fn explain(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        if said.is_empty() {
            line.clone_into(&mut said);
        } else if !said.contains(line) {
            said.push_str(": ");
            said.push_str(line);
        }
        next = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(message: &str) -> Status {
        Status { message: Some(message.into()), ..Status::default() }
    }

    #[test]
    fn codes_are_told_apart() {
        let of = |code| Fault::of(code, None, &status("m"));
        assert_eq!(of(410), Fault::Expired);
        assert_eq!(of(404), Fault::Absent);
        for code in [400, 405, 406, 415, 422, 501] {
            assert_eq!(of(code), Fault::Refused("m".into()), "{code}");
        }
        for code in [429, 503, 504] {
            assert_eq!(of(code), Fault::Busy { code, after: None, message: "m".into() });
        }
        assert_eq!(of(500), Fault::Server { code: 500, message: "m".into() });
        assert_eq!(of(302), Fault::Broken("unexpected status 302".into()));
    }

    #[test]
    fn the_delay_is_the_headers_else_the_bodys_and_bounded() {
        let after = |header, body| {
            let details = Some(Details { retry_after_seconds: body });
            match Fault::of(429, header, &Status { details, ..Status::default() }) {
                Fault::Busy { after, .. } => after,
                other => panic!("{other:?}"),
            }
        };
        let seconds = Duration::from_secs;
        assert_eq!(after(None, None), None);
        assert_eq!(after(None, Some(2)), Some(seconds(2)));
        assert_eq!(after(Some(seconds(7)), Some(2)), Some(seconds(7)));
        assert_eq!(after(Some(seconds(0)), None), None);
        assert_eq!(after(Some(seconds(86_400)), None), Some(LONGEST_RETRY_AFTER));
    }

    #[test]
    fn a_missing_right_names_verb_resource_group_and_user() {
        let message = "endpointslices.discovery.k8s.io is forbidden: User \"system:serviceaccount:kube-system:proxier\" \
                       cannot watch resource \"endpointslices\" in API group \"discovery.k8s.io\" at the cluster scope";
        let fault = Fault::of(403, None, &status(message));
        assert_eq!(
            fault.describe("watch", "endpointslices in group discovery.k8s.io"),
            "not allowed: watch endpointslices in group discovery.k8s.io; \
             grant it to system:serviceaccount:kube-system:proxier"
        );
        let bare = Fault::of(403, None, &status("no"));
        assert!(bare.describe("list", "x").ends_with("grant it to this agent's user"));
    }

    #[test]
    fn causes_are_told_once_and_by_their_first_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("connecting")]
        struct Outer(#[source] std::io::Error);
        let inner = || std::io::Error::other("refused\n  at some place");
        assert_eq!(explain(&Outer(inner())), "connecting: refused");
        assert_eq!(explain(&inner()), "refused");
    }
}
