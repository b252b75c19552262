//! Real servers on their way out: the kernel's list of them is followed while connections live on, end, or run into the cap.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use proxier_core::ids::IpFamily;
use serde_json::Value;

use super::script::{LASTING, Script, TCP, Way, name};
use crate::matrix::plan;
use crate::matrix::row::{Caller, Place};
use crate::traffic::Lasting;
use crate::virtual_servers;

const BOTH: [&str; 2] = ["one", "three"];
/// Where the callers are, and the virtual servers they use.
const NODE: &str = "worker";
/// Longer than the agent takes from one look at those that drain to the next (ten seconds).
const ONE_LOOK: Duration = Duration::from_secs(12);
/// How long a real server without connections may stay: two looks, and the ten seconds for which IPVS remembers a connection after a reset.
const GONE: Duration = Duration::from_secs(35);

fn ways() -> [Way; 2] {
    IpFamily::ALL.map(|family| Way { from: Caller::Pod(plan::CALLER), place: Place::ClusterIp, family })
}

/// Connections that last, one on each way.
type Kept = Vec<(Lasting, String)>;

/// An endpoint goes. Its connections live on, and with them its real server, of weight 0; once they have ended, it goes. Connections to the other one
/// notice nothing.
pub(super) fn ends_with_connections(script: &mut Script<'_>) -> anyhow::Result<()> {
    let (mut leaving, mut staying) = begun(script)?;
    script.put(&script.service().on(&["three"]))?;
    drains(script, "one is removed", &mut leaving, &mut staying)?;
    std::thread::sleep(ONE_LOOK);
    drains(script, "after some looks", &mut leaving, &mut staying)?;
    leaving.into_iter().try_for_each(|(connection, _)| connection.reset())?;
    are_gone(script, "its connections have ended")?;
    script.last("the other one's", &mut staying);
    script.meets("one has gone", &ways(), &[TCP], &["three"])
}

/// The agent is started anew in the middle of a drain, which goes on: its state is the kernel's. Started with a short cap, the drain ends, and the
/// connections with it.
pub(super) fn goes_on_after_a_restart(script: &mut Script<'_>) -> anyhow::Result<()> {
    let (mut leaving, mut staying) = begun(script)?;
    let left = script.service().on(&["three"]);
    script.put(&left)?;
    drains(script, "one is removed", &mut leaving, &mut staying)?;
    script.cast.stop();
    drains(script, "no agent runs", &mut leaving, &mut staying)?;
    script.cast.start()?;
    script.put(&left)?;
    drains(script, "agents run again", &mut leaving, &mut staying)?;
    std::thread::sleep(ONE_LOOK);
    drains(script, "after some looks", &mut leaving, &mut staying)?;

    script.cast.stop();
    script.cast.set_option("drainTimeout", "1s".into())?;
    script.cast.start()?;
    script.put(&left)?;
    are_gone(script, "the cap is reached")?;
    for (connection, server) in &mut leaving {
        let seen = name(connection.ask());
        script.check(format!("a connection to {server} ends with the cap"), seen != *server, seen);
    }
    script.last("the other one's", &mut staying);
    script.meets("one has gone", &ways(), &[TCP], &["three"])?;
    script.cast.stop();
    script.cast.set_option("drainTimeout", Value::Null)?;
    script.cast.start()?;
    script.put(&script.service().on(&BOTH))
}

/// Connections on every way to each of both, those to `one` apart.
fn begun(script: &Script<'_>) -> anyhow::Result<(Kept, Kept)> {
    script.put(&script.service().on(&BOTH))?;
    let mut all = Vec::new();
    for way in ways() {
        all.extend(script.stay_with(way, LASTING, &BOTH)?);
    }
    Ok(all.into_iter().partition(|(_, server)| server == "one"))
}

/// Checks that one real server has weight 0 and the other one takes part, that all connections live, and that new ones meet the other one.
fn drains(script: &mut Script<'_>, when: &str, leaving: &mut Kept, staying: &mut Kept) -> anyhow::Result<()> {
    for way in ways() {
        for (pod, wanted) in [("one", Some(0)), ("three", Some(1))] {
            let seen = until(script, way, pod, |seen| seen == wanted)?;
            let what = format!("{when}: the real server {pod} has weight {wanted:?}: {way}");
            script.check(what, seen == wanted, format!("{seen:?}"));
        }
    }
    script.last(when, leaving);
    script.last(when, staying);
    script.meets(when, &ways(), &[TCP], &["three"])
}

fn are_gone(script: &mut Script<'_>, when: &str) -> anyhow::Result<()> {
    for way in ways() {
        let seen = until(script, way, "one", |seen| seen.is_none())?;
        script.check(
            format!("{when}: the real server one is gone: {way}"),
            seen.is_none(),
            format!("{seen:?}"),
        );
    }
    Ok(())
}

/// The weight of a real server, once it is as wanted or the time is up. A listing may lack some while other nodes' are written.
fn until(
    script: &Script<'_>,
    way: Way,
    pod: &str,
    wanted: impl Fn(Option<u32>) -> bool,
) -> anyhow::Result<Option<u32>> {
    let begun = Instant::now();
    let limit = GONE + script.patience().of(Duration::from_secs(2));
    let (_, server) = script.ends(way, LASTING)?;
    let topology = script.cast.stage.world.topology();
    let pod = topology.pods.iter().find(|p| p.name == pod).with_context(|| format!("no pod {pod}"))?;
    let real = SocketAddr::new(plan::of(pod.addresses, way.family), plan::LASTING);
    loop {
        let seen = weight(&virtual_servers::saved(NODE)?, server, real);
        if wanted(seen) || begun.elapsed() > limit {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A real server's weight in what `ipvsadm -Sn` prints.
fn weight(saved: &str, server: SocketAddr, real: SocketAddr) -> Option<u32> {
    let head = format!("-a -t {server} -r {real} ");
    let words = saved.lines().find_map(|line| line.strip_prefix(&head))?;
    words.rsplit(' ').find(|word| !word.is_empty())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_that_of_the_real_server_of_the_virtual_server() {
        let saved = "-A -t 10.96.1.7:90 -s rr\n-a -t 10.96.1.7:90 -r 10.244.1.11:9090 -m -w 0\n\
                     -a -t [fd00:10:96::107]:90 -r [fd00:10:244:1::b]:9090 -m -w 1\n";
        let of = |server: &str, real: &str| weight(saved, server.parse().unwrap(), real.parse().unwrap());
        assert_eq!(of("10.96.1.7:90", "10.244.1.11:9090"), Some(0));
        assert_eq!(of("[fd00:10:96::107]:90", "[fd00:10:244:1::b]:9090"), Some(1));
        assert_eq!(of("10.96.1.7:90", "10.244.1.11:909"), None);
        assert_eq!(of("10.96.1.8:90", "10.244.1.11:9090"), None);
    }
}
