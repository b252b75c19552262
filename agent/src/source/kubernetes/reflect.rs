//! One resource: asks what its course says, and hands on what comes.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::Response;
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};

use super::Timing;
use super::backoff::Dice;
use super::course::{Ask, Course, End};
use super::fault::{Fault, Status};
use super::lines::Lines;
use super::link::{Link, retry_after};
use super::mirror::Mirror;
use super::object::{self, Event, ListHead};
use super::outlet::{BATCH, Outlet};
use super::pieces::Pieces;
use super::resource::Resource;
use super::split::ListSplitter;
use crate::source::{SinkClosed, SourceEvent};

/// Largest answer that is read for its error.
const ERROR_BODY: usize = 1 << 20;

/// The task of one resource.
pub(super) struct Reflector<'a> {
    resource: Resource,
    link: &'a Link,
    outlet: &'a Outlet,
    timing: Timing,
    course: Course,
    mirror: Mirror,
    dice: Dice,
    events: Vec<SourceEvent>,
    /// Its list was complete once.
    known: bool,
}

impl<'a> Reflector<'a> {
    pub(super) fn new(resource: Resource, link: &'a Link, outlet: &'a Outlet, timing: Timing) -> Self {
        Self {
            course: Course::new(resource.needed, timing.delays()),
            mirror: Mirror::new(resource.kind),
            resource,
            link,
            outlet,
            timing,
            dice: Dice::new(),
            events: Vec::with_capacity(BATCH),
            known: false,
        }
    }

