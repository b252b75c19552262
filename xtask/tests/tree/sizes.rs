//! How large Rust files and functions may be, and that a test that is ignored says why. Counted roughly, by lines.

use std::path::{Path, PathBuf};

use crate::workspace::{files, text};

/// Most lines of a file.
const FILE: usize = 500;

/// Most lines of a function.
const FUNCTION: usize = 100;

/// Files that may be larger, each with the reason.
const LARGE_FILES: [(&str, &str); 0] = [];

/// Functions (`file: name`) that may be larger, each with the reason.
const LARGE_FUNCTIONS: [(&str, &str); 0] = [];

/// Tests and benchmarks may grow: they are lists of cases.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let folder = path.iter().any(|part| ["tests", "test", "benches"].iter().any(|name| part == *name));
    folder || stem == "tests" || stem == "test" || stem.ends_with("_tests")
}

fn sources() -> Vec<(PathBuf, String)> {
    let rust = files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    rust.filter_map(|path| text(&path).map(|text| (path, text))).collect()
}

/// The name of the function that `line` begins, if it does begin one with a body.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after.strip_prefix('(').and_then(|r| r.split_once(')')).map_or(after, |(_, r)| r).trim_start();
    }
    for word in ["default ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let trimmed = line.trim_end();
    (!trimmed.ends_with(';') && !trimmed.ends_with('}')).then(|| &name[..end])
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Name and lines of each function, from its first line to the closing brace below it.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let closes = |l: &&str| l.trim_start().starts_with('}') && indentation(l) == indentation(line);
        if let Some(length) = lines[start + 1..].iter().position(closes) {
            found.push((name, length + 2));
        }
    }
    found
}

#[test]
fn files_are_small() {
    let excepted = |path: &Path| LARGE_FILES.iter().any(|(file, _)| path == Path::new(file));
    let large: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| !is_test(path) && !excepted(path))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > FILE)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert_eq!(large, [""; 0]);
}

#[test]
fn functions_are_small() {
    let sources = sources();
    let mut large = Vec::new();
    let mut counted = 0;
    for (path, text) in sources.iter().filter(|(path, _)| !is_test(path)) {
        for (name, lines) in functions(text) {
            counted += 1;
            let full = format!("{}: {name}", path.display());
            if lines > FUNCTION && !LARGE_FUNCTIONS.iter().any(|(excepted, _)| *excepted == full) {
                large.push(format!("{full}: {lines} lines"));
            }
        }
    }
    assert!(counted > 100, "only {counted} functions were found");
    assert_eq!(large, [""; 0]);
}

#[test]
fn ignored_tests_say_why() {
    let bare = ["#[ignore", "]"].concat();
    let silent: Vec<String> = sources()
        .iter()
        .filter(|(_, text)| text.contains(&bare))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_eq!(silent, [""; 0]);
}

#[test]
fn functions_are_measured() {
    let text = "impl X {\n    pub(super) async fn a(\n        x: u8,\n    ) -> u8 {\n        if x > 0 {\n        }\n        x\n    }\n    \
                fn b();\n    fn c() {}\n}\n\nconst fn d() {\n}\n";
    assert_eq!(functions(text), [("a", 7), ("d", 2)]);
    assert_eq!(function_name("    let x = fn_name();"), None);
    assert_eq!(function_name("fn f<T: X>(x: T)"), Some("f"));
}

#[test]
fn tests_are_told_from_sources() {
    for path in
        ["a/tests/x.rs", "a/src/x/tests.rs", "a/src/kernel_tests.rs", "a/src/x/tests/y.rs", "a/benches/b.rs"]
    {
        assert!(is_test(Path::new(path)), "{path}");
    }
    for path in ["a/src/testing.rs", "proxier-testkit/src/walk.rs", "a/src/attest.rs"] {
        assert!(!is_test(Path::new(path)), "{path}");
    }
}
