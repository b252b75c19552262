//! A server, the source, and what whoever takes its events knows.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent::source::kubernetes::{Access, Kubernetes, NodeNeeds, Rate, Timing};
use agent::source::{EventSink, Object, ObjectKey, ObjectKind, Source, SourceError, SourceEvent, StopSignal};
use proxier_core::ids::NodeName;
use proxier_testkit::apiserver::{ApiServer, BlockingApiServer, Protocols};
use serde_json::{Value, json};
use tracing::subscriber::with_default;

/// How long anything may take; only failures take so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked at.
const BEAT: Duration = Duration::from_millis(5);

/// The node that the source is on.
pub(crate) const NODE: &str = "worker";

/// A patience for tests.
pub(crate) const TIMING: Timing = Timing {
    retry_first: Duration::from_millis(20),
    retry_longest: Duration::from_millis(200),
    absent: Duration::from_millis(100),
    steady: Duration::from_millis(300),
    headers: Duration::from_millis(700),
    idle_list: Duration::from_millis(700),
    idle_watch: Duration::from_millis(700),
    watch_shortest: Duration::from_secs(2),
    watch_longest: Duration::from_secs(4),
};

/// The resources, with what of them is for us.
const RESOURCES: [(ObjectKind, &str); 4] = [
    (ObjectKind::Service, "services"),
    (ObjectKind::EndpointSlice, "endpointslices"),
    (ObjectKind::Node, "nodes"),
    (ObjectKind::ServiceCidr, "servicecidrs"),
];

/// Versions by kind, namespace and name.
type State = BTreeMap<(ObjectKind, String, String), String>;

/// What whoever takes the events knows.
#[derive(Debug, Default)]
pub(crate) struct View {
    objects: State,
    services: BTreeMap<(String, String), Option<String>>,
    pub(crate) synced: usize,
    pub(crate) problems: BTreeMap<String, Vec<String>>,
    /// Events that should not have been.
    wrong: Vec<String>,
    /// What was known when everything was said to be known.
    at_sync: State,
}

impl View {
    fn take(&mut self, batch: Vec<SourceEvent>) {
        for event in batch {
            match event {
                SourceEvent::Upsert(object) => self.upsert(&object),
                SourceEvent::Delete { key, service } => self.delete(&key, service.as_deref()),
                SourceEvent::Synced => {
                    self.synced += 1;
                    self.at_sync = self.objects.clone();
                }
                SourceEvent::Problems { origin, problems } if problems.is_empty() => {
                    self.problems.remove(&*origin);
                }
                SourceEvent::Problems { origin, problems } => {
                    let problems = problems.iter().map(ToString::to_string).collect();
                    self.problems.insert(origin.to_string(), problems);
                }
            }
        }
    }

    fn upsert(&mut self, object: &Object) {
        let (kind, meta) = match object {
            Object::Service(o) => (ObjectKind::Service, &o.metadata),
            Object::EndpointSlice(o) => (ObjectKind::EndpointSlice, &o.metadata),
            Object::Node(o) => (ObjectKind::Node, &o.metadata),
            Object::ServiceCidr(o) => (ObjectKind::ServiceCidr, &o.metadata),
        };
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let (namespace, name, version) =
            (text(&meta.namespace), text(&meta.name), text(&meta.resource_version));
        if kind == ObjectKind::EndpointSlice {
            let service = object.owning_service().map(str::to_owned);
            let before = self.services.insert((namespace.clone(), name.clone()), service.clone());
            if before.is_some_and(|b| b != service) {
                self.wrong.push(format!("{namespace}/{name} changed its service and was not deleted first"));
            }
        }
        let key = (kind, namespace, name);
        match self.objects.insert(key.clone(), version.clone()) {
            Some(before) if before == version => self.wrong.push(format!("{key:?} was said twice")),
            Some(before) if number(&before) > number(&version) => {
                self.wrong.push(format!("{key:?} went back from {before} to {version}"));
            }
            _ => {}
        }
    }

    fn delete(&mut self, key: &ObjectKey, service: Option<&str>) {
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        if key.kind == ObjectKind::EndpointSlice {
            let known = self.services.remove(&(namespace.clone(), name.clone())).flatten();
            if known.as_deref() != service {
                self.wrong.push(format!("{key} deleted from {service:?}, was in {known:?}"));
            }
        }
        if self.objects.remove(&(key.kind, namespace, name)).is_none() {
            self.wrong.push(format!("{key} deleted, was not there"));
        }
    }

