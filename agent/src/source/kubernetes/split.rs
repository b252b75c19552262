//! A list as it arrives: its items one by one, so that no more than one item and a piece of the answer are in memory.

/// Largest item, and largest rest of a list, that is taken; the API server's own limit for an object is below 2 MiB.
const LIMIT: usize = 16 << 20;

/// The text is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    /// Not a JSON object with well-nested brackets.
    #[error("the list is not a JSON object")]
    Syntax,
    /// An item, or what is around the items, is too large.
    #[error("part of the list is larger than {} MiB", LIMIT >> 20)]
    TooLarge,
    /// The text ended early.
    #[error("the list ended early")]
    Unfinished,
}

/// Where in the text we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Outside of a string.
    Plain,
    /// In a string.
    Text,
    /// Behind a backslash in a string.
    Escape,
}

/// Cuts the items out of `{"kind": ..., "metadata": ..., "items": [ITEM, ITEM]}`, in whatever pieces that comes. What remains, the list without
/// its items, is [`ListSplitter::finish`]'s answer.
#[derive(Debug)]
pub(super) struct ListSplitter {
    at: At,
    depth: usize,
    /// In the array of items.
    in_items: bool,
    /// At the top level a value comes next: the last key was this one.
    key: Key,
    /// The text around the items.
    rest: Vec<u8>,
    /// The item so far.
    item: Vec<u8>,
}

/// What is known of the last string at the top level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// It began at this place of the rest.
    From(usize),
    /// It is `items`, and its value comes.
    Items,
    /// Another one, or none.
    Other,
}

impl ListSplitter {
    pub(super) fn new() -> Self {
        Self { at: At::Plain, depth: 0, in_items: false, key: Key::Other, rest: Vec::new(), item: Vec::new() }
    }

    /// Takes a piece of the text and hands each item that is complete to `each`.
    ///
    /// # Errors
    /// When it is no list. `each` may have been given items before.
    pub(super) fn push(&mut self, piece: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), SplitError> {
        let mut from = 0;
        for (i, &byte) in piece.iter().enumerate() {
            if self.at != At::Plain {
                self.in_text(byte);
                if self.at == At::Plain && !self.in_items && self.depth == 1 {
                    self.keep(&piece[from..=i])?;
                    from = i + 1;
                    self.name();
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.at = At::Text;
                    if !self.in_items && self.depth == 1 {
                        self.keep(&piece[from..i])?;
                        from = i;
                        self.key = Key::From(self.rest.len());
                    }
                }
                b'{' | b'[' => {
                    let opens_items = byte == b'[' && self.depth == 1 && self.key == Key::Items;
                    if self.depth == 0 && (byte == b'[' || !self.rest.is_empty()) {
                        return Err(SplitError::Syntax);
                    }
                    self.depth += 1;
                    if opens_items {
                        self.keep(&piece[from..=i])?;
                        from = i + 1;
                        self.in_items = true;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(SplitError::Syntax)?;
                    if self.in_items && self.depth == 1 {
                        self.hand_over(&piece[from..i], &mut each)?;
                        from = i;
                        self.in_items = false;
                        self.key = Key::Other;
                    }
                }
                b',' if self.in_items && self.depth == 2 => {
                    self.hand_over(&piece[from..i], &mut each)?;
                    from = i + 1;
                }
                b',' if self.depth == 1 => self.key = Key::Other,
                _ => {}
            }
        }
        self.keep(&piece[from..])
    }

    /// The list without its items, once the text is complete.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn finish(self) -> Result<Vec<u8>, SplitError> {
        if self.depth == 0 && self.at == At::Plain && !self.rest.is_empty() {
            Ok(self.rest)
        } else {
            Err(SplitError::Unfinished)
        }
    }

    fn in_text(&mut self, byte: u8) {
        self.at = match (self.at, byte) {
            (At::Text, b'\\') => At::Escape,
            (At::Text, b'"') => At::Plain,
            _ => At::Text,
        };
    }

