//! Session affinity: a client stays with its endpoint while it comes again in time and the endpoint is there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proxier_core::ids::IpFamily;

use super::script::{Script, TCP, UDP, Way, name, ways};
use crate::matrix::observe::ANSWER;
use crate::matrix::plan;
use crate::matrix::row::{Caller, Place};

const ALL: [&str; 4] = ["four", "one", "three", "two"];

/// Everybody who has an address of their own, in both families, by TCP and UDP: each is a client with an affinity of its own.
fn clients() -> Vec<(Way, usize)> {
    let callers = [plan::CALLER, plan::CALLER2, "one", "two", "three", "four"].map(Caller::Pod);
    let outside = ["client", "client2", "stranger"].map(Caller::Client);
    let mut out = Vec::new();
    for from in callers.into_iter().chain(outside) {
        for family in IpFamily::ALL {
            out.extend([TCP, UDP].map(|port| (Way { from, place: Place::ClusterIp, family }, port)));
        }
    }
    out
}

type Homes = Vec<((Way, usize), String)>;

fn homes(script: &Script<'_>) -> anyhow::Result<Homes> {
    let clients = clients();
    let seen = script.calls(&clients, script.patience().of(ANSWER))?;
    Ok(clients.into_iter().zip(seen).map(|(client, (seen, _))| (client, name(seen))).collect())
}

/// How many clients are with which server.
fn census(homes: &Homes) -> String {
    let mut out: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, home) in homes {
        *out.entry(home).or_default() += 1;
    }
    format!("{out:?}")
}

fn all_served(homes: &Homes) -> bool {
    homes.iter().all(|(_, home)| ALL.contains(&home.as_str()))
}

/// Cases: nftables-12.28
pub(super) fn endpoint_leaves(script: &mut Script<'_>) -> anyhow::Result<()> {
    let mut shape = script.service();
    shape.affinity = Some(600);
    script.put(&shape.clone().on(&ALL))?;
    let first = homes(script)?;
    script.check("clients are served", all_served(&first), census(&first));
    let spread = ALL.iter().all(|s| first.iter().any(|(_, home)| home == s));
    script.check("clients are spread over all endpoints", spread, census(&first));
    for _ in 0..3 {
        let again = homes(script)?;
        script.check("clients stay", again == first, format!("{} after {}", census(&again), census(&first)));
    }
    script.put(&shape.clone().on(&["one", "three", "two"]))?;
    let moved = homes(script)?;
    let as_it_must = first.iter().zip(&moved).all(|((_, before), (_, now))| {
        if before == "four" { now != "four" && ALL.contains(&now.as_str()) } else { now == before }
    });
    script.check("only those of the endpoint that left move", as_it_must, census(&moved));
    for _ in 0..3 {
        let again = homes(script)?;
        script.check("they stay where they went", again == moved, census(&again));
    }
    script.put(&shape.clone().on(&ALL))?;
    let back = homes(script)?;
    script.check("when it comes back, nobody moves", back == moved, census(&back));
    // Other addresses of the service serve the same client by the same endpoint.
    let vip: Vec<Way> = ways().into_iter().filter(|w| w.place == Place::Vip).collect();
    for way in vip {
        let met = script.servers(way, TCP, 1)?;
        let home =
            back.iter().find(|((w, port), _)| (w.from, w.family, *port) == (way.from, way.family, TCP));
        if script.is_a_gap() {
            // Which one that is, is left to chance; it may be the same.
            script.check(
                format!("gap: {way} meets an endpoint of its own"),
                met.len() == 1,
                format!("{met:?}"),
            );
            continue;
        }
        let same = home.is_some_and(|(_, home)| met.iter().eq([home]));
        script.check(format!("{way} meets the client's endpoint"), same, format!("{met:?}"));
    }
    Ok(())
}

/// Rounds of calls that must fit into the affinity of [`expires`].
const ROUNDS: u32 = 4;

pub(super) fn expires(script: &mut Script<'_>) -> anyhow::Result<()> {
    let mut shape = script.service().on(&ALL);
    script.put(&shape)?;
    let begun = Instant::now();
    homes(script)?;
    let seconds = u32::try_from((begun.elapsed() * ROUNDS).as_secs())? + 1;
    let timeout = Duration::from_secs(seconds.into());
    shape.affinity = Some(seconds);
    script.put(&shape)?;
    let mut rounds = Vec::new();
    let begun = Instant::now();
    let mut last = Instant::now();
    let mut in_time = true;
    while begun.elapsed() < timeout + timeout / 2 {
        rounds.push(homes(script)?);
        in_time &= last.elapsed() < timeout;
        last = Instant::now();
        std::thread::sleep(timeout / 8);
    }
    let first = rounds.first().cloned().unwrap_or_default();
    script.check("clients are served", all_served(&first), census(&first));
    script.check("calls come in time", in_time, "a round that took too long");
    let stayed = rounds.iter().all(|r| *r == first);
    let many = rounds.len() > 2;
    script.check(
        "clients that come again in time stay, for longer than the timeout",
        stayed && many,
        rounds.iter().map(census).collect::<Vec<_>>().join("; "),
    );
    // 36 clients choose anew among four: that all choose as before does not happen.
    std::thread::sleep(timeout + timeout / 8);
    let later = homes(script)?;
    let moved = first.iter().zip(&later).filter(|(a, b)| a != b).count();
    script.check("clients that come too late are served", all_served(&later), census(&later));
    let (what, holds) = if script.is_a_gap() {
        let gap = "gap: clients that come too late stay, too (if they do not, remove the gap's declaration)";
        (gap, moved == 0)
    } else {
        ("some of those that come too late go elsewhere", moved > 0)
    };
    script.check(what, holds, format!("{moved} of {}", later.len()));
    Ok(())
}