    /// Number of objects of a kind.
    pub(crate) fn count(&self, kind: ObjectKind) -> usize {
        self.objects.keys().filter(|(k, _, _)| *k == kind).count()
    }

    /// Number of objects of a kind when everything was said to be known.
    pub(crate) fn count_at_sync(&self, kind: ObjectKind) -> usize {
        self.at_sync.keys().filter(|(k, _, _)| *k == kind).count()
    }
}

fn number(version: &str) -> u64 {
    version.parse().expect("a number")
}

/// What the server has that is for us.
fn selected(server: &ApiServer) -> State {
    let mut out = State::new();
    for (kind, resource) in RESOURCES {
        for object in server.all::<Value>(resource).expect("objects") {
            let meta = &object["metadata"];
            let text = |key: &str| meta[key].as_str().unwrap_or_default().to_owned();
            let ours = match kind {
                ObjectKind::Service => {
                    meta["labels"]["service.kubernetes.io/service-proxy-name"].is_null()
                        && object["spec"]["clusterIP"] != "None"
                }
                ObjectKind::EndpointSlice => meta["labels"]["service.kubernetes.io/headless"].is_null(),
                ObjectKind::Node => meta["name"] == NODE,
                ObjectKind::ServiceCidr => true,
            };
            if ours {
                out.insert((kind, text("namespace"), text("name")), text("resourceVersion"));
            }
        }
    }
    out
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The source, running.
pub(crate) struct Run {
    view: Arc<Mutex<View>>,
    log: Log,
    stop: StopSignal,
    thread: Option<JoinHandle<Result<(), SourceError>>>,
}

impl Run {
    /// Starts a source with a test's patience.
    pub(crate) fn start(access: Access) -> Self {
        Self::start_source(source(access))
    }

    pub(crate) fn start_source(source: Kubernetes) -> Self {
        let view = Arc::<Mutex<View>>::default();
        let into = Arc::clone(&view);
        let sink = EventSink::new(move |batch| {
            into.lock().expect("no panic").take(batch);
            Ok(())
        });
        let (log, stop) = (Log::default(), StopSignal::new());
        let (writer, stopped) = (log.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter("info,agent=debug")
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .finish();
            with_default(subscriber, || Box::new(source).run(sink, stopped))
        });
        Self { view, log, stop, thread: Some(thread) }
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().expect("no panic")
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8(self.log.0.lock().expect("no panic").clone()).expect("text")
    }

    /// Lines of the log above debug that hold a text.
    pub(crate) fn told(&self, part: &str) -> usize {
        self.log().lines().filter(|l| !l.contains(" DEBUG ") && l.contains(part)).count()
    }

    /// Waits until something is so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut so: impl FnMut(&View) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !so(&self.view()) {
            assert!(Instant::now() < deadline, "never so: {what}\n{:#?}\n{}", self.view().wrong, self.log());
            thread::sleep(BEAT);
        }
    }

    /// Waits until the view is what the server has; nothing wrong may have been said on the way.
    #[track_caller]
    pub(crate) fn settles(&self, server: &ApiServer) {
        self.until("synced", |v| v.synced == 1);
        let deadline = Instant::now() + LIMIT;
        loop {
            let wanted = selected(server);
            let view = self.view();
            if view.objects == wanted {
                assert_eq!(view.wrong, [""; 0], "{}", self.log());
                return;
            }
            if Instant::now() > deadline {
                let more: Vec<_> = view.objects.iter().filter(|(k, v)| wanted.get(*k) != Some(*v)).collect();
                let less: Vec<_> = wanted.iter().filter(|(k, v)| view.objects.get(*k) != Some(*v)).collect();
                panic!("stale: {more:?}\nlost: {less:?}\n{}", self.log());
            }
            drop(view);
            thread::sleep(BEAT);
        }
    }

    /// Tells it to stop and waits for the end.
    pub(crate) fn stop(mut self) -> Result<(), SourceError> {
        self.stop.raise();
        self.thread.take().expect("stopped once").join().expect("no panic")
    }

    /// Waits for an end of its own.
    pub(crate) fn ends(mut self) -> (Result<(), SourceError>, String) {
        let result = self.thread.take().expect("stopped once").join().expect("no panic");
        (result, self.log())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A source with a test's patience, which asks as often as it likes.
pub(crate) fn source(access: Access) -> Kubernetes {
    let needs = NodeNeeds { addresses: true, pod_cidrs: false };
    let rate = Rate { qps: -1.0, burst: 0 };
    Kubernetes::new(access, NodeName::new(NODE)).needs(needs).timing(TIMING).rate(rate)
}

/// How the server is spoken to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls1,
    /// HTTP/2 over TLS.
    Tls2,
}

