//! Sockets: who may use them, and what happens when they are taken.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use super::*;
use crate::admin::attach::bind_socket;
use crate::events::{Event, EventRecorder, EventType, SharedRecorder};
use crate::http::Servers;
use crate::sync::{Message, Order};
use crate::world::Problems;

const LIMIT: Duration = Duration::from_secs(20);

/// Events that were told.
#[derive(Default)]
struct Events(Mutex<Vec<Event>>);

impl EventRecorder for Events {
    fn record(&self, event: Event) {
        self.0.lock().expect("no panic").push(event);
    }
}

fn surroundings(rig: &Rig) -> (Surroundings, Receiver<Message>) {
    let (messages, receiver) = sync_channel(1);
    let around = Surroundings {
        insight: Arc::clone(&rig.insight),
        servers: Servers::start().expect("a thread"),
        node: "n1".to_owned(),
        source: "manifests",
        problems: Problems::default(),
        messages,
        events: Arc::<Events>::default(),
    };
    (around, receiver)
}

fn options(address: Option<SocketAddr>, admin_socket: Option<&Path>) -> MetricsOptions {
    let admin_socket = admin_socket.map(Path::to_owned);
    MetricsOptions { address, admin_socket, ..MetricsOptions::default() }
}

fn any() -> Option<SocketAddr> {
    Some(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &str) -> String {
    stream
        .write_all(format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[test]
fn metrics_and_administration_are_served() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("run/proxier/admin.sock");
    let rig = Rig::running(2);
    let (around, messages) = surroundings(&rig);
    let (_, attached) = attach(options(any(), Some(&path)), around).expect("served");
    let address = attached.metrics_address().expect("bound");
    let answer = exchange(TcpStream::connect(address).expect("there"), "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n")
    );
    assert!(answer.contains("\nproxier_service_ports{ip_family=\"IPv4\"} 2\n"));
    assert!(answer.contains("\nproxier_input_problems 0\n"));
    let answer = exchange(UnixStream::connect(&path).expect("there"), "GET /status");
    assert!(answer.contains("\"node\":\"n1\""), "{answer}");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(exchange(UnixStream::connect(&path).expect("there"), "POST /verify").contains("202 Accepted"));
    assert!(
        exchange(UnixStream::connect(&path).expect("there"), "POST /sync").contains("503"),
        "the queue is full"
    );
    assert!(matches!(messages.recv_timeout(LIMIT), Ok(Message::Ordered(Order::Verify))));
    drop(attached);
    assert!(TcpStream::connect(address).is_err());
    assert!(!path.exists(), "the socket goes with its server");
}

/// Core spec 4.5.
#[test]
fn a_taken_address_is_an_error_or_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound");
    let rig = Rig::running(1);
    let hard = MetricsOptions { hard_fail: true, ..options(Some(address), None) };
    let events = Arc::<Events>::default();
    let around = Surroundings { events: Arc::clone(&events) as SharedRecorder, ..surroundings(&rig).0 };
    let error = attach(hard, around).err().expect("taken").to_string();
    assert!(error.starts_with(&format!("cannot serve metrics on {address}: ")), "{error}");
    let told = events.0.lock().expect("no panic").clone();
    let told: Vec<_> = told.iter().map(|e| (e.reason, e.action, e.kind, e.regarding.to_string())).collect();
    let node = "this node".to_owned();
    assert_eq!(told, [("FailedToStartMetricServer", "StartKubeProxy", EventType::Warning, node)]);
    let (_, attached) = attach(options(Some(address), None), surroundings(&rig).0).expect("tried again");
    assert_eq!(attached.metrics_address(), None);
    drop(taken);
    let until = Instant::now() + LIMIT;
    while attached.metrics_address().is_none() {
        assert!(Instant::now() < until, "not tried again");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        exchange(TcpStream::connect(address).expect("there"), "GET /proxyMode").ends_with("\r\n\r\nfake")
    );
}

#[test]
fn a_socket_is_replaced_only_when_nobody_answers() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("admin.sock");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists(), "stale");
    let first = bind_socket(&path).expect("replaced");
    assert!(UnixStream::connect(&path).is_ok());
    let error = bind_socket(&path).expect_err("in use").to_string();
    assert_eq!(error, "another process answers there");
    drop(first);
    assert!(bind_socket(&path).is_ok());
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "precious").expect("written");
    assert_eq!(bind_socket(&path).expect_err("a file").to_string(), "what is there is no socket");
    assert_eq!(fs::read_to_string(&path).expect("kept"), "precious");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("listed").collect();
    assert_eq!(left.len(), 1, "nothing beside it");
}

#[test]
fn an_admin_socket_that_cannot_be_is_no_end() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("file"), "").expect("written");
    let rig = Rig::running(1);
    let bad = folder.path().join("file/admin.sock");
    let hard = MetricsOptions { hard_fail: true, ..options(None, Some(&bad)) };
    assert!(attach(hard, surroundings(&rig).0).is_ok());
}

#[test]
fn other_options_move_what_is_served() {
    let folder = tempfile::tempdir().expect("folder");
    let [old, new] = ["old.sock", "new.sock"].map(|name| folder.path().join(name));
    let rig = Rig::running(1);
    let (_, attached) = attach(options(any(), Some(&old)), surroundings(&rig).0).expect("served");
    let get = |path: &str| {
        let address = attached.metrics_address().expect("served");
        exchange(TcpStream::connect(address).expect("there"), &format!("GET {path}"))
    };
    assert!(get("/flagz").contains(" 200 OK") && get("/debug/flags/v").contains(" 404 "));
    attached.change(MetricsOptions {
        profiling: true,
        hidden: vec!["/flagz"],
        gates: vec![("NativeHistograms".to_owned(), true)],
        ..options(any(), Some(&new))
    });
    assert!(get("/flagz").contains(" 404 ") && get("/debug/flags/v").contains(" 405 "));
    assert!(
        get("/metrics").contains("kubernetes_feature_enabled{name=\"NativeHistograms\",stage=\"ALPHA\"} 1\n")
    );
    assert!(exchange(UnixStream::connect(&new).expect("there"), "GET /status").contains("\"node\":\"n1\""));
    assert!(!old.exists(), "the old socket is gone");

    // Another name of the same file, as /var/run is one of /run.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).expect("linked");
    attached.change(options(None, Some(&link.join("new.sock"))));
    assert_eq!(attached.metrics_address(), None);
    assert!(exchange(UnixStream::connect(&new).expect("there"), "GET /status").contains(" 200 OK"));
    attached.change(options(any(), None));
    assert!(!new.exists() && attached.metrics_address().is_some());
}

#[test]
fn a_place_that_cannot_be_had_is_given_up_for_another() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound");
    let rig = Rig::running(1);
    let (_, attached) = attach(options(Some(address), None), surroundings(&rig).0).expect("tried again");
    attached.change(options(any(), None));
    let served = attached.metrics_address().expect("at once");
    assert_ne!(served, address);
    drop(taken);
    std::thread::sleep(Duration::from_millis(1500)); // longer than until the next attempt, were there one
    assert_eq!(attached.metrics_address(), Some(served));
    assert!(TcpStream::connect(address).is_err());
}
