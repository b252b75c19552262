//! Whether tool and kernel take what rules are made of: each match and target is tried for real.
//!
//! Versions do not tell: a kernel may be built without a module, and a distribution may leave an extension of the tool out. So rules are
//! put into a chain of their own in a [`Trial`], where nothing of the host changes.

use proxier_core::backend::Requirement;

use crate::message;
use crate::objects::{ChainId, Input, Op, Rule, Step, Table};
use crate::restore;
use crate::saved;
use crate::tool::Tools;
use crate::trial::{self, Trial};

/// Something that rules need: a table, a match, a target or an option of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// In an operator's words.
    pub name: &'static str,
    /// Without it the backend cannot be used.
    pub required: bool,
    /// It is counted on where it cannot be tried: then what the tool refuses later says that it is missing.
    pub assumed: bool,
    /// The table of its rules.
    pub table: Table,
    /// Rules that use it, tried together.
    pub rules: &'static [&'static str],
}

impl Feature {
    /// One that a backend cannot do without.
    #[must_use]
    pub const fn needed(name: &'static str, table: Table, rules: &'static [&'static str]) -> Self {
        Self { name, required: true, assumed: true, table, rules }
    }

    /// One that a backend can do without.
    #[must_use]
    pub const fn optional(name: &'static str, table: Table, rules: &'static [&'static str]) -> Self {
        Self { name, required: false, assumed: false, table, rules }
    }

    /// The same, counted on where it cannot be tried.
    #[must_use]
    pub const fn assumed(self) -> Self {
        Self { assumed: true, ..self }
    }

    /// Tries it. Objects that its rules mention must be there, apart from counting objects: see [`attempt`].
    #[must_use]
    pub fn tried(&self, place: &dyn Trial, tools: &Tools) -> Requirement {
        match attempt(place, tools, self.table, self.rules) {
            Ok(()) => self.told(true, "yes".to_owned()),
            Err(answer) => self.told(false, answer),
        }
    }

    /// What can be said of it where there is no place to try it.
    #[must_use]
    pub fn untried(&self, reason: &str) -> Requirement {
        self.told(self.assumed, format!("not tried: {reason}"))
    }

    fn told(&self, found: bool, detail: String) -> Requirement {
        Requirement { what: self.name.to_owned(), found, required: self.required, detail }
    }
}

/// Name of the chain that rules are tried in; no backend has one of this name.
const CHAIN: &str = "KUBE-PROBE";

/// Tries rules together, in a chain that nothing leads to, and leaves them there. Counting objects that they mention are made first. Whatever
/// else they mention, such as sets, must have been made (see [`crate::trial::Scratch::inside`]).
///
/// # Errors
/// Why they are refused, in the tool's or the kernel's words.
pub fn attempt(place: &dyn Trial, tools: &Tools, table: Table, rules: &[&str]) -> Result<(), String> {
    let chain = ChainId { table, name: CHAIN.into() };
    let append = |rule: &&str| Op::Append(chain.clone(), Rule((*rule).into()));
    let ops = [Op::Chain(chain.clone())].into_iter().chain(rules.iter().map(append));
    let input = Input { steps: ops.map(|op| Step { op, port: None }).collect() };
    trial::accounts(place, &input)?;
    let output = place.run(&restore::command(tools, &input.text().0)).map_err(|e| e.to_string())?;
    if output.success() { Ok(()) } else { Err(message::answer(&output)) }
}

/// Whether the tool prints rules as they are given. Where it does not, rules are compared by [`crate::spelling::canonical`].
///
/// # Errors
/// The first rule that is printed otherwise, and how, or why they could not be tried.
pub fn printed_alike(place: &dyn Trial, tools: &Tools, table: Table, rules: &[&str]) -> Result<(), String> {
    attempt(place, tools, table, rules)?;
    let read =
        saved::read(place, tools, |t, chain| t == table && chain == CHAIN).map_err(|e| e.to_string())?;
    let read = read.rules(&ChainId { table, name: CHAIN.into() });
    match rules.iter().zip(read).find(|(given, read)| **given != &*read.0) {
        Some((given, read)) => Err(format!("{given:?} is printed as {:?}", &*read.0)),
        None if read.len() == rules.len() => Ok(()),
        None => Err(format!("of {} rules {} are printed", rules.len(), read.len())),
    }
}

#[cfg(test)]
mod tests {
    use proxier_core::ids::IpFamily;
    use proxier_sys::runner::{CommandSpec, Output, RunError, Runner};
    use proxier_testkit::script::Script;

    use super::*;
    use crate::tool::{Variant, Version};

    const RESTORE: &str = "iptables-restore -w 5 --noflush --counters";

    fn tools() -> Tools {
        let name = |tail: &str| format!("iptables{tail}");
        Tools {
            family: IpFamily::Ipv4,
            variant: Variant::Nft,
            version: Version(1, 8, 9),
            tool: name(""),
            save: name("-save"),
            restore: name("-restore"),
        }
    }

    struct Place(Script);

    impl Runner for Place {
        fn run(&self, command: &CommandSpec) -> Result<Output, RunError> {
            self.0.run(command)
        }
    }

    impl Trial for Place {
        fn account(&self, name: &str) -> Result<(), String> {
            if name == "there" { Ok(()) } else { Err("no accounting".to_owned()) }
        }
    }

    const TWO: Feature =
        Feature::needed("ports", Table::Nat, &["-p tcp -m tcp --dport 1 -j RETURN", "-p udp -j RETURN"]);

    #[test]
    fn all_rules_of_a_feature_are_tried_in_a_chain_of_their_own() {
        let place = Place(Script::new().says(RESTORE, ""));
        let told = TWO.tried(&place, &tools());
        assert_eq!((told.found, told.required, told.detail.as_str()), (true, true, "yes"));
        assert_eq!(
            place.0.inputs(),
            ["*nat\n:KUBE-PROBE - [0:0]\n-A KUBE-PROBE -p tcp -m tcp --dport 1 -j RETURN\n\
              -A KUBE-PROBE -p udp -j RETURN\nCOMMIT\n"]
        );
    }

    #[test]
    fn what_is_refused_says_why() {
        let said = "Warning: Extension tcp revision 0 not supported, missing kernel module?\niptables-restore: line 3 failed\n";
        let told = TWO.tried(&Place(Script::new().fails(RESTORE, 1, said)), &tools());
        assert_eq!(told.detail, "the kernel has no tcp: refused without a reason");
        let told = TWO.tried(&Place(Script::new()), &tools());
        assert_eq!((told.found, told.detail.as_str()), (false, "iptables-restore is not installed"));
    }

    #[test]
    fn counting_objects_are_made_first() {
        let place = Place(Script::new().says(RESTORE, ""));
        let rule = |name| format!("-m nfacct --nfacct-name {name} -j DROP");
        assert_eq!(attempt(&place, &tools(), Table::Filter, &[&rule("there")]), Ok(()));
        let missing = attempt(&place, &tools(), Table::Filter, &[&rule("missing")]);
        assert_eq!(missing, Err("no accounting".to_owned()));
        assert_eq!(place.0.inputs().len(), 1, "a rule that cannot be is not tried");
    }

    #[test]
    fn where_nothing_can_be_tried_what_is_assumed_is_counted_on() {
        let optional = Feature { required: false, assumed: false, ..TWO };
        let found = [TWO, optional, optional.assumed()].map(|f| f.untried("no right").found);
        assert_eq!(found, [true, false, true]);
        assert_eq!(TWO.untried("no right").detail, "not tried: no right");
    }

    #[test]
    fn a_rule_that_is_printed_otherwise_is_named() {
        let place = |listing: &str| {
            let listing = format!("*nat\n:KUBE-PROBE - [0:0]\n{listing}COMMIT\n");
            Place(Script::new().says(RESTORE, "").says("iptables-save", &listing))
        };
        let ask = |listing: &str| printed_alike(&place(listing), &tools(), Table::Nat, &["-j A", "-j B"]);
        assert_eq!(ask("-A KUBE-PROBE -j A\n-A KUBE-PROBE -j B\n"), Ok(()));
        let other = ask("-A KUBE-PROBE -j A\n-A KUBE-PROBE -g B\n");
        assert_eq!(other, Err("\"-j B\" is printed as \"-g B\"".to_owned()));
        assert_eq!(ask("-A KUBE-PROBE -j A\n"), Err("of 2 rules 1 are printed".to_owned()));
    }
}
