//! The suite that every backend runs, on a text model of nftables: both layouts, both families.

use std::sync::Arc;

use backend_nftables::belief::Belief;
use backend_nftables::objects::Chain;
use backend_nftables::options::Layout;
use backend_nftables::plan::Plan;
use backend_nftables::{Nftables, Options, takeover, text};
use proxier_core::backend::{Backend, Plan as _};
use proxier_core::ids::{EndpointAddr, IpFamily, ServicePortName};
use proxier_core::names;
use proxier_testkit::conformance::{self, BeliefOf, Failure, Script, Subject, Tally};
use proxier_testkit::{corpus, nft};

/// Random clusters whose packets are walked, in each layout; both families each.
const CLUSTERS: u64 = 600;
/// Random packets for each cluster and family.
const PACKETS: usize = 50;
/// Random histories of each property, in each layout; both families each.
const HISTORIES: u64 = 40;
/// Random packets after each commit of a history.
const PACKETS_PER_COMMIT: usize = 6;

/// The backend with one layout.
#[derive(Clone, Debug)]
pub struct Nft(pub Layout);

impl Nft {
    fn options(&self) -> Options {
        Options { layout: self.0, ..Options::default() }
    }
}

impl Subject for Nft {
    type Backend = Nftables;
    type Model = nft::Ruleset;

    fn name(&self) -> String {
        format!("nftables, layout {:?}", self.0)
    }

    fn backend(&self, family: IpFamily) -> Nftables {
        Nftables::new(family, self.options())
    }

    fn script(plan: &Plan) -> Script<BeliefOf<Self>> {
        let mut entries = plan.entries();
        entries.truncate(plan.ops().len());
        let later = plan.later();
        assert_eq!(plan.operations(), entries.len() + later.len());
        let later = later.iter().map(|op| text::op_text(plan.table(), op)).collect();
        Script { entries, later, belief: plan.next().clone() }
    }

    fn take_over(&self, plan: &Plan, held: &Belief, model: &nft::Ruleset) -> Option<Plan> {
        let options = self.options();
        let mut observed = held.expected(&options);
        let table = model.table(plan.table().family, &plan.table().name)?;
        for name in held.doomed().filter(|name| table.chain(name).is_some()) {
            let emptied = Chain { name: Arc::clone(name), base: None, comment: None };
            observed.chains.insert(Arc::clone(name), (emptied, Vec::new()));
        }
        takeover::take_over(&options, plan, &observed)
    }

    fn keeps_clients(&self) -> bool {
        true
    }

    fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
        let base = names::endpoint_base(&names::base_of(port), endpoint);
        format!("affinity-{}", names::object_name(&base))
    }
}

const LAYOUTS: [Nft; 2] = [Nft(Layout::Maps), Nft(Layout::Chains)];

#[track_caller]
fn all(property: impl Fn(&Nft) -> Result<Tally, Failure>) -> [Tally; 2] {
    LAYOUTS.map(|layout| property(&layout).unwrap_or_else(|failure| panic!("{failure}")))
}

#[test]
fn packets_go_where_the_oracle_says() {
    for tally in all(|s| conformance::walks_as_decided(s, 0..CLUSTERS, PACKETS)) {
        println!("{tally:?}");
        let enough = usize::try_from(CLUSTERS).unwrap() * PACKETS * 2;
        assert!(tally.packets >= enough, "{tally:?}");
        // Every kind of end is asked for often enough to mean something.
        let kinds = [tally.balanced, tally.masqueraded, tally.rejected, tally.dropped, tally.untouched];
        assert!(kinds.iter().all(|n| *n > enough / 50), "{tally:?}");
        assert!(tally.recorded > enough / 100, "{tally:?}");
        assert_eq!(tally.gaps, 0, "this backend declares none");
    }
}

#[test]
fn the_corpus() {
    let cases = corpus::cases().unwrap();
    let questions: usize = cases.iter().map(|c| c.questions.len()).sum();
    for tally in all(|s| conformance::corpus(s, &cases)) {
        assert_eq!((tally.clusters, tally.packets), (cases.len(), questions));
    }
}

#[test]
fn partial_plans_lead_where_full_plans_lead() {
    for tally in all(|s| conformance::partial_equals_full(s, 0..HISTORIES, PACKETS_PER_COMMIT)) {
        println!("{tally:?}");
        assert!(tally.syncs > 500, "{tally:?}");
    }
}

#[test]
fn the_order_of_objects_does_not_matter() {
    all(|s| conformance::order_does_not_matter(s, 0..100));
}

#[test]
fn failed_applies_are_repaired() {
    for tally in all(|s| conformance::failures_are_repaired(s, 100..100 + HISTORIES / 2, PACKETS_PER_COMMIT))
    {
        println!("{tally:?}");
        assert!(tally.failures > 100, "{tally:?}");
    }
}

#[test]
fn refused_service_ports_are_set_aside() {
    for tally in
        all(|s| conformance::refused_ports_are_set_aside(s, 200..200 + HISTORIES / 2, PACKETS_PER_COMMIT))
    {
        println!("{tally:?}");
        assert!(tally.set_aside > 100, "{tally:?}");
    }
}

#[test]
fn restarts_end_right() {
    for tally in all(|s| conformance::restarts_end_right(s, 300..300 + HISTORIES / 2, PACKETS_PER_COMMIT)) {
        println!("{tally:?}");
        assert!(tally.syncs > 100 && tally.recorded > 20, "{tally:?}");
    }
}

/// A suite that cannot fail proves nothing: the same properties over a backend whose plans lack something.
mod broken {
    use super::*;

    /// Leaves out the operations that `without` names.
    #[derive(Clone)]
    struct Broken<const WHICH: usize>;

    const WITHOUT: [&str; 5] =
        ["@hairpin-connections", "short-circuit", "firewall-ips {", "delete element", "flush chain"];

    impl<const WHICH: usize> Subject for Broken<WHICH> {
        type Backend = Nftables;
        type Model = nft::Ruleset;

        fn name(&self) -> String {
            format!("without {}", WITHOUT[WHICH])
        }

        fn backend(&self, family: IpFamily) -> Nftables {
            Nftables::new(family, Options { table: Arc::from("t"), ..Options::default() })
        }

        fn script(plan: &<Nftables as Backend>::Plan) -> Script<BeliefOf<Self>> {
            let mut script = Nft::script(plan);
            script.entries.retain(|e| !e.text.contains(WITHOUT[WHICH]));
            script
        }

        fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
            Nft(Layout::Maps).affinity_record(port, endpoint)
        }
    }

    #[test]
    fn missing_rules_are_found() {
        let walks = [
            conformance::walks_as_decided(&Broken::<0>, 0..60, 50),
            conformance::walks_as_decided(&Broken::<1>, 0..60, 50),
            conformance::walks_as_decided(&Broken::<2>, 0..60, 50),
        ];
        assert!(walks.iter().all(Result::is_err), "{walks:?}");
        let histories = [
            conformance::partial_equals_full(&Broken::<3>, 0..10, 5),
            conformance::partial_equals_full(&Broken::<4>, 0..10, 5),
        ];
        assert!(histories.iter().all(Result::is_err), "{histories:?}");
    }
}
