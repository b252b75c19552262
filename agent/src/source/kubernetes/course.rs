//! What to ask the API server next, and when: the rules for lists, watches and everything that can happen to them, without doing any of it.
//!
//! A list is first asked for as a stream (the watch that begins with everything there is). A server that refuses that is
//! asked for pages; one whose continue token expires on the way, for the whole list at once. Then follows the watch
//! from the list's version, renewed from the last version heard of for as long as the server knows it.

use std::time::Duration;

use super::backoff::{Backoff, Bounds, Dice};
use super::fault::Fault;

/// Streaming lists that may break off before another way is tried.
const STREAM_TRIES: u32 = 2;

/// Watches in a row that may end without having said anything. After that it may be that the server does not know the version yet
/// (one restored from a backup does not), and waits: nothing would ever come.
const QUIET_WATCHES: u32 = 2;

/// Watches in a row that the server may fail before the version is given up.
const FAILED_WATCHES: u32 = 5;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Everything as a stream, ended by a mark; changes follow.
    Stream,
    /// A page of the list, from the beginning or from a token on.
    Page { token: Option<String> },
    /// The list in one piece.
    Whole,
    /// Changes since a version.
    Watch { version: String },
}

impl Ask {
    /// Does a list begin with it?
    pub(super) fn begins_list(&self) -> bool {
        matches!(self, Self::Stream | Self::Whole | Self::Page { token: None })
    }

    /// The right that it needs.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Stream | Self::Watch { .. } => "watch",
            Self::Page { .. } | Self::Whole => "list",
        }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A page, or the whole list, came in full. With a token there is more.
    Listed { version: String, token: Option<String> },
    /// The server ended the stream in good order.
    Closed,
    /// It went wrong.
    Failed(Fault),
}

/// The delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delays {
    /// Between attempts.
    pub(super) retry: Bounds,
    /// Between attempts at something that can be done without and is not there.
    pub(super) absent: Duration,
    /// A request that lasted so long shows that things are well again.
    pub(super) steady: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Stream,
    Pages { token: Option<String>, version: Option<String> },
    Whole,
    Watch { version: String },
}

/// The course of one resource.
#[derive(Clone, Debug)]
pub(super) struct Course {
    phase: Phase,
    delays: Delays,
    backoff: Backoff,
    needed: bool,
    /// Requests in a row that ended badly in this phase.
    failures: u32,
    /// Watches in a row that said nothing.
    quiet: u32,
    /// The running request said something.
    heard: bool,
}

impl Course {
    /// Begins with a list. What is not `needed` is asked for rarely while it is not there.
    pub(super) fn new(needed: bool, delays: Delays) -> Self {
        let backoff = Backoff::new(delays.retry);
        Self { phase: Phase::Stream, delays, backoff, needed, failures: 0, quiet: 0, heard: false }
    }

    /// What to ask now.
    pub(super) fn ask(&mut self) -> Ask {
        self.heard = false;
        match &self.phase {
            Phase::Stream => Ask::Stream,
            Phase::Pages { token, .. } => Ask::Page { token: token.clone() },
            Phase::Whole => Ask::Whole,
            Phase::Watch { version } => Ask::Watch { version: version.clone() },
        }
    }

    /// Is the list complete?
    pub(super) fn listed(&self) -> bool {
        matches!(self.phase, Phase::Watch { .. })
    }

    /// Requests in a row that ended badly.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// A change or a bookmark came: everything up to this version is known, unless a list is still under way. Returns false when
    /// that would be a step back, which a server makes that was restored from a backup: what it sends does not follow on
    /// what we have.
    pub(super) fn reached(&mut self, to: &str) -> bool {
        self.heard = true;
        if let Phase::Watch { version } = &mut self.phase
            && version != to
        {
            if is_before(to, version) {
                return false;
            }
            to.clone_into(version);
        }
        true
    }

