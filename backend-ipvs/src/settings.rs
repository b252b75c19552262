//! Settings of the kernel that IPVS needs (ipvs spec 1.2).

use proxier_sys::sysctl::Sysctl;
use proxier_sys::version::KernelVersion;

use crate::error::Error;

/// A setting and its value.
type Setting = (&'static str, &'static str);

/// Which settings a kernel needs. Those of ARP are for [`strict_arp`](crate::Options::strict_arp). `conn_reuse_mode` is left alone from 5.9 on, where a
/// reused port no longer costs a second (public report 56), and is not there before 4.1.
#[must_use]
pub fn wanted(kernel: KernelVersion, strict_arp: bool) -> Vec<Setting> {
    let mut out = vec![("net/ipv4/vs/conntrack", "1")];
    if kernel >= KernelVersion::new(4, 1, 0) && kernel < KernelVersion::new(5, 9, 0) {
        out.push(("net/ipv4/vs/conn_reuse_mode", "0"));
    }
    out.extend([
        ("net/ipv4/vs/expire_nodest_conn", "1"),
        ("net/ipv4/vs/expire_quiescent_template", "1"),
        ("net/ipv4/ip_forward", "1"),
    ]);
    if strict_arp {
        out.extend([("net/ipv4/conf/all/arp_ignore", "1"), ("net/ipv4/conf/all/arp_announce", "2")]);
    }
    out
}

/// Makes the settings; returns those that were otherwise, as text. A file that cannot be written is no error where the value is right already.
///
/// # Errors
/// A setting that is not there, or that cannot be made.
pub fn ensure(sysctl: &Sysctl, strict_arp: bool) -> Result<Vec<String>, Error> {
    let mut changed = Vec::new();
    for (key, value) in wanted(KernelVersion::running()?, strict_arp) {
        if sysctl.ensure(key, value)? {
            changed.push(format!("{key} = {value}"));
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases: report-C5-56
    #[test]
    fn reuse_of_ports_is_set_by_version() {
        let sets = |major, minor| {
            let all = wanted(KernelVersion::new(major, minor, 0), false);
            all.iter().any(|(key, value)| *key == "net/ipv4/vs/conn_reuse_mode" && *value == "0")
        };
        assert!(!sets(3, 19) && sets(4, 1) && sets(5, 8) && !sets(5, 9) && !sets(6, 1));
    }

    #[test]
    fn arp_only_when_asked_for() {
        let keys =
            |strict| wanted(KernelVersion::new(6, 1, 0), strict).iter().map(|(k, _)| *k).collect::<Vec<_>>();
        assert_eq!(keys(true).len(), keys(false).len() + 2);
        assert!(keys(false).iter().all(|k| !k.contains("arp")));
    }
}
