//! Expressions back to statements.
//!
//! Each statement of ours is one fixed sequence of expressions at fixed registers (see `expressions`); what does not
//! match one of them makes the whole rule foreign.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Port, Protocol};

use super::elements::read_addr;
use super::expressions::{DPORT_OFFSET, IMMEDIATE_PORT, PORT_LEN, addr_offset, mapped_port, registers};
use super::numbers::{IFNAMSIZ, cmp, ct, fib, masq, meta, payload, reg, reject};
use super::parse::{Expr, RawRule, our_verdict};
use super::{addr_len, nfproto, ranges, userdata};
use crate::objects::{CtState, Name, ObservedRule, Rule, Selector, Stmt};

/// Register of every statement's first value.
const R: u32 = reg::FIRST;

/// What a set that belongs to a rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Networks, sorted.
    Networks(Vec<IpNet>),
    /// Endpoints by index.
    Endpoints(Vec<(IpAddr, Port)>),
    /// Chains to go to by index.
    Chains(Vec<Name>),
    /// Anything else.
    Foreign,
}

/// Raises the rules of one table.
pub(super) struct Raiser<'a> {
    pub(super) family: IpFamily,
    /// Sets that belong to rules, by the name the kernel gave them.
    pub(super) anonymous: &'a BTreeMap<String, Content>,
}

type Raised<'e, 'a> = Option<(Stmt, &'e [Expr<'a>])>;

