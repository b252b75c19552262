//! From a row to what must be seen: the oracle is asked on every node that the packet comes to, and its answer followed to the
//! server, with the source address that the server must see.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, bail};
use proxier_core::ids::{IpFamily, Protocol};
use proxier_core::oracle::{Choice, Decision, Entry, Outcome, Packet, decide};

use super::facts::NodeView;
use super::plan::{self, BEYOND};
use super::row::{Caller, Claim, Place, Row};
use super::shape::Shape;
use super::variant::Gap;
use crate::topology::Topology;

/// One thing that a new connection may meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expected {
    /// This server answers, and sees this client.
    Answer(String, IpAddr),
    /// Refused at once.
    Refused,
    /// Nothing comes back.
    Silence,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(server, client) => write!(f, "{server} sees {client}"),
            Self::Refused => f.write_str("refused"),
            Self::Silence => f.write_str("nothing comes back"),
        }
    }
}

/// The oracle's answer on one node.
#[derive(Clone, Debug)]
pub struct Hop {
    /// The node.
    pub node: &'static str,
    /// The packet as it came there.
    pub packet: Packet,
    /// The answer.
    pub decision: Decision,
    /// What must become of it: the answer's, or what holds instead by a gap.
    pub outcome: Outcome,
    /// That gap's [`what`](Gap::what).
    pub gap: Option<&'static str>,
}

/// A server that must be there for a packet that is none of the proxy's business, so that leaving it alone is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bystander {
    /// The namespace.
    pub namespace: &'static str,
    /// What it listens on.
    pub address: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
}

/// What must come of a row.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The namespace that the connections start in.
    pub namespace: &'static str,
    /// Their source address.
    pub from: IpAddr,
    /// Where they go.
    pub to: SocketAddr,
    /// Protocol; `None` for one without ports.
    pub protocol: Option<Protocol>,
    /// Everything that may be met; each of it is.
    pub expected: BTreeSet<Expected>,
    /// All connections of one client meet the same.
    pub sticky: bool,
    /// The oracle's answers, in the order of the nodes.
    pub hops: Vec<Hop>,
    /// The server that must be there.
    pub bystander: Option<Bystander>,
    /// Any source that it sees is as good: the caller's own.
    pub own_source: bool,
}

impl Prediction {
    /// The gist of the oracle's answer, whatever gaps there are: from the first node that the packet is any business of.
    #[must_use]
    pub fn gist(&self) -> Option<Claim> {
        let ours = self.hops.iter().find(|h| h.decision.outcome != Outcome::NotOurs);
        Some(match ours.or(self.hops.last())?.decision.outcome {
            Outcome::Endpoints(_) => Claim::Served,
            Outcome::Reject => Claim::Refused,
            Outcome::Drop => Claim::Dropped,
            Outcome::NotOurs => Claim::LeftAlone,
        })
    }
}

/// The cluster that predictions are made for.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// Namespaces and addresses.
    pub topology: &'a Topology,
    /// What each node knows.
    pub views: &'a [NodeView],
    /// What the backend does otherwise.
    pub gaps: &'static [Gap],
    /// See [`Variant::masquerades_itself`](super::variant::Variant::masquerades_itself).
    pub masquerades_itself: bool,
}

