//! Rules in nft syntax.

use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::Port;

use super::{Printer, comment_text, ip};
use crate::objects::{CtState, Name, Rule, Selector, Stmt, Verdict};

/// Rules.
impl Printer {
    pub(super) fn rule(&mut self, rule: &Rule) {
        for (i, stmt) in rule.stmts.iter().enumerate() {
            if i > 0 {
                self.out.push(' ');
            }
            self.stmt(stmt);
        }
        self.comment(rule.comment.as_ref());
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::CtState(CtState::New) => self.out.push_str("ct state new"),
            Stmt::CtState(CtState::Invalid) => self.out.push_str("ct state invalid"),
            Stmt::CtStatusDnat => self.out.push_str("ct status dnat"),
            Stmt::Addr { selector, negated, cidr } => {
                self.selector_is(*selector, *negated);
                self.out.push(' ');
                self.cidr(*cidr);
            }
            Stmt::AddrIn { selector, negated, cidrs } => {
                self.selector_is(*selector, *negated);
                self.list(cidrs, |p, cidr| p.cidr(*cidr));
            }
            Stmt::InSet { selectors, set } => {
                self.selectors(selectors);
                self.put(format_args!(" @{set}"));
            }
            Stmt::IifName { negated, name, prefix } => self.iifname(*negated, name, *prefix),
            Stmt::L4Proto(protocol) => self.put(format_args!("meta l4proto {protocol}")),
            Stmt::FibLocal(selector) => self.put(format_args!("fib {} type local", side(*selector))),
            Stmt::MarkSet(mark) => self.put(format_args!("meta mark & {mark:#010x} != 0")),
            Stmt::OrMark(mark) => self.put(format_args!("meta mark set meta mark | {mark:#010x}")),
            Stmt::XorMark(mark) => self.put(format_args!("meta mark set meta mark ^ {mark:#010x}")),
            Stmt::Vmap { selectors, map } => {
                self.selectors(selectors);
                self.put(format_args!(" vmap @{map}"));
            }
            Stmt::DnatMap { selectors, modulus, offset, map } => {
                self.put(format_args!("dnat {} to ", ip(self.family)));
                self.selectors(selectors);
                self.put(format_args!(" . numgen random mod {modulus}"));
                // As nft lists it: zero is left out.
                if *offset > 0 {
                    self.put(format_args!(" offset {offset}"));
                }
                self.put(format_args!(" map @{map}"));
            }
            Stmt::DnatRandom(endpoints) => self.dnat_random(endpoints),
            Stmt::GotoRandom(chains) => self.goto_random(chains),
            Stmt::Dnat(IpAddr::V4(addr), port) => self.put(format_args!("dnat to {addr}:{port}")),
            Stmt::Dnat(IpAddr::V6(addr), port) => self.put(format_args!("dnat to [{addr}]:{port}")),
            Stmt::UpdateSource(set) => {
                self.put(format_args!("update @{set} {{ {} saddr }}", ip(self.family)));
            }
            Stmt::Masquerade => self.out.push_str("masquerade fully-random"),
            Stmt::Reject => self.out.push_str("reject"),
            Stmt::Reset => self.out.push_str("reject with tcp reset"),
            Stmt::Verdict(verdict) => self.verdict(verdict),
        }
    }

    fn dnat_random(&mut self, endpoints: &[(IpAddr, Port)]) {
        self.put(format_args!("dnat {} to numgen random mod {} map", ip(self.family), endpoints.len()));
        let mut index = 0..;
        self.list(endpoints, |p, (addr, port)| {
            p.put(format_args!("{} : {addr} . {port}", index.next().unwrap_or(0)));
        });
    }

    fn goto_random(&mut self, chains: &[Name]) {
        self.put(format_args!("numgen random mod {} vmap", chains.len()));
        let mut index = 0..;
        self.list(chains, |p, chain| {
            p.put(format_args!("{} : goto {chain}", index.next().unwrap_or(0)));
        });
    }

    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Accept => self.out.push_str("accept"),
            Verdict::Drop => self.out.push_str("drop"),
            Verdict::Jump(chain) => self.put(format_args!("jump {chain}")),
            Verdict::Goto(chain) => self.put(format_args!("goto {chain}")),
        }
    }

    fn selectors(&mut self, selectors: &[Selector]) {
        self.concat(selectors, Self::selector);
    }

    fn selector(&mut self, selector: Selector) {
        match selector {
            Selector::SourceAddr | Selector::DestAddr => {
                self.put(format_args!("{} {}", ip(self.family), side(selector)));
            }
            Selector::L4Proto => self.out.push_str("meta l4proto"),
            Selector::DestPort => self.out.push_str("th dport"),
        }
    }

    fn selector_is(&mut self, selector: Selector, negated: bool) {
        self.selector(selector);
        if negated {
            self.out.push_str(" !=");
        }
    }

    /// The range without host bits; a host without its length.
    fn cidr(&mut self, cidr: IpNet) {
        if cidr.prefix_len() == cidr.max_prefix_len() {
            self.put(format_args!("{}", cidr.addr()));
        } else {
            self.put(format_args!("{}", cidr.trunc()));
        }
    }

    /// Quoted, so that no name is a keyword (nftables spec 13). A star that belongs to the name is escaped.
    fn iifname(&mut self, negated: bool, name: &str, prefix: bool) {
        let not = if negated { "!= " } else { "" };
        let name = comment_text(name);
        match (name.strip_suffix('*'), prefix) {
            (_, true) => self.put(format_args!("iifname {not}\"{name}*\"")),
            (Some(stem), false) => self.put(format_args!("iifname {not}\"{stem}\\*\"")),
            (None, false) => self.put(format_args!("iifname {not}\"{name}\"")),
        }
    }
}

fn side(selector: Selector) -> &'static str {
    match selector {
        Selector::SourceAddr => "saddr",
        Selector::DestAddr => "daddr",
        Selector::L4Proto => "l4proto",
        Selector::DestPort => "dport",
    }
}
