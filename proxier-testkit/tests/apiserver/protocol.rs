//! What the recordings do not show: pages to the end, selectors, versions, watches over time, Events, rules.

use std::time::Duration;

use http_body_util::BodyExt as _;
use k8s_openapi::api::rbac::v1::PolicyRule;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer, Protocols, Verb};
use serde_json::{Value, json};

use crate::client::{Answer, Ask, ask, begin, finish, until};

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "spec": {"clusterIP": "10.96.0.1", "type": "ClusterIP"}})
}

fn labelled(namespace: &str, name: &str, label: &str) -> Value {
    let mut service = service(namespace, name);
    service["metadata"]["labels"] = json!({"app": label});
    service
}

async fn server_with(names: impl IntoIterator<Item = (&str, &str)>) -> ApiServer {
    let server = ApiServer::builder().future_wait(Duration::from_millis(10)).start().await.unwrap();
    server.put_all(names.into_iter().map(|(namespace, name)| service(namespace, name))).unwrap();
    server
}

async fn get(server: &ApiServer, uri: &str) -> Answer {
    ask(server.address(), &Ask::get(uri)).await
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Types and names of a watch's events; of bookmarks the version.
fn told(answer: &Answer) -> Vec<(String, String)> {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        metadata["name"].as_str().or(metadata["resourceVersion"].as_str()).unwrap_or_default().to_owned()
    };
    answer.events().into_iter().map(|(kind, object)| (kind, name(&object))).collect()
}

fn pairs(told: &[(String, String)]) -> Vec<(&str, &str)> {
    told.iter().map(|(kind, name)| (kind.as_str(), name.as_str())).collect()
}

#[tokio::test]
async fn http1_says_the_same_as_http2() {
    let server = server_with([("a", "x"), ("a", "y")]).await;
    for uri in
        ["/api/v1/services", "/api/v1/namespaces/a/services/x", "/api/v1/nodes/none", "/version", "/healthz"]
    {
        let [two, one] = [get(&server, uri).await, ask(server.address(), &Ask::get(uri).http1()).await];
        assert_eq!(one, two, "{uri}");
    }
    let seen = server.seen();
    assert_eq!((seen[0].http2, seen[1].http2), (true, false));
    assert_eq!(seen[0].user_agent, "curl/7.88.1");
    assert_eq!(server.requests(Verb::List, "services"), 2);
    assert_eq!(server.requests(Verb::Get, "services"), 2);
    assert_eq!(server.requests(Verb::Watch, "services"), 0);
}

#[tokio::test]
async fn a_server_can_speak_one_http_only() {
    for (protocols, http2) in [(Protocols::Http1, false), (Protocols::Http2, true)] {
        let server = ApiServer::builder().protocols(protocols).start().await.unwrap();
        let asks = [Ask::get("/version"), Ask::get("/version").http1()];
        for request in asks {
            let right = request.http2 == http2;
            let answer = async { finish(begin(server.address(), &request).await?).await };
            assert_eq!(answer.await.is_ok_and(|answer| answer.status == 200), right, "{protocols:?}");
        }
    }
}

#[tokio::test]
async fn programs_get_json_on_a_line_and_people_get_it_indented() {
    let server = server_with([("a", "x")]).await;
    let uri = "/api/v1/namespaces/a/services/x";
    let program = Ask::get(uri).with("user-agent", "kube-rs");
    let line = ask(server.address(), &program).await;
    assert!(
        line.body.starts_with(
            r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"#
        )
    );
    assert_eq!((line.body.find('\n'), line.body.ends_with("}\n")), (Some(line.body.len() - 1), true));
    let person = get(&server, uri).await;
    assert!(person.body.starts_with("{\n  \"kind\": \"Service\",\n"));
    assert_eq!(person.json(), line.json());
    let asked = ask(server.address(), &Ask { uri: format!("{uri}?pretty=true"), ..program }).await;
    assert_eq!(asked, person);
    assert_eq!(get(&server, &format!("{uri}?pretty=0")).await, line);
}

