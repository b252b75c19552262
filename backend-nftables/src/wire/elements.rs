//! Elements of sets and maps: their keys and values as bytes, and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::netlink::AttrWriter;

use super::numbers::{data, elem, elem_list, verdict};
use super::ranges::{self, Range};
use super::userdata;
use crate::objects::{Element, Field, Key, Value, Verdict};

/// Room for the longest key: two IPv6 addresses, protocol and port.
const LONGEST: usize = 48;

/// A key or value without an allocation.
pub(super) struct Packed {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Packed {
    fn new() -> Self {
        Self { bytes: [0; LONGEST], len: 0 }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }

    /// Appends a field, padded to four bytes.
    fn padded(mut self, field: &[u8]) -> Self {
        // No key of ours is longer than LONGEST.
        if let Some(room) = self.bytes.get_mut(self.len..self.len + field.len()) {
            room.copy_from_slice(field);
            self.len += field.len().next_multiple_of(4);
        }
        self
    }

    /// The only field.
    fn alone(mut self, field: &[u8]) -> Self {
        self = self.padded(field);
        self.len = field.len();
        self
    }

    fn addr(self, addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => self.padded(&addr.octets()),
            IpAddr::V6(addr) => self.padded(&addr.octets()),
        }
    }

    fn proto_port(self, protocol: Protocol, port: Port) -> Self {
        self.padded(&[protocol.number()]).padded(&port.get().to_be_bytes())
    }

    fn index(self, index: u32) -> Self {
        self.padded(&index.to_ne_bytes())
    }
}

/// An address or a beginning of it, as packets carry it.
pub(super) fn addr_bytes(addr: IpAddr) -> Packed {
    Packed::new().addr(addr)
}

fn key_bytes(key: &Key) -> Packed {
    let packed = Packed::new();
    match *key {
        Key::Addr(addr) => packed.addr(addr),
        Key::Port(port) => packed.alone(&port.get().to_be_bytes()),
        Key::AddrPort(addr, protocol, port) => packed.addr(addr).proto_port(protocol, port),
        Key::ProtoPort(protocol, port) => packed.proto_port(protocol, port),
        Key::AddrPortIndex(addr, protocol, port, index) => {
            packed.addr(addr).proto_port(protocol, port).index(index)
        }
        Key::ProtoPortIndex(protocol, port, index) => packed.proto_port(protocol, port).index(index),
        Key::Hairpin(addr, protocol, port) => packed.addr(addr).addr(addr).proto_port(protocol, port),
    }
}

fn endpoint_bytes(addr: IpAddr, port: Port) -> Packed {
    Packed::new().addr(addr).padded(&port.get().to_be_bytes())
}

/// `NFTA_DATA_VALUE` inside of an attribute.
pub(super) fn write_value(w: &mut AttrWriter<'_>, kind: u16, bytes: &[u8]) {
    w.nest(kind, |w| w.put_bytes(data::VALUE, bytes));
}

/// `NFTA_DATA_VERDICT` inside of an attribute.
pub(super) fn write_verdict(w: &mut AttrWriter<'_>, kind: u16, to: &Verdict) {
    let (code, chain) = match to {
        Verdict::Accept => (verdict::ACCEPT, None),
        Verdict::Drop => (verdict::DROP, None),
        Verdict::Jump(chain) => (verdict::JUMP, Some(chain)),
        Verdict::Goto(chain) => (verdict::GOTO, Some(chain)),
    };
    w.nest(kind, |w| {
        w.nest(data::VERDICT, |w| {
            w.put_u32_be(data::VERDICT_CODE, code);
            if let Some(chain) = chain {
                w.put_str(data::VERDICT_CHAIN, chain);
            }
        });
    });
}

/// One entry of an element list.
pub(super) fn write(w: &mut AttrWriter<'_>, element: &Element) {
    w.nest(elem_list::ELEM, |w| {
        write_value(w, elem::KEY, key_bytes(&element.key).as_slice());
        match &element.value {
            Value::None => {}
            Value::Verdict(to) => write_verdict(w, elem::DATA, to),
            Value::Endpoint(addr, port) => {
                write_value(w, elem::DATA, endpoint_bytes(*addr, *port).as_slice());
            }
        }
        if let Some(comment) = &element.comment {
            w.put_bytes(elem::USERDATA, userdata::comment(comment).as_slice());
        }
    });
}

/// One entry that only names an element.
pub(super) fn write_key(w: &mut AttrWriter<'_>, key: &Key) {
    w.nest(elem_list::ELEM, |w| write_value(w, elem::KEY, key_bytes(key).as_slice()));
}

/// One entry of a map from an index to an endpoint.
pub(super) fn write_endpoint(w: &mut AttrWriter<'_>, index: u32, addr: IpAddr, port: Port) {
    w.nest(elem_list::ELEM, |w| {
        write_value(w, elem::KEY, &index.to_ne_bytes());
        write_value(w, elem::DATA, endpoint_bytes(addr, port).as_slice());
    });
}

