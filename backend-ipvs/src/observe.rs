//! Reads what the kernel holds of one family.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use proxier_core::ids::IpFamily;
use proxier_sys::runner::Runner;
use proxier_xtables::objects::{Rule, Table};
use proxier_xtables::saved::{self, Saved};
use proxier_xtables::spelling::canonical;
use proxier_xtables::tool::Tools;

use crate::environment::Environment;
use crate::error::Error;
use crate::kernel::{Kernel, Listing, RealServers};
use crate::objects::{RealServer, ServiceKey, VirtualServer};
use crate::observed::{Observed, SeenReal, SeenService, SeenSet};
use crate::sets::SetId;
use crate::skeleton;
use crate::wire::ipvs::{self, ServiceId};

/// Chains of the hooks, from which ours are reached.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Everything of a family, and what is worked out `beside` that, while the kernel prints its longest list.
///
/// # Errors
/// What cannot be read.
pub(crate) fn observe<T>(
    kernel: &mut Kernel,
    runner: &dyn Runner,
    tools: &Tools,
    env: &Environment,
    beside: impl FnOnce() -> T,
) -> Result<(Observed, T), Error> {
    let family = env.family;
    let chains = skeleton::names();
    let keep = |table: Table, name: &str| {
        BUILT_IN.contains(&name) || chains.iter().any(|c| c.table == table && *c.name == *name)
    };
    thread::scope(|scope| {
        let listing = Listing::begin(scope);
        let dump = kernel.ipvs()?.dump()?;
        let sets = sets(kernel, family)?;
        let device = kernel.device.find()?.is_some();
        let bound = kernel.device.bound(family)?.into_iter().collect();
        let mut rules = saved::read(runner, tools, keep)?;
        respell(&mut rules, env);
        let beside = beside();
        let (services, reals) = kernel.ipvs()?.agreed(dump, listing.end()?)?;
        Ok((Observed { services: of_family(services, reals, family), sets, device, bound, rules }, beside))
    })
}

/// Every virtual server of a family with its real servers, but for those of forms that this backend never makes.
pub(crate) fn services(
    kernel: &mut Kernel,
    family: IpFamily,
) -> Result<BTreeMap<ServiceKey, SeenService>, Error> {
    let (services, reals) = kernel.ipvs()?.everything()?;
    Ok(of_family(services, reals, family))
}

fn of_family(
    services: Vec<ipvs::SeenService>,
    mut reals: RealServers,
    family: IpFamily,
) -> BTreeMap<ServiceKey, SeenService> {
    let mut out = BTreeMap::new();
    for seen in services.into_iter().filter(|s| s.id.family() == family) {
        let ServiceId::Key(key) = seen.id else { continue };
        let ours = seen.as_ours();
        let found = reals.remove(&key).unwrap_or_default();
        // A real server that stands for all ports is none of ours.
        let odd = ours.is_none() || found.iter().any(|real| real.server().is_none());
        let real = found.iter().filter_map(|real| Some((real.server()?, seen_real(real)))).collect();
        out.insert(
            key,
            SeenService { server: ours.unwrap_or_else(|| as_well_as_can_be(key, &seen)), odd, real },
        );
    }
    out
}

/// The kernel's settings, as far as they have a place in ours.
fn as_well_as_can_be(key: ServiceKey, seen: &ipvs::SeenService) -> VirtualServer {
    let persistence = (seen.timeout > 0).then(|| Duration::from_secs(seen.timeout.into()));
    VirtualServer { key, scheduler: seen.scheduler.as_str().into(), persistence, hash_port: false }
}

fn seen_real(real: &ipvs::SeenReal) -> SeenReal {
    SeenReal { weight: real.weight, usual: real.masquerades, active: real.active, inactive: real.inactive }
}

/// The real servers of one virtual server.
pub(crate) fn reals(kernel: &mut Kernel, key: &ServiceKey) -> Result<BTreeMap<RealServer, SeenReal>, Error> {
    let reals = kernel.ipvs()?.reals(key)?;
    Ok(reals.iter().filter_map(|real| Some((real.server()?, seen_real(real)))).collect())
}

/// Our sets of a family.
pub(crate) fn sets(kernel: &mut Kernel, family: IpFamily) -> Result<BTreeMap<SetId, SeenSet>, Error> {
    let mut out = BTreeMap::new();
    for id in SetId::ALL {
        let Some(seen) = kernel.sets.read(&id.name(family))? else { continue };
        let right = seen.is_a(&id.definition(family));
        let other_type = (!right).then(|| match seen.family {
            Some(family) => format!("{} ({family})", seen.type_name),
            None => seen.type_name.clone(),
        });
        out.insert(
            id,
            SeenSet { other_type, entries: seen.entries.into_iter().collect(), strange: seen.strange },
        );
    }
    Ok(out)
}

/// Puts rules that only differ in spelling into ours: tools of other ages print other words for the same.
fn respell(saved: &mut Saved, env: &Environment) {
    let all = skeleton::chains(env, SetId::ALL.into_iter().collect());
    let own = all.into_iter().flat_map(|(_, rules)| rules);
    let ours: BTreeMap<String, Rule> = own
        .chain(skeleton::jumps().into_iter().map(|(_, rule)| rule))
        .map(|rule| (canonical(&rule.0), rule))
        .collect();
    for rule in saved.chains.values_mut().flatten() {
        if let Some(same) = ours.get(&canonical(&rule.0)) {
            *rule = same.clone();
        }
    }
}
