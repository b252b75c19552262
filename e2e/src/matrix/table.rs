//! What came out of the matrix: a line for each group and scenario, gaps, and every difference in full.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::setting::SETTINGS;
use super::variant::{LOOPBACK, Variant};

/// A row or scenario step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it is.
    pub title: String,
    /// Expected, seen, the oracle's reasons.
    pub details: String,
}

/// A group or scenario in one variant and setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Variant.
    pub variant: &'static str,
    /// Setting.
    pub setting: &'static str,
    /// Group or scenario.
    pub group: &'static str,
    /// Number of rows or steps.
    pub rows: usize,
    /// Time that its rows took, of which many run at once.
    pub took: Duration,
    /// Those that failed.
    pub failures: Vec<Failure>,
}

impl Line {
    /// A line without rows.
    #[must_use]
    pub fn new(variant: &'static str, setting: &'static str, group: &'static str) -> Self {
        Self { variant, setting, group, rows: 0, took: Duration::ZERO, failures: Vec::new() }
    }

    /// Rows that passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.rows.saturating_sub(self.failures.len())
    }
}

const HEAD: [&str; 7] = ["variant", "setting", "group", "rows", "passed", "failed", "time, s"];

/// The table, and below it every difference.
#[must_use]
pub fn table(lines: &[Line]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(lines.iter().map(|l| {
        [
            l.variant.to_owned(),
            l.setting.to_owned(),
            l.group.to_owned(),
            l.rows.to_string(),
            l.passed().to_string(),
            l.failures.len().to_string(),
            format!("{:.2}", l.took.as_secs_f64()),
        ]
    }));
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let names = row[..3].iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let numbers = row[3..].iter().zip(&widths[3..]).map(|(cell, width)| format!("{cell:>width$}"));
        let cells: Vec<String> = names.chain(numbers).collect();
        let _ = writeln!(text, "{}", cells.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "{}", widths.map(|width| "-".repeat(width)).join("-+-"));
        }
    }
    for line in lines {
        for failure in &line.failures {
            let _ = write!(
                text,
                "\nDIFFERS {}/{}/{}: {}\n",
                line.variant, line.setting, line.group, failure.title
            );
            for detail in failure.details.lines() {
                let _ = writeln!(text, "  {detail}");
            }
        }
    }
    text
}

/// In how many rows of a variant each gap held, by the gap's [`what`](super::variant::Gap::what).
pub type Held = BTreeMap<(&'static str, &'static str), usize>;

/// The group and setting in which node ports are called on loopback, and wanted there.
const ON_LOOPBACK: (&str, &str) = ("node-ports", "node-cidr");

/// A gap or an ability that no row showed although its rows were run is not there any more, or never was.
#[must_use]
pub fn unseen(variant: &Variant, held: &Held, lines: &[Line]) -> Vec<Line> {
    let gaps = variant.gaps.iter().filter(|g| g.instead.is_some());
    let gaps = gaps.map(|g| (g.what, g.checked_by, SETTINGS[0].name));
    let ability = variant.localhost_node_ports.then_some((LOOPBACK, ON_LOOPBACK.0, ON_LOOPBACK.1));
    let missing = gaps.chain(ability).filter(|(what, group, setting)| {
        let own = |l: &&Line| l.variant == variant.name && l.group == *group && l.setting == *setting;
        lines.iter().any(|l| own(&l)) && !held.contains_key(&(variant.name, *what))
    });
    let line = |(what, group, setting)| {
        let mut line = Line::new(variant.name, setting, group);
        line.rows = 1;
        let details = "seen in none: the declaration is wrong".to_owned();
        line.failures.push(Failure { title: format!("some row shows: {what}"), details });
        line
    };
    missing.map(line).collect()
}

/// What the backends do that others do not, and what they are known not to do, each once.
#[must_use]
pub fn gaps(variants: &[&Variant], held: &Held) -> String {
    let mut text = String::new();
    let mut told: Vec<&str> = Vec::new();
    for variant in variants.iter().filter(|v| {
        let new = !told.contains(&v.backend);
        told.push(v.backend);
        new
    }) {
        let rows = |what| held.get(&(variant.name, what)).map(|rows| format!(", held in {rows} rows"));
        if variant.localhost_node_ports {
            let (group, rows) = (ON_LOOPBACK.0, rows(LOOPBACK).unwrap_or_default());
            let _ =
                writeln!(text, "HAS {}: {LOOPBACK}\n  on IPv4 (checked by {group}{rows})", variant.backend);
        }
        for gap in variant.gaps {
            let _ = writeln!(
                text,
                "GAP {}: {}\n  now: {} (checked by {}{})",
                variant.backend,
                gap.what,
                gap.now,
                gap.checked_by,
                rows(gap.what).unwrap_or_default()
            );
        }
    }
    text
}

/// The last line: how many passed and failed.
#[must_use]
pub fn summary(lines: &[Line]) -> String {
    let passed: usize = lines.iter().map(Line::passed).sum();
    let failed: usize = lines.iter().map(|l| l.failures.len()).sum();
    format!("{passed} passed, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_follow_the_table_in_full() {
        let mut line = Line::new("maps", "default", "ranges");
        line.rows = 12;
        line.took = Duration::from_millis(1234);
        let details = "expected refused\nseen     nothing".to_owned();
        line.failures.push(Failure { title: "pod a to VIP".to_owned(), details });
        assert_eq!(
            table(std::slice::from_ref(&line)),
            "\
variant | setting | group  | rows | passed | failed | time, s
--------+---------+--------+------+--------+--------+--------
maps    | default | ranges |   12 |     11 |      1 |    1.23

DIFFERS maps/default/ranges: pod a to VIP
  expected refused
  seen     nothing
"
        );
        assert_eq!(summary(&[line]), "11 passed, 1 failed");
    }

    #[test]
    fn gaps_are_told_once_for_a_backend() {
        let variants: Vec<&Variant> = crate::matrix::variant::VARIANTS.iter().collect();
        let gap = variants[2].gaps[0].what;
        let held = BTreeMap::from([((variants[2].name, gap), 12)]);
        let text = gaps(&variants, &held);
        assert_eq!(text.matches("GAP nftables").count(), variants[0].gaps.len());
        assert_eq!(text.matches("GAP iptables").count(), variants[2].gaps.len());
        assert!(text.contains("(checked by unknown, held in 12 rows)"), "{text}");
    }

    #[test]
    fn a_gap_that_nothing_shows_is_a_difference() {
        let variant = &crate::matrix::variant::VARIANTS[2];
        let [first, second, ..] = variant.gaps else { unreachable!("it has some") };
        let lines = [Line::new(variant.name, "default", first.checked_by)];
        let held = BTreeMap::from([((variant.name, first.what), 1)]);
        let found = unseen(variant, &held, &lines);
        assert_eq!(found.len(), 1);
        assert!(found[0].failures[0].title.ends_with(second.what));
        assert!(unseen(variant, &held, &[]).is_empty(), "its rows were not run");
        let lines = [Line::new(variant.name, "node-cidr", "node-ports")];
        assert!(unseen(variant, &held, &lines)[0].failures[0].title.ends_with(LOOPBACK));
    }
}
