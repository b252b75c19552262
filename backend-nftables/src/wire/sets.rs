//! Declarations of sets and maps.

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::AttrWriter;

use super::numbers::{datatype, set, set_flags};
use super::userdata::{self, Side};
use super::{addr_len, ranges};
use crate::objects::{Data, Field, Name, Selector, Set, Stmt};

/// Byte orders of nft: none (a concatenation, or a field of one byte), host, network.
mod order {
    pub(super) const NONE: u32 = 0;
    pub(super) const HOST: u32 = 1;
    pub(super) const NETWORK: u32 = 2;
}

/// Elements that packets may add to a set without a declared size (`nft_dynset_init` of the kernel), which then lists it as its size.
pub(super) const DYNAMIC_SIZE: u32 = 0xffff;

/// More than one field: then each is padded to four bytes.
pub(super) fn is_concat(fields: &[Field]) -> bool {
    fields.len() > 1
}

/// nft's byte order of a key or data.
pub(super) fn byteorder(fields: &[Field]) -> u32 {
    match fields {
        [Field::Addr | Field::Service] => order::NETWORK,
        [Field::Index] => order::HOST,
        _ => order::NONE,
    }
}

/// Bytes of a field alone.
fn field_len(family: IpFamily, field: Field) -> usize {
    match field {
        Field::Addr => addr_len(family),
        Field::Proto => 1,
        Field::Service => 2,
        Field::Index => 4,
    }
}

/// Bytes of a key or data.
pub(super) fn fields_len(family: IpFamily, fields: &[Field]) -> usize {
    match fields {
        [field] => field_len(family, *field),
        fields => fields.iter().map(|field| field_len(family, *field).next_multiple_of(4)).sum(),
    }
}

/// nft's number of a type.
fn type_id(family: IpFamily, fields: &[Field]) -> u32 {
    fields.iter().fold(0, |id, field| (id << datatype::BITS) | field_type(family, *field))
}

fn field_type(family: IpFamily, field: Field) -> u32 {
    match (field, family) {
        (Field::Addr, IpFamily::Ipv4) => datatype::IPV4_ADDR,
        (Field::Addr, IpFamily::Ipv6) => datatype::IPV6_ADDR,
        (Field::Proto, _) => datatype::INET_PROTO,
        (Field::Service, _) => datatype::INET_SERVICE,
        (Field::Index, _) => datatype::INTEGER,
    }
}

/// The fields that a type's number names, if all are of our kinds.
pub(super) fn fields_of(family: IpFamily, mut id: u32) -> Option<Vec<Field>> {
    let all = [Field::Addr, Field::Proto, Field::Service, Field::Index];
    let mut fields = Vec::new();
    while id != 0 {
        let last = id & ((1 << datatype::BITS) - 1);
        fields.push(all.into_iter().find(|field| field_type(family, *field) == last)?);
        id >>= datatype::BITS;
    }
    fields.reverse();
    (!fields.is_empty()).then_some(fields)
}

/// A length as netlink carries it. The lengths of fields are small.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Attributes of `NFT_MSG_NEWSET` for a named set or map.
pub(super) fn write(w: &mut AttrWriter<'_>, family: IpFamily, table: &str, id: u32, declared: &Set) {
    w.put_str(set::TABLE, table);
    w.put_str(set::NAME, &declared.name);
    w.put_u32_be(set::FLAGS, flags(declared));
    w.put_u32_be(set::KEY_TYPE, type_id(family, &declared.key));
    w.put_u32_be(set::KEY_LEN, length(fields_len(family, &declared.key)));
    match &declared.data {
        Data::None => {}
        Data::Verdict => write_data(w, datatype::VERDICT, 0),
        Data::Fields(fields) => write_data(w, type_id(family, fields), fields_len(family, fields)),
    }
    w.put_u32_be(set::ID, id);
    if let Some(size) = declared.size {
        w.nest(set::DESC, |w| w.put_u32_be(set::DESC_SIZE, size));
    }
    if let Some(seconds) = declared.timeout {
        w.put_u64_be(set::TIMEOUT, u64::from(seconds) * 1000);
    }
    w.put_bytes(set::USERDATA, &userdata::set(family, declared));
}

fn write_data(w: &mut AttrWriter<'_>, type_id: u32, len: usize) {
    w.put_u32_be(set::DATA_TYPE, type_id);
    w.put_u32_be(set::DATA_LEN, length(len));
}

fn flags(declared: &Set) -> u32 {
    let map = if declared.data == Data::None { 0 } else { set_flags::MAP };
    let timeout = if declared.timeout.is_some() { set_flags::TIMEOUT | set_flags::EVAL } else { 0 };
    map | timeout
}

