//! A configuration file as a tree of values, with the place of every key that was given twice.

use std::cell::RefCell;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::yaml;

/// What was read.
#[derive(Debug)]
pub(super) struct Tree {
    /// The values; of a key that was given twice, the last one.
    pub(super) root: Value,
    /// Paths of keys that were given more than once.
    pub(super) duplicates: Vec<String>,
}

/// Reads YAML, and JSON as a part of it.
///
/// # Errors
/// One line that says where the text is no YAML.
pub(super) fn read(text: &str) -> Result<Tree, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let duplicates = RefCell::default();
    let root = serde_saphyr::with_deserializer_from_str_with_options(
        text,
        yaml::options(DuplicateKeyPolicy::PassThrough),
        |d| Node { path: String::new(), duplicates: &duplicates }.deserialize(d),
    )
    .map_err(|e| yaml::describe(&e, 0))?;
    Ok(Tree { root, duplicates: duplicates.into_inner() })
}

/// `parent.key`, or `key` at the top.
pub(super) fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

struct Node<'a> {
    path: String,
    duplicates: &'a RefCell<Vec<String>>,
}

impl Node<'_> {
    fn child(&self, path: String) -> Self {
        Self { path, duplicates: self.duplicates }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(v) = seq.next_element_seed(self.child(format!("{}[{}]", self.path, out.len())))? {
            out.push(v);
        }
        Ok(out.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = join(&self.path, &key);
            let value = map.next_value_seed(self.child(path.clone()))?;
            if out.insert(key, value).is_some() {
                let mut duplicates = self.duplicates.borrow_mut();
                if !duplicates.contains(&path) {
                    duplicates.push(path);
                }
            }
        }
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duplicate_is_found() {
        let tree = read("a: 1\nb: {c: 1, d: [{e: 1, e: 2}], c: 3}\na: 2\na: 3\n").expect("reads");
        assert_eq!(tree.duplicates, ["b.d[0].e", "b.c", "a"]);
        assert_eq!(tree.root["a"], 3);
    }

    #[test]
    fn json_is_read_alike() {
        let tree = read("{\"a\": {\"b\": [1, true, null]},\n\t\"a\": \"x\"}").expect("reads");
        assert_eq!(tree.duplicates, ["a"]);
        assert_eq!(tree.root["a"], "x");
    }

    #[test]
    fn a_broken_file_says_where() {
        let error = read("a: 1\nb: [1,\nc: }\n").expect_err("broken");
        assert!(error.contains("line 2") && !error.contains('\n'), "{error}");
    }
}
