//! Where packets go, against where they must.

use proxier_core::backend::{Backend, RenderInput, SetAside};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::{EndpointAddr, IpFamily};
use proxier_core::oracle::{Choice, Decision, Entry, Outcome, Packet, decide};
use proxier_core::snapshot::Snapshot;

use super::{Failure, Model, Subject, Tally};
use crate::build::{Dice, Scenario, host_of, packets, pool};
use crate::walk::{WalkHost, normalise};

/// The model after a full plan for this snapshot on an empty kernel.
///
/// # Errors
/// The model refuses the plan.
pub fn fresh<S: Subject>(subject: &S, snapshot: &Snapshot) -> Result<S::Model, Failure> {
    let backend = subject.backend(snapshot.family());
    let changes = ChangeSet::between(None, snapshot);
    let set_aside = SetAside::new();
    let input = RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside };
    let script = S::script(&backend.render(input));
    let text = script.entries.iter().fold(String::new(), |text, entry| text + &entry.text + "\n");
    let mut model = S::Model::default();
    model.apply(&text).map_err(|why| {
        Failure::new(subject, format!("{} fresh plan", snapshot.family()), format!("refused: {why}"))
    })?;
    Ok(model)
}

/// An outcome without what cannot be seen: a packet that comes in on an interface and is delivered to this host itself does
/// not pass the place where sources are replaced, so there its mark for it means nothing.
#[must_use]
pub fn observable(outcome: Outcome, packet: &Packet, host: &WalkHost) -> Outcome {
    let received = packet.entry != Entry::Host;
    normalise(match outcome {
        Outcome::Endpoints(choices) => {
            let seen = |c: Choice| Choice {
                masquerade: c.masquerade && !(received && host.is_local(c.endpoint.ip)),
                ..c
            };
            Outcome::Endpoints(choices.into_iter().map(seen).collect())
        }
        other => other,
    })
}

/// What must happen to a packet: the oracle's answer, or the gap that the subject declares. `recorded` is the endpoint that the
/// client went to before: with session affinity it goes there again, as long as the endpoint is among the choices (nftables
/// spec 8).
#[must_use]
pub fn expected<S: Subject>(
    subject: &S,
    snapshot: &Snapshot,
    packet: &Packet,
    decision: &Decision,
    recorded: Option<EndpointAddr>,
) -> Outcome {
    let gap = subject.gap(snapshot, packet, decision);
    let outcome = gap.map_or_else(|| decision.outcome.clone(), |g| g.outcome);
    match (outcome, recorded) {
        (Outcome::Endpoints(choices), Some(recorded)) if decision.affinity.is_some() => {
            let there: Vec<Choice> = choices.iter().filter(|c| c.endpoint == recorded).cloned().collect();
            Outcome::Endpoints(if there.is_empty() { choices } else { there })
        }
        (outcome, _) => outcome,
    }
}

/// One subject's rules for one snapshot, to be asked.
pub(super) struct Walker<'a, S: Subject> {
    pub(super) subject: &'a S,
    pub(super) model: S::Model,
    pub(super) snapshot: &'a Snapshot,
    host: WalkHost,
}

impl<'a, S: Subject> Walker<'a, S> {
    pub(super) fn new(subject: &'a S, model: S::Model, snapshot: &'a Snapshot) -> Self {
        Self { subject, model, snapshot, host: host_of(snapshot) }
    }

    /// Walks some packets; the first that goes where it must not.
    pub(super) fn all(&self, packets: &[Packet], tally: &mut Tally) -> Result<(), String> {
        for (number, packet) in packets.iter().enumerate() {
            let decision = decide(self.snapshot, packet);
            self.one(packet, &decision, None, tally)?;
            self.recorded(number, packet, &decision, tally)?;
        }
        Ok(())
    }

    /// Walks one packet; tells what differs.
    pub(super) fn one(
        &self,
        packet: &Packet,
        decision: &Decision,
        recorded: Option<EndpointAddr>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let want = expected(self.subject, self.snapshot, packet, decision, recorded);
        self.ends(packet, want, tally)
            .map_err(|e| format!("{e}\n{decision}\n  client was at {recorded:?}"))?;
        tally.gaps += usize::from(self.subject.gap(self.snapshot, packet, decision).is_some());
        tally.recorded += usize::from(recorded.is_some());
        Ok(())
    }

