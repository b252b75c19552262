//! What can go wrong on a netlink socket.

use std::io;

use nix::errno::Errno;
use thiserror::Error;

use super::attr::AttrTooLong;
use super::batch::OversizedMessage;
use super::socket::RefusedMessage;

/// The symbol of an error number, such as `ENOENT`; `errno 600` for one that has none.
pub fn errno_name(errno: i32) -> String {
    match Errno::from_raw(errno) {
        Errno::UnknownErrno => format!("errno {errno}"),
        known => format!("{known:?}"),
    }
}

/// The kernel's answer as text: symbol, then its own explanation if it gave one.
pub(super) fn describe(errno: i32, message: Option<&str>) -> String {
    let name = errno_name(errno);
    match message {
        Some(message) => format!("{name}: {message}"),
        None => name,
    }
}

/// As [`describe`], for a request as a whole: the kernel answers these with `EPERM` for want of one right only.
fn describe_whole(errno: i32, message: Option<&str>) -> String {
    let text = describe(errno, message);
    if Errno::from_raw(errno) == Errno::EPERM {
        format!("{text}; CAP_NET_ADMIN is needed in this network namespace")
    } else {
        text
    }
}

/// A failed exchange with the kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// A system call on the socket failed: `EMSGSIZE` from `send` is a batch larger than the send buffer
    /// the process may set, `EPROTONOSUPPORT` from `open` a kernel without this netlink family.
    #[error("netlink {call} failed: {source}")]
    Socket {
        /// What was tried: open, bind, connect, set option, send, receive.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refused a single request.
    #[error("the kernel refused the request: {}", describe_whole(*errno, message.as_deref()))]
    Refused {
        /// The kernel's error number, positive.
        errno: i32,
        /// The kernel's explanation (extended acknowledgement), where it gave one.
        message: Option<String>,
    },
    /// The kernel refused a batch as a whole: `EPERM` without CAP_NET_ADMIN, `EOPNOTSUPP` or `EINVAL` without
    /// the subsystem, `ENOMEM`, or a commit that failed. Nothing of the batch was committed.
    #[error("the kernel refused the whole batch: {}", describe_whole(*errno, message.as_deref()))]
    BatchRefused {
        /// The kernel's error number, positive.
        errno: i32,
        /// The kernel's explanation (extended acknowledgement), where it gave one.
        message: Option<String>,
    },
    /// The kernel had more answers than the receive buffer could hold. In a batch only refusals are answered,
    /// so nothing was committed. Of requests sent together it is not known which were refused.
    #[error("the kernel's answers overflowed the receive buffer, {} refusals were read", refused.len())]
    Overflow {
        /// The refusals that could still be read, in the order of their messages.
        refused: Vec<RefusedMessage>,
    },
    /// The objects changed under the dump every time it was tried.
    #[error("a dump was interrupted by changes {attempts} times in a row")]
    DumpInterrupted {
        /// How often it was tried.
        attempts: u32,
    },
    /// No answer within the socket's time limit.
    #[error("no answer from the kernel within the time limit")]
    TimedOut,
    /// An answer that does not look like netlink.
    #[error("malformed answer from the kernel: {what}")]
    Malformed {
        /// What was wrong with it.
        what: &'static str,
    },
    /// The batch holds a message that cannot be expressed; nothing was sent.
    #[error(transparent)]
    Oversized(#[from] OversizedMessage),
    /// The request holds an attribute that is too long; nothing was sent.
    #[error(transparent)]
    AttrTooLong(#[from] AttrTooLong),
}

impl NetlinkError {
    /// The error number behind this error, positive, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } | Self::BatchRefused { errno, .. } => Some(*errno),
            Self::Socket { source, .. } => source.raw_os_error(),
            Self::Overflow { .. } => Some(Errno::ENOBUFS as i32),
            Self::DumpInterrupted { .. } => Some(Errno::EINTR as i32),
            Self::TimedOut => Some(Errno::ETIMEDOUT as i32),
            Self::Malformed { .. } | Self::Oversized(_) | Self::AttrTooLong(_) => None,
        }
    }

    /// The symbol of [`NetlinkError::errno`], such as `ENOENT`.
    pub fn errno_name(&self) -> Option<String> {
        self.errno().map(errno_name)
    }

    /// The object does not exist (`ENOENT`).
    pub fn is_not_found(&self) -> bool {
        self.is(&[Errno::ENOENT])
    }

    /// The object is in use (`EBUSY`), or the kernel asks to try again (`EAGAIN`, `EINTR`; `ERESTART` = 85
    /// when another transaction came in between).
    pub fn is_busy(&self) -> bool {
        self.is(&[Errno::EBUSY, Errno::EAGAIN, Errno::EINTR, Errno::ERESTART])
    }

    /// The object exists already (`EEXIST`).
    pub fn is_exists(&self) -> bool {
        self.is(&[Errno::EEXIST])
    }

    /// The process may not do this (`EPERM`, `EACCES`).
    pub fn is_permission(&self) -> bool {
        self.is(&[Errno::EPERM, Errno::EACCES])
    }

    fn is(&self, any: &[Errno]) -> bool {
        self.errno().is_some_and(|errno| any.contains(&Errno::from_raw(errno)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> NetlinkError {
        NetlinkError::Refused { errno: errno as i32, message: None }
    }

    #[test]
    fn causes_are_told_apart() {
        assert!(refused(Errno::ENOENT).is_not_found());
        assert!(refused(Errno::EBUSY).is_busy());
        assert!(refused(Errno::EEXIST).is_exists());
        assert!(refused(Errno::EPERM).is_permission());
        assert!(!refused(Errno::EINVAL).is_not_found());
        assert!(NetlinkError::DumpInterrupted { attempts: 3 }.is_busy());
        let send = NetlinkError::Socket { call: "send", source: io::Error::from_raw_os_error(1) };
        assert!(send.is_permission());
    }

    #[test]
    fn text_names_the_number_and_keeps_the_kernels_words() {
        let error = NetlinkError::BatchRefused { errno: 22, message: Some("bad hook".into()) };
        assert_eq!(error.to_string(), "the kernel refused the whole batch: EINVAL: bad hook");
        let error = NetlinkError::BatchRefused { errno: 1, message: None };
        assert!(
            error.to_string().ends_with(": EPERM; CAP_NET_ADMIN is needed in this network namespace"),
            "{error}"
        );
        assert_eq!(errno_name(2), "ENOENT");
        assert_eq!(errno_name(600), "errno 600");
    }
}
