//! The running cluster of the matrix: namespaces, servers, manifests, agents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use proxier_core::ids::{IpFamily, Protocol};
use proxier_sys::netns::Netns;
use serde_json::{Value, json};

use super::facts;
use super::live::LOST_BY_CHANCE;
use super::observe::Ports;
use super::plan::{self, BEYOND, SERVERS};
use super::predict::Bystander;
use super::setting::Setting;
use super::shape::{self, Shape, VipAt, service};
use super::variant::Variant;
use crate::agent::{Agent, Launch};
use crate::manifests::Folder;
use crate::pace::{Chance, Pace, Slowest};
use crate::process;
use crate::topology::NODE_NETWORK;
use crate::traffic::{Listen, Seen, Server, connect_here, has_sctp};
use crate::world::World;

/// How long the agents may take to bring a state into the kernel.
const SYNC_LIMIT: Duration = Duration::from_secs(60);
/// How often the kernel is asked while waiting, and how long one question may take.
const POLL: Duration = Duration::from_millis(10);
const QUESTION: Duration = Duration::from_millis(250);
/// Lines of each agent's log shown after a difference.
const LOG_LINES: usize = 20;

/// Everything that runs for the whole matrix.
#[derive(Debug)]
pub struct Stage {
    /// Namespaces and links.
    pub world: World,
    /// Source ports of clients.
    pub ports: Ports,
    /// How rows and scenarios are run.
    pub pace: Pace,
    _servers: Vec<Server>,
    revision: AtomicU16,
}

impl Stage {
    /// Builds the cluster and starts the pods' servers.
    ///
    /// # Errors
    /// When a namespace, link or server cannot be made.
    pub fn up(vips: &[(u8, VipAt)], pace: Pace) -> anyhow::Result<Self> {
        let world = World::up(plan::topology(vips))?;
        let mut servers = Vec::new();
        for pod in world.topology().pods.iter().filter(|p| SERVERS.contains(&p.name)) {
            servers.push(Server::start(pod.name, pod.name, &sockets(pod.addresses.both()))?);
        }
        // Endpoints in the hosts' own network.
        for node in &world.topology().nodes {
            servers.push(Server::start(node.name, node.name, &sockets(node.addresses.both()))?);
        }
        let (ports, revision) = Default::default();
        Ok(Self { world, ports, pace, _servers: servers, revision })
    }

    /// Starts servers where packets come to that no node has a service for.
    ///
    /// # Errors
    /// When an address cannot be added or bound.
    pub fn bystanders(&self, wanted: &BTreeSet<Bystander>) -> anyhow::Result<Vec<Server>> {
        let mut sockets: BTreeMap<&'static str, Vec<Listen>> = BTreeMap::new();
        let mut addresses = String::new();
        for Bystander { namespace, address, protocol } in wanted {
            let listen = match protocol {
                Protocol::Tcp => Listen::Tcp(*address),
                Protocol::Udp => Listen::Udp(*address),
                Protocol::Sctp if has_sctp().is_ok() => Listen::Sctp(*address),
                Protocol::Sctp => continue,
            };
            sockets.entry(namespace).or_default().push(listen);
            if *namespace == NODE_NETWORK {
                let rest = if address.is_ipv4() { "/32 dev lo" } else { "/128 dev lo nodad" };
                let _ = writeln!(addresses, "addr replace {}{rest}", address.ip());
            }
        }
        Netns::named(NODE_NETWORK)?.run(|| process::run("ip", ["-batch", "-"], &addresses))??;
        let start = |(namespace, sockets): (&&'static str, &Vec<Listen>)| {
            let name = if *namespace == NODE_NETWORK { BEYOND } else { namespace };
            Server::start(namespace, name, sockets).with_context(|| format!("bystanders in {namespace}"))
        };
        sockets.iter().map(start).collect()
    }

