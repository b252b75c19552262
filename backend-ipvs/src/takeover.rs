//! From what must be there to the differences from what is there.
//!
//! After a restart, after somebody changed our objects, or where a kube-proxy ran until now, most of it is right. It stays as it is, with its
//! connections, what persistence remembers, and real servers that drain. What is ours and not wanted is removed.
//!
//! Whose a virtual server is, IPVS does not tell. Ours is one whose address `kube-ipvs0` has or should have, or that our sets name. Of a
//! kube-proxy's, one at an address of this node and a node port that its sets name, too. Everything else is somebody else's and is left alone,
//! as is what `excludeCIDRs` name.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proxier_core::ids::{Protocol, ServiceName, ServicePortName};

use crate::belief::{Belief, Desired};
use crate::drain::Drains;
use crate::edits::{Addresses, Edits, Entries, Held, Members, ServiceEdit, Standing, address};
use crate::environment::Environment;
use crate::objects::{DRAINING, ServiceKey, WEIGHT};
use crate::observed::{Observed, SeenReal, SeenService};
use crate::ops::Op;
use crate::order::{Phase, Sequence, Step};
use crate::plan::Plan;
use crate::render::in_order;
use crate::sets::{Entry, SetId};
use crate::skeleton;

/// A full plan as the differences from what was found.
#[must_use]
pub fn take_over(plan: Plan, seen: &Observed) -> Plan {
    let desired = plan.next.desired();
    take_over_to(plan, &desired, seen)
}

/// The same, for whoever knows already what the plan says should be there.
pub(crate) fn take_over_to(plan: Plan, desired: &Desired, seen: &Observed) -> Plan {
    let found = differences(&plan.next, desired, seen, &plan.first);
    let mut next = plan.next;
    next.drains = found.drains;
    Plan { full: false, steps: found.steps.into(), next, ..plan }
}

/// Is this virtual server one of ours? A wanted one is, too, but that is for the caller to say.
#[must_use]
pub fn is_ours(key: &ServiceKey, env: &Environment, seen: &Observed) -> bool {
    let frontend = Entry::IpPort(key.ip, key.protocol, key.port);
    let named = |id: &SetId| seen.has(*id, &frontend);
    let frontends = [
        SetId::Servers,
        SetId::ClusterIp,
        SetId::ExternalIp,
        SetId::ExternalIpLocal,
        SetId::LoadBalancer,
        SetId::NodePortSctp,
        SetId::Reject,
        SetId::Drop,
        SetId::DropOutside,
    ];
    let bitmap = match key.protocol {
        Protocol::Tcp => Some(SetId::NodePortTcp),
        Protocol::Udp => Some(SetId::NodePortUdp),
        Protocol::Sctp => None,
    };
    let node = || env.is_host(key.ip) && bitmap.is_some_and(|id| seen.has(id, &Entry::Port(key.port)));
    let bound = seen.bound.contains(&key.ip) || seen.has(SetId::IpvsIps, &Entry::Ip(key.ip));
    bound || frontends.iter().any(named) || node()
}

/// Is it protected by `excludeCIDRs`?
#[must_use]
pub fn is_excluded(key: &ServiceKey, env: &Environment) -> bool {
    env.excluded.iter().any(|range| range.contains(&key.ip))
}

/// What was found to be done.
pub(crate) struct Differences {
    pub(crate) steps: Vec<Step>,
    pub(crate) drains: Drains,
}

/// Entries as they were found, and as they must be.
struct Found<'a> {
    seen: &'a Observed,
    desired: &'a Desired,
}

impl Members for Found<'_> {
    fn stays(&self, id: SetId, entry: &Entry) -> bool {
        self.desired.entries.contains_key(&(id, *entry))
    }

    fn is_there(&self, id: SetId, entry: &Entry) -> bool {
        self.seen.has(id, entry)
    }
}

