//! User data: bytes that the kernel keeps for nft, which needs them to print what we meant.
//!
//! A list of (type, length, value), type and length one byte each. Each kind of object numbers its types anew
//! (`libnftnl/udata.h`); numbers in values are in host byte order. What nft 1.0.6 writes for our declarations was
//! captured and is reproduced here.

use proxier_core::ids::IpFamily;

use super::sets::{byteorder, is_concat};
use crate::objects::{Data, Field, Set};
use crate::text::{MAX_COMMENT, comment_text, is_by_example};

/// Type of a comment of tables, chains, rules and elements.
const COMMENT: u8 = 0;
/// Types of sets.
mod set_udata {
    pub(super) const KEY_BYTEORDER: u8 = 0;
    pub(super) const DATA_BYTEORDER: u8 = 1;
    pub(super) const MERGE_ELEMENTS: u8 = 2;
    pub(super) const KEY_TYPEOF: u8 = 3;
    pub(super) const DATA_TYPEOF: u8 = 4;
    pub(super) const DATA_INTERVAL: u8 = 6;
    pub(super) const COMMENT: u8 = 7;
}
/// Type of an element's flags.
const ELEM_FLAGS: u8 = 1;
/// The range that starts at this element has no end element: it reaches the highest address.
const INTERVAL_OPEN: u32 = 1;

/// Kinds of expressions, and within each what names it.
mod example {
    pub(super) const KIND: u8 = 0;
    pub(super) const DATA: u8 = 1;
    pub(super) const VERDICT: u32 = 1;
    pub(super) const PAYLOAD: u32 = 7;
    pub(super) const META: u32 = 9;
    pub(super) const CONCAT: u32 = 13;
    pub(super) const NUMGEN: u32 = 23;
    pub(super) const PROTO_TH: u32 = 11;
    pub(super) const PROTO_IP: u32 = 12;
    pub(super) const PROTO_IP6: u32 = 13;
    pub(super) const TH_DPORT: u32 = 2;
    /// The field before it is the source address.
    pub(super) const IP_DADDR: u32 = 12;
    /// The field before it is the source address.
    pub(super) const IP6_DADDR: u32 = 9;
}

/// Which address a set of addresses is an example of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Dest,
}

/// Appends one entry. Values longer than 255 bytes do not occur: comments are cut, and a declaration has at most five
/// fields of at most 28 bytes.
fn entry(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[kind, 0]);
    let start = out.len();
    fill(out);
    let length = u8::try_from(out.len() - start).unwrap_or(u8::MAX);
    out.truncate(start + usize::from(length));
    out[start - 1] = length;
}

fn number(out: &mut Vec<u8>, kind: u8, value: u32) {
    entry(out, kind, |out| out.extend_from_slice(&value.to_ne_bytes()));
}

fn text(out: &mut Vec<u8>, kind: u8, comment: &str) {
    entry(out, kind, |out| {
        out.extend_from_slice(comment_text(comment).as_bytes());
        out.push(0);
    });
}

/// User data that is a comment, without an allocation: elements are many.
pub(super) struct Comment {
    bytes: [u8; MAX_COMMENT + 3],
    len: usize,
}

