//! Runs rows: the oracle's answer, the kernel's rules and real traffic must be one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use proxier_core::ids::Protocol;

use super::crew;
use super::facts::views;
use super::observe::{has_sockets, observe};
use super::predict::{Expected, Prediction, World};
use super::progress;
use super::row::{Claim, Group, Place, Row};
use super::rules::Listed;
use super::setting::{SETTINGS, Setting};
use super::shape::Shape;
use super::stage::{Cast, Stage};
use super::table::{Failure, Line};
use super::variant::{LOOPBACK, Variant};

/// Runs one variant in one setting; `live` is what comes after the rows, while the agents still run.
///
/// # Errors
/// When the lab itself cannot work.
pub fn run(
    stage: &Stage,
    (variant, setting): (&'static Variant, &Setting),
    groups: &[&Group],
    (program, work): (&Path, &Path),
    live: impl FnOnce(&Cast<'_>) -> anyhow::Result<Vec<Line>>,
) -> anyhow::Result<Outcome> {
    let cast = Cast::new(stage, variant, setting, program, work)?;
    let bears = |service: &str| !variant.without.contains(&service);
    let shapes: Vec<Shape> =
        groups.iter().flat_map(|g| &g.services).filter(|s| bears(&s.name)).cloned().collect();
    let marker = cast.put("matrix", &shapes)?;
    let objects =
        [super::facts::nodes_json(stage.world.topology()), stage.objects(&shapes, &marker)].concat();
    let views = views(stage.world.topology(), &objects, &setting.options(variant.localhost_node_ports)?)?;
    let world = World {
        topology: stage.world.topology(),
        views: &views,
        gaps: variant.gaps,
        masquerades_itself: variant.masquerades_itself,
    };

    let mut jobs = Vec::new();
    for group in groups {
        for row in group.rows_in(setting, stage.pace.thin).filter(|row| bears(&row.service)) {
            let shape =
                group.services.iter().find(|s| s.name == row.service).context("a row without a service")?;
            let prediction = world.predict(row, shape).with_context(|| format!("{}: {row:?}", group.name))?;
            jobs.push(Job { group: group.name, row, prediction });
        }
    }
    let bystanders: BTreeSet<_> = jobs.iter().filter_map(|j| j.prediction.bystander).collect();
    let _bystanders = stage.bystanders(&bystanders)?;
    stage.forget_flows()?;
    cast.start()?;
    let mut outcome = Outcome::default();
    if let Err(error) = cast.wait(marker) {
        let mut line = Line::new(variant.name, setting.name, "agents");
        line.rows = 1;
        let title = "the services are in force on every node".to_owned();
        line.failures.push(Failure { title, details: format!("seen {error:#}") });
        (outcome.lines, outcome.logs) = (vec![line], cast.logs());
        return Ok(outcome);
    }
    let listed = Listed::read(variant.rules, &views)?;
    let claims = setting.name == SETTINGS[0].name;
    let begun = Instant::now();
    let place = format!("{}/{}", variant.name, setting.name);
    progress(begun, format!("{place}: {} services are in force", shapes.len()));
    let verdicts = run_jobs(&cast, &jobs, &listed, claims)?;
    progress(begun, format!("{place}: {} rows", jobs.len()));
    outcome.lines = summarise(variant, setting, &jobs, verdicts);
    for gap in jobs.iter().filter_map(|j| j.prediction.hops.iter().find_map(|h| h.gap)) {
        *outcome.gaps.entry(gap).or_default() += 1;
    }
    let on_loopback =
        |j: &&Job<'_>| j.row.place == Place::Loopback && j.prediction.gist() == Some(Claim::Served);
    let rows = jobs.iter().filter(on_loopback).count();
    if rows > 0 {
        outcome.gaps.insert(LOOPBACK, rows);
    }
    outcome.lines.extend(live(&cast)?);
    if outcome.lines.iter().any(|l| !l.failures.is_empty()) {
        outcome.logs = cast.logs();
    }
    Ok(outcome)
}

/// What a variant in a setting brought.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A line for each group and scenario.
    pub lines: Vec<Line>,
    /// In how many rows each gap held, and node ports answered on loopback; by what it is.
    pub gaps: BTreeMap<&'static str, usize>,
    /// The agents' last log lines, when something differed.
    pub logs: String,
}

struct Job<'a> {
    group: &'static str,
    row: &'a Row,
    prediction: Prediction,
}

/// A client of a service with affinity: its address, the service, the port's place.
type Client = (IpAddr, String, usize);

/// Who is on: one row at a time for a client.
#[derive(Default)]
struct Clients(Mutex<BTreeMap<Client, Arc<Mutex<()>>>>);

impl Clients {
    fn of(&self, client: Client) -> Arc<Mutex<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(client).or_default())
    }
}

