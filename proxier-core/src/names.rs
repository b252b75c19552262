//! Deterministic names of kernel objects: a short hash first, then readable text (nftables spec 3).
//!
//! The hash covers the whole base name, so names that are cut stay distinct.

use std::fmt::Write as _;

use data_encoding::BASE32;
use sha2::{Digest as _, Sha256};

use crate::ids::{EndpointAddr, Protocol, ServicePortName};

/// Longest name that [`object_name`] gives, in bytes.
///
/// A backend puts a prefix of at most 15 bytes before it (nftables spec 2.4: `service-`, `external-`, `firewall-`,
/// `endpoint-`, `affinity-`, each at most 9), so that the whole stays within the kernel's 255.
pub const MAX_NAME: usize = 240;

const HASH_LEN: usize = 8;
const CHAIN_HASH_LEN: usize = 16;
const ELLIPSIS: &str = "...";

/// First 8 characters of the base32 form (RFC 4648, upper case) of the text's SHA-256: 40 of its bits.
#[must_use]
pub fn short_hash(text: &str) -> String {
    let mut out = BASE32.encode(&Sha256::digest(text.as_bytes()));
    out.truncate(HASH_LEN);
    out
}

/// First 16 characters of the same form: 80 bits, in the chain names of kube-proxy's iptables mode (iptables spec 4).
#[must_use]
pub fn chain_hash(text: &str) -> String {
    let mut out = BASE32.encode(&Sha256::digest(text.as_bytes()));
    out.truncate(CHAIN_HASH_LEN);
    out
}

/// `ns/name/protocol/port`; an unnamed port leaves a trailing `/`.
#[must_use]
pub fn service_port_base(namespace: &str, name: &str, protocol: Protocol, port: &str) -> String {
    format!("{namespace}/{name}/{protocol}/{port}")
}

/// [`service_port_base`] of an identity.
#[must_use]
pub fn base_of(port: &ServicePortName) -> String {
    service_port_base(&port.service.namespace, &port.service.name, port.protocol, &port.port)
}

/// `<base>__<ip>/<port>`, colons of an IPv6 address replaced by dots.
#[must_use]
pub fn endpoint_base(service_port_base: &str, endpoint: EndpointAddr) -> String {
    let ip = endpoint.ip.to_string().replace(':', ".");
    let mut out = String::with_capacity(service_port_base.len() + ip.len() + 8);
    // Writing to a String cannot fail.
    let _ = write!(out, "{service_port_base}__{ip}/{}", endpoint.port);
    out
}

/// `<hash>-<base>`, at most [`MAX_NAME`] bytes: longer ones keep their first 237 bytes, then `...`.
///
/// Lengths: the hash and the dash take 9 bytes. A service port's base has at most 63 (namespace) + 63 (name) +
/// 4 (protocol) + 63 (port name; the API allows 15 to 63) + 3 (slashes) = 196, so its name has at most 205 and is never
/// cut. An endpoint adds 2 (underscores) + 39 (longest IPv6 address) + 1 + 5 (port) = 47, so its name has at most
/// 252 and may be cut. Cutting keeps 237 bytes, or up to 3 fewer where that would split a character, and adds 3: at most 240.
#[must_use]
pub fn object_name(base: &str) -> String {
    let mut out = short_hash(base);
    out.push('-');
    out.push_str(base);
    if out.len() > MAX_NAME {
        let keep = truncate_comment(&out, MAX_NAME - ELLIPSIS.len()).len();
        out.truncate(keep);
        out.push_str(ELLIPSIS);
    }
    out
}

