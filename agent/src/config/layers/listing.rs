//! What the layers say, all of it.

use std::collections::BTreeMap;

use super::{Effective, Layers, Listed, Origin};
use crate::config::gates::Gates;
use crate::config::table::{self, Change};
use crate::config::tree::join;

impl Layers<'_> {
    /// Every row's value as it was said, or its default.
    pub(in crate::config) fn rows(&mut self) -> BTreeMap<&'static str, Effective> {
        self.settings.clone()
    }

    /// Which features are on.
    pub(in crate::config) fn gate_values(&self) -> Gates {
        let on = |e: &Effective| e.value.as_bool().unwrap_or_default();
        Gates::new(&self.gates.iter().map(|(name, e)| (name.clone(), on(e))).collect())
    }

    /// Every effective value with its origin, in the table's order; what only a backend knows is beside its section.
    pub(in crate::config) fn listing(&self) -> Vec<Listed> {
        let (version, kind) = self.kind.names();
        let head = |path: &str, value: &str| {
            let origin = self.from.clone().map_or(Origin::Default, Origin::File);
            let effective = Effective { value: value.into(), origin };
            Listed {
                path: path.to_owned(),
                effective,
                change: Change::Restart("another kind is another file"),
            }
        };
        let mut out = vec![head("apiVersion", version), head("kind", kind)];
        let mut listed = self.listed.clone();
        let mut before = None;
        for setting in table::settings() {
            if setting.section() != before {
                take_section(&mut out, &mut listed, before);
                before = setting.section();
            }
            let by_backend = listed.iter().position(|(path, _)| path == setting.path);
            let by_backend = by_backend.map(|at| listed.remove(at).1);
            let effective = self.meant.get(setting.path).cloned().or(by_backend);
            let effective = effective.or_else(|| self.settings.get(setting.path).cloned());
            out.extend(effective.map(|effective| Listed {
                path: setting.path.to_owned(),
                effective,
                change: setting.change,
            }));
        }
        for (name, on) in self.gate_values().iter() {
            let effective = self.gates.get(name).cloned();
            let default = || Effective { value: on.into(), origin: Origin::Default };
            let effective = effective.unwrap_or_else(default);
            out.push(Listed { path: join("featureGates", name), effective, change: Change::Live });
        }
        let rest =
            listed.into_iter().map(|(path, effective)| Listed { path, effective, change: Change::Instances });
        out.extend(rest);
        out
    }
}

/// Moves a backend's lines to the end.
fn take_section(out: &mut Vec<Listed>, listed: &mut Vec<(String, Effective)>, section: Option<&str>) {
    let Some(section) = section else { return };
    let mut rest = Vec::new();
    for (path, effective) in listed.drain(..) {
        if path.split('.').next() == Some(section) {
            out.push(Listed { path, effective, change: Change::Instances });
        } else {
            rest.push((path, effective));
        }
    }
    *listed = rest;
}
