//! What `iptables-restore` says when it refuses an input, in all its forms.
//!
//! | who refuses | nft variant | legacy |
//! |---|---|---|
//! | the tool, reading a line | message, then `Error occurred at line: 3`; exit status 2 | the same |
//! | the tool, looking for a chain or rule | `NAME: line 2 failed: No chain/target/match by that name.`; 1 | `NAME: line 2 failed`; 1 |
//! | the kernel | `line 3: RULE_APPEND failed (Invalid argument): rule in chain KUBE-A`, one for each; 4 | `NAME: line 9 failed`, where 9 is the line of `COMMIT`; 1 |
//! | the lock | takes none | `... xtables lock ...`; 4 |
//! | rights | `... Permission denied (you must be root)`; 4 | `can't open lock file`, or `unable to initialize table`; 4 or 2 |
//!
//! A jump to a chain that does not exist is `Couldn't load target` with legacy, and `Chain 'X' does not exist` with nft, where the line
//! is that of the next `COMMIT` or later: only the name can be believed.

use proxier_core::backend::RetryClass;
use proxier_sys::runner::Output;

use crate::objects::KUBE;

/// What a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Number of the line in the input, from 1; `None` if it is not said or cannot be believed.
    pub line: Option<usize>,
    /// A chain that is jumped to and does not exist.
    pub chain: Option<String>,
    /// The answer, without the tool's name.
    pub answer: String,
    /// What a caller can do.
    pub class: RetryClass,
}

/// Why an input was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Someone else held the lock all the time.
    Locked(String),
    /// No right, or no such table in the kernel.
    Denied(String),
    /// Lines are named; never empty.
    Lines(Vec<Complaint>),
    /// Anything else.
    Other(String),
}

/// Reads the answer of a tool that failed.
#[must_use]
pub fn read(output: &Output) -> Failure {
    let text = output.stderr_text();
    let has = |needle: &str| text.contains(needle);
    let telling = |needle: &str| text.lines().find(|l| l.contains(needle)).unwrap_or_default().trim();
    for denied in
        ["you must be root", "can't open lock file", "unable to initialize table", "Operation not permitted"]
    {
        if has(denied) {
            return Failure::Denied(bare(telling(denied)).to_owned());
        }
    }
    if output.code == 4 && has("xtables lock") {
        return Failure::Locked(telling("xtables lock").to_owned());
    }
    let complaints = complaints(&text);
    if complaints.is_empty() {
        let first = output.first_error_line();
        Failure::Other(if first.is_empty() { "no message".to_owned() } else { bare(&first).to_owned() })
    } else {
        Failure::Lines(complaints)
    }
}

/// The answer of a tool that failed in one line: of several complaints the first.
#[must_use]
pub fn answer(output: &Output) -> String {
    match read(output) {
        Failure::Lines(lines) => lines.into_iter().next().map(|c| c.answer).unwrap_or_default(),
        Failure::Locked(said) | Failure::Denied(said) | Failure::Other(said) => said,
    }
}

fn complaints(text: &str) -> Vec<Complaint> {
    let mut out = Vec::new();
    let mut said = String::new();
    let mut lacking = None;
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(extension) = missing_extension(line) {
            lacking = Some(extension);
        } else if let Some(complaint) = kernel_line(line).or_else(|| tool_line(line)) {
            out.push(complaint);
        } else if let Some(number) = line.strip_prefix("Error occurred at line: ") {
            out.push(parser_line(&said, number.trim().parse().ok()));
        } else {
            bare(line).clone_into(&mut said);
        }
    }
    if let Some(extension) = lacking {
        for complaint in &mut out {
            complaint.class = RetryClass::Unsupported;
            complaint.answer = format!("the kernel has no {extension}: {}", complaint.answer);
        }
    }
    out
}

/// `Warning: Extension statistic revision 0 not supported, missing kernel module?`
fn missing_extension(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("Extension ")?;
    rest.contains("missing kernel module").then(|| rest.split(' ').next().unwrap_or_default().to_owned())
}

