//! Rules as data.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use proxier_core::ids::{IpFamily, Protocol};

use super::elements::Elements;
use super::value::DataType;

/// Source or destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `saddr`.
    Source,
    /// `daddr`.
    Destination,
}

/// Something of a packet that a rule can look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `ip saddr`, `ip6 daddr` and so on.
    Address(Side),
    /// `meta l4proto`.
    L4Protocol,
    /// `th dport`, or with a protocol `tcp dport`: the rule then applies to that protocol only.
    DestinationPort(Option<Protocol>),
    /// `meta mark`.
    Mark,
    /// `iifname`.
    InputInterface,
    /// `oifname`.
    OutputInterface,
    /// `numgen random mod N offset O`.
    Random {
        /// Number of values.
        modulus: NonZeroU32,
        /// The smallest of them.
        offset: u32,
    },
}

impl Field {
    /// Its type, in a table of this family.
    #[must_use]
    pub fn data_type(&self, family: IpFamily) -> DataType {
        match self {
            Self::Address(_) => DataType::Address(family),
            Self::L4Protocol => DataType::Protocol,
            Self::DestinationPort(_) => DataType::Port,
            Self::Mark => DataType::Mark,
            Self::InputInterface | Self::OutputInterface => DataType::Interface,
            Self::Random { .. } => DataType::Integer,
        }
    }
}

/// Where a key is looked up.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupIn {
    /// In these.
    Anonymous(Elements),
    /// In the set or map of this name.
    Named(Arc<str>),
}

/// A connection state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CtState {
    /// `new`.
    New,
    /// `established`.
    Established,
    /// `related`.
    Related,
    /// `invalid`.
    Invalid,
    /// `untracked`.
    Untracked,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Ends the base chain; the next hook goes on.
    Accept,
    /// Ends everything.
    Drop,
    /// Goes on with the rule.
    Continue,
    /// Back to the chain that jumped here; in a base chain, its policy.
    Return,
    /// To a chain, and back here after it.
    Jump(Arc<str>),
    /// To a chain, and after it back to whoever jumped to this one.
    Goto(Arc<str>),
}

impl Verdict {
    /// The chain it leads to.
    #[must_use]
    pub fn target(&self) -> Option<&Arc<str>> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

/// Where `dnat` sends a packet.
#[derive(Clone, Debug, PartialEq)]
pub enum DnatTarget {
    /// Always there.
    Fixed {
        /// Address.
        address: IpAddr,
        /// Port; `None` keeps the packet's.
        port: Option<u16>,
    },
    /// To what a map says; a key that it does not have makes the rule not apply.
    Map {
        /// What is looked up.
        key: Vec<Field>,
        /// Where.
        map: LookupIn,
    },
}

/// A `dnat` statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Dnat {
    /// Where to.
    pub target: DnatTarget,
    /// The rule applies to this protocol only. Not written in a script: nft itself adds that match when the data of the
    /// map is declared as `typeof ... : ip daddr . tcp dport` (tried with nft 1.0.6; not so for `th dport`, nor for the
    /// map's key). A listing shows it in the key, as `tcp dport`.
    pub requires: Option<Protocol>,
}

/// One part of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A lookup of fields in a set.
    Match {
        /// What is looked up.
        key: Vec<Field>,
        /// True if it is *not* there.
        negated: bool,
        /// Where.
        elements: LookupIn,
    },
    /// `meta mark & mask == value`.
    MarkMatch {
        /// Mask.
        mask: u32,
        /// `!=`.
        negated: bool,
        /// Value.
        value: u32,
    },
    /// `fib saddr type local`.
    FibLocal {
        /// Which address.
        side: Side,
        /// `!=`.
        negated: bool,
    },
    /// `ct state`: one of these.
    CtState(Vec<CtState>),
    /// `ct status dnat`.
    CtStatusDnat,
    /// `vmap`.
    VerdictMap {
        /// What is looked up.
        key: Vec<Field>,
        /// Where.
        map: LookupIn,
    },
    /// A verdict.
    Verdict(Verdict),
    /// `reject`, with whatever answer by ICMP.
    Reject,
    /// `reject with tcp reset`: the rule applies to TCP only. nft adds that match where it is not written, and leaves it out of a listing.
    Reset,
    /// `meta mark set`: mark = (mark & keep) ^ flip, the form in which the kernel holds `and`, `or` and `xor`.
    SetMark {
        /// Bits that stay.
        keep: u32,
        /// Bits that change after that.
        flip: u32,
    },
    /// `dnat`.
    Dnat(Dnat),
    /// `masquerade`.
    Masquerade,
    /// `update @set { ip saddr }` or `add @set { ip saddr }`.
    Update {
        /// Set.
        set: Arc<str>,
        /// The address that is recorded.
        side: Side,
    },
    /// `counter`.
    Counter,
}

impl Statement {
    /// Nothing may follow it in a rule.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Verdict(_) | Self::Reject | Self::Reset | Self::Dnat(_) | Self::Masquerade)
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its parts, in order.
    pub statements: Vec<Statement>,
    /// Comment.
    pub comment: Option<Arc<str>>,
    /// As it was written, white space collapsed.
    pub text: Arc<str>,
}
