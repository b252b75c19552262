use std::fs;
use std::os::unix::fs::symlink;
use std::sync::mpsc::Receiver;

use super::*;
use crate::source::{Object, spawn};

const STATE: &str = include_str!("../../../tests/data/state.yaml");

/// A folder, a reader of it, and what it has said.
struct Bench {
    dir: tempfile::TempDir,
    reader: Reader,
    sink: EventSink,
    events: Receiver<Vec<SourceEvent>>,
    started: bool,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let reader = Reader::new(dir.path().to_owned());
        let (sink, events) = EventSink::channel(1000);
        Self { dir, reader, sink, events, started: false }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let bench = Self::new();
        for (name, text) in files {
            bench.write(name, text);
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces a file as careful programs do, so that its inode differs.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("made");
        let temporary = self.path(".temporary");
        fs::write(&temporary, text).expect("written");
        fs::rename(temporary, path).expect("renamed");
    }

    /// Looks once; the events as short texts.
    fn look(&mut self) -> Vec<String> {
        self.try_look().expect("looks")
    }

    fn try_look(&mut self) -> Result<Vec<String>, SourceError> {
        let stop = StopSignal::new();
        if std::mem::replace(&mut self.started, true) {
            self.reader.look(&BTreeSet::new(), &self.sink, &stop)?;
        } else {
            self.reader.first(&self.sink, &stop)?;
        }
        Ok(self.events.try_iter().flatten().flat_map(|e| texts(&e)).collect())
    }
}

fn texts(event: &SourceEvent) -> Vec<String> {
    match event {
        SourceEvent::Upsert(object) => vec![format!("+ {}", describe(object))],
        SourceEvent::Delete { key, service: None } => vec![format!("- {key}")],
        SourceEvent::Delete { key, service: Some(service) } => vec![format!("- {key} of {service}")],
        SourceEvent::Synced => vec!["synced".into()],
        SourceEvent::Problems { origin, problems } if problems.is_empty() => vec![format!("well {origin}")],
        SourceEvent::Problems { origin, problems } => {
            problems.iter().map(|p| format!("! {origin}: {p}")).collect()
        }
    }
}

fn describe(object: &Object) -> String {
    match object {
        Object::Service(s) => {
            let port =
                s.spec.as_ref().and_then(|s| s.ports.as_ref()).and_then(|p| p.first()).map_or(0, |p| p.port);
            format!(
                "Service {}/{} {port}",
                name(s.metadata.namespace.as_ref()),
                name(s.metadata.name.as_ref())
            )
        }
        Object::EndpointSlice(s) => {
            format!(
                "EndpointSlice {}/{} {}",
                name(s.metadata.namespace.as_ref()),
                name(s.metadata.name.as_ref()),
                s.endpoints.len()
            )
        }
        Object::Node(n) => format!("Node {}", name(n.metadata.name.as_ref())),
        Object::ServiceCidr(c) => format!("ServiceCIDR {}", name(c.metadata.name.as_ref())),
    }
}

fn name(text: Option<&String>) -> &str {
    text.expect("always set")
}

fn service(name: &str, port: u32) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n"
    )
}

fn slice(name: &str, owner: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, labels: {{kubernetes.io/service-name: {owner}}}}}\n\
         addressType: IPv4\nendpoints: [{{addresses: [10.0.0.1]}}]\nports: []\n"
    )
}

fn json_item(kind: &str, name: &str, rest: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"{name}","namespace":"ns"}}{rest}}}"#)
}

#[test]
fn a_real_cluster_state() {
    let mut bench = Bench::with(&[("state.yaml", STATE)]);
    let events = bench.look();
    let count = |what: &str| events.iter().filter(|e| e.starts_with(what)).count();
    assert_eq!(count("+ Service "), 15);
    assert_eq!(count("+ EndpointSlice "), STATE.matches("kind: EndpointSlice").count());
    assert_eq!(count("+ Node "), 1);
    assert_eq!(events.last().map(String::as_str), Some("synced"));
    assert_eq!(count("!"), 0, "{events:?}");
    assert_eq!(bench.look(), [""; 0], "nothing is said twice");
}

