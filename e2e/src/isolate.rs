//! Isolation: the lab runs itself again inside fresh mount, network and process namespaces.
//!
//! [`supervise`] is the outer half: it starts `unshare`, which makes the namespaces (and a user namespace, when the caller
//! is not root) and runs the lab in them as their first process. [`enter`] is the inner half: it covers `/run` with a
//! private memory file system, so that `ip netns` and all files of the lab live there and nowhere else.
//!
//! Everything made inside belongs to these namespaces and ends with their first process. That process ends when the lab
//! is done; when the supervisor is told to stop (it kills `unshare`, whose `--kill-child` does the rest); and when the
//! supervisor itself is killed: its end of the inner half's standard input closes, and the inner half exits.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, bail};
use nix::mount::{MsFlags, mount};
use nix::unistd::geteuid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::process::{self, TOOLS, missing_tools, search_path};

/// Hidden option by which the inner half is started; its value names the outer half's namespaces.
pub const INSIDE: &str = "--inside";

/// Working folder of the inner half, on its private file system.
pub const WORK: &str = "/run/proxier-lab";

/// Where `ip netns` keeps its handles (by way of `/var/run`).
const HANDLES: &str = "/run/netns";

/// Exit status added to a signal's number, as shells do.
const SIGNALLED: u8 = 128;

const NAMESPACES: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
const USER_NAMESPACE: [&str; 2] = ["--user", "--map-root-user"];

/// Runs this program again inside namespaces of its own, with `arguments`, and gives its exit status.
///
/// # Errors
/// When a tool is missing or the kernel refuses the namespaces; the message says what to do.
pub fn supervise(arguments: &[OsString]) -> anyhow::Result<u8> {
    let folders = search_path(std::env::var_os("PATH").as_deref());
    if let Some(missing) = missing_tools(&TOOLS, &folders) {
        bail!(missing);
    }
    let path = std::env::join_paths(&folders).context("the search path")?;
    let own = std::env::current_exe().context("the lab's own path")?;

    let mut all: Vec<OsString> = namespace_flags(&path)?.into_iter().map(OsString::from).collect();
    all.extend(["--".into(), own.into_os_string(), INSIDE.into(), namespace_ids()?.into()]);
    all.extend_from_slice(arguments);

    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD]).context("signal handlers")?;
    let mut child = process::command("unshare", &all)
        .env("PATH", &path)
        .stdin(Stdio::piped())
        // Its own group: a Ctrl-C reaches the supervisor only, and agents do not log about it.
        .process_group(0)
        .spawn()
        .context("cannot run unshare")?;
    // Held open until this process ends, however it ends.
    let _lifeline = child.stdin.take();
    for signal in &mut signals {
        if signal != SIGCHLD {
            child.kill().context("stopping the lab")?;
            child.wait().context("waiting for the lab")?;
            return Ok(SIGNALLED + u8::try_from(signal).unwrap_or(0));
        }
        if let Some(status) = child.try_wait().context("waiting for the lab")? {
            return Ok(exit_code(status));
        }
    }
    bail!("the signal stream ended")
}

/// The inner half: makes the private folders and ties its life to the supervisor's. Gives the working folder.
///
/// # Errors
/// When it is not in namespaces of its own, or the kernel refuses a mount.
pub fn enter(outside: &str) -> anyhow::Result<PathBuf> {
    let shares_one = namespace_ids()?.split(' ').zip(outside.split(' ')).any(|(own, outer)| own == outer);
    // Besides, only the first process of a process namespace is started like this.
    if std::process::id() != 1 || shares_one || outside.split(' ').count() != KINDS.len() {
        bail!("{INSIDE} is how the lab starts itself; call it without");
    }
    let work = cover_run()?;
    std::thread::spawn(|| {
        // Ends with the supervisor, whether by end of file or by an error.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(i32::from(SIGNALLED));
    });
    Ok(work)
}

/// Puts a private memory file system over `/run`, with the folder of `ip netns` and a working folder, which is given back.
/// Only for a caller that is in a mount namespace of its own already: it makes every mount there private first.
///
/// # Errors
/// When the kernel refuses a mount.
pub fn cover_run() -> anyhow::Result<PathBuf> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("making mounts private")?;
    mount(
        Some("proxier-lab"),
        "/run",
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("mode=755"),
    )
    .context("mounting a private /run")?;
    for folder in [HANDLES, WORK] {
        std::fs::create_dir(folder).with_context(|| format!("creating {folder}"))?;
    }
    Ok(PathBuf::from(WORK))
}

const KINDS: [&str; 3] = ["mnt", "net", "pid_for_children"];

/// Which namespaces this process lives in, in the order of [`KINDS`].
fn namespace_ids() -> anyhow::Result<String> {
    let id = |kind: &&str| {
        let link = Path::new("/proc/self/ns").join(kind);
        std::fs::read_link(&link)
            .map(|p| p.to_string_lossy().into_owned())
            .with_context(|| link.display().to_string())
    };
    Ok(KINDS.iter().map(id).collect::<anyhow::Result<Vec<_>>>()?.join(" "))
}

/// The flags with which this kernel gives this user the namespaces: root's way where it works, else with a user namespace.
fn namespace_flags(path: &std::ffi::OsStr) -> anyhow::Result<Vec<&'static str>> {
    let with_user = [&NAMESPACES[..], &USER_NAMESPACE[..]].concat();
    let attempts = if geteuid().is_root() { vec![NAMESPACES.to_vec(), with_user] } else { vec![with_user] };
    let mut refusal = String::new();
    for flags in attempts {
        let probe = process::command("unshare", &flags)
            .args(["--", "true"])
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .context("cannot run unshare")?;
        if probe.status.success() {
            return Ok(flags);
        }
        refusal =
            String::from_utf8_lossy(&probe.stderr).lines().next().unwrap_or("no reason given").to_owned();
    }
    bail!(
        "this kernel does not let this user make namespaces ({refusal}): run the lab as root, or allow user namespaces \
         (sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| i32::from(SIGNALLED) + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_half_refuses_to_run_outside() {
        let error = enter(&namespace_ids().unwrap()).unwrap_err().to_string();
        assert!(error.contains("without"), "{error}");
        assert!(enter("nonsense").is_err());
        assert!(enter("mnt:[1] net:[2] pid:[3]").is_err(), "other namespaces, but not their first process");
    }

    #[test]
    fn a_signalled_child_has_a_shells_exit_code() {
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
    }
}
