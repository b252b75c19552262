//! The backend on a kernel that lacks IPVS, as many have: it says so, and its leftovers can be removed all the same.

use proxier_core::backend::Backend;
use proxier_core::ids::IpFamily;
use proxier_sys::runner::{CommandSpec, Runner, SystemRunner};

use crate::sets::{SetId, SetType};
use crate::{Ipvs, Options, skeleton};

fn tool(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = SystemRunner::new().run(&CommandSpec::new(words.next().unwrap(), words)).unwrap();
    assert!(output.success(), "{line}: {}", output.stderr_text());
    output.stdout_text()
}

fn isolated() {
    proxier_sys::netns::enter_new().expect("root, to make a network namespace");
}

#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn what_is_missing_is_an_answer_in_one_sentence() {
    isolated();
    let capabilities = Ipvs::new(IpFamily::Ipv4, Options::default()).probe().unwrap();
    let ipvs = capabilities.requirements.iter().find(|r| r.what == "IPVS").unwrap();
    // A kernel that has it is tried by the tests of the emulated machine.
    if !ipvs.found {
        assert!(!capabilities.usable());
        assert_eq!(
            ipvs.detail,
            "this kernel has no IPVS: module ip_vs is neither built in nor loaded nor loadable"
        );
    }
    let sets = |r: &&proxier_core::backend::Requirement| r.what.starts_with("ipset ");
    assert_eq!(capabilities.requirements.iter().filter(sets).filter(|r| r.found).count(), SetType::ALL.len());
}

/// Cases: ipvs-11.39, ipvs-11.40
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn sets_and_rules_are_removed_without_ipvs_in_the_kernel() {
    isolated();
    for family in IpFamily::ALL {
        let (stem, inet) = match family {
            IpFamily::Ipv4 => ("iptables-nft", "inet"),
            IpFamily::Ipv6 => ("ip6tables-nft", "inet6"),
        };
        for id in SetId::ALL {
            let of = if id.set_type() == SetType::BitmapPort {
                "range 0-65535".to_owned()
            } else {
                format!("family {inet}")
            };
            tool(&format!("ipset create {} {} {of}", id.name(family), id.set_type().name()));
        }
        for chain in skeleton::names() {
            tool(&format!("{stem} -t {} -N {}", chain.table.name(), chain.name));
        }
        tool(&format!("{stem} -I INPUT -j KUBE-IPVS-FILTER"));
        tool(&format!(
            "{stem} -A KUBE-IPVS-FILTER -m set --match-set {} dst -j DROP",
            SetId::IpvsIps.name(family)
        ));
        tool(&format!("{stem} -N OF-OTHERS"));
        tool(&format!("{stem} -A INPUT -j OF-OTHERS"));
    }
    tool("ipset create of-others hash:ip");
    for family in IpFamily::ALL {
        let report = Ipvs::new(family, Options::default()).cleanup().unwrap();
        assert_eq!(report.stayed, [""; 0]);
        assert!(report.removed.len() >= SetId::ALL.len() + skeleton::names().len(), "{:#?}", report.removed);
    }
    assert_eq!(tool("ipset list -name"), "of-others\n");
    for save in ["iptables-nft-save", "ip6tables-nft-save"] {
        let saved = tool(save);
        assert!(!saved.contains("KUBE-") && saved.contains("-A INPUT -j OF-OTHERS"), "{saved}");
    }
}

/// Where iptables mode took over, the chains that both have stay with what it wrote (ipvs spec 9).
#[test]
#[ignore = "needs root and a network namespace: run by cargo xtask test"]
fn chains_that_iptables_mode_has_as_well_stay_where_it_is_in_force() {
    isolated();
    for chain in skeleton::names() {
        tool(&format!("iptables-nft -t {} -N {}", chain.table.name(), chain.name));
    }
    tool("iptables-nft -t nat -N KUBE-NODEPORTS");
    tool("iptables-nft -t nat -A OUTPUT -j KUBE-SERVICES");
    tool("iptables-nft -t nat -A KUBE-SERVICES -j KUBE-NODEPORTS");
    let report = Ipvs::new(IpFamily::Ipv4, Options::default()).cleanup().unwrap();
    assert_eq!(report.stayed, [""; 0]);
    let saved = tool("iptables-nft-save");
    for stays in [
        "-A OUTPUT -j KUBE-SERVICES",
        "-A KUBE-SERVICES -j KUBE-NODEPORTS",
        ":KUBE-FORWARD ",
        ":KUBE-MARK-MASQ ",
    ] {
        assert!(saved.contains(stays), "{stays}: {saved}");
    }
    assert!(!saved.contains("KUBE-IPVS-FILTER") && !saved.contains(":KUBE-NODE-PORT "), "{saved}");
}
