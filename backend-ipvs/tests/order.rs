//! Objects change one by one, and packets pass in between: after every operation of every plan each packet is treated as before, as after,
//! or is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

mod kit;

use std::collections::BTreeSet;

use backend_ipvs::belief::Belief;
use backend_ipvs::ops::{Action, Op};
use backend_ipvs::options::Options;
use backend_ipvs::plan::Plan;
use backend_ipvs::takeover;
use proxier_core::ids::{EndpointAddr, IpFamily};
use proxier_core::oracle::{Entry, Outcome, Packet};
use proxier_core::snapshot::Snapshot;
use proxier_testkit::build::{Dice, History, host_of, packets};
use proxier_testkit::ipvs::Host;
use proxier_testkit::walk::{BranchOutcome, Delivery, WalkError};

/// Random histories, each in both families.
const HISTORIES: u64 = 30;
/// Random packets for each commit: half of them for what was, half for what will be.
const PACKETS: usize = 40;

/// What may become of a packet, in a form that can be compared: nothing of how often.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    To(BTreeSet<(EndpointAddr, bool)>),
    Refused,
    /// As it is: to a process of this host, or out.
    Untouched(Delivery),
}

/// The packet as this host sends it: with the destination as its source while that is local, with its own address otherwise.
fn as_sent(host: &Host, snapshot: &Snapshot, packet: &Packet) -> Packet {
    let mut packet = packet.clone();
    let node = &snapshot.context().node;
    let local = |ip| host.addresses().contains(&ip) || node.host_addresses.contains(&ip);
    if packet.entry == Entry::Host && packet.source == packet.destination && !local(packet.source) {
        let own = node
            .host_addresses
            .iter()
            .find(|ip| IpFamily::of(**ip) == snapshot.family() && !ip.is_loopback());
        packet.source = *own.unwrap();
    }
    packet
}

/// An address of `kube-ipvs0` is nobody else's source, and this host's only where it is the destination.
fn is_possible(packet: &Packet, hosts: [&Host; 2]) -> bool {
    let bound = hosts.iter().any(|h| h.addresses().contains(&packet.source));
    !bound || (packet.entry == Entry::Host && packet.source == packet.destination)
}

fn fate(host: &Host, snapshot: &Snapshot, packet: &Packet) -> Fate {
    let packet = &as_sent(host, snapshot, packet);
    let walk = host.walk(packet, &host_of(snapshot)).unwrap();
    match walk.outcome() {
        Ok(Outcome::Endpoints(choices)) => {
            Fate::To(choices.iter().map(|c| (c.endpoint, c.masquerade)).collect())
        }
        Ok(Outcome::Reject | Outcome::Drop) => Fate::Refused,
        // It leaves for an address that is not local yet, or not any more, with the source that it would have got anyway.
        Ok(Outcome::NotOurs) | Err(WalkError::MasqueradedOnly) => match walk.branches[0].outcome {
            BranchOutcome::Accepted { delivery, .. } => Fate::Untouched(delivery),
            _ => panic!("{packet:?}: {walk:?}"),
        },
        Err(other) => panic!("{packet:?}: {other}"),
    }
}

/// Endpoints are those of before or after. An endpoint is masqueraded as it was, as it will be, or as others were or will be: an endpoint that
/// comes may be treated by the policy of before, one that goes by that of after. Never is a source kept towards an endpoint that had, and will
/// have, a masqueraded one: its reply would be lost. What goes through untouched did before, or will.
fn allowed(now: &Fate, ends: &[Fate], same: bool) -> bool {
    let choices =
        ends.iter().filter_map(|fate| if let Fate::To(choices) = fate { Some(choices) } else { None });
    let known: BTreeSet<(EndpointAddr, bool)> = choices.flatten().copied().collect();
    // Where the environment changes, or the frontend gets to be another Service's that nobody serves, that decides already.
    let refused = ends.last() == Some(&Fate::Refused);
    let masquerades = !same || refused || known.iter().any(|(_, masqueraded)| *masqueraded);
    let reached = |e: &EndpointAddr| known.iter().any(|(endpoint, _)| endpoint == e);
    match now {
        Fate::Refused => true,
        Fate::Untouched(_) => ends.contains(now),
        Fate::To(all) => all.iter().all(|(endpoint, masqueraded)| {
            let exactly = known.contains(&(*endpoint, *masqueraded));
            exactly || (reached(endpoint) && (!same || (*masqueraded && masquerades)))
        }),
    }
}

/// What changes as one: each operation, but of rules each table.
fn atoms(family: IpFamily, actions: &[Action]) -> Vec<String> {
    let mut out = Vec::new();
    for action in actions {
        let text = kit::text_of(family, [action]);
        if let Op::Rules(_) = action.op {
            let (head, body) = text.split_once('\n').unwrap();
            let tables = body.split_inclusive("COMMIT\n");
            out.extend(tables.map(|table| format!("{head}\n{table}")));
        } else {
            out.push(text);
        }
    }
    out
}

fn actions(plan: &Plan) -> Vec<Action> {
    plan.steps().iter().flat_map(|s| s.actions.clone()).collect()
}

