//! nft syntax: what a transaction says, one command per line.
//!
//! The same text is the dry run, the debug log and the input of a second writer (`nft -f`) that tests compare with
//! [`wire`](crate::wire). It stays within what nft 1.0.6 can load, and is written as a person would write it.
//!
//! Two things that nft 1.0.6 does to endpoint maps (keys with [`Field::Index`]) decide their declaration:
//!
//! * Their key has no `type` form, since an integer has no fixed size there; so they are declared by `typeof`.
//! * A `dnat` rule evaluates the map's declared data. With `tcp dport` in it nft puts a `meta l4proto tcp` before the
//!   rule, which then never translates UDP or SCTP, and prints it as if it were not there. `th dport` has no such
//!   effect. The price: nft cannot read `th dport` back from the kernel when it evaluates a `dnat` rule, so such a rule
//!   loads only in a transaction that declares its map (`conflicting protocols specified` otherwise). Elements, other
//!   rules and whole tables are not affected, and neither is the netlink writer.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use proxier_core::ids::IpFamily;
use proxier_core::names::truncate_comment;

use crate::objects::{
    Atom, Base, Chain, ChainType, Data, Element, Field, Hook, Key, Name, Op, Rule, Set, TABLE_COMMENT, Table,
    Value,
};

mod rules;
#[cfg(test)]
mod tests;

/// Longest comment of a rule or an element, in bytes (nftables spec 12, number 37).
pub const MAX_COMMENT: usize = 127;

/// A transaction as an `nft -f` script. Operations without elements print nothing.
#[must_use]
pub fn ops_text(table: &Table, ops: &[Op]) -> String {
    printed(table.family, |p| {
        for op in ops {
            let before = p.out.len();
            p.op(table, op);
            if p.out.len() > before {
                p.out.push('\n');
            }
        }
    })
}

/// One operation, without a line's end; empty for element operations without elements.
#[must_use]
pub fn op_text(table: &Table, op: &Op) -> String {
    printed(table.family, |p| p.op(table, op))
}

/// `ip` or `ip6`: the table's family, which is also the protocol of its addresses.
#[must_use]
pub fn family(table: &Table) -> &'static str {
    ip(table.family)
}

fn ip(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 => "ip",
        IpFamily::Ipv6 => "ip6",
    }
}

/// A rule without its chain: `ct state new jump services-check comment "..."`.
#[must_use]
pub fn rule_text(table: &Table, rule: &Rule) -> String {
    printed(table.family, |p| p.rule(rule))
}

/// An element: `10.96.0.10 . udp . 53 comment "kube-system/dns:dns" : goto cluster-2`.
#[must_use]
pub fn element_text(element: &Element) -> String {
    printed(IpFamily::Ipv4, |p| p.element(element))
}

/// The key of an element: `10.96.0.10 . udp . 53`.
#[must_use]
pub fn key_text(key: &Key) -> String {
    printed(IpFamily::Ipv4, |p| p.key(key))
}

/// A set or map with its declaration: `set cluster-ips { type ipv4_addr ; }`.
#[must_use]
pub fn set_text(table: &Table, set: &Set) -> String {
    printed(table.family, |p| {
        p.put(format_args!("{} {} ", set_word(set), set.name));
        p.set_body(set);
    })
}

/// A chain with its declaration: `chain services`, `chain x { type nat hook prerouting priority -100 ; policy accept ; }`.
#[must_use]
pub fn chain_text(chain: &Chain) -> String {
    printed(IpFamily::Ipv4, |p| {
        p.put(format_args!("chain {}", chain.name));
        p.chain_body(chain);
    })
}

/// A comment as both writers store it: at most [`MAX_COMMENT`] bytes, and nothing in it that could end the quoted
/// string of a script, for which nft knows no escape: `"` becomes `'`, control characters become blanks.
#[must_use]
pub fn comment_text(comment: &str) -> Cow<'_, str> {
    let cut = truncate_comment(comment, MAX_COMMENT);
    if cut.contains(|c: char| c == '"' || c.is_control()) {
        Cow::Owned(cut.chars().map(clean).collect())
    } else {
        Cow::Borrowed(cut)
    }
}

fn clean(c: char) -> char {
    match c {
        '"' => '\'',
        // A wider control character would shrink to one byte, which keeps the limit.
        c if c.is_control() => ' ',
        c => c,
    }
}

fn printed(family: IpFamily, print: impl FnOnce(&mut Printer)) -> String {
    let mut printer = Printer { family, out: String::new() };
    print(&mut printer);
    printer.out
}

fn set_word(set: &Set) -> &'static str {
    match set.data {
        Data::None => "set",
        Data::Verdict | Data::Fields(_) => "map",
    }
}

/// Prints into a string. Where no family matters, any does.
struct Printer {
    family: IpFamily,
    out: String,
}

