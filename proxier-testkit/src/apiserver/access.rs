//! Who may do what: bearer tokens, client certificates and RBAC rules.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::request::Target;
use super::status::Refusal;

/// The user of requests to a server that knows no users.
const EVERYONE: &str = "system:admin";

/// A user and the rules that apply to it.
#[derive(Clone, Debug, Default)]
struct User {
    /// `None`: everything is allowed.
    rules: Option<Vec<(Option<String>, PolicyRule)>>,
}

/// All users; none: everyone may do everything.
#[derive(Debug, Default)]
pub(super) struct Access {
    users: BTreeMap<String, User>,
    tokens: BTreeMap<String, String>,
    /// Users by the certificate (DER) that the server gave them.
    certificates: BTreeMap<Vec<u8>, String>,
}

impl Access {
    /// Lets `token` be `user`, who may do everything until it gets rules.
    pub(super) fn token(&mut self, token: &str, user: &str) {
        self.tokens.insert(token.to_owned(), user.to_owned());
        self.users.entry(user.to_owned()).or_default();
    }

    pub(super) fn token_of(&self, user: &str) -> Option<&str> {
        self.tokens.iter().find(|(_, known)| *known == user).map(|(token, _)| token.as_str())
    }

    pub(super) fn certificate(&mut self, certificate: Vec<u8>, user: &str) {
        self.certificates.insert(certificate, user.to_owned());
        self.users.entry(user.to_owned()).or_default();
    }

    /// Adds rules, in one namespace or everywhere. From the first on, the user may do only what rules allow.
    pub(super) fn allow(&mut self, user: &str, namespace: Option<&str>, rules: Vec<PolicyRule>) {
        let all = self.users.entry(user.to_owned()).or_default().rules.get_or_insert_default();
        all.extend(rules.into_iter().map(|rule| (namespace.map(str::to_owned), rule)));
    }

    /// Takes all rules away: the user may do nothing.
    pub(super) fn forbid(&mut self, user: &str) {
        self.users.entry(user.to_owned()).or_default().rules = Some(Vec::new());
    }

    /// The user who sent an `Authorization` header or showed a certificate.
    pub(super) fn user(&self, header: Option<&str>, certificate: Option<&[u8]>) -> Result<String, Refusal> {
        if self.users.is_empty() {
            return Ok(EVERYONE.to_owned());
        }
        let by_certificate = certificate.and_then(|certificate| self.certificates.get(certificate));
        let by_token = || self.tokens.get(header?.strip_prefix("Bearer ")?.trim());
        by_certificate.or_else(by_token).cloned().ok_or_else(Refusal::unauthorized)
    }

    /// Whether `user` may do what it asks. `name` is the object's, from the path or from a selector.
    pub(super) fn check(&self, user: &str, target: &Target, name: &str) -> Result<(), Refusal> {
        let Some(rules) = self.users.get(user).and_then(|user| user.rules.as_ref()) else { return Ok(()) };
        let allowed = rules.iter().any(|(namespace, rule)| {
            namespace.as_ref().is_none_or(|namespace| *namespace == target.namespace)
                && covers(rule, target, name)
        });
        let Target { resource, verb, namespace, .. } = target;
        if allowed { Ok(()) } else { Err(Refusal::forbidden(user, *verb, resource, namespace, name)) }
    }
}

fn covers(rule: &PolicyRule, target: &Target, name: &str) -> bool {
    let lists = |list: &[String], word: &str| list.iter().any(|entry| entry == word || entry == "*");
    let lists_if_given =
        |list: &Option<Vec<String>>, word: &str| lists(list.as_deref().unwrap_or_default(), word);
    let names = rule.resource_names.as_deref().unwrap_or_default();
    lists(&rule.verbs, target.verb.name())
        && lists_if_given(&rule.api_groups, target.resource.group)
        && lists_if_given(&rule.resources, target.resource.plural)
        && (names.is_empty() || names.iter().any(|allowed| allowed == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::resource::{Resource, Verb};

    fn rule(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> PolicyRule {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(words(&[group])),
            resources: Some(words(&[resource])),
            verbs: words(verbs),
            resource_names: Some(words(names)),
            ..PolicyRule::default()
        }
    }

    fn target(plural: &str, verb: Verb, namespace: &str) -> Target {
        let resource = Resource::called(plural).unwrap();
        Target { resource, verb, namespace: namespace.to_owned(), name: String::new() }
    }

    #[test]
    fn rules_allow_what_they_name() {
        let mut access = Access::default();
        access.token("t", "u");
        let may = |access: &Access, plural, verb, namespace, name| {
            access.check("u", &target(plural, verb, namespace), name).is_ok()
        };
        assert!(may(&access, "nodes", Verb::List, "", ""), "no rules, no limits");
        access.allow("u", None, vec![rule("", "nodes", &["list", "watch"], &["worker"])]);
        access.allow("u", Some("web"), vec![rule("", "services", &["*"], &[])]);
        assert!(may(&access, "nodes", Verb::List, "", "worker"));
        assert!(!may(&access, "nodes", Verb::List, "", "other"));
        assert!(!may(&access, "nodes", Verb::List, "", ""));
        assert!(!may(&access, "nodes", Verb::Get, "", "worker"));
        assert!(may(&access, "services", Verb::Watch, "web", ""));
        assert!(!may(&access, "services", Verb::Watch, "", ""));
        assert!(!may(&access, "endpointslices", Verb::List, "web", ""), "another group");
        access.forbid("u");
        assert!(!may(&access, "services", Verb::Watch, "web", ""));
    }

    #[test]
    fn users_are_known_by_token_or_certificate() {
        let mut access = Access::default();
        assert_eq!(access.user(None, None).unwrap(), EVERYONE);
        access.token("t", "u");
        access.certificate(vec![1], "c");
        assert_eq!(access.user(Some("Bearer t"), None).unwrap(), "u");
        assert_eq!(access.user(None, Some(&[1])).unwrap(), "c");
        for (header, certificate) in
            [(None, None), (Some("Bearer x"), None), (Some("Basic t"), Some(&[2][..]))]
        {
            assert_eq!(access.user(header, certificate).unwrap_err().code, 401);
        }
    }
}