impl Comment {
    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// User data of a table, chain, rule or element with a comment.
pub(super) fn comment(comment: &str) -> Comment {
    let text = comment_text(comment);
    let mut bytes = [0; MAX_COMMENT + 3];
    // The text has at most MAX_COMMENT bytes, so it and its NUL byte fit, and so does their number.
    bytes[0] = COMMENT;
    bytes[1] = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    for (to, from) in bytes[2..].iter_mut().zip(text.as_bytes()) {
        *to = *from;
    }
    Comment { bytes, len: text.len() + 3 }
}

/// User data of a range's last element without an end.
pub(super) fn open_range() -> Vec<u8> {
    let mut out = Vec::with_capacity(6);
    number(&mut out, ELEM_FLAGS, INTERVAL_OPEN);
    out
}

/// User data of a named set or map.
pub(super) fn set(family: IpFamily, set: &Set) -> Vec<u8> {
    let by_example = is_by_example(set);
    let mut out = Vec::with_capacity(256);
    number(&mut out, set_udata::KEY_BYTEORDER, byteorder(&set.key));
    match &set.data {
        Data::None => {}
        Data::Verdict => number(&mut out, set_udata::DATA_BYTEORDER, 0),
        Data::Fields(fields) => number(&mut out, set_udata::DATA_BYTEORDER, byteorder(fields)),
    }
    declaration(&mut out, set_udata::KEY_TYPEOF, family, &set.key, by_example);
    match &set.data {
        Data::None => {}
        Data::Verdict => {
            if by_example {
                entry(&mut out, set_udata::DATA_TYPEOF, |out| kind_of(out, example::VERDICT, |_| {}));
            }
        }
        Data::Fields(fields) => declaration(&mut out, set_udata::DATA_TYPEOF, family, fields, by_example),
    }
    if set.data != Data::None {
        number(&mut out, set_udata::DATA_INTERVAL, 0);
    }
    if let Some(comment) = &set.comment {
        text(&mut out, set_udata::COMMENT, comment);
    }
    out
}

/// User data of an anonymous set of addresses.
pub(super) fn address_set(family: IpFamily, side: Side, interval: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    number(&mut out, set_udata::KEY_BYTEORDER, byteorder(&[Field::Addr]));
    if interval {
        number(&mut out, set_udata::MERGE_ELEMENTS, 1);
    }
    entry(&mut out, set_udata::KEY_TYPEOF, |out| address(out, family, side));
    out
}

/// User data of an anonymous map from an index, to a verdict if `verdict`, else to address and port.
pub(super) fn index_map(verdict: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    number(&mut out, set_udata::KEY_BYTEORDER, byteorder(&[Field::Index]));
    number(&mut out, set_udata::DATA_BYTEORDER, 0);
    if verdict {
        entry(&mut out, set_udata::DATA_TYPEOF, |out| kind_of(out, example::VERDICT, |_| {}));
    }
    number(&mut out, set_udata::DATA_INTERVAL, 0);
    out
}

/// The comment in user data, if it holds one that is text.
pub(super) fn comment_of(userdata: &[u8]) -> Option<&str> {
    find(userdata, COMMENT).and_then(read_text)
}

/// The comment in a set's user data.
pub(super) fn set_comment_of(userdata: &[u8]) -> Option<&str> {
    find(userdata, set_udata::COMMENT).and_then(read_text)
}

fn read_text(value: &[u8]) -> Option<&str> {
    str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
}

fn find(mut rest: &[u8], wanted: u8) -> Option<&[u8]> {
    while let Some((&[kind, length], after)) = rest.split_first_chunk::<2>() {
        let value = after.get(..usize::from(length))?;
        if kind == wanted {
            return Some(value);
        }
        rest = after.get(usize::from(length)..)?;
    }
    None
}

/// What a key or data was declared by. nft notes it for every concatenation, but the fields only if declared by
/// `typeof`; a single field declared by `type` needs no note.
fn declaration(out: &mut Vec<u8>, kind: u8, family: IpFamily, fields: &[Field], by_example: bool) {
    match fields {
        [field] if by_example => entry(out, kind, |out| field_example(out, family, *field)),
        fields if is_concat(fields) => entry(out, kind, |out| {
            kind_of(out, example::CONCAT, |out| {
                let fields = if by_example { fields } else { &[] };
                for (i, field) in (0u8..).zip(fields) {
                    entry(out, i, |out| field_example(out, family, *field));
                }
            });
        }),
        _ => {}
    }
}

fn kind_of(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    number(out, example::KIND, kind);
    entry(out, example::DATA, fill);
}

fn field_example(out: &mut Vec<u8>, family: IpFamily, field: Field) {
    match field {
        Field::Addr => address(out, family, Side::Dest),
        Field::Proto => kind_of(out, example::META, |out| number(out, 0, super::numbers::meta::L4PROTO)),
        Field::Service => payload(out, example::PROTO_TH, example::TH_DPORT),
        Field::Index => kind_of(out, example::NUMGEN, |out| {
            number(out, 0, super::numbers::numgen::RANDOM);
            number(out, 1, 2); // modulus
            number(out, 2, 0); // offset
        }),
    }
}

fn address(out: &mut Vec<u8>, family: IpFamily, side: Side) {
    let (protocol, daddr) = match family {
        IpFamily::Ipv4 => (example::PROTO_IP, example::IP_DADDR),
        IpFamily::Ipv6 => (example::PROTO_IP6, example::IP6_DADDR),
    };
    payload(out, protocol, if side == Side::Dest { daddr } else { daddr - 1 });
}

fn payload(out: &mut Vec<u8>, protocol: u32, field: u32) {
    kind_of(out, example::PAYLOAD, |out| {
        number(out, 0, protocol);
        number(out, 1, field);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a capture of what nft 1.0.6 sends (little endian), with its bytes grouped by entry.
    #[cfg(target_endian = "little")]
    #[test]
    fn endpoint_map_is_what_nft_writes() {
        let map = Set {
            name: "eps".into(),
            key: vec![Field::Addr, Field::Proto, Field::Service, Field::Index],
            data: Data::Fields(vec![Field::Addr, Field::Service]),
            size: Some(65536),
            timeout: None,
            comment: Some("eps".into()),
        };
        let captured = concat!(
            "000400000000",
            "010400000000",
            "0360",
            "00040d000000",
            "0158",
            "0014",
            "000407000000",
            "010c",
            "00040c000000",
            "01040c000000",
            "010e",
            "000409000000",
            "0106",
            "000410000000",
            "0214",
            "000407000000",
            "010c",
            "00040b000000",
            "010402000000",
            "031a",
            "000417000000",
            "0112",
            "000401000000",
            "010402000000",
            "020400000000",
            "0434",
            "00040d000000",
            "012c",
            "0014",
            "000407000000",
            "010c",
            "00040c000000",
            "01040c000000",
            "0114",
            "000407000000",
            "010c",
            "00040b000000",
            "010402000000",
            "060400000000",
            "070465707300",
        );
        let written: String = set(IpFamily::Ipv4, &map).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(written, captured);
    }

    #[test]
    fn comments_read_back_and_damage_is_no_comment() {
        let written = comment("kube-system/dns:dns");
        let data = written.as_slice();
        assert_eq!(comment_of(data), Some("kube-system/dns:dns"));
        for end in 0..data.len() {
            assert_eq!(comment_of(&data[..end]), None);
        }
        assert_eq!(comment_of(&[1, 1, 7, 0, 2, b'x', 0]), Some("x"));
        assert_eq!(comment_of(&[0, 2, 0xff, 0]), None);
    }
}
