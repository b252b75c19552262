//! What the kernel is believed to hold, and what that should look like in a dump.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use proxier_core::ids::{Generation, ServicePortName};

use crate::container::{Container, Sizes};
use crate::fragment::{self, Programmed, Shared};
use crate::layout::{self, Environment};
use crate::objects::{Chain, Element, Key, Name, Observed, ObservedElement, ObservedRule, Rule, Set, Value};
use crate::options::Options;

/// Number of elements in each container.
pub(crate) type Counts = BTreeMap<Container, usize>;

/// What the kernel is believed to hold. Cheap to clone: its maps are persistent.
#[derive(Clone, Debug)]
pub struct Belief {
    pub(crate) generation: Generation,
    pub(crate) env: Arc<Environment>,
    pub(crate) ports: OrdMap<ServicePortName, Arc<Programmed>>,
    /// How many service ports need each shared thing.
    pub(crate) shared: OrdMap<Shared, u32>,
    pub(crate) counts: Counts,
    pub(crate) sizes: Arc<Sizes>,
    /// Chains that were emptied and are to be deleted by a later plan: kernels before 6.2 keep a chain busy for a while after the map
    /// element that named it is gone (nftables spec 6.3), and a packet on its way there sees the rules it had only until the next commit.
    pub(crate) doomed: BTreeSet<Name>,
}

impl Belief {
    /// Nothing but the skeleton.
    pub(crate) fn new(generation: Generation, env: Environment) -> Self {
        Self {
            generation,
            env: Arc::new(env),
            ports: OrdMap::new(),
            shared: OrdMap::new(),
            counts: Counts::new(),
            sizes: Arc::new(Sizes::default()),
            doomed: BTreeSet::new(),
        }
    }

    /// Number of service ports that are programmed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// No service port is programmed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Chains that are still to be deleted.
    pub fn doomed(&self) -> impl Iterator<Item = &Name> {
        self.doomed.iter()
    }

    /// What a dump of the kernel should show.
    #[must_use]
    pub fn expected(&self, options: &Options) -> Observed {
        let mut out = Expected::default();
        for container in layout::containers(&self.env) {
            out.set(container.set(self.sizes.get(container)));
        }
        for (chain, rules) in layout::chains(&self.env, options) {
            out.chain(chain, rules);
        }
        for element in layout::node_port_ips(&self.env) {
            out.element(Container::NodePortIps, element);
        }
        for shared in self.shared.keys() {
            match *shared {
                Shared::Element(container, key) => out.element(container, plain(key)),
                Shared::Chain(chain) => out.chain(layout::regular(&chain.name()), chain.rules(&self.env)),
            }
        }
        for programmed in self.ports.values() {
            let comment = comment(&programmed.port.name);
            let fragment = programmed.fragment(&self.env, options);
            for (container, key, value) in fragment.elements {
                out.element(container, fragment::element(container, key, value, &comment));
            }
            for (name, rules) in fragment.chains {
                out.chain(layout::regular(&name), rules);
            }
            for set in fragment.sets {
                out.set(set);
            }
        }
        out.finish()
    }
}

/// An element of a set.
pub(crate) fn plain(key: Key) -> Element {
    Element { key, value: Value::None, comment: None }
}

/// The service port's name, cut to what nft takes as a comment: 128 bytes with the terminating zero.
pub(crate) fn comment(port: &ServicePortName) -> Name {
    proxier_core::names::truncate_comment(&port.to_string(), 127).into()
}

#[derive(Default)]
struct Expected {
    chains: BTreeMap<Name, (Chain, Vec<ObservedRule>)>,
    sets: BTreeMap<Name, (Set, Vec<ObservedElement>)>,
}

impl Expected {
    fn set(&mut self, set: Set) {
        self.sets.insert(Arc::clone(&set.name), (set, Vec::new()));
    }

    fn chain(&mut self, chain: Chain, rules: Vec<Rule>) {
        let rules = rules.into_iter().map(ObservedRule::Known).collect();
        self.chains.insert(Arc::clone(&chain.name), (chain, rules));
    }

    fn element(&mut self, container: Container, element: Element) {
        if let Some((_, elements)) = self.sets.get_mut(container.name()) {
            elements.push(ObservedElement::Known(element));
        }
    }

    fn finish(mut self) -> Observed {
        for (_, elements) in self.sets.values_mut() {
            elements.sort_unstable();
        }
        Observed { exists: true, chains: self.chains, sets: self.sets }
    }
}
