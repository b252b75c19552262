//! Reads `iptables-save`: chains and rules in the tool's spelling, without policies and counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxier_sys::runner::{CommandSpec, Runner};

use crate::error::Error;
use crate::message::{self, Failure};
use crate::objects::{ChainId, Name, Rule, Table};
use crate::tool::Tools;

/// A listing of 170,000 rules takes two seconds of a fast processor.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What the tables hold. Tables that are not [`Table`]s are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Chains, each with its rules in order.
    pub chains: BTreeMap<ChainId, Vec<Rule>>,
}

impl Saved {
    /// The rules of a chain; none for one that does not exist.
    #[must_use]
    pub fn rules(&self, chain: &ChainId) -> &[Rule] {
        self.chains.get(chain).map_or(&[], Vec::as_slice)
    }

    /// Where in a chain an equal rule first is.
    #[must_use]
    pub fn position(&self, chain: &ChainId, rule: &Rule) -> Option<usize> {
        self.rules(chain).iter().position(|r| r == rule)
    }
}

/// Lists everything and keeps the chains that `keep` wants. Naming no table makes none (iptables spec 2).
///
/// # Errors
/// A tool that fails, or one of our tables that it cannot show because another program wrote to it.
pub fn read(runner: &dyn Runner, tools: &Tools, keep: impl Fn(Table, &str) -> bool) -> Result<Saved, Error> {
    let command = CommandSpec::new(&tools.save, [""; 0]).timeout(TIMEOUT);
    let output = runner.run(&command)?;
    if !output.success() {
        let tool = tools.save.clone();
        return Err(match message::read(&output) {
            Failure::Denied(message) => Error::Denied { tool, message },
            _ if output.stderr_text().contains("Permission denied") => {
                Error::Denied { tool, message: output.first_error_line() }
            }
            _ => Error::Failed { tool, code: output.code, message: output.first_error_line() },
        });
    }
    parse(&tools.save, &String::from_utf8_lossy(&output.stdout), keep)
}

/// Reads a listing and keeps the chains that `keep` wants.
///
/// # Errors
/// [`Error::Listing`] for a line that does not belong there, [`Error::Incompatible`] for a table that the tool could not show.
pub fn parse(tool: &str, text: &str, keep: impl Fn(Table, &str) -> bool) -> Result<Saved, Error> {
    let mut reader = Reader { keep, saved: Saved::default(), table: None, open: None };
    for (at, line) in text.lines().enumerate() {
        if reader.line(line)?.is_none() {
            return Err(Error::Listing { tool: tool.to_owned(), line: at + 1, text: line.to_owned() });
        }
    }
    reader.close();
    Ok(reader.saved)
}

struct Reader<K> {
    keep: K,
    saved: Saved,
    table: Option<Table>,
    /// The chain whose rules are being read: they stand together. `None` inside for one that is not kept.
    open: Option<(Name, Option<Vec<Rule>>)>,
}

impl<K: Fn(Table, &str) -> bool> Reader<K> {
    /// `None` if the line is none of a listing.
    fn line(&mut self, line: &str) -> Result<Option<()>, Error> {
        if let Some(rest) = line.strip_prefix("-A ") {
            return Ok(self.rule(rest));
        }
        if let Some(rest) = line.strip_prefix(':') {
            return Ok(self.chain(rest));
        }
        if let Some(name) = line.strip_prefix('*') {
            self.close();
            self.table = [Table::Filter, Table::Mangle, Table::Nat].into_iter().find(|t| t.name() == name);
            return Ok(Some(()));
        }
        if line.starts_with('#') {
            return incompatible(line).map_or(Ok(Some(())), Err);
        }
        Ok((line == "COMMIT" || line.is_empty()).then_some(()))
    }

    fn chain(&mut self, rest: &str) -> Option<()> {
        let (name, _) = rest.split_once(' ')?;
        let Some(table) = self.table.filter(|t| (self.keep)(*t, name)) else { return Some(()) };
        let chain = ChainId { table, name: name.into() };
        self.saved.chains.insert(chain, Vec::new());
        Some(())
    }

    fn rule(&mut self, rest: &str) -> Option<()> {
        // A rule without any match or target is all name.
        let (name, rule) = rest.split_once(' ').unwrap_or((rest, ""));
        if self.open.as_ref().is_none_or(|(open, _)| **open != *name) {
            self.close();
            let kept = self.table.is_some_and(|t| (self.keep)(t, name));
            self.open = Some((name.into(), kept.then(Vec::new)));
        }
        if let Some((_, Some(rules))) = &mut self.open {
            rules.push(Rule(Arc::from(rule)));
        }
        Some(())
    }

