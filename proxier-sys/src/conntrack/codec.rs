//! ctnetlink's attributes: `linux/netfilter/nfnetlink_conntrack.h`.

use std::net::{IpAddr, SocketAddr};

use super::{Filter, Flow, Tuple};
use crate::netlink::{Attr, AttrIter, AttrWriter};

// `enum ctattr_type`.
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const TIMEOUT: u16 = 7;
const ID: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;

// `enum ctattr_tuple`.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const TUPLE_ZONE: u16 = 3;

// `enum ctattr_ip`.
const V4_SRC: u16 = 1;
const V4_DST: u16 = 2;
const V6_SRC: u16 = 3;
const V6_DST: u16 = 4;

// `enum ctattr_l4proto`.
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;

// `enum ctattr_filter`: which parts of a tuple count. The bits are the kernel's own, not in its user interface headers; they are in host
// byte order.
const FILTER_ORIG_FLAGS: u16 = 1;
const FILTER_REPLY_FLAGS: u16 = 2;
const FLAG_IP_SRC: u32 = 1 << 0;
const FLAG_IP_DST: u32 = 1 << 1;
const FLAG_PROTO_NUM: u32 = 1 << 3;
const FLAG_PROTO_SRC_PORT: u32 = 1 << 4;
const FLAG_PROTO_DST_PORT: u32 = 1 << 5;

pub(super) fn read(attributes: &[u8]) -> Option<Flow> {
    let (mut original, mut reply, mut id) = (None, None, None);
    let (mut zone, mut status) = (0, 0);
    for attr in AttrIter::new(attributes) {
        let attr = attr.ok()?;
        match attr.kind {
            TUPLE_ORIG => original = Some(tuple(&attr)?),
            TUPLE_REPLY => reply = Some(tuple(&attr)?),
            STATUS => status = attr.u32_be().ok()?,
            ID => id = Some(attr.u32_be().ok()?),
            ZONE => zone = attr.u16_be().ok()?,
            _ => {}
        }
    }
    let (protocol, original) = original?;
    let (_, reply) = reply?;
    Some(Flow { protocol, original, reply, zone, id, status })
}

fn tuple(attr: &Attr<'_>) -> Option<(u8, Tuple)> {
    let (mut source, mut destination, mut protocol) = (None, None, None);
    let (mut source_port, mut destination_port, mut zone) = (0, 0, 0);
    for attr in attr.nested() {
        let attr = attr.ok()?;
        match attr.kind {
            TUPLE_IP => {
                for attr in attr.nested() {
                    let attr = attr.ok()?;
                    match attr.kind {
                        V4_SRC | V6_SRC => source = address(attr.payload),
                        V4_DST | V6_DST => destination = address(attr.payload),
                        _ => {}
                    }
                }
            }
            TUPLE_PROTO => {
                for attr in attr.nested() {
                    let attr = attr.ok()?;
                    match attr.kind {
                        PROTO_NUM => protocol = attr.u8().ok(),
                        PROTO_SRC_PORT => source_port = attr.u16_be().ok()?,
                        PROTO_DST_PORT => destination_port = attr.u16_be().ok()?,
                        _ => {}
                    }
                }
            }
            TUPLE_ZONE => zone = attr.u16_be().ok()?,
            _ => {}
        }
    }
    let source = SocketAddr::new(source?, source_port);
    let destination = SocketAddr::new(destination?, destination_port);
    Some((protocol?, Tuple { source, destination, zone }))
}

fn address(payload: &[u8]) -> Option<IpAddr> {
    match payload.len() {
        4 => <[u8; 4]>::try_from(payload).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(payload).ok().map(IpAddr::from),
        _ => None,
    }
}

