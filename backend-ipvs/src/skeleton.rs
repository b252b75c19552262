//! The iptables rules: they depend on the environment and on which sets have entries, and on no service (ipvs spec 5).
//!
//! Beside the reference's rules there are some of our own. What must not get through is refused at the top of `KUBE-IPVS-FILTER`, which is asked
//! before IPVS is; source ranges, and refusals that hold for everybody, are asked about what this host sends in `mangle`, the last place
//! before IPVS in which packets can be dropped; and what this host sends to frontends whose policy is Local is masqueraded, since its source
//! is the frontend's own address, to which no other node could reply.

use proxier_core::ids::{IpFamily, Protocol};
use proxier_xtables::objects::{ChainId, Input, Op, Rule, Step, Table};
use proxier_xtables::rule::{Draft, End};
use proxier_xtables::saved::Saved;

use crate::environment::Environment;
use crate::sets::{Filled, SetId};

/// What is sent to services.
pub const SERVICES: &str = "KUBE-SERVICES";
/// The way out.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Node ports, in nat; health check node ports, in filter.
pub const NODE_PORT: &str = "KUBE-NODE-PORT";
/// VIPs.
pub const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
/// Asks for masquerading, and returns.
pub const MARK_MASQ: &str = "KUBE-MARK-MASQ";
/// What is forwarded.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Who is asked about source ranges; in mangle, and about refusals.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// Source ranges.
pub const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
/// What of this host must not be reached by addresses of services.
pub const FILTER: &str = "KUBE-IPVS-FILTER";
/// Empty; the reference drops here what this host sends to VIPs that it may not reach.
pub const OUT_FILTER: &str = "KUBE-IPVS-OUT-FILTER";

/// Destination and port.
const FRONTEND: &str = "dst,dst";
/// Destination, port and source.
const WITH_SOURCE: &str = "dst,dst,src";
/// A port of this host.
const PORT: &str = "dst";

/// Chains with their rules.
pub type Chains = Vec<(ChainId, Vec<Rule>)>;

/// A chain.
#[must_use]
pub fn chain(table: Table, name: &str) -> ChainId {
    ChainId { table, name: name.into() }
}

/// All chains of ours with their rules.
#[must_use]
pub fn chains(env: &Environment, filled: Filled) -> Chains {
    use Table::{Filter, Mangle, Nat};
    let write = Writer { env, filled };
    vec![
        (chain(Filter, FORWARD), write.forward()),
        (chain(Filter, NODE_PORT), write.health_checks()),
        (chain(Filter, PROXY_FIREWALL), write.restricted()),
        (chain(Filter, SOURCE_RANGES), write.source_ranges()),
        (chain(Filter, FILTER), write.filter()),
        (chain(Filter, OUT_FILTER), Vec::new()),
        (chain(Mangle, PROXY_FIREWALL), write.before_ipvs()),
        (chain(Mangle, SOURCE_RANGES), write.source_ranges()),
        (chain(Nat, SERVICES), write.services()),
        (chain(Nat, POSTROUTING), write.postrouting()),
        (chain(Nat, NODE_PORT), write.node_ports()),
        (chain(Nat, LOAD_BALANCER), write.load_balancer()),
        (chain(Nat, MARK_MASQ), vec![set_mark(env.mark, env.mark)]),
    ]
}

/// The names of all chains of ours.
#[must_use]
pub fn names() -> [ChainId; 13] {
    use Table::{Filter, Mangle, Nat};
    let names = [
        (Filter, FORWARD),
        (Filter, NODE_PORT),
        (Filter, PROXY_FIREWALL),
        (Filter, SOURCE_RANGES),
        (Filter, FILTER),
        (Filter, OUT_FILTER),
        (Mangle, PROXY_FIREWALL),
        (Mangle, SOURCE_RANGES),
        (Nat, SERVICES),
        (Nat, POSTROUTING),
        (Nat, NODE_PORT),
        (Nat, LOAD_BALANCER),
        (Nat, MARK_MASQ),
    ];
    names.map(|(table, name)| chain(table, name))
}

