//! Chains that translate, by the number of endpoints there are to choose from.
//!
//! Most frontends are cluster IPs with few endpoints. They have no element with a verdict, since whenever one is added the kernel walks all there
//! are; static chains find them by asking for each number up to [`FEW`] in turn. All others have such an element, which names the chain that
//! serves their kind and number.

use crate::container::Container;
use crate::layout::{Environment, goto, masquerade_rule, regular, rule};
use crate::objects::{Chain, Name, Rule, Selector, Stmt};

/// Most endpoints of a cluster IP that is found without a verdict.
///
/// Each further number costs the first packets of connections to larger services one lookup, and spares services of that size the kernel's walk
/// over all verdicts when their number changes. Eight lookups cost about 0.3 of the 8 microseconds that a new flow takes (`docs/bench.md`).
pub const FEW: u32 = 8;

/// Bits that an index has for itself; the number of endpoints stands above them.
const INDEX_BITS: u32 = 16;

/// Translates for cluster IPs with few endpoints.
pub const CLUSTER_DISPATCH: &str = "cluster-dispatch";
/// Translates what the number of endpoints changed under the eyes of.
const CLUSTER_DISPATCH_AGAIN: &str = "cluster-dispatch-again";

const ADDRESS: [Selector; 3] = [Selector::DestAddr, Selector::L4Proto, Selector::DestPort];
const NODE_PORT: [Selector; 2] = [Selector::L4Proto, Selector::DestPort];

/// Index of the first endpoint of a cluster IP with internal policy Cluster: a range for each number up to [`FEW`], so that asking for
/// another number than there is finds nothing; beyond it from 0, as with every other frontend.
#[must_use]
pub fn first_index(endpoints: u32) -> u32 {
    if endpoints <= FEW { endpoints << INDEX_BITS } else { 0 }
}

/// A chain that serves every frontend of one kind with the same numbers of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountChain {
    /// Cluster IP, internal policy Cluster, more than [`FEW`].
    Cluster(u32),
    /// Cluster IP, internal policy Local.
    InternalLocal(u32),
    /// External IP or VIP, external policy Cluster.
    ExternalCluster(u32),
    /// Node port, external policy Cluster.
    NodePortCluster(u32),
    /// External IP or VIP, external policy Local: endpoints in the cluster, endpoints on this node.
    ExternalLocal(u32, u32),
    /// Node port, external policy Local: endpoints in the cluster, endpoints on this node.
    NodePortLocal(u32, u32),
}

impl CountChain {
    /// Its name in the kernel.
    #[must_use]
    pub fn name(self) -> Name {
        match self {
            Self::Cluster(n) => format!("cluster-{n}"),
            Self::InternalLocal(n) => format!("internal-local-{n}"),
            Self::ExternalCluster(n) => format!("external-cluster-{n}"),
            Self::NodePortCluster(n) => format!("nodeport-cluster-{n}"),
            Self::ExternalLocal(c, n) => format!("external-local-{c}-{n}"),
            Self::NodePortLocal(c, n) => format!("nodeport-local-{c}-{n}"),
        }
        .into()
    }

    /// Its rules.
    #[must_use]
    pub fn rules(self, env: &Environment) -> Vec<Rule> {
        use Container::{ClusterEndpoints, LocalEndpoints, NodePortClusterEndpoints, NodePortLocalEndpoints};
        match self {
            Self::Cluster(n) => marked(env, vec![rule([dnat(ClusterEndpoints, n, 0)]), again()]),
            Self::InternalLocal(n) => marked(env, to_one_of(LocalEndpoints, n)),
            Self::ExternalCluster(n) => [vec![masquerade_rule()], to_one_of(ClusterEndpoints, n)].concat(),
            Self::NodePortCluster(n) => {
                [vec![masquerade_rule()], to_one_of(NodePortClusterEndpoints, n)].concat()
            }
            Self::ExternalLocal(c, n) => {
                env.local_policy(&to_one_of(ClusterEndpoints, c), to_one_of(LocalEndpoints, n))
            }
            Self::NodePortLocal(c, n) => env
                .local_policy(&to_one_of(NodePortClusterEndpoints, c), to_one_of(NodePortLocalEndpoints, n)),
        }
    }
}

