//! Rules in the one spelling that `iptables-save` 1.8.9 prints, in both variants: what is written is what is read back, so that equal
//! rules are equal texts.
//!
//! The tool prints source, destination, interface and protocol first, then the matches in the order in which they were given, then
//! the target. An address has its prefix length, a `REJECT` its kind, a probability 11 decimals of the multiple of 2^-31 that the kernel keeps.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::objects::Rule;
use ipnet::IpNet;
use proxier_core::ids::{EndpointAddr, IpFamily, Port, Protocol};
use proxier_core::names::truncate_comment;

/// Most bytes of a comment that the kernel's `comment` match takes (`XT_MAX_COMMENT_LEN` with its terminating zero).
pub const MAX_COMMENT: usize = 255;

/// A rule that is being put together. Matches are printed in the order of the calls.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    source: String,
    destination: String,
    interface: String,
    protocol: String,
    matches: String,
}

impl Draft {
    /// Matches everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Source in a range; not one of length 0, which the tools do not print.
    #[must_use]
    pub fn source(mut self, negated: bool, range: IpNet) -> Self {
        self.source = address("-s", negated, range);
        self
    }

    /// Destination in a range; not one of length 0, which the tools do not print.
    #[must_use]
    pub fn destination(mut self, negated: bool, range: IpNet) -> Self {
        self.destination = address("-d", negated, range);
        self
    }

    /// Arrives on this interface; a `+` at the end stands for anything.
    #[must_use]
    pub fn interface(mut self, negated: bool, name: &str) -> Self {
        self.interface = format!("{}-i {} ", not(negated), interface_word(name));
        self
    }

    /// The protocol alone, for a match that looks at its ports by itself.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = format!("-p {protocol} ");
        self
    }

    /// The protocol and, if there is one, the destination port.
    #[must_use]
    pub fn transport(mut self, protocol: Protocol, port: Option<Port>) -> Self {
        self.protocol = format!("-p {protocol} ");
        let port = port.map(|p| format!("--dport {p} ")).unwrap_or_default();
        self.matching(&format!("-m {protocol} {port}"))
    }

    /// A comment, cut to what the kernel takes.
    #[must_use]
    pub fn comment(self, text: &str) -> Self {
        let text = word(truncate_comment(text, MAX_COMMENT));
        self.matching(&format!("-m comment --comment {text} "))
    }

    /// In these states of connection tracking, comma-separated.
    #[must_use]
    pub fn ct_state(self, negated: bool, states: &str) -> Self {
        self.matching(&format!("-m conntrack {}--ctstate {states} ", not(negated)))
    }

    /// The source, or the destination, is an address of this host.
    #[must_use]
    pub fn local(self, end: End) -> Self {
        self.matching(&format!("-m addrtype {} LOCAL ", end.address_type()))
    }

    /// The source, or the destination, is no address of this host.
    #[must_use]
    pub fn foreign(self, end: End) -> Self {
        self.matching(&format!("-m addrtype ! {} LOCAL ", end.address_type()))
    }

    /// Did not arrive by a port of a bridge.
    #[must_use]
    pub fn not_bridged(self) -> Self {
        self.matching("-m physdev ! --physdev-is-in ")
    }

    /// What these ends of the packet are together is in an ipset, e.g. `dst,dst,src` for destination, destination port, source.
    #[must_use]
    pub fn in_set(self, set: &str, ends: &str) -> Self {
        self.matching(&format!("-m set --match-set {set} {ends} "))
    }

    /// All bits of the mark are set.
    #[must_use]
    pub fn mark(self, negated: bool, mark: u32) -> Self {
        self.matching(&format!("-m mark {}--mark {mark:#x}/{mark:#x} ", not(negated)))
    }

    /// Counts in an accounting object; the tool prints two blanks.
    #[must_use]
    pub fn count(self, object: &str) -> Self {
        self.matching(&format!("-m nfacct --nfacct-name  {object} "))
    }

    /// The client is in a list since at most this long; older entries are forgotten.
    #[must_use]
    pub fn remembered(self, list: &str, seconds: u64, family: IpFamily) -> Self {
        let mask = whole_mask(family);
        self.matching(&format!(
            "-m recent --rcheck --seconds {seconds} --reap --name {list} --mask {mask} --rsource "
        ))
    }

    /// Puts the client in a list.
    #[must_use]
    pub fn remember(self, list: &str, family: IpFamily) -> Self {
        let mask = whole_mask(family);
        self.matching(&format!("-m recent --set --name {list} --mask {mask} --rsource "))
    }

    /// One packet in `n`, at random.
    #[must_use]
    pub fn one_in(self, n: usize) -> Self {
        let probability = saved_probability(share(n));
        self.matching(&format!("-m statistic --mode random --probability {probability} "))
    }

    fn matching(mut self, text: &str) -> Self {
        self.matches.push_str(text);
        self
    }

    /// The rule, with a target and its options.
    #[must_use]
    pub fn jump(self, target: &str) -> Rule {
        let Self { source, destination, interface, protocol, matches } = self;
        Rule(format!("{source}{destination}{interface}{protocol}{matches}-j {target}").into())
    }

    /// Translates to this endpoint.
    #[must_use]
    pub fn dnat(self, to: EndpointAddr) -> Rule {
        let to = match to.ip {
            IpAddr::V4(ip) => format!("{ip}:{}", to.port),
            IpAddr::V6(ip) => format!("[{}]:{}", ipv6(ip), to.port),
        };
        self.jump(&format!("DNAT --to-destination {to}"))
    }

    /// Refuses at once; UDP and TCP alike with the ICMP message that the tools take by default.
    #[must_use]
    pub fn reject(self, family: IpFamily) -> Rule {
        self.jump(match family {
            IpFamily::Ipv4 => "REJECT --reject-with icmp-port-unreachable",
            IpFamily::Ipv6 => "REJECT --reject-with icmp6-port-unreachable",
        })
    }

    /// Refuses TCP at once with a reset: unlike an ICMP message it is not lost on the way, and a client of this host that sends IPv6
    /// does not wait a second for it. Only for a draft of protocol TCP.
    #[must_use]
    pub fn reset(self) -> Rule {
        self.jump("REJECT --reject-with tcp-reset")
    }

    /// The rule, without a target: it only counts.
    #[must_use]
    pub fn nothing(self) -> Rule {
        let Self { source, destination, interface, protocol, matches } = self;
        let text = format!("{source}{destination}{interface}{protocol}{matches}");
        Rule(text.trim_end().into())
    }
}