#[test]
fn kubectl_output_with_everything_in_it() {
    let yaml = include_str!("../../../tests/data/kubectl-list.yaml");
    let json = include_str!("../../../tests/data/kubectl-list.json");
    let mut bench = Bench::with(&[("a.yaml", yaml), ("b.json", json)]);
    assert_eq!(
        bench.look(),
        [
            "+ Service shop/web 80",
            "+ EndpointSlice shop/web-x7k2p 2",
            "+ Service shop/api 8080",
            "+ Node worker-1",
            "synced"
        ]
    );
    assert_eq!(bench.reader.store.counts, store::Counts::default(), "taken when logged");
}

#[test]
fn managed_fields_are_dropped_and_the_rest_is_kept() {
    let yaml = include_str!("../../../tests/data/kubectl-list.yaml");
    let bench = Bench::with(&[("a.yaml", yaml)]);
    let mut reader = Reader::new(bench.dir.path().to_owned());
    reader.first(&bench.sink, &StopSignal::new()).expect("reads");
    let events: Vec<_> = bench.events.try_iter().flatten().collect();
    let SourceEvent::Upsert(Object::Service(web)) = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!(web.metadata.managed_fields, None);
    assert!(web.metadata.creation_timestamp.is_some());
    assert_eq!(web.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()), Some("10.96.12.7"));
    let SourceEvent::Upsert(slice @ Object::EndpointSlice(_)) = &events[1] else { panic!("{:?}", events[1]) };
    assert_eq!(slice.owning_service(), Some("web"));
}

