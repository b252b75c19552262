//! Matches and targets from the options that were given for them.

use std::net::IpAddr;
use std::sync::Arc;

use proxier_core::ids::{IpFamily, Protocol};

use super::module::{Given, Module, SET_ENDS};
use super::value;
use crate::iptables::ast::{Marked, Match, Maybe, Ports, Recent, RecentAction, SetMatch, Statistic, Target};
use crate::iptables::error::Cause;

/// The kernel's room for a comment, and for the name of a list of `recent`, without the closing zero; the tool cuts.
const COMMENT: usize = 255;
const LIST_NAME: usize = 199;

fn cut(text: &str, length: usize) -> Arc<str> {
    let mut end = text.len().min(length);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().into()
}

fn maybe<T>(given: &Given, parse: impl FnOnce(&str, &str) -> Result<T, Cause>) -> Result<Maybe<T>, Cause> {
    Ok(Maybe { negated: given.negated, value: parse(given.name, &given.value)? })
}

/// A match.
pub(super) fn one_match(module: &Module, family: IpFamily) -> Result<Match, Cause> {
    Ok(match module.name {
        "comment" => Match::Comment(cut(&module.need("--comment")?.value, COMMENT)),
        "conntrack" => Match::Conntrack(maybe(module.need("--ctstate")?, value::states)?),
        "mark" => Match::Mark(maybe(module.need("--mark")?, value::marked)?),
        "nfacct" => Match::Counter(module.need("--nfacct-name")?.value.as_str().into()),
        "statistic" => Match::Statistic(statistic(module)?),
        "recent" => Match::Recent(recent(module, family)?),
        "addrtype" => {
            let types = |name| module.get(name).map(|g| maybe(g, value::types)).transpose();
            match (types("--src-type")?, types("--dst-type")?) {
                (None, None) => return Err(Cause::Missing("--src-type or --dst-type")),
                (source, destination) => Match::AddressType(source, destination),
            }
        }
        "set" => Match::Set(set(module)?),
        "physdev" => Match::Bridged(Maybe { negated: module.need("--physdev-is-in")?.negated, value: () }),
        "ipvs" => ipvs(module, family)?,
        transport => {
            let protocol = Protocol::ALL.into_iter().find(|p| p.as_str() == transport);
            let protocol = protocol.ok_or_else(|| Cause::NoMatch(transport.into()))?;
            Match::Transport {
                protocol,
                source: ports(module, "--sport")?,
                destination: ports(module, "--dport")?,
            }
        }
    })
}

fn set(module: &Module) -> Result<Maybe<SetMatch>, Cause> {
    let given = module.need("--match-set")?;
    let ends = &module.need(SET_ENDS)?.value;
    let source = |end: &str| match end {
        "src" => Ok(true),
        "dst" => Ok(false),
        _ => Err(value::bad(given.name, ends)),
    };
    let sources: Vec<bool> = ends.split(',').map(source).collect::<Result<_, _>>()?;
    if sources.len() > 6 {
        return Err(value::bad(given.name, ends));
    }
    Ok(Maybe { negated: given.negated, value: SetMatch { name: given.value.as_str().into(), sources } })
}

fn ipvs(module: &Module, family: IpFamily) -> Result<Match, Cause> {
    let get = |name| module.get(name);
    let number = |name: &str, text: &str| {
        value::number(name, text).and_then(|n| u16::try_from(n).map_err(|_| value::bad(name, text)))
    };
    Ok(Match::Ipvs {
        protocol: get("--vproto").map(|g| maybe(g, value::protocol)).transpose()?,
        address: get("--vaddr").map(|g| maybe(g, |n, t| value::net(family, n, t))).transpose()?,
        port: get("--vport").map(|g| maybe(g, number)).transpose()?,
    })
}

/// All ports are no condition; only the match `sctp` keeps it as one.
fn ports(module: &Module, option: &str) -> Result<Option<Maybe<Ports>>, Cause> {
    let Some(given) = module.get(option) else { return Ok(None) };
    let ports = maybe(given, value::ports)?;
    match ports {
        Maybe { negated: false, value: Ports { first: 0, last: u16::MAX } } if module.name != "sctp" => {
            Ok(None)
        }
        // The variants of the tool do not agree on what this is.
        Maybe { negated: true, value: Ports { first: 0, last: u16::MAX } } => {
            Err(Cause::Unsupported(format!("! {option} {}", given.value)))
        }
        ports => Ok(Some(ports)),
    }
}

