//! Which traffic is local, and where node ports answer.

use proxier_core::cluster::{DetectLocal, NodePortSelector};
use proxier_core::ids::IpFamily;

use super::cidrs;
use crate::config::kind::Kind;
use crate::config::layers::{Layers, Origin};
use crate::config::text::{self, PRIMARY, no_interface};

/// All addresses of both families.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

pub(super) fn detect_local(layers: &mut Layers<'_>) -> DetectLocal {
    let mode = layers.text("detectLocalMode");
    let mut named = |path| {
        let name = layers.text(path);
        if name.is_empty() {
            layers.complain(path, format!("needed when detectLocalMode is {mode}"));
        } else if let Some(why) = no_interface(&name) {
            layers.complain(path, format!("{name:?} is no name of an interface that rules can carry: {why}"));
        }
        name.into()
    };
    let found = match mode.as_str() {
        "NodeCIDR" => DetectLocal::NodeCidr,
        "BridgeInterface" => DetectLocal::BridgeInterface(named("detectLocal.bridgeInterface")),
        "InterfaceNamePrefix" => DetectLocal::InterfaceNamePrefix(named("detectLocal.interfaceNamePrefix")),
        _ => return cluster_cidr(layers),
    };
    if let Err(message) = text::comma_cidrs(&layers.text("clusterCIDR")) {
        layers.doubt("clusterCIDR", format!("{message}; not used in mode {mode}"));
    }
    found
}

/// One range, or one of each family (core spec 7.2).
fn cluster_cidr(layers: &mut Layers<'_>) -> DetectLocal {
    let ranges = text::comma_cidrs(&layers.text("clusterCIDR")).unwrap_or_else(|message| {
        layers.complain("clusterCIDR", message);
        Vec::new()
    });
    let of = |f| ranges.iter().filter(|c| IpFamily::of(c.addr()) == f).count();
    if IpFamily::ALL.into_iter().any(|f| of(f) > 1) {
        layers.complain("clusterCIDR", "more than one range of one family".into());
    }
    DetectLocal::ClusterCidr(ranges)
}

/// Without a word of it: the node's own addresses, in a `KubeProxyConfiguration` of a mode other than nftables all there are (core spec 7.3).
pub(super) fn node_ports(layers: &mut Layers<'_>, mode: &str) -> NodePortSelector {
    const PATH: &str = "nodePortAddresses";
    if layers.value(PATH).is_null() {
        let everywhere = layers.kind == Kind::Peer && mode != "nftables";
        let list = if everywhere { EVERYWHERE.to_vec() } else { vec![PRIMARY] };
        let origin = if layers.kind == Kind::Peer { Origin::Follows("mode") } else { Origin::Default };
        layers.mean(PATH, list.into(), origin);
        return if everywhere {
            NodePortSelector::Cidrs(cidrs(&EVERYWHERE.map(str::to_owned)))
        } else {
            NodePortSelector::Primary
        };
    }
    match layers.texts(PATH).as_slice() {
        [one] if one == PRIMARY => NodePortSelector::Primary,
        list => NodePortSelector::Cidrs(cidrs(list)),
    }
}
