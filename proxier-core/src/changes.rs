//! What differs between two snapshots of one family.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::ids::{Generation, ServicePortName};
use crate::snapshot::{ServicePort, Snapshot};

/// A service port that differs between two snapshots.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which one.
    pub name: ServicePortName,
    /// Before; `None` when it was added.
    pub old: Option<Arc<ServicePort>>,
    /// After; `None` when it was removed.
    pub new: Option<Arc<ServicePort>>,
}

/// All differences from one snapshot (or nothing) to another.
#[derive(Clone, Debug)]
pub struct ChangeSet {
    /// The generation it starts from; `None` starts from nothing.
    pub base: Option<Generation>,
    /// The generation it leads to.
    pub to: Generation,
    /// Node or configuration differ: every rule may.
    pub context_changed: bool,
    /// Service ports that differ, sorted by name.
    pub ports: Vec<Change>,
}

impl ChangeSet {
    /// What leads from `base` to `to`. Costs the differences, not the snapshots: shared parts are not looked at.
    #[must_use]
    pub fn between(base: Option<&Snapshot>, to: &Snapshot) -> Self {
        let Some(base) = base else {
            let ports = to
                .ports
                .iter()
                .map(|(name, new)| Change { name: name.clone(), old: None, new: Some(Arc::clone(new)) })
                .collect();
            return Self { base: None, to: to.generation(), context_changed: true, ports };
        };
        let ports = base
            .ports
            .diff(&to.ports)
            .filter_map(|item| match item {
                DiffItem::Add(name, new) => {
                    Some(Change { name: name.clone(), old: None, new: Some(Arc::clone(new)) })
                }
                DiffItem::Update { old: (name, old), new: (_, new) } => (!Arc::ptr_eq(old, new)).then(|| {
                    Change { name: name.clone(), old: Some(Arc::clone(old)), new: Some(Arc::clone(new)) }
                }),
                DiffItem::Remove(name, old) => {
                    Some(Change { name: name.clone(), old: Some(Arc::clone(old)), new: None })
                }
            })
            .collect();
        Self {
            base: Some(base.generation()),
            to: to.generation(),
            context_changed: !Arc::ptr_eq(base.context(), to.context()) && base.context() != to.context(),
            ports,
        }
    }

    /// Nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.context_changed && self.ports.is_empty()
    }
}
