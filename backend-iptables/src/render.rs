//! From snapshot, change set and belief to a plan. Pure.

use std::sync::{Arc, OnceLock};

use proxier_core::backend::{RenderInput, SetAside, Unsupported};
use proxier_core::ids::{IpFamily, ServiceName, ServicePortName};
use proxier_core::snapshot::ServicePort;
use proxier_xtables::objects::{Input, Rule};

use crate::batch::{Batch, Batches};
use crate::belief::Belief;
use crate::counts::Counts;
use crate::desired::Want;
use crate::environment::Environment;
use crate::fragment::{self, Fragment, Programmed};
use crate::options::{Facts, Options};
use crate::plan::Plan;
use crate::skeleton::{self, Shared};

/// Endpoints above which a cluster is large: comments that would be repeated for each are left out (iptables spec 6.4).
pub const LARGE_CLUSTER: usize = 1000;

/// Renders a plan; see [`proxier_core::backend::Backend::render`].
#[must_use]
pub fn render(family: IpFamily, options: &Options, facts: &Facts, input: RenderInput<'_, Belief>) -> Plan {
    let env = Environment::new(input.snapshot.context(), family, options, facts);
    let usable = input.belief.filter(|b| input.changes.base == Some(b.generation));
    usable.and_then(|belief| partial(family, input, belief, &env)).unwrap_or_else(|| full(family, input, env))
}

/// Writes what differs; `None` if something must be looked at that no belief covers.
fn partial(
    family: IpFamily,
    input: RenderInput<'_, Belief>,
    belief: &Belief,
    env: &Environment,
) -> Option<Plan> {
    let mut changes: Vec<(&ServicePortName, Option<&Arc<ServicePort>>)> =
        input.changes.ports.iter().map(|c| (&c.name, c.new.as_ref())).collect();
    let mut batches = Batches::new(env.facts.chains_per_input);
    if *belief.env != *env {
        environment(&belief.env, env, &mut batches)?;
        let held = belief.ports.keys().filter(|name| input.snapshot.port(name).is_none());
        changes = input.snapshot.ports().map(|p| (&p.name, Some(p))).collect();
        changes.extend(held.map(|name| (name, None)));
    }
    // What comes before what goes, should it take several inputs.
    changes.sort_by_key(|(_, new)| new.is_none());
    let mut builder = Builder::new(belief.clone());
    builder.next.generation = input.snapshot.generation();
    builder.next.env = if *belief.env == *env { Arc::clone(&belief.env) } else { Arc::new(env.clone()) };
    builder.place(&changes, input.set_aside);
    for (name, _) in &changes {
        let before = belief.ports.get(*name).map(|p| p.fragment(&belief.env));
        let after = builder.next.ports.get(*name).map(|p| p.fragment(env));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        builder.next.rules = builder.next.rules + Counts::of_port(&after) - Counts::of_port(&before);
        change(name, &before, &after, &mut batches);
    }
    Some(builder.plan(family, false, batches.into_inputs().into(), input))
}

/// Everything, for tables that hold nothing of ours.
fn full(family: IpFamily, input: RenderInput<'_, Belief>, env: Environment) -> Plan {
    let mut builder = Builder::new(Belief::new(input.snapshot.generation(), env));
    let ports: Vec<_> = input.snapshot.ports().map(|p| (&p.name, Some(p))).collect();
    builder.place(&ports, input.set_aside);
    builder.plan(family, true, OnceLock::new(), input)
}

struct Builder {
    next: Belief,
    unsupported: Vec<Unsupported>,
}

impl Builder {
    fn new(next: Belief) -> Self {
        Self { next, unsupported: Vec::new() }
    }

