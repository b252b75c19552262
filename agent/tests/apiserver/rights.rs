//! Rights that lack: one clear error, and everything well once they are given.

use std::thread;
use std::time::Duration;

use agent::source::ObjectKind;
use k8s_openapi::api::rbac::v1::PolicyRule;
use proxier_testkit::apiserver::{ApiServer, Verb};

use crate::stage::{Churn, Line, Run, kubeconfig, server, source};

const USER: &str = "system:serviceaccount:kube-system:proxier";

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(vec![resource.into()]),
        verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

const RULES: [(&str, &str); 4] = [
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
    ("", "nodes"),
    ("networking.k8s.io", "servicecidrs"),
];

fn grant(server: &ApiServer, but: &str, verbs: &[&str]) {
    let rules = RULES.iter().filter(|(_, r)| *r != but).map(|(g, r)| rule(g, r, verbs)).collect();
    server.allow(USER, None, rules);
}

struct Case {
    server: proxier_testkit::apiserver::BlockingApiServer,
    folder: tempfile::TempDir,
}

fn case(streaming: bool) -> Case {
    let builder = Line::Tls2.builder().streaming_lists(streaming).token("secret", USER).forbid(USER);
    Case { server: server(builder, 10), folder: tempfile::tempdir().expect("folder") }
}

impl Case {
    fn access(&self) -> agent::source::kubernetes::Access {
        kubeconfig(&self.folder, &self.server.kubeconfig(Some(USER)))
    }
}

#[test]
fn a_missing_right_is_named_once_and_enough_when_it_comes() {
    for (group, resource) in &RULES[..2] {
        let case = case(true);
        grant(&case.server, resource, &["list", "watch"]);
        let run = Run::start(case.access());
        let group = if group.is_empty() { "the core group".to_owned() } else { format!("group {group}") };
        let line = format!("not allowed: watch {resource} in {group}; grant it to {USER}");
        run.until("it was told", |_| run.told(&line) == 1);
        run.until("it is tried again", |_| case.server.requests(Verb::Watch, resource) > 4);
        assert_eq!(run.told(&line), 1, "{}", run.log());
        assert_eq!(run.view().synced, 0, "nothing before the first complete lists");
        grant(&case.server, "", &["list", "watch"]);
        run.settles(&case.server);
        assert_eq!(run.told("well again"), 1, "{}", run.log());
    }
}

#[test]
fn pages_need_the_right_to_list() {
    let case = case(false);
    grant(&case.server, "", &["watch"]);
    let run = Run::start(case.access());
    run.until("it was told", |_| {
        run.told(&format!("not allowed: list services in the core group; grant it to {USER}")) == 1
    });
    grant(&case.server, "", &["list"]);
    run.settles(&case.server);
}

#[test]
fn streaming_lists_need_only_the_right_to_watch() {
    let case = case(true);
    grant(&case.server, "", &["watch"]);
    let run = Run::start(case.access());
    run.settles(&case.server);
}

#[test]
fn ranges_can_be_done_without() {
    let case = case(true);
    grant(&case.server, "servicecidrs", &["list", "watch"]);
    let run = Run::start(case.access());
    run.until("synced", |v| v.synced == 1);
    run.until("told", |_| run.told("not allowed: watch servicecidrs in group networking.k8s.io") == 1);
    assert_eq!(run.told("going on without"), 1, "{}", run.log());
    grant(&case.server, "", &["list", "watch"]);
    run.until("there now", |v| v.count(ObjectKind::ServiceCidr) == 1);
    run.settles(&case.server);
}

#[test]
fn a_right_that_is_taken_away_leaves_everything_as_it_was() {
    let case = case(true);
    grant(&case.server, "", &["list", "watch"]);
    let run = Run::start(case.access());
    run.settles(&case.server);
    case.server.forbid(USER);
    case.server.end_watches();
    run.until("told", |_| run.told("not allowed: watch services") == 1);
    Churn::new(1).changes(&case.server, 10, 30);
    thread::sleep(Duration::from_millis(100));
    assert!(run.view().count(ObjectKind::Service) == 10, "nothing is deleted");
    grant(&case.server, "", &["list", "watch"]);
    run.settles(&case.server);
}

#[test]
fn whoever_reads_only_once_is_told_at_once() {
    let case = case(true);
    let (result, _) = Run::start_source(source(case.access()).once()).ends();
    let told = result.expect_err("forbidden").to_string();
    assert!(told.starts_with("source kubernetes: not allowed: watch "), "{told}");
    grant(&case.server, "servicecidrs", &["list", "watch"]);
    let run = Run::start_source(source(case.access()).once());
    run.until("synced", |v| v.synced == 1);
    let (result, log) = run.ends();
    assert!(result.is_ok(), "{log}");
    case.server.stop();
    let (result, _) = Run::start_source(source(case.access()).once()).ends();
    let told = result.expect_err("no server").to_string();
    assert!(told.contains("the API server cannot be reached: "), "{told}");
}
