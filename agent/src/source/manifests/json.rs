//! From YAML to JSON text, without a tree in between: both kinds of file are then read alike.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::yaml;

/// One YAML document as JSON text.
///
/// # Errors
/// One line that says where it is no YAML; `preceding` lines stand before it in its file.
pub(super) fn from_yaml(text: &str, preceding: usize) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let options = yaml::options(DuplicateKeyPolicy::Error);
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |d| Writer(&mut out).deserialize(d))
        .map_err(|e| yaml::describe(&e, preceding))?;
    String::from_utf8(out).map_err(|e| e.to_string())
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn scalar<T: serde::Serialize, E: Error>(self, value: T) -> Result<(), E> {
        serde_json::to_writer(self.0, &value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<(), E> {
        self.scalar(v)
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<(), E> {
        self.scalar(v)
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<(), E> {
        self.scalar(v)
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<(), E> {
        self.scalar(v)
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<(), E> {
        self.scalar(v)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar(())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.scalar(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let start = self.0.len();
        loop {
            let before = self.0.len();
            if before > start {
                self.0.push(b',');
            }
            if seq.next_element_seed(Writer(self.0))?.is_none() {
                self.0.truncate(before);
                self.0.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.push(b'{');
        let mut first = true;
        while let Some(key) = map.next_key::<String>()? {
            if !std::mem::take(&mut first) {
                self.0.push(b',');
            }
            Writer(self.0).scalar::<_, A::Error>(&key)?;
            self.0.push(b':');
            map.next_value_seed(Writer(self.0))?;
        }
        self.0.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value() {
        let yaml = "a: [1, -2, 1.5, true, null, ~, x, \"80\", []]\nb:\n  c: {}\n  \"d\\n\": |\n    two\n    lines\n1: no\n";
        assert_eq!(
            from_yaml(yaml, 0).expect("reads"),
            r#"{"a":[1,-2,1.5,true,null,null,"x","80",[]],"b":{"c":{},"d\n":"two\nlines\n"},"1":false}"#
        );
    }

    #[test]
    fn anchors_are_followed() {
        assert_eq!(from_yaml("a: &x {b: 1}\nc: *x\n", 0).expect("reads"), r#"{"a":{"b":1},"c":{"b":1}}"#);
    }

    #[test]
    fn faults_name_the_line_in_the_file() {
        let error = from_yaml("a: 1\nb: }\n", 10).expect_err("broken");
        assert!(error.contains("line 12") && !error.contains('\n'), "{error}");
        assert!(from_yaml("a: 1\na: 2\n", 0).expect_err("twice").contains("duplicate"), "key given twice");
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut yaml = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            let before = vec![format!("*a{}", i - 1); 10].join(", ");
            yaml.push_str(&format!("a{i}: &a{i} [{before}]\n"));
        }
        assert!(from_yaml(&yaml, 0).is_err());
    }
}
