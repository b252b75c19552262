//! Which of the things this backend needs are on this host.
//!
//! Every match and target is tried for real in a network namespace of its own (see [`proxier_xtables::trial`]): the host's tables are not touched, and
//! tool and kernel are asked instead of version numbers.

use proxier_core::backend::{Atomicity, Capabilities, Requirement};
use proxier_core::ids::{IpFamily, Protocol};
use proxier_sys::process;
use proxier_sys::runner::Runner;
use proxier_sys::sysctl::Sysctl;
use proxier_xtables::Error;
use proxier_xtables::feature::{self, Feature};
use proxier_xtables::objects::Table::{Filter, Mangle, Nat};
use proxier_xtables::tool::{self, Chosen, Tools, Variant};
use proxier_xtables::trial::{NewTrial, Trial};
use std::path::Path;

/// What was found: for an operator, and for what rules depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// For the operator; [`Capabilities::usable`] says whether all that is required is there.
    pub capabilities: Capabilities,
    /// The tools; `None` if there are none.
    pub chosen: Option<Chosen>,
    /// `MASQUERADE --random-fully` is taken.
    pub random_fully: bool,
    /// The `recent` match is taken: session affinity.
    pub recent: bool,
    /// Rules may mention counting objects.
    pub nfacct: bool,
    /// The tool prints rules as they were written. Where it does not, compare by [`proxier_xtables::spelling::canonical`].
    pub same_spelling: bool,
    /// `nf_conntrack_tcp_be_liberal` could be read and is not 0 (iptables spec 5.2).
    pub tcp_be_liberal: bool,
}

/// Asks for everything.
///
/// # Errors
/// Only when a tool that is there cannot be run.
pub fn probe(
    runner: &dyn Runner,
    trial: NewTrial<'_>,
    sysctl: &Sysctl,
    family: IpFamily,
    wanted: Option<Variant>,
) -> Result<Probed, Error> {
    let (chosen, mut requirements) = tool::look(runner, family, wanted)?;
    if family == IpFamily::Ipv6 {
        requirements.push(ipv6(sysctl, Path::new("/proc/net/if_inet6")));
    }
    if let Some(chosen) = &chosen {
        requirements.extend(tool::right(&chosen.tools, process::has_capability));
        requirements.extend(features(trial, &chosen.tools));
    }
    let (tcp_be_liberal, requirement) = be_liberal(sysctl);
    requirements.push(requirement);
    let found = |what: &str| requirements.iter().any(|r| r.what == what && r.found);
    let [random_fully, recent, nfacct, reject, same_spelling] =
        [RANDOM_FULLY, RECENT, NFACCT, REJECT, SPELLING].map(found);
    Ok(Probed {
        capabilities: Capabilities {
            protocols: Protocol::ALL.to_vec(),
            session_affinity: recent,
            source_ranges: true,
            localhost_node_ports: family == IpFamily::Ipv4,
            reject,
            partial_sync: true,
            atomicity: Atomicity::PerTable,
            check: true,
            requirements,
        },
        chosen,
        random_fully,
        recent,
        nfacct,
        same_spelling,
        tcp_be_liberal,
    })
}

fn told(what: &str, found: bool, required: bool, detail: String) -> Requirement {
    Requirement { what: what.to_owned(), found, required, detail }
}

/// IPv6 may be missing or off (iptables spec 2).
fn ipv6(sysctl: &Sysctl, interfaces: &Path) -> Requirement {
    let what = "IPv6";
    if !interfaces.exists() {
        return told(what, false, true, format!("{} is missing: IPv6 is off", interfaces.display()));
    }
    match sysctl.read("net/ipv6/conf/all/disable_ipv6") {
        Ok(value) if value == "1" => told(what, false, true, "disable_ipv6 is 1".to_owned()),
        Ok(_) => told(what, true, true, "yes".to_owned()),
        Err(error) => told(what, true, true, error.to_string()),
    }
}

/// Whether connection tracking lets out-of-window packets pass, so that they must not be dropped here.
fn be_liberal(sysctl: &Sysctl) -> (bool, Requirement) {
    const KEY: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";
    let (liberal, detail) = match sysctl.read_number::<u32>(KEY) {
        Ok(0) => (false, "0: invalid packets are dropped".to_owned()),
        Ok(value) => (true, format!("{value}: invalid packets are left alone")),
        Err(error) => (false, format!("invalid packets are dropped; {error}")),
    };
    (liberal, told("nf_conntrack_tcp_be_liberal", true, false, detail))
}

