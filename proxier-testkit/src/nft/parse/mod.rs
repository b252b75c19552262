//! Tokens to commands. A listing becomes the commands that would build it.

mod block;
mod command;
mod element;
mod field;
mod rule;

use super::error::{Cause, ParseError};
use super::token::{Kind, Token, tokenize};
pub(super) use command::{BaseSpec, Command, Located, TableId};
pub(super) use element::RawElement;

/// All commands of a text, in order.
pub(super) fn commands(text: &str) -> Result<Vec<Located<'_>>, ParseError> {
    let mut cursor = Cursor { text, tokens: tokenize(text)?, at: 0 };
    let mut commands = Vec::new();
    loop {
        cursor.skip_ends();
        if cursor.peek().is_none() {
            return Ok(commands);
        }
        command::command(&mut cursor, &mut commands)?;
    }
}

type Parsed<T> = Result<T, ParseError>;

struct Cursor<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).copied()
    }

    fn peek_kind(&self) -> Option<Kind> {
        self.peek().map(|token| token.kind)
    }

    /// The next token, if it is an unquoted word.
    fn peek_word(&self) -> Option<&'t str> {
        self.peek().filter(|token| token.kind == Kind::Word).map(|token| token.text)
    }

    fn peek_word_at(&self, ahead: usize) -> Option<&'t str> {
        self.tokens.get(self.at + ahead).filter(|token| token.kind == Kind::Word).map(|token| token.text)
    }

    fn advance(&mut self) {
        self.at += 1;
    }

    fn eat(&mut self, kind: Kind) -> bool {
        let found = self.peek_kind() == Some(kind);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, kind: Kind) -> Parsed<()> {
        if self.eat(kind) { Ok(()) } else { Err(self.syntax(&format!("expected {kind:?}"))) }
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.syntax(&format!("expected `{word}`"))) }
    }

    fn word(&mut self, what: &str) -> Parsed<&'t str> {
        let word = self.peek_word().ok_or_else(|| self.syntax(&format!("expected {what}")))?;
        self.advance();
        Ok(word)
    }

    /// A word, quoted or not.
    fn string(&mut self, what: &str) -> Parsed<&'t str> {
        match self.peek() {
            Some(Token { kind: Kind::Word | Kind::Quoted, text, .. }) => {
                self.advance();
                Ok(text)
            }
            _ => Err(self.syntax(&format!("expected {what}"))),
        }
    }

    fn quoted(&mut self) -> Parsed<&'t str> {
        match self.peek() {
            Some(Token { kind: Kind::Quoted, text, .. }) => {
                self.advance();
                Ok(text)
            }
            _ => Err(self.syntax("expected a quoted text")),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let number = self.peek_word().and_then(|word| word.parse().ok());
        let number = number.ok_or_else(|| self.syntax(&format!("expected {what}")))?;
        self.advance();
        Ok(number)
    }

    fn skip_newlines(&mut self) {
        while self.eat(Kind::Newline) {}
    }

    fn skip_ends(&mut self) {
        while self.eat(Kind::Newline) || self.eat(Kind::Semicolon) {}
    }

    /// At the end of a command or of a line in a block.
    fn at_end(&self) -> bool {
        matches!(self.peek_kind(), None | Some(Kind::Newline | Kind::Semicolon | Kind::Close))
    }

    fn expect_end(&mut self) -> Parsed<()> {
        if self.at_end() { Ok(()) } else { Err(self.syntax("expected the end of the line")) }
    }

    /// What was written between two tokens, white space collapsed.
    fn source(&self, from: usize, to: usize) -> String {
        let start = self.tokens.get(from).map_or(self.text.len(), |token| token.start);
        let end = if to > from { self.tokens.get(to - 1).map_or(self.text.len(), |t| t.end) } else { start };
        let text = self.text.get(start..end).unwrap_or_default();
        if text.contains(['\n', '\t']) {
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        } else {
            text.into()
        }
    }

    fn line(&self) -> usize {
        self.peek().or(self.tokens.last().copied()).map_or(1, |token| token.line)
    }

    /// A syntax error at the next token.
    fn syntax(&self, message: &str) -> ParseError {
        let rest = self.peek().and_then(|token| self.text.get(token.start..)).unwrap_or_default();
        let text = rest.lines().next().unwrap_or_default().to_owned();
        ParseError { line: self.line(), text, cause: Cause::Syntax(message.to_owned()) }
    }
}