    fn close(&mut self) {
        let (Some(table), Some((name, Some(rules)))) = (self.table, self.open.take()) else { return };
        let chain = self.saved.chains.entry(ChainId { table, name }).or_default();
        if chain.is_empty() {
            *chain = rules;
        } else {
            chain.extend(rules);
        }
    }
}

/// ``# Table `nat' is incompatible, use 'nft' tool.``, also ``contains incompatible base-chains``, which are other programs' and do not
/// matter.
fn incompatible(line: &str) -> Option<Error> {
    let (name, rest) = line.strip_prefix("# Table `")?.split_once('\'')?;
    if !rest.contains("is incompatible") {
        return None;
    }
    let table = [Table::Filter, Table::Mangle, Table::Nat].into_iter().find(|t| t.name() == name)?;
    Some(Error::Incompatible { table, message: line.trim_start_matches("# ").to_owned() })
}

#[cfg(test)]
mod tests {
    use proxier_core::backend::{BackendError, RetryClass};
    use proxier_core::ids::IpFamily;

    use super::*;
    use crate::tool::{Variant, Version};
    use proxier_testkit::script::Script;

    const LISTING: &str = "\
# Generated by iptables-nft-save v1.8.9 (nf_tables) on Mon Nov 30 10:59:00 2026
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -j NOTRACK
COMMIT
# Completed on Mon Nov 30 10:59:00 2026
*nat
:PREROUTING ACCEPT [12:720]
:KUBE-EMPTY - [0:0]
:KUBE-SERVICES - [0:0]
:OTHER - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OTHER -j RETURN
-A KUBE-SERVICES -d 10.96.0.1/32 -j RETURN
-A KUBE-SERVICES
COMMIT
# Warning: iptables-legacy tables present, use iptables-legacy-save to see them
";

    fn nat(name: &str) -> ChainId {
        ChainId { table: Table::Nat, name: name.into() }
    }

    #[test]
    fn chains_and_their_rules_are_read() {
        let saved = parse("save", LISTING, |_, chain| chain != "OTHER").unwrap();
        let names: Vec<_> = saved.chains.keys().map(|c| (c.table, &*c.name)).collect();
        assert_eq!(
            names,
            [(Table::Nat, "KUBE-EMPTY"), (Table::Nat, "KUBE-SERVICES"), (Table::Nat, "PREROUTING")]
        );
        let rules: Vec<_> = saved.rules(&nat("KUBE-SERVICES")).iter().map(|r| &*r.0).collect();
        assert_eq!(rules, ["-d 10.96.0.1/32 -j RETURN", ""]);
        assert!(saved.rules(&nat("KUBE-EMPTY")).is_empty());
    }

    #[test]
    fn a_table_that_cannot_be_shown_is_an_error_and_not_empty() {
        let error =
            parse("save", "# Table `nat' is incompatible, use 'nft' tool.\n", |_, _| true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "table nat cannot be read: Table `nat' is incompatible, use 'nft' tool."
        );
        for fine in [
            "# Table `raw' is incompatible, use 'nft' tool.",
            "# Table `nat' contains incompatible base-chains, use 'nft' tool to list them.",
        ] {
            assert_eq!(parse("save", fine, |_, _| true).unwrap(), Saved::default(), "{fine}");
        }
    }

    #[test]
    fn other_text_is_refused_by_line() {
        let error = parse("iptables-save", "*nat\nwhat\n", |_, _| true).unwrap_err();
        assert_eq!(error.to_string(), "line 2 of iptables-save's listing: \"what\"");
        assert_eq!(error.retry_class(), RetryClass::Bug);
    }

    #[test]
    fn a_listing_that_fails_says_why() {
        let name = |tail: &str| format!("iptables{tail}");
        let tools = Tools {
            family: IpFamily::Ipv4,
            variant: Variant::Legacy,
            version: Version(1, 8, 9),
            tool: name(""),
            save: name("-save"),
            restore: name("-restore"),
        };
        let said = "iptables-save v1.8.9 (legacy): Cannot initialize: Permission denied (you must be root)\n";
        let error = read(&Script::new().fails("iptables-save", 1, said), &tools, |_, _| true).unwrap_err();
        assert_eq!(error.retry_class(), RetryClass::Misconfigured);
        let error = read(&Script::new(), &tools, |_, _| true).unwrap_err();
        assert_eq!(error.to_string(), "iptables-save is not installed");
    }
}
