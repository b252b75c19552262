use std::sync::mpsc;

use super::image::Image;
use super::*;

#[test]
fn durations_have_a_unit_or_mean_seconds() {
    assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
    for text in ["", "0", "x", "-1", "1h"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn shared_files_may_have_another_path_there() {
    let parsed = SharedFile::parse("a/b:/c").unwrap();
    assert_eq!((parsed.here, parsed.there), ("a/b".into(), Some("/c".into())));
    assert_eq!(SharedFile::parse("a").unwrap().there, None);
    assert!(SharedFile::parse("a:relative").is_err());
    assert!(SharedFile::parse(":/c").is_err());
}

/// What a machine did with a script.
struct Ran {
    outcome: Outcome,
    out: String,
    err: String,
}

fn machine(image: &Image, script: &str, limit: Duration) -> Ran {
    let sink = |to: mpsc::Sender<Vec<u8>>| Sink::new(move |piece| to.send(piece.to_vec()).unwrap());
    let ((out, out_pieces), (err, err_pieces)) = (mpsc::channel(), mpsc::channel());
    let mut session = Session::new(image);
    session.add(Path::new(env!("CARGO_MANIFEST_DIR")), Path::new("/here")).unwrap();
    let outcome = session.run(script, limit, &Sinks { out: sink(out), err: sink(err) }).unwrap();
    let text =
        |pieces: mpsc::Receiver<Vec<u8>>| String::from_utf8(pieces.iter().flatten().collect()).unwrap();
    Ran { outcome, out: text(out_pieces), err: text(err_pieces) }
}

/// Everything that the IPVS backend, and the tests of the others, need of the machine's kernel and tools.
const EVERYTHING: &str = include_str!("everything.sh");

#[test]
#[ignore = "boots an emulated machine with the image that cargo xtask test prepares"]
fn a_machine_boots_runs_and_tells_how_it_went() {
    let image = image::prepare().unwrap();
    let limit = Duration::from_secs(120);

    let ran = machine(&image, EVERYTHING, limit);
    let told = format!("{}{}{:#?}", ran.out, ran.err, ran.outcome);
    assert_eq!(ran.outcome.verdict, Verdict::Exit(0), "{told}");
    assert!(ran.out.ends_with("everything is there\n"), "{told}");
    assert!(ran.outcome.boot.unwrap() < Duration::from_secs(60), "{told}");
    assert!(ran.outcome.console.iter().any(|line| line.contains("Linux version")), "{told}");

    let ran = machine(&image, "echo out; echo err >&2; cat /here/Cargo.toml; kill -9 $$", limit);
    assert_eq!(ran.outcome.verdict, Verdict::Exit(137));
    assert!(ran.out.starts_with("out\n[package]") && ran.err == "err\n", "{} {}", ran.out, ran.err);
}

#[test]
#[ignore = "boots an emulated machine with the image that cargo xtask test prepares"]
fn a_machine_that_hangs_or_panics_is_told_apart() {
    let image = image::prepare().unwrap();
    let ran = machine(&image, "echo begun; sleep 1000", Duration::from_secs(3));
    let console = ran.outcome.console.join("\n");
    assert_eq!((ran.outcome.verdict.code(), ran.out.as_str()), (124, "begun\n"), "{console}");
    assert!(console.contains("sleep 1000"), "it says what was running: {console}");

    let ran = machine(&image, "echo c >/proc/sysrq-trigger", Duration::from_secs(60));
    assert!(
        matches!(&ran.outcome.verdict, Verdict::Kernel(line) if line.contains("Kernel panic")),
        "{ran:?}",
        ran = ran.outcome
    );
}