/// What takes the kernel from what was found to what is wanted.
pub(crate) fn differences(
    next: &Belief,
    desired: &Desired,
    seen: &Observed,
    first: &[ServiceName],
) -> Differences {
    let mut out = Sequence::new(in_order(next.ports.keys(), first));
    for id in SetId::ALL.into_iter().filter(|id| !seen.sets.contains_key(id)) {
        out.add(Phase::Containers, Op::CreateSet(id), None);
    }
    if !seen.device {
        out.add(Phase::Containers, Op::CreateDevice, None);
    }
    let mut waiting = Drains::default();
    let edits = Edits {
        services: services(next, seen, desired),
        added: missing(seen, desired),
        removed: extra(seen, desired),
        bound: bound(seen, desired),
        unbound: unbound(seen, desired),
    };
    edits.write(&Found { seen, desired }, &mut waiting, &mut out);
    rules(next, seen, &mut out);
    Differences { steps: out.into_steps(), drains: waiting }
}

fn services(next: &Belief, seen: &Observed, desired: &Desired) -> BTreeMap<ServiceKey, ServiceEdit> {
    let wanted = desired.services.iter().map(|(key, wanted)| {
        let held = seen.services.get(key).map(|s| held(s, Some(&wanted.1)));
        (*key, ServiceEdit { held, wanted: Some(wanted.clone()) })
    });
    let unwanted = seen.services.iter().filter(|(key, _)| {
        let ours = is_ours(key, &next.env, seen) && !is_excluded(key, &next.env);
        ours && !desired.services.contains_key(*key)
    });
    let unwanted = unwanted.map(|(key, s)| (*key, ServiceEdit { held: Some(held(s, None)), wanted: None }));
    wanted.chain(unwanted).collect()
}

fn held(seen: &SeenService, port: Option<&ServicePortName>) -> Held {
    let standing = |real: &SeenReal| match real.weight {
        DRAINING => Standing::Draining,
        WEIGHT if real.usual => Standing::Taking,
        _ => Standing::Otherwise,
    };
    Held {
        server: (!seen.odd).then(|| seen.server.clone()),
        real: seen.real.iter().map(|(addr, real)| (*addr, standing(real))).collect(),
        port: port.cloned(),
    }
}

fn missing(seen: &Observed, desired: &Desired) -> Entries {
    let missing = desired.entries.iter().filter(|((id, entry), _)| !seen.has(*id, entry));
    missing.map(|(entry, port)| (*entry, Some(port.clone()))).collect()
}

fn extra(seen: &Observed, desired: &Desired) -> Entries {
    let all = seen.sets.iter().flat_map(|(id, set)| set.entries.iter().map(|entry| (*id, *entry)));
    all.filter(|entry| !desired.entries.contains_key(entry)).map(|entry| (entry, None)).collect()
}

fn bound(seen: &Observed, desired: &Desired) -> Addresses {
    let wanted = desired.entries.iter().filter_map(|((id, entry), port)| Some((address(*id, entry)?, port)));
    let missing = wanted.filter(|(ip, _)| !seen.bound.contains(ip));
    missing.map(|(ip, port)| (ip, Some(port.clone()))).collect()
}

fn unbound(seen: &Observed, desired: &Desired) -> Addresses {
    let wanted = |ip: IpAddr| desired.entries.contains_key(&(SetId::IpvsIps, Entry::Ip(ip)));
    seen.bound.iter().filter(|ip| !wanted(**ip)).map(|ip| (*ip, None)).collect()
}

fn rules(next: &Belief, seen: &Observed, out: &mut Sequence) {
    let after = skeleton::chains(&next.env, next.filled());
    let meanwhile = skeleton::chains(&next.env, seen.filled().or(next.filled()));
    // What is as it will be needs no detour.
    let settled = skeleton::from_saved(&seen.rules, &after).is_none();
    if settled {
        return;
    }
    if let Some(input) = skeleton::from_saved(&seen.rules, &meanwhile) {
        out.add(Phase::Rules, Op::Rules(input), None);
    }
    if let Some(input) = skeleton::between(&meanwhile, &after) {
        out.add(Phase::Trimmed, Op::Rules(input), None);
    }
}
