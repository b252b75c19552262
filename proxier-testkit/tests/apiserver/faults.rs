//! Every fault, over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use http_body_util::BodyExt;
use proxier_testkit::apiserver::{Action, ApiServer, Fault, Place, Then, Verb};
use serde_json::json;
use tokio::time::timeout;

use crate::client::{Ask, ask, begin, finish, until};

/// Long enough for anything that comes at all, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// How long silence is listened to.
const WHILE: Duration = Duration::from_millis(300);

async fn server() -> ApiServer {
    let server = ApiServer::builder().start().await.unwrap();
    for name in ["a", "b", "c"] {
        server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).unwrap();
    }
    server
}

fn both(uri: &str) -> [Ask; 2] {
    [Ask::get(uri), Ask::get(uri).http1()]
}

fn cut(at: Place, then: Then) -> Action {
    Action::Cut { at, then }
}

/// A body of at least `least` bytes, and how it goes on: it ends, breaks (true) or is silent.
async fn received(server: &ApiServer, request: &Ask, least: usize, silent: bool) -> (String, Option<bool>) {
    let mut body = begin(server.address(), request).await.unwrap().into_body();
    let mut text = String::new();
    loop {
        // Only where silence is due is a short one taken for it.
        let patience = if silent && text.len() >= least { WHILE } else { SOON };
        match timeout(patience, body.frame()).await {
            Ok(Some(Ok(frame))) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            Ok(Some(Err(_))) => return (text, Some(true)),
            Ok(None) => return (text, Some(false)),
            Err(_) => return (text, None),
        }
    }
}

const LIST: &str = "/api/v1/nodes";
const WATCH: &str = "/api/v1/nodes?watch=1";

#[tokio::test]
async fn a_connection_is_closed_before_the_answer() {
    let server = server().await;
    for request in both(LIST) {
        server.fault(Fault::on(Verb::List, "nodes", Action::Close));
        timeout(SOON, begin(server.address(), &request)).await.unwrap().unwrap_err();
        assert_eq!(ask(server.address(), &request).await.status, 200, "once");
    }
}

#[tokio::test]
async fn a_connection_falls_silent_and_stays_open() {
    let server = server().await;
    for (i, request) in both(LIST).into_iter().enumerate() {
        server.fault(Fault::on(Verb::List, "nodes", Action::Silence));
        let pending = begin(server.address(), &request);
        assert!(timeout(WHILE, pending).await.is_err(), "no answer and no end");
        assert_eq!(server.requests(Verb::List, "nodes"), i as u64 + 1);
    }
    // A stop closes them.
    server.stop().await;
    until(|| server.connections() == 0).await;
}

