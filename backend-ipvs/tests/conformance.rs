//! The suite that every backend runs, on a model of a kernel that has IPVS: both families.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

mod kit;
#[path = "kit/subject.rs"]
mod subject;

use proxier_testkit::conformance::{self, Failure, Tally};
use proxier_testkit::corpus;
use subject::Servers;

/// Random clusters whose packets are walked, each in both families.
const CLUSTERS: u64 = 1200;
/// Random packets for each cluster and family.
const PACKETS: usize = 50;
/// Random histories of each property, both families each.
const HISTORIES: u64 = 40;
/// Random packets after each commit of a history.
const PACKETS_PER_COMMIT: usize = 6;

const IDLE: Servers = Servers { busy: false };

#[track_caller]
fn holds(property: Result<Tally, Failure>) -> Tally {
    property.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn packets_go_where_the_oracle_says() {
    let tally = holds(conformance::walks_as_decided(&IDLE, 0..CLUSTERS, PACKETS));
    let enough = tally.clusters * PACKETS * 2;
    assert!(tally.packets >= enough, "{tally:?}");
    // Every kind of end is asked for often enough to mean something.
    let kinds = [tally.balanced, tally.masqueraded, tally.rejected, tally.dropped, tally.untouched];
    assert!(kinds.iter().all(|n| *n > enough / 50), "{tally:?}");
    assert!(tally.recorded > enough / 100, "{tally:?}");
    assert!(tally.gaps < enough / 4, "{tally:?}");
}

#[test]
fn the_corpus() {
    let cases = corpus::cases().unwrap();
    let questions: usize = cases.iter().map(|c| c.questions.len()).sum();
    let tally = holds(conformance::corpus(&IDLE, &cases));
    assert_eq!((tally.clusters, tally.packets), (cases.len(), questions));
}

#[test]
fn partial_plans_lead_where_full_plans_lead() {
    for busy in [false, true] {
        let subject = Servers { busy };
        let tally = holds(conformance::partial_equals_full(&subject, 0..2 * HISTORIES, PACKETS_PER_COMMIT));
        assert!(tally.syncs > 500, "{tally:?}");
    }
}

#[test]
fn the_order_of_objects_does_not_matter() {
    holds(conformance::order_does_not_matter(&IDLE, 0..60));
}

#[test]
fn failed_applies_are_repaired() {
    let seeds = 100..100 + HISTORIES;
    let tally = holds(conformance::failures_are_repaired(&IDLE, seeds, PACKETS_PER_COMMIT));
    assert!(tally.failures > 80, "{tally:?}");
}

#[test]
fn refused_service_ports_are_set_aside() {
    let seeds = 200..200 + HISTORIES;
    let tally = holds(conformance::refused_ports_are_set_aside(&IDLE, seeds, PACKETS_PER_COMMIT));
    assert!(tally.set_aside > 60, "{tally:?}");
}

#[test]
fn restarts_end_right() {
    let seeds = 300..300 + HISTORIES;
    let tally = holds(conformance::restarts_end_right(&IDLE, seeds, PACKETS_PER_COMMIT));
    assert!(tally.syncs > 100 && tally.recorded > 20, "{tally:?}");
}

/// A suite that cannot fail proves nothing: the same properties over a backend whose plans lack something.
mod broken {
    use std::cell::Cell;

    use backend_ipvs::belief::Belief;
    use backend_ipvs::plan::Plan;
    use proxier_core::backend::{PlanEntry, TakeOver};
    use proxier_core::ids::{EndpointAddr, IpFamily, ServicePortName};
    use proxier_core::oracle::{Decision, Packet};
    use proxier_core::snapshot::Snapshot;
    use proxier_testkit::conformance::{Gap, Script, Subject};
    use proxier_testkit::ipvs::Host;

    use super::*;
    use crate::subject::Rendering;

    /// Leaves out the lines that contain this.
    #[derive(Clone)]
    struct Without(&'static str);

    thread_local! {
        static LEFT_OUT: Cell<&'static str> = const { Cell::new("") };
    }

    impl Without {
        fn new(what: &'static str) -> Self {
            LEFT_OUT.set(what);
            Self(what)
        }

        fn thinned(mut script: Script<Belief>) -> Script<Belief> {
            script.entries.retain(|e| !e.text.contains(LEFT_OUT.get()));
            script
        }
    }

    impl Subject for Without {
        type Backend = Rendering;
        type Model = Host;

        fn name(&self) -> String {
            format!("without {}", self.0)
        }

        fn backend(&self, family: IpFamily) -> Rendering {
            IDLE.backend(family)
        }

        fn script(plan: &Plan) -> Script<Belief> {
            Self::thinned(Servers::script(plan))
        }

        fn replacing(plan: &Plan, model: &Host) -> Script<Belief> {
            Self::thinned(Servers::replacing(plan, model))
        }

        fn take_over(&self, plan: Plan, held: &Belief, model: &Host) -> TakeOver<Plan> {
            IDLE.take_over(plan, held, model)
        }

        fn adds_for(&self, entry: &PlanEntry, port: &ServicePortName) -> bool {
            IDLE.adds_for(entry, port)
        }

        fn affinity_record(&self, port: &ServicePortName, endpoint: EndpointAddr) -> String {
            IDLE.affinity_record(port, endpoint)
        }

        fn gap(&self, snapshot: &Snapshot, packet: &Packet, decision: &Decision) -> Option<Gap> {
            IDLE.gap(snapshot, packet, decision)
        }
    }

    #[test]
    fn is_found_out() {
        for what in [
            "-A KUBE-SERVICES -m addrtype --dst-type LOCAL",
            "KUBE-LOOP-BACK dst,dst,src -j MASQUERADE",
            "-j KUBE-LOAD-BALANCER",
            "-j KUBE-SOURCE-RANGES-FIREWALL",
            "-A KUBE-SOURCE-RANGES-FIREWALL -j DROP",
            "NODE-PORT-LOCAL-TCP dst -j RETURN",
            "LOAD-BALANCER-LOCAL dst,dst -j RETURN",
            "--src-type LOCAL -m set",
            "IPVS-DROP dst,dst -j DROP",
            "IPVS-DROP-OUTSIDE dst,dst -j DROP",
            "IPVS-IPS dst -j REJECT",
            "address add",
            "-SOURCE-CID",
            "EXTERNAL-IP dst,dst -j KUBE-MARK-MASQ",
        ] {
            let walks = conformance::walks_as_decided(&Without::new(what), 0..100, 50);
            assert!(walks.is_err(), "without {what}: {walks:?}");
        }
        for what in ["del KUBE-", "address del", "-D -", " -w 0", "-E -"] {
            let histories = conformance::partial_equals_full(&Without::new(what), 0..20, 5);
            assert!(histories.is_err(), "without {what}: {histories:?}");
        }
    }
}