/// `line 3: RULE_APPEND failed (Invalid argument): rule in chain KUBE-A`
fn kernel_line(line: &str) -> Option<Complaint> {
    let (number, rest) = line.strip_prefix("line ")?.split_once(": ")?;
    let (_, rest_of) = rest.split_once(" failed (")?;
    let (errno, _) = rest_of.split_once(')')?;
    let class = class_of(errno);
    Some(Complaint { line: Some(number.parse().ok()?), chain: None, answer: rest.to_owned(), class })
}

/// `iptables-restore: line 5 failed`, with or without `: REASON.`
fn tool_line(line: &str) -> Option<Complaint> {
    let (_, rest) = line.split_once(": line ")?;
    let (number, reason) = rest.split_once(" failed")?;
    let reason = reason.trim_start_matches(':').trim().trim_end_matches('.');
    let answer = if reason.is_empty() { "refused without a reason" } else { reason };
    // A chain or rule that is not there, or one that is in use: the tables are not what was believed.
    let class = RetryClass::NeedsFullSync;
    Some(Complaint { line: Some(number.parse().ok()?), chain: None, answer: answer.to_owned(), class })
}

/// A message of the tool's parser.
fn parser_line(said: &str, line: Option<usize>) -> Complaint {
    let complaint = |class, line, chain| Complaint { line, chain, answer: said.to_owned(), class };
    if let Some(chain) = said.strip_prefix("Chain '").and_then(|s| s.split('\'').next()) {
        return complaint(RetryClass::NeedsFullSync, None, Some(chain.to_owned()));
    }
    let target = said.strip_prefix("Couldn't load target `").and_then(|s| s.split('\'').next());
    match target {
        Some(chain) if chain.starts_with(KUBE) => {
            complaint(RetryClass::NeedsFullSync, line, Some(chain.to_owned()))
        }
        _ if said.starts_with("Couldn't load") || said.starts_with("unknown option") => {
            complaint(RetryClass::Unsupported, line, None)
        }
        _ => complaint(RetryClass::Bug, line, None),
    }
}

/// By the C library's text for an error number.
fn class_of(errno: &str) -> RetryClass {
    match errno {
        "Operation not permitted" | "Permission denied" => RetryClass::Misconfigured,
        "Interrupted system call"
        | "Resource temporarily unavailable"
        | "Cannot allocate memory"
        | "No buffer space available" => RetryClass::Transient,
        "No such file or directory" | "Device or resource busy" | "File exists" => RetryClass::NeedsFullSync,
        "Operation not supported" | "Protocol not supported" => RetryClass::Unsupported,
        _ => RetryClass::Bug,
    }
}

