//! System packages: which tools there must be, and how they get there on Debian.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::process;
use crate::vm::EMULATOR;

/// A tool and the Debian package that has it. A file that is no program is named by its whole path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

/// What the lab and the benchmarks start.
pub(crate) const LAB: &[Tool] = &[
    Tool { name: "ip", package: "iproute2" },
    Tool { name: "nft", package: "nftables" },
    Tool { name: "unshare", package: "util-linux" },
    Tool { name: "iptables-nft", package: "iptables" },
    Tool { name: "iptables-legacy", package: "iptables" },
    Tool { name: "conntrack", package: "conntrack" },
];

/// What the tests start beyond [`LAB`].
pub(crate) const TESTS: &[Tool] =
    &[Tool { name: "git", package: "git" }, Tool { name: "setpriv", package: "util-linux" }];

/// What the emulated machine is made of, and what its tools are copied from.
pub(crate) const MACHINE: &[Tool] = &[
    Tool { name: EMULATOR, package: "qemu-system-x86" },
    Tool { name: "busybox", package: "busybox-static" },
    Tool { name: "kmod", package: "kmod" },
    Tool { name: "depmod", package: "kmod" },
    Tool { name: "dpkg-deb", package: "dpkg" },
    Tool { name: "dash", package: "dash" },
    Tool { name: "ip", package: "iproute2" },
    Tool { name: "nft", package: "nftables" },
    Tool { name: "iptables-legacy", package: "iptables" },
    Tool { name: "ipset", package: "ipset" },
    Tool { name: "ipvsadm", package: "ipvsadm" },
    Tool { name: "conntrack", package: "conntrack" },
    Tool { name: "unshare", package: "util-linux" },
    Tool { name: "setpriv", package: "util-linux" },
    Tool { name: "/etc/protocols", package: "netbase" },
];

/// Folders that hold system tools but are not in a plain user's search path on Debian.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The search path of this process with the system folders behind it.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for folder in SYSTEM_FOLDERS.map(PathBuf::from) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Whether `name` is in one of `folders`.
pub(crate) fn is_there(name: &str, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| folder.join(name).is_file())
}

/// This process acts as user 0 (of its user namespace).
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Makes sure of `tools`: as root on Debian by installing what lacks, else by an error with the exact command.
pub(crate) fn ensure(tools: &[Tool]) -> anyhow::Result<()> {
    let folders = search_path();
    let absent = missing(tools, &folders);
    if absent.is_empty() {
        return Ok(());
    }
    let debian = Path::new("/etc/debian_version").exists() && is_there("apt-get", &folders);
    if !(debian && is_root()) {
        bail!(advice(&absent));
    }
    println!("{}", advice(&absent));
    install(&absent).with_context(|| advice(&absent))?;
    let still = missing(&absent, &folders);
    if !still.is_empty() {
        bail!("installed, and yet {}", advice(&still));
    }
    Ok(())
}

fn missing(tools: &[Tool], folders: &[PathBuf]) -> Vec<Tool> {
    tools.iter().filter(|tool| !is_there(tool.name, folders)).copied().collect()
}

/// The packages of `tools`, each once.
fn packages(tools: &[Tool]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = tools.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// One sentence: what is missing and the command that installs it.
fn advice(absent: &[Tool]) -> String {
    let names: Vec<String> =
        absent.iter().map(|t| format!("`{}` (Debian package {})", t.name, t.package)).collect();
    format!(
        "missing: {}; install as root with: apt-get update && apt-get {}",
        names.join(", "),
        install_arguments(absent).join(" ")
    )
}

fn install_arguments(absent: &[Tool]) -> Vec<&'static str> {
    [&["install", "-y", "--no-install-recommends"], &packages(absent)[..]].concat()
}

/// Installs with the package lists at hand; reads new ones when there are none or they lead nowhere.
fn install(absent: &[Tool]) -> anyhow::Result<()> {
    let arguments = install_arguments(absent);
    if has_package_lists(Path::new("/var/lib/apt/lists")) && apt_get(&arguments).is_ok() {
        return Ok(());
    }
    apt_get(&["update"])?;
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    // Another package manager may be at work; its end is worth waiting for.
    let mut command = process::command("apt-get", &["-o", "DPkg::Lock::Timeout=300"]);
    process::run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Whether `folder` holds a list of packages, as `apt-get update` leaves them.
fn has_package_lists(folder: &Path) -> bool {
    let is_list = |name: OsString| name.to_string_lossy().contains("_Packages");
    std::fs::read_dir(folder)
        .is_ok_and(|entries| entries.filter_map(Result::ok).any(|entry| is_list(entry.file_name())))
}

/// Makes sure of `cargo fmt` and `cargo clippy`, which the smallest toolchains lack.
pub(crate) fn ensure_components() -> anyhow::Result<()> {
    let works = |subcommand: &str| {
        process::cargo(&[subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
    };
    let there = || works("fmt") && works("clippy");
    let add = ["component", "add", "rustfmt", "clippy"];
    if there() {
        return Ok(());
    }
    if is_there("rustup", &search_path()) {
        process::run(&mut process::command("rustup", &add))?;
    }
    if !there() {
        bail!("`cargo fmt` or `cargo clippy` is missing; install with: rustup {}", add.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENT: [Tool; 3] = [
        Tool { name: "no-such-tool", package: "some-package" },
        Tool { name: "neither", package: "another" },
        Tool { name: "nor-this", package: "some-package" },
    ];

    #[test]
    fn the_advice_names_each_tool_and_each_package_once() {
        assert_eq!(missing(&ABSENT, &search_path()), ABSENT);
        assert_eq!(
            advice(&ABSENT),
            "missing: `no-such-tool` (Debian package some-package), `neither` (Debian package another), \
             `nor-this` (Debian package some-package); install as root with: \
             apt-get update && apt-get install -y --no-install-recommends another some-package"
        );
    }

    #[test]
    fn what_is_there_is_not_missing() {
        assert_eq!(missing(&[Tool { name: "sh", package: "dash" }], &search_path()), []);
        assert!(ensure(&[Tool { name: "sh", package: "dash" }]).is_ok());
    }

    #[test]
    fn only_package_lists_count_as_such() {
        assert!(!has_package_lists(Path::new("/nonexistent")));
        assert!(!has_package_lists(Path::new(env!("CARGO_MANIFEST_DIR"))));
    }

    /// The lab names its own tools, for those who start it without this program; both tables must agree.
    #[test]
    fn every_tool_of_the_lab_is_known() {
        let path = process::root().join("e2e/src/process.rs");
        let source = std::fs::read_to_string(&path).unwrap();
        let table = source.split_once("pub const TOOLS").expect("the lab's table of tools").1;
        let table = table.split_once("];").expect("its end").0;
        let theirs: Vec<&str> = table.lines().map(str::trim).filter(|l| l.starts_with("Tool {")).collect();
        let mut ours: Vec<String> = LAB
            .iter()
            .map(|t| format!("Tool {{ name: \"{}\", package: \"{}\" }},", t.name, t.package))
            .collect();
        let mut theirs: Vec<String> = theirs.into_iter().map(str::to_owned).collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{}", path.display());
    }
}