fn statistic(module: &Module) -> Result<Maybe<Statistic>, Cause> {
    let mode = module.need("--mode")?;
    match mode.value.as_str() {
        "random" => {
            let given = module.need("--probability")?;
            maybe(given, |name, text| value::probability(name, text).map(Statistic::Random))
        }
        "nth" => {
            let given = module.need("--every")?;
            let every = value::positive(given.name, &given.value)?;
            let packet = module.need("--packet")?;
            let number = value::number(packet.name, &packet.value)?;
            if number >= every {
                return Err(value::bad(packet.name, &packet.value));
            }
            Ok(Maybe { negated: given.negated, value: Statistic::Nth { every, packet: number } })
        }
        other => Err(value::bad(mode.name, other)),
    }
}

fn recent(module: &Module, family: IpFamily) -> Result<Maybe<Recent>, Cause> {
    const ACTIONS: [(&str, RecentAction); 3] =
        [("--set", RecentAction::Set), ("--rcheck", RecentAction::Check), ("--update", RecentAction::Update)];
    let given: Vec<_> = ACTIONS.iter().filter_map(|(n, a)| module.get(n).map(|g| (g, *a))).collect();
    let [(given, action)] = *given else {
        let second = given.get(1).map(|(g, _)| Cause::Repeated(g.name.into()));
        return Err(second.unwrap_or(Cause::Missing("--set, --rcheck or --update")));
    };
    let name = module.get("--name").map_or("DEFAULT", |g| g.value.as_str());
    if name.is_empty() || name.contains('/') {
        return Err(value::bad("--name", name));
    }
    let seconds = module.get("--seconds").map(|g| value::positive(g.name, &g.value)).transpose()?;
    let reap = module.get("--reap").is_some();
    if reap && seconds.is_none() {
        return Err(Cause::Missing("--seconds"));
    }
    if let (RecentAction::Set, Some(_)) = (action, seconds) {
        return Err(value::bad("--seconds", "with --set"));
    }
    if let Some(mask) = module.get("--mask") {
        let full = match family {
            IpFamily::Ipv4 => IpAddr::V4(std::net::Ipv4Addr::BROADCAST),
            IpFamily::Ipv6 => IpAddr::V6(u128::MAX.into()),
        };
        if mask.value.parse() != Ok(full) {
            return Err(Cause::Unsupported(format!("--mask {}", mask.value)));
        }
    }
    let destination = module.get("--rdest").is_some();
    let value = Recent { action, name: cut(name, LIST_NAME), seconds, reap, destination };
    Ok(Maybe { negated: given.negated, value })
}

/// A target with options.
pub(super) fn target(module: &Module, family: IpFamily) -> Result<Target, Cause> {
    Ok(match module.name {
        "MARK" => Target::Mark(mark(module)?),
        "MASQUERADE" => Target::Masquerade { random_fully: module.get("--random-fully").is_some() },
        "DNAT" => {
            let given = module.need("--to-destination")?;
            let (address, port) = value::destination(family, given.name, &given.value)?;
            Target::Dnat { address, port }
        }
        "REJECT" => {
            let with = module.get("--reject-with").map(|g| g.value.as_str());
            Target::Reject(value::reject(family, "--reject-with", with)?)
        }
        other => return Err(Cause::NoTarget(other.into())),
    })
}

/// All spellings of the one thing that the kernel knows: mark = (mark & !mask) ^ value.
fn mark(module: &Module) -> Result<Marked, Cause> {
    let given = match module.given.as_slice() {
        [given] => given,
        [] => return Err(Cause::Missing("--set-xmark, --{and,or,xor,set}-mark")),
        [_, second, ..] => return Err(Cause::Repeated(second.name.into())),
    };
    let number = |g: &Given| value::number(g.name, &g.value);
    Ok(match given.name {
        "--set-xmark" => value::marked(given.name, &given.value)?,
        "--set-mark" => {
            let Marked { value, mask } = value::marked(given.name, &given.value)?;
            Marked { value, mask: mask | value }
        }
        "--or-mark" => Marked { value: number(given)?, mask: number(given)? },
        "--and-mark" => Marked { value: 0, mask: !number(given)? },
        _ => Marked { value: number(given)?, mask: 0 },
    })
}
