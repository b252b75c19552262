//! A model of ipsets, as far as service proxies use them: what `ipset restore` does with a text, and what a rule's `--match-set` then finds.
//!
//! What it is: the types `hash:ip`, `hash:ip,port`, `hash:ip,port,ip`, `hash:ip,port,net` and `bitmap:port`, of both families, with what
//! the tool refuses of them. It shares no code with any backend.
//!
//! What it is not: counters, timeouts, comments of entries, ranges in entries.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use ipnet::IpNet;
use proxier_core::ids::IpFamily;

mod entry;
#[cfg(test)]
mod tests;

pub use entry::{Entry, EntryError};

/// Types that the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `hash:ip`.
    Ip,
    /// `hash:ip,port`.
    IpPort,
    /// `hash:ip,port,ip`.
    IpPortIp,
    /// `hash:ip,port,net`.
    IpPortNet,
    /// `bitmap:port`.
    Port,
}

impl Kind {
    /// All of them, with their names.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("hash:ip", Self::Ip),
        ("hash:ip,port", Self::IpPort),
        ("hash:ip,port,ip", Self::IpPortIp),
        ("hash:ip,port,net", Self::IpPortNet),
        ("bitmap:port", Self::Port),
    ];

    fn of(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// How many parts an entry has.
    #[must_use]
    pub fn parts(self) -> usize {
        match self {
            Self::Ip | Self::Port => 1,
            Self::IpPort => 2,
            Self::IpPortIp | Self::IpPortNet => 3,
        }
    }
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Type.
    pub kind: Kind,
    /// Family; a bitmap has none.
    pub family: Option<IpFamily>,
    /// Entries.
    pub entries: OrdSet<Entry>,
}

/// The sets of a host. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets(OrdMap<Arc<str>, Set>);

/// Why a line was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ipset: {cause}, at `{line}`")]
pub struct SetError {
    /// The line.
    pub line: String,
    /// What is wrong.
    pub cause: SetCause,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetCause {
    /// Not a command of the model.
    #[error("not understood")]
    Syntax,
    /// The name has more than 31 bytes.
    #[error("setname is longer than 31 characters")]
    NameTooLong,
    /// `create` of another one.
    #[error("a set of that name is there, and it is another one")]
    OtherSet,
    /// `create` without `-exist`.
    #[error("set with the same name already exists")]
    SetExists,
    /// No such set.
    #[error("the set with the given name does not exist")]
    NoSet,
    /// An entry that the type does not take.
    #[error("{0}")]
    Entry(#[from] EntryError),
    /// `add` without `-exist`.
    #[error("it's already added")]
    Added,
    /// `del` without `-exist`.
    #[error("it's not added")]
    NotAdded,
    /// More entries than `maxelem`.
    #[error("hash is full, cannot add more elements")]
    Full,
    /// A rule looks into it.
    #[error("set cannot be destroyed: it is in use by a kernel component")]
    InUse,
}

/// Most entries of a hash, unless it was created with another number.
const MAX_ELEMENTS: usize = 65_536;

impl Sets {
    /// A set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Set> {
        self.0.get(name)
    }

    /// All sets by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Set)> {
        self.0.iter().map(|(name, set)| (&**name, set))
    }

    /// Does what one line of `ipset restore` says. `in_use` are the sets that rules look into.
    ///
    /// # Errors
    /// What the tool or the kernel would refuse.
    pub fn run(&mut self, line: &str, in_use: &BTreeSet<String>) -> Result<(), SetError> {
        self.one(line, in_use).map_err(|cause| SetError { line: line.to_owned(), cause })
    }

