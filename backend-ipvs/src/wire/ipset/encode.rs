//! Writing ipset messages.

use std::net::IpAddr;

use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::netlink::{AttrWriter, MessageIndex, MessageType, Requests, flags, subsystem};

use super::{
    BUCKETS, DATA, Definition, ENTRY_FLAGS, EXCEPTION, FAMILY, FLAGS, HASH_SIZE, IP, LINE, MAX_ELEMENTS,
    NAME, NETWORK_ORDER, ONLY_NAMES, PORT, PORT_TO, PROTO, PROTOCOL, PROTOCOL_VERSION, REVISION, SECOND_IP,
    SECOND_NAME, SECOND_PREFIX, SEVERAL, Strange, TYPE_NAME, Verb, WITHOUT_ENTRIES, command, family_of,
    type_name,
};
use crate::sets::{Entry, SetType};
use crate::wire::family_number;

/// The family in the header of a message; it means nothing here.
const HEADER_FAMILY: u8 = family_number(IpFamily::Ipv4);

fn message(
    requests: &mut Requests,
    command: u8,
    flags: u16,
    fill: impl FnOnce(&mut AttrWriter<'_>),
) -> MessageIndex {
    requests.netfilter(MessageType::new(subsystem::IPSET, command), flags, HEADER_FAMILY, fill)
}

/// The attributes that name a set.
pub fn put_name(w: &mut AttrWriter<'_>, name: &str) {
    w.put_u8(PROTOCOL, PROTOCOL_VERSION);
    w.put_str(NAME, name);
}

/// The attributes of a dump of one set.
pub fn put_list(w: &mut AttrWriter<'_>, name: &str) {
    put_name(w, name);
}

/// The attributes of a dump of what one set is, without its entries.
pub fn put_header(w: &mut AttrWriter<'_>, name: &str) {
    put_name(w, name);
    w.put_u32_be(FLAGS | NETWORK_ORDER, WITHOUT_ENTRIES);
}

/// The attributes of a dump of the names of all sets.
pub fn put_names(w: &mut AttrWriter<'_>) {
    w.put_u8(PROTOCOL, PROTOCOL_VERSION);
    w.put_u32_be(FLAGS | NETWORK_ORDER, ONLY_NAMES);
}

/// The attributes of a request that exchanges two sets.
pub fn put_swap(w: &mut AttrWriter<'_>, one: &str, other: &str) {
    put_name(w, one);
    w.put_str(SECOND_NAME, other);
}

/// The attributes of a request for the revisions of a type.
pub fn put_type(w: &mut AttrWriter<'_>, kind: SetType, family: IpFamily) {
    w.put_u8(PROTOCOL, PROTOCOL_VERSION);
    w.put_str(TYPE_NAME, type_name(kind));
    w.put_u8(FAMILY, set_family(kind, family));
}

fn set_family(kind: SetType, family: IpFamily) -> u8 {
    if kind == SetType::BitmapPort { 0 } else { family_number(family) }
}

/// Appends the request for a set; `EEXIST` where there is one of that name. To have that ignored for a set that is the same would not help: the kernel
/// does not compare the families.
pub fn push_create(requests: &mut Requests, set: &Definition, revision: u8) -> MessageIndex {
    message(requests, command::CREATE, flags::CREATE | flags::EXCL, |w| {
        put_name(w, &set.name);
        w.put_str(TYPE_NAME, type_name(set.kind));
        w.put_u8(REVISION, revision);
        w.put_u8(FAMILY, set_family(set.kind, set.family));
        w.nest(DATA, |w| match set.kind {
            SetType::BitmapPort => {
                w.put_u16_be(PORT | NETWORK_ORDER, 0);
                w.put_u16_be(PORT_TO | NETWORK_ORDER, u16::MAX);
            }
            _ => {
                w.put_u32_be(HASH_SIZE | NETWORK_ORDER, BUCKETS);
                w.put_u32_be(MAX_ELEMENTS | NETWORK_ORDER, set.max_entries);
            }
        });
    })
}

/// Appends the request to delete a set.
pub fn push_destroy(requests: &mut Requests, name: &str) -> MessageIndex {
    message(requests, command::DESTROY, flags::EXCL, |w| put_name(w, name))
}

/// Appends one message that changes entries of one set. Each entry stands for itself: where one of several is refused, those before it are done and
/// those behind it are not, and the answer does not tell which; so ask again for each alone.
pub fn push_change<'a>(
    requests: &mut Requests,
    set: &str,
    verb: Verb,
    entries: impl ExactSizeIterator<Item = &'a Entry>,
) -> MessageIndex {
    let command = match verb {
        Verb::Add => command::ADD,
        Verb::Delete => command::DELETE,
    };
    // Without EXCL, an entry that is there already, or is not, is no fault.
    message(requests, command, 0, |w| {
        put_name(w, set);
        let several = entries.len() > 1;
        let put = |w: &mut AttrWriter<'_>| {
            for (line, entry) in (1..).zip(entries) {
                w.nest(DATA, |w| {
                    put_entry(w, entry);
                    if several {
                        w.put_u32_be(LINE | NETWORK_ORDER, line);
                    }
                });
            }
        };
        if several {
            w.put_u32_be(LINE | NETWORK_ORDER, 1);
            w.nest(SEVERAL, put);
        } else {
            put(w);
        }
    })
}