    /// Puts service ports in the place of what was programmed under their names. How large the cluster is counts once all are in.
    fn place(&mut self, ports: &[(&ServicePortName, Option<&Arc<ServicePort>>)], set_aside: &SetAside) {
        let usable: Vec<_> = ports
            .iter()
            .map(|(name, port)| {
                (*name, port.filter(|p| !set_aside.contains_key(&p.name) && self.supports(p)))
            })
            .collect();
        for (name, port) in &usable {
            let before = self.next.ports.get(*name).map_or(0, |p| p.port.endpoints.len());
            self.next.endpoints += port.map_or(0, |p| p.endpoints.len());
            self.next.endpoints -= before;
        }
        let large = self.next.endpoints > LARGE_CLUSTER;
        for (name, port) in usable {
            match port {
                None => self.next.ports.remove(name),
                // Of a service port that did not change, what was written stays as it is.
                Some(port) if self.next.ports.get(name).is_some_and(|p| Arc::ptr_eq(&p.port, port)) => None,
                Some(port) => {
                    let programmed = Programmed { port: Arc::clone(port), large };
                    self.next.ports.insert(name.clone(), Arc::new(programmed))
                }
            };
        }
    }

    /// Names what cannot be provided; `false` if that is all of it.
    fn supports(&mut self, port: &ServicePort) -> bool {
        let mut lacking = |feature: String| {
            self.unsupported.push(Unsupported { port: port.name.clone(), feature });
        };
        if port.spec.affinity.is_some() && !self.next.env.facts.recent {
            lacking("session affinity: the kernel has no match \"recent\"".to_owned());
        }
        fragment::printable(port).map_err(lacking).is_ok()
    }

    fn plan(
        self,
        family: IpFamily,
        full: bool,
        inputs: OnceLock<Vec<Input>>,
        input: RenderInput<'_, Belief>,
    ) -> Plan {
        let first = Arc::clone(&input.snapshot.context().first_services);
        Plan { family, full, inputs, first, unsupported: self.unsupported, next: self.next }
    }
}

/// What turns the chains of one service port from one state into another.
fn change(port: &ServicePortName, before: &Fragment, after: &Fragment, batches: &mut Batches) {
    let mut unit = Batch::default();
    let port = Some(port);
    for (id, rules) in &after.own {
        let old = before.own.iter().find(|(old, _)| old == id);
        if old.is_none_or(|(_, old)| old != rules) {
            unit.write(id, rules, port);
        }
    }
    for (id, _) in before.own.iter().filter(|(id, _)| !after.own.iter().any(|(new, _)| new == id)) {
        unit.retire(id, true, port);
    }
    for (shared, rules) in before.shared.iter().filter(|group| !after.shared.contains(group)) {
        rules.iter().for_each(|rule| unit.delete(*shared, rule, port));
    }
    let added: Vec<(Shared, &[Rule])> = after
        .shared
        .iter()
        .filter(|group| !before.shared.contains(group))
        .map(|(shared, rules)| (*shared, rules.as_slice()))
        .collect();
    batches.add(unit, &added, port);
}

/// What turns the fixed rules from one environment into those of another. `None` if a chain that is not ours alone needs another rule: it
/// must be looked at first.
fn environment(before: &Environment, after: &Environment, batches: &mut Batches) -> Option<()> {
    let old = skeleton::fixed(before);
    for (id, want) in skeleton::fixed(after) {
        let same = old.iter().any(|(old, was)| *old == id && *was == want);
        match want {
            _ if same => {}
            Want::Exactly { rules, port } => batches.current().write(&id, &rules, port.as_ref()),
            // Nothing is taken away from it.
            Want::AtLeast(rules) if rules.is_empty() => {}
            Want::AtLeast(_) | Want::Dispatch { .. } => return None,
        }
    }
    for shared in Shared::ALL {
        let (old, new) = (shared.tail(before), shared.tail(after));
        if old != new {
            old.iter().for_each(|rule| batches.current().delete(shared, rule, None));
            batches.current().append(shared, &new, None);
        }
    }
    Some(())
}

/// Service ports in the order in which they are written: those that the node needs first, then by name.
pub(crate) fn in_order<'a>(next: &'a Belief, first: &[ServiceName]) -> Vec<&'a Arc<Programmed>> {
    let place = |service: &ServiceName| first.iter().position(|s| s == service).unwrap_or(first.len());
    let mut out: Vec<&Arc<Programmed>> = next.ports.values().collect();
    // Stable.
    out.sort_by_key(|p| place(&p.port.name.service));
    out
}
