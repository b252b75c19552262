//! Reading the messages of IPVS.

use proxier_core::ids::{IpFamily, Protocol};
use proxier_sys::netlink::{Attr, AttrIter};

use super::{
    ACTIVE, ADDRESS, DESTINATION, ENGINE, FAMILY, FLAGS, FWMARK, HASHED, INACTIVE, INFO_TABLE, INFO_VERSION,
    Info, MASQUERADE, METHOD, METHOD_MASK, NETMASK, PORT, PROTOCOL, REAL_ADDRESS, REAL_FAMILY, REAL_PORT,
    SCHEDULER, SERVICE, SeenReal, SeenService, ServiceId, TIMEOUT, TIMEOUT_TCP, TIMEOUT_TCP_FIN, TIMEOUT_UDP,
    Timeouts, WEIGHT,
};
use crate::wire::{DecodeError, family_of_number, ip_of};

/// Reads timeouts; one that is not told is 0.
///
/// # Errors
/// [`DecodeError::Attribute`].
pub fn read_timeouts(payload: &[u8]) -> Result<Timeouts, DecodeError> {
    let mut timeouts = Timeouts::default();
    for attr in AttrIter::new(payload) {
        let attr = attr?;
        match attr.kind {
            TIMEOUT_TCP => timeouts.tcp = attr.u32()?,
            TIMEOUT_TCP_FIN => timeouts.tcp_fin = attr.u32()?,
            TIMEOUT_UDP => timeouts.udp = attr.u32()?,
            _ => {}
        }
    }
    Ok(timeouts)
}

/// Reads the answer to `GET_INFO`.
///
/// # Errors
/// [`DecodeError`].
pub fn read_info(payload: &[u8]) -> Result<Info, DecodeError> {
    let (mut version, mut table) = (None, 0);
    for attr in AttrIter::new(payload) {
        let attr = attr?;
        match attr.kind {
            INFO_VERSION => version = Some(attr.u32()?),
            INFO_TABLE => table = attr.u32()?,
            _ => {}
        }
    }
    let version = version.ok_or(DecodeError::Missing { object: "information", attribute: "version" })?;
    let [_, major, minor, patch] = version.to_be_bytes();
    Ok(Info { version: (major, minor, patch), table })
}

/// Reads a virtual server.
///
/// # Errors
/// [`DecodeError`].
pub fn read_service(payload: &[u8]) -> Result<SeenService, DecodeError> {
    let missing = |attribute| DecodeError::Missing { object: "virtual server", attribute };
    let (mut family, mut protocol, mut address, mut port, mut mark) = (None, None, None, 0, None);
    let (mut scheduler, mut flags, mut timeout, mut netmask, mut engine) = (None, 0, 0, 0, None);
    for attr in find(payload, SERVICE)?.ok_or(missing("attributes"))?.nested() {
        let attr = attr?;
        match attr.kind {
            FAMILY => family = family_of_number(attr.u16()?),
            PROTOCOL => protocol = u8::try_from(attr.u16()?).ok().and_then(Protocol::from_number),
            ADDRESS => address = Some(attr.payload),
            PORT => port = attr.u16_be()?,
            FWMARK => mark = Some(attr.u32()?),
            SCHEDULER => scheduler = Some(attr.str()?.to_owned()),
            FLAGS => flags = attr.payload.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes)),
            TIMEOUT => timeout = attr.u32()?,
            NETMASK => netmask = attr.u32()?,
            ENGINE => engine = Some(attr.str()?.to_owned()),
            _ => {}
        }
    }
    let family = family.ok_or(missing("family"))?;
    let id = match (mark, address.and_then(|bytes| ip_of(family, bytes))) {
        (Some(mark), _) => ServiceId::of_mark(family, mark),
        (None, Some(ip)) => ServiceId::new(protocol, ip, port),
        (None, None) => return Err(missing("address")),
    };
    let scheduler = scheduler.ok_or(missing("scheduler"))?;
    Ok(SeenService { id, scheduler, flags: flags & !HASHED, timeout, netmask, engine })
}

/// Reads a real server of a virtual server of this family.
///
/// # Errors
/// [`DecodeError`].
pub fn read_real(payload: &[u8], family: IpFamily) -> Result<SeenReal, DecodeError> {
    let missing = |attribute| DecodeError::Missing { object: "real server", attribute };
    let (mut family, mut address, mut port, mut method) = (family, None, None, 0);
    let (mut weight, mut active, mut inactive) = (0, 0, 0);
    for attr in find(payload, DESTINATION)?.ok_or(missing("attributes"))?.nested() {
        let attr = attr?;
        match attr.kind {
            REAL_FAMILY => family = family_of_number(attr.u16()?).ok_or(missing("known family"))?,
            REAL_ADDRESS => address = Some(attr.payload),
            REAL_PORT => port = Some(attr.u16_be()?),
            METHOD => method = attr.u32()?,
            WEIGHT => weight = attr.u32()?,
            ACTIVE => active = attr.u32()?,
            INACTIVE => inactive = attr.u32()?,
            _ => {}
        }
    }
    let ip = address.and_then(|bytes| ip_of(family, bytes)).ok_or(missing("address"))?;
    let port = port.ok_or(missing("port"))?;
    Ok(SeenReal { ip, port, weight, active, inactive, masquerades: method & METHOD_MASK == MASQUERADE })
}

/// The first attribute of a kind.
fn find(payload: &[u8], kind: u16) -> Result<Option<Attr<'_>>, DecodeError> {
    for attr in AttrIter::new(payload) {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(Some(attr));
        }
    }
    Ok(None)
}
