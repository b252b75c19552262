//! How IPVS knows what is an answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use proxier_core::ids::IpFamily;

use super::script::{LASTING, Script, Way};
use crate::matrix::observe::{ANSWER, silence};
use crate::matrix::plan;
use crate::matrix::row::{Caller, Place};
use crate::traffic::{Lasting, Seen};

/// Connections that may be lost by chance: one of so many, and a few in any case, since a short run has few.
const ONE_OF: u64 = 200;
const FEW: u64 = 3;

/// IPVS takes for an answer whatever comes from an endpoint's address and port to those of a client that it remembers, whoever else translated that connection.
/// So a node that reached an endpoint through the endpoint's node does not reach it by itself from the same port for as long as IPVS remembers, two
/// minutes. A node that masquerades takes ports at random, its own among them: some connections of the rows meet that.
pub(super) fn known_by_ports(script: &mut Script<'_>) -> anyhow::Result<()> {
    const CALLER: &str = "worker";
    const ENDPOINT: &str = "three";
    script.put(&script.service().on(&[ENDPOINT]))?;
    let topology = script.cast.stage.world.topology();
    let pod = topology.pods.iter().find(|p| p.name == ENDPOINT).context("no such pod")?;
    let (patient, short) = (script.patience().of(ANSWER), silence(script.cast));
    for family in IpFamily::ALL {
        let way = Way { from: Caller::Host(CALLER), place: Place::NodePort(pod.node), family };
        let (from, to) = script.ends(way, LASTING)?;
        let endpoint = SocketAddr::new(plan::of(pod.addresses, family), plan::LASTING);
        let other = script.ends(way, LASTING)?.0;
        // Kept open, so that it is remembered however slow the machine is.
        let (kept, through) = ask(CALLER, from, to, patient)?;
        let (_, direct) = ask(CALLER, from, endpoint, short)?;
        let (_, beside) = ask(CALLER, other, endpoint, patient)?;
        let answered = |seen: &Seen| matches!(seen, Seen::Answered { .. });
        script.check(format!("{way}: answered"), answered(&through), through);
        let what = "gap: the same port does not reach the endpoint by itself (if it does, remove the gap's declaration)";
        script.check(format!("{way}: {what}"), direct == Seen::TimedOut, direct);
        script.check(format!("{way}: another port does"), answered(&beside), beside);
        let after = kept.map_or(Seen::TimedOut, |mut kept| kept.ask());
        script.check(format!("{way}: still answered"), answered(&after), after);
    }
    let (made, lost) = script.cast.chance.counts();
    let what = format!("gap: no more than one connection of {ONE_OF} is lost by chance");
    script.check(what, lost <= FEW.max(made / ONE_OF), format!("{lost} of {made}"));
    Ok(())
}

/// A connection that lasts, if there is one, and what came back at first.
fn ask(
    namespace: &str,
    from: SocketAddr,
    to: SocketAddr,
    limit: Duration,
) -> anyhow::Result<(Option<Lasting>, Seen)> {
    Ok(match Lasting::tcp(namespace, Some(from), to, limit)? {
        Ok(mut connection) => {
            let seen = connection.ask();
            (Some(connection), seen)
        }
        Err(seen) => (None, seen),
    })
}