impl World<'_> {
    /// What must come of a row about this service.
    ///
    /// # Errors
    /// A row that cannot be: it names something that is not there.
    pub fn predict(&self, row: &Row, shape: &Shape) -> anyhow::Result<Prediction> {
        let port = shape.ports.get(row.port).context("the service has no such port")?;
        let protocol = (!row.portless).then(|| row.protocol.unwrap_or(port.protocol));
        let (from, to) = (self.source(row, shape)?, self.destination(row, shape)?);
        let (node, entry) = self.entry(row, to.ip())?;
        let mut out = Prediction {
            namespace: row.from.namespace(),
            from,
            to,
            protocol,
            expected: BTreeSet::new(),
            sticky: false,
            hops: Vec::new(),
            bystander: None,
            own_source: false,
        };
        self.follow(&mut out, node, entry)?;
        Ok(out)
    }

    /// The address that a row's connections come from.
    ///
    /// # Errors
    /// A caller that is not there.
    pub fn source(&self, row: &Row, shape: &Shape) -> anyhow::Result<IpAddr> {
        let topology = self.topology;
        let of = |addresses| plan::of(addresses, row.family);
        let found = match row.from {
            Caller::Pod(name) => topology.pods.iter().find(|p| p.name == name).map(|p| of(p.addresses)),
            Caller::Host(name) => topology.node(name).map(|n| of(n.addresses)),
            Caller::Loopback(_) => Some(loopback(row.family)),
            Caller::Vip => Some(of(plan::vip(shape.outer_number))),
            Caller::Client(name) => topology.clients.iter().find(|c| c.name == name).map(|c| of(c.addresses)),
        };
        found.with_context(|| format!("no {}", row.from))
    }

    /// The address and port that they go to.
    ///
    /// # Errors
    /// A node that is not there.
    pub fn destination(&self, row: &Row, shape: &Shape) -> anyhow::Result<SocketAddr> {
        let of = |addresses| plan::of(addresses, row.family);
        let node = |name| self.topology.node(name).with_context(|| format!("no node {name}"));
        let (address, by_node_port) = match row.place {
            Place::ClusterIp => (of(plan::cluster_ip(shape.number)), false),
            Place::Vip => (of(plan::vip(shape.outer_number)), false),
            Place::ExternalIp => (of(shape.external_address(self.topology)), false),
            Place::NodePort(name) => (of(node(name)?.addresses), true),
            Place::Second(name) => (of(plan::second_address(node(name)?.addresses)), true),
            Place::Gateway(name) => (of(node(name)?.gateway), true),
            Place::Loopback => (loopback(row.family), true),
            Place::Unallocated => (of(plan::unallocated()), false),
        };
        let own = shape.ports.get(row.port).map_or(0, |p| p.port);
        let port = match row.number {
            Some(number) => number,
            None if by_node_port => plan::node_port(shape.outer_number, row.port),
            None => own,
        };
        Ok(SocketAddr::new(address, port))
    }

    /// The first node that the packet comes to, and how.
    fn entry(&self, row: &Row, to: IpAddr) -> anyhow::Result<(&'static str, Entry)> {
        Ok(match row.from {
            Caller::Host(name) | Caller::Loopback(name) => (name, Entry::Host),
            Caller::Vip => ("worker", Entry::Host),
            Caller::Pod(name) => {
                let pod = self.topology.pods.iter().find(|p| p.name == name);
                (pod.with_context(|| format!("no pod {name}"))?.node, Entry::Interface("cni0".into()))
            }
            Caller::Client(name) => {
                // Its neighbours it reaches itself, the rest through its worker.
                let neighbour = self
                    .topology
                    .nodes
                    .iter()
                    .find(|n| n.addresses.contains(to) || plan::second_address(n.addresses).contains(to));
                let node = neighbour.map(|n| n.name).or_else(|| plan::entry_node(name));
                (
                    node.with_context(|| format!("client {name} has no way in"))?,
                    Entry::Interface("eth0".into()),
                )
            }
        })
    }

    fn view(&self, node: &str) -> anyhow::Result<&NodeView> {
        self.views.iter().find(|v| v.name == node).with_context(|| format!("no node {node}"))
    }

    /// From node to node, until one of them has the packet.
    fn follow(&self, out: &mut Prediction, first: &'static str, entry: Entry) -> anyhow::Result<()> {
        let (mut node, mut entry) = (first, entry);
        for _ in 0..=self.views.len() {
            let packet = Packet {
                source: out.from,
                destination: out.to.ip(),
                protocol: out.protocol,
                port: if out.protocol.is_some() { out.to.port() } else { 0 },
                entry: entry.clone(),
            };
            let view = self.view(node)?;
            let decision = decide(view.snapshot(IpFamily::of(out.to.ip())), &packet);
            let (outcome, gap) = self.outcome(view, &packet, &decision);
            let affinity = decision.affinity.is_some();
            out.hops.push(Hop { node, packet, decision, outcome: outcome.clone(), gap });
            match &outcome {
                Outcome::Reject => out.expected.insert(Expected::Refused),
                Outcome::Drop => out.expected.insert(Expected::Silence),
                Outcome::Endpoints(choices) => {
                    out.sticky = affinity;
                    for choice in choices {
                        let expected = self.served(out.from, node, &entry, choice)?;
                        out.expected.insert(expected);
                    }
                    true
                }
                Outcome::NotOurs => match self.next(view, out.to.ip()) {
                    Some(next) => {
                        (node, entry) = (next, Entry::Interface("eth0".into()));
                        continue;
                    }
                    None => {
                        let (namespace, server) = if view.is_local(out.to.ip()) {
                            (node, node)
                        } else {
                            (crate::topology::NODE_NETWORK, BEYOND)
                        };
                        let bystander = |protocol| Bystander { namespace, address: out.to, protocol };
                        out.bystander = out.protocol.map(bystander);
                        out.own_source =
                            self.masquerades_itself && entry == Entry::Host && view.is_local(out.to.ip());
                        out.expected.insert(Expected::Answer(server.to_owned(), out.from))
                    }
                },
            };
            return Ok(());
        }
        bail!("the packet goes round in circles")
    }

    /// What must become of a packet on a node: the first gap that is about it decides.
    fn outcome(
        &self,
        view: &NodeView,
        packet: &Packet,
        decision: &Decision,
    ) -> (Outcome, Option<&'static str>) {
        let instead = |gap: &Gap| Some((gap.instead?(view, packet, decision)?, Some(gap.what)));
        self.gaps.iter().find_map(instead).unwrap_or_else(|| (decision.outcome.clone(), None))
    }

    /// The node that has the address, if it is another one.
    fn next(&self, view: &NodeView, address: IpAddr) -> Option<&'static str> {
        if view.is_local(address) {
            return None;
        }
        self.views.iter().find(|v| v.is_local(address)).map(|v| v.name)
    }

    /// What a client meets that is sent to this endpoint.
    fn served(&self, from: IpAddr, node: &str, entry: &Entry, choice: &Choice) -> anyhow::Result<Expected> {
        let ip = choice.endpoint.ip;
        let (server, server_node) = self.server(ip).with_context(|| format!("nobody has {ip}"))?;
        let here = self.topology.node(node).with_context(|| format!("no node {node}"))?;
        let to_own_host = server == node;
        if to_own_host && *entry == Entry::Host {
            bail!(
                "host to an endpoint in its own network: which address masquerading takes there is not for us to say"
            );
        }
        // What is delivered to the host itself does not pass postrouting.
        if choice.masquerade && !to_own_host {
            let dual = if server_node == node { here.gateway } else { here.addresses };
            return Ok(Expected::Answer(server.to_owned(), plan::of(dual, IpFamily::of(ip))));
        }
        // With its source kept, the answer must pass this node to be translated back: it does when the endpoint or the
        // client is behind it. The way to a VIP that a node has is known to nobody else.
        let client_node = self.home(from);
        let returns = server_node == node || client_node == Some(node);
        Ok(if returns { Expected::Answer(server.to_owned(), from) } else { Expected::Silence })
    }

    /// The node that all others send packets for this pod or node to.
    fn home(&self, address: IpAddr) -> Option<&'static str> {
        let pod = self.topology.pods.iter().find(|p| p.addresses.contains(address)).map(|p| p.node);
        pod.or_else(|| self.topology.nodes.iter().find(|n| n.addresses.contains(address)).map(|n| n.name))
    }

    /// Who has an address of a pod or node, and on which node.
    fn server(&self, address: IpAddr) -> Option<(&'static str, &'static str)> {
        let pod = self.topology.pods.iter().find(|p| p.addresses.contains(address)).map(|p| (p.name, p.node));
        pod.or_else(|| self.views.iter().find(|v| v.is_local(address)).map(|v| (v.name, v.name)))
    }
}

fn loopback(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::Ipv4 => Ipv4Addr::LOCALHOST.into(),
        IpFamily::Ipv6 => Ipv6Addr::LOCALHOST.into(),
    }
}
