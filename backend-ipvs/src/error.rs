//! What can go wrong, and what a caller can do about it.

use std::io;

use proxier_core::backend::{BackendError, Refused, RetryClass};
use proxier_core::ids::IpFamily;
use proxier_sys::netlink::NetlinkError;
use proxier_sys::runner::RunError;
use proxier_sys::sysctl::SysctlError;
use proxier_sys::version::VersionError;

use crate::sets::SetType;
use crate::wire::{DecodeError, ipset};

/// An operation that the kernel or a tool refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOperation {
    /// The operation in the syntax of its tool.
    pub operation: String,
    /// The answer.
    pub answer: String,
}

/// An error of this backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no IPVS, and could not load it.
    #[error("this kernel has no IPVS: module ip_vs is neither built in nor loaded nor loadable")]
    NoIpvs,
    /// The kernel has no dummy devices.
    #[error("this kernel has no dummy devices: module dummy is neither built in nor loaded nor loadable")]
    NoDummies,
    /// The kernel has no ipset.
    #[error("this kernel has no ipset: module ip_set is neither built in nor loaded nor loadable")]
    NoIpset,
    /// The kernel lacks a type of set.
    #[error("this kernel has no ipset of type {} ({family})", ipset::type_name(*kind))]
    NoSetType {
        /// The type.
        kind: SetType,
        /// The family it was asked for.
        family: IpFamily,
    },
    /// The interface for service addresses is something else.
    #[error("interface {name} exists and is {}, not a dummy device", kind.as_deref().unwrap_or("a real device"))]
    OtherDevice {
        /// Its name.
        name: String,
        /// Its kind.
        kind: Option<String>,
    },
    /// A set of one of our names is of another type or family, and rules look into it.
    #[error("set {name} exists as {found}, where {wanted} is needed, and {references} rules look into it")]
    OtherSet {
        /// Its name.
        name: String,
        /// What it is.
        found: String,
        /// What it should be.
        wanted: String,
        /// How many rules use it.
        references: u32,
    },
    /// A netlink exchange failed.
    #[error("cannot {doing}: {source}")]
    Netlink {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: NetlinkError,
    },
    /// An answer of the kernel was not understood.
    #[error("cannot {doing}: {source}")]
    Answer {
        /// What was tried.
        doing: &'static str,
        /// What was wrong with it.
        source: DecodeError,
    },
    /// A file below `/proc` could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A kernel setting that IPVS needs could not be made.
    #[error("IPVS needs a kernel setting: {0}")]
    Sysctl(#[from] SysctlError),
    /// The kernel does not tell its version.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// A tool did not run to its end.
    #[error(transparent)]
    Tool(#[from] RunError),
    /// The tools of iptables refused something.
    #[error(transparent)]
    Xtables(#[from] proxier_xtables::Error),
    /// The kernel does not know the scheduler.
    #[error("no scheduler {name} in this kernel: {answer}")]
    NoScheduler {
        /// Its name.
        name: String,
        /// What the kernel said.
        answer: String,
    },
    /// Virtual servers came and went all the time.
    #[error("virtual servers changed during each of {dumps} listings")]
    Changing {
        /// How many were made.
        dumps: usize,
    },
    /// IPVS has nothing that asks the kernel without changing it.
    #[error("IPVS cannot be asked whether it would take a plan")]
    NoCheck,
    /// Operations were refused; the others are in force.
    #[error("{count} operations refused, the first: {}: {}", first.operation, first.answer)]
    Refused {
        /// The first of them.
        first: Box<RefusedOperation>,
        /// How many.
        count: usize,
        /// The service ports they were for.
        ports: Vec<Refused>,
        /// Operations that belong to no service port are among them.
        shared: bool,
        /// What a caller can do.
        class: RetryClass,
    },
}

/// Names what was tried when a netlink exchange failed.
pub(crate) fn netlink(doing: &'static str) -> impl Fn(NetlinkError) -> Error {
    move |source| Error::Netlink { doing, source }
}

/// Names what was tried when an answer is not understood.
pub(crate) fn answer(doing: &'static str) -> impl Fn(DecodeError) -> Error {
    move |source| Error::Answer { doing, source }
}

impl BackendError for Error {
    fn retry_class(&self) -> RetryClass {
        match self {
            Self::NoIpvs
            | Self::NoDummies
            | Self::NoIpset
            | Self::NoSetType { .. }
            | Self::Version(_)
            | Self::Tool(RunError::Missing { .. }) => RetryClass::Unsupported,
            Self::NoCheck => RetryClass::Unsupported,
            Self::OtherDevice { .. } | Self::OtherSet { .. } | Self::Sysctl(_) | Self::NoScheduler { .. } => {
                RetryClass::Misconfigured
            }
            Self::Xtables(error) => error.retry_class(),
            Self::Tool(RunError::Start { .. }) => RetryClass::Misconfigured,
            // Killed, or not heard: what it did is not known.
            Self::Tool(_) => RetryClass::NeedsFullSync,
            Self::Answer { .. } => RetryClass::Bug,
            Self::Read { .. } | Self::Changing { .. } => RetryClass::Transient,
            Self::Refused { class, .. } => *class,
            Self::Netlink { source, .. } => of_netlink(source),
        }
    }

    fn refused(&self) -> &[Refused] {
        match self {
            Self::Refused { ports, shared: false, .. } => ports,
            _ => &[],
        }
    }
}

fn of_netlink(error: &NetlinkError) -> RetryClass {
    match error {
        NetlinkError::Oversized(_) | NetlinkError::AttrTooLong(_) => RetryClass::Bug,
        error if error.is_permission() => RetryClass::Misconfigured,
        error if error.is_busy() => RetryClass::Transient,
        // What was done before is not known.
        _ => RetryClass::NeedsFullSync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32) -> Error {
        netlink("list virtual servers")(NetlinkError::Refused { errno, message: None })
    }

    #[test]
    fn classes_say_what_to_do() {
        for (error, class) in [
            (Error::NoIpvs, RetryClass::Unsupported),
            (
                Error::OtherDevice { name: "kube-ipvs0".into(), kind: Some("bridge".into()) },
                RetryClass::Misconfigured,
            ),
            (refused(1), RetryClass::Misconfigured),
            (refused(16), RetryClass::Transient),
            (refused(22), RetryClass::NeedsFullSync),
            (netlink("x")(NetlinkError::Overflow { refused: Vec::new() }), RetryClass::NeedsFullSync),
            (answer("x")(DecodeError::Missing { object: "set", attribute: "name" }), RetryClass::Bug),
            (Error::Tool(RunError::Missing { program: "modprobe".into() }), RetryClass::Unsupported),
        ] {
            assert_eq!(error.retry_class(), class, "{error}");
            assert!(error.refused().is_empty());
        }
    }

    #[test]
    fn texts_tell_what_is_missing() {
        let error = Error::OtherDevice { name: "kube-ipvs0".into(), kind: None };
        assert_eq!(error.to_string(), "interface kube-ipvs0 exists and is a real device, not a dummy device");
        let error = Error::NoSetType { kind: SetType::HashIpPortNet, family: IpFamily::Ipv6 };
        assert_eq!(error.to_string(), "this kernel has no ipset of type hash:ip,port,net (IPv6)");
        assert_eq!(
            refused(22).to_string(),
            "cannot list virtual servers: the kernel refused the request: EINVAL"
        );
    }

    #[test]
    fn ports_are_named_only_when_nothing_shared_was_refused() {
        let name = proxier_core::ids::ServicePortName {
            service: proxier_core::ids::ServiceName::new("ns", "web"),
            port: "http".into(),
            protocol: proxier_core::ids::Protocol::Tcp,
        };
        let error = |shared| Error::Refused {
            first: Box::new(RefusedOperation {
                operation: "-A -t 10.0.0.1:80 -s rr".into(),
                answer: "no".into(),
            }),
            count: 1,
            ports: vec![Refused { port: name.clone(), reason: "no".into() }],
            shared,
            class: RetryClass::NeedsFullSync,
        };
        assert_eq!(error(false).refused().len(), 1);
        assert_eq!(error(true).refused().len(), 0);
        assert_eq!(error(true).to_string(), "1 operations refused, the first: -A -t 10.0.0.1:80 -s rr: no");
    }
}
