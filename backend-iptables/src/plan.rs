//! A rendered plan: inputs for the tool, and what the kernel holds once they are in.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use proxier_core::backend::{Plan as CorePlan, PlanEntry, Unsupported};
use proxier_core::ids::{IpFamily, ServiceName, ServicePortName};
use proxier_xtables::objects::Input;
use proxier_xtables::saved::Saved;

use crate::belief::Belief;
use crate::takeover;

/// A plan of this backend.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) family: IpFamily,
    /// Assumes nothing about the kernel: what it writes is decided once the tables have been read.
    pub(crate) full: bool,
    /// Made when they are asked for if the plan is full: mostly its differences from what is there are made instead.
    pub(crate) inputs: OnceLock<Vec<Input>>,
    /// Services that the node needs first.
    pub(crate) first: Arc<[ServiceName]>,
    pub(crate) unsupported: Vec<Unsupported>,
    pub(crate) next: Belief,
}

impl Plan {
    /// The family whose tools take it.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// The inputs, in order. Those of a full plan are for tables without anything of ours; for others, see
    /// [`replace`](crate::takeover::replace).
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        self.inputs.get_or_init(|| {
            takeover::differences(&self.next, &self.next.desired(), &Saved::default(), &self.first)
        })
    }

    /// The inputs of a plan that is not needed any more otherwise, and what the kernel holds then.
    pub(crate) fn into_inputs(self) -> (Vec<Input>, Belief) {
        let _ = self.inputs();
        (self.inputs.into_inner().unwrap_or_default(), self.next)
    }

    /// What the kernel holds once the inputs are in.
    #[must_use]
    pub fn next(&self) -> &Belief {
        &self.next
    }

    /// What the kernel holds once the inputs are in.
    #[must_use]
    pub fn into_next(self) -> Belief {
        self.next
    }

    /// How many service ports are complete after each input, for those who wait.
    #[must_use]
    pub fn progress(&self) -> Vec<usize> {
        let mut last: BTreeMap<&ServicePortName, usize> = BTreeMap::new();
        for (at, input) in self.inputs().iter().enumerate() {
            last.extend(input.steps.iter().filter_map(|s| s.port.as_ref()).map(|port| (port, at)));
        }
        (0..self.inputs().len()).map(|at| last.values().filter(|l| **l <= at).count()).collect()
    }
}

/// Every line that the tool of a family is given for these inputs, each with the service port it is for: those that begin and end a table
/// included, and before each input a comment that says which tool.
#[must_use]
pub fn entries(family: IpFamily, inputs: &[Input]) -> Vec<PlanEntry> {
    let tool = match family {
        IpFamily::Ipv4 => "iptables-restore",
        IpFamily::Ipv6 => "ip6tables-restore",
    };
    let mut out = Vec::new();
    for input in inputs {
        out.push(PlanEntry { text: format!("# {tool} --noflush"), port: None });
        let (text, origins) = input.text();
        out.extend(text.lines().zip(origins).map(|(line, origin)| PlanEntry {
            text: line.to_owned(),
            port: origin.and_then(|i| input.steps.get(i)).and_then(|s| s.port.clone()),
        }));
    }
    out
}

impl CorePlan for Plan {
    /// See [`entries`].
    fn entries(&self) -> Vec<PlanEntry> {
        entries(self.family, self.inputs())
    }

    fn operations(&self) -> usize {
        self.inputs().iter().map(|i| i.steps.len()).sum()
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn unsupported(&self) -> &[Unsupported] {
        &self.unsupported
    }
}