/// Without the name and version that a message may begin with.
fn bare(line: &str) -> &str {
    let named = line.split_once("(nf_tables): ").or_else(|| line.split_once("(legacy): "));
    named.map_or(line, |(_, rest)| rest).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32, stderr: &str) -> Failure {
        read(&Output { code, stderr: stderr.into(), ..Output::default() })
    }

    fn lines(code: i32, stderr: &str) -> Vec<(Option<usize>, String, RetryClass)> {
        match failure(code, stderr) {
            Failure::Lines(lines) => lines.into_iter().map(|c| (c.line, c.answer, c.class)).collect(),
            other => panic!("{other:?}"),
        }
    }

    const NFT: &str = "iptables-nft-restore v1.8.9 (nf_tables): ";
    const TRY: &str = "Try `iptables-restore -h' or 'iptables-restore --help' for more information.\n";

    #[test]
    fn the_kernel_names_each_line_with_nft() {
        let said = format!(
            "{NFT}\nline 3: RULE_APPEND failed (Invalid argument): rule in chain KUBE-A\n\
             line 9: CHAIN_DEL failed (Device or resource busy): chain KUBE-G\n"
        );
        let expected = [
            (Some(3), "RULE_APPEND failed (Invalid argument): rule in chain KUBE-A", RetryClass::Bug),
            (Some(9), "CHAIN_DEL failed (Device or resource busy): chain KUBE-G", RetryClass::NeedsFullSync),
        ];
        assert_eq!(lines(4, &said), expected.map(|(l, a, c)| (l, a.to_owned(), c)));
    }

    #[test]
    fn what_is_not_there_needs_a_full_sync() {
        let nft = lines(
            1,
            "iptables-nft-restore: line 5 failed: Bad rule (does a matching rule exist in that chain?).\n",
        );
        assert_eq!(nft[0].1, "Bad rule (does a matching rule exist in that chain?)");
        assert_eq!((nft[0].0, nft[0].2), (Some(5), RetryClass::NeedsFullSync));
        let legacy = lines(1, "iptables-restore: line 2 failed\n");
        assert_eq!(legacy, [(Some(2), "refused without a reason".to_owned(), RetryClass::NeedsFullSync)]);
    }

    #[test]
    fn a_jump_to_a_missing_chain_is_known_by_its_name() {
        let nft =
            failure(2, &format!("{NFT}Chain 'KUBE-NOPE' does not exist\nError occurred at line: 4\n{TRY}"));
        let Failure::Lines(nft) = nft else { panic!("{nft:?}") };
        assert_eq!((nft[0].line, nft[0].chain.as_deref()), (None, Some("KUBE-NOPE")));
        let said = "iptables-restore v1.8.9 (legacy): Couldn't load target `KUBE-NOPE':No such file or directory\n\n\
                    Error occurred at line: 3\n";
        let Failure::Lines(legacy) = failure(2, said) else { panic!() };
        assert_eq!((legacy[0].line, legacy[0].chain.as_deref()), (Some(3), Some("KUBE-NOPE")));
        assert_eq!((nft[0].class, legacy[0].class), (RetryClass::NeedsFullSync, RetryClass::NeedsFullSync));
    }

    #[test]
    fn a_missing_extension_is_named() {
        let said = format!(
            "{NFT}Couldn't load match `nosuch':No such file or directory\n\nError occurred at line: 3\n{TRY}"
        );
        let expected = "Couldn't load match `nosuch':No such file or directory".to_owned();
        assert_eq!(lines(2, &said), [(Some(3), expected, RetryClass::Unsupported)]);
        let said = "Warning: Extension statistic revision 0 not supported, missing kernel module?\n\
                    iptables-restore: line 7 failed\n";
        let expected = "the kernel has no statistic: refused without a reason".to_owned();
        assert_eq!(lines(1, said), [(Some(7), expected, RetryClass::Unsupported)]);
        let said = format!("{NFT}unknown option \"--random-fully\"\nError occurred at line: 3\n{TRY}");
        assert_eq!(lines(2, &said)[0].2, RetryClass::Unsupported);
    }

    #[test]
    fn a_bad_value_names_its_line() {
        let said = format!("{NFT}invalid port/service `70000' specified\nError occurred at line: 3\n{TRY}");
        let expected = "invalid port/service `70000' specified".to_owned();
        assert_eq!(lines(2, &said), [(Some(3), expected, RetryClass::Bug)]);
        assert_eq!(lines(2, "Bad argument `hello'\nError occurred at line: 2\n")[0].0, Some(2));
    }

    #[test]
    fn the_lock_and_missing_rights_are_told_apart() {
        let said = "Another app is currently holding the xtables lock. Stopped waiting after 5s.\n";
        assert!(matches!(failure(4, said), Failure::Locked(_)));
        // Waited for, then refused for another reason.
        let said = "Another app is currently holding the xtables lock; still 4s 0us time ahead to have a chance to grab the lock...\n\
                    iptables-restore: line 4 failed\n";
        assert_eq!(lines(1, said)[0].0, Some(4));
        for (code, said) in [
            (
                4,
                "iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n",
            ),
            (4, "Fatal: can't open lock file /run/xtables.lock: Permission denied\n"),
            (
                2,
                "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\nError occurred at line: 1\n",
            ),
        ] {
            assert!(matches!(failure(code, said), Failure::Denied(_)), "{said}");
        }
    }

    #[test]
    fn silence_is_told_as_such() {
        assert_eq!(failure(139, ""), Failure::Other("no message".to_owned()));
        assert_eq!(
            failure(1, "iptables-restore: COMMIT expected at line 3\n"),
            Failure::Other("iptables-restore: COMMIT expected at line 3".to_owned())
        );
    }
}
