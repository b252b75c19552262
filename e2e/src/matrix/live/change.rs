//! Changes of endpoints, policies, ranges and whole services. Established connections survive all of them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context;
use proxier_core::ids::IpFamily;
use proxier_core::model::TrafficPolicy::Local;

use super::script::{Calls, LASTING, Script, TCP, UDP, ways};
use crate::matrix::row::{Caller, Place};
use crate::matrix::shape::EndpointShape;
use crate::virtual_servers;

const BOTH: [&str; 2] = ["one", "three"];

/// Cases: nftables-12.42
pub(super) fn drained_then_removed(script: &mut Script<'_>) -> anyhow::Result<()> {
    let shape = script.service();
    script.put(&shape.clone().on(&BOTH))?;
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, LASTING, &BOTH)?);
    }
    script.last("before", &mut kept);
    let draining = [EndpointShape::draining("one"), EndpointShape::ready("three")];
    for (when, shape) in
        [("one drains", shape.clone().endpoints(draining)), ("one is removed", shape.clone().on(&["three"]))]
    {
        script.put(&shape)?;
        script.meets(when, &ways(), &[TCP, UDP], &["three"])?;
        script.last(when, &mut kept);
    }
    script.put(&shape.on(&BOTH))?;
    script.meets("one is back", &ways(), &[TCP, UDP], &BOTH)?;
    script.last("one is back", &mut kept);
    Ok(())
}

pub(super) fn replaced(script: &mut Script<'_>) -> anyhow::Result<()> {
    let shape = script.service();
    script.put(&shape.clone().on(&["one"]))?;
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, LASTING, &["one"])?);
    }
    for (when, pod) in [("replaced on another worker", "three"), ("replaced again", "two")] {
        script.put(&shape.clone().on(&[pod]))?;
        script.meets(when, &ways(), &[TCP, UDP], &[pod])?;
        script.last(when, &mut kept);
    }
    script.put(&shape.on(&["two", "four"]))?;
    script.meets("one more is added", &ways(), &[TCP, UDP], &["four", "two"])
}

/// Cases: nftables-12.6, nftables-12.42
pub(super) fn scaled_to_zero(script: &mut Script<'_>) -> anyhow::Result<()> {
    let shape = script.service();
    script.put(&shape.clone().on(&["one"]))?;
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, LASTING, &["one"])?);
    }
    script.put(&shape.clone().on(&[]))?;
    script.is_refused("without endpoints", &ways(), &[TCP, UDP])?;
    script.last("without endpoints", &mut kept);
    script.put(&shape.on(&["three"]))?;
    script.meets("with endpoints again", &ways(), &[TCP, UDP], &["three"])
}

/// Cases: nftables-12.14, nftables-12.42
pub(super) fn service_removed(script: &mut Script<'_>) -> anyhow::Result<()> {
    let shape = script.service().on(&BOTH);
    script.put(&shape)?;
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, LASTING, &BOTH)?);
    }
    script.remove()?;
    let of = |wanted: fn(Place) -> bool| ways().into_iter().filter(|w| wanted(w.place)).collect::<Vec<_>>();
    script.is_silent("removed", &of(|p| p == Place::ClusterIp), &[TCP, UDP])?;
    script.is_refused("removed, a closed port", &of(|p| matches!(p, Place::NodePort(_))), &[TCP, UDP])?;
    script.last_but_for_the_gap("removed", &mut kept);
    script.put(&shape)?;
    script.meets("there again", &ways(), &[TCP, UDP], &BOTH)
}

pub(super) fn policy_changed(script: &mut Script<'_>) -> anyhow::Result<()> {
    let mut shape = script.service().on(&["three"]);
    script.put(&shape)?;
    let outside: Vec<_> = ways().into_iter().filter(|w| w.place != Place::ClusterIp).collect();
    let inside: Vec<_> = ways().into_iter().filter(|w| w.place == Place::ClusterIp).collect();
    let mut kept = Vec::new();
    for way in ways() {
        kept.extend(script.stay_with(way, LASTING, &["three"])?);
    }
    shape.external = Local;
    script.put(&shape)?;
    script.meets("external policy Local", &inside, &[TCP, UDP], &["three"])?;
    script.is_silent("external policy Local", &outside, &[TCP, UDP])?;
    script.last("external policy Local", &mut kept);
    shape = shape.on(&["one", "three"]);
    script.put(&shape)?;
    script.meets("an endpoint there", &outside, &[TCP, UDP], &["one"])?;
    shape.internal = Local;
    script.put(&shape)?;
    for way in &inside {
        let own = if way.from == Caller::Host("worker2") { "three" } else { "one" };
        script.meets("internal policy Local", &[*way], &[TCP, UDP], &[own])?;
    }
    script.last("both policies Local", &mut kept);
    Ok(())
}

