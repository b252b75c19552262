//! What can go wrong, and what a caller can do about it.

use proxier_core::backend::{BackendError, Refused, RetryClass};
use proxier_sys::netlink::{NetlinkError, errno_name};

use crate::wire::WireError;

/// An operation that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOp {
    /// The operation, in nft's syntax.
    pub op: String,
    /// The kernel's error number.
    pub errno: i32,
    /// The kernel's explanation, where it gave one.
    pub explanation: Option<String>,
}

/// An error of this backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The exchange with the kernel failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A message could not be written or read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The kernel refused operations; nothing of the transaction is in force.
    #[error("{count} operations refused, the first: {}: {}{}", first.op, errno_name(first.errno), explained(first))]
    Refused {
        /// The first refused operation.
        first: Box<RefusedOp>,
        /// How many were refused.
        count: usize,
        /// The service ports they were for.
        ports: Vec<Refused>,
        /// Operations that belong to no service port are among them.
        shared: bool,
    },
}

fn explained(op: &RefusedOp) -> String {
    op.explanation.as_ref().map(|e| format!(" ({e})")).unwrap_or_default()
}

/// `EPERM`
const EPERM: i32 = 1;
/// `ENOENT`
const ENOENT: i32 = 2;
/// `EINTR`
const EINTR: i32 = 4;
/// `EAGAIN`
const EAGAIN: i32 = 11;
/// `ENOMEM`
const ENOMEM: i32 = 12;
/// `EBUSY`
const EBUSY: i32 = 16;
/// `EEXIST`
const EEXIST: i32 = 17;
/// `ENFILE`: a sized set is full.
const ENFILE: i32 = 23;
/// `EOPNOTSUPP`
const EOPNOTSUPP: i32 = 95;
/// `ENOBUFS`
const ENOBUFS: i32 = 105;

fn class_of(errno: i32) -> RetryClass {
    match errno {
        EPERM => RetryClass::Misconfigured,
        EINTR | EAGAIN | ENOMEM | ENOBUFS => RetryClass::Transient,
        ENOENT | EBUSY | EEXIST | ENFILE => RetryClass::NeedsFullSync,
        EOPNOTSUPP => RetryClass::Unsupported,
        _ => RetryClass::Bug,
    }
}

impl BackendError for Error {
    fn retry_class(&self) -> RetryClass {
        match self {
            Self::Netlink(error) => error.errno().map_or(RetryClass::Transient, class_of),
            Self::Wire(WireError::Netlink(error)) => error.errno().map_or(RetryClass::Transient, class_of),
            Self::Wire(_) => RetryClass::Bug,
            Self::Refused { first, .. } => class_of(first.errno),
        }
    }

    fn refused(&self) -> &[Refused] {
        match self {
            Self::Refused { ports, shared: false, .. } => ports,
            _ => &[],
        }
    }
}
