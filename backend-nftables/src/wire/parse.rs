//! Dumped messages as plain values. Nothing is trusted: what cannot be read is `None`, or an [`Expr::Other`].
//!
//! Attributes that this code does not know are passed over, since newer kernels add some; known ones that change the
//! meaning make an expression foreign.

use proxier_sys::netlink::{Attr, AttrIter};

use super::numbers::{
    bitwise, chain, cmp, ct, data, dynset, elem_list, expr, fib, hook, immediate, lookup, masq, meta, nat,
    numgen, payload, reg, reject, rule, set, verdict,
};
use crate::objects::Verdict;

/// Attributes by their kind, below `N`; of two of a kind the last.
pub(super) struct Attrs<'a, const N: usize>([Option<Attr<'a>>; N]);

impl<'a, const N: usize> Attrs<'a, N> {
    /// `None` if the bytes are no attributes.
    pub(super) fn read(attrs: AttrIter<'a>) -> Option<Self> {
        let mut out = [const { None }; N];
        for attr in attrs {
            let attr = attr.ok()?;
            if let Some(place) = out.get_mut(usize::from(attr.kind)) {
                *place = Some(attr);
            }
        }
        Some(Self(out))
    }

    pub(super) fn get(&self, kind: u16) -> Option<&Attr<'a>> {
        self.0.get(usize::from(kind)).and_then(Option::as_ref)
    }

    pub(super) fn has(&self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    pub(super) fn bytes(&self, kind: u16) -> Option<&'a [u8]> {
        self.get(kind).map(|attr| attr.payload)
    }

    pub(super) fn u32(&self, kind: u16) -> Option<u32> {
        self.get(kind).and_then(|attr| attr.u32_be().ok())
    }

    pub(super) fn u64(&self, kind: u16) -> Option<u64> {
        self.get(kind).and_then(|attr| attr.u64_be().ok())
    }

    pub(super) fn str(&self, kind: u16) -> Option<&'a str> {
        self.get(kind).and_then(|attr| attr.str().ok())
    }

    pub(super) fn nested(&self, kind: u16) -> Option<AttrIter<'a>> {
        self.get(kind).map(Attr::nested)
    }

    /// Missing counts as zero.
    fn zero(&self, kind: u16) -> Option<()> {
        self.bytes(kind).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)).then_some(())
    }

    fn absent(&self, kind: u16) -> Option<()> {
        (!self.has(kind)).then_some(())
    }

    /// A register, numbered in steps of four bytes.
    fn register(&self, kind: u16) -> Option<u32> {
        match self.u32(kind)? {
            // 1 to 4 are 16 bytes wide: the older numbers of registers 8, 12, 16 and 20.
            wide @ 1..=4 => Some(reg::FIRST + (wide - 1) * 4),
            register => Some(register),
        }
    }

    /// `NFTA_DATA_VALUE` inside of an attribute.
    pub(super) fn value(&self, kind: u16) -> Option<&'a [u8]> {
        self.nested(kind)?
            .find_map(|attr| attr.ok().filter(|attr| attr.kind == data::VALUE))
            .map(|a| a.payload)
    }

    /// `NFTA_DATA_VERDICT` inside of an attribute: its code and chain.
    pub(super) fn verdict(&self, kind: u16) -> Option<(u32, Option<&'a str>)> {
        let inner =
            self.nested(kind)?.find_map(|attr| attr.ok().filter(|attr| attr.kind == data::VERDICT))?;
        let inner = Attrs::<4>::read(inner.nested())?;
        Some((inner.u32(data::VERDICT_CODE)?, inner.str(data::VERDICT_CHAIN)))
    }
}