/// One entry of a verdict map from an index.
pub(super) fn write_goto(w: &mut AttrWriter<'_>, index: u32, chain: &crate::objects::Name) {
    w.nest(elem_list::ELEM, |w| {
        write_value(w, elem::KEY, &index.to_ne_bytes());
        write_verdict(w, elem::DATA, &Verdict::Goto(chain.clone()));
    });
}

/// A point of an interval set: a range begins, or the one before ends just below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) at: u128,
    pub(super) end: bool,
    /// The range that begins here reaches the highest address and has no end.
    pub(super) open: bool,
}

/// The points of sorted ranges, the first one at the lowest address.
pub(super) fn points(family: IpFamily, ranges: &[Range]) -> Vec<Point> {
    let mut out = Vec::with_capacity(2 * ranges.len() + 1);
    if ranges.first().is_some_and(|range| range.first > 0) {
        out.push(Point { at: 0, end: true, open: false });
    }
    for range in ranges {
        let open = range.last == ranges::highest(family);
        out.push(Point { at: range.first, end: false, open });
        if !open {
            out.push(Point { at: range.last + 1, end: true, open: false });
        }
    }
    out
}

/// One entry of a set of addresses.
pub(super) fn write_point(w: &mut AttrWriter<'_>, family: IpFamily, point: Point) {
    w.nest(elem_list::ELEM, |w| {
        if point.end {
            w.put_u32_be(elem::FLAGS, elem::INTERVAL_END);
        }
        write_value(w, elem::KEY, addr_bytes(ranges::address(family, point.at)).as_slice());
        if point.open {
            w.put_bytes(elem::USERDATA, &userdata::open_range());
        }
    });
}

/// Reads fields off bytes.
struct Unpacker<'a> {
    family: IpFamily,
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    /// The next field and its padding, which must be zero.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>()?;
        let padding = N.next_multiple_of(4) - N;
        let (zeros, rest) = rest.split_at_checked(padding)?;
        self.rest = rest;
        zeros.iter().all(|byte| *byte == 0).then_some(*field)
    }

    fn addr(&mut self) -> Option<IpAddr> {
        match self.family {
            IpFamily::Ipv4 => self.take().map(|octets: [u8; 4]| IpAddr::V4(Ipv4Addr::from(octets))),
            IpFamily::Ipv6 => self.take().map(|octets: [u8; 16]| IpAddr::V6(Ipv6Addr::from(octets))),
        }
    }

    fn proto(&mut self) -> Option<Protocol> {
        self.take().and_then(|[number]| Protocol::from_number(number))
    }

    fn port(&mut self) -> Option<Port> {
        self.take().and_then(|bytes| Port::new(u16::from_be_bytes(bytes)))
    }

    fn index(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn all<T>(self, value: T) -> Option<T> {
        self.rest.is_empty().then_some(value)
    }
}

/// A key of a set with these fields; `None` if it is not of our kinds.
pub(super) fn read_key(family: IpFamily, fields: &[Field], bytes: &[u8]) -> Option<Key> {
    use Field::{Addr, Index, Proto, Service};
    let mut from = Unpacker { family, rest: bytes };
    let key = match fields {
        [Addr] => Key::Addr(from.addr()?),
        [Service] => {
            let port: [u8; 2] = bytes.try_into().ok()?;
            return Port::new(u16::from_be_bytes(port)).map(Key::Port);
        }
        [Addr, Proto, Service] => Key::AddrPort(from.addr()?, from.proto()?, from.port()?),
        [Proto, Service] => Key::ProtoPort(from.proto()?, from.port()?),
        [Addr, Proto, Service, Index] => {
            Key::AddrPortIndex(from.addr()?, from.proto()?, from.port()?, from.index()?)
        }
        [Proto, Service, Index] => Key::ProtoPortIndex(from.proto()?, from.port()?, from.index()?),
        [Addr, Addr, Proto, Service] => {
            let (source, dest) = (from.addr()?, from.addr()?);
            if source != dest {
                return None;
            }
            Key::Hairpin(dest, from.proto()?, from.port()?)
        }
        _ => return None,
    };
    from.all(key)
}

/// Address and port.
pub(super) fn read_endpoint(family: IpFamily, bytes: &[u8]) -> Option<(IpAddr, Port)> {
    let mut from = Unpacker { family, rest: bytes };
    let endpoint = (from.addr()?, from.port()?);
    from.all(endpoint)
}

/// An address.
pub(super) fn read_addr(family: IpFamily, bytes: &[u8]) -> Option<IpAddr> {
    let mut from = Unpacker { family, rest: bytes };
    let addr = from.addr()?;
    from.all(addr)
}

/// An index.
pub(super) fn read_index(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
