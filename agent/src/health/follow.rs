//! From what the sync loop does to what health is.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use proxier_core::cluster::Commit;
use proxier_core::ids::{IpFamily, NodeName};

use super::worker::Mailbox;
use super::{Health, NodeState};
use crate::source::{Object, SourceEvent};
use crate::sync::{Observer, Settings, Synced};

/// The cluster autoscaler is about to take this node away (core spec 4.3).
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";

/// Label of a Node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Follows the sync loop.
#[derive(Debug)]
pub(crate) struct Follower {
    health: Arc<Health>,
    mailbox: Arc<Mailbox>,
    node: NodeName,
    families: Vec<IpFamily>,
    zone: Option<String>,
    /// The first complete list was decided upon: from then on a commit tells what changed.
    complete: bool,
}

impl Follower {
    pub(crate) fn new(
        health: Arc<Health>,
        mailbox: Arc<Mailbox>,
        node: NodeName,
        families: Vec<IpFamily>,
    ) -> Self {
        Self { health, mailbox, node, families, zone: None, complete: false }
    }

    fn node_seen(&mut self, node: &Node) {
        if node.metadata.name.as_deref().map(NodeName::new).as_ref() != Some(&self.node) {
            return;
        }
        let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
        let leaves =
            node.metadata.deletion_timestamp.is_some() || taints.into_iter().any(|t| t.key == LEAVING);
        let state = if leaves { NodeState::Leaves } else { NodeState::Stays };
        let zone = node.metadata.labels.as_ref().and_then(|l| l.get(ZONE)).filter(|z| !z.is_empty());
        // a zone asks for a sync even before the lists are complete (core spec 6.1)
        let zone_changed = zone != self.zone.as_ref() && !self.complete;
        self.zone = zone.cloned();
        let families = &self.families;
        self.health.note(|health, now| {
            health.set_node(state);
            if zone_changed {
                families.iter().for_each(|f| health.queued(*f, now));
            }
        });
    }
}

impl Observer for Follower {
    fn events(&mut self, events: &[SourceEvent]) {
        self.health.note(|health, _| health.taken());
        for event in events {
            if let SourceEvent::Upsert(Object::Node(node)) = event {
                self.node_seen(node);
            }
        }
    }

    /// A failed sync is tried again within this, the reference's syncPeriod.
    fn settings(&mut self, settings: &Settings) {
        self.health.set_sync_period(settings.policy.retry_max);
    }

    fn committed(&mut self, _commit: &Commit) {
        self.complete = true;
    }

    fn queued(&mut self, family: IpFamily) {
        self.health.note(|health, now| health.queued(family, now));
    }

    fn decided(&mut self) {
        self.health.note(|health, _| health.decided());
    }

    fn synced(&mut self, synced: &Synced<'_>) {
        self.health.note(|health, now| health.updated(synced.family, now));
        self.mailbox.put(synced.snapshot);
    }
}