/// A verdict of ours. `name` makes a chain's name of a text.
pub(super) fn our_verdict(
    (code, chain): (u32, Option<&str>),
    name: impl FnOnce(&str) -> crate::objects::Name,
) -> Option<Verdict> {
    match (code, chain) {
        (verdict::ACCEPT, None) => Some(Verdict::Accept),
        (verdict::DROP, None) => Some(Verdict::Drop),
        (verdict::JUMP, Some(chain)) => Some(Verdict::Jump(name(chain))),
        (verdict::GOTO, Some(chain)) => Some(Verdict::Goto(name(chain))),
        _ => None,
    }
}

/// A chain.
pub(super) struct RawChain<'a> {
    pub(super) table: &'a str,
    pub(super) name: &'a str,
    /// Hook number and priority.
    pub(super) hook: Option<(u32, i32)>,
    /// Bound to devices.
    pub(super) devices: bool,
    pub(super) kind: Option<&'a str>,
    pub(super) policy: Option<u32>,
    pub(super) flags: u32,
    pub(super) userdata: Option<&'a [u8]>,
}

impl<'a> RawChain<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        let attrs = Attrs::<13>::read(AttrIter::new(payload))?;
        let hook_attrs = match attrs.nested(chain::HOOK) {
            Some(nested) => Some(Attrs::<5>::read(nested)?),
            None => None,
        };
        let hook = match &hook_attrs {
            Some(h) => Some((h.u32(hook::HOOKNUM)?, h.u32(hook::PRIORITY)?.cast_signed())),
            None => None,
        };
        Some(Self {
            table: attrs.str(chain::TABLE)?,
            name: attrs.str(chain::NAME)?,
            hook,
            devices: hook_attrs.is_some_and(|h| h.has(hook::DEV) || h.has(hook::DEVS)),
            kind: attrs.str(chain::TYPE),
            policy: attrs.u32(chain::POLICY),
            flags: attrs.u32(chain::FLAGS).unwrap_or(0),
            userdata: attrs.bytes(chain::USERDATA),
        })
    }
}

/// A set or map.
pub(super) struct RawSet<'a> {
    pub(super) table: &'a str,
    pub(super) name: &'a str,
    pub(super) flags: u32,
    pub(super) key_type: u32,
    pub(super) data_type: Option<u32>,
    pub(super) size: Option<u32>,
    /// Milliseconds.
    pub(super) timeout: Option<u64>,
    pub(super) userdata: Option<&'a [u8]>,
}

impl<'a> RawSet<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        let attrs = Attrs::<16>::read(AttrIter::new(payload))?;
        let size = match attrs.nested(set::DESC) {
            Some(nested) => Attrs::<3>::read(nested)?.u32(set::DESC_SIZE),
            None => None,
        };
        Some(Self {
            table: attrs.str(set::TABLE)?,
            name: attrs.str(set::NAME)?,
            flags: attrs.u32(set::FLAGS).unwrap_or(0),
            key_type: attrs.u32(set::KEY_TYPE)?,
            data_type: attrs.u32(set::DATA_TYPE),
            size,
            timeout: attrs.u64(set::TIMEOUT),
            userdata: attrs.bytes(set::USERDATA),
        })
    }
}

/// A rule.
pub(super) struct RawRule<'a> {
    pub(super) table: &'a str,
    pub(super) chain: &'a str,
    pub(super) exprs: Vec<Expr<'a>>,
    pub(super) userdata: Option<&'a [u8]>,
}

impl<'a> RawRule<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        let attrs = Attrs::<12>::read(AttrIter::new(payload))?;
        let mut exprs = Vec::new();
        if attrs.has(rule::COMPAT) {
            exprs.push(Expr::Other("compat"));
        }
        for attr in attrs.nested(rule::EXPRESSIONS).into_iter().flatten() {
            exprs.push(match attr {
                Ok(attr) if attr.kind == elem_list::ELEM => Expr::read(attr.nested()),
                Ok(_) | Err(_) => Expr::Other(UNREADABLE),
            });
        }
        Some(Self {
            table: attrs.str(rule::TABLE)?,
            chain: attrs.str(rule::CHAIN)?,
            exprs,
            userdata: attrs.bytes(rule::USERDATA),
        })
    }
}

