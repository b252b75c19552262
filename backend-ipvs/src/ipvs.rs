//! The backend type: delegates each duty to its module.

use std::time::Instant;

use proxier_core::backend::{
    ApplyReport, Backend, Capabilities, CleanupReport, Drift, ProgressSink, RenderInput, SetAside, TakeOver,
};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::{NodeContext, Snapshot};
use proxier_sys::runner::SystemRunner;
use proxier_sys::sysctl::Sysctl;
use proxier_sys::version::KernelVersion;
use proxier_xtables::restore::{Patience, Restorer};
use proxier_xtables::tool::Tools;
use proxier_xtables::trial::scratch;

use crate::apply::Applier;
use crate::belief::{Belief, Desired};
use crate::error::Error;
use crate::kernel::{self, Kernel};
use crate::observed::Observed;
use crate::options::{Facts, Options};
use crate::plan::Plan;
use crate::wire::ipvs::Timeouts;
use crate::{cleanup, diff, observe, probe, render, sysctls, takeover};

/// The IPVS backend of one IP family.
///
/// It works in the network namespace of the thread that makes it talk to the kernel first.
#[derive(Debug)]
pub struct Ipvs {
    family: IpFamily,
    options: Options,
    runner: SystemRunner,
    tools: Option<Tools>,
    facts: Facts,
    kernel: Option<Kernel>,
    /// Settings of the kernel were looked after by this instance.
    settled: bool,
}

impl Ipvs {
    /// A backend that has not looked at the host yet.
    #[must_use]
    pub fn new(family: IpFamily, options: Options) -> Self {
        Self {
            family,
            options,
            runner: SystemRunner::new(),
            tools: None,
            facts: Facts::default(),
            kernel: None,
            settled: false,
        }
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The tools; looks for them if nobody did so far.
    fn tools(&mut self) -> Result<Tools, Error> {
        if self.tools.is_none() {
            self.probe()?;
        }
        let looked_for = || proxier_xtables::Error::NoTools { looked_for: self.family.to_string() };
        self.tools.clone().ok_or_else(|| looked_for().into())
    }

    /// The kernel, with its settings as they must be (ipvs spec 1.2 and 1.3).
    fn kernel(&mut self) -> Result<&mut Kernel, Error> {
        let kernel = match &mut self.kernel {
            Some(kernel) => kernel,
            none => none.insert(Kernel::open()?),
        };
        if !self.settled {
            if let Some(said) = kernel::load_modules(&self.runner, &self.options.scheduler) {
                tracing::debug!(said, "modprobe");
            }
            let ipvs = kernel.ipvs()?;
            let version = KernelVersion::running()?;
            if let Some(what) = sysctls::impossible(version) {
                tracing::warn!("{what}");
            }
            let settings = sysctls::settings(version, self.options.strict_arp);
            for setting in sysctls::ensure(&Sysctl::new(), &settings)? {
                tracing::info!(key = setting.key, value = setting.value, "kernel setting changed for IPVS");
            }
            let Options { tcp_timeout, tcp_fin_timeout, udp_timeout, .. } = &self.options;
            let seconds = |d: &std::time::Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
            let [tcp, tcp_fin, udp] = [tcp_timeout, tcp_fin_timeout, udp_timeout].map(seconds);
            if (tcp, tcp_fin, udp) != (0, 0, 0)
                && let Err(error) = ipvs.set_timeouts(&Timeouts { tcp, tcp_fin, udp })
            {
                tracing::warn!(%error, "IPVS keeps its timeouts");
            }
            self.settled = true;
        }
        Ok(kernel)
    }

    /// What the kernel holds, and what this belief says that it should.
    fn observe(&mut self, belief: &Belief) -> Result<(Observed, Desired), Error> {
        let tools = self.tools()?;
        self.kernel()?;
        let Self { kernel: Some(kernel), runner, .. } = self else { return Err(Error::NoIpvs) };
        observe::observe(kernel, runner, &tools, belief.environment(), || belief.desired())
    }

    /// What takes the kernel from what is there to what a full plan asks for. Entries of forms that this backend never writes go at once: there is no
    /// operation for them.
    fn differences(&mut self, plan: Plan) -> Result<Plan, Error> {
        let (seen, desired) = self.observe(&plan.next)?;
        let family = self.family;
        for (id, set) in seen.sets.iter().filter(|(_, set)| !set.strange.is_empty()) {
            for refusal in self.kernel()?.sets.delete_strange(&id.name(family), &set.strange)? {
                tracing::warn!(set = id.name(family), reason = refusal.reason, "entry of another form stays");
            }
        }
        Ok(takeover::take_over_to(plan, &desired, &seen))
    }
}

impl Backend for Ipvs {
    type Plan = Plan;
    type Belief = Belief;
    type Error = Error;

    fn name(&self) -> &'static str {
        "ipvs"
    }

    fn family(&self) -> IpFamily {
        self.family
    }

    fn probe(&mut self) -> Result<Capabilities, Error> {
        let probed = probe::probe(&self.runner, self.family, &self.options)?;
        if let Some(chosen) = probed.chosen {
            self.facts = probed.facts;
            self.tools = Some(chosen.tools);
        }
        Ok(probed.capabilities)
    }

    fn render(&self, input: RenderInput<'_, Belief>) -> Plan {
        render::render(self.family, &self.options, &self.facts, input)
    }

    fn take_over(&mut self, plan: Plan) -> Result<TakeOver<Plan>, Error> {
        self.differences(plan).map(TakeOver::Differences)
    }

    fn check(&mut self, _: &Plan) -> Result<(), Error> {
        Err(Error::NoCheck)
    }

    fn apply(&mut self, plan: Plan, progress: ProgressSink<'_>) -> Result<(Belief, ApplyReport), Error> {
        let plan = if plan.full { self.differences(plan)? } else { plan };
        let tools = self.tools()?;
        let cap = self.options.drain_timeout;
        self.kernel()?;
        let Self { kernel: Some(kernel), runner, family, .. } = self else { return Err(Error::NoIpvs) };
        let restorer = Restorer { runner, tools: &tools, trial: &scratch, patience: Patience::default() };
        let (steps, mut next) = plan.into_steps();
        let mut applier = Applier::new(kernel, restorer, *family);
        applier.steps(&steps, progress)?;
        applier.drain(next.drains_mut(), cap, Instant::now())?;
        let report = applier.end()?;
        Ok((next, report))
    }

    fn verify(&mut self, belief: &Belief) -> Result<Drift, Error> {
        let (seen, desired) = self.observe(belief)?;
        Ok(diff::drift_from(belief, &desired, &seen))
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Error> {
        let (changes, set_aside) = (ChangeSet::between(None, snapshot), SetAside::new());
        let plan =
            self.render(RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside });
        self.verify(&plan.next)
    }

    fn observer(&self) -> Self {
        Self {
            family: self.family,
            options: self.options.clone(),
            runner: SystemRunner::new(),
            tools: self.tools.clone(),
            facts: self.facts.clone(),
            kernel: None,
            // Whoever only looks changes no setting.
            settled: true,
        }
    }

    fn prepare(&mut self, _context: &NodeContext) -> Result<(), Error> {
        self.kernel().map(drop)
    }

    fn cleanup(&mut self) -> Result<CleanupReport, Error> {
        cleanup::cleanup(&self.runner, self.family, &self.options)
    }
}
