//! Lines to words, as the tool does it.

/// Splits a line. A double quote opens text that may hold blanks, wherever it stands, and the closing one ends the word; within
/// quotes a backslash takes the next character as it is. Without a closing quote the text goes on to the end of the line.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted => {
                quoted = false;
                words.extend(word.take());
            }
            '\\' if quoted => word.get_or_insert_default().extend(characters.next()),
            '"' => {
                quoted = true;
                word.get_or_insert_default();
            }
            ' ' | '\t' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// A text as `iptables-save` prints it: in quotes if it has anything but letters, digits, `-` and `_`.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\' | '\'') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_by_the_tool() {
        let rows: [(&str, &[&str]); 9] = [
            ("-A  T\t-j ACCEPT", &["-A", "T", "-j", "ACCEPT"]),
            ("--comment \"a b\" -j", &["--comment", "a b", "-j"]),
            ("a\"b c\" d", &["ab c", "d"]),
            ("a\"b\"c", &["ab", "c"]),
            ("\"a\"\"b\"", &["a", "b"]),
            ("\"a\\\" \\\\ \\n\"", &["a\" \\ n"]),
            ("a\\b \\\"c d", &["a\\b", "\\c d"]),
            ("\"\" x", &["", "x"]),
            ("'a b'", &["'a", "b'"]),
        ];
        for (line, expected) in rows {
            assert_eq!(words(line), expected, "{line}");
        }
    }

    #[test]
    fn quotes_are_read_back() {
        for text in ["", "a", "a-b_1", "a b", "a/b:c", "\"", "\\", "it's", "é", "a\\\"b"] {
            assert_eq!(words(&quoted(text)), [text], "{text}");
        }
        assert_eq!(quoted("a-b_1"), "a-b_1");
        assert_eq!(quoted("a.b'"), "\"a.b\\'\"");
    }
}
