//! How long it takes to open a connection through few and through many Services, in one run.
//!
//! For every number of Services there is a set of three namespaces, all up at the same time: a client, a node with the agent's rules, and
//! a server that has all endpoints' addresses. The agents have ended when the clock starts; their rules stay. Rounds of connections go to
//! one set after the other, in another order each time, so that what else the machine does meets all of them alike.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use proxier_testkit::bench::bars::{CONNECT_RATIO, verdict};
use proxier_testkit::bench::{Agent, Feed, Samples, Size, Table};
use proxier_testkit::scale;

use crate::manifests;
use crate::room::Room;

/// Numbers of Services. None is a node without an agent.
const SERVICES: [Option<u32>; 4] = [None, Some(10), Some(10_000), Some(50_000)];
/// Endpoints of each.
const ENDPOINTS: u32 = 5;
/// Connections to a set before it is another one's turn.
const ROUND: u32 = 250;
/// Connections to each set that are not counted.
const WARM: u32 = 500;
/// A pod's address: inside the pod range, so that it is not masqueraded.
const CLIENT: &str = "10.250.0.2";
/// What the endpoints of all Services, none of them replaced, have their addresses from.
const ENDPOINTS_RANGE: &str = "10.128.0.0/10";
const SERVICE_PORT: u16 = 80;
const ENDPOINT_PORT: u16 = 8080;
/// How long anything may take until it counts as failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Which Service of a set a connection goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Middle,
    Last,
    Random,
}

const PLACES: [(Place, &str); 4] =
    [(Place::First, "first"), (Place::Middle, "middle"), (Place::Last, "last"), (Place::Random, "random")];

impl Place {
    fn service(self, services: u32, dice: &mut Dice) -> u32 {
        match self {
            Self::First => 0,
            Self::Middle => services / 2,
            Self::Last => services - 1,
            Self::Random => dice.below(services),
        }
    }
}

/// The numbers of Numerical Recipes' quick generator: the same in every run.
struct Dice(u32);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % bound
    }
}

/// Client, node and server, and what was measured between them.
struct Set {
    services: Option<u32>,
    client: Room,
    node: Room,
    _server: Room,
    /// By place, in the order of [`PLACES`].
    times: [Samples; 4],
    /// Median of each round.
    rounds: Vec<Duration>,
}

impl Set {
    fn up(services: Option<u32>) -> anyhow::Result<Self> {
        let (client, node, server) = (Room::new()?, Room::new()?, Room::new()?);
        node.ip(&[
            format!("link add south type veth peer name eth0 netns {}", client.path().display()),
            format!("link add north type veth peer name eth0 netns {}", server.path().display()),
            "link set south up".to_owned(),
            "link set north up".to_owned(),
            "addr add 10.250.0.1/30 dev south".to_owned(),
            "addr add 10.250.0.5/30 dev north".to_owned(),
            format!("route add {ENDPOINTS_RANGE} via 10.250.0.6"),
        ])?;
        node.set("ipv4/ip_forward", "1")?;
        client.ip(&[
            "link set eth0 up".to_owned(),
            format!("addr add {CLIENT}/30 dev eth0"),
            "route add default via 10.250.0.1".to_owned(),
        ])?;
        server.ip(&[
            "link set eth0 up".to_owned(),
            "addr add 10.250.0.6/30 dev eth0".to_owned(),
            format!("route add {CLIENT}/32 via 10.250.0.5"),
            // Every endpoint's address is the server's own.
            format!("route add local {ENDPOINTS_RANGE} dev lo"),
        ])?;
        server.run(serve)??;
        let times = std::array::from_fn(|_| Samples::default());
        Ok(Self { services, client, node, _server: server, times, rounds: Vec::new() })
    }

    /// Has an agent write the rules, and ends it.
    fn program(&self, program: &Path) -> anyhow::Result<()> {
        let Some(services) = self.services else { return Ok(()) };
        let folder = tempfile::tempdir()?;
        manifests::write(folder.path(), Size::new(services, ENDPOINTS))?;
        self.node.run(|| {
            let agent = Agent::start(program, Feed::Manifests(folder.path()))?;
            agent.programmed(LIMIT)?;
            anyhow::Ok(())
        })?
    }

    /// Where a connection to a Service goes, and which addresses may answer.
    fn target(&self, service: u32) -> (SocketAddr, BTreeSet<Ipv4Addr>) {
        let endpoints = (0..ENDPOINTS).map(|e| scale::endpoint_ip(service, e, 0)).collect();
        match self.services {
            Some(_) => ((scale::cluster_ip(service), SERVICE_PORT).into(), endpoints),
            None => {
                let direct = scale::endpoint_ip(service, 0, 0);
                ((direct, ENDPOINT_PORT).into(), [direct].into())
            }
        }
    }

