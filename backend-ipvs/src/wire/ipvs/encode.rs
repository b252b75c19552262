//! Writing the messages of IPVS.

use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::{AttrWriter, GenericFamily, MessageIndex, Requests};

use super::{
    ADDRESS, ADDRESS_BYTES, Change, DESTINATION, FAMILY, FLAGS, HASH_PORT, LOWER_THRESHOLD, MASQUERADE,
    METHOD, NETMASK, PERSISTENT, PORT, PROTOCOL, REAL_ADDRESS, REAL_FAMILY, REAL_PORT, SCHEDULER, SERVICE,
    TIMEOUT, TIMEOUT_TCP, TIMEOUT_TCP_FIN, TIMEOUT_UDP, Timeouts, UPPER_THRESHOLD, WEIGHT, command, whole,
};
use crate::objects::{RealServer, ServiceKey, VirtualServer};
use crate::wire::family_number;

/// Appends the message of a change.
pub fn push(requests: &mut Requests, family: &GenericFamily, change: &Change) -> MessageIndex {
    use command as c;
    let mut message =
        |command, fill: &dyn Fn(&mut AttrWriter<'_>)| requests.generic(family, command, 0, fill);
    match change {
        Change::NewService(server) => message(c::NEW_SERVICE, &|w| put_service(w, server)),
        Change::SetService(server) => message(c::SET_SERVICE, &|w| put_service(w, server)),
        Change::DeleteService(key) => message(c::DELETE_SERVICE, &|w| put_key(w, key)),
        Change::NewReal(key, real, weight) => {
            message(c::NEW_DESTINATION, &|w| put_real(w, key, real, Some(*weight)))
        }
        Change::SetReal(key, real, weight) => {
            message(c::SET_DESTINATION, &|w| put_real(w, key, real, Some(*weight)))
        }
        Change::DeleteReal(key, real) => message(c::DELETE_DESTINATION, &|w| put_real(w, key, real, None)),
    }
}

/// The attributes that name a virtual server: the request of one, or of its real servers.
pub fn put_key(w: &mut AttrWriter<'_>, key: &ServiceKey) {
    w.nest(SERVICE, |w| put_identity(w, key));
}

fn put_identity(w: &mut AttrWriter<'_>, key: &ServiceKey) {
    w.put_u16(FAMILY, family_number(IpFamily::of(key.ip)).into());
    w.put_u16(PROTOCOL, key.protocol.number().into());
    w.put_bytes(ADDRESS, &octets(key.ip));
    w.put_u16_be(PORT, key.port.get());
}

fn put_service(w: &mut AttrWriter<'_>, server: &VirtualServer) {
    w.nest(SERVICE, |w| {
        put_identity(w, &server.key);
        w.put_str(SCHEDULER, &server.scheduler);
        let persistent = if server.persistence.is_some() { PERSISTENT } else { 0 };
        let flags = persistent | if server.hash_port { HASH_PORT } else { 0 };
        let [flags, mask] = [flags, u32::MAX].map(u32::to_ne_bytes);
        w.put_bytes(FLAGS, &[flags, mask].concat());
        let seconds = server.persistence.map_or(0, |time| time.as_secs());
        w.put_u32(TIMEOUT, u32::try_from(seconds).unwrap_or(u32::MAX));
        w.put_u32(NETMASK, whole(IpFamily::of(server.key.ip)));
    });
}

fn put_real(w: &mut AttrWriter<'_>, key: &ServiceKey, real: &RealServer, weight: Option<u32>) {
    put_key(w, key);
    w.nest(DESTINATION, |w| {
        w.put_u16(REAL_FAMILY, family_number(IpFamily::of(real.ip)).into());
        w.put_bytes(REAL_ADDRESS, &octets(real.ip));
        w.put_u16_be(REAL_PORT, real.port.get());
        if let Some(weight) = weight {
            w.put_u32(METHOD, MASQUERADE);
            w.put_u32(WEIGHT, weight);
            w.put_u32(UPPER_THRESHOLD, 0);
            w.put_u32(LOWER_THRESHOLD, 0);
        }
    });
}

fn octets(ip: IpAddr) -> [u8; ADDRESS_BYTES] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; ADDRESS_BYTES];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

/// The attributes of a request to set timeouts.
pub fn put_timeouts(w: &mut AttrWriter<'_>, timeouts: &Timeouts) {
    w.put_u32(TIMEOUT_TCP, timeouts.tcp);
    w.put_u32(TIMEOUT_TCP_FIN, timeouts.tcp_fin);
    w.put_u32(TIMEOUT_UDP, timeouts.udp);
}
