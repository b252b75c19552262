//! The addresses of this host.

mod watch;

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use thiserror::Error;

pub use self::watch::{AddressWatch, Notice, Waker};

/// The host's addresses could not be listed.
#[derive(Debug, Error)]
#[error("cannot list the addresses of this host: {source}")]
pub struct AddressesError {
    /// The system's error.
    #[from]
    source: io::Error,
}

/// Every address of every interface in the calling thread's network namespace, with the interface's name,
/// sorted by both and without duplicates.
///
/// Loopback and link-local addresses are among them, and so are those of interfaces that are down; what to do
/// with them is the caller's rule.
///
/// # Errors
/// [`AddressesError`].
pub fn host_addresses() -> Result<Vec<(String, IpAddr)>, AddressesError> {
    let mut addresses: Vec<_> = getifaddrs()
        .map_err(io::Error::from)?
        .filter_map(|interface| Some((interface.interface_name, ip(&interface.address?)?)))
        .collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns;
    use crate::runner::{CommandSpec, Runner, SystemRunner};

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn both_families_of_all_interfaces_are_listed() {
        netns::enter_new().unwrap();
        for args in [
            "link add br0 type bridge",
            "addr add 192.0.2.7/24 dev br0",
            "addr add 192.0.2.8/24 dev br0",
            "addr add 2001:db8::7/64 dev br0 nodad",
        ] {
            let output = SystemRunner::new().run(&CommandSpec::new("ip", args.split(' '))).unwrap();
            assert!(output.success(), "{args}: {}", output.stderr_text());
        }
        let listed = host_addresses().unwrap();
        let expected = [
            ("br0", "192.0.2.7"),
            ("br0", "192.0.2.8"),
            ("br0", "2001:db8::7"),
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
        ];
        let expected: Vec<_> = expected.map(|(name, ip)| (name.to_owned(), ip.parse().unwrap())).into();
        assert_eq!(listed, expected);
    }
}
