//! The real client against the server: what the agent's sources will do.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::{Event as Notice, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, ResourceExt};
use proxier_testkit::apiserver::{Action, ApiServer, Builder, Fault, Place, Protocols, Then, Verb};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::until;

/// Long enough for anything that comes at all: the client's first pause after an error is under a second.
const SOON: Duration = Duration::from_secs(30);

/// A client that was given this kubeconfig.
pub(crate) async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn start(builder: Builder) -> (ApiServer, Client) {
    let server = builder.start().await.unwrap();
    let client = client_of(&server.kubeconfig(None)).await;
    (server, client)
}

fn service(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "web", "name": name, "labels": labels},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80, "protocol": "TCP"}]}})
}

fn fill(server: &ApiServer, names: &[&str]) {
    server.put_all(names.iter().map(|name| service(name, &json!({})))).unwrap();
}

/// A watcher's events, and the set of names they lead to.
struct Follower {
    stream: Pin<Box<dyn Stream<Item = watcher::Result<Event<Service>>> + Send>>,
    names: BTreeSet<String>,
    coming: BTreeSet<String>,
    /// How often the whole state came, and how often an error.
    states: usize,
    errors: Vec<watcher::Error>,
}

impl Follower {
    fn new(client: &Client, config: watcher::Config) -> Self {
        let stream =
            kube::runtime::WatchStreamExt::default_backoff(watcher(Api::all(client.clone()), config));
        Self {
            stream: stream.boxed(),
            names: BTreeSet::new(),
            coming: BTreeSet::new(),
            states: 0,
            errors: Vec::new(),
        }
    }

    async fn step(&mut self) {
        match timeout(SOON, self.stream.next())
            .await
            .expect("something comes")
            .expect("a watcher does not end")
        {
            Ok(Event::Init) => self.coming.clear(),
            Ok(Event::InitApply(object)) => _ = self.coming.insert(object.name_any()),
            Ok(Event::InitDone) => {
                self.names = std::mem::take(&mut self.coming);
                self.states += 1;
            }
            Ok(Event::Apply(object)) => _ = self.names.insert(object.name_any()),
            Ok(Event::Delete(object)) => _ = self.names.remove(&object.name_any()),
            Err(error) => self.errors.push(error),
        }
    }

    /// Follows until these are the names.
    async fn reach(&mut self, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        while self.names != names {
            self.step().await;
        }
    }
}

fn configs() -> [watcher::Config; 2] {
    [watcher::Config::default().page_size(2), watcher::Config::default().streaming_lists()]
}