    /// Walks one packet, which must end so.
    pub(super) fn ends(&self, packet: &Packet, want: Outcome, tally: &mut Tally) -> Result<(), String> {
        let want = observable(want, packet, &self.host);
        let walk = self.model.walk(packet, &self.host).map_err(|e| format!("{packet:?}: {e}"))?;
        let found = walk.outcome().map(|o| observable(o, packet, &self.host));
        if found.as_ref() == Ok(&want) {
            tally.count(&want);
            return Ok(());
        }
        let found = found.map_or_else(|e| e.to_string(), |o| o.to_string());
        let ways: Vec<String> = walk
            .branches
            .iter()
            .map(|b| format!("{:?}\n    {}", b.outcome, b.trace.join("\n    ")))
            .collect();
        Err(format!("{packet:?}\n  walked: {found}\n  wanted: {want}\n  {}", ways.join("\n  ")))
    }

    /// A client of a service with affinity that was here before: an endpoint is recorded for it, which the packet may reach
    /// or not; for another client nothing is.
    fn recorded(
        &self,
        number: usize,
        packet: &Packet,
        decision: &Decision,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let (Some((_, name)), Some(_)) = (&decision.frontend, decision.affinity) else { return Ok(()) };
        let Some(port) = self.snapshot.port(name) else { return Ok(()) };
        let reachable: Vec<EndpointAddr> = port.reachable_endpoints().map(|e| e.addr).collect();
        let Some(endpoint) = reachable.get(number % reachable.len().max(1)) else { return Ok(()) };
        let mut model = self.model.clone();
        let record = self.subject.affinity_record(name, *endpoint);
        match (model.remember(&record, packet.source), &decision.outcome) {
            (Ok(()), _) => {}
            // Where nothing leads to an endpoint, since another Service has the frontend, nothing need remember its clients.
            (Err(_), Outcome::Endpoints(c)) if c.iter().all(|c| c.endpoint != *endpoint) => return Ok(()),
            (Err(why), _) => return Err(why),
        }
        let before = Self { model, host: self.host.clone(), ..*self };
        before.one(packet, decision, Some(*endpoint), tally)?;
        let other = Packet { source: pool::outside(self.snapshot.family(), 250), ..packet.clone() };
        before.one(&other, &decide(self.snapshot, &other), None, tally)
    }
}

fn walk_family<S: Subject>(
    subject: &S,
    scenario: &Scenario,
    family: IpFamily,
    seed: u64,
    count: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let commit = scenario.cluster().commit();
    let snapshot = commit.snapshot(family);
    let model = fresh(subject, snapshot).map_err(|e| e.to_string())?;
    let questions = packets(&mut Dice::new(seed), snapshot, count);
    Walker::new(subject, model, snapshot).all(&questions, tally)
}

/// `count` random packets, from a seed, in each family of one cluster: the walk ends as the oracle says. For the clusters of
/// [`strategy::scenarios`](crate::build::strategy::scenarios).
///
/// # Errors
/// The first packet that ends otherwise, with both answers and the way it went.
pub fn walk_scenario<S: Subject>(
    subject: &S,
    scenario: &Scenario,
    seed: u64,
    count: usize,
) -> Result<Tally, Failure> {
    let mut tally = Tally { clusters: 1, ..Tally::default() };
    for family in IpFamily::ALL {
        walk_family(subject, scenario, family, seed, count, &mut tally)
            .map_err(|what| Failure::new(subject, format!("{family}, packets {seed}"), what))?;
    }
    Ok(tally)
}

/// For the random cluster of each seed, `count` random packets in each family: the walk ends as the oracle says.
///
/// # Errors
/// The smallest cluster found for which it does not, with the packet, both answers and the way it went.
pub fn walks_as_decided<S: Subject>(
    subject: &S,
    seeds: impl IntoIterator<Item = u64>,
    count: usize,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for seed in seeds {
        let scenario = Scenario::from_seed(seed);
        tally.clusters += 1;
        for family in IpFamily::ALL {
            let Err(what) = walk_family(subject, &scenario, family, seed, count, &mut tally) else {
                continue;
            };
            let (scenario, what) = minimise(subject, scenario, family, seed, count, what);
            let place = format!("{family}, seed {seed}");
            return Err(Failure::new(subject, place, format!("{what}\nin {scenario:#?}")));
        }
    }
    Ok(tally)
}

/// Leaves out what can be left out while some packet still goes wrong.
fn minimise<S: Subject>(
    subject: &S,
    mut scenario: Scenario,
    family: IpFamily,
    seed: u64,
    count: usize,
    mut what: String,
) -> (Scenario, String) {
    let fails = |s: &Scenario| walk_family(subject, s, family, seed, count * 4, &mut Tally::default()).err();
    loop {
        let smaller = scenario.smaller().find_map(|s| fails(&s).map(|why| (s, why)));
        let Some(found) = smaller else { return (scenario, what) };
        (scenario, what) = found;
    }
}
