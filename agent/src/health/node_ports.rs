//! Health check node ports: a responder for each Service that has one, in one family (core spec 4.1).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use proxier_core::health::{self, HealthCheck};
use proxier_core::ids::{IpFamily, NodeName, Port, ServiceName, Timestamp};
use proxier_core::snapshot::{NodePortAddresses, Snapshot};
use serde::Serialize;

use super::Health;
use crate::events::{Event, EventRecorder};
use crate::http::{self, Limits, Response, ServerHandle, Servers, Service};

/// A load balancer's probes need few connections.
const LIMITS: Limits = Limits {
    connections: 16,
    head: Duration::from_secs(30),
    answer: Duration::from_secs(60),
    head_bytes: 8 << 10,
};

/// All health check node ports of one family.
pub struct NodePorts {
    family: IpFamily,
    node: NodeName,
    servers: Servers,
    health: Arc<Health>,
    events: Arc<dyn EventRecorder>,
    adopted: Option<Snapshot>,
    /// Where each of them listens.
    addresses: BTreeSet<IpAddr>,
    responders: BTreeMap<ServiceName, Responder>,
    /// Those that lack a socket.
    incomplete: BTreeSet<ServiceName>,
}

/// One Service's.
struct Responder {
    port: Port,
    created: Option<Timestamp>,
    answer: Arc<Answer>,
    sockets: BTreeMap<IpAddr, ServerHandle>,
    /// What was said about why a socket is lacking.
    told: Option<String>,
}

/// What is answered; shared with the thread that answers.
struct Answer {
    service: ServiceName,
    ready: AtomicUsize,
    closed: AtomicBool,
    health: Arc<Health>,
}

/// The fields stand in the order in which they are sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    service: BodyService<'a>,
    local_endpoints: usize,
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct BodyService<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Answer {
    /// The same for any method and path. The count is always the true one; a port that is being closed has none any more.
    fn respond(&self) -> Response {
        let closed = self.closed.load(Ordering::SeqCst);
        let ready = if closed { 0 } else { self.ready.load(Ordering::SeqCst) };
        let healthy = self.health.is_healthy();
        let service = BodyService { namespace: &self.service.namespace, name: &self.service.name };
        let body = Body { service, local_endpoints: ready, service_proxy_healthy: healthy };
        let status = if ready > 0 && healthy { 200 } else { 503 };
        Response::new(status, "application/json", indented(&body))
            .with("X-Load-Balancing-Endpoint-Weight", ready.to_string())
    }
}

/// JSON with tabs, without a newline at the end.
fn indented(body: &Body<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    // writing numbers, words and texts to memory does not fail
    let _ = body.serialize(&mut serializer);
    out
}

