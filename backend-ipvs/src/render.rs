//! From snapshot, change set and belief to a plan. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use proxier_core::backend::{RenderInput, SetAside, Unsupported};
use proxier_core::ids::{IpFamily, ServiceName, ServicePortName};
use proxier_core::snapshot::{FrontendKey, ServicePort, Snapshot};

use crate::belief::Belief;
use crate::edits::{Edits, Held, Members, Standing};
use crate::environment::Environment;
use crate::fragment::{self, Fragment, Programmed};
use crate::objects::ServiceKey;
use crate::ops::Op;
use crate::options::{Facts, Options};
use crate::order::{Phase, Sequence, Step};
use crate::plan::Plan;
use crate::sets::{Entry, SetId};
use crate::skeleton;

/// Renders a plan; see [`proxier_core::backend::Backend::render`].
#[must_use]
pub fn render(family: IpFamily, options: &Options, facts: &Facts, input: RenderInput<'_, Belief>) -> Plan {
    let env = Environment::new(input.snapshot.context(), family, options, facts);
    let usable = input.belief.filter(|b| input.changes.base == Some(b.generation));
    match usable {
        Some(belief) => partial(family, input, belief, env),
        None => full(family, input, env),
    }
}

/// A service port's name, and what it is in the end.
type Wanted<'a> = (ServicePortName, Option<&'a Arc<ServicePort>>);

/// Writes what differs.
fn partial(family: IpFamily, input: RenderInput<'_, Belief>, belief: &Belief, env: Environment) -> Plan {
    let same = *belief.env == env;
    let wanted = if same { changed(input, belief) } else { everything(input, belief) };
    let mut builder = Builder::new(belief.clone());
    builder.next.generation = input.snapshot.generation();
    if !same {
        builder.next.env = Arc::new(env);
    }
    builder.place(&wanted, input.snapshot, input.set_aside);
    let steps = difference(belief, &mut builder.next, &wanted, &input.snapshot.context().first_services);
    builder.plan(family, false, steps.into(), input)
}

/// Everything, for a kernel that holds nothing of ours.
fn full(family: IpFamily, input: RenderInput<'_, Belief>, env: Environment) -> Plan {
    let mut builder = Builder::new(Belief::new(input.snapshot.generation(), env));
    let wanted: Vec<Wanted<'_>> = input.snapshot.ports().map(|p| (p.name.clone(), Some(p))).collect();
    builder.place(&wanted, input.snapshot, input.set_aside);
    let fragments: Vec<Fragment> =
        builder.next.ports.values().map(|p| p.fragment(&builder.next.env)).collect();
    for fragment in &fragments {
        builder.next.count_in(fragment);
    }
    builder.plan(family, true, OnceLock::new(), input)
}

fn everything<'a>(input: RenderInput<'a, Belief>, belief: &Belief) -> Vec<Wanted<'a>> {
    let gone = belief.ports.keys().filter(|name| input.snapshot.port(name).is_none());
    let gone = gone.map(|name| (name.clone(), None));
    input.snapshot.ports().map(|p| (p.name.clone(), Some(p))).chain(gone).collect()
}

/// What changed, and the owners of node ports that an address of a changed service port has taken, or has given up.
fn changed<'a>(input: RenderInput<'a, Belief>, belief: &Belief) -> Vec<Wanted<'a>> {
    let mut out: Vec<Wanted<'a>> =
        input.changes.ports.iter().map(|c| (c.name.clone(), c.new.as_ref())).collect();
    let mut seen: BTreeSet<ServicePortName> = out.iter().map(|(name, _)| name.clone()).collect();
    for change in &input.changes.ports {
        let held = belief.ports.get(&change.name).map(|p| &p.port);
        let both = held.into_iter().chain(&change.new);
        for key in both.flat_map(|p| &p.frontends).filter_map(|f| node_port_below(&belief.env, f.key)) {
            if let Some((owner, _)) = input.snapshot.owner(&key)
                && seen.insert(owner.name.clone())
            {
                out.push((owner.name.clone(), Some(owner)));
            }
        }
    }
    out
}

/// The node port whose virtual server an address would take the place of.
fn node_port_below(env: &Environment, key: FrontendKey) -> Option<FrontendKey> {
    match key {
        FrontendKey::Address { ip, protocol, port } if env.is_node_address(ip) => {
            Some(FrontendKey::NodePort { protocol, port })
        }
        _ => None,
    }
}

struct Builder {
    next: Belief,
    unsupported: Vec<Unsupported>,
}

impl Builder {
    fn new(next: Belief) -> Self {
        Self { next, unsupported: Vec::new() }
    }

