//! What a scenario works with: its service, ways to call it, and the steps that it checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proxier_core::ids::IpFamily;

use crate::matrix::observe::{ANSWER, silence};
use crate::matrix::plan;
use crate::matrix::predict::World;
use crate::matrix::row::{Caller, Place, Row};
use crate::matrix::shape::{Shape, sctp, service, tcp, udp};
use crate::matrix::stage::Cast;
use crate::matrix::table::Failure;
use crate::pace::Patience;
use crate::traffic::{Lasting, Seen, associate_here, connect_here, exchange_here};
use proxier_sys::netns::Netns;

/// Places of a scenario's ports in its service.
pub(super) const TCP: usize = 0;
/// The port whose connections last.
pub(super) const LASTING: usize = 1;
/// The UDP port.
pub(super) const UDP: usize = 2;
/// The SCTP port, of scenarios that are about SCTP; its associations last.
pub(super) const SCTP: usize = 3;

/// Connections of [`Script::servers`], where everybody was met by then who must be; in full, and under a thin pace.
const MANY: (usize, usize) = (20, 6);
/// Connections until they are: of two endpoints, one is missed once in 10^12.
const MOST: usize = 40;

/// A way to a service: who calls which address, in which family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) from: Caller,
    pub(super) place: Place,
    pub(super) family: IpFamily,
}

impl Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}, {}", self.from, self.place, self.family)
    }
}

/// Through the prerouting and the output path, to every kind of address, in both families.
pub(super) fn ways() -> Vec<Way> {
    let pairs = [
        (Caller::Pod(plan::CALLER), Place::ClusterIp),
        (Caller::Host("worker2"), Place::ClusterIp),
        (Caller::Client("client"), Place::Vip),
        (Caller::Client("client2"), Place::NodePort("worker")),
    ];
    pairs
        .iter()
        .flat_map(|(from, place)| IpFamily::ALL.map(|family| Way { from: *from, place: *place, family }))
        .collect()
}

/// Who answered how often.
pub(super) type Met = BTreeMap<String, usize>;

/// Calls that go on, see [`Script::under_calls`].
#[derive(Debug)]
pub(super) struct Calls {
    over: AtomicBool,
    made: Vec<AtomicUsize>,
}

impl Calls {
    /// How many calls say something about a way.
    pub(super) const ENOUGH: usize = 21;

    /// Enough were made on every way.
    pub(super) fn are_enough(&self) -> bool {
        self.made.iter().all(|made| made.load(Ordering::Relaxed) >= Self::ENOUGH)
    }
}

/// A running scenario.
#[derive(Debug)]
pub struct Script<'a> {
    pub(super) cast: &'a Cast<'a>,
    name: &'static str,
    number: u8,
    /// Its service has the port [`SCTP`], too.
    sctp: bool,
    steps: usize,
    failures: Vec<Failure>,
}

impl<'a> Script<'a> {
    pub(super) fn new(cast: &'a Cast<'a>, name: &'static str, number: u8, sctp: bool) -> Self {
        Self { cast, name, number, sctp, steps: 0, failures: Vec::new() }
    }

    /// The scenario's service: every kind of address, both families, a TCP port, one whose connections last, a UDP port, and an SCTP port where the
    /// scenario is about that.
    pub(super) fn service(&self) -> Shape {
        let ports = [tcp("http", 80), tcp("lasting", 90).to(plan::LASTING), udp("dns", 80)];
        let ports: Vec<_> = ports.into_iter().chain(self.sctp.then(|| sctp("m3ua", 80))).collect();
        let mut shape = service(self.name).everywhere().ports(ports);
        (shape.number, shape.outer_number) = (self.number, self.number);
        shape
    }

    /// Makes the service like this and waits until it is in force.
    pub(super) fn put(&self, shape: &Shape) -> anyhow::Result<()> {
        self.cast.put_and_wait(self.name, std::slice::from_ref(shape))
    }

    /// As [`Script::put`], without waiting.
    pub(super) fn put_only(&self, shape: &Shape) -> anyhow::Result<()> {
        self.cast.put(self.name, std::slice::from_ref(shape)).map(drop)
    }

