//! Network namespaces: a new one for the calling thread, or a piece of work inside an existing one.

use std::fs::File;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::thread;

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc;
use nix::sched::{CloneFlags, setns, unshare};
use thiserror::Error;

use crate::netlink::{NetlinkError, Transport};

/// Where `ip netns` keeps its namespaces.
const NAMED: &str = "/var/run/netns";
/// The network namespace of the calling thread, which may differ from that of its process.
const CURRENT: &str = "/proc/thread-self/ns/net";
/// `RTM_NEWLINK` of `linux/rtnetlink.h`.
const NEW_LINK: u16 = 16;
/// The loopback device is the first device of every network namespace.
const LOOPBACK_INDEX: i32 = 1;

/// A namespace could not be made, opened or entered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// The process may not make a network namespace (it needs CAP_SYS_ADMIN).
    #[error("cannot make a network namespace: {source}")]
    Unshare {
        /// The system's error.
        source: io::Error,
    },
    /// The new namespace's loopback device did not come up.
    #[error("cannot bring the loopback device up: {source}")]
    Loopback {
        /// The kernel's answer.
        source: NetlinkError,
    },
    /// A name that is not a single path component.
    #[error("{name:?} is not the name of a network namespace")]
    BadName {
        /// The name.
        name: String,
    },
    /// The namespace's file cannot be opened; a missing one is [`io::ErrorKind::NotFound`].
    #[error("cannot open network namespace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The namespace could not be entered: no CAP_SYS_ADMIN, or the file is not a network namespace.
    #[error("cannot enter network namespace {}: {source}", path.display())]
    Enter {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No thread could be started to run inside the namespace.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// The system's error.
        source: io::Error,
    },
}

/// Moves the calling thread, and it alone, into a new network namespace whose loopback device is up.
///
/// The namespace lives as long as the thread, the threads and children it starts afterwards, and the sockets
/// opened in it.
///
/// # Errors
/// [`NetnsError::Unshare`] without privilege, [`NetnsError::Loopback`] if the device does not come up.
pub fn enter_new() -> Result<(), NetnsError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| NetnsError::Unshare { source: errno.into() })?;
    raise_loopback().map_err(|source| NetnsError::Loopback { source })
}

/// Sets the up flag of the loopback device in the calling thread's namespace.
fn raise_loopback() -> Result<(), NetlinkError> {
    // `struct ifinfomsg`: family, padding, device type, index, flags, mask of the flags that change.
    let up = libc::IFF_UP.to_ne_bytes();
    let mut info = [0; 16];
    info[4..8].copy_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    info[8..12].copy_from_slice(&up);
    info[12..16].copy_from_slice(&up);
    Transport::open(NETLINK_ROUTE)?.request(NEW_LINK, 0, &info, |_| {}).map(drop)
}

/// An existing network namespace, kept alive by this handle.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    file: File,
}

impl Netns {
    /// The namespace `ip netns add NAME` made.
    ///
    /// # Errors
    /// [`NetnsError::BadName`] or [`NetnsError::Open`].
    pub fn named(name: &str) -> Result<Self, NetnsError> {
        if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
            return Err(NetnsError::BadName { name: name.to_owned() });
        }
        Self::at(Path::new(NAMED).join(name))
    }

    /// The namespace a file stands for, such as `/proc/PID/ns/net` or a file it is bind-mounted on.
    ///
    /// # Errors
    /// [`NetnsError::Open`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, NetnsError> {
        let path = path.into();
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(NetnsError::Open { path, source }),
        }
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::Open`] if `/proc` is not there.
    pub fn current() -> Result<Self, NetnsError> {
        Self::at(CURRENT)
    }

    /// The file the namespace was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` on a thread of its own inside this namespace and returns its result. The calling thread
    /// waits and stays where it is. Sockets that `work` opens belong to the namespace, and so do the children
    /// it starts; a panic of `work` continues in the caller.
    ///
    /// # Errors
    /// [`NetnsError::Thread`], or [`NetnsError::Enter`], and then `work` did not run.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        thread::scope(|scope| {
            let inside = || {
                self.enter()?;
                Ok(work())
            };
            let thread = thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, inside)
                .map_err(|source| NetnsError::Thread { source })?;
            thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload))
        })
    }

    fn enter(&self) -> Result<(), NetnsError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| NetnsError::Enter { path: self.path.clone(), source: errno.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn inode() -> u64 {
        std::fs::metadata(CURRENT).unwrap().ino()
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in ["", ".", "..", "a/b", "../x"] {
            assert!(matches!(Netns::named(name), Err(NetnsError::BadName { .. })), "{name}");
        }
    }

    #[test]
    fn a_missing_namespace_is_told_apart() {
        match Netns::named("proxier-sys-has-no-such-namespace").unwrap_err() {
            NetnsError::Open { source, .. } => assert_eq!(source.kind(), io::ErrorKind::NotFound),
            other => panic!("{other}"),
        }
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn a_new_namespace_is_another_one_with_loopback_up() {
        let before = inode();
        enter_new().unwrap();
        assert_ne!(inode(), before);
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.send_to(b"ping", server.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(server.recv(&mut buffer).unwrap(), 4);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn work_runs_inside_and_the_caller_stays_outside() {
        let outside = inode();
        let (target, netns) = thread::spawn(|| {
            enter_new().unwrap();
            (inode(), Netns::current().unwrap())
        })
        .join()
        .unwrap();
        let borrowed = String::from("result");
        let (seen, text) = netns.run(|| (inode(), borrowed.len())).unwrap();
        assert_eq!((seen, text), (target, 6));
        assert_ne!(target, outside);
        assert_eq!(inode(), outside);
    }

    #[test]
    fn a_file_that_is_no_namespace_is_an_error_and_nothing_runs() {
        let netns = Netns::at("/proc/self/status").unwrap();
        let mut ran = false;
        let result = netns.run(|| ran = true);
        assert!(matches!(result, Err(NetnsError::Enter { .. })), "{result:?}");
        assert!(!ran);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    #[should_panic(expected = "from inside")]
    fn a_panic_inside_reaches_the_caller() {
        let netns = Netns::current().unwrap();
        let _ = netns.run(|| panic!("from inside"));
    }
}
