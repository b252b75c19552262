//! One service port as virtual servers and entries of sets: a pure function from what is decided to what the kernel must hold (ipvs spec 2
//! and 4).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use proxier_core::ids::{Port, Protocol};
use proxier_core::model::{Endpoint, TrafficPolicy};
use proxier_core::snapshot::{FrontendKey, FrontendKind, ServicePort};

use crate::environment::Environment;
use crate::objects::{RealServer, ServiceKey, VirtualServer};
use crate::sets::{Entry, SetId};

/// A service port as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programmed {
    /// The decision.
    pub port: Arc<ServicePort>,
    /// Node port frontends that another service port's address has: an external IP that is the node's own, with the number of a node
    /// port. Addresses come first (nftables spec 12, number 30).
    pub shadowed: Arc<[ServiceKey]>,
}

/// A virtual server with the real servers that take part, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balanced {
    /// The virtual server.
    pub server: VirtualServer,
    /// Its real servers, each with weight 1.
    pub real: Vec<RealServer>,
}

/// Everything the kernel must hold for one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Virtual servers.
    pub services: Vec<Balanced>,
    /// Entries of sets. What other service ports ask for as well is among them. An address in [`SetId::IpvsIps`] is one to be bound.
    pub entries: Vec<(SetId, Entry)>,
}

impl Programmed {
    /// What the kernel must hold for it.
    #[must_use]
    pub fn fragment(&self, env: &Environment) -> Fragment {
        let mut writer = Writer { programmed: self, port: &self.port, env, out: Fragment::default() };
        writer.hairpins();
        for frontend in &self.port.frontends {
            match frontend.key {
                FrontendKey::Address { ip, .. } => writer.address(frontend.kind, ip),
                FrontendKey::NodePort { port, .. } => writer.node_port(port),
            }
        }
        writer.health_check();
        let mut out = writer.out;
        out.entries.sort_unstable();
        out.entries.dedup();
        out
    }
}

/// An address that would be bound for the whole host (ipvs spec 11, number 10) is served by nobody.
#[must_use]
pub fn is_usable(ip: IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
}

/// What becomes of packets that no real server may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Reject,
    Drop,
    DropOutside,
}

struct Writer<'a> {
    programmed: &'a Programmed,
    port: &'a ServicePort,
    env: &'a Environment,
    out: Fragment,
}

