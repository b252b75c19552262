//! What should be known about a configuration that is valid (core spec 7.6): warnings, and what makes a start impossible.

use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

use proxier_core::cluster::{DetectLocal, NodePortSelector};
use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;

use super::error::{Finding, Severity};
use super::kind::Kind;
use super::layers::{Layers, Origin};
use super::{Config, text};

/// What the configuration alone tells, in the mode that is used.
pub(super) fn tell_static(layers: &mut Layers<'_>, mode: &str) {
    if layers.kind == Kind::Own && layers.from.is_some() {
        for path in ["healthzBindAddress", "metricsBindAddress"] {
            if layers.text(path).is_empty() && matches!(layers.origin(path), Origin::File(_)) {
                layers.doubt(path, "empty: there is no such server; leave it out for the default".into());
            }
        }
    }
    if layers.kind == Kind::Peer && layers.value("nodePortAddresses").is_null() && mode != "nftables" {
        let message =
            "not given: node ports answer on every address of this host; say [primary] for the node's own";
        layers.doubt("nodePortAddresses", message.into());
    }
}

/// What is known of the node and its host when the program starts.
#[derive(Clone, Debug)]
pub struct StartFacts<'a> {
    /// The node's first family (core spec 10.2).
    pub primary: IpFamily,
    /// Families that this host and the backend can serve. Both: the node is dual-stack, whatever the cluster is.
    pub supported: PerFamily<bool>,
    /// The node's own address of each family, if it is known.
    pub ips: PerFamily<Option<IpAddr>>,
    /// The node's pod ranges.
    pub pod_cidrs: &'a [IpNet],
}

impl StartFacts<'_> {
    fn dual_stack(&self) -> bool {
        self.supported.ipv4 && self.supported.ipv6
    }

    /// Some are given, and all of them are of the family that does not come first.
    fn all_wrong(&self, ranges: &[IpNet]) -> bool {
        !ranges.is_empty() && !ranges.iter().any(|r| IpFamily::of(r.addr()) == self.primary)
    }
}

fn of_both(ranges: &[IpNet]) -> bool {
    IpFamily::ALL.into_iter().all(|f| ranges.iter().any(|r| IpFamily::of(r.addr()) == f))
}

impl Config {
    /// What should be known before the program runs, from the configuration alone: settings that were ignored, have no meaning here, or
    /// mean less than one may think. They are logged at the start.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// What does not fit to this node and host (core spec 7.6). With a fatal finding the program must not run.
    #[must_use]
    pub fn start_findings(&self, facts: &StartFacts<'_>) -> Vec<Finding> {
        let mut out = Findings { config: self, all: Vec::new() };
        out.families(facts);
        out.node_ports(facts);
        out.ranges(facts);
        out.addresses(facts);
        out.all
    }

    /// `clusterCIDR` as ranges, whatever the mode of detection is.
    fn cluster_ranges(&self) -> Vec<IpNet> {
        text::comma_cidrs(self.value("clusterCIDR").as_str().unwrap_or_default()).unwrap_or_default()
    }
}

struct Findings<'a> {
    config: &'a Config,
    all: Vec<Finding>,
}

