//! Starting other programs: in the repository's root, with the system's tools in the search path.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};

use crate::packages;
use crate::tally::Tally;

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/")).to_owned()
}

/// A command, not started yet.
pub(crate) fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    // The path is as it was when a folder of it cannot be joined, which holds for none that came from splitting.
    if let Ok(path) = std::env::join_paths(packages::search_path()) {
        command.env("PATH", path);
    }
    command
}

/// A name for a file or folder that no other thread or process takes at the same time; it begins with this process's number.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The cargo that started this program.
pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A cargo command, not started yet.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    command(cargo_program(), arguments)
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Prints and runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let text = shown(command);
    println!("$ {text}");
    let status = command.status().with_context(|| format!("cannot run {text}"))?;
    if !status.success() {
        bail!("{text}: {status}");
    }
    Ok(())
}

/// Prints and runs a command whose output says how many checks passed and failed, in lines that `read` understands, and
/// gives the sum. The command must succeed, unless it says that some failed.
pub(crate) fn run_counted(command: &mut Command, read: fn(&str) -> Option<Tally>) -> anyhow::Result<Tally> {
    let text = shown(command);
    println!("$ {text}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {text}"))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.with_context(|| format!("reading the output of {text}"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally += read(&line).unwrap_or_default();
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {text}"))?;
    if !status.success() && tally.failed == 0 {
        bail!("{text}: {status}");
    }
    if status.success() && tally.failed > 0 {
        bail!("{text}: {} failed, and yet its exit status is 0", tally.failed);
    }
    Ok(tally)
}

/// A command that runs in network and mount namespaces of its own, as root there; nothing of what it does to the network
/// reaches the machine.
pub(crate) fn isolated<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: &[S],
) -> anyhow::Result<Command> {
    let mut isolated = command("unshare", &namespace_flags(packages::is_root())?);
    isolated.arg("--").arg(program).args(arguments);
    Ok(isolated)
}

const NAMESPACES: [&str; 2] = ["--net", "--mount"];
const IN_USER_NAMESPACE: [&str; 4] = ["--user", "--map-root-user", "--net", "--mount"];

/// The flags with which this kernel gives this user the namespaces: root's way where it works, else with a user namespace.
fn namespace_flags(root: bool) -> anyhow::Result<Vec<&'static str>> {
    let attempts: &[&[&'static str]] =
        if root { &[&NAMESPACES, &IN_USER_NAMESPACE] } else { &[&IN_USER_NAMESPACE] };
    let mut refusal = String::new();
    for flags in attempts {
        let mut probe = command("unshare", flags);
        let output = probe.args(["--", "true"]).output().context("cannot run unshare")?;
        if output.status.success() {
            return Ok(flags.to_vec());
        }
        refusal = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    bail!(
        "this kernel does not let this user make namespaces ({refusal}): run as root, or allow user namespaces (sysctls \
         user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        command("sh", &["-c", script])
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        assert!(run(&mut shell("exit 0")).is_ok());
        let error = run(&mut shell("exit 3")).unwrap_err().to_string();
        assert_eq!(error, "sh -c exit 3: exit status: 3");
        assert!(run(&mut command("/nonexistent/tool", &["x"])).unwrap_err().to_string().contains("tool x"));
    }

    fn counted(script: &str) -> anyhow::Result<Tally> {
        run_counted(&mut shell(script), Tally::of_lab)
    }

    #[test]
    fn counts_are_summed_over_all_lines() {
        let sum = |passed, failed| Tally { passed, failed, ..Tally::default() };
        assert_eq!(counted("echo '2 passed, 0 failed'; echo; echo '3 passed, 0 failed'").unwrap(), sum(5, 0));
        assert_eq!(counted("echo '2 passed, 1 failed'; exit 1").unwrap(), sum(2, 1));
    }

    #[test]
    fn counts_and_exit_status_must_agree() {
        assert!(counted("echo '2 passed, 0 failed'; exit 1").is_err());
        assert!(counted("echo '2 passed, 1 failed'").is_err());
    }
}