/// The filter and the parts of tuples that it is about.
pub(super) fn write_filter(w: &mut AttrWriter<'_>, filter: &Filter) {
    let original =
        Part { source: None, destination: filter.destination, ports: [None, filter.destination_port] };
    let reply =
        Part { source: filter.reply_source, destination: None, ports: [filter.reply_source_port, None] };
    let counts = [reply.source.is_some(), reply.ports != [None, None]].contains(&true);
    part(w, TUPLE_ORIG, filter.protocol, &original);
    if counts {
        part(w, TUPLE_REPLY, filter.protocol, &reply);
    }
    w.nest(FILTER, |w| {
        w.put_u32(FILTER_ORIG_FLAGS, original.flags());
        if counts {
            w.put_u32(FILTER_REPLY_FLAGS, reply.flags());
        }
    });
}

/// What is asked of one tuple; the protocol always is, since ports are read according to it.
struct Part {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    ports: [Option<u16>; 2],
}

impl Part {
    fn flags(&self) -> u32 {
        let [source_port, destination_port] = self.ports;
        let given = [
            (self.source.is_some(), FLAG_IP_SRC),
            (self.destination.is_some(), FLAG_IP_DST),
            (source_port.is_some(), FLAG_PROTO_SRC_PORT),
            (destination_port.is_some(), FLAG_PROTO_DST_PORT),
        ];
        given.iter().filter(|(given, _)| *given).fold(FLAG_PROTO_NUM, |flags, (_, flag)| flags | flag)
    }
}

fn part(w: &mut AttrWriter<'_>, kind: u16, protocol: u8, part: &Part) {
    w.nest(kind, |w| {
        // The kernel wants the nest even if nothing in it counts.
        w.nest(TUPLE_IP, |w| put_addresses(w, part.source, part.destination));
        w.nest(TUPLE_PROTO, |w| put_protocol(w, protocol, part.ports));
    });
}

/// Everything that tells a flow from others.
pub(super) fn write_identity(w: &mut AttrWriter<'_>, flow: &Flow) {
    put_tuple(w, TUPLE_ORIG, flow.protocol, &flow.original);
    if flow.zone != 0 {
        w.put_u16_be(ZONE, flow.zone);
    }
    if let Some(id) = flow.id {
        w.put_u32_be(ID, id);
    }
}

/// A flow that is to be made, for so many seconds.
pub(super) fn write_new(w: &mut AttrWriter<'_>, flow: &Flow, seconds: u32) {
    put_tuple(w, TUPLE_ORIG, flow.protocol, &flow.original);
    put_tuple(w, TUPLE_REPLY, flow.protocol, &flow.reply);
    if flow.zone != 0 {
        w.put_u16_be(ZONE, flow.zone);
    }
    w.put_u32_be(STATUS, flow.status);
    w.put_u32_be(TIMEOUT, seconds);
}

fn put_tuple(w: &mut AttrWriter<'_>, kind: u16, protocol: u8, tuple: &Tuple) {
    w.nest(kind, |w| {
        w.nest(TUPLE_IP, |w| put_addresses(w, Some(tuple.source.ip()), Some(tuple.destination.ip())));
        let ports = [Some(tuple.source.port()), Some(tuple.destination.port())];
        w.nest(TUPLE_PROTO, |w| put_protocol(w, protocol, ports));
        if tuple.zone != 0 {
            w.put_u16_be(TUPLE_ZONE, tuple.zone);
        }
    });
}

fn put_addresses(w: &mut AttrWriter<'_>, source: Option<IpAddr>, destination: Option<IpAddr>) {
    for (ip, v4, v6) in [(source, V4_SRC, V6_SRC), (destination, V4_DST, V6_DST)] {
        match ip {
            Some(IpAddr::V4(ip)) => w.put_bytes(v4, &ip.octets()),
            Some(IpAddr::V6(ip)) => w.put_bytes(v6, &ip.octets()),
            None => {}
        }
    }
}

fn put_protocol(w: &mut AttrWriter<'_>, protocol: u8, [source, destination]: [Option<u16>; 2]) {
    w.put_u8(PROTO_NUM, protocol);
    if let Some(port) = source {
        w.put_u16_be(PROTO_SRC_PORT, port);
    }
    if let Some(port) = destination {
        w.put_u16_be(PROTO_DST_PORT, port);
    }
}