/// An end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

impl End {
    fn address_type(self) -> &'static str {
        match self {
            Self::Source => "--src-type",
            Self::Destination => "--dst-type",
        }
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "! " } else { "" }
}

fn address(option: &str, negated: bool, range: IpNet) -> String {
    let range = range.trunc();
    let network = match range.network() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ipv6(ip),
    };
    format!("{}{option} {network}/{} ", not(negated), range.prefix_len())
}

/// As the C library prints it: RFC 5952, but the last 32 bits in dotted form also below `::/96`.
fn ipv6(ip: Ipv6Addr) -> String {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
            let [.., a, b, c, d] = ip.octets();
            format!("::{}", Ipv4Addr::new(a, b, c, d))
        }
        _ => ip.to_string(),
    }
}

fn whole_mask(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 => "255.255.255.255",
        IpFamily::Ipv6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    }
}

/// An argument as the tool saves it: letters, digits, `_` and `-` stand as they are; anything else makes it quoted, quotes and
/// backslashes behind a backslash.
#[must_use]
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '\'') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// The tools save interface names as they are. Only one that would not be read back as one word is quoted.
fn interface_word(name: &str) -> String {
    let harmless = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '\'');
    if name.chars().all(harmless) { name.to_owned() } else { quoted(name) }
}

/// The kernel's 32-bit form of `1/n`, as kube-proxy's text gives it: 10 decimals (iptables spec 4), times 2^31, rounded.
fn share(n: usize) -> u32 {
    let mut text = String::with_capacity(12);
    // Writing to a String cannot fail.
    let _ = write!(text, "{:.10}", 1.0 / n.max(1) as f64);
    let value: f64 = text.parse().unwrap_or(1.0);
    (value * ONE).round() as u32
}

/// 2^31: certainty, in the `statistic` match.
const ONE: f64 = 2_147_483_648.0;

