//! The lenient parser of IP addresses and ranges (core spec 1.6).
//!
//! Old API objects hold addresses that today's strict parsers refuse, such as `172.30.0.041`: there, leading zeros
//! are decimal. Results are canonical, so that two spellings of one address are one value; an IPv4-mapped IPv6
//! address is returned as the IPv4 address it stands for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Why a text is not an IP address or range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IpParseError {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Blanks inside or around.
    #[error("contains white space")]
    Whitespace,
    /// An address in brackets, as in `[fd00::1]:80`.
    #[error("has brackets; give the address alone")]
    Brackets,
    /// An IPv6 zone, as in `fe80::1%eth0`.
    #[error("has a zone")]
    Zone,
    /// Neither dots nor colons.
    #[error("is not an IP address")]
    NotAnAddress,
    /// Dotted, but not in four parts.
    #[error("is not an IP address: {0} parts between dots instead of 4")]
    OctetCount(usize),
    /// A part between dots that is no octet.
    #[error("is not an IP address: {0:?} is not a number from 0 to 255")]
    Octet(String),
    /// An IPv6 address of too few or too many groups.
    #[error("is not an IP address: {0} groups between colons instead of 8, or fewer with ::")]
    GroupCount(usize),
    /// A part between colons that is no group.
    #[error("is not an IP address: {0:?} is not a hexadecimal number of 1 to 4 digits")]
    Group(String),
    /// More than one `::`.
    #[error("is not an IP address: :: may stand only once")]
    Compression,
    /// A range without its length.
    #[error("has no prefix length, as in 10.0.0.0/8")]
    NoLength,
    /// A length that is no number, or too large for the family.
    #[error("has prefix length {text:?}, which is not a number from 0 to {max}")]
    Length {
        /// As given.
        text: String,
        /// Largest length of the family.
        max: u8,
    },
}

/// Parses an address: no brackets, port, zone or white space. The result is canonical.
///
/// # Errors
/// What is wrong with the text.
///
/// ```
/// let ip = proxier_core::ip::parse_ip("172.30.0.041").unwrap();
/// assert_eq!(ip.to_string(), "172.30.0.41");
/// ```
pub fn parse_ip(text: &str) -> Result<IpAddr, IpParseError> {
    parse_raw(text).map(canonical)
}

/// Parses a range, `address/length`. Bits after the length are masked off.
///
/// A range inside `::ffff:0:0/96` is returned as the IPv4 range it stands for.
///
/// # Errors
/// What is wrong with the text.
///
/// ```
/// let net = proxier_core::ip::parse_cidr("203.0.113.007/025").unwrap();
/// assert_eq!(net.to_string(), "203.0.113.0/25");
/// ```
pub fn parse_cidr(text: &str) -> Result<IpNet, IpParseError> {
    if text.is_empty() {
        return Err(IpParseError::Empty);
    }
    let Some((address, length)) = text.split_once('/') else {
        parse_raw(text)?;
        return Err(IpParseError::NoLength);
    };
    let address = parse_raw(address)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let bits = decimal(length, max).ok_or_else(|| IpParseError::Length { text: length.to_owned(), max })?;
    let net = match address {
        IpAddr::V4(ip) => Ipv4Net::new(ip, bits).map(IpNet::V4),
        IpAddr::V6(ip) => Ipv6Net::new(ip, bits).map(unmap),
    };
    net.map(|n| n.trunc()).map_err(|_| IpParseError::Length { text: length.to_owned(), max })
}

/// The IPv4 address of an IPv4-mapped IPv6 address; any other address as it is.
#[must_use]
pub fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn unmap(net: Ipv6Net) -> IpNet {
    let (ip, length) = (net.network(), net.prefix_len());
    match (ip.to_ipv4_mapped(), length.checked_sub(96)) {
        (Some(v4), Some(length)) => Ipv4Net::new(v4, length).map_or(IpNet::V6(net), IpNet::V4),
        _ => IpNet::V6(net),
    }
}

fn parse_raw(text: &str) -> Result<IpAddr, IpParseError> {
    if text.is_empty() {
        return Err(IpParseError::Empty);
    }
    if text.contains(char::is_whitespace) {
        return Err(IpParseError::Whitespace);
    }
    if text.contains(['[', ']']) {
        return Err(IpParseError::Brackets);
    }
    if text.contains('%') {
        return Err(IpParseError::Zone);
    }
    match text.find(['.', ':']) {
        None => Err(IpParseError::NotAnAddress),
        Some(at) if text.as_bytes().get(at) == Some(&b'.') => parse_v4(text).map(IpAddr::V4),
        Some(_) => parse_v6(text).map(IpAddr::V6),
    }
}

fn parse_v4(text: &str) -> Result<Ipv4Addr, IpParseError> {
    let parts: Vec<&str> = text.split('.').collect();
    let octet = |part: &str| decimal(part, 255).ok_or_else(|| IpParseError::Octet(part.to_owned()));
    let octets = parts.iter().map(|p| octet(p)).collect::<Result<Vec<u8>, _>>()?;
    let octets: [u8; 4] = octets.try_into().map_err(|_| IpParseError::OctetCount(parts.len()))?;
    Ok(Ipv4Addr::from(octets))
}

/// A decimal number with any number of leading zeros, at most `max`.
fn decimal(text: &str, max: u8) -> Option<u8> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    let number: u8 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    (number <= max).then_some(number)
}

fn parse_v6(text: &str) -> Result<Ipv6Addr, IpParseError> {
    let Some((head, tail)) = text.split_once("::") else {
        let groups = parse_groups(text, true)?;
        return build(&groups, &[], false);
    };
    if tail.contains("::") || tail.starts_with(':') {
        return Err(IpParseError::Compression);
    }
    let head = parse_groups(head, false)?;
    let tail = parse_groups(tail, true)?;
    build(&head, &tail, true)
}

/// Groups between colons; the last may be a dotted IPv4 address, which stands for two.
fn parse_groups(text: &str, at_end: bool) -> Result<Vec<u16>, IpParseError> {
    let mut out = Vec::with_capacity(8);
    if text.is_empty() {
        return Ok(out);
    }
    let mut parts = text.split(':').peekable();
    while let Some(part) = parts.next() {
        if at_end && parts.peek().is_none() && part.contains('.') {
            let [a, b, c, d] = parse_v4(part)?.octets();
            out.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
        } else {
            out.push(group(part).ok_or_else(|| IpParseError::Group(part.to_owned()))?);
        }
    }
    Ok(out)
}

fn group(text: &str) -> Option<u16> {
    let well_formed = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if well_formed { u16::from_str_radix(text, 16).ok() } else { None }
}

/// `::` stands for at least one group of zeros.
fn build(head: &[u16], tail: &[u16], compressed: bool) -> Result<Ipv6Addr, IpParseError> {
    let given = head.len() + tail.len();
    let fits = if compressed { given < 8 } else { given == 8 };
    if !fits {
        return Err(IpParseError::GroupCount(given));
    }
    let zeros = std::iter::repeat_n(0, 8 - given);
    let mut groups = [0; 8];
    let all = head.iter().copied().chain(zeros).chain(tail.iter().copied());
    groups.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    Ok(Ipv6Addr::from(groups))
}

#[cfg(test)]
mod tests;
