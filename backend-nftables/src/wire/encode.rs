//! Operations to one nf_tables transaction.

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::{AttrWriter, Batch, NetlinkError, flags, subsystem};

use super::numbers::{chain, elem_list, hook, msg, rule, set, table, verdict};
use super::sets::Anonymous;
use super::{WireError, check, elements, expressions, nfproto, sets, userdata};
use crate::objects::{Base, Chain, ChainType, Hook, Name, Op, Rule, Set, TABLE_COMMENT, Table};

/// An attribute holds at most 65,535 bytes; an element, with its comment, takes less than the difference: key and data
/// have at most 64 bytes, a chain's name 256, a comment 128.
const LIST_LIMIT: usize = 64_000;

/// A transaction as messages.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The messages.
    pub batch: Batch,
    /// For each message the index of the operation it belongs to. An operation may need several messages, or none.
    pub owner: Vec<usize>,
}

/// Encodes a transaction of this table.
///
/// The order of operations is kept. Sets that belong to one rule are declared in front of it.
///
/// # Errors
/// [`WireError::WrongFamily`] and [`WireError::Inexpressible`] name the operation that cannot be encoded;
/// [`NetlinkError::Oversized`] is a name of more than 64 KiB.
pub fn encode(table: &Table, ops: &[Op]) -> Result<Encoded, WireError> {
    let mut encoder = Encoder {
        family: table.family,
        table: &table.name,
        batch: Batch::with_capacity(subsystem::NFTABLES, ops.iter().map(room).sum()),
        owner: Vec::with_capacity(ops.len()),
        sets: 0,
        op: 0,
    };
    for (index, op) in ops.iter().enumerate() {
        check::check(table.family, index, op)?;
        encoder.op = index;
        encoder.op(op);
    }
    encoder.batch.bytes().map_err(NetlinkError::from)?;
    Ok(Encoded { batch: encoder.batch, owner: encoder.owner })
}

/// About as many bytes as an operation takes, so that a big transaction is not copied while it grows.
fn room(op: &Op) -> usize {
    match op {
        Op::AddElements(_, elements) => 128 + elements.len() * 104,
        Op::DeleteElements(_, keys) => 128 + keys.len() * 40,
        _ => 256,
    }
}

struct Encoder<'a> {
    family: IpFamily,
    table: &'a str,
    batch: Batch,
    owner: Vec<usize>,
    /// Sets declared so far: their ids count from 1.
    sets: u32,
    /// The operation that is being encoded.
    op: usize,
}

