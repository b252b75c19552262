//! The kernel settings that IPVS needs (ipvs spec 1.2). They are made before the first virtual server, are those of the whole host, and stay.

use proxier_sys::sysctl::{Sysctl, SysctlError};
use proxier_sys::version::KernelVersion;

/// From here on IPVS knows what to do with a client that reuses a port (`conn_reuse_mode`).
const REUSE_KNOWN: KernelVersion = KernelVersion::new(4, 1, 0);
/// From here on its own way of doing so costs no second.
const REUSE_MENDED: KernelVersion = KernelVersion::new(5, 9, 0);

/// A setting and the value that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its path below `/proc/sys`.
    pub key: &'static str,
    /// The value.
    pub value: &'static str,
    /// What goes wrong with another value.
    pub reason: &'static str,
}

const fn setting(key: &'static str, value: &'static str, reason: &'static str) -> Setting {
    Setting { key, value, reason }
}

const ALWAYS: [Setting; 4] = [
    setting("net/ipv4/vs/conntrack", "1", "connections of IPVS are not tracked, and none is masqueraded"),
    setting(
        "net/ipv4/vs/expire_nodest_conn",
        "1",
        "connections to a real server that is gone hang until they time out",
    ),
    setting(
        "net/ipv4/vs/expire_quiescent_template",
        "1",
        "a client with affinity is sent to a real server that drains",
    ),
    setting("net/ipv4/ip_forward", "1", "packets to endpoints elsewhere are not forwarded"),
];

const REUSE: Setting = setting(
    "net/ipv4/vs/conn_reuse_mode",
    "0",
    "before Linux 5.9 a connection from a port that was used shortly before waits for a second",
);

const STRICT_ARP: [Setting; 2] = [
    setting(
        "net/ipv4/conf/all/arp_ignore",
        "1",
        "this host answers ARP for service addresses on all interfaces",
    ),
    setting("net/ipv4/conf/all/arp_announce", "2", "this host uses service addresses as its own in ARP"),
];

/// The settings for a kernel of this version. From Linux 5.9 on `conn_reuse_mode` is left as it is.
pub fn settings(kernel: KernelVersion, strict_arp: bool) -> Vec<Setting> {
    let mut settings = ALWAYS.to_vec();
    if (REUSE_KNOWN..REUSE_MENDED).contains(&kernel) {
        settings.insert(1, REUSE);
    }
    if strict_arp {
        settings.extend(STRICT_ARP);
    }
    settings
}

/// What cannot be set on a kernel of this version, in words for the log.
pub fn impossible(kernel: KernelVersion) -> Option<String> {
    (kernel < REUSE_KNOWN).then(|| format!("Linux {kernel} has no {}: {}", REUSE.key, REUSE.reason))
}

/// Makes sure of settings; returns those that were written. One that is right already need not be writable: `/proc/sys` may be read-only.
///
/// # Errors
/// The first setting that is neither right nor can be made so.
pub fn ensure(sysctl: &Sysctl, settings: &[Setting]) -> Result<Vec<Setting>, SysctlError> {
    let mut written = Vec::new();
    for setting in settings {
        if sysctl.ensure(setting.key, setting.value)? {
            written.push(*setting);
        }
    }
    Ok(written)
}

/// The settings that have another value, with it; one that the kernel does not have is left out, as those of IPVS before its module is loaded.
///
/// # Errors
/// A setting that cannot be read.
pub fn differing(sysctl: &Sysctl, settings: &[Setting]) -> Result<Vec<(Setting, String)>, SysctlError> {
    let mut differing = Vec::new();
    for setting in settings {
        match sysctl.read(setting.key) {
            Ok(value) if value == setting.value => {}
            Ok(value) => differing.push((*setting, value)),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(differing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn keys(kernel: KernelVersion, strict_arp: bool) -> Vec<&'static str> {
        settings(kernel, strict_arp).into_iter().map(|s| s.key.rsplit('/').next().unwrap()).collect()
    }

    #[test]
    fn the_kernels_version_decides_about_the_reuse_of_ports() {
        let without = ["conntrack", "expire_nodest_conn", "expire_quiescent_template", "ip_forward"];
        let with =
            ["conntrack", "conn_reuse_mode", "expire_nodest_conn", "expire_quiescent_template", "ip_forward"];
        for (version, expected) in [
            ((4, 0, 9), &without[..]),
            ((4, 1, 0), &with[..]),
            ((4, 18, 0), &with[..]),
            ((5, 8, 18), &with[..]),
            ((5, 9, 0), &without[..]),
            ((6, 1, 0), &without[..]),
        ] {
            let kernel = KernelVersion::new(version.0, version.1, version.2);
            assert_eq!(keys(kernel, false), expected, "{kernel}");
            assert_eq!(impossible(kernel).is_some(), version.0 == 4 && version.1 == 0, "{kernel}");
        }
        assert_eq!(keys(KernelVersion::new(6, 1, 0), true)[4..], ["arp_ignore", "arp_announce"]);
    }

    #[test]
    fn only_what_differs_is_written_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let sysctl = Sysctl::under(folder.path());
        let all = settings(KernelVersion::new(6, 1, 0), false);
        for (place, setting) in all.iter().enumerate() {
            let path = folder.path().join(setting.key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, if place == 1 { "0\n" } else { "1\n" }).unwrap();
        }
        assert_eq!(differing(&sysctl, &all).unwrap(), [(all[1], "0".to_owned())]);
        assert_eq!(ensure(&sysctl, &all).unwrap(), [all[1]]);
        assert_eq!(ensure(&sysctl, &all).unwrap(), []);

        // Before the module is loaded: nothing to compare, and nothing to make.
        fs::remove_dir_all(folder.path().join("net/ipv4/vs")).unwrap();
        assert_eq!(differing(&sysctl, &all).unwrap(), []);
        assert!(ensure(&sysctl, &all).unwrap_err().is_missing());
    }
}