const RANDOM_FULLY: &str = "MASQUERADE --random-fully";
const RECENT: &str = "match recent";
const NFACCT: &str = "match nfacct";
const REJECT: &str = "target REJECT";
const SPELLING: &str = "rules printed as written";

/// All that rules of iptables spec 5 are made of.
const FEATURES: [Feature; 16] = [
    Feature::needed("table filter", Filter, &["-j ACCEPT"]),
    Feature::needed("table nat", Nat, &["-j ACCEPT"]),
    Feature::optional("table mangle", Mangle, &["-j ACCEPT"]),
    Feature::needed("match comment", Nat, &["-m comment --comment probe"]),
    Feature::needed("match conntrack", Filter, &["-m conntrack --ctstate INVALID -j DROP"]),
    Feature::needed("match mark", Nat, &["-m mark ! --mark 0x4000/0x4000 -j RETURN"]),
    Feature::needed("match addrtype", Nat, &["-m addrtype --dst-type LOCAL -j RETURN"]),
    Feature::needed("match statistic", Nat, &["-m statistic --mode random --probability 0.5 -j RETURN"]),
    Feature::needed(
        "matches tcp, udp",
        Nat,
        &["-p tcp -m tcp --dport 1 -j RETURN", "-p udp -m udp --dport 1 -j RETURN"],
    ),
    Feature::optional("match sctp", Nat, &["-p sctp -m sctp --dport 1 -j RETURN"]),
    Feature::optional(RECENT, Nat, &["-m recent --name proxier_probe --set -j RETURN"]).assumed(),
    Feature::needed("target MARK", Nat, &["-j MARK --set-xmark 0x4000/0x4000"]),
    Feature::needed("target MASQUERADE", Nat, &["-j MASQUERADE"]),
    // Every version of the tool that is taken, and every kernel since 3.14.
    Feature::optional(RANDOM_FULLY, Nat, &["-j MASQUERADE --random-fully"]).assumed(),
    Feature::optional(NFACCT, Filter, &["-m nfacct --nfacct-name proxier_probe -j DROP"]),
    Feature::needed(REJECT, Filter, &["-j REJECT"]),
];

/// Tries each feature in a place of its own.
fn features(trial: NewTrial<'_>, tools: &Tools) -> Vec<Requirement> {
    let dnat: &[&str] = match tools.family {
        IpFamily::Ipv4 => &["-p tcp -m tcp -j DNAT --to-destination 192.0.2.1:1"],
        IpFamily::Ipv6 => &["-p tcp -m tcp -j DNAT --to-destination [2001:db8::1]:1"],
    };
    let all: Vec<Feature> = FEATURES.into_iter().chain([Feature::needed("target DNAT", Nat, dnat)]).collect();
    match trial() {
        Ok(place) => {
            let mut told = feature::tried(&*place, tools, &all);
            told.push(spelling(&*place, tools));
            told
        }
        // The tested version's spelling is the one that is written.
        Err(reason) => all
            .iter()
            .map(|feature| feature.untried(&reason))
            .chain([told(SPELLING, true, false, format!("not tried: {reason}"))])
            .collect(),
    }
}

/// One rule of each kind, in the spelling that this backend writes; `{}` is an address and its length.
const WRITTEN: [&str; 8] = [
    "-d {} -p tcp -m comment --comment \"a/b:c cluster IP\" -m tcp --dport 80 -j RETURN",
    "! -s {} -p udp -m comment --comment \"a/b cluster IP\" -m udp --dport 80 -j RETURN",
    "-s {} -m comment --comment \"a/b:c\" -j RETURN",
    "-m comment --comment \"a/b -> c\" -m statistic --mode random --probability 0.33333333349 -j RETURN",
    "-p tcp -m comment --comment \"a/b\" -m addrtype --dst-type LOCAL -m tcp --dport 80 -j RETURN",
    "-m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-j MARK --set-xmark 0x4000/0x4000",
    "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
];

