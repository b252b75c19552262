//! What a request asks for: its path and its parameters.

use std::collections::BTreeMap;

use hyper::Method;

use super::resource::{Resource, Verb};
use super::status::Refusal;

/// The parameters after the question mark; of several with one name, the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let mut all = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            all.entry(decoded(name)).or_insert_with(|| decoded(value));
        }
        Self(all)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    /// A truth value as Go reads it; absent is no, present and empty or unreadable is yes, as for the real server.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                let hex = std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.extend(hex);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A request for a resource.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) resource: &'static Resource,
    pub(super) verb: Verb,
    /// Empty: all of them, or none.
    pub(super) namespace: String,
    /// Empty: the collection.
    pub(super) name: String,
}

/// Where a path leads.
pub(super) enum Route {
    /// What the server can do: the path without its leading slash.
    Discovery(String),
    Resource(Target),
    Nowhere,
    /// There, but not that way.
    WrongMethod,
}

impl Route {
    pub(super) fn of(method: &Method, path: &str, query: &Query) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::Discovery(parts.join("/")),
        };
        let (namespace, plural, name) = match rest {
            ["namespaces", namespace, plural] => (*namespace, *plural, ""),
            ["namespaces", namespace, plural, name] => (*namespace, *plural, *name),
            [plural] => ("", *plural, ""),
            [plural, name] => ("", *plural, *name),
            _ => return Self::Nowhere,
        };
        let Some(resource) = Resource::at(group, version, plural) else { return Self::Nowhere };
        if resource.namespaced && namespace.is_empty() && !name.is_empty()
            || !resource.namespaced && !namespace.is_empty()
        {
            return Self::Nowhere;
        }
        let verb = match (method, name.is_empty()) {
            (&Method::GET, true) if query.flag("watch") => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            _ => return Self::WrongMethod,
        };
        if resource.namespaced && namespace.is_empty() && verb == Verb::Create {
            return Self::WrongMethod;
        }
        Self::Resource(Target { resource, verb, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// Which version of the state a list or a watch wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The newest there is.
    Newest,
    /// Whatever is at hand.
    Any,
    /// This or a newer one.
    NotOlder(u64),
    /// This one.
    Exact(u64),
}

/// Checks the parameters of a list that go together (Kubernetes documentation, "Semantics for get and list").
pub(super) fn list_version(query: &Query) -> Result<Version, Refusal> {
    let (version, exact) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    let mut problems = Vec::new();
    let mut forbidden =
        |field: &str, why: &str| problems.push((field.to_owned(), format!("Forbidden: {why}")));
    if !exact.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            forbidden("resourceVersionMatch", why);
        }
        if query.has("continue") {
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        if exact == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            forbidden("resourceVersionMatch", why);
        }
    }
    if query.has("sendInitialEvents") {
        forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if !matches!(exact, "" | "Exact" | "NotOlderThan") {
        problems.push((
            "resourceVersionMatch".to_owned(),
            unsupported(exact, "\"Exact\", \"NotOlderThan\", \"\""),
        ));
    }
    refuse(&problems)?;
    let limited = !matches!(query.text("limit"), "" | "0");
    Ok(match (number(version)?, exact) {
        (None, _) => Version::Newest,
        (Some(0), _) => Version::Any,
        (Some(version), "Exact") => Version::Exact(version),
        (Some(version), "") if limited => Version::Exact(version),
        (Some(version), _) => Version::NotOlder(version),
    })
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The changes after a version.
    After(u64),
    /// The changes from now on.
    Now,
    /// The whole state, at least as new as this version, then a mark if the server has streaming lists, then changes.
    State(u64),
}

