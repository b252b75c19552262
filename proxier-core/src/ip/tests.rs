//! The lenient parser: what it accepts, and what it says of the rest.

use proptest::prelude::*;

use super::*;
use crate::ids::IpFamily;

fn ip(text: &str) -> String {
    parse_ip(text).unwrap_or_else(|e| panic!("{text:?} {e}")).to_string()
}

fn cidr(text: &str) -> String {
    parse_cidr(text).unwrap_or_else(|e| panic!("{text:?} {e}")).to_string()
}

/// Cases: core-11.12
#[test]
fn edge_12_leading_zeros_are_decimal() {
    assert_eq!(ip("172.30.0.041"), "172.30.0.41");
    assert_eq!(ip("1.2.3.004"), "1.2.3.4");
    assert_eq!(ip("192.168.099.022"), "192.168.99.22");
    assert_eq!(ip("010.000.00.0000255"), "10.0.0.255");
    assert_eq!(cidr("203.0.113.000/025"), "203.0.113.0/25");
    assert_eq!(cidr("010.0.0.0/008"), "10.0.0.0/8");
    assert_eq!(cidr("fd00::/0064"), "fd00::/64");
}

#[test]
fn ipv6_forms() {
    for (text, want) in [
        ("::", "::"),
        ("::1", "::1"),
        ("1::", "1::"),
        ("FD00:10:96::A", "fd00:10:96::a"),
        ("0001:0:0:0:0:0:0:0002", "1::2"),
        ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
        ("::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"),
        ("64:ff9b::192.0.2.033", "64:ff9b::c000:221"),
        ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
        ("::1.2.3.4", "::102:304"),
    ] {
        let want: IpAddr = want.parse().unwrap();
        assert_eq!(parse_ip(text), Ok(want), "{text}");
    }
}

#[test]
fn mapped_addresses_are_ipv4() {
    for text in ["::ffff:1.2.3.4", "::ffff:1.2.3.004", "::FFFF:102:304", "0:0:0:0:0:ffff:1.2.3.4"] {
        let got = parse_ip(text).unwrap();
        assert_eq!(got, IpAddr::from([1, 2, 3, 4]), "{text}");
        assert_eq!(IpFamily::of(got), IpFamily::Ipv4);
    }
    assert!(parse_ip("::fffe:1.2.3.4").unwrap().is_ipv6());
    assert!(parse_ip("::1.2.3.4").unwrap().is_ipv6());
    assert_eq!(cidr("::ffff:10.1.2.3/104"), "10.0.0.0/8");
    assert_eq!(cidr("::ffff:10.1.2.3/128"), "10.1.2.3/32");
    assert_eq!(cidr("::ffff:10.1.2.3/96"), "0.0.0.0/0");
    assert_eq!(cidr("::ffff:10.1.2.3/80"), "::/80");
}

#[test]
fn ranges_are_masked() {
    assert_eq!(cidr("203.0.113.7/25"), "203.0.113.0/25");
    assert_eq!(cidr("203.0.113.200/25"), "203.0.113.128/25");
    assert_eq!(cidr("10.9.8.7/0"), "0.0.0.0/0");
    assert_eq!(cidr("10.9.8.7/32"), "10.9.8.7/32");
    assert_eq!(cidr("2001:db8:1:2:3::4/48"), "2001:db8:1::/48");
    assert_eq!(cidr("::1/0"), "::/0");
}

#[test]
fn refused_addresses_say_why() {
    use IpParseError as E;
    let octet = |t: &str| E::Octet(t.into());
    let group = |t: &str| E::Group(t.into());
    for (text, want) in [
        ("", E::Empty),
        (" 1.2.3.4", E::Whitespace),
        ("1.2.3.4 ", E::Whitespace),
        ("1.2. 3.4", E::Whitespace),
        ("::1\n", E::Whitespace),
        ("[::1]", E::Brackets),
        ("[::1]:80", E::Brackets),
        ("fe80::1%eth0", E::Zone),
        ("junk", E::NotAnAddress),
        ("12345", E::NotAnAddress),
        ("1.2.3", E::OctetCount(3)),
        ("1.2.3.4.5", E::OctetCount(5)),
        ("1.2.3.256", octet("256")),
        ("1.2.3.99999999999999999999", octet("99999999999999999999")),
        ("1.2.3.", octet("")),
        (".1.2.3", octet("")),
        ("1.2.3.+4", octet("+4")),
        ("1.2.3.-4", octet("-4")),
        ("1.2.3.0x4", octet("0x4")),
        ("1.2.3.٤", octet("٤")),
        ("1.2.3.4:80", octet("4:80")),
        ("1.2.3.4/24", octet("4/24")),
        ("1:2:3", E::GroupCount(3)),
        ("1:2:3:4:5:6:7:8:9", E::GroupCount(9)),
        ("1:2:3:4::5:6:7:8", E::GroupCount(8)),
        ("1:2:3:4:5:6:7:8::", E::GroupCount(8)),
        ("1:2:3:4:5:6:7:1.2.3.4", E::GroupCount(9)),
        ("1::2::3", E::Compression),
        (":::", E::Compression),
        ("1:::2", E::Compression),
        (":1:2:3:4:5:6:7", group("")),
        ("1:2:3:4:5:6:7:", group("")),
        ("fd00::12345", group("12345")),
        ("fd00::g", group("g")),
        ("fd00::+1", group("+1")),
        ("fd00::1.2.3.4:5", group("1.2.3.4")),
        ("fd00:1.2.3.4::", group("1.2.3.4")),
        ("::1.2.3", E::OctetCount(3)),
        ("::/0", group("/0")),
    ] {
        assert_eq!(parse_ip(text), Err(want), "{text:?}");
    }
}