/// Commands.
impl Printer {
    fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(text);
    }

    fn command(&mut self, what: &str, table: &Table) {
        self.put(format_args!("{what} {} {}", family(table), table.name));
    }

    fn named_command(&mut self, what: &str, table: &Table, name: &Name) {
        self.command(what, table);
        self.put(format_args!(" {name}"));
    }

    fn op(&mut self, table: &Table, op: &Op) {
        match op {
            Op::AddTable => {
                self.command("add table", table);
                self.put(format_args!(" {{ comment \"{TABLE_COMMENT}\" ; }}"));
            }
            Op::DeleteTable => self.command("delete table", table),
            Op::AddChain(chain) => {
                self.named_command("add chain", table, &chain.name);
                self.chain_body(chain);
            }
            Op::FlushChain(name) => self.named_command("flush chain", table, name),
            Op::DeleteChain(name) => self.named_command("delete chain", table, name),
            Op::AddRule(chain, rule) => {
                self.named_command("add rule", table, chain);
                self.out.push(' ');
                self.rule(rule);
            }
            Op::AddSet(set) => {
                self.named_command(
                    if set.data == Data::None { "add set" } else { "add map" },
                    table,
                    &set.name,
                );
                self.out.push(' ');
                self.set_body(set);
            }
            // nft deletes a map by this as well.
            Op::DeleteSet(name) => self.named_command("delete set", table, name),
            Op::AddElements(_, elements) if elements.is_empty() => {}
            Op::AddElements(set, elements) => {
                self.named_command("add element", table, set);
                self.list(elements, Self::element);
            }
            Op::DeleteElements(_, keys) if keys.is_empty() => {}
            Op::DeleteElements(set, keys) => {
                self.named_command("delete element", table, set);
                self.list(keys, Self::key);
            }
        }
    }

    /// ` { a, b }`
    fn list<T>(&mut self, items: &[T], mut print: impl FnMut(&mut Self, &T)) {
        self.out.push_str(" { ");
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            print(self, item);
        }
        self.out.push_str(" }");
    }

    /// `a . b . c`
    fn concat<T: Copy>(&mut self, items: &[T], mut print: impl FnMut(&mut Self, T)) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(" . ");
            }
            print(self, *item);
        }
    }

    fn comment(&mut self, comment: Option<&Name>) {
        if let Some(comment) = comment {
            self.put(format_args!(" comment \"{}\"", comment_text(comment)));
        }
    }
}

/// Chains, sets and elements.
impl Printer {
    fn chain_body(&mut self, chain: &Chain) {
        if chain.base.is_none() && chain.comment.is_none() {
            return;
        }
        self.out.push_str(" {");
        if let Some(Base { kind, hook, priority }) = chain.base {
            let (kind, hook) = (chain_type(kind), hook_name(hook));
            self.put(format_args!(" type {kind} hook {hook} priority {priority} ; policy accept ;"));
        }
        if chain.comment.is_some() {
            self.comment(chain.comment.as_ref());
            self.out.push_str(" ;");
        }
        self.out.push_str(" }");
    }

    fn set_body(&mut self, set: &Set) {
        let by_example = is_by_example(set);
        self.out.push_str(if by_example { "{ typeof " } else { "{ type " });
        self.concat(&set.key, |p, field| p.field(field, by_example));
        match &set.data {
            Data::None => {}
            Data::Verdict => self.out.push_str(" : verdict"),
            Data::Fields(fields) => {
                self.out.push_str(" : ");
                self.concat(fields, |p, field| p.field(field, by_example));
            }
        }
        self.out.push_str(" ;");
        if let Some(size) = set.size {
            self.put(format_args!(" size {size} ;"));
        }
        if let Some(seconds) = set.timeout {
            self.put(format_args!(" flags dynamic,timeout ; timeout {seconds}s ;"));
        }
        if set.comment.is_some() {
            self.comment(set.comment.as_ref());
            self.out.push_str(" ;");
        }
        self.out.push_str(" }");
    }

    fn field(&mut self, field: Field, by_example: bool) {
        let text = match (field, self.family, by_example) {
            (Field::Addr, IpFamily::Ipv4, false) => "ipv4_addr",
            (Field::Addr, IpFamily::Ipv6, false) => "ipv6_addr",
            (Field::Addr, IpFamily::Ipv4, true) => "ip daddr",
            (Field::Addr, IpFamily::Ipv6, true) => "ip6 daddr",
            (Field::Proto, _, false) => "inet_proto",
            (Field::Proto, _, true) => "meta l4proto",
            (Field::Service, _, false) => "inet_service",
            (Field::Service, _, true) => "th dport",
            (Field::Index, ..) => "numgen random mod 2",
        };
        self.out.push_str(text);
    }

    fn element(&mut self, element: &Element) {
        self.key(&element.key);
        self.comment(element.comment.as_ref());
        match &element.value {
            Value::None => {}
            Value::Verdict(verdict) => {
                self.out.push_str(" : ");
                self.verdict(verdict);
            }
            Value::Endpoint(addr, port) => self.put(format_args!(" : {addr} . {port}")),
        }
    }

    fn key(&mut self, key: &Key) {
        self.concat(&key.atoms(), |p, atom| match atom {
            Atom::Addr(addr) => p.put(format_args!("{addr}")),
            Atom::Proto(protocol) => p.out.push_str(protocol.as_str()),
            Atom::Port(port) => p.put(format_args!("{port}")),
            Atom::Index(index) => p.put(format_args!("{index}")),
        });
    }
}

/// An index has no `type` name: such sets are declared by the expressions that fill them.
pub(crate) fn is_by_example(set: &Set) -> bool {
    let indexed = |fields: &[Field]| fields.contains(&Field::Index);
    indexed(&set.key) || matches!(&set.data, Data::Fields(fields) if indexed(fields))
}

fn chain_type(kind: ChainType) -> &'static str {
    match kind {
        ChainType::Filter => "filter",
        ChainType::Nat => "nat",
    }
}

fn hook_name(hook: Hook) -> &'static str {
    match hook {
        Hook::Prerouting => "prerouting",
        Hook::Input => "input",
        Hook::Forward => "forward",
        Hook::Output => "output",
        Hook::Postrouting => "postrouting",
    }
}