    /// Has the nodes forget the connections of what ran before. Source ports come again after some ten thousand connections, and the kernel would go on
    /// to do with such a packet what other rules said minutes ago.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn forget_flows(&self) -> anyhow::Result<()> {
        for node in &self.world.topology().nodes {
            for family in ["ipv4", "ipv6"] {
                let flush = || process::run("conntrack", ["-F", "-f", family], "");
                Netns::named(node.name)?.run(flush)?.with_context(|| format!("flows of {}", node.name))?;
            }
        }
        Ok(())
    }

    /// A service that marks a revision of the manifests: when it answers, everything written with it is in force.
    #[must_use]
    pub fn marker(&self) -> Marker {
        Marker { revision: self.revision.fetch_add(1, Ordering::Relaxed) }
    }

    /// The objects of these services and of the marker.
    #[must_use]
    pub fn objects(&self, shapes: &[Shape], marker: &Marker) -> Vec<Value> {
        let topology = self.world.topology();
        let of = |s: &Shape| {
            std::iter::once(s.service_json(topology)).chain(s.slices_json(topology)).collect::<Vec<_>>()
        };
        shapes.iter().flat_map(of).chain(marker.objects(self)).collect()
    }
}

fn sockets<T: Into<std::net::IpAddr>>(addresses: [T; 2]) -> Vec<Listen> {
    let of = |address: std::net::IpAddr| {
        let at = |port| SocketAddr::new(address, port);
        let sctp = has_sctp().is_ok().then(|| Listen::Sctp(at(plan::PORT)));
        let others = [
            Listen::Tcp(at(plan::PORT)),
            Listen::Tcp(at(plan::PORT + 1)),
            Listen::Udp(at(plan::PORT)),
            Listen::Udp(at(plan::PORT + 1)),
            Listen::Lasting(at(plan::LASTING)),
        ];
        others.into_iter().chain(sctp)
    };
    addresses.into_iter().flat_map(|a| of(a.into())).collect()
}

/// See [`Stage::marker`].
#[derive(Clone, Copy, Debug)]
pub struct Marker {
    revision: u16,
}

impl Marker {
    fn objects(self, stage: &Stage) -> Vec<Value> {
        let mut shape = service(format!("zz-marker-{}", self.revision));
        shape.endpoints = vec![shape::EndpointShape::ready("one")];
        let mut object = shape.service_json(stage.world.topology());
        let ips = IpFamily::ALL.map(|f| plan::of(plan::marker_ip(self.revision), f).to_string());
        object["spec"]["clusterIP"] = ips[0].clone().into();
        object["spec"]["clusterIPs"] = ips.to_vec().into();
        std::iter::once(object).chain(shape.slices_json(stage.world.topology())).collect()
    }

    /// Does it answer on this node?
    fn in_force(self, node: &'static str, ports: &Ports, question: Duration) -> anyhow::Result<bool> {
        for family in IpFamily::ALL {
            let to = SocketAddr::new(plan::of(plan::marker_ip(self.revision), family), 80);
            let any = SocketAddr::new(
                if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() },
                ports.next(node),
            );
            let seen = Netns::named(node)?.run(|| connect_here(Some(any), to, question))?;
            if !matches!(seen, Seen::Answered { .. }) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The agents of one variant and setting, with their manifests.
#[derive(Debug)]
pub struct Cast<'a> {
    /// What they run on.
    pub stage: &'a Stage,
    /// The watched folder.
    pub manifests: Folder,
    launch: Launch,
    agents: Mutex<Vec<Agent>>,
    label: String,
    /// How long its answers took.
    pub slowest: Slowest,
    /// Where a gap loses some by chance.
    pub chance: Chance,
    /// What they are.
    pub variant: &'static Variant,
}

impl<'a> Cast<'a> {
    /// Prepares manifests and configuration; no agent runs yet.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn new(
        stage: &'a Stage,
        variant: &'static Variant,
        setting: &Setting,
        program: &Path,
        work: &Path,
    ) -> anyhow::Result<Self> {
        let label = format!("{}/{}", variant.name, setting.name);
        let folder: PathBuf = work.join(label.replace('/', "-"));
        let manifests = Folder::create(folder.join("manifests"))?;
        let config = folder.join("config.yaml");
        fs::write(&config, setting.config(&variant.section()?))
            .with_context(|| format!("writing {}", config.display()))?;
        let launch = Launch {
            program: program.to_owned(),
            manifests: manifests.path().to_owned(),
            backend: variant.backend,
            cluster_cidr: setting.cluster_cidr(),
            config: Some(config),
            logs: folder.join("logs"),
            patience: stage.pace.patience,
        };
        put(&manifests, "nodes", &facts::nodes_json(stage.world.topology()))?;
        let (agents, slowest, chance) = Default::default();
        Ok(Self { stage, manifests, launch, agents, label, slowest, chance, variant })
    }