impl Raiser<'_> {
    /// A dumped rule.
    pub(super) fn rule(&self, raw: &RawRule<'_>) -> ObservedRule {
        let comment = raw.userdata.and_then(userdata::comment_of).map(Name::from);
        let mut stmts = Vec::new();
        let mut rest = &raw.exprs[..];
        while !rest.is_empty() {
            let Some((stmt, behind)) = self.stmt(rest) else { return foreign(raw, comment.as_deref()) };
            stmts.push(stmt);
            rest = behind;
        }
        ObservedRule::Known(Rule { stmts, comment })
    }

    fn stmt<'e, 'a>(&self, exprs: &'e [Expr<'a>]) -> Raised<'e, 'a> {
        let (selectors, loaded, next) = self.loads(exprs);
        if selectors.is_empty() { self.other(exprs) } else { self.on_fields(selectors, loaded, next) }
    }

    /// Fields loaded side by side from the first register on; the expressions and the register behind them.
    fn loads<'e, 'a>(&self, exprs: &'e [Expr<'a>]) -> (Vec<Selector>, &'e [Expr<'a>], u32) {
        let (mut selectors, mut rest, mut next) = (Vec::new(), exprs, R);
        while let [load, behind @ ..] = rest {
            let Some(selector) = self.field(load, next) else { break };
            selectors.push(selector);
            next += registers(self.family, selector);
            rest = behind;
        }
        (selectors, rest, next)
    }

    /// The whole field that is loaded into a register.
    fn field(&self, load: &Expr<'_>, register: u32) -> Option<Selector> {
        match *load {
            Expr::Meta { key: meta::L4PROTO, dreg } if dreg == register => Some(Selector::L4Proto),
            Expr::Payload { base: payload::TRANSPORT, offset: DPORT_OFFSET, len: PORT_LEN, dreg }
                if dreg == register =>
            {
                Some(Selector::DestPort)
            }
            Expr::Payload { base: payload::NETWORK, offset, len, dreg } if dreg == register => {
                let whole = usize::try_from(len).is_ok_and(|len| len == addr_len(self.family));
                whole.then(|| self.side(offset)).flatten()
            }
            _ => None,
        }
    }

    /// The address at an offset of the network header.
    fn side(&self, offset: u32) -> Option<Selector> {
        [Selector::SourceAddr, Selector::DestAddr]
            .into_iter()
            .find(|selector| addr_offset(self.family, *selector) == Some(offset))
    }

    /// What is done with loaded fields.
    fn on_fields<'e, 'a>(
        &self,
        selectors: Vec<Selector>,
        exprs: &'e [Expr<'a>],
        next: u32,
    ) -> Raised<'e, 'a> {
        match exprs {
            [Expr::Lookup { set, sreg: R, dreg: None, inverted }, rest @ ..] => {
                Some((self.in_set(selectors, set, *inverted)?, rest))
            }
            [Expr::Lookup { set, sreg: R, dreg: Some(reg::VERDICT), inverted: false }, rest @ ..] => {
                Some((Stmt::Vmap { selectors, map: self.named(set)? }, rest))
            }
            [
                Expr::Numgen { dreg, modulus, offset },
                Expr::Lookup { set, sreg: R, dreg: Some(R), inverted: false },
                dnat,
                rest @ ..,
            ] if *dreg == next && self.is_dnat_mapped(dnat) => {
                let (modulus, offset, map) = (*modulus, *offset, self.named(set)?);
                Some((Stmt::DnatMap { selectors, modulus, offset, map }, rest))
            }
            [Expr::Update { set, sreg: R }, rest @ ..] if selectors == [Selector::SourceAddr] => {
                Some((Stmt::UpdateSource(self.named(set)?), rest))
            }
            [Expr::Cmp { sreg: R, op: cmp::EQ, data }, rest @ ..] if selectors == [Selector::L4Proto] => {
                let [number] = (*data).try_into().ok()?;
                Some((Stmt::L4Proto(Protocol::from_number(number)?), rest))
            }
            [Expr::Cmp { sreg: R, op, data }, rest @ ..] => {
                let cidr = ranges::host(read_addr(self.family, data)?);
                Some((Stmt::Addr { selector: one_addr(&selectors)?, negated: negated(*op)?, cidr }, rest))
            }
            [Expr::Bitwise { sreg: R, dreg: R, mask, xor }, Expr::Cmp { sreg: R, op, data }, rest @ ..]
                if is_zero(xor) =>
            {
                let mask = read_addr(self.family, mask)?;
                let addr = read_addr(self.family, data)?;
                let cidr = ranges::network(addr, ipnet::ip_mask_to_prefix(mask).ok()?)?;
                // Bits beyond the mask would never match.
                (cidr.addr() == addr).then_some(())?;
                Some((Stmt::Addr { selector: one_addr(&selectors)?, negated: negated(*op)?, cidr }, rest))
            }
            _ => None,
        }
    }

    fn in_set(&self, selectors: Vec<Selector>, set: &str, inverted: bool) -> Option<Stmt> {
        let Some(content) = self.anonymous.get(set) else {
            return (!inverted).then(|| Stmt::InSet { selectors, set: set.into() });
        };
        let Content::Networks(cidrs) = content else { return None };
        let selector = one_addr(&selectors)?;
        Some(match cidrs[..] {
            [cidr] => Stmt::Addr { selector, negated: inverted, cidr },
            _ => Stmt::AddrIn { selector, negated: inverted, cidrs: cidrs.clone() },
        })
    }

    /// The name of a set that is not a rule's own.
    fn named(&self, set: &str) -> Option<Name> {
        (!self.anonymous.contains_key(set)).then(|| set.into())
    }

    /// To the address and port that a map answered.
    fn is_dnat_mapped(&self, expr: &Expr<'_>) -> bool {
        self.is_dnat(expr, mapped_port(self.family))
    }

    /// To the address at the first register and the port at another.
    fn is_dnat(&self, expr: &Expr<'_>, port: u32) -> bool {
        *expr == Expr::Dnat { family: nfproto(self.family).into(), addr: R, port }
    }

    /// Statements that begin otherwise.
    fn other<'e, 'a>(&self, exprs: &'e [Expr<'a>]) -> Raised<'e, 'a> {
        match exprs {
            [Expr::Verdict { code, chain }, rest @ ..] => {
                Some((Stmt::Verdict(our_verdict((*code, *chain), |name| name.into())?), rest))
            }
            [
                Expr::Payload { base: payload::NETWORK, offset, len, dreg: R },
                Expr::Cmp { sreg: R, op, data },
                rest @ ..,
            ] => {
                let cidr = self.beginning(*len, data)?;
                Some((Stmt::Addr { selector: self.side(*offset)?, negated: negated(*op)?, cidr }, rest))
            }
            [
                Expr::Ct { key, dreg: R },
                Expr::Bitwise { sreg: R, dreg: R, mask, xor },
                not_zero,
                rest @ ..,
            ] if is_zero(xor) && is_not_zero(not_zero) => Some((ct_bit(*key, host_u32(mask)?)?, rest)),
            [
                Expr::Meta { key: meta::MARK, dreg: R },
                Expr::Bitwise { sreg: R, dreg: R, mask, xor },
                end,
                rest @ ..,
            ] => Some((mark(host_u32(mask)?, host_u32(xor)?, end)?, rest)),
            [Expr::Meta { key: meta::IIFNAME, dreg: R }, Expr::Cmp { sreg: R, op, data }, rest @ ..] => {
                Some((iifname(negated(*op)?, data)?, rest))
            }
            [Expr::FibType { dreg: R, flags }, Expr::Cmp { sreg: R, op: cmp::EQ, data }, rest @ ..]
                if host_u32(data) == Some(fib::LOCAL) =>
            {
                let selector = match *flags {
                    fib::SADDR => Selector::SourceAddr,
                    fib::DADDR => Selector::DestAddr,
                    _ => return None,
                };
                Some((Stmt::FibLocal(selector), rest))
            }
            [
                Expr::Numgen { dreg: R, modulus, offset: 0 },
                Expr::Lookup { set, sreg: R, dreg: Some(to), inverted: false },
                rest @ ..,
            ] => self.random(*modulus, set, *to, rest),
            [
                Expr::Immediate { dreg: R, data: addr },
                Expr::Immediate { dreg: IMMEDIATE_PORT, data: port },
                dnat,
                rest @ ..,
            ] if self.is_dnat(dnat, IMMEDIATE_PORT) => {
                let port = Port::new(u16::from_be_bytes((*port).try_into().ok()?))?;
                Some((Stmt::Dnat(read_addr(self.family, addr)?, port), rest))
            }
            [Expr::Masquerade { flags: masq::FULLY_RANDOM }, rest @ ..] => Some((Stmt::Masquerade, rest)),
            // The kernel shows a code of zero with it, or none.
            [Expr::Reject { kind: reject::TCP_RST, code: None | Some(0) }, rest @ ..] => {
                Some((Stmt::Reset, rest))
            }
            [Expr::Reject { kind: reject::ICMP_UNREACH, code: Some(code) }, rest @ ..] => {
                let ours = match self.family {
                    IpFamily::Ipv4 => reject::PORT_UNREACH_V4,
                    IpFamily::Ipv6 => reject::PORT_UNREACH_V6,
                };
                (*code == ours).then_some((Stmt::Reject, rest))
            }
            _ => None,
        }
    }

    /// A network whose length is whole bytes: only they are loaded.
    fn beginning(&self, len: u32, data: &[u8]) -> Option<IpNet> {
        let len = usize::try_from(len).ok().filter(|len| *len == data.len())?;
        let mut octets = [0; 16];
        octets.get_mut(..len)?.copy_from_slice(data);
        let addr = read_addr(self.family, octets.get(..addr_len(self.family))?)?;
        ranges::network(addr, u8::try_from(len * 8).ok()?)
    }

    fn random<'e, 'a>(&self, modulus: u32, set: &str, to: u32, rest: &'e [Expr<'a>]) -> Raised<'e, 'a> {
        let all = |len: usize| usize::try_from(modulus).is_ok_and(|modulus| modulus == len);
        match (self.anonymous.get(set)?, to, rest) {
            (Content::Chains(chains), reg::VERDICT, rest) if all(chains.len()) => {
                Some((Stmt::GotoRandom(chains.clone()), rest))
            }
            (Content::Endpoints(endpoints), R, [dnat, rest @ ..])
                if all(endpoints.len()) && self.is_dnat_mapped(dnat) =>
            {
                Some((Stmt::DnatRandom(endpoints.clone()), rest))
            }
            _ => None,
        }
    }
}

