//! What the pages and the desk answer.

use std::sync::atomic::Ordering;

use hyper::Request;
use proxier_core::driver::Printer;
use proxier_core::model::TrafficPolicy;
use serde_json::{Value, json};

use super::*;
use crate::admin::desk::Papers;
use crate::http::{Head, Response};
use crate::registry::BACKENDS;
use crate::sync::Order;
use crate::world::Problems;

fn head(method: &str, target: &str) -> Head {
    Request::builder().method(method).uri(target).body(()).expect("a request").into_parts().0
}

fn pages(rig: &Rig, profiling: bool) -> Pages {
    let configz = json!({"kubeproxy.config.k8s.io": {"kind": "KubeProxyConfiguration", "mode": "fake"}});
    Pages::new(Arc::clone(&rig.insight), configz, vec!["run".to_owned(), "--node=n1".to_owned()], profiling)
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).expect("text")
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
}

#[test]
fn the_metrics_server_answers_as_the_peers() {
    let rig = Rig::running(2);
    let pages = pages(&rig, false);
    let get = |target: &str| pages.answer(&head("GET", target));
    let mode = get("/proxyMode");
    assert_eq!((mode.status, text(&mode)), (200, "fake"), "no end of line");
    assert_eq!(header(&mode, "Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(header(&mode, "X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(text(&get("/healthz")), "ok");
    assert_eq!(text(&get("/healthz/ping")), "ok");
    assert_eq!(text(&get("/healthz?verbose")), "[+]ping ok\nhealthz check passed\n");
    let configz = get("/configz");
    assert_eq!(header(&configz, "Content-Type"), Some("application/json"));
    let value: Value = serde_json::from_slice(&configz.body).expect("JSON");
    assert_eq!(value, json!({"kubeproxy.config.k8s.io": {"kind": "KubeProxyConfiguration", "mode": "fake"}}));
    pages.set_configz(json!({"mode": "other"}));
    assert!(text(&get("/configz")).contains("other"));
    let metrics = get("/metrics");
    assert_eq!(header(&metrics, "Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(!text(&metrics).contains("# EOF"));
    let slis = get("/metrics/slis");
    assert!(
        text(&slis)
            .contains("kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 3\n")
    );
    assert!(text(&get("/flagz")).ends_with("\n\nrun\n--node=n1\n"));
    let statusz = get("/statusz");
    assert!(
        text(&statusz).contains("IPv4: generation 1 in force, 1 desired; 2 service ports, 0 set aside"),
        "{}",
        text(&statusz)
    );
    let pages = pages.without(vec!["/flagz"]);
    let get = |target: &str| pages.answer(&head("GET", target));
    assert_eq!((get("/flagz").status, get("/statusz").status), (404, 200), "a gate is off");
    for path in ["/", "/metrics/", "/livez", "/debug/pprof/", "/debug/flags/v"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
}

#[test]
fn profiling_opens_what_there_is() {
    let rig = Rig::running(1);
    let pages = pages(&rig, true);
    let pprof = pages.answer(&head("GET", "/debug/pprof/heap"));
    assert_eq!(pprof.status, 404);
    assert!(text(&pprof).contains("Go's runtime"));
    assert_eq!(pages.answer(&head("GET", "/debug/flags/v")).status, 405);
    assert_eq!(pages.answer(&head("PUT", "/debug/flags/v")).status, 400);
    assert_eq!(pages.answer(&head("PUT", "/debug/flags/v?v=loud")).status, 400);
}

struct Office {
    rig: Rig,
    desk: Desk,
    orders: Arc<Mutex<Vec<Order>>>,
}

impl Office {
    /// At most one order is taken.
    fn new(rig: Rig, printers: Vec<Printer>) -> Self {
        let orders = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&orders);
        let give = move |order| {
            let mut taken = taken.lock().expect("no panic");
            let room = taken.is_empty();
            if room {
                taken.push(order);
            }
            room
        };
        let papers = Papers {
            node: scale::NODE.to_owned(),
            source: "manifests",
            problems: Problems::default(),
            printers: Arc::new(Mutex::new(printers)),
            give: Box::new(give),
            asked: Arc::clone(&rig.asked),
        };
        Self { desk: Desk::new(Arc::clone(&rig.insight), papers), rig, orders }
    }

    #[track_caller]
    fn ask(&self, method: &str, target: &str, status: u16) -> Value {
        let response = self.desk.answer(&head(method, target));
        assert_eq!(
            (response.status, header(&response, "Content-Type")),
            (status, Some("application/json")),
            "{}",
            text(&response)
        );
        serde_json::from_slice(&response.body).expect("JSON")
    }
}

#[test]
fn status_tells_how_it_is() {
    let mut rig = Rig::new("fake", Figures::NONE);
    let mut office = {
        rig.cluster.upsert_service(scale::service(0));
        Office::new(rig, Vec::new())
    };
    let fresh = office.ask("GET", "/status", 200);
    assert_eq!(
        (&fresh["node"], &fresh["mode"], &fresh["source"]["listed"]),
        (&json!("node-0"), &json!("fake"), &json!(false))
    );
    assert_eq!(fresh["families"][0]["inForceGeneration"], Value::Null);
    office.rig.follower.events(&[crate::source::SourceEvent::Synced]);
    office.rig.round();
    office.rig.set_aside.insert(port(0), "EINVAL".to_owned());
    office.rig.sync(IpFamily::Ipv4, SyncKind::Full);
    office.rig.follower.verified("fake", IpFamily::Ipv4, 2);
    office.rig.cluster.upsert_service(scale::service(1));
    office.rig.commit();
    office.rig.fail(IpFamily::Ipv4, SyncKind::Partial);
    let status = office.ask("GET", "/status", 200);
    assert_eq!(status["source"]["listed"], true);
    let family = &status["families"][0];
    assert_eq!(
        (&family["family"], &family["desiredGeneration"], &family["inForceGeneration"]),
        (&json!("IPv4"), &json!(2), &json!(1))
    );
    assert_eq!(family["pendingSince"], NOW);
    assert_eq!(family["lastFailure"], json!({"at": NOW, "class": "transient", "error": "no room"}));
    assert_eq!(family["failuresInARow"], 1);
    assert_eq!(
        family["setAside"],
        json!({"count": 1, "first": [{"servicePort": "bench/svc-0:http/tcp", "reason": "EINVAL"}]})
    );
    assert_eq!(family["lastVerification"], json!({"at": NOW, "differences": 2}));
    assert_eq!(family["lastSync"]["kind"], "full");
    assert_eq!(status["families"][1]["pendingSince"], Value::Null);
}

#[test]
fn a_snapshot_says_who_is_used_and_why_not() {
    let mut rig = Rig::new("fake", Figures::NONE);
    let mut service = scale::service(1);
    service.ports[0].node_port = proxier_core::ids::Port::new(30_080);
    service.external_policy = TrafficPolicy::Local;
    rig.cluster.upsert_service(service);
    let mut slice = scale::slice(1, 4, 0);
    slice.endpoints[0].node = Some(scale::NODE.into());
    slice.endpoints[2].conditions =
        proxier_core::model::Conditions { ready: false, serving: true, terminating: true };
    slice.endpoints[3].conditions =
        proxier_core::model::Conditions { ready: false, serving: false, terminating: false };
    rig.cluster.upsert_slice(slice);
    rig.cluster.upsert_service(scale::service(2));
    rig.commit();
    let office = Office::new(rig, Vec::new());
    let answer = office.ask("GET", "/snapshot?service=bench/svc-1&family=ipv4", 200);
    let family = &answer["families"][0];
    assert_eq!((&family["generation"], &family["inForce"]), (&json!(1), &json!(false)));
    let port = &family["servicePorts"][0];
    assert_eq!(port["servicePort"], "bench/svc-1:http/tcp");
    assert_eq!((&port["internalPolicy"], &port["externalPolicy"]), (&json!("Cluster"), &json!("Local")));
    let verdicts: Vec<(&Value, &Value)> = port["endpoints"]
        .as_array()
        .expect("list")
        .iter()
        .map(|e| (&e["verdict"]["cluster"], &e["verdict"]["local"]))
        .collect();
    let [used, away, going, down] =
        ["used", "not on this node", "terminating, and others are ready", "not ready"].map(Value::from);
    assert_eq!(verdicts, [(&used, &used), (&used, &away), (&going, &away), (&down, &down)]);
    assert_eq!(answer["families"].as_array().map(Vec::len), Some(1), "IPv4 only");
    let all = office.ask("GET", "/snapshot?family=4", 200);
    assert_eq!(all["families"][0]["servicePorts"].as_array().map(Vec::len), Some(2));
    assert_eq!(office.ask("GET", "/snapshot?state=in_force", 200), json!({"families": []}));
    for target in
        ["/snapshot?service=web", "/snapshot?family=ipx", "/snapshot?state=x", "/rules?service=%2Fa"]
    {
        assert!(office.ask("GET", target, 400)["error"].is_string(), "{target}");
    }
    // Only the cluster's endpoints are of use to one that is not reachable from outside.
    let plain = office.ask("GET", "/snapshot?service=bench%2Fsvc-2", 200);
    assert_eq!(plain["families"][0]["servicePorts"][0]["endpoints"], json!([]));
}

#[test]
fn rules_are_those_of_the_backend() {
    for entry in BACKENDS {
        let factory = entry.configure(None).expect("defaults are sound");
        let instances = IpFamily::ALL.map(|family| factory.instance(family));
        let printers = instances.iter().map(|i| i.printer()).collect();
        let mut rig = Rig::running(3);
        rig.set_aside.insert(port(2), "EINVAL".to_owned());
        rig.sync(IpFamily::Ipv4, SyncKind::Full);
        let expected = instances[0].render(rig.force.ipv4.as_ref().expect("in force")).entries;
        let office = Office::new(rig, printers);
        let mode = entry.section.name;
        let answer = office.ask("GET", "/rules?service=bench/svc-1", 200);
        let ours: Vec<&str> = answer["plans"][0]["operations"]
            .as_array()
            .expect("list")
            .iter()
            .filter_map(|o| o["text"].as_str())
            .collect();
        let theirs: Vec<&str> =
            expected.iter().filter(|e| e.port == Some(port(1))).map(|e| e.text.as_str()).collect();
        assert!(!ours.is_empty(), "{mode}");
        assert_eq!(ours, theirs, "{mode}");
        let left_out = office.ask("GET", "/rules?service=bench/svc-2", 200);
        assert_eq!(left_out["plans"][0]["operations"], json!([]), "{mode}: set aside");
        let all = office.ask("GET", "/rules", 200);
        assert!(all["plans"][0]["operations"].as_array().map(Vec::len) > Some(ours.len()), "{mode}");
        assert_eq!(all["plans"][1]["family"], "IPv6");
    }
}

#[test]
fn syncs_are_listed_from_the_newest() {
    let mut rig = Rig::running(1);
    rig.cluster.upsert_service(scale::service(1));
    rig.commit();
    rig.sync(IpFamily::Ipv4, SyncKind::Partial);
    let office = Office::new(rig, Vec::new());
    let answer = office.ask("GET", "/syncs", 200);
    let syncs = answer["syncs"].as_array().expect("list");
    assert_eq!(syncs.len(), 3);
    assert_eq!(syncs[0]["difference"]["added"], json!({"count": 1, "first": ["bench/svc-1:http/tcp"]}));
    assert_eq!(
        (&syncs[0]["asked"], &syncs[0]["setAside"], &syncs[0]["error"]),
        (&json!("partial"), &json!(0), &Value::Null)
    );
}

#[test]
fn orders_go_to_the_loop_and_never_wait() {
    let office = Office::new(Rig::running(1), Vec::new());
    assert_eq!(office.ask("POST", "/sync", 202), json!({"asked": "sync"}));
    assert!(office.rig.asked.load(Ordering::Relaxed));
    assert_eq!(*office.orders.lock().expect("no panic"), [Order::Sync]);
    assert!(office.ask("POST", "/verify", 503)["error"].is_string(), "no room");
    office.orders.lock().expect("no panic").clear();
    assert_eq!(office.ask("POST", "/verify", 202), json!({"asked": "verify"}));
    assert_eq!(*office.orders.lock().expect("no panic"), [Order::Verify]);
    for (method, target, status) in [
        ("GET", "/sync", 405),
        ("POST", "/status", 405),
        ("GET", "/", 404),
        ("PUT", "/log", 400),
        ("PUT", "/log?level=loud", 400),
    ] {
        assert!(office.ask(method, target, status)["error"].is_string(), "{method} {target}");
    }
}
