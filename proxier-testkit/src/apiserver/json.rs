//! JSON as the real API server writes it: fields in the order of its Go types, Go's escapes, two spaces when pretty.

use serde_json::Value;

use super::shape::Shape;

/// Appends `text` as a JSON string with the escapes of Go's encoder, which also escapes `<`, `>` and `&`.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends `value`, compact, the fields of each object in the order of `shape`.
pub(super) fn write(out: &mut Vec<u8>, value: &Value, shape: &Shape) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write(out, item, shape);
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            out.push(b'{');
            let mut first = true;
            let mut field = |name: &str, value: &Value, shape: &Shape| {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                write(out, value, shape);
            };
            for (name, inner) in shape.0 {
                if let Some(value) = fields.get(*name) {
                    field(name, value, inner);
                }
            }
            for (name, value) in fields {
                if !shape.0.iter().any(|(known, _)| known == name) {
                    field(name, value, &Shape::ANY);
                }
            }
            out.push(b'}');
        }
    }
}

/// The same JSON, indented by two spaces, empty objects and lists on one line, no newline at the end.
pub(super) fn pretty(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    let break_line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    for (i, &byte) in compact.iter().enumerate() {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                let empty = compact.get(i + 1).is_some_and(|next| matches!(next, b'}' | b']'));
                if !empty {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                let empty = i.checked_sub(1).is_some_and(|before| matches!(compact[before], b'{' | b'['));
                if !empty {
                    depth = depth.saturating_sub(1);
                    break_line(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                break_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            b'\n' => {}
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compact(value: &Value, shape: &Shape) -> String {
        let mut out = Vec::new();
        write(&mut out, value, shape);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_come_in_the_order_of_the_shape_and_the_rest_by_name() {
        static INNER: Shape = Shape(&[("z", &Shape::ANY), ("a", &Shape::ANY)]);
        static OUTER: Shape = Shape(&[("list", &INNER), ("b", &Shape::ANY)]);
        let value = json!({"b": 1, "c": null, "a": true, "list": [{"a": 1, "z": -2.5}]});
        assert_eq!(compact(&value, &OUTER), r#"{"list":[{"z":-2.5,"a":1}],"b":1,"a":true,"c":null}"#);
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        let text = "\"\\\n\u{1}<&>\u{2028}é\0";
        assert_eq!(compact(&json!(text), &Shape::ANY), r#""\"\\\n\u0001\u003c\u0026\u003e\u2028é\u0000""#);
    }

    #[test]
    fn pretty_is_indented_and_keeps_strings() {
        let text = br#"{"a":{},"b":[],"c":["x,:{}\"y",{"d":1}]}"#;
        let want = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    \"x,:{}\\\"y\",\n    {\n      \"d\": 1\n    }\n  ]\n}";
        assert_eq!(String::from_utf8(pretty(text)).unwrap(), want);
    }
}
