//! `proxier lab`: hands over to the lab's own program, so that the daemon carries none of it.

use std::convert::Infallible;
use std::ffi::{CString, NulError, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The lab's program, expected beside this one.
pub const PROGRAM: &str = "proxier-lab";

/// Why the lab could not be entered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// It was not built.
    #[error("{0} is not there; build it with `cargo build --package e2e`, or use `cargo xtask lab`")]
    Missing(PathBuf),
    /// This program's own place is not known.
    #[error("cannot tell where this program is: {0}")]
    Unknown(#[source] io::Error),
    /// An argument holds a zero byte.
    #[error("an argument holds a zero byte")]
    Argument(#[from] NulError),
    /// The kernel would not start it.
    #[error("cannot start {0}: {1}")]
    Exec(PathBuf, #[source] io::Error),
}

/// Where the lab's program belongs: beside `program`.
fn beside(program: &Path) -> Result<PathBuf, LabError> {
    let path = program.with_file_name(PROGRAM);
    if path.is_file() { Ok(path) } else { Err(LabError::Missing(path)) }
}

/// Replaces this process by the lab's program. Returns only on failure.
///
/// # Errors
/// When the program is missing or cannot be started.
pub fn exec(args: &[OsString]) -> Result<Infallible, LabError> {
    let path = beside(&std::env::current_exe().map_err(LabError::Unknown)?)?;
    let program = CString::new(path.as_os_str().as_bytes())?;
    let mut argv = vec![program.clone()];
    for arg in args {
        argv.push(CString::new(arg.as_bytes())?);
    }
    nix::unistd::execv(&program, &argv).map_err(|e| LabError::Exec(path, e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_how_to_build_it() {
        let dir = tempfile::tempdir().expect("folder");
        let error = beside(&dir.path().join("proxier")).expect_err("nothing there").to_string();
        assert!(
            error.contains("proxier-lab is not there; build it with `cargo build --package e2e`"),
            "{error}"
        );
    }

    #[test]
    fn it_is_looked_for_beside_this_program() {
        let dir = tempfile::tempdir().expect("folder");
        let lab = dir.path().join(PROGRAM);
        std::fs::write(&lab, "").expect("written");
        assert_eq!(beside(&dir.path().join("proxier")).expect("found"), lab);
    }
}
