//! The suite's own parts: what counts as the same state, and kernels that fail. The properties are tried on a backend that is
//! small enough to be right at a glance.

use proxier_core::backend::{
    ApplyReport, Backend, BackendError as _, Capabilities, CleanupReport, Drift, Plan, ProgressSink,
    RenderInput, RetryClass, SetAside, Unsupported,
};
use proxier_core::changes::ChangeSet;
use proxier_core::ids::{Generation, IpFamily, Protocol};
use proxier_core::oracle::{Choice, Entry};

use super::*;
use crate::build::Scenario;
use crate::nft::Ruleset;

/// A table with two endpoints in some order, and a chain for each of two clients' sets.
fn table(first: &str, second: &str, size: usize) -> Ruleset {
    let text = format!(
        "add table ip t\n\
         add map ip t m {{ type ipv4_addr . integer : ipv4_addr . inet_service ; size {size} ; }}\n\
         add chain ip t a\n\
         add chain ip t b\n\
         add chain ip t c\n\
         add set ip t sa {{ type ipv4_addr ; }}\n\
         add set ip t sb {{ type ipv4_addr ; }}\n\
         add rule ip t c ip saddr @s{first} goto {first}\n\
         add rule ip t c ip saddr @s{second} goto {second}\n\
         add rule ip t c numgen random mod 2 vmap {{ 0 : goto {first}, 1 : goto {second} }}\n\
         add element ip t m {{ 10.0.0.1 . 0 : 10.1.0.{} . 80, 10.0.0.1 . 1 : 10.1.0.{} . 80 }}\n",
        first.len() + usize::from(first == "b"),
        second.len() + usize::from(second == "b"),
    );
    crate::nft::parse(&text).unwrap()
}

#[test]
fn order_of_endpoints_sizes_and_emptied_chains_do_not_count() {
    let (one, mut other) = (table("a", "b", 10), table("b", "a", 20));
    assert_eq!(one.objects(), other.objects());
    Model::apply(&mut other, "add chain ip t emptied\n").unwrap();
    assert_eq!(one.objects(), other.objects());
}

#[test]
fn everything_else_counts() {
    let one = table("a", "b", 10);
    let changes = [
        "add element ip t m { 10.0.0.1 . 2 : 10.1.0.1 . 80 }",
        "delete element ip t m { 10.0.0.1 . 0 }",
        "add rule ip t a drop",
        "add chain ip t x { type filter hook input priority 0 ; }",
        "add set ip t s { type ipv4_addr ; }",
        "add element ip t sa { 10.0.0.1 }",
        "add rule ip t c numgen random mod 2 vmap { 0 : goto a, 1 : goto a }",
    ];
    for change in changes {
        let mut other = one.clone();
        Model::apply(&mut other, &format!("{change}\n")).unwrap();
        assert_ne!(one.objects(), other.objects(), "{change}");
    }
}

#[test]
fn a_mark_for_masquerading_is_not_seen_where_packets_are_delivered() {
    let host = WalkHost::new(["10.0.0.3".parse().unwrap()]);
    let choice = |ip: &str, masquerade| Choice {
        endpoint: EndpointAddr { ip: ip.parse().unwrap(), port: proxier_core::ids::Port::new(80).unwrap() },
        weight: 1,
        masquerade,
    };
    let both = |here, there| Outcome::Endpoints(vec![choice("10.0.0.3", here), choice("10.0.0.4", there)]);
    let packet = |entry| Packet {
        source: "10.0.0.9".parse().unwrap(),
        destination: "10.96.0.1".parse().unwrap(),
        protocol: Some(Protocol::Tcp),
        port: 80,
        entry,
    };
    let received = packet(Entry::Interface("eth0".into()));
    assert_eq!(observable(both(true, true), &received, &host), both(false, true));
    assert_eq!(observable(both(true, true), &packet(Entry::Host), &host), both(true, true));
    assert_eq!(observable(Outcome::Drop, &received, &host), Outcome::Drop);
}

/// Drops every packet to a cluster IP, one rule for each service port: the right thing to do only in a cluster without endpoints.
#[derive(Clone)]
struct Dropper;

struct DropPlan(Vec<PlanEntry>, Generation);

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl proxier_core::backend::BackendError for Never {
    fn retry_class(&self) -> RetryClass {
        RetryClass::Bug
    }
    fn refused(&self) -> &[proxier_core::backend::Refused] {
        &[]
    }
}

impl Plan for DropPlan {
    fn entries(&self) -> Vec<PlanEntry> {
        self.0.clone()
    }
    fn operations(&self) -> usize {
        self.0.len()
    }
    fn is_full(&self) -> bool {
        true
    }
    fn unsupported(&self) -> &[Unsupported] {
        &[]
    }
}

