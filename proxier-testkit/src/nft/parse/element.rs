//! Elements: first as written, then with the types of their set.

use super::{Cursor, Parsed};
use crate::nft::ast::Verdict;
use crate::nft::elements::{Element, ElementConflict, Elements, Value};
use crate::nft::error::ModelError;
use crate::nft::model::DataKind;
use crate::nft::token::Kind;
use crate::nft::value::{DataType, Datum, Pattern};

/// The value of an element, as written.
#[derive(Debug)]
pub(in crate::nft) enum RawValue<'t> {
    Verdict(Verdict),
    Data(Vec<&'t str>),
}

/// An element as written; what its words mean depends on the set.
#[derive(Debug)]
pub(in crate::nft) struct RawElement<'t> {
    pub(in crate::nft) line: usize,
    pub(in crate::nft) key: Vec<&'t str>,
    pub(in crate::nft) value: Option<RawValue<'t>>,
    pub(in crate::nft) comment: Option<&'t str>,
    pub(in crate::nft) timeout: bool,
}

impl RawElement<'_> {
    /// The key with these types.
    pub(in crate::nft) fn patterns(&self, types: &[DataType]) -> Result<Vec<Pattern>, ModelError> {
        let wrong = || ModelError::Type(format!("key {}", self.key.join(" . ")));
        if self.key.len() != types.len() {
            return Err(wrong());
        }
        let parse =
            |(word, data_type): (&&str, &DataType)| Pattern::parse(*data_type, word).ok_or_else(wrong);
        self.key.iter().zip(types).map(parse).collect()
    }

    /// The value, which must be of this kind.
    pub(in crate::nft) fn element(&self, kind: &DataKind) -> Result<Element, ModelError> {
        let wrong = || ModelError::Type(format!("value of {}", self.key.join(" . ")));
        let value = match (&self.value, kind) {
            (None, DataKind::Nothing) => Value::Nothing,
            (Some(RawValue::Verdict(verdict)), DataKind::Verdict) => Value::Verdict(verdict.clone()),
            (Some(RawValue::Data(words)), DataKind::Values(types)) if words.len() == types.len() => {
                let parse =
                    |(word, data_type): (&&str, &DataType)| Datum::parse(*data_type, word).ok_or_else(wrong);
                Value::Data(words.iter().zip(types).map(parse).collect::<Result<_, _>>()?)
            }
            _ => return Err(wrong()),
        };
        Ok(Element { value, comment: self.comment.map(Into::into) })
    }
}

/// `{ element, element }`, possibly over several lines.
pub(super) fn raw_elements<'t>(cursor: &mut Cursor<'t>) -> Parsed<Vec<RawElement<'t>>> {
    cursor.expect(Kind::Open)?;
    let mut elements = Vec::new();
    loop {
        cursor.skip_newlines();
        if cursor.eat(Kind::Close) {
            return Ok(elements);
        }
        elements.push(raw_element(cursor)?);
        cursor.skip_newlines();
        if !cursor.eat(Kind::Comma) {
            cursor.expect(Kind::Close)?;
            return Ok(elements);
        }
    }
}

fn raw_element<'t>(cursor: &mut Cursor<'t>) -> Parsed<RawElement<'t>> {
    let line = cursor.line();
    let key = concatenation(cursor)?;
    let mut element = RawElement { line, key, value: None, comment: None, timeout: false };
    options(cursor, &mut element)?;
    if cursor.eat_word(":") {
        element.value = Some(match verdict(cursor)? {
            Some(verdict) => RawValue::Verdict(verdict),
            None => RawValue::Data(concatenation(cursor)?),
        });
        options(cursor, &mut element)?;
    }
    Ok(element)
}

fn concatenation<'t>(cursor: &mut Cursor<'t>) -> Parsed<Vec<&'t str>> {
    let mut words = vec![cursor.string("a value")?];
    while cursor.eat_word(".") {
        words.push(cursor.string("a value")?);
    }
    Ok(words)
}

fn options<'t>(cursor: &mut Cursor<'t>, element: &mut RawElement<'t>) -> Parsed<()> {
    loop {
        if cursor.eat_word("comment") {
            element.comment = Some(cursor.quoted()?);
        } else if cursor.eat_word("timeout") || cursor.eat_word("expires") {
            duration(cursor)?;
            element.timeout = true;
        } else if cursor.eat_word("counter") {
            counter(cursor)?;
        } else {
            return Ok(());
        }
    }
}

/// The numbers of a counter, which mean nothing here.
pub(super) fn counter(cursor: &mut Cursor<'_>) -> Parsed<()> {
    if cursor.eat_word("packets") {
        cursor.number::<u64>("a number of packets")?;
        cursor.expect_word("bytes")?;
        cursor.number::<u64>("a number of bytes")?;
    }
    Ok(())
}

/// A length of time such as `3h`, `1d2h3m4s` or `59s996ms`, in milliseconds.
pub(super) fn duration(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    let milliseconds = cursor.peek_word().and_then(milliseconds);
    let milliseconds = milliseconds.ok_or_else(|| cursor.syntax("expected a length of time"))?;
    cursor.advance();
    Ok(milliseconds)
}

fn milliseconds(mut text: &str) -> Option<u64> {
    let mut total = 0_u64;
    while !text.is_empty() {
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit_end);
        let factor = match unit {
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        text = rest;
    }
    Some(total)
}

/// A verdict, if one comes next.
pub(super) fn verdict(cursor: &mut Cursor<'_>) -> Parsed<Option<Verdict>> {
    let verdict = match cursor.peek_word() {
        Some("accept") => Verdict::Accept,
        Some("drop") => Verdict::Drop,
        Some("continue") => Verdict::Continue,
        Some("return") => Verdict::Return,
        Some(word @ ("jump" | "goto")) => {
            cursor.advance();
            let chain = cursor.word("a chain name")?.into();
            return Ok(Some(if word == "jump" { Verdict::Jump(chain) } else { Verdict::Goto(chain) }));
        }
        _ => return Ok(None),
    };
    cursor.advance();
    Ok(Some(verdict))
}

/// `{ ... }` in a rule, whose elements may overlap (nft merges them) unless they are a map's.
pub(super) fn anonymous(cursor: &mut Cursor<'_>, types: &[DataType], kind: &DataKind) -> Parsed<Elements> {
    let start = cursor.at;
    let raw = raw_elements(cursor)?;
    typed(&raw, types, kind).map_err(|cause| {
        cursor.at = start;
        let mut error = cursor.syntax("");
        error.cause = cause.into();
        error
    })
}

/// Gives elements of a rule their types.
fn typed(raw: &[RawElement<'_>], types: &[DataType], kind: &DataKind) -> Result<Elements, ModelError> {
    let mut elements = Elements::default();
    for element in raw {
        let patterns = element.patterns(types)?;
        let merge = *kind == DataKind::Nothing;
        let conflict = |conflict: ElementConflict| ModelError::ElementConflict {
            set: "an anonymous map".into(),
            key: conflict.0,
        };
        elements.insert(patterns, element.element(kind)?, merge).map_err(conflict)?;
    }
    Ok(elements)
}
