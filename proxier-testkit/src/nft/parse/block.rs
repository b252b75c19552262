//! Blocks: the bodies of tables, chains, sets and maps.

use proxier_core::ids::{IpFamily, Protocol};

use super::command::{BaseSpec, Command, Located, TableId, table_id};
use super::element::{RawElement, duration, raw_elements};
use super::field::field;
use super::rule::rule;
use super::{Cursor, Parsed};
use crate::nft::ast::Field;
use crate::nft::model::{BaseChain, ChainKind, DataKind, Hook, SetFlags, SetSpec};
use crate::nft::token::Kind;
use crate::nft::value::DataType;

/// Commands of one table block, sorted as nft sends them: objects first, then what refers to them.
#[derive(Default)]
struct Block<'t> {
    chains: Vec<Located<'t>>,
    sets: Vec<Located<'t>>,
    elements: Vec<Located<'t>>,
    rules: Vec<Located<'t>>,
}

/// `ip NAME { ... }`, after the word `table`.
pub(super) fn table<'t>(cursor: &mut Cursor<'t>, into: &mut Vec<Located<'t>>) -> Parsed<()> {
    let line = cursor.line();
    let id = table_id(cursor)?;
    cursor.expect(Kind::Open)?;
    let text = format!("table {}", id.name);
    into.push(Located { line, text, table: id.clone(), command: Command::AddTable });
    let mut block = Block::default();
    loop {
        cursor.skip_ends();
        if cursor.eat(Kind::Close) {
            break;
        }
        table_item(cursor, &id, &mut block)?;
    }
    into.extend(block.chains.into_iter().chain(block.sets).chain(block.elements).chain(block.rules));
    Ok(())
}

fn table_item<'t>(cursor: &mut Cursor<'t>, id: &TableId, block: &mut Block<'t>) -> Parsed<()> {
    let (from, line) = (cursor.at, cursor.line());
    let object = cursor.word("a set, map or chain")?;
    if object == "comment" {
        cursor.quoted()?;
        return cursor.expect_end();
    }
    if !matches!(object, "set" | "map" | "chain") {
        cursor.at = from;
        return Err(cursor.syntax("expected a set, map or chain"));
    }
    let name = cursor.word("a name")?;
    cursor.expect(Kind::Open)?;
    let text = format!("{object} {name}");
    let located = |line, text, command| Located { line, text, table: id.clone(), command };
    if object == "chain" {
        let (base, rules) = chain(cursor, id.family, name)?;
        block.chains.push(located(line, text, Command::AddChain { name, base }));
        block.rules.extend(rules.into_iter().map(|(line, text, command)| located(line, text, command)));
        return Ok(());
    }
    let (spec, elements) = set(cursor, id.family, object == "map")?;
    block.sets.push(located(line, text.clone(), Command::AddSet { name, spec }));
    if !elements.is_empty() {
        block.elements.push(located(line, text, Command::AddElements { set: name, elements }));
    }
    Ok(())
}

/// `comment "..." }`, after the opening brace of a table in a script.
pub(super) fn comment_only(cursor: &mut Cursor<'_>) -> Parsed<()> {
    loop {
        cursor.skip_ends();
        if cursor.eat(Kind::Close) {
            return Ok(());
        }
        cursor.expect_word("comment")?;
        cursor.quoted()?;
        cursor.expect_end()?;
    }
}

/// The options of a chain in a script, up to the closing brace.
pub(super) fn chain_options(cursor: &mut Cursor<'_>) -> Parsed<Option<BaseSpec>> {
    let mut base = None;
    loop {
        cursor.skip_ends();
        if cursor.eat(Kind::Close) {
            return Ok(base);
        }
        if !chain_option(cursor, &mut base)? {
            return Err(cursor.syntax("chain option not understood"));
        }
        cursor.expect_end()?;
    }
}

type ChainBody<'t> = (Option<BaseSpec>, Vec<(usize, String, Command<'t>)>);

fn chain<'t>(cursor: &mut Cursor<'t>, family: IpFamily, name: &'t str) -> Parsed<ChainBody<'t>> {
    let (mut base, mut rules) = (None, Vec::new());
    loop {
        cursor.skip_ends();
        if cursor.eat(Kind::Close) {
            return Ok((base, rules));
        }
        if !chain_option(cursor, &mut base)? {
            let line = cursor.line();
            let rule = rule(cursor, family)?;
            let text = rule.text.to_string();
            rules.push((line, text, Command::AddRule { chain: name, rule, scripted: false }));
        }
        cursor.expect_end()?;
    }
}

