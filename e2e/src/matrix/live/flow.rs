//! UDP flows, SCTP associations and refusals: where connection tracking or the kernel's ways decide what a client sees.

use std::thread;
use std::time::{Duration, Instant};

use proxier_core::ids::IpFamily;

use super::script::{SCTP, Script, TCP, UDP, Way, name, ways};
use crate::matrix::observe::ANSWER;
use crate::matrix::row::{Caller, Place};
use crate::matrix::shape::EndpointShape;
use crate::traffic::{Lasting, Seen};

/// How long a flow may take to be moved, once the rules are in force.
const MOVED: Duration = Duration::from_secs(10);

/// Asks until this server answers, or for as long as it may take.
fn moves(script: &mut Script<'_>, what: &str, flow: &mut Lasting, server: &str) {
    let end = Instant::now() + script.patience().of(MOVED);
    let seen = loop {
        let seen = name(flow.ask());
        if seen == server || Instant::now() > end {
            break seen;
        }
        thread::sleep(Duration::from_millis(20));
    };
    script.check(format!("{what} moves to {server}"), seen == server, seen);
}

/// SCTP associations last as TCP connections do while endpoints come and go, and new ones go where they must.
pub(super) fn associations(script: &mut Script<'_>) -> anyhow::Result<()> {
    const BOTH: [&str; 2] = ["one", "three"];
    let shape = script.service();
    script.put(&shape.clone().on(&BOTH))?;
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, SCTP, &BOTH)?);
    }
    script.last("before", &mut kept);
    let draining = [EndpointShape::draining("one"), EndpointShape::ready("three")];
    for (when, shape) in
        [("one drains", shape.clone().endpoints(draining)), ("one is removed", shape.clone().on(&["three"]))]
    {
        script.put(&shape)?;
        script.meets(when, &ways(), &[SCTP], &["three"])?;
        script.last(when, &mut kept);
    }
    script.put(&shape.clone().on(&[]))?;
    script.is_refused("without endpoints", &ways(), &[SCTP])?;
    script.put(&shape.on(&BOTH))?;
    script.meets("with both again", &ways(), &[SCTP], &BOTH)?;
    script.last("with both again", &mut kept);
    Ok(())
}

/// A flow in use keeps its endpoint as long as that is there, however busy it is, and is served by another one when it is gone; the last
/// one, too.
///
/// Cases: core-11.55, core-11.56, report-C4-44
pub(super) fn of_removed_endpoint(script: &mut Script<'_>) -> anyhow::Result<()> {
    let shape = script.service();
    script.put(&shape.clone().on(&["one", "three"]))?;
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for way in ways() {
        for (flow, server) in script.stay_with(way, UDP, &["one", "three"])? {
            (if server == "one" { &mut go } else { &mut stay }).push((flow, server));
        }
    }
    script.put(&shape.clone().on(&["three"]))?;
    script.meets("one is removed", &ways(), &[UDP], &["three"])?;
    for (flow, _) in &mut go {
        moves(script, "a flow of the endpoint that was removed", flow, "three");
    }
    script.last("one is removed", &mut stay);
    script.put(&shape.clone().on(&[]))?;
    script.put(&shape.on(&["two"]))?;
    for (flow, _) in go.iter_mut().chain(&mut stay) {
        moves(script, "a flow of the last endpoint", flow, "two");
    }
    Ok(())
}

/// A refused flow leaves no entry in connection tracking, so that its next datagram reaches the endpoint that came meanwhile.
pub(super) fn before_endpoints(script: &mut Script<'_>) -> anyhow::Result<()> {
    let shape = script.service();
    script.put(&shape.clone().on(&[]))?;
    let mut flows = Vec::new();
    for way in ways() {
        let (flow, first) = script.stay(way, UDP)?;
        script.check(
            format!("without endpoints {way} is refused"),
            first == Seen::Refused.to_string(),
            first,
        );
        flows.push((way, flow));
    }
    script.put(&shape.on(&["three"]))?;
    for (way, flow) in &mut flows {
        let seen = name(flow.ask());
        script.check(format!("the same flow is served when endpoints come: {way}"), seen == "three", seen);
    }
    Ok(())
}

