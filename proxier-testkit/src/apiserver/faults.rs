//! Faults on demand: which request meets one, and what happens to its answer.

use std::time::Duration;

use super::resource::Verb;

/// A place in the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// After so many bytes.
    Bytes(usize),
    /// After so many whole events of a watch.
    Events(usize),
    /// In the middle of the event that follows so many whole ones.
    InEventAfter(usize),
}

/// What happens at a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The body ends as if complete.
    End,
    /// The answer is aborted: HTTP/2 resets the stream, HTTP/1.1 closes the connection without the last chunk.
    Abort,
    /// The connection is closed, and with it every answer on it.
    Close,
    /// Nothing more comes and nothing says so: the connection stays open and silent.
    Silence,
    /// A watch gets the ERROR event of an expired version (410) and ends.
    Expire,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Closes the connection before answering.
    Close,
    /// Never answers and never reads again, and keeps the connection open: a peer that is gone without a word.
    Silence,
    /// Waits before the status and headers.
    Delay(Duration),
    /// Waits between the headers and the body.
    DelayBody(Duration),
    /// Answers with this status, and with `Retry-After` (seconds) if given.
    Status {
        /// The status code.
        code: u16,
        /// Seconds.
        retry_after: Option<u64>,
    },
    /// Cuts the body.
    Cut {
        /// Where.
        at: Place,
        /// How.
        then: Then,
    },
    /// Writes the body in small pieces.
    Drip {
        /// Bytes at a time.
        bytes: usize,
        /// Pause before each.
        pause: Duration,
    },
}

/// A rule: the requests it is for, how many of them it lets pass, how many it meets, and what it does to those.
#[derive(Clone, Debug)]
pub struct Fault {
    verb: Option<Verb>,
    resource: Option<String>,
    skip: usize,
    times: usize,
    action: Action,
}

impl Fault {
    /// For every request for a resource; once.
    pub fn any(action: Action) -> Self {
        Self { verb: None, resource: None, skip: 0, times: 1, action }
    }

    /// For requests with this verb for the resource of this plural name; once.
    pub fn on(verb: Verb, resource: &str, action: Action) -> Self {
        Self { verb: Some(verb), resource: Some(resource.to_owned()), ..Self::any(action) }
    }

    /// Lets so many matching requests pass first.
    #[must_use]
    pub fn skip(mut self, requests: usize) -> Self {
        self.skip = requests;
        self
    }

    /// Meets so many requests.
    #[must_use]
    pub fn times(mut self, requests: usize) -> Self {
        self.times = requests;
        self
    }

    /// Meets all requests, until faults are cleared.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }
}

/// The rules in force; of several that match, the oldest acts.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What happens to this request.
    pub(super) fn take(&mut self, verb: Verb, resource: &str) -> Option<Action> {
        let mut action = None;
        for fault in &mut self.0 {
            let matches = fault.verb.is_none_or(|wanted| wanted == verb)
                && fault.resource.as_deref().is_none_or(|wanted| wanted == resource);
            if !matches {
            } else if fault.skip > 0 {
                fault.skip -= 1;
            } else if action.is_none() && fault.times > 0 {
                fault.times = if fault.times == usize::MAX { usize::MAX } else { fault.times - 1 };
                action = Some(fault.action.clone());
            }
        }
        self.0.retain(|fault| fault.times > 0);
        action
    }
}

/// Finds the place of a cut in a body that comes in parts.
#[derive(Debug)]
pub(super) struct Finder {
    at: Place,
    bytes: usize,
    events: usize,
}

impl Finder {
    pub(super) fn new(at: Place) -> Self {
        Self { at, bytes: 0, events: 0 }
    }

    /// How much of `part` comes before the place; `None` if all of it does.
    pub(super) fn before(&mut self, part: &[u8]) -> Option<usize> {
        let found = match self.at {
            Place::Bytes(bytes) => bytes.checked_sub(self.bytes).filter(|left| *left <= part.len()),
            Place::Events(events) => self.event_end(part, events),
            Place::InEventAfter(events) => self.event_end(part, events).and_then(|start| {
                let length =
                    part[start..].iter().position(|byte| *byte == b'\n').unwrap_or(part.len() - start);
                (length > 0).then_some(start + length / 2)
            }),
        };
        self.bytes += part.len();
        self.events += part.iter().filter(|byte| **byte == b'\n').count();
        found
    }

    /// Where in `part` so many events of the whole body have ended.
    fn event_end(&self, part: &[u8], events: usize) -> Option<usize> {
        let left = events.checked_sub(self.events)?;
        if left == 0 {
            return Some(0);
        }
        part.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(left - 1).map(|(i, _)| i + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_the_requests_they_match() {
        let mut faults = Faults::default();
        let status = |code| Action::Status { code, retry_after: None };
        faults.add(Fault::on(Verb::List, "services", status(500)).skip(1).times(2));
        faults.add(Fault::any(status(503)).always());
        let codes: Vec<_> = [
            (Verb::List, "services"),
            (Verb::Watch, "services"),
            (Verb::List, "services"),
            (Verb::List, "nodes"),
            (Verb::List, "services"),
            (Verb::List, "services"),
        ]
        .into_iter()
        .map(|(verb, resource)| match faults.take(verb, resource) {
            Some(Action::Status { code, .. }) => code,
            other => panic!("{other:?}"),
        })
        .collect();
        assert_eq!(codes, [503, 503, 500, 503, 500, 503]);
        faults.clear();
        assert_eq!(faults.take(Verb::List, "services"), None);
    }

    #[test]
    fn places_are_found_across_parts() {
        let find = |at, parts: &[&str]| {
            let mut finder = Finder::new(at);
            let mut kept = String::new();
            for part in parts {
                match finder.before(part.as_bytes()) {
                    Some(length) => return Some(kept + &part[..length]),
                    None => kept.push_str(part),
                }
            }
            None
        };
        assert_eq!(find(Place::Bytes(0), &["ab"]).unwrap(), "");
        assert_eq!(find(Place::Bytes(3), &["ab", "cd"]).unwrap(), "abc");
        assert_eq!(find(Place::Events(0), &["a\n"]).unwrap(), "");
        assert_eq!(find(Place::Events(2), &["a\n", "b\nc\n"]).unwrap(), "a\nb\n");
        assert_eq!(find(Place::InEventAfter(1), &["aa\nbbbb\n", "c\n"]).unwrap(), "aa\nbb");
        assert_eq!(find(Place::InEventAfter(1), &["aa\n", "bbbb\n"]).unwrap(), "aa\nbb");
        assert_eq!(find(Place::Events(3), &["a\n", "b\n"]), None);
    }
}