impl Encoder<'_> {
    fn message(&mut self, kind: u8, flags: u16, fill: impl FnOnce(&mut AttrWriter<'_>)) {
        self.batch.message(kind, flags, nfproto(self.family), fill);
        self.owner.push(self.op);
    }

    fn op(&mut self, op: &Op) {
        let name = self.table;
        match op {
            Op::AddTable => self.message(msg::NEW_TABLE, flags::CREATE, |w| {
                w.put_str(table::NAME, name);
                w.put_u32_be(table::FLAGS, 0);
                w.put_bytes(table::USERDATA, userdata::comment(TABLE_COMMENT).as_slice());
            }),
            Op::DeleteTable => self.message(msg::DEL_TABLE, 0, |w| w.put_str(table::NAME, name)),
            Op::AddChain(added) => {
                self.message(msg::NEW_CHAIN, flags::CREATE, |w| write_chain(w, name, added));
            }
            Op::FlushChain(flushed) => self.message(msg::DEL_RULE, 0, |w| {
                w.put_str(rule::TABLE, name);
                w.put_str(rule::CHAIN, flushed);
            }),
            Op::DeleteChain(deleted) => self.message(msg::DEL_CHAIN, 0, |w| {
                w.put_str(chain::TABLE, name);
                w.put_str(chain::NAME, deleted);
            }),
            Op::AddRule(chain, added) => self.rule(chain, added),
            Op::AddSet(added) => self.set(added),
            Op::DeleteSet(deleted) => self.message(msg::DEL_SET, 0, |w| {
                w.put_str(set::TABLE, name);
                w.put_str(set::NAME, deleted);
            }),
            Op::AddElements(set, added) => {
                self.elements(msg::NEW_SETELEM, (set, None), added, elements::write);
            }
            Op::DeleteElements(set, deleted) => {
                self.elements(msg::DEL_SETELEM, (set, None), deleted, elements::write_key);
            }
        }
    }

    fn next_set(&mut self) -> u32 {
        self.sets += 1;
        self.sets
    }

    fn set(&mut self, added: &Set) {
        let (family, table, id) = (self.family, self.table, self.next_set());
        self.message(msg::NEW_SET, flags::CREATE, |w| sets::write(w, family, table, id, added));
    }

    fn rule(&mut self, chain: &Name, added: &Rule) {
        let mut ids = Vec::new();
        for stmt in &added.stmts {
            if let Some(set) = Anonymous::of(stmt) {
                ids.push(self.anonymous(&set));
            }
        }
        let (family, table) = (self.family, self.table);
        self.message(msg::NEW_RULE, flags::CREATE | flags::APPEND, |w| {
            w.put_str(rule::TABLE, table);
            w.put_str(rule::CHAIN, chain);
            w.nest(rule::EXPRESSIONS, |w| expressions::write(w, family, added, &ids));
            if let Some(comment) = &added.comment {
                w.put_bytes(rule::USERDATA, userdata::comment(comment).as_slice());
            }
        });
    }

    fn anonymous(&mut self, added: &Anonymous<'_>) -> u32 {
        let (family, table, id) = (self.family, self.table, self.next_set());
        self.message(msg::NEW_SET, flags::CREATE, |w| added.write(w, family, table, id));
        let set = (added.name(), Some(id));
        match added {
            Anonymous::Hosts(_, hosts) => self.elements(msg::NEW_SETELEM, set, hosts, |w, host| {
                let point = elements::Point { at: *host, end: false, open: false };
                elements::write_point(w, family, point);
            }),
            Anonymous::Ranges(_, ranges) => {
                let points = elements::points(family, ranges);
                self.elements(msg::NEW_SETELEM, set, &points, |w, point| {
                    elements::write_point(w, family, *point);
                });
            }
            Anonymous::Endpoints(endpoints) => {
                let mut index = 0u32..;
                self.elements(msg::NEW_SETELEM, set, endpoints, |w, (addr, port)| {
                    elements::write_endpoint(w, index.next().unwrap_or_default(), *addr, *port);
                });
            }
            Anonymous::Chains(chains) => {
                let mut index = 0u32..;
                self.elements(msg::NEW_SETELEM, set, chains, |w, chain| {
                    elements::write_goto(w, index.next().unwrap_or_default(), chain);
                });
            }
        }
        id
    }

    /// As many messages as the limit of a list makes necessary.
    fn elements<T>(
        &mut self,
        kind: u8,
        (set, id): (&str, Option<u32>),
        items: &[T],
        mut write: impl FnMut(&mut AttrWriter<'_>, &T),
    ) {
        let flags = if kind == msg::NEW_SETELEM { flags::CREATE } else { 0 };
        let table = self.table;
        let mut items = items.iter().peekable();
        while items.peek().is_some() {
            self.message(kind, flags, |w| {
                w.put_str(elem_list::TABLE, table);
                w.put_str(elem_list::SET, set);
                if let Some(id) = id {
                    w.put_u32_be(elem_list::SET_ID, id);
                }
                w.nest(elem_list::ELEMENTS, |w| {
                    let start = w.len();
                    while w.len() - start < LIST_LIMIT {
                        let Some(item) = items.next() else { break };
                        write(w, item);
                    }
                });
            });
        }
    }
}

fn write_chain(w: &mut AttrWriter<'_>, table: &str, added: &Chain) {
    w.put_str(chain::TABLE, table);
    w.put_str(chain::NAME, &added.name);
    if let Some(Base { kind, hook: place, priority }) = added.base {
        w.put_str(chain::TYPE, chain_type(kind));
        w.put_u32_be(chain::POLICY, verdict::ACCEPT);
        w.nest(chain::HOOK, |w| {
            w.put_u32_be(hook::HOOKNUM, hook_number(place));
            w.put_u32_be(hook::PRIORITY, priority.cast_unsigned());
        });
    }
    if let Some(comment) = &added.comment {
        w.put_bytes(chain::USERDATA, userdata::comment(comment).as_slice());
    }
}

pub(super) fn chain_type(kind: ChainType) -> &'static str {
    match kind {
        ChainType::Filter => "filter",
        ChainType::Nat => "nat",
    }
}

/// `NF_INET_*` of `linux/netfilter.h`.
pub(super) fn hook_number(hook: Hook) -> u32 {
    match hook {
        Hook::Prerouting => 0,
        Hook::Input => 1,
        Hook::Forward => 2,
        Hook::Output => 3,
        Hook::Postrouting => 4,
    }
}
