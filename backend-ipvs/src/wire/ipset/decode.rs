//! Reading ipset messages.

use std::net::IpAddr;

use ipnet::IpNet;
use proxier_core::ids::{Port, Protocol};
use proxier_sys::netlink::{Attr, AttrIter};

use super::{
    DATA, ENTRY_FLAGS, EXCEPTION, FAMILY, IP, IPV4, IPV6, MAX_ELEMENTS, NAME, OLDEST_REVISION, PORT, PROTO,
    REFERENCES, REVISION, Revisions, SECOND_IP, SECOND_PREFIX, SEVERAL, SeenSet, Strange, TYPE_NAME, TYPES,
    type_name,
};
use crate::sets::{Entry, SetType};
use crate::wire::{DecodeError, family_of_number};

/// Reads the answer to a request for the revisions of a type.
///
/// # Errors
/// [`DecodeError`].
pub fn read_revisions(payload: &[u8]) -> Result<Revisions, DecodeError> {
    let (mut oldest, mut newest) = (0, None);
    for attr in AttrIter::new(payload) {
        let attr = attr?;
        match attr.kind {
            REVISION => newest = Some(attr.u8()?),
            OLDEST_REVISION => oldest = attr.u8()?,
            _ => {}
        }
    }
    let newest = newest.ok_or(DecodeError::Missing { object: "type of set", attribute: "revision" })?;
    Ok(Revisions { oldest, newest })
}

/// Reads the names of sets from a dump.
///
/// # Errors
/// [`DecodeError`].
pub fn read_names<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<String>, DecodeError> {
    messages.into_iter().map(|payload| name(payload).map(str::to_owned)).collect()
}

fn name(payload: &[u8]) -> Result<&str, DecodeError> {
    for attr in AttrIter::new(payload) {
        let attr = attr?;
        if attr.kind == NAME {
            return Ok(attr.str()?);
        }
    }
    Err(DecodeError::Missing { object: "set", attribute: "name" })
}

/// Reads the sets of a dump. A set takes as many messages as its entries need; only the first says what it is.
///
/// # Errors
/// [`DecodeError`].
pub fn read_sets<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<SeenSet>, DecodeError> {
    let mut sets: Vec<SeenSet> = Vec::new();
    for payload in messages {
        let name = name(payload)?;
        let continued = sets.last().is_some_and(|set| set.name == name);
        let mut set = match continued.then(|| sets.pop()).flatten() {
            Some(set) => set,
            None => header(name, payload)?,
        };
        let kind = TYPES.into_iter().find(|kind| type_name(*kind) == set.type_name);
        for attr in AttrIter::new(payload) {
            let attr = attr?;
            if attr.kind == SEVERAL {
                read_entries(&mut set, kind, &attr)?;
            }
        }
        sets.push(set);
    }
    for set in &mut sets {
        set.entries.sort_unstable();
        set.strange.sort_unstable();
    }
    Ok(sets)
}

fn header(name: &str, payload: &[u8]) -> Result<SeenSet, DecodeError> {
    let (mut type_name, mut family, mut max_entries, mut references) = (None, None, None, 0);
    for attr in AttrIter::new(payload) {
        let attr = attr?;
        match attr.kind {
            TYPE_NAME => type_name = Some(attr.str()?.to_owned()),
            FAMILY => family = family_of_number(attr.u8()?.into()),
            DATA => {
                for attr in attr.nested() {
                    let attr = attr?;
                    match attr.kind {
                        MAX_ELEMENTS => max_entries = Some(attr.u32_be()?),
                        REFERENCES => references = attr.u32_be()?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let type_name = type_name.ok_or(DecodeError::Missing { object: "set", attribute: "type" })?;
    let (entries, strange) = (Vec::new(), Vec::new());
    Ok(SeenSet { name: name.to_owned(), type_name, family, max_entries, references, entries, strange })
}

fn read_entries(set: &mut SeenSet, kind: Option<SetType>, several: &Attr<'_>) -> Result<(), DecodeError> {
    for attr in several.nested() {
        let attr = attr?;
        let seen = Strange::read(&attr)?;
        match kind.and_then(|kind| seen.of_type(kind)) {
            Some(entry) => set.entries.push(entry),
            None => set.strange.push(seen),
        }
    }
    Ok(())
}

impl Strange {
    fn read(data: &Attr<'_>) -> Result<Self, DecodeError> {
        let mut entry = Self::default();
        for attr in data.nested() {
            let attr = attr?;
            match attr.kind {
                IP => entry.ip = address(&attr)?,
                PORT => entry.port = Some(attr.u16_be()?),
                PROTO => entry.protocol = Some(attr.u8()?),
                SECOND_IP => entry.second = address(&attr)?,
                SECOND_PREFIX => entry.prefix = Some(attr.u8()?),
                ENTRY_FLAGS => entry.exception = attr.u32_be()? & EXCEPTION != 0,
                _ => {}
            }
        }
        Ok(entry)
    }

    /// The entry, if it has the form of this type.
    fn of_type(self, kind: SetType) -> Option<Entry> {
        if self.exception {
            return None;
        }
        let port = || self.port.and_then(Port::new);
        if kind == SetType::BitmapPort {
            return Some(Entry::Port(port()?));
        }
        let ip = self.ip?;
        if kind == SetType::HashIp {
            return Some(Entry::Ip(ip));
        }
        let (protocol, port) = (Protocol::from_number(self.protocol?)?, port()?);
        match kind {
            SetType::HashIpPort => Some(Entry::IpPort(ip, protocol, port)),
            SetType::HashIpPortIp => Some(Entry::IpPortIp(ip, protocol, port, self.second?)),
            SetType::HashIpPortNet => {
                let second = self.second?;
                let net = match self.prefix {
                    Some(prefix) => IpNet::new(second, prefix).ok()?.trunc(),
                    None => IpNet::from(second),
                };
                Some(Entry::IpPortNet(ip, protocol, port, net))
            }
            SetType::HashIp | SetType::BitmapPort => None,
        }
    }
}

fn address(attr: &Attr<'_>) -> Result<Option<IpAddr>, DecodeError> {
    let mut ip = None;
    for inner in attr.nested() {
        let inner = inner?;
        ip = match inner.kind {
            IPV4 => inner.payload.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
            IPV6 => inner.payload.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
            _ => ip,
        };
    }
    Ok(ip)
}
