//! A row: who calls what. What must come of it is the oracle's answer; a row may claim the gist of it beforehand.

use std::collections::BTreeSet;
use std::fmt;

use proxier_core::ids::{IpFamily, Protocol};

use super::plan;
use super::setting::{SETTINGS, Setting};
use super::shape::Shape;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A pod of this name.
    Pod(&'static str),
    /// A process of this node, with the node's address.
    Host(&'static str),
    /// A process of this node, with the loopback address.
    Loopback(&'static str),
    /// A process of `worker`, with the VIP of the row's service as its address.
    Vip,
    /// An outside client of this name.
    Client(&'static str),
}

impl Caller {
    /// The namespace it is in.
    #[must_use]
    pub fn namespace(self) -> &'static str {
        match self {
            Self::Pod(name) | Self::Host(name) | Self::Loopback(name) | Self::Client(name) => name,
            Self::Vip => "worker",
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(name) => write!(f, "pod {name}"),
            Self::Host(name) => write!(f, "host {name}"),
            Self::Loopback(name) => write!(f, "host {name} from loopback"),
            Self::Vip => f.write_str("host worker from the VIP"),
            Self::Client(name) => f.write_str(name),
        }
    }
}

/// Which of a service's addresses is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Cluster IP.
    ClusterIp,
    /// Load balancer VIP.
    Vip,
    /// External IP.
    ExternalIp,
    /// Node port, on the address of this node.
    NodePort(&'static str),
    /// Node port, on the second address of this node.
    Second(&'static str),
    /// Node port, on the address that this node has in its pods' range.
    Gateway(&'static str),
    /// Node port, on the caller's loopback address.
    Loopback,
    /// A cluster IP that nobody has.
    Unallocated,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIp => f.write_str("cluster IP"),
            Self::Vip => f.write_str("VIP"),
            Self::ExternalIp => f.write_str("external IP"),
            Self::NodePort(node) => write!(f, "node port on {node}"),
            Self::Second(node) => write!(f, "node port on {node}'s second address"),
            Self::Gateway(node) => write!(f, "node port on {node}'s address among its pods"),
            Self::Loopback => f.write_str("node port on loopback"),
            Self::Unallocated => f.write_str("unallocated cluster IP"),
        }
    }
}

/// The gist of what must come of a row, said by who wrote it: the oracle must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Answered by endpoints, any in the cluster that the policy allows.
    Served,
    /// Refused at once.
    Refused,
    /// Dropped.
    Dropped,
    /// None of the proxy's business.
    LeftAlone,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
            Self::LeftAlone => "left alone",
        })
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The service whose addresses are called.
    pub service: String,
    /// Who calls.
    pub from: Caller,
    /// Which address.
    pub place: Place,
    /// Which of the service's ports, counted from 0.
    pub port: usize,
    /// Another number in place of the port's own.
    pub number: Option<u16>,
    /// Another protocol in place of the port's own.
    pub protocol: Option<Protocol>,
    /// A protocol without ports, such as ICMP; judged by the rules alone.
    pub portless: bool,
    /// Family.
    pub family: IpFamily,
    /// The claim, if one is made.
    pub claim: Option<Claim>,
}

/// Services and rows about one subject.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name.
    pub name: &'static str,
    /// Its services.
    pub services: Vec<Shape>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Settings that it is run in besides the first; claims count in the first only.
    pub settings: &'static [&'static str],
}

/// The callers of a cluster: two pods that only call, a pod that is an endpoint, both hosts, a client before each worker.
pub const EVERYBODY: [Caller; 7] = [
    Caller::Pod(plan::CALLER),
    Caller::Pod(plan::CALLER2),
    Caller::Pod("one"),
    Caller::Host("worker"),
    Caller::Host("worker2"),
    Caller::Client("client"),
    Caller::Client("client2"),
];

/// Rows of a large group.
const LARGE: usize = 500;

/// Every kind of frontend, node ports on both workers.
pub const EVERYWHERE: [Place; 5] =
    [Place::ClusterIp, Place::NodePort("worker"), Place::NodePort("worker2"), Place::Vip, Place::ExternalIp];

impl Group {
    /// A group without rows.
    #[must_use]
    pub fn new(name: &'static str, settings: &'static [&'static str]) -> Self {
        Self { name, services: Vec::new(), rows: Vec::new(), settings }
    }

    /// The rows that are run in a setting. In settings after the first, where both protocols would say the same twice, the rows
    /// of a large group go by TCP on IPv4 and by UDP on IPv6; under a thin pace all rows do that come in all four ways.
    pub fn rows_in(&self, setting: &Setting, thin: bool) -> impl Iterator<Item = &Row> {
        let large = self.rows.len() >= LARGE && setting.name != SETTINGS[0].name;
        let way = |row: &Row, port, family| {
            let subject = (row.service.clone(), row.from, row.place, row.number, row.protocol, row.portless);
            (subject, port, family)
        };
        let all: BTreeSet<_> = self.rows.iter().map(|row| way(row, row.port, row.family)).collect();
        self.rows.iter().filter(move |row| {
            let ports = self.services.iter().find(|s| s.name == row.service).map_or(&[][..], |s| &s.ports);
            let tcp = |at: usize| ports.get(at).is_some_and(|p| p.protocol == Protocol::Tcp);
            let both = ports.len() == 2 && tcp(0) != tcp(1);
            let four = || {
                let here = |port| IpFamily::ALL.iter().all(|family| all.contains(&way(row, port, *family)));
                both && here(0) && here(1)
            };
            !(large || thin && four()) || tcp(row.port) == (row.family == IpFamily::Ipv4)
        })
    }

    /// Adds a service and rows of every caller to every place, for all of its ports and families.
    pub fn cross(
        &mut self,
        shape: Shape,
        callers: &[Caller],
        places: &[Place],
        claim: impl Fn(&Row) -> Option<Claim>,
    ) {
        for from in callers {
            for place in places {
                for port in 0..shape.ports.len() {
                    self.each_family(&shape, |row| Row { from: *from, place: *place, port, ..row }, &claim);
                }
            }
        }
        self.services.push(shape);
    }

    /// Adds one row for each family of a service; `change` says what it is about.
    pub fn each_family(
        &mut self,
        shape: &Shape,
        change: impl Fn(Row) -> Row,
        claim: impl Fn(&Row) -> Option<Claim>,
    ) {
        for family in &shape.families {
            let mut row = change(Row {
                service: shape.name.clone(),
                from: Caller::Pod(plan::CALLER),
                place: Place::ClusterIp,
                port: 0,
                number: None,
                protocol: None,
                portless: false,
                family: *family,
                claim: None,
            });
            row.claim = claim(&row);
            self.rows.push(row);
        }
    }
}
