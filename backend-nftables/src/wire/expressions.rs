//! Rules as lists of expressions.
//!
//! Every value is loaded into the first register, the further fields of a concatenation into those behind it; each
//! statement starts over. So a lookup's key is always at the first register, and so is what a map answers.

use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::netlink::AttrWriter;

use super::elements::{addr_bytes, write_value, write_verdict};
use super::numbers::{
    IFNAMSIZ, bitwise, cmp, ct, dynset, elem_list, expr, fib, immediate, lookup, masq, meta, nat, numgen,
    payload, reg, reject,
};
use super::{addr_len, nfproto};
use crate::objects::{CtState, Rule, Selector, Stmt, Verdict};

/// Offset of the source address in the header; the destination follows it.
pub(super) fn addr_offset(family: IpFamily, selector: Selector) -> Option<u32> {
    let (source, dest) = match family {
        IpFamily::Ipv4 => (12, 16),
        IpFamily::Ipv6 => (8, 24),
    };
    match selector {
        Selector::SourceAddr => Some(source),
        Selector::DestAddr => Some(dest),
        Selector::L4Proto | Selector::DestPort => None,
    }
}

/// Offset of the destination port in the headers of TCP, UDP and SCTP.
pub(super) const DPORT_OFFSET: u32 = 2;
/// Bytes of a port.
pub(super) const PORT_LEN: u32 = 2;

/// Registers that a field takes.
pub(super) fn registers(family: IpFamily, selector: Selector) -> u32 {
    match selector {
        Selector::SourceAddr | Selector::DestAddr => u32_of(addr_len(family) / 4),
        Selector::L4Proto | Selector::DestPort => 1,
    }
}

/// Register of the port that a map answered: behind the address.
pub(super) fn mapped_port(family: IpFamily) -> u32 {
    reg::FIRST + registers(family, Selector::DestAddr)
}

/// Register where nft loads a constant port: behind 16 bytes, whatever the address's family.
pub(super) const IMMEDIATE_PORT: u32 = reg::FIRST + 4;

fn u32_of(len: usize) -> u32 {
    // Lengths of fields and registers.
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Writes the expressions of a rule. `anonymous` are the ids of the sets of its statements, in their order.
pub(super) fn write(w: &mut AttrWriter<'_>, family: IpFamily, rule: &Rule, anonymous: &[u32]) {
    let mut writer = Writer { w, family, anonymous: anonymous.iter() };
    for stmt in &rule.stmts {
        writer.stmt(stmt);
    }
}

struct Writer<'w, 'b, 'a> {
    w: &'w mut AttrWriter<'b>,
    family: IpFamily,
    anonymous: std::slice::Iter<'a, u32>,
}

