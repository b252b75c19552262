//! Label and field selectors (Kubernetes documentation, "Labels and Selectors" and "Field Selectors").

use super::object::Object;
use super::resource::Resource;

/// What a label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Labelled {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// Both selectors of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Labelled>,
    /// Field, wanted value, whether it must be equal.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// Reads both; the error is the message for the client.
    pub(super) fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, String> {
        let labels = Labels { rest: labels }.all()?;
        Ok(Self { labels, fields: parse_fields(fields, resource)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        let has = |key: &String| object.labels.get(key);
        self.labels.iter().all(|requirement| match requirement {
            Labelled::In(key, values) => has(key).is_some_and(|value| values.contains(value)),
            Labelled::NotIn(key, values) => has(key).is_none_or(|value| !values.contains(value)),
            Labelled::Exists(key) => has(key).is_some(),
            Labelled::Absent(key) => has(key).is_none(),
        }) && self.fields.iter().all(|(field, value, equal)| (object.field(field) == Some(value)) == *equal)
    }

    /// The one name that can match, if the fields say so: RBAC sees it as the name of the request.
    pub(super) fn name(&self) -> Option<&str> {
        let named = |(field, _, equal): &&(String, String, bool)| field == "metadata.name" && *equal;
        self.fields.iter().find(named).map(|(_, value, _)| value.as_str())
    }
}

/// The rest of a label selector.
struct Labels<'a> {
    rest: &'a str,
}

impl<'a> Labels<'a> {
    fn all(mut self) -> Result<Vec<Labelled>, String> {
        let whole = self.rest;
        let mut all = Vec::new();
        self.skip_spaces();
        while !self.rest.is_empty() {
            let requirement = self.requirement();
            all.push(requirement.ok_or_else(|| format!("unable to parse requirement: found {whole:?}"))?);
            self.skip_spaces();
            if self.rest.is_empty() {
                break;
            }
            if !self.take(",") || self.rest.trim_start().is_empty() {
                return Err(format!("unable to parse requirement: found {:?}, expected: ','", self.rest));
            }
            self.skip_spaces();
        }
        Ok(all)
    }

    fn requirement(&mut self) -> Option<Labelled> {
        if self.take("!") {
            self.skip_spaces();
            return self.word().map(|key| Labelled::Absent(key.to_owned()));
        }
        let key = self.word()?.to_owned();
        self.skip_spaces();
        if self.take("==") || self.take("=") {
            return Some(Labelled::In(key, vec![self.value()]));
        }
        if self.take("!=") {
            return Some(Labelled::NotIn(key, vec![self.value()]));
        }
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Some(Labelled::Exists(key));
        }
        match self.word()? {
            "in" => self.values().map(|values| Labelled::In(key, values)),
            "notin" => self.values().map(|values| Labelled::NotIn(key, values)),
            _ => None,
        }
    }

    fn values(&mut self) -> Option<Vec<String>> {
        self.skip_spaces();
        self.take("(").then_some(())?;
        let mut values = vec![self.value()];
        loop {
            self.skip_spaces();
            if self.take(")") {
                return Some(values);
            }
            self.take(",").then_some(())?;
            values.push(self.value());
        }
    }

    fn value(&mut self) -> String {
        self.skip_spaces();
        self.word().unwrap_or_default().to_owned()
    }

    fn word(&mut self) -> Option<&'a str> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<(String, String, bool)>, String> {
    let mut all = Vec::new();
    for term in split_unescaped(text).into_iter().filter(|term| !term.is_empty()) {
        let (field, value, equal) = split_term(term)
            .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
        let known = match field {
            "metadata.name" => true,
            "metadata.namespace" => resource.namespaced,
            _ => resource.fields.iter().any(|(known, _)| *known == field),
        };
        if !known {
            return Err(format!("field label not supported: {field}"));
        }
        all.push((field.to_owned(), unescape(value), equal));
    }
    Ok(all)
}

fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let at = term.find(['=', '!'])?;
    let (field, rest) = term.split_at(at);
    let (value, equal) = match (rest.strip_prefix("!="), rest.strip_prefix("==")) {
        (Some(value), _) => (value, false),
        (_, Some(value)) => (value, true),
        _ => (rest.strip_prefix('=')?, true),
    };
    Some((field, value, equal))
}

/// Terms between commas that have no backslash before them.
fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        if c == ',' && !escaped {
            terms.push(&text[start..i]);
            start = i + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn services() -> &'static Resource {
        Resource::called("services").unwrap()
    }

    fn matches(labels: &str, fields: &str) -> bool {
        let object = Object::new(
            0,
            &json!({
                "metadata": {"namespace": "web", "name": "front", "labels": {"app": "x", "example.org/tier": ""}},
                "spec": {"clusterIP": "10.0.0.1", "type": "ClusterIP"},
            }),
        );
        Selector::parse(labels, fields, services()).unwrap().matches(&object)
    }

    #[test]
    fn labels() {
        for yes in [
            "",
            "app",
            "app=x",
            "app==x",
            "app = x",
            "app!=y",
            "absent!=y",
            "!absent",
            "! absent",
            "app in (y, x)",
            "app notin (y)",
            "absent notin (x)",
            "example.org/tier=",
            "example.org/tier",
            "app,!absent,app in (x)",
            "app in (x),example.org/tier in ()",
        ] {
            assert!(matches(yes, ""), "{yes}");
        }
        for no in [
            "!app",
            "app=y",
            "app!=x",
            "absent",
            "app in (y)",
            "app notin (x,y)",
            "absent in (x)",
            "app,!app",
        ] {
            assert!(!matches(no, ""), "{no}");
        }
    }

    #[test]
    fn fields() {
        for yes in [
            "metadata.name=front",
            "metadata.namespace==web",
            "spec.clusterIP!=None",
            "spec.type=ClusterIP",
            "metadata.name=front,metadata.namespace=web",
            "metadata.name!=a\\,b",
        ] {
            assert!(matches("", yes), "{yes}");
        }
        for no in
            ["metadata.name=back", "spec.clusterIP=None", "spec.type!=ClusterIP", "metadata.name=front\\,"]
        {
            assert!(!matches("", no), "{no}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in ["app in x", "app in (x", "=x", "app x", "app,", "app=x,,b", "a in (x) b", "$"] {
            assert!(Selector::parse(bad, "", services()).is_err(), "{bad}");
        }
        let refused = |fields| Selector::parse("", fields, services()).unwrap_err();
        assert_eq!(refused("spec.foo=1"), "field label not supported: spec.foo");
        assert_eq!(refused("x"), "invalid selector: 'x'; can't understand 'x'");
    }

    #[test]
    fn a_field_can_name_the_object() {
        let name = |fields| Selector::parse("", fields, services()).unwrap().name().map(str::to_owned);
        assert_eq!(name("spec.type=x,metadata.name=a"), Some("a".to_owned()));
        assert_eq!(name("metadata.name!=a"), None);
    }
}
