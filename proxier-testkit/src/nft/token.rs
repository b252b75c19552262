//! Text to tokens.

use super::error::{Cause, ParseError};

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything without blanks.
    Word,
    /// Text between double quotes, without them.
    Quoted,
    /// `{`.
    Open,
    /// `}`.
    Close,
    /// `,`.
    Comma,
    /// `;`.
    Semicolon,
    /// End of a line.
    Newline,
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind,
    pub(super) text: &'t str,
    pub(super) line: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

fn punctuation(byte: u8) -> Option<Kind> {
    Some(match byte {
        b'{' => Kind::Open,
        b'}' => Kind::Close,
        b',' => Kind::Comma,
        b';' => Kind::Semicolon,
        b'\n' => Kind::Newline,
        _ => return None,
    })
}

fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'"' || punctuation(byte).is_some()
}

/// Splits a text. `#` at the begin of a word starts a comment.
pub(super) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&byte) = bytes.get(at) {
        let run = |from: usize, stop: &dyn Fn(u8) -> bool| {
            bytes.iter().skip(from).position(|&b| stop(b)).map_or(bytes.len(), |n| from + n)
        };
        let (kind, start, end, next) = match byte {
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = run(at, &|b| b == b'\n');
                continue;
            }
            b'"' => {
                let end = run(at + 1, &|b| b == b'"' || b == b'\n');
                if bytes.get(end) != Some(&b'"') {
                    let text = text.get(at..end).unwrap_or_default().to_owned();
                    return Err(ParseError { line, text, cause: Cause::Syntax("no closing quote".into()) });
                }
                (Kind::Quoted, at + 1, end, end + 1)
            }
            _ => match punctuation(byte) {
                Some(kind) => (kind, at, at + 1, at + 1),
                None => {
                    let end = run(at, &ends_word);
                    (Kind::Word, at, end, end)
                }
            },
        };
        tokens.push(Token {
            kind,
            text: text.get(start..end).unwrap_or_default(),
            line,
            start: at,
            end: next,
        });
        line += usize::from(kind == Kind::Newline);
        at = next;
    }
    Ok(tokens)
}
