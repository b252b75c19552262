//! The kernel's messages: IPVS over generic netlink, ipset over nfnetlink, and the text of `/proc/net/ip_vs`. No I/O here.
//!
//! Layouts are those of the kernel's user interface headers `linux/ip_vs.h` and `linux/netfilter/ipset/ip_set.h`. What is read is taken as it
//! comes: attributes of newer kernels are passed over, and objects of a form that this backend never writes are told as such.

pub mod ipset;
pub mod ipvs;
pub mod proc;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::AttrError;

/// An answer of the kernel that lacks what every such answer has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Bytes that are no attributes, or an attribute of another size.
    #[error(transparent)]
    Attribute(#[from] AttrError),
    /// An attribute is not there.
    #[error("{object} without {attribute}")]
    Missing {
        /// Of what.
        object: &'static str,
        /// Which.
        attribute: &'static str,
    },
    /// A line of a listing that is not one.
    #[error("line {line} of the listing of virtual servers: {text:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
}

/// `AF_INET`, `AF_INET6`: also the numbers of the families in netfilter.
pub(crate) const fn family_number(family: IpFamily) -> u8 {
    match family {
        IpFamily::Ipv4 => 2,
        IpFamily::Ipv6 => 10,
    }
}

fn family_of_number(number: u16) -> Option<IpFamily> {
    IpFamily::ALL.into_iter().find(|family| u16::from(family_number(*family)) == number)
}

/// The address in the first bytes of a field that has room for both families.
fn ip_of(family: IpFamily, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        IpFamily::Ipv4 => bytes.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        IpFamily::Ipv6 => bytes.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
    }
}