/// Set of a lookup.
#[derive(Clone, Copy)]
enum Place<'a> {
    Named(&'a str),
    /// Pattern of its name, and id in the batch.
    Anonymous(&'static str, u32),
}

/// Statements.
impl Writer<'_, '_, '_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::CtState(CtState::New) => self.ct_bit(ct::STATE, ct::STATE_NEW),
            Stmt::CtState(CtState::Invalid) => self.ct_bit(ct::STATE, ct::STATE_INVALID),
            Stmt::CtStatusDnat => self.ct_bit(ct::STATUS, ct::STATUS_DNAT),
            Stmt::Addr { selector, negated, cidr } => self.addr(*selector, *negated, *cidr),
            Stmt::AddrIn { selector, negated, cidrs } => match cidrs[..] {
                [cidr] => self.addr(*selector, *negated, cidr),
                _ => {
                    self.load(*selector, reg::FIRST);
                    let set = self.next_anonymous("__set%d");
                    self.lookup(set, None, *negated);
                }
            },
            Stmt::InSet { selectors, set } => {
                self.loads(selectors);
                self.lookup(Place::Named(set), None, false);
            }
            Stmt::IifName { negated, name, prefix } => self.iifname(*negated, name, *prefix),
            Stmt::L4Proto(protocol) => self.l4proto(*protocol),
            Stmt::FibLocal(selector) => self.fib_local(*selector),
            Stmt::MarkSet(mark) => {
                self.load_meta(meta::MARK, reg::FIRST);
                self.bitwise(&mark.to_ne_bytes(), &[0; 4]);
                self.cmp(cmp::NEQ, &[0; 4]);
            }
            Stmt::OrMark(mark) => self.set_mark(!mark, *mark),
            Stmt::XorMark(mark) => self.set_mark(u32::MAX, *mark),
            Stmt::Vmap { selectors, map } => {
                self.loads(selectors);
                self.lookup(Place::Named(map), Some(reg::VERDICT), false);
            }
            Stmt::DnatMap { selectors, modulus, offset, map } => {
                let next = self.loads(selectors);
                self.random(*modulus, *offset, next);
                self.lookup(Place::Named(map), Some(reg::FIRST), false);
                self.dnat_mapped();
            }
            Stmt::DnatRandom(endpoints) => {
                self.random(u32_of(endpoints.len()), 0, reg::FIRST);
                let map = self.next_anonymous("__map%d");
                self.lookup(map, Some(reg::FIRST), false);
                self.dnat_mapped();
            }
            Stmt::GotoRandom(chains) => {
                self.random(u32_of(chains.len()), 0, reg::FIRST);
                let map = self.next_anonymous("__map%d");
                self.lookup(map, Some(reg::VERDICT), false);
            }
            Stmt::Dnat(addr, port) => self.dnat_to(*addr, *port),
            Stmt::UpdateSource(set) => self.update_source(set),
            Stmt::Masquerade => self.expr("masq", |w| w.put_u32_be(masq::FLAGS, masq::FULLY_RANDOM)),
            Stmt::Reject => self.reject(),
            Stmt::Reset => self.expr("reject", |w| w.put_u32_be(reject::TYPE, reject::TCP_RST)),
            Stmt::Verdict(to) => self.verdict(to),
        }
    }

    fn addr(&mut self, selector: Selector, negated: bool, cidr: IpNet) {
        let offset = addr_offset(self.family, selector).unwrap_or_default();
        let op = if negated { cmp::NEQ } else { cmp::EQ };
        let network = addr_bytes(cidr.network());
        let bits = usize::from(cidr.prefix_len());
        // Whole bytes are compared without a mask.
        if bits > 0 && bits % 8 == 0 {
            let whole = network.as_slice().get(..bits / 8).unwrap_or_default();
            self.load_payload(payload::NETWORK, offset, u32_of(whole.len()), reg::FIRST);
            self.cmp(op, whole);
            return;
        }
        self.load(selector, reg::FIRST);
        self.bitwise(addr_bytes(cidr.netmask()).as_slice(), &[0; 16][..addr_len(self.family)]);
        self.cmp(op, network.as_slice());
    }

    fn iifname(&mut self, negated: bool, name: &str, prefix: bool) {
        self.load_meta(meta::IIFNAME, reg::FIRST);
        let op = if negated { cmp::NEQ } else { cmp::EQ };
        if prefix {
            self.cmp(op, name.as_bytes());
            return;
        }
        let mut padded = [0; IFNAMSIZ];
        for (to, from) in padded.iter_mut().zip(name.as_bytes()) {
            *to = *from;
        }
        self.cmp(op, &padded);
    }

    fn l4proto(&mut self, protocol: Protocol) {
        self.load_meta(meta::L4PROTO, reg::FIRST);
        self.cmp(cmp::EQ, &[protocol.number()]);
    }

    fn ct_bit(&mut self, key: u32, bit: u32) {
        self.expr("ct", |w| {
            w.put_u32_be(ct::KEY, key);
            w.put_u32_be(ct::DREG, reg::FIRST);
        });
        self.bitwise(&bit.to_ne_bytes(), &[0; 4]);
        self.cmp(cmp::NEQ, &[0; 4]);
    }

    fn fib_local(&mut self, selector: Selector) {
        let side = if selector == Selector::SourceAddr { fib::SADDR } else { fib::DADDR };
        self.expr("fib", |w| {
            w.put_u32_be(fib::FLAGS, side);
            w.put_u32_be(fib::RESULT, fib::ADDRTYPE);
            w.put_u32_be(fib::DREG, reg::FIRST);
        });
        self.cmp(cmp::EQ, &fib::LOCAL.to_ne_bytes());
    }

    fn set_mark(&mut self, mask: u32, xor: u32) {
        self.load_meta(meta::MARK, reg::FIRST);
        self.bitwise(&mask.to_ne_bytes(), &xor.to_ne_bytes());
        self.expr("meta", |w| {
            w.put_u32_be(meta::KEY, meta::MARK);
            w.put_u32_be(meta::SREG, reg::FIRST);
        });
    }

    fn dnat_to(&mut self, addr: IpAddr, port: Port) {
        self.immediate(reg::FIRST, addr_bytes(addr).as_slice());
        self.immediate(IMMEDIATE_PORT, &port.get().to_be_bytes());
        self.dnat(IMMEDIATE_PORT);
    }

    fn update_source(&mut self, set: &str) {
        self.load(Selector::SourceAddr, reg::FIRST);
        self.expr("dynset", |w| {
            w.put_u32_be(dynset::SREG_KEY, reg::FIRST);
            w.put_u32_be(dynset::OP, dynset::UPDATE);
            w.put_str(dynset::SET, set);
        });
    }

    /// nft's default: port unreachable.
    fn reject(&mut self) {
        let code = match self.family {
            IpFamily::Ipv4 => reject::PORT_UNREACH_V4,
            IpFamily::Ipv6 => reject::PORT_UNREACH_V6,
        };
        self.expr("reject", |w| {
            w.put_u32_be(reject::TYPE, reject::ICMP_UNREACH);
            w.put_u8(reject::ICMP_CODE, code);
        });
    }

    fn verdict(&mut self, to: &Verdict) {
        self.expr("immediate", |w| {
            w.put_u32_be(immediate::DREG, reg::VERDICT);
            write_verdict(w, immediate::DATA, to);
        });
    }
}

