//! The kernel's own listing, as `nft list` prints it inside a node.

use std::fmt;

use proxier_sys::netns::Netns;

use crate::process;

/// The table's name in both families.
pub const TABLE: &str = "kube-proxy";

/// One element of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// Key, parts joined with ` . `.
    pub key: String,
    /// Comment, without quotes.
    pub comment: Option<String>,
    /// Value: a verdict or data.
    pub value: String,
}

impl Element {
    /// Is it the element of `key`, or, in a map with one part more, one of the elements of `key`?
    #[must_use]
    pub fn belongs_to(&self, key: &str) -> bool {
        self.key.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(" . "))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} : {}", self.key, self.value)
    }
}

/// The text of the table in `family` (`ip` or `ip6`), or nothing when there is none.
///
/// # Errors
/// When `nft` cannot be run.
pub fn table(node: &str, family: &str) -> anyhow::Result<Option<String>> {
    list(node, &["table", family, TABLE])
}

/// The elements of a map, or nothing when there is no such map.
///
/// # Errors
/// When `nft` cannot be run.
pub fn map(node: &str, family: &str, name: &str) -> anyhow::Result<Option<Vec<Element>>> {
    Ok(list(node, &["map", family, TABLE, name])?.map(|text| elements(&text)))
}

/// The text of a chain, or nothing when there is none.
///
/// # Errors
/// When `nft` cannot be run.
pub fn chain(node: &str, family: &str, name: &str) -> anyhow::Result<Option<String>> {
    list(node, &["chain", family, TABLE, name])
}

fn list(node: &str, what: &[&str]) -> anyhow::Result<Option<String>> {
    let list = || process::output("nft", ["list"].iter().chain(what).copied(), "");
    let output = Netns::named(node)?.run(list)??;
    Ok(output.success().then(|| output.stdout_text()))
}

/// The elements in the listing of one map.
fn elements(listing: &str) -> Vec<Element> {
    let Some((_, rest)) = listing.split_once("elements = {") else { return Vec::new() };
    let mut found = Vec::new();
    let (mut start, mut quoted) = (0, false);
    for (at, letter) in rest.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ',' | '}' if !quoted => {
                found.extend(element(&rest[start..at]));
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

fn element(text: &str) -> Option<Element> {
    let text = text.trim();
    if let Some((key, rest)) = text.split_once(" comment \"") {
        let (comment, rest) = rest.split_once('"')?;
        let value = rest.trim().strip_prefix(": ")?;
        return Some(Element {
            key: key.to_owned(),
            comment: Some(comment.to_owned()),
            value: value.to_owned(),
        });
    }
    let (key, value) = text.split_once(" : ")?;
    Some(Element { key: key.to_owned(), comment: None, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = r#"table ip6 kube-proxy {
	map service-ips {
		type ipv6_addr . inet_proto . inet_service : verdict
		size 4096
		comment "elements = of, all { services }"
		elements = { fd00:10:96::a . tcp . 80 comment "a/b:http, or {so}" : goto cluster-2,
			     fd00:10:96::a . tcp . 8080 : goto cluster-1 }
	}
}
"#;

    #[test]
    fn elements_are_split_at_commas_outside_quotes() {
        let text: Vec<String> = elements(LISTING).iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            ["fd00:10:96::a . tcp . 80 : goto cluster-2", "fd00:10:96::a . tcp . 8080 : goto cluster-1"]
        );
        assert_eq!(elements(LISTING)[0].comment.as_deref(), Some("a/b:http, or {so}"));
        assert_eq!(elements("map x { type a : b }"), []);
    }

    #[test]
    fn a_key_owns_its_indices_but_not_longer_ports() {
        let element = |key: &str| Element { key: key.to_owned(), comment: None, value: String::new() };
        assert!(element("10.96.66.43 . tcp . 80").belongs_to("10.96.66.43 . tcp . 80"));
        assert!(element("10.96.66.43 . tcp . 80 . 1").belongs_to("10.96.66.43 . tcp . 80"));
        assert!(!element("10.96.66.43 . tcp . 8080").belongs_to("10.96.66.43 . tcp . 80"));
    }
}