    /// Puts service ports in the place of what was programmed under their names.
    fn place(&mut self, wanted: &[Wanted<'_>], snapshot: &Snapshot, set_aside: &SetAside) {
        for (name, port) in wanted {
            match port.filter(|p| !set_aside.contains_key(&p.name)) {
                None => self.next.ports.remove(name),
                Some(port) => {
                    self.supports(port);
                    let shadowed = shadowed(port, &self.next.env, snapshot);
                    let programmed = Programmed { port: Arc::clone(port), shadowed };
                    self.next.ports.insert(name.clone(), Arc::new(programmed))
                }
            };
        }
    }

    /// Names what cannot be provided.
    fn supports(&mut self, port: &ServicePort) {
        for frontend in &port.frontends {
            if let FrontendKey::Address { ip, .. } = frontend.key
                && !fragment::is_usable(ip)
            {
                let feature = format!("{frontend}: every host has this address already");
                self.unsupported.push(Unsupported { port: port.name.clone(), feature });
            }
        }
    }

    fn plan(
        self,
        family: IpFamily,
        full: bool,
        steps: OnceLock<Vec<Step>>,
        input: RenderInput<'_, Belief>,
    ) -> Plan {
        let first = Arc::clone(&input.snapshot.context().first_services);
        Plan { family, full, steps, first, unsupported: self.unsupported, next: self.next }
    }
}

/// Node addresses on which another service port's address has the number of its node port.
fn shadowed(port: &ServicePort, env: &Environment, snapshot: &Snapshot) -> Arc<[ServiceKey]> {
    let mut out = Vec::new();
    for frontend in &port.frontends {
        let FrontendKey::NodePort { protocol, port } = frontend.key else { continue };
        let taken = |ip: &std::net::IpAddr| {
            snapshot.owner(&FrontendKey::Address { ip: *ip, protocol, port }).is_some()
        };
        let addresses = env.node_addresses.iter().filter(|ip| taken(ip));
        out.extend(addresses.map(|ip| ServiceKey { protocol, ip: *ip, port }));
    }
    out.into()
}

/// Entries as the beliefs before and after count them.
struct Counted<'a> {
    before: &'a Belief,
    after: &'a Belief,
}

impl Members for Counted<'_> {
    fn stays(&self, id: SetId, entry: &Entry) -> bool {
        self.after.has(id, entry)
    }

    fn is_there(&self, id: SetId, entry: &Entry) -> bool {
        self.before.has(id, entry)
    }
}

/// The steps from one belief to another that differ in these service ports, or in everything.
fn difference(before: &Belief, next: &mut Belief, wanted: &[Wanted<'_>], first: &[ServiceName]) -> Vec<Step> {
    let mut edits = Edits::default();
    let mut entries: BTreeMap<(SetId, Entry), ServicePortName> = BTreeMap::new();
    for (name, _) in wanted {
        let old = before.ports.get(name);
        let new = next.ports.get(name).cloned();
        if *before.env == *next.env && old == new.as_ref() {
            continue;
        }
        let old = old.map(|p| p.fragment(&before.env)).unwrap_or_default();
        let new = new.map(|p| p.fragment(&next.env)).unwrap_or_default();
        next.count_in(&new);
        next.count_out(&old);
        entries.extend(old.entries.iter().chain(&new.entries).map(|e| (*e, name.clone())));
        for balanced in old.services {
            let key = balanced.server.key;
            let real = balanced.real.iter().map(|r| (*r, Standing::Taking));
            let waiting = before.drains.of(&key).map(|r| (r, Standing::Draining));
            let held = Held {
                real: waiting.chain(real).collect(),
                port: Some(name.clone()),
                server: Some(balanced.server),
            };
            edits.services.entry(key).or_default().held = Some(held);
        }
        for balanced in new.services {
            let edit = edits.services.entry(balanced.server.key).or_default();
            edit.wanted = Some((balanced, name.clone()));
        }
    }
    for ((id, entry), name) in entries {
        match (before.has(id, &entry), next.has(id, &entry)) {
            (false, true) => edits.added.insert((id, entry), Some(name)),
            (true, false) => edits.removed.insert((id, entry), Some(name)),
            _ => None,
        };
    }
    edits.bind_as_named();
    let names: Vec<&ServicePortName> = in_order(wanted.iter().map(|(name, _)| name), first);
    let mut out = Sequence::new(names);
    let mut drains = next.drains.clone();
    edits.write(&Counted { before, after: next }, &mut drains, &mut out);
    next.drains = drains;
    rules(before, next, &mut out);
    out.into_steps()
}

/// While entries come and go, rules look into the sets that have some before and into those that have some after.
fn rules(before: &Belief, next: &Belief, out: &mut Sequence) {
    if before.env == next.env && before.filled() == next.filled() {
        return;
    }
    let held = skeleton::chains(&before.env, before.filled());
    let meanwhile = skeleton::chains(&next.env, before.filled().or(next.filled()));
    let after = skeleton::chains(&next.env, next.filled());
    for (phase, input) in [
        (Phase::Rules, skeleton::between(&held, &meanwhile)),
        (Phase::Trimmed, skeleton::between(&meanwhile, &after)),
    ] {
        if let Some(input) = input {
            out.add(phase, Op::Rules(input), None);
        }
    }
}

/// Service ports in the order in which they are written: those that the node needs first, then by name.
pub(crate) fn in_order<'a>(
    ports: impl Iterator<Item = &'a ServicePortName>,
    first: &[ServiceName],
) -> Vec<&'a ServicePortName> {
    let place = |service: &ServiceName| first.iter().position(|s| s == service).unwrap_or(first.len());
    let mut out: Vec<&ServicePortName> = ports.collect();
    out.sort_by_key(|p| (place(&p.service), *p));
    out
}