/// The jumps, in the order in which they are looked at: each that is missing goes to the top (ipvs spec 5). The last one is ours.
#[must_use]
pub fn jumps() -> Vec<(ChainId, Rule)> {
    use Table::{Filter, Mangle, Nat};
    let firewall = "kube-proxy firewall rules";
    let access = "kubernetes ipvs access filter";
    let rows = [
        (Nat, "OUTPUT", "kubernetes service portals", SERVICES),
        (Nat, "PREROUTING", "kubernetes service portals", SERVICES),
        (Nat, "POSTROUTING", "kubernetes postrouting rules", POSTROUTING),
        (Filter, "FORWARD", "kubernetes forwarding rules", FORWARD),
        (Filter, "INPUT", "kubernetes health check rules", NODE_PORT),
        (Filter, "INPUT", firewall, PROXY_FIREWALL),
        (Filter, "FORWARD", firewall, PROXY_FIREWALL),
        (Filter, "INPUT", access, FILTER),
        (Filter, "OUTPUT", access, OUT_FILTER),
        (Mangle, "OUTPUT", firewall, PROXY_FIREWALL),
    ];
    rows.map(|(table, from, comment, to)| (chain(table, from), Draft::new().comment(comment).jump(to))).into()
}

/// The masks are the tool's words for "set these bits" (both numbers alike) and "flip them" (mask 0).
fn set_mark(mark: u32, mask: u32) -> Rule {
    Draft::new().jump(&format!("MARK --set-xmark {mark:#x}/{mask:#x}"))
}

struct Writer<'a> {
    env: &'a Environment,
    filled: Filled,
}

