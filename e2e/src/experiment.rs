//! Running one experiment with one variant of the agent.

mod check;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::agent::{Agent, Launch};
use crate::listing;
use crate::manifests::Folder;
use crate::pace::Patience;
use crate::report::Line;
use crate::saved;
use crate::scenario::{Experiment, Layout, Step, Variant};
use crate::topology::Topology;
use crate::traffic::{Listen, Server};
use crate::virtual_servers;
use crate::world::World;

/// How long the agents may take to bring a state into the kernel.
const SYNC_LIMIT: Duration = Duration::from_secs(20);

/// What did not change for so long is complete, where objects change one by one.
const SETTLES: Duration = Duration::from_millis(500);

/// How often the kernel is asked while waiting.
const POLL: Duration = Duration::from_millis(20);

/// Lines of each agent's log shown after a difference.
const LOG_LINES: usize = 20;

/// The port that endpoints listen on.
const ENDPOINT_PORT: u16 = 8080;

/// What an experiment brought.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The checks.
    pub lines: Vec<Line>,
    /// The kernel's listing of the service under test.
    pub listing: String,
    /// The agents' last log lines, when something differed.
    pub logs: String,
}

impl Outcome {
    /// Every check passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.lines.iter().all(|l| l.passed)
    }
}

/// Builds the cluster, runs the agents, sends the traffic and reads the kernel. An agent that ends or does not get its
/// rules in is a failed check.
///
/// # Errors
/// When the lab itself cannot work: namespaces, links, servers, files.
pub fn run(
    experiment: &Experiment,
    variant: &Variant,
    (program, work): (&Path, &Path),
    patience: Patience,
) -> anyhow::Result<Outcome> {
    let label = format!("{} {}", experiment.id, variant.name);
    let folder = work.join(label.replace(' ', "-"));
    let world = World::up(Topology::two_workers(experiment.pods.clone()))?;
    let _servers = start_servers(experiment)?;
    let manifests = Folder::create(folder.join("manifests"))?;
    for (name, text) in experiment.manifests {
        manifests.put(name, text)?;
    }
    let launch = launch(experiment, variant, (program, &folder), &manifests, patience)?;
    let nodes: Vec<&'static str> = world.topology().nodes.iter().map(|n| n.name).collect();
    let agents = nodes.iter().map(|node| Agent::start(&launch, node)).collect::<anyhow::Result<Vec<_>>>()?;

    let layout = variant.layout;
    let outcome = Outcome::default();
    let mut running =
        Running { experiment, layout, label, world: &world, manifests, agents, patience, outcome };
    if let Err(stopped) = running.steps() {
        running.stopped(&stopped);
    }
    if !running.outcome.passed() {
        running.outcome.logs = running.logs();
    }
    Ok(running.outcome)
}

fn start_servers(experiment: &Experiment) -> anyhow::Result<Vec<Server>> {
    let mut servers = Vec::new();
    for pod in experiment.pods.iter().filter(|p| experiment.servers.contains(&p.name)) {
        let sockets = pod.addresses.both().map(|address| Listen::Tcp((address, ENDPOINT_PORT).into()));
        let server = Server::start(pod.name, pod.name, &sockets);
        servers.push(server.with_context(|| format!("starting the server of pod {}", pod.name))?);
    }
    Ok(servers)
}

fn launch(
    experiment: &Experiment,
    variant: &Variant,
    (program, folder): (&Path, &Path),
    manifests: &Folder,
    patience: Patience,
) -> anyhow::Result<Launch> {
    let mut config: Option<PathBuf> = None;
    if let Some(text) = variant.config {
        let file = folder.join("config.yaml");
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        config = Some(file);
    }
    Ok(Launch {
        program: program.to_owned(),
        manifests: manifests.path().to_owned(),
        backend: variant.backend,
        cluster_cidr: experiment.cluster_cidr,
        config,
        logs: folder.join("logs"),
        patience,
    })
}

/// Does the node's kernel know the frontend?
fn is_dispatched(layout: Layout, node: &str, family: &str, frontend: &str) -> anyhow::Result<bool> {
    Ok(match layout {
        Layout::Maps | Layout::Chains => {
            // Those with a chain are in the first, those without in the second alone.
            let mut elements = listing::map(node, family, "service-ips")?.unwrap_or_default();
            elements.extend(listing::map(node, family, "cluster-endpoints")?.unwrap_or_default());
            elements.iter().any(|e| e.belongs_to(frontend))
        }
        Layout::Rules(tables) => saved::dispatches(&saved::save(node, tables, family, false)?, frontend),
        Layout::VirtualServers => virtual_servers::dispatches(node, frontend)?,
    })
}

