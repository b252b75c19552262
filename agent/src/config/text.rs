//! Texts that mean something: ranges, addresses, Services.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use proxier_core::ids::ServiceName;
use proxier_core::ip::{parse_cidr, parse_ip};

/// The word for the node's own addresses in `nodePortAddresses`.
pub(super) const PRIMARY: &str = "primary";

/// A range, masked.
pub(super) fn cidr(text: &str) -> Result<IpNet, String> {
    parse_cidr(text).map_err(|e| format!("{text:?} {e}"))
}

/// A Service by namespace and name.
pub(super) fn service(text: &str) -> Result<ServiceName, String> {
    let name = |part: &str| !part.is_empty() && !part.contains(|c: char| c == '/' || c.is_whitespace());
    match text.split_once('/') {
        Some((namespace, service)) if name(namespace) && name(service) => {
            Ok(ServiceName::new(namespace, service))
        }
        _ => Err(format!("{text:?} is no namespace/name")),
    }
}

/// An address.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    parse_ip(text).map_err(|e| format!("{text:?} {e}"))
}

/// Ranges separated by commas; blank entries are skipped (core spec 9.1).
pub(super) fn comma_cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    text.split(',').filter(|part| !part.trim().is_empty()).map(cidr).collect()
}

/// `IP:port` with a port from 1 to 65535, IPv6 in brackets; an address alone, without brackets, gets `port` (core spec 7.2).
pub(super) fn listen(text: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(ip) = parse_ip(text) {
        return Ok(SocketAddr::new(ip, port));
    }
    let wrong = || format!("{text:?} is no IP:port such as 127.0.0.1:{port} or [::1]:{port}");
    let (host, number) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let ip = parse_ip(bracketed.unwrap_or(host)).map_err(|_| wrong())?;
    if bracketed.is_none() && host.contains(':') {
        return Err(wrong());
    }
    match number.parse::<u16>() {
        Ok(number) if number > 0 => Ok(SocketAddr::new(ip, number)),
        _ => Err(format!("{text:?} has port {number:?}, which is not a number from 1 to 65535")),
    }
}

/// Why no interface, or none that rules can tell from others, is called so. The kernel takes at most 15 bytes, without white space, `/` and `:`
/// (`dev_valid_name` of Linux); a tool takes `+` or `*` at the end for anything, and quotes have a meaning of their own.
pub(super) fn no_interface(name: &str) -> Option<&'static str> {
    let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '/' | ':' | '"' | '\'' | '\\');
    match name {
        _ if name.len() > 15 => Some("longer than 15 bytes"),
        _ if name.contains(odd) => {
            Some("it has white space, a quote or one of / : \\ in it, or is not ASCII")
        }
        _ if name.ends_with(['+', '*']) => Some("it ends like a pattern"),
        "." | ".." => Some("the kernel does not take it"),
        _ => None,
    }
}