/// Whether the tool prints rules as they were written.
fn spelling(place: &dyn Trial, tools: &Tools) -> Requirement {
    let told = |found, detail| told(SPELLING, found, false, detail);
    let address = match tools.family {
        IpFamily::Ipv4 => "192.0.2.1/32",
        IpFamily::Ipv6 => "2001:db8::1/128",
    };
    let written = WRITTEN.map(|rule| rule.replace("{}", address));
    match feature::printed_alike(place, tools, Nat, &written.each_ref().map(String::as_str)) {
        Ok(()) => told(true, format!("{0} of {0} rules", written.len())),
        Err(reason) => told(false, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxier_testkit::script::Script;

    fn no_trial() -> Result<Box<dyn Trial>, String> {
        Err("no right".to_owned())
    }

    fn nowhere() -> Sysctl {
        Sysctl::under("/nonexistent")
    }

    #[test]
    fn nothing_installed_is_an_answer() {
        let probed = probe(&Script::new(), &no_trial, &nowhere(), IpFamily::Ipv4, None).unwrap();
        assert!(!probed.capabilities.usable());
        let missing: Vec<_> = probed.capabilities.missing().map(|r| r.what.as_str()).collect();
        assert_eq!(missing, ["iptables tools"]);
        assert_eq!(probed.chosen, None);
    }

    #[test]
    fn too_old_a_version_is_named() {
        let script = Script::new().says("iptables --version", "iptables v1.6.1\n");
        let probed = probe(&script, &no_trial, &nowhere(), IpFamily::Ipv4, None).unwrap();
        let missing: Vec<_> =
            probed.capabilities.missing().map(|r| (r.what.as_str(), r.detail.as_str())).collect();
        assert_eq!(missing, [("iptables 1.6.2 or newer", "1.6.1")]);
    }

    #[test]
    fn without_a_place_to_try_what_hosts_have_is_counted_on() {
        let script = Script::new().says("iptables-nft --version", "iptables v1.8.9 (nf_tables)\n");
        let probed = probe(&script, &no_trial, &nowhere(), IpFamily::Ipv4, None).unwrap();
        assert!(probed.capabilities.usable());
        assert!(probed.recent && !probed.nfacct && probed.random_fully);
        let tools = &probed.capabilities.requirements[0];
        assert_eq!(tools.detail, "iptables-nft 1.8.9 (nft): the only variant installed");
    }

    struct Scripted(Script);

    impl Runner for Scripted {
        fn run(
            &self,
            command: &proxier_sys::runner::CommandSpec,
        ) -> Result<proxier_sys::runner::Output, proxier_sys::runner::RunError> {
            let input = String::from_utf8_lossy(command.stdin.as_deref().unwrap_or_default()).into_owned();
            let lacks = input.contains("-m recent") || input.contains("-m statistic");
            let words = if lacks { "refuse" } else { "take" };
            self.0.run(&proxier_sys::runner::CommandSpec::new(words, [""; 0]))
        }
    }

    impl Trial for Scripted {
        fn account(&self, _name: &str) -> Result<(), String> {
            Err("no accounting".to_owned())
        }
    }

    #[test]
    fn what_is_refused_is_missing_with_the_answer() {
        let place = || {
            let said = "Warning: Extension statistic revision 0 not supported, missing kernel module?\niptables-restore: line 4 failed\n";
            let script = Script::new().says("take", "").fails("refuse", 1, said);
            Ok(Box::new(Scripted(script)) as Box<dyn Trial>)
        };
        let script = Script::new().says("ip6tables-legacy --version", "ip6tables v1.8.9 (legacy)\n");
        let probed = probe(&script, &place, &nowhere(), IpFamily::Ipv6, None).unwrap();
        assert!(
            !probed.recent && !probed.capabilities.session_affinity && !probed.nfacct && probed.random_fully
        );
        let missing: Vec<_> =
            probed.capabilities.missing().map(|r| (r.what.as_str(), r.detail.as_str())).collect();
        assert!(
            missing.contains(&("match statistic", "the kernel has no statistic: refused without a reason")),
            "{missing:?}"
        );
    }

    #[test]
    fn ipv6_that_is_off_is_told() {
        let folder = std::env::temp_dir();
        assert!(!ipv6(&nowhere(), Path::new("/nonexistent")).found);
        assert!(ipv6(&nowhere(), &folder).found);
    }
}