    /// Runs until nobody takes the events, or, with `tries`, until so many requests in a row have failed.
    pub(super) async fn run(mut self, tries: Option<u32>) -> Result<String, SinkClosed> {
        loop {
            let ask = self.course.ask();
            if ask.begins_list() {
                self.mirror.begin();
            }
            let started = Instant::now();
            let end = self.carry_out(&ask).await?;
            self.flush()?;
            let lasted = started.elapsed();
            let before = self.course.failures();
            let pause = self.course.ended(end.clone(), lasted, &mut self.dice);
            match &end {
                End::Failed(fault) => {
                    self.link.failed(fault).await;
                    let failures = self.course.failures().max(before + 1);
                    self.tell(&ask, fault, failures, pause, tries.is_some());
                    let hopeless = failures >= tries.unwrap_or(u32::MAX) || !may_pass(&ask, fault);
                    if tries.is_some() && self.resource.needed && hopeless {
                        return Ok(fault.describe(ask.verb(), &self.resource.describe()));
                    }
                }
                End::Listed { .. } if self.course.listed() => self.complete()?,
                End::Listed { .. } | End::Closed => {}
            }
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    /// Logs a failure. Whoever reads only once is told by the error in the end.
    fn tell(&self, ask: &Ask, fault: &Fault, failures: u32, pause: Duration, once: bool) {
        let text = fault.describe(ask.verb(), &self.resource.describe());
        tracing::debug!(resource = self.resource.plural, failure = %text, retry.after = ?pause, "request failed");
        let told = self.outlet.notices.failed(&self.resource, ask.verb(), fault, failures);
        if let Some(notice) = told.filter(|_| !once || !self.resource.needed) {
            notice.log();
        }
    }

    async fn carry_out(&mut self, ask: &Ask) -> Result<End, SinkClosed> {
        let (low, high) = (self.timing.watch_shortest, self.timing.watch_longest);
        let path = self.resource.path(ask, self.dice.between(low, high));
        if !matches!(ask, Ask::Page { token: Some(_) }) {
            self.link.turn().await;
        }
        let response = match self.link.get(&path).await {
            Ok(response) => response,
            Err(fault) => return Ok(End::Failed(fault)),
        };
        if !response.status().is_success() {
            return Ok(End::Failed(self.refusal(response).await));
        }
        for notice in self.outlet.notices.answered(&self.resource) {
            notice.log();
        }
        let body = Pieces::new(response.into_body());
        match ask {
            Ask::Stream | Ask::Watch { .. } => self.follow(body).await,
            Ask::Page { .. } | Ask::Whole => self.collect(body).await,
        }
    }

    async fn refusal(&self, response: Response<Incoming>) -> Fault {
        let (code, after) = (response.status().as_u16(), retry_after(&response));
        let body = Limited::new(response.into_body(), ERROR_BODY).collect();
        let text = timeout(self.timing.idle_list, body).await.ok().and_then(Result::ok);
        let text = text.map(Collected::to_bytes).unwrap_or_default();
        let status: Status = serde_json::from_slice(&text).unwrap_or_default();
        Fault::of(code, after, &status)
    }

    /// A list in one piece or a page of it.
    async fn collect(&mut self, mut body: Pieces) -> Result<End, SinkClosed> {
        let mut splitter = ListSplitter::new();
        let broken = |message: String| Ok(End::Failed(Fault::Broken(message)));
        loop {
            let piece = match body.next(self.timing.idle_list).await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(fault) => return Ok(End::Failed(fault)),
            };
            let mut wrong = None;
            let mut closed = Ok(());
            let pushed = splitter.push(&piece, |item| {
                if wrong.is_none() && closed.is_ok() {
                    wrong = self.mirror.put(item, &mut self.events).err();
                    if self.events.len() >= BATCH {
                        closed = self.outlet.send(self.resource.kind, &mut self.events);
                    }
                }
            });
            closed?;
            if let Some(message) = wrong.or(pushed.err().map(|e| e.to_string())) {
                return broken(message);
            }
        }
        let head: ListHead = match splitter.finish().map(|rest| serde_json::from_slice(&rest)) {
            Ok(Ok(head)) => head,
            Ok(Err(error)) => return broken(format!("the list cannot be read: {error}")),
            Err(error) => return broken(error.to_string()),
        };
        let token = head.metadata.token.filter(|t| !t.is_empty());
        Ok(End::Listed { version: head.metadata.resource_version, token })
    }

    /// A watch, or a list that comes as one.
    async fn follow(&mut self, mut body: Pieces) -> Result<End, SinkClosed> {
        let mut lines = Lines::default();
        let idle = self.dice.between(self.timing.idle_watch, self.timing.idle_watch.mul_f32(1.2));
        loop {
            let limit = if self.course.listed() { idle } else { self.timing.idle_list };
            let mut piece = match body.next(limit).await {
                Ok(Some(piece)) => piece,
                Ok(None) if lines.is_torn() => {
                    return Ok(End::Failed(Fault::Broken(
                        "the stream ended in the middle of an event".into(),
                    )));
                }
                Ok(None) => return Ok(End::Closed),
                Err(fault) => return Ok(End::Failed(fault)),
            };
            // whatever is there already goes out together
            loop {
                match lines.push(&piece, |line| self.line(line).transpose()) {
                    Ok(None) => {}
                    Ok(Some(end)) => return end,
                    Err(error) => return Ok(End::Failed(Fault::Broken(error.to_string()))),
                }
                match body.ready() {
                    Some(more) => piece = more,
                    None => break,
                }
            }
            self.flush()?;
        }
    }

    /// One event. `Some` ends the watch.
    fn line(&mut self, line: &[u8]) -> Result<Option<End>, SinkClosed> {
        let version = match object::event(line) {
            Ok(Event::Put(object)) => self.mirror.put(object.get().as_bytes(), &mut self.events),
            Ok(Event::Gone(object)) => self.mirror.remove(object.get().as_bytes(), &mut self.events),
            Ok(Event::Bookmark { version, mark: true }) => {
                if self.course.marked(&version) {
                    self.complete()?;
                }
                Ok(version)
            }
            Ok(Event::Bookmark { version, mark: false }) => Ok(version),
            Ok(Event::Error(status)) => {
                let code = status.code.unwrap_or(500);
                return Ok(Some(End::Failed(Fault::of(code, None, &status))));
            }
            Err(message) => Err(message),
        };
        match version {
            Ok(version) if self.course.reached(&version) => {}
            Ok(_) => return Ok(Some(End::Failed(Fault::Expired))),
            Err(message) => return Ok(Some(End::Failed(Fault::Broken(message)))),
        }
        if self.course.listed()
            && let Some(notice) = self.outlet.notices.progressed(&self.resource)
        {
            notice.log();
        }
        if self.events.len() >= BATCH {
            self.flush()?;
        }
        Ok(None)
    }

    /// The list is complete.
    fn complete(&mut self) -> Result<(), SinkClosed> {
        self.mirror.complete(&mut self.events);
        self.flush()?;
        if let Some(notice) = self.outlet.notices.progressed(&self.resource) {
            notice.log();
        }
        let objects = self.mirror.len();
        tracing::debug!(resource = self.resource.plural, objects, again = self.known, "list complete");
        self.known = true;
        self.outlet.listed(self.resource.kind);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkClosed> {
        self.outlet.send(self.resource.kind, &mut self.events)
    }
}

/// Can it be otherwise a moment later, without anybody doing something?
fn may_pass(ask: &Ask, fault: &Fault) -> bool {
    match fault {
        Fault::Forbidden { .. } | Fault::Unauthorized(_) | Fault::Setup(_) | Fault::Absent => false,
        // there are other ways to list
        Fault::Refused(_) => *ask == Ask::Stream,
        _ => true,
    }
}
