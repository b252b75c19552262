//! A watch as it arrives: one JSON object a line.

/// Longest line that is taken; the API server's own limit for an object is below 2 MiB.
const LIMIT: usize = 16 << 20;

/// A line is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {} MiB", LIMIT >> 20)]
pub(super) struct LineTooLong;

/// Puts lines together from whatever pieces they come in.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Takes a piece and hands each line that is complete to `each`, without its end, unless it is blank. Stops at the first answer
    /// of `each`, and returns it.
    ///
    /// # Errors
    /// When a line is too long.
    pub(super) fn push<T>(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, LineTooLong> {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            let answer = if self.begun.is_empty() {
                give(line, &mut each)
            } else {
                self.begun.extend_from_slice(line);
                let answer = give(&self.begun, &mut each);
                self.begun.clear();
                answer
            };
            if answer.is_some() {
                return Ok(answer);
            }
        }
        if self.begun.len() + rest.len() > LIMIT {
            return Err(LineTooLong);
        }
        self.begun.extend_from_slice(rest);
        Ok(None)
    }

    /// Has a line begun and not ended?
    pub(super) fn is_torn(&self) -> bool {
        !self.begun.trim_ascii().is_empty()
    }
}

fn give<T>(line: &[u8], each: &mut impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let line = line.trim_ascii();
    if line.is_empty() { None } else { each(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whatever_the_pieces() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}\n{\"torn";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                let none: Option<()> = lines
                    .push(piece, |l| {
                        found.push(String::from_utf8(l.to_vec()).expect("text"));
                        None
                    })
                    .expect("short");
                assert_eq!(none, None);
            }
            assert_eq!(found, ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"], "{size}");
            assert!(lines.is_torn());
        }
    }

    #[test]
    fn an_answer_ends_it() {
        let mut lines = Lines::default();
        let answer = lines.push(b"a\nb\nc\n", |l| (l == b"b").then_some(7)).expect("short");
        assert_eq!(answer, Some(7));
        assert!(!lines.is_torn());
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = Lines::default();
        let piece = vec![b'a'; 1 << 20];
        let refused = (0..17).find_map(|_| lines.push(&piece, |_| None::<()>).err());
        assert_eq!(refused, Some(LineTooLong));
    }
}
