//! Each recorded answer of a real server (1.36.2), compared byte for byte: status, every header but the date, body.
//!
//! The state is what the real server had: the objects as they were recorded and, where only their number or their
//! absence shows, the manifests they came from. Versions, uids and times are set, nothing is masked. Two request lines
//! cannot be sent as they were recorded: that of `list-expired-continue` hides its token, and the Event that was posted
//! is not part of `event-create`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use proxier_testkit::apiserver::{ApiServer, Builder};
use serde_json::{Value, json};

use crate::client::{Answer, Ask, ask, until};

/// A recorded exchange.
struct Recording {
    method: String,
    uri: String,
    answer: Answer,
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/api"))
}

fn recording(name: &str) -> Recording {
    let text = std::fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
    let (head, body) = text.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let (method, uri) = lines.next().unwrap().strip_prefix("> ").unwrap().split_once(' ').unwrap();
    let status = lines.next().unwrap().strip_prefix("HTTP/2 ").unwrap().trim().parse().unwrap();
    let headers: BTreeMap<String, String> = lines
        .map(|line| {
            line.split_once(": ").map(|(name, value)| (name.to_owned(), value.trim().to_owned())).unwrap()
        })
        .collect();
    // The recorder ended each file with line breaks of its own.
    let length = headers.get("content-length").map(|length| length.parse::<usize>().unwrap());
    let body = match length {
        Some(length) => {
            assert!(body[length..].trim().is_empty(), "{name}");
            body[..length].to_owned()
        }
        None => {
            let stream = uri.contains("watch=1");
            let body = body.trim_end();
            if stream && !body.is_empty() { format!("{body}\n") } else { body.to_owned() }
        }
    };
    Recording { method: method.to_owned(), uri: uri.to_owned(), answer: Answer { status, headers, body } }
}

impl Recording {
    fn items(&self) -> Vec<Value> {
        let list = self.answer.json();
        let (kind, version) =
            (list["kind"].as_str().unwrap().strip_suffix("List").unwrap(), &list["apiVersion"]);
        let whole = |item: &Value| {
            let mut item = item.clone();
            item["kind"] = kind.into();
            item["apiVersion"] = version.clone();
            item
        };
        list["items"].as_array().unwrap().iter().map(whole).collect()
    }
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"])
}

/// Brings the server to the state at version 144, in which most answers were recorded.
fn fill(server: &ApiServer) {
    let mut recorded: Vec<Value> = Vec::new();
    for name in ["services-list-page1", "services-list-page2", "endpointslices-list", "servicecidrs-list"] {
        recorded.extend(recording(name).items());
    }
    recorded.push(recording("node-get").answer.json());
    let here = recording("watchlist-initial").answer.events().remove(1).1;
    assert_eq!(here["metadata"]["name"], "here");
    recorded.push(here);
    let names: BTreeSet<String> = recorded.iter().map(identity).collect();
    let mut by_version: BTreeMap<u64, Value> =
        recorded.into_iter().map(|object| (version_of(&object), object)).collect();
    let manifests = include_str!("../../corpus/peer/state.yaml");
    let manifests: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    let mut others = manifests.into_iter().filter(|object| !names.contains(&identity(object)));
    // Nothing was there at version 2.
    for version in 3..=144 {
        let next = by_version.remove(&version).or_else(|| if version > 16 { others.next() } else { None });
        if let Some(object) = next {
            server.put_at(object, version).unwrap();
        }
    }
    assert_eq!((by_version.len(), others.count()), (0, 0));
    if server.revision() < 144 {
        server.advance_to(144).unwrap();
    }
    assert_eq!(server.all::<Value>("services").unwrap().len(), 16);
}

/// The builder of a server that says at once what the future cannot give.
fn builder() -> Builder {
    ApiServer::builder().future_wait(Duration::from_millis(10))
}

async fn filled() -> ApiServer {
    let server = builder().start().await.unwrap();
    fill(&server);
    server
}

/// Sends the recorded request and compares the answer.
async fn check(server: &ApiServer, name: &str) {
    let recording = recording(name);
    assert_eq!(recording.method, "GET", "{name}");
    let answer = ask(server.address(), &Ask::get(&recording.uri)).await;
    assert_eq!(answer, recording.answer, "{name}");
}

#[test]
fn every_recording_has_its_test() {
    let tests: BTreeSet<String> = include_str!("recorded.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("async fn ")?.split_once("() {"))
        .map(|(name, _)| name.replace('_', "-"))
        .collect();
    let files = std::fs::read_dir(folder()).unwrap();
    let files: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap().strip_suffix(".txt").unwrap().to_owned())
        .collect();
    assert!(files.len() >= 24);
    let missing: Vec<_> = files.difference(&tests).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn endpointslices_list() {
    check(&filled().await, "endpointslices-list").await;
}

#[tokio::test]
async fn servicecidrs_list() {
    check(&filled().await, "servicecidrs-list").await;
}

#[tokio::test]
async fn node_get() {
    check(&filled().await, "node-get").await;
}

#[tokio::test]
async fn nodes_list_field() {
    check(&filled().await, "nodes-list-field").await;
}

#[tokio::test]
async fn not_found() {
    check(&filled().await, "not-found").await;
}

#[tokio::test]
async fn services_list_page1() {
    check(&filled().await, "services-list-page1").await;
}

#[tokio::test]
async fn services_list_page2() {
    let server = filled().await;
    check(&server, "services-list-page2").await;
    // A page of a list that was begun is of the version it was begun at, whatever happens meanwhile.
    server.delete("services", "node", "gone").unwrap();
    server.delete("services", "web", "front").unwrap();
    let early =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "early", "name": "x"}});
    server.put(early).unwrap();
    check(&server, "services-list-page2").await;
}