/// A set or map that belongs to one rule.
#[derive(Debug)]
pub(super) enum Anonymous<'a> {
    /// Single addresses.
    Hosts(Side, Vec<u128>),
    /// Ranges of addresses.
    Ranges(Side, Vec<ranges::Range>),
    /// Index to endpoint.
    Endpoints(&'a [(std::net::IpAddr, proxier_core::ids::Port)]),
    /// Index to `goto`.
    Chains(&'a [Name]),
}

impl<'a> Anonymous<'a> {
    /// The set that a statement needs. One network needs none: like nft, it is compared directly.
    pub(super) fn of(stmt: &'a Stmt) -> Option<Self> {
        match stmt {
            Stmt::AddrIn { selector, cidrs, .. } if cidrs.len() > 1 => {
                let side = if *selector == Selector::SourceAddr { Side::Source } else { Side::Dest };
                if cidrs.iter().all(ranges::is_host) {
                    let mut hosts: Vec<u128> = cidrs.iter().map(|host| ranges::number(host.addr())).collect();
                    hosts.sort_unstable();
                    hosts.dedup();
                    return Some(Self::Hosts(side, hosts));
                }
                Some(Self::Ranges(side, ranges::merge(cidrs)))
            }
            Stmt::DnatRandom(endpoints) => Some(Self::Endpoints(endpoints)),
            Stmt::GotoRandom(chains) => Some(Self::Chains(chains)),
            _ => None,
        }
    }

    /// The name that the kernel completes with a number.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Hosts(..) | Self::Ranges(..) => "__set%d",
            Self::Endpoints(_) | Self::Chains(_) => "__map%d",
        }
    }

    /// Attributes of `NFT_MSG_NEWSET`.
    pub(super) fn write(&self, w: &mut AttrWriter<'_>, family: IpFamily, table: &str, id: u32) {
        const INDEX: &[Field] = &[Field::Index];
        const ADDR: &[Field] = &[Field::Addr];
        const ENDPOINT: &[Field] = &[Field::Addr, Field::Service];
        let constant = set_flags::ANONYMOUS | set_flags::CONSTANT;
        let (flags, key) = match self {
            Self::Hosts(..) => (constant, ADDR),
            Self::Ranges(..) => (constant | set_flags::INTERVAL, ADDR),
            Self::Endpoints(_) | Self::Chains(_) => (constant | set_flags::MAP, INDEX),
        };
        w.put_str(set::TABLE, table);
        w.put_str(set::NAME, self.name());
        w.put_u32_be(set::FLAGS, flags);
        w.put_u32_be(set::KEY_TYPE, type_id(family, key));
        w.put_u32_be(set::KEY_LEN, length(fields_len(family, key)));
        match self {
            Self::Hosts(..) | Self::Ranges(..) => {}
            Self::Endpoints(_) => write_data(w, type_id(family, ENDPOINT), fields_len(family, ENDPOINT)),
            Self::Chains(_) => write_data(w, datatype::VERDICT, 0),
        }
        w.put_u32_be(set::ID, id);
        w.nest(set::DESC, |w| w.put_u32_be(set::DESC_SIZE, length(self.size())));
        let userdata = match self {
            Self::Hosts(side, _) => userdata::address_set(family, *side, false),
            Self::Ranges(side, _) => userdata::address_set(family, *side, true),
            Self::Endpoints(_) => userdata::index_map(false),
            Self::Chains(_) => userdata::index_map(true),
        };
        w.put_bytes(set::USERDATA, &userdata);
    }

    /// Number of elements, as nft counts: a range has a start and an end, and there is one end at the lowest address
    /// if no range starts there.
    fn size(&self) -> usize {
        match self {
            Self::Hosts(_, hosts) => hosts.len(),
            Self::Ranges(_, ranges) => {
                2 * ranges.len() + usize::from(ranges.first().is_some_and(|range| range.first > 0))
            }
            Self::Endpoints(endpoints) => endpoints.len(),
            Self::Chains(chains) => chains.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_six_bits_per_field_and_read_back() {
        let key = [Field::Addr, Field::Proto, Field::Service, Field::Index];
        assert_eq!(type_id(IpFamily::Ipv4, &key), 0x001c_c344);
        assert_eq!(type_id(IpFamily::Ipv6, &key), 0x0020_c344);
        assert_eq!(fields_of(IpFamily::Ipv6, 0x0020_c344).as_deref(), Some(&key[..]));
        assert_eq!(fields_of(IpFamily::Ipv4, 0x0020_c344), None, "other family");
        assert_eq!(fields_of(IpFamily::Ipv4, 0), None);
        assert_eq!(fields_of(IpFamily::Ipv4, u32::MAX), None);
        assert_eq!((fields_len(IpFamily::Ipv4, &key), fields_len(IpFamily::Ipv6, &key)), (16, 28));
        assert_eq!(fields_len(IpFamily::Ipv4, &[Field::Service]), 2, "alone is not padded");
    }
}
