//! A file's documents, each as JSON text.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `.yaml`, `.yml`.
    Yaml,
    /// `.json`.
    Json,
}

/// A document, numbered from 1; blank ones do not count.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) number: usize,
    /// JSON text, or what is wrong with it.
    pub(super) content: Result<Cow<'a, str>, String>,
}

/// Calls `each` with every document of a file.
pub(super) fn each_document<'a>(text: &'a str, format: Format, mut each: impl FnMut(Document<'a>)) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        Format::Json => json_documents(text, &mut each),
        Format::Yaml => yaml_documents(text, &mut each),
    }
}

/// JSON values one after another. What follows a broken one cannot be found.
fn json_documents<'a>(text: &'a str, each: &mut impl FnMut(Document<'a>)) {
    let stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    for (number, raw) in (1..).zip(stream) {
        let content = raw.map(|r| Cow::Borrowed(r.get())).map_err(|e| e.to_string());
        each(Document { number, content });
    }
}

fn yaml_documents<'a>(text: &'a str, each: &mut impl FnMut(Document<'a>)) {
    let mut number = 0;
    for (preceding, chunk) in split(text) {
        if chunk.lines().all(is_blank) {
            continue;
        }
        number += 1;
        let body = chunk.strip_prefix("---").unwrap_or(chunk).trim();
        let content = match serde_json::from_str::<&RawValue>(body) {
            Ok(raw) if body.starts_with('{') => Ok(Cow::Borrowed(raw.get())),
            _ => json::from_yaml(chunk, preceding).map(Cow::Owned),
        };
        each(Document { number, content });
    }
}

/// Pieces that begin with a separator (the first one may not), each with the number of lines before it. Only a line that begins with `---`
/// can begin a document: YAML allows it nowhere else, not even in text blocks. Thus a broken document does not hide the next.
fn split(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text;
    let mut line = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (start, mut end, mut lines) = (line, 0, 0);
        for l in rest.split_inclusive('\n') {
            if lines > 0 && is_separator(l) {
                break;
            }
            end += l.len();
            lines += 1;
        }
        let (chunk, after) = rest.split_at(end);
        rest = after;
        line += lines;
        Some((start, chunk))
    })
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// Nothing, a comment, a directive, or a mark.
fn is_blank(line: &str) -> bool {
    let line = if is_separator(line) { &line[3..] } else { line };
    let line = line.trim();
    line.is_empty() || line.starts_with(['#', '%']) || line == "..."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: Format) -> Vec<(usize, String)> {
        let mut out = Vec::new();
        each_document(text, format, |d| {
            let content = match d.content {
                Ok(json) => json.into_owned(),
                Err(e) => format!("! {e}"),
            };
            out.push((d.number, content));
        });
        out
    }

    #[test]
    fn yaml_documents_are_split_and_numbered() {
        let text = "\u{feff}# head\n%YAML 1.2\n---\n# nothing\n---\na: 1\n--- # two\nb: |\n  --- not one\n  text\n---\n---\n{\"c\": 3}\n...\n--- {d: 4}\n---\n";
        let want = [r#"{"a":1}"#, r#"{"b":"--- not one\ntext\n"}"#, r#"{"c":3}"#, r#"{"d":4}"#];
        let want: Vec<_> = (1..).zip(want.map(String::from)).collect();
        assert_eq!(read(text, Format::Yaml), want);
    }

    #[test]
    fn line_ends_of_windows() {
        let want = [(1, r#"{"a":"x"}"#.into()), (2, r#"{"b":"l1\nl2\n"}"#.into())];
        assert_eq!(read("a: x\r\n---\r\nb: |\r\n  l1\r\n  l2\r\n", Format::Yaml), want);
    }

    #[test]
    fn a_broken_document_does_not_hide_the_next() {
        let found = read("a: 1\n---\nb: }\n---\nc: 3\n", Format::Yaml);
        assert_eq!(found.len(), 3);
        assert!(found[1].1.starts_with("! ") && found[1].1.contains("line 3"), "{}", found[1].1);
        assert_eq!(found[2], (3, r#"{"c":3}"#.into()));
    }

    #[test]
    fn nothing_is_no_document() {
        for text in ["", "\n", "\u{feff}", "---\n", "# x\n---\n...\n"] {
            assert_eq!(read(text, Format::Yaml), [], "{text:?}");
        }
        assert_eq!(read(" \n", Format::Json), []);
    }

    #[test]
    fn json_values_follow_one_another() {
        assert_eq!(
            read("\u{feff}{\"a\": 1}\n{\"b\":2}", Format::Json),
            [(1, "{\"a\": 1}".into()), (2, "{\"b\":2}".into())]
        );
        let broken = read("{\"a\":1}\n{\"b\":\n", Format::Json);
        assert_eq!(broken.len(), 2);
        assert!(broken[1].1.contains("line 3"), "{}", broken[1].1);
    }
}