    /// A string at the top level ended.
    fn name(&mut self) {
        if let Key::From(start) = self.key {
            self.key = if self.rest.get(start..) == Some(b"\"items\"") { Key::Items } else { Key::Other };
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), SplitError> {
        let to = if self.in_items { &mut self.item } else { &mut self.rest };
        if to.len() + bytes.len() > LIMIT {
            return Err(SplitError::TooLarge);
        }
        to.extend_from_slice(bytes);
        Ok(())
    }

    /// The item ends with `bytes`. Only white space is the empty array.
    fn hand_over(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), SplitError> {
        if self.item.is_empty() {
            give(bytes, each);
        } else {
            self.keep(bytes)?;
            give(&self.item, each);
            self.item.clear();
        }
        Ok(())
    }
}

fn give(item: &[u8], each: &mut impl FnMut(&[u8])) {
    let item = item.trim_ascii();
    if !item.is_empty() {
        each(item);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Items and rest of a text that comes in pieces of this size.
    fn split(text: &str, size: usize) -> Result<(Vec<Value>, Value), SplitError> {
        let mut splitter = ListSplitter::new();
        let mut items = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            splitter.push(piece, |i| items.push(serde_json::from_slice(i).expect("an item")))?;
        }
        let rest = splitter.finish()?;
        Ok((items, serde_json::from_slice(&rest).expect("the rest")))
    }

    #[test]
    fn items_come_out_whatever_the_pieces() {
        let items = json!([
            {"a": [1, {"b": "}],\"items\":["}], "items": [1, 2]},
            {"c": "\\\""},
            {},
        ]);
        let before =
            json!({"kind": "items", "metadata": {"items": [3], "resourceVersion": "7"}, "items": items});
        let after = format!("{{\n \"items\" : {items} , \"metadata\": {{\"continue\": \"x\"}}}}\n");
        for size in 1..80 {
            let (found, rest) = split(&before.to_string(), size).expect("a list");
            assert_eq!(Value::from(found), items, "{size}");
            assert_eq!(rest["metadata"], before["metadata"]);
            assert_eq!(rest["items"], json!([]));
            let (found, rest) = split(&after, size).expect("a list");
            assert_eq!(Value::from(found), items, "{size}");
            assert_eq!(rest["metadata"]["continue"], "x");
        }
    }

    #[test]
    fn empty_and_absent_items() {
        for text in [r#"{"items":[]}"#, r#"{"items":[ ], "a":1}"#, r#"{"items":null}"#, r#"{"a":{}}"#, "{}"] {
            for size in [1, 3, 100] {
                assert_eq!(split(text, size).expect(text).0, [] as [Value; 0], "{text}");
            }
        }
    }

    #[test]
    fn a_value_called_items_is_no_key() {
        let (found, rest) = split(r#"{"a":"items","b":[1,2],"items":[{}]}"#, 5).expect("a list");
        assert_eq!(found, [json!({})]);
        assert_eq!(rest["b"], json!([1, 2]));
    }

    #[test]
    fn what_is_no_list() {
        for text in ["[]", "{}{}", "}", "]"] {
            assert_eq!(split(text, 1), Err(SplitError::Syntax), "{text}");
        }
        for text in ["", "{", r#"{"items":[{}"#, r#"{"items":[{}]"#, r#"{"a":"#, r#"{"a":""#] {
            assert_eq!(split(text, 1), Err(SplitError::Unfinished), "{text}");
        }
    }

    #[test]
    fn an_endless_item_is_refused() {
        let mut splitter = ListSplitter::new();
        splitter.push(br#"{"items":[{"a":""#, |_| {}).expect("begins well");
        let piece = vec![b'a'; 1 << 20];
        let refused = (0..17).find_map(|_| splitter.push(&piece, |_| {}).err());
        assert_eq!(refused, Some(SplitError::TooLarge));
    }
}