/// A rule in words, with what is known of it.
fn foreign(raw: &RawRule<'_>, comment: Option<&str>) -> ObservedRule {
    let names: Vec<&str> = raw.exprs.iter().map(Expr::name).collect();
    let mut words = format!("not a rule of this backend: {}", names.join(", "));
    if let Some(comment) = comment {
        words.push_str(" comment \"");
        words.push_str(comment);
        words.push('"');
    }
    ObservedRule::Foreign(words)
}

fn one_addr(selectors: &[Selector]) -> Option<Selector> {
    match selectors {
        [selector @ (Selector::SourceAddr | Selector::DestAddr)] => Some(*selector),
        _ => None,
    }
}

fn negated(op: u32) -> Option<bool> {
    match op {
        cmp::EQ => Some(false),
        cmp::NEQ => Some(true),
        _ => None,
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn host_u32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn is_not_zero(expr: &Expr<'_>) -> bool {
    matches!(expr, Expr::Cmp { sreg: R, op: cmp::NEQ, data } if is_zero(data))
}

fn ct_bit(key: u32, bit: u32) -> Option<Stmt> {
    match (key, bit) {
        (ct::STATE, ct::STATE_NEW) => Some(Stmt::CtState(CtState::New)),
        (ct::STATE, ct::STATE_INVALID) => Some(Stmt::CtState(CtState::Invalid)),
        (ct::STATUS, ct::STATUS_DNAT) => Some(Stmt::CtStatusDnat),
        _ => None,
    }
}

fn mark(mask: u32, xor: u32, end: &Expr<'_>) -> Option<Stmt> {
    match *end {
        _ if is_not_zero(end) && xor == 0 => Some(Stmt::MarkSet(mask)),
        Expr::MetaSet { key: meta::MARK, sreg: R } if mask == u32::MAX => Some(Stmt::XorMark(xor)),
        Expr::MetaSet { key: meta::MARK, sreg: R } if mask == !xor => Some(Stmt::OrMark(xor)),
        _ => None,
    }
}

/// A whole name fills the field with NUL bytes, a prefix is shorter.
fn iifname(negated: bool, data: &[u8]) -> Option<Stmt> {
    let prefix = data.len() < IFNAMSIZ;
    let name = if prefix { data } else { data.split(|byte| *byte == 0).next()? };
    let rest = data.get(name.len()..)?;
    let plain = !name.is_empty() && name.len() < IFNAMSIZ && !name.contains(&0) && is_zero(rest);
    plain.then_some(())?;
    Some(Stmt::IifName { negated, name: str::from_utf8(name).ok()?.into(), prefix })
}
