//! `proxier --init-only`: what needs privilege, and nothing else (core spec 7.7, 7.8). An init container does it with all rights; the daemon beside
//! it then needs fewer.

use std::io::Write;

use super::setup::Setup;
use super::{Ended, host};
use crate::cli::ConfigFlags;

pub(super) fn init(flags: &ConfigFlags, out: &mut dyn Write) -> anyhow::Result<Ended> {
    let setup = Setup::from_flags(flags)?;
    setup.log()?;
    host::prepare(&setup.config)?;
    let mut world = setup.world()?;
    world.set_host_addresses(proxier_sys::addresses::host_addresses()?);
    let commit = world.commit();
    for mut instance in setup.usable()? {
        let family = instance.family();
        instance.prepare(commit.snapshot(family).context())?;
        writeln!(out, "{} {family}: prepared", instance.name())?;
    }
    Ok(Ended::Well)
}
