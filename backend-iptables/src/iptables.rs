//! The backend type: delegates each duty to its module.

use std::collections::BTreeMap;

use proxier_core::backend::{
    ApplyReport, Backend, Capabilities, CleanupReport, Drift, ProgressSink, RenderInput, SetAside, TakeOver,
};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::{NodeContext, Snapshot};
use proxier_sys::runner::SystemRunner;
use proxier_sys::sysctl::Sysctl;
use proxier_xtables::accounting;
use proxier_xtables::objects::{Rule, Table};
use proxier_xtables::restore::{Patience, Restorer};
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::spelling::canonical;
use proxier_xtables::tool::Tools;
use proxier_xtables::trial::scratch;

use crate::belief::Belief;
use crate::counts::Counts;
use crate::desired::Desired;
use crate::error::Error;
use crate::options::{Facts, INVALID_DROPPED, LOCALHOST_ACCEPTED, Options};
use crate::plan::Plan;
use crate::probe;
use crate::{cleanup, diff, localnet, render, skeleton, takeover};

/// The iptables backend of one IP family.
///
/// It works in the network namespace of the thread that makes it run a tool.
#[derive(Debug)]
pub struct Iptables {
    family: IpFamily,
    options: Options,
    runner: SystemRunner,
    found: Option<Found>,
    facts: Facts,
    /// With another program that holds the lock of the legacy tools.
    pub(crate) patience: Patience,
}

/// What a probe found that is not about rules.
#[derive(Clone, Debug)]
struct Found {
    tools: Tools,
    /// The tool prints rules as they were written.
    same_spelling: bool,
}

impl Iptables {
    /// A backend that has not looked at the host yet. Until a probe, plans are those for a current tool of the nft variant, or of the one that
    /// the options ask for.
    #[must_use]
    pub fn new(family: IpFamily, options: Options) -> Self {
        let facts = options.variant.wanted().map_or_else(Facts::default, Facts::of);
        let patience = Patience::default();
        Self { family, options, runner: SystemRunner::new(), found: None, facts, patience }
    }

    /// What a probe found, as far as rules depend on it.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The tools; looks for them if nobody did so far.
    fn found(&mut self) -> Result<Found, Error> {
        if self.found.is_none() {
            self.probe()?;
        }
        let none = || proxier_xtables::Error::NoTools { looked_for: self.family.to_string() };
        Ok(self.found.clone().ok_or_else(none)?)
    }

    /// What the tables hold: what is ours, what leads to it, and what may.
    fn read(&self, found: &Found) -> Result<Saved, Error> {
        let keep = |table: Table, chain: &str| {
            table == Table::Nat
                || cleanup::is_ours(table, chain)
                || chain == skeleton::FIREWALL
                || skeleton::is_built_in(chain)
        };
        Ok(saved::read(&self.runner, &found.tools, keep)?)
    }

    /// The same, rules in our spelling where the tool has another.
    fn read_for(&self, found: &Found, desired: impl FnOnce() -> Desired) -> Result<Saved, Error> {
        let mut saved = self.read(found)?;
        if !found.same_spelling {
            respell(&mut saved, &desired());
        }
        Ok(saved)
    }

    fn restorer<'a>(&'a self, found: &'a Found) -> Restorer<'a> {
        Restorer { runner: &self.runner, tools: &found.tools, trial: &scratch, patience: self.patience }
    }

    /// The setting that loopback node ports need (iptables spec 5.9).
    fn route_localnet(&self, wanted: bool) -> Result<(), Error> {
        if wanted && self.family == IpFamily::Ipv4 && localnet::ensure(&Sysctl::new())? {
            tracing::info!(
                "net.ipv4.conf.all.route_localnet is 1 now: node ports answer on loopback addresses"
            );
        }
        Ok(())
    }

    /// What a plan's rules count with must be there before them (iptables spec 5.2), and the setting that loopback node ports need (5.9).
    fn settle(&mut self, plan: &Plan) -> Result<(), Error> {
        let env = plan.next.environment();
        self.route_localnet(env.loopback)?;
        let wanted =
            [(INVALID_DROPPED, env.facts.count_invalid), (LOCALHOST_ACCEPTED, env.facts.count_localhost)];
        let names: Vec<&str> = wanted.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Ok(());
        }
        let there = accounting::ensure(&names)?;
        self.facts.count_invalid &= there.contains(&INVALID_DROPPED);
        self.facts.count_localhost &= there.contains(&LOCALHOST_ACCEPTED);
        match names.iter().find(|name| !there.contains(name)) {
            Some(missing) => Err(Error::Counters((*missing).to_owned())),
            None => Ok(()),
        }
    }
}

/// Packets counted so far by the counting objects that rules of this backend name (iptables spec 5.2), by the object's name: those that
/// exist in the network namespace of the calling thread.
///
/// # Errors
/// When the kernel does not answer, or this process may not ask it.
pub fn counted_packets() -> Result<Vec<(&'static str, u64)>, Error> {
    Ok(accounting::packets(&[INVALID_DROPPED, LOCALHOST_ACCEPTED])?)
}

/// Puts rules that only differ in spelling into ours.
fn respell(saved: &mut Saved, desired: &Desired) {
    for (id, want) in &desired.chains {
        let Some(seen) = saved.chains.get_mut(id) else { continue };
        let ours: BTreeMap<String, &Rule> =
            want.rules().into_iter().map(|rule| (canonical(&rule.0), rule)).collect();
        for rule in seen {
            if let Some(same) = ours.get(&canonical(&rule.0)) {
                *rule = (*same).clone();
            }
        }
    }
}

impl Backend for Iptables {
    type Plan = Plan;
    type Belief = Belief;
    type Error = Error;