#[test]
fn refused_ranges_say_why() {
    use IpParseError as E;
    let length = |text: &str, max| E::Length { text: text.into(), max };
    for (text, want) in [
        ("", E::Empty),
        ("/8", E::Empty),
        ("10.0.0.0", E::NoLength),
        ("garbage", E::NotAnAddress),
        ("garbage/8", E::NotAnAddress),
        (" 10.0.0.0/8", E::Whitespace),
        ("10.0.0.0/33", length("33", 32)),
        ("10.0.0.0/", length("", 32)),
        ("10.0.0.0/+8", length("+8", 32)),
        ("10.0.0.0/8 ", length("8 ", 32)),
        ("10.0.0.0/8/8", length("8/8", 32)),
        ("10.0.0.0/255.0.0.0", length("255.0.0.0", 32)),
        ("fd00::/129", length("129", 128)),
        ("10.0.0/8", E::OctetCount(3)),
    ] {
        assert_eq!(parse_cidr(text), Err(want), "{text:?}");
    }
}

#[test]
fn messages_read_after_the_value() {
    let message = |text: &str| parse_ip(text).unwrap_err().to_string();
    assert_eq!(message("1.2.3"), "is not an IP address: 3 parts between dots instead of 4");
    assert_eq!(message("1.2.3.x"), "is not an IP address: \"x\" is not a number from 0 to 255");
    assert_eq!(
        parse_cidr("10.0.0.0/40").unwrap_err().to_string(),
        "has prefix length \"40\", which is not a number from 0 to 32"
    );
}

proptest! {
    #[test]
    fn agrees_with_the_strict_parser_on_what_it_prints(v4: u32, v6: u128, bits in 0u8..=128) {
        let v4 = IpAddr::V4(Ipv4Addr::from(v4));
        let v6 = IpAddr::V6(Ipv6Addr::from(v6));
        prop_assert_eq!(parse_ip(&v4.to_string()), Ok(v4));
        prop_assert_eq!(parse_ip(&v6.to_string()), Ok(canonical(v6)));
        let net = IpNet::new(v6, bits).unwrap().trunc();
        prop_assert_eq!(parse_cidr(&format!("{v6}/{bits}")), Ok(net));
        let net = IpNet::new(v4, bits / 4).unwrap().trunc();
        prop_assert_eq!(parse_cidr(&format!("{v4}/{}", bits / 4)), Ok(net));
    }

    #[test]
    fn accepts_what_the_strict_parser_accepts(text in "[0-9a-f:.]{0,24}") {
        if let Ok(strict) = text.parse::<IpAddr>() {
            prop_assert_eq!(parse_ip(&text), Ok(canonical(strict)));
        }
    }

    #[test]
    fn ipv6_is_no_more_lenient_than_the_strict_parser(text in "[0-9a-f]{0,5}(:[0-9a-f]{0,5}){0,8}") {
        prop_assert_eq!(parse_ip(&text).ok(), text.parse::<IpAddr>().ok().map(canonical));
    }

    #[test]
    fn leading_zeros_change_nothing(octets: [u8; 4], zeros in 0usize..6) {
        let text = octets.map(|o| format!("{}{o}", "0".repeat(zeros))).join(".");
        prop_assert_eq!(parse_ip(&text), Ok(IpAddr::from(octets)));
        let mapped = format!("::ffff:{text}");
        prop_assert_eq!(parse_ip(&mapped), Ok(IpAddr::from(octets)));
    }

    #[test]
    fn any_text_is_answered(text in ".{0,40}") {
        let _ = parse_ip(&text);
        let _ = parse_cidr(&text);
    }
}
