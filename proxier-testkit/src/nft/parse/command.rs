//! Commands of a script.

use std::sync::Arc;

use proxier_core::ids::IpFamily;

use super::element::{RawElement, raw_elements};
use super::rule::rule;
use super::{Cursor, Parsed, block};
use crate::nft::ast::Rule;
use crate::nft::model::{BaseChain, SetSpec};
use crate::nft::token::Kind;

/// A table's identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::nft) struct TableId {
    pub(in crate::nft) family: IpFamily,
    pub(in crate::nft) name: Arc<str>,
}

/// What the block of a base chain says; a policy that is not written stays as it is.
#[derive(Clone, Debug)]
pub(in crate::nft) struct BaseSpec {
    pub(in crate::nft) base: BaseChain,
    pub(in crate::nft) policy_given: bool,
}

/// One change.
#[derive(Debug)]
pub(in crate::nft) enum Command<'t> {
    AddTable,
    DeleteTable {
        missing_ok: bool,
    },
    FlushTable,
    AddChain {
        name: &'t str,
        base: Option<BaseSpec>,
    },
    DeleteChain {
        name: &'t str,
        missing_ok: bool,
    },
    FlushChain {
        name: &'t str,
    },
    /// `scripted`: as `add rule`, so that nft would add what it adds.
    AddRule {
        chain: &'t str,
        rule: Rule,
        scripted: bool,
    },
    AddSet {
        name: &'t str,
        spec: SetSpec,
    },
    DeleteSet {
        name: &'t str,
        missing_ok: bool,
    },
    FlushSet {
        name: &'t str,
        map: bool,
    },
    AddElements {
        set: &'t str,
        elements: Vec<RawElement<'t>>,
    },
    DeleteElements {
        set: &'t str,
        elements: Vec<RawElement<'t>>,
        missing_ok: bool,
    },
}

/// A command, its table and where it was written.
#[derive(Debug)]
pub(in crate::nft) struct Located<'t> {
    pub(in crate::nft) line: usize,
    pub(in crate::nft) text: String,
    pub(in crate::nft) table: TableId,
    pub(in crate::nft) command: Command<'t>,
}

/// Reads one command, or a `table` block as several.
pub(super) fn command<'t>(cursor: &mut Cursor<'t>, into: &mut Vec<Located<'t>>) -> Parsed<()> {
    let (from, line) = (cursor.at, cursor.line());
    match cursor.word("a command")? {
        "table" => block::table(cursor, into),
        verb @ ("add" | "delete" | "destroy" | "flush") => {
            let object = cursor.word("an object")?;
            let known = matches!(
                (verb, object),
                (_, "table" | "chain" | "set" | "map")
                    | ("add", "rule")
                    | ("add" | "delete" | "destroy", "element")
            );
            if !known {
                cursor.at = from;
                return Err(cursor.syntax("command not understood"));
            }
            let table = table_id(cursor)?;
            let commands = match verb {
                "add" => add(cursor, object, &table)?,
                "flush" => vec![flush(cursor, object)?],
                _ => vec![delete(cursor, object, verb == "destroy")?],
            };
            cursor.expect_end()?;
            let text = cursor.source(from, cursor.at);
            into.extend(commands.into_iter().map(|command| Located {
                line,
                text: text.clone(),
                table: table.clone(),
                command,
            }));
            Ok(())
        }
        _ => {
            cursor.at = from;
            Err(cursor.syntax("command not understood"))
        }
    }
}

/// `[ip|ip6] name`; without a family it is ip.
pub(super) fn table_id(cursor: &mut Cursor<'_>) -> Parsed<TableId> {
    let family = match cursor.peek_word() {
        Some("ip") => IpFamily::Ipv4,
        Some("ip6") => IpFamily::Ipv6,
        Some("inet" | "netdev" | "bridge" | "arp") => return Err(cursor.syntax("family not understood")),
        _ => return Ok(TableId { family: IpFamily::Ipv4, name: cursor.word("a table name")?.into() }),
    };
    cursor.advance();
    Ok(TableId { family, name: cursor.word("a table name")?.into() })
}

fn add<'t>(cursor: &mut Cursor<'t>, object: &str, table: &TableId) -> Parsed<Vec<Command<'t>>> {
    if object == "table" {
        if cursor.eat(Kind::Open) {
            block::comment_only(cursor)?;
        }
        return Ok(vec![Command::AddTable]);
    }
    let name = cursor.word("a name")?;
    Ok(match object {
        "chain" => {
            let base = if cursor.eat(Kind::Open) { block::chain_options(cursor)? } else { None };
            vec![Command::AddChain { name, base }]
        }
        "rule" => vec![Command::AddRule { chain: name, rule: rule(cursor, table.family)?, scripted: true }],
        "element" => vec![Command::AddElements { set: name, elements: raw_elements(cursor)? }],
        _ => {
            cursor.expect(Kind::Open)?;
            let (spec, elements) = block::set(cursor, table.family, object == "map")?;
            let mut commands = vec![Command::AddSet { name, spec }];
            if !elements.is_empty() {
                commands.push(Command::AddElements { set: name, elements });
            }
            commands
        }
    })
}

fn delete<'t>(cursor: &mut Cursor<'t>, object: &str, missing_ok: bool) -> Parsed<Command<'t>> {
    if object == "table" {
        return Ok(Command::DeleteTable { missing_ok });
    }
    let name = cursor.word("a name")?;
    Ok(match object {
        "chain" => Command::DeleteChain { name, missing_ok },
        "element" => Command::DeleteElements { set: name, elements: raw_elements(cursor)?, missing_ok },
        _ => Command::DeleteSet { name, missing_ok },
    })
}

fn flush<'t>(cursor: &mut Cursor<'t>, object: &str) -> Parsed<Command<'t>> {
    if object == "table" {
        return Ok(Command::FlushTable);
    }
    let name = cursor.word("a name")?;
    Ok(match object {
        "chain" => Command::FlushChain { name },
        _ => Command::FlushSet { name, map: object == "map" },
    })
}