/// Single expressions.
impl Writer<'_, '_, '_> {
    fn expr(&mut self, name: &str, fill: impl FnOnce(&mut AttrWriter<'_>)) {
        self.w.nest(elem_list::ELEM, |w| {
            w.put_str(expr::NAME, name);
            w.nest(expr::DATA, fill);
        });
    }

    /// Loads fields side by side; returns the register behind them.
    fn loads(&mut self, selectors: &[Selector]) -> u32 {
        let mut register = reg::FIRST;
        for selector in selectors {
            self.load(*selector, register);
            register += registers(self.family, *selector);
        }
        register
    }

    fn load(&mut self, selector: Selector, register: u32) {
        match selector {
            Selector::SourceAddr | Selector::DestAddr => {
                let offset = addr_offset(self.family, selector).unwrap_or_default();
                self.load_payload(payload::NETWORK, offset, u32_of(addr_len(self.family)), register);
            }
            Selector::L4Proto => self.load_meta(meta::L4PROTO, register),
            Selector::DestPort => self.load_payload(payload::TRANSPORT, DPORT_OFFSET, PORT_LEN, register),
        }
    }

    fn load_payload(&mut self, base: u32, offset: u32, len: u32, register: u32) {
        self.expr("payload", |w| {
            w.put_u32_be(payload::DREG, register);
            w.put_u32_be(payload::BASE, base);
            w.put_u32_be(payload::OFFSET, offset);
            w.put_u32_be(payload::LEN, len);
        });
    }

    fn load_meta(&mut self, key: u32, register: u32) {
        self.expr("meta", |w| {
            w.put_u32_be(meta::KEY, key);
            w.put_u32_be(meta::DREG, register);
        });
    }

    fn random(&mut self, modulus: u32, offset: u32, register: u32) {
        self.expr("numgen", |w| {
            w.put_u32_be(numgen::DREG, register);
            w.put_u32_be(numgen::MODULUS, modulus);
            w.put_u32_be(numgen::TYPE, numgen::RANDOM);
            w.put_u32_be(numgen::OFFSET, offset);
        });
    }

    fn bitwise(&mut self, mask: &[u8], xor: &[u8]) {
        self.expr("bitwise", |w| {
            w.put_u32_be(bitwise::SREG, reg::FIRST);
            w.put_u32_be(bitwise::DREG, reg::FIRST);
            w.put_u32_be(bitwise::LEN, u32_of(mask.len()));
            write_value(w, bitwise::MASK, mask);
            write_value(w, bitwise::XOR, xor);
        });
    }

    fn cmp(&mut self, op: u32, bytes: &[u8]) {
        self.expr("cmp", |w| {
            w.put_u32_be(cmp::SREG, reg::FIRST);
            w.put_u32_be(cmp::OP, op);
            write_value(w, cmp::DATA, bytes);
        });
    }

    fn immediate(&mut self, register: u32, bytes: &[u8]) {
        self.expr("immediate", |w| {
            w.put_u32_be(immediate::DREG, register);
            write_value(w, immediate::DATA, bytes);
        });
    }

    fn next_anonymous(&mut self, name: &'static str) -> Place<'static> {
        // The encoder made one set for each statement that takes one.
        Place::Anonymous(name, self.anonymous.next().copied().unwrap_or_default())
    }

    fn lookup(&mut self, place: Place<'_>, dreg: Option<u32>, inverted: bool) {
        self.expr("lookup", |w| {
            w.put_u32_be(lookup::SREG, reg::FIRST);
            if let Some(dreg) = dreg {
                w.put_u32_be(lookup::DREG, dreg);
            }
            match place {
                Place::Named(name) => w.put_str(lookup::SET, name),
                Place::Anonymous(name, id) => {
                    w.put_str(lookup::SET, name);
                    w.put_u32_be(lookup::SET_ID, id);
                }
            }
            if inverted {
                w.put_u32_be(lookup::FLAGS, lookup::INVERT);
            }
        });
    }

    /// To the address at the first register and the port at another.
    fn dnat(&mut self, port: u32) {
        let family = nfproto(self.family).into();
        self.expr("nat", |w| {
            w.put_u32_be(nat::TYPE, nat::DNAT);
            w.put_u32_be(nat::FAMILY, family);
            w.put_u32_be(nat::ADDR_MIN, reg::FIRST);
            w.put_u32_be(nat::PROTO_MIN, port);
        });
    }

    /// To the address and port that a map answered.
    fn dnat_mapped(&mut self) {
        self.dnat(mapped_port(self.family));
    }
}
