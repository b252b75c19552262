//! Rules as data, in the form in which the kernel keeps them.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proxier_core::ids::Protocol;

/// A condition, or its opposite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maybe<T> {
    /// `!`.
    pub negated: bool,
    /// The condition.
    pub value: T,
}

/// Interface names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, without `+`.
    pub name: Arc<str>,
    /// `+`: all names that begin so.
    pub prefix: bool,
}

/// Ports from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

/// Bits under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Bits.
    pub value: u32,
    /// Which of them count; for a target, which are cleared before `value` is applied by exclusive or.
    pub mask: u32,
}

/// Connection states: bits, in the order of [`CtStates::NAMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtStates(pub u8);

impl CtStates {
    /// Names in the order in which the tool prints them.
    pub const NAMES: [&'static str; 7] =
        ["INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"];

    /// Is this one of them?
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        Self::NAMES.iter().position(|n| *n == name).is_some_and(|bit| self.0 & (1 << bit) != 0)
    }
}

/// Address types: bits, in the order of [`AddressTypes::NAMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressTypes(pub u16);

impl AddressTypes {
    /// Names in the order in which the tool prints them; those that cannot be told of an address alone are left out.
    pub const NAMES: [&'static str; 2] = ["UNICAST", "LOCAL"];

    /// Does an address of this kind count? One of this host is `LOCAL`; any other is taken for `UNICAST`.
    #[must_use]
    pub fn has(self, local: bool) -> bool {
        self.0 & if local { 0b10 } else { 0b01 } != 0
    }
}

/// How `statistic` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// With a probability, in multiples of 2^-31.
    Random(u32),
    /// Every so many packets.
    Nth {
        /// Length of a round.
        every: u32,
        /// Which of a round.
        packet: u32,
    },
}

/// What `recent` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentAction {
    /// `--set`: records the address.
    Set,
    /// `--rcheck`: asks for it.
    Check,
    /// `--update`: asks for it, and records it if it is there.
    Update,
}

/// The match `recent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// What it does.
    pub action: RecentAction,
    /// Name of the list.
    pub name: Arc<str>,
    /// Only those recorded within so many seconds count.
    pub seconds: Option<u32>,
    /// Older ones are forgotten.
    pub reap: bool,
    /// `--rdest`: the destination address instead of the source.
    pub destination: bool,
}

/// What an ipset is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetMatch {
    /// Name of the set.
    pub name: Arc<str>,
    /// Which ends, in order: true for the source.
    pub sources: Vec<bool>,
}

/// One `-m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// `comment`, cut to 255 bytes.
    Comment(Arc<str>),
    /// `conntrack --ctstate`.
    Conntrack(Maybe<CtStates>),
    /// `mark`.
    Mark(Maybe<Marked>),
    /// `addrtype`: source, destination.
    AddressType(Option<Maybe<AddressTypes>>, Option<Maybe<AddressTypes>>),
    /// `statistic`.
    Statistic(Maybe<Statistic>),
    /// `recent`.
    Recent(Maybe<Recent>),
    /// `tcp`, `udp` or `sctp`.
    Transport {
        /// Protocol.
        protocol: Protocol,
        /// `--sport`.
        source: Option<Maybe<Ports>>,
        /// `--dport`.
        destination: Option<Maybe<Ports>>,
    },
    /// `nfacct`: counts, and always holds.
    Counter(Arc<str>),
    /// `set --match-set`: whether an ipset has what these ends of the packet are together.
    Set(Maybe<SetMatch>),
    /// `physdev --physdev-is-in`: arrived by a port of a bridge.
    Bridged(Maybe<()>),
    /// `ipvs`: the virtual server that the packet was sent to before IPVS translated it.
    Ipvs {
        /// `--vproto`.
        protocol: Option<Maybe<u8>>,
        /// `--vaddr`.
        address: Option<Maybe<IpNet>>,
        /// `--vport`.
        port: Option<Maybe<u16>>,
    },
}

/// `-j` or `-g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// None: the rule only counts.
    None,
    /// `ACCEPT`: ends the table.
    Accept,
    /// `DROP`.
    Drop,
    /// `RETURN`.
    Return,
    /// To a chain, and back.
    Jump(Arc<str>),
    /// To a chain, and after it back to whoever jumped to this one.
    Goto(Arc<str>),
    /// `MARK`: mark = (mark & !mask) ^ value.
    Mark(Marked),
    /// `MASQUERADE`.
    Masquerade {
        /// `--random-fully`.
        random_fully: bool,
    },
    /// `DNAT`.
    Dnat {
        /// Address.
        address: IpAddr,
        /// Port; `None` keeps the packet's.
        port: Option<u16>,
    },
    /// `REJECT --reject-with` this.
    Reject(&'static str),
}

impl Target {
    /// The chain it leads to.
    #[must_use]
    pub fn chain(&self) -> Option<&Arc<str>> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

/// A rule without its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `-s`.
    pub source: Option<Maybe<IpNet>>,
    /// `-d`.
    pub destination: Option<Maybe<IpNet>>,
    /// `-i`.
    pub incoming: Option<Maybe<Interface>>,
    /// `-o`.
    pub outgoing: Option<Maybe<Interface>>,
    /// `-p`, as its number.
    pub protocol: Option<Maybe<u8>>,
    /// `-m`, in order.
    pub matches: Vec<Match>,
    /// `-j` or `-g`.
    pub target: Target,
    /// The rule as `iptables-save` prints it: two rules are the same if and only if this is.
    pub text: Arc<str>,
}

impl Rule {
    /// Its comment.
    #[must_use]
    pub fn comment(&self) -> Option<&str> {
        self.matches.iter().find_map(|m| match m {
            Match::Comment(text) => Some(&**text),
            _ => None,
        })
    }
}