/// The chains for cluster IPs with few endpoints, each with its rules. Whoever comes here is translated, but for a policy that changes
/// in the same moment.
#[must_use]
pub fn dispatch(env: &Environment) -> [(Chain, Vec<Rule>); 2] {
    let each = || (1..=FEW).map(|n| rule([dnat(Container::ClusterEndpoints, n, first_index(n))]));
    let first = marked(env, each().chain([again()]).collect());
    let many = commented(dnat(Container::ClusterEndpoints, 1, 0), "the count just left this range");
    [
        (regular(&CLUSTER_DISPATCH.into()), first),
        (regular(&CLUSTER_DISPATCH_AGAIN.into()), each().chain([many]).collect()),
    ]
}

/// A packet may be on its way through the numbers when the endpoints move to one that was asked for already. The second time finds them.
fn again() -> Rule {
    commented(goto(&CLUSTER_DISPATCH_AGAIN.into()), "the count just changed")
}

/// Traffic to a cluster IP: marked as the node's configuration asks, then this.
fn marked(env: &Environment, rules: Vec<Rule>) -> Vec<Rule> {
    env.masquerade_cluster_ip(None).into_iter().chain(rules).collect()
}

/// Translates to one of `n` endpoints; no rule for none.
///
/// A packet may be here when the number falls: the index that chance gives it may be gone by then. The first is there as long as any is.
fn to_one_of(map: Container, n: u32) -> Vec<Rule> {
    match n {
        0 => Vec::new(),
        1 => vec![rule([dnat(map, 1, 0)])],
        _ => vec![rule([dnat(map, n, 0)]), commented(dnat(map, 1, 0), "the count just fell")],
    }
}

fn commented(stmt: Stmt, comment: &str) -> Rule {
    Rule { stmts: vec![stmt], comment: Some(comment.into()) }
}

fn dnat(map: Container, modulus: u32, offset: u32) -> Stmt {
    let by_node_port = matches!(map, Container::NodePortClusterEndpoints | Container::NodePortLocalEndpoints);
    let selectors = if by_node_port { NODE_PORT.to_vec() } else { ADDRESS.to_vec() };
    Stmt::DnatMap { selectors, modulus, offset, map: map.name().into() }
}

#[cfg(test)]
mod tests {
    use proxier_core::cluster::{Cluster, TrafficOptions};
    use proxier_core::ids::{IpFamily, NodeName};

    use super::*;

    /// Does asking for one of `modulus` from `offset` on find an endpoint whatever chance says, where a cluster IP has `endpoints`?
    fn finds(rule: &Rule, endpoints: u32) -> bool {
        let there = first_index(endpoints)..first_index(endpoints) + endpoints;
        matches!(rule.stmts[..], [Stmt::DnatMap { modulus, offset, .. }]
            if there.contains(&offset) && there.contains(&(offset + modulus - 1)))
    }

    #[test]
    fn whenever_the_number_changes_a_packet_on_its_way_is_translated() {
        let mut cluster = Cluster::new(NodeName::new("one"), TrafficOptions::default());
        let env = Environment::new(cluster.commit().snapshot(IpFamily::Ipv4).context(), IpFamily::Ipv4);
        let [first, again] = dispatch(&env).map(|(_, rules)| rules);
        let few = [first, again.clone()].concat();
        for before in 1..=FEW + 3 {
            let way = if before <= FEW {
                few.clone()
            } else {
                [CountChain::Cluster(before).rules(&env), again.clone()].concat()
            };
            assert!(way.iter().any(|rule| finds(rule, before)), "{before}");
            for after in 1..=FEW + 3 {
                // The commit comes after each of the questions, or before the first.
                for asked in 0..=way.len() {
                    let (old, new) = way.split_at(asked);
                    let met = old.iter().any(|rule| finds(rule, before))
                        || new.iter().any(|rule| finds(rule, after));
                    assert!(met, "{before} to {after} after {asked} rules");
                }
            }
        }
    }

    #[test]
    fn no_two_numbers_of_endpoints_share_an_index() {
        let indices = |n: u32| first_index(n)..first_index(n) + n;
        for n in 1..=FEW + 2 {
            // Other frontends, and those with more than few, have indices from 0 on; no number of endpoints fills the bits.
            assert!(n > FEW || indices(n).start > u32::from(u16::MAX));
            for other in (1..=FEW).filter(|other| *other != n) {
                assert!(!indices(n).any(|index| indices(other).contains(&index)), "{n} and {other}");
            }
        }
    }
}