/// Checks the parameters of a watch that go together (Kubernetes documentation, "Streaming lists"). A watch that names
/// no version, or 0, gets the whole state unless it refuses.
pub(super) fn watch_start(query: &Query, streaming_lists: bool) -> Result<Start, Refusal> {
    let wanted = query.text("resourceVersionMatch");
    let mut problems = Vec::new();
    let mut forbidden =
        |field: &str, why: &str| problems.push((field.to_owned(), format!("Forbidden: {why}")));
    if query.has("sendInitialEvents") {
        if wanted != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            forbidden("resourceVersionMatch", why);
        }
        if !streaming_lists {
            let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            forbidden("sendInitialEvents", why);
        }
    }
    if !wanted.is_empty() {
        if !query.has("sendInitialEvents") {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            forbidden("resourceVersionMatch", why);
        }
        if query.has("continue") {
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        if wanted != "NotOlderThan" {
            problems.push(("resourceVersionMatch".to_owned(), unsupported(wanted, "\"NotOlderThan\"")));
        }
    }
    refuse(&problems)?;
    let version = number(query.text("resourceVersion"))?.unwrap_or(0);
    Ok(match (query.has("sendInitialEvents"), query.flag("sendInitialEvents"), version) {
        (true, true, version) => Start::State(version),
        (true, false, 0) => Start::Now,
        (false, _, 0) => Start::State(0),
        (_, _, version) => Start::After(version),
    })
}

fn unsupported(value: &str, supported: &str) -> String {
    format!("Unsupported value: {value:?}: supported values: {supported}")
}

fn refuse(problems: &[(String, String)]) -> Result<(), Refusal> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Refusal::invalid("meta.k8s.io", "ListOptions", "", problems))
    }
}

/// A resource version; `None` if there is none.
pub(super) fn number(text: &str) -> Result<Option<u64>, Refusal> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| Refusal::bad_version(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Result<Version, u16> {
        list_version(&Query::parse(query)).map_err(|refusal| refusal.code)
    }

    fn watch(query: &str) -> Result<Start, u16> {
        watch_start(&Query::parse(query), true).map_err(|refusal| refusal.code)
    }

    #[test]
    fn versions_of_lists() {
        assert_eq!(list(""), Ok(Version::Newest));
        assert_eq!(list("limit=5"), Ok(Version::Newest));
        assert_eq!(list("resourceVersion=0&limit=5"), Ok(Version::Any));
        assert_eq!(list("resourceVersion=7"), Ok(Version::NotOlder(7)));
        assert_eq!(list("resourceVersion=7&limit=5"), Ok(Version::Exact(7)));
        assert_eq!(
            list("resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan"),
            Ok(Version::NotOlder(7))
        );
        assert_eq!(list("resourceVersion=7&resourceVersionMatch=Exact"), Ok(Version::Exact(7)));
        assert_eq!(list("resourceVersion=x"), Err(500));
        for bad in [
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch=Exact&resourceVersion=7&continue=x",
            "resourceVersionMatch=Newest&resourceVersion=7",
            "sendInitialEvents=true",
        ] {
            assert_eq!(list(bad), Err(422), "{bad}");
        }
    }

    #[test]
    fn starts_of_watches() {
        let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(watch(""), Ok(Start::State(0)));
        assert_eq!(watch("resourceVersion=0"), Ok(Start::State(0)));
        assert_eq!(watch("resourceVersion=7"), Ok(Start::After(7)));
        assert_eq!(watch(streaming), Ok(Start::State(0)));
        assert_eq!(watch(&format!("{streaming}&resourceVersion=7")), Ok(Start::State(7)));
        assert_eq!(watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan"), Ok(Start::Now));
        assert_eq!(watch("resourceVersion=-1"), Err(500));
        for bad in [
            "resourceVersionMatch=NotOlderThan",
            "sendInitialEvents=true",
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
        ] {
            assert_eq!(watch(bad), Err(422), "{bad}");
        }
        let refused = watch_start(&Query::parse(streaming), false).unwrap_err();
        assert!(
            String::from_utf8(refused.body())
                .unwrap()
                .contains("unless the WatchList feature gate is enabled")
        );
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=%21x%2Fy&b=1+2&c&a=z&d=%zz");
        assert_eq!(
            (query.text("a"), query.text("b"), query.flag("c"), query.text("d")),
            ("!x/y", "1 2", true, "")
        );
    }
}