impl Line {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Tls1, Self::Tls2];

    /// Settings of a server for it, with what a short test needs.
    pub(crate) fn builder(self) -> proxier_testkit::apiserver::Builder {
        let builder = ApiServer::builder().bookmark_every(Duration::from_millis(200));
        match self {
            Self::Plain => builder,
            Self::Tls1 => builder.tls().protocols(Protocols::Http1),
            Self::Tls2 => builder.tls(),
        }
    }
}

/// Starts a server that has a node, a range and so many Services with a slice each.
pub(crate) fn server(builder: proxier_testkit::apiserver::Builder, services: usize) -> BlockingApiServer {
    let server = BlockingApiServer::start(builder).expect("a server");
    let objects = (0..services).flat_map(|i| [service(i, 80), slice(i, i, 1)]);
    server.put_all([node(), range("kubernetes", "10.96.0.0/12")].into_iter().chain(objects)).expect("state");
    server
}

/// The way of somebody without a name to the server.
pub(crate) fn anyone(server: &ApiServer, folder: &tempfile::TempDir) -> Access {
    kubeconfig(folder, &server.kubeconfig(None))
}

/// The way that a kubeconfig describes, which is written to a file.
pub(crate) fn kubeconfig(folder: &tempfile::TempDir, text: &str) -> Access {
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, text).expect("written");
    Access::Kubeconfig { path, server: None }
}

pub(crate) fn service(i: usize, port: u16) -> Value {
    let ip = format!("10.96.{}.{}", i / 250, i % 250 + 1);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": format!("ns-{}", i % 7), "name": format!("svc-{i}")},
        "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"name": "http", "port": port, "protocol": "TCP"}]},
    })
}

/// The slice of that number, which says that it belongs to a Service.
pub(crate) fn slice(i: usize, of: usize, endpoints: usize) -> Value {
    let endpoints: Vec<_> =
        (1..=endpoints).map(|e| json!({"addresses": [format!("10.244.{}.{e}", i % 250)]})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": format!("ns-{}", i % 7), "name": format!("slice-{i}"),
            "labels": {"kubernetes.io/service-name": format!("svc-{of}")},
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": 8080}],
    })
}

pub(crate) fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    })
}

pub(crate) fn range(name: &str, cidr: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": name}, "spec": {"cidrs": [cidr]},
    })
}

/// Changes that follow from a seed: objects come, change, move to another Service and go.
pub(crate) struct Churn(u64);

impl Churn {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("32 bits") % below
    }

    /// One change among the objects of the first so many numbers.
    pub(crate) fn change(&mut self, server: &ApiServer, numbers: usize) {
        let i = self.next(numbers);
        let namespace = format!("ns-{}", i % 7);
        let put = |object| {
            server.put(object).expect("put");
        };
        match self.next(10) {
            0 => drop(server.delete("services", &namespace, &format!("svc-{i}"))),
            1 => drop(server.delete("endpointslices", &namespace, &format!("slice-{i}"))),
            2 => put(service(i, 81)),
            3 => {
                let mut headless = service(i, 80);
                headless["spec"]["clusterIP"] = "None".into();
                put(headless);
            }
            4 => put(slice(i, i + 7, 2)),
            5 => put(range(&format!("r-{}", i % 3), "10.112.0.0/16")),
            6 => drop(server.delete("servicecidrs", "", &format!("r-{}", i % 3))),
            7 => put(node()),
            _ => put(slice(i, i, 1 + self.next(3))),
        }
    }

    pub(crate) fn changes(&mut self, server: &ApiServer, numbers: usize, count: usize) {
        for _ in 0..count {
            self.change(server, numbers);
        }
    }
}
