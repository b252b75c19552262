//! Rules to text, as `iptables-save` prints them.

use std::fmt::{self, Display, Write};

use ipnet::IpNet;
use proxier_core::ids::IpFamily;

use super::ast::{
    AddressTypes, CtStates, Interface, Marked, Match, Maybe, Ports, Recent, RecentAction, Rule, SetMatch,
    Statistic, Target,
};
use super::token::quoted;

/// Protocols that are printed by name.
pub(super) const PROTOCOLS: [(u8, &str); 5] =
    [(1, "icmp"), (6, "tcp"), (17, "udp"), (58, "ipv6-icmp"), (132, "sctp")];

/// The normal form of a rule. Each option begins with a blank; the first one is cut off.
pub(super) fn rule(rule: &Rule, family: IpFamily) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, rule, family);
    out.split_off(out.len().min(1))
}

fn write(out: &mut String, rule: &Rule, family: IpFamily) -> fmt::Result {
    option(out, "-s", rule.source.as_ref(), |net: &IpNet| net.to_string())?;
    option(out, "-d", rule.destination.as_ref(), |net: &IpNet| net.to_string())?;
    option(out, "-i", rule.incoming.as_ref(), interface)?;
    option(out, "-o", rule.outgoing.as_ref(), interface)?;
    option(out, "-p", rule.protocol.as_ref(), |number| protocol(*number))?;
    rule.matches.iter().try_for_each(|m| one_match(out, m, family))?;
    target(out, &rule.target)
}

fn option<T>(
    out: &mut String,
    name: &str,
    value: Option<&Maybe<T>>,
    print: impl Fn(&T) -> String,
) -> fmt::Result {
    let Some(Maybe { negated, value }) = value else { return Ok(()) };
    write!(out, "{} {name} {}", if *negated { " !" } else { "" }, print(value))
}

fn interface(interface: &Interface) -> String {
    format!("{}{}", interface.name, if interface.prefix { "+" } else { "" })
}

fn protocol(number: u8) -> String {
    let name = PROTOCOLS.iter().find(|(n, _)| *n == number).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| number.to_string())
}

fn ports(ports: &Ports) -> String {
    let Ports { first, last } = ports;
    if first == last { first.to_string() } else { format!("{first}:{last}") }
}

fn marked(mark: &Marked) -> String {
    let Marked { value, mask } = mark;
    if *mask == u32::MAX { format!("{value:#x}") } else { format!("{value:#x}/{mask:#x}") }
}

/// The names of bits that are set.
fn names(bits: u32, names: &[&str]) -> String {
    let set = names.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

fn types(types: &AddressTypes) -> String {
    names(types.0.into(), &AddressTypes::NAMES)
}

fn one_match(out: &mut String, one: &Match, family: IpFamily) -> fmt::Result {
    match one {
        Match::Comment(text) => write!(out, " -m comment --comment {}", quoted(text)),
        Match::Conntrack(states) => {
            out.push_str(" -m conntrack");
            option(out, "--ctstate", Some(states), |s| names(s.0.into(), &CtStates::NAMES))
        }
        Match::Mark(mark) => {
            out.push_str(" -m mark");
            option(out, "--mark", Some(mark), marked)
        }
        Match::AddressType(source, destination) => {
            out.push_str(" -m addrtype");
            option(out, "--src-type", source.as_ref(), types)?;
            option(out, "--dst-type", destination.as_ref(), types)
        }
        Match::Statistic(Maybe { negated, value }) => statistic(out, *negated, *value),
        Match::Recent(recent) => self::recent(out, recent, family),
        Match::Transport { protocol, source, destination } => {
            write!(out, " -m {protocol}")?;
            option(out, "--sport", source.as_ref(), ports)?;
            option(out, "--dport", destination.as_ref(), ports)
        }
        Match::Counter(name) => write!(out, " -m nfacct --nfacct-name {}", quoted(name)),
        Match::Set(Maybe { negated, value: SetMatch { name, sources } }) => {
            let not = if *negated { " !" } else { "" };
            let ends: Vec<&str> = sources.iter().map(|s| if *s { "src" } else { "dst" }).collect();
            write!(out, " -m set{not} --match-set {name} {}", ends.join(","))
        }
        Match::Bridged(Maybe { negated, .. }) => {
            write!(out, " -m physdev{} --physdev-is-in", if *negated { " !" } else { "" })
        }
        Match::Ipvs { protocol, address, port } => {
            out.push_str(" -m ipvs");
            option(out, "--vproto", protocol.as_ref(), u8::to_string)?;
            option(out, "--vaddr", address.as_ref(), whole)?;
            option(out, "--vport", port.as_ref(), u16::to_string)
        }
    }
}

/// A range; one of a single address without its length.
fn whole(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

fn statistic(out: &mut String, negated: bool, value: Statistic) -> fmt::Result {
    let not = if negated { " !" } else { "" };
    match value {
        Statistic::Random(share) => {
            let probability = f64::from(share) / f64::from(1_u32 << 31);
            write!(out, " -m statistic --mode random{not} --probability {probability:.11}")
        }
        Statistic::Nth { every, packet } => {
            write!(out, " -m statistic --mode nth{not} --every {every} --packet {packet}")
        }
    }
}

fn recent(out: &mut String, recent: &Maybe<Recent>, family: IpFamily) -> fmt::Result {
    let Recent { action, name, seconds, reap, destination } = &recent.value;
    let action = match action {
        RecentAction::Set => "--set",
        RecentAction::Check => "--rcheck",
        RecentAction::Update => "--update",
    };
    write!(out, " -m recent{} {action}", if recent.negated { " !" } else { "" })?;
    if let Some(seconds) = seconds {
        write!(out, " --seconds {seconds}")?;
    }
    if *reap {
        out.push_str(" --reap");
    }
    let mask = match family {
        IpFamily::Ipv4 => "255.255.255.255",
        IpFamily::Ipv6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    };
    let side = if *destination { "--rdest" } else { "--rsource" };
    write!(out, " --name {} --mask {mask} {side}", quoted(name))
}

fn target(out: &mut String, target: &Target) -> fmt::Result {
    let jump = |out: &mut String, to: &dyn Display| write!(out, " -j {to}");
    match target {
        Target::None => Ok(()),
        Target::Accept => jump(out, &"ACCEPT"),
        Target::Drop => jump(out, &"DROP"),
        Target::Return => jump(out, &"RETURN"),
        Target::Jump(chain) => jump(out, chain),
        Target::Goto(chain) => write!(out, " -g {chain}"),
        Target::Mark(Marked { value, mask }) => write!(out, " -j MARK --set-xmark {value:#x}/{mask:#x}"),
        Target::Masquerade { random_fully } => {
            jump(out, &"MASQUERADE")?;
            if *random_fully { out.write_str(" --random-fully") } else { Ok(()) }
        }
        Target::Dnat { address, port: None } => write!(out, " -j DNAT --to-destination {address}"),
        Target::Dnat { address, port: Some(port) } => {
            write!(out, " -j DNAT --to-destination {}", std::net::SocketAddr::new(*address, *port))
        }
        Target::Reject(with) => write!(out, " -j REJECT --reject-with {with}"),
    }
}