impl Findings<'_> {
    fn say(&mut self, fatal: bool, path: &str, message: String) {
        let origin = self.config.origin(path).cloned().unwrap_or(Origin::Default);
        let severity = if fatal { Severity::Fatal } else { Severity::Warning };
        self.all.push(Finding { severity, origin, path: path.to_owned(), message });
    }

    fn families(&mut self, facts: &StartFacts<'_>) {
        let mode = &self.config.mode;
        if !facts.supported.ipv4 && !facts.supported.ipv6 {
            self.say(true, "mode", format!("this host can serve neither family in mode {mode}"));
        } else if !facts.supported.get(facts.primary) {
            let primary = facts.primary;
            self.say(
                true,
                "mode",
                format!("the node's first family is {primary}, which this host cannot serve in mode {mode}"),
            );
        }
    }

    fn node_ports(&mut self, facts: &StartFacts<'_>) {
        const PATH: &str = "nodePortAddresses";
        let NodePortSelector::Cidrs(ranges) = &self.config.node_port_addresses else {
            for family in IpFamily::ALL {
                let known = facts.ips.get(family).is_some_and(|ip| !ip.is_loopback());
                if *facts.supported.get(family) && !known {
                    self.say(false, PATH, format!("the node's own {family} address is not known: {family} node ports answer on every address"));
                }
            }
            return;
        };
        let first = |r: &&IpNet| IpFamily::of(r.addr()) == facts.primary;
        let of_primary = ranges.iter().filter(first).count();
        let lists = [&self.config.cluster_ranges(), ranges, &self.config.exclude_cidrs, facts.pod_cidrs];
        if !ranges.is_empty() && of_primary == 0 {
            self.say(
                false,
                PATH,
                format!(
                    "no range of the node's first family, {}: its node ports answer on every address",
                    facts.primary
                ),
            );
        } else if !ranges.is_empty() && of_primary == ranges.len() && lists.iter().any(|l| of_both(l)) {
            self.say(false, PATH, format!("the cluster seems to be dual-stack, and all ranges are {}: node ports of the other family answer on every address", facts.primary));
        }
    }

    fn ranges(&mut self, facts: &StartFacts<'_>) {
        let primary = facts.primary;
        let wrong = |what: &str| format!("{what} are of another family than the node's first, {primary}");
        if facts.all_wrong(&self.config.cluster_ranges()) {
            let by_range = matches!(self.config.detect_local, DetectLocal::ClusterCidr(_));
            self.say(by_range && !facts.dual_stack(), "clusterCIDR", wrong("all ranges"));
        }
        self.pods_outside(facts);
        if facts.all_wrong(facts.pod_cidrs) {
            let by_range = matches!(self.config.detect_local, DetectLocal::NodeCidr);
            self.say(by_range, "detectLocalMode", wrong("all pod ranges of the node"));
        }
        if !facts.dual_stack() && facts.all_wrong(&self.config.exclude_cidrs) {
            self.say(false, "ipvs.excludeCIDRs", wrong("all ranges"));
        }
    }

    /// Pods of this node whose range is in none of the cluster's are taken for somebody outside: their traffic is masqueraded where it should not be.
    fn pods_outside(&mut self, facts: &StartFacts<'_>) {
        let DetectLocal::ClusterCidr(cluster) = &self.config.detect_local else { return };
        for pods in facts.pod_cidrs {
            let family = |r: &&IpNet| IpFamily::of(r.addr()) == IpFamily::of(pods.addr());
            let mut ranges = cluster.iter().filter(family).peekable();
            if ranges.peek().is_some() && !ranges.any(|r| r.contains(pods)) {
                let message = format!(
                    "the node's pod range {pods} is not in it: traffic of these pods is taken for traffic from outside"
                );
                self.say(false, "clusterCIDR", message);
            }
        }
    }

    fn addresses(&mut self, facts: &StartFacts<'_>) {
        let primary = facts.primary;
        let source_vip = text::ip(self.config.value("winkernel.sourceVip").as_str().unwrap_or_default());
        if source_vip.is_ok_and(|ip| IpFamily::of(ip) != primary) {
            self.say(
                false,
                "winkernel.sourceVip",
                format!("it is of another family than the node's first, {primary}"),
            );
        }
        for (path, at) in [
            ("healthzBindAddress", self.config.healthz_bind_address),
            ("metricsBindAddress", self.config.metrics_bind_address),
        ] {
            let specific = |at: &SocketAddr| !at.ip().is_unspecified() && IpFamily::of(at.ip()) != primary;
            if !facts.dual_stack() && at.as_ref().is_some_and(specific) {
                self.say(
                    false,
                    path,
                    format!("it is of another family than {primary}, the only one of this host"),
                );
            }
        }
    }
}