    /// Removes the service and waits until that is in force.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        self.cast.put_and_wait(self.name, &[])
    }

    /// A step: what must hold, whether it does, and what was seen.
    pub(super) fn check(&mut self, what: impl Display, holds: bool, seen: impl Display) {
        self.steps += 1;
        if !holds {
            let title = what.to_string();
            self.failures.push(Failure { title, details: format!("seen {seen}") });
        }
    }

    pub(super) fn broke_off(&mut self, why: &anyhow::Error) {
        self.check(format!("{} runs to its end", self.name), false, format!("{why:#}"));
    }

    pub(super) fn finish(self) -> (usize, Vec<Failure>) {
        (self.steps, self.failures)
    }

    /// The client's address and the service's, on a way.
    pub(super) fn ends(&self, way: Way, port: usize) -> anyhow::Result<(SocketAddr, SocketAddr)> {
        let world = World {
            topology: self.cast.stage.world.topology(),
            views: &[],
            gaps: &[],
            masquerades_itself: false,
        };
        let row = Row {
            service: self.name.to_owned(),
            from: way.from,
            place: way.place,
            port,
            number: None,
            protocol: None,
            portless: false,
            family: way.family,
            claim: None,
        };
        let shape = self.service();
        let source_port = self.cast.stage.ports.next(way.from.namespace());
        let from = SocketAddr::new(world.source(&row, &shape)?, source_port);
        Ok((from, world.destination(&row, &shape)?))
    }

    /// A new TCP connection or UDP flow.
    pub(super) fn call(&self, way: Way, port: usize) -> anyhow::Result<Seen> {
        self.cast.answered(|| self.call_for(way, port, self.patience().of(ANSWER)))
    }

    fn call_for(&self, way: Way, port: usize, limit: Duration) -> anyhow::Result<Seen> {
        let (from, to) = self.ends(way, port)?;
        let one = || {
            let begun = Instant::now();
            let seen = match port {
                UDP => exchange_here(Some(from), to, limit, self.patience().datagrams()),
                SCTP => associate_here(Some(from), to, limit),
                _ => connect_here(Some(from), to, limit),
            };
            if matches!(seen, Seen::Answered { .. }) {
                self.cast.slowest.record(begun.elapsed());
            }
            seen
        };
        Ok(Netns::named(way.from.namespace())?.run(one)?)
    }

    /// By how much longer than on a real machine things may take.
    pub(super) fn patience(&self) -> Patience {
        self.cast.stage.pace.patience
    }

    /// Calls on every way, by TCP and UDP in turn, for as long as `work` goes on; who answered how often.
    pub(super) fn under_calls(
        &self,
        work: impl FnOnce(&Calls) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<(Way, Met)>> {
        let ways = ways();
        let calls =
            Calls { over: AtomicBool::new(false), made: ways.iter().map(|_| Default::default()).collect() };
        let on = |(way, made): (&Way, &AtomicUsize)| {
            let mut met = Met::new();
            while !calls.over.load(Ordering::Relaxed) {
                for port in [TCP, UDP] {
                    *met.entry(name(self.call(*way, port)?)).or_default() += 1;
                    made.fetch_add(1, Ordering::Relaxed);
                }
            }
            anyhow::Ok(met)
        };
        std::thread::scope(|scope| {
            let on = &on;
            let threads: Vec<_> =
                ways.iter().zip(&calls.made).map(|way| (*way.0, scope.spawn(move || on(way)))).collect();
            let worked = work(&calls);
            calls.over.store(true, Ordering::Relaxed);
            let joined = threads.into_iter().map(|(way, thread)| {
                Ok((way, thread.join().unwrap_or_else(|payload| resume_unwind(payload))?))
            });
            let met = joined.collect::<anyhow::Result<_>>();
            worked.and(met)
        })
    }

    /// New connections or flows, all at once, each with what it met and how long that took.
    pub(super) fn calls(
        &self,
        calls: &[(Way, usize)],
        limit: Duration,
    ) -> anyhow::Result<Vec<(Seen, Duration)>> {
        let one = |(way, port): (Way, usize)| {
            let begun = Instant::now();
            anyhow::Ok((self.call_for(way, port, limit)?, begun.elapsed()))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = calls.iter().map(|call| scope.spawn(move || one(*call))).collect();
            let joined =
                threads.into_iter().map(|t| t.join().unwrap_or_else(|payload| resume_unwind(payload)));
            joined.collect()
        })
    }

    /// Checks that nothing comes back to new connections.
    pub(super) fn is_silent(&mut self, when: &str, ways: &[Way], ports: &[usize]) -> anyhow::Result<()> {
        self.all_see(when, ways, ports, silence(self.cast), &Seen::TimedOut)
    }

    /// Checks that new connections are refused.
    pub(super) fn is_refused(&mut self, when: &str, ways: &[Way], ports: &[usize]) -> anyhow::Result<()> {
        self.all_see(when, ways, ports, self.patience().of(ANSWER), &Seen::Refused)
    }

    fn all_see(
        &mut self,
        when: &str,
        ways: &[Way],
        ports: &[usize],
        limit: Duration,
        what: &Seen,
    ) -> anyhow::Result<()> {
        let calls: Vec<_> = ways.iter().flat_map(|w| ports.iter().map(|p| (*w, *p))).collect();
        let seen = self.calls(&calls, limit)?;
        for ((way, port), (seen, _)) in calls.iter().zip(seen) {
            self.check(format!("{when}: {what}: {way}, port {port}"), seen == *what, seen);
        }
        Ok(())
    }

    /// Who answers new connections, of whom so many are expected: names of servers, or what came back instead.
    pub(super) fn servers(&self, way: Way, port: usize, expected: usize) -> anyhow::Result<BTreeSet<String>> {
        let enough = self.cast.stage.pace.connections(MANY.0, MANY.1);
        let mut met = BTreeSet::new();
        for number in 0..MOST {
            if number >= enough && met.len() >= expected {
                break;
            }
            met.insert(name(self.call(way, port)?));
        }
        Ok(met)
    }

    /// A connection that lasts, or a UDP flow, and who answered first.
    pub(super) fn stay(&self, way: Way, port: usize) -> anyhow::Result<(Lasting, String)> {
        let (from, to) = self.ends(way, port)?;
        let namespace = way.from.namespace();
        let limit = self.patience().of(ANSWER);
        let opened = match port {
            UDP => Lasting::udp(namespace, Some(from), to, limit)?,
            SCTP => Lasting::sctp(namespace, Some(from), to, limit)?,
            _ => Lasting::tcp(namespace, Some(from), to, limit)?,
        };
        let mut lasting = opened.map_err(|seen| anyhow::anyhow!("{way}: no connection: {seen}"))?;
        let first = name(lasting.ask());
        Ok((lasting, first))
    }

    /// Connections that last, one to each of these servers.
    pub(super) fn stay_with(
        &self,
        way: Way,
        port: usize,
        servers: &[&str],
    ) -> anyhow::Result<Vec<(Lasting, String)>> {
        let mut out: Vec<(Lasting, String)> = Vec::new();
        for _ in 0..MOST * servers.len() {
            let missing = |name: &str| servers.contains(&name) && !out.iter().any(|(_, n)| n == name);
            let (lasting, first) = self.stay(way, port)?;
            if missing(&first) {
                out.push((lasting, first));
            }
            if out.len() == servers.len() {
                return Ok(out);
            }
        }
        anyhow::bail!("{way}: not all of {} answered", servers.join(", "))
    }

    /// Checks that new connections meet exactly these servers, on every way.
    pub(super) fn meets(
        &mut self,
        when: &str,
        ways: &[Way],
        ports: &[usize],
        servers: &[&str],
    ) -> anyhow::Result<()> {
        let calling: &Self = self;
        let of = |way: Way| {
            let met = |port: &usize| calling.servers(way, *port, servers.len());
            ports.iter().map(met).collect::<anyhow::Result<Vec<_>>>()
        };
        let met = std::thread::scope(|scope| {
            let threads: Vec<_> = ways.iter().map(|way| scope.spawn(move || of(*way))).collect();
            let joined =
                threads.into_iter().map(|t| t.join().unwrap_or_else(|payload| resume_unwind(payload)));
            joined.collect::<anyhow::Result<Vec<_>>>()
        })?;
        for (way, met) in ways.iter().zip(met) {
            for (port, met) in ports.iter().zip(met) {
                let holds = met.iter().map(String::as_str).eq(servers.iter().copied());
                let what = format!("{when}: new connections meet {}: {way}, port {port}", servers.join(", "));
                self.check(what, holds, format!("{met:?}"));
            }
        }
        Ok(())
    }

    /// Checks that connections still reach the server they began with.
    pub(super) fn last(&mut self, when: &str, kept: &mut [(Lasting, String)]) {
        for (server, seen) in ask(kept, Lasting::ask) {
            self.check(format!("{when}: a connection stays with {server}"), seen == server, seen);
        }
    }

    /// Has the backend a declared gap that this scenario checks?
    pub(super) fn is_a_gap(&self) -> bool {
        self.cast.variant.has_gap_in(self.name)
    }

    /// As [`Script::last`], or where that is a gap of the backend's, that they do not any more.
    pub(super) fn last_but_for_the_gap(&mut self, when: &str, kept: &mut [(Lasting, String)]) {
        if !self.is_a_gap() {
            return self.last(when, kept);
        }
        let limit = silence(self.cast);
        for (server, seen) in ask(kept, |lasting| lasting.ask_for(limit)) {
            let what = format!(
                "{when}: gap: a connection to {server} is answered no more (if it is, remove the gap's declaration)"
            );
            self.check(what, seen != server, seen);
        }
    }
}

/// Asks all at once; the server that each began with, and who answers now.
fn ask(kept: &mut [(Lasting, String)], one: impl Fn(&mut Lasting) -> Seen + Sync) -> Vec<(String, String)> {
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = kept
            .iter_mut()
            .map(|(lasting, server)| (server.clone(), scope.spawn(move || name(one(lasting)))))
            .collect();
        let joined = threads
            .into_iter()
            .map(|(server, thread)| (server, thread.join().unwrap_or_else(|payload| resume_unwind(payload))));
        joined.collect()
    })
}

/// The server's name, or what came back instead of an answer.
pub(super) fn name(seen: Seen) -> String {
    match seen {
        Seen::Answered { server, .. } => server,
        other => other.to_string(),
    }
}