/// Stands for the name of an expression that has none.
const UNREADABLE: &str = "unreadable";

/// An expression, registers numbered in steps of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expr<'a> {
    Payload {
        base: u32,
        offset: u32,
        len: u32,
        dreg: u32,
    },
    Meta {
        key: u32,
        dreg: u32,
    },
    MetaSet {
        key: u32,
        sreg: u32,
    },
    Ct {
        key: u32,
        dreg: u32,
    },
    /// `dreg = (sreg & mask) ^ xor`
    Bitwise {
        sreg: u32,
        dreg: u32,
        mask: &'a [u8],
        xor: &'a [u8],
    },
    Cmp {
        sreg: u32,
        op: u32,
        data: &'a [u8],
    },
    Immediate {
        dreg: u32,
        data: &'a [u8],
    },
    Verdict {
        code: u32,
        chain: Option<&'a str>,
    },
    Lookup {
        set: &'a str,
        sreg: u32,
        dreg: Option<u32>,
        inverted: bool,
    },
    Numgen {
        dreg: u32,
        modulus: u32,
        offset: u32,
    },
    /// `dnat` to one address and one port.
    Dnat {
        family: u32,
        addr: u32,
        port: u32,
    },
    Masquerade {
        flags: u32,
    },
    Reject {
        kind: u32,
        code: Option<u8>,
    },
    /// Address type.
    FibType {
        dreg: u32,
        flags: u32,
    },
    /// `update @set`, without a timeout or statements of its own.
    Update {
        set: &'a str,
        sreg: u32,
    },
    /// Not of our kinds; its name.
    Other(&'a str),
}

impl<'a> Expr<'a> {
    fn read(attrs: AttrIter<'a>) -> Self {
        let Some(attrs) = Attrs::<3>::read(attrs) else { return Self::Other(UNREADABLE) };
        let name = attrs.str(expr::NAME).unwrap_or(UNREADABLE);
        let inner = attrs.nested(expr::DATA).and_then(Attrs::read);
        inner.and_then(|inner| Self::of(name, &inner)).unwrap_or(Self::Other(name))
    }

    fn of(name: &str, a: &Attrs<'a, 16>) -> Option<Self> {
        match name {
            "payload" => {
                a.absent(payload::SREG)?;
                Some(Self::Payload {
                    base: a.u32(payload::BASE)?,
                    offset: a.u32(payload::OFFSET)?,
                    len: a.u32(payload::LEN)?,
                    dreg: a.register(payload::DREG)?,
                })
            }
            "meta" => match a.register(meta::SREG) {
                Some(sreg) => Some(Self::MetaSet { key: a.u32(meta::KEY)?, sreg }),
                None => Some(Self::Meta { key: a.u32(meta::KEY)?, dreg: a.register(meta::DREG)? }),
            },
            "ct" => {
                a.absent(ct::SREG)?;
                a.absent(ct::DIRECTION)?;
                Some(Self::Ct { key: a.u32(ct::KEY)?, dreg: a.register(ct::DREG)? })
            }
            "bitwise" => Self::bitwise(a),
            "cmp" => Some(Self::Cmp {
                sreg: a.register(cmp::SREG)?,
                op: a.u32(cmp::OP)?,
                data: a.value(cmp::DATA)?,
            }),
            "immediate" => Self::immediate(a),
            "lookup" => Some(Self::Lookup {
                set: a.str(lookup::SET)?,
                sreg: a.register(lookup::SREG)?,
                dreg: if a.has(lookup::DREG) { Some(a.register(lookup::DREG)?) } else { None },
                inverted: match a.u32(lookup::FLAGS) {
                    None | Some(0) => false,
                    Some(lookup::INVERT) => true,
                    Some(_) => return None,
                },
            }),
            "numgen" => {
                (a.u32(numgen::TYPE)? == numgen::RANDOM).then_some(())?;
                Some(Self::Numgen {
                    dreg: a.register(numgen::DREG)?,
                    modulus: a.u32(numgen::MODULUS)?,
                    offset: a.u32(numgen::OFFSET).unwrap_or(0),
                })
            }
            "nat" => Self::dnat(a),
            "masq" => {
                a.absent(masq::PROTO_MIN)?;
                Some(Self::Masquerade { flags: a.u32(masq::FLAGS).unwrap_or(0) })
            }
            "reject" => Some(Self::Reject {
                kind: a.u32(reject::TYPE)?,
                code: a.get(reject::ICMP_CODE).and_then(|attr| attr.u8().ok()),
            }),
            "fib" => {
                (a.u32(fib::RESULT)? == fib::ADDRTYPE).then_some(())?;
                Some(Self::FibType { dreg: a.register(fib::DREG)?, flags: a.u32(fib::FLAGS)? })
            }
            "dynset" => Self::update(a),
            _ => None,
        }
    }

