//! What needs a kernel with IPVS.

use proxier_core::ids::IpFamily;
use proxier_testkit::ipvs::Host;

use super::{Tool, commands, in_a_namespace, kit, plans};

#[test]
#[ignore = "needs IPVS: run by cargo xtask test in the emulated machine"]
fn ipvsadm_and_ip_take_their_sections() {
    for plan in plans() {
        let family = plan.family();
        let mut model = Host::default();
        kit::apply(&mut model, &plan);
        let text = commands(&plan, &[Tool::Ipvsadm, Tool::Ip], "nft");
        let flag = if family == IpFamily::Ipv4 { "-4" } else { "-6" };
        // Without any address IPVS takes every other one for a broadcast.
        let script =
            format!("ip link set lo up\n{text}ipvsadm -Sn\nip -o {flag} address show dev kube-ipvs0\n");
        let printed = in_a_namespace(&script).unwrap_or_else(|e| panic!("{family}: {e}\n{text}"));
        let reals: usize = model.servers().iter().map(|(_, s)| s.real.len()).sum();
        let count = |prefix: &str| printed.lines().filter(|l| l.starts_with(prefix)).count();
        assert_eq!((count("-A "), count("-a ")), (model.servers().iter().count(), reals), "{printed}");
        for ip in model.addresses() {
            assert!(printed.contains(&format!(" {ip}/")), "{ip}: {printed}");
        }
    }
}