#[test]
fn lists_of_one_kind_need_not_say_it_in_each_item() {
    let list = |version: &str, kind: &str, item: &str| {
        format!("{{\"items\":[{item}],\"kind\":\"{kind}\",\"apiVersion\":\"{version}\"}}")
    };
    let mut bench = Bench::with(&[
        ("a.json", &list("v1", "ServiceList", r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":1}]}}"#)),
        (
            "b.json",
            &list(
                "discovery.k8s.io/v1",
                "EndpointSliceList",
                r#"{"metadata":{"name":"e"},"addressType":"IPv4","endpoints":[]}"#,
            ),
        ),
        ("c.json", &list("v1", "NodeList", r#"{"metadata":{"name":"n"}}"#)),
        ("d.json", "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":null}"),
        ("e.json", &list("networking.k8s.io/v1", "ServiceCIDRList", r#"{"metadata":{"name":"c"}}"#)),
    ]);
    assert_eq!(
        bench.look(),
        ["+ Service default/s 1", "+ EndpointSlice default/e 0", "+ Node n", "+ ServiceCIDR c", "synced"]
    );
}

#[test]
fn other_kinds_are_ignored() {
    let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: yes}\nitems: 3\n";
    let mut bench = Bench::with(&[("a.yaml", text), ("notes.txt", "not yaml: ["), ("b.yaml", "")]);
    assert_eq!(bench.look(), ["synced"]);
}

#[test]
fn only_what_changed_is_said() {
    let both = |port| format!("{}---\n{}", service("a", 1), service("b", port));
    let mut bench = Bench::with(&[("x.yaml", &both(2)), ("y.yaml", &slice("e", "a"))]);
    assert_eq!(
        bench.look(),
        ["+ Service default/a 1", "+ Service default/b 2", "+ EndpointSlice default/e 1", "synced"]
    );
    bench.write("x.yaml", both(3));
    assert_eq!(bench.look(), ["+ Service default/b 3"]);
    bench.write("x.yaml", format!("# a comment\n{}", both(3)));
    assert_eq!(bench.look(), [""; 0]);
    bench.write("x.yaml", service("b", 3));
    assert_eq!(bench.look(), ["- Service default/a"]);
    fs::remove_file(bench.path("y.yaml")).expect("removed");
    assert_eq!(bench.look(), ["- EndpointSlice default/e of a"]);
    bench.write("x.yaml", "");
    assert_eq!(bench.look(), ["- Service default/b"]);
}

#[test]
fn a_change_of_owner_is_a_delete_and_an_upsert() {
    let mut bench = Bench::with(&[("x.yaml", &slice("e", "a"))]);
    bench.look();
    bench.write("x.yaml", slice("e", "b"));
    assert_eq!(bench.look(), ["- EndpointSlice default/e of a", "+ EndpointSlice default/e 1"]);
    fs::remove_file(bench.path("x.yaml")).expect("removed");
    bench.write("a.yaml", slice("e", "c"));
    assert_eq!(bench.look(), ["- EndpointSlice default/e of b", "+ EndpointSlice default/e 1"]);
}

#[test]
fn a_broken_document_keeps_its_objects_and_spares_the_others() {
    let file = |middle: &str, last| format!("{}---\n{middle}---\n{}", service("a", 1), service("c", last));
    let mut bench = Bench::with(&[("x.yaml", &file(&service("b", 2), 3))]);
    bench.look();
    bench.write("x.yaml", file("kind: [Service\n", 4));
    let events = bench.look();
    assert_eq!(events[0], "+ Service default/c 4");
    assert!(events[1].starts_with("! x.yaml: document 2: ") && events[1].contains("line "), "{events:?}");
    assert_eq!(events.len(), 2);
    bench.write("x.yaml", file(&service("b", 5), 4));
    assert_eq!(bench.look(), ["+ Service default/b 5", "well x.yaml"]);
}

#[test]
fn a_broken_item_keeps_only_its_own_last_state() {
    let file = |first: &str, second: &str| {
        let item = |name, port: &str| {
            json_item("Service", name, &format!(r#","spec":{{"ports":[{{"port":{port}}}]}}"#))
        };
        format!(r#"{{"apiVersion":"v1","kind":"List","items":[{},{}]}}"#, item("a", first), item("b", second))
    };
    let mut bench = Bench::with(&[("x.json", &file("1", "2"))]);
    bench.look();
    bench.write("x.json", file("\"http\"", "3"));
    assert_eq!(
        bench.look(),
        [
            "+ Service ns/b 3",
            "! x.json: document 1, item 1: Service ns/a: spec.ports[0].port: invalid type: string \"http\", expected i32",
        ]
    );
    bench.write("x.json", r#"{"apiVersion":"v1","kind":"List","items":[]}"#);
    let mut events = bench.look();
    events.sort();
    assert_eq!(events, ["- Service ns/a", "- Service ns/b", "well x.json"]);
}

#[test]
fn field_paths_of_yaml() {
    let mut bench =
        Bench::with(&[("x.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: {x: 1}}\n")]);
    assert_eq!(
        bench.look(),
        [
            "! x.yaml: document 1: Service default/a: metadata.labels.x: invalid type: integer `1`, expected a string",
            "synced"
        ]
    );
}

#[test]
fn what_an_object_must_say() {
    let docs = [
        "kind: Service\nmetadata: {name: a}\n",
        "apiVersion: v1\nmetadata: {name: a}\n",
        "apiVersion: v1\nkind: Service\nmetadata: {generateName: a-}\n",
        "apiVersion: v1\nkind: Service\nmetadata: a\n",
        "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a}\n",
        "- a list\n",
        "apiVersion: v1\nkind: List\nitems: {a: b}\n",
    ];
    let mut bench = Bench::with(&[("x.yaml", &docs.join("---\n"))]);
    assert_eq!(
        bench.look(),
        [
            "! x.yaml: document 1: apiVersion: missing",
            "! x.yaml: document 2: kind: missing",
            "! x.yaml: document 3: metadata.name: missing",
            "! x.yaml: document 4: metadata: invalid type: string \"a\", expected a mapping",
            "! x.yaml: document 5: EndpointSlice default/a: apiVersion: discovery.k8s.io/v1beta1 is not supported, only discovery.k8s.io/v1",
            "! x.yaml: document 6: expected a mapping",
            "! x.yaml: document 7: items: invalid type: map, expected a sequence",
            "synced",
        ]
    );
}

#[test]
fn of_two_files_with_one_object_the_first_counts() {
    let mut bench = Bench::with(&[("b.yaml", &service("s", 2)), ("c.yaml", &service("s", 3))]);
    let hidden = |file: &str, by: &str| {
        format!("! {file}: Service default/s: not used: {by} has it too and comes first")
    };
    assert_eq!(
        bench.look(),
        ["+ Service default/s 2".into(), "synced".into(), hidden("c.yaml", "b.yaml")].sorted()
    );
    // a third one takes precedence
    bench.write("a.yaml", service("s", 1));
    assert_eq!(
        bench.look(),
        ["+ Service default/s 1".into(), hidden("b.yaml", "a.yaml"), hidden("c.yaml", "a.yaml")]
    );
    // a hidden one may change
    bench.write("b.yaml", service("s", 22));
    assert_eq!(bench.look(), [""; 0]);
    // the next takes over
    fs::remove_file(bench.path("a.yaml")).expect("removed");
    assert_eq!(
        bench.look(),
        ["+ Service default/s 22".into(), "well b.yaml".into(), hidden("c.yaml", "b.yaml")]
    );
    bench.write("b.yaml", "");
    assert_eq!(bench.look(), ["+ Service default/s 3", "well c.yaml"]);
    fs::remove_file(bench.path("c.yaml")).expect("removed");
    assert_eq!(bench.look(), ["- Service default/s"]);
}

/// The order of events and problems at the first look: problems come before `synced`.
trait Sorted {
    fn sorted(self) -> Vec<String>;
}

impl<const N: usize> Sorted for [String; N] {
    fn sorted(self) -> Vec<String> {
        let mut all: Vec<String> = self.into();
        all.sort_by_key(|e| (e == "synced", !e.starts_with('+')));
        all
    }
}

#[test]
fn an_equal_object_in_the_next_file_takes_over_silently() {
    let mut bench = Bench::with(&[("a.yaml", &service("s", 1)), ("b.yaml", &service("s", 1))]);
    bench.look();
    fs::remove_file(bench.path("a.yaml")).expect("removed");
    assert_eq!(bench.look(), ["well b.yaml"]);
    bench.write("b.yaml", service("s", 2));
    assert_eq!(bench.look(), ["+ Service default/s 2"], "it is the owner now");
}

#[test]
fn an_object_that_moves_between_files_stays() {
    let mut bench = Bench::with(&[("a.yaml", &service("s", 1)), ("b.yaml", "")]);
    bench.look();
    bench.write("a.yaml", "");
    bench.write("b.yaml", service("s", 1));
    assert_eq!(bench.look(), [""; 0]);
    fs::rename(bench.path("b.yaml"), bench.path("0.yaml")).expect("renamed");
    assert_eq!(bench.look(), [""; 0]);
    fs::remove_file(bench.path("0.yaml")).expect("removed");
    assert_eq!(bench.look(), ["- Service default/s"]);
}

#[test]
fn twice_in_one_file() {
    let mut bench = Bench::with(&[("a.yaml", &format!("{}---\n{}", service("s", 1), service("s", 2)))]);
    assert_eq!(
        bench.look(),
        [
            "+ Service default/s 1",
            "! a.yaml: document 2: Service default/s: given before in this file; only the first one counts",
            "synced",
        ]
    );
}

#[test]
fn a_file_that_is_no_text_keeps_its_objects() {
    let mut bench = Bench::with(&[("a.yaml", &service("s", 1))]);
    bench.look();
    bench.write("a.yaml", b"kind: \xff\xfe");
    let events = bench.look();
    assert!(events.len() == 1 && events[0].starts_with("! a.yaml: not UTF-8: "), "{events:?}");
    bench.write("a.yaml", service("s", 1));
    assert_eq!(bench.look(), ["well a.yaml"]);
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_objects() {
    let mut bench = Bench::with(&[("a.yaml", &service("s", 1)), ("sub/b.yaml", &service("t", 1))]);
    bench.look();
    let kept = bench.path(".kept");
    fs::rename(bench.path("a.yaml"), &kept).expect("moved");
    symlink("a.yaml", bench.path("a.yaml")).expect("a link to itself");
    let events = bench.look();
    assert!(events.len() == 1 && events[0].starts_with("! a.yaml: "), "{events:?}");
    assert_eq!(bench.look(), [""; 0], "said once");
    fs::rename(&kept, bench.path("a.yaml")).expect("back");
    assert_eq!(bench.look(), ["well a.yaml"]);
    // a subfolder that leads nowhere hides what was in it, and what is hidden stays
    fs::rename(bench.path("sub"), bench.path(".sub")).expect("moved");
    symlink("nowhere", bench.path("sub")).expect("linked");
    let events = bench.look();
    assert!(events.len() == 1 && events[0].starts_with("! sub: "), "{events:?}");
    fs::remove_file(bench.path("sub")).expect("removed");
    assert_eq!(bench.look(), ["- Service default/t", "well sub"]);
}

#[test]
fn a_missing_folder_is_an_error_at_first_and_a_problem_later() {
    let mut bench = Bench::new();
    let missing = bench.path("missing");
    bench.reader = Reader::new(missing.clone());
    let error = bench.try_look().expect_err("not there").to_string();
    assert!(error.contains(missing.to_str().expect("text")), "{error}");

    let mut bench = Bench::with(&[("sub/a.yaml", &service("s", 1))]);
    bench.reader = Reader::new(bench.path("sub"));
    bench.look();
    fs::rename(bench.path("sub"), bench.path("away")).expect("moved");
    let events = bench.look();
    assert!(events.len() == 1 && events[0].contains("cannot read folder"), "{events:?}");
    assert_eq!(bench.look(), [""; 0]);
    fs::rename(bench.path("away"), bench.path("sub")).expect("back");
    assert!(bench.look()[0].starts_with("well "));
}

#[test]
fn a_config_map_swap() {
    let mut bench = Bench::new();
    let version = |n: u32, port: u32| {
        bench.write(&format!("..v{n}/a.yaml"), service("s", port));
        bench.write(&format!("..v{n}/sub/b.yaml"), service("t", 1));
        symlink(format!("..v{n}"), bench.path("..next")).expect("linked");
        fs::rename(bench.path("..next"), bench.path("..data")).expect("swapped");
    };
    version(1, 1);
    symlink("..data/a.yaml", bench.path("a.yaml")).expect("linked");
    symlink("..data/sub", bench.path("sub")).expect("linked");
    version(2, 2);
    assert_eq!(bench.look(), ["+ Service default/s 2", "+ Service default/t 1", "synced"]);
    bench.write("..v3/a.yaml", service("s", 3));
    bench.write("..v3/sub/b.yaml", service("t", 1));
    symlink("..v3", bench.path("..next")).expect("linked");
    fs::rename(bench.path("..next"), bench.path("..data")).expect("swapped");
    assert_eq!(bench.look(), ["+ Service default/s 3"]);
}

#[test]
fn what_breaks_at_first_sight_is_reported_and_does_not_hold_up_the_rest() {
    let mut bench = Bench::with(&[("a.json", "{\"apiVersion\":"), ("b.yaml", &service("s", 1))]);
    let events = bench.look();
    assert_eq!(events[0], "+ Service default/s 1");
    assert!(events[1].starts_with("! a.json: document 1: EOF"), "{events:?}");
    assert_eq!(events[2], "synced");
}

#[test]
fn large_lists_come_in_batches() {
    let items: Vec<_> = (0..1000).map(|i| json_item("Node", &format!("n{i}"), "")).collect();
    let mut bench = Bench::with(&[(
        "a.json",
        &format!(r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#, items.join(",")),
    )]);
    bench.started = true;
    bench.reader.first(&bench.sink, &StopSignal::new()).expect("reads");
    let sizes: Vec<_> = bench.events.try_iter().map(|b| b.len()).collect();
    assert_eq!(sizes, [batch::LIMIT, batch::LIMIT, batch::LIMIT, 1001 - 3 * batch::LIMIT]);
}

#[test]
fn a_closed_sink_ends_the_source() {
    let bench = Bench::with(&[("a.yaml", &service("s", 1))]);
    let (sink, receiver) = EventSink::channel(1);
    drop(receiver);
    let source = Box::new(Manifests::new(bench.dir.path()));
    assert!(matches!(source.run(sink, StopSignal::new()), Err(SourceError::Closed(_))));
}

/// The whole source on its thread, with the kernel's notices.
struct Live {
    events: Receiver<Vec<SourceEvent>>,
    stop: StopSignal,
    thread: Option<std::thread::JoinHandle<Result<(), SourceError>>>,
}

impl Live {
    fn start(root: &Path) -> Self {
        let (sink, events) = EventSink::channel(8);
        let stop = StopSignal::new();
        let thread = spawn(Box::new(Manifests::new(root)), sink, stop.clone()).expect("thread");
        Self { events, stop, thread: Some(thread) }
    }

    /// Waits until this is said. The limit only ends a test that would fail anyway.
    fn expect(&self, want: &str) {
        loop {
            let batch =
                self.events.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|e| panic!("{want}: {e}"));
            if batch.iter().flat_map(texts).any(|said| said == want) {
                return;
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.raise();
        let ended = self.thread.take().expect("running").join();
        if !std::thread::panicking() {
            ended.expect("no panic").expect("ends well");
        }
    }
}

#[test]
fn changes_are_noticed() {
    let bench = Bench::with(&[("a.yaml", &service("s", 1))]);
    let live = Live::start(bench.dir.path());
    live.expect("synced");
    bench.write("a.yaml", service("s", 2)); // an editor that renames
    live.expect("+ Service default/s 2");
    fs::write(bench.path("a.yaml"), service("s", 3)).expect("written"); // one that writes in place
    live.expect("+ Service default/s 3");
    fs::create_dir(bench.path("sub")).expect("made");
    fs::write(bench.path("sub/b.yaml"), service("t", 1)).expect("written");
    live.expect("+ Service default/t 1");
    fs::write(bench.path("sub/b.yaml"), service("t", 2)).expect("written"); // new subfolders are watched too
    live.expect("+ Service default/t 2");
    fs::remove_file(bench.path("a.yaml")).expect("removed");
    live.expect("- Service default/s");
}

#[test]
fn a_config_map_swap_is_noticed() {
    let bench = Bench::with(&[("..v1/a.yaml", &service("s", 1)), ("..v2/a.yaml", &service("s", 2))]);
    symlink("..v1", bench.path("..data")).expect("linked");
    symlink("..data/a.yaml", bench.path("a.yaml")).expect("linked");
    let live = Live::start(bench.dir.path());
    live.expect("+ Service default/s 1");
    symlink("..v2", bench.path("..next")).expect("linked");
    fs::rename(bench.path("..next"), bench.path("..data")).expect("swapped");
    live.expect("+ Service default/s 2");
}

#[test]
fn a_replaced_folder_is_noticed() {
    let bench = Bench::with(&[
        ("v1/a.yaml", &service("s", 1)),
        ("v2/a.yaml", &service("s", 2)),
        ("v3/a.yaml", &service("s", 3)),
    ]);
    let swap = |to: &str| {
        symlink(to, bench.path("next")).expect("linked");
        fs::rename(bench.path("next"), bench.path("current")).expect("swapped");
    };
    swap("v1");
    let live = Live::start(&bench.path("current"));
    live.expect("synced");
    swap("v2");
    live.expect("+ Service default/s 2");
    fs::write(bench.path("v2/a.yaml"), service("s", 22)).expect("written"); // the new one is watched
    live.expect("+ Service default/s 22");
    swap("v3"); // and so is the link
    live.expect("+ Service default/s 3");
}

#[test]
fn once_means_once() {
    let bench = Bench::with(&[("a.yaml", &service("s", 1))]);
    let (sink, events) = EventSink::channel(8);
    Box::new(Manifests::new(bench.dir.path()).once()).run(sink, StopSignal::new()).expect("ends");
    assert_eq!(events.iter().map(|b| b.len()).sum::<usize>(), 2);
}
