//! Claims in Rust: a line of documentation over a test, `/// Cases: core-11.12, report-C2-3`.
//!
//! Read by lines, not by a parser: what stands between a claim and its function is documentation and attributes.

use std::path::Path;

use anyhow::Context;

use super::claims::{Claim, Found, Kind};
use super::sources::Sources;

/// What begins a claim, behind the slashes of a comment.
const MARK: &str = "Cases:";

/// Folders whose functions are rows or sequences of the matrix, and the file that lists them. The test that runs the whole list is
/// `the_agent_passes_the_matrix`.
const MATRIX: [(&str, &str); 2] = [
    ("e2e/src/matrix/groups/", "e2e/src/matrix/groups.rs"),
    ("e2e/src/matrix/live/", "e2e/src/matrix/live.rs"),
];

/// Every claim in the workspace's Rust files.
pub(super) fn claims(root: &Path, sources: &Sources) -> anyhow::Result<Found> {
    let mut found = Found::default();
    for path in &sources.all {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let marked = in_text(&text);
        if !marked.is_empty() && !sources.built.contains(path) {
            found.faults.push(format!("{file} claims cases, but `cargo xtask test` does not build it"));
            continue;
        }
        let list = match MATRIX.iter().find(|(folder, _)| file.starts_with(folder)) {
            Some((_, list)) => Some(std::fs::read_to_string(root.join(list)).context(*list)?),
            None => None,
        };
        found.extend(judged(&file, marked, list.as_deref()));
    }
    Ok(found)
}

/// A claim and what it stands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    /// Its line, counted from 1.
    pub(super) line: usize,
    /// The numbers, as they are written.
    pub(super) numbers: Vec<String>,
    /// It is documentation.
    pub(super) documents: bool,
    /// The function below it.
    pub(super) function: Option<String>,
    /// The function's attributes, each in one line.
    pub(super) attributes: Vec<String>,
}

/// What is said by comments that begin with [`MARK`].
pub(super) fn in_text(text: &str) -> Vec<Marked> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let marked = lines.iter().enumerate().filter_map(|(at, line)| {
        let comment = line.strip_prefix("//")?;
        let rest = comment.trim_start_matches(['/', '!']).trim_start().strip_prefix(MARK)?;
        let numbers = rest.split(',').map(|n| n.trim().to_owned()).collect();
        let (attributes, function) = surroundings(&lines, at);
        Some(Marked { line: at + 1, numbers, documents: line.starts_with("/// "), function, attributes })
    });
    marked.collect()
}

/// The attributes around a line of documentation, and the function below them.
fn surroundings(lines: &[&str], at: usize) -> (Vec<String>, Option<String>) {
    let is_comment = |line: &str| line.starts_with("//");
    let mut attributes: Vec<String> = lines[..at]
        .iter()
        .rev()
        .take_while(|line| is_comment(line) || line.starts_with("#["))
        .filter(|line| !is_comment(line))
        .map(|line| (*line).to_owned())
        .collect();
    let mut open = String::new();
    for line in &lines[at + 1..] {
        if open.is_empty() && is_comment(line) {
            continue;
        }
        if open.is_empty() && !line.starts_with("#[") {
            return (attributes, function_name(line));
        }
        open.push_str(line);
        let count = |bracket: char| open.matches(bracket).count();
        if count('[') == count(']') {
            attributes.push(std::mem::take(&mut open));
        }
    }
    (attributes, None)
}

/// The name of the function that a line begins.
fn function_name(line: &str) -> Option<String> {
    let (before, after) = line.split_once("fn ")?;
    let words = ["pub", "const", "async", "pub(super)", "pub(crate)"];
    if !before.split_whitespace().all(|word| words.contains(&word)) {
        return None;
    }
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Turns what is marked in a file into claims, or into faults. `list` is the text of the file that lists the functions of this one as
/// parts of the matrix.
pub(super) fn judged(file: &str, marked: Vec<Marked>, list: Option<&str>) -> Found {
    let mut found = Found::default();
    for mark in marked {
        let place = format!("{file}:{}", mark.line);
        match kind(file, &mark, list) {
            Err(why) => found.faults.push(format!("{place}: {why}")),
            Ok((test, kind)) => found.claims.extend(mark.numbers.into_iter().map(|number| Claim {
                number,
                kind,
                file: file.to_owned(),
                test: test.clone(),
            })),
        }
    }
    found
}

fn kind(file: &str, mark: &Marked, list: Option<&str>) -> Result<(String, Kind), String> {
    if !mark.documents {
        return Err(format!("`{MARK}` belongs into a line of documentation, `/// {MARK} ...`"));
    }
    if mark.numbers.iter().any(String::is_empty) {
        return Err(format!("`{MARK}` has an empty number"));
    }
    let Some(function) = &mark.function else {
        return Err("a claim over something that is no function".to_owned());
    };
    let has = |prefix: &str| mark.attributes.iter().any(|a| a.starts_with(prefix));
    if has("#[cfg") {
        return Err(format!("{function} claims cases, but is built only under a condition"));
    }
    if has("#[test]") || has("#[tokio::test") {
        let kind = if has("#[ignore") { Kind::Kernel } else { Kind::Test };
        return Ok((function.clone(), kind));
    }
    let stem = Path::new(file).file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let call = format!("{stem}::{function}");
    match list {
        Some(list) if [format!("{call}()"), format!("{call})")].iter().any(|c| list.contains(c)) => {
            Ok((function.clone(), Kind::Matrix))
        }
        Some(_) => Err(format!("{function} claims cases, but is no part of the matrix")),
        None => Err(format!("{function} claims cases, but is no test")),
    }
}