/// Appends the request to take out an entry of another form. What is listed cannot be sent back as it is: addresses are listed without the mark of
/// their byte order, and refused without it.
pub fn push_delete_strange(requests: &mut Requests, set: &str, entry: &Strange) -> MessageIndex {
    message(requests, command::DELETE, 0, |w| {
        put_name(w, set);
        w.nest(DATA, |w| {
            for (kind, ip) in [(IP, entry.ip), (SECOND_IP, entry.second)] {
                if let Some(ip) = ip {
                    put_ip(w, kind, ip);
                }
            }
            if let Some(port) = entry.port {
                w.put_u16_be(PORT | NETWORK_ORDER, port);
            }
            for (kind, byte) in [(PROTO, entry.protocol), (SECOND_PREFIX, entry.prefix)] {
                if let Some(byte) = byte {
                    w.put_u8(kind, byte);
                }
            }
            if entry.exception {
                w.put_u32_be(ENTRY_FLAGS | NETWORK_ORDER, EXCEPTION);
            }
        });
    })
}

fn put_entry(w: &mut AttrWriter<'_>, entry: &Entry) {
    match *entry {
        Entry::Ip(ip) => put_ip(w, IP, ip),
        Entry::IpPort(ip, protocol, port) => put_place(w, ip, protocol, port),
        Entry::IpPortIp(ip, protocol, port, other) => {
            put_place(w, ip, protocol, port);
            put_ip(w, SECOND_IP, other);
        }
        Entry::IpPortNet(ip, protocol, port, net) => {
            put_place(w, ip, protocol, port);
            put_ip(w, SECOND_IP, net.addr());
            if net.prefix_len() != net.max_prefix_len() {
                w.put_u8(SECOND_PREFIX, net.prefix_len());
            }
        }
        Entry::Port(port) => w.put_u16_be(PORT | NETWORK_ORDER, port.get()),
    }
}

fn put_place(w: &mut AttrWriter<'_>, ip: IpAddr, protocol: Protocol, port: Port) {
    put_ip(w, IP, ip);
    w.put_u16_be(PORT | NETWORK_ORDER, port.get());
    w.put_u8(PROTO, protocol.number());
}

fn put_ip(w: &mut AttrWriter<'_>, kind: u16, ip: IpAddr) {
    w.nest(kind, |w| match ip {
        IpAddr::V4(v4) => w.put_bytes(family_of(ip) | NETWORK_ORDER, &v4.octets()),
        IpAddr::V6(v6) => w.put_bytes(family_of(ip) | NETWORK_ORDER, &v6.octets()),
    });
}
