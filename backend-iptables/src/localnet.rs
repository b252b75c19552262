//! Node ports on loopback addresses need one setting of the kernel (iptables spec 5.9).

use proxier_sys::sysctl::Sysctl;

use crate::error::Error;

/// Lets packets from and to 127.0.0.0/8 be routed; of the calling thread's network namespace.
pub const KEY: &str = "net/ipv4/conf/all/route_localnet";

/// Makes sure that the setting is on; returns whether it was written. It is never taken back: others may rely on it by then.
///
/// # Errors
/// [`Error::RouteLocalnet`] if it is off and cannot be written.
pub fn ensure(sysctl: &Sysctl) -> Result<bool, Error> {
    sysctl.ensure(KEY, "1").map_err(Error::RouteLocalnet)
}

#[cfg(test)]
mod tests {
    use proxier_core::backend::{BackendError, RetryClass};

    use super::*;

    #[test]
    fn a_setting_that_is_not_there_is_explained() {
        let error = ensure(&Sysctl::under("/nonexistent")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node ports on loopback addresses need route_localnet: \
             /nonexistent/net/ipv4/conf/all/route_localnet does not exist"
        );
        assert_eq!(error.retry_class(), RetryClass::Misconfigured);
    }

    #[test]
    #[ignore = "needs root and a network namespace: run by cargo xtask test"]
    fn it_is_written_once_in_the_threads_namespace() {
        proxier_sys::netns::enter_new().unwrap();
        let sysctl = Sysctl::new();
        assert!(ensure(&sysctl).unwrap());
        assert_eq!(sysctl.read(KEY).unwrap(), "1");
        assert!(!ensure(&sysctl).unwrap());
    }
}
