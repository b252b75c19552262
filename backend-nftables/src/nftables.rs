//! The backend type: delegates each duty to its module.

use std::sync::Arc;

use proxier_core::backend::{
    ApplyReport, Backend, Capabilities, CleanupReport, Drift, ProgressSink, RenderInput, SetAside, TakeOver,
};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::IpFamily;
use proxier_core::snapshot::Snapshot;
use proxier_sys::netlink::NetfilterSocket;
use proxier_sys::sysctl::Sysctl;

use crate::belief::Belief;
use crate::error::Error;
use crate::objects::{Op, Table};
use crate::options::{CtInvalid, Options};
use crate::plan::Plan;
use crate::{apply, diff, probe, render, takeover, wire};

/// The nftables backend of one IP family.
///
/// It works in the network namespace of the thread that first makes it talk to the kernel.
#[derive(Debug)]
pub struct Nftables {
    table: Table,
    options: Options,
    socket: Option<NetfilterSocket>,
}

impl Nftables {
    /// A backend that has not talked to the kernel yet.
    #[must_use]
    pub fn new(family: IpFamily, options: Options) -> Self {
        let table = Table { family, name: Arc::clone(&options.table) };
        Self { table, options, socket: None }
    }

    /// The table that holds everything.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// One socket is kept for the life of the backend.
    fn socket(&mut self) -> Result<&mut NetfilterSocket, Error> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => NetfilterSocket::open()?,
        };
        Ok(self.socket.insert(socket))
    }
}

impl Backend for Nftables {
    type Plan = Plan;
    type Belief = Belief;
    type Error = Error;

    fn name(&self) -> &'static str {
        "nftables"
    }

    fn family(&self) -> IpFamily {
        self.table.family
    }

    fn probe(&mut self) -> Result<Capabilities, Error> {
        let family = self.table.family;
        let mut capabilities = probe::probe(self.socket()?, family)?;
        if self.options.ct_invalid == CtInvalid::Auto {
            let (decision, requirement) = probe::ct_invalid(&Sysctl::new());
            self.options.ct_invalid = decision;
            capabilities.requirements.push(requirement);
        }
        Ok(capabilities)
    }

    fn render(&self, input: RenderInput<'_, Belief>) -> Plan {
        render::render(&self.table, &self.options, input)
    }

    fn take_over(&mut self, plan: Plan) -> Result<TakeOver<Plan>, Error> {
        let table = self.table.clone();
        let observed = wire::observe(self.socket()?, &table)?;
        Ok(takeover::take_over(&self.options, plan, &observed))
    }

    fn check(&mut self, plan: &Plan) -> Result<(), Error> {
        apply::check(self.socket()?, plan)
    }

    fn apply(&mut self, plan: Plan, progress: ProgressSink<'_>) -> Result<(Belief, ApplyReport), Error> {
        apply::apply(self.socket()?, plan, progress)
    }

    fn verify(&mut self, belief: &Belief) -> Result<Drift, Error> {
        let table = self.table.clone();
        let observed = wire::observe(self.socket()?, &table)?;
        let expected = belief.expected(&self.options);
        Ok(diff::diff(&table, &expected, &observed, &belief.doomed))
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<Drift, Error> {
        let changes = ChangeSet::between(None, snapshot);
        let set_aside = SetAside::new();
        let plan =
            self.render(RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside });
        let table = self.table.clone();
        let mut observed = wire::observe(self.socket()?, &table)?;
        let mut expected = plan.next.expected(&self.options);
        for side in [&mut observed, &mut expected] {
            diff::normalise(side);
        }
        let leftovers = diff::empty_chains(&observed, &expected);
        Ok(diff::diff(&table, &expected, &observed, &leftovers))
    }

    fn observer(&self) -> Self {
        Self::new(self.table.family, self.options.clone())
    }

    fn cleanup(&mut self) -> Result<CleanupReport, Error> {
        let table = self.table.clone();
        let name = format!("table {} {}", crate::text::family(&table), table.name);
        let encoded = wire::encode(&table, &[Op::DeleteTable])?;
        let answer = self.socket()?.send_batch(&encoded.batch)?;
        let mut report = CleanupReport::default();
        match answer.refused.first() {
            None => report.removed.push(name),
            Some(refused) if proxier_sys::netlink::errno_name(refused.errno) == "ENOENT" => {}
            Some(refused) => report.stayed.push(format!("{name}: {refused}")),
        }
        Ok(report)
    }
}
