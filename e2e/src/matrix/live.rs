//! Sequences of changes under live traffic. Each has a service of its own and a file of manifests of its own, so that many run at
//! once; those that stop the agents run alone, after the others.

mod affinity;
mod answers;
mod change;
mod drain;
mod flow;
mod handover;
mod restart;
mod script;

use std::time::Instant;

pub use script::Script;

use super::progress;
use super::setting::Setting;
use super::stage::Cast;
use super::table::{Failure, Line};
use super::variant::Variant;
use crate::traffic::has_sctp;

/// A sequence.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name.
    pub name: &'static str,
    /// It stops agents.
    alone: bool,
    /// It is about this backend only.
    backend: Option<&'static str>,
    /// It is about SCTP.
    sctp: bool,
    run: fn(&mut Script<'_>) -> anyhow::Result<()>,
}

const fn together(name: &'static str, run: fn(&mut Script<'_>) -> anyhow::Result<()>) -> Scenario {
    Scenario { name, alone: false, backend: None, sctp: false, run }
}

const fn alone(name: &'static str, run: fn(&mut Script<'_>) -> anyhow::Result<()>) -> Scenario {
    Scenario { name, alone: true, backend: None, sctp: false, run }
}

/// The scenario of a gap that rows meet by chance.
pub const LOST_BY_CHANCE: &str = "answers-known-by-ports";

/// All of them.
pub const SCENARIOS: [Scenario; 20] = [
    together("endpoint-drained-then-removed", change::drained_then_removed),
    together("endpoint-replaced", change::replaced),
    together("scaled-to-zero-and-back", change::scaled_to_zero),
    together("service-removed", change::service_removed),
    together("policy-changed", change::policy_changed),
    together("ranges-changed", change::ranges_changed),
    together("churn", change::churn),
    together("refusal-at-once", flow::refusal),
    together("affinity-endpoint-leaves", affinity::endpoint_leaves),
    together("affinity-expires", affinity::expires),
    together("udp-flow-of-removed-endpoint", flow::of_removed_endpoint),
    together("udp-flow-before-endpoints", flow::before_endpoints),
    together("udp-flow-before-service", flow::before_service),
    Scenario { sctp: true, ..together("sctp-associations", flow::associations) },
    Scenario {
        backend: Some("ipvs"),
        ..together("drain-ends-with-connections", drain::ends_with_connections)
    },
    Scenario { backend: Some("ipvs"), ..alone("external-ip-of-a-node", change::external_ip_of_a_node) },
    alone("agents-restarted", restart::agents),
    Scenario {
        backend: Some("ipvs"),
        ..alone("drain-goes-on-after-a-restart", drain::goes_on_after_a_restart)
    },
    Scenario { backend: Some("iptables"), ..alone("kube-proxy-taken-over", handover::from_kube_proxy) },
    Scenario { backend: Some("ipvs"), ..alone(LOST_BY_CHANCE, answers::known_by_ports) },
];

impl Scenario {
    /// Does it say something about this variant?
    #[must_use]
    pub fn is_for(&self, variant: &Variant) -> bool {
        self.backend.is_none_or(|b| b == variant.backend)
    }

    /// Can this kernel do it?
    ///
    /// # Errors
    /// Why not, in words.
    pub fn is_possible(&self) -> Result<(), &'static str> {
        if self.sctp { has_sctp() } else { Ok(()) }
    }
}

/// The number of the first scenario's service; those of rows are below.
const FIRST_NUMBER: u8 = 200;

/// Runs scenarios. What the lab itself cannot do in one of them is a failed step of it.
///
/// # Errors
/// None of its own so far: what goes wrong belongs to a scenario.
pub fn run(
    scenarios: &[&'static Scenario],
    cast: &Cast<'_>,
    variant: &Variant,
    setting: &Setting,
) -> anyhow::Result<Vec<Line>> {
    let number = |s: &Scenario| {
        let at = SCENARIOS.iter().position(|known| known.name == s.name).unwrap_or(0);
        FIRST_NUMBER.saturating_add(u8::try_from(at).unwrap_or(u8::MAX))
    };
    let one = |s: &'static Scenario| {
        let begun = Instant::now();
        let mut script = Script::new(cast, s.name, number(s), s.sctp);
        if let Err(error) = (s.run)(&mut script) {
            script.broke_off(&error);
        }
        let (steps, failures) = script.finish();
        progress(begun, format!("{}/{}: {}", variant.name, setting.name, s.name));
        let mut line = Line::new(variant.name, setting.name, s.name);
        (line.rows, line.failures, line.took) = (steps, failures, begun.elapsed());
        line
    };
    let (last, first): (Vec<&'static Scenario>, Vec<&'static Scenario>) =
        scenarios.iter().copied().partition(|s| s.alone);
    let mut lines: Vec<Line> = std::thread::scope(|scope| {
        let threads: Vec<_> = first.into_iter().map(|s| (s, scope.spawn(move || one(s)))).collect();
        let joined = threads.into_iter().map(|(s, thread)| {
            thread.join().unwrap_or_else(|_| {
                let mut line = Line::new(variant.name, setting.name, s.name);
                line.rows = 1;
                line.failures =
                    vec![Failure { title: s.name.to_owned(), details: "its thread died".to_owned() }];
                line
            })
        });
        joined.collect()
    });
    lines.extend(last.into_iter().map(one));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_scenarios_have_numbers_of_their_own() {
        assert!(usize::from(FIRST_NUMBER) + SCENARIOS.len() < 250);
        for (i, scenario) in SCENARIOS.iter().enumerate() {
            assert!(SCENARIOS[i + 1..].iter().all(|other| other.name != scenario.name));
        }
    }

    #[test]
    fn every_gap_is_checked_by_something() {
        let groups = crate::matrix::groups::groups();
        for gap in crate::matrix::variant::VARIANTS.iter().flat_map(|v| v.gaps) {
            let known = SCENARIOS.iter().any(|s| s.name == gap.checked_by)
                || groups.iter().any(|g| g.name == gap.checked_by);
            assert!(known, "{}", gap.checked_by);
        }
    }
}