/// The longest beginning of a text that has at most `max_bytes` bytes and splits no character.
///
/// nft refuses comments of more than 128 bytes, and one refused comment fails the whole transaction (nftables
/// spec 12, number 37).
#[must_use]
pub fn truncate_comment(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::{Port, ServiceName};

    fn endpoint(ip: &str, port: u16) -> EndpointAddr {
        EndpointAddr { ip: ip.parse::<IpAddr>().unwrap(), port: Port::new(port).unwrap() }
    }

    /// The table of nftables spec 3, then names that real data planes showed.
    #[test]
    fn known_names() {
        use Protocol::{Sctp, Tcp, Udp};
        let ports = [
            ("ns1", "svc1", Tcp, "p80", "ULMVA6XW-ns1/svc1/tcp/p80"),
            ("kube-system", "kube-dns", Udp, "dns", "FY5PMXPG-kube-system/kube-dns/udp/dns"),
            ("web", "frontend", Tcp, "http", "PLVUX2VM-web/frontend/tcp/http"),
            ("web", "sticky", Tcp, "", "OY5XNNJM-web/sticky/tcp/"),
            ("telecom", "sig", Sctp, "m3ua", "3DQQBG3O-telecom/sig/sctp/m3ua"),
            ("testing", "service", Tcp, "https", "LZBRENCP-testing/service/tcp/https"),
            ("default", "kubernetes", Tcp, "https", "2QRHZV4L-default/kubernetes/tcp/https"),
            (
                "service-dataplane",
                "echo-server",
                Tcp,
                "http",
                "AKD4XF6G-service-dataplane/echo-server/tcp/http",
            ),
            ("service-path", "source-ip", Tcp, "http", "ACRQPU43-service-path/source-ip/tcp/http"),
            ("kube-system", "dns", Tcp, "dns-tcp", "PXHAI4EJ-kube-system/dns/tcp/dns-tcp"),
            ("kube-system", "dns", Udp, "dns", "2YY5BS5C-kube-system/dns/udp/dns"),
            ("web", "front", Tcp, "http", "ZCF77UOZ-web/front/tcp/http"),
            ("web", "front", Tcp, "https", "G53UDZTX-web/front/tcp/https"),
            ("web", "away", Tcp, "", "Z4LSQHYW-web/away/tcp/"),
            ("web", "zoned", Tcp, "http", "2ZLYUENF-web/zoned/tcp/http"),
            ("web", "draining", Tcp, "http", "I2ROI4FR-web/draining/tcp/http"),
            ("web", "six", Tcp, "http", "POHIXVYZ-web/six/tcp/http"),
            ("node", "here", Tcp, "m", "K6S2PIG7-node/here/tcp/m"),
        ];
        for (namespace, name, protocol, port, want) in ports {
            assert_eq!(object_name(&service_port_base(namespace, name, protocol, port)), want);
            let id =
                ServicePortName { service: ServiceName::new(namespace, name), port: port.into(), protocol };
            assert_eq!(object_name(&base_of(&id)), want);
        }
    }

    /// Cases: nftables-12.35
    #[test]
    fn known_endpoint_names() {
        let endpoints = [
            ("ns1/svc1/tcp/p80", "10.180.0.1", 80, "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"),
            ("ns1/svc1/tcp/p80", "fd00:10:180::1", 80, "ZVRFLKHO-ns1/svc1/tcp/p80__fd00.10.180..1/80"),
            ("web/sticky/tcp/", "10.244.0.21", 8443, "P3OU6RQT-web/sticky/tcp/__10.244.0.21/8443"),
            ("web/sticky/tcp/", "10.244.1.22", 8443, "UIB65WM3-web/sticky/tcp/__10.244.1.22/8443"),
            ("web/sticky/tcp/", "10.244.2.23", 8443, "DARFI5NM-web/sticky/tcp/__10.244.2.23/8443"),
            ("web/front/tcp/http", "10.244.1.21", 8080, "IBCHFH4S-web/front/tcp/http__10.244.1.21/8080"),
            ("web/front/tcp/https", "10.244.2.21", 8443, "VBFH7IT5-web/front/tcp/https__10.244.2.21/8443"),
            (
                "web/draining/tcp/http",
                "10.244.2.71",
                8080,
                "TQDTL4GQ-web/draining/tcp/http__10.244.2.71/8080",
            ),
        ];
        for (base, ip, port, want) in endpoints {
            assert_eq!(object_name(&endpoint_base(base, endpoint(ip, port))), want);
        }
        let odd = endpoint_base("a/b/tcp/c", endpoint("fd80:abcd:12::a1b2", 1));
        assert_eq!(odd, "a/b/tcp/c__fd80.abcd.12..a1b2/1");
    }

    #[test]
    fn beginnings_that_the_lab_saw() {
        let base = service_port_base("service-dataplane", "echo-server", Protocol::Tcp, "http");
        assert_eq!(short_hash(&endpoint_base(&base, endpoint("10.244.1.2", 8080))), "Q7LEI3H3");
        assert_eq!(short_hash(&endpoint_base(&base, endpoint("10.244.2.2", 8080))), "JHFC3PET");
    }

    #[test]
    fn longest_service_port_name_is_not_cut() {
        let long = "x".repeat(63);
        let name = object_name(&service_port_base(&long, &long, Protocol::Sctp, &long));
        assert_eq!(name.len(), 205);
        assert!(!name.ends_with(ELLIPSIS));
    }

    /// Cases: nftables-12.36
    #[test]
    fn long_endpoint_names_are_cut_and_stay_distinct() {
        let long = "x".repeat(63);
        let base = service_port_base(&long, &long, Protocol::Sctp, &long);
        let ip = "2001:1db8:1111:2222:3333:4444:5555:6666";
        let a = object_name(&endpoint_base(&base, endpoint(ip, 50001)));
        let b = object_name(&endpoint_base(&base, endpoint(ip, 50002)));
        assert_eq!((a.len(), b.len()), (240, 240));
        assert!(a.ends_with(ELLIPSIS) && b.ends_with(ELLIPSIS));
        assert_eq!(a[HASH_LEN..], b[HASH_LEN..]);
        assert_ne!(a, b);
    }

    /// Cases: nftables-12.36
    #[test]
    fn a_name_of_exactly_240_bytes_is_kept() {
        assert_eq!(object_name(&"y".repeat(231)).len(), 240);
        assert!(!object_name(&"y".repeat(231)).ends_with(ELLIPSIS));
        assert!(object_name(&"y".repeat(232)).ends_with("y..."));
        assert_eq!(object_name(&"y".repeat(232)).len(), 240);
    }

    #[test]
    fn comments_are_cut_between_characters() {
        assert_eq!(truncate_comment("ns/svc:port", 128), "ns/svc:port");
        assert_eq!(truncate_comment("ns/svc:port", 6), "ns/svc");
        assert_eq!(truncate_comment("aé", 2), "a");
        assert_eq!(truncate_comment("aé", 3), "aé");
        assert_eq!(truncate_comment("é", 0), "");
    }

    proptest! {
        #[test]
        fn names_are_short_and_comments_are_prefixes(base in ".{0,300}", max in 0usize..200) {
            let name = object_name(&base);
            prop_assert!(name.len() <= MAX_NAME);
            prop_assert!(name.starts_with(&short_hash(&base)));
            let cut = truncate_comment(&base, max);
            prop_assert!(cut.len() <= max && base.starts_with(cut));
            prop_assert!(cut.len() == base.len() || cut.len() + 4 > max);
        }
    }
}