impl Backend for Dropper {
    type Plan = DropPlan;
    type Belief = Generation;
    type Error = Never;

    fn name(&self) -> &'static str {
        "dropper"
    }
    fn family(&self) -> IpFamily {
        IpFamily::Ipv4
    }
    fn probe(&mut self) -> Result<Capabilities, Never> {
        Err(Never)
    }
    fn render(&self, input: RenderInput<'_, Generation>) -> DropPlan {
        let shared = |text: &str| PlanEntry { text: text.into(), port: None };
        let mut entries = vec![
            shared("add table ip t"),
            shared("delete table ip t"),
            shared("add table ip t"),
            shared("add chain ip t f { type filter hook prerouting priority -110 ; }"),
        ];
        for port in input.snapshot.ports().filter(|p| !input.set_aside.contains_key(&p.name)) {
            let text = format!("add rule ip t f ip daddr {} drop", port.spec.cluster_ip);
            entries.push(PlanEntry { text, port: Some(port.name.clone()) });
        }
        DropPlan(entries, input.snapshot.generation())
    }
    fn check(&mut self, _: &DropPlan) -> Result<(), Never> {
        Err(Never)
    }
    fn apply(&mut self, _: DropPlan, _: ProgressSink<'_>) -> Result<(Generation, ApplyReport), Never> {
        Err(Never)
    }
    fn verify(&mut self, _: &Generation) -> Result<Drift, Never> {
        Err(Never)
    }
    fn compare(&mut self, _: &Snapshot) -> Result<Drift, Never> {
        Err(Never)
    }
    fn observer(&self) -> Self {
        Self
    }
    fn cleanup(&mut self) -> Result<CleanupReport, Never> {
        Err(Never)
    }
}

impl Subject for Dropper {
    type Backend = Self;
    type Model = Ruleset;

    fn name(&self) -> String {
        "dropper".into()
    }
    fn backend(&self, _: IpFamily) -> Self {
        Self
    }
    fn script(plan: &DropPlan) -> Script<Generation> {
        Script { entries: plan.0.clone(), later: Vec::new(), belief: plan.1 }
    }
    fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
        entry.port.as_ref() == Some(port)
    }
    fn affinity_record(&self, _: &ServicePortName, _: EndpointAddr) -> String {
        "none".into()
    }
}

#[test]
fn a_backend_that_only_drops_is_found_out() {
    let failure = walks_as_decided(&Dropper, 0..20, 50).unwrap_err();
    assert_eq!(failure.subject, "dropper");
    assert!(failure.what.contains("walked:") && failure.what.contains("wanted:"), "{failure}");
    assert!(walk_scenario(&Dropper, &Scenario::from_seed(1), 1, 200).is_err());
}

#[test]
fn a_kernel_fails_when_told_to_and_then_changes_nothing() {
    let commit = (0..)
        .map(|s| Scenario::from_seed(s).cluster().commit())
        .find(|c| c.snapshot(IpFamily::Ipv4).len() > 1)
        .unwrap();
    let snapshot = commit.snapshot(IpFamily::Ipv4);
    let kernel = Kernel::default();
    let mut backend = TextKernel::new(&Dropper, IpFamily::Ipv4, kernel.clone());
    let (changes, set_aside) = (ChangeSet::between(None, snapshot), SetAside::new());
    let plan = |b: &TextKernel<Dropper>| {
        b.render(RenderInput { snapshot, changes: &changes, belief: None, set_aside: &set_aside })
    };
    kernel.fail_after(1);
    let first = plan(&backend);
    backend.apply(first, &mut |_| {}).unwrap();
    let before = kernel.model();
    let second = plan(&backend);
    assert_eq!(backend.apply(second, &mut |_| {}).unwrap_err().retry_class(), RetryClass::Transient);
    assert_eq!(kernel.model(), before);
    let bad = snapshot.ports().next().unwrap().name.clone();
    kernel.refuse(bad.clone());
    let third = plan(&backend);
    let error = backend.apply(third, &mut |_| {}).unwrap_err();
    assert_eq!(error.refused().iter().map(|r| &r.port).collect::<Vec<_>>(), [&bad]);
    kernel.heal();
    let fourth = plan(&backend);
    backend.apply(fourth, &mut |_| {}).unwrap();
    assert_eq!(kernel.applies(), 4);
    assert!(backend.compare(snapshot).unwrap().is_empty());
    assert!(kernel.refusals().is_empty());
    backend.cleanup().unwrap();
    assert!(!backend.compare(snapshot).unwrap().is_empty());
}
