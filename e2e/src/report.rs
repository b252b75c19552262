//! What came out: one line per check, printed as an aligned table.

use std::fmt::Write as _;

/// Longest text printed in a cell; longer ones are cut in the middle and printed in full only when they differ.
const CELL: usize = 46;

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Experiment and variant, e.g. `A maps`.
    pub experiment: String,
    /// Where the traffic starts, or the node whose kernel was asked.
    pub from: String,
    /// Where it goes, or the kernel object.
    pub to: String,
    /// External traffic policy, `-` where it plays no part.
    pub policy: String,
    /// What must be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// They agree.
    pub passed: bool,
}

const HEAD: [&str; 7] = ["experiment", "from", "to", "policy", "expected", "seen", "verdict"];

impl Line {
    fn cells(&self) -> [String; 7] {
        let verdict = if self.passed { "ok" } else { "DIFFERS" };
        [&self.experiment, &self.from, &self.to, &self.policy, &self.expected, &self.seen, verdict]
            .map(|text: &str| elide(text))
    }

    fn is_cut(&self) -> bool {
        [&self.expected, &self.seen].iter().any(|text| text.chars().count() > CELL)
    }
}

/// The table, and below it the full text of differences that did not fit.
#[must_use]
pub fn table(lines: &[Line]) -> String {
    let rows: Vec<[String; 7]> =
        std::iter::once(HEAD.map(str::to_owned)).chain(lines.iter().map(Line::cells)).collect();
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join(" | ").trim_end());
        text.push('\n');
        if number == 0 {
            text.push_str(&widths.map(|width| "-".repeat(width)).join("-+-"));
            text.push('\n');
        }
    }
    for line in lines.iter().filter(|l| !l.passed && l.is_cut()) {
        let _ = write!(
            text,
            "\n{} {} to {}\n  expected {}\n  seen     {}\n",
            line.experiment, line.from, line.to, line.expected, line.seen
        );
    }
    text
}

/// The last line: how many passed and failed.
#[must_use]
pub fn summary(lines: &[Line]) -> String {
    let passed = lines.iter().filter(|l| l.passed).count();
    format!("{passed} passed, {} failed", lines.len() - passed)
}

fn elide(text: &str) -> String {
    let letters: Vec<char> = text.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    if letters.len() <= CELL {
        return letters.iter().collect();
    }
    let head = CELL - CELL / 3 - 1;
    let tail = letters.len() - (CELL - head - 1);
    letters[..head].iter().chain(&['…']).chain(&letters[tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(expected: &str, seen: &str) -> Line {
        Line {
            experiment: "A maps".to_owned(),
            from: "client 172.30.0.5".to_owned(),
            to: "worker 172.30.0.3:30080".to_owned(),
            policy: "Cluster".to_owned(),
            expected: expected.to_owned(),
            seen: seen.to_owned(),
            passed: expected == seen,
        }
    }

    #[test]
    fn columns_are_aligned_and_differences_stand_out() {
        let text = table(&[line("10.244.1.1", "10.244.1.1"), line("10.244.1.1", "refused")]);
        assert_eq!(
            text,
            "\
experiment | from              | to                      | policy  | expected   | seen       | verdict
-----------+-------------------+-------------------------+---------+------------+------------+--------
A maps     | client 172.30.0.5 | worker 172.30.0.3:30080 | Cluster | 10.244.1.1 | 10.244.1.1 | ok
A maps     | client 172.30.0.5 | worker 172.30.0.3:30080 | Cluster | 10.244.1.1 | refused    | DIFFERS
"
        );
    }

    #[test]
    fn long_texts_are_cut_in_the_table_and_whole_below_it_when_they_differ() {
        let long = format!("goto service-AKD4XF6G-{}", "x".repeat(60));
        let same = table(&[line(&long, &long)]);
        assert!(!same.contains(&long) && same.contains('…'), "{same}");
        let different = table(&[line(&long, "goto cluster-2")]);
        assert!(different.contains(&format!("expected {long}\n  seen     goto cluster-2")), "{different}");
    }

    #[test]
    fn the_summary_counts() {
        assert_eq!(summary(&[line("a", "a"), line("a", "b"), line("c", "c")]), "2 passed, 1 failed");
        assert_eq!(summary(&[]), "0 passed, 0 failed");
    }
}