#[tokio::test]
async fn lists_whole_and_in_pages() {
    let (server, client) = start(ApiServer::builder()).await;
    let state: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../corpus/peer/state.yaml")).unwrap();
    server.put_all(state).unwrap();
    let services: Api<Service> = Api::all(client.clone());
    let whole = services.list(&ListParams::default()).await.unwrap();
    assert_eq!(whole.items.len(), 15);
    let (mut paged, mut parameters) = (Vec::new(), ListParams::default().limit(4));
    loop {
        let page = services.list(&parameters).await.unwrap();
        let next = page.metadata.continue_.clone();
        paged.extend(page.items);
        match next.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(paged, whole.items);
    let selected = ListParams::default()
        .labels("!service.kubernetes.io/service-proxy-name")
        .fields("spec.clusterIP!=None");
    let selected = services.list(&selected).await.unwrap();
    assert!(
        selected.items.len() < 15 && !selected.items.iter().any(|service| service.name_any() == "headless")
    );
    let slices =
        Api::<EndpointSlice>::namespaced(client.clone(), "web").list(&ListParams::default()).await.unwrap();
    assert!(slices.items.iter().any(|slice| slice.address_type == "IPv6"));
    let node = Api::<Node>::all(client.clone()).get("worker").await.unwrap();
    assert_eq!(node.spec.unwrap().pod_cidr.as_deref(), Some("10.244.1.0/24"));
    assert!(Api::<Node>::all(client.clone()).get_opt("none").await.unwrap().is_none());
    assert!(
        Api::<ServiceCIDR>::all(client.clone()).list(&ListParams::default()).await.unwrap().items.is_empty()
    );
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let groups = client.list_api_groups().await.unwrap().groups;
    assert_eq!(groups.len(), 3);
}

#[tokio::test]
async fn a_watcher_follows_in_either_way_over_either_http() {
    for protocols in [Protocols::Http1, Protocols::Both] {
        for config in configs() {
            let (server, client) = start(ApiServer::builder().protocols(protocols)).await;
            fill(&server, &["a", "b", "c", "d", "e"]);
            let mut follower = Follower::new(&client, config);
            follower.reach(&["a", "b", "c", "d", "e"]).await;
            server.delete("services", "web", "b").unwrap();
            fill(&server, &["f", "a"]);
            follower.reach(&["a", "c", "d", "e", "f"]).await;
            assert_eq!((follower.states, follower.errors.len()), (1, 0));
        }
    }
}

#[tokio::test]
async fn a_streaming_list_is_one_request() {
    let (server, client) = start(ApiServer::builder()).await;
    fill(&server, &["a", "b"]);
    Follower::new(&client, watcher::Config::default().streaming_lists()).reach(&["a", "b"]).await;
    assert_eq!((server.requests(Verb::List, "services"), server.requests(Verb::Watch, "services")), (0, 1));
    let (server, client) = start(ApiServer::builder().streaming_lists(false)).await;
    let mut refused = Follower::new(&client, watcher::Config::default().streaming_lists());
    refused.step().await;
    assert!(
        matches!(&refused.errors[0], watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 422)
    );
    assert_eq!(server.requests(Verb::List, "services"), 0);
}

#[tokio::test]
async fn a_watcher_recovers_from_an_expired_version() {
    for config in configs() {
        let (server, client) = start(ApiServer::builder()).await;
        fill(&server, &["a"]);
        let mut follower = Follower::new(&client, config);
        follower.reach(&["a"]).await;
        // What happens while the watch is down is forgotten before it is up again: nobody asks the follower meanwhile.
        follower_waits(&server, &mut follower).await;
        server.end_watches();
        until(|| server.watches("services") == 0).await;
        server.delete("services", "web", "a").unwrap();
        fill(&server, &["b"]);
        server.compact(server.revision());
        follower.reach(&["b"]).await;
        assert_eq!(follower.states, 2);
        assert!(matches!(&follower.errors[..], [watcher::Error::WatchError(status)] if status.code == 410));
        // The same told to a running watch.
        follower_waits(&server, &mut follower).await;
        server.expire_watches();
        while follower.errors.len() < 2 {
            follower.step().await;
        }
        fill(&server, &["c"]);
        follower.reach(&["b", "c"]).await;
        assert_eq!((follower.states, follower.errors.len()), (3, 2));
    }
}

/// Lets the follower go on until its watch runs.
async fn follower_waits(server: &ApiServer, follower: &mut Follower) {
    let mut step = pin!(follower.step());
    let mut running = pin!(until(|| server.watches("services") == 1));
    tokio::select! {
        () = &mut step => panic!("nothing was to come"),
        () = &mut running => {}
    }
}

#[tokio::test]
async fn an_expired_page_begins_the_list_anew() {
    let (server, client) = start(ApiServer::builder()).await;
    fill(&server, &["a", "b", "c", "d"]);
    let expired = Action::Status { code: 410, retry_after: None };
    server.fault(Fault::on(Verb::List, "services", expired).skip(1));
    let mut follower = Follower::new(&client, watcher::Config::default().page_size(2));
    follower.reach(&["a", "b", "c", "d"]).await;
    assert_eq!((follower.states, follower.errors.len()), (1, 1));
    assert_eq!(server.requests(Verb::List, "services"), 4);
}

#[tokio::test]
async fn objects_come_and_go_with_their_labels() {
    for config in configs() {
        let (server, client) = start(ApiServer::builder()).await;
        let foreign = json!({"service.kubernetes.io/service-proxy-name": "other"});
        server.put(service("a", &json!({}))).unwrap();
        server.put(service("b", &foreign)).unwrap();
        let mut follower = Follower::new(&client, config.labels("!service.kubernetes.io/service-proxy-name"));
        follower.reach(&["a"]).await;
        server.put(service("a", &foreign)).unwrap();
        follower.reach(&[]).await;
        server.put(service("b", &json!({}))).unwrap();
        follower.reach(&["b"]).await;
        assert_eq!((follower.states, follower.errors.len()), (1, 0));
    }
}

#[tokio::test]
async fn a_watcher_survives_every_fault() {
    let cut = |at, then| Action::Cut { at, then };
    let faults = [
        Fault::on(Verb::Watch, "services", Action::Close),
        Fault::on(Verb::Watch, "services", Action::Status { code: 429, retry_after: Some(0) }),
        Fault::on(Verb::Watch, "services", Action::Status { code: 500, retry_after: None }),
        Fault::on(Verb::Watch, "services", cut(Place::Bytes(10), Then::End)),
        Fault::on(Verb::Watch, "services", cut(Place::InEventAfter(0), Then::Close)),
        Fault::on(Verb::Watch, "services", cut(Place::InEventAfter(0), Then::Abort)),
        Fault::on(Verb::Watch, "services", cut(Place::Events(1), Then::End)),
        Fault::on(Verb::Watch, "services", cut(Place::Events(1), Then::Expire)),
    ];
    for config in configs() {
        for fault in &faults {
            let (server, client) = start(ApiServer::builder()).await;
            fill(&server, &["a"]);
            server.fault(fault.clone());
            let mut follower = Follower::new(&client, config.clone());
            follower.reach(&["a"]).await;
            fill(&server, &["b", "c"]);
            server.delete("services", "web", "a").unwrap();
            follower.reach(&["b", "c"]).await;
        }
    }
}

#[tokio::test]
async fn a_watcher_survives_a_restart() {
    for config in configs() {
        let (server, client) = start(ApiServer::builder()).await;
        fill(&server, &["a"]);
        let mut follower = Follower::new(&client, config);
        follower.reach(&["a"]).await;
        server.stop().await;
        fill(&server, &["b"]);
        while follower.errors.is_empty() {
            follower.step().await;
        }
        server.restart().await.unwrap();
        follower.reach(&["a", "b"]).await;
    }
}

#[tokio::test]
async fn bookmarks_reach_the_client() {
    let (server, client) = start(ApiServer::builder()).await;
    let services: Api<Service> = Api::all(client);
    let stream =
        services.watch(&WatchParams::default().timeout(20), &server.revision().to_string()).await.unwrap();
    let mut stream = pin!(stream);
    server.advance_to(70).unwrap();
    server.bookmark();
    match timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap() {
        WatchEvent::Bookmark(bookmark) => assert_eq!(bookmark.metadata.resource_version, "70"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn events_are_published_once_and_counted() {
    let (server, client) = start(ApiServer::builder()).await;
    let reporter = Reporter { controller: "proxier".to_owned(), instance: Some("proxier-worker".to_owned()) };
    let recorder = Recorder::new(client, reporter);
    let about = ObjectReference {
        kind: Some("Node".into()),
        name: Some("worker".into()),
        ..ObjectReference::default()
    };
    let notice = Notice {
        type_: EventType::Normal,
        reason: "Starting".to_owned(),
        note: None,
        action: "StartProxier".to_owned(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder.publish(&notice, &about).await.unwrap();
    }
    let events: Vec<k8s_openapi::api::events::v1::Event> = server.all("events").unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].series.as_ref().map(|series| series.count), Some(3));
    assert_eq!((server.requests(Verb::Create, "events"), server.requests(Verb::Patch, "events")), (1, 2));
    let untyped = Notice { reason: String::new(), ..notice };
    match recorder.publish(&untyped, &about).await {
        Err(kube::Error::Api(status)) => assert_eq!((status.code, status.reason.as_str()), (422, "Invalid")),
        other => panic!("{other:?}"),
    }
}