/// Follows packets through a plan; the host afterwards, and how many states were looked at.
fn watch(
    host: &Host,
    atoms: &[String],
    questions: &[Packet],
    old: &Snapshot,
    new: &Snapshot,
) -> Result<Host, String> {
    let mut after = host.clone();
    for atom in atoms {
        after.apply(atom).map_err(|e| e.to_string())?;
    }
    // An address of an interface is not the plan's to change: as far as packets go, it has.
    let same = old.context() == new.context();
    let wide = if same { old } else { new };
    let mut now = host.clone();
    let mut ends = vec![host.clone()];
    if !same {
        // Another environment is in force before any service changes.
        for atom in atoms.iter().take_while(|a| a.contains("COMMIT\n")) {
            now.apply(atom).map_err(|e| e.to_string())?;
        }
        ends.push(std::mem::replace(&mut now, host.clone()));
    }
    ends.push(after);
    let questions: Vec<&Packet> =
        questions.iter().filter(|p| is_possible(p, [host, &ends[ends.len() - 1]])).collect();
    let fates: Vec<Vec<Fate>> =
        questions.iter().map(|p| ends.iter().map(|host| fate(host, wide, p)).collect()).collect();
    for (at, atom) in atoms.iter().enumerate() {
        now.apply(atom).map_err(|e| e.to_string())?;
        for (packet, ends) in questions.iter().zip(&fates) {
            let fate = fate(&now, wide, packet);
            if !allowed(&fate, ends, same) {
                let done = atoms[..=at].join("");
                let rest = atoms[at + 1..].join("");
                return Err(format!("{packet:?}\nnow {fate:?}\nof  {ends:?}\n{done}-- here --\n{rest}"));
            }
        }
    }
    Ok(now)
}

/// Another order than the plan's.
type Twist = fn(Vec<String>) -> Vec<String>;

struct Follower {
    twist: Twist,
    family: IpFamily,
    host: Host,
    held: Option<(Belief, Snapshot)>,
    states: usize,
}

impl Follower {
    fn step(&mut self, snapshot: &Snapshot, seed: u64, restart: bool, busy: bool) -> Result<(), String> {
        let plan = if restart {
            let plan = kit::planned(snapshot, &Options::default(), None);
            takeover::take_over(plan, &kit::observe(&self.host, self.family))
        } else {
            kit::planned(snapshot, &Options::default(), self.held.as_ref())
        };
        let atoms = (self.twist)(atoms(self.family, &actions(&plan)));
        let old = self.held.as_ref().map_or(snapshot, |(_, old)| old);
        let mut dice = Dice::new(seed);
        let mut questions = packets(&mut dice, old, PACKETS / 2);
        questions.extend(packets(&mut dice, snapshot, PACKETS / 2));
        self.states += atoms.len();
        self.host = watch(&self.host, &atoms, &questions, old, snapshot)?;
        let mut belief = plan.next().clone();
        if !busy {
            kit::drained(&mut self.host, &mut belief);
        }
        self.held = Some((belief, snapshot.clone()));
        Ok(())
    }
}

fn follow(seeds: std::ops::Range<u64>, restarts: bool) -> usize {
    followed(seeds, restarts, |atoms| atoms).unwrap_or_else(|e| panic!("{e}"))
}

fn followed(seeds: std::ops::Range<u64>, restarts: bool, twist: Twist) -> Result<usize, String> {
    let mut states = 0;
    for seed in seeds {
        let history = History::from_seed(seed);
        for family in IpFamily::ALL {
            let mut follower = Follower { twist, family, host: Host::default(), held: None, states: 0 };
            let mut dice = Dice::new(seed);
            history.play(|number, commit| {
                let restart = restarts && dice.one_in(2);
                let snapshot = commit.snapshot(family);
                follower
                    .step(snapshot, seed * 1000 + number as u64, restart, seed % 2 == 1)
                    .map_err(|e| format!("{family}, seed {seed}, commit {number}: {e}"))
            })?;
            states += follower.states;
        }
    }
    Ok(states)
}

#[test]
fn after_every_operation_of_a_change() {
    let states = follow(0..HISTORIES, false);
    assert!(states > 3_000, "{states}");
}

#[test]
fn after_every_operation_of_a_new_process() {
    let states = follow(1000..1000 + HISTORIES, true);
    assert!(states > 3_000, "{states}");
}

/// Moves the lines that contain this to the end, or to the front.
fn moved(atoms: Vec<String>, what: &str, to_front: bool) -> Vec<String> {
    let (mut some, mut others): (Vec<_>, Vec<_>) = atoms.into_iter().partition(|a| a.contains(what));
    if to_front {
        some.append(&mut others);
        return some;
    }
    others.append(&mut some);
    others
}

/// Each of these orders is a mistake that packets notice.
#[test]
fn a_wrong_order_is_seen() {
    let twists: [(&str, Twist); 10] = [
        ("addresses before virtual servers", |a| moved(a, "address add", true)),
        ("addresses before what guards this host", |a| moved(a, "add KUBE-IPVS-IPS", false)),
        ("virtual servers go before addresses", |a| moved(a, "address del", false)),
        ("source ranges behind real servers", |a| moved(a, "LOAD-BALANCER-FW", false)),
        ("refusals behind real servers", |a| moved(a, "add KUBE-IPVS-DROP-OUTSIDE", false)),
        ("refusals end first", |a| moved(a, "del KUBE-IPVS-DROP-OUTSIDE", true)),
        ("marks behind real servers", |a| moved(a, "add KUBE-CLUSTER-IP", false)),
        ("sources are kept first", |a| moved(a, "add KUBE-LOAD-BALANCER-LOCAL", true)),
        ("rules at the end", |a| moved(a, "COMMIT", false)),
        ("the guard ends first", |a| a.into_iter().filter(|l| !l.contains("KUBE-IPVS-REJECT")).collect()),
    ];
    for (what, twist) in twists {
        assert!(followed(0..60, false, twist).is_err(), "{what}");
    }
}
