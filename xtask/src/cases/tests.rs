//! What is found, what is refused.

use super::claims::{Claim, Kind};
use super::numbers::{List, parse};
use super::rust::{in_text, judged};
use super::sources::{Sources, modules};
use super::{judge, process, survey, table};

const NUMBERS: &str = r#"
areas: {later: comes later}
sources:
- prefix: spec-1.
  title: Spec 1
  total: 4
  numbers:
    1: {what: one, packet: true}
    2: {what: "two | a pipe", ours: otherwise}
    10: {what: ten, deferred: later, because: a reason}
    3: {what: three, rest: later}
- {prefix: report-, title: Reports, total: 1, gaps: true, numbers: {7: {what: seven}}}
"#;

fn list() -> List {
    parse(&NUMBERS.replace("    10:", "    4:")).unwrap()
}

fn claim(number: &str, kind: Kind) -> Claim {
    Claim { number: number.to_owned(), kind, file: "p/tests/x.rs".to_owned(), test: "t".to_owned() }
}

fn all() -> Vec<Claim> {
    let others = ["spec-1.2", "spec-1.3", "report-7"].map(|n| claim(n, Kind::Test));
    [vec![claim("spec-1.1", Kind::Corpus)], others.to_vec()].concat()
}

/// The only fault there is.
#[track_caller]
fn only(faults: &[String]) -> &str {
    let [fault] = faults else { panic!("{faults:#?}") };
    fault
}

#[test]
fn the_committed_table_is_what_the_tests_claim() {
    let root = process::root();
    let outcome = survey(&root).unwrap();
    assert_eq!(outcome.faults, [""; 0]);
    let committed = std::fs::read_to_string(root.join(super::TABLE)).unwrap();
    assert!(committed == outcome.table, "run `cargo xtask cases`");
    assert!(outcome.numbers > 250);
}

#[test]
fn what_fits_together_is_no_fault() {
    assert_eq!(list().faults(), [""; 0]);
    assert_eq!(judge::faults(&list(), &all()), [""; 0]);
}

#[test]
fn a_number_without_a_test_is_a_fault() {
    let without = |number: &str| all().into_iter().filter(|c| c.number != number).collect::<Vec<_>>();
    let fault = judge::faults(&list(), &without("report-7"));
    assert_eq!(only(&fault), "report-7 has no test and is not deferred: seven");
    // Deferred in part is not deferred.
    assert!(only(&judge::faults(&list(), &without("spec-1.3"))).starts_with("spec-1.3 has no test"));
}

#[test]
fn what_a_packet_shows_needs_a_case_of_the_corpus() {
    let mut claims = all();
    claims[0].kind = Kind::Kernel;
    let faults = judge::faults(&list(), &claims);
    assert_eq!(only(&faults), "spec-1.1 can be shown by a packet, but no case of the corpus does: one");
}

#[test]
fn a_number_that_is_not_listed_is_a_fault() {
    let claims = [all(), vec![claim("spec-1.5", Kind::Test)]].concat();
    assert_eq!(
        only(&judge::faults(&list(), &claims)),
        "p/tests/x.rs: t claims spec-1.5, which is no number of the list"
    );
    let claims = [all(), vec![claim("spec-1.2", Kind::Test)]].concat();
    assert_eq!(only(&judge::faults(&list(), &claims)), "p/tests/x.rs: t claims spec-1.2 twice");
}

#[test]
fn a_claim_on_what_is_deferred_says_that_the_mark_must_go() {
    let claims = [all(), vec![claim("spec-1.4", Kind::Test)]].concat();
    let faults = judge::faults(&list(), &claims);
    assert!(
        only(&faults)
            .contains("marked as deferred to later, but t in p/tests/x.rs claims it: remove the mark")
    );
}

#[test]
fn faults_of_the_list_are_found() {
    let gap = parse(NUMBERS).unwrap().faults();
    assert_eq!(only(&gap), "spec-1.4 is not listed");
    let fewer =
        parse(&NUMBERS.replace("    10:", "    4:").replace("total: 4", "total: 3")).unwrap().faults();
    assert_eq!(only(&fewer), "spec-1.: 4 numbers are listed, but there are 3");
    let nowhere = parse(&NUMBERS.replace("    10:", "    4:").replace("rest: later", "rest: never")).unwrap();
    assert_eq!(only(&nowhere.faults()), "spec-1.3 is deferred to never, which is no area of the list");
    for broken in ["rest: later, rest: later", "remainder: later"] {
        assert!(parse(&NUMBERS.replace("rest: later", broken)).is_err(), "{broken}");
    }
    assert!(parse(&NUMBERS.replace("    10:", "    3:")).is_err(), "one number twice");
}

#[test]
fn the_table_is_in_order_and_links() {
    let text = table::render(&list(), &all());
    for row in [
        "| Spec 1 | 4 | 2 | 1 | 1 |",
        "| spec-1.1 | one | corpus: [`t`](../p/tests/x.rs) |",
        "| spec-1.2 | two \\| a pipe **Here:** otherwise | p: [`t`](../p/tests/x.rs) |",
        "| spec-1.3 | three | p: [`t`](../p/tests/x.rs)<br>the rest deferred to later |",
        "| spec-1.4 | ten | deferred to later: a reason |",
    ] {
        assert!(text.contains(&format!("{row}\n")), "{row} not in\n{text}");
    }
    let numbers = parse(NUMBERS).unwrap();
    let names: Vec<String> = numbers.sources[0].numbers().map(|(name, _)| name).collect();
    assert_eq!(names, ["spec-1.1", "spec-1.2", "spec-1.3", "spec-1.10"], "by value, not by text");
}

