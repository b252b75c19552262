//! Mode `auto`: the first backend that this machine can serve, with the reasons for the others.

use proxier_core::driver::Instance;
use proxier_core::ids::IpFamily;

/// What was found out about a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The backend.
    pub(super) mode: String,
    /// Families that can be served.
    pub(super) serves: Vec<IpFamily>,
    /// What is missing, for each family that cannot.
    pub(super) lacks: Vec<(IpFamily, String)>,
}

/// Which backend was taken and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The one that is used; of several of which none can work, the first.
    pub(super) mode: String,
    /// It can serve some family.
    pub(super) usable: bool,
    /// Those that come before it, and itself.
    pub(super) verdicts: Vec<Verdict>,
}

impl Verdict {
    /// Asks a backend's instances what they need.
    pub(super) fn of(mode: &str, instances: Vec<Box<dyn Instance>>) -> Self {
        let mut verdict = Self { mode: mode.to_owned(), serves: Vec::new(), lacks: Vec::new() };
        for mut instance in instances {
            match missing(&mut *instance) {
                None => verdict.serves.push(instance.family()),
                Some(reason) => verdict.lacks.push((instance.family(), reason)),
            }
        }
        verdict
    }

    /// One line for people.
    pub(super) fn describe(&self) -> String {
        let reasons: Vec<String> =
            self.lacks.iter().map(|(family, why)| format!("{family}: {why}")).collect();
        match (self.serves.is_empty(), reasons.is_empty()) {
            (false, true) => format!("{}: usable", self.mode),
            (false, false) => format!("{}: usable, but {}", self.mode, reasons.join("; ")),
            (true, _) => format!("{}: not usable: {}", self.mode, reasons.join("; ")),
        }
    }
}

/// What an instance misses on this machine; `None` when it can work.
pub(super) fn missing(instance: &mut dyn Instance) -> Option<String> {
    if instance.family() == IpFamily::Ipv6
        && let Some(reason) = proxier_sys::ipv6::missing()
    {
        return Some(reason.to_owned());
    }
    match instance.probe() {
        Ok(capabilities) if capabilities.usable() => None,
        Ok(capabilities) => {
            let one = |r: &proxier_core::backend::Requirement| format!("{} is missing: {}", r.what, r.detail);
            Some(capabilities.missing().map(one).collect::<Vec<_>>().join("; "))
        }
        Err(error) => Some(error.source.to_string()),
    }
}

/// Goes through the modes in their order and takes the first that serves a family; the later ones are not asked.
pub(super) fn choose(order: &[String], mut ask: impl FnMut(&str) -> Verdict) -> Choice {
    let mut verdicts = Vec::new();
    for mode in order {
        let verdict = ask(mode);
        let usable = !verdict.serves.is_empty();
        verdicts.push(verdict);
        if usable {
            return Choice { mode: mode.clone(), usable, verdicts };
        }
    }
    Choice { mode: order.first().cloned().unwrap_or_default(), usable: false, verdicts }
}

impl Choice {
    /// Says in the log what was taken, and why nothing before it.
    pub(super) fn log(&self) {
        for verdict in self.verdicts.iter().filter(|v| v.mode != self.mode || !self.usable) {
            tracing::warn!(verdict = %verdict.describe(), "mode auto passes a backend over");
        }
        if self.usable {
            tracing::info!(backend = %self.mode, "mode auto takes this backend");
        } else {
            tracing::warn!(backend = %self.mode, "mode auto finds no backend that can work here, and takes the first");
        }
    }

    /// The same as comments of a listing.
    pub(super) fn describe(&self) -> String {
        let mut out = String::new();
        for verdict in &self.verdicts {
            out.push_str(&format!("# auto: {}\n", verdict.describe()));
        }
        let why = if self.usable {
            "the first that can work here"
        } else {
            "none can work here; the first of the list"
        };
        out.push_str(&format!("# auto: mode {} is used: {why}\n", self.mode));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(mode: &str, serves: &[IpFamily]) -> Verdict {
        let lacks = IpFamily::ALL.into_iter().filter(|f| !serves.contains(f));
        let lacks = lacks.map(|f| (f, format!("no {mode}"))).collect();
        Verdict { mode: mode.to_owned(), serves: serves.to_vec(), lacks }
    }

    fn choice(usable: &[(&str, &[IpFamily])]) -> (Choice, Vec<String>) {
        let mut asked = Vec::new();
        let order = ["nftables", "iptables", "ipvs"].map(str::to_owned);
        let choice = choose(&order, |mode| {
            asked.push(mode.to_owned());
            let serves = usable.iter().find(|(m, _)| *m == mode).map_or(&[][..], |(_, f)| f);
            verdict(mode, serves)
        });
        (choice, asked)
    }

    #[test]
    fn the_first_that_serves_any_family_is_taken_and_the_rest_not_asked() {
        let (all, asked) = choice(&[("nftables", &IpFamily::ALL), ("iptables", &IpFamily::ALL)]);
        assert_eq!((all.mode.as_str(), all.usable), ("nftables", true));
        assert_eq!(asked, ["nftables"]);
        let (one, asked) = choice(&[("iptables", &[IpFamily::Ipv4])]);
        assert_eq!(one.mode, "iptables");
        assert_eq!(asked, ["nftables", "iptables"]);
        assert_eq!(
            one.describe(),
            "# auto: nftables: not usable: IPv4: no nftables; IPv6: no nftables\n\
             # auto: iptables: usable, but IPv6: no iptables\n\
             # auto: mode iptables is used: the first that can work here\n"
        );
    }

    #[test]
    fn with_none_the_first_is_taken_and_said_so() {
        let (none, asked) = choice(&[]);
        assert_eq!((none.mode.as_str(), none.usable), ("nftables", false));
        assert_eq!(asked.len(), 3);
        assert!(
            none.describe()
                .ends_with("# auto: mode nftables is used: none can work here; the first of the list\n")
        );
    }
}
