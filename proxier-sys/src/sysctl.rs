//! Kernel settings under `/proc/sys`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use thiserror::Error;

/// A setting could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SysctlError {
    /// The kernel has no such setting, often because the feature or its module is not there.
    #[error("{} does not exist", path.display())]
    Missing {
        /// File of the setting.
        path: PathBuf,
    },
    /// `/proc/sys` is mounted read-only, as in a container that is not privileged.
    #[error("{} is on a read-only mount", path.display())]
    ReadOnly {
        /// File of the setting.
        path: PathBuf,
    },
    /// The process may not read or write it.
    #[error("no permission for {}", path.display())]
    Denied {
        /// File of the setting.
        path: PathBuf,
    },
    /// The kernel did not take the value.
    #[error("{} does not accept {value:?}", path.display())]
    Refused {
        /// File of the setting.
        path: PathBuf,
        /// The value.
        value: String,
    },
    /// The value is not of the type that was asked for.
    #[error("{} is {value:?}, which is not a number", path.display())]
    NotANumber {
        /// File of the setting.
        path: PathBuf,
        /// The value.
        value: String,
    },
    /// A key that is not a plain path below `/proc/sys`.
    #[error("{key:?} is not the name of a kernel setting")]
    BadKey {
        /// The key.
        key: String,
    },
    /// Any other failure.
    #[error("cannot access {}: {source}", path.display())]
    Io {
        /// File of the setting.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl SysctlError {
    /// True if the kernel has no such setting.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    /// True if the setting exists and this process cannot change it: a read-only mount or no permission.
    pub fn is_unwritable(&self) -> bool {
        matches!(self, Self::ReadOnly { .. } | Self::Denied { .. })
    }
}

/// The settings of this host. Keys are paths with slashes (`net/ipv4/ip_forward`), since interface names may
/// hold dots. Those below `net/` are the ones of the calling thread's network namespace.
#[derive(Clone, Debug)]
pub struct Sysctl {
    root: PathBuf,
}

impl Default for Sysctl {
    fn default() -> Self {
        Self::new()
    }
}

impl Sysctl {
    /// The settings under `/proc/sys`.
    pub fn new() -> Self {
        Self::under("/proc/sys")
    }

    /// The settings under another folder: a host's `/proc/sys` mounted elsewhere, or a test's.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The value of a setting, without white space around it.
    ///
    /// # Errors
    /// [`SysctlError`].
    pub fn read(&self, key: &str) -> Result<String, SysctlError> {
        let path = self.path(key)?;
        match fs::read_to_string(&path) {
            Ok(value) => Ok(value.trim().to_owned()),
            Err(source) => Err(classify(path, source, "")),
        }
    }

    /// The value of a setting that is one number.
    ///
    /// # Errors
    /// [`SysctlError::NotANumber`] and all of [`Sysctl::read`].
    pub fn read_number<N: FromStr>(&self, key: &str) -> Result<N, SysctlError> {
        let value = self.read(key)?;
        match value.parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(SysctlError::NotANumber { path: self.path(key)?, value }),
        }
    }

    /// Makes sure that a setting has a value: reads it, and writes only if it differs. Returns whether it
    /// was written.
    ///
    /// # Errors
    /// [`SysctlError`]; a read-only mount is an error only if the value differs.
    pub fn ensure(&self, key: &str, value: &str) -> Result<bool, SysctlError> {
        if self.read(key)? == value.trim() {
            return Ok(false);
        }
        let path = self.path(key)?;
        // Opened without create: the kernel alone makes settings.
        let written =
            OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
        match written {
            Ok(()) => Ok(true),
            Err(source) => Err(classify(path, source, value)),
        }
    }

    fn path(&self, key: &str) -> Result<PathBuf, SysctlError> {
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if key.split('/').all(plain) {
            Ok(self.root.join(Path::new(key)))
        } else {
            Err(SysctlError::BadKey { key: key.to_owned() })
        }
    }
}

