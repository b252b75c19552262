//! The text of `/proc/net/ip_vs`: all real servers in one reading.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proxier_core::ids::{IpFamily, Protocol};

use super::DecodeError;
use super::ipvs::{SeenReal, ServiceId};

/// Lines before the first virtual server: version, and two of headings.
const HEADINGS: usize = 3;

/// Every virtual server with its real servers, in the kernel's order.
pub type Listed = Vec<(ServiceId, Vec<SeenReal>)>;

/// Reads the listing: every virtual server with its real servers, in the kernel's order. What else it says of virtual servers, the generic netlink
/// family says better.
///
/// # Errors
/// [`DecodeError::Line`].
pub fn read(text: &str) -> Result<Listed, DecodeError> {
    let mut reading = Reading::default();
    reading.push(text.as_bytes())?;
    reading.end()
}

/// A listing that comes in pieces, as the kernel prints it.
#[derive(Debug, Default)]
pub struct Reading {
    services: Listed,
    /// Lines so far.
    lines: usize,
    /// A line whose end did not come yet.
    rest: Vec<u8>,
}

impl Reading {
    /// Reads the next piece. It may end anywhere.
    ///
    /// # Errors
    /// [`DecodeError::Line`].
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), DecodeError> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, after) = piece.split_at(end);
            if self.rest.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.line(&whole)?;
            }
            piece = after.get(1..).unwrap_or_default();
        }
        self.rest.extend_from_slice(piece);
        Ok(())
    }

    /// All that was read; a last line may lack its end.
    ///
    /// # Errors
    /// [`DecodeError::Line`].
    pub fn end(mut self) -> Result<Listed, DecodeError> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.line(&rest)?;
        }
        Ok(self.services)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), DecodeError> {
        self.lines += 1;
        if self.lines <= HEADINGS {
            return Ok(());
        }
        let number = self.lines;
        let bad = || DecodeError::Line { line: number, text: String::from_utf8_lossy(line).into_owned() };
        let mut words = std::str::from_utf8(line).map_err(|_| bad())?.split_ascii_whitespace();
        match words.next() {
            Some("->") => {
                let (_, reals) = self.services.last_mut().ok_or_else(bad)?;
                reals.push(real(words).ok_or_else(bad)?);
            }
            Some(kind) => self.services.push((service(kind, words).ok_or_else(bad)?, Vec::new())),
            None => {}
        }
        Ok(())
    }
}

fn service<'a>(kind: &str, mut words: impl Iterator<Item = &'a str>) -> Option<ServiceId> {
    let place = words.next()?;
    if kind == "FWM" {
        // The family of a mark is not told; nobody asks for it.
        return Some(ServiceId::of_mark(IpFamily::Ipv4, u32::from_str_radix(place, 16).ok()?));
    }
    let protocol = Protocol::ALL.into_iter().find(|protocol| kind.eq_ignore_ascii_case(protocol.as_str()));
    let (ip, port) = address(place)?;
    Some(ServiceId::new(protocol, ip, port))
}

fn real<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<SeenReal> {
    let (ip, port) = address(words.next()?)?;
    let masquerades = words.next()? == "Masq";
    let mut number = || words.next()?.parse().ok();
    Some(SeenReal { ip, port, masquerades, weight: number()?, active: number()?, inactive: number()? })
}

/// `0A60000A:0035`, or `[2001:0db8:0000:0000:0000:0000:0000:0010]:0B59`.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.rsplit_once(':')?;
    let ip = match ip.strip_prefix('[') {
        Some(ip) => IpAddr::from(ip.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?),
        None => IpAddr::from(Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?)),
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}
