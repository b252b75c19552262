//! Markdown tables.

use std::fmt;

/// A table, one line after the other.
#[derive(Clone, Debug)]
pub struct Table {
    lines: Vec<String>,
    columns: usize,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        let head = format!("| {} |", columns.join(" | "));
        Self { lines: vec![head, format!("|{}", "---|".repeat(columns.len()))], columns: columns.len() }
    }

    /// Adds a line. Cells that are missing stay empty, surplus ones are left out.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(|c| c.as_ref().to_owned()).collect();
        cells.resize(self.columns, String::new());
        self.lines.push(format!("| {} |", cells.join(" | ")));
    }

    /// Whether it has no line but its head.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.len() == 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(&["a", "b"]);
        assert!(table.is_empty());
        table.row(["1"]);
        table.row(["1", "2", "3"]);
        assert_eq!(table.to_string(), "| a | b |\n|---|---|\n| 1 |  |\n| 1 | 2 |");
    }
}