/// A flow to a node port that began before there was a service: the kernel has an entry that says "not translated", which goes.
///
/// Cases: report-C4-50
pub(super) fn before_service(script: &mut Script<'_>) -> anyhow::Result<()> {
    let outside = IpFamily::ALL.map(|family| Way {
        from: Caller::Client("client"),
        place: Place::NodePort("worker"),
        family,
    });
    script.remove()?;
    let mut flows = Vec::new();
    for way in outside {
        let (flow, first) = script.stay(way, UDP)?;
        script.check(
            format!("before the service {way} finds a closed port"),
            first == Seen::Refused.to_string(),
            first,
        );
        flows.push(flow);
    }
    script.put(&script.service().on(&["three"]))?;
    script.meets("with the service", &outside, &[UDP], &["three"])?;
    for mut flow in flows {
        moves(script, "a flow from before the service", &mut flow, "three");
    }
    Ok(())
}

/// Shorter than the time after which a TCP client tries again (one second, RFC 6298): who is refused within it, is at the first attempt.
const FIRST_ATTEMPT: Duration = Duration::from_millis(900);
/// What the quicker half needs at most: there is nothing to wait for.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Refused at once: UDP by an ICMP error; TCP by a reset, since a client on the node heeds an ICMP error at its second attempt only.
pub(super) fn refusal(script: &mut Script<'_>) -> anyhow::Result<()> {
    script.put(&script.service().on(&[]))?;
    let resets = script.cast.variant.resets_tcp;
    let (at_once, slow): (Vec<Way>, Vec<Way>) = ways().into_iter().partition(|way| resets.has(way.from));
    if !slow.is_empty() {
        let all: Vec<_> = slow.into_iter().map(|way| (way, TCP)).collect();
        // Who learns of it at once is a matter of which processor was quicker.
        let mut late = false;
        for _ in 0..script.patience().tries() {
            let limit = script.patience().of(ANSWER);
            for ((way, _), (seen, took)) in all.iter().zip(script.calls(&all, limit)?) {
                script.check(format!("TCP is refused: {way}"), seen == Seen::Refused, seen);
                late |= took >= FIRST_ATTEMPT;
            }
            if late {
                break;
            }
        }
        let what = "gap: TCP is refused at the second attempt (if it always is at the first, remove the gap's declaration)";
        script.check(what, late, "all at the first");
    }
    for (port, ways) in [(TCP, at_once), (UDP, ways())].into_iter().filter(|(_, ways)| !ways.is_empty()) {
        let mut times = Vec::new();
        for way in ways {
            let (seen, took) = best(script, way, port)?;
            let what = format!("port {port} is refused at the first attempt: {way}");
            script.check(
                what,
                seen == Seen::Refused && took < FIRST_ATTEMPT,
                format!("{seen} after {took:?}"),
            );
            times.push(took);
        }
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied().unwrap_or_default();
        let soon = script.patience().of(AT_ONCE).min(FIRST_ATTEMPT);
        script.check(format!("port {port} is refused at once"), middle < soon, format!("{times:?}"));
    }
    Ok(())
}

/// The quickest of several calls, of which a slow machine gets more: that a refusal can come at the first attempt, one call shows.
fn best(script: &Script<'_>, way: Way, port: usize) -> anyhow::Result<(Seen, Duration)> {
    let limit = script.patience().of(ANSWER);
    let mut best = (Seen::TimedOut, Duration::MAX);
    for _ in 0..script.patience().tries() {
        for one in script.calls(&[(way, port)], limit)? {
            best = if one.1 < best.1 { one } else { best };
        }
        if best.1 < AT_ONCE {
            break;
        }
    }
    Ok(best)
}
