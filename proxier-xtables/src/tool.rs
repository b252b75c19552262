//! Which `iptables` is run: the tools of a family in one of their two variants, and the choice between these (iptables spec 2).
//!
//! Looking never makes a table: with nft a listing makes none, and of legacy everything is listed instead of one table, since naming a
//! table makes it.

use std::fmt;
use std::io;

use proxier_core::backend::Requirement;
use proxier_core::ids::IpFamily;
use proxier_sys::process::Capability;
use proxier_sys::runner::{CommandSpec, RunError, Runner};

use crate::error::Error;

/// Which of the kernel's two interfaces the tools write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// `nf_tables`.
    Nft,
    /// `ip_tables`.
    Legacy,
}

impl Variant {
    /// Both, in the order they are asked in.
    pub const ALL: [Self; 2] = [Self::Nft, Self::Legacy];

    /// Its name in the names of tools and in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A version of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32, pub u32);

/// The oldest that is used: from here on `iptables-restore` takes `-w 5`, and `MASQUERADE` takes `--random-fully` (iptables spec 2).
pub const OLDEST: Version = Version(1, 6, 2);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Reads `iptables v1.8.9 (nf_tables)`. Before 1.8 there was one variant and nothing in brackets.
fn read_version(text: &str) -> Option<(Version, Variant)> {
    let numbers = text.split_once(" v")?.1.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?;
    let mut numbers = numbers.split('.').map_while(|n| n.parse().ok());
    let version = Version(numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0));
    let variant = if text.contains("(nf_tables)") { Variant::Nft } else { Variant::Legacy };
    Some((version, variant))
}

/// The tools of one family and variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// The family.
    pub family: IpFamily,
    /// The variant.
    pub variant: Variant,
    /// Their version.
    pub version: Version,
    /// Lists, adds and deletes single rules.
    pub tool: String,
    /// Lists everything.
    pub save: String,
    /// Takes inputs.
    pub restore: String,
}

