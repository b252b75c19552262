//! Options of matches and targets, as they stand on the line.

use crate::iptables::error::Cause;

/// An option.
pub(super) struct Known {
    name: &'static str,
    alias: &'static str,
    takes_value: bool,
    negatable: bool,
}

const fn value(name: &'static str) -> Known {
    Known { name, alias: "", takes_value: true, negatable: false }
}

const fn maybe(name: &'static str) -> Known {
    Known { name, alias: "", takes_value: true, negatable: true }
}

const fn flag(name: &'static str) -> Known {
    Known { name, alias: "", takes_value: false, negatable: false }
}

const fn action(name: &'static str) -> Known {
    Known { name, alias: "", takes_value: false, negatable: true }
}

const PORTS: [Known; 2] = [
    Known { name: "--sport", alias: "--source-port", takes_value: true, negatable: true },
    Known { name: "--dport", alias: "--destination-port", takes_value: true, negatable: true },
];

/// The second value of `--match-set`, which has no option of its own.
pub(super) const SET_ENDS: &str = "the ends of --match-set";

/// Matches of the model.
pub(super) const MATCHES: [(&str, &[Known]); 13] = [
    ("comment", &[value("--comment")]),
    ("conntrack", &[maybe("--ctstate")]),
    ("mark", &[maybe("--mark")]),
    ("addrtype", &[maybe("--src-type"), maybe("--dst-type")]),
    ("statistic", &[value("--mode"), maybe("--probability"), maybe("--every"), value("--packet")]),
    (
        "recent",
        &[
            action("--set"),
            action("--rcheck"),
            action("--update"),
            value("--name"),
            value("--seconds"),
            flag("--reap"),
            value("--mask"),
            flag("--rsource"),
            flag("--rdest"),
        ],
    ),
    ("tcp", &PORTS),
    ("udp", &PORTS),
    ("sctp", &PORTS),
    ("nfacct", &[value("--nfacct-name")]),
    ("set", &[Known { name: "--match-set", alias: "", takes_value: true, negatable: true }, value(SET_ENDS)]),
    ("physdev", &[action("--physdev-is-in")]),
    ("ipvs", &[maybe("--vproto"), maybe("--vaddr"), maybe("--vport")]),
];

/// Targets of the model that take options, or could.
pub(super) const TARGETS: [(&str, &[Known]); 4] = [
    (
        "MARK",
        &[
            value("--set-xmark"),
            value("--set-mark"),
            value("--or-mark"),
            value("--and-mark"),
            value("--xor-mark"),
        ],
    ),
    ("MASQUERADE", &[flag("--random-fully")]),
    ("DNAT", &[value("--to-destination")]),
    ("REJECT", &[value("--reject-with")]),
];

/// An option that was given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) name: &'static str,
    pub(super) negated: bool,
    pub(super) value: String,
}

/// A match or target with the options that were given for it.
pub(super) struct Module {
    pub(super) name: &'static str,
    known: &'static [Known],
    pub(super) given: Vec<Given>,
}

impl Module {
    /// One of this name.
    pub(super) fn new(all: &'static [(&'static str, &'static [Known])], name: &str) -> Option<Self> {
        let (name, known) = all.iter().find(|(known, _)| *known == name)?;
        Some(Self { name, known, given: Vec::new() })
    }

    /// Takes an option if it is one of its own; `next` gives its value.
    pub(super) fn take(
        &mut self,
        option: &str,
        negated: bool,
        mut next: impl FnMut() -> Option<String>,
    ) -> Result<bool, Cause> {
        let is = |k: &&Known| k.name == option || (!k.alias.is_empty() && k.alias == option);
        let Some(known) = self.known.iter().find(is) else { return Ok(false) };
        if negated && !known.negatable {
            return Err(Cause::BadArgument("!".into()));
        }
        if self.given.iter().any(|g| g.name == known.name) {
            return Err(Cause::Repeated(option.into()));
        }
        let value = match known.takes_value {
            true => next().ok_or_else(|| Cause::NeedsArgument(option.into()))?,
            false => String::new(),
        };
        self.given.push(Given { name: known.name, negated, value });
        if known.name == "--match-set" {
            // The only option with two values.
            let value = next().ok_or_else(|| Cause::NeedsArgument(option.into()))?;
            self.given.push(Given { name: SET_ENDS, negated: false, value });
        }
        Ok(true)
    }

    /// An option that was given.
    pub(super) fn get(&self, name: &str) -> Option<&Given> {
        self.given.iter().find(|g| g.name == name)
    }

    /// An option that must be there.
    pub(super) fn need(&self, name: &'static str) -> Result<&Given, Cause> {
        self.get(name).ok_or(Cause::Missing(name))
    }
}
