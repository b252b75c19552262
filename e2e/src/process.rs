//! Processes: short tool calls, which go through the project's runner, and the long-running children it is not made for.
#![allow(
    clippy::disallowed_methods,
    reason = "the runner waits for a tool's end and captures its output; agents and the lab's inner half run on and write as they go"
)]

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use proxier_sys::runner::{CommandSpec, Output, RunError, Runner, SystemRunner};

/// A tool the lab calls, and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Name of the program.
    pub name: &'static str,
    /// Debian package.
    pub package: &'static str,
}

/// What the lab needs at run time.
pub const TOOLS: [Tool; 6] = [
    Tool { name: "unshare", package: "util-linux" },
    Tool { name: "ip", package: "iproute2" },
    Tool { name: "nft", package: "nftables" },
    Tool { name: "iptables-nft", package: "iptables" },
    Tool { name: "iptables-legacy", package: "iptables" },
    Tool { name: "conntrack", package: "conntrack" },
];

/// How long a tool may run. Only one that hangs does so, also where processors are emulated.
const HUNG: Duration = Duration::from_secs(300);

/// Folders that hold system tools but are not in a plain user's search path on Debian.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The search path given in `path`, with the system folders behind it.
#[must_use]
pub fn search_path(path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = path.map(|p| std::env::split_paths(p).collect()).unwrap_or_default();
    for folder in SYSTEM_FOLDERS.map(PathBuf::from) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// One sentence with the exact command to install what `folders` lack, or nothing when all tools are there.
#[must_use]
pub fn missing_tools(tools: &[Tool], folders: &[PathBuf]) -> Option<String> {
    let absent: Vec<&Tool> =
        tools.iter().filter(|t| !folders.iter().any(|f| f.join(t.name).is_file())).collect();
    if absent.is_empty() {
        return None;
    }
    let names: Vec<String> =
        absent.iter().map(|t| format!("`{}` (Debian package {})", t.name, t.package)).collect();
    let packages: Vec<&str> = absent.iter().map(|t| t.package).collect();
    Some(format!("missing: {}; install with: apt-get install -y {}", names.join(", "), packages.join(" ")))
}

/// A command with the given arguments, not started yet.
pub fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs a short command with `input` on its standard input and gives what it left, whatever its exit status.
///
/// # Errors
/// When it does not run to its end.
pub fn output<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a str>,
    input: &str,
) -> Result<Output, RunError> {
    SystemRunner::new().run(&CommandSpec::new(program, arguments).stdin(input).timeout(HUNG))
}

/// Runs a short command that must succeed and gives its standard output.
///
/// # Errors
/// When it does not run to its end or fails; the message holds its standard error.
pub fn run<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a str>,
    input: &str,
) -> anyhow::Result<String> {
    let output = output(program, arguments, input)?;
    if !output.success() {
        bail!("{program} failed (exit status {}): {}", output.code, output.stderr_text().trim());
    }
    Ok(output.stdout_text())
}

/// The agent binary beside the running one.
///
/// # Errors
/// When the running program's own path is unknown.
pub fn sibling(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new("/")).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package_and_the_command() {
        let tools = [
            Tool { name: "no-such-tool", package: "some-package" },
            Tool { name: "neither", package: "another" },
        ];
        let text = missing_tools(&tools, &[PathBuf::from("/nonexistent")]).unwrap();
        assert_eq!(
            text,
            "missing: `no-such-tool` (Debian package some-package), `neither` (Debian package another); \
             install with: apt-get install -y some-package another"
        );
    }

    #[test]
    fn tools_that_are_there_are_not_reported() {
        let folders = search_path(std::env::var_os("PATH").as_deref());
        assert_eq!(missing_tools(&[Tool { name: "sh", package: "dash" }], &folders), None);
    }

    #[test]
    fn system_folders_come_last_and_once() {
        let folders = search_path(Some(OsStr::new("/usr/sbin:/bin")));
        let text: Vec<_> = folders.iter().map(|f| f.to_string_lossy()).collect();
        assert_eq!(text, ["/usr/sbin", "/bin", "/usr/local/sbin", "/sbin"]);
    }

    #[test]
    fn a_failing_command_reports_its_own_words() {
        let error = run("sh", ["-c", "cat >&2; exit 3"], "why").unwrap_err().to_string();
        assert!(error.contains("exit status 3") && error.ends_with("why"), "{error}");
    }
}