    /// Opens connections, the places in turn.
    fn round(&self, count: u32, dice: &mut Dice) -> anyhow::Result<Vec<(usize, Duration)>> {
        let services = self.services.unwrap_or(10);
        let plan: Vec<_> = (0..count)
            .zip((0..PLACES.len()).cycle())
            .map(|(_, place)| (place, self.target(PLACES[place].0.service(services, dice))))
            .collect();
        self.client.run(|| {
            plan.into_iter().map(|(place, (to, answers))| Ok((place, open(to, &answers)?))).collect()
        })?
    }

    fn measure(&mut self, dice: &mut Dice) -> anyhow::Result<()> {
        let times = self.round(ROUND, dice).with_context(|| self.name())?;
        self.rounds.push(times.iter().map(|(_, time)| *time).collect::<Samples>().median());
        for (place, time) in times {
            self.times[place].push(time);
        }
        Ok(())
    }

    fn name(&self) -> String {
        match self.services {
            None => "none, no agent".to_owned(),
            Some(services) => services.to_string(),
        }
    }

    fn all(&self) -> Samples {
        let mut all = Samples::default();
        self.times.iter().for_each(|times| all.append(times.clone()));
        all
    }
}

/// Accepts connections, says to which address each came, and closes it; until the process ends.
fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, ENDPOINT_PORT))?;
    thread::Builder::new().name("server".to_owned()).spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if let Ok(SocketAddr::V4(address)) = stream.local_addr() {
                // A client that is gone already has seen its error.
                let _ = stream.write_all(&address.ip().octets());
            }
        }
    })?;
    Ok(())
}

/// Opens one connection and gives the time until it was established. The answer must come from one of these addresses.
fn open(to: SocketAddr, answers: &BTreeSet<Ipv4Addr>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))
        .with_context(|| format!("a connection to {to}"))?;
    let took = begun.elapsed();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).with_context(|| format!("the answer from {to}"))?;
    let answer = Ipv4Addr::from(answer);
    ensure!(answers.contains(&answer), "{to} was answered by {answer}, not by one of {answers:?}");
    ensure!(
        stream.peer_addr()? == to && stream.local_addr()?.ip() == CLIENT.parse::<IpAddr>()?,
        "another connection"
    );
    // Reset instead of waited for: no port stays taken.
    setsockopt(&stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 })?;
    Ok(took)
}

/// Measures everything and gives the tables.
pub(crate) fn report(program: &Path, connections: u32) -> anyhow::Result<String> {
    let mut sets: Vec<Set> = SERVICES.into_iter().map(Set::up).collect::<anyhow::Result<_>>()?;
    for set in &sets {
        set.program(program)?;
    }
    let mut dice = Dice(1);
    for set in &sets {
        set.round(WARM, &mut dice).with_context(|| set.name())?;
    }
    for round in 0..connections.div_ceil(ROUND) as usize {
        for step in 0..SERVICES.len() {
            let at = (round + step) % SERVICES.len();
            sets[at].measure(&mut dice)?;
        }
    }
    Ok(format!("{}\n\n{}\n\n{}\n", overview(&sets), places(&sets), ratio(&sets)?))
}

fn micros(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e6)
}

fn overview(sets: &[Set]) -> Table {
    let mut table = Table::new(&["services", "connections", "median µs", "p90 µs", "p99 µs"]);
    for set in sets {
        let all = set.all();
        let [median, p90, p99] = [50, 90, 99].map(|percent| micros(all.percentile(percent)));
        table.row([set.name(), all.len().to_string(), median, p90, p99]);
    }
    table
}

fn places(sets: &[Set]) -> Table {
    let names = PLACES.map(|(_, name)| format!("{name} service, median µs"));
    let mut columns = vec!["services"];
    columns.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&columns);
    for set in sets {
        let medians = set.times.iter().map(|times| micros(times.median()));
        table.row(std::iter::once(set.name()).chain(medians));
    }
    table
}

/// Each round of one set is divided by the same round of the other; the middle of these ratios counts.
fn ratio(sets: &[Set]) -> anyhow::Result<Table> {
    let of = |services| sets.iter().find(|set| set.services == Some(services));
    let Some(few) = of(10) else { bail!("nothing to compare with") };
    let mut table = Table::new(&["what", "median of rounds", "of all medians", "of all p99", "bar"]);
    for many in sets.iter().filter(|set| set.services.is_some_and(|services| services > 10)) {
        let mut ratios: Vec<f64> =
            many.rounds.iter().zip(&few.rounds).map(|(m, f)| m.as_secs_f64() / f.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
        let at = |percent| {
            let [m, f] = [many, few].map(|set| set.all().percentile(percent).as_secs_f64());
            m / f
        };
        let bar = match many.services {
            Some(50_000) => format!("≤ {CONNECT_RATIO}: {}", verdict(middle, CONNECT_RATIO)),
            _ => "-".to_owned(),
        };
        table.row([
            format!("{} services against 10", many.name()),
            format!("{middle:.3}"),
            format!("{:.3}", at(50)),
            format!("{:.3}", at(99)),
            bar,
        ]);
    }
    Ok(table)
}