#[tokio::test]
async fn services_list_bad_continue() {
    check(&filled().await, "services-list-bad-continue").await;
}

#[tokio::test]
async fn list_exact_old() {
    check(&filled().await, "list-exact-old").await;
}

#[tokio::test]
async fn list_exact_expired() {
    let server = filled().await;
    server.compact(61);
    check(&server, "list-exact-expired").await;
}

#[tokio::test]
async fn list_expired_continue() {
    let server = filled().await;
    server.compact(100);
    let recording = recording("list-expired-continue");
    let (path, token) = recording.uri.split_once("<a token of a compacted revision>").unwrap();
    assert_eq!(token, "");
    // The answer's token goes on where the request's would have.
    let token = BASE64URL_NOPAD.encode(br#"{"v":"meta.k8s.io/v1","rv":60,"start":"/web/front"}"#);
    let answer = ask(server.address(), &Ask::get(&format!("{path}{token}"))).await;
    assert_eq!(answer, recording.answer);
    let next = answer.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = ask(server.address(), &Ask::get(&format!("{path}{next}"))).await.json();
    assert_eq!(rest["items"][0]["metadata"]["name"], "front");
    assert_eq!(rest["metadata"]["resourceVersion"], "144");
}

#[tokio::test]
async fn list_future() {
    let server = filled().await;
    server.advance_to(146).unwrap();
    check(&server, "list-future").await;
}

#[tokio::test]
async fn unknown_resource() {
    check(&filled().await, "unknown-resource").await;
}

#[tokio::test]
async fn version() {
    check(&filled().await, "version").await;
}

#[tokio::test]
async fn unauthorized() {
    let server = builder().token("secret", "somebody").start().await.unwrap();
    check(&server, "unauthorized").await;
}

async fn limited(name: &str) {
    let server = builder().token("secret", "limited").forbid("limited").start().await.unwrap();
    let recording = recording(name);
    let request =
        if recording.method == "POST" { Ask::post(&recording.uri, EVENT) } else { Ask::get(&recording.uri) };
    let answer = ask(server.address(), &request.with("authorization", "Bearer secret")).await;
    assert_eq!(answer, recording.answer);
}

#[tokio::test]
async fn forbidden_list() {
    limited("forbidden-list").await;
}

#[tokio::test]
async fn forbidden_watch() {
    limited("forbidden-watch").await;
}

#[tokio::test]
async fn forbidden_event() {
    limited("forbidden-event").await;
}

const EVENT: &str = r#"{"apiVersion": "events.k8s.io/v1", "kind": "Event",
    "metadata": {"namespace": "default", "name": "worker.1"}, "eventTime": "2026-11-30T07:00:00.000000Z",
    "type": "Normal", "reason": "Starting", "action": "StartKubeProxy", "reportingController": "kube-proxy",
    "reportingInstance": "kube-proxy-worker", "regarding": {"kind": "Node", "name": "worker", "uid": "worker"}}"#;

#[tokio::test]
async fn event_create() {
    let server = filled().await;
    server.advance_to(154).unwrap();
    // 2026-11-30T07:24:39Z
    server.set_time(Duration::from_secs(1_796_023_479));
    server.next_uid("f5d432be-0d77-4e52-b56a-c2267b0c70bb");
    let recording = recording("event-create");
    assert_eq!(recording.method, "POST");
    let answer = ask(server.address(), &Ask::post(&recording.uri, EVENT)).await;
    assert_eq!(answer, recording.answer);
}

#[tokio::test]
async fn watch_bad_rv() {
    check(&filled().await, "watch-bad-rv").await;
}

#[tokio::test]
async fn watch_future() {
    check(&filled().await, "watch-future").await;
}

#[tokio::test]
async fn watch_too_old() {
    let server = filled().await;
    server.advance_to(170).unwrap();
    server.compact(166);
    check(&server, "watch-too-old").await;
}

#[tokio::test]
async fn watchlist_initial() {
    check(&filled().await, "watchlist-initial").await;
}

#[tokio::test]
async fn watch_add_modify_leave_selector_delete() {
    let server = filled().await;
    server.advance_to(146).unwrap();
    let recorded = recording("watch-add-modify-leave-selector-delete").answer.events();
    let changes = async {
        until(|| server.watches("services") == 1).await;
        for (kind, object) in recorded.iter().filter(|(kind, _)| kind != "BOOKMARK") {
            if kind != "DELETED" {
                server.put_at(object.clone(), version_of(object)).unwrap();
                continue;
            }
            // It was not deleted yet: it got the label by which the watch does not see it.
            let mut leaving = object.clone();
            leaving["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "another"});
            server.put_at(leaving, version_of(object)).unwrap();
            server.delete("services", "node", "tmp").unwrap();
        }
    };
    tokio::join!(check(&server, "watch-add-modify-leave-selector-delete"), changes);
}
