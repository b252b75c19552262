//! Which kernel modules the machine gets: those of networking, and what they need.

use std::collections::{BTreeMap, BTreeSet};

/// Folders below the modules' own whose modules are all taken. `sctp` and `libcrc32c` ask for ciphers by the names of
/// algorithms, which is why those come as a whole.
const FOLDERS: [&str; 4] = ["kernel/net/", "kernel/crypto/", "kernel/lib/", "kernel/arch/x86/crypto/"];

/// Modules taken besides: the channel to the outside, and devices that tests make.
const MODULES: [&str; 15] = [
    "virtio_pci",
    "virtio_console",
    "dummy",
    "veth",
    "tun",
    "vxlan",
    "geneve",
    "bonding",
    "macvlan",
    "ipvlan",
    "ifb",
    "vrf",
    "nlmon",
    "overlay",
    "loop",
];

/// The modules to take, as paths below the modules' folder, by the text of `modules.dep`.
pub(crate) fn chosen(dependencies: &str) -> BTreeSet<String> {
    let table = parse(dependencies);
    let wanted = |path: &&&str| {
        FOLDERS.iter().any(|folder| path.starts_with(folder)) || MODULES.contains(&name(path).as_str())
    };
    let start: Vec<&str> = table.keys().filter(wanted).copied().collect();
    closure(&table, start)
}

/// Lines of the form `path: path path`.
fn parse(text: &str) -> BTreeMap<&str, Vec<&str>> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (path, needs.split_whitespace().collect()))
        .collect()
}

/// A module's name, which is its file's with underscores for hyphens.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn closure<'a>(table: &BTreeMap<&'a str, Vec<&'a str>>, mut open: Vec<&'a str>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    while let Some(path) = open.pop() {
        if all.insert(path.to_owned()) {
            open.extend(table.get(path).into_iter().flatten());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
kernel/net/netfilter/ipvs/ip_vs.ko: kernel/net/netfilter/nf_conntrack.ko kernel/misc/libcrc32c.ko
kernel/net/netfilter/nf_conntrack.ko: kernel/misc/nf_defrag.ko
kernel/misc/nf_defrag.ko:
kernel/misc/libcrc32c.ko: kernel/misc/libcrc32c.ko
kernel/drivers/net/dummy.ko.xz:
kernel/drivers/virtio/virtio-pci.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/gpu/huge.ko: kernel/drivers/gpu/drm.ko
kernel/drivers/gpu/drm.ko:
";

    #[test]
    fn what_is_wanted_comes_with_all_it_needs_and_nothing_else() {
        let chosen: Vec<String> = chosen(TABLE).into_iter().collect();
        assert_eq!(
            chosen,
            [
                "kernel/drivers/net/dummy.ko.xz",
                "kernel/drivers/virtio/virtio-pci.ko",
                "kernel/drivers/virtio/virtio.ko",
                "kernel/misc/libcrc32c.ko",
                "kernel/misc/nf_defrag.ko",
                "kernel/net/netfilter/ipvs/ip_vs.ko",
                "kernel/net/netfilter/nf_conntrack.ko",
            ]
        );
    }

    #[test]
    fn names_are_told_without_folder_ending_and_hyphens() {
        assert_eq!(name("kernel/drivers/net/ip-tunnel.ko.xz"), "ip_tunnel");
        assert_eq!(name("plain"), "plain");
    }
}