/// Reads `type ... hook ... priority ...`, `policy ...` or `comment "..."`; false if something else comes.
fn chain_option(cursor: &mut Cursor<'_>, base: &mut Option<BaseSpec>) -> Parsed<bool> {
    match cursor.peek_word() {
        Some("type") => *base = Some(base_spec(cursor)?),
        Some("comment") => {
            cursor.advance();
            cursor.quoted()?;
        }
        Some("policy") => {
            let Some(spec) = base else { return Err(cursor.syntax("policy before the type")) };
            cursor.advance();
            spec.policy_given = true;
            spec.base.accept = match cursor.word("a policy")? {
                "accept" => true,
                "drop" => false,
                _ => return Err(cursor.syntax("policy not understood")),
            };
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn base_spec(cursor: &mut Cursor<'_>) -> Parsed<BaseSpec> {
    cursor.advance();
    let kind = match cursor.word("a chain type")? {
        "filter" => ChainKind::Filter,
        "nat" => ChainKind::Nat,
        _ => return Err(cursor.syntax("chain type not understood")),
    };
    cursor.expect_word("hook")?;
    let hook = match cursor.word("a hook")? {
        "prerouting" => Hook::Prerouting,
        "input" => Hook::Input,
        "forward" => Hook::Forward,
        "output" => Hook::Output,
        "postrouting" => Hook::Postrouting,
        _ => return Err(cursor.syntax("hook not understood")),
    };
    cursor.expect_word("priority")?;
    let base = BaseChain { kind, hook, priority: priority(cursor)?, accept: true };
    Ok(BaseSpec { base, policy_given: false })
}

/// A number, a name, or a name and an offset (`dstnat - 10`). Values of the names: nft(8), "priority".
fn priority(cursor: &mut Cursor<'_>) -> Parsed<i32> {
    let word = cursor.peek_word().unwrap_or_default();
    let base = match word {
        "raw" => -300,
        "mangle" => -150,
        "dstnat" => -100,
        "filter" => 0,
        "security" => 50,
        "srcnat" => 100,
        _ => return cursor.number("a priority"),
    };
    cursor.advance();
    let sign = match cursor.peek_word() {
        Some("+") => 1,
        Some("-") => -1,
        _ => return Ok(base),
    };
    cursor.advance();
    Ok(base + sign * cursor.number::<i32>("an offset")?)
}

/// The body of a set or map, after its opening brace.
pub(super) fn set<'t>(
    cursor: &mut Cursor<'t>,
    family: IpFamily,
    is_map: bool,
) -> Parsed<(SetSpec, Vec<RawElement<'t>>)> {
    let mut spec = SetSpec::default();
    let mut elements = Vec::new();
    loop {
        cursor.skip_ends();
        let start = cursor.at;
        if cursor.eat(Kind::Close) {
            break;
        }
        match cursor.word("a set option")? {
            "type" => type_names(cursor, &mut spec)?,
            "typeof" => type_of(cursor, family, &mut spec)?,
            "flags" => flags(cursor, &mut spec.flags)?,
            "timeout" => spec.timeout_ms = Some(duration(cursor)?),
            "gc-interval" => {
                duration(cursor)?;
            }
            "size" => spec.size = Some(cursor.number("a size")?),
            "auto-merge" => spec.auto_merge = true,
            "policy" => {
                cursor.word("a policy")?;
            }
            "comment" => {
                cursor.quoted()?;
            }
            "elements" => {
                cursor.expect_word("=")?;
                elements.extend(raw_elements(cursor)?);
            }
            _ => {
                cursor.at = start;
                return Err(cursor.syntax("set option not understood"));
            }
        }
        cursor.expect_end()?;
    }
    if spec.key.is_empty() || is_map != (spec.data != DataKind::Nothing) {
        return Err(cursor.syntax("a set needs a key type, a map also a data type"));
    }
    if spec.flags.dynamic && spec.size.is_none() {
        spec.size = Some(DYNAMIC_SIZE);
    }
    Ok((spec, elements))
}

/// Size that nft gives a dynamic set without one.
const DYNAMIC_SIZE: usize = 65_535;

fn type_names(cursor: &mut Cursor<'_>, spec: &mut SetSpec) -> Parsed<()> {
    spec.key = type_list(cursor)?;
    if cursor.eat_word(":") {
        spec.data =
            if cursor.eat_word("verdict") { DataKind::Verdict } else { DataKind::Values(type_list(cursor)?) };
    }
    Ok(())
}

fn type_list(cursor: &mut Cursor<'_>) -> Parsed<Vec<DataType>> {
    let mut types = Vec::new();
    loop {
        let found = cursor.peek_word().and_then(DataType::from_name);
        types.push(found.ok_or_else(|| cursor.syntax("data type not understood"))?);
        cursor.advance();
        if !cursor.eat_word(".") {
            return Ok(types);
        }
    }
}

fn type_of(cursor: &mut Cursor<'_>, family: IpFamily, spec: &mut SetSpec) -> Parsed<()> {
    (spec.key, _) = expression_types(cursor, family)?;
    if cursor.eat_word(":") {
        if cursor.eat_word("verdict") {
            spec.data = DataKind::Verdict;
        } else {
            let (types, protocol) = expression_types(cursor, family)?;
            spec.data = DataKind::Values(types);
            spec.data_protocol = protocol;
        }
    }
    Ok(())
}

/// Types of `a . b . c`, and the protocol that a `tcp dport` among them names.
fn expression_types(cursor: &mut Cursor<'_>, family: IpFamily) -> Parsed<(Vec<DataType>, Option<Protocol>)> {
    let (mut types, mut protocol) = (Vec::new(), None);
    loop {
        let field = field(cursor, family)?;
        types.push(field.data_type(family));
        if let Field::DestinationPort(Some(named)) = field {
            protocol = Some(named);
        }
        if !cursor.eat_word(".") {
            return Ok((types, protocol));
        }
    }
}

fn flags(cursor: &mut Cursor<'_>, flags: &mut SetFlags) -> Parsed<()> {
    loop {
        match cursor.peek_word() {
            Some("constant") => flags.constant = true,
            Some("dynamic") => flags.dynamic = true,
            Some("interval") => flags.interval = true,
            Some("timeout") => flags.timeout = true,
            _ => return Err(cursor.syntax("flag not understood")),
        }
        cursor.advance();
        if !cursor.eat(Kind::Comma) {
            return Ok(());
        }
    }
}
