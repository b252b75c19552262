//! Packets and expectations.

use std::net::SocketAddr;

use proxier_core::ids::{EndpointAddr, Port, Protocol};
use proxier_core::oracle::{Choice, Entry as PacketEntry, Outcome, Packet, Reason};

use super::raw::{RawExpect, RawPacket};
use super::{Question, address};
use crate::walk::normalise;

/// A field of a packet, and what is wrong with it.
type Fault = (&'static str, String);

/// All packets that one entry stands for: each source to each destination.
pub(super) fn questions(place: &str, raw: &RawPacket) -> Result<Vec<Question>, Fault> {
    let (sources, destinations) = (raw.from.texts(), raw.to.texts());
    let several = sources.len() * destinations.len() > 1;
    let outcome = outcome(&raw.expect).map_err(|e| ("expect", e))?;
    let reason = raw.reason.as_deref().map(reason).transpose().map_err(|e| ("reason", e))?;
    let recorded = raw.recorded.as_deref().map(endpoint).transpose().map_err(|e| ("recorded", e))?;
    let mut out = Vec::with_capacity(sources.len() * destinations.len());
    for from in sources {
        let source = address(from).map_err(|e| ("from", e))?;
        for to in destinations {
            let (destination, protocol, port) = target(to).map_err(|e| ("to", e))?;
            if source.is_ipv4() != destination.is_ipv4() {
                return Err(("to", format!("{to:?} is of another family than {from:?}")));
            }
            let entry = if raw.entry == "host" {
                PacketEntry::Host
            } else {
                PacketEntry::Interface(raw.entry.as_str().into())
            };
            out.push(Question {
                place: if several { format!("{place} ({from} to {to})") } else { place.to_owned() },
                packet: Packet { source, destination, protocol, port, entry },
                outcome: outcome.clone(),
                reason: reason.clone(),
                recorded,
            });
        }
    }
    Ok(out)
}

/// `10.96.0.10:53/udp`, `[fd00::1]:80/tcp`, `10.96.0.10/icmp`.
fn target(text: &str) -> Result<(std::net::IpAddr, Option<Protocol>, u16), String> {
    let (to, protocol) =
        text.rsplit_once('/').ok_or_else(|| format!("{text:?} lacks /tcp, /udp, /sctp or /icmp"))?;
    if protocol == "icmp" {
        return Ok((address(to.trim_matches(['[', ']']))?, None, 0));
    }
    let known = Protocol::ALL.into_iter().find(|p| p.as_str() == protocol);
    let protocol = known.ok_or_else(|| format!("{protocol:?} is not tcp, udp, sctp or icmp"))?;
    let to: SocketAddr = to.parse().map_err(|_| format!("{to:?} is no address and port"))?;
    Ok((to.ip(), Some(protocol), to.port()))
}

fn endpoint(text: &str) -> Result<EndpointAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| format!("{text:?} is no address and port"))?;
    let port = Port::new(address.port()).ok_or_else(|| format!("{text:?} has port 0"))?;
    Ok(EndpointAddr { ip: address.ip(), port })
}

fn reason(text: &str) -> Result<Reason, String> {
    Ok(match text {
        "no-frontend" => Reason::NoFrontend,
        "unknown-port-of-cluster-ip" => Reason::UnknownPortOfClusterIp,
        "unallocated-cluster-ip" => Reason::UnallocatedClusterIp,
        "source-not-in-ranges" => Reason::SourceNotInRanges,
        "no-endpoints" => Reason::NoEndpoints,
        "no-local-endpoints" => Reason::NoLocalEndpoints,
        "balanced" => Reason::Balanced,
        other => return Err(format!("{other:?} is no reason")),
    })
}

fn outcome(raw: &RawExpect) -> Result<Outcome, String> {
    let lists = match raw {
        RawExpect::Word(word) => {
            return match word.as_str() {
                "reject" => Ok(Outcome::Reject),
                "drop" => Ok(Outcome::Drop),
                "not-ours" => Ok(Outcome::NotOurs),
                other => Err(format!("{other:?} is not reject, drop or not-ours")),
            };
        }
        RawExpect::Endpoints(lists) => lists,
    };
    let mut entries = Vec::new();
    for (source, texts) in lists {
        let masquerade = match source.as_str() {
            "kept" => false,
            "masqueraded" => true,
            other => return Err(format!("{other:?} is not kept or masqueraded")),
        };
        for text in texts {
            let (endpoint, share) = share(text)?;
            entries.push((endpoint, share, masquerade));
        }
    }
    choices(&entries)
}

/// `10.244.1.2:8080`, or with its share `10.244.1.2:8080 2/3`.
fn share(text: &str) -> Result<(EndpointAddr, Option<(u32, u32)>), String> {
    let Some((addr, share)) = text.split_once(' ') else { return Ok((endpoint(text)?, None)) };
    let parts = share.trim().split_once('/').and_then(|(n, m)| Some((n.parse().ok()?, m.parse().ok()?)));
    match parts {
        Some((n, m)) if n > 0 && n <= m => Ok((endpoint(addr)?, Some((n, m)))),
        _ => Err(format!("{share:?} is no share such as 1/3")),
    }
}

/// An endpoint, its share, and whether the source is replaced.
type Entry = (EndpointAddr, Option<(u32, u32)>, bool);

fn choices(entries: &[Entry]) -> Result<Outcome, String> {
    if entries.is_empty() {
        return Err("no endpoint".into());
    }
    let common = entries.iter().filter_map(|e| e.1).map(|(_, m)| m).try_fold(1u32, u32::checked_mul);
    let common = common.ok_or("shares are too fine")?;
    let explicit = entries.iter().filter(|e| e.1.is_some()).count();
    if explicit != 0 && explicit != entries.len() {
        return Err("either all endpoints have a share or none".into());
    }
    let weight = |share: Option<(u32, u32)>| share.map_or(1, |(n, m)| n * (common / m));
    if explicit != 0 && entries.iter().map(|e| weight(e.1)).sum::<u32>() != common {
        return Err("shares do not sum up to 1".into());
    }
    let choice = |(endpoint, share, masquerade): &Entry| Choice {
        endpoint: *endpoint,
        weight: weight(*share),
        masquerade: *masquerade,
    };
    Ok(normalise(Outcome::Endpoints(entries.iter().map(choice).collect())))
}