#[tokio::test]
async fn pages_together_are_the_list() {
    let all: Vec<String> = (0..23).map(|i| format!("s{i:02}")).collect();
    // The order is that of keys: a dash comes before the slash that ends a namespace.
    let places = all.iter().enumerate().map(|(i, name)| (["a", "a-b", "b"][i % 3], name.as_str()));
    let server = server_with(places).await;
    for (path, count) in [("/api/v1/services", 23), ("/api/v1/namespaces/a/services", 8)] {
        let whole = get(&server, path).await.json();
        assert_eq!(names(&whole).len(), count);
        let (mut pages, mut token, mut left) = (Vec::new(), String::new(), count);
        loop {
            let page = get(&server, &format!("{path}?limit=5&continue={token}")).await.json();
            assert_eq!(page["metadata"]["resourceVersion"], whole["metadata"]["resourceVersion"]);
            pages.extend(page["items"].as_array().unwrap().clone());
            left = left.saturating_sub(5);
            let expected = if left > 0 { json!(left) } else { Value::Null };
            assert_eq!(page["metadata"]["remainingItemCount"], expected);
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(Value::Array(pages), whole["items"]);
    }
    let list = get(&server, "/api/v1/services").await.json();
    assert_eq!(list["items"][0]["metadata"]["namespace"], "a-b");
}

#[tokio::test]
async fn selectors_narrow_lists_and_their_pages() {
    let server = server_with([("a", "none")]).await;
    for i in 0..6 {
        server.put(labelled("a", &format!("s{i}"), ["even", "odd"][i % 2])).unwrap();
    }
    let uri = "/api/v1/services?labelSelector=app%3Dodd";
    assert_eq!(names(&get(&server, uri).await.json()), ["s1", "s3", "s5"]);
    let page = get(&server, &format!("{uri}&limit=2")).await.json();
    assert_eq!(names(&page), ["s1", "s3"]);
    assert_eq!(page["metadata"]["remainingItemCount"], Value::Null, "unknown under a selector");
    let token = page["metadata"]["continue"].as_str().unwrap();
    let page = get(&server, &format!("{uri}&limit=2&continue={token}")).await.json();
    assert_eq!((names(&page), &page["metadata"]["continue"]), (vec!["s5".to_owned()], &Value::Null));
    let fields = "/api/v1/services?fieldSelector=metadata.name%3Ds2%2Cspec.type%3DClusterIP";
    assert_eq!(names(&get(&server, fields).await.json()), ["s2"]);
    for bad in ["labelSelector=a%3Db%3Dc", "fieldSelector=spec.color%3Dred", "limit=x"] {
        assert_eq!(get(&server, &format!("/api/v1/services?{bad}")).await.status, 400, "{bad}");
        if bad != "limit=x" {
            assert_eq!(get(&server, &format!("/api/v1/services?watch=1&{bad}")).await.status, 400, "{bad}");
        }
    }
}

#[tokio::test]
async fn lists_of_old_versions_are_what_was() {
    let server = server_with([("a", "x"), ("a", "y")]).await;
    let before = server.revision();
    server.put(labelled("a", "x", "new")).unwrap();
    server.delete("services", "a", "y").unwrap();
    server.put(service("a", "z")).unwrap();
    let old = |query: &str| format!("/api/v1/services?resourceVersion={before}{query}");
    let exact = get(&server, &old("&resourceVersionMatch=Exact")).await.json();
    assert_eq!(names(&exact), ["x", "y"]);
    assert_eq!(exact["items"][0]["metadata"]["labels"], Value::Null);
    assert_eq!(exact["metadata"]["resourceVersion"], before.to_string());
    // Without a match rule, a version is exact if there is a limit and a minimum if there is none.
    assert_eq!(names(&get(&server, &old("&limit=9")).await.json()), ["x", "y"]);
    let newer = get(&server, &old("")).await.json();
    assert_eq!(
        (names(&newer), &newer["metadata"]["resourceVersion"]),
        (vec!["x".into(), "z".into()], &json!((before + 3).to_string()))
    );
    server.compact(before + 1);
    assert_eq!(get(&server, &old("&limit=9")).await.status, 410);
    assert_eq!(get(&server, &old("")).await.status, 200);
    assert_eq!(
        get(&server, "/api/v1/services?resourceVersion=0&limit=1").await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_list_waits_for_a_version_that_comes() {
    let server = ApiServer::builder().future_wait(Duration::from_secs(60)).start().await.unwrap();
    let next = server.revision() + 1;
    let uri = format!("/api/v1/services?resourceVersion={next}&resourceVersionMatch=NotOlderThan");
    let writes = async {
        until(|| server.requests(Verb::List, "services") == 1).await;
        server.put(service("a", "x")).unwrap();
    };
    let (answer, ()) = tokio::join!(get(&server, &uri), writes);
    assert_eq!(names(&answer.json()), ["x"]);
}

#[tokio::test]
async fn continue_tokens_expire_on_demand() {
    let server = server_with([("a", "x"), ("a", "y")]).await;
    let token = |page: &Value| page["metadata"]["continue"].as_str().unwrap().to_owned();
    let old = token(&get(&server, "/api/v1/services?limit=1").await.json());
    server.expire_continue_tokens();
    let refused = get(&server, &format!("/api/v1/services?limit=1&continue={old}")).await;
    assert_eq!(refused.status, 410);
    let rest =
        get(&server, &format!("/api/v1/services?limit=1&continue={}", token(&refused.json()))).await.json();
    assert_eq!(names(&rest), ["y"]);
    let new = token(&get(&server, "/api/v1/services?limit=1").await.json());
    assert_eq!(get(&server, &format!("/api/v1/services?limit=1&continue={new}")).await.status, 200);
}

#[tokio::test]
async fn a_watch_sees_what_its_selector_and_namespace_let_through() {
    let server = server_with([("b", "other")]).await;
    server.put(labelled("a", "x", "no")).unwrap();
    let from = server.revision();
    let uri = format!("/api/v1/namespaces/a/services?watch=1&resourceVersion={from}&labelSelector=app%3Dyes");
    let changes = async {
        until(|| server.watches("services") == 1).await;
        server.put(labelled("a", "x", "yes")).unwrap();
        server.put(labelled("a", "x", "yes")).unwrap();
        server.put(labelled("b", "y", "yes")).unwrap();
        server.put(labelled("a", "x", "no")).unwrap();
        server.put(labelled("a", "x", "no")).unwrap();
        server.put(labelled("a", "z", "yes")).unwrap();
        server.delete("services", "a", "z").unwrap();
        server.put(labelled("a", "end", "yes")).unwrap();
        server.end_watches();
    };
    let (answer, ()) = tokio::join!(get(&server, &uri), changes);
    let seen = [
        ("ADDED", "x"),
        ("MODIFIED", "x"),
        ("DELETED", "x"),
        ("ADDED", "z"),
        ("DELETED", "z"),
        ("ADDED", "end"),
    ];
    assert_eq!(pairs(&told(&answer)), seen);
    let left = &answer.events()[2].1;
    assert_eq!(left["metadata"]["labels"]["app"], "yes", "as it was");
    assert_eq!(left["metadata"]["resourceVersion"], (from + 4).to_string(), "when it left");
    until(|| server.watches("services") == 0).await;
    // The same again from the past.
    let again = get(&server, &format!("{uri}&timeoutSeconds=1")).await;
    assert_eq!(again.body, answer.body);
}

#[tokio::test]
async fn bookmarks_come_when_asked_for_and_at_intervals() {
    let server = ApiServer::builder().bookmark_every(Duration::from_millis(200)).start().await.unwrap();
    let uri = format!("/api/v1/nodes?watch=1&resourceVersion={}&timeoutSeconds=1", server.revision());
    let quiet = get(&server, &uri).await;
    assert_eq!(quiet.body, "", "none unless the client allows them");
    let answer = get(&server, &format!("{uri}&allowWatchBookmarks=1")).await;
    let regular = answer.events();
    assert!((1..=5).contains(&regular.len()), "{regular:?}");
    let zero = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "spec": {}});
    assert_eq!(regular[0].1["kind"], zero["kind"]);
    assert_eq!(regular[0].1["metadata"], zero["metadata"]);

    let server = ApiServer::builder().start().await.unwrap();
    let changes = async {
        until(|| server.watches("servicecidrs") == 1).await;
        server.advance_to(50).unwrap();
        server.bookmark();
        // One that is told of both at once sends both.
        server.end_watches();
    };
    let uri = "/apis/networking.k8s.io/v1/servicecidrs?watch=1&resourceVersion=1&allowWatchBookmarks=true";
    let (answer, ()) = tokio::join!(get(&server, uri), changes);
    assert!(pairs(&told(&answer)).iter().all(|event| *event == ("BOOKMARK", "50")), "{:?}", answer.body);
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_the_state() {
    let server = server_with([("a", "y"), ("a", "x")]).await;
    for version in ["", "&resourceVersion=0"] {
        let uri = format!("/api/v1/services?watch=1&timeoutSeconds=1{version}");
        assert_eq!(pairs(&told(&get(&server, &uri).await)), [("ADDED", "x"), ("ADDED", "y")]);
    }
    let none =
        "/api/v1/services?watch=1&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert_eq!(get(&server, none).await.body, "");
}

#[tokio::test]
async fn a_server_without_streaming_lists_refuses_them() {
    let server = ApiServer::builder().streaming_lists(false).start().await.unwrap();
    let uri = "/api/v1/services?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let answer = get(&server, uri).await;
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (422, Some("Invalid")));
    let plain = get(&server, "/api/v1/services?watch=1&allowWatchBookmarks=1&timeoutSeconds=1").await;
    assert!(!plain.body.contains("initial-events-end"));
}

#[tokio::test]
async fn compaction_does_not_disturb_a_running_watch() {
    let server = server_with([("a", "x")]).await;
    let from = server.revision();
    let uri = format!("/api/v1/services?watch=1&resourceVersion={from}");
    let changes = async {
        until(|| server.watches("services") == 1).await;
        for i in 0..100 {
            server.put(service("a", &format!("s{i}"))).unwrap();
            server.compact(server.revision());
        }
        server.end_watches();
    };
    let (answer, ()) = tokio::join!(get(&server, &uri), changes);
    assert_eq!(answer.events().len(), 100);
    let late = get(&server, &uri).await;
    assert_eq!(pairs(&told(&late)), [("ERROR", "")]);
    assert_eq!(late.events()[0].1["message"], format!("too old resource version: {from} ({})", from + 100));
}

#[tokio::test]
async fn what_changes_while_the_reader_is_slow_comes_without_a_further_change() {
    let server = server_with([]).await;
    let uri = format!("/api/v1/services?watch=1&resourceVersion={}", server.revision());
    let mut body = begin(server.address(), &Ask::get(&uri)).await.unwrap().into_body();
    // More than all buffers on the way hold, so that the watch waits in the midst of it.
    let mut large = service("a", "large");
    for i in 0..64 {
        large["metadata"]["annotations"] = json!({"padding": format!("{i}").repeat(100_000)});
        server.put(large.clone()).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.put(service("a", "last")).unwrap();
    let mut events = 0;
    let all = async {
        while events < 65 {
            let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
            events += data.iter().filter(|byte| **byte == b'\n').count();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    assert_eq!(events, 65);
}

#[tokio::test]
async fn a_short_history_expires_by_itself() {
    let server = ApiServer::builder().history(3).start().await.unwrap();
    for i in 0..5 {
        server.put(service("a", &format!("s{i}"))).unwrap();
    }
    let revision = server.revision();
    let from = |version: u64| format!("/api/v1/services?watch=1&timeoutSeconds=1&resourceVersion={version}");
    assert_eq!(pairs(&told(&get(&server, &from(revision - 4)).await)), [("ERROR", "")]);
    let rest = told(&get(&server, &from(revision - 3)).await);
    assert_eq!(pairs(&rest), [("ADDED", "s2"), ("ADDED", "s3"), ("ADDED", "s4")]);
    assert_eq!(get(&server, "/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion=1").await.body, "");
}

#[tokio::test]
async fn running_watches_can_be_expired() {
    let server = server_with([("a", "x")]).await;
    let changes = async {
        until(|| server.watches("services") == 1).await;
        server.expire_watches();
    };
    let uri = format!("/api/v1/services?watch=1&resourceVersion={}", server.revision());
    let (answer, ()) = tokio::join!(get(&server, &uri), changes);
    let error = &answer.events()[0];
    assert_eq!(
        (error.0.as_str(), &error.1["code"], &error.1["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
}

fn event() -> Value {
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": "e-"},
        "eventTime": "2026-11-30T07:00:00Z", "type": "Warning", "reason": "R", "action": "A", "note": "a <b> & c",
        "reportingController": "proxier", "reportingInstance": "i",
        "regarding": {"kind": "Service", "namespace": "a", "name": "x"}})
}

#[tokio::test]
async fn events_are_one_thing_in_two_groups() {
    let server = server_with([]).await;
    let created =
        ask(server.address(), &Ask::post("/apis/events.k8s.io/v1/namespaces/a/events", &event().to_string()))
            .await;
    assert_eq!(created.status, 201, "{}", created.body);
    let name = created.json()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("e-") && name.len() == 7);
    assert_eq!(created.json()["eventTime"], "2026-11-30T07:00:00.000000Z");
    assert!(created.body.contains(r"a \u003cb\u003e \u0026 c"));
    let core = get(&server, &format!("/api/v1/namespaces/a/events/{name}")).await.json();
    assert_eq!((&core["involvedObject"]["name"], &core["message"]), (&json!("x"), &json!("a <b> & c")));
    assert_eq!((&core["reportingComponent"], &core["regarding"]), (&json!("proxier"), &Value::Null));
    let about = "/api/v1/events?fieldSelector=involvedObject.kind%3DService%2CinvolvedObject.name%3Dx";
    assert_eq!(names(&get(&server, about).await.json()), [name.as_str()]);
    let patch = r#"{"series": {"count": 2, "lastObservedTime": "2026-11-30T07:00:05.000000Z"}}"#;
    let uri = format!("/apis/events.k8s.io/v1/namespaces/a/events/{name}");
    let request = Ask { method: hyper::Method::PATCH, ..Ask::post(&uri, patch) };
    let request = request.with("content-type", "application/merge-patch+json");
    let patched = ask(server.address(), &request).await;
    assert_eq!((patched.status, &patched.json()["series"]["count"]), (200, &json!(2)));
    assert_eq!(server.get("events", "a", &name).unwrap()["series"]["count"], 2);
    let core = r#"{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "c"}, "message": "m", "type": "Normal",
        "involvedObject": {"namespace": "a"}, "source": {"component": "s"}, "count": 1}"#;
    assert_eq!(ask(server.address(), &Ask::post("/api/v1/namespaces/a/events", core)).await.status, 201);
    let new = get(&server, "/apis/events.k8s.io/v1/namespaces/a/events/c").await.json();
    assert_eq!((&new["note"], &new["deprecatedSource"]["component"]), (&json!("m"), &json!("s")));
    let request = Ask { method: hyper::Method::DELETE, ..Ask::get(&uri) };
    assert_eq!(ask(server.address(), &request).await.status, 200);
    assert_eq!(server.all::<Value>("events").unwrap().len(), 1);
}

#[tokio::test]
async fn what_the_api_does_not_take_is_refused() {
    let server = server_with([("a", "x")]).await;
    let path = "/apis/events.k8s.io/v1/namespaces/a/events";
    let post = async |change: fn(&mut Value)| {
        let mut event = event();
        event["metadata"] = json!({"name": "e"});
        change(&mut event);
        ask(server.address(), &Ask::post(path, &event.to_string())).await
    };
    assert_eq!(post(|_| {}).await.status, 201);
    assert_eq!(post(|_| {}).await.json()["message"], "events.events.k8s.io \"e\" already exists");
    let missing = post(|event| event["action"] = json!("")).await;
    assert_eq!(missing.json()["message"], "Event.events.k8s.io \"e\" is invalid: action: Required value");
    assert_eq!(missing.json()["details"], json!({"name": "e", "group": "events.k8s.io", "kind": "Event"}));
    type Change = fn(&mut Value);
    let changes: [(u16, Change); 8] = [
        (422, |event| event["type"] = json!("Bad")),
        (422, |event| event["note"] = json!("x".repeat(1025))),
        (422, |event| event["reportingInstance"] = json!("x".repeat(129))),
        (422, |event| event["regarding"]["namespace"] = json!("")),
        (422, |event| {
            event["series"] = json!({"count": 1, "lastObservedTime": "2026-11-30T07:00:05.000000Z"});
        }),
        (422, |event| event["metadata"] = json!({})),
        (400, |event| event["metadata"]["namespace"] = json!("b")),
        (400, |event| event["kind"] = json!("Service")),
    ];
    for (i, (code, change)) in changes.into_iter().enumerate() {
        assert_eq!(post(change).await.status, code, "{i}");
    }
    let status = async |request: Ask| ask(server.address(), &request).await.status;
    assert_eq!(status(Ask::post(path, "{")).await, 400);
    assert_eq!(
        status(Ask::post(path, "{}").with("content-type", "application/vnd.kubernetes.protobuf")).await,
        415
    );
    assert_eq!(status(Ask::post("/api/v1/namespaces/a/services", "{}")).await, 405);
    assert_eq!(status(Ask::post("/api/v1/services", "{}")).await, 405);
    assert_eq!(
        status(Ask::get("/api/v1/services").with("accept", "application/vnd.kubernetes.protobuf")).await,
        406
    );
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    assert_eq!(status(Ask::get("/api/v1/services").with("accept", table)).await, 200);
    for nowhere in [
        "/api/v1/services/x",
        "/api/v1/namespaces/a/nodes",
        "/api/v2/services",
        "/apis/x/v1",
        "/foo",
        "/openapi/v3",
    ] {
        assert_eq!(status(Ask::get(nowhere)).await, 404, "{nowhere}");
    }
}

#[tokio::test]
async fn rules_name_objects_by_path_or_selector() {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let rule = PolicyRule {
        api_groups: words(&[""]),
        resources: words(&["nodes"]),
        resource_names: words(&["worker"]),
        verbs: vec!["get".into(), "list".into()],
        ..PolicyRule::default()
    };
    let server = ApiServer::builder().token("t", "u").allow("u", None, vec![rule]).start().await.unwrap();
    server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"}})).unwrap();
    let get = async |uri: &str| ask(server.address(), &Ask::get(uri).with("authorization", "Bearer t")).await;
    assert_eq!(get("/api/v1/nodes/worker").await.status, 200);
    assert_eq!(get("/api/v1/nodes?fieldSelector=metadata.name%3Dworker").await.status, 200);
    assert_eq!(get("/api/v1/nodes").await.status, 403);
    assert_eq!(get("/version").await.status, 200);
    let refused = get("/api/v1/nodes/other").await.json();
    let message = "nodes \"other\" is forbidden: User \"u\" cannot get resource \"nodes\" in API group \"\" at the cluster scope";
    assert_eq!(
        (&refused["message"], &refused["details"]),
        (&json!(message), &json!({"name": "other", "kind": "nodes"}))
    );
    server.forbid("u");
    assert_eq!(get("/api/v1/nodes/worker").await.status, 403);
}

#[tokio::test]
async fn the_state_takes_only_what_it_can_hold() {
    let server = server_with([("a", "x")]).await;
    let uid = server.get("services", "a", "x").unwrap()["metadata"]["uid"].clone();
    server.put(labelled("a", "x", "new")).unwrap();
    assert_eq!(server.get("services", "a", "x").unwrap()["metadata"]["uid"], uid, "the same object");
    let revision = server.revision();
    let error = |result: Result<u64, proxier_testkit::apiserver::Error>| result.unwrap_err().to_string();
    assert_eq!(
        error(server.put_at(service("a", "y"), revision)),
        format!("resource version {revision} is not after {revision}")
    );
    assert_eq!(error(server.delete("services", "a", "y")), "there is no services \"a/y\"");
    assert_eq!(error(server.put(service("", "y"))), "Service \"y\": no namespace");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"namespace": "a", "name": "n"}});
    assert_eq!(error(server.put(node)), "Node \"n\": must not have a namespace");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "n"}});
    assert_eq!(error(server.put(pod)), "no resource has objects of kind \"Pod\" in \"v1\"");
    assert_eq!(server.revision(), revision);
}

#[test]
fn a_blocking_server_stops_and_comes_back() {
    let server = BlockingApiServer::start(ApiServer::builder()).unwrap();
    server.put(service("a", "x")).unwrap();
    let connect = || std::net::TcpStream::connect(server.address());
    let mut open = connect().unwrap();
    server.stop();
    assert!(connect().is_err());
    let mut end = [0];
    assert!(matches!(std::io::Read::read(&mut open, &mut end), Ok(0) | Err(_)));
    server.restart().unwrap();
    connect().unwrap();
    assert_eq!(server.all::<Value>("services").unwrap().len(), 1);
}
