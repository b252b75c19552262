//! Statements of a rule.

use proxier_core::ids::IpFamily;
use std::net::IpAddr;

use super::element::{counter, duration, verdict};
use super::field::{concatenation, map, operand, operator, set_name, side};
use super::{Cursor, Parsed};
use crate::nft::ast::{CtState, Dnat, DnatTarget, Field, Rule, Statement};
use crate::nft::model::DataKind;
use crate::nft::token::Kind;
use crate::nft::value::{DataType, parse_u32};

/// A rule, up to the end of its line.
pub(super) fn rule(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Rule> {
    let from = cursor.at;
    let mut statements: Vec<Statement> = Vec::new();
    let mut comment = None;
    while !cursor.at_end() {
        if comment.is_some() {
            return Err(cursor.syntax("statement after the comment"));
        }
        if cursor.eat_word("comment") {
            comment = Some(cursor.quoted()?.into());
            continue;
        }
        if statements.last().is_some_and(Statement::is_terminal) {
            return Err(cursor.syntax("statement after a terminal statement"));
        }
        statements.push(statement(cursor, family)?);
    }
    if statements.is_empty() {
        return Err(cursor.syntax("expected a statement"));
    }
    Ok(Rule { statements, comment, text: cursor.source(from, cursor.at).into() })
}

fn statement(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Statement> {
    if let Some(verdict) = verdict(cursor)? {
        return Ok(Statement::Verdict(verdict));
    }
    let start = cursor.at;
    match cursor.peek_word() {
        Some("reject") => reject(cursor),
        Some("masquerade") => masquerade(cursor),
        Some("dnat") => dnat(cursor, family),
        Some("update" | "add") => update(cursor, family),
        Some("fib") => fib(cursor),
        Some("ct") => ct(cursor),
        Some("counter") => {
            cursor.advance();
            counter(cursor)?;
            Ok(Statement::Counter)
        }
        _ => {
            cursor.eat_word("meta");
            if cursor.eat_word("mark") && cursor.eat_word("set") {
                return set_mark(cursor);
            }
            cursor.at = start;
            match_or_map(cursor, family)
        }
    }
}

fn match_or_map(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Statement> {
    let key = concatenation(cursor, family)?;
    if cursor.eat_word("vmap") {
        let map = map(cursor, &key, family, &DataKind::Verdict)?;
        return Ok(Statement::VerdictMap { key, map });
    }
    if key == [Field::Mark] && (cursor.eat_word("&") || cursor.eat_word("and")) {
        let mask = mark(cursor)?;
        let negated = operator(cursor);
        return Ok(Statement::MarkMatch { mask, negated, value: mark(cursor)? });
    }
    let negated = operator(cursor);
    let elements = operand(cursor, &key, family)?;
    Ok(Statement::Match { key, negated, elements })
}

fn mark(cursor: &mut Cursor<'_>) -> Parsed<u32> {
    let value = cursor.peek_word().and_then(parse_u32).ok_or_else(|| cursor.syntax("expected a mark"))?;
    cursor.advance();
    Ok(value)
}

/// `mark set mark or M`, `meta mark set meta mark & A | B`, `mark set M`.
fn set_mark(cursor: &mut Cursor<'_>) -> Parsed<Statement> {
    let meta = cursor.eat_word("meta");
    if !cursor.eat_word("mark") {
        if meta {
            return Err(cursor.syntax("expected `mark`"));
        }
        return Ok(Statement::SetMark { keep: 0, flip: mark(cursor)? });
    }
    let (mut keep, mut flip) = (u32::MAX, 0);
    while let Some(word @ ("or" | "|" | "and" | "&" | "xor" | "^")) = cursor.peek_word() {
        cursor.advance();
        let operand = mark(cursor)?;
        match word {
            "or" | "|" => (keep, flip) = (keep & !operand, flip & !operand | operand),
            "and" | "&" => (keep, flip) = (keep & operand, flip & operand),
            _ => flip ^= operand,
        }
    }
    Ok(Statement::SetMark { keep, flip })
}

fn reject(cursor: &mut Cursor<'_>) -> Parsed<Statement> {
    cursor.advance();
    if cursor.eat_word("with") {
        match cursor.word("an answer")? {
            "tcp" => {
                cursor.expect_word("reset")?;
                return Ok(Statement::Reset);
            }
            "icmp" | "icmpv6" | "icmpx" => {
                cursor.eat_word("type");
                cursor.word("an ICMP code")?;
            }
            _ => return Err(cursor.syntax("answer not understood")),
        }
    }
    Ok(Statement::Reject)
}

fn masquerade(cursor: &mut Cursor<'_>) -> Parsed<Statement> {
    cursor.advance();
    while let Some("random" | "fully-random" | "persistent") = cursor.peek_word() {
        cursor.advance();
        cursor.eat(Kind::Comma);
    }
    Ok(Statement::Masquerade)
}

fn update(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Statement> {
    cursor.advance();
    let set = set_name(cursor).ok_or_else(|| cursor.syntax("expected a set"))?.into();
    cursor.expect(Kind::Open)?;
    let key = concatenation(cursor, family)?;
    let [Field::Address(side)] = *key else {
        return Err(cursor.syntax("only an address can be recorded"));
    };
    if cursor.eat_word("timeout") {
        duration(cursor)?;
    }
    cursor.expect(Kind::Close)?;
    Ok(Statement::Update { set, side })
}

fn fib(cursor: &mut Cursor<'_>) -> Parsed<Statement> {
    cursor.advance();
    let side = side(cursor)?;
    cursor.expect_word("type")?;
    let negated = operator(cursor);
    cursor.expect_word("local")?;
    Ok(Statement::FibLocal { side, negated })
}

fn ct(cursor: &mut Cursor<'_>) -> Parsed<Statement> {
    cursor.advance();
    if cursor.eat_word("status") {
        cursor.expect_word("dnat")?;
        return Ok(Statement::CtStatusDnat);
    }
    cursor.expect_word("state")?;
    let set = cursor.eat(Kind::Open);
    let mut states = vec![ct_state(cursor)?];
    while cursor.eat(Kind::Comma) {
        states.push(ct_state(cursor)?);
    }
    if set {
        cursor.expect(Kind::Close)?;
    }
    Ok(Statement::CtState(states))
}

fn ct_state(cursor: &mut Cursor<'_>) -> Parsed<CtState> {
    let state = match cursor.peek_word() {
        Some("new") => CtState::New,
        Some("established") => CtState::Established,
        Some("related") => CtState::Related,
        Some("invalid") => CtState::Invalid,
        Some("untracked") => CtState::Untracked,
        _ => return Err(cursor.syntax("expected a connection state")),
    };
    cursor.advance();
    Ok(state)
}

fn dnat(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<Statement> {
    cursor.advance();
    if let Some(word @ ("ip" | "ip6")) = cursor.peek_word() {
        if (word == "ip6") != (family == IpFamily::Ipv6) {
            return Err(cursor.syntax("address of the other family"));
        }
        cursor.advance();
    }
    let declared = cursor.eat_word("addr");
    if declared {
        cursor.expect_word(".")?;
        cursor.expect_word("port")?;
    }
    cursor.expect_word("to")?;
    let fixed = cursor.peek_word().and_then(|word| fixed_target(word, family));
    let target = match fixed {
        Some((address, port)) => {
            cursor.advance();
            DnatTarget::Fixed { address, port }
        }
        None => {
            let key = concatenation(cursor, family)?;
            cursor.expect_word("map")?;
            let kind = data_kind(cursor, family, declared);
            DnatTarget::Map { map: map(cursor, &key, family, &kind)?, key }
        }
    };
    Ok(Statement::Dnat(Dnat { target, requires: None }))
}

/// An anonymous map's data is an address, or an address and a port; the first element tells.
fn data_kind(cursor: &Cursor<'_>, family: IpFamily, declared: bool) -> DataKind {
    let mut ahead = 0;
    while cursor.peek_word_at(ahead) != Some(":") {
        let Some(token) = cursor.tokens.get(cursor.at + ahead) else { break };
        if token.kind == Kind::Close {
            break;
        }
        ahead += 1;
    }
    let mut types = vec![DataType::Address(family)];
    if declared || cursor.peek_word_at(ahead + 2) == Some(".") {
        types.push(DataType::Port);
    }
    DataKind::Values(types)
}

/// `A`, `A:P` or `[A]:P`.
fn fixed_target(word: &str, family: IpFamily) -> Option<(IpAddr, Option<u16>)> {
    let (address, port) = if let Some(rest) = word.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?.parse().ok()?) };
        (address.parse().ok()?, port)
    } else if family == IpFamily::Ipv4 {
        match word.split_once(':') {
            Some((address, port)) => (address.parse().ok()?, Some(port.parse().ok()?)),
            None => (word.parse().ok()?, None),
        }
    } else {
        (word.parse().ok()?, None)
    };
    let matches =
        matches!((address, family), (IpAddr::V4(_), IpFamily::Ipv4) | (IpAddr::V6(_), IpFamily::Ipv6));
    matches.then_some((address, port))
}
