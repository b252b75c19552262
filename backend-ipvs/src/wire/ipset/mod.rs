//! ipset over nfnetlink, protocol 6: the one that every kernel since 2.6.39 speaks. What protocol 7 adds, numbers of sets, is not needed.

mod decode;
mod encode;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::IpFamily;

use crate::sets::{Entry, SetType};

pub use decode::{read_names, read_revisions, read_sets};
pub use encode::{
    push_change, push_create, push_delete_strange, push_destroy, put_header, put_list, put_name, put_names,
    put_swap, put_type,
};
pub use words::{FULL, IN_USE, NO_TYPE, describe, words};

/// `IPSET_PROTOCOL_MIN`.
const PROTOCOL_VERSION: u8 = 6;

/// Commands.
pub mod command {
    /// Makes a set.
    pub const CREATE: u8 = 2;
    /// Deletes a set.
    pub const DESTROY: u8 = 3;
    /// Takes all entries out of a set.
    pub const FLUSH: u8 = 4;
    /// Two sets change names.
    pub const SWAP: u8 = 6;
    /// Sets with their entries.
    pub const LIST: u8 = 7;
    /// Adds entries.
    pub const ADD: u8 = 9;
    /// Takes entries out.
    pub const DELETE: u8 = 10;
    /// Which revisions of a type the kernel has.
    pub const TYPE: u8 = 13;
}

// Attributes of a message.
const PROTOCOL: u16 = 1;
const NAME: u16 = 2;
const TYPE_NAME: u16 = 3;
const SECOND_NAME: u16 = 3;
const REVISION: u16 = 4;
const FAMILY: u16 = 5;
const FLAGS: u16 = 6;
const DATA: u16 = 7;
const SEVERAL: u16 = 8;
const LINE: u16 = 9;
const OLDEST_REVISION: u16 = 10;

// Of a set and of its entries.
const IP: u16 = 1;
const PORT: u16 = 4;
const PORT_TO: u16 = 5;
const PROTO: u16 = 7;
const ENTRY_FLAGS: u16 = 8;
const SECOND_IP: u16 = 20;
const SECOND_PREFIX: u16 = 21;
const HASH_SIZE: u16 = 18;
const MAX_ELEMENTS: u16 = 19;
const REFERENCES: u16 = 25;

// Of an address.
const IPV4: u16 = 1;
const IPV6: u16 = 2;

/// `NLA_F_NET_BYTEORDER`: ipset refuses numbers of several bytes without it.
const NETWORK_ORDER: u16 = 1 << 14;
/// `IPSET_FLAG_LIST_SETNAME`.
const ONLY_NAMES: u32 = 2;
/// `IPSET_FLAG_LIST_HEADER`.
const WITHOUT_ENTRIES: u32 = 4;
/// `IPSET_FLAG_NOMATCH`: the entry is an exception to the others.
const EXCEPTION: u32 = 4;

/// How many entries a set takes unless it was made for more (`maxelem`); that of kube-proxy, and the kernel's default.
pub const MAX_ENTRIES: u32 = 65_536;
/// Buckets that a set begins with (`hashsize`); it grows by itself.
pub const BUCKETS: u32 = 1024;

/// What a set is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Definition {
    /// Its name, of at most [`LONGEST_NAME`](crate::sets::LONGEST_NAME) bytes.
    pub name: Arc<str>,
    /// Its type.
    pub kind: SetType,
    /// The family of its addresses; a bitmap of ports has none in the kernel.
    pub family: IpFamily,
    /// How many entries it takes; a bitmap takes all that it can hold.
    pub max_entries: u32,
}

impl Definition {
    /// A set of the usual size.
    pub fn new(name: impl Into<Arc<str>>, kind: SetType, family: IpFamily) -> Self {
        Self { name: name.into(), kind, family, max_entries: MAX_ENTRIES }
    }
}

/// The kernel's name of a type.
pub fn type_name(kind: SetType) -> &'static str {
    match kind {
        SetType::HashIp => "hash:ip",
        SetType::HashIpPort => "hash:ip,port",
        SetType::HashIpPortIp => "hash:ip,port,ip",
        SetType::HashIpPortNet => "hash:ip,port,net",
        SetType::BitmapPort => "bitmap:port",
    }
}

const TYPES: [SetType; 5] = [
    SetType::HashIp,
    SetType::HashIpPort,
    SetType::HashIpPortIp,
    SetType::HashIpPortNet,
    SetType::BitmapPort,
];

/// The newest revision of a type that is asked for: the last one before sets got a bucket size and a seed of their own, known to kernels since 3.18 and
/// tools since 6.22.
///
/// A set of a newer revision than the host's `ipset` knows cannot be listed by it any more, and nothing that came later is used here.
const fn newest_wanted(kind: SetType) -> u8 {
    match kind {
        SetType::HashIp => 4,
        SetType::HashIpPort | SetType::HashIpPortIp => 5,
        SetType::HashIpPortNet => 7,
        SetType::BitmapPort => 3,
    }
}

/// The revisions of a type that a kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// The first.
    pub oldest: u8,
    /// The last.
    pub newest: u8,
}

impl Revisions {
    /// The one to make a set of.
    pub fn choose(self, kind: SetType) -> u8 {
        newest_wanted(kind).clamp(self.oldest, self.newest)
    }
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// It is added; nothing happens if it is there.
    Add,
    /// It is taken out; nothing happens if it is not there.
    Delete,
}

/// One change of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    /// The set's name.
    pub set: Arc<str>,
    /// What happens.
    pub verb: Verb,
    /// To which entry.
    pub entry: Entry,
}

impl fmt::Display for EntryChange {
    /// One line of `ipset restore`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Add => "add",
            Verb::Delete => "del",
        };
        write!(f, "{verb} {} {} -exist", self.set, self.entry)
    }
}

/// An entry of a form that this backend never writes: another protocol, port 0, an exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strange {
    ip: Option<IpAddr>,
    protocol: Option<u8>,
    port: Option<u16>,
    second: Option<IpAddr>,
    prefix: Option<u8>,
    exception: bool,
}

impl fmt::Display for Strange {
    /// What is known of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.protocol, self.port) {
            (Some(protocol), Some(port)) => Some(format!("protocol {protocol} port {port}")),
            (None, Some(port)) => Some(format!("port {port}")),
            (_, None) => None,
        };
        let second = self.second.map(|ip| match self.prefix {
            Some(prefix) => format!("{ip}/{prefix}"),
            None => ip.to_string(),
        });
        let exception = self.exception.then(|| "nomatch".to_owned());
        let parts = [self.ip.map(|ip| ip.to_string()), place, second, exception];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// A set as the kernel holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSet {
    /// Its name.
    pub name: String,
    /// The kernel's name of its type.
    pub type_name: String,
    /// The family of its addresses; none for a bitmap of ports.
    pub family: Option<IpFamily>,
    /// How many entries it takes (`maxelem`); none for a bitmap.
    pub max_entries: Option<u32>,
    /// How many rules look into it; it cannot be deleted meanwhile.
    pub references: u32,
    /// Its entries, sorted.
    pub entries: Vec<Entry>,
    /// Entries of other forms.
    pub strange: Vec<Strange>,
}

impl SeenSet {
    /// It is of the type and family that are asked for: what can be filled, and swapped with a new one. Its size does not count.
    pub fn is_a(&self, set: &Definition) -> bool {
        let family = (set.kind != SetType::BitmapPort).then_some(set.family);
        self.type_name == type_name(set.kind) && self.family == family
    }
}

fn family_of(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { IPV4 } else { IPV6 }
}
