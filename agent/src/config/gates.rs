//! Feature gates (core spec 7.9).

use std::collections::BTreeMap;

use super::table::nearest;

/// How far a feature is; gates of the first two can be switched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

/// A gate that means something to a proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) name: &'static str,
    stage: Stage,
    pub(super) default: bool,
    /// It cannot be given another value.
    pub(super) locked: bool,
    /// Why it has no meaning here, if it has none.
    pub(super) idle: Option<&'static str>,
}

const fn gate(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default, locked: false, idle: None }
}

const fn locked(name: &'static str) -> Gate {
    Gate { name, stage: Stage::Stable, default: true, locked: true, idle: None }
}

const fn idle(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default, locked: false, idle: Some("log lines are written in one way") }
}

/// Switches all gates of stage alpha that are not named.
const ALL_ALPHA: &str = "AllAlpha";
/// The same for beta.
const ALL_BETA: &str = "AllBeta";
/// Whether `logging.options` may be given.
pub(super) const LOGGING_ALPHA: &str = "LoggingAlphaOptions";

/// The gates that are known, by name.
pub(super) const GATES: [Gate; 12] = [
    gate(ALL_ALPHA, Stage::Stable, false),
    gate(ALL_BETA, Stage::Stable, false),
    gate("AllowServiceExternalIPs", Stage::Stable, true),
    gate("ComponentFlagz", Stage::Beta, true),
    gate("ComponentStatusz", Stage::Beta, true),
    idle("ContextualLogging", Stage::Beta, true),
    idle(LOGGING_ALPHA, Stage::Alpha, false),
    idle("LoggingBetaOptions", Stage::Beta, true),
    locked("MultiCIDRServiceAllocator"),
    locked("NFTablesProxyMode"),
    gate("NativeHistograms", Stage::Alpha, false),
    locked("PreferSameTrafficDistribution"),
];

/// The gate of that name.
pub(super) fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|g| g.name == name)
}

/// The gate that was meant by a mistyped name.
pub(super) fn meant(name: &str) -> Option<&'static str> {
    nearest(name, GATES.iter().map(|g| g.name))
}

/// Which features are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    all: BTreeMap<String, bool>,
}

impl Gates {
    /// From the gates that were set.
    pub(super) fn new(set: &BTreeMap<String, bool>) -> Self {
        let together = |stage, default| match stage {
            Stage::Alpha => default || set.get(ALL_ALPHA).copied().unwrap_or(false),
            Stage::Beta => set.get(ALL_BETA).copied().unwrap_or(default),
            Stage::Stable => default,
        };
        let mut all: BTreeMap<String, bool> =
            GATES.iter().map(|g| (g.name.to_owned(), together(g.stage, g.default))).collect();
        all.extend(set.iter().map(|(name, on)| (name.clone(), *on)));
        Self { all }
    }

    /// Is this feature on? One that nobody knows is off.
    #[must_use]
    pub fn on(&self, name: &str) -> bool {
        self.all.get(name).copied().unwrap_or(false)
    }

    /// Every gate that is known or was set, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, bool)> {
        self.all.iter().map(|(name, on)| (name.as_str(), *on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(set: &[(&str, bool)]) -> Gates {
        Gates::new(&set.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect())
    }

    #[test]
    fn defaults_are_those_of_the_version() {
        let on: Vec<_> = gates(&[]).iter().filter(|(_, on)| *on).map(|(n, _)| n.to_owned()).collect();
        assert_eq!(
            on,
            [
                "AllowServiceExternalIPs",
                "ComponentFlagz",
                "ComponentStatusz",
                "ContextualLogging",
                "LoggingBetaOptions",
                "MultiCIDRServiceAllocator",
                "NFTablesProxyMode",
                "PreferSameTrafficDistribution"
            ]
        );
        assert!(!gates(&[]).on("Nothing"));
    }

    #[test]
    fn stages_are_switched_together_and_a_gate_by_its_name() {
        let alpha = gates(&[("AllAlpha", true), ("LoggingAlphaOptions", false), ("AllBeta", false)]);
        assert!(alpha.on("NativeHistograms") && !alpha.on("LoggingAlphaOptions"));
        assert!(!alpha.on("ComponentFlagz") && alpha.on("AllowServiceExternalIPs"));
        assert!(gates(&[("SomethingElse", true)]).on("SomethingElse"));
    }

    #[test]
    fn the_list_is_in_order() {
        assert!(GATES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
