//! Fields, concatenations of fields, and what they are compared with.

use std::num::NonZeroU32;

use proxier_core::ids::{IpFamily, Protocol};

use super::element::anonymous;
use super::{Cursor, Parsed};
use crate::nft::ast::{Field, LookupIn, Side};
use crate::nft::elements::{Element, Elements, Value};
use crate::nft::model::DataKind;
use crate::nft::token::{Kind, Token};
use crate::nft::value::{DataType, Pattern};

/// `a . b . c`
pub(super) fn concatenation(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Vec<Field>> {
    let mut fields = vec![field(cursor, family)?];
    while cursor.eat_word(".") {
        fields.push(field(cursor, family)?);
    }
    Ok(fields)
}

/// One field.
pub(super) fn field(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Field> {
    let start = cursor.at;
    let word = cursor.word("a field")?;
    let found = match word {
        "ip" | "ip6" => {
            if (word == "ip6") != (family == IpFamily::Ipv6) {
                cursor.at = start;
                return Err(cursor.syntax("field of the other family"));
            }
            return Ok(Field::Address(side(cursor)?));
        }
        "th" => port(cursor, None)?,
        "tcp" => port(cursor, Some(Protocol::Tcp))?,
        "udp" => port(cursor, Some(Protocol::Udp))?,
        "sctp" => port(cursor, Some(Protocol::Sctp))?,
        "numgen" => random(cursor)?,
        _ => {
            let name = if word == "meta" { cursor.word("a meta field")? } else { word };
            match name {
                "l4proto" if word == "meta" => Field::L4Protocol,
                "mark" => Field::Mark,
                "iifname" => Field::InputInterface,
                "oifname" => Field::OutputInterface,
                _ => {
                    cursor.at = start;
                    return Err(cursor.syntax("field or statement not understood"));
                }
            }
        }
    };
    Ok(found)
}

/// `saddr` or `daddr`.
pub(super) fn side(cursor: &mut Cursor<'_>) -> Parsed<Side> {
    if cursor.eat_word("saddr") {
        return Ok(Side::Source);
    }
    cursor.expect_word("daddr")?;
    Ok(Side::Destination)
}

fn port(cursor: &mut Cursor<'_>, protocol: Option<Protocol>) -> Parsed<Field> {
    cursor.expect_word("dport")?;
    Ok(Field::DestinationPort(protocol))
}

fn random(cursor: &mut Cursor<'_>) -> Parsed<Field> {
    cursor.expect_word("random")?;
    cursor.expect_word("mod")?;
    let modulus = cursor.number::<NonZeroU32>("a modulus above zero")?;
    let offset = if cursor.eat_word("offset") { cursor.number("an offset")? } else { 0 };
    Ok(Field::Random { modulus, offset })
}

/// Types of the fields of a key.
pub(super) fn types(key: &[Field], family: IpFamily) -> Vec<DataType> {
    key.iter().map(|field| field.data_type(family)).collect()
}

/// `!=`, `==`, `=` or nothing; true for `!=`.
pub(super) fn operator(cursor: &mut Cursor<'_>) -> bool {
    let negated = cursor.eat_word("!=");
    if !negated && !cursor.eat_word("==") {
        cursor.eat_word("=");
    }
    negated
}

/// `@name`, if it comes next.
pub(super) fn set_name<'t>(cursor: &mut Cursor<'t>) -> Option<&'t str> {
    let name = cursor.peek_word()?.strip_prefix('@').filter(|name| !name.is_empty())?;
    cursor.advance();
    Some(name)
}

/// What a key is compared with: `@set`, `{ ... }`, or one value for each field.
pub(super) fn operand(cursor: &mut Cursor<'_>, key: &[Field], family: IpFamily) -> Parsed<LookupIn> {
    if let Some(name) = set_name(cursor) {
        return Ok(LookupIn::Named(name.into()));
    }
    let types = types(key, family);
    if cursor.peek_kind() == Some(Kind::Open) {
        return anonymous(cursor, &types, &DataKind::Nothing).map(LookupIn::Anonymous);
    }
    let mut patterns = Vec::with_capacity(types.len());
    for data_type in types {
        if !patterns.is_empty() {
            cursor.expect_word(".")?;
        }
        patterns.push(pattern(cursor, data_type)?);
    }
    let mut elements = Elements::default();
    let _first = elements.insert(patterns, Element { value: Value::Nothing, comment: None }, true);
    Ok(LookupIn::Anonymous(elements))
}

fn pattern(cursor: &mut Cursor<'_>, data_type: DataType) -> Parsed<Pattern> {
    let word = match cursor.peek() {
        Some(Token { kind: Kind::Word, text, .. }) => Some(text),
        Some(Token { kind: Kind::Quoted, text, .. }) if data_type == DataType::Interface => Some(text),
        _ => None,
    };
    let pattern = word.and_then(|word| Pattern::parse(data_type, word));
    let pattern = pattern.ok_or_else(|| cursor.syntax("value of another type"))?;
    cursor.advance();
    Ok(pattern)
}

/// What a key is mapped by: `@map` or `{ key : value, ... }`.
pub(super) fn map(
    cursor: &mut Cursor<'_>,
    key: &[Field],
    family: IpFamily,
    kind: &DataKind,
) -> Parsed<LookupIn> {
    match set_name(cursor) {
        Some(name) => Ok(LookupIn::Named(name.into())),
        None => anonymous(cursor, &types(key, family), kind).map(LookupIn::Anonymous),
    }
}
