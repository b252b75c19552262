//! Address ranges of anonymous sets: networks to ranges and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proxier_core::ids::IpFamily;

/// Addresses from `first` to `last`, both included, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) first: u128,
    pub(super) last: u128,
}

/// The highest address of a family.
pub(super) fn highest(family: IpFamily) -> u128 {
    match family {
        IpFamily::Ipv4 => u128::from(u32::MAX),
        IpFamily::Ipv6 => u128::MAX,
    }
}

/// An address as a number.
pub(super) fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// A number as an address. The caller keeps it within the family.
pub(super) fn address(family: IpFamily, number: u128) -> IpAddr {
    match family {
        IpFamily::Ipv4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX))),
        IpFamily::Ipv6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

/// The ranges of networks: sorted, without overlap, adjacent ones made one, as nft does with anonymous sets.
pub(super) fn merge(cidrs: &[IpNet]) -> Vec<Range> {
    let mut ranges: Vec<Range> = cidrs
        .iter()
        .map(|cidr| Range { first: number(cidr.network()), last: number(cidr.broadcast()) })
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, range| {
        let joins = next.first <= range.last.saturating_add(1);
        if joins {
            range.last = range.last.max(next.last);
        }
        joins
    });
    ranges
}

/// The fewest networks that cover ranges exactly.
pub(super) fn networks(family: IpFamily, ranges: &[Range]) -> Vec<IpNet> {
    let mut out = Vec::with_capacity(ranges.len());
    for range in ranges {
        let (first, last) = (address(family, range.first), address(family, range.last));
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                out.extend(ipnet::Ipv4Subnets::new(first, last, 0).map(IpNet::V4));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                out.extend(ipnet::Ipv6Subnets::new(first, last, 0).map(IpNet::V6));
            }
            _ => {}
        }
    }
    out
}

/// The network of an address and a length; `None` if the length is too long.
pub(super) fn network(addr: IpAddr, prefix_len: u8) -> Option<IpNet> {
    match addr {
        IpAddr::V4(addr) => Ipv4Net::new(addr, prefix_len).ok().map(|net| IpNet::V4(net.trunc())),
        IpAddr::V6(addr) => Ipv6Net::new(addr, prefix_len).ok().map(|net| IpNet::V6(net.trunc())),
    }
}

/// The network of one address.
pub(super) fn host(addr: IpAddr) -> IpNet {
    IpNet::from(addr)
}

/// True for a network of one address.
pub(super) fn is_host(cidr: &IpNet) -> bool {
    cidr.prefix_len() == cidr.max_prefix_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn overlapping_and_adjacent_networks_become_one_range() {
        let ranges = merge(&nets(&["10.0.2.0/24", "10.0.1.0/24", "10.0.1.7/32", "192.0.2.0/24"]));
        assert_eq!(ranges.len(), 2);
        let back = networks(IpFamily::Ipv4, &ranges);
        assert_eq!(back, nets(&["10.0.1.0/24", "10.0.2.0/24", "192.0.2.0/24"]));
    }

    #[test]
    fn both_ends_of_the_address_space_survive() {
        for (family, all, end) in [
            (IpFamily::Ipv4, "0.0.0.0/0", "255.255.255.255/32"),
            (IpFamily::Ipv6, "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"),
        ] {
            for text in [all, end] {
                let ranges = merge(&nets(&[text]));
                assert_eq!(ranges[0].last, highest(family));
                assert_eq!(networks(family, &ranges), nets(&[text]));
            }
        }
    }

    #[test]
    fn lengths_that_no_address_has_make_no_network() {
        assert_eq!(network("10.1.2.3".parse().unwrap(), 8), Some("10.0.0.0/8".parse().unwrap()));
        assert_eq!(network("10.1.2.3".parse().unwrap(), 33), None);
        assert_eq!(network("fd00::1".parse().unwrap(), 129), None);
    }
}