    /// The mark that ends a streaming list came. Returns whether a list was under way.
    pub(super) fn marked(&mut self, version: &str) -> bool {
        self.heard = true;
        let listing = self.phase == Phase::Stream;
        if listing {
            self.enter(Phase::Watch { version: version.to_owned() });
        }
        listing
    }

    /// The request ended after `lasted`. Returns how long to wait before the next one.
    pub(super) fn ended(&mut self, end: End, lasted: Duration, dice: &mut Dice) -> Duration {
        if lasted >= self.delays.steady {
            self.backoff.reset();
        }
        match end {
            End::Listed { version, token } => {
                self.backoff.reset();
                self.page(version, token);
                Duration::ZERO
            }
            End::Closed => self.closed(lasted, dice),
            End::Failed(fault) => self.failed(&fault, dice),
        }
    }

    fn page(&mut self, version: String, token: Option<String>) {
        // what changes while the pages are read is told by the watch, which begins at the first page
        let first = match &mut self.phase {
            Phase::Pages { version, .. } => version.take(),
            _ => None,
        };
        let version = first.unwrap_or(version);
        match token {
            Some(token) => {
                self.failures = 0;
                self.phase = Phase::Pages { token: Some(token), version: Some(version) };
            }
            None => self.enter(Phase::Watch { version }),
        }
    }

    fn closed(&mut self, lasted: Duration, dice: &mut Dice) -> Duration {
        if !self.listed() {
            return self.failed(&Fault::Broken("the stream ended before the list was complete".into()), dice);
        }
        self.failures = 0;
        if self.spoke() && lasted >= self.delays.steady {
            return Duration::ZERO;
        }
        self.backoff.next(dice)
    }

    fn failed(&mut self, fault: &Fault, dice: &mut Dice) -> Duration {
        let spoke = self.heard && self.listed();
        self.failures = if spoke { 1 } else { self.failures.saturating_add(1) };
        let failures = self.failures;
        match (&self.phase, fault) {
            (_, Fault::Absent | Fault::Forbidden { .. }) if !self.needed => {
                self.enter(Phase::Stream);
                self.failures = failures;
                return dice.between(self.delays.absent, self.delays.absent * 2);
            }
            (Phase::Stream, Fault::Refused(_)) => {
                self.enter(Phase::Pages { token: None, version: None });
                return Duration::ZERO;
            }
            (Phase::Stream, Fault::Broken(_) | Fault::Silent(_)) if failures >= STREAM_TRIES => {
                self.enter(Phase::Pages { token: None, version: None });
            }
            (Phase::Pages { token: Some(_), .. }, Fault::Expired | Fault::Refused(_)) => {
                self.enter(Phase::Whole);
                return Duration::ZERO;
            }
            (Phase::Watch { .. }, Fault::Expired | Fault::Refused(_)) => self.enter(Phase::Stream),
            (Phase::Watch { .. }, Fault::Server { .. }) if failures >= FAILED_WATCHES => {
                self.enter(Phase::Stream);
            }
            (Phase::Watch { .. }, Fault::Silent(_) | Fault::Broken(_)) => {
                self.spoke();
            }
            (Phase::Pages { .. } | Phase::Whole, Fault::Expired | Fault::Refused(_)) => {
                self.enter(Phase::Stream);
            }
            _ => {}
        }
        let delay = self.backoff.next(dice);
        match fault {
            Fault::Busy { after: Some(after), .. } => *after + self.delays.retry.first.min(delay),
            _ => delay,
        }
    }

    /// A watch ended in silence or not; after several silent ones the list is asked for again. Returns whether it said anything.
    fn spoke(&mut self) -> bool {
        self.quiet = if self.heard { 0 } else { self.quiet + 1 };
        if self.quiet >= QUIET_WATCHES {
            self.enter(Phase::Stream);
        }
        self.heard
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.failures = 0;
        self.quiet = 0;
    }
}

/// Is one version older than another? Versions are decimal numbers; of others nothing can be said.
fn is_before(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one < other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