impl NodePorts {
    /// None is served yet.
    #[must_use]
    pub fn new(
        family: IpFamily,
        node: NodeName,
        servers: Servers,
        health: Arc<Health>,
        events: Arc<dyn EventRecorder>,
    ) -> Self {
        Self {
            family,
            node,
            servers,
            health,
            events,
            adopted: None,
            addresses: BTreeSet::new(),
            responders: BTreeMap::new(),
            incomplete: BTreeSet::new(),
        }
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// Some socket is lacking; [`NodePorts::retry`] is worth calling.
    #[must_use]
    pub fn incomplete(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Number of sockets.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.responders.values().map(|r| r.sockets.len()).sum()
    }

    /// Serves what this snapshot has, which is in the kernel. Costs what differs from the one before.
    pub fn adopt(&mut self, snapshot: &Snapshot) {
        let changes = health::changes(self.adopted.as_ref(), snapshot);
        let addresses = listen_addresses(self.family, &snapshot.context().health_check_addresses);
        let moved = addresses != self.addresses;
        self.addresses = addresses;
        self.close(&changes);
        let mut concerned = std::mem::take(&mut self.incomplete);
        for (service, check) in changes {
            let Some(check) = check else { continue };
            self.set(&service, &check);
            concerned.insert(service);
        }
        if moved {
            concerned = self.responders.keys().cloned().collect();
        }
        self.open(concerned);
        self.adopted = Some(snapshot.clone());
    }

    /// Tries again what could not be opened.
    pub fn retry(&mut self) {
        let concerned = std::mem::take(&mut self.incomplete);
        self.open(concerned);
    }

    /// Closes before anything is opened, so that a port can go from one Service to another.
    fn close(&mut self, changes: &BTreeMap<ServiceName, Option<HealthCheck>>) {
        let mut closing = Vec::new();
        for (service, check) in changes {
            let same = |r: &Responder| check.is_some_and(|c| c.port == r.port);
            if self.responders.get(service).is_some_and(|r| !same(r))
                && let Some(gone) = self.responders.remove(service)
            {
                gone.answer.closed.store(true, Ordering::SeqCst);
                self.incomplete.remove(service);
                closing.extend(gone.sockets.into_values());
            }
        }
        let addresses = &self.addresses;
        for responder in self.responders.values_mut() {
            let gone: Vec<IpAddr> =
                responder.sockets.keys().filter(|ip| !addresses.contains(ip)).copied().collect();
            closing.extend(gone.into_iter().filter_map(|ip| responder.sockets.remove(&ip)));
        }
        closing.iter().for_each(ServerHandle::begin_close);
    }

    fn set(&mut self, service: &ServiceName, check: &HealthCheck) {
        let responder = self.responders.entry(service.clone()).or_insert_with(|| Responder {
            port: check.port,
            created: check.created,
            answer: Arc::new(Answer {
                service: service.clone(),
                ready: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
                health: Arc::clone(&self.health),
            }),
            sockets: BTreeMap::new(),
            told: None,
        });
        responder.created = check.created;
        responder.answer.ready.store(check.ready, Ordering::SeqCst);
    }

    /// The older Service first, one without a time last.
    fn open(&mut self, concerned: BTreeSet<ServiceName>) {
        let mut order: Vec<_> = concerned
            .into_iter()
            .filter_map(|service| {
                let created = self.responders.get(&service)?.created;
                Some((created.is_none(), created, service))
            })
            .collect();
        order.sort();
        for (_, _, service) in order {
            self.complete(&service);
        }
    }

    /// Opens what is lacking. A port that is new is open at all its addresses or at none.
    fn complete(&mut self, service: &ServiceName) {
        let Some(responder) = self.responders.get(service) else { return };
        let lacking = self.addresses.iter().filter(|ip| !responder.sockets.contains_key(ip));
        let (mut opened, mut failed) = (Vec::new(), None);
        for ip in lacking {
            let address = SocketAddr::new(*ip, responder.port.get());
            match self.listen(address, &responder.answer) {
                Ok(handle) => opened.push((*ip, handle)),
                Err(error) => {
                    failed.get_or_insert((address, error));
                }
            }
        }
        let is_new = responder.sockets.is_empty();
        if let Some((address, error)) = failed {
            if is_new {
                opened.clear();
            }
            self.tell(service, address, &error);
            self.incomplete.insert(service.clone());
        }
        let Some(responder) = self.responders.get_mut(service) else { return };
        responder.sockets.extend(opened);
        if !self.incomplete.contains(service) && responder.told.take().is_some() {
            tracing::info!(service = %service, port = %responder.port, family = %self.family, "health check node port is served now");
        }
    }

    fn listen(&self, address: SocketAddr, answer: &Arc<Answer>) -> io::Result<ServerHandle> {
        let answer = Arc::clone(answer);
        let service = Service::new(move |_| answer.respond()).limits(LIMITS);
        self.servers.serve(http::bind_one_family(address)?, service)
    }

    /// Says why a Service lacks a socket, once for each cause.
    fn tell(&mut self, service: &ServiceName, address: SocketAddr, error: &io::Error) {
        let holds = |(name, r): &(&ServiceName, &Responder)| {
            *name != service && r.port.get() == address.port() && !r.sockets.is_empty()
        };
        let winner = self.responders.iter().find(holds).map(|(name, _)| name.clone());
        let cause = match (error.kind(), winner) {
            (io::ErrorKind::AddrInUse, Some(winner)) => format!("{address} is served for Service {winner}"),
            _ => format!("cannot listen at {address}: {error}"),
        };
        let Some(responder) = self.responders.get_mut(service) else { return };
        if responder.told.as_ref() == Some(&cause) {
            return;
        }
        tracing::error!(service = %service, port = %responder.port, family = %self.family, cause = %cause, "health check node port is not served");
        let note =
            format!("node {}: healthCheckNodePort {} is not served: {cause}", self.node, responder.port);
        responder.told = Some(cause);
        self.events.record(Event::no_health_port(service.clone(), note));
    }
}

impl Drop for NodePorts {
    fn drop(&mut self) {
        self.responders.values().flat_map(|r| r.sockets.values()).for_each(ServerHandle::begin_close);
    }
}

/// `0.0.0.0` or `::`, each for its own family, or each address by itself (core spec 4.1).
fn listen_addresses(family: IpFamily, addresses: &NodePortAddresses) -> BTreeSet<IpAddr> {
    match addresses {
        NodePortAddresses::Only(list) => list.iter().copied().collect(),
        NodePortAddresses::MatchAll => BTreeSet::from([match family {
            IpFamily::Ipv4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpFamily::Ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }]),
    }
}