#[tokio::test]
async fn answers_are_late() {
    let server = server().await;
    for request in both(LIST) {
        server.fault(Fault::any(Action::Delay(WHILE * 2)));
        let late = begin(server.address(), &request);
        tokio::pin!(late);
        assert!(timeout(WHILE, &mut late).await.is_err());
        assert_eq!(timeout(SOON, late).await.unwrap().unwrap().status(), 200);
        server.fault(Fault::any(Action::DelayBody(WHILE * 6)));
        let response = timeout(SOON, begin(server.address(), &request)).await.unwrap().unwrap();
        let body = finish(response);
        tokio::pin!(body);
        assert!(timeout(WHILE, &mut body).await.is_err());
        assert_eq!(timeout(SOON, body).await.unwrap().unwrap().json()["items"].as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn statuses_are_given_as_ordered() {
    let server = server().await;
    for (code, reason) in [
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
        (401, "Unauthorized"),
    ] {
        server.fault(Fault::on(Verb::Watch, "nodes", Action::Status { code, retry_after: None }));
        assert_eq!(ask(server.address(), &Ask::get(LIST)).await.status, 200, "another verb");
        let answer = ask(server.address(), &Ask::get(WATCH)).await;
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (code, Some(reason)));
        assert_eq!(answer.headers.get("retry-after"), None);
    }
    server.fault(Fault::any(Action::Status { code: 429, retry_after: Some(7) }).skip(1).times(2));
    let mut codes = Vec::new();
    for _ in 0..4 {
        let answer = ask(server.address(), &Ask::get(LIST)).await;
        if answer.status == 429 {
            assert_eq!(answer.headers["retry-after"], "7");
            assert_eq!(answer.json()["details"]["retryAfterSeconds"], 7);
        }
        codes.push(answer.status);
    }
    assert_eq!(codes, [200, 429, 429, 200]);
    server.fault(Fault::any(Action::Close).always());
    assert!(begin(server.address(), &Ask::get(LIST)).await.is_err());
    server.clear_faults();
    assert_eq!(ask(server.address(), &Ask::get(LIST)).await.status, 200);
}

#[tokio::test]
async fn bodies_are_cut() {
    let server = server().await;
    let whole = ask(server.address(), &Ask::get(LIST)).await.body;
    let events = ask(server.address(), &Ask::get(&format!("{WATCH}&timeoutSeconds=1"))).await.body;
    let ends: Vec<usize> = events.match_indices('\n').map(|(i, _)| i + 1).collect();
    for (verb, uri, at, expected) in [
        (Verb::List, LIST, Place::Bytes(100), &whole[..100]),
        (Verb::Watch, WATCH, Place::Events(2), &events[..ends[1]]),
        (Verb::Watch, WATCH, Place::InEventAfter(1), &events[..ends[0] + (ends[1] - 1 - ends[0]) / 2]),
        (Verb::Watch, WATCH, Place::Events(0), ""),
    ] {
        for request in both(uri) {
            for (then, end) in [
                (Then::End, Some(false)),
                (Then::Abort, Some(true)),
                (Then::Close, Some(true)),
                (Then::Silence, None),
            ] {
                server.fault(Fault::on(verb, "nodes", cut(at, then)));
                let (text, ended) = received(&server, &request, expected.len(), end.is_none()).await;
                assert_eq!(
                    (text.as_str(), ended),
                    (expected, end),
                    "{at:?} {then:?} http2 {}",
                    request.http2
                );
            }
        }
    }
    server.fault(Fault::on(Verb::Watch, "nodes", cut(Place::Events(1), Then::Expire)));
    let answer = ask(server.address(), &Ask::get(WATCH)).await.events();
    assert_eq!((answer.len(), &answer[1].1["code"]), (2, &json!(410)));
}

#[tokio::test]
async fn bodies_drip() {
    let server = server().await;
    let whole = ask(server.address(), &Ask::get(LIST)).await.body;
    for request in both(LIST) {
        server.fault(Fault::any(Action::Drip { bytes: 100, pause: Duration::from_millis(2) }));
        let mut body = begin(server.address(), &request).await.unwrap().into_body();
        let (mut text, mut frames) = (String::new(), 0);
        while let Some(frame) = body.frame().await {
            text.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
            frames += 1;
        }
        assert_eq!(text, whole);
        assert!(frames > 1);
    }
}

#[tokio::test]
async fn running_connections_are_closed_or_silenced() {
    let server = server().await;
    for request in both(WATCH) {
        let mut body = begin(server.address(), &request).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        server.silence_connections();
        server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}})).unwrap();
        assert!(timeout(WHILE, body.frame()).await.is_err(), "silent");
        assert_eq!(ask(server.address(), &Ask::get(LIST)).await.status, 200, "others are not");
        server.close_connections();
        // HTTP/2 says that the connection broke; so does HTTP/1.1, whose last chunk is missing.
        timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap_err();
        until(|| server.watches("nodes") == 0).await;
        server.delete("nodes", "", "late").unwrap();
    }
}

#[tokio::test]
async fn a_stop_cuts_everything_and_a_restart_keeps_the_state() {
    let server = server().await;
    let mut body = begin(server.address(), &Ask::get(WATCH)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    server.stop().await;
    timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap_err();
    assert!(tokio::net::TcpStream::connect(server.address()).await.is_err());
    server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "d"}})).unwrap();
    server.restart().await.unwrap();
    let list = ask(server.address(), &Ask::get(LIST)).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 4);
}
