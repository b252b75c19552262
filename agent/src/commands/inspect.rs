//! `proxier probe` and `proxier verify`: they look and change nothing.

use std::io::Write;

use super::Ended;
use super::setup::Setup;
use crate::cli::{BaseFlags, ConfigFlags};

pub(super) fn probe(flags: &BaseFlags, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_base(flags)?;
    setup.log()?;
    if let Some(choice) = &setup.choice {
        out.write_all(choice.describe().as_bytes())?;
    }
    let mut all_usable = true;
    for mut instance in setup.instances() {
        let family = instance.family();
        let capabilities = instance.probe()?;
        all_usable &= capabilities.usable();
        let verdict = if capabilities.usable() { "usable" } else { "not usable" };
        writeln!(out, "{} {family}: {verdict}", instance.name())?;
        for requirement in &capabilities.requirements {
            let found = match (requirement.found, requirement.required) {
                (true, _) => "found",
                (false, true) => "MISSING",
                (false, false) => "missing (optional)",
            };
            writeln!(out, "  {found:<18} {} ({})", requirement.what, requirement.detail)?;
        }
    }
    Ok(if all_usable { Ended::Well } else { Ended::Found })
}

pub(super) fn verify(flags: &ConfigFlags, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    let mut world = setup.world()?;
    world.set_host_addresses(proxier_sys::addresses::host_addresses()?);
    let commit = setup.read_all(&mut world)?;
    let mut drifted = false;
    for mut instance in setup.instances() {
        let family = instance.family();
        // What the backend decides by this host must be decided as the daemon did.
        instance.probe()?;
        let drift = instance.compare(commit.snapshot(family))?;
        drifted |= !drift.is_empty();
        writeln!(out, "{} {family}: {} differences", instance.name(), drift.items.len())?;
        for item in drift.items {
            writeln!(out, "  {item}")?;
        }
    }
    Ok(if drifted { Ended::Found } else { Ended::Well })
}