impl Writer<'_> {
    /// Looks into a set, with the comment that belongs to it.
    fn about(&self, draft: Draft, id: SetId, ends: &str) -> Draft {
        self.plain(draft.comment(id.comment()), id, ends)
    }

    fn plain(&self, draft: Draft, id: SetId, ends: &str) -> Draft {
        draft.in_set(&id.name(self.env.family), ends)
    }

    /// Rules that are left out while nothing is in the set.
    fn if_filled<const N: usize>(&self, id: SetId, rules: impl FnOnce() -> [Rule; N]) -> Vec<Rule> {
        if self.filled.has(id) { rules().into() } else { Vec::new() }
    }

    /// From elsewhere than local pods; `None` if nothing is.
    fn not_from_pods(&self) -> Option<Draft> {
        match &self.env.pods {
            None => Some(Draft::new()),
            Some(pods) => pods.narrow(Draft::new(), true),
        }
    }

    /// Masquerades what this host sends to frontends in this set: with their own address as the source, only replies from here would arrive.
    fn own(&self, narrow: impl FnOnce(Draft) -> Draft, id: SetId, ends: &str) -> Option<Rule> {
        let draft = narrow(self.not_from_pods()?).comment(id.comment()).local(End::Source);
        Some(self.plain(draft, id, ends).jump(MARK_MASQ)).filter(|_| self.filled.has(id))
    }

    fn services(&self) -> Vec<Rule> {
        use SetId::{ClusterIp, ExternalIp, ExternalIpLocal, LoadBalancer};
        let about = |id| self.about(Draft::new(), id, FRONTEND);
        let accept = |id: SetId| {
            [
                about(id).not_bridged().foreign(End::Source).jump("ACCEPT"),
                about(id).local(End::Destination).jump("ACCEPT"),
            ]
        };
        let done = |id: SetId| [self.plain(Draft::new(), id, FRONTEND).jump("ACCEPT")];
        let mut out = vec![Draft::new().source(false, loopback(self.env.family)).jump("RETURN")];
        out.extend(self.if_filled(LoadBalancer, || [about(LoadBalancer).jump(LOAD_BALANCER)]));
        out.extend(self.cluster_ips());
        out.extend(self.if_filled(ExternalIp, || [about(ExternalIp).jump(MARK_MASQ)]));
        out.extend(self.if_filled(ExternalIp, || accept(ExternalIp)));
        out.extend(self.own(|d| d, ExternalIpLocal, FRONTEND));
        out.extend(self.if_filled(ExternalIpLocal, || accept(ExternalIpLocal)));
        out.push(Draft::new().local(End::Destination).jump(NODE_PORT));
        out.extend(self.if_filled(ClusterIp, || done(ClusterIp)));
        out.extend(self.if_filled(LoadBalancer, || done(LoadBalancer)));
        out
    }

    /// All of it, what does not come from local pods, or, where these cannot be told, what this host sends: it has the cluster IP as its source.
    fn cluster_ips(&self) -> Option<Rule> {
        let id = SetId::ClusterIp;
        let (draft, ends) = match &self.env.pods {
            _ if self.env.masquerade_all => (Some(Draft::new()), FRONTEND),
            Some(_) => (self.not_from_pods(), FRONTEND),
            None => (Some(Draft::new()), "src,dst"),
        };
        let rule = self.about(draft?, id, ends).jump(MARK_MASQ);
        Some(rule).filter(|_| self.filled.has(id))
    }

    fn load_balancer(&self) -> Vec<Rule> {
        let id = SetId::LoadBalancerLocal;
        let mut out: Vec<Rule> = self.own(|d| d, id, FRONTEND).into_iter().collect();
        out.extend(self.if_filled(id, || [self.about(Draft::new(), id, FRONTEND).jump("RETURN")]));
        out.push(Draft::new().jump(MARK_MASQ));
        out
    }

    fn node_ports(&self) -> Vec<Rule> {
        let rows = [
            (Protocol::Tcp, SetId::NodePortLocalTcp, SetId::NodePortTcp, PORT),
            (Protocol::Udp, SetId::NodePortLocalUdp, SetId::NodePortUdp, PORT),
            (Protocol::Sctp, SetId::NodePortLocalSctp, SetId::NodePortSctp, FRONTEND),
        ];
        let mut out = Vec::new();
        for (protocol, kept, all, ends) in rows {
            let about = |id| self.about(Draft::new().protocol(protocol), id, ends);
            out.extend(self.own(|d| d.protocol(protocol), kept, ends));
            out.extend(self.if_filled(kept, || [about(kept).jump("RETURN")]));
            out.extend(self.if_filled(all, || [about(all).jump(MARK_MASQ)]));
        }
        out
    }

    /// The mark is cleared before, so that a packet that comes by again, from a tunnel, is not masqueraded twice.
    fn postrouting(&self) -> Vec<Rule> {
        let masquerade = if self.env.facts.random_fully { "MASQUERADE --random-fully" } else { "MASQUERADE" };
        let hairpin = || [self.about(Draft::new(), SetId::LoopBack, WITH_SOURCE).jump("MASQUERADE")];
        let mut out = self.if_filled(SetId::LoopBack, hairpin);
        out.push(Draft::new().mark(true, self.env.mark).jump("RETURN"));
        out.push(set_mark(self.env.mark, 0));
        out.push(Draft::new().comment("kubernetes service traffic requiring SNAT").jump(masquerade));
        out
    }

    fn forward(&self) -> Vec<Rule> {
        let known = Draft::new().comment("kubernetes forwarding conntrack rule");
        vec![
            Draft::new().comment("kubernetes forwarding rules").mark(false, self.env.mark).jump("ACCEPT"),
            known.ct_state(false, "RELATED,ESTABLISHED").jump("ACCEPT"),
        ]
    }

    fn health_checks(&self) -> Vec<Rule> {
        vec![self.about(Draft::new(), SetId::HealthCheck, PORT).jump("ACCEPT")]
    }

    fn restricted(&self) -> Vec<Rule> {
        let id = SetId::LoadBalancerFw;
        self.if_filled(id, || [self.about(Draft::new(), id, FRONTEND).jump(SOURCE_RANGES)])
    }

    fn source_ranges(&self) -> Vec<Rule> {
        let pass = |id| self.if_filled(id, || [self.about(Draft::new(), id, WITH_SOURCE).jump("RETURN")]);
        let mut out = pass(SetId::LoadBalancerSourceCidr);
        out.extend(pass(SetId::LoadBalancerSourceIp));
        out.push(Draft::new().jump("DROP"));
        out
    }

    /// What this host sends, as long as its destination still is the frontend.
    fn before_ipvs(&self) -> Vec<Rule> {
        let mut out = self.restricted();
        out.extend(self.dropped());
        out
    }

    /// What must not get to endpoints of other nodes. What has neither a pod's nor this host's source can be sent by this host, too, by a
    /// transparent proxy.
    fn dropped(&self) -> Vec<Rule> {
        let mut out = vec![self.refuse(Draft::new(), SetId::Drop).jump("DROP")];
        if let Some(draft) = self.not_from_pods() {
            let id = SetId::DropOutside;
            let draft = draft.comment(id.comment()).foreign(End::Source).ct_state(false, "NEW");
            out.push(self.plain(draft, id, FRONTEND).jump("DROP"));
        }
        out
    }

    /// New connections to what is in this set; those that are open may go on.
    fn refuse(&self, draft: Draft, id: SetId) -> Draft {
        self.plain(draft.comment(id.comment()).ct_state(false, "NEW"), id, FRONTEND)
    }

    /// Source ranges come before refusals: who is not let in is not told that nobody is there.
    fn filter(&self) -> Vec<Rule> {
        let mut out = self.restricted();
        let reject = |draft| self.refuse(draft, SetId::Reject);
        out.push(reject(Draft::new().protocol(Protocol::Tcp)).reset());
        out.push(reject(Draft::new()).reject(self.env.family));
        out.extend(self.dropped());
        let known = [SetId::LoadBalancer, SetId::ClusterIp, SetId::ExternalIp, SetId::ExternalIpLocal];
        out.extend(known.map(|id| self.plain(Draft::new(), id, FRONTEND).jump("RETURN")));
        out.push(self.plain(Draft::new(), SetId::HealthCheck, PORT).jump("RETURN"));
        let rest = self.plain(Draft::new().ct_state(false, "NEW"), SetId::IpvsIps, PORT);
        out.push(rest.reject(self.env.family));
        out
    }
}

