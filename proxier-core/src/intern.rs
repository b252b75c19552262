//! One copy of what many objects repeat: names of nodes, zones, namespaces and ports. In a large cluster these are most of the memory
//! that an endpoint needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{EndpointSlice, Hints, Service};

/// Texts below this number are never looked through for those that nobody uses any more.
const FEW: usize = 1_024;

/// The copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    texts: BTreeSet<Arc<str>>,
    lists: BTreeSet<Arc<[Arc<str>]>>,
    /// How many there were after the last look for unused ones.
    used: usize,
}

impl Texts {
    /// Has a Service share what it repeats, and gives back room that it does not need.
    pub(crate) fn service(&mut self, service: &mut Service) {
        self.text(&mut service.name.namespace);
        service.ports.shrink_to_fit();
        for port in &mut service.ports {
            self.text(&mut port.name);
        }
    }

    /// The same for a slice.
    pub(crate) fn slice(&mut self, slice: &mut EndpointSlice) {
        self.text(&mut slice.name.service.namespace);
        slice.ports.shrink_to_fit();
        for port in &mut slice.ports {
            self.text(&mut port.name);
        }
        slice.endpoints.shrink_to_fit();
        for endpoint in &mut slice.endpoints {
            if let Some(node) = &mut endpoint.node {
                self.text(node);
            }
            let Hints { zones, nodes } = &mut endpoint.hints;
            for list in [zones, nodes].into_iter().flatten() {
                self.list(list);
            }
        }
    }

    /// Forgets what nobody uses, once there is twice as much as after the last time, so that the cost of a look is spread over what came in
    /// between; and everything when there is no object any more.
    pub(crate) fn forget_unused(&mut self, no_objects: bool) {
        if no_objects {
            *self = Self::default();
            return;
        }
        if self.len() < FEW.max(self.used.saturating_mul(2)) {
            return;
        }
        // Lists first: they use texts.
        self.lists.retain(|list| Arc::strong_count(list) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.used = self.len();
    }

    fn len(&self) -> usize {
        self.texts.len() + self.lists.len()
    }

    fn text(&mut self, text: &mut Arc<str>) {
        match self.texts.get(&**text) {
            Some(known) => *text = Arc::clone(known),
            None => drop(self.texts.insert(Arc::clone(text))),
        }
    }

    fn list(&mut self, list: &mut Arc<[Arc<str>]>) {
        if let Some(known) = self.lists.get(&**list) {
            *list = Arc::clone(known);
            return;
        }
        let mut own: Vec<Arc<str>> = list.to_vec();
        own.iter_mut().for_each(|text| self.text(text));
        *list = own.into();
        self.lists.insert(Arc::clone(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{IpFamily, ServiceName};
    use crate::model::{Conditions, SliceEndpoint, SliceName};

    fn slice(name: &str, node: &str, zone: &str) -> EndpointSlice {
        let endpoint = SliceEndpoint {
            ip: "10.0.0.1".parse().unwrap(),
            conditions: Conditions::default(),
            node: Some(node.into()),
            hints: Hints { zones: Some(Arc::new([zone.into()])), nodes: None },
        };
        EndpointSlice {
            name: SliceName { service: ServiceName::new("ns", name), name: name.into() },
            family: IpFamily::Ipv4,
            ports: Vec::new(),
            endpoints: Vec::from_iter([endpoint]),
            trigger: None,
        }
    }

    #[test]
    fn what_is_equal_is_one_copy_and_means_the_same() {
        let mut texts = Texts::default();
        let (mut a, mut b) = (slice("a", "node-1", "z"), slice("b", "node-1", "z"));
        let before = b.clone();
        texts.slice(&mut a);
        texts.slice(&mut b);
        assert_eq!(b, before);
        let (a, b) = (&a.endpoints[0], &b.endpoints[0]);
        assert!(Arc::ptr_eq(a.node.as_ref().unwrap(), b.node.as_ref().unwrap()));
        assert!(Arc::ptr_eq(a.hints.zones.as_ref().unwrap(), b.hints.zones.as_ref().unwrap()));
    }

    #[test]
    fn what_nobody_uses_is_forgotten_in_time() {
        let mut texts = Texts::default();
        let mut kept = slice("kept", "node", "zone");
        texts.slice(&mut kept);
        for i in 0..5_000 {
            texts.slice(&mut slice("s", &format!("node-{i}"), &format!("zone-{i}")));
            texts.forget_unused(false);
        }
        assert!(texts.len() <= FEW, "{}", texts.len());
        let mut again = slice("again", "node", "zone");
        texts.slice(&mut again);
        assert!(Arc::ptr_eq(
            again.endpoints[0].node.as_ref().unwrap(),
            kept.endpoints[0].node.as_ref().unwrap()
        ));
        texts.forget_unused(true);
        assert_eq!(texts.len(), 0);
    }
}