impl Writer<'_> {
    fn add(&mut self, set: SetId, entry: Entry) {
        self.out.entries.push((set, entry));
    }

    /// Whatever the endpoint's state: nobody else has its address.
    fn hairpins(&mut self) {
        let protocol = self.port.protocol();
        for endpoint in self.port.endpoints.iter().filter(|e| e.local) {
            let Endpoint { addr, .. } = endpoint;
            self.add(SetId::LoopBack, Entry::IpPortIp(addr.ip, protocol, addr.port, addr.ip));
        }
    }

    fn address(&mut self, kind: FrontendKind, ip: IpAddr) {
        if !is_usable(ip) {
            return;
        }
        let (protocol, number) = (self.port.protocol(), self.port.port);
        let entry = Entry::IpPort(ip, protocol, number);
        let spec = &self.port.spec;
        let local = spec.external_policy == TrafficPolicy::Local;
        match kind {
            FrontendKind::ClusterIp => self.add(SetId::ClusterIp, entry),
            FrontendKind::ExternalIp if local => self.add(SetId::ExternalIpLocal, entry),
            FrontendKind::LoadBalancerVip => self.vip(ip, entry, local),
            FrontendKind::ExternalIp | FrontendKind::NodePort => self.add(SetId::ExternalIp, entry),
        }
        let key = ServiceKey { protocol, ip, port: number };
        self.serve(kind, key);
        if kind == FrontendKind::ClusterIp || !self.env.is_host(ip) {
            self.add(SetId::IpvsIps, Entry::Ip(ip));
        } else {
            self.record(key);
        }
    }

    fn vip(&mut self, ip: IpAddr, entry: Entry, local: bool) {
        self.add(SetId::LoadBalancer, entry);
        if local {
            self.add(SetId::LoadBalancerLocal, entry);
        }
        let spec = Arc::clone(&self.port.spec);
        if spec.source_ranges.is_empty() {
            return;
        }
        self.add(SetId::LoadBalancerFw, entry);
        let (protocol, number) = (self.port.protocol(), self.port.port);
        for range in spec.source_ranges.iter().flat_map(|r| takeable(*r)) {
            self.add(SetId::LoadBalancerSourceCidr, Entry::IpPortNet(ip, protocol, number, range));
        }
        // This node reaches the VIP with the VIP as its own source.
        if self.env.node_ip.is_some_and(|own| spec.source_ranges.iter().any(|r| r.contains(&own))) {
            self.add(SetId::LoadBalancerSourceIp, Entry::IpPortIp(ip, protocol, number, ip));
        }
    }

    fn node_port(&mut self, number: Port) {
        let env = self.env;
        if env.node_addresses.is_empty() {
            return;
        }
        let protocol = self.port.protocol();
        let (all, kept) = match protocol {
            Protocol::Tcp => (SetId::NodePortTcp, SetId::NodePortLocalTcp),
            Protocol::Udp => (SetId::NodePortUdp, SetId::NodePortLocalUdp),
            Protocol::Sctp => (SetId::NodePortSctp, SetId::NodePortLocalSctp),
        };
        let local = self.port.spec.external_policy == TrafficPolicy::Local;
        let sets = [Some(all), local.then_some(kept)].into_iter().flatten();
        for set in sets {
            match protocol {
                Protocol::Tcp | Protocol::Udp => self.add(set, Entry::Port(number)),
                Protocol::Sctp => {
                    for ip in env.node_addresses.iter() {
                        self.add(set, Entry::IpPort(*ip, protocol, number));
                    }
                }
            }
        }
        for ip in env.node_addresses.iter() {
            let key = ServiceKey { protocol, ip: *ip, port: number };
            if !self.programmed.shadowed.contains(&key) {
                self.serve(FrontendKind::NodePort, key);
                self.record(key);
            }
        }
    }

    fn record(&mut self, key: ServiceKey) {
        self.add(SetId::Servers, Entry::IpPort(key.ip, key.protocol, key.port));
    }

    /// A virtual server, and what keeps out those whom none of its real servers may get.
    fn serve(&mut self, kind: FrontendKind, key: ServiceKey) {
        let (scope, refusal) = self.scope(kind);
        let endpoints: Vec<&Endpoint> = match scope {
            TrafficPolicy::Cluster => self.port.cluster_endpoints().collect(),
            TrafficPolicy::Local => self.port.local_endpoints().collect(),
        };
        let mut real: Vec<RealServer> = endpoints.iter().map(|e| e.addr).collect();
        real.sort_unstable();
        let scheduler = Arc::clone(&self.env.scheduler);
        let hash_port = &*scheduler == "mh";
        // With 0 the kernel would remember nobody.
        let persistence = self.port.spec.affinity.map(|d| Duration::from_secs(d.as_secs().max(1)));
        self.out
            .services
            .push(Balanced { server: VirtualServer { key, scheduler, persistence, hash_port }, real });
        if let Some(refusal) = refusal {
            let set = match refusal {
                Refusal::Reject => SetId::Reject,
                Refusal::Drop => SetId::Drop,
                Refusal::DropOutside => SetId::DropOutside,
            };
            self.add(set, Entry::IpPort(key.ip, key.protocol, key.port));
        }
    }

    /// Which endpoints a frontend has. With external policy Local and none here, pods and this host itself are sent to the whole cluster, and
    /// nobody else gets that far.
    fn scope(&self, kind: FrontendKind) -> (TrafficPolicy, Option<Refusal>) {
        let internal = kind == FrontendKind::ClusterIp;
        let spec = &self.port.spec;
        let policy = if internal { spec.internal_policy } else { spec.external_policy };
        let here = !self.port.categories.local.is_empty();
        match policy {
            _ if !self.port.categories.has_any => (policy, Some(Refusal::Reject)),
            TrafficPolicy::Local if here => (TrafficPolicy::Local, None),
            TrafficPolicy::Local if internal => (TrafficPolicy::Local, Some(Refusal::Drop)),
            TrafficPolicy::Local => (TrafficPolicy::Cluster, Some(Refusal::DropOutside)),
            TrafficPolicy::Cluster => (TrafficPolicy::Cluster, None),
        }
    }

    fn health_check(&mut self) {
        if let Some(port) = self.port.spec.health_check_node_port {
            self.add(SetId::HealthCheck, Entry::Port(port));
        }
    }
}

/// A range in parts that the kernel's hash takes: not one of length 0, whose halves are.
fn takeable(range: IpNet) -> Vec<IpNet> {
    if range.prefix_len() > 0 {
        return vec![range];
    }
    range.subnets(1).map(Iterator::collect).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_everything_is_written_in_halves() {
        let halves =
            |text: &str| takeable(text.parse().unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(halves("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(halves("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(halves("10.0.0.0/8"), ["10.0.0.0/8"]);
    }

    #[test]
    fn addresses_that_nobody_may_bind() {
        for (ip, usable) in [
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("192.0.2.1", true),
        ] {
            assert_eq!(is_usable(ip.parse().unwrap()), usable, "{ip}");
        }
    }
}
