//! Whether this network namespace has IPv6.

use std::path::Path;

use crate::sysctl::Sysctl;

/// Why there is no IPv6 here; `None` when there is: the kernel has it, and it is not switched off for all interfaces (core spec 7.6).
#[must_use]
pub fn missing() -> Option<&'static str> {
    missing_in(&Sysctl::new(), Path::new("/proc/net/if_inet6"))
}

fn missing_in(sysctl: &Sysctl, interfaces: &Path) -> Option<&'static str> {
    if !interfaces.exists() {
        return Some("the kernel has no IPv6");
    }
    match sysctl.read("net/ipv6/conf/all/disable_ipv6") {
        Ok(value) if value == "1" => Some("IPv6 is switched off (net.ipv6.conf.all.disable_ipv6 is 1)"),
        // What cannot be read does not say no.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_kernel_and_its_setting_both_count() {
        let folder = tempfile::tempdir().unwrap();
        let (sysctl, interfaces) = (Sysctl::under(folder.path()), folder.path().join("if_inet6"));
        assert_eq!(missing_in(&sysctl, &interfaces), Some("the kernel has no IPv6"));
        fs::write(&interfaces, "").unwrap();
        assert_eq!(missing_in(&sysctl, &interfaces), None, "no setting says nothing");
        fs::create_dir_all(folder.path().join("net/ipv6/conf/all")).unwrap();
        let setting = folder.path().join("net/ipv6/conf/all/disable_ipv6");
        fs::write(&setting, "0\n").unwrap();
        assert_eq!(missing_in(&sysctl, &interfaces), None);
        fs::write(&setting, "1\n").unwrap();
        assert!(missing_in(&sysctl, &interfaces).is_some());
    }
}