/// What came of a row.
struct Judged {
    /// What is wrong with it; nothing when all agree.
    wrong: Option<String>,
    took: Duration,
    /// How long nothing came back, where that is right.
    silence: Option<Duration>,
}

fn run_jobs(
    cast: &Cast<'_>,
    jobs: &[Job<'_>],
    listed: &Listed<'_>,
    claims: bool,
) -> anyhow::Result<Vec<Judged>> {
    let clients = Clients::default();
    let answered = cast.stage.pace.patience.at_once(crew::ANSWERED);
    let one = |place: usize| {
        let begun = Instant::now();
        let job = jobs.get(place).context("a row that is not there")?;
        let judged = judge(cast, job, listed, claims, &clients)?;
        Ok(Judged { took: begun.elapsed(), ..judged })
    };
    let task = |(place, job): (usize, &Job<'_>)| {
        let expected = &job.prediction.expected;
        let waits = expected.contains(&Expected::Silence) || expected.contains(&Expected::Refused);
        crew::Task { place, namespace: job.prediction.namespace, waits }
    };
    let tasks: Vec<crew::Task> = jobs.iter().enumerate().map(task).collect();
    let mut verdicts = crew::all(&tasks, answered, one)?;
    // Where answers took longer than that, nothing was not waited for long enough.
    let enough = cast.slowest.silence();
    let short = |v: &Judged| v.silence.is_some_and(|waited| waited < enough);
    let again: Vec<crew::Task> =
        tasks.iter().zip(&verdicts).filter(|(_, v)| short(v)).map(|(task, _)| *task).collect();
    for (task, judged) in again.iter().zip(crew::all(&again, answered, one)?) {
        if let Some(verdict) = verdicts.get_mut(task.place) {
            *verdict = Judged { took: verdict.took + judged.took, ..judged };
        }
    }
    Ok(verdicts)
}

fn judge(
    cast: &Cast<'_>,
    job: &Job<'_>,
    listed: &Listed<'_>,
    claims: bool,
    clients: &Clients,
) -> anyhow::Result<Judged> {
    let prediction = &job.prediction;
    let mut wrong = Vec::new();
    if let Some(claim) = job.row.claim.filter(|c| claims && prediction.gist() != Some(*c)) {
        wrong.push(format!("claimed  {claim}"));
    }
    wrong.extend(
        prediction.hops.iter().filter_map(|hop| listed.agree(hop).err()).map(|e| format!("rules    {e}")),
    );
    let mut silence = None;
    if has_sockets(prediction) {
        // A client that begins twice at once may begin with two endpoints; which it stays with is settled by the next connection.
        let client = (prediction.from, job.row.service.clone(), job.row.port);
        let one_at_a_time = prediction.sticky.then(|| clients.of(client));
        let _turn = one_at_a_time.as_ref().map(|m| m.lock().unwrap_or_else(PoisonError::into_inner));
        let seen = observe(prediction, cast)?;
        if !seen.fits(&prediction.expected, prediction.sticky) {
            wrong.push(format!("seen     {seen}"));
        }
        silence = seen.silence;
    }
    Ok(Judged { wrong: (!wrong.is_empty()).then(|| wrong.join("\n")), took: Duration::ZERO, silence })
}

fn summarise(variant: &Variant, setting: &Setting, jobs: &[Job<'_>], verdicts: Vec<Judged>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (job, judged) in jobs.iter().zip(verdicts) {
        let at = lines.iter().position(|l| l.group == job.group).unwrap_or_else(|| {
            lines.push(Line::new(variant.name, setting.name, job.group));
            lines.len() - 1
        });
        let Some(line) = lines.get_mut(at) else { continue };
        line.rows += 1;
        line.took += judged.took;
        line.failures.extend(judged.wrong.map(|wrong| failure(job, &wrong)));
    }
    lines
}

fn failure(job: &Job<'_>, wrong: &str) -> Failure {
    let p = &job.prediction;
    let expected: Vec<String> = p.expected.iter().map(ToString::to_string).collect();
    let oracle: Vec<String> = p
        .hops
        .iter()
        .map(|h| {
            let gap =
                h.gap.map(|g| format!("\ngap:        not kept: {g}: {}", h.outcome)).unwrap_or_default();
            format!("oracle on {}:\n{}{gap}", h.node, h.decision)
        })
        .collect();
    Failure {
        title: format!(
            "{} to {} of {}: {} to {} {}",
            job.row.from,
            job.row.place,
            job.row.service,
            p.from,
            p.to,
            p.protocol.map_or("portless", Protocol::as_str)
        ),
        details: format!(
            "expected {}{}\n{wrong}\n{}",
            if p.sticky { "always the same of " } else { "" },
            expected.join(", "),
            oracle.join("\n")
        ),
    }
}
