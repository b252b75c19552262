//! The vocabulary: what this backend says to nf_tables, as typed values.
//!
//! One table per family holds everything. A [`Rule`] is a list of [`Stmt`]s; the same value is printed as `nft` syntax
//! (`text`), encoded as netlink expressions and decoded from a dump (`wire`). Only what this backend writes is here: it is not a general
//! model of nftables.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::{IpFamily, Port, Protocol};

/// Name of a chain, set or map.
pub type Name = Arc<str>;

/// Type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainType {
    /// `filter`.
    Filter,
    /// `nat`.
    Nat,
}

/// Netfilter hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// `prerouting`, number 0.
    Prerouting,
    /// `input`, number 1.
    Input,
    /// `forward`, number 2.
    Forward,
    /// `output`, number 3.
    Output,
    /// `postrouting`, number 4.
    Postrouting,
}

/// What makes a chain a base chain. Its policy is always accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Base {
    /// Type.
    pub kind: ChainType,
    /// Hook.
    pub hook: Hook,
    /// Priority, as a number: older tools know some names only at some hooks.
    pub priority: i32,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chain {
    /// Name.
    pub name: Name,
    /// Hook; `None` for a chain that is only jumped to.
    pub base: Option<Base>,
    /// Comment.
    pub comment: Option<Name>,
}

/// One field of a set's key or a map's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `ipv4_addr` or `ipv6_addr`, by the family of the table.
    Addr,
    /// `inet_proto`.
    Proto,
    /// `inet_service`.
    Service,
    /// Index of an endpoint: a 32-bit integer in host byte order, as `numgen` makes it.
    Index,
}

/// What a set maps its keys to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Data {
    /// Nothing: a set.
    None,
    /// A verdict: a verdict map.
    Verdict,
    /// Values: a map.
    Fields(Vec<Field>),
}

/// A named set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set {
    /// Name.
    pub name: Name,
    /// Fields of the key.
    pub key: Vec<Field>,
    /// Data.
    pub data: Data,
    /// Hard limit on the number of elements, for which the kernel makes room at once; `None` leaves it to the kernel: none, or
    /// 65,535 for elements that packets add.
    pub size: Option<u32>,
    /// Timeout in seconds of elements that packets add: makes the set `dynamic,timeout`.
    pub timeout: Option<u32>,
    /// Comment.
    pub comment: Option<Name>,
}

/// Where a rule or an element sends a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// `accept`.
    Accept,
    /// `drop`.
    Drop,
    /// `jump`.
    Jump(Name),
    /// `goto`.
    Goto(Name),
}

/// A value of a key or data field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// An address of the table's family.
    Addr(IpAddr),
    /// A protocol.
    Proto(Protocol),
    /// A port.
    Port(Port),
    /// An endpoint's index.
    Index(u32),
}

/// The key of an element. Short, since there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// `addr`
    Addr(IpAddr),
    /// `port`
    Port(Port),
    /// `addr . proto . port`
    AddrPort(IpAddr, Protocol, Port),
    /// `proto . port`
    ProtoPort(Protocol, Port),
    /// `addr . proto . port . index`
    AddrPortIndex(IpAddr, Protocol, Port, u32),
    /// `proto . port . index`
    ProtoPortIndex(Protocol, Port, u32),
    /// `addr . addr . proto . port`
    Hairpin(IpAddr, Protocol, Port),
}

impl Key {
    /// The fields, in the order of the set's key.
    #[must_use]
    pub fn atoms(&self) -> Vec<Atom> {
        use Atom::{Addr, Index, Port, Proto};
        match *self {
            Self::Addr(a) => vec![Addr(a)],
            Self::Port(p) => vec![Port(p)],
            Self::AddrPort(a, l4, p) => vec![Addr(a), Proto(l4), Port(p)],
            Self::ProtoPort(l4, p) => vec![Proto(l4), Port(p)],
            Self::AddrPortIndex(a, l4, p, i) => vec![Addr(a), Proto(l4), Port(p), Index(i)],
            Self::ProtoPortIndex(l4, p, i) => vec![Proto(l4), Port(p), Index(i)],
            Self::Hairpin(a, l4, p) => vec![Addr(a), Addr(a), Proto(l4), Port(p)],
        }
    }
}

/// The value of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Element of a set.
    None,
    /// Element of a verdict map.
    Verdict(Verdict),
    /// Element of an endpoint map: `addr . port`.
    Endpoint(IpAddr, Port),
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// Key.
    pub key: Key,
    /// Value.
    pub value: Value,
    /// Comment, at most 127 bytes.
    pub comment: Option<Name>,
}

/// A packet field that is matched or looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// `ip saddr` / `ip6 saddr`.
    SourceAddr,
    /// `ip daddr` / `ip6 daddr`.
    DestAddr,
    /// `meta l4proto`.
    L4Proto,
    /// `th dport`.
    DestPort,
}

