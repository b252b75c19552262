//! What health is: a state over a clock that the caller reads (core spec 4.2 to 4.4).
//!
//! Healthy is who has the last desired state in the kernel, or has not had it for less than the timeout. Something is pending from the
//! moment at which a source hands it over, before anybody has looked at it: a loop that takes nothing any more is late, too.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use proxier_core::ids::IpFamily;
use proxier_core::model::PerFamily;
use serde::Serialize;

/// What stands for "never" in an answer.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A moment on both clocks: how long things take is measured on one that nobody sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since an origin; never goes back.
    pub since: Duration,
    /// What time it is.
    pub wall: Timestamp,
}

/// What is known of this node's Node object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It was not seen yet.
    Unknown,
    /// It is there.
    Stays,
    /// It is deleted, or about to be: deletionTimestamp, or the cluster autoscaler's taint.
    Leaves,
}

#[derive(Clone, Copy, Debug, Default)]
struct Family {
    last_updated: Option<Timestamp>,
    oldest_pending: Option<Duration>,
}

/// The state.
#[derive(Clone, Debug)]
pub struct State {
    timeout: Duration,
    node_required: bool,
    node: NodeState,
    families: PerFamily<Family>,
    /// When batches were handed over that nobody took in yet, the oldest first.
    handed: VecDeque<Duration>,
    /// When the oldest of those was handed over that were taken in and not decided upon.
    deciding: Option<Duration>,
}

impl State {
    /// Nothing has happened. Late is what is pending for twice `sync_period`. With `node_required`, a Node that is not known is not
    /// eligible.
    #[must_use]
    pub fn new(sync_period: Duration, node_required: bool) -> Self {
        Self {
            timeout: timeout(sync_period),
            node_required,
            node: NodeState::Unknown,
            families: PerFamily::default(),
            handed: VecDeque::new(),
            deciding: None,
        }
    }

    /// Takes over another `syncPeriod`.
    pub fn set_sync_period(&mut self, sync_period: Duration) {
        self.timeout = timeout(sync_period);
    }

    /// A source is about to hand over a batch.
    pub fn handed_over(&mut self, now: Moment) {
        self.handed.push_back(now.since);
    }

    /// The oldest batch was taken in.
    pub fn taken(&mut self) {
        let at = self.handed.pop_front();
        self.deciding = self.deciding.or(at);
    }

    /// What was taken in is decided upon: whatever it changes has been [`State::queued`].
    pub fn decided(&mut self) {
        self.deciding = None;
    }

    /// This family needs a sync, since what is being decided upon was handed over.
    pub fn queued(&mut self, family: IpFamily, now: Moment) {
        let since = self.deciding.unwrap_or(now.since);
        self.families.get_mut(family).oldest_pending.get_or_insert(since);
    }

    /// This family's desired state is in the kernel.
    pub fn updated(&mut self, family: IpFamily, now: Moment) {
        *self.families.get_mut(family) = Family { last_updated: Some(now.wall), oldest_pending: None };
    }

    /// Takes over what is known of the Node.
    pub fn set_node(&mut self, node: NodeState) {
        self.node = node;
    }

    /// May load balancers send traffic to this node (core spec 4.3)?
    #[must_use]
    pub fn eligible(&self) -> bool {
        match self.node {
            NodeState::Unknown => !self.node_required,
            NodeState::Stays => true,
            NodeState::Leaves => false,
        }
    }

    /// Is no family late?
    #[must_use]
    pub fn healthy(&self, now: Moment) -> bool {
        IpFamily::ALL.into_iter().all(|family| self.family_healthy(family, now))
    }

    /// A family that was never reported cannot be late.
    fn family_healthy(&self, family: IpFamily, now: Moment) -> bool {
        let family = self.families.get(family);
        let not_decided = self.deciding.or(self.handed.front().copied());
        let oldest = [family.oldest_pending, not_decided].into_iter().flatten().min();
        let late = oldest.is_some_and(|at| now.since.saturating_sub(at) >= self.timeout);
        family.last_updated.is_none() || !late
    }

    /// What `/healthz` answers: status and body.
    #[must_use]
    pub fn healthz(&self, now: Moment) -> (u16, String) {
        let eligible = self.eligible();
        self.answer(now, Some(eligible), self.healthy(now) && eligible)
    }

    /// What `/livez` answers: status and body.
    #[must_use]
    pub fn livez(&self, now: Moment) -> (u16, String) {
        self.answer(now, None, self.healthy(now))
    }

    fn answer(&self, now: Moment, node_eligible: Option<bool>, well: bool) -> (u16, String) {
        let newest = IpFamily::ALL.iter().filter_map(|f| self.families.get(*f).last_updated).max();
        let last_updated = if well { Some(now.wall) } else { newest };
        let body = Body {
            last_updated: last_updated.map_or_else(|| NEVER.to_owned(), |t| t.to_string()),
            current_time: now.wall.to_string(),
            node_eligible,
            healthy: self.healthy(now),
            status: self.reported(now).collect(),
        };
        let text = serde_json::to_string(&body).unwrap_or_default();
        (if well { 200 } else { 503 }, text)
    }

    fn reported(&self, now: Moment) -> impl Iterator<Item = (String, FamilyBody)> {
        IpFamily::ALL.into_iter().filter_map(move |family| {
            let last_updated = self.families.get(family).last_updated?.to_string();
            let healthy = self.family_healthy(family, now);
            Some((family.to_string(), FamilyBody { last_updated, healthy }))
        })
    }
}

fn timeout(sync_period: Duration) -> Duration {
    sync_period.saturating_mul(2)
}

/// The fields stand in the order in which they are sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    status: BTreeMap<String, FamilyBody>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyBody {
    last_updated: String,
    healthy: bool,
}
