//! The netlink form: operations to nf_tables messages, and dumps back to values.
//!
//! Written is exactly what nft 1.0.6 writes for the same [`text`](crate::text), down to the user data that only nft
//! reads; so a listing does not show who wrote the table. Numbers and layouts are those of
//! `linux/netfilter/nf_tables.h`; user data is a list of (type, length, value) with one byte each for the first two.
//!
//! ```
//! use backend_nftables::objects::{Op, Table};
//! use backend_nftables::wire::encode;
//! use proxier_core::ids::IpFamily;
//!
//! let table = Table { family: IpFamily::Ipv4, name: "kube-proxy".into() };
//! let encoded = encode(&table, &[Op::AddTable, Op::FlushChain("services".into())]).unwrap();
//! assert_eq!(encoded.owner, [0, 1]);
//! ```

mod check;
mod decode;
mod elements;
mod encode;
mod expressions;
mod numbers;
mod observe;
mod parse;
mod raise;
mod ranges;
mod sets;
#[cfg(test)]
mod tests;
mod userdata;

use std::net::IpAddr;

use proxier_core::ids::IpFamily;
use proxier_sys::netlink::NetlinkError;

pub use encode::{Encoded, encode};
pub use observe::observe;

/// Why a transaction could not be written, or a table not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The exchange with the kernel failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An address of the other family.
    #[error("operation {op}: {addr} is no {family} address")]
    WrongFamily {
        /// Index of the operation.
        op: usize,
        /// The address.
        addr: IpAddr,
        /// The table's family.
        family: IpFamily,
    },
    /// A statement that cannot be expressed.
    #[error("operation {op}: {what}")]
    Inexpressible {
        /// Index of the operation.
        op: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The ruleset changed under the reader every time.
    #[error("the ruleset changed while it was read, {attempts} times in a row")]
    Changing {
        /// How often it was tried.
        attempts: u32,
    },
}

/// `NFPROTO_*` of a family.
fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::Ipv4 => numbers::family::IPV4,
        IpFamily::Ipv6 => numbers::family::IPV6,
    }
}

/// Bytes of an address.
fn addr_len(family: IpFamily) -> usize {
    match family {
        IpFamily::Ipv4 => 4,
        IpFamily::Ipv6 => 16,
    }
}
