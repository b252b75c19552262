//! What can go wrong, and what a caller can do about it.

use proxier_core::backend::{BackendError, Refused, RetryClass};
use proxier_sys::netlink::NetlinkError;
use proxier_sys::sysctl::SysctlError;

/// An error of this backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tools, or what they refused.
    #[error(transparent)]
    Xtables(#[from] proxier_xtables::Error),
    /// Node ports on loopback need a setting that could not be made (iptables spec 5.9).
    #[error("node ports on loopback addresses need route_localnet: {0}")]
    RouteLocalnet(#[source] SysctlError),
    /// Rules were to name counting objects that the kernel does not make; the next plan does without.
    #[error("the kernel makes no counting object {0}: rules go in without it")]
    Counters(String),
    /// Counting objects could not be made.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl BackendError for Error {
    fn retry_class(&self) -> RetryClass {
        match self {
            Self::Xtables(error) => error.retry_class(),
            Self::RouteLocalnet(_) => RetryClass::Misconfigured,
            Self::Counters(_) => RetryClass::NeedsFullSync,
            Self::Netlink(error) if error.is_permission() => RetryClass::Misconfigured,
            Self::Netlink(_) => RetryClass::Transient,
        }
    }

    fn refused(&self) -> &[Refused] {
        match self {
            Self::Xtables(error) => error.refused(),
            _ => &[],
        }
    }
}