    fn one(&mut self, line: &str, in_use: &BTreeSet<String>) -> Result<(), SetCause> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let exist = words.contains(&"-exist");
        let words: Vec<&str> = words.into_iter().filter(|w| *w != "-exist").collect();
        match *words {
            ["create", name, kind, ref options @ ..] => self.create(name, kind, options, exist),
            ["add", name, entry] => {
                let set = self.0.get_mut(name).ok_or(SetCause::NoSet)?;
                let entry = Entry::parse(set.kind, set.family, entry)?;
                if set.entries.contains(&entry) {
                    return if exist { Ok(()) } else { Err(SetCause::Added) };
                }
                if set.kind != Kind::Port && set.entries.len() >= MAX_ELEMENTS {
                    return Err(SetCause::Full);
                }
                set.entries.insert(entry);
                Ok(())
            }
            ["del", name, entry] => {
                let set = self.0.get_mut(name).ok_or(SetCause::NoSet)?;
                let entry = Entry::parse(set.kind, set.family, entry)?;
                let there = set.entries.remove(&entry).is_some();
                if there || exist { Ok(()) } else { Err(SetCause::NotAdded) }
            }
            ["flush", name] => {
                self.0.get_mut(name).ok_or(SetCause::NoSet)?.entries.clear();
                Ok(())
            }
            ["destroy", name] if in_use.contains(name) => Err(SetCause::InUse),
            ["destroy", name] => self.0.remove(name).map(|_| ()).ok_or(SetCause::NoSet),
            _ => Err(SetCause::Syntax),
        }
    }

    fn create(&mut self, name: &str, kind: &str, options: &[&str], exist: bool) -> Result<(), SetCause> {
        if name.len() > 31 {
            return Err(SetCause::NameTooLong);
        }
        let kind = Kind::of(kind).ok_or(SetCause::Syntax)?;
        let mut family = (kind != Kind::Port).then_some(IpFamily::Ipv4);
        for pair in options.chunks(2) {
            match *pair {
                ["family", "inet"] if kind != Kind::Port => family = Some(IpFamily::Ipv4),
                ["family", "inet6"] if kind != Kind::Port => family = Some(IpFamily::Ipv6),
                ["range", "0-65535"] if kind == Kind::Port => {}
                ["hashsize" | "maxelem" | "bucketsize", number] if number.parse::<u32>().is_ok() => {}
                _ => return Err(SetCause::Syntax),
            }
        }
        match self.0.get(name) {
            Some(there) if there.kind != kind || there.family != family => Err(SetCause::OtherSet),
            Some(_) if exist => Ok(()),
            Some(_) => Err(SetCause::SetExists),
            None => {
                self.0.insert(name.into(), Set { kind, family, entries: OrdSet::new() });
                Ok(())
            }
        }
    }

    /// Does a set have what these parts of a packet are together? Not one of another family, nor where the packet has no ports or the match
    /// names fewer parts than the set has.
    #[must_use]
    pub fn finds(&self, name: &str, parts: &[Part]) -> bool {
        let Some(set) = self.0.get(name) else { return false };
        let family = parts.iter().find_map(|p| p.ip).map(IpFamily::of);
        if parts.len() < set.kind.parts() || (set.family.is_some() && set.family != family) {
            return false;
        }
        let port = |at: usize| parts.get(at).and_then(|p| p.port);
        let ip = |at: usize| parts.get(at).and_then(|p| p.ip);
        let key = match set.kind {
            Kind::Ip => ip(0).map(Entry::Ip),
            Kind::Port => match port(0) {
                Some((6 | 17, number)) => Some(Entry::Port(number)),
                _ => None,
            },
            Kind::IpPort => ip(0).zip(port(1)).map(|(ip, port)| Entry::IpPort(ip, port)),
            Kind::IpPortIp => {
                ip(0).zip(port(1)).zip(ip(2)).map(|((ip, port), other)| Entry::IpPortIp(ip, port, other))
            }
            Kind::IpPortNet => {
                let Some(((a, b), c)) = ip(0).zip(port(1)).zip(ip(2)) else { return false };
                return set.entries.iter().any(|entry| match entry {
                    Entry::IpPortNet(ip, port, net) => (*ip, *port) == (a, b) && net.contains(&c),
                    _ => false,
                });
            }
        };
        key.is_some_and(|key| set.entries.contains(&key))
    }
}

/// One end of a packet, source or destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The address.
    pub ip: Option<IpAddr>,
    /// IANA number of the protocol, and the port; `None` where the protocol has none.
    pub port: Option<(u8, u16)>,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.family {
            Some(family) => write!(f, " {family}"),
            None => Ok(()),
        }
    }
}

/// A range whose host bits are zero.
pub(crate) fn masked(net: IpNet) -> IpNet {
    net.trunc()
}