/// What the node's kernel lists of services, as far as it changes at once: the agent's table of nftables, or nat of iptables.
fn services(layout: Layout, node: &str, family: &str) -> anyhow::Result<Option<String>> {
    Ok(match layout {
        Layout::Maps | Layout::Chains => listing::table(node, family)?,
        Layout::Rules(tables) => {
            let saved = saved::save(node, tables, family, false)?;
            Some(saved::lines_of(&saved, "nat").collect::<Vec<_>>().join("\n"))
        }
        Layout::VirtualServers => Some(virtual_servers::everything(node)?),
    })
}

/// An experiment on its way.
struct Running<'a> {
    experiment: &'a Experiment,
    layout: Layout,
    label: String,
    world: &'a World,
    manifests: Folder,
    agents: Vec<Agent>,
    patience: Patience,
    outcome: Outcome,
}

impl Running<'_> {
    fn steps(&mut self) -> anyhow::Result<()> {
        let (frontends, layout) = (self.experiment.frontends, self.layout);
        self.wait("the first rules", |node| {
            for (family, key) in frontends {
                if !is_dispatched(layout, node, family, key)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        for step in &self.experiment.steps {
            match step {
                Step::Traffic(traffic) => {
                    let line = check::traffic(&self.label, self.world.topology(), traffic, self.patience)?;
                    self.outcome.lines.push(line);
                }
                Step::Patch { file, passage, replacement } => self.patch(file, passage, replacement)?,
            }
        }
        for kernel in (self.experiment.kernel)(layout) {
            let (line, text) = check::kernel(&self.label, layout, &kernel)?;
            self.outcome.lines.push(line);
            self.outcome.listing.push_str(&text);
        }
        Ok(())
    }

    /// Changes a manifest and waits until what each node's kernel lists of services differs from before, in every family the experiment uses.
    fn patch(&mut self, file: &str, passage: &str, replacement: &str) -> anyhow::Result<()> {
        let layout = self.layout;
        let families = self.experiment.frontends.iter().map(|(family, _)| *family);
        let mut before = Vec::new();
        for (agent, family) in self.agents.iter().flat_map(|a| families.clone().map(move |f| (a.node(), f))) {
            before.push((agent, family, services(layout, agent, family)?));
        }
        self.manifests.patch(file, passage, replacement)?;
        self.wait(replacement, |node| {
            for (_, family, old) in before.iter().filter(|(n, ..)| *n == node) {
                let now = services(layout, node, family)?;
                if now == *old {
                    return Ok(false);
                }
                if layout == Layout::VirtualServers {
                    // Object by object: until nothing moves any more.
                    std::thread::sleep(SETTLES);
                    if services(layout, node, family)? != now {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })
    }

    /// Polls every node's kernel until `reached` holds.
    fn wait(
        &mut self,
        what: &str,
        reached: impl Fn(&'static str) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let limit = self.patience.of(SYNC_LIMIT);
        let deadline = Instant::now() + limit;
        for agent in &mut self.agents {
            while !reached(agent.node())? {
                if let Some(status) = agent.ended()? {
                    bail!("{}: the agent ended ({status}) before {what} reached the kernel", agent.node());
                }
                if Instant::now() > deadline {
                    bail!("{}: {what} did not reach the kernel in {} s", agent.node(), limit.as_secs());
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// The rest of the experiment cannot run: one failed line for it.
    fn stopped(&mut self, why: &anyhow::Error) {
        self.outcome.lines.push(Line {
            experiment: self.label.clone(),
            from: "-".to_owned(),
            to: "-".to_owned(),
            policy: "-".to_owned(),
            expected: "the whole experiment".to_owned(),
            seen: format!("{why:#}"),
            passed: false,
        });
    }

    fn logs(&self) -> String {
        let log = |a: &Agent| {
            format!("{}: end of the agent's log on {}\n{}", self.label, a.node(), a.log_tail(LOG_LINES))
        };
        self.agents.iter().map(log).collect()
    }
}
