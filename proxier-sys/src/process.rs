//! What this process asks of the kernel for itself.

use std::fs;
use std::io;
use std::path::Path;

/// Tells the kernel how willing it may be to end this process when memory is short: from -1000, never, to 1000 (`proc_pid_oom_score_adj(5)`).
/// Returns whether it was written; it is not when it is so already. What is started from here on has the same.
///
/// # Errors
/// To go below what the process was started with takes CAP_SYS_RESOURCE: `PermissionDenied` without it. A read-only `/proc` refuses as well.
pub fn set_oom_score_adj(score: i32) -> io::Result<bool> {
    set(Path::new("/proc/self/oom_score_adj"), score)
}

/// A right of root that a process may have by itself (`capabilities(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// To change the network: rules, addresses, virtual servers.
    NetAdmin = 12,
    /// To open raw sockets.
    NetRaw = 13,
}

impl Capability {
    /// Its name, as in a container's `securityContext`, after `CAP_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "NET_ADMIN",
            Self::NetRaw => "NET_RAW",
        }
    }
}

/// Whether this thread has a capability now (`CapEff` of `proc_pid_status(5)`).
///
/// # Errors
/// `/proc` cannot be read, or says something else.
pub fn has_capability(capability: Capability) -> io::Result<bool> {
    let text = fs::read_to_string("/proc/thread-self/status")?;
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "/proc/thread-self/status: no CapEff");
    is_effective(&text, capability).ok_or_else(strange)
}

fn is_effective(status: &str, capability: Capability) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? >> (capability as u32) & 1 == 1)
}

fn set(file: &Path, score: i32) -> io::Result<bool> {
    if fs::read_to_string(file)?.trim().parse() == Ok(score) {
        return Ok(false);
    }
    fs::write(file, score.to_string()).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_score_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("score");
        fs::write(&file, "-999\n").unwrap();
        assert!(!set(&file, -999).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "-999\n");
        assert!(set(&file, 5).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "5");
        assert!(set(&folder.path().join("none"), 5).is_err());
    }

    #[test]
    fn capabilities_are_bits_of_a_mask() {
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\n";
        assert_eq!(is_effective(status, Capability::NetAdmin), Some(true));
        assert_eq!(is_effective(status, Capability::NetRaw), Some(false));
        for strange in ["", "CapEff:\tx", "CapPrm:\t000001ffffffffff"] {
            assert_eq!(is_effective(strange, Capability::NetRaw), None, "{strange}");
        }
        assert_eq!(
            has_capability(Capability::NetRaw).unwrap(),
            is_effective(&fs::read_to_string("/proc/self/status").unwrap(), Capability::NetRaw).unwrap()
        );
    }

    #[test]
    fn what_this_process_has_already_needs_no_right() {
        let before: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
        assert!(!set_oom_score_adj(before).unwrap());
    }
}