/// The loopback range of a family.
fn loopback(family: IpFamily) -> ipnet::IpNet {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match family {
        IpFamily::Ipv4 => ipnet::Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
        IpFamily::Ipv6 => ipnet::Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128).into(),
    }
}

/// What turns chains into others; `None` if they are the same. Each table changes as one.
#[must_use]
pub fn between(before: &Chains, after: &Chains) -> Option<Input> {
    let held = |id: &ChainId| before.iter().find(|(old, _)| old == id).map(|(_, rules)| rules);
    input(after.iter().filter(|(id, rules)| held(id) != Some(rules)), Vec::new())
}

/// The same from what was found, with the jumps that are missing.
#[must_use]
pub fn from_saved(saved: &Saved, after: &Chains) -> Option<Input> {
    let differing = after.iter().filter(|(id, rules)| saved.chains.get(id) != Some(rules));
    input(differing, missing_jumps(saved))
}

/// The jumps that are not there.
#[must_use]
pub fn missing_jumps(saved: &Saved) -> Vec<(ChainId, Rule)> {
    jumps().into_iter().filter(|(from, rule)| saved.position(from, rule).is_none()).collect()
}

fn input<'a>(
    chains: impl Iterator<Item = &'a (ChainId, Vec<Rule>)> + Clone,
    jumps: Vec<(ChainId, Rule)>,
) -> Option<Input> {
    let heads = chains.clone().map(|(id, _)| Op::Chain(id.clone()));
    let rules = chains.flat_map(|(id, rules)| rules.iter().map(|r| Op::Append(id.clone(), r.clone())));
    let jumps = jumps.into_iter().map(|(from, rule)| Op::Insert(from, rule));
    let mut steps: Vec<Step> = heads.chain(rules).chain(jumps).map(|op| Step { op, port: None }).collect();
    // Stable: within a table chains come before rules, and rules before the jumps that lead there. What drops comes before what
    // translates.
    steps.sort_by_key(|step| step.op.chain().table);
    (!steps.is_empty()).then_some(Input { steps })
}
