//! The matrix: every kind of Service, policy, caller, protocol and family on the real kernel, against the oracle.
//!
//! A [`row`] is who calls what; [`groups`] lists them with their services, in few words. [`predict`] asks the oracle on every node
//! that the packet comes to and turns its answer into what must be seen; [`observe`] sends the traffic; [`rules`] asks what the
//! kernel lists. [`engine`] compares, for each [`variant`] (a backend) in each [`setting`] (a configuration of the agents). [`live`]
//! holds what is no row: sequences of changes under traffic.
//!
//! A packet that is none of the proxy's business is met by a server where it comes to, so that leaving it alone is seen and told from
//! dropping it. Where the kernel answers otherwise than the oracle, one of the two is wrong; the report shows both.

pub mod crew;
pub mod engine;
pub mod facts;
pub mod groups;
pub mod leave;
pub mod live;
pub mod nature;
pub mod observe;
pub mod plan;
pub mod predict;
pub mod row;
pub mod rules;
pub mod setting;
pub mod shape;
pub mod stage;
pub mod table;
pub mod variant;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};

use self::row::Group;
use self::setting::{SETTINGS, Setting};
use self::shape::VipAt;
use self::stage::Stage;
use self::table::Line;
use self::variant::{VARIANTS, Variant};
use crate::pace::Pace;
use crate::traffic::has_sctp;

/// What to run: all that any of the selectors names, or everything. A selector is the name of a variant, setting, group or live
/// scenario, or several joined by `/`.
#[derive(Clone, Debug, Default)]
pub struct Selection(Vec<Vec<String>>);

impl Selection {
    /// From selectors as typed.
    ///
    /// # Errors
    /// A part that names nothing.
    pub fn parse(selectors: &[String]) -> anyhow::Result<Self> {
        let groups = groups::groups();
        let known: Vec<&str> = VARIANTS
            .iter()
            .map(|v| v.name)
            .chain(SETTINGS.iter().map(|s| s.name))
            .chain(groups.iter().map(|g| g.name))
            .chain(live::SCENARIOS.iter().map(|s| s.name))
            .collect();
        let parts: Vec<Vec<String>> =
            selectors.iter().map(|s| s.split('/').map(str::to_owned).collect()).collect();
        if let Some(unknown) = parts.iter().flatten().find(|p| !known.contains(&p.as_str())) {
            bail!("--only {unknown}: none of {}", known.join(", "));
        }
        Ok(Self(parts))
    }

    /// Is it asked for by name?
    fn names(&self, subject: &str) -> bool {
        self.0.iter().flatten().any(|part| part == subject)
    }

    fn takes(&self, variant: &Variant, setting: &Setting, subject: &str) -> bool {
        let fits = |part: &String| [variant.name, setting.name, subject].contains(&part.as_str());
        self.0.is_empty() || self.0.iter().any(|parts| parts.iter().all(fits))
    }
}

/// What came out.
#[derive(Debug)]
pub struct Report {
    /// The whole text, the summary last.
    pub text: String,
    /// Nothing differed.
    pub passed: bool,
}