    fn bitwise(a: &Attrs<'a, 16>) -> Option<Self> {
        (a.u32(bitwise::OP).unwrap_or(bitwise::MASK_XOR) == bitwise::MASK_XOR).then_some(())?;
        Some(Self::Bitwise {
            sreg: a.register(bitwise::SREG)?,
            dreg: a.register(bitwise::DREG)?,
            mask: a.value(bitwise::MASK)?,
            xor: a.value(bitwise::XOR)?,
        })
    }

    fn immediate(a: &Attrs<'a, 16>) -> Option<Self> {
        let dreg = a.register(immediate::DREG)?;
        if dreg == reg::VERDICT {
            let (code, chain) = a.verdict(immediate::DATA)?;
            return Some(Self::Verdict { code, chain });
        }
        Some(Self::Immediate { dreg, data: a.value(immediate::DATA)? })
    }

    /// The kernel adds the upper ends of the ranges and the flags that say what is given.
    fn dnat(a: &Attrs<'a, 16>) -> Option<Self> {
        (a.u32(nat::TYPE)? == nat::DNAT).then_some(())?;
        (a.u32(nat::FLAGS).unwrap_or(0) & !(nat::MAP_IPS | nat::PROTO_SPECIFIED) == 0).then_some(())?;
        let (addr, port) = (a.register(nat::ADDR_MIN)?, a.register(nat::PROTO_MIN)?);
        (a.register(nat::ADDR_MAX).unwrap_or(addr) == addr).then_some(())?;
        (a.register(nat::PROTO_MAX).unwrap_or(port) == port).then_some(())?;
        Some(Self::Dnat { family: a.u32(nat::FAMILY)?, addr, port })
    }

    fn update(a: &Attrs<'a, 16>) -> Option<Self> {
        (a.u32(dynset::OP)? == dynset::UPDATE).then_some(())?;
        for none in [dynset::SREG_DATA, dynset::EXPR, dynset::EXPRESSIONS] {
            a.absent(none)?;
        }
        a.zero(dynset::TIMEOUT)?;
        a.zero(dynset::FLAGS)?;
        Some(Self::Update { set: a.str(dynset::SET)?, sreg: a.register(dynset::SREG_KEY)? })
    }

    /// The kernel's name of the expression.
    pub(super) fn name(&self) -> &'a str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta { .. } | Self::MetaSet { .. } => "meta",
            Self::Ct { .. } => "ct",
            Self::Bitwise { .. } => "bitwise",
            Self::Cmp { .. } => "cmp",
            Self::Immediate { .. } | Self::Verdict { .. } => "immediate",
            Self::Lookup { .. } => "lookup",
            Self::Numgen { .. } => "numgen",
            Self::Dnat { .. } => "nat",
            Self::Masquerade { .. } => "masq",
            Self::Reject { .. } => "reject",
            Self::FibType { .. } => "fib",
            Self::Update { .. } => "dynset",
            Self::Other(name) => name,
        }
    }
}