/// A claim, put together so that this file holds none; nor a test that is ignored, which the step `kernel` would count.
fn file(text: &str) -> String {
    text.replace("CASES", "Cases:").replace("IGNORE", "ignore")
}

fn found(text: &str) -> Result<Vec<(String, String, Kind)>, Vec<String>> {
    let found = judged("p/src/x.rs", in_text(&file(text)), None);
    if found.faults.is_empty() {
        Ok(found.claims.into_iter().map(|c| (c.number, c.test, c.kind)).collect())
    } else {
        Err(found.faults)
    }
}

#[test]
fn claims_are_read_above_and_below_attributes() {
    let text = "
        /// What it is about.
        ///
        /// CASES spec-1.1, report-7
        #[test]
        #[IGNORE = \"needs root\"]
        fn in_the_kernel() {}

        #[tokio::test(
            flavor = \"current_thread\"
        )]
        /// CASES spec-1.2
        async fn later() {}

        #[test]
        /// CASES spec-1.3
        // a remark
        #[should_panic]
        pub(crate) fn between(x in any::<u8>()) {}
    ";
    let own = |n: &str, t: &str, k| (n.to_owned(), t.to_owned(), k);
    let expected = [
        own("spec-1.1", "in_the_kernel", Kind::Kernel),
        own("report-7", "in_the_kernel", Kind::Kernel),
        own("spec-1.3", "between", Kind::Test),
    ];
    // An attribute of several lines above the claim is not seen, so that it fails rather than passes.
    let faults = found(text).unwrap_err();
    assert_eq!(only(&faults), "p/src/x.rs:12: later claims cases, but is no test");
    let text = text.replace("(\n            flavor = \"current_thread\"\n        )", "");
    let mut all = expected.to_vec();
    all.insert(2, own("spec-1.2", "later", Kind::Test));
    assert_eq!(found(&text).unwrap(), all);
    let below = "/// CASES spec-1.2\n#[tokio::test(\n    flavor = \"x\"\n)]\nasync fn later() {}";
    assert_eq!(found(below).unwrap(), [own("spec-1.2", "later", Kind::Test)]);
}

#[test]
fn claims_on_what_is_no_test_are_refused() {
    for (text, why) in [
        ("/// CASES spec-1.1\nfn helper() {}", "helper claims cases, but is no test"),
        ("/// CASES spec-1.1\nstruct Thing;", "a claim over something that is no function"),
        ("/// CASES spec-1.1", "a claim over something that is no function"),
        ("// CASES spec-1.1\n#[test]\nfn t() {}", "belongs into a line of documentation"),
        ("//! CASES spec-1.1\n#[test]\nfn t() {}", "belongs into a line of documentation"),
        ("/// CASES spec-1.1,\n#[test]\nfn t() {}", "has an empty number"),
        ("/// CASES spec-1.1\n#[cfg(windows)]\n#[test]\nfn t() {}", "is built only under a condition"),
        ("/// CASES spec-1.1\n#[cfg_attr(x, ignore)]\n#[test]\nfn t() {}", "is built only under a condition"),
    ] {
        let faults = found(text).unwrap_err();
        assert!(only(&faults).contains(why), "{text}: {faults:?}");
    }
}

#[test]
fn what_the_matrix_lists_is_run_and_nothing_else() {
    let text =
        file("/// CASES spec-1.1\npub(super) fn ranges() -> Group {}\n/// CASES spec-1.2\nfn lost() {}");
    let found =
        judged("e2e/x/addresses.rs", in_text(&text), Some("vec![addresses::ranges(), other::lost()]"));
    assert_eq!(
        found.claims.iter().map(|c| (&*c.test, c.kind)).collect::<Vec<_>>(),
        [("ranges", Kind::Matrix)]
    );
    assert_eq!(only(&found.faults), "e2e/x/addresses.rs:3: lost claims cases, but is no part of the matrix");
    let live = judged("e2e/x/addresses.rs", in_text(&text), Some("together(\"a\", addresses::ranges)"));
    assert_eq!(live.claims.len(), 1);
}

#[test]
fn modules_that_are_not_built_are_left_out() {
    let text = "
        mod a;
        pub mod b;
        #[cfg(test)]
        pub(crate) mod tests;
        #[cfg(feature = \"k8s\")]
        /// Documented.
        pub mod k;
        #[cfg(windows)]
        mod w;
        #[path = \"../program/mod.rs\"]
        mod program;
        mod inline { fn x() {} }
            mod within;
    ";
    let text = &text.replace("\n        ", "\n");
    let names: Vec<&str> = modules(text).iter().map(|m| m.name).collect();
    assert_eq!(names, ["a", "b", "tests", "k", "program"]);
    assert_eq!(modules(text)[4].path, Some("../program/mod.rs"));
}

#[test]
fn every_built_file_of_this_package_is_found() {
    let root = process::root();
    let sources = Sources::of(&crate::metadata::load().unwrap(), &root).unwrap();
    let missing: Vec<_> = sources.all.difference(&sources.built).collect();
    assert!(sources.built.contains(&root.join("xtask/src/cases/tests.rs")), "{missing:?}");
    assert!(sources.built.len() > 200);
    // Benchmarks, and the module that they share behind a feature, show no case.
    let unbuilt = |path: &&&std::path::PathBuf| path.iter().any(|part| part == "benches" || part == "bench");
    assert_eq!(missing.iter().filter(|p| !unbuilt(p)).count(), 0, "{missing:?}");
}