impl Tools {
    /// The tools with these names, as far as `--version` tells; `None` if there are none, or they are of another variant.
    fn find(runner: &dyn Runner, family: IpFamily, variant: Variant) -> Result<Option<Self>, Error> {
        let stem = stem(family);
        for prefix in [format!("{stem}-{variant}"), stem.to_owned()] {
            let output = match runner.run(&CommandSpec::new(&prefix, ["--version"])) {
                Ok(output) => output,
                Err(RunError::Missing { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some((version, found)) = read_version(&output.stdout_text())
                && found == variant
            {
                let (save, restore) = (format!("{prefix}-save"), format!("{prefix}-restore"));
                return Ok(Some(Self { family, variant, version, tool: prefix, save, restore }));
            }
        }
        Ok(None)
    }
}

fn stem(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ipv4 => "iptables",
        IpFamily::Ipv6 => "ip6tables",
    }
}

/// The tools that are run, and why these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The tools.
    pub tools: Tools,
    /// Why, in an operator's words.
    pub reason: String,
}

/// Chooses a variant: the one that is wanted, else the one that kubelet uses, else nft.
///
/// # Errors
/// [`Error::NoTools`] if there is none to choose; a tool that cannot be run.
pub fn choose(runner: &dyn Runner, family: IpFamily, wanted: Option<Variant>) -> Result<Chosen, Error> {
    let none = |looked_for: String| Error::NoTools { looked_for };
    if let Some(variant) = wanted {
        let tools = Tools::find(runner, family, variant)?;
        let missing = || none(format!("{}-{variant}, as the configuration asks", stem(family)));
        return Ok(Chosen { tools: tools.ok_or_else(missing)?, reason: "as configured".to_owned() });
    }
    let nft = Tools::find(runner, family, Variant::Nft)?;
    let legacy = Tools::find(runner, family, Variant::Legacy)?;
    let (tools, reason) = match (nft, legacy) {
        (None, None) => return Err(none(format!("{0}-nft, {0}-legacy and {0} are missing", stem(family)))),
        (Some(only), None) | (None, Some(only)) => (only, "the only variant installed".to_owned()),
        (Some(nft), Some(legacy)) => {
            if let Some(chain) = kubelet_in(runner, &nft, &["-t", "mangle"]) {
                (nft, format!("kubelet's {chain} is there"))
            } else if let Some(chain) = kubelet_in(runner, &legacy, &[]) {
                (legacy, format!("kubelet's {chain} is there"))
            } else {
                (nft, "no chain of kubelet in either variant".to_owned())
            }
        }
    };
    Ok(Chosen { tools, reason })
}

/// The same as answers for an operator: what is missing or too old is an answer, too.
///
/// # Errors
/// A tool that cannot be run.
pub fn look(
    runner: &dyn Runner,
    family: IpFamily,
    wanted: Option<Variant>,
) -> Result<(Option<Chosen>, Vec<Requirement>), Error> {
    let told = |what: String, found, detail| Requirement { what, found, required: true, detail };
    let there = "iptables tools".to_owned();
    match choose(runner, family, wanted) {
        Ok(chosen) => {
            let Tools { tool, variant, version, .. } = &chosen.tools;
            let detail = format!("{tool} {version} ({variant}): {}", chosen.reason);
            let age = told(format!("iptables {OLDEST} or newer"), *version >= OLDEST, version.to_string());
            let told = vec![told(there, true, detail), age];
            Ok((Some(chosen), told))
        }
        Err(error @ Error::NoTools { .. }) => Ok((None, vec![told(there, false, error.to_string())])),
        Err(error) => Err(error),
    }
}

/// The right that the tools of a variant need beside CAP_NET_ADMIN, as an answer for an operator. Legacy tools read and write tables by a raw socket, and say
/// no more than that they must be root where they get none.
#[must_use]
pub fn right(tools: &Tools, has: impl FnOnce(Capability) -> io::Result<bool>) -> Option<Requirement> {
    const NEEDED: Capability = Capability::NetRaw;
    let told = |found, detail: String| {
        let what = format!("right CAP_{}", NEEDED.name());
        Some(Requirement { what, found, required: true, detail })
    };
    match (tools.variant, has(NEEDED)) {
        (Variant::Nft, _) => None,
        (Variant::Legacy, Ok(true)) => told(true, "yes".to_owned()),
        (Variant::Legacy, Ok(false)) => told(false, format!("{} opens a raw socket", tools.tool)),
        // What the tool says later is all there is.
        (Variant::Legacy, Err(error)) => told(true, format!("not known: {error}")),
    }
}

/// Every usable set of tools of a family: what a cleanup has to look at.
///
/// # Errors
/// A tool that cannot be run.
pub fn all(runner: &dyn Runner, family: IpFamily) -> Result<Vec<Tools>, Error> {
    let mut found = Vec::new();
    for variant in Variant::ALL {
        found.extend(Tools::find(runner, family, variant)?);
    }
    Ok(found)
}

/// Chains that kubelet makes in the variant it uses.
const KUBELET: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// Which chain of kubelet a variant shows, in either family. One that cannot be listed shows none.
fn kubelet_in(runner: &dyn Runner, tools: &Tools, args: &[&str]) -> Option<&'static str> {
    IpFamily::ALL.into_iter().find_map(|family| {
        let save = tools.save.replacen(stem(tools.family), stem(family), 1);
        let output = runner.run(&CommandSpec::new(save, args.iter().copied())).ok()?;
        let text = output.stdout_text();
        let shows = |chain: &&str| {
            text.lines().any(|l| l.strip_prefix(':').is_some_and(|l| l.split(' ').next() == Some(*chain)))
        };
        KUBELET.iter().find(|c| shows(c)).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxier_testkit::script::Script;

    const NFT: &str = "iptables v1.8.9 (nf_tables)\n";
    const LEGACY: &str = "iptables v1.8.9 (legacy)\n";
    const HINT: &str = "*mangle\n:PREROUTING ACCEPT [0:0]\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";

    fn both() -> Script {
        Script::new().says("iptables-nft --version", NFT).says("iptables-legacy --version", LEGACY)
    }

    #[test]
    fn versions_of_all_ages_are_read() {
        for (text, version, variant) in [
            ("iptables v1.8.9 (nf_tables)", Version(1, 8, 9), Variant::Nft),
            ("ip6tables v1.8.10 (legacy)\n", Version(1, 8, 10), Variant::Legacy),
            ("iptables v1.6.2", Version(1, 6, 2), Variant::Legacy),
            ("iptables v1.8", Version(1, 8, 0), Variant::Legacy),
        ] {
            assert_eq!(read_version(text), Some((version, variant)), "{text}");
        }
        for text in ["", "iptables", "iptables vX.1", "busybox v1"] {
            assert_eq!(read_version(text), None, "{text}");
        }
        assert!(Version(1, 6, 1) < OLDEST && Version(1, 8, 0) > OLDEST);
    }

    #[test]
    fn legacy_tools_need_a_raw_socket() {
        let look = |wanted| choose(&both(), IpFamily::Ipv4, Some(wanted)).unwrap().tools;
        let (nft, legacy) = (look(Variant::Nft), look(Variant::Legacy));
        assert_eq!(right(&nft, |_| Ok(false)), None);
        let lacking = right(&legacy, |_| Ok(false)).unwrap();
        assert!(lacking.required && !lacking.found);
        assert_eq!(
            (lacking.what, lacking.detail),
            ("right CAP_NET_RAW".to_owned(), "iptables-legacy opens a raw socket".to_owned())
        );
        assert!(right(&legacy, |right| Ok(right == Capability::NetRaw)).unwrap().found);
        let unknown = right(&legacy, |_| Err(io::Error::other("no /proc"))).unwrap();
        assert!(unknown.found && unknown.detail.contains("no /proc"), "{unknown:?}");
    }

    #[test]
    fn kubelets_variant_is_taken() {
        let nft = both().says("iptables-nft-save -t mangle", "").says("ip6tables-nft-save -t mangle", HINT);
        let chosen = choose(&nft, IpFamily::Ipv4, None).unwrap();
        assert_eq!(
            (chosen.tools.variant, chosen.reason.as_str()),
            (Variant::Nft, "kubelet's KUBE-IPTABLES-HINT is there")
        );
        assert_eq!(
            (chosen.tools.save.as_str(), chosen.tools.restore.as_str()),
            ("iptables-nft-save", "iptables-nft-restore")
        );
        let canary = HINT.replace("KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY");
        let legacy = both()
            .says("iptables-nft-save -t mangle", "")
            .says("ip6tables-nft-save -t mangle", "")
            .says("iptables-legacy-save", &canary);
        assert_eq!(choose(&legacy, IpFamily::Ipv4, None).unwrap().tools.variant, Variant::Legacy);
    }

    #[test]
    fn a_rule_that_only_mentions_kubelets_chain_is_no_sign() {
        let text = "*mangle\n:KUBE-IPTABLES-HINTS - [0:0]\n-A X -j KUBE-IPTABLES-HINT\nCOMMIT\n";
        let script =
            both().says("iptables-nft-save -t mangle", text).says("ip6tables-nft-save -t mangle", text);
        // Neither legacy listing can be had: no sign either.
        let chosen = choose(&script, IpFamily::Ipv4, None).unwrap();
        assert_eq!(
            (chosen.tools.variant, chosen.reason.as_str()),
            (Variant::Nft, "no chain of kubelet in either variant")
        );
    }

    #[test]
    fn plain_names_are_used_where_they_are_of_the_variant() {
        let script = Script::new().says("iptables --version", LEGACY);
        let chosen = choose(&script, IpFamily::Ipv4, None).unwrap();
        assert_eq!((chosen.tools.tool.as_str(), chosen.tools.variant), ("iptables", Variant::Legacy));
        assert_eq!(chosen.reason, "the only variant installed");
        let error = choose(&script, IpFamily::Ipv4, Some(Variant::Nft)).unwrap_err();
        assert_eq!(error.to_string(), "no usable iptables: iptables-nft, as the configuration asks");
        let error = choose(&Script::new(), IpFamily::Ipv6, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no usable iptables: ip6tables-nft, ip6tables-legacy and ip6tables are missing"
        );
    }
}