    /// Makes a connection that should be answered. Where the backend is known to lose some by chance, one that is lost is counted, and made once more.
    ///
    /// # Errors
    /// What `make` cannot do.
    pub fn answered<E>(&self, mut make: impl FnMut() -> Result<Seen, E>) -> Result<Seen, E> {
        self.chance.made();
        let seen = make()?;
        if seen != Seen::TimedOut || !self.variant.has_gap_in(LOST_BY_CHANCE) {
            return Ok(seen);
        }
        self.chance.lost();
        make()
    }

    /// Starts the agents, or starts them again.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(&self) -> anyhow::Result<()> {
        let mut agents = self.agents();
        agents.clear();
        for node in &self.stage.world.topology().nodes {
            agents.push(Agent::start(&self.launch, node.name)?);
        }
        Ok(())
    }

    /// Gives the backend's option this value, or with null its default, for agents that are started from now on.
    ///
    /// # Errors
    /// When the file of the configuration cannot be read or written.
    pub fn set_option(&self, key: &str, value: Value) -> anyhow::Result<()> {
        let path = self.launch.config.as_ref().context("no file of the configuration")?;
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let mut config: Value = serde_json::from_str(&text)?;
        let options = config.get_mut(self.variant.backend).and_then(Value::as_object_mut);
        let options = options.with_context(|| format!("no section {}", self.variant.backend))?;
        if value.is_null() {
            options.remove(key);
        } else {
            options.insert(key.to_owned(), value);
        }
        fs::write(path, format!("{config:#}\n")).with_context(|| format!("writing {}", path.display()))
    }

    /// Stops the agents; their rules stay.
    pub fn stop(&self) {
        self.agents().clear();
    }

    /// The first agent that ended by itself.
    fn ended(&self) -> anyhow::Result<Option<String>> {
        for agent in self.agents().iter_mut() {
            if let Some(status) = agent.ended()? {
                return Ok(Some(format!("the agent on {} ended ({status})", agent.node())));
            }
        }
        Ok(None)
    }

    fn agents(&self) -> MutexGuard<'_, Vec<Agent>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes services into a file of the watched folder and gives the marker to wait for.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn put(&self, name: &str, shapes: &[Shape]) -> anyhow::Result<Marker> {
        let marker = self.stage.marker();
        put(&self.manifests, name, &self.stage.objects(shapes, &marker))?;
        Ok(marker)
    }

    /// Writes services and waits until they are in force on every node.
    ///
    /// # Errors
    /// When the file system refuses, or they are not in force in time.
    pub fn put_and_wait(&self, name: &str, shapes: &[Shape]) -> anyhow::Result<()> {
        self.wait(self.put(name, shapes)?)
    }

    /// Waits until a marker answers on every node.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn wait(&self, marker: Marker) -> anyhow::Result<()> {
        let patience = self.stage.pace.patience;
        let limit = patience.of(SYNC_LIMIT);
        let deadline = Instant::now() + limit;
        for node in &self.stage.world.topology().nodes {
            // Where answers take long it is no use to ask shortly for ever.
            let mut question = QUESTION;
            while !marker.in_force(node.name, &self.stage.ports, question)? {
                question = (question + QUESTION / 4).min(patience.of(QUESTION));
                if let Some(why) = self.ended()? {
                    bail!("{}: {why}", self.label);
                }
                if Instant::now() > deadline {
                    bail!("{}: not in force on {} in {} s", self.label, node.name, limit.as_secs());
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// The end of the agents' logs.
    #[must_use]
    pub fn logs(&self) -> String {
        let log = |a: &Agent| {
            format!("{}: end of the agent's log on {}\n{}", self.label, a.node(), a.log_tail(LOG_LINES))
        };
        self.agents().iter().map(log).collect()
    }
}

fn put(manifests: &Folder, name: &str, objects: &[Value]) -> anyhow::Result<()> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    manifests.put(&format!("{name}.json"), &format!("{list:#}\n"))
}