/// Runs what was selected. The caller must be isolated (see [`crate::isolate::enter`]).
///
/// # Errors
/// When the lab itself cannot work.
pub fn run(selection: &Selection, pace: Pace, program: &Path, work: &Path) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let mut groups = groups::groups();
    number(&mut groups);
    let at_worker =
        |g: &Group| g.services.iter().map(|s| (s.outer_number, s.vip_at_worker)).collect::<Vec<_>>();
    let vips: Vec<(u8, VipAt)> = groups.iter().flat_map(at_worker).collect();
    let stage = Stage::up(&vips, pace)?;
    let (mut lines, mut logs): (Vec<Line>, String) = Default::default();
    let mut times = String::new();
    let mut held: table::Held = Default::default();
    let mut ran: Option<&Variant> = None;
    let mut left_out = impossible(selection)?;
    for variant in &VARIANTS {
        if let Err(why) = variant.rules.is_possible() {
            let _ = writeln!(left_out, "not run: {}: {why}", variant.name);
            if selection.names(variant.name) {
                bail!("{}: {why}", variant.name);
            }
            continue;
        }
        for setting in &SETTINGS {
            let first = setting.name == SETTINGS[0].name;
            let chosen: Vec<&Group> = groups
                .iter()
                .filter(|g| first || g.settings.contains(&setting.name))
                .filter(|g| selection.takes(variant, setting, g.name))
                .collect();
            let scenarios: Vec<&live::Scenario> = live::SCENARIOS
                .iter()
                .filter(|s| first && s.is_for(variant) && selection.takes(variant, setting, s.name))
                .filter(|s| s.is_possible().is_ok())
                .collect();
            if chosen.is_empty() && scenarios.is_empty() {
                continue;
            }
            if let Some(before) = ran.filter(|v| v.rules != variant.rules) {
                lines.push(leave::leave(stage.world.topology(), before, program)?);
            }
            ran = Some(variant);
            let start = Instant::now();
            let outcome = engine::run(&stage, (variant, setting), &chosen, (program, work), |cast| {
                live::run(&scenarios, cast, variant, setting)
            });
            let outcome = outcome.with_context(|| format!("{} in setting {}", variant.name, setting.name))?;
            lines.extend(outcome.lines);
            for (gap, rows) in outcome.gaps {
                *held.entry((variant.name, gap)).or_default() += rows;
            }
            logs.push_str(&outcome.logs);
            times.push_str(&format!(
                "{}/{}: {:.1} s\n",
                variant.name,
                setting.name,
                start.elapsed().as_secs_f64()
            ));
        }
    }
    if let Some(last) = ran {
        lines.push(leave::leave(stage.world.topology(), last, program)?);
    }
    let told: Vec<&Variant> = VARIANTS.iter().filter(|v| lines.iter().any(|l| l.variant == v.name)).collect();
    lines.extend(told.iter().flat_map(|v| table::unseen(v, &held, &lines)).collect::<Vec<_>>());
    let text = format!(
        "{}\n{}\n{times}all: {:.1} s\n{logs}\n{left_out}{}",
        table::table(&lines),
        table::gaps(&told, &held),
        begun.elapsed().as_secs_f64(),
        table::summary(&lines)
    );
    let passed = lines.iter().all(|l| l.failures.is_empty());
    Ok(Report { text, passed: passed && !lines.is_empty() })
}

/// What this kernel cannot do, whatever the backend; in words. Nothing of it may be asked for by name.
fn impossible(selection: &Selection) -> anyhow::Result<String> {
    let mut out = String::new();
    for scenario in &live::SCENARIOS {
        if let Err(why) = scenario.is_possible() {
            if selection.names(scenario.name) {
                bail!("{}: {why}", scenario.name);
            }
            let _ = writeln!(out, "not run: {}: {why}", scenario.name);
        }
    }
    if let Err(why) = has_sctp() {
        let _ =
            writeln!(out, "rows of SCTP: judged by the rules that the kernel lists, without traffic: {why}");
    }
    Ok(out)
}

/// Tells on standard error how far it is.
fn progress(begun: Instant, what: impl std::fmt::Display) {
    // Who closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "{:7.1} s  {what}", begun.elapsed().as_secs_f64());
}

/// Numbers the services of all groups.
fn number(groups: &mut [Group]) {
    let mut all: Vec<_> = groups.iter().flat_map(|g| g.services.iter().cloned()).collect();
    shape::number(&mut all);
    let mut numbered = all.into_iter();
    for group in groups {
        for service in &mut group.services {
            if let Some(next) = numbered.next() {
                *service = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_narrow_and_unknown_ones_are_refused() {
        let parse = |s: &[&str]| Selection::parse(&s.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let selection = parse(&["maps/ranges", "bridge"]).unwrap();
        let [maps, chains, ..] = &VARIANTS;
        let default = &SETTINGS[0];
        let bridge = SETTINGS.iter().find(|s| s.name == "bridge").unwrap();
        assert!(selection.takes(maps, default, "ranges"));
        assert!(!selection.takes(chains, default, "ranges"));
        assert!(!selection.takes(maps, default, "ports"));
        assert!(selection.takes(chains, bridge, "policies"));
        assert!(parse(&["maps/nonsense"]).is_err());
        assert!(parse(&[]).unwrap().takes(chains, bridge, "anything"));
    }
}
