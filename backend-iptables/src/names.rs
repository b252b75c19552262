//! Names of chains: kube-proxy's, to the letter (iptables spec 4), so that `iptables-save | grep KUBE-SVC` finds what it always found.

use proxier_core::ids::{EndpointAddr, ServicePortName};
use proxier_core::names::chain_hash;
use proxier_xtables::objects::Name;

/// Most bytes of a chain's name: the tools say `too long (must be under 29 chars)`.
pub const MAX_NAME: usize = 28;

/// What a chain of a service port's own is for. A chain names only chains of kinds that come before its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `KUBE-SEP-`: one endpoint.
    Endpoint,
    /// `KUBE-SVC-`: dispatch to the endpoints of the cluster.
    Cluster,
    /// `KUBE-SVL-`: dispatch to the endpoints of this node.
    Local,
    /// `KUBE-EXT-`: where traffic to external frontends enters.
    External,
    /// `KUBE-FW-`: source ranges.
    Firewall,
}

impl Kind {
    /// All kinds, in their order.
    pub const ALL: [Self; 5] = [Self::Endpoint, Self::Cluster, Self::Local, Self::External, Self::Firewall];

    /// What names of this kind begin with.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Endpoint => "KUBE-SEP-",
            Self::Cluster => "KUBE-SVC-",
            Self::Local => "KUBE-SVL-",
            Self::External => "KUBE-EXT-",
            Self::Firewall => "KUBE-FW-",
        }
    }

    /// The kind of a chain of this name; `None` if it is no service port's own.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| name.starts_with(k.prefix()))
    }
}

/// The names of one service port's chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceNames {
    /// Display name and protocol: what is hashed.
    base: String,
    hash: String,
}

impl ServiceNames {
    /// Of this service port.
    #[must_use]
    pub fn new(port: &ServicePortName) -> Self {
        let base = format!("{port}{}", port.protocol);
        let hash = chain_hash(&base);
        Self { base, hash }
    }

    /// A chain that it has at most one of. For [`Kind::Endpoint`], see [`ServiceNames::endpoint`].
    #[must_use]
    pub fn chain(&self, kind: Kind) -> Name {
        format!("{}{}", kind.prefix(), self.hash).into()
    }

    /// The chain of one of its endpoints.
    #[must_use]
    pub fn endpoint(&self, endpoint: EndpointAddr) -> Name {
        let hash = chain_hash(&format!("{}{endpoint}", self.base));
        format!("{}{hash}", Kind::Endpoint.prefix()).into()
    }
}

#[cfg(test)]
mod tests {
    use proxier_core::ids::{Port, Protocol, ServiceName};

    use super::*;

    fn port(namespace: &str, name: &str, port: &str, protocol: Protocol) -> ServiceNames {
        ServiceNames::new(&ServicePortName {
            service: ServiceName::new(namespace, name),
            port: port.into(),
            protocol,
        })
    }

    fn addr(ip: &str, port: u16) -> EndpointAddr {
        EndpointAddr { ip: ip.parse().unwrap(), port: Port::new(port).unwrap() }
    }

    /// The table of iptables spec 4. An unnamed port leaves no colon.
    ///
    /// Cases: iptables-12.10
    #[test]
    fn names_of_the_specification() {
        use Protocol::{Sctp, Tcp, Udp};
        let chains = [
            (port("default", "kubernetes", "https", Tcp), Kind::Cluster, "KUBE-SVC-NPX46M4PTMTKRN6Y"),
            (port("kube-system", "kube-dns", "dns", Udp), Kind::Cluster, "KUBE-SVC-TCOU7JCQXEZGVUNU"),
            (port("kube-system", "kube-dns", "dns-tcp", Tcp), Kind::Cluster, "KUBE-SVC-ERIFXISQEP7F7OF4"),
            (port("web", "sticky", "", Tcp), Kind::Cluster, "KUBE-SVC-KCDUXOZ7CXWVN7TP"),
            (port("telecom", "sig", "m3ua", Sctp), Kind::External, "KUBE-EXT-37EFWY3QUFAYZAA3"),
            (port("ns1", "svc1", "p80", Tcp), Kind::Firewall, "KUBE-FW-XPGD46QRK7WJZT7O"),
        ];
        for (names, kind, want) in chains {
            assert_eq!(&*names.chain(kind), want);
            assert_eq!(Kind::of(want), Some(kind));
        }
        let endpoints = [
            (port("ns1", "svc1", "p80", Tcp), addr("10.180.0.1", 80), "KUBE-SEP-SXIVWICOYRO3J4NJ"),
            (port("ns1", "svc1", "p80", Tcp), addr("fd00:10:180::1", 80), "KUBE-SEP-OGYCNMB4EMRUSJ6N"),
            (
                port("default", "kubernetes", "https", Tcp),
                addr("172.18.0.2", 6443),
                "KUBE-SEP-V2PECCYPB6X2GSCW",
            ),
        ];
        for (names, endpoint, want) in endpoints {
            assert_eq!(&*names.endpoint(endpoint), want);
            assert!(want.len() <= MAX_NAME);
            assert_eq!(Kind::of(want), Some(Kind::Endpoint));
        }
    }

    #[test]
    fn one_hash_for_all_kinds_of_a_service_port() {
        let names = port("a", "b", "c", Protocol::Tcp);
        let hashes: std::collections::BTreeSet<String> = Kind::ALL[1..]
            .iter()
            .map(|k| names.chain(*k).strip_prefix(k.prefix()).expect("its prefix").to_owned())
            .collect();
        assert_eq!(hashes.len(), 1);
        assert_ne!(names.chain(Kind::Cluster), port("a", "b", "c", Protocol::Udp).chain(Kind::Cluster));
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in ["KUBE-SERVICES", "KUBE-SV", "KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "INPUT", ""] {
            assert_eq!(Kind::of(name), None, "{name}");
        }
    }
}
