//! What of this host the backend can use.
//!
//! Everything that would leave a trace is tried in a network namespace of its own: a virtual server for the scheduler (ipvs spec 1.1), a dummy
//! device, sets, and rules.

use proxier_core::backend::{Atomicity, Capabilities, Requirement};
use proxier_core::ids::{IpFamily, Port, Protocol};
use proxier_sys::process;
use proxier_sys::runner::Runner;
use proxier_xtables::feature::{self, Feature};
use proxier_xtables::objects::Table::{Filter, Mangle, Nat};
use proxier_xtables::tool::{self, Chosen};
use proxier_xtables::trial::Scratch;

use crate::error::Error;
use crate::kernel::{self, Kernel};
use crate::objects::{ServiceKey, VirtualServer};
use crate::options::{Facts, Options};
use crate::sets::SetType;
use crate::wire::ipset::Definition;
use crate::wire::ipvs::Change;

/// What was found.
#[derive(Clone, Debug)]
pub struct Probed {
    /// For the operator; [`Capabilities::usable`] says whether all that is required is there.
    pub capabilities: Capabilities,
    /// The tools; `None` if there are none.
    pub chosen: Option<Chosen>,
    /// What rules depend on.
    pub facts: Facts,
}

/// The set that rules are tried with.
const SET: &str = "KUBE-PROBE";
const RANDOM_FULLY: &str = "MASQUERADE --random-fully";

/// All that rules of ipvs spec 5 are made of.
const FEATURES: [Feature; 12] = [
    Feature::needed("table filter", Filter, &["-j ACCEPT"]),
    Feature::needed("table nat", Nat, &["-j ACCEPT"]),
    Feature::needed("table mangle", Mangle, &["-j ACCEPT"]),
    Feature::needed("match comment", Nat, &["-m comment --comment probe"]),
    Feature::needed("match conntrack", Filter, &["-m conntrack --ctstate NEW -j DROP"]),
    Feature::needed("match mark", Nat, &["-m mark ! --mark 0x4000/0x4000 -j RETURN"]),
    Feature::needed("match addrtype", Nat, &["-m addrtype --dst-type LOCAL -j RETURN"]),
    Feature::needed("match physdev", Nat, &["-m physdev ! --physdev-is-in -j RETURN"]),
    Feature::needed("match set", Nat, &["-m set --match-set KUBE-PROBE dst,dst -j RETURN"]),
    Feature::needed("targets MARK, MASQUERADE", Nat, &["-j MARK --set-xmark 0x4000/0x4000", "-j MASQUERADE"]),
    // Every version of the tool that is taken, and every kernel since 3.14.
    Feature::optional(RANDOM_FULLY, Nat, &["-j MASQUERADE --random-fully"]).assumed(),
    Feature::needed("target REJECT", Filter, &["-p tcp -j REJECT --reject-with tcp-reset", "-j REJECT"]),
];

/// Asks for everything.
///
/// # Errors
/// Only when a tool that is there cannot be run.
pub fn probe(runner: &dyn Runner, family: IpFamily, options: &Options) -> Result<Probed, Error> {
    if let Some(said) = kernel::load_modules(runner, &options.scheduler) {
        tracing::debug!(said, "modprobe");
    }
    let (chosen, mut requirements) = tool::look(runner, family, options.variant)?;
    requirements.push(ipvs());
    requirements.extend(chosen.as_ref().and_then(|c| tool::right(&c.tools, process::has_capability)));
    match Scratch::new() {
        Ok(place) => {
            let found = place.inside(|| kernel_parts(family, options)).unwrap_or_else(|error| {
                vec![told("trials", false, format!("no network namespace for them: {error}"))]
            });
            requirements.extend(found);
            if let Some(chosen) = &chosen {
                requirements.extend(feature::tried(&place, &chosen.tools, &FEATURES));
            }
        }
        Err(error) => {
            let reason = error.to_string();
            requirements.push(told("trials", true, format!("not made, all the rest is assumed: {reason}")));
            requirements.extend(FEATURES.iter().map(|feature| feature.untried(&reason)));
        }
    }
    let found = |what: &str| requirements.iter().any(|r| r.what == what && r.found);
    let random_fully = found(RANDOM_FULLY);
    Ok(Probed {
        capabilities: Capabilities {
            protocols: Protocol::ALL.to_vec(),
            session_affinity: true,
            source_ranges: true,
            localhost_node_ports: false,
            reject: true,
            partial_sync: true,
            atomicity: Atomicity::PerObject,
            check: false,
            requirements,
        },
        chosen,
        facts: Facts { random_fully },
    })
}

fn told(what: &str, found: bool, detail: String) -> Requirement {
    Requirement { what: what.to_owned(), found, required: true, detail }
}

fn of<T>(what: &str, result: Result<T, Error>, detail: impl FnOnce(T) -> String) -> Requirement {
    match result {
        Ok(value) => told(what, true, detail(value)),
        Err(error) => told(what, false, error.to_string()),
    }
}

/// The kernel's IPVS, in the host's own namespace.
fn ipvs() -> Requirement {
    of("IPVS", Kernel::open().and_then(|mut kernel| kernel.ipvs()?.info()), |info| info.to_string())
}

/// What is tried by making it, in a namespace that is thrown away.
fn kernel_parts(family: IpFamily, options: &Options) -> Vec<Requirement> {
    let mut kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(error) => return vec![told("ipset", false, error.to_string())],
    };
    let scheduler = format!("scheduler {}", options.scheduler);
    let mut out = vec![
        of(&scheduler, try_scheduler(&mut kernel, family, options), |()| "yes".to_owned()),
        of("dummy devices", kernel.device.ensure(), |_| "yes".to_owned()),
    ];
    for kind in SetType::ALL {
        let what = format!("ipset {}", kind.name());
        out.push(of(&what, kernel.sets.revisions(kind, family), |r| {
            format!("revisions {} to {}", r.oldest, r.newest)
        }));
    }
    let set = Definition::new(SET, SetType::HashIpPort, family);
    if let Err(error) = kernel.sets.create(&[set]) {
        out.push(told("an ipset", false, error.to_string()));
    }
    out
}

/// A virtual server of TEST-NET-2, or of the documentation's range in IPv6.
fn try_scheduler(kernel: &mut Kernel, family: IpFamily, options: &Options) -> Result<(), Error> {
    let ip = match family {
        IpFamily::Ipv4 => [198, 51, 100, 0].into(),
        IpFamily::Ipv6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0].into(),
    };
    let Some(port) = Port::new(20_000) else { return Ok(()) };
    let key = ServiceKey { protocol: Protocol::Tcp, ip, port };
    let server =
        VirtualServer { key, scheduler: options.scheduler.clone(), persistence: None, hash_port: false };
    let ipvs = kernel.ipvs()?;
    if let Some(refusal) = ipvs.change(&[Change::NewService(server)])?.into_iter().next() {
        return Err(Error::NoScheduler { name: options.scheduler.to_string(), answer: refusal.reason });
    }
    match ipvs.service(&key)? {
        Some(_) => Ok(()),
        None => {
            let answer = "it took a virtual server and has none".to_owned();
            Err(Error::NoScheduler { name: options.scheduler.to_string(), answer })
        }
    }
}