pub(super) fn ranges_changed(script: &mut Script<'_>) -> anyhow::Result<()> {
    let mut shape = script.service().on(&BOTH);
    script.put(&shape)?;
    let vip: Vec<_> = ways().into_iter().filter(|w| w.place == Place::Vip).collect();
    let mut kept = Vec::new();
    for way in &vip {
        kept.extend(script.stay_with(*way, LASTING, &BOTH)?);
    }
    shape.ranges = vec!["172.30.0.6/32", "fd00:30::6/128"];
    script.put(&shape)?;
    script.is_silent("out of the ranges", &vip, &[TCP, UDP])?;
    script.last_but_for_the_gap("out of the ranges", &mut kept);
    shape.ranges.extend(["172.30.0.5/32", "fd00:30::5/128"]);
    script.put(&shape)?;
    script.meets("in the ranges again", &vip, &[TCP, UDP], &BOTH)
}

/// How long endpoints are replaced at least, and how often.
const CHURN: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_millis(50);

/// While endpoints come and go, every new connection is answered by one of them.
pub(super) fn churn(script: &mut Script<'_>) -> anyhow::Result<()> {
    let states: [&[&str]; 6] =
        [&["one", "three"], &["two", "three"], &["two"], &["two", "four"], &["one", "four"], &["one"]];
    let shape = script.service();
    script.put(&shape.clone().on(states[0]))?;
    let calling: &Script<'_> = script;
    let mut changes = 0;
    let results = calling.under_calls(|calls| {
        let begun = Instant::now();
        let longest = calling.patience().of(CHURN);
        for state in states.iter().cycle() {
            if begun.elapsed() > longest || begun.elapsed() > CHURN && calls.are_enough() {
                break;
            }
            calling.put_only(&shape.clone().on(state))?;
            changes += 1;
            std::thread::sleep(BEAT);
        }
        Ok(())
    })?;
    for (way, met) in results {
        let all: usize = met.values().sum();
        let good = ["one", "two", "three", "four"].iter().filter_map(|s| met.get(*s)).sum::<usize>();
        let busy = met.len() > 1 && all >= Calls::ENOUGH;
        script.check(
            format!("in {changes} changes every connection is answered: {way}"),
            busy && good == all,
            format!("{met:?}"),
        );
    }
    let families = ways().iter().filter(|w| w.family == IpFamily::Ipv6).count();
    script.check("both families took part", families * 2 == ways().len(), families);
    script.put(&shape.on(&["three"]))?;
    script.meets("at rest", &ways(), &[TCP, UDP], &["three"])
}

/// With IPVS a node has every external IP as its own address. Where that is another node's, the way to that node is lost, and comes back with the
/// service's end.
pub(super) fn external_ip_of_a_node(script: &mut Script<'_>) -> anyhow::Result<()> {
    let topology = script.cast.stage.world.topology();
    let address = topology.node("worker").context("no worker")?.addresses.v4;
    let mut shape = script.service().on(&["three"]);
    shape.external_at = Some("worker");
    script.put_only(&shape)?;
    for (node, wanted) in [("worker2", true), ("worker", false)] {
        let seen = binds(script, node, address, wanted)?;
        script.check(
            format!("gap: {node} has {address} on kube-ipvs0, unless it is its own: {wanted}"),
            seen == wanted,
            seen,
        );
    }
    script.put_only(&script.service().on(&["three"]))?;
    let seen = binds(script, "worker2", address, false)?;
    script.check("the address goes with the service", !seen, seen);
    script.put(&script.service().on(&BOTH))?;
    script.meets("the way is there again", &ways(), &[TCP, UDP], &BOTH)
}

/// Is the address on the node's `kube-ipvs0`? Waits for what is wanted.
fn binds(script: &Script<'_>, node: &str, address: Ipv4Addr, wanted: bool) -> anyhow::Result<bool> {
    let begun = Instant::now();
    loop {
        let seen = virtual_servers::device(node)?.contains(&format!("{address}/32"));
        if seen == wanted || begun.elapsed() > script.patience().of(Duration::from_secs(5)) {
            return Ok(seen);
        }
        std::thread::sleep(BEAT);
    }
}
