//! Sequences of changes under live traffic.

use super::setting::Setting;
use super::stage::Cast;
use super::table::Line;
use super::variant::Variant;

/// A sequence.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name.
    pub name: &'static str,
}

/// All of them.
pub const SCENARIOS: [Scenario; 0] = [];

/// Runs scenarios.
pub fn run(_s: &[&Scenario], _cast: &mut Cast<'_>, _v: &Variant, _t: &Setting) -> anyhow::Result<Vec<Line>> {
    Ok(Vec::new())
}
