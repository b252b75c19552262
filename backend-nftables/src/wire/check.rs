//! What netlink could say but must not: looked for before anything is written.

use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::IpFamily;

use super::WireError;
use super::numbers::IFNAMSIZ;
use crate::objects::{Element, Key, Op, Selector, Stmt, Value};

/// Checks one operation of a table of this family.
pub(super) fn check(family: IpFamily, index: usize, op: &Op) -> Result<(), WireError> {
    let checker = Checker { family, op: index };
    match op {
        Op::AddRule(_, rule) => rule.stmts.iter().try_for_each(|stmt| checker.stmt(stmt)),
        Op::AddElements(_, elements) => elements.iter().try_for_each(|element| checker.element(element)),
        Op::DeleteElements(_, keys) => keys.iter().try_for_each(|key| checker.key(key)),
        Op::AddSet(set) if set.key.is_empty() => Err(checker.cannot("a set needs a key")),
        Op::AddTable
        | Op::DeleteTable
        | Op::AddChain(_)
        | Op::FlushChain(_)
        | Op::DeleteChain(_)
        | Op::AddSet(_)
        | Op::DeleteSet(_) => Ok(()),
    }
}

struct Checker {
    family: IpFamily,
    op: usize,
}

impl Checker {
    fn cannot(&self, what: &'static str) -> WireError {
        WireError::Inexpressible { op: self.op, what }
    }

    fn addr(&self, addr: IpAddr) -> Result<(), WireError> {
        match (self.family, addr) {
            (IpFamily::Ipv4, IpAddr::V4(_)) | (IpFamily::Ipv6, IpAddr::V6(_)) => Ok(()),
            (family, addr) => Err(WireError::WrongFamily { op: self.op, addr, family }),
        }
    }

    fn key(&self, key: &Key) -> Result<(), WireError> {
        match *key {
            Key::Addr(addr)
            | Key::AddrPort(addr, ..)
            | Key::AddrPortIndex(addr, ..)
            | Key::Hairpin(addr, ..) => self.addr(addr),
            Key::Port(_) | Key::ProtoPort(..) | Key::ProtoPortIndex(..) => Ok(()),
        }
    }

    fn element(&self, element: &Element) -> Result<(), WireError> {
        self.key(&element.key)?;
        match element.value {
            Value::Endpoint(addr, _) => self.addr(addr),
            Value::None | Value::Verdict(_) => Ok(()),
        }
    }

    fn stmt(&self, stmt: &Stmt) -> Result<(), WireError> {
        match stmt {
            Stmt::Addr { selector, cidr, .. } => self.ranges(*selector, std::slice::from_ref(cidr)),
            Stmt::AddrIn { selector, cidrs, .. } => self.ranges(*selector, cidrs),
            Stmt::FibLocal(selector) => self.address_selector(*selector),
            Stmt::InSet { selectors, .. } | Stmt::Vmap { selectors, .. } => self.selectors(selectors),
            Stmt::DnatMap { modulus, offset, .. } if offset.checked_add(*modulus).is_none() => {
                Err(self.cannot("an index has 32 bits"))
            }
            Stmt::DnatMap { selectors, modulus, .. } => {
                self.choice(usize::try_from(*modulus).unwrap_or(usize::MAX))?;
                self.selectors(selectors)
            }
            Stmt::IifName { name, prefix, .. } => self.iifname(name, *prefix),
            Stmt::DnatRandom(endpoints) => {
                self.choice(endpoints.len())?;
                endpoints.iter().try_for_each(|(addr, _)| self.addr(*addr))
            }
            Stmt::GotoRandom(chains) => self.choice(chains.len()),
            Stmt::Dnat(addr, _) => self.addr(*addr),
            Stmt::CtState(_)
            | Stmt::CtStatusDnat
            | Stmt::L4Proto(_)
            | Stmt::MarkSet(_)
            | Stmt::OrMark(_)
            | Stmt::XorMark(_)
            | Stmt::UpdateSource(_)
            | Stmt::Masquerade
            | Stmt::Reject
            | Stmt::Reset
            | Stmt::Verdict(_) => Ok(()),
        }
    }

    fn ranges(&self, selector: Selector, cidrs: &[IpNet]) -> Result<(), WireError> {
        self.address_selector(selector)?;
        self.choice(cidrs.len())?;
        cidrs.iter().try_for_each(|cidr| self.addr(cidr.addr()))
    }

    fn address_selector(&self, selector: Selector) -> Result<(), WireError> {
        match selector {
            Selector::SourceAddr | Selector::DestAddr => Ok(()),
            Selector::L4Proto | Selector::DestPort => Err(self.cannot("the selector is no address")),
        }
    }

    fn selectors(&self, selectors: &[Selector]) -> Result<(), WireError> {
        match selectors.len() {
            0 => Err(self.cannot("a lookup needs a field")),
            // Two addresses of IPv6, protocol and port take 40 of the 64 bytes of the registers.
            1..=4 => Ok(()),
            _ => Err(self.cannot("more than four fields do not fit the registers")),
        }
    }

    fn choice(&self, len: usize) -> Result<(), WireError> {
        if len == 0 { Err(self.cannot("nothing to choose from")) } else { Ok(()) }
    }

    fn iifname(&self, name: &str, prefix: bool) -> Result<(), WireError> {
        match name.len() {
            0 if prefix => Err(self.cannot("an interface prefix must not be empty")),
            0 => Err(self.cannot("an interface name must not be empty")),
            IFNAMSIZ.. => Err(self.cannot("an interface name has at most 15 bytes")),
            _ => Ok(()),
        }
    }
}
