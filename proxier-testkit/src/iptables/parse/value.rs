//! Values of options.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use proxier_core::ids::IpFamily;

use crate::iptables::ast::{AddressTypes, CtStates, Interface, Marked, Ports};
use crate::iptables::error::Cause;
use crate::iptables::print::PROTOCOLS;

/// A value was not understood.
pub(super) fn bad(option: &str, value: &str) -> Cause {
    Cause::BadValue { option: option.into(), value: value.into() }
}

/// An address with or without a prefix length or mask; bits of the host are cleared.
pub(super) fn net(family: IpFamily, option: &str, text: &str) -> Result<IpNet, Cause> {
    if text.contains(',') {
        return Err(Cause::Unsupported(format!("several addresses in {option} {text}")));
    }
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().map_err(|_| bad(option, text))?;
    let full: u8 = if family == IpFamily::Ipv4 { 32 } else { 128 };
    if address.is_ipv4() != (full == 32) {
        return Err(bad(option, text));
    }
    let length = match length {
        None => full,
        Some(length) => match (length.parse::<u8>(), length.parse::<Ipv4Addr>()) {
            (Ok(length), _) => length,
            (_, Ok(mask)) if full == 32 => ipnet::ipv4_mask_to_prefix(mask).map_err(|_| bad(option, text))?,
            _ => return Err(bad(option, text)),
        },
    };
    IpNet::new(address, length).map(|net| net.trunc()).map_err(|_| bad(option, text))
}

/// A number as C writes it: decimal, `0x` hexadecimal or `0` octal.
pub(super) fn number(option: &str, text: &str) -> Result<u32, Cause> {
    let parsed = match (text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (_, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| bad(option, text))
}

/// A number that is not 0.
pub(super) fn positive(option: &str, text: &str) -> Result<u32, Cause> {
    number(option, text).and_then(|n| if n == 0 { Err(bad(option, text)) } else { Ok(n) })
}

/// `value[/mask]`; without a mask all bits count.
pub(super) fn marked(option: &str, text: &str) -> Result<Marked, Cause> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)));
    let number = |n| number(option, n).map_err(|_| bad(option, text));
    Ok(Marked { value: number(value)?, mask: mask.map_or(Ok(u32::MAX), number)? })
}

/// `port` or `first:last`, of which either may be left out. Names of services are not known here.
pub(super) fn ports(option: &str, text: &str) -> Result<Ports, Cause> {
    let port = |text: &str, otherwise: u16| match text {
        "" => Ok(otherwise),
        text => text.parse().map_err(|_| bad(option, text)),
    };
    let ports = match text.split_once(':') {
        Some((first, last)) => Ports { first: port(first, 0)?, last: port(last, u16::MAX)? },
        None => {
            let port = text.parse().map_err(|_| bad(option, text))?;
            Ports { first: port, last: port }
        }
    };
    if ports.first <= ports.last { Ok(ports) } else { Err(bad(option, text)) }
}

/// A probability, in multiples of 2^-31, as the tool rounds it.
pub(super) fn probability(option: &str, text: &str) -> Result<u32, Cause> {
    let value: f64 = text.parse().map_err(|_| bad(option, text))?;
    if !(0.0..=1.0).contains(&value) {
        return Err(bad(option, text));
    }
    // In range, so that the conversion is exact.
    Ok((value * f64::from(1_u32 << 31)).round() as u32)
}

/// Number of a protocol; 0 is any.
pub(super) fn protocol(option: &str, text: &str) -> Result<u8, Cause> {
    let name = text.to_ascii_lowercase();
    match name.as_str() {
        "all" => return Ok(0),
        "icmpv6" => return Ok(58),
        _ => {}
    }
    let known = PROTOCOLS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
    known.map_or_else(|| text.parse().map_err(|_| bad(option, text)), Ok)
}

/// Name of an interface; `None` for one that is any.
pub(super) fn interface(option: &str, text: &str) -> Result<Option<Interface>, Cause> {
    if text.is_empty() || text.len() > 15 {
        return Err(bad(option, text));
    }
    let (name, prefix) = text.strip_suffix('+').map_or((text, false), |name| (name, true));
    Ok((!name.is_empty()).then(|| Interface { name: name.into(), prefix }))
}

fn bits(option: &str, text: &str, names: &[&str]) -> Result<u32, Cause> {
    text.split(',').try_fold(0, |bits, name| {
        let found = names.iter().position(|n| n.eq_ignore_ascii_case(name));
        found.map(|bit| bits | 1 << bit).ok_or_else(|| bad(option, name))
    })
}

/// Connection states, joined by commas.
pub(super) fn states(option: &str, text: &str) -> Result<CtStates, Cause> {
    bits(option, text, &CtStates::NAMES).map(|bits| CtStates(bits as u8))
}

/// Address types, joined by commas.
pub(super) fn types(option: &str, text: &str) -> Result<AddressTypes, Cause> {
    const OTHERS: [&str; 8] =
        ["UNSPEC", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW"];
    if let Some(other) = text.split(',').find(|t| OTHERS.iter().any(|o| o.eq_ignore_ascii_case(t))) {
        return Err(Cause::Unsupported(format!("{option} {other}")));
    }
    bits(option, text, &AddressTypes::NAMES).map(|bits| AddressTypes(bits as u16))
}

/// `address`, `address:port` or `[address]:port`.
pub(super) fn destination(
    family: IpFamily,
    option: &str,
    text: &str,
) -> Result<(IpAddr, Option<u16>), Cause> {
    let bare = match family {
        IpFamily::Ipv4 => text,
        IpFamily::Ipv6 => text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text),
    };
    let (address, port) = match (bare.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
        (Ok(address), _) => (address, None),
        (_, Ok(socket)) => (socket.ip(), Some(socket.port())),
        _ => return Err(bad(option, text)),
    };
    if address.is_ipv4() == (family == IpFamily::Ipv4) { Ok((address, port)) } else { Err(bad(option, text)) }
}

/// How a rejected packet is answered; `None` is the default.
pub(super) fn reject(family: IpFamily, option: &str, text: Option<&str>) -> Result<&'static str, Cause> {
    const IPV4: [(&str, &str); 8] = [
        ("icmp-port-unreachable", "port-unreach"),
        ("icmp-net-unreachable", "net-unreach"),
        ("icmp-host-unreachable", "host-unreach"),
        ("icmp-proto-unreachable", "proto-unreach"),
        ("icmp-net-prohibited", "net-prohib"),
        ("icmp-host-prohibited", "host-prohib"),
        ("icmp-admin-prohibited", "admin-prohib"),
        ("tcp-reset", "tcp-rst"),
    ];
    const IPV6: [(&str, &str); 5] = [
        ("icmp6-port-unreachable", "port-unreach"),
        ("icmp6-no-route", "no-route"),
        ("icmp6-adm-prohibited", "adm-prohibited"),
        ("icmp6-addr-unreachable", "addr-unreach"),
        ("tcp-reset", "tcp-reset"),
    ];
    let known: &[(&'static str, &str)] = if family == IpFamily::Ipv4 { &IPV4 } else { &IPV6 };
    let found = match text {
        None => known.first(),
        Some(text) => known.iter().find(|(name, alias)| *name == text || *alias == text),
    };
    found.map(|(name, _)| *name).ok_or_else(|| bad(option, text.unwrap_or_default()))
}