fn saved_probability(share: u32) -> String {
    format!("{:.11}", f64::from(share) / ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn tcp(number: u16) -> Draft {
        Draft::new().transport(Protocol::Tcp, Port::new(number))
    }

    #[test]
    fn what_the_tool_prints_first_comes_first() {
        let rule = Draft::new()
            .comment("web/front:http cluster IP")
            .transport(Protocol::Tcp, Port::new(80))
            .destination(false, net("10.96.1.1/32"))
            .source(true, net("10.244.0.0/16"))
            .interface(false, "eth0")
            .jump("KUBE-MARK-MASQ");
        assert_eq!(
            &*rule.0,
            "! -s 10.244.0.0/16 -d 10.96.1.1/32 -i eth0 -p tcp -m comment --comment \"web/front:http cluster IP\" \
             -m tcp --dport 80 -j KUBE-MARK-MASQ"
        );
    }

    /// Read from both variants of 1.8.9.
    #[test]
    fn spellings_of_the_tool() {
        let v4 = IpFamily::Ipv4;
        let v6 = IpFamily::Ipv6;
        let endpoint = |ip: &str| EndpointAddr { ip: ip.parse().unwrap(), port: Port::new(80).unwrap() };
        let rules = [
            (Draft::new().comment("only").nothing(), "-m comment --comment only"),
            (
                tcp(1).comment("a.b").reject(v4),
                "-p tcp -m tcp --dport 1 -m comment --comment \"a.b\" -j REJECT --reject-with icmp-port-unreachable",
            ),
            (
                Draft::new().mark(true, 1 << 31).jump("RETURN"),
                "-m mark ! --mark 0x80000000/0x80000000 -j RETURN",
            ),
            (Draft::new().interface(true, "cali+").jump("X"), "! -i cali+ -j X"),
            (
                Draft::new().remember("KUBE-SEP-X", v6).jump("Y"),
                "-m recent --set --name KUBE-SEP-X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j Y",
            ),
            (
                Draft::new().remembered("KUBE-SEP-X", 600, v4).jump("Y"),
                "-m recent --rcheck --seconds 600 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j Y",
            ),
            (
                Draft::new().transport(Protocol::Sctp, None).dnat(endpoint("1.2.3.4")),
                "-p sctp -m sctp -j DNAT --to-destination 1.2.3.4:80",
            ),
            (
                Draft::new().source(false, net("::102:304/128")).dnat(endpoint("::102:304")),
                "-s ::1.2.3.4/128 -j DNAT --to-destination [::1.2.3.4]:80",
            ),
            (Draft::new().source(false, net("::ffff:1.2.3.4/128")).jump("X"), "-s ::ffff:1.2.3.4/128 -j X"),
            (Draft::new().source(false, net("1:0:0:1::/64")).jump("X"), "-s 1:0:0:1::/64 -j X"),
            (Draft::new().source(false, net("10.1.2.3/16")).jump("X"), "-s 10.1.0.0/16 -j X"),
            (
                Draft::new().destination(true, net("::1/128")).reject(v6),
                "! -d ::1/128 -j REJECT --reject-with icmp6-port-unreachable",
            ),
            (
                Draft::new().ct_state(true, "RELATED,DNAT").count("x").jump("DROP"),
                "-m conntrack ! --ctstate RELATED,DNAT -m nfacct --nfacct-name  x -j DROP",
            ),
            (
                Draft::new().local(End::Source).local(End::Destination).jump("X"),
                "-m addrtype --src-type LOCAL -m addrtype --dst-type LOCAL -j X",
            ),
            (
                Draft::new().in_set("S", "dst,dst").not_bridged().foreign(End::Source).jump("ACCEPT"),
                "-m set --match-set S dst,dst -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT",
            ),
            (tcp(80).reset(), "-p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset"),
        ];
        for (rule, want) in rules {
            assert_eq!(&*rule.0, want);
        }
    }

    #[test]
    fn words_are_quoted_as_the_tool_does() {
        let words = [
            ("plain_text-1", "plain_text-1"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a/b:c", "\"a/b:c\""),
            ("q\"uo\\te's", "\"q\\\"uo\\\\te\\'s\""),
        ];
        for (text, want) in words {
            assert_eq!(word(text), want);
        }
        assert_eq!(interface_word("br-0.1@x"), "br-0.1@x");
        assert_eq!(interface_word("a\"b"), "\"a\\\"b\"");
    }

    #[test]
    fn comments_are_cut() {
        let rule = Draft::new().comment(&"x".repeat(300)).nothing();
        assert_eq!(rule.0.len(), "-m comment --comment ".len() + 255);
    }

    /// The text of iptables spec 4, what the kernel makes of it, and what the tool then saves are one number.
    #[test]
    fn probabilities() {
        let read = |text: &str| (text.parse::<f64>().unwrap() * ONE).round() as u32;
        let written = [(2, "0.5000000000"), (3, "0.3333333333"), (6, "0.1666666667"), (7, "0.1428571429")];
        for (n, text) in written.into_iter().chain([(100_001, "0.0000099999")]) {
            assert_eq!(format!("{:.10}", 1.0 / f64::from(n)), text);
            assert_eq!(share(n as usize), read(text));
        }
        let saved = [(2, "0.50000000000"), (3, "0.33333333349"), (4, "0.25000000000")];
        for (n, text) in saved {
            assert_eq!(saved_probability(share(n)), text, "{n}");
        }
        let mut before = u32::MAX;
        for n in 1..=20_000 {
            let share = share(n);
            assert_eq!(read(&saved_probability(share)), share, "{n}");
            assert!(share < before, "{n}");
            before = share;
        }
    }
}