fn classify(path: PathBuf, source: io::Error, value: &str) -> SysctlError {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => SysctlError::Missing { path },
        Some(Errno::EROFS) => SysctlError::ReadOnly { path },
        Some(Errno::EACCES | Errno::EPERM) => SysctlError::Denied { path },
        Some(Errno::EINVAL) => SysctlError::Refused { path, value: value.to_owned() },
        _ => SysctlError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::netns;

    const FORWARD: &str = "net/ipv4/ip_forward";

    fn with_file(content: &str) -> (tempfile::TempDir, Sysctl) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("net/ipv4")).unwrap();
        fs::write(folder.path().join(FORWARD), content).unwrap();
        let sysctl = Sysctl::under(folder.path());
        (folder, sysctl)
    }

    #[test]
    fn values_are_trimmed_and_numbers_parsed() {
        let (_folder, sysctl) = with_file("1\n");
        assert_eq!(sysctl.read(FORWARD).unwrap(), "1");
        assert_eq!(sysctl.read_number::<u32>(FORWARD).unwrap(), 1);
        let (_folder, sysctl) = with_file("32768\t60999\n");
        let error = sysctl.read_number::<u32>(FORWARD).unwrap_err();
        assert!(matches!(error, SysctlError::NotANumber { .. }), "{error}");
    }

    #[test]
    fn only_a_different_value_is_written() {
        let (folder, sysctl) = with_file("0\n");
        assert!(!sysctl.ensure(FORWARD, "0").unwrap());
        assert_eq!(fs::read_to_string(folder.path().join(FORWARD)).unwrap(), "0\n");
        assert!(sysctl.ensure(FORWARD, "1").unwrap());
        assert_eq!(sysctl.read(FORWARD).unwrap(), "1");
    }

    #[test]
    fn a_missing_setting_is_named_and_not_created() {
        let (folder, sysctl) = with_file("0\n");
        let error = sysctl.ensure("net/ipv4/no_such", "1").unwrap_err();
        assert!(error.is_missing());
        assert!(error.to_string().ends_with("net/ipv4/no_such does not exist"), "{error}");
        assert!(!folder.path().join("net/ipv4/no_such").exists());
    }

    #[test]
    fn keys_stay_below_the_root() {
        for key in ["", "/etc/passwd", "net/../../x", "net//x", "net/./x"] {
            assert!(matches!(Sysctl::new().read(key), Err(SysctlError::BadKey { .. })), "{key}");
        }
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn settings_are_those_of_the_threads_namespace() {
        netns::enter_new().unwrap();
        let sysctl = Sysctl::new();
        let before: u32 = sysctl.read_number(FORWARD).unwrap();
        assert!(sysctl.ensure(FORWARD, if before == 0 { "1" } else { "0" }).unwrap());
        assert_eq!(sysctl.read_number::<u32>(FORWARD).unwrap(), 1 - before);
        std::thread::spawn(|| netns::enter_new().unwrap()).join().unwrap();
        let error = sysctl.ensure(FORWARD, "not a number").unwrap_err();
        assert!(matches!(error, SysctlError::Refused { .. }), "{error}");
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn a_read_only_mount_is_told_apart() {
        netns::enter_new().unwrap();
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("/proc/sys"), "/proc/sys", none, MsFlags::MS_BIND, none).unwrap();
        let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, "/proc/sys", none, read_only, none).unwrap();
        let sysctl = Sysctl::new();
        let before: u32 = sysctl.read_number(FORWARD).unwrap();
        assert!(!sysctl.ensure(FORWARD, &before.to_string()).unwrap());
        let error = sysctl.ensure(FORWARD, &(1 - before).to_string()).unwrap_err();
        assert!(matches!(error, SysctlError::ReadOnly { .. }), "{error}");
        assert!(error.is_unwritable());
    }
}