    fn name(&self) -> &'static str {
        "iptables"
    }

    fn family(&self) -> IpFamily {
        self.family
    }

    fn probe(&mut self) -> Result<Capabilities, Error> {
        let wanted = self.options.variant.wanted();
        let probed = probe::probe(&self.runner, &scratch, &Sysctl::new(), self.family, wanted)?;
        if let Some(chosen) = probed.chosen {
            self.facts = Facts {
                random_fully: probed.random_fully,
                count_invalid: probed.nfacct,
                count_localhost: probed.nfacct,
                tcp_be_liberal: probed.tcp_be_liberal,
                recent: probed.recent,
                ..Facts::of(chosen.tools.variant)
            };
            self.found = Some(Found { tools: chosen.tools, same_spelling: probed.same_spelling });
        }
        Ok(probed.capabilities)
    }

    fn render(&self, input: RenderInput<'_, Belief>) -> Plan {
        render::render(self.family, &self.options, &self.facts, input)
    }

    fn take_over(&mut self, plan: Plan) -> Result<TakeOver<Plan>, Error> {
        let found = self.found()?;
        self.settle(&plan)?;
        let saved = self.read_for(&found, || plan.next.desired())?;
        Ok(TakeOver::Differences(takeover::take_over(plan, &saved)))
    }

    fn check(&mut self, plan: &Plan) -> Result<(), Error> {
        let found = self.found()?;
        Ok(self.restorer(&found).check(plan.inputs())?)
    }

    fn apply(&mut self, plan: Plan, progress: ProgressSink<'_>) -> Result<(Belief, ApplyReport), Error> {
        let found = self.found()?;
        let (inputs, next) = if plan.full {
            self.settle(&plan)?;
            let inputs = takeover::replace(&plan, &self.read(&found)?);
            let mut next = plan.into_next();
            next.rules = Counts::of_ports(&next.desired());
            (inputs, next)
        } else {
            plan.into_inputs()
        };
        let mut report = self.restorer(&found).run(&inputs, progress)?;
        report.rules = Counts::report(next.rules(), Counts::written(&inputs));
        Ok((next, report))
    }

    fn verify(&mut self, belief: &Belief) -> Result<Drift, Error> {
        let found = self.found()?;
        let saved = self.read_for(&found, || belief.desired())?;
        Ok(diff::drift(belief, &saved))
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Error> {
        let found = self.found()?;
        let mut saved = self.read(&found)?;
        // Whether rules count depends on the rights of whoever wrote them.
        let facts = self.facts.clone().counting_like(&saved);
        let (changes, set_aside) = (ChangeSet::between(None, snapshot), SetAside::new());
        let input = RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside };
        let plan = render::render(self.family, &self.options, &facts, input);
        if !found.same_spelling {
            respell(&mut saved, &plan.next.desired());
        }
        Ok(diff::drift_in_meaning(plan.next, &saved))
    }

    fn observer(&self) -> Self {
        let found = self.found.clone();
        Self {
            family: self.family,
            options: self.options.clone(),
            runner: SystemRunner::new(),
            found,
            facts: self.facts.clone(),
            patience: self.patience,
        }
    }

    fn prepare(&mut self, context: &NodeContext) -> Result<(), Error> {
        self.route_localnet(context.node_ports_on_loopback)
    }

    fn cleanup(&mut self) -> Result<CleanupReport, Error> {
        Ok(cleanup::cleanup(&self.runner, &scratch, self.family)?)
    }
}

#[cfg(test)]
mod tests {
    use proxier_core::cluster::{Cluster, TrafficOptions};
    use proxier_core::ids::NodeName;
    use proxier_testkit::scale;

    use super::*;

    /// As a tool would print it that puts the protocol first and leaves out what is the default.
    fn in_other_words(rule: &Rule) -> Rule {
        let text = match rule.0.split_once(" -p tcp ") {
            Some((addresses, rest)) if addresses.starts_with("-d ") => format!("-p tcp {addresses} {rest}"),
            _ => rule.0.to_string(),
        };
        Rule(text.replace("/32 ", " ").replace(" --reject-with icmp-port-unreachable", "").into())
    }

    /// Cases: report-C3-38
    #[test]
    fn what_another_version_of_the_tool_spells_otherwise_is_no_drift() {
        let mut cluster = Cluster::new(NodeName::new(scale::NODE), TrafficOptions::default());
        for number in 0..3 {
            cluster.upsert_service(scale::service(number));
        }
        let snapshot = cluster.commit().snapshot(IpFamily::Ipv4).clone();
        let backend = Iptables::new(IpFamily::Ipv4, Options::default());
        let (changes, set_aside) = (ChangeSet::between(None, &snapshot), SetAside::new());
        let input =
            RenderInput { snapshot: &snapshot, changes: &changes, belief: None, set_aside: &set_aside };
        let belief = backend.render(input).into_next();
        let desired = belief.desired();
        let mut saved = Saved::default();
        for (id, want) in &desired.chains {
            saved.chains.insert(id.clone(), want.rules().into_iter().map(in_other_words).collect());
        }
        assert!(!diff::drift(&belief, &saved).is_empty(), "the spelling differs");
        respell(&mut saved, &desired);
        assert!(diff::drift(&belief, &saved).is_empty(), "{:?}", diff::drift(&belief, &saved).items);
        let chain = saved.chains.keys().find(|id| &*id.name == "KUBE-FORWARD").expect("there").clone();
        saved.chains.get_mut(&chain).expect("there").push(Rule("-p tcp -j DROP".into()));
        respell(&mut saved, &desired);
        assert_eq!(diff::drift(&belief, &saved).items.len(), 1, "another rule stays another rule");
    }
}