/// One statement of a rule, in nft's sense: a match, a lookup, an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stmt {
    /// `ct state new` / `ct state invalid`.
    CtState(CtState),
    /// `ct status dnat`.
    CtStatusDnat,
    /// `ip saddr CIDR` or `ip saddr != CIDR` (also `daddr`).
    Addr {
        /// Source or destination.
        selector: Selector,
        /// `!=`.
        negated: bool,
        /// The range; a host address prints without its length.
        cidr: IpNet,
    },
    /// `ip saddr [!=] { a, b/len }`: an anonymous interval set. Ranges must not overlap, and must be sorted; see `merge_ranges` of `layout`.
    /// At least two: both writers make a single one a [`Stmt::Addr`], and that is what is read back.
    AddrIn {
        /// Source or destination.
        selector: Selector,
        /// `!=`.
        negated: bool,
        /// The ranges.
        cidrs: Vec<IpNet>,
    },
    /// `a . b . c @set`: goes on if the packet's fields are in the set.
    InSet {
        /// The fields.
        selectors: Vec<Selector>,
        /// The set.
        set: Name,
    },
    /// `iifname [!=] "name"`, or `"prefix*"`.
    IifName {
        /// `!=`.
        negated: bool,
        /// Name or prefix.
        name: Name,
        /// Only the beginning of the name counts.
        prefix: bool,
    },
    /// `meta l4proto P`.
    L4Proto(Protocol),
    /// `fib saddr type local` / `fib daddr type local`.
    FibLocal(Selector),
    /// `meta mark & M != 0`.
    MarkSet(u32),
    /// `meta mark set meta mark | M`.
    OrMark(u32),
    /// `meta mark set meta mark ^ M`.
    XorMark(u32),
    /// `a . b . c vmap @map`.
    Vmap {
        /// The fields.
        selectors: Vec<Selector>,
        /// The map.
        map: Name,
    },
    /// `dnat ip to a . b . c . numgen random mod N offset O map @map`.
    DnatMap {
        /// The fields before the index.
        selectors: Vec<Selector>,
        /// Number of endpoints.
        modulus: u32,
        /// Index of the first.
        offset: u32,
        /// The map.
        map: Name,
    },
    /// `dnat ip to numgen random mod N map { 0 : a . p, ... }`: an anonymous map (layout `chains`).
    DnatRandom(Vec<(IpAddr, Port)>),
    /// `numgen random mod N vmap { 0 : goto c0, ... }`: an anonymous verdict map.
    GotoRandom(Vec<Name>),
    /// `dnat to A:P`.
    Dnat(IpAddr, Port),
    /// `update @set { ip saddr }`.
    UpdateSource(Name),
    /// `masquerade fully-random`.
    Masquerade,
    /// `reject`: an ICMP error, port unreachable.
    Reject,
    /// `reject with tcp reset`. Comes behind [`Stmt::L4Proto`], which nft leaves out of its listing.
    Reset,
    /// A verdict.
    Verdict(Verdict),
}

/// Connection tracking states that are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CtState {
    /// `new`.
    New,
    /// `invalid`.
    Invalid,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Statements.
    pub stmts: Vec<Stmt>,
    /// Comment, at most 127 bytes.
    pub comment: Option<Name>,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `add table` (no error if it is there).
    AddTable,
    /// `delete table`.
    DeleteTable,
    /// `add chain` (no error if it is there).
    AddChain(Chain),
    /// `flush chain`.
    FlushChain(Name),
    /// `delete chain`.
    DeleteChain(Name),
    /// `add rule`, at the end of the chain.
    AddRule(Name, Rule),
    /// `add set` / `add map`.
    AddSet(Set),
    /// `delete set` / `delete map`.
    DeleteSet(Name),
    /// `add element`: fails if the key is there with another value.
    AddElements(Name, Vec<Element>),
    /// `delete element`: fails if a key is not there.
    DeleteElements(Name, Vec<Key>),
}

/// Family and name of our table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Family.
    pub family: IpFamily,
    /// Name, `kube-proxy` by default.
    pub name: Name,
}

/// Comment of the table.
pub const TABLE_COMMENT: &str = "rules for kube-proxy";

/// What a kernel holds of our table, decoded from a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The table is there.
    pub exists: bool,
    /// Its chains, by name, each with its rules.
    pub chains: std::collections::BTreeMap<Name, (Chain, Vec<ObservedRule>)>,
    /// Its named sets and maps, by name, each with its elements. Elements of sets that packets fill are left out.
    pub sets: std::collections::BTreeMap<Name, (Set, Vec<ObservedElement>)>,
}

/// A dumped rule: one of ours, or something that this backend never writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObservedRule {
    /// Has our form.
    Known(Rule),
    /// Anything else, in words.
    Foreign(String),
}

/// A dumped element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObservedElement {
    /// Has our form.
    Known(Element),
    /// Anything else, in words.
    Foreign(String),
}
