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
    fn what_this_process_has_already_needs_no_right() {
        let before: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
        assert!(!set_oom_score_adj(before).unwrap());
    }
}
